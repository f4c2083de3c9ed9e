"""Conditions that must hold at every moment of a simulated run (`RULES` in `rules.py`), and their checks.

`Checks` is called for every change of every replica (`look`, from `observe.py`), and for faults and permissions of the
run (`lost_power`). Its parts are called for every write of the metadata store (`leaders.stored`) and every event of the
clients' history (`answers.answered`). The cost of a call is proportional to the change.

This file has the rules about what one replica holds: I2, I4, I5, I13, I15, I17, I18.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.testing.simulation.answer_rules import AnswerRules
from barnabas.testing.simulation.compacted import Table, check_compacted, check_table
from barnabas.testing.simulation.group_rules import GroupRules
from barnabas.testing.simulation.in_sync_rules import InSyncRules
from barnabas.testing.simulation.leader_rules import LeaderRules
from barnabas.testing.simulation.observe import WatchedNode, read_all, read_new
from barnabas.testing.simulation.rules import Findings, Tell, Violation
from barnabas.testing.simulation.transaction_replicas import check_replica, check_reread
from barnabas.testing.simulation.transaction_rules import TransactionRules
from barnabas.testing.simulation.truth import Shadow, Truth, Truths, first_difference
from barnabas.wire.records import BatchHeader
from barnabas.wire.topics import GROUP_TOPIC, INTERNAL_TOPICS

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition
    from barnabas.storage.log import PartitionLog


class Checks:
    """All rules that hold at every moment."""

    def __init__(self, now: Callable[[], float], tell: Tell) -> None:
        self.findings = Findings(now, tell)
        self.truths = Truths()
        self.tombstone_seconds = math.inf  # how long a tombstone stays, at least
        self.transactions: TransactionRules | None = None  # None in runs without transactions
        self._groups = GroupRules(self.violate)
        self.in_sync = InSyncRules(self.violate)
        self.leaders = LeaderRules(self.findings, self.truths, self._note_loss)
        self.answers = AnswerRules(self.findings, self.truths, self.in_sync, self._groups)
        self._deletable: dict[tuple[str, int], int] = {}

    @property
    def violations(self) -> list[Violation]:
        """The rules that were broken."""
        return self.findings.violations

    @property
    def counts(self) -> dict[str, int]:
        """How often what is noteworthy happened."""
        return self.findings.counts

    def violate(self, rule: str, text: str) -> None:
        """This rule is broken."""
        self.findings.violate(rule, text)

    # -- what the run tells

    def lost_power(self, broker_id: int) -> None:
        """The machine of this broker crashed."""
        self.leaders.crashed(broker_id)
        for truth in self.truths:
            truth.lost_power(broker_id)

    def lost_directory(self, broker_id: int, directory: str) -> None:
        """This broker starts without one of its log directories."""
        self.leaders.crashed(broker_id)
        for truth in self.truths:
            truth.lost_directory(broker_id, directory)

    def records_may_go(self, topic: str, partition: int, offset: int) -> None:
        """A client asks to delete the records of this partition below the offset."""
        self._deletable[topic, partition] = max(self._deletable.get((topic, partition), 0), offset)

    def topic_may_go(self, topic: str) -> None:
        """A client asks to delete the topic."""
        self.findings.tell(f"topic {topic} is to be deleted")

    def in_sync_may_be(self, topic: str, replicas: int) -> None:
        """A client asks for fewer replicas in sync."""
        self.in_sync.may_be(topic, replicas)

    # -- what replicas do

    def look(self, node: WatchedNode, partition: "Partition") -> None:
        """Something about this replica may have changed."""
        log = partition.log
        topic, index = partition.topic_partition
        identity = self.truths.identity(topic, None if log is None else log.topic_id)
        if log is None or identity is None:
            self._look_back(node, partition)
            return
        # A topic that is deleted and created again has another id, and so another truth.
        truth = self.truths.of(topic, identity, index)
        shadow = truth.shadows.get(node.broker_id)
        if shadow is None:
            shadow = truth.shadows[node.broker_id] = Shadow(node.broker_id)
        # A change that only appends is read from the old end. Everything else replaces what is
        # known of the log, and costs a reading of the whole log.
        is_reread = True
        if shadow.hosted_as is not partition:
            # A restarted process has new partition objects, so the identity of the object tells one
            # life of the replica from the next.
            self._begin(truth, shadow, node, partition)
        elif (
            log is not shadow.log  # it has moved to another directory
            or log.segments.generation != shadow.generation
            or log.log_end_offset < shadow.end_offset
        ):
            self._replace(truth, shadow, partition, self._read_all(truth, log, node, shadow))
        else:
            is_reread = False

        if log.log_end_offset > shadow.end_offset and not is_reread:
            self._take(truth, shadow, partition, self._read_new(truth, log, node, shadow))
        # The shadow is brought up to date before the checks below, which compare it with the truth.
        shadow.log = log
        shadow.generation = log.segments.generation
        shadow.end_offset = log.log_end_offset
        shadow.synced_offset = log.recovery_point
        if log.log_start_offset != shadow.start_offset:
            self._check_start(truth, shadow, log.log_start_offset)
        if partition.is_leader and truth.leaders.get(partition.leader_epoch) != node.broker_id:
            truth.replica_counts[partition.leader_epoch] = len(partition.replicas)
            self.leaders.check(truth, shadow, partition.leader_epoch)
        if partition.high_watermark != shadow.high_watermark:
            self._check_high_watermark(truth, shadow, partition)
        shadow.relearn()
        if self.transactions is not None:
            check_replica(self.transactions.violate, node, truth, shadow, partition)
            if is_reread:
                check_reread(self.transactions.violate, node, truth, shadow, log)
                if truth.is_compacted:
                    check_compacted(self.transactions, node.disk, truth, shadow, partition)

    def looked(self) -> None:
        """Everything that changed in this step was looked at."""
        if self.transactions is not None:
            self.transactions.looked()

    def _read_new(self, truth: Truth, log: "PartitionLog", node: WatchedNode, shadow: Shadow) -> list[BatchHeader]:
        look_into = None if self.transactions is None else self.transactions.look_into(truth)
        found = read_new(log, node.disk, shadow, look_into)
        if truth.is_compacted and found:
            found, gone = truth.restored(found, shadow.end_offset, found[-1].last_offset + 1)
            shadow.removed |= gone
        return found

    def _read_all(self, truth: Truth, log: "PartitionLog", node: WatchedNode, shadow: Shadow) -> list[BatchHeader]:
        look_into = None if self.transactions is None else self.transactions.look_into(truth)
        found = read_all(log, node.disk, shadow, look_into)
        if truth.is_compacted:
            found, shadow.removed = truth.restored(found, log.log_start_offset, log.log_end_offset)
        return found

    def _look_back(self, node: WatchedNode, partition: "Partition") -> None:
        """Its log is gone, its disk failed: what it appended and committed in that very step was not seen yet."""
        # A directory may be offline only after the simulated disk has failed, so any other reason
        # is a bug of the broker.
        offline = {} if node.broker is None else node.broker.replicas.logs.offline_directories
        if offline and not node.disk.has_failed:
            self.violate("I16", f"{node.broker_id} gave up what is on its disk, which never failed: {offline}")
        for truth in self.truths.named(*partition.topic_partition):
            shadow = truth.shadows.get(node.broker_id)
            if shadow is not None and shadow.hosted_as is partition and shadow.log is not None:
                if shadow.log.log_end_offset > shadow.end_offset:
                    self._take(truth, shadow, partition, self._read_new(truth, shadow.log, node, shadow))
                    shadow.end_offset = shadow.log.log_end_offset
                if partition.high_watermark != shadow.high_watermark:
                    self._check_high_watermark(truth, shadow, partition)

    def replica_removed(self, node: WatchedNode, partition: "Partition") -> None:
        """The broker does not have this replica any more, while it runs: its log may be deleted."""
        for truth in self.truths.named(*partition.topic_partition):
            shadow = truth.shadows.get(node.broker_id)
            if shadow is not None and shadow.hosted_as is partition:
                shadow.is_gone = True
                shadow.hosted_as = None

    def _begin(self, truth: Truth, shadow: Shadow, node: WatchedNode, partition: "Partition") -> None:
        """A process hosts the replica that did not before: what has become of the log meanwhile?"""
        log = partition.log
        if log is None:
            return
        found_end = _end_that_was_found(truth, node.broker_id, partition, log)
        if shadow.is_gone:
            shadow.forgotten.clear()
        elif found_end < shadow.end_offset:
            # A crash of the process keeps the page cache, so everything written is safe. A crash of
            # the machine keeps what was synced.
            kept = shadow.synced_offset if shadow.lost_power else shadow.end_offset
            if found_end < kept and not _was_being_cut(shadow):
                self.violate("I15", f"{truth} at {node.broker_id} ends at {found_end}, {kept} was safe")
            shadow.forget(found_end, shadow.end_offset)
            self.findings.tell(f"{truth} at {node.broker_id} forgot {found_end} to {shadow.end_offset}")
            self.findings.count("logs that forgot")

        # These marks explain one restart and no later one.
        shadow.is_gone = shadow.lost_power = False
        shadow.hosted_as = partition
        self._replace(truth, shadow, partition, self._read_all(truth, log, node, shadow))
        if partition.is_leader:
            shadow.high_watermark = 0  # what it holds and commits is checked when it is known why it leads
            return
        shadow.high_watermark = partition.high_watermark
        # A permitted loss ends what is known to be committed, so nothing above it can be compared.
        limit = min([partition.high_watermark, *(cut.offset for cut in truth.cuts)])
        self._compare(truth, shadow, log.log_start_offset, limit)

    def _replace(self, truth: Truth, shadow: Shadow, partition: "Partition", held: list[BatchHeader]) -> None:
        """The log was read again: what is the same as before is not looked at again."""
        known = shadow.batches
        # The log start may have moved meanwhile. The batches below it are deleted, which is not a
        # difference.
        if held and known and held[0].base_offset > known[0].base_offset:
            known = known[shadow.index_of(held[0].base_offset) :]
        same = first_difference(known, held)
        if same is not None:
            self.findings.count("truncations")
            end_offset = held[same - 1].last_offset + 1 if 0 < same <= len(held) else 0
            self.findings.tell(f"{truth} at {shadow.broker_id} is cut to {end_offset}")
            self._check_producers(truth, shadow, partition)

        kept = len(known) if same is None else same
        shadow.batches = held[:kept]
        if self.transactions is not None:
            self.transactions.begin_again(truth, shadow)
        self._take(truth, shadow, partition, held[kept:])
        shadow.transactions.reread_end = held[-1].last_offset + 1 if held else 0

    def _check_producers(self, truth: Truth, shadow: Shadow, partition: "Partition") -> None:
        # The state of a producer must not outlive a truncation: a retry would be answered as a
        # duplicate of a record that is gone.
        log = partition.log
        for producer in log.producers if log is not None else ():
            if log is not None and producer.last_offset >= log.log_end_offset:
                self.violate(
                    "I18",
                    f"{truth} at {shadow.broker_id} ends at {log.log_end_offset}, and remembers that producer"
                    f" {producer.producer_id} wrote {producer.last_offset}",
                )

    def _take(self, truth: Truth, shadow: Shadow, partition: "Partition", new: list[BatchHeader]) -> None:
        """These batches are new to this replica: the leader of an epoch makes them, others must have them from it.

        The last that a leader made need not have been seen before, if its disk failed or it resigned in the same step.
        """
        epoch = partition.leader_epoch if partition.is_leader else -1
        for batch in new:
            key = batch.base_offset, batch.partition_leader_epoch
            # The epoch of the batch decides, not that of the partition: the replica may be a
            # follower by now.
            was_leader = shadow.log is not None and truth.leaders.get(batch.partition_leader_epoch) == shadow.broker_id
            is_new = key not in truth.known
            truth.holders.setdefault(key, set()).add(shadow.broker_id)
            if batch.partition_leader_epoch == epoch or (was_leader and batch.base_offset >= shadow.end_offset):
                if truth.known.setdefault(key, batch) != batch:
                    self.violate("I6", f"{truth} has two batches at offset {key[0]} of epoch {key[1]}")
            elif truth.known.get(key) != batch:
                self.violate("I13", f"{truth} at {shadow.broker_id} holds a batch that no leader appended: {batch}")
            if self.transactions is not None:
                self.transactions.taken(truth, shadow, batch, is_new=is_new)

        shadow.batches += new

    def _check_start(self, truth: Truth, shadow: Shadow, start_offset: int) -> None:
        deletable = self._deletable.get((truth.topic, truth.partition), 0)
        if start_offset > deletable:
            self.violate("I17", f"{truth} at {shadow.broker_id} begins at {start_offset}; {deletable} was asked for")
        shadow.start_offset = start_offset

    def _compare(self, truth: Truth, shadow: Shadow, begin: int, end: int) -> None:
        """What lies below a high watermark is what was committed there."""
        different = truth.difference(shadow, begin, end)
        if different is not None:
            held, there = different
            is_its_own = held is not None and truth.leaders.get(held.partition_leader_epoch) == shadow.broker_id
            # A leader that gives a committed offset to another record breaks I4. A follower that
            # holds another record breaks I5.
            rule = "I4" if is_its_own else "I5"
            self.violate(rule, f"{truth} at {shadow.broker_id} holds {held} where {there} is committed")

    def _check_high_watermark(self, truth: Truth, shadow: Shadow, partition: "Partition") -> None:
        before = shadow.high_watermark
        now = partition.high_watermark
        shadow.high_watermark = now
        epoch = partition.leader_epoch
        if now < before:
            # A permitted loss allows the fall once, in an epoch that is newer than the one in which
            # this high watermark was reached.
            if not any(cut.offset < before and cut.epoch > shadow.high_watermark_epoch for cut in truth.cuts):
                self.violate("I2", f"{truth} at {shadow.broker_id}: high watermark {before} falls to {now}")
            return

        shadow.high_watermark_epoch = epoch
        if epoch < truth.void_epoch:
            return  # this replica does not know yet that others have led since
        self._compare(truth, shadow, max(before, shadow.start_offset), min(now, truth.committed_end))
        if now <= truth.committed_end:
            return
        if truth.leaders.get(epoch) != shadow.broker_id:
            # DeleteRecords moves the log start of a follower, and its high watermark with it,
            # before it has heard of the leader's.
            if now > max(truth.committed_end, self._deletable.get((truth.topic, truth.partition), 0)):
                self.violate("I5", f"{truth} at {shadow.broker_id}: high watermark {now}, no leader's passed it")
            return

        self._commit(truth, shadow, epoch, now)

    def _commit(self, truth: Truth, shadow: Shadow, epoch: int, high_watermark: int) -> None:
        """The leader's high watermark passed batches that were not committed before."""
        is_internal = truth.topic in INTERNAL_TOPICS
        for batch in shadow.batches[shadow.index_of(truth.committed_end) :]:
            if batch.last_offset >= high_watermark:
                break
            self.in_sync.committed(truth, batch, epoch, self.leaders.states_of(truth.topic, truth.partition))
            wrong = truth.commit(batch, epoch, is_internal=is_internal)
            if wrong is not None:
                self.violate("I7", f"{truth}: a batch of producer {batch.producer_id} {wrong}")
            if self.transactions is not None:
                self.transactions.committed(truth, batch, shadow.broker_id)
            if self.answers.was_refused(truth, batch):
                self.violate("I7", f"{truth}: the batch at {batch.base_offset} was refused for good")

    def _note_loss(self, truth: Truth) -> None:
        if self.transactions is not None:
            self.transactions.lost(truth)
        if truth.topic == GROUP_TOPIC:
            count = sum(each.topic == GROUP_TOPIC for each in self.truths)
            self._groups.forgive(truth.partition, count)

    # -- what readers of committed records were served

    def read_table(
        self, name: str, where: tuple[str, bytes, int], table: Table, stable_offset: int, seconds: float
    ) -> None:
        """A reader of committed records has read a compacted topic from its beginning up to this offset."""
        topic, topic_id, partition = where
        truth = self.truths.find(topic, topic_id, partition)
        if truth is not None and self.transactions is not None:
            may_lack = seconds >= self.tombstone_seconds
            check_table(self.transactions, truth, name, table, stable_offset, may_lack_tombstones=may_lack)

    def read_committed(
        self, name: str, where: tuple[str, bytes, int], served: Sequence[BatchHeader], delivered: set[int]
    ) -> None:
        """A reader of committed records was served batches, and gives those at some base offsets to its user."""
        topic, topic_id, partition = where
        truth = self.truths.find(topic, topic_id, partition)
        if truth is not None and self.transactions is not None:
            self.transactions.read(truth, name, served, delivered)

    # -- groups

    def owns(self, group: str, generation: int, member: str, topic: str, partitions: Sequence[int]) -> None:
        """A member learned what it owns in this generation."""
        if self.transactions is not None:
            self.transactions.generation(group, generation)
        self._groups.owns(group, generation, member, topic, partitions)
        self.findings.tell(f"{member} owns {list(partitions)} of {topic} in generation {generation} of {group}")


def _end_that_was_found(truth: Truth, broker_id: int, partition: "Partition", log: "PartitionLog") -> int:
    """Where the log ended that the process found: a leader may have appended in the very step in which it began."""
    epoch = partition.leader_epoch
    if partition.is_leader and truth.leaders.get(epoch) != broker_id:
        return min([log.log_end_offset, *(start for each, start in log.epochs.entries if each == epoch)])
    return log.log_end_offset


def _was_being_cut(shadow: Shadow) -> bool:
    """Whether the process that had the replica before ended in the middle of a truncation: by a fault of the disk."""
    return shadow.log is not None and shadow.log.segments.generation != shadow.generation
