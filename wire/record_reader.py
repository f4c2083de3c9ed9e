"""The cold path of records: one object per record, where keys and values are needed.

Coordinators load their partitions with it, time look-ups and `log dump` use it, and so does the rebuild of a batch. It
reads every message format and codec, as a stream: a batch is never decompressed whole, a record is held one at a time
and only up to `RECORD_MAX_BYTES` and `HEADERS_MAX`. Who asks for times alone reads the heads of records
(`read_heads`), and what follows a head is skipped in the stream, however long it is.

Formats 0 and 1 (reference kafka-internals.md, D.3): a message is offset, size, CRC-32 of what follows, magic,
attributes, in format 1 a timestamp, then key and value with int32 lengths. A compressed message wraps a message set as
its value. In format 1 the offsets inside count from 0, and the wrapper has the offset of the last of them; in format 0
they are absolute.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.wire.compression import BeyondLimits, CorruptRecords, open_stream, opening
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
    RECORDS_MAX_BYTES,
    Meter,
    RecordCursor,
    invalid_records,
    null_header_key,
    pass_headers,
    read_varint,
    read_varlong,
    too_many_headers,
)
from barnabas.wire.sentinels import NO_TIMESTAMP

RECORD_MAX_BYTES = RECORDS_MAX_BYTES  # what one may have that is alone in its batch
_HEAD_COST = 16  # of reading the head of a record, in the units of a `Meter`

_ENTRY_START = struct.Struct(">qi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
CONTROL_KEY = struct.Struct(">hh")  # version 0, type
CONTROL_VALUE = struct.Struct(">hi")  # version 0, coordinator epoch


class Record(NamedTuple):
    """One record as an application sees it; `timestamp` is -1 where the format has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class RecordHead(NamedTuple):
    """What stands in a record of format 2 before the value, as it is written; lengths are -1 for null."""

    timestamp_delta: int
    offset_delta: int
    key_length: int
    value_length: int


class ControlRecord(NamedTuple):
    """A marker that ends a transaction: `type` is ABORT or COMMIT, or a number this version does not know."""

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
) -> Iterator[Record]:
    """The records of the entry at `position`, whatever its format; CorruptRecords where it is damaged.

    A record that is longer, or has more headers, than may be held raises BeyondLimits.
    """
    entry, magic, offset = _intact_entry(buffer, position)
    if magic < 2:
        return _read_legacy_entry(entry, offset, record_max_bytes)
    return _read_batch(entry, with_headers, record_max_bytes)


def read_all_records(buffer: bytes | bytearray | memoryview) -> Iterator[tuple[BatchHeader | None, Record]]:
    """Every record of every whole entry, each with the header of its batch, None in formats 0 and 1."""
    for start, entry in walk_entries(buffer):
        header = read_batch_header(buffer, start) if entry.magic == 2 else None
        for record in read_records(buffer, start):
            yield header, record


def read_heads(header: BatchHeader, batch: memoryview) -> Iterator[RecordHead | int | None]:
    """The head of each record of a format 2 batch, and where a step is over what `Steps` yield.

    CorruptRecords unless the records fill it exactly. Behind the value's length nothing is looked at.
    """
    stream = yield from opening(header.codec, batch[BATCH_OVERHEAD_BYTES:])
    if held_bytes := stream.held_bytes:
        yield held_bytes
    meter = Meter()
    cursor = RecordCursor(stream, meter)
    for index in range(header.record_count):
        length = cursor.read_number()
        end = cursor.consumed_bytes + length
        cursor.read_bytes(1)  # the attributes, which say nothing
        timestamp_delta, offset_delta = cursor.read_number(64), cursor.read_number()
        key_length = cursor.read_number()
        for _ in cursor.skip(key_length):
            yield stream.held_bytes
        value_length = cursor.read_number()
        if (left := end - cursor.consumed_bytes) < max(value_length, 0):
            raise invalid_records(f"the lengths within record {index} contradict each other")
        for _ in cursor.skip(left):
            yield stream.held_bytes
        meter.credit -= _HEAD_COST
        if meter.is_step_over():
            yield stream.held_bytes
        yield RecordHead(timestamp_delta, offset_delta, key_length, value_length)
    if not cursor.is_at_end():
        raise invalid_records("bytes follow the last record")


