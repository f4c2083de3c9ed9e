"""The group coordinator (shell): how requests about groups and offsets are answered, and when (reference E.1-E.3).

A group belongs to one partition of `__consumer_offsets`, by the hash of its id. The leader of that partition
coordinates the group. `shards.py` decides and stores what a request does to its group, in one step. This file finds the
group, and delays the answer until the high watermark has passed the record that the answer depends on.

A request waits in the task of its connection. If that is cancelled, the answer is dropped, but the member stays until
its session ends.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.coordinators.groups.batches import tombstones_at_a_time
from barnabas.coordinators.groups.decisions import GROUP_NOT_STORED, OFFSETS_NOT_STORED
from barnabas.coordinators.groups.descriptions import (
    CLASSIC_TYPE,
    UNKNOWN_GROUP,
    Description,
    Overview,
    describe,
    overview,
    shown_after_offset,
)
from barnabas.coordinators.groups.events import (
    Answer,
    Answered,
    AssignmentNotReplicated,
    CommitAnswer,
    CommitOffsets,
    CommitOffsetsInTransaction,
    Commits,
    DeleteGroup,
    DeleteOffsets,
    DeletionAnswer,
    Forgotten,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    Made,
    Sync,
    SyncAnswer,
    Waiting,
)
from barnabas.coordinators.groups.joining import grown_bytes, stored_return
from barnabas.coordinators.groups.making import Making
from barnabas.coordinators.groups.offsets import NO_OFFSETS, OffsetsView, offsets_view, rests_on
from barnabas.coordinators.groups.outdated import ReadTopicIds
from barnabas.coordinators.groups.ports import GroupConfig, GroupWorld
from barnabas.coordinators.groups.replay import PendingKey
from barnabas.coordinators.groups.shards import GroupShard, GroupShards
from barnabas.coordinators.groups.state import Group, GroupState
from barnabas.coordinators.groups.syncing import brings_assignments
from barnabas.coordinators.runtime.placement import Placement
from barnabas.coordinators.runtime.ports import ShardPartition
from barnabas.coordinators.runtime.shard import Stored
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.sentinels import ACKS_ALL, NO_OFFSET
from barnabas.wire.topics import GROUP_TOPIC, TopicPartition
from barnabas.world.pacing import ROWS_AT_A_TIME, paced, pause_after, portions
from barnabas.world.resting import release, resting

if TYPE_CHECKING:
    from barnabas.wire.records import Batch
    from barnabas.world.metadata import ClusterMetadata

LEAVING_AT_A_TIME = 100  # members of a LeaveGroup between two checkpoints
DELETED_AT_A_TIME = 200  # offsets of an OffsetDelete in one step, and so in one batch of tombstones
# Pending offsets that a transaction may have in a partition of `__consumer_offsets`: all take effect in the step that
# appends the marker, in 2 ms.
PENDING_MAX = 4_000
Wanted = Mapping[str, Sequence[int]]  # partition indexes by topic, each once
Confirmations = dict[GroupShard, ErrorCode]  # whether it is certain that no other broker leads, once it was asked


class GroupCoordinator:
    """The groups that this broker coordinates. Each method for a request returns the answer or an error code."""

    def __init__(
        self, world: GroupWorld, config: GroupConfig, metadata: "ClusterMetadata", read_topic_ids: ReadTopicIds
    ) -> None:
        """`read_topic_ids` returns the ids of those of some topics that exist in the store. Raises StoreError."""
        self._config = config
        self.placement = Placement(GROUP_TOPIC, metadata, lambda: config.offsets_topic_num_partitions)
        self._groups = GroupShards(world, config, metadata, read_topic_ids)
        self._making = Making(world, config)
        self._shards = self._groups.shards
        self._being_deleted: Counter[str] = Counter()  # groups, and how many requests delete them

    # -- leadership

    def on_elected(self, partition: ShardPartition) -> None:
        """This broker leads the partition in `partition.leader_epoch`: load its groups, unless it led it before."""
        self._shards.on_elected(partition)

    def on_resigned(self, partition_index: int, leader_epoch: int) -> None:
        """This broker no longer leads the partition: drop its groups. Waiting requests get NOT_COORDINATOR."""
        self._shards.on_resigned(partition_index, leader_epoch)

    def on_deleted(self, partition_index: int) -> None:
        """Drop the partition's leader epoch, as its log was deleted: a group topic created again begins at epoch 0."""
        self._shards.on_deleted(partition_index)

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions were deleted: remove the offsets that are committed for them."""
        # A group topic that is created again may have another number of partitions.
        if any(each.topic == GROUP_TOPIC for each in deleted):
            self.placement.expect_partitions(0)
        self._groups.outdated.note_deleted(deleted)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load groups, fire their timers and remove expired offsets, until cancelled."""
        await self._groups.run(task_status)

    # -- requests

    async def join(self, group_id: str, join: Join) -> JoinAnswer:
        """JoinGroup: waits until the generation begins. A group is created for a first member without a member id."""
        joined = self._group_to_join(group_id, join)
        if isinstance(joined, JoinAnswer):
            return joined
        if stored_return(joined[1], join) is None:
            self._groups.happen(*joined, join)
        else:
            joined = await self._return(group_id, join, joined[1])
            if isinstance(joined, JoinAnswer):
                return joined
        answer = await self._answer(*joined, join.waiting)
        # Only the return of a static member is stored before its answer. A generation is stored with its assignments.
        not_stored = await self._hold(*joined, join.waiting, answer.member_id)
        return JoinAnswer(GROUP_NOT_STORED.get(not_stored, not_stored)) if not_stored else answer

    def _group_to_join(self, group_id: str, join: Join) -> tuple[GroupShard, Group] | JoinAnswer:
        shard = self._shard_for(group_id, may_be_blank=False)
        if isinstance(shard, ErrorCode):
            return JoinAnswer(shard, join.member_id)
        shortest, longest = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not shortest <= join.session_timeout_ms <= longest:
            return JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id)
        # Otherwise the deletion would be refused for a group that has lost most of its offsets.
        if group_id in self._being_deleted:
            return JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, join.member_id)
        group = shard.state.by_id.get(group_id)
        # The group has expired, or was lost in a fail-over before it was stored. The client joins again without an id.
        if group is None and join.member_id != "":
            return JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
        # As at a fail-over, the client waits a little and joins again. A member keeps its place meanwhile.
        if not self._groups.make_room(group, grown_bytes(group, join), group_id):
            return JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, join.member_id)
        if group is None:
            group = self._groups.create(shard, group_id)
        return shard, group

    async def _return(self, group_id: str, join: Join, group: Group) -> tuple[GroupShard, Group] | JoinAnswer:
        """A static member returns to a Stable group. The record with all members is made before the step."""
        made_for = None
        async with self._making.return_to(group):
            while True:
                joined = self._group_to_join(group_id, join)
                if isinstance(joined, JoinAnswer):
                    return joined
                shard, group = joined
                member = stored_return(group, join)
                # The last record about the members says whether the group has changed meanwhile.
                if member is None or made_for == (group, group.recorded.metadata_offset):
                    self._groups.happen(shard, group, join)
                    return joined
                made_for = (group, group.recorded.metadata_offset)
                join = await self._making.of_return(shard, group, member, join)

    async def sync(self, group_id: str, sync: Sync) -> SyncAnswer:
        """SyncGroup: waits until the leader's assignments are stored and committed."""
        made_for: Group | None = None
        while True:
            shard = self._shard_for(group_id, may_be_blank=False)
            # As in Kafka: the rebalance was lost with the former coordinator, and old clients do not handle
            # COORDINATOR_LOAD_IN_PROGRESS here.
            if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
            if isinstance(shard, ErrorCode):
                return SyncAnswer(shard)
            group = shard.state.by_id.get(group_id)
            if group is None:
                return SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
            # A group that was loaded meanwhile may have other members.
            if made_for is group or not brings_assignments(group, sync):
                break
            made_for = group
            sync = sync._replace(made=await self._making.of_assignments(shard, group, sync))
        self._groups.happen(shard, group, sync)
        answer = await self._answer(shard, group, sync.waiting)
        not_stored = await self._hold(shard, group, sync.waiting, sync.member_id)
        if not not_stored:
            return answer
        # The group is Stable in memory, but this member does not get its assignment: all members must join again.
        self._groups.happen_unasked(shard, group, AssignmentNotReplicated(sync.generation))
        return SyncAnswer(GROUP_NOT_STORED.get(not_stored, not_stored))

    def heartbeat(self, group_id: str, heartbeat: Heartbeat) -> ErrorCode:
        """Heartbeat: restarts the member's session. Never waits."""
        shard = self._shard_for(group_id, may_be_blank=False)
        # As in Kafka: sessions begin only after the load, so the member loses nothing.
        if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.state.by_id.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._groups.happen(shard, group, heartbeat)
        return _given(heartbeat.waiting)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveAnswer:
        """LeaveGroup, with checkpoints if the request names many members."""
        if len(members) <= LEAVING_AT_A_TIME:
            return self._leave(group_id, members)
        errors: list[ErrorCode] = []
        for start in range(0, len(members), LEAVING_AT_A_TIME):
            answer = self._leave(group_id, members[start : start + LEAVING_AT_A_TIME])
            # This broker stopped being the coordinator at a checkpoint. A retry finds those that have left unknown.
            if answer.error:
                return answer
            errors += answer.member_errors
            await trio.lowlevel.checkpoint()
        return LeaveAnswer(ErrorCode.NONE, tuple(errors))

    def _leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveAnswer:
        leave = Leave(Waiting(), members)
        # Looked up for each portion: at a checkpoint the group may be unloaded, or removed when its last member left.
        shard = self._shard_for(group_id, may_be_blank=False)
        if isinstance(shard, ErrorCode):
            return LeaveAnswer(shard)
        group = shard.state.by_id.get(group_id)
        # As in Kafka an error of the members and not of the request.
        if group is None:
            return LeaveAnswer(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leave.members))
        self._groups.happen(shard, group, leave)
        return _given(leave.waiting)

    async def commit(self, group_id: str, commit: CommitOffsets) -> CommitAnswer:
        """OffsetCommit: waits until the offsets are committed to `__consumer_offsets`."""
        # Before the group is looked up: leadership and members may change while the thread runs.
        commit.made = await self._making.of_commit(self._shard_for(group_id, may_be_blank=True), group_id, commit)
        shard = self._shard_for(group_id, may_be_blank=True)
        if isinstance(shard, ErrorCode):
            return CommitAnswer(shard)
        if self._groups.outdated.is_late(commit.offsets):
            return CommitAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        group = shard.state.by_id.get(group_id)
        if group is None:
            if commit.generation >= 0:
                return CommitAnswer(ErrorCode.ILLEGAL_GENERATION)
            # A simple commit, of a consumer that uses the group for its offsets only.
            group = self._groups.create(shard, group_id)
            self._groups.happen(shard, group, commit)
            self._groups.remove_blank(shard, group)
        else:
            self._groups.happen(shard, group, commit)
        return await self._committed_answer(shard, commit)

    async def commit_in_transaction(
        self, group_id: str, commit: CommitOffsetsInTransaction, connection: int, is_given_up: Callable[[], bool]
    ) -> CommitAnswer | None:
        """TxnOffsetCommit: waits until the offsets are stored, as pending ones of their transaction.

        INVALID_REQUEST if the transaction has too many pending offsets. None, and nothing is stored, if the request
        `is_given_up` by then.
        """
        producer = commit.transaction.producer_id, commit.transaction.producer_epoch
        shard = self._shard_for(group_id, may_be_blank=False)
        commit.made = await self._making.of_commit(shard, group_id, commit, commit.transaction)
        shard = self._shard_for(group_id, may_be_blank=False)
        if isinstance(shard, ErrorCode):
            return CommitAnswer(shard)
        if self._groups.outdated.is_late(commit.offsets):
            return CommitAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if _exceeds(shard.state.open.get(commit.transaction.producer_id, {}), group_id, commit.offsets):
            return CommitAnswer(ErrorCode.INVALID_REQUEST)
        # In the step that appends, because the request may have waited.
        if is_given_up():
            return None
        # The request may have been under way while this broker was no coordinator, and its client have gone on. One
        # that repeats it on the same connection has not given that up.
        if shard.is_again:
            is_proved = shard.state.committers.is_latest(producer, connection)
            shard.state.committers.note(producer, connection)
            if not is_proved:
                return CommitAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        group = shard.state.by_id.get(group_id)
        # As in Kafka it stays, whatever follows. It is removed when offsets are checked for their expiry.
        if group is None:
            if not self._groups.make_room(None, 0, group_id):
                return CommitAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            group = self._groups.create(shard, group_id)
        self._groups.happen(shard, group, commit)
        return await self._committed_answer(shard, commit)

    async def _committed_answer(self, shard: GroupShard, commit: Commits) -> CommitAnswer:
        """The answer to a commit that has been appended or refused."""
        answer = _given(commit.waiting)
        # The commit stays in the log even if it is not replicated in time, so it may take effect after an error.
        not_stored = await self._committed(shard, commit.waiting.after_offset)
        if not_stored:
            return CommitAnswer(OFFSETS_NOT_STORED.get(not_stored, not_stored), answer.too_large)
        return answer

    def end_transaction(self, partition_index: int, marker: "Batch", producer_id: int, *, committed: bool) -> Stored:
        """WriteTxnMarkers, for one partition of `__consumer_offsets`: append the marker, and let it take effect.

        The caller waits until the marker is committed. Errors: those of the append; NOT_LEADER_OR_FOLLOWER while the
        partition is loaded or cannot be, so that the transaction coordinator sends the marker again.
        """
        shard = self._shards.find(partition_index)
        # The loader would not see a marker that is appended behind its back.
        if isinstance(shard, ErrorCode):
            return Stored(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._groups.end_transaction(shard, marker, producer_id, committed=committed)

    async def fetch_offsets(
        self, group_id: str, wanted: Wanted | None, confirmed: Confirmations, *, require_stable: bool
    ) -> OffsetsView | ErrorCode:
        """OffsetFetch, in any state of the group; `wanted` None means all partitions with an offset.

        Waits until the offsets that it returns are committed, and until it is certain that no other coordinator has
        committed later ones; COORDINATOR_LOAD_IN_PROGRESS if that takes too long. `confirmed` is shared by all groups
        of a request: it is certain, or takes too long, for each partition once.
        """
        shard = self._shard_for(group_id, may_be_blank=True)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.state.by_id.get(group_id)
        if group is None:
            return await self._current(shard, NO_OFFSET, confirmed) or NO_OFFSETS
        # The view is a copy, taken in one step: its rows fit together although the loops below have checkpoints.
        stable_below = shard.partition.high_watermark if require_stable else None
        if wanted is None:
            view = offsets_view(group, stable_below=stable_below)
            self._groups.outdated.hide_deleted(shard, view.offsets)
            after_offset = view.forgotten_offset
            for keys in portions(list(view.offsets), ROWS_AT_A_TIME):
                self._groups.outdated.hide_outdated(shard, view.offsets, keys)
                after_offset = max(after_offset, rests_on(view, keys))
                await pause_after(len(keys))
            return await self._current(shard, after_offset, confirmed) or view
        # To copy all offsets is fast. To look up very many by name would make the step too long.
        few = None if sum(map(len, wanted.values())) > ROWS_AT_A_TIME else _named(wanted)
        view = offsets_view(group, few, stable_below=stable_below)
        self._groups.outdated.hide_deleted(shard, view.offsets)
        after_offset = NO_OFFSET
        for topic, indexes in wanted.items():
            for some in portions(indexes, ROWS_AT_A_TIME):
                keys = [TopicPartition(topic, each) for each in some]
                self._groups.outdated.hide_outdated(shard, view.offsets, keys)
                after_offset = max(after_offset, rests_on(view, keys))
                await pause_after(len(some))
        return await self._current(shard, after_offset, confirmed) or view

    async def describe(self, group_id: str) -> Description | ErrorCode:
        """DescribeGroups for one group. A group that does not exist is described as Dead, as in Kafka."""
        shard = self._shard_for(group_id, may_be_blank=True)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.state.by_id.get(group_id)
        if group is None:
            return UNKNOWN_GROUP
        description = describe(group)
        return await self._readable(shard, shown_after_offset(group)) or description

    async def list_groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[Overview]]:
        """ListGroups with these states and types (empty: all), in any letter case. On an error the list is partial."""
        # All groups here are of the classic type.
        if types and CLASSIC_TYPE not in {name.lower() async for name in paced(types)}:
            return ErrorCode.NONE, []
        wanted = {state.lower() async for state in paced(states)}
        error = ErrorCode.NONE
        listed: list[Overview] = []
        for shard in self._shards:
            after_offset, found = NO_OFFSET, []
            # A copy, because groups come and go at the checkpoints.
            async for group in paced([] if shard.refusal else list(shard.state.by_id.values())):
                if not wanted or group.state.value.lower() in wanted:
                    found.append(overview(group))
                    after_offset = max(after_offset, shown_after_offset(group))
            refusal = shard.refusal or await self._readable(shard, after_offset)
            # The groups have moved to another broker meanwhile, and that one lists them: no error, as in Kafka.
            if refusal is ErrorCode.NOT_COORDINATOR:
                continue
            # The other shards are listed, as in Kafka: the caller gets the error and a partial list.
            error = refusal or error
            listed += found
        return error, listed

    async def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups for one group: removes the group and its offsets, unless it has members."""
        with self._without_new_members(group_id):
            not_deleted = await self._delete_most_offsets(group_id)
            if not_deleted:
                return not_deleted
            # First, as it has a checkpoint: from `_shard_for` to `happen` nothing may change.
            delete = DeleteGroup(Waiting(), await self._made_for_deletion(group_id))
            shard = self._shard_for(group_id, may_be_blank=True)
            if isinstance(shard, ErrorCode):
                return shard
            group = shard.state.by_id.get(group_id)
            if group is None:
                return ErrorCode.GROUP_ID_NOT_FOUND
            waiting = delete.waiting
            self._groups.happen(shard, group, delete)
        answer = _given(waiting)
        # Kafka does not wait here. Without the wait a fail-over could bring a group back after its deletion succeeded.
        not_stored = await self._committed(shard, waiting.after_offset)
        return OFFSETS_NOT_STORED.get(not_stored, not_stored) or answer

    @contextmanager
    def _without_new_members(self, group_id: str) -> Iterator[None]:
        self._being_deleted[group_id] += 1
        try:
            yield
        finally:
            self._being_deleted[group_id] -= 1
            if not self._being_deleted[group_id]:
                del self._being_deleted[group_id]

    async def _delete_most_offsets(self, group_id: str) -> ErrorCode:
        """Remove so many offsets of a group without members that the tombstones of the others fit into one batch."""
        # Kafka writes all tombstones in one batch. If that is too large it is not written, and the group comes back.
        shard = self._shard_for(group_id, may_be_blank=True)
        group = None if isinstance(shard, ErrorCode) else shard.state.by_id.get(group_id)
        last = tombstones_at_a_time(group_id, DELETED_AT_A_TIME)
        if group is None or group.state is not GroupState.EMPTY or len(group.recorded.offsets) <= last:
            return ErrorCode.NONE
        return (await self.delete_offsets(group_id, list(group.recorded.offsets)[last:])).error

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> DeletionAnswer:
        """OffsetDelete: removes the offsets of topics to which no member subscribes, in portions."""
        codes: dict[TopicPartition, ErrorCode] = {}
        # Once also without partitions: the group's own error is an answer, too.
        at_a_time = tombstones_at_a_time(group_id, DELETED_AT_A_TIME)
        for start in range(0, max(len(partitions), 1), at_a_time):
            answer = await self._delete_offsets(group_id, partitions[start : start + at_a_time])
            # A group that loses its last offset with an earlier portion is removed. The rest has nothing to delete.
            is_gone = answer.error == ErrorCode.GROUP_ID_NOT_FOUND and codes
            if answer.error and not is_gone:
                return answer
            codes.update(dict.fromkeys(partitions[start:], ErrorCode.NONE) if is_gone else answer.codes)
            if is_gone:
                break
            await pause_after(ROWS_AT_A_TIME if start else 0)
        return DeletionAnswer(ErrorCode.NONE, codes)

    async def _delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> DeletionAnswer:
        found = self._existing(group_id)
        if not isinstance(found, ErrorCode):
            await self._groups.read_subscriptions(found[1])
            # Again, as the group may have been removed or unloaded meanwhile: `happen` must not get it then.
            found = self._existing(group_id)
        if isinstance(found, ErrorCode):
            return DeletionAnswer(found, {})
        shard, group = found
        waiting: Waiting[DeletionAnswer] = Waiting()
        self._groups.happen(shard, group, DeleteOffsets(waiting, partitions))
        answer = _given(waiting)
        # Tombstones of earlier portions stay. A client that retries the whole request deletes the rest.
        not_stored = await self._committed(shard, waiting.after_offset)
        return DeletionAnswer(OFFSETS_NOT_STORED.get(not_stored, not_stored), {}) if not_stored else answer

    def _existing(self, group_id: str) -> tuple[GroupShard, Group] | ErrorCode:
        """The group and its shard, or GROUP_ID_NOT_FOUND or the error of `_shard_for`."""
        shard = self._shard_for(group_id, may_be_blank=False)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.state.by_id.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else (shard, group)

    async def _made_for_deletion(self, group_id: str) -> Made | None:
        """The tombstones of a large group; None for a small or unknown group."""
        shard = self._shard_for(group_id, may_be_blank=True)
        group = None if isinstance(shard, ErrorCode) else shard.state.by_id.get(group_id)
        if isinstance(shard, ErrorCode) or group is None:
            return None
        return await self._making.of_deletion(shard, group)

    # -- finding and waiting

    def _shard_for(self, group_id: str, *, may_be_blank: bool) -> GroupShard | ErrorCode:
        """The shard that serves this group, or the error for the client."""
        # As in Kafka, old clients may keep offsets under an empty group id. Such a group can be described and deleted.
        if group_id == "" and not may_be_blank:
            return ErrorCode.INVALID_GROUP_ID
        return self._shards.find(self.placement.partition_of(group_id))

    async def _answer(self, shard: GroupShard, group: Group, waiting: Waiting[Answer]) -> Answer:
        """Sleep until the request is answered. If the task is cancelled, the request is removed from the group."""
        if waiting.answer is None:
            woken = trio.Event()
            waiting.wake = lambda: release(woken.set)
            try:
                with resting():
                    await woken.wait()
            # Cancelled: the client has disconnected. The request must not count as one of a member that has joined.
            finally:
                if waiting.answer is None:
                    self._groups.happen_unasked(shard, group, Forgotten(waiting))
        return _given(waiting)

    async def _hold(self, shard: GroupShard, group: Group, waiting: Waiting[Answer], member_id: str) -> ErrorCode:
        """Wait until the record that the answer depends on is committed; then restart the member's session."""
        if waiting.after_offset == NO_OFFSET:
            return ErrorCode.NONE
        outcome = await self._committed(shard, waiting.after_offset)
        if not outcome:
            self._groups.happen_unasked(shard, group, Answered(member_id))
        return outcome

    async def _committed(self, shard: GroupShard, after_offset: int) -> ErrorCode:
        """Wait until the record at `after_offset` is committed: NONE, or the error of `await_high_watermark`.

        At most `offsets.commit.timeout.ms`; not at all unless `offsets.commit.required.acks` is -1.
        """
        if self._config.offsets_commit_required_acks != ACKS_ALL:
            return ErrorCode.NONE
        return await self._shards.await_committed(shard, after_offset, self._config.offsets_commit_timeout_ms)

    async def _readable(self, shard: GroupShard, after_offset: int) -> ErrorCode:
        """As `_committed`, for an answer that only reads: an error is one that clients retry."""
        if self._config.offsets_commit_required_acks != ACKS_ALL:
            return ErrorCode.NONE
        return await self._shards.await_readable(shard, after_offset, self._config.offsets_commit_timeout_ms)

    async def _current(self, shard: GroupShard, after_offset: int, confirmed: Confirmations) -> ErrorCode:
        """As `_readable`, for an answer with which a consumer begins: an old one would make it read records again that
        its group has committed, in a transaction too."""
        if self._config.offsets_commit_required_acks != ACKS_ALL:
            return ErrorCode.NONE
        if shard not in confirmed:
            timeout_ms = self._config.offsets_commit_timeout_ms
            confirmed[shard] = await self._shards.await_confirmed(shard, timeout_ms)
        return confirmed[shard] or await self._readable(shard, after_offset)


def _exceeds(pending: Collection[PendingKey], group_id: str, offsets: Collection[TopicPartition]) -> bool:
    """Whether a transaction with these pending offsets would have too many with the new ones."""
    if len(pending) + len(offsets) <= PENDING_MAX:
        return False
    # A partition that it commits again counts once.
    return len(pending) + sum((group_id, each) not in pending for each in offsets) > PENDING_MAX


def _named(wanted: Wanted) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, indexes in wanted.items() for index in indexes]


def _given(waiting: Waiting[Answer]) -> Answer:
    if waiting.answer is None:
        raise InvariantBroken("a request was handled and got no answer")
    return waiting.answer
