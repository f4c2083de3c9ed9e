"""The partitions that this broker hosts, and the control requests that give them their roles (reference B.8, C.1).

LeaderAndIsr is handled in two halves. First everything slow, in threads: logs are created where they do not exist.
Then everything that matters, in one synchronous step: epochs are compared and roles flipped. Between the two other
requests may run; so the epochs are looked at again in the second half, and control requests take turns.

A `StorageError` anywhere takes its whole directory offline: its partitions stop leading and answer
KAFKA_STORAGE_ERROR, the others go on, and the controller is told in the answers to its requests.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.partition import Partition
from barnabas.storage.disk import StorageError, parent_of
from barnabas.storage.log import PartitionLog
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.logs import Logs
    from barnabas.broker.metadata import ClusterMetadata
    from barnabas.broker.topic_configs import TopicConfigs
    from barnabas.storage.flusher import Flusher

logger = logging.getLogger(__name__)

AskedState = tuple[TopicPartition, bytes, "m.LeaderAndIsrRequest.LeaderAndIsrPartitionState"]
StoppedReplica = tuple[TopicPartition, int, bool]  # partition, leader epoch (-1: not checked), delete the log


class Coordinator(Protocol):
    """Who follows the leadership of an internal topic's partitions: groups, later transactions."""

    def on_elected(self, partition: Partition) -> None:
        """This broker leads the partition now, under `partition.leader_epoch`."""

    def on_resigned(self, partition_index: int, leader_epoch: int) -> None:
        """This broker no longer leads it."""

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions, of whatever topic, are being deleted."""


class Replicas:
    """TopicPartition -> Partition, and the order of control requests."""

    def __init__(
        self,
        *,
        broker_id: int,
        logs: "Logs",
        flusher: "Flusher",
        metadata: "ClusterMetadata",
        topic_configs: "TopicConfigs",
        now_ms: Callable[[], int],
    ) -> None:
        self.broker_id = broker_id
        self.controller_epoch = 0
        self.broker_epoch = -1
        self.coordinators: dict[str, Coordinator] = {}
        self.logs = logs
        self._flusher = flusher
        self._metadata = metadata
        self._topic_configs = topic_configs
        self._now_ms = now_ms
        self._partitions: dict[TopicPartition, Partition] = {}
        self._turn = trio.Lock()  # control requests are handled one at a time, in the order in which they came

    # -- lookups

    def get(self, topic: str, partition: int) -> Partition | ErrorCode:
        """The hosted partition, or why there is none: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
        KAFKA_STORAGE_ERROR."""
        found = self._partitions.get((topic, partition))  # type: ignore[call-overload]  # a tuple equals its NamedTuple
        if found is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR if found.log is None else found
        if self._metadata.partition(topic, partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """For the checkpoint: the high watermark of every partition that has a log."""
        return {key: partition.high_watermark for key, partition in self._partitions.items() if partition.log}

    # -- control requests

    async def leader_and_isr(
        self, request: m.LeaderAndIsrRequest, states: list[AskedState]
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """Create logs and take roles: an error code a partition, or one that refuses the whole request."""
        async with self._turn:
            refused = self._fence(request.controller_epoch, request.broker_epoch)
            if refused:
                return refused
            prepared = {key: await self._prepare(key, topic_id, state) for key, topic_id, state in states}
            return {key: self._take_role(key, state, prepared[key]) for key, _, state in states}

    async def stop_replica(
        self, request: m.StopReplicaRequest, stopped: list[StoppedReplica]
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """Stop hosting partitions, and delete their logs where asked."""
        async with self._turn:
            refused = self._fence(request.controller_epoch, request.broker_epoch)
            if refused:
                return refused
            return {key: await self._stop(key, leader_epoch, delete=delete) for key, leader_epoch, delete in stopped}

    async def update_metadata(self, request: m.UpdateMetadataRequest) -> ErrorCode:
        """Take over the controller's picture of the cluster."""
        async with self._turn:
            refused = self._fence(request.controller_epoch, request.broker_epoch)
            if refused:
                return refused
            deleted = self._metadata.apply(request)
            for coordinator in self.coordinators.values() if deleted else ():
                coordinator.on_partitions_deleted(deleted)
            return ErrorCode.NONE

    # -- failures, flushes, configuration

    def directory_failed(self, directory: str, error: StorageError) -> None:
        """A log directory went offline: its partitions lead nothing any more. `Logs` has told why."""
        lost = [each for each in self if each.log is not None and each.log.directory.startswith(directory + "/")]
        for partition in lost:
            self._resign(partition)
        logger.error("%d partitions are offline with %s: %s", len(lost), directory, error)

    def file_failed(self, error: StorageError) -> None:
        """The disk refused to read a file while it was being sent: whose log it is, loses its directory."""
        for partition in self:
            if partition.log is not None and partition.log.directory == parent_of(error.path):
                partition.fail_storage(error)

    def flushed(self, log: PartitionLog) -> None:
        """A flush of this log ended; its partition may have more to acknowledge."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None and partition.log is log:
            partition.flushed()

    def reconfigured(self, topic: str | None) -> None:
        """The configuration of a topic, or with None the broker's, changed."""
        for partition in self:
            if topic in (None, partition.topic_partition.topic):
                partition.reconfigured()

    # -- the parts of LeaderAndIsr

    def _fence(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if broker_epoch != -1 and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    async def _prepare(
        self, key: TopicPartition, topic_id: bytes, state: m.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    ) -> PartitionLog | ErrorCode:
        """The log of this partition, made if need be: the slow half."""
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            log = self.logs.get(key)
            if log is None:
                config = await self._topic_configs.load(key.topic)
                log = await self.logs.create(key, topic_id, config, is_new=state.is_new)
            elif topic_id != ZERO_TOPIC_ID and log.topic_id is None:
                await self.logs.assign_topic_id(log, topic_id)
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if topic_id not in (ZERO_TOPIC_ID, log.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return log

    def _take_role(
        self,
        key: TopicPartition,
        state: m.LeaderAndIsrRequest.LeaderAndIsrPartitionState,
        log: PartitionLog | ErrorCode,
    ) -> ErrorCode:
        """Compare epochs and flip the role: the synchronous half."""
        partition = self._partitions.get(key)
        if isinstance(log, PartitionLog) and self.logs.get(key) is not log:
            log = ErrorCode.KAFKA_STORAGE_ERROR  # its directory failed while other logs were made
        if isinstance(log, ErrorCode):
            if log == ErrorCode.KAFKA_STORAGE_ERROR and partition is None:
                self._host(key)  # without a log, so that clients are told the same
            return log
        if partition is None:
            partition = self._host(key)
        elif state.leader_epoch <= partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        led = partition.is_leader
        try:
            partition.become(
                log=log,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replicas=list(state.replicas),
                in_sync_replicas=list(state.isr),
            )
        except StorageError as error:
            self._storage_failed(partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._tell_coordinator(partition, led)
        return ErrorCode.NONE

    def _host(self, key: TopicPartition) -> Partition:
        """A partition that is new to this broker."""
        partition = self._partitions[key] = Partition(
            key,
            self._topic_configs.get(key.topic),
            self.broker_id,
            self._now_ms,
            self._flusher,
            self._storage_failed,
        )
        partition.high_watermark = self.logs.checkpointed_high_watermark(key)
        return partition

    def _tell_coordinator(self, partition: Partition, led: bool) -> None:
        coordinator = self.coordinators.get(partition.topic_partition.topic)
        if coordinator is None:
            return
        if partition.is_leader:
            coordinator.on_elected(partition)
        elif led:
            coordinator.on_resigned(partition.topic_partition.partition, partition.leader_epoch)

    # -- the parts of StopReplica

    async def _stop(self, key: TopicPartition, leader_epoch: int, *, delete: bool) -> ErrorCode:
        partition = self._partitions.get(key)
        if partition is not None and partition.log is None:
            return ErrorCode.KAFKA_STORAGE_ERROR  # its directory is offline: it stays, and goes on answering so
        if partition is not None and 0 <= leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition is not None:
            self._resign(partition)
            del self._partitions[key]
        if delete:
            try:
                await self.logs.delete(key)
            except StorageError:
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _resign(self, partition: Partition) -> None:
        led, epoch = partition.is_leader, partition.leader_epoch
        partition.resign()
        coordinator = self.coordinators.get(partition.topic_partition.topic)
        if led and coordinator is not None:
            coordinator.on_resigned(partition.topic_partition.partition, epoch)

    def _storage_failed(self, partition: Partition, error: StorageError) -> None:
        if partition.log is not None:
            self.logs.fail_directory_of(partition.log, error)
