"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of producers, DescribeTransactions and ListTransactions
of administrators.

The handlers translate between protocol messages and the events of the transaction coordinator
(`coordinators/transactions/`).

AddPartitionsToTxn: up to version 3 one transaction of a client, which gets one error code for each partition. If one
    partition may not be added, none is: the others get OPERATION_NOT_ATTEMPTED. From version 4 on several transactions
    of a partition leader, which mostly asks whether its partition belongs to them (`verify_only`, KIP-890).
AddOffsetsToTxn: adds the group's partition of `__consumer_offsets`.
EndTxn: is answered when the decision is committed; the markers are written afterwards.
A request that was overtaken by one on a later connection closes its own (`connection_order.py`).
Versions: AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-4; before 2 a fenced producer gets
    INVALID_PRODUCER_EPOCH. DescribeTransactions 0, ListTransactions 0-1.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import Repeats
from barnabas.coordinators.transactions.coordinator import Overtaken
from barnabas.coordinators.transactions.descriptions import Description, Filters
from barnabas.coordinators.transactions.events import AddPartitions, EndTransaction, VerifyPartitions
from barnabas.coordinators.transactions.state import STATUS_NAMES, UNSTORED_STATUS_NAMES, Producer
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import GROUP_TOPIC, INTERNAL_TOPICS, TopicPartition
from barnabas.world.connection_order import given_up
from barnabas.world.pacing import paced

SEVERAL_TRANSACTIONS_VERSION = 4  # of AddPartitionsToTxn
FENCED_VERSION = 2  # from this version on clients know PRODUCER_FENCED
# A leader asks about many ids at once. An id whose newest record cannot be committed must not delay the others.
VERIFICATION_SECONDS_MAX = 1.0

STATUSES = frozenset({*STATUS_NAMES.values(), *UNSTORED_STATUS_NAMES})

Errors = dict[TopicPartition, ErrorCode]
AskedTopic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
AskedTransaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TopicResult = m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = m.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
TransactionResult = m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Described = m.DescribeTransactionsResponse.TransactionState
DescribedTopic = m.DescribeTransactionsResponse.TopicData
Listed = m.ListTransactionsResponse.TransactionState


# -- AddPartitionsToTxn


