"""The row of a log's segments: finding offsets and times in it, and changing its two ends.

A lookup goes from the offset to the segment (by bisection), to a position in the segment's offset index, and from there
over the heads of entries. The positions of the last few offsets are remembered (`_hits`): readers at the log end, and
the high watermark, ask for the same offsets again and again.

`generation` rises at the begin and at the end of each removal, truncation and replacement of segments, so it is odd
during one. A search in a thread compares it: if it is odd or has changed, the search begins again.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import NamedTuple, TypeVar

from barnabas.storage.disk import FileSlice, HalfDone, StorageError
from barnabas.storage.files import (
    DELETED,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    SWAPPED_SUFFIXES,
    SegmentStore,
    offset_of_name,
)
from barnabas.storage.index import IndexCorrupt
from barnabas.storage.replay import find_transactions, reindex
from barnabas.storage.segment import ActiveSegment, RecordTime, Segment, TakesLonger
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.records import CorruptRecords, Steps
from barnabas.wire.sentinels import NO_OFFSET, NO_TIMESTAMP

UNKNOWN_SIZE = -1
HITS_REMEMBERED = 64  # positions: up to 64 readers at different offsets of a log need no index lookup
SEGMENTS_AT_A_TIME = 16  # per step of a search, which may open the time index of each and read its end
SEARCH_ATTEMPTS_MAX = 20  # while segments change; one long change may take several attempts

logger = logging.getLogger(__name__)

_base_offset = attrgetter("base_offset")
Result = TypeVar("Result")


class SearchDisturbed(Exception):
    """A search found no stable state: the log is being truncated, or its segments change too often."""


class Read(NamedTuple):
    """The result of a read: the byte range to send, if any, and its position. The caller releases the slice."""

    slice: FileSlice | None
    segment_base_offset: int  # of the segment that holds the offset
    position: int

    @property
    def size_bytes(self) -> int:
        return self.slice.size_bytes if self.slice is not None else 0


class DeletedFiles(NamedTuple):
    """Files renamed to .deleted, and the time from which they may be removed."""

    due_ms: int
    names: list[str]


class LogSegments:
    """Segments in offset order; the last one is `active`. There is always at least that one."""

    __slots__ = ("_deleted", "_hits", "_last_aborting", "_row", "active", "generation", "store")

    def __init__(self, store: SegmentStore, segments: list[Segment]) -> None:
        self.store = store
        self.generation = 0
        self._row = segments
        self._deleted: deque[DeletedFiles] = deque()
        # offset -> segment, position and size in bytes of its entry; UNKNOWN_SIZE if the entry did not exist yet
        self._hits: dict[int, tuple[Segment, int, int]] = {}
        self._last_aborting: int | None = None  # see `_aborts_from`
        self.active = _last(segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, number: int) -> Segment:
        return self._row[number]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._row)

    def number_of(self, offset: int) -> int:
        """The number of the segment that holds this offset; 0 for offsets before the first one."""
        # Most lookups are for the active segment; they need no bisection.
        if offset >= self.active.base_offset:
            return len(self._row) - 1
        return max(bisect_right(self._row, offset, key=_base_offset) - 1, 0)

    def since(self, offset: int) -> list[Segment]:
        """The segment that holds this offset, and all later ones."""
        number = self.number_of(offset)
        return self._row[number:]

    # -- reading

    def read(self, offset: int, max_bytes: int, end_offset: int, log_end_offset: int, at_least_one: bool) -> Read:
        """The byte range from the entry that holds `offset`; see `PartitionLog.read`. Blocking: short."""
        if offset >= end_offset or offset == log_end_offset:
            segment = self._row[self.number_of(offset)]
            return Read(None, segment.base_offset, segment.size_bytes)
        active = self.active
        segment, position, entry_bytes = self._hits.get(offset) or self._locate(offset)
        if end_offset < log_end_offset:
            end_position = self._end_position(segment, end_offset)
        else:
            end_position = segment.size_bytes

            # A reader at the log end asks next for the current log end offset, whose position is the end of the file.
            if segment is active:
                self._remember(log_end_offset, active, end_position, UNKNOWN_SIZE)

        size_bytes = end_position - position

        # A batch may be cut at the end: clients drop a partial batch, and the whole range is sent without looking into
        # it.
        if size_bytes > max_bytes:
            if entry_bytes == UNKNOWN_SIZE:
                segment, position, entry_bytes = self._locate(offset)

            # The first entry is given whole (KIP-74): a client that gets only a part of it could
            # not go on.
            fitting_bytes = max_bytes if entry_bytes <= max_bytes else 0
            size_bytes = max(fitting_bytes, entry_bytes) if at_least_one else fitting_bytes

        if size_bytes <= 0:
            return Read(None, segment.base_offset, position)

        # The slice retains the file: `OpenFiles` may drop it, or the segment be deleted, before the range is sent.
        file = active.file if segment is active else self.store.open_files.get(segment.path)
        return Read(FileSlice(file, position, size_bytes), segment.base_offset, position)

    def _locate(self, offset: int) -> tuple[Segment, int, int]:
        """Segment, position and size of the entry with `offset`, or of the next one if compaction removed it."""
        # Compaction may have removed all entries from `offset` to the end of its segment: hence the loop.
        for number in range(self.number_of(offset), len(self._row)):
            segment = self._row[number]
            span = segment.find(offset, self.store.shared)
            if span is not None:
                self._remember(offset, segment, span.position, span.size_bytes)
                return segment, span.position, span.size_bytes
        return self.active, self.active.size_bytes, 0

    def _end_position(self, segment: Segment, end_offset: int) -> int:
        """The position in `segment` up to which all entries end below `end_offset`."""
        if segment.next_base_offset is not None and end_offset >= segment.next_base_offset:
            return segment.size_bytes
        # `end_offset` is the high watermark or the LSO in nearly all calls, so its position is remembered, too.
        hit = self._hits.get(end_offset)
        if hit is not None and hit[0] is segment:
            return hit[1]
        span = segment.find(end_offset, self.store.shared)
        if span is None:
            return segment.size_bytes
        self._remember(end_offset, segment, span.position, span.size_bytes)
        return span.position

    def _remember(self, offset: int, segment: Segment, position: int, entry_bytes: int) -> None:
        # Entries do not move while the list of segments is unchanged; `_changing` and `roll` clear
        # `_hits`. The oldest hit makes room for a new one: a reader that moves on does not ask for
        # its old offset again.
        hits = self._hits
        if len(hits) >= HITS_REMEMBERED and offset not in hits:
            del hits[next(iter(hits))]
        hits[offset] = (segment, position, entry_bytes)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, end). Blocking: short."""
        # The marker of such a transaction may lie far behind `end_offset`, in any later segment.
        found = []
        for number in range(self.number_of(start_offset), len(self._row)):
            aborted, is_last = self._row[number].find_aborted(start_offset, end_offset, self.store.shared)
            found += aborted
            if is_last:
                break
        return found

    def aborted_in(self, read: Read, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in what is read from `start_offset` on. Blocking: short.

        `end_offset` is that of the read.
        """
        # Most logs have no aborted transactions, so this is checked before `_end_of`, which costs a few lookups.
        if not read.size_bytes or not self._aborts_from(read.segment_base_offset):
            return []
        segment = self._row[self.number_of(read.segment_base_offset)]
        return self.aborted_transactions(start_offset, self._end_of(read, segment, end_offset))

    def _aborts_from(self, base_offset: int) -> bool:
        """Whether the segment with this base offset, or a later one, has the marker of an aborted transaction."""
        if self.active.has_aborted:
            return True
        # The base offset of the last sealed segment with such a marker is cached: a log may have thousands of segments.
        if self._last_aborting is None:
            aborting = (segment.base_offset for segment in reversed(self._row) if segment.has_aborted)
            self._last_aborting = next(aborting, NO_OFFSET)
        return base_offset <= self._last_aborting

    def _end_of(self, read: Read, segment: Segment, end_offset: int) -> int:
        """The base offset of the first batch that the read does not contain as a whole."""
        end_position = read.position + read.size_bytes
        # A reader that is nearly up to date gets everything up to `end_offset`, whose position is remembered.
        hit = self._hits.get(end_offset)
        if hit is not None and hit[0] is segment and hit[1] == end_position:
            return end_offset
        next_offset = None
        if end_position < segment.size_bytes:
            next_offset = segment.offset_at(end_position, self.store.shared)
        if next_offset is None:
            next_offset = segment.next_base_offset
        return end_offset if next_offset is None else min(next_offset, end_offset)

    # -- searching: a worker thread takes the steps while the event loop goes on using the log

    def find_time(self, timestamp_ms: int, start_offset: int) -> Steps[RecordTime | None]:
        """The first record from `start_offset` on at or after `timestamp_ms`. Blocking: long; beside the loop."""
        return self.undisturbed(lambda: self._find_time(timestamp_ms, start_offset))

    def _find_time(self, timestamp_ms: int, start_offset: int) -> Steps[RecordTime | None]:
        # `private`, for the event loop may close shared files at any time. The largest timestamp of a segment costs one
        # read at the end of its time index, so only a segment that can match is walked.
        private = self.store.private
        for number, segment in enumerate(list(self._row), 1):
            if segment.largest(private).timestamp >= timestamp_ms:
                found = yield from segment.find_time(timestamp_ms, start_offset, private)
                if found is not None:
                    return found
            if number % SEGMENTS_AT_A_TIME == 0:
                yield None
        return None

    def find_time_now(self, timestamp_ms: int, start_offset: int) -> RecordTime | None:
        """As `find_time`, on the event loop. Raises TakesLonger. Blocking: short."""
        # `generation` is odd while segments are removed or replaced.
        if self.generation & 1 or len(self._row) > SEGMENTS_AT_A_TIME:
            raise TakesLonger
        shared = self.store.shared
        for segment in self._row:
            if not segment.is_largest_known:
                raise TakesLonger
            if segment.largest(shared).timestamp >= timestamp_ms:
                found = segment.find_time_now(timestamp_ms, start_offset)
                if found is not None:
                    return found
        return None

    def find_largest_time(self, start_offset: int) -> Steps[RecordTime | None]:
        """The first record with the largest timestamp (KIP-734). Blocking: long; beside the loop."""
        return self.undisturbed(lambda: self._find_largest_time(start_offset))

    def _find_largest_time(self, start_offset: int) -> Steps[RecordTime | None]:
        private = self.store.private
        latest = NO_TIMESTAMP
        newest = None
        for number, segment in enumerate(list(self._row), 1):
            timestamp = segment.largest(private).timestamp
            # The timestamp may be that of a record which DeleteRecords has removed.
            if timestamp > latest and segment.base_offset < start_offset:
                timestamp = yield from segment.largest_timestamp_from(start_offset, private)
            if timestamp > latest:
                latest = timestamp
                newest = segment
            if number % SEGMENTS_AT_A_TIME == 0:
                yield None
        # `>` above keeps the first segment with this timestamp; the walk finds the first record in it.
        return None if newest is None else (yield from newest.find_time(latest, start_offset, private))

    def undisturbed(self, look: Callable[[], Steps[Result]]) -> Steps[Result]:
        """Run the search `look` until it completes without a change of segments. Blocking: long; beside the loop.

        SearchDisturbed if `SEARCH_ATTEMPTS_MAX` attempts were not enough.
        """
        for _ in range(SEARCH_ATTEMPTS_MAX):
            # The result of an attempt counts only if the segments did not change between its steps.
            generation = self.generation
            steps = look()
            try:
                while generation == self.generation and generation % 2 == 0:
                    yield next(steps)
            except StopIteration as stop:
                if generation == self.generation:
                    return stop.value  # type: ignore[no-any-return]  # what `look` returned
            except (CorruptRecords, StorageError):
                # In the middle of a change files may be missing or cut: such an error says nothing about the log.
                if generation == self.generation:
                    raise
            finally:
                steps.close()  # it may have a file open

            # The pause before the next attempt lets the change end.
            yield None

        raise SearchDisturbed

    # -- the end of the log

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Begin a new segment; it replaces an empty active one. Blocking: short.

        On failure no segment is lost from the row: it is unchanged, or has the new one.
        """
        # Saving the indexes and creating the new file may fail, so both come before `_row` changes.
        old = self.active
        store = self.store
        old.finish()
        new = ActiveSegment.create(store, base_offset, now_ms)
        self._row[-1:] = [old.sealed(base_offset), new] if old.size_bytes else [new]
        self.active = new
        self._hits.clear()
        self._last_aborting = None
        # The removal comes last: if it fails, too, an empty segment stays behind, which is harmless.
        if not old.size_bytes:
            old.is_removed = True
            store.remove_segment(old.base_offset)

    def cut(self, offset: int, index_interval_bytes: int, now_ms: int) -> int:
        """Truncate the row before the entry that holds `offset`, durably; returns the log end. Blocking: long."""
        with self._changing("the log half cut"):
            number = self.number_of(offset)
            segment = self._row[number]
            span = segment.find(offset, self.store.private)
            position = segment.size_bytes if span is None else span.position
            # A batch that begins below `offset` goes as a whole, so the log may end earlier.
            end_offset = offset if span is None else min(offset, span.base_offset)
            # Later segments go first, durably. In the other order a crash could leave a gap behind this segment, which
            # the next start trusts where it lies below the old recovery point.
            self._remove_from(number + 1)
            active = self._reopened(segment, index_interval_bytes, now_ms, self._row[:number])
            try:
                active.truncate(position, end_offset)
            except IndexCorrupt as error:
                logger.warning("the transaction index of %s is damaged (%s) and is rebuilt", active, error)
                active.transactions = find_transactions(
                    self.store, active.base_offset, active.size_bytes, self._row[:number]
                )
                active.truncate(position, end_offset)
            active.file.sync()
            self.active = self._row[-1] = active
            return end_offset

    def start_over(self, base_offset: int, now_ms: int) -> None:
        """Replace all segments by an empty one at `base_offset`, durably. Blocking: long."""
        with self._changing("the log half cut"):
            self._remove_from(0)
            # Snapshots also lie between the base offsets of the segments, and at the log end after a clean stop.
            for offset in self.list_snapshots():
                self.store.disk.remove(self.store.path(offset, SNAPSHOT))
            self.active = ActiveSegment.create(self.store, base_offset, now_ms)
            self._row.append(self.active)
            self.store.disk.sync_directory(self.store.directory)

    @contextmanager
    def _changing(self, left: str) -> Iterator[None]:
        """Mark a change during which files and row may contradict each other. A StorageError in it becomes HalfDone."""
        self.generation += 1
        self._hits.clear()
        self._last_aborting = None
        try:
            yield
        except StorageError as error:
            raise HalfDone(error, left) from error
        finally:
            self.generation += 1

    def _remove_from(self, number: int) -> None:
        """Remove the segments from this number on, durably."""
        # The last segment goes first: whatever a crash leaves is a prefix of this log.
        if number == len(self._row):
            return
        for segment in reversed(self._row[number:]):
            segment.is_removed = True
            self.store.remove_segment(segment.base_offset)
        del self._row[number:]
        self.store.disk.sync_directory(self.store.directory)

    def _reopened(
        self, segment: Segment, index_interval_bytes: int, now_ms: int, earlier: Sequence[Segment]
    ) -> ActiveSegment:
        """Reopen a sealed segment as the active one; its indexes are rebuilt if they are damaged."""
        # If the cut is inside the active segment, its file and its indexes are open already.
        if isinstance(segment, ActiveSegment) or segment.next_base_offset is None:
            return _last([segment])
        store = self.store
        base = segment.base_offset
        end_offset = segment.next_base_offset
        with suppress(IndexCorrupt):
            active = ActiveSegment.open(store, base, now_ms)
            if active.transactions.ends_before(end_offset):
                return active
        # The index is damaged, or the .txnindex names markers behind the segment's end.
        return reindex(store, base, segment.size_bytes, index_interval_bytes, now_ms, earlier, end_offset)

    # -- the beginning of the log

    def delete_first(self, count: int, now_ms: int, delay_ms: int) -> None:
        """Remove the first segments from the row and rename their files to .deleted. Blocking: short (renames)."""
        with self._changing("a segment half deleted"):
            removed = self._row[:count]
            # The segments leave `_row` before the renames: if a rename fails, HalfDone takes the log
            # directory offline, and `_row` refers to no missing file.
            del self._row[:count]
            for segment in removed:
                segment.is_removed = True
                self._deleted.append(DeletedFiles(now_ms + delay_ms, self._rename_deleted(segment, SEGMENT_SUFFIXES)))

    @property
    def has_deleted_files(self) -> bool:
        """Whether .deleted files still wait for their removal."""
        # Until `remove_deleted` has synced the directory, a power failure may bring the segments back.
        return bool(self._deleted)

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files whose delay has expired, durably; returns how many. Blocking: long; beside the loop."""
        disk = self.store.disk
        directory = self.store.directory

        # The deque is in the order of `due_ms`, as long as the clock and file.delete.delay.ms stay as they are.
        due = removed = 0
        while due < len(self._deleted) and self._deleted[due].due_ms <= now_ms:
            for name in self._deleted[due].names:
                path = f"{directory}/{name}"
                if disk.exists(path):  # a segment replaced twice is listed twice, but has one .deleted file
                    disk.remove(path)
                    removed += 1
            due += 1

        if due:
            disk.sync_directory(directory)

        # The event loop may append to the deque meanwhile, so entries go one by one from the left, and only when the
        # removal is durable.
        for _ in range(due):
            self._deleted.popleft()
        return removed

    def _rename_deleted(self, segment: Segment, suffixes: Sequence[str]) -> list[str]:
        store = self.store
        names = []
        for suffix in suffixes:
            path = store.path(segment.base_offset, suffix)
            # The cached file goes first: under this path a later `get` must not return the file of
            # the old segment.
            store.open_files.drop(path)
            if store.disk.exists(path):
                store.disk.rename(path, path + DELETED)
                names.append((path + DELETED).rpartition("/")[2])
        return names

    # -- compaction

    def replace(self, old: Sequence[Segment], new: Segment, now_ms: int, delay_ms: int) -> None:
        """Put the clean segment, with its .swap files, in the place of the segments that it was made from.

        Their files are renamed to .deleted (stages 3 and 4 of `cleaner.py`). Blocking: short (renames).
        """
        with self._changing("a segment half replaced"):
            number = self.number_of(new.base_offset)
            self._row[number : number + len(old)] = [new]
            for segment in old:
                segment.is_removed = True
                # The producer snapshot at the new segment's base offset stays: compaction does not change producers.
                suffixes = SWAPPED_SUFFIXES if segment.base_offset == new.base_offset else SEGMENT_SUFFIXES
                self._deleted.append(DeletedFiles(now_ms + delay_ms, self._rename_deleted(segment, suffixes)))
            for suffix in SWAPPED_SUFFIXES:
                path = self.store.path(new.base_offset, suffix)
                if self.store.disk.exists(path + SWAP):
                    self.store.disk.rename(path + SWAP, path)

    # -- snapshots

    def list_snapshots(self) -> list[int]:
        """The offsets of the producer snapshots, ascending. Blocking: long."""
        names = self.store.disk.list(self.store.directory)
        return [offset for name in names if name.endswith(SNAPSHOT) and (offset := offset_of_name(name)) is not None]


def _last(segments: list[Segment]) -> ActiveSegment:
    active = segments[-1]
    if not isinstance(active, ActiveSegment):
        raise InvariantBroken(f"{active} is the last segment, but not active")
    return active
