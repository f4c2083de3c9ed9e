"""All shards of one internal topic: elections, loading, and answers that wait (shell).

The coordinator owns the shards and says through `Owner` what their state is.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol

import trio

from barnabas.coordinators.runtime.loading import Loader, Loading
from barnabas.coordinators.runtime.ports import ShardPartition, ShardWorld
from barnabas.coordinators.runtime.shard import Shard, State
from barnabas.storage.disk import StorageError
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import CorruptRecords
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition
from barnabas.wire.versioned_records import MalformedRecord
from barnabas.world.containment import contained

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # before a log is read again, after the process lacked a descriptor or memory


class Owner(Protocol[State]):
    """The coordinator that the shards belong to."""

    def new_state(self) -> State:
        """The state of an empty log."""

    def new_loader(self) -> Loader[State]:
        """What makes the state of a log. It runs in a thread, and may touch nothing that is in use."""

    async def before_serving(self, shard: Shard[State]) -> None:
        """`shard.state` has just been loaded; requests are refused until this returns. Not called for an empty log.

        It may wait, and the shard may be dropped meanwhile (`Shards.still_leads`).
        """

    def on_serving(self, shard: Shard[State]) -> None:
        """The shard accepts requests from now on."""

    def on_unloaded(self, shard: Shard[State], error: ErrorCode) -> None:
        """The shard is dropped, whether it was loaded or not: what waits for it gets `error`."""

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions, of any topic, are being deleted."""


