"""Records for readers of before Kafka 0.11: batches of format 2 as messages of format 0 or 1 (KIP-283).

Fetch 0 and 1 know message format 0, Fetch 2 and 3 format 1, which has a timestamp (`record_reader` has the layout).
Headers have no place in either and are dropped, and so are batches that hold the marker of a transaction. What was
compressed is sent as it decompresses, one message a record: so much of it that it fits the reader's limit, and always
one message, for a reader that gets none never moves on. Entries that are old enough already stay as they are. A batch
that decompresses to one message of more than 8 MiB, and more than the batch has, is not converted: a message is sent in
one piece, and a few kilobytes could become gigabytes in memory.

Kafka compresses again what it converted; readers see the same records. It converts neither what zstd compressed, which
no reader so old can know, and says so.
"""

import struct
import zlib
from collections.abc import Generator, Iterator

from barnabas.wire.compression import BeyondLimits, Codec
from barnabas.wire.record_batch import BATCH_MAGIC, LOG_APPEND_TIME, read_batch_header, walk_entries
from barnabas.wire.record_cursor import STEP_COST
from barnabas.wire.record_reader import Record, read_records

MESSAGE_MAX_BYTES = 8 << 20  # read, converted and joined it is some five times in memory
_RECORD_COST = 24  # of reading and writing one, in the units of `record_cursor.Meter`,
_COST_SHIFT = 6  # and for each 64 bytes of it
_ENTRY = struct.Struct(">qiI")  # offset, bytes after this field, CRC-32 of what follows it
_CRC_BYTES = 4
_INT32 = struct.Struct(">i")


class Unconvertible(Exception):
    """A batch whose codec the reader cannot know."""


def down_convert(records: bytes, magic: int, *, first_offset: int, max_bytes: int) -> Generator[None, None, bytes]:
    """As many of these records from `first_offset` on as fit, as messages of format `magic`; at least one. In steps.

    Unconvertible when the first of them cannot be; CorruptRecords where a batch is damaged, or too large.
    """
    yield  # a message is made in one piece, which may take several milliseconds
    messages: list[bytes] = []
    left = max_bytes
    credit = STEP_COST
    try:
        for message in _messages(records, magic, first_offset):
            if message is None:
                credit -= _RECORD_COST
            elif messages and len(message) > left:
                break
            else:
                messages.append(message)
                left -= len(message)
                credit -= _RECORD_COST + (len(message) >> _COST_SHIFT)
            if credit <= 0:
                credit = STEP_COST
                yield
    except (Unconvertible, BeyondLimits):
        if not messages:
            raise
    return b"".join(messages)


def _messages(records: bytes, magic: int, first_offset: int) -> Iterator[bytes | None]:
    """Message by message; None for a record that comes before the first wanted one."""
    for position, entry in walk_entries(records):
        if entry.magic <= magic:
            yield records[position : position + entry.size_bytes]
            continue
        attributes = 0
        if entry.magic == BATCH_MAGIC:
            header = read_batch_header(records, position)
            if header.is_control:
                continue
            if header.codec == Codec.ZSTD:
                raise Unconvertible("zstd is newer than this reader")
            attributes = LOG_APPEND_TIME if header.uses_log_append_time and magic else 0
        longest = max(entry.size_bytes, MESSAGE_MAX_BYTES)
        for record in read_records(records, position, with_headers=False, record_max_bytes=longest):
            yield encode_message(record, magic, attributes) if record.offset >= first_offset else None


def encode_message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """A record as a message of format 0 or 1; a compressed message set is the value of one."""
    timestamp = record.timestamp.to_bytes(8, "big", signed=True) if magic else b""
    content = b"".join((bytes((magic, attributes)), timestamp, *_field(record.key), *_field(record.value)))
    return _ENTRY.pack(record.offset, len(content) + _CRC_BYTES, zlib.crc32(content)) + content


def _field(field: bytes | None) -> tuple[bytes, bytes]:
    return (_INT32.pack(-1), b"") if field is None else (_INT32.pack(len(field)), field)
