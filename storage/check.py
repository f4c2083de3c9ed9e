"""Check of a log directory: `barnabas log check`. Reads all of it and changes nothing.

Each log is walked once; its indexes are read beside it, in the same order, and must agree with the log:

    .log        lengths, checksums, rising offsets, no entry that reaches into the next segment
    .index      an entry's position is where a batch begins, and that batch ends at or before the entry's offset
    .timeindex  a batch ends at the entry's offset and has its timestamp; no earlier batch has a later one
    .txnindex   the transactions that the log aborts have an entry, and each entry has its marker in the log
    .snapshot   has the transactions that are open in the log at its offset
    records     of internal topics can be read by a coordinator
    leader-epoch-checkpoint, partition.metadata, checkpoints
                are readable, and do not contradict the log

A broker may be running meanwhile.
"""

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.storage.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    read_checkpoint,
    read_leader_epochs,
    read_meta_properties,
    read_partition_metadata,
)
from barnabas.storage.disk import Disk, StorageError
from barnabas.storage.dump import topic_of
from barnabas.storage.entries import FLAGS_AT, EntrySpan, leader_epoch_of, max_timestamp_of, walk_file
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.files import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_of_name,
)
from barnabas.storage.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    IndexCorrupt,
    count_entries,
)
from barnabas.storage.internal_records import internal_record
from barnabas.storage.producers import ProducerStates, SnapshotCorrupt, decode_snapshot
from barnabas.storage.replay import replay_producers
from barnabas.storage.transaction_index import AbortedTransaction, parse_transactions
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.records import (
    ABORT,
    CONTROL,
    CorruptRecords,
    control_of,
    is_intact,
    read_batch_header,
    read_records,
)
from barnabas.wire.sentinels import NEVER_MS, NO_OFFSET
from barnabas.wire.topics import INTERNAL_TOPICS, TopicPartition
from barnabas.wire.versioned_records import MalformedRecord

__all__ = ["Ends", "Finding", "check_directory", "check_partition"]


class Finding(NamedTuple):
    """A defect: its file, its byte position (0 where a position has no meaning), and a description."""

    file: str
    position: int
    what: str

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.what}"


class Ends(NamedTuple):
    """The first offset of a log and the offset after its last record."""

    base_offset: int
    log_end_offset: int


def check_directory(disk: Disk, data_dir: str, advance: Callable[[int], object] = int) -> Iterator[Finding]:
    """Check a log directory with all of its partitions. Blocking: long, in proportion to the data.

    `advance(1)` is called for each name in the directory, before it is looked at.
    """
    found: dict[TopicPartition, Ends] = {}
    for name in disk.list(data_dir):
        advance(1)
        path = f"{data_dir}/{name}"

        # A broker ignores files with unknown names; the known ones are read below.
        if not disk.is_directory(path):
            continue
        topic, dash, number = name.rpartition("-")

        # A topic name may contain dashes, so the last one separates the partition.
        if dash and number.isascii() and number.isdigit():
            found[TopicPartition(topic, int(number))] = yield from check_partition(disk, path)
        # Kafka gives these suffixes to logs that are being deleted, moved, or belong to no partition of this broker.
        # Any other directory makes it refuse to start.
        elif not name.endswith(("-delete", "-future", "-stray")):
            yield Finding(path, 0, "the name of this directory is not that of a partition")

    # A wrong directory, for example that of a single partition, would otherwise seem to be without a defect.
    if not found and not disk.exists(f"{data_dir}/{META_PROPERTIES}"):
        yield Finding(data_dir, 0, f"is no data directory: it has neither partitions nor {META_PROPERTIES}")
    try:
        read_meta_properties(disk, f"{data_dir}/{META_PROPERTIES}")
    except StorageError as error:
        yield Finding(error.path, 0, error.cause)

    for name in OFFSET_CHECKPOINTS:
        yield from _check_checkpoint(disk, f"{data_dir}/{name}", found)


def _check_checkpoint(disk: Disk, path: str, found: dict[TopicPartition, Ends]) -> Iterator[Finding]:
    try:
        offsets = read_checkpoint(disk, path)
    except StorageError as error:
        yield Finding(path, 0, error.cause)
        return
    for key, offset in offsets.items():
        ends = found.get(key)
        # A checkpoint may have entries of deleted partitions, and may be behind the log, but not ahead of it.
        if ends is not None and not 0 <= offset <= ends.log_end_offset:
            yield Finding(path, 0, f"{key} is said to be at {offset}, but ends at {ends.log_end_offset}")


