"""Moves of partitions to another log directory (KIP-113; AlterReplicaLogDirs).

A move begins with an empty future log in the target directory (`future_logs.py`). A `Fetcher`, the same as for other
brokers, copies the current log into it; `LocalLeader` answers as its leader. When the future log is near the end of the
current one, the task of the move tries to swap the two. Until the swap clients and followers use the current log.

The future log on disk records the request to move: after a restart the copy begins again when the partition gets its
role. LeaderAndIsr and StopReplica pause a move (`leave`), and the next role resumes it (`begin`) if the partition still
has the log that is copied. The deletion of the partition deletes the future log, too.

As in Kafka the current log is not compacted as long as it has a future log (`LogCleaner`).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.replication.fetcher_pool import FetcherPool
from barnabas.replication.followed_partition import FetcherDeps, Leader
from barnabas.storage.disk import StorageError
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.sentinels import FETCH_REPLICA_STATE_VERSION
from barnabas.wire.topics import TopicPartition
from barnabas.world.containment import contained
from barnabas.world.tally import TopicTally

if TYPE_CHECKING:
    from barnabas.config.live import TopicConfig
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.replication.logs.partition_logs import Logs
    from barnabas.replication.partition import Partition
    from barnabas.storage.log import PartitionLog
    from barnabas.world.waiting import Waiter

logger = logging.getLogger(__name__)

NEAR_OFFSETS = 1000  # if no more are missing, the swap is tried; it copies them if they are few bytes


class MoveDeps(FetcherDeps):
    """The dependencies of the fetchers of future logs: those of the other fetchers, with this broker as the leader."""

    def __init__(self, others: FetcherDeps, leader: Leader) -> None:
        common = others.broker_id, others.broker_epoch, others.config, others.world, others.logs, others.flusher
        super().__init__(*common, open_peer=lambda broker_id, client_id: leader)

    @property
    def fetch_version(self) -> int:
        """Fixed, because the inter-broker protocol version concerns other brokers only."""
        return FETCH_REPLICA_STATE_VERSION

    @property
    def fetcher_count(self) -> int:
        """`num.replica.alter.log.dirs.threads`; if it is not set, one for each log directory."""
        return max(self.config.num_replica_alter_log_dirs_threads or len(self.logs.directories), 1)


class FutureReplica:
    """One move: the future log of a partition as a replica that follows this broker. A `Followable`."""

    def __init__(
        self, partition: "Partition", current: "PartitionLog", log: "PartitionLog", broker_id: int, logs: "Logs"
    ) -> None:
        self.partition = partition
        self.topic_partition = partition.topic_partition
        # The log that is copied. If a role or a failure gives the partition another log, `_flip` refuses the swap.
        self.current = current
        self.log = log
        self.leader_id = broker_id
        self.leader_epoch = partition.leader_epoch
        # Requests to `LocalLeader` are not encoded, so they carry the topic's name whether or not they have its id.
        self.fetched_by_id = True
        self.tally = TopicTally()  # of its own: what is copied on this broker is no replication
        self.waiters: dict[Waiter, None] = {}
        self.scope = trio.CancelScope()  # of the move's task
        self.ended = trio.Event()  # set when that task has ended
        self.is_near = trio.Event()  # set after each append that leaves at most NEAR_OFFSETS missing
        self._logs = logs

    @property
    def config(self) -> "TopicConfig":
        return self.partition.config

    @property
    def high_watermark(self) -> int:
        # The high watermark is the partition's, as far as the copy reaches. A truncation without comparable epochs cuts
        # down to it, so committed records stay.
        return min(self.partition.high_watermark, self.log.log_end_offset)

    def follow_to(self, leader_high_watermark: int) -> None:
        """The fetcher has appended a response, perhaps an empty one: wake the move's task if the future log is near."""
        if self.current.log_end_offset - self.log.log_end_offset <= NEAR_OFFSETS:
            self.is_near.set()

    def truncated(self) -> None:
        """The future log was truncated as the current one was before. Nothing depends on it."""

    def fail_storage(self, error: StorageError) -> ErrorCode:
        """The disk of the future log failed."""
        self._logs.fail_directory_of(self.log, error)
        return ErrorCode.KAFKA_STORAGE_ERROR


class _Myself:
    """A metadata cache for the `FetcherPool` in which this broker, the leader of all future logs, is always alive."""

    def __init__(self, broker_id: int) -> None:
        self.brokers: Sequence[int] = (broker_id,)


