"""Producers: their ids (InitProducerId, AllocateProducerIds) and their states in partitions (DescribeProducers).

InitProducerId: a producer without a transactional id gets a new producer id with epoch 0 from this broker's block. The
    controller hands out blocks of 1000 ids (reference E.5). With a transactional id the transaction coordinator
    (`coordinators/transactions/`) gives the id's producer id with the next epoch, and aborts what its former owner left
    open.
DescribeProducers: every replica here, leader or follower, answers its producer states: last sequence number, last
    timestamp, and start of the open transaction. A producer that has not written for `producer.id.expiration.ms` is
    removed from them.
Versions: InitProducerId 0-5; before 4 a fenced producer gets INVALID_PRODUCER_EPOCH. AllocateProducerIds 0,
    DescribeProducers 0.
"""

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import Repeats
from barnabas.coordinators.transactions.coordinator import Overtaken
from barnabas.coordinators.transactions.events import InitProducer
from barnabas.coordinators.transactions.state import NO_PRODUCER, NO_PRODUCER_EPOCH, Producer
from barnabas.storage.producers import Producer as ProducerState
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.sentinels import NO_OFFSET, NO_PRODUCER_ID
from barnabas.wire.topics import why_invalid_topic_name
from barnabas.world.connection_order import given_up
from barnabas.world.pacing import paced
from barnabas.world.rows import Rows

FENCED_VERSION = 4  # of InitProducerId: from this version on clients know PRODUCER_FENCED

ProducersRow = m.DescribeProducersResponse.PartitionResponse


# -- producer ids


async def init_producer_id(broker: Broker, call: Call, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
    """A producer id and epoch, in the order of Kafka's checks (reference transactions, T.6).

    Raises Refuse: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT, the errors of the coordinator, and of a request for the next block of ids;
    ProtocolViolation if the client hangs up while the request waits for an earlier transaction.
    """
    name = request.transactional_id
    if name is not None and not call.authorize("Write", "TransactionalId", name):
        raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    # KIP-679: who may write to any topic may do so idempotently.
    if name is None and not (
        call.authorize("IdempotentWrite", "Cluster", is_filter=True) or call.may_any("Write", "Topic")
    ):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # KIP-360: a client sends its current id and epoch, or neither.
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.producer_epoch == NO_PRODUCER_EPOCH):
        raise Refuse(ErrorCode.INVALID_REQUEST)
    if name is None:
        return await _without_transactions(broker)
    if name == "":
        raise Refuse(ErrorCode.INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= broker.config.transaction_max_timeout_ms:
        raise Refuse(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    event = InitProducer(request.transaction_timeout_ms, None if expected == NO_PRODUCER else expected)
    try:
        answer = await broker.transactions.init_producer(name, event, call.connection_number, call.has_hung_up)
    except Overtaken:
        raise given_up(call.client_id) from None

    if answer.error is ErrorCode.PRODUCER_FENCED and call.version < FENCED_VERSION:
        raise Refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
    if answer.error:
        raise Refuse(answer.error)
    return m.InitProducerIdResponse(
        producer_id=answer.producer.producer_id, producer_epoch=answer.producer.producer_epoch
    )


async def _without_transactions(broker: Broker) -> m.InitProducerIdResponse:
    # The id is from this broker's own block, because clients send this request to any broker. Kafka
    # ignores the current id and epoch and assigns a new id.
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
    # The broker epoch is passed on, so that a broker's former run cannot use up a block.
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
    async for topic in paced(request.topics):
        refused = _refuse_describing(broker, call, topic.name)
        rows = []
        async for index in paced(topic.partition_indexes):
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
    # The rows are made when they are encoded: 100,000 producers as objects take 18 MB.
    return ProducersRow(
        partition_index=index, active_producers=Rows(partition.log.producers.entries(), _describe_producer)
    )


def _describe_producer(entry: tuple[int, ...]) -> m.DescribeProducersResponse.ProducerState:
    producer = ProducerState(*entry)
    first_offset = producer.transaction_first_offset
    return m.DescribeProducersResponse.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
    )
