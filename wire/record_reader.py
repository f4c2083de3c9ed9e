"""The cold path of records: one object per record, for whoever has to look at keys and values.

Coordinators load their partitions with it, time look-ups and `log dump` use it, and so does the rebuild of a batch. It
reads every message format and codec, as a stream: a batch is never decompressed whole, a record is held one at a time
and only up to `RECORD_MAX_BYTES`.

Formats 0 and 1 (reference kafka-internals.md, D.3): a message is offset, size, CRC-32 of what follows, magic,
attributes, in format 1 a timestamp, then key and value with int32 lengths. A compressed message wraps a message set as
its value. In format 1 the offsets inside count from 0, and the wrapper has the offset of the last of them; in format 0
they are absolute.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.wire.compression import CorruptRecords, open_stream
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import (
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    is_intact,
    read_batch_header,
    walk_entries,
)
from barnabas.wire.record_walk import RecordCursor, read_varint, read_varlong

RECORD_MAX_BYTES = 128 << 20  # larger than socket.request.max.bytes, so than any record a client can mean

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


class RawRecord(NamedTuple):
    """One record of format 2 as it is written: relative numbers, header keys not decoded."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class ControlRecord(NamedTuple):
    """A marker that ends a transaction: `type` is ABORT or COMMIT, or a number this version does not know."""

    type: int
    coordinator_epoch: int


ABORT = 0
COMMIT = 1


def read_records(buffer: bytes | bytearray | memoryview, position: int = 0) -> Iterator[Record]:
    """The records of the entry at `position`, whatever its format; CorruptRecords where it is damaged."""
    for start, entry in walk_entries(buffer, position):
        view = memoryview(buffer)[start : start + entry.size_bytes]
        if not is_intact(view):
            raise CorruptRecords(f"the checksum of the entry at position {start} is wrong")
        return _read_batch(view) if entry.magic == 2 else _read_legacy_entry(view, entry.offset)
    raise CorruptRecords(f"there is no whole entry at position {position}")


def read_all_records(buffer: bytes | bytearray | memoryview) -> Iterator[tuple[BatchHeader | None, Record]]:
    """Every record of every whole entry, each with the header of its batch, None in formats 0 and 1."""
    for start, entry in walk_entries(buffer):
        header = read_batch_header(buffer, start) if entry.magic == 2 else None
        for record in read_records(buffer, start):
            yield header, record


def read_raw_records(header: BatchHeader, batch: memoryview) -> Iterator[RawRecord]:
    """The records of a format 2 batch as they are written; CorruptRecords unless they fill it exactly."""
    cursor = RecordCursor(open_stream(header.codec, batch[BATCH_OVERHEAD_BYTES:]))
    for _ in range(header.record_count):
        length = cursor.read_number()
        if length > RECORD_MAX_BYTES:
            raise CorruptRecords(f"a record of {length} bytes is too large to be read", ErrorCode.MESSAGE_TOO_LARGE)
        yield _parse_record(cursor.read_bytes(max(length, 0)))
    if not cursor.is_at_end():
        raise CorruptRecords("bytes follow the last record", ErrorCode.INVALID_RECORD)


def find_offset_by_timestamp(
    buffer: bytes | bytearray | memoryview, position: int, timestamp: int, starting_offset: int = 0
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record at `starting_offset` or later that is as new as `timestamp`.

    Looks at the one entry at `position`.
    """
    for record in read_records(buffer, position):
        if record.timestamp >= timestamp and record.offset >= starting_offset:
            return record.offset, record.timestamp
    return None


def largest_timestamp_in(buffer: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int]:
    """Offset and timestamp of the first of the newest records in the entry at `position`; (-1, -1) when it has none."""
    found = -1, NO_TIMESTAMP
    for record in read_records(buffer, position):
        if record.timestamp > found[1]:
            found = record.offset, record.timestamp
    return found


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


def _read_batch(batch: memoryview) -> Iterator[Record]:
    header = read_batch_header(batch)
    for raw in read_raw_records(header, batch):
        timestamp = header.base_timestamp + raw.timestamp_delta
        yield Record(
            header.base_offset + raw.offset_delta,
            header.max_timestamp if header.uses_log_append_time else wrap_timestamp(timestamp),
            raw.key,
            raw.value,
            [(key.decode("utf-8", "replace"), value) for key, value in raw.headers],
        )


def _parse_record(body: bytes) -> RawRecord:
    """A record without its length; the first byte is the attributes, which say nothing."""
    try:
        timestamp_delta, position = read_varlong(body, 1)
        offset_delta, position = _read_signed(body, position)
        key, position = _read_field(body, position)
        value, position = _read_field(body, position)
        header_count, position = _read_signed(body, position)
        headers = []
        for _ in range(header_count):
            header_key, position = _read_field(body, position)
            header_value, position = _read_field(body, position)
            if header_key is None:
                raise CorruptRecords("the key of a record header is null", ErrorCode.INVALID_RECORD)
            headers.append((header_key, header_value))
    except IndexError:
        raise CorruptRecords("a length within a record leads out of it", ErrorCode.INVALID_RECORD) from None
    if position != len(body) or header_count < 0:
        raise CorruptRecords("the lengths within a record contradict each other", ErrorCode.INVALID_RECORD)
    return RawRecord(timestamp_delta, offset_delta, key, value, headers)


def _read_signed(body: bytes, position: int) -> tuple[int, int]:
    value, position = read_varint(body, position)
    return (value >> 1) ^ -(value & 1), position


def _read_field(body: bytes, position: int) -> tuple[bytes | None, int]:
    """Bytes behind their length; a negative length is null."""
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


def _read_legacy_entry(entry: memoryview, offset: int) -> Iterator[Record]:
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
        for inner_offset, _ in _read_inner_entries(codec, content, magic):
            first_offset = offset - inner_offset
    for inner_offset, message in _read_inner_entries(codec, content, magic):
        record = _parse_legacy(message, first_offset + inner_offset)
        if message[17] & CODEC_MASK:
            raise CorruptRecords(f"a compressed message within the compressed one at offset {offset}")
        if attributes & LOG_APPEND_TIME and magic == 1:
            record = record._replace(timestamp=outer.timestamp)
        yield record


def _read_inner_entries(codec: int, content: memoryview, magic: int) -> Iterator[tuple[int, memoryview]]:
    """Offset and bytes of each message of a compressed message set."""
    cursor = RecordCursor(open_stream(codec, content, magic))
    while not cursor.is_at_end():
        start = cursor.read_bytes(LENGTH_OVERHEAD_BYTES)
        offset, length = _ENTRY_START.unpack(start)
        if not 0 <= length <= RECORD_MAX_BYTES:
            raise CorruptRecords(f"a message of {length} bytes inside the one at offset {offset}")
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