class Shards(Generic[State]):
    """The shards that this broker leads, by partition index."""

    def __init__(self, topic: str, owner: Owner[State], world: ShardWorld, slice_bytes: Callable[[], int]) -> None:
        """`slice_bytes`: how much of a log is read at a time while it is loaded."""
        self._topic = topic
        self._owner = owner
        self._world = world
        self._slice_bytes = slice_bytes
        self._shards: dict[int, Shard[State]] = {}
        self._epochs: dict[int, int] = {}  # partition index -> the highest leader epoch of an election or resignation
        self._dropped: set[int] = set()  # partition indexes that had a shard
        self._to_load: dict[Shard[State], None] = {}  # in the order of loading
        self._load_wanted = trio.Event()

    def __iter__(self) -> Iterator[Shard[State]]:
        return iter(list(self._shards.values()))

    def serving(self) -> list[Shard[State]]:
        """The shards that are loaded and accept requests."""
        return [shard for shard in self._shards.values() if not shard.refusal]

    def find(self, index: int) -> Shard[State] | ErrorCode:
        """The shard that serves this partition, or the error for the client.

        Errors: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (its log cannot be loaded).
        """
        shard = self._shards.get(index)
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        if shard.refusal:
            self._hurry(shard)
        return shard.refusal or shard

    def serving_at(self, index: int) -> Shard[State] | None:
        """As `find`; None if no shard serves this partition."""
        shard = self.find(index)
        return None if isinstance(shard, ErrorCode) else shard

    def still_leads(self, shard: Shard[State]) -> bool:
        """Whether this shard is still in use: neither resigned nor loaded again since."""
        return self._shards.get(shard.index) is shard and shard.partition.is_leader

    # -- leadership

    def on_elected(self, partition: ShardPartition) -> None:
        """This broker leads the partition in `partition.leader_epoch`: load its log, unless it led it before."""
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
        elif shard.partition is not partition or shard.log is not partition.log or shard.has_failed:
            self._unload(shard, ErrorCode.NOT_COORDINATOR)
            self._begin_loading(index, partition)

    def on_resigned(self, partition_index: int, leader_epoch: int) -> None:
        """This broker no longer leads the partition: drop its shard. Waiting requests get NOT_COORDINATOR."""
        if leader_epoch < self._epochs.get(partition_index, -1):
            return
        self._epochs[partition_index] = leader_epoch
        shard = self._shards.get(partition_index)
        if shard is not None:
            self._unload(shard, ErrorCode.NOT_COORDINATOR)

    def on_deleted(self, partition_index: int) -> None:
        """Drop the partition's leader epoch, as its log was deleted: a topic created again begins at epoch 0."""
        # With the old epoch kept, the elections of the new topic would count as late and be ignored.
        self._epochs.pop(partition_index, None)

    # -- answers that wait

    async def await_committed(self, shard: Shard[State], after_offset: int, timeout_ms: int | None) -> ErrorCode:
        """Wait until the record at `after_offset` is committed: NONE, or the error of `await_high_watermark`.

        `timeout_ms` None: it does not wait at all.
        """
        if after_offset == NO_OFFSET or timeout_ms is None:
            return ErrorCode.NONE
        deadline = trio.current_time() + timeout_ms / 1000
        while True:
            outcome = await shard.partition.await_high_watermark(after_offset + 1, deadline)
            if outcome is not ErrorCode.NOT_LEADER_OR_FOLLOWER or not self.still_leads(shard):
                return outcome
            # While this shard is in use, the record is in the log and can still be committed.

    async def await_readable(self, shard: Shard[State], after_offset: int, timeout_ms: int | None) -> ErrorCode:
        """As `await_committed`, for an answer that only reads.

        NONE, or what clients retry: COORDINATOR_LOAD_IN_PROGRESS if it takes too long, NOT_COORDINATOR after a change
        of the leader.
        """
        # Usually the record is committed already, and no waiter is needed.
        if shard.is_committed(after_offset):
            return ErrorCode.NONE
        outcome = await self.await_committed(shard, after_offset, timeout_ms)
        # NOT_ENOUGH_REPLICAS_AFTER_APPEND: the record is committed, which is enough for a reader.
        if outcome in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            return ErrorCode.NONE
        if outcome is ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    async def await_confirmed(self, shard: Shard[State], timeout_ms: int) -> ErrorCode:
        """Wait until it is certain that no other broker has written to the shard before the call.

        NONE, or what clients retry: COORDINATOR_LOAD_IN_PROGRESS if it takes too long, NOT_COORDINATOR after a change
        of the leader.
        """
        outcome = await shard.partition.confirm(trio.current_time() + timeout_ms / 1000)
        if outcome is ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR if outcome else ErrorCode.NONE

    # -- loading and unloading

    async def load(self) -> None:
        """Load the logs of elected shards, one after the other, until cancelled."""
        while True:
            while not self._to_load:
                self._load_wanted = trio.Event()
                await self._load_wanted.wait()
            shard = next(iter(self._to_load))
            del self._to_load[shard]
            # A bug that one log provokes must not keep the other shards from loading.
            with contained(logger, "%s-%d cannot be loaded", self._topic, shard.index) as attempt:
                await self._try_loading(shard)
            if attempt.failed:
                self._fail_loading(shard, "a mistake of ours")

    def _begin_loading(self, index: int, partition: ShardPartition) -> None:
        is_again = index in self._dropped
        shard = self._shards[index] = Shard(index, partition, self._owner.new_state(), is_again=is_again)
        log = partition.log
        if log is None or log.log_start_offset == log.log_end_offset:
            # Nothing to read: the first request of a new cluster need not wait for a task.
            self._begin_serving(shard)
        else:
            self._to_load[shard] = None
            self._load_wanted.set()

    def _begin_serving(self, shard: Shard[State]) -> None:
        shard.refusal = ErrorCode.NONE
        self._owner.on_serving(shard)

    def _hurry(self, shard: Shard[State]) -> None:
        """A request needs this shard: if it waits for loading, load it next."""
        if shard in self._to_load:
            del self._to_load[shard]
            self._to_load = {shard: None, **self._to_load}

    def _unload(self, shard: Shard[State], error: ErrorCode) -> None:
        """Drop a shard. What waits for it gets `error`."""
        # This is set first, so that tasks that still hold this shard see that it no longer serves.
        shard.refusal = error
        if self._shards.get(shard.index) is shard:
            del self._shards[shard.index]
        self._dropped.add(shard.index)
        self._to_load.pop(shard, None)
        self._owner.on_unloaded(shard, error)

    def _reload(self, shard: Shard[State]) -> None:
        """Drop the state of a shard and load it from its log again."""
        # The failed step may have unloaded the shard itself: then this broker is not its
        # coordinator any more.
        if self._shards.get(shard.index) is shard:
            self._unload(shard, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            self._begin_loading(shard.index, shard.partition)

    async def _try_loading(self, shard: Shard[State]) -> None:
        try:
            await self._load(shard)
        except StorageError as error:
            # Unless descriptors or memory were short, the log directory goes offline, and the
            # controller elects a leader that can read its own log.
            shard.partition.fail_storage(error)
            await self._put_off(shard, error)
        except (CorruptRecords, MalformedRecord) as error:
            self._fail_loading(shard, error)

    async def _put_off(self, shard: Shard[State], why: object) -> None:
        """Load a shard later: the process lacked a descriptor or memory, which says nothing about the log."""
        # If the log directory has failed, this broker has lost the leadership, and with it the
        # shard.
        if self._shards.get(shard.index) is shard:
            logger.warning("%s-%d cannot be loaded yet: %s", self._topic, shard.index, why)
            self._to_load[shard] = None
            # The next log would meet the same shortage.
            await trio.sleep(RETRY_SECONDS)

    def _fail_loading(self, shard: Shard[State], why: object) -> None:
        # What is missing would be taken as never stored: a consumer without its offset would start at
        # `auto.offset.reset`, a transaction without its decision would stay open. So nothing of the shard is served
        # until the next election, here or on another broker.
        shard.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        logger.error("%s-%d cannot be loaded and is not served: %s", self._topic, shard.index, why)

    async def _load(self, shard: Shard[State]) -> None:
        """Replay the log of a shard, a slice at a time, and let it serve. Ends early if the shard is dropped."""
        log = shard.partition.log

        # The shard was dropped while it waited for its turn.
        if log is None or self._shards.get(shard.index) is not shard:
            return

        # The thread fills a state of its own: the shard may be dropped meanwhile.
        loading = Loading(self._owner.new_loader())

        # The load goes up to the log end offset, not the high watermark: a leader never truncates
        # its log, and answers that depend on records which are not committed yet wait. The
        # coordinator appends nothing meanwhile, because requests are refused.
        offset = log.log_start_offset
        end_offset = log.log_end_offset
        while offset < end_offset:
            read = shard.partition.read(offset, max_bytes=self._slice_bytes(), end_offset=end_offset, at_least_one=True)
            if read is ErrorCode.KAFKA_STORAGE_ERROR:
                await self._put_off(shard, read.name)
                return
            if isinstance(read, ErrorCode):
                self._fail_loading(shard, read.name)
                return
            if read.slice is None:
                break
            try:
                offset = await self._world.in_thread(loading.load_slice, read.slice, offset)
            # The broker stops and the thread has not begun, so `load_slice` does not release the
            # slice.
            except trio.Cancelled:
                read.slice.release()
                raise

            # Leadership may have changed while the thread ran.
            if self._shards.get(shard.index) is not shard:
                return

        state = await self._world.in_thread(loading.finish)
        if self._shards.get(shard.index) is not shard:
            return
        shard.state = state
        await self._owner.before_serving(shard)
        if self._shards.get(shard.index) is shard:
            self._begin_serving(shard)
