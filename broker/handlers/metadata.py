"""Metadata: who is alive, who leads what, and topics that come into being when they are asked for.

Behaviour: answered from the metadata cache (UpdateMetadata), with the addresses of the listener that the request
    came in on. A topic that is unknown is created when the broker (`auto.create.topics.enable`) and the request allow
    it: the first answer is then LEADER_NOT_AVAILABLE, which clients retry; asking for *all* topics creates nothing.
    A broker that has started, and has not heard of all topics yet, waits for that: it may take until
    its session of an earlier life has ended, and librdkafka gives a topic up that a broker says it does not know. Where
    that takes too long the connection is closed: the client asks another broker.
    A broker that has gone is named for a little longer (`ClusterMetadata.brokers_to_tell`).
Versions: 0 an empty list means all, 1+ null means all and an empty list none; 0 leaves out replicas that clients of
    the listener cannot reach, and says REPLICA_NOT_AVAILABLE of their partition; 4+ the request says whether topics may
    be created (before, they may); 8-10 authorized operations of the cluster, 8+ of topics; 10+ topic ids are answered,
    12 may be asked by id; 6+ LISTENER_NOT_FOUND where older clients get LEADER_NOT_AVAILABLE.
"""

from collections.abc import Iterable, Sequence

import trio

from barnabas.broker.call import AUTHORIZED_OPERATIONS, Broker, Call
from barnabas.broker.cluster.topics import INTERNAL_TOPICS
from barnabas.broker.encoded import Encoded
from barnabas.broker.metadata import PartitionInfo, TopicInfo
from barnabas.broker.pacing import paced, pause_after
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation, Refuse
from barnabas.wire.runtime import varint
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import ZERO_TOPIC_ID, why_invalid_topic_name

ALL_TOPICS_IS_EMPTY_VERSION = 0
FULL_LISTS_VERSION = 1
CREATION_FLAG_VERSION = 4
LISTENER_NOT_FOUND_VERSION = 6
TOPIC_ID_VERSION = 10
ASK_BY_ID_VERSION = 12
NOT_ASKED = -(1 << 31)  # instead of a set of operations
PATIENCE_SECONDS = 10.0  # for the first UpdateMetadata requests: less than any client waits for an answer
TOPIC_COST, PARTITION_COST = 3, 2  # rows that take as long as one of these
ENCODED_COST = 1  # the same, of a partition that is encoded
ROWS_INLINE_MAX = 200  # partitions that are encoded at a time, or but few more
ROWS_IN_THREAD_MIN = 1000  # those of a large topic are encoded in a thread
TOPICS_AT_A_TIME = 100  # are encoded: their number takes one byte
FLEXIBLE_VERSION = 9
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)

Topic = m.MetadataResponse.MetadataResponseTopic
Partition = m.MetadataResponse.MetadataResponsePartition


async def metadata(broker: Broker, call: Call, request: m.MetadataRequest) -> m.MetadataResponse | Encoded:
    """Brokers, controller, and the asked topics."""
    await _check_ids(call, request)
    if not broker.metadata.is_complete.is_set():
        await _until_whole(broker)
    if request.topics is None or (call.version == ALL_TOPICS_IS_EMPTY_VERSION and not request.topics):
        return await _all_topics(broker, call, request)
    once = await _once(request.topics)
    topics = [await _asked_topic(broker, call, request, asked) async for asked in paced(once, TOPIC_COST)]
    return _response(broker, call, request, topics)


def _response(broker: Broker, call: Call, request: m.MetadataRequest, topics: list[Topic]) -> m.MetadataResponse:
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


# -- all topics


async def _all_topics(broker: Broker, call: Call, request: m.MetadataRequest) -> Encoded:
    """The topics are kept as bytes while nothing changes: most clients ask for the same, again and again."""
    depends_on = (call.version, call.listener, call.principal, request.include_topic_authorized_operations)
    topics = await broker.metadata.answers.get(depends_on, lambda: _encode_topics(broker, call, request))
    head, _, tail = _parts_of(_response(broker, call, request, []), call.version)
    return Encoded((head, topics, tail))


async def _encode_topics(broker: Broker, call: Call, request: m.MetadataRequest) -> bytes:
    """The array of all topics. One that changes meanwhile is described as it was or as it is."""
    parts: list[bytes] = [b""]
    count, rows = 0, 0
    some: list[Topic] = []
    async for info in paced(list(broker.metadata.topics.values()), TOPIC_COST):
        if call.authorize("Describe", "Topic", info.name):
            some.append(await _known_topic(broker, call, request, info))
            count, rows = count + 1, rows + len(info.partitions)
        if rows > ROWS_INLINE_MAX or len(some) == TOPICS_AT_A_TIME:
            parts.append(await _encode_some(broker, call, some, rows))
            some, rows = [], 0
    parts.append(await _encode_some(broker, call, some, rows))
    parts[0] = varint(count + 1) if call.version >= FLEXIBLE_VERSION else count.to_bytes(4, "big")
    return b"".join(parts)


async def _encode_some(broker: Broker, call: Call, topics: list[Topic], rows: int) -> bytes:
    """Elements of the array."""
    response = m.MetadataResponse(topics=topics)
    if rows > ROWS_IN_THREAD_MIN:
        _, elements, _ = await broker.world.in_request_thread(_parts_of, response, call.version)
    else:
        _, elements, _ = _parts_of(response, call.version)
        await pause_after(ENCODED_COST * rows)
    return elements


def _parts_of(response: m.MetadataResponse, version: int) -> tuple[bytes, bytes, bytes]:
    """The encoded answer: what comes before the array of topics, its elements, what comes after it."""
    encoded = m.encode(response, version)
    topics, response.topics = response.topics, ()
    before_count = len(m.encode(response, version)) - _bytes_after(version) - _count_bytes(version)
    response.topics = topics
    end = len(encoded) - _bytes_after(version)
    return encoded[:before_count], encoded[before_count + _count_bytes(version) : end], encoded[end:]


def _count_bytes(version: int) -> int:
    """Of an array of at most `TOPICS_AT_A_TIME`."""
    return 1 if version >= FLEXIBLE_VERSION else 4


def _bytes_after(version: int) -> int:
    """Behind the topics: authorized operations of the cluster, and the number of tagged fields."""
    return 4 * (version in CLUSTER_OPERATIONS_VERSIONS) + (version >= FLEXIBLE_VERSION)


async def _until_whole(broker: Broker) -> None:
    """An earlier answer would deny topics that exist, and a client may give up what it has queued for them."""
    with trio.move_on_after(PATIENCE_SECONDS):
        await broker.metadata.is_complete.wait()
        return
    raise ProtocolViolation("this broker's metadata is not complete yet")


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
        return await _known_topic(broker, call, request, info)
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


async def _known_topic(broker: Broker, call: Call, request: m.MetadataRequest, info: TopicInfo) -> Topic:
    topic = Topic(
        name=info.name,
        is_internal=info.name in INTERNAL_TOPICS,
        partitions=[
            _partition(broker, call, index, partition)
            async for index, partition in paced(sorted(info.partitions.items()), PARTITION_COST)
        ],
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
