"""Metadata: who is alive, who leads what, and topics that come into being when they are asked for.

Behaviour: answered from what UpdateMetadata last told this broker, with the addresses of the listener that the request
    came in on. A topic that is unknown is created when the broker (`auto.create.topics.enable`) and the request allow
    it: the first answer is then LEADER_NOT_AVAILABLE, which clients retry; asking for *all* topics creates nothing.
    A broker that has started, and that the controller has not told of all topics yet, waits for that: it may take until
    its session of an earlier life has ended, and librdkafka gives a topic up that a broker says it does not know. Where
    that takes too long the connection is closed: the client asks another broker.
    A broker that has gone is told of a little longer than it lives (`ClusterMetadata.brokers_to_tell`).
Versions: 0 an empty list means all, 1+ null means all and an empty list none; 0 leaves out replicas that clients of
    the listener cannot reach, and says REPLICA_NOT_AVAILABLE of their partition; 4+ the request says whether topics may
    be created (before, they may); 8-10 authorized operations of the cluster, 8+ of topics; 10+ topic ids are answered,
    12 may be asked by id; 6+ LISTENER_NOT_FOUND where older clients are told LEADER_NOT_AVAILABLE.
"""

from collections.abc import Iterable, Sequence

import trio

from barnabas.broker.call import AUTHORIZED_OPERATIONS, Broker, Call
from barnabas.broker.metadata import NO_LEADER, PartitionInfo, TopicInfo
from barnabas.broker.pacing import paced, pause_after
from barnabas.broker.topics import INTERNAL_TOPICS
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation, Refuse
from barnabas.wire.topics import ZERO_TOPIC_ID, why_invalid_topic_name

ALL_TOPICS_IS_EMPTY_VERSION = 0
FULL_LISTS_VERSION = 1
CREATION_FLAG_VERSION = 4
LISTENER_NOT_FOUND_VERSION = 6
TOPIC_ID_VERSION = 10
ASK_BY_ID_VERSION = 12
NOT_ASKED = -(1 << 31)  # instead of a set of operations
PATIENCE_SECONDS = 10.0  # for the first picture of the cluster: less than any client waits for an answer
TOPIC_COST, PARTITION_COST = 3, 1  # rows that take as long as one of these

Topic = m.MetadataResponse.MetadataResponseTopic
Partition = m.MetadataResponse.MetadataResponsePartition


