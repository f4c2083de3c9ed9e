"""The log of one partition: append, read, roll, flush, truncate, forget (reference C.3, C.7, D.4-D.7).

Theory of operation. A log is a row of segments, of which only the last is written. Offsets in rising order:

    log start offset <= recovery point <= acknowledgeable offset <= log end offset

Below the *recovery point* everything was synced; after a crash only what follows is checked. Below the *acknowledgeable
offset* the broker may answer, advance the high watermark and report to a leader; it equals the log end offset except
while a flush that `flush.messages` demands is outstanding.

An append is one write of one batch, all checks before it and nothing that can fail behind it: if it raises, memory and
file are as they were. Indexes and leader epochs change in memory; they reach the disk when a segment is sealed, with a
flush, and at close. Leader epochs are written before the recovery point passes the batches that carry them, so a crash
finds each epoch in the file or in a batch that recovery reads.

A *flush* has three steps, so that only the middle one needs a thread: `flush_plan` notes on the loop what has to be
synced and retains the files; `FlushPlan.sync` touches nothing else; `flushed` moves the offsets. Appends, rolls and
deletions may happen in between; a truncation makes a plan that is under way worthless. A plan changes nothing until it
is `flushed`: bytes, leader epochs and names of a plan that was dropped are in the next one.

Who may call what. Everything is for the event loop, one step at a time, except the methods marked "Blocking: long",
which run in a worker thread. Of these `offset_for_timestamp`, `offset_of_largest_timestamp` and `remove_deleted` may
run beside the loop; during the others no other code may use the log.

There are no locks here, no clock (`now_ms` comes with the call), and no trio.
"""

from dataclasses import dataclass

from barnabas.storage.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    format_leader_epochs,
    read_partition_metadata,
    write_partition_metadata,
)
from barnabas.storage.disk import Disk, make_durable_directory
from barnabas.storage.entries import ENTRY_PREFIX_BYTES, EntrySpan, divide, max_timestamp_of, walk_buffer
from barnabas.storage.files import SNAPSHOT, OpenFiles, SegmentStore
from barnabas.storage.flush_plan import FlushPlan
from barnabas.storage.index import MAX_RELATIVE_OFFSET, AbortedTransaction
from barnabas.storage.producers import CompletedTransaction, Duplicate, Origin
from barnabas.storage.recovery import LoadedLog, load_log
from barnabas.storage.replay import (
    check_marker,
    control_of,
    load_producers,
    note_epoch,
    remove_snapshots,
    replay_producers,
)
from barnabas.storage.retention import Limits, decide_retention
from barnabas.storage.segment import ActiveSegment, RecordTime, Segment
from barnabas.storage.segments import LogSegments, Read
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.records import LOG_APPEND_TIME, Batch, CorruptRecords, Steps, is_intact, stamp
from barnabas.wire.topics import TopicPartition

__all__ = ["Appended", "LogConfig", "PartitionLog", "Read", "open_log"]

DELETIONS_AT_A_TIME = 8  # segments, each with its renames


@dataclass(slots=True)
class Appended:
    """Where a batch went; of a duplicate, where its original lies."""

    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless the topic has LogAppendTime
    log_start_offset: int
    duplicate: bool


