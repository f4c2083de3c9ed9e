"""The record batch as bytes: its header, its checksum, the walk from batch to batch, and the leader's stamp.

Layout (reference kafka-internals.md, D.3; KIP-98), all integers big-endian:

    0 base offset i64           17 CRC-32C u32 of bytes 21..end     43 producer id i64
    8 batch length i32          21 attributes i16                   51 producer epoch i16
   12 partition leader epoch    23 last offset delta i32            53 base sequence i32
   16 magic i8 = 2              27 base timestamp i64               57 record count i32
                                35 max timestamp i64                61 records, compressed as a whole

An *entry* is a batch, or a single message of the older formats 0 and 1, which directories of older brokers may hold.
All formats have offset, length and magic at the same places, so `walk_entries` walks them all. Only format 2 has a
`BatchHeader`.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from barnabas.wire.compression import CorruptRecords

BATCH_OVERHEAD_BYTES = 61
BATCH_MAGIC = 2  # the format of record batches; 0 and 1 are those of single messages
LENGTH_OVERHEAD_BYTES = 12  # base offset and batch length, which batch length itself does not count
ENTRY_HEADER_BYTES = 17  # up to and including the magic byte
LEGACY_ENTRY_MIN_LENGTH = 14  # crc, magic, attributes, two lengths: the smallest message of format 0
# The checksum covers the attributes and all that follows. It covers neither the fields that the
# leader writes (base offset, leader epoch) nor the magic, on which the kind of the checksum depends.
CHECKSUM_START = 21
SEQUENCE_MAX = 2**31 - 1  # then comes 0: Java's int without its sign

# Bits of the attributes. Kafka keeps unknown bits of a batch, and drops them when it rewrites the header.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
KNOWN_ATTRIBUTES = 0x7F

_HEADER = struct.Struct(">qiibIhiqqqhii")
_ENTRY_LENGTH = struct.Struct(">qi")
_KIND = struct.Struct(">8xi4xb4xh")
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
    base_timestamp: int  # with the bit DELETE_HORIZON the delete horizon
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record as it was written."""
        # Compaction may remove that record, but keeps the delta: the next batch must not begin at an offset in use.
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return LENGTH_OVERHEAD_BYTES + self.batch_length

    @property
    def codec(self) -> int:
        """How the records are compressed: a `Codec`, or a number above `Codec.ZSTD` that has no meaning."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
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
        """The sequence number of the last record; -1 in a batch without sequence numbers."""
        if self.base_sequence < 0:
            return self.base_sequence
        # The mask makes 0 follow 2^31-1.
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


class EntryHeader(NamedTuple):
    """The fields that entries of every message format begin with.

    `offset` is the base offset in format 2. In formats 0 and 1 it is the offset of the message, and for a compressed
    message that of the last message in it.
    """

    offset: int
    size_bytes: int
    magic: int


class Batch:
    """One complete format 2 batch that a log may append: its writable bytes, its header, its largest timestamp."""

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
        # Offset, less the base offset, of the first record with that timestamp; 0 without timestamps. Relative, because
        # the base offset is only assigned at the append.
        self.largest_timestamp_delta = largest_timestamp_delta

    def __repr__(self) -> str:
        return f"Batch({self.header!r})"


def read_kind(buffer: bytes | bytearray | memoryview) -> tuple[int, int, int]:
    """(batch length, magic, attributes) of the format 2 batch at the start, unchecked; at least 23 bytes are there.

    For what is decided about a batch before it is checked: these three cost a third of the whole header.
    """
    return _KIND.unpack_from(buffer)


def read_batch_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, unchecked; CorruptRecords if there are fewer than 61 bytes."""
    # `BatchHeader(...)` and `_make` would each run a Python function; this runs for every batch that is produced.
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptRecords(f"a batch header needs 61 bytes, there are {len(buffer) - position}") from None


