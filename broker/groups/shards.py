"""The partitions of `__consumer_offsets` that this broker leads, their groups, and what happens to them.

Theory of operation
-------------------
A partition with its groups is a `Shard`. Elected, this broker reads the partition's log and serves it then; resigned,
it forgets everything. A new leader epoch of a partition that it has led all along changes nothing, for no other broker
can have written in between.

Every event goes one way, without an await in between: decide -> append -> replay -> replies and timers. So an event
always sees the state that the log has. Nothing is rolled back: should the state contradict itself (`InvariantBroken`),
its shard is dropped and loaded again.

What takes long for large groups is kept out of that step where it may be: a batch of many records is made in a thread
beforehand, and many sleepers are woken afterwards.

Tasks: one loads shards, one watches the timers of all groups, one wakes, two forget offsets: expired ones, and those of
deleted partitions.
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
from barnabas.broker.groups.replay import Groups, replay
from barnabas.broker.groups.sessions import apply_unloaded
from barnabas.broker.groups.state import Group, GroupState
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
GROUPS_AT_A_TIME = 50  # between two checkpoints: a step over all groups must not hold the loop
PARTITIONS_AT_A_TIME = 400  # offsets that expire in one step
REPLIES_AT_A_TIME = 200  # sleepers that are woken in one step
RecordsAndTooLarge = tuple[list[GroupRecord], frozenset[TopicPartition]]

RECORDS_INLINE_MAX = 100  # a request with more is encoded in a thread
TIMERS_AT_A_TIME = 25
LOGGED_LENGTH_MAX = 300  # ids and reasons are the client's, and may be as long as a request


class Shard:
    """One partition of the group topic that this broker leads, and its groups."""

    __slots__ = ("groups", "index", "log", "partition", "refusal")

    def __init__(self, index: int, partition: OffsetsPartition, limits: GroupConfig) -> None:
        self.index = index
        self.partition = partition
        self.log = partition.log
        self.groups = Groups(limits)
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # the error for requests; NONE once it serves


class _Deleted(NamedTuple):
    """Partitions that were deleted, and where the logs of the shards that served ended then."""

    partitions: Mapping[TopicPartition, None]
    ends: Mapping[Shard, int]


class Shards:
    """All shards of this broker, by partition index."""

    def __init__(self, world: GroupWorld, config: GroupConfig) -> None:
        self._world = world
        self._config = config
        self._codec = Codec(config.offsets_topic_compression_codec)
        self._shards: dict[int, Shard] = {}
        self._epochs: dict[int, int] = {}  # the newest leader epoch heard of, by partition
        self._timers: Timers[Group, Timer] = Timers()
        self._shard_of: dict[Group, Shard] = {}
        self._sleeping_until = math.inf
        self._wake = trio.Event()
        self._to_load: dict[Shard, None] = {}  # the next one first
        self._load_wanted = trio.Event()
        # Few in each, and soon taken.
        self._deleted, self._deletions = trio.open_memory_channel[_Deleted](math.inf)
        self._to_wake, self._wakes = trio.open_memory_channel[list[AnyReply]](math.inf)

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._shards.values()))

    def get(self, index: int) -> Shard | None:
        """The shard of this partition, if this broker leads it."""
        return self._shards.get(index)

    def serving(self) -> list[Shard]:
        """The shards that are loaded."""
        return [shard for shard in self._shards.values() if not shard.refusal]

    def still_leads(self, shard: Shard) -> bool:
        """Whether this very shard is still ours: not resigned, not loaded again."""
        return self._shards.get(shard.index) is shard and shard.partition.is_leader

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
        """This broker no longer leads the partition: another one coordinates its groups."""
        if leader_epoch < self._epochs.get(partition_index, -1):
            return
        self._epochs[partition_index] = leader_epoch
        shard = self._shards.get(partition_index)
        if shard is not None:
            self._unload(shard, ErrorCode.NOT_COORDINATOR)

    def on_deleted(self, partition_index: int) -> None:
        """The partition's log is deleted here: one of this number that comes is another, whose epochs begin again."""
        self._epochs.pop(partition_index, None)

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions exist no more: neither do the offsets committed for them."""
        ends = {shard: shard.log.log_end_offset for shard in self.serving() if shard.log is not None}
        self._deleted.send_nowait(_Deleted(dict.fromkeys(deleted), ends))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load, watch timers, and expire; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._load_shards)
            nursery.start_soon(self._expire_offsets)
            nursery.start_soon(self._forget_deleted)
            nursery.start_soon(self._wake_sleepers)
            task_status.started()
            await self._watch_timers()

    # -- from an event to its consequences

    def happen(self, shard: Shard, group: Group, event: Event) -> None:
        """Let an event happen to a group, with everything that follows, in one synchronous step."""
        try:
            self._follow(shard, group, decide(group, event, self._world.now_ms(), self._world.rng))
        except BaseException:  # how far it came is unknown; what the log says is right
            self._reload(shard)
            raise

    def happen_unasked(self, shard: Shard, group: Group, event: Event) -> None:
        """The same for what no request asked for: no client waits for the outcome, and the group may be gone."""
        if group.state is GroupState.DEAD:
            return
        with contained(logger, "the groups of %s-%d are loaded again", GROUP_TOPIC, shard.index):
            self.happen(shard, group, event)

    def _follow(self, shard: Shard, group: Group, decision: Decision) -> None:
        """Timers, replies and records of a decision, and of what follows from storing the records."""
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
        if isinstance(stored, ErrorCode):
            self._follow(shard, group, apply_refused(group, decision.intent, stored, now_ms))
        else:
            self._follow(shard, group, apply_stored(group, decision.intent, stored, now_ms))
        if group.state is GroupState.DEAD:
            self._remove(shard, group)

    def _deliver(self, replies: list[AnyReply]) -> None:
        """Give answers. Waking thousands that sleep takes longer than all else, so they wake one after the other."""
        if len(replies) <= REPLIES_AT_A_TIME:
            for reply in replies:
                reply.deliver()
            return
        sleeping = []
        for reply in replies:
            if reply.waiting.wake is None:
                reply.deliver()  # who asked in this very step looks for the answer at its end
            else:
                sleeping.append(reply)
        self._to_wake.send_nowait(sleeping)

    async def _wake_sleepers(self) -> None:
        """Give the answers that were put off, a few at a time."""
        async for replies in self._wakes:
            for number, reply in enumerate(replies, 1):
                reply.deliver()
                if number % REPLIES_AT_A_TIME == 0:
                    await trio.lowlevel.checkpoint()

    def _store(self, shard: Shard, decision: Decision, intent: Intent, now_ms: int) -> int | ErrorCode:
        """Append the records and replay them: the offset of the last one, or why they are not in the log."""
        if not decision.records:
            return NO_OFFSET
        made = decision.made
        if made is not None and made.records == decision.records:
            batch = made.batch
        else:
            try:
                batch = _build(decision.records, now_ms, self._codec)
            except ValueError as error:  # a client sent a name that is too long for the record's string fields
                logger.warning("a record of %s-%d cannot be written: %s", GROUP_TOPIC, shard.index, error)
                return ErrorCode.UNKNOWN_SERVER_ERROR
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

    async def make(self, records: Callable[[], RecordsAndTooLarge]) -> Made | None:
        """The batch of what `records` gives, made in a thread; None when it cannot be written, as the step will say."""
        return await self._world.in_request_thread(_make, records, self._world.now_ms(), self._codec)

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

    # -- loading and unloading

    def create(self, shard: Shard, group_id: str) -> Group:
        """A group of which nothing is recorded yet."""
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
            self._to_load[shard] = None
            self._load_wanted.set()

    def hurry(self, shard: Shard) -> None:
        """A request names a group of a shard that is not loaded yet: load it next."""
        if shard in self._to_load:
            del self._to_load[shard]
            self._to_load = {shard: None, **self._to_load}

    def _unload(self, shard: Shard, error: ErrorCode) -> None:
        """Forget a shard; requests that wait in its groups are answered."""
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
        while True:
            while not self._to_load:
                self._load_wanted = trio.Event()
                await self._load_wanted.wait()
            shard = next(iter(self._to_load))
            del self._to_load[shard]
            with contained(logger, "the groups of %s-%d cannot be loaded", GROUP_TOPIC, shard.index) as attempt:
                await self._try_loading(shard)
            if attempt.failed:
                self._fail_loading(shard, "a mistake of ours")

    async def _try_loading(self, shard: Shard) -> None:
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
        loading = Loading(shard.groups)
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
            offset = await self._world.in_thread(loading.load_slice, read.slice, offset)
            if self._shards.get(shard.index) is not shard:
                return
        await self._world.in_thread(loading.finish)
        await self._begin_serving(shard)

    async def _begin_serving(self, shard: Shard) -> None:
        """Start the sessions of all members, then answer requests."""
        await self._happen_to_all(shard, Loaded())
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
                self.happen_unasked(self._shard_of[group], group, TimerFired(timer))

    async def _expire_offsets(self) -> None:
        """Look for expired offsets, every offsets.retention.check.interval.ms."""
        while True:
            retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
            for shard in self.serving():
                await self._forget(shard, lambda group: list(group.recorded.offsets), partial(Expire, retention_ms))
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)

    async def _forget_deleted(self) -> None:
        """Forget the offsets of partitions that were deleted."""
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
        """Let an event happen to some offsets of every group, a few at a time."""
        left = PARTITIONS_AT_A_TIME
        for group in list(shard.groups.by_id.values()):
            partitions = partitions_of(group)
            for start in range(0, max(len(partitions), 1), PARTITIONS_AT_A_TIME):
                some = partitions[start : start + PARTITIONS_AT_A_TIME]
                self.happen_unasked(shard, group, event_of(some))
                left -= len(some) + PARTITIONS_AT_A_TIME // GROUPS_AT_A_TIME
                if left <= 0:
                    await trio.lowlevel.checkpoint()
                    left = PARTITIONS_AT_A_TIME

    async def _happen_to_all(self, shard: Shard, event: Event) -> None:
        """Let an event happen to every group of a shard, a few at a time."""
        for count, group in enumerate(list(shard.groups.by_id.values()), 1):
            self.happen_unasked(shard, group, event)
            if count % GROUPS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()


def _build(records: Sequence[GroupRecord], now_ms: int, codec: Codec) -> Batch:
    """One batch of these records; ValueError when a name in them is too long."""
    return build_batch([encode_record(record) for record in records], timestamp_ms=now_ms, codec=codec)


def _make(records: Callable[[], RecordsAndTooLarge], now_ms: int, codec: Codec) -> Made | None:
    listed, too_large = records()
    try:
        return Made(listed, _build(listed, now_ms, codec), too_large) if listed else None
    except ValueError:
        return None


def _committed_of(deleted: Mapping[TopicPartition, None], end_offset: int, group: Group) -> list[TopicPartition]:
    """Those of the deleted partitions for which the group had committed when its log ended there.

    What was committed later is for a topic of the same name that was created since.
    """
    offsets = group.recorded.offsets
    fewer, more = (offsets, deleted) if len(offsets) < len(deleted) else (deleted, offsets)
    return [key for key in fewer if key in more and offsets[key].at_offset < end_offset]


def _has_failed(shard: Shard) -> bool:
    return shard.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE


def _printable(text: str) -> str:
    """Text from a client, fit for one line of a log."""
    text = text[:LOGGED_LENGTH_MAX]
    return text if text.isprintable() else repr(text)
