"""Producer ids (InitProducerId, AllocateProducerIds), producer states of partitions (DescribeProducers), and admin
requests about transactions (DescribeTransactions, ListTransactions).

Producer ids: an idempotent producer gets a new id with epoch 0 from this broker's block. The controller hands out
    blocks of 1000 ids (reference E.5).
DescribeProducers: every replica here, leader or follower, answers its producer states: last sequence number, last
    timestamp, and start of the open transaction. A producer that has not written for `producer.id.expiration.ms` is
    removed from them.
Transactions: there is no transaction coordinator, so the answers are those of an Apache Kafka that has seen no
    transactional id. ListTransactions has no transactions, and names the state filters that Kafka does not know.
Versions: InitProducerId 0-5, AllocateProducerIds 0, DescribeProducers 0, DescribeTransactions 0, ListTransactions 0-1.
Not done: transactional ids.
"""

from barnabas.broker.call import Broker, Call
from barnabas.broker.cluster.topics import TRANSACTION_TOPIC
from barnabas.broker.pacing import paced
from barnabas.broker.repeats import Repeats
from barnabas.broker.rows import Rows
from barnabas.storage.producers import Producer
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.sentinels import NO_OFFSET, NO_PRODUCER_ID
from barnabas.wire.topics import partition_for, why_invalid_topic_name

NO_PRODUCER_EPOCH = -1
PARTITION_COST = 3  # in rows of `pacing.ROWS_AT_A_TIME`: the time to look up a partition
ID_COST = 5  # the same, for a transactional id

# Kafka's names of transaction states, which the filter of ListTransactions uses (KIP-664).
TRANSACTION_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)

DescribedTransaction = m.DescribeTransactionsResponse.TransactionState
ProducersRow = m.DescribeProducersResponse.PartitionResponse


# -- producer ids


