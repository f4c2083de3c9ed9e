"""Compaction at work: segments are read, cleaned into new files, and these put in the place of the old (D.8).

Theory of operation. A `Cleaning` is one pass over one log. `steps` is a generator whose steps are short, so that who
runs them, in a worker thread, can pace them and give up between any two. After some of them a portion of the log is
clean, and its files wait to be put in place. That is done on the event loop, by `Replacement.apply`, for readers must
see the old segments until one moment, and the new one from then on. No other code may remove or truncate segments of
the log while a pass is under way.

The files of a portion go this way; what a crash leaves is made good by the next start (`recovery.sweep`):

    1. written and synced as *.cleaned                the log is as it was; they are removed
    2. renamed to *.swap, directory synced            while a .cleaned is left as before, then the swap is completed
    3. old ones renamed to *.deleted                  the swap is completed
    4. *.swap renamed to their names, .log first      the swap is completed; without a .log.swap the rest is renamed
    5. directory synced

"Completed" means that the old segments within the offsets of the new one are removed and it takes its name. Old ones
beyond its last offset, all of whose records were dropped, may then be back. That does no harm: each of their records is
hidden by a newer one, which is elsewhere, or is a tombstone that has nothing left to hide.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from barnabas.storage.cleanable import Cleanable, Sized, number_of, portions
from barnabas.storage.compaction import Compaction, OffsetMap, keys_within
from barnabas.storage.files import (
    CLEANED,
    INDEX,
    LOG,
    SWAP,
    SWAPPED_SUFFIXES,
    TIME_INDEX,
    OpenFiles,
    SegmentStore,
)
from barnabas.storage.index import AbortedTransaction
from barnabas.storage.log import PartitionLog
from barnabas.storage.replay import sound_transactions
from barnabas.storage.segment import ActiveSegment, Segment
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.record_batch import LENGTH_OVERHEAD_BYTES
from barnabas.wire.records import CorruptRecords

__all__ = ["Cleaning", "Replacement", "Step", "keys_within"]

SEGMENT_BYTES_MAX = 2**31 - 1  # positions in an index are 32 bits wide
WINDOW_BYTES_MIN = 4096


class Replacement:
    """A clean segment, and those whose place it is to take."""

    __slots__ = ("_clean", "_cleaning", "_old", "is_begun")

    def __init__(self, cleaning: "Cleaning", old: Sequence[Segment], clean: Segment) -> None:
        self._cleaning = cleaning
        self._old = old
        self._clean = clean
        self.is_begun = False

    def apply(self, now_ms: int) -> bool:
        """Put it in place, on the event loop. False if the log is not what it was. Blocking: short (renames)."""
        log, segments = self._cleaning.log, self._cleaning.log.segments
        if segments.generation != self._cleaning.generation:
            return False  # it was cut: what hid a record may be gone
        self.is_begun = True
        segments.replace(self._old, self._clean, now_ms, log.config.file_delete_delay_ms)
        self._cleaning.generation = segments.generation
        return True


class Step(NamedTuple):
    """What one step of a pass did, and what is to be put in place now."""

    read_bytes: int
    written_bytes: int
    replacement: Replacement | None = None


class Cleaning:
    """One pass over a log."""

    def __init__(self, log: PartitionLog, part: Cleanable, *, keys_max: int, window_bytes: int, now_ms: int) -> None:
        self.log = log
        self.part = part
        self.end_offset = part.first_dirty_offset  # up to where the log is clean after the last step
        self.generation = log.segments.generation  # of the log as this pass knows it
        self._window_bytes = max(window_bytes, WINDOW_BYTES_MIN)
        self._now_ms = now_ms
        self._segments = [segment for segment in log.segments if segment.base_offset < part.end_offset]
        self._offsets = OffsetMap(keys_max)
        self._compaction = Compaction(
            self._offsets,
            first_dirty_offset=part.first_dirty_offset,
            live_producers=_last_offsets(log),
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )

    def steps(self) -> Generator[Step, None, None]:
        """The pass, for a worker thread; closing the generator before its end undoes what is not in place.

        CorruptRecords if the log is damaged, StorageError. Blocking: long, each step in proportion to a window.
        """
        store = self.log.segments.store
        _remove_unfinished(store)
        try:
            yield from self._note_keys()
            end_offset = self._offsets.latest_offset + 1
            todo = [segment for segment in self._segments if segment.base_offset < end_offset]
            config = self.log.config
            for count in portions(
                [_sized(segment) for segment in todo], config.segment_bytes, config.segment_index_bytes
            ):
                yield from self._clean(todo[:count])
                del todo[:count]
            self.end_offset = end_offset
        finally:
            self._offsets.release()

    def _note_keys(self) -> Iterator[Step]:
        """Fill the offset map from the dirty segments, until it is full."""
        if not self._segments:
            return
        first_dirty_offset = self.part.first_dirty_offset
        first = number_of(self._segments, first_dirty_offset)
        position = self._segments[first].start_position(first_dirty_offset, self.log.segments.store.private)
        for segment in self._segments[first:]:
            with closing(self._read(segment, position, self._note)) as reading:
                for step in reading:
                    yield step
                    if self._offsets.is_full:
                        return
            position = 0
            self._offsets.latest_offset = _next_base(segment) - 1  # records may be missing at the end

    def _clean(self, portion: Sequence[Segment]) -> Iterator[Step]:
        """Write one clean segment, and let it take the place of these."""
        log_store = self.log.segments.store
        store = _CleanedStore(log_store)
        replacement: Replacement | None = None
        clean = ActiveSegment.create(store, portion[0].base_offset, self._now_ms)
        try:
            for segment in portion:
                yield from self._read(segment, 0, partial(self._write, clean))
                clean.transactions.entries += self._aborted_in(segment)
            replacement = self._prepare(clean, portion)
            yield Step(0, 0, replacement)
        finally:
            store.open_files.drop_directory(store.directory)
            if replacement is None or not replacement.is_begun:
                _remove_unfinished(log_store)
            else:
                log_store.disk.sync_directory(log_store.directory)

    def _read(
        self, segment: Segment, position: int, consume: Callable[[bytes], tuple[int, int]]
    ) -> Generator[Step, None, None]:
        """Feed a segment to `consume`, a window at a time; it says how many bytes it consumed, and wrote."""
        window_bytes = self._window_bytes
        self._compaction.begin_segment(segment.base_offset, _next_base(segment))
        with self.log.segments.store.private(segment.path) as file:
            while position < segment.size_bytes:
                left = segment.size_bytes - position
                window = file.read(position, min(window_bytes, left))
                if len(window) < min(window_bytes, left):
                    raise CorruptRecords(f"{segment.path} ends before its {segment.size_bytes} bytes")
                consumed, written = consume(window)
                if consumed:
                    position += consumed
                    window_bytes = self._window_bytes
                    yield Step(consumed, written)
                else:
                    window_bytes = _entry_bytes(window)
                    if not len(window) < window_bytes <= left:
                        raise CorruptRecords(f"{segment.path}: no whole entry at position {position}")

    def _aborted_in(self, segment: Segment) -> list[AbortedTransaction]:
        """The aborted transactions of a segment, found in the log if their index is damaged."""
        if not segment.has_transactions:
            return []
        earlier = [each for each in self._segments if each.base_offset < segment.base_offset and not each.is_removed]
        base, end_offset = segment.base_offset, _next_base(segment)
        return sound_transactions(self.log.segments.store, base, segment.size_bytes, earlier, end_offset)

    def _note(self, window: bytes) -> tuple[int, int]:
        return self._compaction.note(window), 0

    def _write(self, clean: ActiveSegment, window: bytes) -> tuple[int, int]:
        """Append to the clean segment what stays of a window."""
        consumed, output, kept = self._compaction.sift(window)
        position = clean.size_bytes
        if position + len(output) > SEGMENT_BYTES_MAX:
            raise CorruptRecords(f"{clean.path} would become larger than {SEGMENT_BYTES_MAX} bytes")
        if output:
            clean.file.write(position, output)
        interval_bytes = self.log.config.index_interval_bytes
        for entry in kept:
            clean.note(position, entry.size_bytes, entry.last_offset, entry.max_timestamp, interval_bytes)
            position += entry.size_bytes
        return consumed, len(output)

    def _prepare(self, clean: ActiveSegment, portion: Sequence[Segment]) -> Replacement:
        """Make a clean segment durable and give it the name under which a crash will find it finished."""
        store, last = self.log.segments.store, portion[-1]
        clean.finish()
        clean.sync(_next_base(last))
        store.disk.set_modified_ms(clean.path, store.disk.modified_ms(last.path))  # retention may go by it
        for suffix in SWAPPED_SUFFIXES:
            path = store.path(clean.base_offset, suffix)
            if store.disk.exists(path + CLEANED):
                store.disk.rename(path + CLEANED, path + SWAP)
        store.disk.sync_directory(store.directory)
        has_transactions = bool(clean.transactions.entries)
        sealed = Segment(store, clean.base_offset, clean.size_bytes, last.next_base_offset, has_transactions)
        return Replacement(self, portion, sealed)


class _CleanedStore(SegmentStore):
    """The same directory, where the files that are being cleaned have names of their own."""

    __slots__ = ()

    def __init__(self, store: SegmentStore) -> None:
        super().__init__(store.disk, store.directory, OpenFiles(store.disk))

    def path(self, offset: int, suffix: str) -> str:
        return super().path(offset, suffix) + CLEANED


def _remove_unfinished(store: SegmentStore) -> None:
    """Remove what a pass has left that did not come to its end, durably, and so that no crash completes it."""
    disk, directory = store.disk, store.directory
    names = [name for name in disk.list(directory) if name.endswith((CLEANED, SWAP))]
    if not names:
        return
    for name in names:
        if name.endswith(LOG + SWAP):  # first of all it is unfinished again
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}{CLEANED}")
            names.append(name.removesuffix(SWAP) + CLEANED)
    for last in (SWAP, CLEANED):
        for name in names:
            if name.endswith(last) and disk.exists(f"{directory}/{name}"):
                disk.remove(f"{directory}/{name}")
        disk.sync_directory(directory)


def _last_offsets(log: PartitionLog) -> Mapping[int, int]:
    """Producer id -> where its last record is."""
    return {producer.producer_id: producer.last_offset for producer in log.producers if producer.last_offset >= 0}


def _next_base(segment: Segment) -> int:
    if segment.next_base_offset is None:
        raise InvariantBroken(f"{segment} is being written, so it cannot be cleaned")
    return segment.next_base_offset


def _sized(segment: Segment) -> Sized:
    store = segment.store
    index_bytes, time_index_bytes = (
        store.disk.size(store.path(segment.base_offset, suffix)) for suffix in (INDEX, TIME_INDEX)
    )
    return Sized(segment.base_offset, _next_base(segment), segment.size_bytes, index_bytes, time_index_bytes)


def _entry_bytes(window: bytes) -> int:
    """How large the entry is that the window begins with, by its own word."""
    length = int.from_bytes(window[8:LENGTH_OVERHEAD_BYTES], "big", signed=True)
    return LENGTH_OVERHEAD_BYTES + length
