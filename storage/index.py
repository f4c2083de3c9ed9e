"""The three index files beside each segment: pure search over bytes, and the same search over a file.

Layouts (big-endian; README.md has a worked example, reference D.4 the facts):

    .index      8 bytes an entry:   i32 offset - base, i32 file position          sorted by both
    .timeindex  12 bytes an entry:  i64 timestamp, i32 offset - base              sorted by both
    .txnindex   34 bytes an entry:  i16 version 0, i64 producer id, i64 first offset, i64 last offset,
                                    i64 last stable offset                        sorted by last offset

Theory of operation. Indexes are sparse hints: a search answers with the greatest entry at or below the target, and the
caller walks the log from there. A *shorter* index is therefore always a correct one, which is what lets us hold the
active segment's entries in memory and save them when the segment is rolled or closed: after a crash recovery rebuilds
them anyway. An entry that points past the data, or between two batches, would be wrong, so truncation and recovery
cut or rewrite the indexes before the log grows again.

We write index files trimmed to their entries. Kafka preallocates the active segment's with zeros, and leaves that tail
behind in a crash. No real offset entry is all zeros (the first batch of a segment never gets one), so searches take
an all-zero entry for padding, that is for infinity. The only time entry that is all zeros says "timestamp 0 at the
base offset", can only come first, and is believed when it is the only one; otherwise a search merely starts earlier.

Pure: the only input and output is the `File` that a caller hands in.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.wire.compression import CorruptRecords
from barnabas.wire.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from barnabas.storage.disk import File

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TRANSACTION_ENTRY = struct.Struct(">hqqqq")
TRANSACTION_ENTRY_VERSION = 0

MAX_RELATIVE_OFFSET = 2**31 - 1  # what an entry's i32 holds; a segment is rolled before it would not fit

# A search over a file reads single entries until this many are left, then those at once: about one page of the cache.
_PAGE_ENTRIES = 512


class TimeEntry(NamedTuple):
    """No record up to the batch that ends at `offset` is newer than `timestamp`, and that batch reaches it."""

    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    """A transaction that ended in an ABORT marker, which lies at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class IndexCorrupt(CorruptRecords):
    """An index file whose content cannot be what we or Kafka wrote; it is rebuilt from the log."""


def last_at_most(buffer: bytes | bytearray | memoryview, count: int, entry: struct.Struct, target: int) -> int:
    """The number of the last of `count` entries whose first field is at most `target`; -1 when there is none."""
    unpack, size = entry.unpack_from, entry.size
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        first, second = unpack(buffer, middle * size)
        if first <= target and (first or second):
            low = middle + 1
        else:
            high = middle
    return low - 1