def ordinary_batches(records: memoryview, end_offset: int) -> list[BatchHeader] | None:
    """The headers of received batches of records that a log with this end offset takes over as they are.

    None if anything is not ordinary: an entry of an older format, a marker, a partial or a damaged batch, offsets that
    do not rise, no batch at all. This function judges nothing: a walk entry by entry then accepts or refuses them.
    """
    size_bytes = len(records)
    position = 0
    headers: list[BatchHeader] = []
    while size_bytes - position >= BATCH_OVERHEAD_BYTES:
        header = tuple.__new__(BatchHeader, _HEADER.unpack_from(records, position))
        base_offset, batch_length, _, magic, crc, attributes, last_offset_delta, *_ = header
        end = position + LENGTH_OVERHEAD_BYTES + batch_length
        if magic != BATCH_MAGIC or batch_length < BATCH_OVERHEAD_BYTES - LENGTH_OVERHEAD_BYTES or end > size_bytes:
            return None
        if attributes & CONTROL or base_offset < end_offset or last_offset_delta < 0:
            return None
        if crc != _crc32c()(records[position + CHECKSUM_START : end]):
            return None
        headers.append(header)
        end_offset = base_offset + last_offset_delta + 1
        position = end
    return headers if headers and position == size_bytes else None


def walk_entries(buffer: bytes | bytearray | memoryview, position: int = 0) -> Iterator[tuple[int, EntryHeader]]:
    """Position and header of each whole entry; stops before a partial one at the end.

    CorruptRecords if the bytes cannot begin an entry: a length below that of the smallest message, or an unknown magic.
    Nothing else is checked; a format 2 entry may still be too short for its header.
    """
    end = len(buffer)
    while (left := end - position) >= LENGTH_OVERHEAD_BYTES:
        offset, length = _ENTRY_LENGTH.unpack_from(buffer, position)

        # Without this check a negative length would send the walk backwards, for ever.
        if length < LEGACY_ENTRY_MIN_LENGTH:
            raise CorruptRecords(f"an entry of {length} bytes at position {position} is shorter than any entry")

        # A fetch response may be cut anywhere, so bytes that are missing mean a partial entry and not damage.
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
    """The CRC-32C of this format 2 batch, computed from its bytes."""
    return _crc32c()(memoryview(batch)[CHECKSUM_START:])


@cache
def _crc32c() -> Callable[[memoryview], int]:
    from crc32c import crc32c  # its import takes 10 ms, and a broker without old logs starts without it

    return crc32c


def is_intact(entry: bytes | bytearray | memoryview) -> bool:
    """Whether the checksum of this whole entry, of any message format, is right."""
    view = memoryview(entry)
    stored: int
    # Formats 0 and 1 have a CRC-32 (of IEEE) right behind the length, which covers the magic as well.
    if view[MAGIC_POSITION] < 2:
        (stored,) = _CRC.unpack_from(view, LENGTH_OVERHEAD_BYTES)
        return stored == zlib.crc32(view[MAGIC_POSITION:])
    (stored,) = _CRC.unpack_from(view, _CRC_POSITION)
    # `walk_entries` lets through a format 2 entry that is shorter than its header, whose checksum might be right.
    return len(view) >= BATCH_OVERHEAD_BYTES and stored == checksum(view)


def stamp(batch: Batch, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch, in its bytes and in its header."""
    header = batch.header
    # The two fields lie before `CHECKSUM_START`, so the checksum stays valid. The length between
    # them is written again unchanged, because one write costs less than two.
    _STAMP.pack_into(batch.data, 0, base_offset, header.batch_length, leader_epoch)
    batch.header = tuple.__new__(BatchHeader, (base_offset, header.batch_length, leader_epoch, *header[3:]))


def rewrite_times(data: bytearray | memoryview, attributes: int, max_timestamp: int) -> None:
    """Write attributes and max timestamp into a format 2 batch, and the new checksum."""
    # The attributes are the first field that the checksum covers.
    _ATTRIBUTES.pack_into(data, CHECKSUM_START, attributes)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(data, _CRC_POSITION, checksum(data))


def assemble(header: BatchHeader, records: bytes | bytearray) -> bytearray:
    """The bytes of a batch. Length and checksum are computed; those in `header` are ignored."""
    data = bytearray(BATCH_OVERHEAD_BYTES)
    data += records
    finish(data, header)
    return data


def finish(data: bytearray, header: Sequence[int]) -> None:
    """Write the header, of which each field is given, before the records in `data`, with their length and checksum."""
    _HEADER.pack_into(data, 0, header[0], len(data) - LENGTH_OVERHEAD_BYTES, *header[2:])
    _CRC.pack_into(data, _CRC_POSITION, checksum(data))
