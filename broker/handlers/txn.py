"""Producers: their ids (InitProducerId, AllocateProducerIds), who writes where (DescribeProducers), transactions.

Behaviour: a producer without transactional id gets a fresh producer id with epoch 0 from this broker's block; blocks
    of a thousand come from the controller (reference E.5). A client that asks again with its own id and epoch
    (KIP-360) gets a fresh id as well, as in Kafka; with only one of the two it gets INVALID_REQUEST.
    DescribeProducers tells of each replica here, leader or not, which producers it knows, with their last sequence
    number, time, and open transaction; who has not written for `producer.id.expiration.ms` is forgotten.
    No transactional id is known: each is described as by an Apache Kafka that has seen none, NOT_COORDINATOR until this
    broker leads its partition of `__transaction_state`, and TRANSACTIONAL_ID_NOT_FOUND from then on; an empty one is
    INVALID_REQUEST. The list of transactions is empty, and names the states asked for that do not exist.
Versions: InitProducerId 0-5, AllocateProducerIds 0, DescribeProducers 0, DescribeTransactions 0, ListTransactions 0-1.
Not done: transactional ids, whose coordinator does not exist yet. InitProducerId answers them with UNSUPPORTED_VERSION,
    which ends a client's attempt.
"""

from barnabas.broker.call import Broker, Call
from barnabas.broker.cluster.topics import TRANSACTION_TOPIC
from barnabas.broker.pacing import paced
from barnabas.broker.repeats import Repeats
from barnabas.storage.producers import Producer
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.sentinels import NO_OFFSET, NO_PRODUCER_ID
from barnabas.wire.topics import partition_for, why_invalid_topic_name

NO_PRODUCER_EPOCH = -1
PARTITION_COST = 3  # rows that take as long as to look for a partition
ID_COST = 5  # rows that take as long as to look for a transactional id

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
    """A producer id of its own for an idempotent producer."""
    if request.transactional_id is not None:
        if request.transactional_id == "":
            raise Refuse(ErrorCode.INVALID_REQUEST)
        if not call.authorize("Write", "TransactionalId", request.transactional_id):
            raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        raise Refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not call.authorize("IdempotentWrite", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise Refuse(ErrorCode.INVALID_REQUEST)
    producer_id = await broker.producer_ids.next_id()
    if isinstance(producer_id, ErrorCode):
        raise Refuse(producer_id)
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def allocate_producer_ids(
    broker: Broker, call: Call, request: m.AllocateProducerIdsRequest
) -> m.AllocateProducerIdsResponse:
    """The next block of ids for a broker; only the active controller gives them out."""
    if not call.authorize("ClusterAction", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    block = await broker.candidate.allocate_producer_ids(request.broker_id, request.broker_epoch)
    if isinstance(block, ErrorCode):
        raise Refuse(block)
    return m.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)


def refuse_init_producer_id(
    request: m.InitProducerIdRequest, version: int, code: ErrorCode
) -> m.InitProducerIdResponse:
    """One error and no id."""
    return m.InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


# -- producers of a partition


async def describe_producers(
    broker: Broker, call: Call, request: m.DescribeProducersRequest
) -> m.DescribeProducersResponse:
    """The producers that each asked partition knows."""
    topics = []
    repeats = Repeats()
    async for topic in paced(request.topics, PARTITION_COST):
        refused = _refuse_describing(broker, call, topic.name)
        rows = []
        async for index in paced(topic.partition_indexes, PARTITION_COST):
            if refused is not None:
                rows.append(_refused_row(index, *refused))
            else:
                repeats.note((topic.name, index))
                rows.append(await _describe_producers(broker, topic.name, index))
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


async def _describe_producers(broker: Broker, topic: str, index: int) -> ProducersRow:
    partition = broker.replicas.get(topic, index)
    if isinstance(partition, ErrorCode):
        return _refused_row(index, partition)
    if partition.log is None:
        return _refused_row(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    described = [_describe_producer(producer) async for producer in paced(partition.log.producers)]
    return ProducersRow(partition_index=index, active_producers=described)


def _describe_producer(producer: Producer) -> m.DescribeProducersResponse.ProducerState:
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
    """The state of each transactional id, in the order and as often as asked."""
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
    topic = broker.metadata.topics.get(TRANSACTION_TOPIC)
    if topic is None:
        return ErrorCode.NOT_COORDINATOR
    leader = broker.metadata.leader_of(TRANSACTION_TOPIC, partition_for(transactional_id, len(topic.partitions)))
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if leader == broker.broker_id else ErrorCode.NOT_COORDINATOR


async def list_transactions(
    broker: Broker, call: Call, request: m.ListTransactionsRequest
) -> m.ListTransactionsResponse:
    """The transactions that this broker coordinates: none."""
    unknown = {state: None async for state in paced(request.state_filters) if state not in TRANSACTION_STATES}
    return m.ListTransactionsResponse(unknown_state_filters=list(unknown))


def refuse_describe_transactions(
    request: m.DescribeTransactionsRequest, version: int, code: ErrorCode
) -> m.DescribeTransactionsResponse:
    """The same error for every transactional id."""
    rows = [DescribedTransaction(transactional_id=name, error_code=code) for name in request.transactional_ids]
    return m.DescribeTransactionsResponse(transaction_states=rows)