class Moves:
    """All moves of this broker."""

    def __init__(self, deps: MoveDeps) -> None:
        self._broker_id = deps.broker_id
        self._logs = deps.logs
        self._fetchers = FetcherPool(deps, _Myself(deps.broker_id))
        self._moving: dict[TopicPartition, FutureReplica] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the moves; for ever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._fetchers.run)
            task_status.started()
            await trio.sleep_forever()

    def __len__(self) -> int:
        """The number of running moves."""
        return len(self._moving)

    # -- the moving partitions; callers of `move`, `stop_unless_to`, `begin` and `leave` have the turn of the partition

    async def move(self, partition: "Partition", current: "PartitionLog", directory: "LogDirectory") -> ErrorCode:
        """Start a move to this directory. The caller has ended moves to other directories (`stop_unless_to`).

        Errors: KAFKA_STORAGE_ERROR.
        """
        futures = self._logs.futures
        # The partition is there already, or it is on its way there.
        if directory is self._logs.directory_of(current) or futures.copy_of(current) is not None:
            return ErrorCode.NONE
        try:
            await futures.create(current, directory)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        logger.info("%s moves to %s", current, directory.path)
        self.begin(partition)
        return ErrorCode.NONE

    async def stop_unless_to(self, key: TopicPartition, directory: "LogDirectory") -> ErrorCode:
        """End a move to any other directory and delete its future log. Errors: KAFKA_STORAGE_ERROR."""
        future = self._logs.futures.get(key)
        if future is None or self._logs.directory_of(future) is directory:
            return ErrorCode.NONE
        # The fetcher leaves first: it appends to the files that are deleted.
        await self.leave([key])
        try:
            await self._logs.futures.delete(key)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def begin(self, partition: "Partition") -> None:
        """Start or resume the move of this partition if it has a future log. The move must not be running."""
        key = partition.topic_partition
        current = partition.log
        future = None if current is None else self._logs.futures.copy_of(current)
        if future is None or current is None:
            return
        if self._nursery is None:
            raise InvariantBroken("nothing can move before the moves run")
        move = self._moving[key] = FutureReplica(partition, current, future, self._broker_id, self._logs)
        self._nursery.start_soon(self._move, move)

    async def leave(self, keys: Iterable[TopicPartition]) -> None:
        """Pause the moves of these partitions. Returns when nothing works on their future logs any more, a truncation
        or an attempt to swap."""
        # All are removed first, so that nothing new begins during the waits.
        moves = [move for key in keys if (move := self._moving.get(key)) is not None]
        for cut_ended in [event for move in moves if (event := self.forget(move.topic_partition)) is not None]:
            await cut_ended.wait()
        for move in moves:
            await move.ended.wait()

    def forget(self, key: TopicPartition) -> trio.Event | None:
        """Pause the move of this partition at once. Returns the event that ends a running truncation of its future log,
        if any."""
        move = self._moving.pop(key, None)
        if move is None:
            return None
        move.scope.cancel()
        return self._fetchers.forget(key)

    def directory_failed(self, directory: str) -> None:
        """A log directory went offline: end the moves to it."""
        # A move away from it has ended with the partition's role (`Replicas.directory_failed`). It resumes after a
        # restart.
        for key, move in list(self._moving.items()):
            if move.log.directory.startswith(directory + "/"):
                self.forget(key)

    # -- a move

    async def _move(self, move: FutureReplica) -> None:
        what = "%s does not move on before its next role"
        try:
            with contained(logger, what, move.topic_partition) as attempt, move.scope:
                # The move may have ended before this task ran: its directory failed in the step that began it.
                # A cancelled scope ends the task at its next wait only.
                if self._moving.get(move.topic_partition) is not move:
                    return
                self._fetchers.follow(move)
                while not await self._arrive(move):
                    pass
        finally:
            move.ended.set()
        if attempt.failed and self._moving.get(move.topic_partition) is move:
            self.forget(move.topic_partition)

    async def _arrive(self, move: FutureReplica) -> bool:
        """Wait until the future log is near, then try the swap. True if the move is over."""
        await move.is_near.wait()
        # If the swap fails because the current log has grown, the fetcher's next response sets the new event.
        move.is_near = trio.Event()
        current = move.current
        future = move.log
        # Control requests go on meanwhile. One about this partition ends the attempt, unless it comes after the flip:
        # then the partition has its new log already, and only the directory is not renamed yet.
        arrived = await self._logs.futures.swap(current, future, lambda flip: self._flip(move, flip))
        if arrived:
            logger.info("%s has moved to %s", future, future.directory)
        return arrived

    def _flip(self, move: FutureReplica, flip: Callable[[], bool]) -> bool:
        """A synchronous step of the swap. `flip` exchanges the two logs; False if it only copied records or failed."""
        key = move.topic_partition
        # During the awaits of the swap a directory may have failed, or the partition may have got another role.
        if self._moving.get(key) is not move or move.partition.log is not move.current:
            return False
        # The fetcher must not append while `flip` copies the rest. The swap has made sure that no truncation runs, so
        # there is no event to wait for.
        self._fetchers.forget(key)
        if not flip():
            # A failed directory may have ended the move inside `flip`.
            if self._moving.get(key) is move:
                self._fetchers.follow(move)
            return False
        # This is still the step of the exchange: no request finds the partition with its old log,
        # which is renamed by now.
        del self._moving[key]
        move.partition.log_moved(move.log)
        return True