class PartitionLog:
    """One replica of one partition on disk."""

    __slots__ = (
        "_epochs_saved",
        "_epochs_version",
        "_names_saved",
        "_names_version",
        "_now_ms",
        "acknowledgeable_offset",
        "config",
        "epochs",
        "first_dirty_offset",
        "flush_demanded",
        "is_being_cleaned",
        "is_being_cut",
        "is_being_renamed",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, store: SegmentStore, topic_partition: TopicPartition, config: LogConfig, loaded: LoadedLog, now_ms: int
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.topic_id: bytes | None = None
        self.segments = LogSegments(store, loaded.segments)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.acknowledgeable_offset = loaded.log_end_offset
        self.flush_demanded = False  # a flush should follow soon: flush.messages asks for it, or a segment was sealed
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.first_dirty_offset: int | None = None  # up to where compaction has come; None if it never did
        self.is_being_cleaned = False  # segments are being read in a thread: none may be removed
        self.is_being_cut = False  # a truncation has the log for itself: nothing is read, flushed or deleted meanwhile
        self.is_being_renamed = False  # its directory gets another name: no flush begins, and no segment goes
        self._now_ms = now_ms  # the time last heard of
        self._names_version = 1  # rises when a file is made that a flush must find again
        self._names_saved = 0  # the version of the last directory sync
        self._epochs_version = 1 if loaded.epochs_changed else 0
        self._epochs_saved = 0

    @property
    def directory(self) -> str:
        return self.segments.store.directory

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Note which topic this is a partition of, durably. Blocking: long."""
        write_partition_metadata(self.segments.store.disk, f"{self.directory}/{PARTITION_METADATA}", topic_id)
        self.topic_id = topic_id

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # -- append

    def append_as_leader(self, batch: Batch, *, leader_epoch: int, origin: Origin, now_ms: int) -> Appended | ErrorCode:
        """Append one checked batch at the log end; StorageError leaves the log as it was. Blocking: short.

        Errors: those of `ProducerStates.check`. Afterwards look at `flush_demanded`.
        """
        header = batch.header
        control = None
        if header.producer_id >= 0:
            control = control_of(batch.data) if header.is_control else None
            refused = self.producers.check(header, origin, control=control)
            if refused is not None:
                return self._answer_of(refused)
        config = self.config
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size_bytes = ENTRY_PREFIX_BYTES + header.batch_length
        timestamp = header.max_timestamp
        active = self._segment_for(size_bytes, base_offset, last_offset, timestamp, now_ms)
        is_new_epoch = leader_epoch != self.epochs.latest_epoch and self._is_new_epoch(leader_epoch)
        stamp(batch, base_offset, leader_epoch)
        position = active.size_bytes
        active.file.write(position, batch.data)
        # It is in the log. Nothing below can fail.
        active.note(position, size_bytes, last_offset, timestamp, config.index_interval_bytes)
        if is_new_epoch and self.epochs.assign(leader_epoch, base_offset):
            self._epochs_version += 1
        if header.producer_id >= 0:
            self._note_transaction(self.producers.update(batch.header, control=control))
        self._advance_log_end(last_offset + 1)
        append_time_ms = timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(base_offset, last_offset, append_time_ms, self.log_start_offset, False)

    def append_as_follower(self, records: memoryview, now_ms: int) -> Appended | ErrorCode:
        """Append what a leader sent: any number of batches, as they are; a partial one at the end is left out.

        Errors, before anything was written: CORRUPT_MESSAGE (checksum, nonsense, also in a marker),
        OFFSET_OUT_OF_RANGE (the offsets do not rise from our log end offset on). A StorageError leaves
        the log as it was, or with whole pieces of a segment's size appended. Blocking: short, in proportion to the
        records.
        """
        entries: list[tuple[EntrySpan, memoryview]] = []
        end_offset = first_offset = self.log_end_offset
        try:
            for span, data in walk_buffer(records):
                if not is_intact(data):
                    return ErrorCode.CORRUPT_MESSAGE
                if span.base_offset < end_offset:
                    return ErrorCode.OFFSET_OUT_OF_RANGE
                check_marker(span, data)
                entries.append((span, data))
                end_offset = span.last_offset + 1
        except CorruptRecords:
            return ErrorCode.CORRUPT_MESSAGE
        if entries:
            first_offset = entries[0][0].base_offset
        for piece in divide(entries, self.config.segment_bytes):
            self._append_piece(piece, records, now_ms)
        return Appended(first_offset, end_offset - 1, -1, self.log_start_offset, False)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """This replica leads from here on, in this epoch. Blocking: never; the next flush writes the file."""
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self._epochs_version += 1

    def _answer_of(self, refused: Duplicate | ErrorCode) -> Appended | ErrorCode:
        if isinstance(refused, ErrorCode):
            return refused
        return Appended(refused.base_offset, refused.last_offset, refused.append_time_ms, self.log_start_offset, True)

    def _append_piece(self, piece: list[tuple[EntrySpan, memoryview]], records: memoryview, now_ms: int) -> None:
        """Entries that go into one segment with one write."""
        first, last = piece[0][0], piece[-1][0]
        data = records[first.position : last.position + last.size_bytes]
        timestamps = [max_timestamp_of(span, entry) for span, entry in piece]
        active = self._segment_for(len(data), first.base_offset, last.last_offset, max(timestamps), now_ms)
        start, interval = active.size_bytes, self.config.index_interval_bytes
        active.file.write(start, data)
        for (span, entry), timestamp in zip(piece, timestamps, strict=True):
            position = start + span.position - first.position
            active.note(position, span.size_bytes, span.last_offset, timestamp, interval)
            if note_epoch(self.epochs, span, entry):
                self._epochs_version += 1
            aborted = replay_producers(self.producers, span, entry)
            if aborted is not None:
                active.transactions.append(aborted)
        self._advance_log_end(last.last_offset + 1)

    def _segment_for(
        self, size_bytes: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> ActiveSegment:
        """The segment that records of this size, offsets and time go into: a new one if it is time to roll."""
        active = self.segments.active
        if active.roll_due(self.config, size_bytes, last_offset, max_timestamp, now_ms):
            fits = last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET
            self._roll_at(self.log_end_offset if fits else first_offset, now_ms)
            return self.segments.active
        if active.is_index_save_due:
            active.save_indexes()
        return active

    def _is_new_epoch(self, leader_epoch: int) -> bool:
        """Whether this epoch begins with the next batch; a negative one says nothing."""
        latest = self.epochs.latest_epoch
        if latest is not None and 0 <= leader_epoch < latest:
            raise InvariantBroken(f"{self} holds records of leader epoch {latest}; {leader_epoch} is over")
        return leader_epoch >= 0

    def _note_transaction(self, completed: CompletedTransaction | None) -> None:
        if completed is not None and completed.aborted:
            self.segments.active.transactions.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )

    def _advance_log_end(self, log_end_offset: int) -> None:
        """The log grew. With `flush.messages` records unsynced, none of them is acknowledged before the next sync."""
        self.log_end_offset = log_end_offset
        if log_end_offset - self.recovery_point < self.config.flush_messages:
            self.acknowledgeable_offset = log_end_offset
        else:
            self.flush_demanded = True

    # -- roll

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active one is empty. Blocking: short (a few small files).

        Kafka would begin it at the first offset of the batch to come; beginning it where the old one ends leaves no
        hole between them, which is what tells recovery that nothing was lost.
        """
        self._roll_at(self.log_end_offset, now_ms)

    def _roll_at(self, base_offset: int, now_ms: int) -> None:
        if base_offset == self.segments.active.base_offset:
            return
        self.segments.roll(base_offset, self.producers.encode_snapshot(), now_ms)
        self._now_ms = now_ms
        self._names_version += 1
        self.flush_demanded = True

    # -- read

    def read(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool = True) -> Read | ErrorCode:
        """What to send from the batch that holds `offset` on: of one segment, below `end_offset`, up to `max_bytes`.

        The first batch comes whole if `at_least_one`, whatever its size; the last one may be cut, as in Kafka. Nothing
        at the log end. Errors: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE if the file is damaged; NOT_LEADER_OR_FOLLOWER
        while the log is being cut. Blocking: short.
        """
        if self.is_being_cut:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log_end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        try:
            return self.segments.read(offset, max_bytes, end_offset, log_end_offset, at_least_one)
        except CorruptRecords:
            return ErrorCode.CORRUPT_MESSAGE

    # -- transactions

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset that may belong to an undecided transaction; of one that is partly deleted, our first."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        return None if first_unstable is None else max(first_unstable, self.log_start_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where a read_committed consumer stops."""
        first_unstable = self.first_unstable_offset(high_watermark)
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in [start, end). Blocking: short."""
        return self.segments.aborted_transactions(start_offset, end_offset)

    # -- search by time, in a thread beside the loop, step by step; SearchDisturbed where the log does not keep still

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> Steps[RecordTime | None]:
        """The first record as new as this, if it lies below `end_offset`. Blocking: long; beside the loop."""
        found = yield from self.segments.find_time(timestamp_ms, self.log_start_offset)
        return found if found is not None and found.offset < end_offset else None

    def offset_of_largest_timestamp(self) -> Steps[RecordTime | None]:
        """The first of the records with the largest timestamp (KIP-734). Blocking: long; beside the loop."""
        return self.segments.find_largest_time(self.log_start_offset)

    # -- flush

    def flush_plan(self) -> FlushPlan | None:
        """What to sync now, None if nothing: the segments from the recovery point on. Blocking: never.

        One plan at a time: until it is `flushed`, the directory must keep its name.
        """
        epochs_changed = self._epochs_version != self._epochs_saved
        if self.is_being_cut or self.is_being_renamed:
            return None
        names_changed = self._names_version != self._names_saved
        if self.recovery_point >= self.log_end_offset and not (names_changed or epochs_changed):
            return None
        epochs = format_leader_epochs(self.epochs) if epochs_changed else None
        return FlushPlan(self, epochs, self._epochs_version, self._names_version if names_changed else None)

    def flushed(self, plan: FlushPlan) -> None:
        """The plan's sync succeeded. Blocking: never."""
        plan.release()
        self._epochs_saved = plan.epochs_version
        if plan.names_version is not None:
            self._names_saved = plan.names_version
        if plan.generation == self.segments.generation:
            self.recovery_point = max(self.recovery_point, plan.offset)
        self._settle()

    def _settle(self) -> None:
        """What may be acknowledged, and whether more is to be flushed, after the recovery point moved."""
        if self.log_end_offset - self.recovery_point < self.config.flush_messages:
            self.acknowledgeable_offset = self.log_end_offset
            self.flush_demanded = self.recovery_point < self.segments.active.base_offset
        else:
            self.acknowledgeable_offset = max(self.acknowledgeable_offset, self.recovery_point)
            self.flush_demanded = True

    def unsynced_segments(self) -> list[Segment]:
        """The segments that a flush has to sync; the first one also if the recovery point is just at its end, for its
        indexes were saved when it was sealed, which may have been since."""
        return self.segments.since(self.recovery_point - 1)

    def _sync_everything(self) -> None:
        """The whole of a flush, in a thread, while no other code uses the log."""
        for segment in self.unsynced_segments():
            segment.sync(self.log_end_offset)
        disk = self.segments.store.disk
        if self._epochs_version != self._epochs_saved:
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            disk.replace_file(path, format_leader_epochs(self.epochs).encode())
            self._epochs_saved = self._epochs_version
        disk.sync_directory(self.directory)
        self._names_saved = self._names_version
        self.recovery_point = self.log_end_offset
        self._settle()

    # -- the beginning of the log

    def raise_log_start(self, offset: int) -> None:
        """Forget what lies before `offset`; whole segments go with the next retention check. Blocking: never.

        It lasts when the caller has written the log start checkpoint.
        """
        if offset > self.log_end_offset:
            raise InvariantBroken(f"{self} cannot start at {offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self._epochs_version += 1

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Let go of segments by time, size and log start offset; returns how many. Blocking: short (renames).

        A few at a time: call it again until it returns 0. None while the log is being cleaned, cut or renamed.

        Their files are called .deleted from now on; `remove_deleted` removes them.
        """
        if self.is_being_cleaned or self.is_being_cut or self.is_being_renamed:
            return 0
        config = self.config
        count = decide_retention(
            self.segments,
            Limits(config.deletes, config.retention_ms, config.retention_bytes),
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            log_size_bytes=self.size_bytes,
            now_ms=now_ms,
        )
        if count == 0:
            return 0
        count = min(count, DELETIONS_AT_A_TIME)
        if count == len(self.segments):
            self.roll(now_ms)
        self.segments.delete_first(count, now_ms, config.file_delete_delay_ms)
        first_offset = self.segments[0].base_offset
        self.raise_log_start(first_offset)
        self.recovery_point = max(self.recovery_point, first_offset)
        return count

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files that were deleted `file.delete.delay.ms` ago. Blocking: long; beside the loop."""
        return self.segments.remove_deleted(now_ms)

    @property
    def has_deleted_files(self) -> bool:
        """Whether files of deleted segments still wait for their removal."""
        return self.segments.has_deleted_files

    # -- truncation, in a thread that has the log for itself

    def truncate_to(self, offset: int) -> bool:
        """Cut off everything from `offset` on, durably; a batch that holds it goes as a whole. True if anything went.

        No other code may use the log meanwhile. The recovery point may have fallen: it must be checkpointed before the
        next append, or a crash would believe what was written in its place. Blocking: long; never if nothing is to go.

        A leader epoch in which nothing was written goes in any case: the leader may never have known of it.
        """
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._epochs_version += 1
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._end_at(self.segments.cut(offset, self.config.index_interval_bytes, self._now_ms))
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all records and begin again at `offset`. As `truncate_to` otherwise. Blocking: long."""
        self.segments.start_over(offset, self._now_ms)
        self.log_start_offset = offset
        self.epochs.clear()
        self.recovery_point = offset  # there is nothing that could be lost
        self._end_at(offset)

    def _end_at(self, log_end_offset: int) -> None:
        """After a cut: everything else that speaks of later offsets."""
        self.log_end_offset = log_end_offset
        self.log_start_offset = min(self.log_start_offset, log_end_offset)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.acknowledgeable_offset = min(self.acknowledgeable_offset, log_end_offset)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, log_end_offset)
        self.epochs.truncate_from_end(log_end_offset)
        self._epochs_version += 1
        snapshots = self.segments.list_snapshots()
        snapshots = remove_snapshots(self.segments.store, snapshots, [s for s in snapshots if s > log_end_offset])
        self.segments.store.disk.sync_directory(self.directory)
        load_producers(
            self.segments.store,
            self.producers,
            snapshots,
            self.segments,
            self.log_start_offset,
            log_end_offset,
            self._now_ms,
            self.config.producer_id_expiration_ms,
        )
        self._settle()

    # -- a move to another log directory

    def succeed(self, log: "PartitionLog") -> None:
        """Take the place of a log that has the same end: what it knows beyond its records. Blocking: never."""
        self.producers, self.epochs, self.first_dirty_offset = log.producers, log.epochs, log.first_dirty_offset
        self._epochs_version += 1
        self.raise_log_start(log.log_start_offset)

    def rename_directory(self, directory: str) -> None:
        """Give the directory another name beside its old one. Blocking: short. Durable: no.

        Nothing may be working on the files by their names meanwhile.
        """
        store = self.segments.store
        store.disk.rename(store.directory, directory)
        store.open_files.rename_directory(store.directory, directory)
        store.directory = directory

    # -- the end

    def close(self, now_ms: int) -> None:
        """Write down and sync everything, so that the next start need not look at the records. Blocking: long."""
        self._now_ms = now_ms
        store = self.segments.store
        self.segments.active.finish()
        store.save(store.path(self.log_end_offset, SNAPSHOT), self.producers.encode_snapshot())
        self._sync_everything()
        self.abandon()

    def abandon(self) -> None:
        """Give up all files as they are: the directory failed, or the log is deleted. Blocking: never."""
        self.segments.store.open_files.drop_directory(self.directory)


def open_log(  # noqa: PLR0913  # what the checkpoints say, by keyword
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int | None,
    first_dirty_offset: int | None = None,
    clean: bool,
    now_ms: int,
    open_files: OpenFiles | None = None,
) -> PartitionLog:
    """Open a log, made if it does not exist; after an unclean shutdown check, repair and sync it. Blocking: long.

    The three offsets are those of the checkpoints (0 or None if they know nothing).
    """
    make_durable_directory(disk, directory)
    store = SegmentStore(disk, directory, OpenFiles(disk) if open_files is None else open_files)
    try:
        loaded = load_log(
            store,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            first_dirty_offset=first_dirty_offset,
            clean=clean,
            now_ms=now_ms,
        )
        log = PartitionLog(store, topic_partition, config, loaded, now_ms)
        log.first_dirty_offset = first_dirty_offset
        log.topic_id = read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
        if not clean:
            log._sync_everything()
        return log
    except BaseException:
        store.open_files.drop_directory(directory)  # the disk failed after the active segment was opened
        raise
