"""One partition as this broker sees it: role, in-sync replicas, high watermark, and who waits for it.

Three offsets order a partition's life (reference C.6):

    log start offset <= high watermark <= log end offset

The leader appends at the log end; the high watermark follows when every in-sync replica has the records; consumers see
what lies below it. State changes only inside synchronous methods, so whatever is true when a method begins is true
until it returns: role and epoch are checked in the same step that appends.

Roles are given by LeaderAndIsr alone (`replicas.py`); a partition never decides that it leads.
"""

import logging
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.broker.replication.isr import (
    UNKNOWN_OFFSET,
    Follower,
    LagLimits,
    Pulse,
    decide_high_watermark,
    decide_low_watermark,
    decide_shrunk,
    is_caught_up,
    may_join,
)
from barnabas.broker.replication.waiting import Decisions, Waiter, wake
from barnabas.storage.disk import StorageError
from barnabas.storage.log import Appended, PartitionLog, Read
from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.sentinels import ACKS_ALL, NO_LEADER, NO_LEADER_EPOCH, UNKNOWN_BROKER_EPOCH
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.config.live import TopicConfig
    from barnabas.storage.flusher import Flusher
    from barnabas.wire.records import Batch

logger = logging.getLogger(__name__)

RECOVERED = 0
RECOVERING = 1  # elected although no in-sync replica was left: it leads with what it has (KIP-704)
TO_HIGH_WATERMARK = -1  # in DeleteRecords: everything that is committed


class Role(NamedTuple):
    """What LeaderAndIsr says of one partition."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    leader_recovery_state: int
    is_new: bool


class AskedIsr(NamedTuple):
    """What the controller is asked for: other in-sync replicas, or the same after a recovery."""

    in_sync_replicas: list[int]
    leader_epoch: int
    partition_epoch: int  # of the state that is to be changed
    broker_epochs: dict[int, int]  # of the lives in which the followers among them fetched what is said of them


class FollowerWatch(Protocol):
    """What a leader needs in order to judge its followers, and who acts on that (`alter_partition.py`)."""

    @property
    def limits(self) -> LagLimits: ...

    def now_ms(self) -> float:
        """The time by which followers are measured: it never jumps."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether the controller takes this broker for alive."""

    def ask(self, partition: "Partition") -> None:
        """Ask the controller for what is in `partition.asked_isr`."""


