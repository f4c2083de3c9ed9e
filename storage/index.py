"""Offset index and time index of a segment (pure): search in memory and in files, and the indexes that grow.

Layouts (big-endian; README.md has a worked example, reference D.4 the facts):

    .index      8 bytes an entry:   i32 offset - base, i32 file position          sorted by both
    .timeindex  12 bytes an entry:  i64 timestamp, i32 offset - base              sorted by both

Both are sparse hints: a search returns the greatest entry at or below the target, and the caller walks
the log from there. So a *shorter* index is always correct; this is why the active segment's entries stay in memory and
are saved late. An entry that points past the data, or into a batch, would be wrong: truncation and recovery cut or
rebuild the indexes before the log grows again.

Pure: the only input and output is the `File` that the caller passes.
"""

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from barnabas.wire.compression import CorruptRecords
from barnabas.wire.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from barnabas.storage.disk import File

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")

MAX_RELATIVE_OFFSET = 2**31 - 1  # the largest i32 of an entry; a segment is rolled before an offset exceeds it

# A search in a file reads single entries until this many are left, then these at once (4 KiB of an offset index).
_PAGE_ENTRIES = 512


class TimeEntry(NamedTuple):
    """The batch that ends at `offset` has `timestamp`, and no record up to it has a later one."""

    timestamp: int
    offset: int


class IndexCorrupt(CorruptRecords):
    """An index file with content that neither this broker nor Kafka writes; it is rebuilt from the log."""


def last_at_most(buffer: bytes | bytearray | memoryview, count: int, entry: struct.Struct, target: int) -> int:
    """The number of the last of `count` entries whose first field is at most `target`; -1 if there is none."""
    # Kafka preallocates the active segment's files with zeros, which a crash leaves. So an entry of zeros counts as
    # padding, which sorts after every target. No real offset entry is all zeros, because the first batch of a segment
    # gets none. A time entry of zeros ("timestamp 0 at the base offset") can only be the first one; to take it for
    # padding only makes a search start earlier.
    unpack = entry.unpack_from
    size = entry.size
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        first, second = unpack(buffer, middle * size)
        if first <= target and (first or second):
            low = middle + 1
        else:
            high = middle
    return low - 1


