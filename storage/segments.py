"""The row of a log's segments: finding offsets and times in it, letting go of its ends.

Lookups go from offset to segment (by bisection), to a position in its offset index, and from there over entry heads.
A reader at the end of the log, and the high watermark, ask for the same few offsets again and again; the last ones
are remembered with their positions (`_hits`), which makes following a log cheap. A remembered position stays true
while the row does not change at either end, and is forgotten when it does.

`generation` counts the begins and ends of removals, cuts and replacements, so it is odd in the middle of one. A search
in a thread looks at it: if it is odd or has changed, files changed under the search, which then begins again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import NamedTuple, TypeVar

from barnabas.storage.disk import FileSlice, HalfDone, StorageError
from barnabas.storage.entries import find_entry
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
from barnabas.storage.replay import reindex
from barnabas.storage.segment import ActiveSegment, RecordTime, Segment
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.records import CorruptRecords, Steps
from barnabas.wire.sentinels import NO_TIMESTAMP

HITS_REMEMBERED = 64  # readers at different offsets of one log that need no index lookup
SEGMENTS_AT_A_TIME = 16  # in one step of a search: each may have to open and read the end of an index
SEARCH_ATTEMPTS_MAX = 20  # of a search that meets other segments; several may fall into one change

_base_offset = attrgetter("base_offset")
Result = TypeVar("Result")


class SearchDisturbed(Exception):
    """The log does not keep still for a search: it is being cut, or its segments change again and again."""


class Read(NamedTuple):
    """A read plan: what to send, if anything, and where it begins. The slice must be released."""

    slice: FileSlice | None
    segment_base_offset: int  # differs from the active segment's if the reader is on an older one
    position: int

    @property
    def size_bytes(self) -> int:
        return self.slice.size_bytes if self.slice is not None else 0


class DeletedFiles(NamedTuple):
    """Files that were renamed to .deleted, and when they may be removed."""

    due_ms: int
    names: list[str]


class LogSegments:
    """Segments in rising order; the last one is `active`. There is always one."""

    __slots__ = ("_deleted", "_hits", "_row", "active", "generation", "store")

    def __init__(self, store: SegmentStore, segments: list[Segment]) -> None:
        self.store = store
        self.generation = 0
        self._row = segments
        self._deleted: deque[DeletedFiles] = deque()
        self._hits: dict[int, tuple[Segment, int]] = {}  # offset -> where its entry begins
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
        """Which segment holds this offset, or would; the first one for offsets before it."""
        if offset >= self.active.base_offset:
            return len(self._row) - 1
        return max(bisect_right(self._row, offset, key=_base_offset) - 1, 0)

    def since(self, offset: int) -> list[Segment]:
        """The segment that holds this offset, and those after it."""
        return self._row[self.number_of(offset) :]

    # -- reading

    def read(self, offset: int, max_bytes: int, end_offset: int, log_end_offset: int, at_least_one: bool) -> Read:
        """What to send from the entry that holds `offset` on; see `PartitionLog.read`. Blocking: short."""
        if offset >= end_offset or offset == log_end_offset:
            segment = self._row[self.number_of(offset)]
            return Read(None, segment.base_offset, segment.size_bytes)
        active = self.active
        segment, position = self._hits.get(offset) or self._locate(offset)
        if end_offset < log_end_offset:
            end_position = self._end_position(segment, end_offset)
        else:
            end_position = segment.size_bytes
            if segment is active:
                self._remember(log_end_offset, active, end_position)
        size_bytes = end_position - position
        if size_bytes > max_bytes:
            size_bytes = self._first_fit(segment, position, size_bytes, max_bytes, at_least_one)
        if size_bytes <= 0:
            return Read(None, segment.base_offset, position)
        file = active.file if segment is active else self.store.open_files.get(segment.path)
        return Read(FileSlice(file, position, size_bytes), segment.base_offset, position)

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """Where the entry with `offset` begins, or if compaction removed it, the next one."""
        for number in range(self.number_of(offset), len(self._row)):
            segment = self._row[number]
            span = segment.find(offset, self.store.shared)
            if span is not None:
                self._remember(offset, segment, span.position)
                return segment, span.position
        return self.active, self.active.size_bytes

    def _end_position(self, segment: Segment, end_offset: int) -> int:
        """Where to stop in `segment` so that no entry is sent that reaches `end_offset`."""
        if segment.next_base_offset is not None and end_offset >= segment.next_base_offset:
            return segment.size_bytes
        hit = self._hits.get(end_offset)
        if hit is not None and hit[0] is segment:
            return hit[1]
        span = segment.find(end_offset, self.store.shared)
        if span is None:
            return segment.size_bytes
        self._remember(end_offset, segment, span.position)
        return span.position

    def _first_fit(self, segment: Segment, position: int, available: int, max_bytes: int, at_least_one: bool) -> int:
        """How much to send when not all of it may be: nothing rather than a part of the first entry (KIP-74)."""
        with self.store.shared(segment.path) as file:
            first = find_entry(file, position, position + available, 0)
        if first is None or first.size_bytes <= max_bytes:
            return max_bytes
        return first.size_bytes if at_least_one else 0

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hits = self._hits
        if len(hits) >= HITS_REMEMBERED and offset not in hits:
            del hits[next(iter(hits))]
        hits[offset] = (segment, position)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in [start, end). Blocking: short."""
        found = []
        for segment in self.since(start_offset):
            for aborted in segment.aborted_transactions(self.store.shared):
                if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                    found.append((aborted.producer_id, aborted.first_offset))
                if aborted.last_stable_offset >= end_offset:
                    return found
        return found

    # -- searching, in a thread beside the loop, step by step

    def find_time(self, timestamp_ms: int, start_offset: int) -> Steps[RecordTime | None]:
        """The first record from `start_offset` on that is as new as this. Blocking: long; beside the loop."""
        return self.undisturbed(lambda: self._find_time(timestamp_ms, start_offset))

    def _find_time(self, timestamp_ms: int, start_offset: int) -> Steps[RecordTime | None]:
        private = self.store.private
        for number, segment in enumerate(list(self._row), 1):
            if segment.largest(private).timestamp >= timestamp_ms:
                found = yield from segment.find_time(timestamp_ms, start_offset, private)
                if found is not None:
                    return found
            if number % SEGMENTS_AT_A_TIME == 0:
                yield None
        return None

    def find_largest_time(self, start_offset: int) -> Steps[RecordTime | None]:
        """The first of the records with the largest timestamp. Blocking: long; beside the loop."""
        return self.undisturbed(lambda: self._find_largest_time(start_offset))

    def _find_largest_time(self, start_offset: int) -> Steps[RecordTime | None]:
        private = self.store.private
        latest, newest = NO_TIMESTAMP, None
        for number, segment in enumerate(list(self._row), 1):
            timestamp = segment.largest(private).timestamp
            if timestamp > latest:
                latest, newest = timestamp, segment
            if number % SEGMENTS_AT_A_TIME == 0:
                yield None
        return None if newest is None else (yield from newest.find_time(latest, start_offset, private))

    def undisturbed(self, look: Callable[[], Steps[Result]]) -> Steps[Result]:
        """What `look` finds while no segment goes or is replaced: it begins again if one does. SearchDisturbed when
        that happens too often. Blocking: long; beside the loop."""
        for _ in range(SEARCH_ATTEMPTS_MAX):
            generation, steps = self.generation, look()
            try:
                while generation == self.generation and generation % 2 == 0:
                    yield next(steps)
            except StopIteration as stop:
                if generation == self.generation:
                    return stop.value  # type: ignore[no-any-return]  # what `look` returned
            except (CorruptRecords, StorageError):
                if generation == self.generation:
                    raise
            finally:
                steps.close()
            yield None
        raise SearchDisturbed

    # -- the end of the row

    def roll(self, base_offset: int, snapshot: bytes, now_ms: int) -> None:
        """Begin a new segment; an empty active one is replaced. If it fails, the row is as it was. Blocking: short."""
        old, store = self.active, self.store
        old.finish()
        store.save(store.path(base_offset, SNAPSHOT), snapshot)
        new = ActiveSegment.create(store, base_offset, now_ms)
        if old.size_bytes:
            self._row[-1] = old.sealed(base_offset)
            self._row.append(new)
        else:
            self._row[-1] = new
            old.is_removed = True
            store.remove_segment(old.base_offset)
        self.active = new
        self._hits.clear()

    def cut(self, offset: int, index_interval_bytes: int, now_ms: int) -> int:
        """Let the row end before the entry that holds `offset`, durably; returns the new log end. Blocking: long."""
        with self._changing("the log half cut"):
            number = self.number_of(offset)
            segment = self._row[number]
            span = segment.find(offset, self.store.private)
            position = segment.size_bytes if span is None else span.position
            end_offset = offset if span is None else min(offset, span.base_offset)
            self._remove_from(number + 1)
            active = self._reopened(segment, index_interval_bytes, now_ms, self._row[:number])
            active.truncate(position, end_offset)
            active.file.sync()
            self.active = self._row[-1] = active
            return end_offset

    def start_over(self, base_offset: int, now_ms: int) -> None:
        """Replace everything by one empty segment, durably. Blocking: long."""
        with self._changing("the log half cut"):
            self._remove_from(0)
            self.active = ActiveSegment.create(self.store, base_offset, now_ms)
            self._row.append(self.active)
            self.store.disk.sync_directory(self.store.directory)

    @contextmanager
    def _changing(self, left: str) -> Iterator[None]:
        """While it lasts, files and row may contradict each other; HalfDone, which names what is left, if it fails."""
        self.generation += 1
        self._hits.clear()
        try:
            yield
        except StorageError as error:
            raise HalfDone(error, left) from error
        finally:
            self.generation += 1

    def _remove_from(self, number: int) -> None:
        """The last one first: whatever a crash leaves is the beginning of this log."""
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
        """A sealed segment as the one to be written."""
        if isinstance(segment, ActiveSegment) or segment.next_base_offset is None:
            return _last([segment])
        store, base, end_offset = self.store, segment.base_offset, segment.next_base_offset
        with suppress(IndexCorrupt):
            active = ActiveSegment.open(store, base, now_ms)
            if active.transactions.ends_before(end_offset):
                return active
        return reindex(store, base, segment.size_bytes, index_interval_bytes, now_ms, earlier, end_offset)

    # -- the beginning of the row

    def delete_first(self, count: int, now_ms: int, delay_ms: int) -> None:
        """Let go of the first segments: their files are called .deleted from now on. Blocking: short (renames)."""
        with self._changing("a segment half deleted"):
            removed = self._row[:count]
            del self._row[:count]
            for segment in removed:
                segment.is_removed = True
                self._deleted.append(DeletedFiles(now_ms + delay_ms, self._rename_deleted(segment, SEGMENT_SUFFIXES)))

    @property
    def has_deleted_files(self) -> bool:
        """Whether files of deleted segments still wait for their removal; until then a power failure may undo all."""
        return bool(self._deleted)

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files whose delay is over, durably; returns how many. Blocking: long; beside the loop."""
        disk, directory = self.store.disk, self.store.directory
        doomed = removed = 0
        while doomed < len(self._deleted) and self._deleted[doomed].due_ms <= now_ms:
            for name in self._deleted[doomed].names:
                path = f"{directory}/{name}"
                if disk.exists(path):  # a segment that was replaced twice has left two files of one name
                    disk.remove(path)
                    removed += 1
            doomed += 1
        if doomed:
            disk.sync_directory(directory)
        for _ in range(doomed):
            self._deleted.popleft()
        return removed

    def _rename_deleted(self, segment: Segment, suffixes: Sequence[str]) -> list[str]:
        store, names = self.store, []
        for suffix in suffixes:
            path = store.path(segment.base_offset, suffix)
            store.open_files.drop(path)
            if store.disk.exists(path):
                store.disk.rename(path, path + DELETED)
                names.append((path + DELETED).rpartition("/")[2])
        return names

    # -- compaction

    def replace(self, old: Sequence[Segment], new: Segment, now_ms: int, delay_ms: int) -> None:
        """Put the clean segment, whose files are called .swap, in the place of those that it was made from.

        Theirs are called .deleted from now on (see `cleaner.py`); a snapshot stays where a segment still begins.
        Blocking: short (renames).
        """
        with self._changing("a segment half replaced"):
            number = self.number_of(new.base_offset)
            self._row[number : number + len(old)] = [new]
            for segment in old:
                segment.is_removed = True
                suffixes = SWAPPED_SUFFIXES if segment.base_offset == new.base_offset else SEGMENT_SUFFIXES
                self._deleted.append(DeletedFiles(now_ms + delay_ms, self._rename_deleted(segment, suffixes)))
            for suffix in SWAPPED_SUFFIXES:
                path = self.store.path(new.base_offset, suffix)
                if self.store.disk.exists(path + SWAP):
                    self.store.disk.rename(path + SWAP, path)

    # -- snapshots

    def list_snapshots(self) -> list[int]:
        """The offsets for which there is a snapshot of the producers. Blocking: long."""
        names = self.store.disk.list(self.store.directory)
        return [offset for name in names if name.endswith(SNAPSHOT) and (offset := offset_of_name(name)) is not None]


def _last(segments: list[Segment]) -> ActiveSegment:
    active = segments[-1]
    if not isinstance(active, ActiveSegment):
        raise InvariantBroken(f"{active} is the last segment, but not active")
    return active
