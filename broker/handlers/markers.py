"""WriteTxnMarkers: a transaction coordinator ends a transaction in the partitions that this broker leads.

Behaviour: each partition gets one control batch, COMMIT or ABORT, with the coordinator's epoch, and is answered when
    that is committed. A partition of `__consumer_offsets` gets it through the group coordinator, which lets the offsets
    of the transaction take effect in the same step. An administrator ends a hanging transaction with the same request
    (`kafka-transactions abort`). A coordinator's request closes its connection if a later one has been used; if it may
    be older than this broker's leadership, and this is not the first one, it gets NOT_LEADER_OR_FOLLOWER.
Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, INVALID_PRODUCER_EPOCH,
    TRANSACTION_COORDINATOR_FENCED, UNSUPPORTED_FOR_MESSAGE_FORMAT (`__transaction_state`, where no transaction writes);
    UNKNOWN_SERVER_ERROR for a negative producer id or epoch. A Java coordinator fails on any other, and leaves its
    transactions open.
Versions: 0-1.
"""

import trio

from barnabas.broker.call import Broker, Call
from barnabas.coordinators.transactions.markers import Ending, append_marker
from barnabas.replication.acknowledgements import AppendedUpTo, acknowledgements
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation, Refuse
from barnabas.wire.sentinels import ACKS_ALL
from barnabas.wire.topics import TopicPartition
from barnabas.world.freeing import emptied_by_topic
from barnabas.world.pacing import paced, portions

AWAITED_AT_A_TIME = 500  # partitions: each of them that is committed wakes the task, which looks at all

Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = m.WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = m.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = m.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

# This holds, by producer id, an error of each partition, or what its acknowledgement waits for.
Outcomes = dict[int, dict[TopicPartition, ErrorCode | AppendedUpTo]]


async def write_txn_markers(broker: Broker, call: Call, request: m.WriteTxnMarkersRequest) -> m.WriteTxnMarkersResponse:
    """Append the markers, and answer when they are committed.

    Raises Refuse(CLUSTER_AUTHORIZATION_FAILED); ProtocolViolation for an overtaken request.
    """
    if not (call.authorize("Alter", "Cluster") or call.authorize("ClusterAction", "Cluster")):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    _check_order(broker, call)
    sent_after = broker.alter_partition.mark()
    if call.connection is not None:
        sent_after = broker.marker_senders.sent_after(call.client_id, call.connection.number, sent_after)
    deadline = trio.current_time() + broker.config.request_timeout_ms / 1000
    outcomes: Outcomes = {}
    async for marker in paced(request.markers):
        named: set[TopicPartition] = set()
        async for topic in paced(marker.topics):
            async for index in paced(topic.partition_indexes):
                key = TopicPartition(topic.name, index)

                # A partition gets one marker, however often it is named: to name it again takes
                # four bytes, a marker 78 in the log.
                if key in named:
                    continue
                named.add(key)

                # The check is in the step that appends, because the coordinator may give up this
                # connection at any time.
                _check_order(broker, call)

                # A producer without partitions has no row.
                outcomes.setdefault(marker.producer_id, {})[key] = _append(broker, marker, sent_after, *key)

    async for of_producer in paced(outcomes.values()):
        await _await_acknowledgements(of_producer, deadline)
    results = [await _result(*each) async for each in paced(outcomes.items())]
    await emptied_by_topic(outcomes)
    return m.WriteTxnMarkersResponse(markers=results)


def _check_order(broker: Broker, call: Call) -> None:
    """Raises ProtocolViolation if this coordinator has used a later connection."""
    # This broker's own requests have no connection, and cannot be overtaken.
    if call.connection is not None and broker.marker_senders.is_overtaken(call.client_id, call.connection.number):
        raise ProtocolViolation(f"{call.client_id} has sent its markers on a later connection: these are not written")


def _append(broker: Broker, marker: Marker, sent_after: int, topic: str, index: int) -> ErrorCode | AppendedUpTo:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    partition = broker.replicas.get(topic, index)
    if isinstance(partition, ErrorCode):
        # The marker cannot be written without a replica here, whether the partition exists or not,
        # as in Kafka.
        is_elsewhere = partition is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_elsewhere else partition

    # Another broker may have led the partition, and written these markers, while the request was under way. Written
    # again they would end the producers' next transactions. A coordinator that gets this error sends them again.
    if partition.leads_again_after > sent_after:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    ending = Ending(marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch)
    end_offset = append_marker(partition, broker.groups, TopicPartition(topic, index), ending, broker.world.now_ms())
    if isinstance(end_offset, ErrorCode):
        return end_offset
    return AppendedUpTo(partition, end_offset, partition.leading_since)


async def _await_acknowledgements(outcomes: dict[TopicPartition, ErrorCode | AppendedUpTo], deadline: float) -> None:
    """Replace what waits for its acknowledgement by the error code."""
    waiting = [(key, outcome) async for key, outcome in paced(outcomes.items()) if isinstance(outcome, AppendedUpTo)]
    for some in portions(waiting, AWAITED_AT_A_TIME):
        decisions = acknowledgements([outcome for _, outcome in some], ACKS_ALL)
        await decisions.wait(deadline)
        async for (key, _), decided in paced(zip(some, decisions.decided, strict=True)):
            outcomes[key] = ErrorCode.REQUEST_TIMED_OUT if decided is None else decided


async def _result(producer_id: int, outcomes: dict[TopicPartition, ErrorCode | AppendedUpTo]) -> MarkerResult:
    topics: dict[str, list[PartitionResult]] = {}
    async for (topic, index), outcome in paced(outcomes.items()):
        code = outcome if isinstance(outcome, ErrorCode) else ErrorCode.REQUEST_TIMED_OUT
        topics.setdefault(topic, []).append(PartitionResult(partition_index=index, error_code=code))
    rows = [TopicResult(name=name, partitions=each) async for name, each in paced(topics.items())]
    return MarkerResult(producer_id=producer_id, topics=rows)


def refuse_write_txn_markers(
    request: m.WriteTxnMarkersRequest, version: int, code: ErrorCode
) -> m.WriteTxnMarkersResponse:
    """The same error for every partition of every marker."""
    return m.WriteTxnMarkersResponse(
        markers=[
            MarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    TopicResult(
                        name=topic.name,
                        partitions=[
                            PartitionResult(partition_index=i, error_code=code) for i in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
