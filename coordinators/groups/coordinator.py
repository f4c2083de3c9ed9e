"""The group coordinator (shell): how requests about groups and offsets are answered, and when (reference E.1-E.3).

A group belongs to one partition of `__consumer_offsets`, by the hash of its id. The leader of that partition
coordinates the group. `shards.py` decides and stores what a request does to its group, in one step. This file finds the
group, and delays the answer until the high watermark has passed the record that the answer depends on.

A request waits in the task of its connection. If that is cancelled, the answer is dropped, but the member stays until
its session ends.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.coordinators.groups.batches import tombstones_at_a_time
from barnabas.coordinators.groups.classic.decisions import GROUP_NOT_STORED, OFFSETS_NOT_STORED
from barnabas.coordinators.groups.classic.descriptions import (
    CLASSIC_TYPE,
    UNKNOWN_GROUP,
    Description,
    Overview,
    describe,
    overview,
    shown_after_offset,
)
from barnabas.coordinators.groups.classic.events import (
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
from barnabas.coordinators.groups.classic.joining import grown_bytes, stored_return
from barnabas.coordinators.groups.classic.state import Group, GroupState, subscribed_topics
from barnabas.coordinators.groups.classic.syncing import brings_assignments
from barnabas.coordinators.groups.making import Making, Returning, Turn, made_for_return
from barnabas.coordinators.groups.offsets import NO_OFFSETS, OffsetsView, offsets_view, rests_on
from barnabas.coordinators.groups.outdated import ReadTopicIds
from barnabas.coordinators.groups.ports import GroupConfig, GroupWorld
from barnabas.coordinators.groups.replay import Groups, PendingKey
from barnabas.coordinators.groups.shards import GroupShard, GroupShards
from barnabas.coordinators.runtime.runtime import Confirmed, Outcome
from barnabas.coordinators.runtime.shard import Stored
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition
from barnabas.world.pacing import ROWS_AT_A_TIME, paced, pause_after, portions
from barnabas.world.resting import release, resting

if TYPE_CHECKING:
    from barnabas.wire.records import Batch
    from barnabas.world.metadata import ClusterMetadata

LEAVING_AT_A_TIME = 100  # members of a LeaveGroup between two checkpoints
DELETED_AT_A_TIME = 200  # offsets of an OffsetDelete in one step, and so in one batch of tombstones
# The most pending offsets that a transaction may have in a partition of `__consumer_offsets`: the
# step that appends the marker makes all of them take effect, in 2 ms.
PENDING_MAX = 4_000
Wanted = Mapping[str, Sequence[int]]  # partition indexes by topic, each once
Confirmations = Confirmed[Groups]


class Entered(NamedTuple):
    """A request that waits in a group."""

    shard: GroupShard
    group: Group


class GroupCoordinator:
    """The groups that this broker coordinates. Each method for a request returns the answer or an error code."""

    def __init__(
        self, world: GroupWorld, config: GroupConfig, metadata: "ClusterMetadata", read_topic_ids: ReadTopicIds
    ) -> None:
        """`read_topic_ids` returns the ids of those of some topics that exist in the store. Raises StoreError."""
        self._config = config
        self._groups = GroupShards(world, config, metadata, read_topic_ids)
        self.placement = self._groups.placement
        self._making = Making(world, config)
        self.runtime = self._groups.runtime
        self._being_deleted: Counter[str] = Counter()  # groups, and how many requests delete them

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load groups, fire their timers and remove expired offsets, until cancelled."""
        await self._groups.run(task_status)

    @property
    def load(self) -> int:
        """About how many members all groups have."""
        return self._groups.load

    # -- requests

    async def join(self, group_id: str, join: Join) -> JoinAnswer:
        """JoinGroup: waits until the generation begins. A group is created for a first member without a member id."""
        if group_id == "":
            return JoinAnswer(ErrorCode.INVALID_GROUP_ID, join.member_id)
        turn = self._making.turn()
        try:
            entered = await self.runtime.write(
                group_id, partial(self._join, group_id, join, turn), partial(_refuse_join, join.member_id)
            )
        finally:
            turn.end()

        if isinstance(entered, JoinAnswer):
            return entered
        answer = await self._answer(entered, join.waiting)
        # Only the return of a static member has stored a record here. A generation is stored later,
        # with its assignments.
        not_stored = await self._hold(entered, join.waiting, answer.member_id)
        return JoinAnswer(GROUP_NOT_STORED.get(not_stored, not_stored)) if not_stored else answer

    def _join(
        self, group_id: str, join: Join, turn: Turn, shard: GroupShard, made: Returning | None
    ) -> Outcome[Entered | JoinAnswer] | Callable[[], Awaitable[Returning | None]]:
        if made is not None:
            join = made.join
        group = self._group_to_join(shard, group_id, join)
        if isinstance(group, JoinAnswer):
            return Outcome(group)

        # When a static member returns to a Stable group, the record with all members is made before
        # the step.
        member = stored_return(group, join)
        if member is not None and not turn.is_of(group):
            return partial(turn.take, group)
        if member is not None and (made is None or made.made_for != made_for_return(group)):
            return partial(self._making.of_return, shard, group, member, join)

        self._groups.happen(shard, group, join)
        turn.end()
        return Outcome(Entered(shard, group))

    def _group_to_join(self, shard: GroupShard, group_id: str, join: Join) -> Group | JoinAnswer:
        shortest = self._config.group_min_session_timeout_ms
        longest = self._config.group_max_session_timeout_ms
        if not shortest <= join.session_timeout_ms <= longest:
            return JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id)
        # A new member would make the deletion fail after most offsets of the group have been
        # removed.
        if group_id in self._being_deleted:
            return JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, join.member_id)
        group = shard.state.by_id.get(group_id)
        # The group has expired, or was lost in a fail-over before it was stored. The client joins again without an id.
        if group is None and join.member_id != "":
            return JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
        # There is no memory for the request: the client waits a little and joins again, as after a
        # fail-over. A member that rejoins keeps its place meanwhile.
        if not self._groups.make_room(group, grown_bytes(group, join), group_id):
            return JoinAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, join.member_id)
        if group is None:
            group = self._groups.create(shard, group_id)
        return group

    async def sync(self, group_id: str, sync: Sync) -> SyncAnswer:
        """SyncGroup: waits until the leader's assignments are stored and committed."""
        if group_id == "":
            return SyncAnswer(ErrorCode.INVALID_GROUP_ID)
        made_for: Group | None = None

        # The types are in quotes, because those of an inner function would be evaluated at each
        # call.
        def act(
            shard: GroupShard, made: "Made | None"
        ) -> "Outcome[Entered | SyncAnswer] | Callable[[], Awaitable[Made]]":
            nonlocal made_for
            group = shard.state.by_id.get(group_id)
            if group is None:
                return Outcome(SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))

            # If the shard was loaded again meanwhile, `group` is a new object and may have other
            # members.
            if made_for is not group and brings_assignments(group, sync):
                made_for = group
                work = self._making.of_assignments(shard, group, sync)
                if work is not None:
                    return work
            self._groups.happen(shard, group, sync._replace(made=made if made_for is group else None))
            return Outcome(Entered(shard, group))

        entered = await self.runtime.write(group_id, act, _refuse_sync)
        if isinstance(entered, SyncAnswer):
            return entered
        answer = await self._answer(entered, sync.waiting)
        not_stored = await self._hold(entered, sync.waiting, sync.member_id)
        if not not_stored:
            return answer

        # The group is Stable in memory, but this member does not get its assignment: all members must join again.
        self._groups.happen_unasked(*entered, AssignmentNotReplicated(sync.generation))
        return SyncAnswer(GROUP_NOT_STORED.get(not_stored, not_stored))

    def heartbeat(self, group_id: str, heartbeat: Heartbeat) -> ErrorCode:
        """Heartbeat: restarts the member's session. Never waits."""
        if group_id == "":
            return ErrorCode.INVALID_GROUP_ID

        def act(shard: GroupShard) -> ErrorCode:
            group = shard.state.by_id.get(group_id)
            if group is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._groups.happen(shard, group, heartbeat)
            return _given(heartbeat.waiting)

        return self.runtime.write_now(group_id, act, _refuse_heartbeat)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveAnswer:
        """LeaveGroup, with checkpoints if the request names many members."""
        if len(members) <= LEAVING_AT_A_TIME:
            return self._leave(group_id, members)
        errors: list[ErrorCode] = []
        for start in range(0, len(members), LEAVING_AT_A_TIME):
            answer = self._leave(group_id, members[start : start + LEAVING_AT_A_TIME])
            # This broker stopped being the coordinator at a checkpoint. In a retry the members that
            # have left already get UNKNOWN_MEMBER_ID.
            if answer.error:
                return answer
            errors += answer.member_errors
            await trio.lowlevel.checkpoint()
        return LeaveAnswer(ErrorCode.NONE, tuple(errors))

    def _leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveAnswer:
        if group_id == "":
            return LeaveAnswer(ErrorCode.INVALID_GROUP_ID)
        leave = Leave(Waiting(), members)

        def act(shard: GroupShard) -> LeaveAnswer:
            group = shard.state.by_id.get(group_id)
            # This is an error of the members and not of the request, as in Kafka.
            if group is None:
                return LeaveAnswer(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leave.members))
            self._groups.happen(shard, group, leave)
            return _given(leave.waiting)

        # The group is looked up for each portion: at a checkpoint it may be unloaded, or removed
        # when its last member left.
        return self.runtime.write_now(group_id, act, LeaveAnswer)

    def rebalance(self, group_id: str) -> ErrorCode:
        """For tests: have all members join again, as after an assignment that was lost. GROUP_ID_NOT_FOUND."""

        def act(shard: GroupShard) -> ErrorCode:
            group = shard.state.by_id.get(group_id)
            if group is None or not group.members:
                return ErrorCode.GROUP_ID_NOT_FOUND
            self._groups.happen(shard, group, AssignmentNotReplicated(group.generation))
            return ErrorCode.NONE

        return self.runtime.write_now(group_id, act, _as_it_is)

    async def commit(self, group_id: str, commit: CommitOffsets) -> CommitAnswer:
        """OffsetCommit: waits until the offsets are committed to `__consumer_offsets`."""

        # The types are in quotes, because those of an inner function would be evaluated at each
        # call.
        def act(shard: GroupShard, made: "Made | None") -> "Outcome[CommitAnswer] | Callable[[], Awaitable[Made]]":
            work = self._making.of_commit(shard, group_id, commit) if made is None else None
            if work is not None:
                return work
            commit.made = made
            if self._groups.outdated.is_late(commit.offsets):
                return Outcome(CommitAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            group = shard.state.by_id.get(group_id)
            if group is None:
                if commit.generation >= 0:
                    return Outcome(CommitAnswer(ErrorCode.ILLEGAL_GENERATION))

                # A simple commit, of a consumer that uses the group for its offsets only.
                group = self._groups.create(shard, group_id)
                self._groups.happen(shard, group, commit)
                self._groups.remove_blank(shard, group)
            else:
                self._groups.happen(shard, group, commit)

            return _outcome(commit.waiting)

        return await self.runtime.write(group_id, act, partial(_refuse_commit, commit))

    async def commit_in_transaction(
        self, group_id: str, commit: CommitOffsetsInTransaction, connection: int, is_given_up: Callable[[], bool]
    ) -> CommitAnswer | None:
        """TxnOffsetCommit: waits until the offsets are stored, as pending ones of their transaction.

        INVALID_REQUEST if the transaction has too many pending offsets. None, and nothing is stored, if the request
        `is_given_up` by then.
        """
        if group_id == "":
            return CommitAnswer(ErrorCode.INVALID_GROUP_ID)
        act = partial(self._commit_in_transaction, group_id, commit, connection, is_given_up)
        return await self.runtime.write(group_id, act, partial(_refuse_commit, commit))

    def _commit_in_transaction(
        self,
        group_id: str,
        commit: CommitOffsetsInTransaction,
        connection: int,
        is_given_up: Callable[[], bool],
        shard: GroupShard,
        made: Made | None,
    ) -> Outcome[CommitAnswer | None] | Callable[[], Awaitable[Made]]:
        work = self._making.of_commit(shard, group_id, commit) if made is None else None
        if work is not None:
            return work
        commit.made = made
        if self._groups.outdated.is_late(commit.offsets):
            return Outcome(CommitAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if _exceeds(shard.state.open.get(commit.transaction.producer_id, {}), group_id, commit.offsets):
            return Outcome(CommitAnswer(ErrorCode.INVALID_REQUEST))

        # The check is in the step that appends, because the request may have waited.
        if is_given_up():
            return Outcome(None)

        # The request may have been under way since before this broker lost the partition, and its
        # client may have gone on at another coordinator. A client that repeats the request on the
        # same connection has not given it up.
        if shard.is_again:
            producer = commit.transaction.producer_id, commit.transaction.producer_epoch
            is_proved = shard.state.committers.is_latest(producer, connection)
            shard.state.committers.note(producer, connection)
            if not is_proved:
                return Outcome(CommitAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

        group = shard.state.by_id.get(group_id)

        # Even if nothing is stored, the group stays, as in Kafka. It is removed when offsets are
        # checked for their expiry.
        if group is None:
            if not self._groups.make_room(None, 0, group_id):
                return Outcome(CommitAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            group = self._groups.create(shard, group_id)

        self._groups.happen(shard, group, commit)
        outcome = _outcome(commit.waiting)
        return Outcome(outcome.answer, outcome.after_offset)

    def end_transaction(self, partition_index: int, marker: "Batch", producer_id: int, *, committed: bool) -> Stored:
        """WriteTxnMarkers, for one partition of `__consumer_offsets`: append the marker, and let it take effect.

        The caller waits until the marker is committed. Errors: those of the append; NOT_LEADER_OR_FOLLOWER while the
        partition is loaded or cannot be, so that the transaction coordinator sends the marker again.
        """
        shard = self.runtime.serving_at(partition_index)
        # The loader reads up to the log end offset that it saw at its begin, and would miss a marker
        # that is appended meanwhile.
        if shard is None:
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
        look = partial(self._look_at_offsets, group_id, wanted, require_stable=require_stable)
        return await self.runtime.read(group_id, look, _as_it_is, confirmed)

    async def _look_at_offsets(
        self, group_id: str, wanted: Wanted | None, shard: GroupShard, *, require_stable: bool
    ) -> Outcome[OffsetsView | ErrorCode]:
        group = shard.state.by_id.get(group_id)

        # With an outdated answer a consumer would read again what its group has committed, in a
        # transaction or not. The answer comes from memory alone, so `read` waits until it is
        # certain that no other broker leads.
        if group is None:
            return Outcome(NO_OFFSETS, NO_OFFSET, rests_on_memory=True)

        # The view is a copy, taken in one step: its offsets fit together although the loops below
        # have checkpoints.
        stable_below = shard.partition.high_watermark if require_stable else None
        if wanted is None:
            view = offsets_view(group.recorded, stable_below=stable_below)
            self._groups.outdated.hide_deleted(shard, view.offsets)
            after_offset = view.forgotten_offset
            for keys in portions(list(view.offsets), ROWS_AT_A_TIME):
                self._groups.outdated.hide_outdated(shard, view.offsets, keys)
                after_offset = max(after_offset, rests_on(view, keys))
                await pause_after(len(keys))
            return Outcome(view, after_offset, rests_on_memory=True)

        # To look up very many partitions by name would make the step too long. All offsets are
        # copied then, which is fast.
        few = None if sum(map(len, wanted.values())) > ROWS_AT_A_TIME else _named(wanted)
        view = offsets_view(group.recorded, few, stable_below=stable_below)
        self._groups.outdated.hide_deleted(shard, view.offsets)
        after_offset = NO_OFFSET
        for topic, indexes in wanted.items():
            for some in portions(indexes, ROWS_AT_A_TIME):
                keys = [TopicPartition(topic, each) for each in some]
                self._groups.outdated.hide_outdated(shard, view.offsets, keys)
                after_offset = max(after_offset, rests_on(view, keys))
                await pause_after(len(some))

        return Outcome(view, after_offset, rests_on_memory=True)

    async def describe(self, group_id: str) -> Description | ErrorCode:
        """DescribeGroups for one group. A group that does not exist is described as Dead, as in Kafka."""

        async def look(shard: GroupShard) -> Outcome[Description | ErrorCode]:
            group = shard.state.by_id.get(group_id)
            if group is None:
                return Outcome(UNKNOWN_GROUP)
            return Outcome(describe(group), shown_after_offset(group))

        return await self.runtime.read(group_id, look, _as_it_is)

    async def list_groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[Overview]]:
        """ListGroups with these states and types (empty: all), in any letter case. On an error the list is partial."""
        # All groups here are of the classic type.
        if types and CLASSIC_TYPE not in {name.lower() async for name in paced(types)}:
            return ErrorCode.NONE, []
        wanted = {state.lower() async for state in paced(states)}
        error = ErrorCode.NONE
        listed: list[Overview] = []
        for shard in self.runtime:
            after_offset = NO_OFFSET
            found = []

            # The list is a copy, because groups come and go at the checkpoints.
            async for group in paced([] if shard.refusal else list(shard.state.by_id.values())):
                if not wanted or group.state.value.lower() in wanted:
                    found.append(overview(group))
                    after_offset = max(after_offset, shown_after_offset(group))
            refusal = shard.refusal or await self.runtime.await_readable(
                shard, after_offset, self._groups.committed_ms()
            )

            # The groups have moved to another broker meanwhile, and that one lists them: no error, as in Kafka.
            if refusal is ErrorCode.NOT_COORDINATOR:
                continue

            # The other shards are listed, as in Kafka: the caller gets the error and a partial list.
            error = refusal or error
            listed += found

        return error, listed

    async def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups for one group: removes the group and its offsets, unless it has members."""
        with ExitStack() as closed:
            closed.enter_context(self._without_new_members(group_id))
            not_deleted = await self._delete_most_offsets(group_id)
            if not_deleted:
                return not_deleted
            return await self.runtime.write(group_id, partial(self._delete, group_id, closed.close), _refuse_deletion)

    def _delete(
        self, group_id: str, reopen: Callable[[], None], shard: GroupShard, made: Made | None
    ) -> Outcome[ErrorCode] | Callable[[], Awaitable[Made]]:
        group = shard.state.by_id.get(group_id)
        if group is None:
            return Outcome(ErrorCode.GROUP_ID_NOT_FOUND)
        work = self._making.of_deletion(shard, group) if made is None else None
        if work is not None:
            return work
        # Kafka does not wait for the tombstones. Without the wait a fail-over could bring a group
        # back after its deletion has succeeded.
        delete = DeleteGroup(Waiting(), made)
        self._groups.happen(shard, group, delete)
        # The group is gone. A member that joins while the answer waits for the tombstones joins a
        # new group.
        reopen()
        return _outcome(delete.waiting)

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
        # Kafka writes all tombstones in one batch. If the batch is too large it is not written, and
        # the next load of the log brings the group back.
        shard = self.runtime.serving_at(self.placement.partition_of(group_id))
        group = None if shard is None else shard.state.by_id.get(group_id)
        last = tombstones_at_a_time(group_id, DELETED_AT_A_TIME)
        if group is None or group.state is not GroupState.EMPTY or len(group.recorded.offsets) <= last:
            return ErrorCode.NONE
        return (await self.delete_offsets(group_id, list(group.recorded.offsets)[last:])).error

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> DeletionAnswer:
        """OffsetDelete: removes the offsets of topics to which no member subscribes, in portions."""
        codes: dict[TopicPartition, ErrorCode] = {}
        # The loop runs at least once: a request without partitions must get the group's own error,
        # if there is one.
        at_a_time = tombstones_at_a_time(group_id, DELETED_AT_A_TIME)
        for start in range(0, max(len(partitions), 1), at_a_time):
            answer = await self._delete_offsets(group_id, partitions[start : start + at_a_time])
            # If an earlier portion has removed the last offset, the group is gone. The rest has
            # nothing to delete.
            is_gone = answer.error == ErrorCode.GROUP_ID_NOT_FOUND and codes
            if answer.error and not is_gone:
                return answer
            codes.update(dict.fromkeys(partitions[start:], ErrorCode.NONE) if is_gone else answer.codes)
            if is_gone:
                break
            await pause_after(ROWS_AT_A_TIME if start else 0)
        return DeletionAnswer(ErrorCode.NONE, codes)

    async def _delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> DeletionAnswer:
        if group_id == "":
            return DeletionAnswer(ErrorCode.INVALID_GROUP_ID, {})

        def act(shard: GroupShard, _: None) -> Outcome[DeletionAnswer] | Callable[[], Awaitable[None]]:
            group = shard.state.by_id.get(group_id)
            if group is None:
                return Outcome(DeletionAnswer(ErrorCode.GROUP_ID_NOT_FOUND, {}))
            if subscribed_topics(group) is None:
                return partial(self._groups.read_subscriptions, group)
            delete = DeleteOffsets(Waiting(), partitions)
            self._groups.happen(shard, group, delete)
            return _outcome(delete.waiting)

        # Tombstones of earlier portions stay. A client that retries the whole request deletes the rest.
        return await self.runtime.write(group_id, act, _refuse_offset_deletion)

    # -- answers that come with a later step

    async def _answer(self, entered: Entered, waiting: Waiting[Answer]) -> Answer:
        """Sleep until the request is answered. If the task is cancelled, the request is removed from the group."""
        if waiting.answer is None:
            woken = trio.Event()
            waiting.wake = lambda: release(woken.set)
            try:
                with resting():
                    await woken.wait()
            # If there is no answer, the client has disconnected. The request must not count as one
            # of a member that has joined.
            finally:
                if waiting.answer is None:
                    self._groups.happen_unasked(*entered, Forgotten(waiting))
        return _given(waiting)

    async def _hold(self, entered: Entered, waiting: Waiting[Answer], member_id: str) -> ErrorCode:
        """Wait until the record that the answer depends on is committed; then restart the member's session."""
        if waiting.after_offset == NO_OFFSET:
            return ErrorCode.NONE
        error = await self.runtime.await_committed(entered.shard, waiting.after_offset, self._groups.committed_ms())
        if not error:
            self._groups.happen_unasked(*entered, Answered(member_id))
        return error


def _exceeds(pending: Collection[PendingKey], group_id: str, offsets: Collection[TopicPartition]) -> bool:
    """Whether a transaction with these pending offsets would have too many with the new ones."""
    if len(pending) + len(offsets) <= PENDING_MAX:
        return False
    # A partition that the transaction commits again counts once.
    return len(pending) + sum((group_id, each) not in pending for each in offsets) > PENDING_MAX


def _named(wanted: Wanted) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic, indexes in wanted.items() for index in indexes]


def _given(waiting: Waiting[Answer]) -> Answer:
    if waiting.answer is None:
        raise InvariantBroken("a request was handled and got no answer")
    return waiting.answer


def _outcome(waiting: Waiting[Answer]) -> Outcome[Answer]:
    return Outcome(_given(waiting), waiting.after_offset)


# -- errors as answers


def _as_it_is(error: ErrorCode) -> ErrorCode:
    return error


def _refuse_join(member_id: str, error: ErrorCode) -> JoinAnswer:
    return JoinAnswer(error, member_id)


def _refuse_sync(error: ErrorCode) -> SyncAnswer:
    # The rebalance was lost with the former coordinator, and old clients do not handle
    # COORDINATOR_LOAD_IN_PROGRESS here. Kafka answers so, too.
    is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error)


def _refuse_heartbeat(error: ErrorCode) -> ErrorCode:
    # Sessions begin only after the load, so the member loses nothing. Kafka answers so, too.
    return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error


def _refuse_commit(commit: Commits, error: ErrorCode) -> CommitAnswer:
    # The commit stays in the log even if it is not replicated in time, so it may take effect after an error.
    answer = commit.waiting.answer
    code = OFFSETS_NOT_STORED.get(error, error)
    return CommitAnswer(code) if answer is None else CommitAnswer(code, answer.too_large)


def _refuse_deletion(error: ErrorCode) -> ErrorCode:
    return OFFSETS_NOT_STORED.get(error, error)


def _refuse_offset_deletion(error: ErrorCode) -> DeletionAnswer:
    return DeletionAnswer(OFFSETS_NOT_STORED.get(error, error), {})
