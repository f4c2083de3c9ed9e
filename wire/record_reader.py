"""Records as objects: the cold path, for code that needs keys and values.

Coordinators load their partitions with it; searches by time, `log dump` and the rebuild of a batch use it. It reads
every message format and codec as a stream: a batch is never decompressed whole, and one record at a time is held, up to
`RECORD_MAX_BYTES` and `HEADERS_MAX`. `read_heads` reads only offsets, timestamps and lengths, and skips keys, values
and headers of any length.

Formats 0 and 1 (reference kafka-internals.md, D.3): a message is offset, size, CRC-32 of what follows, magic,
attributes, in format 1 a timestamp, then key and value with int32 lengths. A compressed message has a whole message set
as its value.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.wire.compression import BeyondLimits, CorruptRecords, Stream, open_stream, opening
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import (
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    is_intact,
    read_batch_header,
    walk_entries,
)
from barnabas.wire.record_cursor import (
    HEADERS_MAX,
    INT64_MIN,
    RECORDS_MAX_BYTES,
    Meter,
    RecordCursor,
    Steps,
    invalid_records,
    null_header_key,
    pass_headers,
    read_varint,
    read_varlong,
    too_many_headers,
    wrap_timestamp,
)
from barnabas.wire.sentinels import NO_TIMESTAMP

RECORD_MAX_BYTES = RECORDS_MAX_BYTES  # a produced batch may consist of one record of this size
# How bytes of a header name that are not UTF-8 are read: as U+FFFD, as in Java, or so that they are written unchanged.
AS_JAVA, UNCHANGED = "replace", "surrogateescape"
# The costs are in units of a `Meter`: to read the head of a record, and to step over a record in a
# search by time.
_HEAD_COST, _PASS_COST = 16, 3

_ENTRY_START = struct.Struct(">qi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
CONTROL_KEY = struct.Struct(">hh")  # version 0, type
CONTROL_VALUE = struct.Struct(">hi")  # version 0, coordinator epoch


class Record(NamedTuple):
    """One record as an application sees it; `timestamp` is -1 in format 0, which has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class RecordHead(NamedTuple):
    """The numbers of a format 2 record that precede its value; a length is negative for null."""

    timestamp_delta: int
    offset_delta: int
    key_length: int
    value_length: int


class ControlRecord(NamedTuple):
    """A marker that ends a transaction: `type` is ABORT or COMMIT, or a number that this version does not know."""

    type: int
    coordinator_epoch: int


ABORT = 0
COMMIT = 1


def read_records(
    buffer: bytes | bytearray | memoryview,
    position: int = 0,
    *,
    with_headers: bool = True,
    record_max_bytes: int = RECORD_MAX_BYTES,
    name_errors: str = AS_JAVA,
) -> Iterator[Record]:
    """The records of the entry at `position`, in any format. CorruptRecords if it is damaged.

    BeyondLimits for a record of more than `record_max_bytes`, or with more than `HEADERS_MAX` headers. Without
    `with_headers` headers are skipped, and have no limit. `name_errors` is for their names that are not UTF-8.
    """
    entry, magic, offset = _intact_entry(buffer, position)
    if magic < 2:
        return _read_legacy_entry(entry, offset, record_max_bytes)
    return _read_batch(entry, with_headers, record_max_bytes, name_errors)


def read_all_records(
    buffer: bytes | bytearray | memoryview, *, name_errors: str = AS_JAVA
) -> Iterator[tuple[BatchHeader | None, Record]]:
    """Every record of every whole entry, each with the header of its batch (None in formats 0 and 1)."""
    for start, entry in walk_entries(buffer):
        header = read_batch_header(buffer, start) if entry.magic == 2 else None
        for record in read_records(buffer, start, name_errors=name_errors):
            yield header, record


def walk_records(buffer: bytes | bytearray | memoryview) -> Iterator[tuple[BatchHeader | None, Record | int]]:
    """As `read_all_records`, and behind the records of each batch the offset at which the next one begins.

    A reader goes on from there: compaction may have removed the last records of a batch, or all of them.
    """
    for start, entry in walk_entries(buffer):
        header = read_batch_header(buffer, start) if entry.magic == 2 else None
        for record in read_records(buffer, start):
            yield header, record
        if header is not None:
            yield header, header.last_offset + 1


