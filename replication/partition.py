"""One partition on this broker: its role, in-sync replicas, high watermark, and the requests that wait for it.

Three offsets order a partition's life (reference C.6):

    log start offset <= high watermark <= log end offset

The leader appends at the log end offset. The high watermark rises when every in-sync replica has the records; consumers
read below it. State changes only inside synchronous methods, so no other task runs between the first and the last line
of a method.

Only LeaderAndIsr gives roles (`replicas.py`). The rules for the ISR and the high watermark are pure functions in
`isr.py`; this file applies them.
"""

import logging
from collections.abc import Awaitable, Callable, Container
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.replication.confirmation import Confirmation, awaited_mark_of, confirm
from barnabas.replication.isr import (
    UNKNOWN_OFFSET,
    Arrival,
    AskedIsr,
    Follower,
    LagLimits,
    Pulse,
    decide_high_watermark,
    decide_low_watermark,
    decide_shrunk,
    is_caught_up,
    may_join,
)
from barnabas.storage.disk import StorageError
from barnabas.storage.log import Appended, PartitionLog
from barnabas.storage.producers import Origin
from barnabas.storage.segments import Read
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.sentinels import ACKS_ALL, NO_LEADER, NO_LEADER_EPOCH, UNKNOWN_BROKER_EPOCH
from barnabas.wire.topics import TopicPartition
from barnabas.world.outstanding import Outstanding
from barnabas.world.tally import TopicTally
from barnabas.world.waiting import Waiter, await_decision, wake

if TYPE_CHECKING:
    from barnabas.config.live import TopicConfig
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.verification import Guard
    from barnabas.wire.records import Batch

logger = logging.getLogger(__name__)

RECOVERED = 0
RECOVERING = 1  # the leader was elected although no in-sync replica was left (unclean; KIP-704)
TO_HIGH_WATERMARK = -1  # the offset in a DeleteRecords request that means the high watermark


class Deletion(NamedTuple):
    """The result of a deletion of records: an error, or an offset (log start offset or low watermark)."""

    error_code: ErrorCode
    offset: int = UNKNOWN_OFFSET


class Role(NamedTuple):
    """The state that LeaderAndIsr carries for one partition."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    leader_recovery_state: int
    is_new: bool


class FollowerWatch(Protocol):
    """What a leader needs to judge its followers and to request a new ISR. Implemented by `AlterPartition`."""

    @property
    def limits(self) -> LagLimits: ...

    def now_ms(self) -> float:
        """A monotonic clock in ms: the lag of followers must not depend on corrections of the wall clock."""

    def mark(self) -> int:
        """A number above all that were given before, from 1: what came first, a fetch or a read."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether this broker is alive in the metadata that the controller sent."""

    def ask(self, partition: "Partition") -> None:
        """Ask the controller for the ISR in `partition.asked_isr`."""