def read_times(buffer: bytes | bytearray | memoryview, position: int = 0) -> Iterator[tuple[int, int] | int | None]:
    """Offset and timestamp of each record of the entry at `position`, whatever its format, in little memory.

    Where a step is over, what `Steps` yield. CorruptRecords where the entry is damaged.
    """
    entry, magic, offset = _intact_entry(buffer, position)
    if magic < 2:
        for record in _read_legacy_entry(entry, offset, RECORD_MAX_BYTES):
            yield record.offset, record.timestamp
        return
    header = read_batch_header(entry)
    for head in read_heads(header, entry):
        if not isinstance(head, RecordHead):
            yield head
        else:
            yield header.base_offset + head.offset_delta, timestamp_of(header, head.timestamp_delta)


def find_offset_by_timestamp(
    buffer: bytes | bytearray | memoryview, position: int, timestamp: int, starting_offset: int = 0
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record at `starting_offset` or later that is as new as `timestamp`.

    Looks at the one entry at `position`.
    """
    for offset, its_timestamp in _all_times(buffer, position):
        if its_timestamp >= timestamp and offset >= starting_offset:
            return offset, its_timestamp
    return None


def largest_timestamp_in(buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int]:
    """Offset and timestamp of the first of the newest records in the entry at `position`; (-1, -1) when it has none."""
    found = -1, NO_TIMESTAMP
    for offset, timestamp in _all_times(buffer, position):
        if timestamp > found[1]:
            found = offset, timestamp
    return found


def _all_times(buffer: bytes | bytearray | memoryview, position: int) -> Iterator[tuple[int, int]]:
    """The same, from end to end."""
    return (found for found in read_times(buffer, position) if isinstance(found, tuple))


def read_control_record(record: Record) -> ControlRecord:
    """What the record of a control batch says; CorruptRecords when it says nothing."""
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise CorruptRecords(f"the control record at offset {record.offset} has no type")
    if record.value is None or len(record.value) < CONTROL_VALUE.size:
        raise CorruptRecords(f"the control record at offset {record.offset} has no coordinator epoch")
    _, control_type = CONTROL_KEY.unpack_from(record.key)
    _, coordinator_epoch = CONTROL_VALUE.unpack_from(record.value)
    return ControlRecord(control_type, coordinator_epoch)


def wrap_timestamp(timestamp: int) -> int:
    """Into 64 bits, as Java's addition of a delta does; a hostile batch may overflow."""
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def timestamp_of(header: BatchHeader, timestamp_delta: int) -> int:
    """The timestamp of a record of this batch."""
    if header.uses_log_append_time:
        return header.max_timestamp
    return wrap_timestamp(header.base_timestamp + timestamp_delta)


def _intact_entry(buffer: bytes | bytearray | memoryview, position: int) -> tuple[memoryview, int, int]:
    """The entry at `position`, its message format and its offset."""
    for start, entry in walk_entries(buffer, position):
        view = memoryview(buffer)[start : start + entry.size_bytes]
        if not is_intact(view):
            raise CorruptRecords(f"the checksum of the entry at position {start} is wrong")
        return view, entry.magic, entry.offset
    raise CorruptRecords(f"there is no whole entry at position {position}")


def _read_batch(batch: memoryview, with_headers: bool, record_max_bytes: int) -> Iterator[Record]:
    header = read_batch_header(batch)
    cursor = RecordCursor(open_stream(header.codec, batch[BATCH_OVERHEAD_BYTES:]), Meter())
    for _ in range(header.record_count):
        length = cursor.read_number()
        if length > record_max_bytes:
            raise BeyondLimits(f"a record of {length} bytes is too large to be read", ErrorCode.MESSAGE_TOO_LARGE)
        yield _parse_record(header, cursor.read_bytes(max(length, 0)), with_headers)
    if not cursor.is_at_end():
        raise invalid_records("bytes follow the last record")


def _parse_record(header: BatchHeader, body: bytes, with_headers: bool) -> Record:
    """A record without its length; the first byte is the attributes, which say nothing."""
    try:
        timestamp_delta, position = read_varlong(body, 1)
        offset_delta, position = read_signed(body, position)
        key, position = read_field(body, position)
        value, position = read_field(body, position)
        header_count, position = read_signed(body, position)
        headers = []
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
                headers.append((header_key.decode("utf-8", "replace"), header_value))
    except IndexError:
        raise invalid_records("a length within a record leads out of it") from None
    if position != len(body) or header_count < 0:
        raise invalid_records("the lengths within a record contradict each other")
    return Record(header.base_offset + offset_delta, timestamp_of(header, timestamp_delta), key, value, headers)


def read_signed(body: bytes, position: int) -> tuple[int, int]:
    """A varint of 32 bits, as signed number, and the position behind it."""
    value, position = read_varint(body, position)
    return (value >> 1) ^ -(value & 1), position


def read_field(body: bytes, position: int) -> tuple[bytes | None, int]:
    """Bytes behind their length, None for a negative one; IndexError where they are not all there."""
    if (length := body[position]) < 128:
        position += 1
    else:
        length, position = read_varint(body, position)
    if length & 1:
        return None, position
    end = position + (length >> 1)
    if end > len(body):
        raise IndexError
    return body[position:end], end


def _read_legacy_entry(entry: memoryview, offset: int, message_max_bytes: int) -> Iterator[Record]:
    """A message of format 0 or 1, or the messages inside a compressed one."""
    attributes = entry[17]
    outer = _parse_legacy(entry, offset)
    codec = attributes & CODEC_MASK
    if not codec:
        yield outer
        return
    if outer.value is None:
        raise CorruptRecords(f"the compressed message at offset {offset} is empty")
    magic, content = entry[16], memoryview(outer.value)
    first_offset = 0
    if magic == 1:
        for inner_offset, _ in _read_inner_entries(codec, content, magic, message_max_bytes):
            first_offset = offset - inner_offset
    for inner_offset, message in _read_inner_entries(codec, content, magic, message_max_bytes):
        record = _parse_legacy(message, first_offset + inner_offset)
        if message[17] & CODEC_MASK:
            raise CorruptRecords(f"a compressed message within the compressed one at offset {offset}")
        if attributes & LOG_APPEND_TIME and magic == 1:
            record = record._replace(timestamp=outer.timestamp)
        yield record


def _read_inner_entries(
    codec: int, content: memoryview, magic: int, message_max_bytes: int
) -> Iterator[tuple[int, memoryview]]:
    """Offset and bytes of each message of a compressed message set."""
    cursor = RecordCursor(open_stream(codec, content, magic), Meter())
    while not cursor.is_at_end():
        start = cursor.read_bytes(LENGTH_OVERHEAD_BYTES)
        offset, length = _ENTRY_START.unpack(start)
        if length < 0:
            raise CorruptRecords(f"a message of {length} bytes inside the one at offset {offset}")
        if length > message_max_bytes:
            raise BeyondLimits(f"a message of {length} bytes is too large to be read", ErrorCode.MESSAGE_TOO_LARGE)
        yield offset, memoryview(start + cursor.read_bytes(length))


def _parse_legacy(message: memoryview, offset: int) -> Record:
    timestamp, position = NO_TIMESTAMP, 18
    try:
        if message[16] == 1:
            timestamp, position = _INT64.unpack_from(message, position)[0], position + 8
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
    if position + length > len(message):
        raise IndexError
    return bytes(message[position : position + length]), position + length
