"""The .txnindex of a segment: the aborted transactions whose marker lies in it (KIP-98; pure).

    34 bytes a row:  i16 version 0, i64 producer id, i64 first offset, i64 last offset (that of the marker),
                     i64 last stable offset                               sorted by last offset

A segment may have millions of rows, and a fetch needs few of them. So the rows lie in the file. In memory are two
offsets for each page of rows, by which a search knows the pages that it has to read, and of the active segment the rows
that are not in the file yet. Both are bounded: an index with more than `PAGES_MAX` pages has larger pages, and
`ActiveSegment.is_index_save_due` says when rows are written.

Pure: the only input and output is the `File` that the caller opens.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.index import IndexCorrupt

if TYPE_CHECKING:
    from barnabas.storage.disk import File

ROW = struct.Struct(">hqqqq")
ROW_VERSION = 0
PAGE_ROWS = 64  # 2,176 bytes; a search parses a page of this size in some 30 µs
PAGES_MAX = 4096  # 64 KiB of memory; 262,144 rows in pages of 64. An even number, because pages are merged in pairs.
_LOADED_BYTES = 2048 * ROW.size

# Opens the file of an index, for one read.
OpenSaved = Callable[[], AbstractContextManager["File"]]


class AbortedTransaction(NamedTuple):
    """An aborted transaction; its ABORT marker lies at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def is_last_before(self, offset: int) -> bool:
        """Whether no transaction whose marker comes later begins before `offset`."""
        # When this transaction ended, no other open one had begun before `last_stable_offset`. Kafka's followers may
        # write a value that is too large: behind the begin of a transaction that came after this marker. Hence the
        # condition about `last_offset`, which rows that this broker has written fulfil anyway.
        return self.last_stable_offset >= offset and self.last_offset + 1 >= offset