class Partition:
    """One replica of one partition. Created by `Replicas`; its log is None while its directory is offline."""

    __slots__ = (
        "_broker_id",
        "_fail",
        "_flusher",
        "_now_ms",
        "_outstanding",
        "_watch",
        "asked_isr",
        "config",
        "confirmation",
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
        "leads_again_after",
        "log",
        "partition_epoch",
        "replicas",
        "tally",
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
        tally: TopicTally | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.tally = TopicTally() if tally is None else tally  # all partitions of the topic share it
        self.config = config
        self.log: PartitionLog | None = None
        self.leader_id = NO_LEADER
        self.is_leader = False

        # The epochs begin below every epoch of a controller, so the first role is a newer one.
        self.leader_epoch = -1
        self.leading_since = -1  # the leader epoch in which this broker last began to lead
        self.leads_again_after = 0  # the mark when it last began to lead again; 0 before that
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.leader_recovery_state = RECOVERED
        self.fetched_by_id = True  # on a follower: LeaderAndIsr gave the topic's id, so Fetch can use it
        self.replicas: list[int] = []

        # The committed ISR: what the controller sent or accepted last. The high watermark waits for `asked_isr`, too.
        self.in_sync_replicas: list[int] = []
        self.asked_isr: AskedIsr | None = None  # set until the controller answers or LeaderAndIsr brings a state
        self.epoch_start_offset = 0  # the log end offset when this leader epoch began
        self.followers: dict[int, Follower] = {}  # by broker id; empty unless this broker leads

        # `Replicas` sets the checkpointed value. 0 is safe without one: a value that is too low delays reads and
        # acknowledgements, one that is too high would show consumers uncommitted records.
        self.high_watermark = 0

        # A dict serves as an ordered set: the order of wake-ups must not depend on hashes, or no run is repeatable.
        self.waiters: dict[Waiter, None] = {}
        self._outstanding = Outstanding()
        self.confirmation: Confirmation | None = None
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._flusher = flusher
        self._fail = fail
        self._watch = watch

    # -- roles, set by LeaderAndIsr

    def become(self, log: PartitionLog, role: Role) -> None:
        """Take the role that LeaderAndIsr gave, in one step, and wake the requests that wait."""
        self.log = log
        self.partition_epoch = role.partition_epoch
        self.controller_epoch = role.controller_epoch
        self.leader_recovery_state = role.leader_recovery_state

        # `leading_since` changes only if this broker did not lead before. A new leader epoch of the same leader leaves
        # the log as it is, so waiting appends may go on. After an interruption their records may have been truncated,
        # and the changed `leading_since` refuses them (`outcome`).
        is_leader = role.leader_id == self._broker_id
        if is_leader and not self.is_leader:
            self.leads_again_after = self._watch.mark() if self.leading_since >= 0 else 0
            self.leading_since = role.leader_epoch
        self.leader_id = role.leader_id
        self.is_leader = is_leader
        self.replicas = role.replicas

        # A follower keeps no ISR: changes by AlterPartition reach the leader alone, so the copy would be out of date.
        self.in_sync_replicas = role.in_sync_replicas if self.is_leader else []

        # LeaderAndIsr carries a newer state than the one that a pending ISR change was based on.
        self.asked_isr = None
        if role.leader_epoch != self.leader_epoch:
            self.leader_epoch = role.leader_epoch

            # Followers may have truncated records since their fetches under the last epoch.
            self.followers = {}
            self._outstanding.clear()
            if self.is_leader:
                log.begin_leader_epoch(role.leader_epoch)

                # The new leader's high watermark may be behind the last leader's. A follower may join the ISR only
                # when it has everything up to this offset, so that no committed record can get lost (`may_join`).
                self.epoch_start_offset = log.log_end_offset

        self._know_followers()

        # The checkpointed high watermark may lie outside a log that was truncated, or whose beginning was deleted.
        self.high_watermark = min(max(self.high_watermark, log.log_start_offset), log.log_end_offset)

        # With a single-replica ISR no follower's fetch would raise the high watermark later.
        self._advance_high_watermark()
        wake(self)

        # KIP-704: the leader of an unclean election confirms the same ISR with the state RECOVERED. It has nothing to
        # recover.
        if self.is_leader and role.leader_recovery_state == RECOVERING:
            self._ask_isr(role.in_sync_replicas)

    def _know_followers(self) -> None:
        """Keep one `Follower` for each other replica. Replicas that are known already keep their state."""
        if not self.is_leader:
            self.followers = {}
            return
        now_ms = self._watch.now_ms()
        known = self.followers
        self.followers = {each: known.get(each) or Follower(each) for each in self.replicas if each != self._broker_id}
        # A new leader knows nothing about its followers. ISR members count as caught up now, which gives them
        # `replica.lag.time.max.ms` for their first fetch before `shrink` removes them.
        for replica in self.in_sync_replicas:
            if replica in self.followers and replica not in known:
                self.followers[replica].last_caught_up_ms = now_ms

    def log_moved(self, log: PartitionLog) -> None:
        """A move to another log directory ended: the new log has the same records (`log_dir_moves.py`)."""
        self.log = log
        self._advance_high_watermark()
        wake(self)

    def resign(self) -> None:
        """End the role and wake the waiters: the replica is removed from this broker, or its log directory failed."""
        # The epochs stay: a delayed LeaderAndIsr of an earlier epoch is still refused.
        self.leader_id = NO_LEADER
        self.is_leader = False
        self.log = self.asked_isr = None
        self.followers = {}
        wake(self)

    # -- calls of a follower's fetcher

    def follow_to(self, leader_high_watermark: int) -> None:
        """A fetch response carried the leader's high watermark: raise this replica's, up to its log end offset."""
        log = self.log
        if log is None or self.is_leader:
            return
        # A new leader may send a lower high watermark than this replica's. Records below the local one are committed,
        # so it does not fall; only a truncation lowers it (`truncated`).
        reached = max(self.high_watermark, log.log_start_offset, min(leader_high_watermark, log.log_end_offset))
        if reached != self.high_watermark:
            self._move_high_watermark(log, reached)
            wake(self)

    def truncated(self) -> None:
        """The log was truncated, or emptied to start at another offset. As long as a replica keeps its log, its high
        watermark falls only here."""
        log = self.log
        if log is not None:
            self.high_watermark = min(max(self.high_watermark, log.log_start_offset), log.log_end_offset)
            wake(self)

    # -- reads

    @property
    def last_stable_offset(self) -> int:
        """The LSO, where a read_committed consumer stops: the first open transaction, or the high watermark."""
        return self.log.last_stable_offset(self.high_watermark) if self.log else self.high_watermark

    def read(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool) -> Read | ErrorCode:
        """The batches from `offset` up to `end_offset`, at most `max_bytes`; `at_least_one` lets the first be larger.

        Errors: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
        """
        if self.log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            return self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset, at_least_one=at_least_one)
        except StorageError as error:
            return self.fail_storage(error)

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare a client's leader epoch with this partition's (KIP-320); -1: the client sent none.

        Errors: FENCED_LEADER_EPOCH if the client's epoch is lower, UNKNOWN_LEADER_EPOCH if it is higher.
        """
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        # The client's metadata are older than this leadership, whose log may lack records that the client has read. The
        # error makes it check its position against the new epoch.
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        # The client has newer metadata than this broker, which has not got its LeaderAndIsr yet.
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def leader_log(self, current_leader_epoch: int) -> PartitionLog | ErrorCode:
        """The log, if this broker leads and `check_leader_epoch` passes.

        Errors: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        refused = self.check_leader_epoch(current_leader_epoch)
        if refused:
            return refused
        return self.log if self.is_leader and self.log is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def local_log(self, current_leader_epoch: int) -> PartitionLog | ErrorCode:
        """As `leader_log`, but also on a follower: for ListOffsets of the debugging replica id."""
        refused = self.check_leader_epoch(current_leader_epoch)
        if refused:
            return refused
        return self.log if self.log is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -- deletion of records (KIP-107)

    def delete_records(self, offset: int) -> Deletion:
        """Raise the log start offset to `offset`, or to the high watermark (-1). Returns the new log start offset.

        Durable with the next checkpoint of log start offsets. Errors: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION (the
        topic is only compacted), OFFSET_OUT_OF_RANGE (below zero, or beyond the high watermark).
        """
        if self.log is None or not self.is_leader:
            return Deletion(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # A topic that is only compacted promises to keep the last value of each key, so Kafka
        # refuses, too.
        if not self.config.deletes:
            return Deletion(ErrorCode.POLICY_VIOLATION)
        if offset == TO_HIGH_WATERMARK:
            offset = self.high_watermark
        # Uncommitted records stay: log start offset <= high watermark.
        if not 0 <= offset <= self.high_watermark:
            return Deletion(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.raise_log_start(offset)
        wake(self)
        return Deletion(ErrorCode.NONE, offset)

    def low_watermark(self, live_brokers: Container[int]) -> int:
        """The lowest log start offset of the live replicas; -1 without a log, or while a live follower's is unknown."""
        if self.log is None:
            return UNKNOWN_OFFSET
        # A dead replica would hold DeleteRecords until the timeout, so it does not count, as in
        # Kafka. When it is back it takes over the leader's log start offset.
        live = [replica for replica in self.replicas if replica in live_brokers]
        return decide_low_watermark(self.log.log_start_offset, live, self.followers)

    def deletion_outcome(self, offset: int, live_brokers: Container[int]) -> Deletion | None:
        """The low watermark once it has reached `offset`; NOT_LEADER_OR_FOLLOWER; None while followers are behind."""
        # The leadership may have ended during the wait, and the new leader may not have the new log start offset. The
        # error makes the client repeat the deletion there.
        if self.log is None or not self.is_leader:
            return Deletion(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        low_watermark = self.low_watermark(live_brokers)
        return Deletion(ErrorCode.NONE, low_watermark) if low_watermark >= offset else None

    # -- appends

    def begin_verification(self, producer_id: int, epoch: int, base_sequence: int) -> "Guard | ErrorCode | None":
        """The guard to append a transactional batch with, once the coordinator has verified it; None if a transaction
        of this epoch is open, and nothing is to be verified. Errors: NOT_LEADER_OR_FOLLOWER.
        """
        if not self.is_leader or self.log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.log.producers.begin_verification(producer_id, epoch, base_sequence, self._now_ms())

    def append_as_leader(
        self,
        batch: "Batch",
        origin: Origin,
        required_acks: int = ACKS_ALL,
        *,
        guard: "Guard | None" = None,
        is_verifying: bool = False,
    ) -> Appended | ErrorCode:
        """Append one validated batch as the leader. Synchronous: role, epoch, ISR and sequence are checked in the step
        that appends. With `is_verifying` a batch that begins a transaction needs the `guard` of `begin_verification`.

        Errors: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all below min.insync.replicas), KAFKA_STORAGE_ERROR,
        and those of the producer's state (OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH ...).
        """
        log = self.log
        tally = self.tally
        tally.produce_requests += 1  # refused ones count, too
        if not self.is_leader or log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER

        # The check comes before the append, so a refused batch is not in the log and the client may send it again.
        if required_acks == ACKS_ALL and self._lacks_replicas(len(self.in_sync_replicas)):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        try:
            appended = log.append_as_leader(
                batch,
                leader_epoch=self.leader_epoch,
                origin=origin,
                now_ms=self._now_ms(),
                guard=guard,
                is_verifying=is_verifying,
            )
        except StorageError as error:
            return self.fail_storage(error)
        except InvariantBroken as error:
            # The log contradicts itself, so further appends could corrupt it: its directory is treated as failed.
            logger.exception("%s contradicts itself", self.topic_partition)
            self._fail(self, StorageError(log.directory, "append", str(error)))
            return ErrorCode.KAFKA_STORAGE_ERROR

        # A duplicate was appended by an earlier request, so the log did not change.
        if isinstance(appended, Appended) and not appended.duplicate:
            tally.messages_in += batch.header.record_count
            tally.bytes_in += len(batch.data)
            if log.flush_demanded:
                self._flusher.want(log)

            # Without other in-sync replicas the records are committed at once.
            committed = self._advance_high_watermark()

            # Without followers no Fetch is held back for more batches, so this one need not be counted.
            more_expected = self.followers and self._outstanding.appended(appended.last_offset + 1)
            if self.waiters:
                wake(self, committed=committed, expected=self._outstanding if more_expected else None)

        return appended

    def outcome(self, end_offset: int, leading_since: int, required_acks: int) -> ErrorCode | None:
        """The error code for a Produce request's records below `end_offset`; None while the request must wait.

        Errors: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        # A new leader epoch alone is no reason to refuse: the same leader gets one when a follower dies, and the
        # records are still in the log. After an interruption of the leadership they may have been truncated.
        if self.log is None or not self.is_leader or self.leading_since != leading_since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        # acks=1 waits only for a flush that the topic demands (`flush.messages`); until that flush the acknowledgeable
        # offset stays behind the log end offset.
        if required_acks != ACKS_ALL:
            return ErrorCode.NONE if self.log.acknowledgeable_offset >= end_offset else None
        if self.high_watermark < end_offset:
            return None
        # The ISR may have shrunk below min.insync.replicas between the append and the commit. As in Kafka, the maximal
        # ISR counts here.
        in_sync = len(self.in_sync_replicas)
        if self.asked_isr is not None:
            in_sync = sum(map(self.is_in_maximal_isr, self.replicas))
        if self._lacks_replicas(in_sync):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def await_high_watermark(self, end_offset: int, deadline: float) -> Awaitable[ErrorCode]:
        """Wait until everything below `end_offset` is committed. The caller must be the leader.

        Returns NONE, the errors of `outcome`, or REQUEST_TIMED_OUT at `deadline` (trio's clock, s).
        """
        since = self.leading_since
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        return await_decision(self, lambda _: self.outcome(end_offset, since, ACKS_ALL), deadline, timed_out)

    def confirm(self, deadline: float) -> Awaitable[ErrorCode]:
        """Wait until it is certain that no other broker led this partition before the call (`confirmation.py`)."""
        return confirm(self, deadline)

    def mark(self) -> int:
        """A number above all that were given before, also for other partitions."""
        return self._watch.mark()

    def fail_storage(self, error: StorageError) -> ErrorCode:
        """Take the log directory offline after a failed read or append. Returns the error for clients."""
        self._fail(self, error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def look_again(self) -> None:
        """A flush ended, or the configuration changed, maybe min.insync.replicas: the high watermark may rise."""
        self._advance_high_watermark()
        wake(self)

    def _lacks_replicas(self, in_sync: int) -> bool:
        """Whether `in_sync` replicas are too few for acks=all and for the high watermark to rise."""
        # A partition with fewer replicas than min.insync.replicas needs all of them; otherwise no acks=all write could
        # ever succeed.
        return in_sync < self.config.min_insync_replicas and in_sync < len(self.replicas)

    def _advance_high_watermark(self) -> bool:
        """Raise the leader's high watermark as far as the followers allow. True if it moved."""
        # Kafka 3.9 does not commit while the ISR is smaller than min.insync.replicas (the first part of KIP-966).
        if not self.is_leader or self.log is None or self._lacks_replicas(len(self.in_sync_replicas)):
            return False
        before = self.high_watermark
        reached = decide_high_watermark(
            before, self.log.acknowledgeable_offset, self.followers.values(), self._is_awaited
        )
        if reached != before:
            self._move_high_watermark(self.log, reached)
        return reached != before

    def _move_high_watermark(self, log: PartitionLog, offset: int) -> None:
        """Raise the high watermark of a leader or a follower."""
        self.high_watermark = offset
        # A transaction whose marker is committed no longer holds back the LSO. Followers drop it too, because they may
        # become leaders.
        log.producers.forget_committed(offset)
        self._outstanding.committed(offset)

    # -- followers and the ISR (reference C.5, C.6)

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        pulse: Pulse | None = None,
        connection: int = 0,
    ) -> Follower | None:
        """Take over the position of a follower's valid Fetch: the follower has everything below `fetch_offset`.

        Called once per Fetch, when it arrives, and not when it is answered after a wait: the follower does not have the
        records that were appended meanwhile. `pulse` is the fetch session's. None if the broker is no replica.
        """
        follower = self.followers.get(replica_id)
        log = self.log
        if follower is None or log is None:
            return None
        arrival = Arrival(self.mark(), connection)
        follower.fetched(fetch_offset, log.log_end_offset, self._watch.now_ms(), pulse or Pulse(), arrival)
        follower.broker_epoch = broker_epoch  # before `_expand`, which sends it to the controller
        if log_start_offset != follower.log_start_offset:
            follower.log_start_offset = log_start_offset

            # DeleteRecords requests wait for the followers' log start offsets.
            wake(self)

        # The expansion comes first: the high watermark then waits for the new member.
        self._expand(follower)
        has_moved = self._advance_high_watermark()
        if self.confirmation is not None:
            self.confirmation.look()
        if has_moved:
            wake(self, log_grew=False)  # no records were added: the waiting Fetches of other followers sleep on
        return follower

    def shrink(self) -> None:
        """Ask for an ISR without the stuck and the slow followers. Called every `replica.lag.time.max.ms` / 2."""
        log = self.log
        if not self.is_leader or log is None:
            return
        # The high watermark also waits for caught-up followers outside the ISR (`_is_awaited`). One that stops fetching
        # is no longer caught up after a while, and no Fetch comes that would raise the high watermark then.
        if self._advance_high_watermark():
            wake(self, log_grew=False)
        # One change at a time: the response brings the partition epoch that the next request needs.
        if self.asked_isr is not None:
            return
        watch = self._watch
        in_sync = self.in_sync_replicas
        limits = watch.limits
        awaited_mark = awaited_mark_of(self)
        left = decide_shrunk(in_sync, self.followers, log.log_end_offset, watch.now_ms(), limits, awaited_mark)
        if len(left) < len(in_sync):
            self._ask_isr(left)

    def isr_changed(
        self, asked: AskedIsr, in_sync_replicas: list[int], partition_epoch: int, leader_recovery_state: int
    ) -> None:
        """The controller accepted the change: take over its ISR and partition epoch."""
        # LeaderAndIsr may overtake the response and carry a newer state.
        if self.asked_isr is not asked or partition_epoch < self.partition_epoch:
            return
        self.asked_isr = None
        self._count_isr_change(len(in_sync_replicas) - len(self.in_sync_replicas))
        self.in_sync_replicas = in_sync_replicas
        self.partition_epoch = partition_epoch
        self.leader_recovery_state = leader_recovery_state
        self._advance_high_watermark()
        wake(self)

    def isr_refused(self, asked: AskedIsr) -> None:
        """The controller certainly did not make the change: the ISR stays."""
        if self.asked_isr is asked:
            self.asked_isr = None
            self.tally.failed_isr_updates += 1
            # The high watermark no longer waits for the refused members, unless they are caught up.
            self._advance_high_watermark()
            wake(self)

    def _count_isr_change(self, grown: int) -> None:
        # Kafka counts what the controller has accepted, not what was asked for.
        self.tally.isr_expands += grown > 0
        self.tally.isr_shrinks += grown < 0

    def is_in_sync(self, follower: Follower) -> bool:
        """Whether the follower is in the ISR. Only a Fetch adds one (`_expand`), so a fetch session must plan the
        partition of a follower outside the ISR in every request."""
        return follower.broker_id in self.in_sync_replicas

    def _expand(self, follower: Follower) -> None:
        """Ask for an ISR with this follower, which has just sent a Fetch, if it is far enough."""
        # This runs only in the step of the follower's Fetch. An earlier offset proves nothing: the follower may have
        # died since and lost the end of its log.
        replica = follower.broker_id
        if (
            self.asked_isr is None
            and not self.is_in_sync(follower)
            and may_join(follower, self.high_watermark, self.epoch_start_offset)
            and self._watch.is_alive(replica)
        ):
            self._ask_isr([*self.in_sync_replicas, replica])

    def _ask_isr(self, in_sync_replicas: list[int]) -> None:
        # The epochs are those of the Fetches that justify this ISR, not those at the time of sending: a follower may
        # restart in between, without its log (KIP-903).
        epochs = {each: self.followers[each].member_epoch for each in in_sync_replicas if each in self.followers}
        self.asked_isr = AskedIsr(in_sync_replicas, self.leader_epoch, self.partition_epoch, epochs)
        self._watch.ask(self)

    def is_in_maximal_isr(self, replica: int) -> bool:
        """Whether the replica is in the ISR or in the requested ISR (the maximal ISR of KIP-497)."""
        # The controller may write the requested ISR and elect a leader from it before its response arrives here.
        asked = self.asked_isr
        return replica in self.in_sync_replicas or (asked is not None and replica in asked.in_sync_replicas)

    def _is_awaited(self, follower: Follower) -> bool:
        """Whether the high watermark waits for this follower."""
        if self.is_in_maximal_isr(follower.broker_id):
            return True
        # A caught-up follower joins at a Fetch that reaches the high watermark. If the high watermark did not wait for
        # it, a busy leader that is alone in the ISR would always be ahead of it.
        watch = self._watch
        log = self.log
        return (
            log is not None
            and is_caught_up(follower, log.log_end_offset, watch.now_ms(), watch.limits)
            and watch.is_alive(follower.broker_id)
        )
