"""Metadata: live brokers, the controller, topics and partition leaders; unknown topics are created on request.

Behaviour: the response is built from the metadata cache (UpdateMetadata), with the addresses of the listener that the
    request came in on. An unknown topic is created when the broker (`auto.create.topics.enable`) and the request allow
    it; the first response then has LEADER_NOT_AVAILABLE, which clients retry. A request for *all* topics creates none.
    A leader that died is listed for a little longer (`ClusterMetadata.brokers_to_tell`). After a start the response
    waits for the first complete UpdateMetadata.
Versions: 0 an empty list means all, 1+ null means all and an empty list none; 0 leaves out replicas that clients of
    the listener cannot reach, and their partition has REPLICA_NOT_AVAILABLE; 4+ the request says whether topics may
    be created (before, they may); 8-10 authorized operations of the cluster, 8+ of topics; 10+ topic ids are answered,
    12 topics may be requested by id; 6+ LISTENER_NOT_FOUND where older clients get LEADER_NOT_AVAILABLE.
"""

from collections.abc import Iterable, Sequence

import trio

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation, Refuse
from barnabas.wire.runtime import varint
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import INTERNAL_TOPICS, ZERO_TOPIC_ID, why_invalid_topic_name
from barnabas.world.encoded import Encoded
from barnabas.world.metadata import PartitionInfo, TopicInfo
from barnabas.world.pacing import paced, pause_after

ALL_TOPICS_IS_EMPTY_VERSION = 0
FULL_LISTS_VERSION = 1
CREATION_FLAG_VERSION = 4
LISTENER_NOT_FOUND_VERSION = 6
TOPIC_ID_VERSION = 10
ASK_BY_ID_VERSION = 12
NOT_ASKED = -(1 << 31)  # KIP-430: the value of authorized operations that were not requested
PATIENCE_SECONDS = 10.0  # longest wait for the first UpdateMetadata requests: shorter than any client's request timeout
ROWS_INLINE_MAX = 200  # partitions after which a portion of topics is encoded; its last topic may exceed it
ROWS_IN_THREAD_MIN = 1000  # a portion with more partitions is encoded in a thread
TOPICS_AT_A_TIME = 100  # topics in a portion: at most 126, so that their compact array count takes one byte
FLEXIBLE_VERSION = 9
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)

Topic = m.MetadataResponse.MetadataResponseTopic
Partition = m.MetadataResponse.MetadataResponsePartition


async def metadata(broker: Broker, call: Call, request: m.MetadataRequest) -> m.MetadataResponse | Encoded:
    """Brokers, controller, and the requested topics (`Encoded` for all topics).

    Raises Refuse(INVALID_REQUEST) for topic ids before version 12, ProtocolViolation while the cache is incomplete.
    """
    await _check_ids(call, request)
    # After a start it may take until the ZooKeeper session of the previous run has expired before this broker gets all
    # topics. librdkafka gives up a topic that a broker reports as unknown, so such an answer must wait.
    if not broker.metadata.is_complete.is_set():
        await _until_whole(broker)
    if request.topics is None or (call.version == ALL_TOPICS_IS_EMPTY_VERSION and not request.topics):
        return await _all_topics(broker, call, request)
    # Only topics that were named are created (`_asked_topic`): a request for all topics returned above.
    once = await _once(request.topics)
    topics = [await _asked_topic(broker, call, request, asked) async for asked in paced(once)]
    return _response(broker, call, request, topics)


def _response(broker: Broker, call: Call, request: m.MetadataRequest, topics: list[Topic]) -> m.MetadataResponse:
    # Brokers that have just left are included: librdkafka would drop one before it applies the new leaders of the same
    # response, and lose that broker's partitions for a second. Kafka lists live brokers only.
    brokers = [
        m.MetadataResponse.MetadataResponseBroker(
            node_id=info.broker_id, host=endpoint.host, port=endpoint.port, rack=info.rack
        )
        for info in broker.metadata.brokers_to_tell()
        # A broker without this listener has no address that the client could use.
        if (endpoint := info.endpoints.get(call.listener)) is not None
    ]
    response = m.MetadataResponse(
        brokers=brokers, cluster_id=broker.cluster_id, controller_id=broker.metadata.controller_id, topics=topics
    )
    if request.include_cluster_authorized_operations:
        known = call.authorize("Describe", "Cluster", is_filter=True)
        # 0 is an empty set of operations, unlike the default, which means "not requested".
        response.cluster_authorized_operations = call.allowed_operations("Cluster") if known else 0
    return response


