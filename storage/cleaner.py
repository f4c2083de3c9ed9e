"""A compaction pass over one log: read segments, write clean ones, and put these in their place (reference D.8).

`Cleaning` is one pass. A worker thread runs its generator `steps`; the steps are short, so that the caller can throttle
them, and stop between any two. Some steps carry a `Replacement`: a finished clean segment. The caller applies it on the
event loop, so that readers see either all old segments or the new one. While a pass is under way no other code may
delete or truncate segments of the log.

The files of a portion (the segments that become one) go through these stages; `recovery.sweep` repairs what a crash
leaves:

    stage                                               after a crash in it
    1. written and synced as *.cleaned                  the .cleaned files are removed; the log is unchanged
    2. renamed to *.swap, directory synced              removed while a .cleaned is left, else the swap is completed
    3. old files renamed to *.deleted                   the swap is completed
    4. *.swap renamed to their final names, .log first  the swap is completed; without a .log.swap the rest is renamed
    5. directory synced

To complete a swap means to remove the old segments within the offset range of the new one, and to rename the new one.
Old segments beyond its last offset (all of their records were dropped) may come back. This is harmless: each of their
records is hidden by a newer one elsewhere in the log, or is a tombstone that has nothing left to hide.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

from barnabas.storage.cleanable import Cleanable, Sized, find_cleanable, number_of, portions
from barnabas.storage.compaction import Compaction, LiveProducers, OffsetMap, keys_within
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
from barnabas.storage.index import IndexCorrupt
from barnabas.storage.log import PartitionLog
from barnabas.storage.replay import rebuild_transactions
from barnabas.storage.segment import ActiveSegment, Segment
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.record_batch import LENGTH_OVERHEAD_BYTES
from barnabas.wire.records import CorruptRecords
from barnabas.wire.sentinels import NEVER_MS

__all__ = ["Cleaning", "Replacement", "Step", "cleanable_part", "keys_within", "unread_times"]

logger = logging.getLogger(__name__)

SEGMENT_BYTES_MAX = 2**31 - 1  # index entries hold positions as i32
WINDOW_BYTES_MIN = 4096  # a smaller window would be read again for nearly every batch


class Replacement:
    """A clean segment, and the old segments that it replaces."""

    __slots__ = ("_clean", "_cleaning", "_old", "is_begun")

    def __init__(self, cleaning: "Cleaning", old: Sequence[Segment], clean: Segment) -> None:
        self._cleaning = cleaning
        self._old = old
        self._clean = clean
        self.is_begun = False

    def apply(self, now_ms: int) -> bool:
        """Put the clean segment in place, on the event loop. False if the log changed. Blocking: short (renames)."""
        log = self._cleaning.log
        segments = self._cleaning.log.segments
        # A truncation may have removed the newer record for which an older one was dropped.
        if segments.generation != self._cleaning.generation:
            return False
        # This is set before the first rename: from here on the files belong to the log, whether the
        # rest succeeds or not.
        self.is_begun = True
        segments.replace(self._old, self._clean, now_ms, log.config.file_delete_delay_ms)
        self._cleaning.generation = segments.generation  # this change is the pass's own one
        return True


class Step(NamedTuple):
    """The input and output of one step, and a clean segment if one is ready to be applied."""

    read_bytes: int
    written_bytes: int
    replacement: Replacement | None = None


class Cleaning:
    """One pass over a log."""

    def __init__(self, log: PartitionLog, part: Cleanable, *, keys_max: int, window_bytes: int, now_ms: int) -> None:
        self.log = log
        self.part = part
        self.end_offset = part.first_dirty_offset  # the new cleaner checkpoint, after the last step
        self.generation = log.segments.generation  # of the segments that this pass reads
        self._window_bytes = max(window_bytes, WINDOW_BYTES_MIN)
        self._now_ms = now_ms

        # The pass gets its own list of segments, because it runs in a thread, while the event loop
        # may append new segments to the list of the log.
        self._segments = [segment for segment in log.segments if segment.base_offset < part.end_offset]
        self._aborting = [_unchanging(segment) for segment in log.segments if segment.has_aborted]
        self._offsets = OffsetMap(keys_max)

        # `iter` takes a snapshot of the producers now. There may be 100,000, so the thread reads it in its first step.
        self._producers = iter(log.producers)
        self._live_producers = LiveProducers({}, {})
        self._compaction = Compaction(
            self._offsets,
            first_dirty_offset=part.first_dirty_offset,
            live_producers=self._live_producers,
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )

    def steps(self) -> Generator[Step, None, None]:
        """Run the pass, in a worker thread. Closing the generator early removes the files that are not in place yet.

        CorruptRecords if the log is damaged, StorageError. Blocking: long, each step in proportion to a window.
        """
        store = self.log.segments.store

        # An earlier pass that failed may have left files. The next start would complete their swap,
        # or take them for files of this pass.
        _remove_unfinished(store)
        self._live_producers.note(self._producers)
        try:
            yield from self._note_keys()
            self._compaction.begin_phase()

            # A full offset map ends the dirty part early: the next pass goes on from there.
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
        """Fill the offset map from the dirty segments, until their end or until it is full."""
        if not self._segments:
            return
        # Only keys of the dirty part are noted: the records of the clean part are compared with them, not with each
        # other.
        first_dirty_offset = self.part.first_dirty_offset
        first = number_of(self._segments, first_dirty_offset)
        position = self._segments[first].start_position(first_dirty_offset, self.log.segments.store.private)
        for segment in self._segments[first:]:
            with closing(self._read(segment, position, self._note)) as reading:
                for step in reading:
                    yield step
                    # `latest_offset` stays at the last batch that was noted as a whole.
                    if self._offsets.is_full:
                        return
            position = 0
            # An earlier pass may have removed the segment's last records; it is still clean up to the next base offset.
            self._offsets.latest_offset = _next_base(segment) - 1

    def _clean(self, portion: Sequence[Segment]) -> Iterator[Step]:
        """Write one clean segment from these, and yield its replacement."""
        # The clean segment has the same name as the first old one: so the clean files get a suffix,
        # and an `OpenFiles` of their own.
        log_store = self.log.segments.store
        store = _CleanedStore(log_store)
        replacement: Replacement | None = None
        clean = ActiveSegment.create(store, portion[0].base_offset, self._now_ms)
        try:
            # Batches are not merged across segments, so the old segments are simply written one after the other.
            for segment in portion:
                yield from self._read(segment, 0, partial(self._write, clean))
            replacement = self._prepare(clean, portion)
            yield Step(0, 0, replacement)
        finally:
            # The generator gets here when the caller resumes it, after `apply`, or closes it.
            store.open_files.drop_directory(store.directory)
            if replacement is None or not replacement.is_begun:
                _remove_unfinished(log_store)
            else:
                # This is stage 5. The caller writes the cleaner checkpoint only after the pass, so
                # it never precedes the renames.
                log_store.disk.sync_directory(log_store.directory)

    def _read(
        self, segment: Segment, position: int, consume: Callable[[bytes], tuple[int, int]]
    ) -> Generator[Step, None, None]:
        """Feed a segment to `consume` in windows; it returns the bytes consumed and the bytes written."""
        window_bytes = self._window_bytes
        end_offset = _next_base(segment)
        self._compaction.begin_segment(segment.base_offset, end_offset, self._aborted_before(segment, end_offset))

        # The pass has a handle of its own, because the loop may drop the shared one at any time. It
        # needs no lock: sealed files do not change.
        with self.log.segments.store.private(segment.path) as file:
            while position < segment.size_bytes:
                left = segment.size_bytes - position
                window = file.read(position, min(window_bytes, left))

                # The broker does not change a sealed segment, so a short read means that the file is damaged.
                if len(window) < min(window_bytes, left):
                    raise CorruptRecords(f"{segment.path} ends before its {segment.size_bytes} bytes")
                consumed, written = consume(window)
                if consumed:
                    position += consumed
                    window_bytes = self._window_bytes
                    yield Step(consumed, written)
                else:
                    # The window holds no whole entry: read again with the entry's size, then go back to the usual
                    # window. With a size of at most the window this would loop, and with one beyond
                    # the segment it would read past the end.
                    window_bytes = _entry_bytes(window)
                    if not len(window) < window_bytes <= left:
                        raise CorruptRecords(f"{segment.path}: no whole entry at position {position}")

    def _aborted_before(self, first: Segment, end_offset: int) -> Iterator[AbortedTransaction]:
        """The aborted transactions with records in [first segment, end_offset), all of them decided."""
        start_offset = first.base_offset
        private = self.log.segments.store.private
        # Their markers may lie in any later segment, cleaned or not. Only one segment's
        # transactions are in memory at a time.
        for segment in self._aborting[number_of(self._aborting, start_offset) :]:
            try:
                aborted, is_last = segment.find_aborted(start_offset, end_offset, private)
            except IndexCorrupt as error:
                self._rebuild_index(segment, error)
                aborted, is_last = segment.find_aborted(start_offset, end_offset, private)
            yield from aborted
            if is_last:
                return

    def _rebuild_index(self, segment: Segment, damage: IndexCorrupt) -> None:
        """Replace the damaged .txnindex of a sealed segment."""
        # The active segment's .txnindex is written by the event loop, so this thread must not replace it.
        if segment.next_base_offset is None:
            raise damage
        logger.warning("the transaction index of %s is damaged (%s) and is rebuilt", segment, damage)
        # Segments before this one give the producers' state at its start; those already replaced no longer exist.
        earlier = [each for each in self._segments if each.base_offset < segment.base_offset and not each.is_removed]
        store = self.log.segments.store
        segment.transactions = rebuild_transactions(store, segment.base_offset, segment.size_bytes, earlier)

    def _note(self, window: bytes) -> tuple[int, int]:
        return self._compaction.note(window), 0

    def _write(self, clean: ActiveSegment, window: bytes) -> tuple[int, int]:
        """Append the retained part of a window to the clean segment."""
        consumed, output, kept = self._compaction.sift(window)
        position = clean.size_bytes
        # A rewritten batch may be larger than before (recompression), so the sizes that `portions` added up guarantee
        # nothing.
        if position + len(output) > SEGMENT_BYTES_MAX:
            raise CorruptRecords(f"{clean.path} would become larger than {SEGMENT_BYTES_MAX} bytes")
        if output:  # a window may lose all of its records
            clean.file.write(position, output)
        # `note` counts what has been written, so index entries are as in a segment that was appended batch by batch.
        interval_bytes = self.log.config.index_interval_bytes
        for entry in kept:
            clean.note(position, entry.size_bytes, entry.last_offset, entry.max_timestamp, interval_bytes)
            position += entry.size_bytes
        for aborted in self._compaction.take_aborted():
            clean.transactions.append(aborted)
        if clean.is_index_save_due:
            clean.save_indexes()
        return consumed, len(output)

    def _prepare(self, clean: ActiveSegment, portion: Sequence[Segment]) -> Replacement:
        """Sync a clean segment and rename it to .swap, after which a restart completes the swap."""
        store = self.log.segments.store
        last = portion[-1]
        # Records and indexes reach the disk before the rename: a restart trusts a .swap without reading it.
        clean.finish()
        clean.sync(_next_base(last))
        # retention.ms counts from the file's mtime if the records have no timestamps.
        store.disk.set_modified_ms(clean.path, store.disk.modified_ms(last.path))
        # The order is free: as long as one .cleaned file is left, a restart removes them all
        # (`recovery.sweep`).
        for suffix in SWAPPED_SUFFIXES:
            path = store.path(clean.base_offset, suffix)
            if store.disk.exists(path + CLEANED):
                store.disk.rename(path + CLEANED, path + SWAP)
        # The .swap names must be durable before the first old file is renamed: otherwise a crash
        # could lose both the old and the clean segment.
        store.disk.sync_directory(store.directory)
        sealed = Segment(store, clean.base_offset, clean.size_bytes, last.next_base_offset, clean.transactions)
        return Replacement(self, portion, sealed)


def _unchanging(segment: Segment) -> Segment:
    """The segment as it is now, for a thread: the event loop appends to the active one, and seals it.

    What comes to the index of aborted transactions later is no transaction that is decided now.
    """
    if not isinstance(segment, ActiveSegment):
        return segment
    return Segment(segment.store, segment.base_offset, segment.size_bytes, None, segment.transactions.copied())


class _CleanedStore(SegmentStore):
    """The log's directory, with .cleaned appended to every file name and its own set of open files."""

    __slots__ = ()

    def __init__(self, store: SegmentStore) -> None:
        # The broker's `OpenFiles` may be used on the event loop only.
        super().__init__(store.disk, store.directory, OpenFiles(store.disk))

    def path(self, offset: int, suffix: str) -> str:
        return super().path(offset, suffix) + CLEANED


