"""The expected content of one partition of one topic id (pure).

*Theory of operation.* A record is committed when the high watermark of a leader has passed it. From then on it may be
acknowledged and served, and every newer leader must have it. So the checks keep one `Truth` per partition:

    known       every batch that a leader appended, by (base offset, leader epoch)
    committed   the batches below high watermarks, in the order of the offsets: one list, which only grows
    shadows     the content of each broker's log file, batch by batch

A batch is its header of 61 bytes: base offset, leader epoch, producer, sequence, and the checksum of the rest. Two
batches are the same if their headers are.

If Kafka's rules permit a loss (an unclean election; a machine that lost unsynced records while no other replica was
left), the list is *cut* at the first lost offset, and the batches behind it become `lost`: they may have been
acknowledged and read, but need not be in any log again. Leaders of older epochs that have not received the change may
continue for a while; records that they commit do not count.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.testing.simulation.log_transactions import LogTransactions
from barnabas.wire.records import DELETE_HORIZON, BatchHeader

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog

_base = attrgetter("base_offset")


class Cut(NamedTuple):
    """A permitted loss: from `offset` on, at the start of the leader of `epoch`."""

    offset: int
    epoch: int
    reason: str


@dataclass(eq=False, slots=True)
class Shadow:
    """What one broker holds of the partition, whether it runs or not."""

    broker_id: int
    batches: list[BatchHeader] = field(default_factory=list)
    end_offset: int = 0
    start_offset: int = 0
    high_watermark: int = 0
    high_watermark_epoch: int = -1  # the leader epoch under which it last rose
    synced_offset: int = 0  # a machine crash keeps what lies below
    forgotten: list[tuple[int, int]] = field(default_factory=list)  # [from, to) that crashes took, until fetched again
    generation: int = -1  # of the log's segments
    segment_base: int = -1  # where the log was read up to: a segment, and a position in it
    position: int = 0
    is_gone: bool = False  # the broker was asked to give it up
    removed: set[int] = field(default_factory=set)  # base offsets of batches that compaction has removed from its log
    lost_power: bool = False  # the machine crashed since the broker was last seen with the replica
    log: "PartitionLog | None" = None  # of the process that hosts the replica, or hosted it last
    transactions: LogTransactions = field(default_factory=LogTransactions)  # as its batches say
    hosted_as: object = None  # the Partition that was looked at last: another object is of another process

    def index_of(self, offset: int) -> int:
        """The first batch that begins at this offset or later."""
        return bisect_left(self.batches, offset, key=_base)

    def holds(self, batch: BatchHeader) -> bool:
        """Whether this very batch is there."""
        index = self.index_of(batch.base_offset)
        return index < len(self.batches) and self.batches[index] == batch

    def forget(self, from_offset: int, to_offset: int) -> None:
        """A machine crash took these offsets."""
        self.forgotten.append((from_offset, to_offset))

    def forgot(self, offset: int) -> bool:
        """Whether a machine crash took this offset, ever since the broker last had it."""
        return any(begin <= offset < end for begin, end in self.forgotten)

    def relearn(self) -> None:
        """What was fetched again is not forgotten any more."""
        if self.forgotten:
            self.forgotten = [
                (max(begin, self.end_offset), end) for begin, end in self.forgotten if end > self.end_offset
            ]


class Truth:
    """What is known of one partition."""

    def __init__(self, topic: str, topic_id: bytes, partition: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.is_compacted = False
        self.is_deleted = False  # from the metadata store
        self.known: dict[tuple[int, int], BatchHeader] = {}
        self.holders: dict[tuple[int, int], set[int]] = {}  # the same keys -> the brokers that have it, or had it
        self.committed: list[BatchHeader] = []
        self.commit_epochs: list[int] = []  # under which leader epoch each was committed, rising
        self.committed_end = 0
        self.acked: dict[int, None] = {}  # base offsets, with acks=all
        self.served: dict[int, None] = {}
        self.lost: dict[tuple[int, int], BatchHeader] = {}  # (base offset, checksum)
        self.cuts: list[Cut] = []
        self.leaders: dict[int, int] = {}  # leader epoch -> the broker that led in it
        self.replica_counts: dict[int, int] = {}  # leader epoch -> how many replicas its leader knew of

        # These are contents of markers, of decisions about transactions, and of a compacted log's
        # data, by checksum.
        self.contents: dict[int, object] = {}
        self.deletable_end = 0  # a client has asked to delete the records below
        self.shadows: dict[int, Shadow] = {}
        self._sequences: dict[int, tuple[int, int]] = {}  # producer -> epoch, last sequence
        self._unnumbered: dict[tuple[int, int, int], int] = {}  # batches without a producer id -> offset

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def void_epoch(self) -> int:
        """What leaders of epochs below this one commit does not count."""
        return self.cuts[-1].epoch if self.cuts else -1

    def lost_power(self, broker_id: int) -> None:
        """The machine of this broker crashed."""
        shadow = self.shadows.get(broker_id)
        if shadow is not None:
            shadow.lost_power = True

    def lost_directory(self, broker_id: int, directory: str) -> None:
        """This broker has lost a log directory, with all that was synced there."""
        shadow = self.shadows.get(broker_id)
        if shadow is not None and shadow.log is not None and shadow.log.directory.startswith(directory + "/"):
            shadow.lost_power = True
            shadow.synced_offset = 0

    def committed_at(self, offset: int) -> BatchHeader | None:
        """The committed batch that begins at this offset."""
        index = bisect_left(self.committed, offset, key=_base)
        found = self.committed[index] if index < len(self.committed) else None
        return found if found is not None and found.base_offset == offset else None

    def skipped(self, position: int, offset: int) -> BatchHeader | None:
        """The first committed batch that a reader at this position leaves out if the batch at this offset is next."""
        # After a permitted loss, a leader that was replaced may serve records behind the cut. A
        # compacted log has gaps.
        if self.cuts or self.is_compacted:
            return None
        return next(iter(self._committed_between(position, offset)), None)

    def holders_of(self, batch: BatchHeader) -> AbstractSet[int]:
        """The brokers that have this batch, or have had it."""
        return self.holders.get((batch.base_offset, batch.partition_leader_epoch), frozenset())

    def committed_before(self, epoch: int) -> int:
        """How many batches were committed under leaders older than this epoch."""
        return bisect_left(self.commit_epochs, epoch)

    def is_lost(self, offset: int, checksum: int) -> bool:
        """Whether the rules permit that this batch is not there: it was cut off, or its commit does not count."""
        if (offset, checksum) in self.lost:
            return True
        cut_epoch = max((cut.epoch for cut in self.cuts if cut.offset <= offset), default=-1)
        return any(
            (batch := self.known.get((offset, epoch))) is not None and batch.crc == checksum
            for epoch in range(cut_epoch)
        )

    def restored(self, held: Sequence[BatchHeader], begin: int, end: int) -> tuple[list[BatchHeader], set[int]]:
        """The batches from `begin` to `end` of which compaction has left these, as they were appended.

        With the base offsets of those that are not there any more. Only committed ones may be gone.
        """
        found: list[BatchHeader] = []
        gone: list[BatchHeader] = []
        for batch in held:
            gone += self._committed_between(begin, batch.base_offset)
            known = self.known.get((batch.base_offset, batch.partition_leader_epoch), batch)
            found.append(known if _is_left_of(batch, known) else batch)
            begin = batch.last_offset + 1
        gone += self._committed_between(begin, end)
        return sorted([*found, *gone], key=_base), {batch.base_offset for batch in gone}

    def difference(self, shadow: Shadow, begin: int, end: int) -> tuple[BatchHeader | None, BatchHeader | None] | None:
        """Where a replica is not what was committed from `begin` to `end`: its batch, and the committed one."""
        held = shadow.batches[shadow.index_of(begin) : shadow.index_of(end)]
        pairs = zip_longest(held, self._committed_between(begin, end))
        return next(((there, committed) for there, committed in pairs if there != committed), None)

    def _committed_between(self, begin: int, end: int) -> Sequence[BatchHeader]:
        first, last = (bisect_left(self.committed, offset, key=_base) for offset in (begin, end))
        return self.committed[first:last]

    # -- changes

    def commit(self, batch: BatchHeader, epoch: int, *, is_internal: bool) -> str | None:
        """The next batch is committed, under the leader of this epoch; what is wrong with it, if anything is."""
        self.committed.append(batch)
        self.commit_epochs.append(max(epoch, self.commit_epochs[-1] if self.commit_epochs else epoch))
        self.committed_end = batch.last_offset + 1
        return None if is_internal else self._follow_producer(batch)

    def cut(self, index: int, epoch: int, reason: str) -> Cut:
        """The rules permit that everything from the committed batch of this index on is lost."""
        cut = Cut(self.committed[index].base_offset, epoch, reason)
        for batch in self.committed[index:]:
            self.lost[batch.base_offset, batch.crc] = batch
            self.acked.pop(batch.base_offset, None)
            self.served.pop(batch.base_offset, None)
        del self.committed[index:], self.commit_epochs[index:]
        self.committed_end = cut.offset
        self.cuts.append(cut)
        self._sequences = {}
        self._unnumbered = {}
        for batch in self.committed:
            self._follow_producer(batch)
        return cut

    def void_older(self, epoch: int, reason: str) -> None:
        """Nothing is lost that was committed, but what older leaders still commit does not count."""
        self.cuts.append(Cut(self.committed_end, epoch, reason))

    def _follow_producer(self, batch: BatchHeader) -> str | None:
        """Each producer's sequence rises within its epoch; a batch without a producer is there once."""
        if batch.is_control:
            return self._follow_marker(batch)
        if batch.producer_id < 0:
            content = batch.crc, batch.batch_length, batch.base_timestamp
            before = self._unnumbered.setdefault(content, batch.base_offset)
            return None if before == batch.base_offset else f"is there twice: at {before} and {batch.base_offset}"

        epoch, sequence = self._sequences.get(batch.producer_id, (-1, -1))
        self._sequences[batch.producer_id] = batch.producer_epoch, batch.last_sequence
        if (batch.producer_epoch, batch.base_sequence) > (epoch, sequence):
            return None
        return (
            f"at {batch.base_offset} has epoch {batch.producer_epoch} and sequence {batch.base_sequence}"
            f" behind epoch {epoch} and sequence {sequence}"
        )

    def _follow_marker(self, batch: BatchHeader) -> str | None:
        """A marker has no sequence. With a higher epoch it fences the producer, whose sequence begins again."""
        epoch, sequence = self._sequences.get(batch.producer_id, (-1, -1))
        if batch.producer_epoch > epoch:
            self._sequences[batch.producer_id] = batch.producer_epoch, -1
        if batch.producer_epoch >= epoch:
            return None
        return f"at {batch.base_offset} has epoch {batch.producer_epoch} behind epoch {epoch} and sequence {sequence}"