class TransactionIndex:
    """The first `saved_count` of its `count` rows are in the file, the others in `unsaved`."""

    __slots__ = ("_base_offset", "_last_markers", "_oldest", "_page_rows", "count", "unsaved")

    def __init__(self, base_offset: int) -> None:
        self.count = 0
        self.unsaved = bytearray()
        self._base_offset = base_offset
        # Of each page: the lowest first offset, and the offset of the last marker.
        self._oldest = array("q")
        self._last_markers = array("q")
        self._page_rows = PAGE_ROWS

    @classmethod
    def load(cls, file: "File", base_offset: int) -> "TransactionIndex":
        """The index of a file; IndexCorrupt if it is damaged. Blocking: long, in proportion to the rows."""
        index = cls(base_offset)
        for position in range(0, file.size_bytes(), _LOADED_BYTES):
            for aborted in parse_transactions(file.read(position, _LOADED_BYTES)):
                index._note(aborted)
        return index

    @property
    def saved_count(self) -> int:
        return self.count - len(self.unsaved) // ROW.size

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a row; IndexCorrupt unless its marker lies behind those of the other rows."""
        self._note(aborted)
        self.unsaved += ROW.pack(ROW_VERSION, *aborted)

    def ends_before(self, offset: int) -> bool:
        """Whether the markers of all transactions lie below this offset."""
        return not self.count or self._last_markers[-1] < offset

    def rows(self, saved: bytes) -> Iterator[AbortedTransaction]:
        """All rows, given the content of the file; IndexCorrupt if it is damaged."""
        return parse_transactions(saved[: self.saved_count * ROW.size] + self.unsaved)

    def copied(self) -> "TransactionIndex":
        """The index as it is now, for a thread that searches while rows are appended and saved."""
        copy = TransactionIndex(self._base_offset)
        copy.count = self.count
        copy.unsaved = self.unsaved[:]
        copy._oldest = self._oldest[:]
        copy._last_markers = self._last_markers[:]
        copy._page_rows = self._page_rows
        return copy

    def overlapping(
        self, open_saved: OpenSaved, start_offset: int, end_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with records in [start, end), in the order of markers; whether no later one has any.

        IndexCorrupt if the file is damaged. Blocking: short, a page at a time.
        """
        found = []
        for page in range(bisect_left(self._last_markers, start_offset), len(self._last_markers)):
            # While a long transaction is open, its first offset is the last stable offset of all
            # that end meanwhile, so a search does not stop at them. They may be 100,000, and their
            # pages are skipped without a read.
            if self._oldest[page] >= end_offset:
                continue
            for aborted in self._read_page(page, open_saved):
                if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                    found.append(aborted)
                if aborted.is_last_before(end_offset):
                    return found, True
        return found, False

    def save(self, file: "File") -> None:
        """Write the unsaved rows and trim the file. Blocking: short. Durable: no."""
        if self.unsaved:
            file.write(self.saved_count * ROW.size, bytes(self.unsaved))
            self.unsaved.clear()
        # The file is longer after a truncation of the log, and after a crash.
        size_bytes = self.count * ROW.size
        if file.size_bytes() > size_bytes:
            file.truncate(size_bytes)

    def cut_at(self, offset: int, open_saved: OpenSaved) -> None:
        """Remove the transactions whose marker lies at or after this offset; `save` trims the file.

        IndexCorrupt if the file is damaged; then nothing has changed. Blocking: short, one page.
        """
        page = bisect_left(self._last_markers, offset)
        if page == len(self._last_markers):
            return
        # Only the page with the cut is read: it keeps its first rows, and the pages behind it go.
        saved_count = self.saved_count
        kept = list(takewhile(lambda aborted: aborted.last_offset < offset, self._read_page(page, open_saved)))
        del self._oldest[page:], self._last_markers[page:]
        self.count = page * self._page_rows
        for aborted in kept:
            self._note(aborted)
        del self.unsaved[max(self.count - saved_count, 0) * ROW.size :]

    def _note(self, aborted: AbortedTransaction) -> None:
        # Searches rely on the order of the markers.
        last_marker = self._last_markers[-1] if self._last_markers else self._base_offset - 1
        if aborted.last_offset <= last_marker:
            raise IndexCorrupt(f"aborted transactions out of order: {aborted} behind a marker at {last_marker}")
        page, row = divmod(self.count, self._page_rows)
        if row:
            self._oldest[page] = min(self._oldest[page], aborted.first_offset)
            self._last_markers[page] = aborted.last_offset
        else:
            if page == PAGES_MAX:
                self._double_pages()
            self._oldest.append(aborted.first_offset)
            self._last_markers.append(aborted.last_offset)
        self.count += 1

    def _double_pages(self) -> None:
        """Two pages become one."""
        self._oldest = array("q", map(min, self._oldest[::2], self._oldest[1::2]))
        self._last_markers = self._last_markers[1::2]
        self._page_rows *= 2

    def _read_page(self, page: int, open_saved: OpenSaved) -> list[AbortedTransaction]:
        """The rows of a page. IndexCorrupt if they are not those that were noted."""
        first = page * self._page_rows
        end = min(first + self._page_rows, self.count)
        saved_count = self.saved_count
        data = b""
        if first < saved_count:
            with open_saved() as file:
                data = file.read(first * ROW.size, (min(end, saved_count) - first) * ROW.size)
        if end > saved_count:
            data += self.unsaved[max(first - saved_count, 0) * ROW.size : (end - saved_count) * ROW.size]
        # The file may have become shorter, or have well-formed rows of another log.
        rows = list(parse_transactions(data))
        if len(rows) != end - first or rows[-1].last_offset != self._last_markers[page]:
            raise IndexCorrupt(f"rows {first} to {end} of a transaction index have changed")
        return rows


NO_TRANSACTIONS = TransactionIndex(0)  # of every sealed segment without aborted transactions


def format_transactions(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ROW.pack(ROW_VERSION, *entry) for entry in entries)


def parse_transactions(data: bytes) -> Iterator[AbortedTransaction]:
    """The rows of a .txnindex; raises IndexCorrupt where Kafka's sanity check would."""
    # This file has no padding, unlike the other indexes, because Kafka does not preallocate it.
    if len(data) % ROW.size:
        raise IndexCorrupt(f"{len(data)} bytes are not a whole number of transaction entries")
    last_offset = -1
    for version, producer_id, first_offset, marker, stable_offset in ROW.iter_unpack(data):
        entry = AbortedTransaction(producer_id, first_offset, marker, stable_offset)
        if version != ROW_VERSION:
            raise IndexCorrupt(f"unknown version {version} of a transaction entry")
        # Markers stand in the log's order; a transaction begins before its own marker.
        if marker <= last_offset or first_offset > marker:
            raise IndexCorrupt(f"transaction entry out of order: {entry}")
        last_offset = marker
        yield entry