class Partition:
    """One replica of one partition. Made by `Replicas`; its log is None while its directory is offline."""

    __slots__ = (
        "_broker_id",
        "_fail",
        "_flusher",
        "_now_ms",
        "_watch",
        "asked_isr",
        "config",
        "controller_epoch",
        "epoch_start_offset",
        "fetched_by_id",
        "followers",
        "high_watermark",
        "in_sync_replicas",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "leader_recovery_state",
        "leading_since",
        "log",
        "partition_epoch",
        "replicas",
        "topic_partition",
        "waiters",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: "TopicConfig",
        broker_id: int,
        now_ms: Callable[[], int],
        flusher: "Flusher",
        fail: Callable[["Partition", StorageError], None],
        watch: FollowerWatch,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.log: PartitionLog | None = None
        self.leader_id = NO_LEADER
        self.is_leader = False
        self.leader_epoch = -1
        self.leading_since = -1  # the leader epoch in which this broker began to lead, if it leads
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.leader_recovery_state = RECOVERED
        self.fetched_by_id = True  # where it is followed: its role was given with the topic's id
        self.replicas: list[int] = []
        self.in_sync_replicas: list[int] = []
        self.asked_isr: AskedIsr | None = None  # until the controller has answered, or has given another role
        self.epoch_start_offset = 0  # where the log ended when this leadership began
        self.followers: dict[int, Follower] = {}  # of this leader, by broker id
        self.high_watermark = 0
        self.waiters: dict[Waiter, None] = {}
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._flusher = flusher
        self._fail = fail
        self._watch = watch

    # -- roles, set by LeaderAndIsr

    def become(self, log: PartitionLog, role: Role) -> None:
        """Take the role that LeaderAndIsr gave, in one step; waiting requests look again."""
        self.log = log
        self.partition_epoch, self.controller_epoch = role.partition_epoch, role.controller_epoch
        self.leader_recovery_state = role.leader_recovery_state
        # A new epoch of the same leader keeps its log as it is, so waiting appends go on. They are refused only when
        # this broker was not the leader in between, for then their records may have been truncated.
        if role.leader_id == self._broker_id and not self.is_leader:
            self.leading_since = role.leader_epoch
        self.leader_id = role.leader_id
        self.is_leader = role.leader_id == self._broker_id
        self.replicas = role.replicas
        self.in_sync_replicas = role.in_sync_replicas if self.is_leader else []
        self.asked_isr = None  # the role answers what was asked, or makes it void
        if role.leader_epoch != self.leader_epoch:
            self.leader_epoch = role.leader_epoch
            self.followers = {}  # what they fetched in the last epoch may have been truncated since
            if self.is_leader:
                log.begin_leader_epoch(role.leader_epoch)
                # Until the high watermark reaches this offset a log end may lie before one that an earlier leader gave.
                self.epoch_start_offset = log.log_end_offset
        self._know_followers()
        # The checkpointed high watermark may lie outside a log that was truncated, or whose beginning was deleted.
        self.high_watermark = min(max(self.high_watermark, log.log_start_offset), log.log_end_offset)
        self._advance_high_watermark()
        wake(self)
        if self.is_leader and role.leader_recovery_state == RECOVERING:
            self._ask_isr(role.in_sync_replicas)  # nothing to recover: asking for the same ISR says so

    def _know_followers(self) -> None:
        """Those in sync have `replica.lag.time.max.ms` from now on to fetch for the first time."""
        if not self.is_leader:
            self.followers = {}
            return
        now_ms = self._watch.now_ms()
        known = self.followers
        self.followers = {each: known.get(each) or Follower(each) for each in self.replicas if each != self._broker_id}
        for replica in self.in_sync_replicas:
            if replica in self.followers and replica not in known:
                self.followers[replica].last_caught_up_ms = now_ms

    def log_moved(self, log: PartitionLog) -> None:
        """The log is replaced by one with the same records in another directory; clients do not notice."""
        self.log = log
        self._advance_high_watermark()
        wake(self)

    def resign(self) -> None:
        """The partition leaves this broker, or its directory failed: it leads no more, and waiters are woken."""
        self.is_leader = False
        self.leader_id = NO_LEADER
        self.log = None
        self.asked_isr = None
        self.followers = {}
        wake(self)

    # -- what a follower's fetcher reports

    def follow_to(self, leader_high_watermark: int) -> None:
        """A fetch response brought the leader's high watermark: this replica's follows it, within its log.

        It does not fall back to a leader's that is behind ours: everything below ours was committed once.
        """
        log = self.log
        if log is None or self.is_leader:
            return
        reached = max(self.high_watermark, log.log_start_offset, min(leader_high_watermark, log.log_end_offset))
        if reached != self.high_watermark:
            self._move_high_watermark(log, reached)
            wake(self)

    def truncated(self) -> None:
        """The log was cut, or emptied to begin elsewhere: the one reason for which a high watermark may fall."""
        log = self.log
        if log is not None:
            self.high_watermark = min(max(self.high_watermark, log.log_start_offset), log.log_end_offset)
            wake(self)

    # -- reads

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed consumer stops: the first open transaction, or the high watermark."""
        return self.log.last_stable_offset(self.high_watermark) if self.log else self.high_watermark

    def read(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool) -> Read | ErrorCode:
        """What to send of the log from `offset` up to `end_offset`, at most `max_bytes` (a first batch may be larger).

        Errors: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
        """
        if self.log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            return self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        except StorageError as error:
            return self.fail_storage(error)

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Whether a client's idea of the leader epoch is ours; -1 means that it does not say (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def leader_log(self, current_leader_epoch: int) -> PartitionLog | ErrorCode:
        """The log, if we lead and the client's leader epoch is ours: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        NOT_LEADER_OR_FOLLOWER."""
        refused = self.check_leader_epoch(current_leader_epoch)
        if refused:
            return refused
        return self.log if self.is_leader and self.log is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def local_log(self, current_leader_epoch: int) -> PartitionLog | ErrorCode:
        """The same, whether or not we lead."""
        refused = self.check_leader_epoch(current_leader_epoch)
        if refused:
            return refused
        return self.log if self.log is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -- deletion of records (KIP-107)

    def delete_records(self, offset: int) -> int | ErrorCode:
        """Let the log start at this offset, or at the high watermark (-1); where it was asked to start.

        It lasts when the log start offsets are checkpointed. Errors: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (the
        topic is only compacted), OFFSET_OUT_OF_RANGE (below zero, or beyond the high watermark).
        """
        if self.log is None or not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.config.deletes:
            return ErrorCode.POLICY_VIOLATION
        if offset == TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self.log.raise_log_start(offset)
        wake(self)
        return offset

    def low_watermark(self, live_brokers: Container[int]) -> int:
        """The lowest log start offset of the live replicas: below it, the records are gone everywhere."""
        if self.log is None:
            return UNKNOWN_OFFSET
        live = [replica for replica in self.replicas if replica in live_brokers]
        return decide_low_watermark(self.log.log_start_offset, live, self.followers)

    def deletion_outcome(self, offset: int, live_brokers: Container[int]) -> int | ErrorCode | None:
        """How a deletion up to `offset` stands: the low watermark that reached it, an error, None while it waits."""
        if self.log is None or not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        low_watermark = self.low_watermark(live_brokers)
        return low_watermark if low_watermark >= offset else None

    # -- appends

    def append_as_leader(self, batch: "Batch", origin: Origin, required_acks: int = ACKS_ALL) -> Appended | ErrorCode:
        """Append one checked batch as the leader; synchronous, so role, epoch, ISR and sequence hold together.

        Errors: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all below min.insync.replicas), KAFKA_STORAGE_ERROR,
        and those of the producer's state (OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH ...).
        """
        log = self.log
        if not self.is_leader or log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == ACKS_ALL and self._lacks_replicas(len(self.in_sync_replicas)):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        try:
            appended = log.append_as_leader(batch, leader_epoch=self.leader_epoch, origin=origin, now_ms=self._now_ms())
        except StorageError as error:
            return self.fail_storage(error)
        except InvariantBroken as error:
            logger.exception("%s contradicts itself", self.topic_partition)
            self._fail(self, StorageError(log.directory, "append", str(error)))
            return ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(appended, Appended) and not appended.duplicate:
            if log.flush_demanded:
                self._flusher.want(log)
            self._advance_high_watermark()
            if self.waiters:
                wake(self)
        return appended

    def outcome(self, end_offset: int, leading_since: int, required_acks: int) -> ErrorCode | None:
        """How a produce that ended before `end_offset` stands; None while it must wait.

        The controller may give the same leader a new epoch, as it does when a follower dies: what was appended is still
        on its way. Only who led with an interruption (`leading_since`) may have lost it meanwhile.
        """
        if self.log is None or not self.is_leader or self.leading_since != leading_since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks != ACKS_ALL:
            return ErrorCode.NONE if self.log.acknowledgeable_offset >= end_offset else None
        if self.high_watermark < end_offset:
            return None
        if self._lacks_replicas(sum(map(self._is_in_maximal_isr, self.replicas))):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    async def await_high_watermark(self, end_offset: int, deadline: float) -> ErrorCode:
        """Wait until everything below `end_offset` is committed while this broker leads.

        NONE; NOT_LEADER_OR_FOLLOWER when the role changed; REQUEST_TIMED_OUT at `deadline` (trio's clock).
        """
        decisions = acknowledgements([AppendedUpTo(self, end_offset, self.leading_since)], ACKS_ALL)
        await decisions.wait(deadline)
        (outcome,) = decisions.decided
        return ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome

    def fail_storage(self, error: StorageError) -> ErrorCode:
        """Its disk failed under a read that ran elsewhere: the directory goes offline. The error for clients."""
        self._fail(self, error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def flushed(self) -> None:
        """A demanded flush ended: the leader's share of the high watermark may have moved."""
        self._advance_high_watermark()
        wake(self)

    def reconfigured(self) -> None:
        """The topic's or the broker's configuration changed: fewer replicas may be enough for a commit now."""
        self._advance_high_watermark()
        wake(self)

    def _lacks_replicas(self, in_sync: int) -> bool:
        """Whether so many in sync are too few for acks=all and for a commit.

        A partition with fewer replicas than min.insync.replicas needs them all.
        """
        return in_sync < self.config.min_insync_replicas and in_sync < len(self.replicas)

    def _advance_high_watermark(self) -> bool:
        """Whether it moved."""
        if not self.is_leader or self.log is None or self._lacks_replicas(len(self.in_sync_replicas)):
            return False  # Kafka 3.9 commits nothing that too few replicas hold (the first part of KIP-966)
        before = self.high_watermark
        reached = decide_high_watermark(
            before, self.log.acknowledgeable_offset, self.followers.values(), self._is_awaited
        )
        if reached != before:
            self._move_high_watermark(self.log, reached)
        return reached != before

    def _move_high_watermark(self, log: PartitionLog, offset: int) -> None:
        """It rises. Open transactions below it are forgotten, also on followers, which no consumer may read."""
        self.high_watermark = offset
        log.producers.forget_committed(offset)

    # -- followers and the ISR (reference C.5, C.6)

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        pulse: Pulse | None = None,
    ) -> Follower | None:
        """A follower's fetch was found to be in order: it has what is below `fetch_offset`. None if it is no follower.

        To be called with the first look at the partition alone: when records come while the fetch waits, it does not
        know of them, and counts as if it had come when it came.
        """
        follower = self.followers.get(replica_id)
        log = self.log
        if follower is None or log is None:
            return None
        follower.fetched(fetch_offset, log.log_end_offset, self._watch.now_ms(), pulse or Pulse())
        follower.broker_epoch = broker_epoch
        if log_start_offset != follower.log_start_offset:
            follower.log_start_offset = log_start_offset
            wake(self)  # a deletion may wait for it
        self._expand(follower)
        if self._advance_high_watermark():
            wake(self, log_grew=False)
        return follower

    def shrink(self) -> None:
        """Ask for an ISR without the followers that are stuck or too slow.

        Called in regular intervals: the time that passed may also have freed the high watermark from one that was as
        good as in sync.
        """
        log = self.log
        if not self.is_leader or log is None:
            return
        if self._advance_high_watermark():
            wake(self, log_grew=False)
        if self.asked_isr is not None:
            return
        watch = self._watch
        left = decide_shrunk(self.in_sync_replicas, self.followers, log.log_end_offset, watch.now_ms(), watch.limits)
        if len(left) < len(self.in_sync_replicas):
            self._ask_isr(left)

    def isr_changed(
        self, asked: AskedIsr, in_sync_replicas: list[int], partition_epoch: int, leader_recovery_state: int
    ) -> None:
        """The controller agreed: this is the ISR now, and its epoch."""
        if self.asked_isr is not asked or partition_epoch < self.partition_epoch:
            return  # a role that came meanwhile knows better
        self.asked_isr = None
        self.in_sync_replicas = in_sync_replicas
        self.partition_epoch, self.leader_recovery_state = partition_epoch, leader_recovery_state
        self._advance_high_watermark()
        wake(self)

    def isr_refused(self, asked: AskedIsr) -> None:
        """The controller did not do it and will not: the ISR is what it was."""
        if self.asked_isr is asked:
            self.asked_isr = None
            self._advance_high_watermark()
            wake(self)

    def is_in_sync(self, follower: Follower) -> bool:
        """Whether it is in the ISR. Who is not joins by a fetch, so each of its fetches must be looked at."""
        return follower.broker_id in self.in_sync_replicas

    def _expand(self, follower: Follower) -> None:
        """Ask for a follower that fetches at this moment.

        Where it was a moment ago is not enough: it may have died since, and come back without what it had.
        """
        replica = follower.broker_id
        if (
            self.asked_isr is None
            and not self.is_in_sync(follower)
            and may_join(follower, self.high_watermark, self.epoch_start_offset)
            and self._watch.is_alive(replica)
        ):
            self._ask_isr([*self.in_sync_replicas, replica])

    def _ask_isr(self, in_sync_replicas: list[int]) -> None:
        epochs = {each: self.followers[each].member_epoch for each in in_sync_replicas if each in self.followers}
        self.asked_isr = AskedIsr(in_sync_replicas, self.leader_epoch, self.partition_epoch, epochs)
        self._watch.ask(self)

    def _is_in_maximal_isr(self, replica: int) -> bool:
        """Whether it is in sync or about to be: what is asked for may have been written already."""
        asked = self.asked_isr
        return replica in self.in_sync_replicas or (asked is not None and replica in asked.in_sync_replicas)

    def _is_awaited(self, follower: Follower) -> bool:
        """Whether the high watermark waits for it: it is in sync, or as good as, and will be at its next fetch."""
        # Also one that was only asked into the ISR: the controller may have written it there already.
        if self._is_in_maximal_isr(follower.broker_id):
            return True
        # One that is caught up joins at its next fetch. If the high watermark did not wait for it, it could stay behind
        # a leader that commits alone, and would never join.
        watch, log = self._watch, self.log
        return (
            log is not None
            and is_caught_up(follower, log.log_end_offset, watch.now_ms(), watch.limits)
            and watch.is_alive(follower.broker_id)
        )


class AppendedUpTo(NamedTuple):
    """Records of one request in one partition, to be acknowledged."""

    partition: Partition
    end_offset: int
    leading_since: int  # the epoch in which this broker became the leader that appended them


def acknowledgements(appends: Sequence[AppendedUpTo], required_acks: int) -> Decisions[ErrorCode]:
    """How several appends stand: their error codes, in the same order."""

    def outcome_of(index: int) -> ErrorCode | None:
        partition, end_offset, leading_since = appends[index]
        return partition.outcome(end_offset, leading_since, required_acks)

    return Decisions([each.partition for each in appends], outcome_of)
