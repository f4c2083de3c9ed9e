"""What one event tells the brokers: LeaderAndIsr, UpdateMetadata and StopReplica (reference B.6).

Theory of operation
-------------------
An event collects what is to be sent, and when its records are replayed the requests are built from the image, so they
carry the latest state however often a partition was mentioned. The order matters to receivers: LeaderAndIsr, then
UpdateMetadata, then StopReplica; a broker that leads must not be announced before it knows that it leads.

A request is about `PARTITIONS_IN_A_REQUEST` partitions at most, so that neither making nor encoding it, nor decoding it
at the other end, holds a loop for long. Kafka's are as long as they get; but no receiver minds two of a kind.

Telling a partition's leader always tells its metadata to every live broker. UpdateMetadata names all live brokers each
time, even when it has no partitions, for a follower looks up its leader there.

A topic that is marked for deletion is announced with leader -2, which removes it from the receivers' metadata, and is
stopped with leader epoch -2, which no epoch check refuses. The broker epoch in a request is that of its receiver's
registration: a broker that restarted in the meantime refuses what was meant for its former life.

The versions are those of `inter.broker.protocol.version`, and nothing is negotiated. Requests have one shape, and where
a version has another it is made from that: partitions were not always grouped by topic, and a StopReplica before
version 3 deletes all its partitions or none, so that there may be two of them. Fields that a version does not have are
dropped by the encoder, but for the recovery state, which it would refuse to drop.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.controller.decide.slices import in_slices
from barnabas.controller.decide.steps import Tell, TellLeaderAndIsr, TellMetadata, TellStop
from barnabas.controller.image.state import ClusterImage, Leadership, LiveBroker, PartitionImage
from barnabas.controller.store.paths import RECOVERED, BrokerRegistration, PartitionState
from barnabas.wire import messages as m
from barnabas.wire.sentinels import LEADER_DURING_DELETE
from barnabas.wire.topics import TopicPartition

EPOCH_DURING_DELETE = -2
NO_EPOCH = -1
PARTITIONS_IN_A_REQUEST = 300  # about a millisecond to make, and to decode

LEADER_AND_ISR_KEY, STOP_REPLICA_KEY, UPDATE_METADATA_KEY = 4, 5, 6

# The versions from which on requests have the present shape.
ROLES_BY_TOPIC, TELLS_RECOVERY = 2, 6
METADATA_BY_TOPIC = 5
STOPS_BY_TOPIC, STOPS_ONE_BY_ONE = 1, 3

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Sender(NamedTuple):
    """What every request says of the controller, and the listener at which brokers reach each other."""

    broker_id: int
    controller_epoch: int
    listener: str
    versions: Mapping[int, int]  # by API key


class ControlBatch:
    """Collects what one event tells, then makes the requests."""

    def __init__(self) -> None:
        self._roles: dict[int, dict[TopicPartition, bool]] = {}  # broker -> partition -> is new
        self._metadata: dict[TopicPartition, None] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}  # broker -> partition -> delete
        self._tells_metadata = False

    def add(self, tell: Tell) -> None:
        """Something to be sent to brokers."""
        match tell:
            case TellLeaderAndIsr(topic_partition, broker_ids, is_new):
                for broker_id in broker_ids:
                    roles = self._roles.setdefault(broker_id, {})
                    roles[topic_partition] = is_new or roles.get(topic_partition, False)
                self.add_metadata((topic_partition,))
            case TellMetadata(topic_partitions):
                self.add_metadata(topic_partitions)
            case TellStop(topic_partition, broker_id, delete):
                stops = self._stops.setdefault(broker_id, {})
                stops[topic_partition] = delete or stops.get(topic_partition, False)

    def add_metadata(self, topic_partitions: Iterable[TopicPartition] = ()) -> None:
        """Announce the live brokers, and these partitions."""
        self._tells_metadata = True
        self._metadata.update(dict.fromkeys(topic_partitions))

    def requests(
        self, image: ClusterImage, sender: Sender, metadata_to: Container[int] | None = None
    ) -> Iterator[tuple[int, m.Message]]:
        """Requests with the live brokers that they are for, in order; `metadata_to` None means every broker.

        Each is made when it is wanted, so that others have their turn in between.
        """
        for broker_id, broker in image.brokers.items():
            for roles in in_slices(self._roles.get(broker_id, {}).items(), PARTITIONS_IN_A_REQUEST):
                request = _leader_and_isr(image, sender, broker, dict(roles))
                if request is not None:
                    yield broker_id, request
        for part in list(in_slices(self._metadata, PARTITIONS_IN_A_REQUEST)) or ([[]] if self._tells_metadata else []):
            metadata = _Metadata(image, sender, part)
            for broker_id, broker in image.brokers.items():
                if metadata_to is None or broker_id in metadata_to:
                    yield broker_id, metadata.request(broker)
        for broker_id, broker in image.brokers.items():
            for stops in in_slices(self._stops.get(broker_id, {}).items(), PARTITIONS_IN_A_REQUEST):
                for stop in _stop_replica(image, sender, broker, dict(stops)):
                    yield broker_id, stop


# LeaderAndIsr ----------------------------------------------------------------------------------------------------


def _leader_and_isr(
    image: ClusterImage, sender: Sender, receiver: LiveBroker, roles: dict[TopicPartition, bool]
) -> m.LeaderAndIsrRequest | None:
    states: dict[str, list[m.LeaderAndIsrRequest.LeaderAndIsrPartitionState]] = {}
    leaders: dict[int, None] = {}
    for topic_partition, is_new in roles.items():
        partition = image.partition(topic_partition)
        if partition.leadership is not None:
            leaders[partition.leadership.state.leader] = None
            role = _role(sender, topic_partition, partition, partition.leadership, is_new)
            states.setdefault(topic_partition.topic, []).append(role)
    if not states:
        return None
    request = m.LeaderAndIsrRequest(
        controller_id=sender.broker_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=receiver.epoch,
        live_leaders=_live_leaders(image, sender, leaders),
    )
    if sender.versions[LEADER_AND_ISR_KEY] < ROLES_BY_TOPIC:
        request.ungrouped_partition_states = [each for partitions in states.values() for each in partitions]
        return request
    request.topic_states = [
        m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name=topic, topic_id=image.topics[topic].topic_id, partition_states=partitions
        )
        for topic, partitions in states.items()
    ]
    return request


def _role(
    sender: Sender, topic_partition: TopicPartition, partition: PartitionImage, leadership: Leadership, is_new: bool
) -> m.LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    state = leadership.state
    tells_recovery = sender.versions[LEADER_AND_ISR_KEY] >= TELLS_RECOVERY
    return m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name=topic_partition.topic,
        partition_index=topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=leadership.partition_epoch,
        replicas=partition.replicas,
        adding_replicas=partition.assignment.adding,
        removing_replicas=partition.assignment.removing,
        is_new=is_new,
        leader_recovery_state=state.leader_recovery_state if tells_recovery else RECOVERED,
    )


def _live_leaders(
    image: ClusterImage, sender: Sender, leaders: Iterable[int]
) -> list[m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
    live = []
    for broker_id in leaders:
        broker = image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.registration.endpoint(sender.listener)
        if endpoint is not None:
            live.append(
                m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                    broker_id=broker_id, host_name=endpoint.host, port=endpoint.port
                )
            )
    return live


# UpdateMetadata --------------------------------------------------------------------------------------------------


class _Metadata:
    """One UpdateMetadata for all receivers: only the broker epoch differs, the rest is shared."""

    def __init__(self, image: ClusterImage, sender: Sender, topic_partitions: Iterable[TopicPartition]) -> None:
        self._sender = sender
        self._live_brokers = [_announced_broker(broker) for broker in image.brokers.values()]
        states: dict[str, list[m.UpdateMetadataRequest.UpdateMetadataPartitionState]] = {}
        for topic_partition in topic_partitions:
            announced = _announced_partition(image, topic_partition)
            if announced is not None:
                states.setdefault(topic_partition.topic, []).append(announced)
        grouped = sender.versions[UPDATE_METADATA_KEY] >= METADATA_BY_TOPIC
        self._ungrouped = [] if grouped else [each for partitions in states.values() for each in partitions]
        self._topic_states = [
            m.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=topic, topic_id=image.topics[topic].topic_id, partition_states=partitions
            )
            for topic, partitions in (states.items() if grouped else ())
        ]

    def request(self, receiver: LiveBroker) -> m.UpdateMetadataRequest:
        return m.UpdateMetadataRequest(
            controller_id=self._sender.broker_id,
            controller_epoch=self._sender.controller_epoch,
            broker_epoch=receiver.epoch,
            ungrouped_partition_states=self._ungrouped,
            topic_states=self._topic_states,
            live_brokers=self._live_brokers,
        )


def _announced_partition(
    image: ClusterImage, topic_partition: TopicPartition
) -> m.UpdateMetadataRequest.UpdateMetadataPartitionState | None:
    """None while the partition never had a leader: there is nothing to announce yet."""
    partition = image.partition(topic_partition)
    if partition.leadership is None:
        return None
    state, partition_epoch = partition.leadership
    if image.is_deleting(topic_partition.topic):
        state, partition_epoch = PartitionState(LEADER_DURING_DELETE, 0, state.controller_epoch, state.isr), 0
    online = image.online_replicas(topic_partition)
    return m.UpdateMetadataRequest.UpdateMetadataPartitionState(
        topic_name=topic_partition.topic,
        partition_index=topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        zk_version=partition_epoch,
        replicas=partition.replicas,
        offline_replicas=[broker_id for broker_id in partition.replicas if broker_id not in online],
    )


def _announced_broker(broker: LiveBroker) -> m.UpdateMetadataRequest.UpdateMetadataBroker:
    registration = broker.registration
    return m.UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=_security_protocol(registration, endpoint.listener),
            )
            for endpoint in registration.endpoints
        ],
        rack=registration.rack,
    )


def _security_protocol(registration: BrokerRegistration, listener: str) -> int:
    """A listener that the registration does not map is named after its protocol."""
    return SECURITY_PROTOCOLS.get(registration.security_protocols.get(listener, listener), 0)


# StopReplica -----------------------------------------------------------------------------------------------------


def _stop_replica(
    image: ClusterImage, sender: Sender, receiver: LiveBroker, stops: dict[TopicPartition, bool]
) -> list[m.StopReplicaRequest]:
    """One request, or before version 3 one for what stops and one for what is deleted."""
    version = sender.versions[STOP_REPLICA_KEY]
    if version < STOPS_ONE_BY_ONE:
        parts = [{each: None for each, delete in stops.items() if delete is wanted} for wanted in (False, True)]
        requests = [_stop_alike(part, version, delete=delete) for delete, part in enumerate(parts) if part]
    else:
        requests = [m.StopReplicaRequest(topic_states=_stopped_topics(image, stops))]
    for request in requests:
        request.controller_id, request.controller_epoch = sender.broker_id, sender.controller_epoch
        request.broker_epoch = receiver.epoch
    return requests


def _stopped_topics(
    image: ClusterImage, stops: dict[TopicPartition, bool]
) -> list[m.StopReplicaRequest.StopReplicaTopicState]:
    states: dict[str, list[m.StopReplicaRequest.StopReplicaPartitionState]] = {}
    for topic_partition, delete in stops.items():
        states.setdefault(topic_partition.topic, []).append(
            m.StopReplicaRequest.StopReplicaPartitionState(
                partition_index=topic_partition.partition,
                leader_epoch=_stop_epoch(image, topic_partition),
                delete_partition=delete,
            )
        )
    return [
        m.StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=partitions)
        for topic, partitions in states.items()
    ]


def _stop_alike(
    topic_partitions: Iterable[TopicPartition], version: int, *, delete: bool | int
) -> m.StopReplicaRequest:
    """The older shapes, which know no leader epoch."""
    request = m.StopReplicaRequest(delete_partitions=bool(delete))
    if version < STOPS_BY_TOPIC:
        request.ungrouped_partitions = [
            m.StopReplicaRequest.StopReplicaPartitionV0(topic_name=each.topic, partition_index=each.partition)
            for each in topic_partitions
        ]
        return request
    indexes: dict[str, list[int]] = {}
    for each in topic_partitions:
        indexes.setdefault(each.topic, []).append(each.partition)
    request.topics = [
        m.StopReplicaRequest.StopReplicaTopicV1(name=topic, partition_indexes=each) for topic, each in indexes.items()
    ]
    return request


def _stop_epoch(image: ClusterImage, topic_partition: TopicPartition) -> int:
    if image.is_deleting(topic_partition.topic):
        return EPOCH_DURING_DELETE
    leadership = image.partition(topic_partition).leadership
    return NO_EPOCH if leadership is None else leadership.state.leader_epoch


def deleted_partitions(request: m.StopReplicaRequest) -> list[TopicPartition]:
    """The partitions that a StopReplica of ours, of whichever version, tells a broker to delete."""
    deleted = [
        TopicPartition(topic.topic_name, partition.partition_index)
        for topic in request.topic_states
        for partition in topic.partition_states
        if partition.delete_partition
    ]
    if request.delete_partitions:
        deleted += [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
        deleted += [TopicPartition(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
    return deleted