def position_at_most(entries: bytes | bytearray, position: int) -> int:
    """The largest file position in these offset index entries that is at most `position`; 0 without one."""

    # Positions rise with the offsets, so the second column can be bisected as well.
    def position_of(number: int) -> int:
        found: int = OFFSET_ENTRY.unpack_from(entries, number * OFFSET_ENTRY.size)[1]
        return found

    # The range has the numbers of the entries: only those that the search compares are unpacked.
    found = bisect_right(range(len(entries) // OFFSET_ENTRY.size), position, key=position_of)
    return position_of(found - 1) if found else 0


def position_in_file(file: "File", position: int) -> int:
    """`position_at_most` for an index file. Blocking: short, few reads."""
    size = OFFSET_ENTRY.size
    low = 0
    high = file.size_bytes() // size
    found = 0
    while low < high:
        middle = (low + high) >> 1
        first, second = OFFSET_ENTRY.unpack(file.read(middle * size, size))
        if second <= position and (first or second):
            low = middle + 1
            found = second
        else:
            high = middle
    return found


def find_in_file(file: "File", entry: struct.Struct, target: int) -> tuple[int, int] | None:
    """The last entry of a file whose first field is at most `target`; None without. Blocking: short, few reads."""
    size = entry.size
    low = 0
    high = file.size_bytes() // size
    # log2(entries / 512) reads of one entry each, then one of a page.
    while high - low > _PAGE_ENTRIES:
        middle = (low + high) >> 1
        first, second = entry.unpack(file.read(middle * size, size))
        if first <= target and (first or second):
            low = middle + 1
        else:
            high = middle

    start = max(low - 1, 0)  # the entry before `low` is at most `target`: it is the result if the page has none
    page = file.read(start * size, (high - start) * size)
    found = last_at_most(page, len(page) // size, entry, target)
    return None if found < 0 else entry.unpack_from(page, found * size)


def count_entries(file: "File", entry: struct.Struct) -> int:
    """The number of entries before the padding of zeros, if there is any. Blocking: short."""
    size = entry.size
    count = file.size_bytes() // size
    # A single time entry of zeros is taken for real ("timestamp 0 at the base offset"), an offset entry of zeros never.
    if count <= 1:
        return count if entry is TIME_ENTRY or any(file.read(0, size)) else 0
    # Padding is contiguous at the end, so its beginning can be bisected. Entry 0 is checked last, for a file of only
    # zeros.
    low = 1
    high = count
    while low < high:
        middle = (low + high) >> 1
        if any(file.read(middle * size, size)):
            low = middle + 1
        else:
            high = middle
    return low if low > 1 or any(file.read(0, size)) else 0


def last_in_file(file: "File", entry: struct.Struct) -> tuple[int, int] | None:
    """The last entry before the padding; None without entries. Blocking: short."""
    count = count_entries(file, entry)
    return None if count == 0 else entry.unpack(file.read((count - 1) * entry.size, entry.size))


def has_whole_entries(size_bytes: int, entry: struct.Struct) -> bool:
    """Whether a file size is a multiple of the entry size: one half of Kafka's sanity check at start."""
    # The other half, that the last offset is not below the base offset, holds for every non-negative entry.
    return size_bytes % entry.size == 0


class _GrowingIndex:
    """The index of the active segment: all entries in memory, the first `saved_bytes` of them also in the file."""

    __slots__ = ("base_offset", "entries", "saved_bytes")
    ENTRY: ClassVar[struct.Struct]

    def __init__(self, base_offset: int, entries: bytes | bytearray = b"") -> None:
        self.base_offset = base_offset
        self.entries = bytearray(entries)
        self.saved_bytes = len(entries)

    @property
    def unsaved_bytes(self) -> int:
        return len(self.entries) - self.saved_bytes

    def save(self, file: "File") -> None:
        """Write the unsaved entries and trim the file to the entries. Blocking: short. Durable: no."""
        if self.unsaved_bytes > 0:
            # Append only: entries never change, so the saved ones need no rewrite.
            file.write(self.saved_bytes, bytes(memoryview(self.entries)[self.saved_bytes :]))
        # The file is longer after a truncation of the log, and when Kafka preallocated it.
        if file.size_bytes() > len(self.entries):
            file.truncate(len(self.entries))
        self.saved_bytes = len(self.entries)

    def _cut(self, count: int) -> None:
        # The file may hold more entries now; `save` trims it.
        del self.entries[count * self.ENTRY.size :]
        # Entries that are appended from now on overwrite the old ones in the file.
        self.saved_bytes = min(self.saved_bytes, len(self.entries))


def read_entries(file: "File", entry: struct.Struct) -> bytes:
    """The entries of a file without padding. Blocking: short (at most segment.index.bytes)."""
    return file.read(0, count_entries(file, entry) * entry.size)


class OffsetIndex(_GrowingIndex):
    """Offset -> file position, for the active segment."""

    __slots__ = ()
    ENTRY = OFFSET_ENTRY

    def append(self, offset: int, position: int) -> None:
        self.entries += OFFSET_ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """The file position from which to walk to `offset`; 0 if no entry is at or below it."""
        entries = self.entries
        found = last_at_most(entries, len(entries) // 8, OFFSET_ENTRY, offset - self.base_offset)
        return 0 if found < 0 else OFFSET_ENTRY.unpack_from(entries, found * 8)[1]

    def cut_at(self, position: int) -> None:
        """Remove the entries that point to this file position or behind it."""
        # Entries are counted from the end, one by one, because a truncation usually removes few.
        count = len(self.entries) // 8
        while count and OFFSET_ENTRY.unpack_from(self.entries, (count - 1) * 8)[1] >= position:
            count -= 1
        self._cut(count)


class TimeIndex(_GrowingIndex):
    """Timestamp -> offset, for the active segment."""

    __slots__ = ()
    ENTRY = TIME_ENTRY

    def last(self) -> TimeEntry:
        # Timestamp -1 is below every real one, so the first record always gets an entry.
        if not self.entries:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = TIME_ENTRY.unpack_from(self.entries, len(self.entries) - 12)
        return TimeEntry(timestamp, self.base_offset + relative)

    def append_if_newer(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` exceeds that of the last one (KIP-33)."""
        # Timestamps of an index must rise strictly: searches bisect them.
        if timestamp > self.last().timestamp:
            self.entries += TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """An offset below which no record has `timestamp` or a later one."""
        found = last_at_most(self.entries, len(self.entries) // 12, TIME_ENTRY, timestamp)
        return self.base_offset + (TIME_ENTRY.unpack_from(self.entries, found * 12)[1] if found >= 0 else 0)

    def cut_at(self, offset: int) -> None:
        """Remove the entries for records at or after this offset."""
        count = len(self.entries) // 12
        while count and TIME_ENTRY.unpack_from(self.entries, (count - 1) * 12)[1] >= offset - self.base_offset:
            count -= 1
        self._cut(count)