def position_at_most(entries: bytes | bytearray, position: int) -> int:
    """The last position in these entries of an offset index that is at most `position`; 0 without one."""

    def position_of(number: int) -> int:
        found: int = OFFSET_ENTRY.unpack_from(entries, number * OFFSET_ENTRY.size)[1]
        return found

    found = bisect_right(range(len(entries) // OFFSET_ENTRY.size), position, key=position_of)
    return position_of(found - 1) if found else 0


def find_in_file(file: "File", entry: struct.Struct, target: int) -> tuple[int, int] | None:
    """The last entry of a file whose first field is at most `target`. Blocking: short, log2(entries / 512) reads."""
    size = entry.size
    low, high = 0, file.size_bytes() // size
    while high - low > _PAGE_ENTRIES:
        middle = (low + high) >> 1
        first, second = entry.unpack(file.read(middle * size, size))
        if first <= target and (first or second):
            low = middle + 1
        else:
            high = middle
    start = max(low - 1, 0)  # the entry before `low` is known to qualify
    page = file.read(start * size, (high - start) * size)
    found = last_at_most(page, len(page) // size, entry, target)
    return None if found < 0 else entry.unpack_from(page, found * size)


def count_entries(file: "File", entry: struct.Struct) -> int:
    """How many entries a file holds before its padding of zeros, if it has any. Blocking: short."""
    size = entry.size
    count = file.size_bytes() // size
    if count <= 1:
        return count if entry is TIME_ENTRY or any(file.read(0, size)) else 0
    low, high = 1, count
    while low < high:
        middle = (low + high) >> 1
        if any(file.read(middle * size, size)):
            low = middle + 1
        else:
            high = middle
    return low if low > 1 or any(file.read(0, size)) else 0


def last_in_file(file: "File", entry: struct.Struct) -> tuple[int, int] | None:
    """The last entry before the padding. Blocking: short."""
    count = count_entries(file, entry)
    return None if count == 0 else entry.unpack(file.read((count - 1) * entry.size, entry.size))


def has_whole_entries(size_bytes: int, entry: struct.Struct) -> bool:
    """Kafka's sanity check at start; the other half, last offset at or above the base, holds for any entry >= 0."""
    return size_bytes % entry.size == 0


class _GrowingIndex:
    """Entries of a segment that is being written: all of them in memory, the first `saved_bytes` also in the file."""

    __slots__ = ("base_offset", "entries", "saved_bytes")
    ENTRY: struct.Struct

    def __init__(self, base_offset: int, entries: bytes | bytearray = b"") -> None:
        self.base_offset = base_offset
        self.entries = bytearray(entries)
        self.saved_bytes = len(entries)

    @property
    def unsaved_bytes(self) -> int:
        return len(self.entries) - self.saved_bytes

    def save(self, file: "File") -> None:
        """Write what is not in the file yet and trim the file to the entries. Blocking: short. Durable: no."""
        if self.unsaved_bytes > 0:
            file.write(self.saved_bytes, bytes(memoryview(self.entries)[self.saved_bytes :]))
        if file.size_bytes() > len(self.entries):
            file.truncate(len(self.entries))
        self.saved_bytes = len(self.entries)

    def _cut(self, count: int) -> None:
        del self.entries[count * self.ENTRY.size :]
        self.saved_bytes = min(self.saved_bytes, len(self.entries))


def read_entries(file: "File", entry: struct.Struct) -> bytes:
    """All entries of a file, padding removed. Blocking: short (bounded by segment.index.bytes)."""
    return file.read(0, count_entries(file, entry) * entry.size)


class OffsetIndex(_GrowingIndex):
    """Offset -> file position, for the active segment."""

    __slots__ = ()
    ENTRY = OFFSET_ENTRY

    def append(self, offset: int, position: int) -> None:
        self.entries += OFFSET_ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """Where to start walking for `offset`: a chunk's first byte, 0 when no entry is at or below it."""
        entries = self.entries
        found = last_at_most(entries, len(entries) // 8, OFFSET_ENTRY, offset - self.base_offset)
        return 0 if found < 0 else OFFSET_ENTRY.unpack_from(entries, found * 8)[1]

    def cut_at(self, position: int) -> None:
        """Forget the entries of chunks at or after this file position."""
        count = len(self.entries) // 8
        while count and OFFSET_ENTRY.unpack_from(self.entries, (count - 1) * 8)[1] >= position:
            count -= 1
        self._cut(count)


class TimeIndex(_GrowingIndex):
    """Timestamp -> offset, for the active segment."""

    __slots__ = ()
    ENTRY = TIME_ENTRY

    def last(self) -> TimeEntry:
        if not self.entries:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = TIME_ENTRY.unpack_from(self.entries, len(self.entries) - 12)
        return TimeEntry(timestamp, self.base_offset + relative)

    def append_if_newer(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the last one already covers this timestamp (KIP-33)."""
        if timestamp > self.last().timestamp:
            self.entries += TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """The offset from which on the first record at or after `timestamp` may lie."""
        found = last_at_most(self.entries, len(self.entries) // 12, TIME_ENTRY, timestamp)
        return self.base_offset + (TIME_ENTRY.unpack_from(self.entries, found * 12)[1] if found >= 0 else 0)

    def cut_at(self, offset: int) -> None:
        """Forget the entries that speak of records at or after this offset."""
        count = len(self.entries) // 12
        while count and TIME_ENTRY.unpack_from(self.entries, (count - 1) * 12)[1] >= offset - self.base_offset:
            count -= 1
        self._cut(count)


class TransactionIndex:
    """The aborted transactions whose marker lies in one segment; few, so they are a list (KIP-98)."""

    __slots__ = ("entries", "saved_count")

    def __init__(self, entries: Sequence[AbortedTransaction] = ()) -> None:
        self.entries = list(entries)
        self.saved_count = len(self.entries)

    def append(self, aborted: AbortedTransaction) -> None:
        if self.entries and self.entries[-1].last_offset >= aborted.last_offset:
            raise IndexCorrupt(f"aborted transactions out of order: {aborted} after {self.entries[-1]}")
        self.entries.append(aborted)

    def cut_at(self, offset: int) -> None:
        """Forget the transactions whose marker lies at or after this offset."""
        while self.entries and self.entries[-1].last_offset >= offset:
            self.entries.pop()
        self.saved_count = min(self.saved_count, len(self.entries))

    def ends_before(self, offset: int) -> bool:
        """Whether all of these transactions end before this offset."""
        return not self.entries or self.entries[-1].last_offset < offset

    def save(self, file: "File") -> None:
        """Write what is not in the file yet and trim it. Blocking: short. Durable: no."""
        size = len(self.entries) * TRANSACTION_ENTRY.size
        unsaved = self.entries[self.saved_count :]
        if unsaved:
            file.write(self.saved_count * TRANSACTION_ENTRY.size, format_transactions(unsaved))
        if file.size_bytes() > size:
            file.truncate(size)
        self.saved_count = len(self.entries)


def format_transactions(entries: Sequence[AbortedTransaction]) -> bytes:
    return b"".join(TRANSACTION_ENTRY.pack(TRANSACTION_ENTRY_VERSION, *entry) for entry in entries)


def parse_transactions(data: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a .txnindex; raises IndexCorrupt where Kafka's sanity check would."""
    if len(data) % TRANSACTION_ENTRY.size:
        raise IndexCorrupt(f"{len(data)} bytes are not a whole number of transaction entries")
    last_offset = -1
    for version, *fields in TRANSACTION_ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version > TRANSACTION_ENTRY_VERSION or version < 0:
            raise IndexCorrupt(f"unknown version {version} of a transaction entry")
        if entry.last_offset <= last_offset or entry.first_offset > entry.last_offset:
            raise IndexCorrupt(f"transaction entry out of order: {entry}")
        last_offset = entry.last_offset
        yield entry


def transactions_within(data: bytes, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The entries of the .txnindex of a segment of these offsets; IndexCorrupt also if one lies outside."""
    entries = list(parse_transactions(data))
    if entries and not base_offset <= entries[0].last_offset <= entries[-1].last_offset < end_offset:
        raise IndexCorrupt(f"transactions end at {entries[0].last_offset} to {entries[-1].last_offset}")
    return entries