# -- one partition


def check_partition(disk: Disk, directory: str) -> Generator[Finding, None, Ends]:
    """Check the directory of one log; returns its first and its log end offset."""
    names = disk.list(directory)

    # An unreadable file is a finding, and the check goes on without epochs.
    epochs = LeaderEpochs()
    try:
        epochs = read_leader_epochs(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
    except StorageError as error:
        yield Finding(error.path, 0, error.cause)

    bases = [offset for name in names if name.endswith(LOG) and (offset := offset_of_name(name)) is not None]
    log_end_offset = bases[0] if bases else 0
    snapshots = yield from _read_snapshots(disk, directory, names)
    producers = ProducerStates()
    with_data = set[int]()
    if bases and bases[0] in snapshots:
        producers.load_snapshot(disk.read_file(f"{directory}/{bases[0]:020d}{SNAPSHOT}"), 0, NEVER_MS)

    # The base offset of the next segment bounds the offsets of this one; the last segment is unbounded.
    for base, next_base in zip(bases, [*bases[1:], None], strict=True):
        checked = _SegmentCheck(disk, f"{directory}/{base:020d}", base, next_base, epochs, producers, with_data)
        yield from checked.run()
        log_end_offset = checked.end_offset

        # Snapshots lie where segments begin, and after a clean stop at the log end.
        end_offset = log_end_offset if next_base is None else next_base
        yield from _compare_open(f"{directory}/{end_offset:020d}{SNAPSHOT}", snapshots.get(end_offset), producers)

    # An epoch may start exactly at the log end: a new leader notes its epoch before its first append.
    latest = epochs.entries[-1:]
    if latest and latest[0][1] > log_end_offset:
        where = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        yield Finding(where, 0, f"epoch {latest[0][0]} starts at {latest[0][1]}, behind the log end {log_end_offset}")
    return Ends(bases[0] if bases else 0, log_end_offset)


def _read_snapshots(
    disk: Disk, directory: str, names: Sequence[str]
) -> Generator[Finding, None, dict[int, dict[int, int]]]:
    """The open transactions of each sound snapshot, by its offset: producer id -> first offset."""
    found = {}
    for name in names:
        offset = offset_of_name(name)
        if not name.endswith(SNAPSHOT) or offset is None:
            continue
        path = f"{directory}/{name}"
        try:
            producers = list(decode_snapshot(disk.read_file(path)))
        except SnapshotCorrupt as error:
            yield Finding(path, 0, str(error))
            continue
        for producer in producers:
            # The snapshot describes the producers when the log ended at the offset in its name. The crc is checked by
            # `decode_snapshot`, so this would be a bug of the writer.
            if producer.last_offset >= offset:
                yield Finding(path, 0, f"{producer} has written offset {producer.last_offset} already")
        found[offset] = {each.producer_id: each.first_offset for each in producers if each.first_offset != NO_OFFSET}

    return found


def _compare_open(path: str, snapshot: dict[int, int] | None, producers: ProducerStates) -> Iterator[Finding]:
    """Compare the open transactions of the snapshot with those of the log."""
    if snapshot is None:
        return
    # A lower first offset in the snapshot is no damage: compaction may have removed the first batch
    # of a transaction that was open at the snapshot and is decided now.
    for first_offset, producer_id in producers.open_transactions.items():
        if snapshot.get(producer_id, NEVER_MS) > first_offset:
            yield Finding(path, 0, f"lacks the transaction of producer {producer_id} that is open from {first_offset}")


class _SegmentCheck:
    """The check of one segment: a walk over the log, with both indexes beside it."""

    def __init__(
        self,
        disk: Disk,
        stem: str,
        base: int,
        next_base: int | None,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        with_data: set[int],
    ) -> None:
        self.disk = disk
        self.producers = producers  # as they are at `end_offset`
        self.with_data = with_data  # producer ids of which transactional data was met since their last marker
        self.aborted: dict[int, AbortedTransaction] = {}  # by the offset of the marker
        self.aborting: dict[int, int] = {}  # offset -> producer id of each ABORT marker, also of those that end nothing
        self.stem = stem
        self.topic = topic_of(stem.rpartition("/")[0])
        self.next_base = next_base
        self.epochs = epochs
        self.latest_epoch = -1 if epochs.latest_epoch is None else epochs.latest_epoch
        self.end_offset = base  # offset after the last entry so far
        self.offsets = _OffsetIndexCheck(f"{stem}{INDEX}", base)
        self.times = _TimeIndexCheck(f"{stem}{TIME_INDEX}", base)

    def run(self) -> Iterator[Finding]:
        # Both indexes are loaded before the walk, which compares their entries with the batches that it reaches.
        for index in (self.offsets, self.times):
            if self.disk.exists(index.path):
                yield from index.load(self.disk)
            # Only a sealed segment must have index files; the active segment's are saved late.
            elif self.next_base is not None:
                yield Finding(index.path, 0, "is missing; the next start rebuilds it")
        yield from self._walk()
        yield from self.offsets.finish()
        yield from self.times.finish()
        yield from self._check_transactions()

    def _walk(self) -> Iterator[Finding]:
        path = f"{self.stem}{LOG}"
        end_position = 0
        file = self.disk.open(path, read_only=True)
        try:
            size_bytes = file.size_bytes()
            for span, data in walk_file(file, 0, size_bytes):
                end_position = span.position + span.size_bytes
                for what in self._faults_of(span, data):
                    yield Finding(path, span.position, what)
                yield from self._replay(path, span, data)
                if self.topic in INTERNAL_TOPICS and is_intact(data):
                    yield from self._check_records(path, span, data)
                yield from self.offsets.see(span)
                yield from self.times.see(span, max_timestamp_of(span, data))

                # A batch whose offset falls (a finding) does not lower the log end, to which checkpoints are compared.
                self.end_offset = max(self.end_offset, span.last_offset + 1)

            # `walk_file` ends at the first bytes that are no whole entry.
            if end_position < size_bytes:
                yield Finding(path, end_position, f"{size_bytes - end_position} bytes that are no whole batch")
        finally:
            file.release()

    def _faults_of(self, span: EntrySpan, data: memoryview) -> Iterator[str]:
        if not is_intact(data):
            yield f"the checksum of the batch at offset {span.base_offset} does not match"
        # A gap is no finding: compaction leaves gaps.
        if span.base_offset < self.end_offset:
            yield f"offset {span.base_offset} where at least {self.end_offset} should come"
        if self.next_base is not None and span.last_offset >= self.next_base:
            yield f"offset {span.last_offset} belongs to the next segment, which begins at {self.next_base}"
        # A flush writes the epoch file after the records, so the file may lack the latest epochs.
        # Magic 0 and 1 have no epoch.
        epoch = leader_epoch_of(span, data)
        known = self.epochs.epoch_for(span.base_offset)
        latest = self.latest_epoch
        if known is not None and known != epoch and 0 <= epoch <= latest:
            yield f"the batch at offset {span.base_offset} is of epoch {epoch}, the epoch file says {known}"

    def _check_records(self, path: str, span: EntrySpan, data: memoryview) -> Iterator[Finding]:
        """Read the records of an internal topic, as its coordinator does: one that it cannot read stops it."""
        if span.magic >= BATCH_MAGIC and data[FLAGS_AT] & CONTROL:
            return
        try:
            for record in read_records(data):
                try:
                    internal_record(self.topic, record.key, record.value)
                except MalformedRecord as error:
                    yield Finding(path, span.position, f"the record at offset {record.offset} is unreadable: {error}")
        except CorruptRecords as error:
            yield Finding(path, span.position, str(error))

    def _check_transactions(self) -> Iterator[Finding]:
        path = f"{self.stem}{TRANSACTION_INDEX}"
        if not self.disk.exists(path):
            yield from self._missing_transactions(path)
            return
        try:
            for aborted in parse_transactions(self.disk.read_file(path)):
                # With an entry that has no marker, a fetch would name a transaction that the log does not have.
                if self.aborting.get(aborted.last_offset) != aborted.producer_id:
                    yield Finding(path, 0, f"{aborted} has no marker at its end")

                # An entry may begin earlier than in the log, where compaction may have removed the first batch.
                of_log = self.aborted.pop(aborted.last_offset, aborted)
                if aborted.first_offset > of_log.first_offset:
                    yield Finding(path, 0, f"{aborted} begins at {of_log.first_offset} in the log")
        except IndexCorrupt as error:
            yield Finding(path, 0, str(error))
            return

        yield from self._missing_transactions(path)

    def _missing_transactions(self, path: str) -> Iterator[Finding]:
        # The active segment's file may lack entries: the last ones are written when it is sealed or closed.
        if self.next_base is not None:
            for aborted in self.aborted.values():
                yield Finding(path, 0, f"{aborted} is missing")

    def _replay(self, path: str, span: EntrySpan, data: memoryview) -> Iterator[Finding]:
        """Take over the producer of an entry, and note the transaction that it aborts."""
        try:
            aborted = replay_producers(self.producers, span, data)
            header = read_batch_header(data) if span.magic >= BATCH_MAGIC else None
            if header is not None and header.is_control:
                control = control_of(data)
                if control is not None and control.type == ABORT:
                    self.aborting[span.last_offset] = header.producer_id

                # Retention may have removed all data of a transaction that is open in the first
                # snapshot. Compaction then removes its entry before its marker, as in Kafka, so a
                # missing entry is no finding.
                if header.producer_id not in self.with_data:
                    aborted = None
                self.with_data.discard(header.producer_id)
            elif header is not None and header.is_transactional:
                self.with_data.add(header.producer_id)
        # A batch with a wrong checksum is replayed, too, and may fail here: that is a second finding.
        except (CorruptRecords, InvariantBroken) as error:
            yield Finding(path, span.position, str(error))
            return

        if aborted is not None:
            self.aborted[span.last_offset] = aborted


class _IndexCheck:
    """The check of one index; `number` counts the entries that were compared with the log."""

    ENTRY: struct.Struct

    def __init__(self, path: str, base: int) -> None:
        self.path = path
        self.base = base
        self.entries: list[tuple[int, int]] = []
        self.number = 0

    def load(self, disk: Disk) -> Iterator[Finding]:
        file = disk.open(self.path, read_only=True)
        try:
            if file.size_bytes() % self.ENTRY.size:
                yield Finding(self.path, 0, f"{file.size_bytes()} bytes are not whole entries of {self.ENTRY.size}")
            data = file.read(0, count_entries(file, self.ENTRY) * self.ENTRY.size)
        finally:
            file.release()
        self.entries = list(self.ENTRY.iter_unpack(data))
        # Searches bisect the first column of an index, so both columns rise strictly.
        for number, (before, after) in enumerate(pairwise(self.entries), start=1):
            if before[0] >= after[0] or before[1] >= after[1]:
                yield Finding(self.path, number * self.ENTRY.size, f"entry {after} does not rise after {before}")

    def finish(self) -> Iterator[Finding]:
        # While a broker runs, and after a crash, the files of the last segment are behind the broker's memory. An index
        # with too few entries is correct, so only the entries behind the end of the log are findings.
        for number in range(self.number, len(self.entries)):
            yield self.finding(number, "points behind the end of the log")

    def finding(self, number: int, what: str) -> Finding:
        return Finding(self.path, number * self.ENTRY.size, f"entry {self.entries[number]} {what}")


class _OffsetIndexCheck(_IndexCheck):
    ENTRY = OFFSET_ENTRY

    def see(self, span: EntrySpan) -> Iterator[Finding]:
        """Compare the entries up to this batch, which the walk has reached."""
        # Index and log rise together, so one pass over both finds each entry's batch without a search.
        while self.number < len(self.entries) and self.entries[self.number][1] <= span.position:
            relative, position = self.entries[self.number]
            if position != span.position:
                yield self.finding(self.number, "points into a batch")
            # An entry may name a later offset than its batch has: Kafka writes one entry for a whole chunk of
            # replicated batches, with the position of its first batch and the last offset of the chunk.
            elif self.base + relative < span.last_offset:
                yield self.finding(self.number, f"points to the batch that ends with offset {span.last_offset}")
            self.number += 1


class _TimeIndexCheck(_IndexCheck):
    ENTRY = TIME_ENTRY

    def __init__(self, path: str, base: int) -> None:
        super().__init__(path, base)
        self.largest = -1

    def see(self, span: EntrySpan, timestamp: int) -> Iterator[Finding]:
        """Compare the entries up to this batch, which the walk has reached."""
        self.largest = max(self.largest, timestamp)
        # Not every batch has an entry, so entries are compared only when the walk has come to their offset.
        while self.number < len(self.entries) and self.base + self.entries[self.number][1] <= span.last_offset:
            if self.base + self.entries[self.number][1] != span.last_offset:
                yield self.finding(self.number, "names an offset that ends no batch")
            elif self.entries[self.number][0] != self.largest:
                yield self.finding(self.number, f"is not the largest timestamp so far, {self.largest}")
            self.number += 1