def read_heads(header: BatchHeader, batch: memoryview) -> Iterator[RecordHead | int | None]:
    """The head of each record of a format 2 batch; between them, after each step, what `Steps` yield.

    CorruptRecords unless the records fill the batch exactly. What follows the value's length is skipped unread.
    """
    stream = yield from opening(header.codec, batch[BATCH_OVERHEAD_BYTES:])
    if held_bytes := stream.held_bytes:
        yield held_bytes
    meter = Meter()
    cursor = RecordCursor(stream, meter)
    for index in range(header.record_count):
        yield (yield from _read_head(cursor, meter, stream, index))
    if not cursor.is_at_end():
        raise invalid_records("bytes follow the last record")


def _read_head(cursor: RecordCursor, meter: Meter, stream: Stream, index: int) -> Steps[RecordHead]:
    """The head of the next record, which is passed."""
    length = cursor.read_number()
    end = cursor.consumed_bytes + length
    cursor.read_bytes(1)  # the attributes, which have no meaning
    timestamp_delta = cursor.read_number(64)
    offset_delta = cursor.read_number()
    key_length = cursor.read_number()
    for _ in cursor.skip(key_length):
        yield stream.held_bytes
    value_length = cursor.read_number()

    # The value must fit into the record. The headers are not parsed: the skip ends where the record's length says.
    if (left := end - cursor.consumed_bytes) < max(value_length, 0):
        raise invalid_records(f"the lengths within record {index} contradict each other")
    for _ in cursor.skip(left):
        yield stream.held_bytes
    meter.credit -= _HEAD_COST
    if meter.is_step_over():
        yield stream.held_bytes
    return RecordHead(timestamp_delta, offset_delta, key_length, value_length)


def find_time(entry_bytes: memoryview, timestamp: int, start_offset: int = 0) -> Steps[tuple[int, int] | None]:
    """Offset and timestamp of the first record of an entry, in any format, with `start_offset` or a later offset and
    `timestamp` or a later time; None if there is none. CorruptRecords if the entry is damaged.
    """
    entry, magic, offset = _intact_entry(entry_bytes, 0)
    if magic < 2:
        for record in _read_legacy_entry(entry, offset, RECORD_MAX_BYTES):
            if record.offset >= start_offset and record.timestamp >= timestamp:
                return record.offset, record.timestamp
        return None

    header = read_batch_header(entry)
    if header.uses_log_append_time:
        # Every record has the header's time, whatever its delta is.
        if header.max_timestamp < timestamp:
            return None
        timestamp = INT64_MIN

    found = yield from _find_time(header, entry, timestamp, start_offset - header.base_offset)
    if found is None:
        return None
    offset_delta, found_timestamp = found
    return header.base_offset + offset_delta, header.max_timestamp if header.uses_log_append_time else found_timestamp


def find_largest_timestamp(entry_bytes: memoryview, upper_bound: int, start_offset: int) -> Steps[int]:
    """The largest timestamp of an entry's records from `start_offset` on; -1 if there is none.

    `upper_bound` is the largest timestamp in the entry's header.
    """
    found = yield from find_time(entry_bytes, NO_TIMESTAMP, start_offset)
    if found is None:
        return NO_TIMESTAMP
    # The search halves the range, so the records are read 64 times at most, whatever their
    # timestamps are.
    largest = found[1]
    while largest < upper_bound:
        middle = (largest + upper_bound + 1) // 2
        found = yield from find_time(entry_bytes, middle, start_offset)
        if found is None:
            upper_bound = middle - 1
        else:
            largest = found[1]

    return largest