def refuse_metadata(request: m.MetadataRequest, version: int, code: ErrorCode) -> m.MetadataResponse:
    """The same error for every requested topic."""
    topics = [Topic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in request.topics or ()]
    return m.MetadataResponse(topics=topics)


# -- all topics


async def _all_topics(broker: Broker, call: Call, request: m.MetadataRequest) -> Encoded:
    """The response for all topics. Its topics array is cached as bytes until the metadata changes.

    Many clients refresh all topics, and the array of a large cluster takes long to encode.
    """
    # The array depends on these besides the metadata itself.
    depends_on = (call.version, call.listener, call.rights, request.include_topic_authorized_operations)
    topics = await broker.metadata.answers.get(depends_on, lambda: _encode_topics(broker, call, request))
    # Brokers and controller are encoded for each request: `brokers_to_tell` changes with time alone.
    head, _, tail = _parts_of(_response(broker, call, request, []), call.version)
    return Encoded((head, topics, tail))


async def _encode_topics(broker: Broker, call: Call, request: m.MetadataRequest) -> bytes:
    """The encoded array of all topics, with its count. A topic that changes meanwhile has its old or its new state."""
    parts: list[bytes] = [b""]  # the first is the count, which is known last
    count = 0
    rows = 0
    some: list[Topic] = []
    async for info in paced(list(broker.metadata.topics.values())):
        if call.authorize("Describe", "Topic", info.name, is_filter=True):
            some.append(await _known_topic(broker, call, request, info))
            count = count + 1
            rows = rows + len(info.partitions)
        if rows > ROWS_INLINE_MAX or len(some) == TOPICS_AT_A_TIME:
            # The topics are encoded in portions: one `encode` of all of them would block the event
            # loop for its whole duration.
            parts.append(await _encode_some(broker, call, some, rows))
            some = []
            rows = 0

    parts.append(await _encode_some(broker, call, some, rows))
    parts[0] = varint(count + 1) if call.version >= FLEXIBLE_VERSION else count.to_bytes(4, "big")
    return b"".join(parts)


async def _encode_some(broker: Broker, call: Call, topics: list[Topic], rows: int) -> bytes:
    """The encoded topics, without an array count."""
    response = m.MetadataResponse(topics=topics)
    # A topic is not split into portions, so one with thousands of partitions would block the event loop.
    if rows > ROWS_IN_THREAD_MIN:
        _, elements, _ = await broker.world.in_request_thread(_parts_of, response, call.version)
    else:
        _, elements, _ = _parts_of(response, call.version)
        await pause_after(rows)
    return elements


def _parts_of(response: m.MetadataResponse, version: int) -> tuple[bytes, bytes, bytes]:
    """The encoded response in three parts: before the array of topics, the array's elements, after the array.

    The count of the array is in none of them. `response.topics` has at most TOPICS_AT_A_TIME elements.
    """
    encoded = m.encode(response, version)
    # The response without topics has the same head and tail, so its length tells where the array begins.
    topics = response.topics
    response.topics = ()
    before_count = len(m.encode(response, version)) - _bytes_after(version) - _count_bytes(version)
    response.topics = topics
    end = len(encoded) - _bytes_after(version)
    return encoded[:before_count], encoded[before_count + _count_bytes(version) : end], encoded[end:]


def _count_bytes(version: int) -> int:
    """Bytes of the count of an array with at most `TOPICS_AT_A_TIME` elements."""
    return 1 if version >= FLEXIBLE_VERSION else 4


def _bytes_after(version: int) -> int:
    """Bytes behind the topics: authorized operations of the cluster, and the number of tagged fields."""
    return 4 * (version in CLUSTER_OPERATIONS_VERSIONS) + (version >= FLEXIBLE_VERSION)


async def _until_whole(broker: Broker) -> None:
    """Wait until the cache has all topics; ProtocolViolation after PATIENCE_SECONDS.

    An earlier response would report existing topics as unknown, and a client may drop the records queued for them.
    """
    with trio.move_on_after(PATIENCE_SECONDS):
        await broker.metadata.is_complete.wait()
        return
    # No error code makes a client ask another broker; a closed connection does.
    raise ProtocolViolation("this broker's metadata is not complete yet")


