"""The broker's metadata cache: the cluster as the controller's UpdateMetadata requests describe it (reference B.8).

Metadata, FindCoordinator and DescribeCluster are answered from here, never from the store. `apply` takes over an
UpdateMetadata; `changed` waits for the next one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import trio

from barnabas.controller.store.paths import Endpoint
from barnabas.wire import messages as m
from barnabas.wire.sentinels import LEADER_DURING_DELETE, NO_LEADER
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from barnabas.world.encoded import Kept

FAREWELL_SECONDS = 3.0  # for which dead leaders stay in responses; clients that wait for a leader ask once a second


class BrokerInfo(NamedTuple):
    """A live broker: its endpoints by listener name, and its rack."""

    broker_id: int
    endpoints: dict[str, Endpoint]
    rack: str | None


class PartitionInfo(NamedTuple):
    """The state of one partition: broker ids, and the leader epoch."""

    leader_id: int
    leader_epoch: int
    in_sync_replicas: list[int]
    replicas: list[int]
    offline_replicas: list[int]


@dataclass(slots=True)
class TopicInfo:
    """A topic's id and partitions by index."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionInfo]


class ClusterMetadata:
    """Live brokers, the controller, and topics; replaced piece by piece by `apply`."""

    def __init__(self) -> None:
        self.controller_id = -1
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.partition_count = 0  # of all topics
        self._led: Counter[int] = Counter()  # how many partitions each broker leads that have other replicas
        self.replaced = 0  # how many topics had their names taken over by another one, without a notice of the deletion
        self._departed: dict[int, tuple[BrokerInfo, float]] = {}  # and the time of departure, on trio's clock
        self.is_complete = trio.Event()  # set once: all topics that existed at the broker's start have arrived
        self.answers = Kept()  # encoded topics of Metadata responses for all topics
        self._names: dict[bytes, str] = {}  # topic id -> name
        self._changed = trio.Event()

    def apply(self, request: m.UpdateMetadataRequest) -> list[TopicPartition]:
        """Take over one UpdateMetadata; returns the partitions that are being deleted."""
        self.controller_id = request.controller_id

        # Each request has all live brokers, but only the partitions that changed.
        before, self.brokers = self.brokers, {broker.id: _broker_info(broker) for broker in request.live_brokers}
        for broker_id in before.keys() - self.brokers.keys():
            # A broker that shuts down in an orderly way has handed over what others can lead: it is left out at once.
            if self._led[broker_id]:
                self._departed[broker_id] = (before[broker_id], trio.current_time())

        deleted = []
        for name, topic_id, state in partition_states(request):
            # The controller is deleting the topic: clients must not see the partition any more.
            if state.leader == LEADER_DURING_DELETE:
                deleted += self._forget_overtaken(name, topic_id)
                self._forget(name, state.partition_index)
                deleted.append(TopicPartition(name, state.partition_index))
            else:
                self._store(name, topic_id, state)

        # A new event for each change: a task that waits again must not return for this change.
        self.answers.clear()
        self._changed.set()
        self._changed = trio.Event()
        return deleted

    def forget(self, topics: Iterable[TopicInfo]) -> list[TopicPartition]:
        """Drop topics that do not exist any more; returns their partitions."""
        # Topics are compared by identity: since the caller looked, UpdateMetadata may have brought
        # a new topic of the same name.
        dropped = [info for info in topics if self.topics.get(info.name) is info]
        partitions = [TopicPartition(info.name, index) for info in dropped for index in info.partitions]
        for each in partitions:
            self._forget(*each)
        if partitions:
            self.answers.clear()
            self._changed.set()
            self._changed = trio.Event()
        return partitions

    def copy(self) -> "ClusterMetadata":
        """What is known now; later changes do not reach it."""
        copied = ClusterMetadata()
        copied.controller_id = self.controller_id
        copied.brokers = dict(self.brokers)
        copied.topics = {
            name: TopicInfo(name, topic.topic_id, dict(topic.partitions)) for name, topic in self.topics.items()
        }
        copied.partition_count = self.partition_count
        copied._names = dict(self._names)
        if self.is_complete.is_set():
            copied.is_complete.set()
        return copied

    async def changed(self) -> None:
        """Wait for the next change: an UpdateMetadata, or topics that `forget` dropped."""
        await self._changed.wait()

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic that has this id, or None."""
        return self._names.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """One partition's state, or None when the cache does not have it."""
        info = self.topics.get(topic)
        return info.partitions.get(partition) if info else None

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition in the cache."""
        for name, topic in self.topics.items():
            for index in topic.partitions:
                yield TopicPartition(name, index)

    def brokers_to_tell(self) -> list[BrokerInfo]:
        """The brokers in a Metadata response: the live ones, and those that died as leaders within FAREWELL_SECONDS.

        Kafka names live brokers only.
        """
        # librdkafka drops a broker that is missing in a response before it moves that broker's partitions to the new
        # leaders in the same response. It then has no leader for these partitions for a second.
        expired = trio.current_time() - FAREWELL_SECONDS
        self._departed = {
            broker_id: (info, since)
            for broker_id, (info, since) in self._departed.items()
            if since > expired and broker_id not in self.brokers
        }
        return [*self.brokers.values(), *(info for info, _ in self._departed.values())]

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """The broker's address on this listener; None when it is not alive or has no such listener."""
        broker = self.brokers.get(broker_id)
        return broker.endpoints.get(listener) if broker else None

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The broker that leads the partition now, or None."""
        info = self.partition(topic, partition)
        # If the leader is not alive, the controller has noticed its end but not elected another one yet.
        if info is None or info.leader_id == NO_LEADER or info.leader_id not in self.brokers:
            return None
        return info.leader_id

    def _store(self, name: str, topic_id: bytes, state: m.UpdateMetadataRequest.UpdateMetadataPartitionState) -> None:
        topic = self.topics.get(name)

        # Another id means a deleted topic whose name was taken again: none of its partitions may stay.
        if topic is None or topic.topic_id != topic_id:
            if topic is not None:
                self.replaced += 1
                self._names.pop(topic.topic_id, None)
                self.partition_count -= len(topic.partitions)
                for partition in topic.partitions.values():
                    self._count_led(partition, -1)
            topic = self.topics[name] = TopicInfo(name, topic_id, {})
            if topic_id != ZERO_TOPIC_ID:
                self._names[topic_id] = name

        known = topic.partitions.get(state.partition_index)
        if known is None:
            self.partition_count += 1
        else:
            self._count_led(known, -1)

        info = topic.partitions[state.partition_index] = PartitionInfo(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            in_sync_replicas=list(state.isr),
            replicas=list(state.replicas),
            offline_replicas=list(state.offline_replicas),
        )
        self._count_led(info, 1)

    def _count_led(self, partition: PartitionInfo, change: int) -> None:
        if len(partition.replicas) > 1:
            self._led[partition.leader_id] += change

    def _forget_overtaken(self, name: str, topic_id: bytes) -> list[TopicPartition]:
        """Drop a topic whose name another one has had since; returns its partitions.

        Its deletion did not arrive here. Partitions that the later one lacks would stay, and the name with them.
        """
        topic = self.topics.get(name)
        if topic is None or topic.topic_id == topic_id or ZERO_TOPIC_ID in (topic.topic_id, topic_id):
            return []
        dropped = [TopicPartition(name, index) for index in topic.partitions]
        for each in dropped:
            self._forget(*each)
        return dropped

    def _forget(self, name: str, partition: int) -> None:
        topic = self.topics.get(name)
        if topic is None:
            return
        known = topic.partitions.pop(partition, None)
        if known is not None:
            self.partition_count -= 1
            self._count_led(known, -1)
        # A topic is deleted partition by partition; the last one takes the name with it.
        if not topic.partitions:
            del self.topics[name]
            self._names.pop(topic.topic_id, None)


def partition_states(
    request: m.UpdateMetadataRequest,
) -> Iterator[tuple[str, bytes, m.UpdateMetadataRequest.UpdateMetadataPartitionState]]:
    """(topic name, topic id, partition state) for each partition; versions before 5 do not group them by topic."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, topic.topic_id, state
    for state in request.ungrouped_partition_states:
        yield state.topic_name, ZERO_TOPIC_ID, state


def _broker_info(broker: m.UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {
        endpoint.listener: Endpoint(endpoint.listener, endpoint.host, endpoint.port) for endpoint in broker.endpoints
    }
    return BrokerInfo(broker.id, endpoints, broker.rack)