async def init_producer_id(broker: Broker, call: Call, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
    """A new producer id with epoch 0 for an idempotent producer.

    Raises Refuse: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, the errors of a request for the next block of ids; for
    a transactional id TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST (empty) or UNSUPPORTED_VERSION.
    """
    # UNSUPPORTED_VERSION is fatal for a transactional producer; a coordinator error would be retried until its timeout.
    if request.transactional_id is not None:
        if request.transactional_id == "":
            raise Refuse(ErrorCode.INVALID_REQUEST)
        if not call.authorize("Write", "TransactionalId", request.transactional_id):
            raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        raise Refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not call.authorize("IdempotentWrite", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # KIP-360: a client sends its current id and epoch, or neither. Without a transactional id Kafka ignores both and
    # assigns a new id.
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise Refuse(ErrorCode.INVALID_REQUEST)
    # From this broker's own block, because clients send this request to any broker.
    producer_id = await broker.producer_ids.next_id()
    # The client repeats the request on this error, as while a coordinator loads.
    if producer_id is None:
        raise Refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def allocate_producer_ids(
    broker: Broker, call: Call, request: m.AllocateProducerIdsRequest
) -> m.AllocateProducerIdsResponse:
    """The next block of producer ids for a broker, from the active controller (Refuse: NOT_CONTROLLER and others)."""
    if not call.authorize("ClusterAction", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # With the broker epoch, so that a broker's former run cannot use up a block.
    block = await broker.candidate.allocate_producer_ids(request.broker_id, request.broker_epoch)
    if isinstance(block, ErrorCode):
        raise Refuse(block)
    return m.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)


def refuse_init_producer_id(
    request: m.InitProducerIdRequest, version: int, code: ErrorCode
) -> m.InitProducerIdResponse:
    """An error without a producer id."""
    return m.InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


# -- producers of a partition


async def describe_producers(
    broker: Broker, call: Call, request: m.DescribeProducersRequest
) -> m.DescribeProducersResponse:
    """The producer states of each requested partition, or its error (KIP-664).

    Raises Refuse(INVALID_REQUEST) for too many repeats.
    """
    topics = []
    # A partition may have many thousands of producers, and a request repeats its index with four bytes.
    repeats = Repeats()
    async for topic in paced(request.topics, PARTITION_COST):
        refused = _refuse_describing(broker, call, topic.name)
        rows = []
        async for index in paced(topic.partition_indexes, PARTITION_COST):
            # A refused row is as small as its entry in the request, so it may be repeated freely.
            if refused is not None:
                rows.append(_refused_row(index, *refused))
            else:
                repeats.note(index, topic.name)
                rows.append(_describe_producers(broker, topic.name, index))
        topics.append(m.DescribeProducersResponse.TopicResponse(name=topic.name, partitions=rows))
    return m.DescribeProducersResponse(topics=topics)


def refuse_describe_producers(
    request: m.DescribeProducersRequest, version: int, code: ErrorCode
) -> m.DescribeProducersResponse:
    """The same error for every partition."""
    return m.DescribeProducersResponse(
        topics=[
            m.DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_refused_row(index, code, code.message) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _refuse_describing(broker: Broker, call: Call, topic: str) -> tuple[ErrorCode, str] | None:
    why_invalid = why_invalid_topic_name(topic)
    if why_invalid is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why_invalid}"
    if not call.authorize("Read", "Topic", topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.message
    if topic not in broker.metadata.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message
    return None


def _refused_row(index: int, code: ErrorCode, message: str | None = None) -> ProducersRow:
    return ProducersRow(partition_index=index, error_code=code, error_message=message)


def _describe_producers(broker: Broker, topic: str, index: int) -> ProducersRow:
    partition = broker.replicas.get(topic, index)
    if isinstance(partition, ErrorCode):
        return _refused_row(index, partition)
    # Any replica has producer states, so no leader check; without a log there are none.
    if partition.log is None:
        return _refused_row(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # Made when they are encoded: 100,000 producers as objects take 18 MB.
    return ProducersRow(
        partition_index=index, active_producers=Rows(partition.log.producers.entries(), _describe_producer)
    )


def _describe_producer(entry: tuple[int, ...]) -> m.DescribeProducersResponse.ProducerState:
    producer = Producer(*entry)
    first_offset = producer.transaction_first_offset
    return m.DescribeProducersResponse.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
    )


# -- transactions, for administrators


async def describe_transactions(
    broker: Broker, call: Call, request: m.DescribeTransactionsRequest
) -> m.DescribeTransactionsResponse:
    """The state of each transactional id, in the order and as often as requested: always an error (KIP-664)."""
    rows = [
        DescribedTransaction(transactional_id=name, error_code=_why_not_described(broker, call, name))
        async for name in paced(request.transactional_ids, ID_COST)
    ]
    return m.DescribeTransactionsResponse(transaction_states=rows)


def _why_not_described(broker: Broker, call: Call, transactional_id: str) -> ErrorCode:
    if not call.authorize("Describe", "TransactionalId", transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    # As in Kafka, this request does not create the topic.
    topic = broker.metadata.topics.get(TRANSACTION_TOPIC)
    if topic is None:
        return ErrorCode.NOT_COORDINATOR
    # The coordinator would be the leader of the id's partition. It knows no id; any other broker redirects the client.
    leader = broker.metadata.leader_of(TRANSACTION_TOPIC, partition_for(transactional_id, len(topic.partitions)))
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if leader == broker.broker_id else ErrorCode.NOT_COORDINATOR


async def list_transactions(
    broker: Broker, call: Call, request: m.ListTransactionsRequest
) -> m.ListTransactionsResponse:
    """No transactions; the state filters that Kafka does not know are named in the response."""
    # A dict instead of a set: each unknown state once, in the order of the request.
    unknown = {state: None async for state in paced(request.state_filters) if state not in TRANSACTION_STATES}
    return m.ListTransactionsResponse(unknown_state_filters=list(unknown))


def refuse_describe_transactions(
    request: m.DescribeTransactionsRequest, version: int, code: ErrorCode
) -> m.DescribeTransactionsResponse:
    """The same error for every transactional id."""
    rows = [DescribedTransaction(transactional_id=name, error_code=code) for name in request.transactional_ids]
    return m.DescribeTransactionsResponse(transaction_states=rows)
