"""Opening a log: which of its files are trusted or read, and the repair after a crash (reference D.7; README.md).

After a clean shutdown everything is trusted. The log end follows from the last index entry and a few entries behind it,
the producers from the snapshot at the log end: the cost does not depend on the length of the log.

After a crash everything below the *recovery point* is trusted, because it was synced. From the segment that holds the
recovery point on, every entry is read and checked: length, offsets, checksum. The log ends before the first bad byte.
Indexes, leader epochs, producers and snapshots of the scanned segments are rebuilt from the entries.

A crash during recovery is harmless: the next start finds the same state, or a shorter one, and does the same again.

Files are read in windows of 1 MiB; a longer batch is read whole, if the file is as long as the batch claims.
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
    SWAPPED_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    SegmentStore,
    offset_of_name,
)
from barnabas.storage.index import (
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY,
    TIME_ENTRY,
    IndexCorrupt,
    has_whole_entries,
)
from barnabas.storage.producers import ProducerStates, encode_snapshot
from barnabas.storage.replay import (
    has_sound_marker,
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
    """The topic settings that recovery needs; `TopicConfig` has them."""

    @property
    def index_interval_bytes(self) -> int: ...

    @property
    def producer_id_expiration_ms(self) -> int: ...


class LoadedLog(NamedTuple):
    """The state of a log directory after it was loaded and, if necessary, repaired."""

    segments: list[Segment]  # ascending; the last one is `active`
    active: ActiveSegment
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    epochs_changed: bool  # `epochs` differ from the leader-epoch-checkpoint file
    producers: ProducerStates
    is_clean: bool  # loaded as a clean stop left it: nothing was read, repaired or created


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
    """Load the directory of a log; unless the shutdown was clean, check and repair it. Blocking: long.

    The three offsets come from the checkpoint files (None or 0 where a file has no entry for this partition).
    """
    # A sweep is needed after any stop: a clean one, too, may have left .deleted files whose delay
    # was not over.
    found = sweep(store)
    loading = _Loading(store, rules, found, recovery_point, log_start_offset, first_dirty_offset or 0, now_ms)
    if not found.sizes:
        loading.start_empty(log_start_offset or 0)
    elif not (clean and loading.load_clean()):
        # After a clean stop only the last segment can be wrong. After a crash the scan begins with the segment that
        # holds the recovery point or ends exactly there: its indexes may have been saved after its last sync.
        last = len(loading.bases) - 1
        first = last if clean else max(bisect_left(loading.bases, recovery_point) - 1, 0)
        loading.scan(first)

    if loading.log_start_offset > loading.log_end_offset:
        loading.is_clean = False
        loading.start_over()  # all remaining records lie below the log start offset
    return loading.finish(loading.log_end_offset if clean else recovery_point)


# -- the files of the directory


class Found(NamedTuple):
    """The files of a directory after `sweep`."""

    sizes: dict[int, int]  # base offset -> size of the .log, ascending
    names: frozenset[str]
    snapshots: list[int]  # ascending


def sweep(store: SegmentStore) -> Found:
    """Complete or undo deletions and compactions that were under way when the broker stopped. Blocking: long."""
    disk = store.disk
    directory = store.directory
    names = disk.list(directory)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    unfinished = [offset for name in cleaned if (offset := offset_of_name(name)) is not None]
    partial = [name for name in names if name.endswith(SWAP) and _is_partial(name, unfinished)]

    # Partial swaps are removed before the .cleaned files, which are the only evidence that a swap is not complete.
    gone = [*(name for name in names if name.endswith((DELETED, RENEWED))), *partial]
    for name in gone:
        disk.remove(f"{directory}/{name}")
    if gone:  # a deleted segment must not come back, and a .swap without its .cleaned files counts as complete
        disk.sync_directory(directory)
    for name in cleaned:
        disk.remove(f"{directory}/{name}")

    # The remaining swaps are complete.
    _complete_swap(store)

    # A deletion renames the .log first, so a crash between its renames leaves indexes without a
    # .log. The names are listed again, because the swap has renamed and removed files.
    names = disk.list(directory)
    bases = [offset for name in names if name.endswith(LOG) and (offset := offset_of_name(name)) is not None]
    known = dict.fromkeys(bases)
    for name in names:
        if name.endswith((INDEX, TIME_INDEX, TRANSACTION_INDEX)) and offset_of_name(name) not in known:
            disk.remove(f"{directory}/{name}")
    snapshots = [offset for name in names if name.endswith(SNAPSHOT) and (offset := offset_of_name(name)) is not None]
    return Found({base: disk.size(store.path(base, LOG)) for base in bases}, frozenset(names), snapshots)


def _is_partial(name: str, unfinished: Sequence[int]) -> bool:
    """Whether a .swap file belongs to a swap that had not begun to replace the original segments."""
    # Kafka renames .cleaned files to .swap from the last offset to the first. While a .cleaned file of the same or a
    # lower offset remains, that step is not finished, so all original segments still exist.
    offset = offset_of_name(name)
    return offset is not None and bool(unfinished) and offset >= min(unfinished)


def _complete_swap(store: SegmentStore) -> None:
    """Put complete cleaned segments in the place of the segments that they were made from."""
    disk = store.disk
    directory = store.directory
    names = disk.list(directory)
    swaps = [name for name in names if name.endswith(SWAP) and offset_of_name(name) is not None]
    ranges = [_swap_range(store, name) for name in swaps if name.endswith(LOG + SWAP)]

    # If there is no .log.swap, the clean .log already has its final name, and only its index files
    # are still to be renamed.
    if ranges:
        # The original segments are removed first, from the last to the first: a crash in between
        # leaves the .swap files, and the next start goes on. A .swap without entries has an empty
        # range; `max` includes the original of the same name, which has to go, too.
        low = min(base for base, _ in ranges)
        high = max(max(end, base + 1) for base, end in ranges)

        # A segment is found by any of its files, because a replacement renames the .log first: a
        # .txnindex that stayed beside the clean .log would name transactions whose markers are
        # gone, and hide what their producers commit later.
        old = {
            offset for name in names if name.endswith(SWAPPED_SUFFIXES) and (offset := offset_of_name(name)) is not None
        }
        for offset in sorted(old, reverse=True):
            if low <= offset < high:
                store.remove_segment(offset)

    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _swap_range(store: SegmentStore, name: str) -> tuple[int, int]:
    """The offsets that a .log.swap covers: its base offset, and the offset after its last entry."""
    base = offset_of_name(name)
    if base is None:
        raise InvariantBroken(f"{name} is not the name of a segment")
    with store.private(f"{store.directory}/{name}") as file:
        # The entries give the end, because the name has only the begin. The file was synced before
        # it got the name, so the walk reaches its end.
        end = base
        for span, _ in walk_file(file, 0, file.size_bytes()):
            end = span.last_offset + 1
    return base, end


# -- loading


class _Loading:
    """A log while it is being loaded."""

    def __init__(
        self,
        store: SegmentStore,
        rules: RecoveryRules,
        found: Found,
        recovery_point: int,
        log_start_offset: int | None,
        first_dirty_offset: int,
        now_ms: int,
    ) -> None:
        self.store = store
        self.rules = rules
        self.now_ms = now_ms
        self.recovery_point = recovery_point
        self.first_dirty_offset = first_dirty_offset

        # This is the directory as `sweep` left it. Sizes and names are not asked for again: only
        # this object changes the files now.
        self.sizes = found.sizes
        self.names = found.names
        self.snapshots = found.snapshots
        self.bases = list(found.sizes)
        self.segments: list[Segment] = []
        self.log_end_offset = 0
        self.is_clean = False

        # The checkpoint of log starts is written now and then, so it may be behind the deletion of segments.
        self.log_start_offset = max(log_start_offset or 0, self.bases[0] if self.bases else 0)
        self.producers = ProducerStates()
        self.epochs = read_leader_epochs(store.disk, f"{store.directory}/{LEADER_EPOCH_CHECKPOINT}")

        # The epochs that the file has: if `epochs` differ from them after the loading, the next
        # flush writes the file.
        self._epochs_read = self.epochs.entries

    # three ways to load: an empty directory, after a clean shutdown, by a scan

    def start_empty(self, base_offset: int) -> None:
        """Create the first segment, in a directory without segments."""
        self.segments = [ActiveSegment.create(self.store, base_offset, self.now_ms)]
        self.log_end_offset = self.log_start_offset = base_offset
        # Epochs of lost records would make this replica promise followers offsets that it does not have.
        self.epochs.truncate_from_end(base_offset)

    def load_clean(self) -> bool:
        """Load without reading records. False if a clean shutdown would not leave the last segment so: scan it then."""
        last = self.bases[-1]

        # A missing or damaged index does not make the log wrong, but only the scan rebuilds those of the last segment.
        if not self._has_indexes(last):
            return False
        try:
            active = ActiveSegment.open(self.store, last, self.now_ms)
        except IndexCorrupt:
            return False

        # The log must end with a whole entry, and the .txnindex must not refer to offsets behind it.
        end_offset = find_log_end(active)
        if end_offset is None or not active.transactions.ends_before(end_offset):
            self.store.open_files.drop(active.path)  # the scan opens it again
            return False
        self.is_clean = True
        self._load_sealed(len(self.bases) - 1)  # before `active` is added: the list has to stay in offset order
        self.segments.append(active)
        self.log_end_offset = end_offset
        self.epochs.truncate_from_end(end_offset)
        self._load_producers(end_offset)
        return True

    def scan(self, first: int) -> None:
        """Check the segments from number `first` on, and rebuild epochs, producers, indexes and snapshots from them."""
        # First the state of the scanned part is dropped; the entries bring it back, up to the last good one.
        base = self.bases[first]
        self._load_sealed(first)
        # The file's epochs up to the recovery point are kept: if compaction has dropped the first
        # records of an epoch, only the file tells where it began.
        self.epochs.truncate_from_end(max(base, self.recovery_point))
        self._remove_snapshots_above(base)  # they may describe records that the scan will not find
        self._load_producers(base)
        for number in range(first, len(self.bases)):
            base = self.bases[number]
            if number > first:
                # A gap between two segments means what a bad byte means: the end of the earlier segment was lost
                # although the later one reached the disk. Appends never leave a gap.
                if not self._continues_at(base):
                    self._remove_segments_from(number)
                    break
                self._seal_last(base)
            if not self._scan_segment(number):
                break

        # A damaged entry may have ended the log below the recovery point, up to which epochs were kept above.
        self.epochs.truncate_from_end(self.log_end_offset)
        self._last_active().finish()

    def _scan_segment(self, number: int) -> bool:
        """Scan one segment; False if it was cut, which ends the log."""
        base = self.bases[number]
        size_bytes = self.sizes[self.bases[number]]
        # The producers are now as they were at `base`. Before the first segment there is nothing to replay.
        if number > 0:
            self._save_snapshot(base)
        # The index files may be newer or older than the log, so they are not read: `note` builds the
        # indexes from the entries.
        segment = ActiveSegment.unread(self.store, base, self.now_ms)
        self.segments.append(segment)
        self.log_end_offset, end_position = self._scan_entries(segment, size_bytes)
        if end_position == size_bytes:
            return True
        # The later segments go first, and their removal is synced. In the other order a crash in between would leave
        # them behind a shortened segment that looks intact, and the next start could trust the gap.
        self._remove_segments_from(number + 1)
        segment.file.truncate(end_position)
        segment.file.sync()
        return False

    def _scan_entries(self, segment: ActiveSegment, size_bytes: int) -> tuple[int, int]:
        """Check and take over entries; returns the offset and the file position behind the last good one."""
        end_offset = segment.base_offset
        end_position = 0
        for span, data in walk_file(segment.file, 0, size_bytes):
            # Offsets rise, with gaps only where compaction left them, and fit the 32-bit offsets of the indexes.
            if span.base_offset < end_offset or span.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                break

            # The entry is torn: its write reached the disk in part, or left zeros because only the file's size did.
            if not is_intact(data) or not has_sound_marker(span, data):
                break
            end_offset = span.last_offset + 1
            end_position = span.position + span.size_bytes
            timestamp = max_timestamp_of(span, data)
            segment.note(span.position, span.size_bytes, span.last_offset, timestamp, self.rules.index_interval_bytes)
            note_epoch(self.epochs, span, data)
            aborted = replay_producers(self.producers, span, data)
            if aborted is not None:
                segment.transactions.append(aborted)
            if segment.is_index_save_due:
                segment.save_indexes()

        return end_offset, end_position

    def start_over(self) -> None:
        """Replace everything by an empty log that begins at the log start offset."""
        # Snapshots go first: `remove_segment` removes the one at the segment's base offset, too,
        # and `remove_snapshots` would fail to find it.
        self._remove_snapshots_above(-1)
        for segment in reversed(self.segments):
            self.store.remove_segment(segment.base_offset)
        # The removal is synced before the new segment is made, so that no crash leaves old segments
        # beside it.
        self.store.disk.sync_directory(self.store.directory)
        self.producers.clear()
        self.epochs.clear()
        self.start_empty(self.log_start_offset)

    def finish(self, recovery_point: int) -> LoadedLog:
        """The result, after epochs and snapshots were adjusted to the segments."""
        # The checkpointed log start may lie inside the first segment (DeleteRecords, KIP-107).
        self.epochs.truncate_from_start(self.log_start_offset)
        self._remove_stray_snapshots()
        return LoadedLog(
            self.segments,
            self._last_active(),
            self.log_start_offset,
            self.log_end_offset,
            min(recovery_point, self.log_end_offset),  # the log may have been cut below the checkpoint
            self.epochs,
            self.epochs.entries != self._epochs_read,
            self.producers,
            self.is_clean,
        )

    # segments

    def _load_sealed(self, count: int) -> None:
        """Load the first `count` segments without reading them, except to rebuild a missing or damaged index."""
        for base, next_base in zip(self.bases[:count], self.bases[1 : count + 1], strict=True):
            # A .txnindex is read in any case: an aborted transaction missing from it would be shown to consumers.
            if self._has_indexes(base):
                transactions = sound_transactions(self.store, base, self.sizes[base], self.segments, next_base)
                self.segments.append(Segment(self.store, base, self.sizes[base], next_base, transactions))
            else:
                interval_bytes = self.rules.index_interval_bytes
                size_bytes = self.sizes[base]
                rebuilt = reindex(self.store, base, size_bytes, interval_bytes, self.now_ms, self.segments, next_base)
                rebuilt.finish()
                self.is_clean = False  # not synced yet
                self.segments.append(rebuilt.sealed(next_base))

    def _has_indexes(self, base: int) -> bool:
        # The list of names and the sizes are enough: a log may have thousands of segments, too many
        # to open their files.
        return all(
            f"{base:020d}{suffix}" in self.names
            and has_whole_entries(self.store.disk.size(self.store.path(base, suffix)), entry)
            for suffix, entry in ((INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY))
        )

    def _continues_at(self, base: int) -> bool:
        """Whether a segment with this base offset may follow what was scanned so far."""
        # A base below the scanned end means an overlap: the earlier segment holds records that are not its own.
        if base <= self.log_end_offset:
            return base == self.log_end_offset
        # Only compaction leaves gaps, and only below the recovery point that was on the disk before the pass.
        return base <= max(self.recovery_point, self.first_dirty_offset)

    def _remove_segments_from(self, number: int) -> None:
        # The last one goes first: after a crash in between, the remaining segments are still a
        # beginning of the log.
        for base in reversed(self.bases[number:]):
            self.store.remove_segment(base)
        self.store.disk.sync_directory(self.store.directory)

    def _last_active(self) -> ActiveSegment:
        segment = self.segments[-1]
        if not isinstance(segment, ActiveSegment):
            raise InvariantBroken(f"{segment} is the last segment, but not active")
        return segment

    def _seal_last(self, next_base: int) -> None:
        # Its indexes are complete: all of its entries were scanned.
        active = self._last_active()
        active.finish()
        self.segments[-1] = active.sealed(next_base)

    # producers

    def _load_producers(self, end_offset: int) -> None:
        """Load the producers as they were when the log ended at `end_offset`, from the segments loaded so far."""
        # Damaged snapshots are removed on the way, so the list may become shorter.
        self.snapshots = load_producers(
            self.store,
            self.producers,
            self.snapshots,
            self.segments,
            end_offset,
            self.now_ms,
            self.rules.producer_id_expiration_ms,
        )

    def _save_snapshot(self, offset: int) -> None:
        # A snapshot of this offset from before the crash is overwritten: the new one is made from verified entries.
        self.store.save(self.store.path(offset, SNAPSHOT), encode_snapshot(self.producers.entries()))
        self.snapshots = sorted({*self.snapshots, offset})

    def _remove_snapshots_above(self, offset: int) -> None:
        self.snapshots = remove_snapshots(self.store, self.snapshots, [s for s in self.snapshots if s > offset])

    def _remove_stray_snapshots(self) -> None:
        """Remove snapshots that belong neither to a segment's base offset nor to the log end."""
        # The newest one stays in any case: it may be that of a clean stop, at the log end.
        self._remove_snapshots_above(self.log_end_offset)
        kept = {*(segment.base_offset for segment in self.segments), *self.snapshots[-1:]}
        self.snapshots = remove_snapshots(self.store, self.snapshots, [s for s in self.snapshots if s not in kept])


def find_log_end(active: ActiveSegment) -> int | None:
    """The offset after the last entry, by the index and a short walk; None unless the file ends with a whole entry."""
    # The last index entry points to the begin of a batch near the end, so the walk is about index.interval.bytes long.
    entries = active.offsets.entries
    position = OFFSET_ENTRY.unpack_from(entries, len(entries) - 8)[1] if entries else 0
    end_offset = active.base_offset
    for span, _ in walk_file(active.file, position, active.size_bytes, LOOKUP_STEP_BYTES):
        end_offset = span.last_offset + 1
        position = span.position + span.size_bytes
    return end_offset if position == active.size_bytes else None
