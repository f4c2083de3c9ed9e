"""The log of one partition: append, read, roll, flush, delete, truncate (reference C.3, C.7, D.4-D.7).

A log is a row of segments (`segments.py`); only the last one is written. Its offsets keep this order:

    log start offset <= recovery point <= acknowledgeable offset <= log end offset

Everything below the *recovery point* is synced; recovery after a crash checks only what follows it. Below the
*acknowledgeable offset* the broker may answer Produce, advance the high watermark and report its log end offset to the
leader. The acknowledgeable offset equals the log end offset, except while a flush that `flush.messages` demands is
outstanding.

A flush has three steps, and only the second one needs a thread: `flush_plan` runs on the event loop and lists what has
to be synced; `FlushPlan.sync` runs in a worker thread; `flushed` runs on the event loop and moves the offsets. Appends,
rolls and deletions may happen between the steps. A plan changes no state of the log before `flushed`; whatever a
dropped plan should have synced is part of the next plan.

Threads: every method belongs to the event loop, except those marked "Blocking: long", which run in a worker thread.
`offset_for_timestamp` and `offset_of_largest_timestamp` may run while the event loop uses the log ("beside the loop");
during the other ones no other code may use the log. This file has no locks, no clock (callers pass `now_ms`) and no
trio.
"""

from dataclasses import dataclass
from itertools import islice

from barnabas.storage.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    format_leader_epochs,
    write_partition_metadata,
)
from barnabas.storage.entries import EntrySpan, divide, max_timestamp_of, walk_buffer
from barnabas.storage.files import SNAPSHOT, SegmentStore
from barnabas.storage.flush_plan import FlushPlan, UnsavedSnapshot, save_snapshots
from barnabas.storage.index import MAX_RELATIVE_OFFSET
from barnabas.storage.packed_table import PackedRows
from barnabas.storage.producers import CompletedTransaction, Duplicate, Origin, encode_snapshot, producers_below
from barnabas.storage.recovery import LoadedLog
from barnabas.storage.replay import (
    check_marker,
    load_producers,
    note_epoch,
    remove_snapshots,
    replay_producers,
)
from barnabas.storage.retention import DELETIONS_AT_A_TIME, Limits, decide_retention
from barnabas.storage.segment import ActiveSegment, RecordTime, Segment
from barnabas.storage.segments import LogSegments, Read
from barnabas.storage.settings import LogConfig
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.storage.verification import Guard
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.record_batch import LENGTH_OVERHEAD_BYTES, BatchHeader, ordinary_batches
from barnabas.wire.records import LOG_APPEND_TIME, Batch, CorruptRecords, Steps, control_of, is_intact, stamp
from barnabas.wire.sentinels import NO_TIMESTAMP
from barnabas.wire.topics import TopicPartition


@dataclass(slots=True)
class Appended:
    """The offsets of an appended batch; for a duplicate, the offsets of the original batch."""

    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless message.timestamp.type is LogAppendTime
    log_start_offset: int
    duplicate: bool