async def _check_ids(call: Call, request: m.MetadataRequest) -> None:
    """Refuse(INVALID_REQUEST) for topic ids before version 12. Versions 10 and 11 have the field; Kafka refuses it."""
    async for asked in paced(request.topics or ()):
        if asked.name is None and call.version < ASK_BY_ID_VERSION:
            raise Refuse(ErrorCode.INVALID_REQUEST, "a topic without name is asked for")
        if asked.topic_id != ZERO_TOPIC_ID and call.version < ASK_BY_ID_VERSION:
            raise Refuse(ErrorCode.INVALID_REQUEST, "topic ids are not served in this version")


async def _once(
    topics: Sequence[m.MetadataRequest.MetadataRequestTopic],
) -> Iterable[m.MetadataRequest.MetadataRequestTopic]:
    """The requested topics, each once. If at least one is requested by id, those requested by name are left out."""
    by_id = {topic.topic_id: topic async for topic in paced(topics) if topic.topic_id != ZERO_TOPIC_ID}
    return by_id.values() if by_id else {topic.name: topic async for topic in paced(topics)}.values()


async def _asked_topic(
    broker: Broker, call: Call, request: m.MetadataRequest, asked: m.MetadataRequest.MetadataRequestTopic
) -> Topic:
    by_id = asked.topic_id != ZERO_TOPIC_ID
    name = broker.metadata.topic_name(asked.topic_id) if by_id else asked.name
    if name is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)

    # The check precedes the look-up, so that an unauthorized client cannot find out which topics
    # exist.
    if not call.authorize("Describe", "Topic", name):
        # An id says nothing about a topic, but its name does.
        return Topic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            name=None if by_id else name,
            topic_id=asked.topic_id if by_id else ZERO_TOPIC_ID,
        )

    info = broker.metadata.topics.get(name)
    if info is not None:
        return await _known_topic(broker, call, request, info)
    code = await _unknown(broker, call, request, name)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Topic(error_code=code, name=name)
    return Topic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=_operations(call, request, name),
    )


async def _unknown(broker: Broker, call: Call, request: m.MetadataRequest, name: str) -> ErrorCode:
    """Create the topic if broker and request allow it; the error code for the client."""
    allowed = call.version < CREATION_FLAG_VERSION or request.allow_auto_topic_creation
    if not (allowed and broker.config.auto_create_topics_enable):
        return (
            ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid_topic_name(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    # Create on the cluster allows every topic name.
    if not (call.authorize("Create", "Cluster", is_filter=True) or call.authorize("Create", "Topic", name)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # The code after a creation is LEADER_NOT_AVAILABLE, which clients retry until the new topic has leaders.
    # As in Kafka the partitions take tokens of the client's quota. For missing tokens this request is not refused,
    # because older clients do not know the error, but the next CreateTopics is.
    mutations = broker.quotas.mutations_of(*call.quota_user, strict=False)
    return await broker.topics.auto_create(name, mutations.take)


async def _known_topic(broker: Broker, call: Call, request: m.MetadataRequest, info: TopicInfo) -> Topic:
    topic = Topic(
        name=info.name,
        is_internal=info.name in INTERNAL_TOPICS,
        partitions=[
            _partition(broker, call, index, partition)
            async for index, partition in paced(sorted(info.partitions.items()))
        ],
        topic_authorized_operations=_operations(call, request, info.name),
    )
    if call.version >= TOPIC_ID_VERSION:
        topic.topic_id = info.topic_id
    return topic


def _operations(call: Call, request: m.MetadataRequest, name: str) -> int:
    """The authorized operations of a topic that the caller may describe (KIP-430), or NOT_ASKED."""
    return call.allowed_operations("Topic", name) if request.include_topic_authorized_operations else NOT_ASKED


def _partition(broker: Broker, call: Call, index: int, info: PartitionInfo) -> Partition:
    error = ErrorCode.NONE
    leader_id = info.leader_id
    replicas = info.replicas
    in_sync_replicas = info.in_sync_replicas

    # As Kafka's `errorUnavailableEndpoints` says, version 0 lists only replicas that are among the
    # brokers of the response, and reports the missing ones as an error. Later versions list all.
    if call.version < FULL_LISTS_VERSION:
        replicas, in_sync_replicas = (
            [each for each in listed if broker.metadata.endpoint(each, call.listener)]
            for listed in (info.replicas, info.in_sync_replicas)
        )

    # A leader that died stays in the partition state until the controller elects another one.
    if info.leader_id == NO_LEADER or info.leader_id not in broker.metadata.brokers:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        leader_id = NO_LEADER
    # The leader is alive but has no address on this listener (KIP-103): the client cannot connect to it.
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