def _remove_unfinished(store: SegmentStore) -> None:
    """Durably remove the files of an unfinished pass; a crash in between never lets a restart complete the swap."""
    disk = store.disk
    directory = store.directory
    names = [name for name in disk.list(directory) if name.endswith((CLEANED, SWAP))]
    if not names:
        return
    for name in names:
        # The .log goes back to .cleaned first: next to a .cleaned file of its offset a .swap counts
        # as unfinished (`recovery._is_partial`).
        if name.endswith(LOG + SWAP):
            disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}{CLEANED}")
            names.append(name.removesuffix(SWAP) + CLEANED)
    # The .cleaned files mark the .swap files as unfinished, so they are removed last, after the
    # removal of the .swap files is synced.
    for last in (SWAP, CLEANED):
        for name in names:
            if name.endswith(last) and disk.exists(f"{directory}/{name}"):
                disk.remove(f"{directory}/{name}")
        disk.sync_directory(directory)


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
    """The size that the first entry of the window claims to have."""
    # The caller compares it with the segment's size before it reads that much.
    length = int.from_bytes(window[8:LENGTH_OVERHEAD_BYTES], "big", signed=True)
    return LENGTH_OVERHEAD_BYTES + length


def cleanable_part(log: PartitionLog, high_watermark: int, now_ms: int) -> Cleanable:
    """`find_cleanable` for this log as it is now."""
    return find_cleanable(
        list(log.segments),
        log.config,
        checkpoint=log.first_dirty_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset(high_watermark),
        # A marker that is not synced may get lost. Then its transaction is open again, and may be aborted: its records
        # must not have replaced older ones.
        recovery_point=min(log.recovery_point, log.synced_stable_offset),
        now_ms=now_ms,
    )


def unread_times(log: PartitionLog) -> list[Segment]:
    """The segments of which `cleanable_part` would have to read the timestamps from their files.

    There may be thousands after a start, so the caller reads them before, a few in each step.
    """
    rules = log.config
    # Neither lag is set, so no timestamp is asked for.
    if rules.min_compaction_lag_ms <= 0 and rules.max_compaction_lag_ms == NEVER_MS:
        return []
    segments = list(log.segments)
    first_dirty_offset = log.log_start_offset if log.first_dirty_offset is None else log.first_dirty_offset
    dirty = segments[number_of(segments, first_dirty_offset) : -1]
    return [segment for segment in dirty if not segment.has_read_times]
