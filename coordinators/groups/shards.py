"""The groups in the partitions of `__consumer_offsets` that this broker leads (shell): events, timers, expiry.

A partition with its groups is a `Shard` (`coordinators/runtime/`, which loads and drops them).

Each event is one synchronous step: decide -> append -> replay -> replies and timers. So an event always sees the state
that the log has, and nothing has to be rolled back.
"""

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.coordinators.groups.batches import build, tombstones_at_a_time
from barnabas.coordinators.groups.classic.decisions import apply_refused, apply_stored, decide
from barnabas.coordinators.groups.classic.events import (
    AnyReply,
    Decision,
    Event,
    Expire,
    Intent,
    Loaded,
    Shed,
    StoreExpiry,
    Timer,
    TimerFired,
)
from barnabas.coordinators.groups.classic.sessions import apply_unloaded
from barnabas.coordinators.groups.classic.state import (
    GROUP_BYTES,
    MEMBER_BYTES,
    Group,
    GroupState,
    subscribed_topics,
    text_bytes,
)
from barnabas.coordinators.groups.classic.subscriptions import reading
from barnabas.coordinators.groups.loader import GroupLoader
from barnabas.coordinators.groups.memory import SHEDDINGS_MAX, GroupMemory, Held
from barnabas.coordinators.groups.outdated import Outdated, ReadTopicIds
from barnabas.coordinators.groups.ports import GroupConfig, GroupWorld
from barnabas.coordinators.groups.replay import Groups, replay_all, replay_marker
from barnabas.coordinators.groups.timers import Timers
from barnabas.coordinators.runtime.placement import Placement
from barnabas.coordinators.runtime.runtime import Outcome, Runtime, Waits, Write
from barnabas.coordinators.runtime.shard import Shard, Stored
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Batch
from barnabas.wire.sentinels import ACKS_ALL, NO_PRODUCER_ID
from barnabas.wire.topics import GROUP_TOPIC, TopicPartition
from barnabas.world.containment import contained
from barnabas.world.memory import members_limit_bytes
from barnabas.world.pacing import complete, pause_after

if TYPE_CHECKING:
    from barnabas.world.metadata import ClusterMetadata

logger = logging.getLogger(__name__)

ACKS_NONE = 0
MS_PER_MINUTE = 60_000
GROUPS_AT_A_TIME = 50  # groups between two checkpoints, in a pass over all groups of a shard
PARTITIONS_AT_A_TIME = 400  # committed offsets between two checkpoints, in the checks for expired and deleted ones
REPLIES_AT_A_TIME = 200  # tasks that are woken between two checkpoints
TIMERS_AT_A_TIME = 25  # few, as each may begin a rebalance or a generation, with many replies
NOTES_MAX = 10  # lines of the log about one event
LOGGED_LENGTH_MAX = 300  # characters of a text that a client chose, such as a group id or the reason of a JoinGroup

GroupShard = Shard[Groups]