def _find_time(
    header: BatchHeader, batch: memoryview, timestamp: int, first_delta: int
) -> Steps[tuple[int, int] | None]:
    """Offset delta and timestamp, by the deltas alone, of the first record that `find_time` looks for."""
    stream = yield from opening(header.codec, batch[BATCH_OVERHEAD_BYTES:])
    if held_bytes := stream.held_bytes:
        yield held_bytes
    meter = Meter()
    cursor = RecordCursor(stream, meter)
    index = 0
    count = header.record_count
    while index < count:
        wanted = min(count - index, meter.credit // _PASS_COST + 1)
        rows = cursor.pass_earlier_rows(index, wanted, header.base_timestamp, timestamp)
        passed, found = cursor.pass_earlier(wanted - rows, header.base_timestamp, timestamp, first_delta)
        if found is not None:
            return found
        passed += rows
        index += passed
        meter.credit -= passed * _PASS_COST
        if meter.is_step_over():
            yield stream.held_bytes
        # The next record is cut off at the end of the buffer, or is longer than a buffer.
        elif index < count:
            head = yield from _read_head(cursor, meter, stream, index)
            its_timestamp = wrap_timestamp(header.base_timestamp + head.timestamp_delta)
            if its_timestamp >= timestamp and head.offset_delta >= first_delta:
                return head.offset_delta, its_timestamp
            index += 1

    if not cursor.is_at_end():
        raise invalid_records("bytes follow the last record")
    return None


def read_control_record(record: Record) -> ControlRecord:
    """The marker in the record of a control batch. CorruptRecords if its key or value is too short."""
    # The versions are not compared, and longer fields are accepted: Kafka parses newer versions as version 0, too.
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise CorruptRecords(f"the control record at offset {record.offset} has no type")
    if record.value is None or len(record.value) < CONTROL_VALUE.size:
        raise CorruptRecords(f"the control record at offset {record.offset} has no coordinator epoch")
    _, control_type = CONTROL_KEY.unpack_from(record.key)
    _, coordinator_epoch = CONTROL_VALUE.unpack_from(record.value)
    return ControlRecord(control_type, coordinator_epoch)


def control_of(data: bytes | bytearray | memoryview) -> ControlRecord | None:
    """The record of a control batch; None if compaction has removed it. CorruptRecords if it is malformed."""
    # A control batch has one record.
    record = next(read_records(data), None)
    return None if record is None else read_control_record(record)


def timestamp_of(header: BatchHeader, timestamp_delta: int) -> int:
    """The timestamp of a record of this batch, from its delta."""
    # With the LogAppendTime bit the header's max timestamp counts for all records, whatever their deltas are.
    if header.uses_log_append_time:
        return header.max_timestamp
    return wrap_timestamp(header.base_timestamp + timestamp_delta)


def _intact_entry(buffer: bytes | bytearray | memoryview, position: int) -> tuple[memoryview, int, int]:
    """The bytes of the entry at `position`, its message format and its offset. CorruptRecords if it is damaged."""
    for start, entry in walk_entries(buffer, position):
        view = memoryview(buffer)[start : start + entry.size_bytes]
        if not is_intact(view):
            raise CorruptRecords(f"the checksum of the entry at position {start} is wrong")
        return view, entry.magic, entry.offset
    raise CorruptRecords(f"there is no whole entry at position {position}")


def _read_batch(batch: memoryview, with_headers: bool, record_max_bytes: int, name_errors: str) -> Iterator[Record]:
    header = read_batch_header(batch)
    cursor = RecordCursor(open_stream(header.codec, batch[BATCH_OVERHEAD_BYTES:]), Meter())
    for _ in range(header.record_count):
        length = cursor.read_number()
        # A `Record` is held whole, so its length is limited, while stored batches may hold longer ones.
        if length > record_max_bytes:
            raise BeyondLimits(f"a record of {length} bytes is too large to be read", ErrorCode.MESSAGE_TOO_LARGE)
        yield _parse_record(header, cursor.read_bytes(max(length, 0)), with_headers, name_errors)
    if not cursor.is_at_end():
        raise invalid_records("bytes follow the last record")


def _parse_record(header: BatchHeader, body: bytes, with_headers: bool, name_errors: str) -> Record:
    """The record with this body, which is the record without its length."""
    # Byte 0 holds the attributes, which have no meaning. A read past the end raises IndexError: a false length.
    try:
        timestamp_delta, position = read_varlong(body, 1)
        offset_delta, position = read_signed(body, position)
        key, position = read_field(body, position)
        value, position = read_field(body, position)
        header_count, position = read_signed(body, position)
        headers = []

        # Millions of headers are legal in a stored batch, and each would become an object.
        if not with_headers:
            passed, position = pass_headers(body, position, header_count)
            if passed < header_count:
                raise IndexError
        elif header_count > HEADERS_MAX:
            raise too_many_headers(header_count)
        else:
            for _ in range(header_count):
                header_key, position = read_field(body, position)
                header_value, position = read_field(body, position)
                if header_key is None:
                    raise null_header_key()

                headers.append((header_key.decode("utf-8", name_errors), header_value))
    except IndexError:
        raise invalid_records("a length within a record leads out of it") from None

    # Bytes are left over: the length of the record contradicts those of its fields.
    if position != len(body) or header_count < 0:
        raise invalid_records("the lengths within a record contradict each other")
    return Record(header.base_offset + offset_delta, timestamp_of(header, timestamp_delta), key, value, headers)


def read_signed(body: bytes, position: int) -> tuple[int, int]:
    """A varint of 32 bits, as a signed number, and the position behind it."""
    value, position = read_varint(body, position)
    return (value >> 1) ^ -(value & 1), position


def read_field(body: bytes, position: int) -> tuple[bytes | None, int]:
    """The bytes after their length (None if that is negative), and the position behind; IndexError if cut off."""
    if (length := body[position]) < 128:
        position += 1
    else:
        length, position = read_varint(body, position)
    if length & 1:  # odd is negative in zigzag
        return None, position
    end = position + (length >> 1)
    # A slice would be cut silently, and the shorter key or value would look intact.
    if end > len(body):
        raise IndexError
    return body[position:end], end


def _read_legacy_entry(entry: memoryview, offset: int, message_max_bytes: int) -> Iterator[Record]:
    """The record of a message of format 0 or 1, or the records in a compressed one."""
    attributes = entry[17]
    outer = _parse_legacy(entry, offset)
    codec = attributes & CODEC_MASK
    if not codec:
        yield outer
        return
    if outer.value is None:
        raise CorruptRecords(f"the compressed message at offset {offset} is empty")
    magic = entry[16]
    content = memoryview(outer.value)
    first_offset = 0

    # In format 1 the offsets inside count from 0, and the compressed message has the offset of the last one: so the set
    # is decompressed twice, first to find the last inner offset. In format 0 the offsets inside are absolute.
    if magic == 1:
        for inner_offset, _ in _read_inner_entries(codec, content, magic, message_max_bytes):
            first_offset = offset - inner_offset
    for inner_offset, message in _read_inner_entries(codec, content, magic, message_max_bytes):
        record = _parse_legacy(message, first_offset + inner_offset)

        # Kafka refuses a compressed message inside another one; unlimited nesting would also mean unlimited work.
        if message[17] & CODEC_MASK:
            raise CorruptRecords(f"a compressed message within the compressed one at offset {offset}")

        # The leader writes the append time only into the outer message, to spare the recompression (KIP-32).
        if attributes & LOG_APPEND_TIME and magic == 1:
            record = record._replace(timestamp=outer.timestamp)
        yield record


def _read_inner_entries(
    codec: int, content: memoryview, magic: int, message_max_bytes: int
) -> Iterator[tuple[int, memoryview]]:
    """Offset and bytes of each message in a compressed message."""
    cursor = RecordCursor(open_stream(codec, content, magic), Meter())
    while not cursor.is_at_end():
        start = cursor.read_bytes(LENGTH_OVERHEAD_BYTES)
        offset, length = _ENTRY_START.unpack(start)
        # The length is only a claim, so both checks precede the read.
        if length < 0:
            raise CorruptRecords(f"a message of {length} bytes inside the one at offset {offset}")
        if length > message_max_bytes:
            raise BeyondLimits(f"a message of {length} bytes is too large to be read", ErrorCode.MESSAGE_TOO_LARGE)
        yield offset, memoryview(start + cursor.read_bytes(length))


def _parse_legacy(message: memoryview, offset: int) -> Record:
    timestamp = NO_TIMESTAMP
    position = 18
    try:
        if message[16] == 1:
            timestamp = _INT64.unpack_from(message, position)[0]
            position = position + 8
        key, position = _read_legacy_field(message, position)
        value, position = _read_legacy_field(message, position)
    except (IndexError, struct.error):
        raise CorruptRecords(f"the message at offset {offset} is cut off") from None
    return Record(offset, timestamp, key, value, [])


def _read_legacy_field(message: memoryview, position: int) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(message, position)
    position += 4
    if length < 0:
        return None, position
    # A slice would be cut silently.
    if position + length > len(message):
        raise IndexError
    return bytes(message[position : position + length]), position + length
