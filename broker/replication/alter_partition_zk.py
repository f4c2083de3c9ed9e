"""How a leader changed its in-sync replicas before Kafka 2.7 (reference C.6): it wrote the state itself.

Below `inter.broker.protocol.version` 2.7-IV2 no leader asks the controller. It writes the partition's state in the
metadata store, under the condition that it is still at the partition epoch that the leader knows, and notes the
partition in a sequential node below /isr_change_notification, which the controller watches. Notes gather: one node
tells of all that changed, when nothing has changed for 5 s, or 60 s after the one before.

To `AlterPartition` this looks like a controller that answers AlterPartition: `ask` carries a request out. What another
writer has changed meanwhile is answered with INVALID_UPDATE_VERSION, unless it says the same: then an answer was lost.
"""

import logging
import math

import trio

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replicas import Replicas
from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionList, PartitionState
from barnabas.controller.store.store import BadVersion, MetadataStore, NoNode, SetData, Stat, StoreError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

ALTER_PARTITION_LEVEL = "2.7-IV2"  # from here on the controller is asked
LOOK_SECONDS = 2.5
QUIET_SECONDS = 5.0
LATEST_SECONDS = 60.0

Row = m.AlterPartitionResponse.PartitionData


class AlterPartitionZk:
    """Writes what `AlterPartition` asks for."""

    def __init__(self, store: MetadataStore, replicas: Replicas) -> None:
        self._store = store
        self._replicas = replicas
        self._changed: dict[TopicPartition, None] = {}
        self._changed_at = self._told_at = -math.inf

    async def ask(self, request: m.Message, *, version_max: int | None = None) -> m.AlterPartitionResponse:
        """Write the states that an AlterPartition asks for; PeerLost when the store cannot be reached."""
        if not isinstance(request, m.AlterPartitionRequest):
            raise TypeError(f"{request!r} is no AlterPartition")
        topics = []
        try:
            for topic in request.topics:
                rows = [await self._write(topic.topic_name, asked) for asked in topic.partitions]
                topics.append(m.AlterPartitionResponse.TopicData(topic_name=topic.topic_name, partitions=rows))
        except StoreError as error:
            raise PeerLost(f"the ISR cannot be written: {error}") from error
        return m.AlterPartitionResponse(topics=topics)

    async def run(self) -> None:
        """Tell the controller what was written."""
        self._told_at = trio.current_time()
        while True:
            await trio.sleep(LOOK_SECONDS)
            now = trio.current_time()
            if self._changed and (now - self._changed_at > QUIET_SECONDS or now - self._told_at > LATEST_SECONDS):
                changed, self._changed = self._changed, {}
                note = PartitionList(tuple(changed)).encode()
                try:
                    await self._store.create(paths.ISR_CHANGE_PREFIX, note, sequential=True)
                    self._told_at = now
                except StoreError as error:
                    logger.warning("%d changed ISRs are not announced to the controller yet: %s", len(changed), error)
                    self._changed = changed | self._changed

    async def _write(self, topic: str, asked: m.AlterPartitionRequest.PartitionData) -> Row:
        key = TopicPartition(topic, asked.partition_index)
        partition = self._replicas.get(*key)
        if not isinstance(partition, Partition) or not partition.is_leader:
            return Row(partition_index=key.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        wanted = PartitionState(
            self._replicas.broker_id, asked.leader_epoch, partition.controller_epoch, tuple(asked.new_isr)
        )
        path = paths.partition_state(*key)
        try:
            (outcome,) = await self._store.batch([SetData(path, wanted.encode(), asked.partition_epoch)])
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
