"""The record batch as a block of bytes: its header, its place in a log, its stamp.

Layout (reference kafka-internals.md, D.3; KIP-98), all integers big-endian:

    0 base offset i64           17 CRC-32C u32 of bytes 21..end     43 producer id i64
    8 batch length i32          21 attributes i16                   51 producer epoch i16
   12 partition leader epoch    23 last offset delta i32            53 base sequence i32
   16 magic i8 = 2              27 base timestamp i64               57 record count i32
                                35 max timestamp i64                61 records, compressed as a whole

*Theory of operation.* A broker neither builds nor reads records: it walks over entries by (offset, length, magic),
which all message formats share, and it stamps what a producer sent. Base offset and leader epoch lie before the bytes
that the checksum covers, so a stamp costs two writes. Formats 0 and 1, which directories of older brokers may hold,
are walked over in the same way and carried unchanged; only format 2 has a `BatchHeader`.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.wire.compression import CorruptRecords

BATCH_OVERHEAD_BYTES = 61
BATCH_MAGIC = 2  # the format of record batches; 0 and 1 are those of single messages
LENGTH_OVERHEAD_BYTES = 12  # base offset and batch length, which batch length itself does not count
ENTRY_HEADER_BYTES = 17  # up to and including the magic byte
LEGACY_ENTRY_MIN_LENGTH = 14  # crc, magic, attributes, two lengths: the smallest message of format 0
CHECKSUM_START = 21
SEQUENCE_MAX = 2**31 - 1

# Bits of the attributes. Kafka keeps further bits of a batch as they came, and drops them where it rewrites the header.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
KNOWN_ATTRIBUTES = 0x7F

_HEADER = struct.Struct(">qiibIhiqqqhii")
_ENTRY_LENGTH = struct.Struct(">qi")
_STAMP = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_CRC_POSITION = 17
MAGIC_POSITION = 16
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35


class BatchHeader(NamedTuple):
    """The 61 bytes of a format 2 batch before its records, field by field."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int  # the delete horizon where that bit is set
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record; compaction may have removed that record, the offset stays."""
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return LENGTH_OVERHEAD_BYTES + self.batch_length

    @property
    def codec(self) -> int:
        """How the records are compressed; above `Codec.ZSTD` where the bits mean nothing."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether the records count only once their transaction is committed."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the one record is a marker that ends a transaction."""
        return self.attributes & CONTROL != 0

    @property
    def uses_log_append_time(self) -> bool:
        """Whether `max_timestamp`, the broker's time, is the timestamp of every record."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; after 2^31-1 comes 0."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


class EntryHeader(NamedTuple):
    """What entries of every message format begin with.

    `offset` is the base offset in format 2; in formats 0 and 1 it is the message's own, of a compressed one its last.
    """

    offset: int
    size_bytes: int
    magic: int


class Batch:
    """One complete format 2 batch that a log may append: writable bytes, and what is known of them."""

    __slots__ = ("data", "header", "largest_timestamp", "largest_timestamp_delta")

    def __init__(
        self,
        data: bytearray | memoryview,
        header: BatchHeader,
        largest_timestamp: int,
        largest_timestamp_delta: int,
    ) -> None:
        self.data = data
        self.header = header
        self.largest_timestamp = largest_timestamp
        # How far behind the base offset the first record of that timestamp stands; 0 when there is no timestamp.
        self.largest_timestamp_delta = largest_timestamp_delta

    def __repr__(self) -> str:
        return f"Batch({self.header!r})"


def read_batch_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, unchecked; CorruptRecords when 61 bytes are not there."""
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptRecords(f"a batch header needs 61 bytes, there are {len(buffer) - position}") from None


def walk_entries(buffer: bytes | bytearray | memoryview, position: int = 0) -> Iterator[tuple[int, EntryHeader]]:
    """Position and header of each whole entry; stops before a partial one at the end.

    CorruptRecords where the bytes cannot begin an entry: a length no entry has, or an unknown magic. Nothing is
    checked beyond that; in particular a format 2 entry may still be too short for its header.
    """
    end = len(buffer)
    while (left := end - position) >= LENGTH_OVERHEAD_BYTES:
        offset, length = _ENTRY_LENGTH.unpack_from(buffer, position)
        if length < LEGACY_ENTRY_MIN_LENGTH:
            raise CorruptRecords(f"an entry of {length} bytes at position {position} is shorter than any entry")
        if left < ENTRY_HEADER_BYTES:
            return
        magic = buffer[position + MAGIC_POSITION]
        if magic > 2:
            raise CorruptRecords(f"the entry at position {position} has the unknown magic {magic}")
        size_bytes = LENGTH_OVERHEAD_BYTES + length
        if size_bytes > left:
            return
        yield position, EntryHeader(offset, size_bytes, magic)
        position += size_bytes


def checksum(batch: bytes | bytearray | memoryview) -> int:
    """The CRC-32C that the header of this format 2 batch should carry."""
    from crc32c import crc32c  # it takes 10 ms to import, which a broker without old logs does not need to start

    return crc32c(memoryview(batch)[CHECKSUM_START:])


def is_intact(entry: bytes | bytearray | memoryview) -> bool:
    """Whether the checksum of this whole entry, of any message format, is right."""
    view = memoryview(entry)
    stored: int
    if view[MAGIC_POSITION] < 2:
        (stored,) = _CRC.unpack_from(view, LENGTH_OVERHEAD_BYTES)
        return stored == zlib.crc32(view[MAGIC_POSITION:])
    (stored,) = _CRC.unpack_from(view, _CRC_POSITION)
    return len(view) >= BATCH_OVERHEAD_BYTES and stored == checksum(view)


def stamp(batch: Batch, base_offset: int, leader_epoch: int) -> None:
    """Give the batch its place in the log, in its bytes and in its header; the checksum does not cover either."""
    header = batch.header
    _STAMP.pack_into(batch.data, 0, base_offset, header.batch_length, leader_epoch)
    batch.header = tuple.__new__(BatchHeader, (base_offset, header.batch_length, leader_epoch, *header[3:]))


def rewrite_times(data: bytearray | memoryview, attributes: int, max_timestamp: int) -> None:
    """Write attributes and max timestamp into a format 2 batch, and the checksum that goes with them."""
    _ATTRIBUTES.pack_into(data, CHECKSUM_START, attributes)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(data, _CRC_POSITION, checksum(data))


def assemble(header: BatchHeader, records: bytes | bytearray) -> bytearray:
    """The bytes of a batch; length and checksum are computed, the header's own are ignored."""
    data = bytearray(BATCH_OVERHEAD_BYTES)
    data += records
    _HEADER.pack_into(data, 0, header.base_offset, len(data) - LENGTH_OVERHEAD_BYTES, *header[2:])
    _CRC.pack_into(data, _CRC_POSITION, checksum(data))
    return data
