"""Opening a log: what its directory holds, and what of that can be believed (reference D.7; README.md walks through).

After a clean shutdown everything is believed. The end of the log follows from the last index entry and a few entries
behind it, producers from the snapshot taken at the end: the cost does not depend on the length of the log.

Otherwise everything below the *recovery point* is believed, for it was synced. From the segment that holds it on (or
ends with it, for its indexes may be younger than its last sync), every entry is read and checked: length, offsets,
checksum. The log ends before the first byte that is wrong. Indexes, leader epochs, producers and snapshots of the
scanned segments are rebuilt from what was read.

Crashing here is harmless: the next start does the same again. That takes one care. When a segment ends early, the
segments behind it must be gone before it is cut, or the next start would find it whole and the others still there.
So they go first, last one first, and their removal is synced; then the file is cut, and synced too.

A hole between two scanned segments has the same meaning as a wrong byte: the end of the earlier one was lost while
the later one reached the disk. Appending never makes such a hole, but compaction does: so it is believed in logs that
are compacted, and up to where they were, should they not be any more.

Files are read in windows of 1 MiB; a batch may be larger, if the file is as long as the batch says.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.storage.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from barnabas.storage.entries import LOOKUP_STEP_BYTES, max_timestamp_of, walk_file
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.files import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    RENEWED,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    SegmentStore,
    offset_of_name,
)
from barnabas.storage.index import MAX_RELATIVE_OFFSET, OFFSET_ENTRY, TIME_ENTRY, IndexCorrupt, has_whole_entries
from barnabas.storage.producers import ProducerStates
from barnabas.storage.replay import (
    load_producers,
    note_epoch,
    reindex,
    remove_snapshots,
    replay_producers,
    sound_transactions,
)
from barnabas.storage.segment import ActiveSegment, Segment
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.records import is_intact


class RecoveryRules(Protocol):
    """The settings that matter here: TopicConfig."""

    @property
    def index_interval_bytes(self) -> int: ...

    @property
    def producer_id_expiration_ms(self) -> int: ...

    @property
    def compacted(self) -> bool: ...


class LoadedLog(NamedTuple):
    """A directory as it was found, or made to be."""

    segments: list[Segment]  # ascending; the last one is `active`
    active: ActiveSegment
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    epochs_changed: bool  # they differ from the file
    producers: ProducerStates


def load_log(
    store: SegmentStore,
    rules: RecoveryRules,
    *,
    recovery_point: int,
    log_start_offset: int | None,
    first_dirty_offset: int | None,
    clean: bool,
    now_ms: int,
) -> LoadedLog:
    """Read, and unless the shutdown was clean check and repair, the directory of a log. Blocking: long."""
    found = sweep(store)
    loading = _Loading(store, rules, found, log_start_offset, first_dirty_offset or 0, now_ms)
    if not found.sizes:
        loading.start_empty(log_start_offset or 0)
    elif not (clean and loading.load_clean()):
        last = len(loading.bases) - 1
        first = last if clean else max(bisect_left(loading.bases, recovery_point) - 1, 0)
        loading.scan(first)
    if loading.log_start_offset > loading.log_end_offset:
        loading.start_over()  # what is left lies below what was deleted
    return loading.finish(loading.log_end_offset if clean else recovery_point)


# -- what is there


class Found(NamedTuple):
    """The files of a directory after the leftovers were swept."""

    sizes: dict[int, int]  # base offset -> size of the .log, ascending
    names: frozenset[str]
    snapshots: list[int]  # ascending


def sweep(store: SegmentStore) -> Found:
    """Finish or undo what was under way when the broker stopped: deletions, compaction. Blocking: long."""
    disk, directory = store.disk, store.directory
    names = disk.list(directory)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    unfinished = [offset for name in cleaned if (offset := offset_of_name(name)) is not None]
    partial = [name for name in names if name.endswith(SWAP) and _is_partial(name, unfinished)]
    gone = [*(name for name in names if name.endswith((DELETED, RENEWED))), *partial]
    for name in gone:
        disk.remove(f"{directory}/{name}")
    if gone:  # a deleted segment must not come back, and a .swap without its .cleaned files counts as complete
        disk.sync_directory(directory)
    for name in cleaned:
        disk.remove(f"{directory}/{name}")
    _complete_swap(store)
    names = disk.list(directory)
    bases = [offset for name in names if name.endswith(LOG) and (offset := offset_of_name(name)) is not None]
    known = dict.fromkeys(bases)
    for name in names:
        if name.endswith((INDEX, TIME_INDEX, TRANSACTION_INDEX)) and offset_of_name(name) not in known:
            disk.remove(f"{directory}/{name}")
    snapshots = [offset for name in names if name.endswith(SNAPSHOT) and (offset := offset_of_name(name)) is not None]
    return Found({base: disk.size(store.path(base, LOG)) for base in bases}, frozenset(names), snapshots)


def _is_partial(name: str, unfinished: Sequence[int]) -> bool:
    """Cleaned files are renamed to .swap from the last one to the first: while one of a lower or equal offset is still
    called .cleaned, the step was not completed, and the original segments are all there."""
    offset = offset_of_name(name)
    return offset is not None and bool(unfinished) and offset >= min(unfinished)


def _complete_swap(store: SegmentStore) -> None:
    """Put cleaned segments into the place of those that they were made from."""
    disk, directory = store.disk, store.directory
    names = disk.list(directory)
    swaps = [name for name in names if name.endswith(SWAP) and offset_of_name(name) is not None]
    ranges = [_swap_range(store, name) for name in swaps if name.endswith(LOG + SWAP)]
    if ranges:
        low, high = min(base for base, _ in ranges), max(end for _, end in ranges)
        for name in reversed(names):
            offset = offset_of_name(name)
            if name.endswith(LOG) and offset is not None and low <= offset < high:
                store.remove_segment(offset)
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _swap_range(store: SegmentStore, name: str) -> tuple[int, int]:
    """The offsets that a .log.swap stands for: its base and the end of its last entry."""
    base = offset_of_name(name)
    if base is None:
        raise InvariantBroken(f"{name} is not the name of a segment")
    with store.private(f"{store.directory}/{name}") as file:
        end = base
        for span, _ in walk_file(file, 0, file.size_bytes()):
            end = span.last_offset + 1
    return base, end


# -- loading


class _Loading:
    """The log while it is being opened."""

    def __init__(
        self,
        store: SegmentStore,
        rules: RecoveryRules,
        found: Found,
        log_start_offset: int | None,
        first_dirty_offset: int,
        now_ms: int,
    ) -> None:
        self.store = store
        self.rules = rules
        self.now_ms = now_ms
        self.first_dirty_offset = first_dirty_offset
        self.sizes = found.sizes
        self.names = found.names
        self.snapshots = found.snapshots
        self.bases = list(found.sizes)
        self.segments: list[Segment] = []
        self.log_end_offset = 0
        self.log_start_offset = max(log_start_offset or 0, self.bases[0] if self.bases else 0)
        self.producers = ProducerStates()
        self.epochs = read_leader_epochs(store.disk, f"{store.directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._epochs_read = self.epochs.entries

    # the three ways

    def start_empty(self, base_offset: int) -> None:
        """There is no segment: make one."""
        self.segments = [ActiveSegment.create(self.store, base_offset, self.now_ms)]
        self.log_end_offset = self.log_start_offset = base_offset
        self.epochs.truncate_from_end(base_offset)

    def load_clean(self) -> bool:
        """Believe everything. False if the last segment is not what a clean shutdown leaves: then it is scanned."""
        last = self.bases[-1]
        if not self._has_indexes(last):
            return False
        try:
            active = ActiveSegment.open(self.store, last, self.now_ms)
        except IndexCorrupt:
            return False
        end_offset = find_log_end(active)
        if end_offset is None or not active.transactions.ends_before(end_offset):
            self.store.open_files.drop(active.path)
            return False
        self._load_sealed(len(self.bases) - 1)
        self.segments.append(active)
        self.log_end_offset = end_offset
        self.epochs.truncate_from_end(end_offset)
        self._load_producers(end_offset)
        return True

    def scan(self, first: int) -> None:
        """Check the segments from the one numbered `first` on; what they hold replaces what files say of them."""
        base = self.bases[first]
        self._load_sealed(first)
        self.epochs.truncate_from_end(base)
        self._remove_snapshots_above(base)
        self._load_producers(base)
        for number in range(first, len(self.bases)):
            base = self.bases[number]
            if number > first:
                if not self._continues_at(base):
                    self._remove_segments_from(number)
                    break
                self._seal_last(base)
            if not self._scan_segment(number):
                break
        self._last_active().finish()

    def _scan_segment(self, number: int) -> bool:
        """Read one segment; False if it had to be cut, which ends the log."""
        base, size_bytes = self.bases[number], self.sizes[self.bases[number]]
        if base > self.log_start_offset:
            self._save_snapshot(base)
        segment = ActiveSegment.unread(self.store, base, self.now_ms)
        self.segments.append(segment)
        self.log_end_offset, end_position = self._scan_entries(segment, size_bytes)
        if end_position == size_bytes:
            return True
        self._remove_segments_from(number + 1)
        segment.file.truncate(end_position)
        segment.file.sync()
        return False

    def _scan_entries(self, segment: ActiveSegment, size_bytes: int) -> tuple[int, int]:
        """Check entries and take over what they say; returns the offset and the position behind the last good one."""
        end_offset, end_position = segment.base_offset, 0
        for span, data in walk_file(segment.file, 0, size_bytes):
            if span.base_offset < end_offset or span.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                break
            if not is_intact(data):
                break
            end_offset, end_position = span.last_offset + 1, span.position + span.size_bytes
            timestamp = max_timestamp_of(span, data)
            segment.note(span.position, span.size_bytes, span.last_offset, timestamp, self.rules.index_interval_bytes)
            note_epoch(self.epochs, span, data)
            aborted = replay_producers(self.producers, span, data)
            if aborted is not None:
                segment.transactions.append(aborted)
        return end_offset, end_position

    def start_over(self) -> None:
        """Nothing that is there lies in the log any more."""
        self._remove_snapshots_above(-1)  # first, for the one at a segment's beginning goes with that, too
        for segment in reversed(self.segments):
            self.store.remove_segment(segment.base_offset)
        self.store.disk.sync_directory(self.store.directory)
        self.producers.clear()
        self.epochs.clear()
        self.start_empty(self.log_start_offset)

    def finish(self, recovery_point: int) -> LoadedLog:
        """Everything that follows from the segments."""
        self.epochs.truncate_from_start(self.log_start_offset)
        self._remove_stray_snapshots()
        return LoadedLog(
            self.segments,
            self._last_active(),
            self.log_start_offset,
            self.log_end_offset,
            min(recovery_point, self.log_end_offset),
            self.epochs,
            self.epochs.entries != self._epochs_read,
            self.producers,
        )

    # segments

    def _load_sealed(self, count: int) -> None:
        """The first `count` segments are believed; an index that is missing or damaged is rebuilt."""
        for base, next_base in zip(self.bases[:count], self.bases[1 : count + 1], strict=True):
            if self._has_indexes(base):
                aborted = sound_transactions(self.store, base, self.sizes[base], self.segments, next_base)
                self.segments.append(Segment(self.store, base, self.sizes[base], next_base, bool(aborted)))
            else:
                interval_bytes, size_bytes = self.rules.index_interval_bytes, self.sizes[base]
                rebuilt = reindex(self.store, base, size_bytes, interval_bytes, self.now_ms, self.segments, next_base)
                rebuilt.finish()
                self.segments.append(rebuilt.sealed(next_base))

    def _has_indexes(self, base: int) -> bool:
        return all(
            f"{base:020d}{suffix}" in self.names
            and has_whole_entries(self.store.disk.size(self.store.path(base, suffix)), entry)
            for suffix, entry in ((INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY))
        )

    def _continues_at(self, base: int) -> bool:
        """Whether a segment with this base follows what was scanned so far."""
        if base <= self.log_end_offset:
            return base == self.log_end_offset
        return self.rules.compacted or base <= self.first_dirty_offset

    def _remove_segments_from(self, number: int) -> None:
        for base in reversed(self.bases[number:]):
            self.store.remove_segment(base)
        self.store.disk.sync_directory(self.store.directory)

    def _last_active(self) -> ActiveSegment:
        segment = self.segments[-1]
        if not isinstance(segment, ActiveSegment):
            raise InvariantBroken(f"{segment} is the last segment, but not active")
        return segment

    def _seal_last(self, next_base: int) -> None:
        active = self._last_active()
        active.finish()
        self.segments[-1] = active.sealed(next_base)

    # producers

    def _load_producers(self, end_offset: int) -> None:
        """Producer states as they were when the log ended at `end_offset`, of the segments loaded so far."""
        self.snapshots = load_producers(
            self.store,
            self.producers,
            self.snapshots,
            self.segments,
            self.log_start_offset,
            end_offset,
            self.now_ms,
            self.rules.producer_id_expiration_ms,
        )

    def _save_snapshot(self, offset: int) -> None:
        self.store.save(self.store.path(offset, SNAPSHOT), self.producers.encode_snapshot())
        self.snapshots = sorted({*self.snapshots, offset})

    def _remove_snapshots_above(self, offset: int) -> None:
        self.snapshots = remove_snapshots(self.store, self.snapshots, [s for s in self.snapshots if s > offset])

    def _remove_stray_snapshots(self) -> None:
        """A snapshot belongs to the beginning of a segment or, the newest, to the end of the log."""
        self._remove_snapshots_above(self.log_end_offset)
        kept = {*(segment.base_offset for segment in self.segments), *self.snapshots[-1:]}
        self.snapshots = remove_snapshots(self.store, self.snapshots, [s for s in self.snapshots if s not in kept])


def find_log_end(active: ActiveSegment) -> int | None:
    """The offset behind the last entry, by the index and a short walk; None if the file does not end with an entry."""
    entries = active.offsets.entries
    position = OFFSET_ENTRY.unpack_from(entries, len(entries) - 8)[1] if entries else 0
    end_offset = active.base_offset
    for span, _ in walk_file(active.file, position, active.size_bytes, LOOKUP_STEP_BYTES):
        end_offset = span.last_offset + 1
        position = span.position + span.size_bytes
    return end_offset if position == active.size_bytes else None