class PartitionLog:
    """One replica of one partition on disk."""

    __slots__ = (
        "_epochs_saved",
        "_epochs_version",
        "_loaded_clean_to",
        "_names_saved",
        "_names_version",
        "_now_ms",
        "_unsaved_snapshots",
        "acknowledgeable_offset",
        "config",
        "copied_from",
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
        "synced_stable_offset",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, store: SegmentStore, topic_partition: TopicPartition, config: LogConfig, loaded: LoadedLog, now_ms: int
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.topic_id: bytes | None = None
        self.copied_from: PartitionLog | None = None  # the current log, if this is the future log of a move
        self.segments = LogSegments(store, loaded.segments)
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.acknowledgeable_offset = loaded.log_end_offset
        self._unsaved_snapshots: list[UnsavedSnapshot] = []  # of the rolls since the last flush; ascending offsets
        self.flush_demanded = False  # a flush is due now: flush.messages was reached, or a segment was sealed
        self.epochs = loaded.epochs
        self.producers = loaded.producers

        # Below this offset each transaction stays decided, even if a crash loses everything above the recovery point.
        self.synced_stable_offset = min(self.recovery_point, self.decided_offset)
        self.first_dirty_offset: int | None = None  # the cleaner's checkpoint; None if the log was never compacted

        # The next three are set by the callers of long operations; the methods below refuse what would conflict.
        self.is_being_cleaned = False  # the cleaner reads segments in a thread: no segment may be removed
        self.is_being_cut = False  # a truncation runs in a thread: no read, flush or deletion
        self.is_being_renamed = False  # the directory gets another name: no flush begins, no segment is deleted
        self._now_ms = now_ms  # time of the opening or of the last roll, for truncations, which get no `now_ms`

        # A flush compares versions instead of clearing a flag: a change that comes while a sync is under way has a
        # version above the plan's, so it stays due after `flushed`.
        self._names_version = 1  # rises with each new segment: its file names need a directory sync
        self._names_saved = 0  # the version that the last directory sync covered
        self._loaded_clean_to = loaded.log_end_offset if loaded.is_clean else None
        self._epochs_version = 1 if loaded.epochs_changed else 0
        self._epochs_saved = 0

    @property
    def directory(self) -> str:
        return self.segments.store.directory

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write the topic id to `partition.metadata` (KIP-516), durably. Blocking: long."""
        write_partition_metadata(self.segments.store.disk, f"{self.directory}/{PARTITION_METADATA}", topic_id)
        self.topic_id = topic_id

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # -- append

    def append_as_leader(
        self,
        batch: Batch,
        *,
        leader_epoch: int,
        origin: Origin,
        now_ms: int,
        guard: Guard | None = None,
        is_verifying: bool = False,
    ) -> Appended | ErrorCode:
        """Append one validated batch at the log end. Blocking: short.

        `guard` and `is_verifying` are for `ProducerStates.check`, which has the errors. A StorageError leaves the log,
        in memory and on disk, as it was. The caller looks at `flush_demanded` afterwards.
        """
        header = batch.header
        control = None

        # Everything that may refuse the batch, or fail, comes before the write.
        if header.producer_id >= 0:
            control = control_of(batch.data) if header.is_control else None
            refused = self.producers.check(header, origin, control=control, guard=guard, is_verifying=is_verifying)
            if refused:
                return self._answer_of(refused)

        config = self.config
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        size_bytes = LENGTH_OVERHEAD_BYTES + header.batch_length
        timestamp = header.max_timestamp
        active = self._segment_for(size_bytes, base_offset, last_offset, timestamp, now_ms)

        # `_is_new_epoch` raises for a past epoch, so it has to run before the write.
        is_new_epoch = leader_epoch != self.epochs.latest_epoch and self._is_new_epoch(leader_epoch)

        # Base offset and leader epoch lie outside the batch's checksum, so the checksum stays valid.
        stamp(batch, base_offset, leader_epoch)
        position = active.size_bytes
        active.file.write(position, batch.data)

        # The batch is in the log now. Nothing below can fail, or memory and file would contradict each other.
        active.note(position, size_bytes, last_offset, timestamp, config.index_interval_bytes)

        # The epoch changes only in memory. A flush writes the epoch file before the recovery point passes this batch,
        # so after a crash each epoch is either in the file or in a batch that recovery reads.
        if is_new_epoch and self.epochs.assign(leader_epoch, base_offset):
            self._epochs_version += 1

        # `batch.header` has the stamped base offset; the older `header` has not.
        if header.producer_id >= 0 and (completed := self.producers.update(batch.header, control=control)):
            self._note_transaction(completed)
        self._advance_log_end(last_offset + 1)
        append_time_ms = timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(base_offset, last_offset, append_time_ms, self.log_start_offset, False)

    def append_as_follower(self, records: memoryview, now_ms: int) -> Appended | ErrorCode:
        """Append the batches of a leader's fetch response unchanged; a partial batch at the end is left out.

        Errors, returned before anything is written: CORRUPT_MESSAGE (checksum, malformed batch or control record),
        OFFSET_OUT_OF_RANGE (the offsets do not rise from this log's end offset on). A StorageError leaves the log
        as it was, or with some of the pieces (one per segment) appended. Blocking: short, in proportion to the records.
        """
        headers = ordinary_batches(records, self.log_end_offset)
        if headers is not None and self._fit_into_segment(headers, len(records)):
            return self._append_ordinary(headers, records, now_ms)

        entries: list[tuple[EntrySpan, memoryview]] = []
        end_offset = first_offset = self.log_end_offset
        try:
            # Check everything before the first write: a bad batch must not leave half of a fetch response in the log.
            for span, data in walk_buffer(records):
                if not is_intact(data):
                    return ErrorCode.CORRUPT_MESSAGE

                # A gap is legal, for the leader's log may be compacted; an overlap is not.
                if span.base_offset < end_offset:
                    return ErrorCode.OFFSET_OUT_OF_RANGE
                check_marker(span, data)
                entries.append((span, data))
                end_offset = span.last_offset + 1
        except CorruptRecords:
            return ErrorCode.CORRUPT_MESSAGE

        if entries:
            first_offset = entries[0][0].base_offset

        # There is usually one piece, so that a fetch response costs one write.
        for piece in divide(entries, self.config.segment_bytes):
            self._append_piece(piece, records, now_ms)
        return Appended(first_offset, end_offset - 1, -1, self.log_start_offset, False)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Note that this replica becomes leader in `leader_epoch`, which starts at the log end offset (KIP-101).

        Blocking: never; the next flush writes the epoch file.
        """
        # An epoch without a record is noted, too: it tells followers where the previous one ended.
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self._epochs_version += 1

    def _answer_of(self, refused: Duplicate | ErrorCode) -> Appended | ErrorCode:
        if isinstance(refused, ErrorCode):
            return refused
        return Appended(refused.base_offset, refused.last_offset, refused.append_time_ms, self.log_start_offset, True)

    def _fit_into_segment(self, headers: list[BatchHeader], size_bytes: int) -> bool:
        """Whether `divide` would make one piece of these batches."""
        # A batch that is larger than a segment is a piece of its own.
        is_small = size_bytes <= self.config.segment_bytes or len(headers) == 1
        return is_small and headers[-1].last_offset - headers[0].base_offset <= MAX_RELATIVE_OFFSET

    def _append_ordinary(self, headers: list[BatchHeader], records: memoryview, now_ms: int) -> Appended:
        """`_append_piece` for batches without a marker, of which the headers say everything."""
        first_offset = headers[0].base_offset
        last_offset = headers[-1].last_offset
        # Compaction keeps the header of a batch that it emptied, with a timestamp that no record has.
        timestamps = [header.max_timestamp if header.record_count else NO_TIMESTAMP for header in headers]
        active = self._segment_for(len(records), first_offset, last_offset, max(timestamps), now_ms)
        position = active.size_bytes
        interval = self.config.index_interval_bytes
        active.file.write(position, records)

        # From here on nothing may fail.
        for header, timestamp in zip(headers, timestamps, strict=True):
            active.note(position, header.size_bytes, header.last_offset, timestamp, interval)
            position += header.size_bytes
            if self.epochs.note_batch(header.partition_leader_epoch, header.base_offset):
                self._epochs_version += 1
            if header.producer_id >= 0:
                self.producers.update(header)

        self._advance_log_end(last_offset + 1)
        return Appended(first_offset, last_offset, -1, self.log_start_offset, False)

    def _append_piece(self, piece: list[tuple[EntrySpan, memoryview]], records: memoryview, now_ms: int) -> None:
        """Append entries that fit into one segment, with one write."""
        first = piece[0][0]
        last = piece[-1][0]
        data = records[first.position : last.position + last.size_bytes]
        timestamps = [max_timestamp_of(span, entry) for span, entry in piece]
        active = self._segment_for(len(data), first.base_offset, last.last_offset, max(timestamps), now_ms)
        start = active.size_bytes
        interval = self.config.index_interval_bytes
        active.file.write(start, data)

        # From here on nothing may fail: `check_marker` has already raised for the markers that `replay_producers`
        # would refuse.
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
        """The segment to append these records to: a new one if a roll is due."""
        active = self.segments.active
        if active.roll_due(self.config, size_bytes, last_offset, max_timestamp, now_ms):
            # Kafka begins the segment at the batch's first offset. Here it begins at the log end, which leaves no gap
            # between segments: so recovery may take a gap for a lost tail (README.md, "Opening a log"). The exception
            # is a gap in the leader's offsets that is too large for a 32-bit relative offset.
            fits = last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET
            self._roll_at(self.log_end_offset if fits else first_offset, now_ms)
            return self.segments.active
        # Saving index entries in steps keeps the pause at the next roll short.
        if active.is_index_save_due:
            active.save_indexes()
        return active

    def _is_new_epoch(self, leader_epoch: int) -> bool:
        """Whether the next batch is the first of this leader epoch; a negative epoch means that none is known."""
        latest = self.epochs.latest_epoch
        if latest is not None and 0 <= leader_epoch < latest:
            raise InvariantBroken(f"{self} holds records of leader epoch {latest}; {leader_epoch} is over")
        return leader_epoch >= 0

    def _note_transaction(self, completed: CompletedTransaction) -> None:
        if completed.aborted:
            self.segments.active.transactions.append(
                AbortedTransaction(
                    completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
                )
            )

    def _advance_log_end(self, log_end_offset: int) -> None:
        """Move the log end. Once `flush.messages` records are unsynced, nothing more is acknowledged before a sync."""
        self.log_end_offset = log_end_offset
        if log_end_offset - self.recovery_point < self.config.flush_messages:
            self.acknowledgeable_offset = log_end_offset
        else:
            self.flush_demanded = True

    # -- roll

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active one is empty. Blocking: short (a few small files)."""
        self._roll_at(self.log_end_offset, now_ms)

    def _roll_at(self, base_offset: int, now_ms: int) -> None:
        # The active segment is empty: a new one would have the same name.
        if base_offset == self.segments.active.base_offset:
            return
        self.segments.roll(base_offset, now_ms)
        # The new segment's base offset gets a snapshot of the producers, as in Kafka: recovery that
        # begins to read at this segment needs it, and once retention has deleted the earlier
        # segments, only this snapshot has their producers. There may be 100,000 producers, so the
        # flush writes the snapshot.
        self._unsaved_snapshots.append(UnsavedSnapshot(base_offset, self.producers.entries()))
        self._now_ms = now_ms
        self._names_version += 1
        # Kafka, too, flushes a sealed segment soon: recovery then reads little, and the cleaner may take the segment.
        self.flush_demanded = True

    # -- read

    def read(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool = True) -> Read | ErrorCode:
        """The byte range to send: from the batch that holds `offset`, in one segment, below `end_offset`.

        At most `max_bytes`; with `at_least_one` the first batch is complete whatever its size (KIP-74). The last batch
        may be cut, as in Kafka. At the log end the range is empty. Errors: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE if the
        file is damaged; NOT_LEADER_OR_FOLLOWER during a truncation. Blocking: short.
        """
        # A truncation changes segments in a thread. This error makes the client refresh its metadata and retry.
        if self.is_being_cut:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The log end itself is in range: a consumer that has read everything fetches there, and waits.
        log_end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        # CorruptRecords means a damaged entry head on the way: only fetches from this part of the log fail.
        try:
            return self.segments.read(offset, max_bytes, end_offset, log_end_offset, at_least_one)
        except CorruptRecords:
            return ErrorCode.CORRUPT_MESSAGE

    # -- transactions

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset that may belong to an undecided transaction, None if all are decided (KIP-98)."""
        # The transaction may begin below the log start offset, when DeleteRecords or retention removed its first
        # records.
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        return None if first_unstable is None else max(first_unstable, self.log_start_offset)

    @property
    def decided_offset(self) -> int:
        """Below it no transaction is open in this log; a marker of it may not be committed yet."""
        oldest_open = self.producers.oldest_open
        return self.log_end_offset if oldest_open is None else min(oldest_open, self.log_end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The LSO: a read_committed consumer reads below it."""
        # During a truncation a thread loads `producers` again, so they cannot be asked; but then nothing is read.
        if self.is_being_cut or self.producers.are_decided:
            return high_watermark
        first_unstable = self.first_unstable_offset(high_watermark)
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    def aborted_in(self, read: Read, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a consumer needs to know to read the records of `read`. Blocking: short.

        `read` is the result of a read from `start_offset` up to `end_offset`. CorruptRecords if the transaction index
        is damaged.
        """
        return self.segments.aborted_in(read, start_offset, end_offset)

    # -- search by time: a worker thread runs it step by step; SearchDisturbed if segments change too often meanwhile

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> Steps[RecordTime | None]:
        """The first record at or after `timestamp_ms`, if below `end_offset`. Blocking: long; beside the loop."""
        found = yield from self.segments.find_time(timestamp_ms, self.log_start_offset)
        return found if found is not None and found.offset < end_offset else None

    def offset_for_timestamp_now(self, timestamp_ms: int, end_offset: int) -> RecordTime | None:
        """As `offset_for_timestamp`, on the event loop. Raises TakesLonger. Blocking: short."""
        found = self.segments.find_time_now(timestamp_ms, self.log_start_offset)
        return found if found is not None and found.offset < end_offset else None

    def offset_of_largest_timestamp(self) -> Steps[RecordTime | None]:
        """The first of the records with the largest timestamp (KIP-734). Blocking: long; beside the loop."""
        return self.segments.find_largest_time(self.log_start_offset)

    # -- flush

    def flush_plan(self) -> FlushPlan | None:
        """What has to be synced now: the segments from the recovery point on. None if nothing. Blocking: never.

        There may be one plan at a time. Until it is `flushed`, the directory must keep its name.
        """
        epochs_changed = self._epochs_version != self._epochs_saved

        # A plan opens files by path in its thread, and a truncation or a rename of the directory invalidates the paths.
        if self.is_being_cut or self.is_being_renamed:
            return None
        names_changed = self._names_version != self._names_saved
        if self.recovery_point >= self.log_end_offset and not (names_changed or epochs_changed):
            return None

        # The text is made here, on the loop: the epochs may change while the thread writes the file.
        epochs = format_leader_epochs(self.epochs) if epochs_changed else None
        names_version = self._names_version if names_changed else None
        return FlushPlan(
            self.segments,
            self.log_end_offset,
            self.decided_offset,
            self.unsynced_segments()[:-1],
            epochs,
            self._epochs_version,
            names_version,
            tuple(self._unsaved_snapshots),
        )

    def flushed(self, plan: FlushPlan) -> None:
        """Take over the result of a plan whose `sync` succeeded. Blocking: never."""
        plan.release()
        self._epochs_saved = plan.epochs_version
        if plan.names_version is not None:
            self._names_saved = plan.names_version
        # Snapshots of rolls during the sync are not in the plan: they stay unsaved.
        self._unsaved_snapshots = [each for each in self._unsaved_snapshots if each not in plan.snapshots]
        # If segments were truncated, deleted or replaced during the sync, `plan.offset` may lie in
        # other bytes than those that were synced: then the recovery point stays, and the next plan
        # syncs again.
        if plan.generation == self.segments.generation:
            self.recovery_point = max(self.recovery_point, plan.offset)
            self.synced_stable_offset = plan.synced_stable_offset
        self._settle()

    def _settle(self) -> None:
        """Compute `acknowledgeable_offset` and `flush_demanded` after the recovery point moved."""
        if self.log_end_offset - self.recovery_point < self.config.flush_messages:
            self.acknowledgeable_offset = self.log_end_offset
            # Below flush.messages only a sealed segment that is not synced yet demands a flush.
            self.flush_demanded = self.recovery_point < self.segments.active.base_offset
        else:
            self.acknowledgeable_offset = max(self.acknowledgeable_offset, self.recovery_point)
            self.flush_demanded = True

    def unsynced_segments(self) -> list[Segment]:
        """The segments that a flush has to sync, oldest first."""
        # The -1 includes the segment that ends exactly at the recovery point: its records are synced, but its indexes
        # were saved when it was sealed, which may have been after that sync.
        return self.segments.since(self.recovery_point - 1)

    def sync_everything(self) -> None:
        """All three steps of a flush, in a thread, while no other code uses the log."""
        self._save_snapshots(self.log_end_offset)
        for segment in self.unsynced_segments():
            segment.sync(self.log_end_offset)
        disk = self.segments.store.disk
        # The epoch file is written before the recovery point moves: recovery reads only the batches
        # behind that point, so it has earlier epochs only from the file.
        if self._epochs_version != self._epochs_saved:
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            disk.replace_file(path, format_leader_epochs(self.epochs).encode())
            self._epochs_saved = self._epochs_version
        disk.sync_directory(self.directory)
        self._names_saved = self._names_version
        self.recovery_point = self.log_end_offset
        self.synced_stable_offset = self.decided_offset
        self._settle()

    @property
    def has_unsaved_snapshots(self) -> bool:
        """Whether the next flush writes a snapshot of the producers, for which `delete_old_segments` may wait."""
        return bool(self._unsaved_snapshots)

    def _save_snapshots(self, offset: int) -> None:
        """Write the unsaved snapshots up to `offset`, and drop the others. Blocking: long."""
        save_snapshots(self.segments.store, (each for each in self._unsaved_snapshots if each.offset <= offset))
        self._unsaved_snapshots = []

    # -- the beginning of the log

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start offset (KIP-107); the next retention check deletes the segments below. Blocking: never.

        It is durable once the caller has written `log-start-offset-checkpoint`.
        """
        # Offsets from requests were checked before, so this is a bug.
        if offset > self.log_end_offset:
            raise InvariantBroken(f"{self} cannot start at {offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self._epochs_version += 1

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete old segments by time, size and log start offset; returns how many. Blocking: short (renames).

        It deletes a few segments per call, so call it until it returns 0. It returns 0 while the log is being cleaned,
        truncated or renamed, or if a flush has to come first. The files are renamed to .deleted; `remove_deleted`
        removes them later.
        """
        if self.is_being_cleaned or self.is_being_cut or self.is_being_renamed:
            return 0
        config = self.config

        # `islice` limits how many segments the rules look at: the time rule may read a file of each.
        count = decide_retention(
            islice(self.segments, DELETIONS_AT_A_TIME),
            Limits(config.deletes, config.retention_ms, config.retention_bytes),
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            log_size_bytes=self.size_bytes,
            now_ms=now_ms,
        )
        if count == 0:
            return 0

        # A log always has an active segment, so a new one must exist before the last one is deleted.
        if count == len(self.segments):
            self.roll(now_ms)
        # After the deletion only the snapshot at the new log start has the producers of the deleted
        # records. If it were not written yet, a crash would lose them, and a retry of their last
        # batch would be appended a second time.
        unsaved = {each.offset for each in self._unsaved_snapshots}
        while count and self.segments[count].base_offset in unsaved:
            count -= 1
        if count == 0:
            return 0
        self.segments.delete_first(count, now_ms, config.file_delete_delay_ms)
        # The recovery point stays, even if it is now below the first segment: until the directory
        # is synced, a power failure may bring the deleted segments back, and their records above
        # the recovery point were not synced.
        self.raise_log_start(self.segments[0].base_offset)
        return count

    # -- truncation, in a worker thread, while no other code uses the log

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from `offset` on, durably, with the whole batch that holds it. True if any record went.

        No other code may use the log meanwhile. Blocking: long; never if there is nothing to remove.

        The recovery point may fall. The caller must write its checkpoint before the next append: with the old
        checkpoint a start after a crash would skip the check of the records appended in place of the removed ones.
        """
        if offset >= self.log_end_offset:
            # A leader epoch without records goes in any case: the current leader may have no such epoch in its history.
            if self.epochs.truncate_from_end(self.log_end_offset):
                self._epochs_version += 1
            return False
        # No batch of this log lies below `offset`, so there is nothing to keep.
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        # The unsaved snapshots up to `offset` stay true after the cut, and may be the only ones
        # that are left. `_end_at` removes those between the new log end and `offset`.
        self._save_snapshots(offset)
        self._end_at(self.segments.cut(offset, self.config.index_interval_bytes, self._now_ms))
        return True

    def truncate_fully_and_start_at(self, offset: int, copied: PackedRows | None = None) -> None:
        """Delete all records and restart the log at `offset`. The rules of `truncate_to` apply. Blocking: long.

        The future log of a move gets the producers of the log that is `copied`, as far as the copy will have no record
        of them.
        """
        self.segments.start_over(offset, self._now_ms)
        self._unsaved_snapshots = []
        if copied is not None and (earlier := producers_below(copied, offset)):
            store = self.segments.store
            save_snapshots(store, [UnsavedSnapshot(offset, earlier)])
            # A flush syncs only the snapshots at the ends of segments, and no segment ends here.
            with store.private(store.path(offset, SNAPSHOT)) as file:
                file.sync()
        self.log_start_offset = offset
        self.epochs.clear()
        self.recovery_point = offset  # an empty log has nothing to check after a crash
        self._end_at(offset)

    def _end_at(self, log_end_offset: int) -> None:
        """After a truncation: lower everything else that refers to offsets at or above the new log end."""
        self.log_end_offset = log_end_offset
        self.log_start_offset = min(self.log_start_offset, log_end_offset)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.acknowledgeable_offset = min(self.acknowledgeable_offset, log_end_offset)
        if self.first_dirty_offset is not None:
            self.first_dirty_offset = min(self.first_dirty_offset, log_end_offset)

        # The version rises in any case: `truncate_fully_and_start_at` has cleared the epochs before.
        self.epochs.truncate_from_end(log_end_offset)
        self._epochs_version += 1

        # A snapshot above the log end describes producers whose records are gone. Its removal is synced before the next
        # append, or a crash could bring it back beside other records with the same offsets.
        snapshots = self.segments.list_snapshots()
        snapshots = remove_snapshots(self.segments.store, snapshots, [s for s in snapshots if s > log_end_offset])
        self.segments.store.disk.sync_directory(self.directory)

        # Producer state cannot be rolled back, so it is loaded again: newest snapshot left, then the records behind it.
        load_producers(
            self.segments.store,
            self.producers,
            snapshots,
            list(self.segments),
            log_end_offset,
            self._now_ms,
            self.config.producer_id_expiration_ms,
        )
        self.synced_stable_offset = min(self.synced_stable_offset, self.decided_offset)
        self._settle()

    # -- a move to another log directory (KIP-113)

    def succeed(self, log: "PartitionLog") -> None:
        """Take over the state beside the records from `log`, of which this is a copy that ends at the same offset.

        Blocking: never.
        """
        # The copy has the state of the records that are left; `log` also has producers and epochs of deleted records.
        self.producers = log.producers
        self.epochs = log.epochs
        self.first_dirty_offset = log.first_dirty_offset
        self._epochs_version += 1
        self.copied_from = None
        self.raise_log_start(log.log_start_offset)

    # -- the end

    def close(self, now_ms: int) -> None:
        """Save and sync everything for a clean start, which does not read the records. Blocking: long."""
        # An unchanged log needs no sync. With 10,000 partitions most are unchanged or blank, and a sync takes 1 ms.
        if self._is_as_loaded:
            self.abandon()
            return
        self._now_ms = now_ms
        store = self.segments.store
        self.segments.active.finish()
        if self.is_blank:
            self.abandon()
            return
        # A clean start that finds a snapshot at the log end replays no records.
        store.save(store.path(self.log_end_offset, SNAPSHOT), encode_snapshot(self.producers.entries()))
        self.sync_everything()
        self.abandon()

    @property
    def is_blank(self) -> bool:
        """Whether a power failure could take all files of the log: without them it is created as it is now."""
        # A log without records is not blank if the checkpoint still has epochs of truncated records.
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        return self.log_end_offset == 0 and not self.segments.store.disk.exists(path)

    @property
    def _is_as_loaded(self) -> bool:
        """Whether the files are still those that a clean stop has left."""
        is_changed = self.segments.generation or self._epochs_version or self._names_version > 1
        return self._loaded_clean_to == self.log_end_offset and not is_changed

    def abandon(self) -> None:
        """Close all files without saving: the log directory failed, or the log is deleted. Blocking: never."""
        self.segments.store.open_files.drop_directory(self.directory)
