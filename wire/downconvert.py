"""Down-conversion for consumers from before Kafka 0.11: batches of format 2 to messages of format 0 or 1 (KIP-283).

Fetch 0 and 1 have message format 0, Fetch 2 and 3 format 1, which adds a timestamp (`record_reader` has the layout).
Neither has headers, so these are dropped, and so are control batches. Each record becomes one message, uncompressed.
Entries that are in the wanted format or an older one stay as they are.

A batch with a message of more than 8 MiB, and more than the batch itself has, is not converted: a message is sent in
one piece, and a few kilobytes could become gigabytes in memory. Kafka compresses the converted messages again;
consumers see the same records.
"""

import struct
import zlib
from collections.abc import Iterator

from barnabas.wire.compression import (
    HELD_FREE_BYTES,
    SNAPPY_BLOCK_MAX_BYTES,
    SNAPPY_MAX_EXPANSION,
    BeyondLimits,
    Codec,
)
from barnabas.wire.record_batch import BATCH_MAGIC, LOG_APPEND_TIME, read_batch_header, walk_entries
from barnabas.wire.record_cursor import STEP_COST, Steps
from barnabas.wire.record_reader import Record, read_records

MESSAGE_MAX_BYTES = 8 << 20  # while it is read, converted and joined, it is about five times in memory
# The costs are in units of `record_cursor.Meter`: of a record that is read and written, and one
# unit for each 64 bytes of it.
_RECORD_COST = 24
_COST_SHIFT = 6
_LZ4_HELD_BYTES = 8 << 20  # a block of the largest size, compressed and decompressed
_ENTRY = struct.Struct(">qiI")  # offset, bytes after this field, CRC-32 of what follows it
_CRC_BYTES = 4
_INT32 = struct.Struct(">i")


class Unconvertible(Exception):
    """A batch with a codec that is newer than the consumer's protocol version."""


def down_convert(records: bytes, magic: int, *, first_offset: int, max_bytes: int) -> Steps[bytes]:
    """The records from `first_offset` on as messages of format `magic`, in steps: up to `max_bytes`, but at least one.

    Unconvertible if the first record cannot be converted; BeyondLimits if its message is too large; CorruptRecords if a
    batch is damaged.
    """
    # The first step runs on the event loop, the others in a thread. A message is made in one piece, which may take
    # several milliseconds: so the first step does nothing.
    yield None
    messages: list[bytes] = []
    left = max_bytes
    credit = STEP_COST
    held_bytes = 0
    try:
        for message in _messages(records, magic, first_offset):
            # A number comes before its batch is opened: the caller waits for room before memory is taken.
            if isinstance(message, int):
                held_bytes = message
                yield held_bytes
            elif message is None:
                credit -= _RECORD_COST
            # The first message is sent whatever its size: a consumer that gets none never advances (KIP-74).
            elif messages and len(message) > left:
                break
            else:
                messages.append(message)
                left -= len(message)
                credit -= _RECORD_COST + (len(message) >> _COST_SHIFT)
            if credit <= 0:
                credit = STEP_COST
                yield held_bytes
    # The messages before are good; the next fetch begins at the entry that cannot be converted, and gets the error.
    except (Unconvertible, BeyondLimits):
        if not messages:
            raise

    return b"".join(messages)


def _messages(records: bytes, magic: int, first_offset: int) -> Iterator[bytes | int | None]:
    """One message at a time; None for a record below `first_offset`; before a batch, how many bytes it may hold."""
    for position, entry in walk_entries(records):
        if entry.magic <= magic:
            yield records[position : position + entry.size_bytes]
            continue
        attributes = 0
        if entry.magic == BATCH_MAGIC:
            header = read_batch_header(records, position)

            # The old formats have no markers; such a consumer reads uncommitted anyway.
            if header.is_control:
                continue

            # The consumer's protocol is older than zstd (KIP-110), so Kafka refuses it, too.
            if header.codec == Codec.ZSTD:
                raise Unconvertible("zstd is newer than this reader")
            attributes = LOG_APPEND_TIME if header.uses_log_append_time and magic else 0
            if held_bytes := _held_bytes(header.codec, entry.size_bytes):
                yield held_bytes
        longest = max(entry.size_bytes, MESSAGE_MAX_BYTES)
        for record in read_records(records, position, with_headers=False, record_max_bytes=longest):
            yield encode_message(record, magic, attributes) if record.offset >= first_offset else None


def _held_bytes(codec: int, size_bytes: int) -> int:
    """The most that a batch's decompression holds between its records; 0 for at most HELD_FREE_BYTES."""
    held_bytes = _LZ4_HELD_BYTES if codec == Codec.LZ4 else 0
    if codec == Codec.SNAPPY:
        held_bytes = min(size_bytes * SNAPPY_MAX_EXPANSION, SNAPPY_BLOCK_MAX_BYTES)
    return held_bytes if held_bytes > HELD_FREE_BYTES else 0


def encode_message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """A record as a message of format 0 or 1. For a compressed message the value is a compressed message set."""
    timestamp = record.timestamp.to_bytes(8, "big", signed=True) if magic else b""
    content = b"".join((bytes((magic, attributes)), timestamp, *_field(record.key), *_field(record.value)))
    return _ENTRY.pack(record.offset, len(content) + _CRC_BYTES, zlib.crc32(content)) + content


def _field(field: bytes | None) -> tuple[bytes, bytes]:
    return (_INT32.pack(-1), b"") if field is None else (_INT32.pack(len(field)), field)
