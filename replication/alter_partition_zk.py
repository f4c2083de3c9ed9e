"""How a leader changes its ISR below `inter.broker.protocol.version` 2.7-IV2: it writes to ZooKeeper (reference C.6).

The leader writes the partition's state node and announces the change to the controller in a sequential node below
/isr_change_notification, which the controller watches.

`AlterPartition` calls `ask` instead of the controller: it carries an AlterPartition request out and returns a response.
"""

import logging
import math

import trio

from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionList, PartitionState
from barnabas.controller.store.store import BadVersion, MetadataStore, NoNode, SetData, Stat, StoreError
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

ALTER_PARTITION_LEVEL = "2.7-IV2"  # from this inter.broker.protocol.version on leaders use AlterPartition
# One notification node lists many changes. As in Kafka, it is written when nothing has changed for QUIET_SECONDS, or
# LATEST_SECONDS after the last notification.
LOOK_SECONDS = 2.5  # between two checks
QUIET_SECONDS = 5.0
LATEST_SECONDS = 60.0

Row = m.AlterPartitionResponse.PartitionData


class AlterPartitionZk:
    """Writes the ISR changes of this broker's partitions to the metadata store."""

    def __init__(self, store: MetadataStore, replicas: Replicas) -> None:
        self._store = store
        self._replicas = replicas
        self._changed: dict[TopicPartition, None] = {}  # written, and not announced yet
        self._changed_at = self._announced_at = -math.inf  # trio's clock: the last write, and the last announcement

    async def ask(self, request: m.Message, *, version_max: int | None = None) -> m.AlterPartitionResponse:
        """Write the states that an AlterPartition requests. PeerLost if the store cannot be reached.

        Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_UPDATE_VERSION.
        """
        if not isinstance(request, m.AlterPartitionRequest):
            raise TypeError(f"{request!r} is no AlterPartition")
        topics = []
        try:
            for topic in request.topics:
                rows = [await self._write(topic.topic_name, asked) for asked in topic.partitions]
                topics.append(m.AlterPartitionResponse.TopicData(topic_name=topic.topic_name, partitions=rows))
        except StoreError as error:
            # The caller repeats the whole request. Partitions that were written already are recognized in `_write`.
            raise PeerLost(f"the ISR cannot be written: {error}") from error
        return m.AlterPartitionResponse(topics=topics)

    async def run(self) -> None:
        """Announce the written changes to the controller; for ever."""
        # The start counts as an announcement, so that the first change, too, waits for further ones.
        self._announced_at = trio.current_time()
        while True:
            await trio.sleep(LOOK_SECONDS)
            now = trio.current_time()
            if self._changed and (now - self._changed_at > QUIET_SECONDS or now - self._announced_at > LATEST_SECONDS):
                # Changes during the `create` below belong to the next notification.
                changed = self._changed
                self._changed = {}
                note = PartitionList(tuple(changed)).encode()
                try:
                    await self._store.create(paths.ISR_CHANGE_PREFIX, note, sequential=True)
                    self._announced_at = now
                # If only the response was lost, the node exists. A second announcement does no harm: the controller
                # reads the same states again.
                except StoreError as error:
                    logger.warning("%d changed ISRs are not announced to the controller yet: %s", len(changed), error)
                    self._changed = changed | self._changed

    async def _write(self, topic: str, asked: m.AlterPartitionRequest.PartitionData) -> Row:
        key = TopicPartition(topic, asked.partition_index)
        partition = self._replicas.get(*key)

        # The role may have ended since the change was registered. Only the leader may write the ISR.
        if not isinstance(partition, Partition) or not partition.is_leader:
            return Row(partition_index=key.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        wanted = PartitionState(
            self._replicas.broker_id, asked.leader_epoch, partition.controller_epoch, tuple(asked.new_isr)
        )
        path = paths.partition_state(*key)
        try:
            # The partition epoch is the node's version, so the write fails if the controller wrote a newer state.
            (outcome,) = await self._store.batch([SetData(path, wanted.encode(), asked.partition_epoch)])

            # If the node already holds the wanted state, the response to an earlier attempt was lost (as in Kafka).
            if isinstance(outcome, BadVersion):
                data, stat = await self._store.get(path)
                outcome = stat if parse(PartitionState.decode, data, path) == wanted else outcome
        except NoNode as error:
            outcome = error

        if not isinstance(outcome, Stat):
            gone = isinstance(outcome, NoNode)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.INVALID_UPDATE_VERSION
            return Row(partition_index=key.partition, error_code=code)

        self._changed[key] = None
        self._changed_at = trio.current_time()
        return Row(
            partition_index=key.partition,
            leader_id=wanted.leader,
            leader_epoch=wanted.leader_epoch,
            isr=wanted.isr,
            partition_epoch=outcome.version,
        )
