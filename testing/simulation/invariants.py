"""Conditions that must hold at every moment of a simulated run: the rules, each with an id, and their checks.

`Checks` is called for every change of every replica (`look`, from `observe.py`), every event of the clients' history
(`answered`), every write of the metadata store (`stored`), and for faults and permissions of the run (`lost_power`).
The cost of a call is proportional to the change. A broken rule becomes a `Violation`. The run continues, so that the
story shows the consequences, but later violations may be consequences of the first one.

Permitted losses. Kafka guarantees that acknowledged records are kept as long as one in-sync replica that has them can
be elected. So a new leader may lack committed records only if

  - the election was unclean and the topic allows that, or
  - its machine lost them in a crash, the topic does not sync before it acknowledges (`flush.messages=1`), and no other
    in-sync replica that still had them was reliable when the leader was elected. A reliable broker is registered for
    `SETTLED_SECONDS`, because a controller may not have read a newer registration; and it had returned from the last
    crash of its machine when the partition's last state was written, because otherwise it may have lost records as
    well. (A state may contain a broker whose machine has crashed, as long as its session lasts.)

Any other loss is a violation. A permitted one cuts the `Truth` of the partition; it is counted, and noted in the story.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionState
from barnabas.testing.simulation.compacted import Table, check_compacted, check_table
from barnabas.testing.simulation.group_rules import GroupRules
from barnabas.testing.simulation.history import (
    ACKED,
    COMMITTED,
    OUT_OF_ORDER,
    READ,
    REFUSED,
    RESUMED,
    UNANSWERED,
    Event,
)
from barnabas.testing.simulation.hostile import HOSTILE_RULES
from barnabas.testing.simulation.in_sync_rules import Election, InSyncRules
from barnabas.testing.simulation.observe import WatchedNode, read_all, read_new
from barnabas.testing.simulation.secured import SECURED_RULES
from barnabas.testing.simulation.transaction_replicas import check_replica, check_reread
from barnabas.testing.simulation.transaction_rules import TRANSACTION_RULES, TransactionRules
from barnabas.testing.simulation.truth import Shadow, Truth, first_difference
from barnabas.wire.records import BatchHeader
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import GROUP_TOPIC, INTERNAL_TOPICS

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition
    from barnabas.storage.log import PartitionLog

RULES = {
    "I1": "records acknowledged with acks=all under an older epoch are in the log of a newer leader when it starts",
    "I2": "the high watermark of a replica never falls while it runs, except by truncation after a permitted loss",
    "I3": "an offset that a consumer has read keeps the same record",
    "I4": "an offset below the high watermark is never given to another record",
    "I5": "replicas agree on every offset that both hold below the smaller high watermark",
    "I6": "there is at most one leader of a partition in an epoch",
    "I7": "a record is there at most once, in its producer's order, and not at all when it was refused",
    "I8": "a partition has one owner in a generation of a group",
    "I9": "an acknowledged commit survives: no group goes back",
    "I10": "after the faults, reads and writes resume, every replica rejoins, and groups are stable, within bounds",
    "I11": "tasks and open files return to the baseline",
    "I12": "records that are acknowledged with acks=all are committed",
    "I13": "a replica has only records that a leader of the same topic id appended",
    "I14": "the epochs of controller and leader never go back in the metadata store",
    "I15": "a restart finds everything that was written, after a power failure everything that was synced",
    "I16": "no broker fails because of a bug",
    "I17": "the beginning of a log is deleted only on request",
    "I18": "a replica's producer state agrees with its log",
    "I19": "the high watermark passes what all in-sync replicas have, and acks=all means min.insync.replicas of them",
    "I20": "who reads on is served every committed record, in order",
    **TRANSACTION_RULES,
    **SECURED_RULES,
    **HOSTILE_RULES,
}
SETTLED_SECONDS = 3.0
# A broken rule is often broken again by each later record. The first violations are the ones that
# explain the run.
VIOLATIONS_MAX = 50


class Violation(NamedTuple):
    """A rule that was broken."""

    rule: str
    seconds: float
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:.3f} {self.rule} {self.text}"

    @property
    def line(self) -> str:
        """How the story says it."""
        return f"VIOLATION {self.rule} ({RULES[self.rule]}): {self.text}"


Tell = Callable[[str], None]


class Checks:
    """All rules that hold at every moment."""

    def __init__(self, now: Callable[[], float], tell: Tell) -> None:
        self.violations: list[Violation] = []
        self.counts: dict[str, int] = {}
        self.truths: dict[tuple[bytes, int], Truth] = {}
        self.unclean_topics: set[str] = set()  # that allow it
        self.synced_topics: set[str] = set()  # that acknowledge only what is synced
        self.compacted_topics: set[str] = set()
        self.tombstone_seconds = math.inf  # how long a tombstone stays, at least
        self.names_identify = False  # topics may have no ids, or get them later; none is made again under its name
        self.leaders_write_states = False  # under the controller epoch of their role
        self.transactions: TransactionRules | None = None  # of the runs that have any
        self.on_violation: Callable[[str], None] = lambda rule: None
        self._now = now
        self._tell = tell
        self._by_name: dict[tuple[str, int], list[Truth]] = {}
        self._elections: dict[tuple[str, int], list[Election]] = {}
        self._registered: dict[int, float] = {}
        self._returned: dict[int, float] = {}  # of machines that crashed: when their broker first registered again
        self._controller_epoch = 0
        self._refused: dict[tuple[str, int, int], None] = {}  # topic, partition, checksum
        self._groups = GroupRules(self.violate)
        self.in_sync = InSyncRules(self.violate)
        self._deletable: dict[tuple[str, int], int] = {}

    def violate(self, rule: str, text: str) -> None:
        """This rule is broken."""
        if len(self.violations) < VIOLATIONS_MAX:
            violation = Violation(rule, self._now(), text)
            self.violations.append(violation)
            self._tell(violation.line)
            self.on_violation(rule)

    def count(self, what: str) -> None:
        """Something noteworthy happened."""
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- what the run tells

    def lost_power(self, broker_id: int) -> None:
        """The machine of this broker crashed."""
        # Until its broker registers again, the machine counts as one that has not returned.
        self._returned[broker_id] = math.inf
        for truth in self.truths.values():
            truth.lost_power(broker_id)

    def lost_directory(self, broker_id: int, directory: str) -> None:
        """This broker starts without one of its log directories."""
        self._returned[broker_id] = math.inf
        for truth in self.truths.values():
            truth.lost_directory(broker_id, directory)

    def records_may_go(self, topic: str, partition: int, offset: int) -> None:
        """A client asks to delete the records of this partition below the offset."""
        self._deletable[topic, partition] = max(self._deletable.get((topic, partition), 0), offset)

    def topic_may_go(self, topic: str) -> None:
        """A client asks to delete the topic."""
        self._tell(f"topic {topic} is to be deleted")

    def in_sync_may_be(self, topic: str, replicas: int) -> None:
        """A client asks for fewer replicas in sync."""
        self.in_sync.may_be(topic, replicas)

    # -- what replicas do

    def look(self, node: WatchedNode, partition: "Partition") -> None:
        """Something about this replica may have changed."""
        log = partition.log
        topic_id = self.identity(partition.topic_partition.topic, None if log is None else log.topic_id)
        if log is None or topic_id is None:
            self._look_back(node, partition)
            return
        # A topic that is deleted and created again has another id, and so another truth.
        truth = self._truth_of(partition, topic_id)
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
            self._check_leader(truth, shadow, partition.leader_epoch)
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
        for truth in self._by_name.get(partition.topic_partition, ()):
            shadow = truth.shadows.get(node.broker_id)
            if shadow is not None and shadow.hosted_as is partition and shadow.log is not None:
                if shadow.log.log_end_offset > shadow.end_offset:
                    self._take(truth, shadow, partition, self._read_new(truth, shadow.log, node, shadow))
                    shadow.end_offset = shadow.log.log_end_offset
                if partition.high_watermark != shadow.high_watermark:
                    self._check_high_watermark(truth, shadow, partition)

    def replica_removed(self, node: WatchedNode, partition: "Partition") -> None:
        """The broker does not have this replica any more, while it runs: its log may be deleted."""
        for truth in self._by_name.get(partition.topic_partition, ()):
            shadow = truth.shadows.get(node.broker_id)
            if shadow is not None and shadow.hosted_as is partition:
                shadow.is_gone = True
                shadow.hosted_as = None

    def identity(self, topic: str, topic_id: bytes | None) -> bytes | None:
        """What tells topics apart."""
        return topic.encode() if self.names_identify else topic_id

    def _truth_of(self, partition: "Partition", topic_id: bytes) -> Truth:
        # Several truths may have one name and partition, one for each topic that had the name.
        topic, index = partition.topic_partition
        truth = self.truths.get((topic_id, index))
        if truth is None:
            truth = self.truths[topic_id, index] = Truth(topic, topic_id, index)
            truth.is_compacted = topic in self.compacted_topics
            self._by_name.setdefault((topic, index), []).append(truth)
        return truth

    def _begin(self, truth: Truth, shadow: Shadow, node: WatchedNode, partition: "Partition") -> None:
        """A process hosts the replica that did not before: what has become of the log meanwhile?"""
        # The state of a producer must not outlive a truncation: a retry would be answered as a
        # duplicate of a record that is gone.
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
            self._tell(f"{truth} at {node.broker_id} forgot {found_end} to {shadow.end_offset}")
            self.count("logs that forgot")

        # These marks explain one restart and no later one.
        shadow.is_gone = shadow.lost_power = False
        shadow.hosted_as = partition
        self._replace(truth, shadow, partition, self._read_all(truth, log, node, shadow))
        if partition.is_leader:
            shadow.high_watermark = 0  # what it holds and commits is looked at once it is known why it leads
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
            self.count("truncations")
            end_offset = held[same - 1].last_offset + 1 if 0 < same <= len(held) else 0
            self._tell(f"{truth} at {shadow.broker_id} is cut to {end_offset}")
            self._check_producers(truth, shadow, partition)

        kept = len(known) if same is None else same
        shadow.batches = held[:kept]
        if self.transactions is not None:
            self.transactions.begin_again(truth, shadow)
        self._take(truth, shadow, partition, held[kept:])
        shadow.transactions.reread_end = held[-1].last_offset + 1 if held else 0

    def _check_producers(self, truth: Truth, shadow: Shadow, partition: "Partition") -> None:
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
            return  # it has not heard that others lead since
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
            self.in_sync.committed(truth, batch, epoch, self._elections.get((truth.topic, truth.partition), ()))
            wrong = truth.commit(batch, epoch, is_internal=is_internal)
            if wrong is not None:
                self.violate("I7", f"{truth}: a batch of producer {batch.producer_id} {wrong}")
            if self.transactions is not None:
                self.transactions.committed(truth, batch, shadow.broker_id)
            if (truth.topic, truth.partition, batch.crc) in self._refused:
                self.violate("I7", f"{truth}: the batch at {batch.base_offset} was refused for good")

    # -- leaders

    def _check_leader(self, truth: Truth, shadow: Shadow, epoch: int) -> None:
        """A leader starts: everything that was committed under older epochs must be there."""
        other = truth.leaders.setdefault(epoch, shadow.broker_id)
        if other != shadow.broker_id:
            self.violate("I6", f"{truth}: {other} and {shadow.broker_id} both lead in epoch {epoch}")
        self.count("leaders")
        self._tell(f"{truth}: {shadow.broker_id} leads in epoch {epoch}, from {shadow.end_offset}")
        # Batches below the log start were deleted on request, and the new leader need not have
        # them.
        begin = bisect_left(truth.committed, shadow.start_offset, key=lambda batch: batch.last_offset)
        end = truth.committed_before(epoch)
        expected = truth.committed[begin:end]
        first = shadow.index_of(expected[0].base_offset) if expected else 0
        missing = first_difference(expected, shadow.batches[first : first + len(expected)])
        if missing is None:
            voids = truth.topic in self.unclean_topics
            if voids and any(_is_unclean(before, after) for before, after in self._elections_to(truth, epoch)):
                truth.void_older(epoch, "unclean election")
                shadow.high_watermark = min(shadow.high_watermark, truth.committed_end)  # the rest it commits again
            return

        index = begin + missing
        reason = self._why_permitted(truth, shadow, epoch, truth.committed[index])
        if reason is None:
            gone = truth.committed[index:end]
            acked = any(batch.base_offset in truth.acked for batch in gone)
            served = any(batch.base_offset in truth.served for batch in gone)
            rule = "I1" if acked else "I3" if served else "I4"
            self.violate(rule, f"{truth}: the leader {shadow.broker_id} of epoch {epoch} lacks {gone[0]}")
            reason = "violation"

        self.count(f"losses: {reason}")
        cut = truth.cut(index, epoch, reason)
        shadow.high_watermark = min(shadow.high_watermark, cut.offset)  # look at what it commits instead
        self._tell(f"{truth} loses everything from {cut.offset}: {reason}")
        if self.transactions is not None:
            self.transactions.lost(truth)
        if truth.topic == GROUP_TOPIC:
            count = sum(each.topic == GROUP_TOPIC for each in self.truths.values())
            self._groups.forgive(truth.partition, count)

    def _why_permitted(self, truth: Truth, shadow: Shadow, epoch: int, batch: BatchHeader) -> str | None:
        """Which rule permits that this leader lacks this batch."""
        for before, after in self._elections_to(truth, epoch):
            if _is_unclean(before, after):
                return "unclean election" if truth.topic in self.unclean_topics else None
            if after.state.leader_epoch == before.state.leader_epoch:
                continue
            if after.state.leader != shadow.broker_id or truth.topic in self.synced_topics:
                continue
            holders = [each for each in before.state.isr if each in after.reliable and each != shadow.broker_id]
            if shadow.forgot(batch.last_offset) and not any(truth.shadows[each].holds(batch) for each in holders):
                return "machine crash"
        return None

    def _elections_to(self, truth: Truth, epoch: int) -> Iterator[tuple[Election, Election]]:
        """Each that led from the leader before to the one of this epoch, behind the state that it replaced."""
        started = max((each for each in truth.leaders if each < epoch), default=-1)
        for before, after in pairwise(self._elections.get((truth.topic, truth.partition), [])):
            if started < after.state.leader_epoch <= epoch and after.state.leader != NO_LEADER:
                yield before, after

    # -- what the metadata store holds

    def stored(self, path: str, data: bytes | None) -> None:
        """A node was written (None: is gone)."""
        if path.startswith(paths.TOPICS) and path.endswith("/state"):
            self._stored_state(path, data)
        elif path.startswith(paths.BROKER_IDS + "/"):
            broker_id = int(path.rpartition("/")[2])
            self._registered.pop(broker_id, None)
            if data is not None:
                self._registered[broker_id] = self._now()
                if self._returned.get(broker_id) == math.inf:
                    self._returned[broker_id] = self._now()
        elif path == paths.CONTROLLER_EPOCH and data is not None:
            self._controller_epoch = int(data)

    def _stored_state(self, path: str, data: bytes | None) -> None:
        _, _, _, topic, _, index, _ = path.split("/")
        key = topic, int(index)
        if data is None:
            self._elections.pop(key, None)
            for truth in self._by_name.get(key, ()):
                truth.is_deleted = True
            return

        state = PartitionState.decode(data, path)
        history = self._elections.setdefault(key, [])
        settled = self._now() - SETTLED_SECONDS
        written = history[-1].written if history else -math.inf
        reliable = frozenset(
            each
            for each, since in self._registered.items()
            if since < settled and self._returned.get(each, -math.inf) <= written
        )
        if history:
            last = history[-1].state
            if state.leader_epoch < last.leader_epoch or state.controller_epoch < last.controller_epoch:
                self.violate("I14", f"{topic}-{index}: {state} follows {last}")
            if state.leader_epoch == last.leader_epoch and NO_LEADER != state.leader != last.leader:
                self.violate("I14", f"{topic}-{index}: another leader in the same epoch: {state} follows {last}")

        if state.controller_epoch < self._controller_epoch and not self.leaders_write_states:
            self.violate("I14", f"{topic}-{index}: {state} of an older controller than {self._controller_epoch}")
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self.violate("I14", f"{topic}-{index}: the leader is not in sync in {state}")
        history.append(Election(state, self._now(), reliable))
        self._tell(f"{topic}-{index}: leader {state.leader}, epoch {state.leader_epoch}, in sync {list(state.isr)}")

    # -- what brokers answer

    def answered(self, event: Event) -> None:
        """An event of the clients' history."""
        if event.kind == ACKED:
            self._check_acked(event)
        elif event.kind == READ:
            self._check_read(event)
        elif event.kind == REFUSED:
            self._refused[event.topic, event.partition, event.digest] = None
            for truth in self._by_name.get((event.topic, event.partition), ()):
                if any(batch.crc == event.digest for batch in truth.committed):
                    self.violate("I7", f"{truth}: a batch of {event.producer} is there and was refused")
        elif event.kind == OUT_OF_ORDER:
            self._check_out_of_order(event)
        elif event.kind == COMMITTED:
            self._groups.committed(event)
        elif event.kind == UNANSWERED:
            self._groups.unanswered(event)
        elif event.kind == RESUMED:
            self._groups.resumed(event)

    def _check_out_of_order(self, event: Event) -> None:
        """I7: the oldest unacknowledged sequence was refused as out of order, so a record before it is lost.

        Without acks=all, not a violation if the broker is not the newest leader: it may lack records of the newest one.
        Nor for the first sequence, unless it is committed: a leader that lacks it does not know the producer, and
        accepts any sequence as the producer's first one.
        """
        truths = self._by_name.get((event.topic, event.partition), [])
        if len(truths) != 1 or truths[0].cuts:
            return
        if event.acks != -1 and event.leader_epoch != max(truths[0].leaders, default=-1):
            return
        if event.sequence == 0 and all(batch.crc != event.digest for batch in truths[0].committed):
            return
        where = f"{truths[0]}: sequence {event.sequence} of {event.producer}"
        self.violate("I7", f"{where} is refused, and everything before it was acknowledged")

    def _check_acked(self, event: Event) -> None:
        if event.acks != -1 or event.offset < 0:
            return
        truths = self._by_name.get((event.topic, event.partition), [])
        for truth in truths:
            batch = truth.committed_at(event.offset)
            if batch is not None and batch.crc == event.digest:
                truth.acked[event.offset] = None
                self.in_sync.acked(truth, batch)
                return
            if truth.is_lost(event.offset, event.digest):
                return
        where = f"{event.topic}-{event.partition} offset {event.offset}"
        self.violate("I12", f"{where} of {event.producer}, sequence {event.sequence}, is acknowledged, not committed")

    def _check_read(self, event: Event) -> None:
        truth = self.truths.get((self.identity(event.topic, event.topic_id) or b"", event.partition))
        batch = None if truth is None else truth.committed_at(event.offset)
        if truth is not None and batch is not None and batch.crc == event.digest:
            truth.served[event.offset] = None
            if (skipped := truth.skipped(event.position, event.offset)) is not None:
                self.violate(
                    "I20", f"{event.producer} was at {event.position} of {truth}, and was not served {skipped}"
                )
        elif truth is None or not truth.is_lost(event.offset, event.digest):
            where = f"{event.topic}-{event.partition} offset {event.offset}"
            self.violate("I3", f"{event.producer} was served {event.digest:x} at {where}, where {batch} is committed")

    def read_table(
        self, name: str, where: tuple[str, bytes, int], table: Table, stable_offset: int, seconds: float
    ) -> None:
        """A reader of committed records has read a compacted topic from its beginning up to this offset."""
        topic, topic_id, partition = where
        truth = self.truths.get((self.identity(topic, topic_id) or b"", partition))
        if truth is not None and self.transactions is not None:
            may_lack = seconds >= self.tombstone_seconds
            check_table(self.transactions, truth, name, table, stable_offset, may_lack_tombstones=may_lack)

    def read_committed(
        self, name: str, where: tuple[str, bytes, int], served: Sequence[BatchHeader], delivered: set[int]
    ) -> None:
        """A reader of committed records was served batches, and gives those at some base offsets to its user."""
        topic, topic_id, partition = where
        truth = self.truths.get((self.identity(topic, topic_id) or b"", partition))
        if truth is not None and self.transactions is not None:
            self.transactions.read(truth, name, served, delivered)

    # -- groups

    def owns(self, group: str, generation: int, member: str, topic: str, partitions: Sequence[int]) -> None:
        """A member learned what it owns in this generation."""
        if self.transactions is not None:
            self.transactions.generation(group, generation)
        self._groups.owns(group, generation, member, topic, partitions)
        self._tell(f"{member} owns {list(partitions)} of {topic} in generation {generation} of {group}")


def _end_that_was_found(truth: Truth, broker_id: int, partition: "Partition", log: "PartitionLog") -> int:
    """Where the log ended that the process found: a leader may have appended in the very step in which it began."""
    epoch = partition.leader_epoch
    if partition.is_leader and truth.leaders.get(epoch) != broker_id:
        return min([log.log_end_offset, *(start for each, start in log.epochs.entries if each == epoch)])
    return log.log_end_offset


def _was_being_cut(shadow: Shadow) -> bool:
    """Whether the process that had the replica before ended in the middle of a truncation: by a fault of the disk."""
    return shadow.log is not None and shadow.log.segments.generation != shadow.generation


def _is_unclean(before: Election, after: Election) -> bool:
    return after.state.leader not in before.state.isr
