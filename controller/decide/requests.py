"""Builds the requests of one event: LeaderAndIsr, UpdateMetadata and StopReplica (pure; reference B.6).

Theory of operation
-------------------
An event collects what is to be sent. When its records are replayed, the requests are built from the image, so they have
the latest state however often a partition was named.

Every LeaderAndIsr for a partition is accompanied by an UpdateMetadata for it to all live brokers. UpdateMetadata names
all live brokers each time, even when it has no partitions, because a follower looks up its leader there.

The versions are those of `inter.broker.protocol.version`, and nothing is negotiated. Requests are built in the newest
form and converted for older versions: in those the partitions are not grouped by topic, and a StopReplica deletes all
its partitions or none. The encoder drops the other fields that a version lacks.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.controller.decide.slices import in_slices, in_whole_topics
from barnabas.controller.decide.steps import Tell, TellLeaderAndIsr, TellMetadata, TellStop
from barnabas.controller.image.state import ClusterImage, Leadership, LiveBroker, PartitionImage
from barnabas.controller.store.paths import RECOVERED, BrokerRegistration, PartitionState
from barnabas.wire import messages as m
from barnabas.wire.sentinels import LEADER_DURING_DELETE
from barnabas.wire.topics import TopicPartition

# Leader epochs of a StopReplica that a receiver does not compare with its own.
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1  # the partition never had a leader

# A request of this size takes about a millisecond to build, and to decode, so neither broker's
# event loop is occupied for long. Kafka's requests have no limit; receivers accept several
# requests instead of one.
PARTITIONS_IN_A_REQUEST = 300

LEADER_AND_ISR_KEY, STOP_REPLICA_KEY, UPDATE_METADATA_KEY = 4, 5, 6

# The versions from which on requests have the newest form.
ROLES_BY_TOPIC, TELLS_RECOVERY = 2, 6
METADATA_BY_TOPIC = 5
STOPS_BY_TOPIC, STOPS_ONE_BY_ONE = 1, 3

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Sender(NamedTuple):
    """The controller as named in every request, the inter-broker listener, and the request versions."""

    broker_id: int
    controller_epoch: int
    listener: str
    versions: Mapping[int, int]  # by API key


class ControlBatch:
    """Collects what one event sends, then builds the requests."""

    def __init__(self) -> None:
        self._roles: dict[int, dict[TopicPartition, bool]] = {}  # broker -> partition -> is new
        self._metadata: dict[TopicPartition, None] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}  # broker -> partition -> delete
        self._tells_metadata = False

    def add(self, tell: Tell) -> None:
        """Add something to be sent to brokers."""
        # A partition that is named twice is sent once, as new or to be deleted if either naming says so: otherwise the
        # broker would not create its log, or would keep it.
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

        A generator: other tasks can run between two requests.
        """
        # Roles go before metadata: clients must not learn of a new leader before that broker has
        # its role. StopReplica goes last: a replica stops, or is deleted, when the others have
        # their new leader.
        for broker_id, broker in image.brokers.items():
            for roles in in_slices(self._roles.get(broker_id, {}).items(), PARTITIONS_IN_A_REQUEST):
                request = _leader_and_isr(image, sender, broker, dict(roles))
                if request is not None:
                    yield broker_id, request

        # Without partitions there is still the list of live brokers to send. Each slice goes to
        # all brokers before the next one, so that its states are built once.
        parts = list(in_whole_topics(self._metadata, PARTITIONS_IN_A_REQUEST))
        for part in parts or ([[]] if self._tells_metadata else []):
            metadata = _Metadata(image, sender, part)
            for broker_id, broker in image.brokers.items():
                if metadata_to is None or broker_id in metadata_to:
                    yield broker_id, metadata.request(broker)

        for broker_id, broker in image.brokers.items():
            for stops in in_slices(self._stops.get(broker_id, {}).items(), PARTITIONS_IN_A_REQUEST):
                for stop in _stop_replica(image, sender, broker, dict(stops)):
                    yield broker_id, stop


# -- LeaderAndIsr


def _leader_and_isr(
    image: ClusterImage, sender: Sender, receiver: LiveBroker, roles: dict[TopicPartition, bool]
) -> m.LeaderAndIsrRequest | None:
    states: dict[str, list[m.LeaderAndIsrRequest.LeaderAndIsrPartitionState]] = {}
    leaders: dict[int, None] = {}
    for topic_partition, is_new in roles.items():
        partition = image.partition(topic_partition)

        # A partition that never had a leader has no role to send.
        if partition.leadership is not None:
            leaders[partition.leadership.state.leader] = None
            role = _role(sender, topic_partition, partition, partition.leadership, is_new)
            states.setdefault(topic_partition.topic, []).append(role)

    if not states:
        return None
    request = m.LeaderAndIsrRequest(
        controller_id=sender.broker_id,
        controller_epoch=sender.controller_epoch,
        # A broker that has registered again refuses requests with its old broker epoch.
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
        # The encoder refuses to drop this field if it is not the default.
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


# -- UpdateMetadata


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
    """The metadata of a partition; None if it has never had a leader."""
    partition = image.partition(topic_partition)
    if partition.leadership is None:
        return None
    state, partition_epoch = partition.leadership

    # Leader -2 removes the partition from the receivers' metadata.
    if image.is_deleting(topic_partition.topic):
        state = PartitionState(LEADER_DURING_DELETE, 0, state.controller_epoch, state.isr)
        partition_epoch = 0
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
    """The number of a listener's protocol; a listener that the registration does not map is named after it."""
    return SECURITY_PROTOCOLS.get(registration.security_protocols.get(listener, listener), 0)


# -- StopReplica


def _stop_replica(
    image: ClusterImage, sender: Sender, receiver: LiveBroker, stops: dict[TopicPartition, bool]
) -> list[m.StopReplicaRequest]:
    """One request or, before version 3, one for the replicas that stop and one for those that are deleted."""
    version = sender.versions[STOP_REPLICA_KEY]
    if version < STOPS_ONE_BY_ONE:
        parts = [{each: None for each, delete in stops.items() if delete is wanted} for wanted in (False, True)]
        requests = [_stop_alike(part, version, delete=delete) for delete, part in enumerate(parts) if part]
    else:
        requests = [m.StopReplicaRequest(topic_states=_stopped_topics(image, stops))]
    for request in requests:
        request.controller_id = sender.broker_id
        request.controller_epoch = sender.controller_epoch
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
    """The older forms, which have no leader epoch."""
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
    # No epoch check refuses this one: whatever role the broker has had, the replica must go.
    if image.is_deleting(topic_partition.topic):
        return EPOCH_DURING_DELETE
    leadership = image.partition(topic_partition).leadership
    return NO_EPOCH if leadership is None else leadership.state.leader_epoch


def deleted_partitions(request: m.StopReplicaRequest) -> list[TopicPartition]:
    """The partitions that a StopReplica of ours, in any version, asks a broker to delete."""
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
