"""The group coordinator: groups, and the shell around their pure part (reference E.1-E.3).

Theory of operation
-------------------
A group belongs to one partition of `__consumer_offsets`, by the hash of its id, and is coordinated by whoever leads
that partition. Elected, this broker reads the partition's log and serves it then; resigned, it forgets everything.
Such a partition with its groups is a `Shard` here.

Every event goes one way, without an await in between: decide -> append -> replay -> replies and timers. So an event
always sees the state that the log has. Answers are held back where they leave: a request that was answered waits until
the high watermark has passed the record that its answer rests on. Leadership may change while it waits, and the client
is then told to look for the coordinator again.

Nothing is rolled back. Should the state contradict itself (`InvariantBroken`), its shard is dropped and loaded anew.

Tasks: one loads shards, one watches the timers of all groups, one looks for expired offsets. A waiting request is its
connection's task; when that is cancelled, the group forgets the answer but not the member.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.broker.groups.decisions import GROUP_NOT_STORED, OFFSETS_NOT_STORED, apply_refused, apply_stored, decide
from barnabas.broker.groups.descriptions import (
    CLASSIC_TYPE,
    UNKNOWN_GROUP,
    Description,
    Overview,
    describe,
    overview,
    shown_after_offset,
)
from barnabas.broker.groups.events import (
    NO_OFFSET,
    Answer,
    Answered,
    AssignmentNotReplicated,
    CommitAnswer,
    CommitOffsets,
    Decision,
    Event,
    Forgotten,
    Heartbeat,
    Intent,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    StoreExpiry,
    Sync,
    SyncAnswer,
    Timer,
    TimerFired,
    Waiting,
)
from barnabas.broker.groups.loading import finish_loading, load_slice
from barnabas.broker.groups.offsets import OffsetsRead, ReadOffset, decide_deletion, decide_expiry, read_offsets
from barnabas.broker.groups.ports import GroupConfig, GroupWorld, OffsetsPartition
from barnabas.broker.groups.records import MalformedRecord, encode_record
from barnabas.broker.groups.replay import Groups, replay
from barnabas.broker.groups.sessions import apply_unloaded, decide_loaded
from barnabas.broker.groups.state import Group, GroupState
from barnabas.broker.groups.timers import Timers
from barnabas.storage.disk import StorageError
from barnabas.storage.producers import Origin
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.records import CorruptRecords, build_batch
from barnabas.wire.topics import TopicPartition, partition_for

if TYPE_CHECKING:
    from barnabas.broker.metadata import ClusterMetadata

logger = logging.getLogger(__name__)

GROUP_TOPIC = "__consumer_offsets"
ACKS_ALL = -1
ACKS_NONE = 0
MS_PER_MINUTE = 60_000
GROUPS_AT_A_TIME = 200  # between two checkpoints: a step over all groups must not hold the loop
TIMERS_AT_A_TIME = 100


class Shard:
    """One partition of the group topic that this broker leads, and its groups."""

    __slots__ = ("groups", "index", "log", "partition", "refusal")

    def __init__(self, index: int, partition: OffsetsPartition, limits: GroupConfig) -> None:
        self.index = index
        self.partition = partition
        self.log = partition.log
        self.groups = Groups(limits)
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # what requests are told; NONE once it serves


class GroupCoordinator:
    """All groups of this broker."""

    def __init__(self, world: GroupWorld, config: GroupConfig, metadata: "ClusterMetadata") -> None:
        self._world = world
        self._config = config
        self._metadata = metadata
        self._codec = Codec(config.offsets_topic_compression_codec)
        self._shards: dict[int, Shard] = {}
        self._epochs: dict[int, int] = {}  # the newest leader epoch heard of, by partition
        self._timers: Timers[Group, Timer] = Timers()
        self._shard_of: dict[Group, Shard] = {}
        self._sleeping_until = math.inf
        self._wake = trio.Event()
        self._to_load, self._loads = trio.open_memory_channel[Shard](math.inf)  # at most one per partition and epoch

    # -- leadership

    def on_elected(self, partition: OffsetsPartition) -> None:
        """This broker leads the partition, under `partition.leader_epoch`: load it, unless it led it all along."""
        index = partition.topic_partition.partition
        if partition.leader_epoch < self._epochs.get(index, -1):
            return
        self._epochs[index] = partition.leader_epoch
        shard = self._shards.get(index)
        if shard is None:
            self._begin_loading(index, partition)
        elif shard.partition is not partition or shard.log is not partition.log or _has_failed(shard):
            self._unload(shard, ErrorCode.NOT_COORDINATOR)
            self._begin_loading(index, partition)

    def on_resigned(self, partition_index: int, leader_epoch: int) -> None:
        """This broker no longer leads the partition: its groups are somebody else's."""
        if leader_epoch < self._epochs.get(partition_index, -1):
            return
        self._epochs[partition_index] = leader_epoch
        shard = self._shards.get(partition_index)
        if shard is not None:
            self._unload(shard, ErrorCode.NOT_COORDINATOR)

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions exist no more: neither do the offsets committed for them."""
        for shard in self._serving():
            for group in list(shard.groups.by_id.values()):
                self._follow_unasked(shard, group, decide_deletion(group, deleted))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load, watch timers, and expire; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._load_shards)
            nursery.start_soon(self._expire_offsets)
            task_status.started()
            await self._watch_timers()

    def partition_of(self, group_id: str) -> int:
        """The partition of the group topic that the group belongs to."""
        topic = self._metadata.topics.get(GROUP_TOPIC)
        count = len(topic.partitions) if topic else self._config.offsets_topic_num_partitions
        return partition_for(group_id, count)

    # -- requests

    async def join(self, group_id: str, join: Join) -> JoinAnswer:
        """JoinGroup: answered when the generation begins."""
        shard = self._shard_for(group_id, may_be_blank=False)
        if isinstance(shard, ErrorCode):
            return JoinAnswer(shard, join.member_id)
        shortest, longest = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not shortest <= join.session_timeout_ms <= longest:
            return JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id)
        group = shard.groups.by_id.get(group_id)
        if group is None:
            if join.member_id != "":
                return JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
            group = self._create(shard, group_id)
        self._happen(shard, group, join)
        answer = await self._answer(shard, group, join.waiting)
        not_stored = await self._hold(shard, group, join.waiting, answer.member_id)
        return JoinAnswer(GROUP_NOT_STORED.get(not_stored, not_stored)) if not_stored else answer

    async def sync(self, group_id: str, sync: Sync) -> SyncAnswer:
        """SyncGroup: answered when the leader's shares are stored."""
        shard = self._shard_for(group_id, may_be_blank=False)
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)  # the round is lost; old clients know no code 14 here
        if isinstance(shard, ErrorCode):
            return SyncAnswer(shard)
        group = shard.groups.by_id.get(group_id)
        if group is None:
            return SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
        self._happen(shard, group, sync)
        answer = await self._answer(shard, group, sync.waiting)
        not_stored = await self._hold(shard, group, sync.waiting, sync.member_id)
        if not not_stored:
            return answer
        self._happen_unasked(shard, group, AssignmentNotReplicated(sync.generation))
        return SyncAnswer(GROUP_NOT_STORED.get(not_stored, not_stored))

    def heartbeat(self, group_id: str, heartbeat: Heartbeat) -> ErrorCode:
        """Heartbeat. While groups are loaded nobody is thrown out."""
        shard = self._shard_for(group_id, may_be_blank=False)
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.by_id.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._happen(shard, group, heartbeat)
        return _given(heartbeat.waiting)

    def leave(self, group_id: str, leave: Leave) -> LeaveAnswer:
        """LeaveGroup."""
        shard = self._shard_for(group_id, may_be_blank=False)
        if isinstance(shard, ErrorCode):
            return LeaveAnswer(shard)
        group = shard.groups.by_id.get(group_id)
        if group is None:
            return LeaveAnswer(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leave.members))
        self._happen(shard, group, leave)
        return _given(leave.waiting)

    async def commit(self, group_id: str, commit: CommitOffsets) -> CommitAnswer:
        """OffsetCommit: answered when the offsets are replicated."""
        shard = self._shard_for(group_id, may_be_blank=True)
        if isinstance(shard, ErrorCode):
            return CommitAnswer(shard)
        group = shard.groups.by_id.get(group_id)
        if group is None:
            if commit.generation >= 0:
                return CommitAnswer(ErrorCode.ILLEGAL_GENERATION)
            group = self._create(shard, group_id)
        self._happen(shard, group, commit)
        answer = _given(commit.waiting)
        not_stored = await self._committed(shard, commit.waiting.after_offset)
        if not_stored:
            return CommitAnswer(OFFSETS_NOT_STORED.get(not_stored, not_stored), answer.too_large)
        return answer

    async def fetch_offsets(
        self, group_id: str, wanted: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> Sequence[ReadOffset] | ErrorCode:
        """OffsetFetch, whatever the state of the group; `wanted` None means all."""
        shard = self._shard_for(group_id, may_be_blank=True)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.by_id.get(group_id)
        if group is None:
            return [ReadOffset(topic_partition, None) for topic_partition in wanted or ()]
        read: OffsetsRead = read_offsets(group, wanted, require_stable=require_stable)
        return await self._readable(shard, read.after_offset) or read.rows

    async def describe(self, group_id: str) -> Description | ErrorCode:
        """DescribeGroups, one group; one that does not exist is Dead."""
        shard = self._shard_for(group_id, may_be_blank=True)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.groups.by_id.get(group_id)
        if group is None:
            return UNKNOWN_GROUP
        description = describe(group)
        return await self._readable(shard, shown_after_offset(group)) or description

    async def list_groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[Overview]]:
        """ListGroups, of those states and types (empty: all); the code tells whether the list is complete."""
        if types and CLASSIC_TYPE not in {name.lower() for name in types}:
            return ErrorCode.NONE, []
        wanted = {state.lower() for state in states}
        error = ErrorCode.NONE
        listed: list[Overview] = []
        for shard in list(self._shards.values()):
            if shard.refusal:
                error = shard.refusal
                continue
            groups = [
                group for group in shard.groups.by_id.values() if not wanted or group.state.value.lower() in wanted
            ]
            listed += [overview(group) for group in groups]
            after_offset = max(map(shown_after_offset, groups), default=NO_OFFSET)
            error = await self._readable(shard, after_offset) or error
        return error, listed

    # -- from an event to its consequences

    def _happen(self, shard: Shard, group: Group, event: Event) -> None:
        """Let an event happen to a group, with everything that follows, in one synchronous step."""
        try:
            self._follow(shard, group, decide(group, event, self._world.now_ms(), self._world.rng))
        except InvariantBroken:
            self._reload(shard)
            raise

    def _happen_unasked(self, shard: Shard, group: Group, event: Event) -> None:
        """The same for what no request asked for: there is nobody to tell of a failure."""
        if group.state is not GroupState.DEAD:
            self._unasked(shard, lambda: self._happen(shard, group, event))

    def _follow_unasked(self, shard: Shard, group: Group, decision: Decision) -> None:
        self._unasked(shard, lambda: self._follow(shard, group, decision))

    def _unasked(self, shard: Shard, step: Callable[[], None]) -> None:
        try:
            step()
        except InvariantBroken:
            logger.exception("the groups of %s-%d contradict themselves and are loaded anew", GROUP_TOPIC, shard.index)
            self._reload(shard)

    def _follow(self, shard: Shard, group: Group, decision: Decision) -> None:
        """Timers, replies and records of a decision, and of what follows from storing the records."""
        for note in decision.notes:
            logger.info("group %s %s", group.group_id, note)
        for reply in decision.replies:
            reply.deliver()
        if decision.timers:
            self._set_timers(shard, group, decision.timers)
        if decision.intent is None:
            return
        now_ms = self._world.now_ms()
        stored = self._store(shard, decision, decision.intent, now_ms)
        if isinstance(stored, ErrorCode):
            self._follow(shard, group, apply_refused(group, decision.intent, stored, now_ms))
        else:
            self._follow(shard, group, apply_stored(group, decision.intent, stored, now_ms))
        if group.state is GroupState.DEAD:
            self._remove(shard, group)

    def _store(self, shard: Shard, decision: Decision, intent: Intent, now_ms: int) -> int | ErrorCode:
        """Append the records and replay them: the offset of the last one, or why they are not in the log."""
        if not decision.records:
            return NO_OFFSET
        try:
            encoded = [encode_record(record) for record in decision.records]
        except ValueError as error:  # a client sent a name that is too long for the record's string fields
            logger.warning("a record of %s-%d cannot be written: %s", GROUP_TOPIC, shard.index, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        batch = build_batch(encoded, timestamp_ms=now_ms, codec=self._codec)
        if batch.header.size_bytes > shard.partition.config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        # A lost tombstone is written again at the next check, so it need not wait for replicas.
        acks = ACKS_NONE if isinstance(intent, StoreExpiry) else self._config.offsets_commit_required_acks
        appended = shard.partition.append_as_leader(batch, Origin.COORDINATOR, acks)
        if isinstance(appended, ErrorCode):
            return appended
        for offset, record in enumerate(decision.records, appended.base_offset):
            replay(shard.groups, record, offset)
        return appended.last_offset

    def _set_timers(self, shard: Shard, group: Group, timers: dict[Timer, int | None]) -> None:
        now = trio.current_time()
        self._shard_of[group] = shard
        for timer, after_ms in timers.items():
            if after_ms is None:
                self._timers.stop(group, timer)
            else:
                self._timers.start(group, timer, now + after_ms / 1000)
        if self._timers.next_at < self._sleeping_until:
            self._wake.set()

    # -- waiting

    async def _answer(self, shard: Shard, group: Group, waiting: Waiting[Answer]) -> Answer:
        """Sleep until the request is answered; if it is given up, the group forgets the answer, not the member."""
        if waiting.answer is None:
            woken = trio.Event()
            waiting.wake = woken.set
            try:
                await woken.wait()
            finally:
                if waiting.answer is None:
                    self._happen_unasked(shard, group, Forgotten(waiting))
        return _given(waiting)

    async def _hold(self, shard: Shard, group: Group, waiting: Waiting[Answer], member_id: str) -> ErrorCode:
        """Hold an answer back until what it rests on is committed; the member's session counts from then."""
        if waiting.after_offset == NO_OFFSET:
            return ErrorCode.NONE
        outcome = await self._committed(shard, waiting.after_offset)
        if not outcome:
            self._happen_unasked(shard, group, Answered(member_id))
        return outcome

    async def _committed(self, shard: Shard, after_offset: int) -> ErrorCode:
        """Wait until the record at `after_offset` is committed: NONE, or what has come in between."""
        if after_offset == NO_OFFSET or self._config.offsets_commit_required_acks != ACKS_ALL:
            return ErrorCode.NONE
        deadline = trio.current_time() + self._config.offsets_commit_timeout_ms / 1000
        while True:
            outcome = await shard.partition.await_high_watermark(after_offset + 1, deadline)
            still_leading = self._shards.get(shard.index) is shard and shard.partition.is_leader
            if outcome is not ErrorCode.NOT_LEADER_OR_FOLLOWER or not still_leading:
                return outcome
            # A new leader epoch, but the same leader: the record is still in the log, and still on its way.

    async def _readable(self, shard: Shard, after_offset: int) -> ErrorCode:
        """Wait until what is read is committed. Not yet is 14, which clients retry here; no longer mine is 16."""
        if shard.partition.high_watermark > after_offset:
            return ErrorCode.NONE
        outcome = await self._committed(shard, after_offset)
        if outcome in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            return ErrorCode.NONE
        if outcome is ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    # -- shards

    def _shard_for(self, group_id: str, *, may_be_blank: bool) -> Shard | ErrorCode:
        """The shard that serves this group, or why there is none."""
        if group_id == "" and not may_be_blank:
            return ErrorCode.INVALID_GROUP_ID
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return shard.refusal or shard

    def _serving(self) -> list[Shard]:
        return [shard for shard in self._shards.values() if not shard.refusal]

    def _create(self, shard: Shard, group_id: str) -> Group:
        return shard.groups.get_or_create(group_id, self._world.now_ms())

    def _remove(self, shard: Shard, group: Group) -> None:
        self._timers.stop_all(group)
        self._shard_of.pop(group, None)
        if shard.groups.by_id.get(group.group_id) is group:
            del shard.groups.by_id[group.group_id]

    def _begin_loading(self, index: int, partition: OffsetsPartition) -> None:
        shard = self._shards[index] = Shard(index, partition, self._config)
        log = partition.log
        if log is None or log.log_start_offset == log.log_end_offset:
            shard.refusal = ErrorCode.NONE  # there is nothing to read
        else:
            self._to_load.send_nowait(shard)

    def _unload(self, shard: Shard, error: ErrorCode) -> None:
        """Forget a shard; whoever waits in its groups is told."""
        shard.refusal = error
        if self._shards.get(shard.index) is shard:
            del self._shards[shard.index]
        now_ms = self._world.now_ms()
        for group in list(shard.groups.by_id.values()):
            for reply in apply_unloaded(group, error, now_ms).replies:
                reply.deliver()
            self._remove(shard, group)

    def _reload(self, shard: Shard) -> None:
        """The state of a shard cannot be trusted: build it from its log again."""
        if self._shards.get(shard.index) is shard:
            self._unload(shard, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._begin_loading(shard.index, shard.partition)

    async def _load_shards(self) -> None:
        async for shard in self._loads:
            try:
                await self._load(shard)
            except StorageError as error:
                self._fail_loading(shard, error)
                shard.partition.fail_storage(error)
            except (CorruptRecords, MalformedRecord) as error:
                self._fail_loading(shard, error)

    def _fail_loading(self, shard: Shard, why: object) -> None:
        # Half of the offsets would send consumers back to the beginning, so none are served.
        shard.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        logger.error("the groups of %s-%d cannot be loaded and are not served: %s", GROUP_TOPIC, shard.index, why)

    async def _load(self, shard: Shard) -> None:
        """Replay the log of a shard, a slice at a time, and let it serve; unless it was taken away meanwhile."""
        if shard.log is None or self._shards.get(shard.index) is not shard:
            return
        offset, end_offset = shard.log.log_start_offset, shard.log.log_end_offset
        while offset < end_offset:
            read = shard.partition.read(
                offset, max_bytes=self._config.offsets_load_buffer_size, end_offset=end_offset, at_least_one=True
            )
            if isinstance(read, ErrorCode):
                self._fail_loading(shard, read.name)
                return
            if read.slice is None:
                break
            offset = await self._world.in_thread(load_slice, shard.groups, read.slice, offset)
            if self._shards.get(shard.index) is not shard:
                return
        await self._world.in_thread(finish_loading, shard.groups)
        await self._begin_serving(shard)

    async def _begin_serving(self, shard: Shard) -> None:
        """Start the sessions of all members, then answer requests."""
        for count, group in enumerate(shard.groups.by_id.values(), 1):
            if self._shards.get(shard.index) is not shard:
                return
            self._follow(shard, group, decide_loaded(group, self._world.now_ms()))
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        if self._shards.get(shard.index) is shard:
            shard.refusal = ErrorCode.NONE
            logger.info("coordinates %d groups of %s-%d", len(shard.groups.by_id), GROUP_TOPIC, shard.index)

    # -- time

    async def _watch_timers(self) -> None:
        """Fire the timers of all groups."""
        while True:
            self._wake = trio.Event()
            self._sleeping_until = self._timers.next_at
            with trio.move_on_at(self._sleeping_until):
                await self._wake.wait()
            for _ in range(TIMERS_AT_A_TIME):
                due = self._timers.pop_due(trio.current_time())
                if due is None:
                    break
                group, timer = due
                self._happen_unasked(self._shard_of[group], group, TimerFired(timer))

    async def _expire_offsets(self) -> None:
        """Look for expired offsets, every offsets.retention.check.interval.ms."""
        while True:
            for shard in self._serving():
                await self._expire_offsets_of(shard)
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)

    async def _expire_offsets_of(self, shard: Shard) -> None:
        retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
        for count, group in enumerate(list(shard.groups.by_id.values()), 1):
            if shard.refusal:
                return
            if group.state is not GroupState.DEAD:
                self._follow_unasked(shard, group, decide_expiry(group, self._world.now_ms(), retention_ms))
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()


def _has_failed(shard: Shard) -> bool:
    return shard.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE


def _given(waiting: Waiting[Answer]) -> Answer:
    if waiting.answer is None:
        raise InvariantBroken("a request was handled and got no answer")
    return waiting.answer