async def add_partitions_to_txn(
    broker: Broker, call: Call, request: m.AddPartitionsToTxnRequest
) -> m.AddPartitionsToTxnResponse:
    """Add partitions to transactions, or say whether they are in them.

    Raises Refuse(CLUSTER_AUTHORIZATION_FAILED) from version 4 on; ProtocolViolation for an overtaken request.
    """
    if call.version >= SEVERAL_TRANSACTIONS_VERSION:
        if not call.authorize("ClusterAction", "Cluster"):
            raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        deadline = trio.current_time() + VERIFICATION_SECONDS_MAX

        # A request without transactions is answered, too, which Kafka does not answer at all.
        results = [await _one_of_several(broker, call, each, deadline) async for each in paced(request.transactions)]
        return m.AddPartitionsToTxnResponse(results_by_transaction=results)

    name = request.v3_and_below_transactional_id
    topics = request.v3_and_below_topics
    if not call.authorize("Write", "TransactionalId", name):
        raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    errors: Errors = {}
    async for key in _named(topics):
        errors[key] = _why_not_addable(broker, call, key)
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    rows = await _add(broker, call, name, producer, topics, errors, call.connection_number)
    return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def refuse_add_partitions_to_txn(
    request: m.AddPartitionsToTxnRequest, version: int, code: ErrorCode
) -> m.AddPartitionsToTxnResponse:
    """From version 4 on the error of the whole request; before, the same error for every partition."""
    if version >= SEVERAL_TRANSACTIONS_VERSION:
        return m.AddPartitionsToTxnResponse(error_code=code)
    rows = [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


async def _one_of_several(broker: Broker, call: Call, asked: AskedTransaction, deadline: float) -> TransactionResult:
    name = asked.transactional_id
    producer = Producer(asked.producer_id, asked.producer_epoch)
    errors: Errors = {}
    async for key in _named(asked.topics):
        is_missing = broker.metadata.partition(*key) is None
        errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_missing else ErrorCode.NONE
    if asked.verify_only:
        rows = await _grouped({**errors, **await _verify(broker, name, producer, errors, deadline)})
    else:
        # A broker asks on its own connection, whose number says nothing about the connections of the producer.
        rows = await _add(broker, call, name, producer, asked.topics, errors, None)
    return TransactionResult(transactional_id=name, topic_results=rows)


async def _verify(
    broker: Broker, name: str, producer: Producer, errors: Errors, deadline: float
) -> Mapping[TopicPartition, ErrorCode]:
    """The answers about those partitions that have no error yet."""
    # A partition that this broker does not know yet is no reason to refuse the others. In Kafka it is one, and their
    # producers get OPERATION_NOT_ATTEMPTED, which no producer retries.
    known = {key: None async for key, error in paced(errors.items()) if not error}
    if name == "":
        return dict.fromkeys(errors, ErrorCode.INVALID_REQUEST)
    answer = await broker.transactions.verify(name, VerifyPartitions(producer, known), deadline)
    return dict.fromkeys(known, answer.error) if answer.partition_errors is None else answer.partition_errors


async def _add(  # one transaction of the request
    broker: Broker,
    call: Call,
    name: str,
    producer: Producer,
    topics: Sequence[AskedTopic],
    errors: Errors,
    connection: int | None,
) -> list[TopicResult]:
    """Add the partitions, unless one of them may not be added. `connection`: the producer's; None if a broker asks."""
    if any(errors.values()):
        return await _grouped({key: error or ErrorCode.OPERATION_NOT_ATTEMPTED for key, error in errors.items()})
    code = ErrorCode.INVALID_REQUEST
    if name != "":
        code = await _added(broker, call, name, AddPartitions(producer, dict.fromkeys(errors)), connection)
    return await _all_alike(topics, code)


async def _added(broker: Broker, call: Call, name: str, event: AddPartitions, connection: int | None) -> ErrorCode:
    try:
        error = await broker.transactions.add_partitions(name, event, connection)
    except Overtaken:
        raise given_up(call.client_id) from None
    return _for_version(error, call.version)


def _why_not_addable(broker: Broker, call: Call, key: TopicPartition) -> ErrorCode:
    # AddOffsetsToTxn alone may add a partition of an internal topic, as in Kafka.
    if key.topic in INTERNAL_TOPICS or not call.authorize("Write", "Topic", key.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.metadata.partition(*key) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


async def _named(topics: Sequence[AskedTopic]) -> AsyncIterator[TopicPartition]:
    async for topic in paced(topics):
        async for index in paced(topic.partitions):
            yield TopicPartition(topic.name, index)


async def _grouped(errors: Mapping[TopicPartition, ErrorCode]) -> list[TopicResult]:
    """A row for each partition; what was named twice is answered once."""
    named: dict[str, list[PartitionResult]] = {}
    async for (topic, index), code in paced(errors.items()):
        row = PartitionResult(partition_index=index, partition_error_code=code)
        named.setdefault(topic, []).append(row)
    return [TopicResult(name=name, results_by_partition=rows) async for name, rows in paced(named.items())]


async def _all_alike(topics: Sequence[AskedTopic], code: ErrorCode) -> list[TopicResult]:
    """The same code for each partition, in the form of the request."""
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=index, partition_error_code=code)
                async for index in paced(topic.partitions)
            ],
        )
        async for topic in paced(topics)
    ]


# -- AddOffsetsToTxn


