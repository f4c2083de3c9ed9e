"""Partitions on their way to another log directory (KIP-113; AlterReplicaLogDirs).

Theory of operation. A move begins with a future log in the other directory (`future_logs.py`). The current log is
followed by the same `Fetcher` that follows other brokers, of which this broker is now one (`local_leader.py`). Each
time the fetcher has caught up, as far as it knows, a task of the move tries to put the future log in the current one's
place, taking its turn among the control requests. Until then the partition knows nothing of it: clients and followers
read and write the current log.

A future log on disk *is* the wish to move: after a restart the move goes on as soon as the partition has a role. Roles
and StopReplica end a move (`leave`) and let it go on (`begin`); deleting the partition deletes the future log as
well. If the other directory fails, the move is over; if the current one does, it waits for a restart.

Neither of the two logs is compacted while it moves, as in Kafka.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.broker.containment import contained
from barnabas.broker.replication.fetcher_pool import FetcherPool
from barnabas.broker.replication.followed_partition import FetcherDeps, Leader
from barnabas.storage.disk import StorageError
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.sentinels import FETCH_REPLICA_STATE_VERSION
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.logs.directory import LogDirectory
    from barnabas.broker.logs.partition_logs import Logs
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.waiting import Waiter
    from barnabas.storage.log import PartitionLog

logger = logging.getLogger(__name__)

NEAR_OFFSETS = 1000  # so many behind, the rest may be copied in the step of the swap


class MoveDeps(FetcherDeps):
    """What the fetchers of future logs work with: what the others do, but for whom they ask."""

    def __init__(self, others: FetcherDeps, leader: Leader) -> None:
        common = others.broker_id, others.broker_epoch, others.config, others.world, others.logs, others.flusher
        super().__init__(*common, open_peer=lambda broker_id, client_id: leader)

    @property
    def fetch_version(self) -> int:
        """Whatever other brokers understand, this one understands itself."""
        return FETCH_REPLICA_STATE_VERSION

    @property
    def fetcher_count(self) -> int:
        """`num.replica.alter.log.dirs.threads`; without it one for each directory."""
        return max(self.config.num_replica_alter_log_dirs_threads or len(self.logs.directories), 1)


class FutureReplica:
    """The future log of a partition, as a fetcher sees it: a replica that follows this broker."""

    def __init__(
        self, partition: "Partition", current: "PartitionLog", log: "PartitionLog", broker_id: int, logs: "Logs"
    ) -> None:
        self.partition = partition
        self.topic_partition = partition.topic_partition
        self.current = current
        self.log = log
        self.leader_id = broker_id
        self.leader_epoch = partition.leader_epoch
        self.fetched_by_id = True
        self.waiters: dict[Waiter, None] = {}
        self.scope = trio.CancelScope()  # of the task of the move
        self.is_near = trio.Event()
        self._logs = logs

    @property
    def high_watermark(self) -> int:
        return min(self.partition.high_watermark, self.log.log_end_offset)

    def follow_to(self, leader_high_watermark: int) -> None:
        """The fetcher appended what it was sent, perhaps nothing."""
        if self.current.log_end_offset - self.log.log_end_offset <= NEAR_OFFSETS:
            self.is_near.set()

    def truncated(self) -> None:
        """The log was cut, as the current one had been."""

    def fail_storage(self, error: StorageError) -> ErrorCode:
        """The disk of the future log failed."""
        self._logs.fail_directory_of(self.log, error)
        return ErrorCode.KAFKA_STORAGE_ERROR


class _Myself:
    """This broker is always alive to itself."""

    def __init__(self, broker_id: int) -> None:
        self.brokers: Sequence[int] = (broker_id,)


class Moves:
    """Every move of this broker."""

    def __init__(self, deps: MoveDeps) -> None:
        self._broker_id = deps.broker_id
        self._logs = deps.logs
        self._fetchers = FetcherPool(deps, _Myself(deps.broker_id))
        self._moving: dict[TopicPartition, FutureReplica] = {}
        self._nursery: trio.Nursery | None = None
        self._turn = trio.Lock()

    async def run(self, turn: trio.Lock, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Move for ever; who changes the roles of partitions takes `turn`, and so does who changes their logs."""
        self._turn = turn
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._fetchers.run)
            task_status.started()
            await trio.sleep_forever()

    def __len__(self) -> int:
        """How many partitions are moving."""
        return len(self._moving)

    # -- who moves; all of this in the caller's turn

    async def move(self, partition: "Partition", current: "PartitionLog", directory: "LogDirectory") -> ErrorCode:
        """Let a partition move to this directory, if it is not there; whatever other move there was has ended."""
        futures = self._logs.futures
        if directory is self._logs.directory_of(current) or futures.get(partition.topic_partition) is not None:
            return ErrorCode.NONE
        try:
            await futures.create(current, directory)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        logger.info("%s moves to %s", current, directory.path)
        self.begin(partition)
        return ErrorCode.NONE

    async def stop_unless_to(self, key: TopicPartition, directory: "LogDirectory") -> ErrorCode:
        """End a move to any other directory than this, and forget what it copied."""
        future = self._logs.futures.get(key)
        if future is None or self._logs.directory_of(future) is directory:
            return ErrorCode.NONE
        await self.leave([key])
        try:
            await self._logs.futures.delete(key)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def begin(self, partition: "Partition") -> None:
        """Let this partition move, or move on, if there is a future log of it; it was not moving."""
        key, current = partition.topic_partition, partition.log
        future = self._logs.futures.get(key)
        if future is None or current is None:
            return
        if self._nursery is None:
            raise InvariantBroken("nothing can move before the moves run")
        move = self._moving[key] = FutureReplica(partition, current, future, self._broker_id, self._logs)
        self._nursery.start_soon(self._move, move)

    async def leave(self, keys: Iterable[TopicPartition]) -> None:
        """Let these move no more; returns when nothing is done to their future logs."""
        for cut_ended in [event for key in keys if (event := self.forget(key)) is not None]:
            await cut_ended.wait()

    def forget(self, key: TopicPartition) -> trio.Event | None:
        """Let this move no more, from this step on; the end of a truncation of its future log that is under way."""
        move = self._moving.pop(key, None)
        if move is None:
            return None
        move.scope.cancel()
        return self._fetchers.forget(key)

    def directory_failed(self, directory: str) -> None:
        """A log directory went offline: nothing moves to it any more."""
        for key, move in list(self._moving.items()):
            if move.log.directory.startswith(directory + "/"):
                self.forget(key)

    # -- a move

    async def _move(self, move: FutureReplica) -> None:
        what = "%s does not move on before its next role"
        with contained(logger, what, move.topic_partition) as attempt, move.scope:
            async with self._logs.gate.without_compaction(move.current, move.log):
                self._fetchers.follow(move)
                while not await self._arrive(move):
                    pass
        if attempt.failed and self._moving.get(move.topic_partition) is move:
            self.forget(move.topic_partition)

    async def _arrive(self, move: FutureReplica) -> bool:
        """Try the swap when the future log is near; whether that was it."""
        await move.is_near.wait()
        move.is_near = trio.Event()
        current, future = move.current, move.log
        async with self._turn:
            if self._moving.get(move.topic_partition) is not move:
                return True
            arrived = await self._logs.futures.swap(current, future, lambda flip: self._flip(move, flip))
        if arrived:
            logger.info("%s has moved to %s", future, future.directory)
        return arrived

    def _flip(self, move: FutureReplica, flip: Callable[[], bool]) -> bool:
        """The step of the swap."""
        key = move.topic_partition
        if self._moving.get(key) is not move or move.partition.log is not move.current:
            return False
        self._fetchers.forget(key)  # nothing is being cut, so it has left with this step
        if not flip():
            if self._moving.get(key) is move:
                self._fetchers.follow(move)
            return False
        del self._moving[key]
        move.partition.log_moved(move.log)
        return True