class GroupShards:
    """The groups of all shards of this broker. Owns `runtime`."""

    def __init__(
        self, world: GroupWorld, config: GroupConfig, metadata: "ClusterMetadata", read_topic_ids: ReadTopicIds
    ) -> None:
        self._world = world
        self._config = config
        self._codec = Codec(config.offsets_topic_compression_codec)
        self.placement = Placement(GROUP_TOPIC, metadata, lambda: config.offsets_topic_num_partitions)
        self.runtime = Runtime(
            GROUP_TOPIC,
            self,
            world,
            self.placement,
            lambda: config.offsets_load_buffer_size,
            Waits(self.committed_ms, self.committed_ms),
        )
        self.outdated = Outdated(self.runtime, metadata, read_topic_ids)
        self._timers: Timers[Group, Timer] = Timers()
        self._shard_of: dict[Group, GroupShard] = {}  # of each group that ever had a timer, until it is removed
        self._memory = GroupMemory(members_limit_bytes(config.group_members_max_bytes, world.memory_bytes))
        self._sleeping_until = math.inf  # when `_watch_timers` wakes by itself (trio's clock, s)
        self._wake = trio.Event()

        # The channel is unbounded, because the senders are synchronous. Few items wait: one per
        # large rebalance, one per shard that is unloaded.
        self._to_wake, self._wakes = trio.open_memory_channel[list[AnyReply]](math.inf)
        self._unloaded, self._to_remove = trio.open_memory_channel[GroupShard](math.inf)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load groups, fire timers, send replies and remove offsets, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runtime.load)
            nursery.start_soon(self._expire_offsets)
            nursery.start_soon(self.outdated.run, self.forget)
            nursery.start_soon(self._wake_sleepers)
            nursery.start_soon(self._remove_unloaded)
            task_status.started()
            await self._watch_timers()

    # -- from an event to its consequences

    def happen(self, shard: GroupShard, group: Group, event: Event, *, is_asked: bool = True) -> None:
        """Apply an event to a group, with everything that follows, in one synchronous step.

        `is_asked` if a request of a client is the event. Raises what the step raises (InvariantBroken); the shard is
        then loaded again from its log.
        """
        self.runtime.step(shard, partial(self._happen, group, event, is_asked))

    def _happen(self, group: Group, event: Event, is_asked: bool, shard: GroupShard, _: None) -> Outcome[None]:
        self._follow(shard, group, decide(group, event, self._world.now_ms(), self._world.rng))
        if group.state is not GroupState.DEAD:
            self._memory.count(shard, group, trio.current_time(), is_heard=is_asked)
        return Outcome(None)

    @property
    def load(self) -> int:
        """About how many members all groups have."""
        return self._memory.held_bytes // MEMBER_BYTES

    def make_room(self, group: Group | None, grown_bytes: int, group_id: str) -> bool:
        """Whether a group may grow by so many bytes; other groups lose members for it. None is one to be created."""
        if group is None:
            grown_bytes += GROUP_BYTES + text_bytes(group_id)
        # A member that rejoins as it was is not refused, even if more members were loaded than there is memory for.
        if grown_bytes <= 0:
            return True
        for _ in range(SHEDDINGS_MAX):
            if not self._memory.lacks(grown_bytes):
                return True
            largest = self._memory.to_shed(group, grown_bytes, trio.current_time())
            # An earlier request may have left `group` itself without members. It is not removed, as
            # this request uses it.
            if largest is None or (largest.group is group and largest.is_left_over):
                return False
            self._shed(largest, grown_bytes)
        return False

    def _shed(self, largest: Held, wanted_bytes: int) -> None:
        if not largest.is_left_over:
            self.happen_unasked(largest.shard, largest.group, Shed(wanted_bytes))
        if largest.is_left_over:
            self._remove(largest.shard, largest.group)

    def happen_unasked(self, shard: GroupShard, group: Group, event: Event) -> None:
        """As `happen`, for events that are no requests: the group may be Dead, and an exception is logged."""
        # The caller has waited, or goes over a list of groups: the group may have been removed or
        # unloaded meanwhile.
        if group.state is GroupState.DEAD or not self.runtime.still_leads(shard):
            return
        with contained(logger, "the groups of %s-%d are loaded again", GROUP_TOPIC, shard.index):
            self.happen(shard, group, event, is_asked=False)

    def _follow(self, shard: GroupShard, group: Group, decision: Decision) -> None:
        """Carry out a decision: its replies, timers and records, and the decision that follows from storing those."""
        _log(group, decision.notes)
        self._deliver(decision.replies)
        if decision.timers:
            self._set_timers(shard, group, decision.timers)
        if decision.intent is None:
            return
        now_ms = self._world.now_ms()
        # Append and replay are one step, so the group's state never differs from the log. What
        # follows from storing the records is again a decision, whose replies wait until the high
        # watermark has passed them. Without records nothing is appended: a group that has stored
        # nothing dies without a tombstone.
        write = self._write(shard, decision, decision.intent, now_ms) if decision.records else None
        stored = Outcome(None) if write is None else self.runtime.step(shard, lambda *_: write)
        if isinstance(stored, ErrorCode):
            self._follow(shard, group, apply_refused(group, decision.intent, stored, now_ms))
        else:
            self._follow(shard, group, apply_stored(group, decision.intent, stored.after_offset, now_ms))

        if group.state is GroupState.DEAD:
            self._remove(shard, group)

    def _deliver(self, replies: list[AnyReply]) -> None:
        """Answer requests, all at once or, if they are many, a few at a time."""
        # To wake thousands of tasks is the longest part of a rebalance, and all of them would run in the next step.
        if len(replies) <= REPLIES_AT_A_TIME:
            for reply in replies:
                reply.deliver()
            return
        sleeping = []
        for reply in replies:
            # The request of this step itself does not sleep: it reads its answer when `happen` returns.
            if reply.waiting.wake is None:
                reply.deliver()
            else:
                sleeping.append(reply)
        self._to_wake.send_nowait(sleeping)

    async def _wake_sleepers(self) -> None:
        """Send the replies that `_deliver` has put off, a few at a time."""
        async for replies in self._wakes:
            for number, reply in enumerate(replies, 1):
                reply.deliver()
                if number % REPLIES_AT_A_TIME == 0:
                    await trio.lowlevel.checkpoint()

    def _write(self, shard: GroupShard, decision: Decision, intent: Intent, now_ms: int) -> Write[Groups, None]:
        """The records as one batch."""
        records = decision.records
        made = decision.made
        transaction = decision.transaction
        producer_id = NO_PRODUCER_ID if transaction is None else transaction.producer_id

        # While the batch was made in a thread, the group may have changed so that the decision has other records.
        if made is not None and made.records == records:
            batch = made.batch
        else:
            batch = build(records, now_ms, self._codec, shard.partition.config.max_message_bytes, transaction)

        # As in Kafka, tombstones of expired offsets are appended even below min.insync.replicas: if they get lost, a
        # later check writes them again.
        acks = ACKS_NONE if isinstance(intent, StoreExpiry) else self._config.offsets_commit_required_acks
        return Write(
            batch,
            lambda groups, base_offset: replay_all(groups, records, base_offset, producer_id),
            None,
            required_acks=acks,
            guard=transaction and transaction.guard,
            is_verifying=transaction is not None and transaction.is_verifying,
        )

    def end_transaction(self, shard: GroupShard, marker: Batch, producer_id: int, *, committed: bool) -> Stored:
        """Append the marker of a transaction, and replay it in the same step. An exception is logged."""
        write: Write[Groups, None] = Write(
            marker,
            lambda groups, offset: replay_marker(groups, producer_id, offset, committed=committed),
            None,
        )

        # This error is the answer after an exception: the coordinator sends the marker again. If
        # the first one is in the log already, the second one ends nothing.
        result: Outcome[None] | ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
        with contained(logger, "the groups of %s-%d are loaded again", GROUP_TOPIC, shard.index):
            result = self.runtime.step(shard, lambda *_: write)
        return Stored(result) if isinstance(result, ErrorCode) else Stored(ErrorCode.NONE, result.after_offset)

    def _set_timers(self, shard: GroupShard, group: Group, timers: dict[Timer, int | None]) -> None:
        now = trio.current_time()
        # `_watch_timers` gets the group of a timer, and needs its shard.
        self._shard_of[group] = shard
        for timer, after_ms in timers.items():
            if after_ms is None:
                self._timers.stop(group, timer)
            else:
                self._timers.start(group, timer, now + after_ms / 1000)
        # Most timers are moved to later, and need no wake-up.
        if self._timers.next_at < self._sleeping_until:
            self._wake.set()

    async def read_subscriptions(self, group: Group) -> None:
        """Read to which topics the current generation subscribes, unless that was done; a large group's in a thread."""
        while subscribed_topics(group) is None:
            subscriptions = group.subscriptions or ()
            topics = await complete(reading(subscriptions), self._world.in_request_thread)
            # Otherwise another generation has begun meanwhile.
            if group.subscriptions is subscriptions:
                group.subscribed = topics

    def create(self, shard: GroupShard, group_id: str) -> Group:
        """A new Empty group. The log has nothing about it yet."""
        return shard.state.get_or_create(group_id, self._world.now_ms())

    def remove_blank(self, shard: GroupShard, group: Group) -> None:
        """Remove a group that was created for a commit of which nothing was stored."""
        # A client could make any number of such groups, which would stay until offsets are checked
        # for their expiry.
        if group.recorded.is_blank:
            self._remove(shard, group)

    def _remove(self, shard: GroupShard, group: Group) -> None:
        self._timers.stop_all(group)
        self._shard_of.pop(group, None)
        self._memory.release(group)
        # A group that is removed by `_remove_unloaded` is not in `by_id` any more.
        if shard.state.by_id.get(group.group_id) is group:
            del shard.state.by_id[group.group_id]

    # -- loaded and unloaded, called by `shards`

    def new_state(self) -> Groups:
        """No groups."""
        return Groups(self._config)

    def new_loader(self) -> GroupLoader:
        """What replays a log into groups of its own."""
        return GroupLoader(Groups(self._config))

    async def before_serving(self, shard: GroupShard) -> None:
        """Start the sessions of all members, GROUPS_AT_A_TIME in a step."""
        # This comes before requests are accepted, which would find groups whose members have no
        # timers.
        for count, group in enumerate(list(shard.state.by_id.values()), 1):
            self.happen_unasked(shard, group, Loaded())
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()

    def on_serving(self, shard: GroupShard) -> None:
        """The groups accept requests from now on."""
        self.outdated.note_serving()
        if shard.state.by_id:
            logger.info("coordinates %d groups of %s-%d", len(shard.state.by_id), GROUP_TOPIC, shard.index)

    def on_unloaded(self, shard: GroupShard, error: ErrorCode) -> None:
        """Waiting requests of the shard's groups get `error`; the groups are removed in steps."""
        # Only waiting requests are answered now, and `_remove_unloaded` does the rest: a shard may
        # have tens of thousands of groups, and many shards are unloaded in one step.
        for group in [group for group in shard.state.by_id.values() if group.joins or group.syncs]:
            self._deliver(apply_unloaded(group, error, self._world.now_ms()).replies)
        self._unloaded.send_nowait(shard)

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions were deleted: remove the offsets that are committed for them."""
        self.outdated.note_deleted(deleted)

    def committed_ms(self) -> int | None:
        """How long an answer waits for its records; None: not at all."""
        if self._config.offsets_commit_required_acks != ACKS_ALL:
            return None
        return self._config.offsets_commit_timeout_ms

    async def _remove_unloaded(self) -> None:
        async for shard in self._to_remove:
            groups = shard.state.by_id
            while groups:
                for _ in range(min(GROUPS_AT_A_TIME, len(groups))):
                    self._remove(shard, groups.popitem()[1])
                await trio.lowlevel.checkpoint()

    # -- time

    async def _watch_timers(self) -> None:
        """Fire the timers of all groups, at most TIMERS_AT_A_TIME in a step."""
        while True:
            # If timers are left that are due, the deadline lies in the past, and this wait is a checkpoint only.
            self._wake = trio.Event()
            self._sleeping_until = self._timers.next_at
            with trio.move_on_at(self._sleeping_until):
                await self._wake.wait()
            for _ in range(TIMERS_AT_A_TIME):
                due = self._timers.pop_due(trio.current_time())
                if due is None:
                    break
                group, timer = due
                self.happen_unasked(self._shard_of[group], group, TimerFired(timer))

    async def _expire_offsets(self) -> None:
        """Remove expired offsets, every `offsets.retention.check.interval.ms`."""
        while True:
            self.outdated.look_again()
            retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
            for shard in self.runtime.serving():
                for group in list(shard.state.by_id.values()):
                    if group.recorded.offsets and group.state is GroupState.STABLE:
                        await self.read_subscriptions(group)
                    await pause_after(1)
                await self.forget(shard, lambda group: list(group.recorded.offsets), partial(_expiry_of, retention_ms))
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)

    async def forget(
        self,
        shard: GroupShard,
        partitions_of: Callable[[Group], list[TopicPartition]],
        event_of: Callable[[Group, Sequence[TopicPartition]], Event],
    ) -> None:
        """For every group of a shard, apply events for portions of its committed offsets.

        `partitions_of` lists the offsets of a group, `event_of` makes the event of a portion.
        """
        left = PARTITIONS_AT_A_TIME
        for group in list(shard.state.by_id.values()):
            partitions = partitions_of(group)
            at_a_time = tombstones_at_a_time(group.group_id, PARTITIONS_AT_A_TIME)
            # There is one event at least, also for a group without such offsets: the group itself
            # may have expired.
            for start in range(0, max(len(partitions), 1), at_a_time):
                some = partitions[start : start + at_a_time]
                self.happen_unasked(shard, group, event_of(group, some))
                # An event costs time even without offsets, as much as 8 offsets do: 50 such events
                # make a step.
                left -= len(some) * PARTITIONS_AT_A_TIME // at_a_time + PARTITIONS_AT_A_TIME // GROUPS_AT_A_TIME
                if left <= 0:
                    await trio.lowlevel.checkpoint()
                    left = PARTITIONS_AT_A_TIME


def _expiry_of(retention_ms: int, _: Group, some: Sequence[TopicPartition]) -> Expire:
    return Expire(retention_ms, some)


def _log(group: Group, notes: Sequence[str]) -> None:
    """Log the notes of a group, in NOTES_MAX lines at most: a LeaveGroup may name many members."""
    for note in notes[:NOTES_MAX]:
        logger.info("group %s %s", _printable(group.group_id), _printable(note))
    if len(notes) > NOTES_MAX:
        logger.info("group %s has %d more changes in the same step", _printable(group.group_id), len(notes) - NOTES_MAX)


def _printable(text: str) -> str:
    """A text that a client chose, as part of one log line: shortened, and escaped if it has control characters."""
    text = text[:LOGGED_LENGTH_MAX]
    return text if text.isprintable() else repr(text)