class Truths:
    """The truths of a run: one for each partition of each topic id, and so several of one name."""

    def __init__(self) -> None:
        self.compacted_topics: set[str] = set()
        self.names_identify = False  # topics may have no ids, or get them later; none is made again under its name
        self._all: dict[tuple[bytes, int], Truth] = {}
        self._by_name: dict[tuple[str, int], list[Truth]] = {}

    def __iter__(self) -> Iterator[Truth]:
        return iter(self._all.values())

    def identity(self, topic: str, topic_id: bytes | None) -> bytes | None:
        """What tells topics apart."""
        return topic.encode() if self.names_identify else topic_id

    def find(self, topic: str, topic_id: bytes | None, partition: int) -> Truth | None:
        """The truth of this partition, if there is one."""
        return self._all.get((self.identity(topic, topic_id) or b"", partition))

    def named(self, topic: str, partition: int) -> Sequence[Truth]:
        """All that had this name."""
        return self._by_name.get((topic, partition), ())

    def of(self, topic: str, identity: bytes, partition: int) -> Truth:
        """The truth of this partition, which is made if there is none."""
        truth = self._all.get((identity, partition))
        if truth is None:
            truth = self._all[identity, partition] = Truth(topic, identity, partition)
            truth.is_compacted = topic in self.compacted_topics
            self._by_name.setdefault((topic, partition), []).append(truth)
        return truth


def _is_left_of(batch: BatchHeader, known: BatchHeader) -> bool:
    """Whether compaction may have made this batch of that one: of its fields only a few may differ."""
    return batch.record_count <= known.record_count and known == batch._replace(
        batch_length=known.batch_length,
        crc=known.crc,
        attributes=batch.attributes & ~DELETE_HORIZON,
        base_timestamp=known.base_timestamp,
        max_timestamp=known.max_timestamp,
        record_count=known.record_count,
    )


def first_difference(expected: Sequence[BatchHeader], held: Iterable[BatchHeader]) -> int | None:
    """The index of the first expected batch that is not what is held there; None when all are."""
    count = -1
    for count, (wanted, there) in enumerate(zip(expected, held, strict=False)):
        if wanted != there:
            return count
    return count + 1 if count + 1 < len(expected) else None