async def metadata(broker: Broker, call: Call, request: m.MetadataRequest) -> m.MetadataResponse:
    """Brokers, controller, and the asked topics."""
    await _check_ids(call, request)
    if not broker.metadata.is_whole.is_set():
        await _until_whole(broker)
    if request.topics is None or (call.version == ALL_TOPICS_IS_EMPTY_VERSION and not request.topics):
        topics = [
            _known_topic(broker, call, request, info)
            for info in broker.metadata.topics.values()
            if call.authorize("Describe", "Topic", info.name)
        ]
    else:
        topics = []
        async for asked in paced(await _once(request.topics), TOPIC_COST):
            topic = await _asked_topic(broker, call, request, asked)
            topics.append(topic)
            await pause_after(PARTITION_COST * len(topic.partitions))
    brokers = [
        m.MetadataResponse.MetadataResponseBroker(
            node_id=info.broker_id, host=endpoint.host, port=endpoint.port, rack=info.rack
        )
        for info in broker.metadata.brokers_to_tell()
        if (endpoint := info.endpoints.get(call.listener)) is not None
    ]
    response = m.MetadataResponse(
        brokers=brokers, cluster_id=broker.cluster_id, controller_id=broker.metadata.controller_id, topics=topics
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = AUTHORIZED_OPERATIONS["Cluster"]
    return response


def refuse_metadata(request: m.MetadataRequest, version: int, code: ErrorCode) -> m.MetadataResponse:
    """The same error for every asked topic."""
    topics = [Topic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or ()]
    return m.MetadataResponse(topics=topics)


async def _until_whole(broker: Broker) -> None:
    """Whatever is answered before, somebody believes it: that a topic is gone, say."""
    with trio.move_on_after(PATIENCE_SECONDS):
        await broker.metadata.is_whole.wait()
        return
    raise ProtocolViolation("this broker has not been told of the whole cluster yet")


async def _check_ids(call: Call, request: m.MetadataRequest) -> None:
    """Only version 12 may ask by id; 10 and 11 have the field, and Kafka refuses its use."""
    async for asked in paced(request.topics or ()):
        if asked.name is None and call.version < ASK_BY_ID_VERSION:
            raise Refuse(ErrorCode.INVALID_REQUEST, "a topic without name is asked for")
        if asked.topic_id != ZERO_TOPIC_ID and call.version < ASK_BY_ID_VERSION:
            raise Refuse(ErrorCode.INVALID_REQUEST, "topic ids are not served in this version")


async def _once(
    topics: Sequence[m.MetadataRequest.MetadataRequestTopic],
) -> Iterable[m.MetadataRequest.MetadataRequestTopic]:
    """A topic that is named twice is answered once; where some are asked by id, those that are not are left out."""
    by_id = {topic.topic_id: topic async for topic in paced(topics) if topic.topic_id != ZERO_TOPIC_ID}
    return by_id.values() if by_id else {topic.name: topic async for topic in paced(topics)}.values()


async def _asked_topic(
    broker: Broker, call: Call, request: m.MetadataRequest, asked: m.MetadataRequest.MetadataRequestTopic
) -> Topic:
    by_id = asked.topic_id != ZERO_TOPIC_ID
    name = broker.metadata.topic_name(asked.topic_id) if by_id else asked.name
    if name is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
    if not call.authorize("Describe", "Topic", name):
        return Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    info = broker.metadata.topics.get(name)
    if info is not None:
        return _known_topic(broker, call, request, info)
    return Topic(
        error_code=await _unknown(broker, call, request, name),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=_operations(request),
    )


async def _unknown(broker: Broker, call: Call, request: m.MetadataRequest, name: str) -> ErrorCode:
    """Create the topic if that is wished; the code that tells the client what to do."""
    allowed = call.version < CREATION_FLAG_VERSION or request.allow_auto_topic_creation
    if not (allowed and broker.config.auto_create_topics_enable) or not call.authorize("Create", "Topic", name):
        return (
            ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid_topic_name(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return await broker.topics.auto_create(name)


def _known_topic(broker: Broker, call: Call, request: m.MetadataRequest, info: TopicInfo) -> Topic:
    topic = Topic(
        name=info.name,
        is_internal=info.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, call, index, partition) for index, partition in sorted(info.partitions.items())],
        topic_authorized_operations=_operations(request),
    )
    if call.version >= TOPIC_ID_VERSION:
        topic.topic_id = info.topic_id
    return topic


def _operations(request: m.MetadataRequest) -> int:
    """What the caller may do with a topic that it may see, existing or not, if it asks."""
    return AUTHORIZED_OPERATIONS["Topic"] if request.include_topic_authorized_operations else NOT_ASKED


def _partition(broker: Broker, call: Call, index: int, info: PartitionInfo) -> Partition:
    error, leader_id = ErrorCode.NONE, info.leader_id
    replicas, in_sync_replicas = info.replicas, info.in_sync_replicas
    if call.version < FULL_LISTS_VERSION:
        replicas, in_sync_replicas = (
            [each for each in listed if broker.metadata.endpoint(each, call.listener)]
            for listed in (info.replicas, info.in_sync_replicas)
        )
    if info.leader_id == NO_LEADER or info.leader_id not in broker.metadata.brokers:
        error, leader_id = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
    elif broker.metadata.endpoint(info.leader_id, call.listener) is None:
        leader_id = NO_LEADER
        error = (
            ErrorCode.LISTENER_NOT_FOUND
            if call.version >= LISTENER_NOT_FOUND_VERSION
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    elif (len(replicas), len(in_sync_replicas)) != (len(info.replicas), len(info.in_sync_replicas)):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return Partition(
        error_code=error,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=info.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=in_sync_replicas,
        offline_replicas=info.offline_replicas,
    )
