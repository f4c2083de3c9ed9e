"""The partitions of `__consumer_offsets` that this broker leads, and their groups (shell): loading, timers, expiry.

A partition with its groups is a `Shard`. When this broker becomes the leader, it reads the partition's log and then
serves the groups. When it is no longer the leader, it drops them.

Each event is one synchronous step: decide -> append -> replay -> replies and timers. So an event always sees the state
that the log has, and nothing has to be rolled back.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import trio

from barnabas.broker.cluster.topics import GROUP_TOPIC
from barnabas.broker.containment import contained
from barnabas.broker.groups.decisions import apply_refused, apply_stored, decide
from barnabas.broker.groups.events import (
    HELD_BYTES_MAX,
    AnyReply,
    Decision,
    Event,
    Expire,
    Intent,
    Loaded,
    Made,
    PartitionsDeleted,
    StoreExpiry,
    Timer,
    TimerFired,
)
from barnabas.broker.groups.loading import Loading
from barnabas.broker.groups.ports import GroupConfig, GroupWorld, OffsetsPartition
from barnabas.broker.groups.records import GroupRecord, MalformedRecord, encode_record
from barnabas.broker.groups.replay import Groups, replay_all
from barnabas.broker.groups.sessions import apply_unloaded
from barnabas.broker.groups.state import GROUP_BYTES, Group, GroupState
from barnabas.broker.groups.timers import Timers
from barnabas.storage.disk import StorageError
from barnabas.storage.producers import Origin
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Batch, CorruptRecords, build_batch
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

ACKS_NONE = 0
MS_PER_MINUTE = 60_000
GROUPS_AT_A_TIME = 50  # groups between two checkpoints, in a pass over all groups of a shard
PARTITIONS_AT_A_TIME = 400  # committed offsets between two checkpoints, in the checks for expired and deleted ones
REPLIES_AT_A_TIME = 200  # tasks that are woken between two checkpoints
RecordsAndTooLarge = tuple[list[GroupRecord], frozenset[TopicPartition]]

RECORDS_INLINE_MAX = 100  # the records of a larger request are encoded in a thread
TIMERS_AT_A_TIME = 25  # few, as each may begin a rebalance or a generation, with many replies
LOGGED_LENGTH_MAX = 300  # characters of a text that a client chose, such as a group id or the reason of a JoinGroup


class Stored(NamedTuple):
    """The outcome of an append: its error, or the offset of the last record (NO_OFFSET where nothing was appended)."""

    error_code: ErrorCode
    last_offset: int = NO_OFFSET


class Shard:
    """One partition of the group topic that this broker leads, and its groups."""

    __slots__ = ("groups", "index", "log", "partition", "refusal")

    def __init__(self, index: int, partition: OffsetsPartition, limits: GroupConfig) -> None:
        self.index = index
        self.partition = partition
        # The log when the shard was made. The partition gets another one when it moves to another directory.
        self.log = partition.log
        self.groups = Groups(limits)
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # the error for all requests; NONE while it serves them


class _Deleted(NamedTuple):
    """Deleted partitions, and for each serving shard the log end offset at the time of the deletion."""

    partitions: Mapping[TopicPartition, None]
    ends: Mapping[Shard, int]


class Shards:
    """All shards of this broker, by partition index."""

    def __init__(self, world: GroupWorld, config: GroupConfig) -> None:
        self._world = world
        self._config = config
        self._codec = Codec(config.offsets_topic_compression_codec)
        self._shards: dict[int, Shard] = {}
        self._epochs: dict[int, int] = {}  # partition index -> the highest leader epoch of an election or resignation
        self._timers: Timers[Group, Timer] = Timers()
        self._shard_of: dict[Group, Shard] = {}  # of each group that ever had a timer, until it is removed
        self._held: dict[Group, int] = {}  # what each group counts in `_held_bytes`
        self._held_bytes = 0
        self._sleeping_until = math.inf  # when `_watch_timers` wakes by itself (trio's clock, s)
        self._wake = trio.Event()
        self._to_load: dict[Shard, None] = {}  # in the order of loading
        self._load_wanted = trio.Event()
        # Unbounded, because the senders are synchronous. Few items wait: one per deletion, one per large rebalance.
        self._deleted, self._deletions = trio.open_memory_channel[_Deleted](math.inf)
        self._to_wake, self._wakes = trio.open_memory_channel[list[AnyReply]](math.inf)

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._shards.values()))

    def get(self, index: int) -> Shard | None:
        """The shard of this partition, if this broker leads it."""
        return self._shards.get(index)

    def serving(self) -> list[Shard]:
        """The shards that are loaded and accept requests."""
        return [shard for shard in self._shards.values() if not shard.refusal]

    @property
    def room_bytes(self) -> int:
        """What the members of all groups may still grow by."""
        # The members that were loaded may take more than the limit: they are in the log, and may rejoin as they are.
        return max(HELD_BYTES_MAX - self._held_bytes, 0)

    def still_leads(self, shard: Shard) -> bool:
        """Whether this shard is still in use: neither resigned nor loaded again since."""
        return self._shards.get(shard.index) is shard and shard.partition.is_leader

    # -- leadership

    def on_elected(self, partition: OffsetsPartition) -> None:
        """This broker leads the partition in `partition.leader_epoch`: load its groups, unless it led it before."""
        index = partition.topic_partition.partition
        # As in Kafka, an election or resignation of an older epoch is late and ignored. The same epoch counts: a broker
        # resigns in the epoch in which it led, and may get the partition back in it.
        if partition.leader_epoch < self._epochs.get(index, -1):
            return
        self._epochs[index] = partition.leader_epoch
        shard = self._shards.get(index)
        # A new epoch of the same leader changes nothing: no other broker can have written to the log in between. A load
        # that failed is tried again.
        if shard is None:
            self._begin_loading(index, partition)
        elif shard.partition is not partition or shard.log is not partition.log or _has_failed(shard):
            self._unload(shard, ErrorCode.NOT_COORDINATOR)
            self._begin_loading(index, partition)

    def on_resigned(self, partition_index: int, leader_epoch: int) -> None:
        """This broker no longer leads the partition: drop its groups. Waiting requests get NOT_COORDINATOR."""
        if leader_epoch < self._epochs.get(partition_index, -1):
            return
        self._epochs[partition_index] = leader_epoch
        shard = self._shards.get(partition_index)
        if shard is not None:
            self._unload(shard, ErrorCode.NOT_COORDINATOR)

    def on_deleted(self, partition_index: int) -> None:
        """Drop the partition's leader epoch, as its log was deleted: a group topic created again begins at epoch 0."""
        # With the old epoch kept, the elections of the new topic would count as late and be ignored.
        self._epochs.pop(partition_index, None)

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions were deleted: remove the offsets that are committed for them."""
        # The removal is a task, and a topic of the same name may be created before it ends. Offsets that are committed
        # for that one have records after these log end offsets, and stay.
        # The partition's current log: after a move to another directory (AlterReplicaLogDirs) `shard.log` is closed.
        ends = {shard: log.log_end_offset for shard in self.serving() if (log := shard.partition.log) is not None}
        self._deleted.send_nowait(_Deleted(dict.fromkeys(deleted), ends))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load shards, fire timers, send replies and remove offsets, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._load_shards)
            nursery.start_soon(self._expire_offsets)
            nursery.start_soon(self._forget_deleted)
            nursery.start_soon(self._wake_sleepers)
            task_status.started()
            await self._watch_timers()

    # -- from an event to its consequences

    def happen(self, shard: Shard, group: Group, event: Event) -> None:
        """Apply an event to a group, with everything that follows, in one synchronous step.

        Raises what the step raises (InvariantBroken); the shard is then loaded again from its log.
        """
        try:
            self._follow(shard, group, decide(group, event, self._world.now_ms(), self._world.rng))
            if group.state is not GroupState.DEAD:
                self._count_held(group)
        # The step may have ended anywhere, so the state in memory cannot be trusted. The log is consistent: a batch is
        # appended as a whole or not at all.
        except BaseException:
            self._reload(shard)
            raise

    def _count_held(self, group: Group) -> None:
        """Count what the group holds now, in place of what was counted before."""
        held_bytes = group.held_bytes + (GROUP_BYTES if group.recorded.is_blank else 0)
        self._held_bytes += held_bytes - self._held.get(group, 0)
        self._held[group] = held_bytes

    def happen_unasked(self, shard: Shard, group: Group, event: Event) -> None:
        """As `happen`, for events that are no requests: the group may be Dead, and an exception is logged."""
        # Its task waited or made a list of groups, and the group has been removed or unloaded meanwhile.
        if group.state is GroupState.DEAD:
            return
        with contained(logger, "the groups of %s-%d are loaded again", GROUP_TOPIC, shard.index):
            self.happen(shard, group, event)

    def _follow(self, shard: Shard, group: Group, decision: Decision) -> None:
        """Carry out a decision: its replies, timers and records, and the decision that follows from storing those."""
        for note in decision.notes:
            logger.info("group %s %s", _printable(group.group_id), _printable(note))
        self._deliver(decision.replies)
        if decision.timers:
            self._set_timers(shard, group, decision.timers)
        if decision.intent is None:
            return
        now_ms = self._world.now_ms()
        # Append and replay are one step, so the group's state never differs from the log. What follows from it is
        # again a decision, whose replies wait until the high watermark has passed the records.
        stored = self._store(shard, decision, decision.intent, now_ms)
        if stored.error_code:
            self._follow(shard, group, apply_refused(group, decision.intent, stored.error_code, now_ms))
        else:
            self._follow(shard, group, apply_stored(group, decision.intent, stored.last_offset, now_ms))
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

    def _store(self, shard: Shard, decision: Decision, intent: Intent, now_ms: int) -> Stored:
        """Append the records and replay them."""
        # A group that has stored nothing dies without a tombstone.
        if not decision.records:
            return Stored(ErrorCode.NONE, NO_OFFSET)
        made = decision.made
        # While the batch was made in a thread, the group may have changed so that the decision has other records.
        if made is not None and made.records == decision.records:
            batch = made.batch
        else:
            try:
                batch = _build(decision.records, now_ms, self._codec)
            # A client sent a string that is too long for the record: a fault of the request, not of the state.
            except ValueError as error:
                logger.warning("a record of %s-%d cannot be written: %s", GROUP_TOPIC, shard.index, error)
                return Stored(ErrorCode.UNKNOWN_SERVER_ERROR)
        # Kafka checks this in the append; here `append_as_leader` takes batches that are already checked.
        if batch.header.size_bytes > shard.partition.config.max_message_bytes:
            return Stored(ErrorCode.MESSAGE_TOO_LARGE)
        # As in Kafka, tombstones of expired offsets are appended even below min.insync.replicas: if they get lost, a
        # later check writes them again.
        acks = ACKS_NONE if isinstance(intent, StoreExpiry) else self._config.offsets_commit_required_acks
        appended = shard.partition.append_as_leader(batch, Origin.COORDINATOR, acks)
        if isinstance(appended, ErrorCode):
            return Stored(appended)
        replay_all(shard.groups, decision.records, appended.base_offset)
        return Stored(ErrorCode.NONE, appended.last_offset)

    async def make(self, records: Callable[[], RecordsAndTooLarge]) -> Made | None:
        """Call `records` and encode their batch, both in a thread; None if there are none or they cannot be encoded."""
        # None is no error yet: the step encodes the records itself, and refuses the request if that fails.
        return await self._world.in_request_thread(_make, records, self._world.now_ms(), self._codec)

    def _set_timers(self, shard: Shard, group: Group, timers: dict[Timer, int | None]) -> None:
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

    # -- loading and unloading

    def create(self, shard: Shard, group_id: str) -> Group:
        """A new Empty group. The log has nothing about it yet."""
        return shard.groups.get_or_create(group_id, self._world.now_ms())

    def _remove(self, shard: Shard, group: Group) -> None:
        self._timers.stop_all(group)
        self._shard_of.pop(group, None)
        self._held_bytes -= self._held.pop(group, 0)
        # An append that took the log directory offline has removed all groups already.
        if shard.groups.by_id.get(group.group_id) is group:
            del shard.groups.by_id[group.group_id]

    def _begin_loading(self, index: int, partition: OffsetsPartition) -> None:
        shard = self._shards[index] = Shard(index, partition, self._config)
        log = partition.log
        if log is None or log.log_start_offset == log.log_end_offset:
            # Nothing to read: the first group of a new cluster need not wait for a task.
            shard.refusal = ErrorCode.NONE
        else:
            self._to_load[shard] = None
            self._load_wanted.set()

    def hurry(self, shard: Shard) -> None:
        """A request needs this shard: if it waits for loading, load it next."""
        if shard in self._to_load:
            del self._to_load[shard]
            self._to_load = {shard: None, **self._to_load}

    def _unload(self, shard: Shard, error: ErrorCode) -> None:
        """Drop a shard. Waiting requests of its groups get `error`, and the groups are Dead."""
        # First of all, so that tasks that still hold this shard see that it no longer serves.
        shard.refusal = error
        if self._shards.get(shard.index) is shard:
            del self._shards[shard.index]
        now_ms = self._world.now_ms()
        for group in list(shard.groups.by_id.values()):
            for reply in apply_unloaded(group, error, now_ms).replies:
                reply.deliver()
            self._remove(shard, group)

    def _reload(self, shard: Shard) -> None:
        """Drop the state of a shard and load it from its log again."""
        # Unless the failed step has unloaded the shard itself: then this broker is not its coordinator any more.
        if self._shards.get(shard.index) is shard:
            self._unload(shard, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._begin_loading(shard.index, shard.partition)

    async def _load_shards(self) -> None:
        while True:
            while not self._to_load:
                self._load_wanted = trio.Event()
                await self._load_wanted.wait()
            shard = next(iter(self._to_load))
            del self._to_load[shard]
            # A bug that one log provokes must not keep the other shards from loading.
            with contained(logger, "the groups of %s-%d cannot be loaded", GROUP_TOPIC, shard.index) as attempt:
                await self._try_loading(shard)
            if attempt.failed:
                self._fail_loading(shard, "a mistake of ours")

    async def _try_loading(self, shard: Shard) -> None:
        try:
            await self._load(shard)
        except StorageError as error:
            self._fail_loading(shard, error)
            # The directory goes offline, so the controller elects another leader that can read its log.
            shard.partition.fail_storage(error)
        except (CorruptRecords, MalformedRecord) as error:
            self._fail_loading(shard, error)

    def _fail_loading(self, shard: Shard, why: object) -> None:
        # Consumers whose offsets are missing would start at `auto.offset.reset`. So no group of the shard is served
        # until the next election, here or on another broker.
        shard.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        logger.error("the groups of %s-%d cannot be loaded and are not served: %s", GROUP_TOPIC, shard.index, why)

    async def _load(self, shard: Shard) -> None:
        """Replay the log of a shard, a slice at a time, and let it serve. Ends early if the shard is dropped."""
        log = shard.partition.log
        # It was dropped while it waited for its turn.
        if log is None or self._shards.get(shard.index) is not shard:
            return
        # The thread fills groups of its own: the shard may be dropped meanwhile, and its groups removed.
        groups = Groups(self._config)
        loading = Loading(groups)
        # Up to the log end offset, not the high watermark: a leader never truncates its log, and `_readable` in
        # coordinator.py delays answers that depend on records which are not committed yet. The coordinator appends
        # nothing meanwhile, because requests are refused.
        offset, end_offset = log.log_start_offset, log.log_end_offset
        while offset < end_offset:
            read = shard.partition.read(
                offset, max_bytes=self._config.offsets_load_buffer_size, end_offset=end_offset, at_least_one=True
            )
            if isinstance(read, ErrorCode):
                self._fail_loading(shard, read.name)
                return
            if read.slice is None:
                break
            offset = await self._world.in_thread(loading.load_slice, read.slice, offset)
            # Leadership may have changed while the thread ran.
            if self._shards.get(shard.index) is not shard:
                return
        await self._world.in_thread(loading.finish)
        if self._shards.get(shard.index) is shard:
            shard.groups = groups
            await self._begin_serving(shard)

    async def _begin_serving(self, shard: Shard) -> None:
        """Start the sessions of all members, then accept requests."""
        # In this order: a request would find a group whose members have no timers.
        await self._happen_to_all(shard, Loaded())
        if self._shards.get(shard.index) is shard:
            shard.refusal = ErrorCode.NONE
            logger.info("coordinates %d groups of %s-%d", len(shard.groups.by_id), GROUP_TOPIC, shard.index)

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
            retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
            for shard in self.serving():
                await self._forget(shard, lambda group: list(group.recorded.offsets), partial(Expire, retention_ms))
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)

    async def _forget_deleted(self) -> None:
        """Remove the offsets of deleted partitions, one deletion after the other."""
        async for deleted in self._deletions:
            for shard, end_offset in deleted.ends.items():
                if self.still_leads(shard):
                    committed = partial(_committed_of, deleted.partitions, end_offset)
                    await self._forget(shard, committed, PartitionsDeleted)

    async def _forget(
        self,
        shard: Shard,
        partitions_of: Callable[[Group], list[TopicPartition]],
        event_of: Callable[[Sequence[TopicPartition]], Event],
    ) -> None:
        """For every group of a shard, apply events for portions of its committed offsets.

        `partitions_of` lists the offsets of a group, `event_of` makes the event of a portion.
        """
        left = PARTITIONS_AT_A_TIME
        for group in list(shard.groups.by_id.values()):
            partitions = partitions_of(group)
            # One event at least, also for a group without such offsets: the group itself may have expired.
            for start in range(0, max(len(partitions), 1), PARTITIONS_AT_A_TIME):
                some = partitions[start : start + PARTITIONS_AT_A_TIME]
                self.happen_unasked(shard, group, event_of(some))
                # An event costs time even without offsets: as much as 8 of them, so 50 groups make a step.
                left -= len(some) + PARTITIONS_AT_A_TIME // GROUPS_AT_A_TIME
                if left <= 0:
                    await trio.lowlevel.checkpoint()
                    left = PARTITIONS_AT_A_TIME

    async def _happen_to_all(self, shard: Shard, event: Event) -> None:
        """Apply one event to every group of a shard, GROUPS_AT_A_TIME in a step."""
        for count, group in enumerate(list(shard.groups.by_id.values()), 1):
            self.happen_unasked(shard, group, event)
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()


def _build(records: Sequence[GroupRecord], now_ms: int, codec: Codec) -> Batch:
    """One batch of these records. Raises ValueError if a string in them is too long."""
    return build_batch([encode_record(record) for record in records], timestamp_ms=now_ms, codec=codec)


def _make(records: Callable[[], RecordsAndTooLarge], now_ms: int, codec: Codec) -> Made | None:
    listed, too_large = records()
    try:
        return Made(listed, _build(listed, now_ms, codec), too_large) if listed else None
    except ValueError:
        return None


def _committed_of(deleted: Mapping[TopicPartition, None], end_offset: int, group: Group) -> list[TopicPartition]:
    """The deleted partitions with an offset of this group whose record is below `end_offset`.

    Later records are for a topic of the same name that was created since.
    """
    offsets = group.recorded.offsets
    # Either may have tens of thousands of entries: the loop goes over the smaller one.
    fewer, more = (offsets, deleted) if len(offsets) < len(deleted) else (deleted, offsets)
    return [key for key in fewer if key in more and offsets[key].at_offset < end_offset]


def _has_failed(shard: Shard) -> bool:
    return shard.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE


def _printable(text: str) -> str:
    """A text that a client chose, as part of one log line: shortened, and escaped if it has control characters."""
    text = text[:LOGGED_LENGTH_MAX]
    return text if text.isprintable() else repr(text)