async def add_offsets_to_txn(
    broker: Broker, call: Call, request: m.AddOffsetsToTxnRequest
) -> m.AddOffsetsToTxnResponse:
    """Add the group's partition of `__consumer_offsets`, in which the offsets of TxnOffsetCommit are stored.

    Raises Refuse with any error; ProtocolViolation for an overtaken request.
    """
    name = request.transactional_id
    if not call.authorize("Write", "TransactionalId", name):
        raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if name == "":
        raise Refuse(ErrorCode.INVALID_REQUEST)
    # The partition is added, as in Kafka, even if the topic does not exist yet.
    offsets = TopicPartition(GROUP_TOPIC, broker.groups.placement.partition_of(request.group_id))
    producer = Producer(request.producer_id, request.producer_epoch)
    return m.AddOffsetsToTxnResponse(
        error_code=await _added(broker, call, name, AddPartitions(producer, {offsets: None}), call.connection_number)
    )


# -- EndTxn


async def end_txn(broker: Broker, call: Call, request: m.EndTxnRequest) -> m.EndTxnResponse:
    """Decide the transaction. Raises Refuse with any error; ProtocolViolation for an overtaken request."""
    name = request.transactional_id
    if not call.authorize("Write", "TransactionalId", name):
        raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if name == "":
        raise Refuse(ErrorCode.INVALID_REQUEST)
    event = EndTransaction(Producer(request.producer_id, request.producer_epoch), request.committed)
    try:
        error = await broker.transactions.end(name, event, call.connection_number, call.has_hung_up)
    except Overtaken:
        raise given_up(call.client_id) from None
    return m.EndTxnResponse(error_code=_for_version(error, call.version))


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < FENCED_VERSION
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


# -- for administrators


async def describe_transactions(
    broker: Broker, call: Call, request: m.DescribeTransactionsRequest
) -> m.DescribeTransactionsResponse:
    """The state of each transactional id, in the order of the request (KIP-664).

    Raises Refuse(INVALID_REQUEST) for too many repeats.
    """
    repeats = Repeats()
    rows = []
    async for name in paced(request.transactional_ids):
        # A transaction may have many thousands of partitions, and a request repeats its id with few bytes.
        repeats.note(name)
        rows.append(await _described(broker, call, name))
    return m.DescribeTransactionsResponse(transaction_states=rows)


async def _described(broker: Broker, call: Call, name: str) -> Described:
    found: Description | ErrorCode
    if not call.authorize("Describe", "TransactionalId", name):
        found = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif name == "":
        found = ErrorCode.INVALID_REQUEST
    else:
        found = await broker.transactions.describe(name)

    if isinstance(found, ErrorCode):
        return Described(transactional_id=name, error_code=found)
    topics: dict[str, list[int]] = {}
    async for topic, index in paced(found.partitions):
        if call.authorize("Describe", "Topic", topic, is_filter=True):
            topics.setdefault(topic, []).append(index)
    return Described(
        transactional_id=name,
        transaction_state=found.status,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.producer_epoch,
        topics=[DescribedTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def refuse_describe_transactions(
    request: m.DescribeTransactionsRequest, version: int, code: ErrorCode
) -> m.DescribeTransactionsResponse:
    """The same error for every transactional id."""
    rows = [Described(transactional_id=name, error_code=code) for name in request.transactional_ids]
    return m.DescribeTransactionsResponse(transaction_states=rows)


async def list_transactions(
    broker: Broker, call: Call, request: m.ListTransactionsRequest
) -> m.ListTransactionsResponse:
    """The transactional ids of this broker that pass the filters (KIP-664, KIP-994).

    State filters that no state has are named in the response, and select nothing. Raises Refuse with any error.
    """
    # A dict instead of a set: each unknown state once, in the order of the request.
    unknown = {name: None async for name in paced(request.state_filters) if name not in STATUSES}
    statuses = frozenset([name async for name in paced(request.state_filters)])
    producer_ids = frozenset([each async for each in paced(request.producer_id_filters)])
    listed = await broker.transactions.list(Filters(statuses, producer_ids, request.duration_filter))
    if isinstance(listed, ErrorCode):
        raise Refuse(listed)
    rows = [
        Listed(transactional_id=each.name, producer_id=each.producer.producer_id, transaction_state=each.status)
        async for each in paced(listed)
        if call.authorize("Describe", "TransactionalId", each.name, is_filter=True)
    ]
    return m.ListTransactionsResponse(unknown_state_filters=list(unknown), transaction_states=rows)
