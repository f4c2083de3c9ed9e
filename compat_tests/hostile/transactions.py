"""What hostile producers with transactional ids send: requests, and whole transactions. Pure but for `transact`."""

from barnabas.wire import messages as m
from barnabas.wire.errors import error_name
from barnabas.wire.records import TRANSACTIONAL, build_batch
from compat_tests.raw import RawClient
from tests.wire.bombs import TIME_MS

NAME = "hostile"
LONGEST_NAME = "x" * 32_767
TIMEOUT_MS = 60_000

Topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


def init(name: str = NAME) -> m.Message:
    """InitProducerId."""
    return m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)


def adding(topic: str, count: int, producer: tuple[int, int] = (0, 0), name: str = NAME) -> m.Message:
    """AddPartitionsToTxn of a client."""
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[Topic(name=topic, partitions=range(count))],
    )


def asking_about(count: int, *, verify_only: bool) -> m.Message:
    """AddPartitionsToTxn of a broker, about so many ids."""
    asked = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topics = [Topic(name="plain", partitions=[0])]
    return m.AddPartitionsToTxnRequest(
        transactions=[
            asked(transactional_id=f"t{n}", producer_id=n, producer_epoch=0, verify_only=verify_only, topics=topics)
            for n in range(count)
        ]
    )


def markers(producers: int, repeats: int) -> m.Message:
    """WriteTxnMarkers of so many producers, each for partition 0 of a topic so many times."""
    marker, topic = m.WriteTxnMarkersRequest.WritableTxnMarker, m.WriteTxnMarkersRequest.WritableTxnMarkerTopic
    topics = [topic(name="plain", partition_indexes=[0] * repeats)]
    return m.WriteTxnMarkersRequest(
        markers=[
            marker(producer_id=n, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)
            for n in range(producers)
        ]
    )


def offsets(topic: str, count: int) -> m.Message:
    """TxnOffsetCommit."""
    row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    rows = [row(partition_index=n, committed_offset=n) for n in range(count)]
    topics = [m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=rows)]
    return m.TxnOffsetCommitRequest(
        transactional_id=NAME, group_id=NAME, producer_id=0, producer_epoch=0, topics=topics
    )


def produced(topic: str, count: int, producer: tuple[int, int] = (0, 0), name: str = NAME) -> m.Message:
    """Produce of a transactional record to each of so many partitions."""
    numbers = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0}
    batch = bytes(build_batch([(None, b"v")], timestamp_ms=TIME_MS, attributes=TRANSACTIONAL, **numbers).data)
    row = m.ProduceRequest.PartitionProduceData
    data = [row(index=n, records=batch) for n in range(count)]
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    return m.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=topics)


def transact(client: RawClient, topic: str, count: int, *, name: str = NAME, ends: bool = True) -> None:
    """A transaction over so many partitions; RuntimeError if it is refused."""
    given = client.ask(init(name), 4, m.InitProducerIdResponse)
    _require(given.error_code)
    producer = given.producer_id, given.producer_epoch
    added = client.ask(adding(topic, count, producer, name), 3, m.AddPartitionsToTxnResponse)
    _require(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    answer = client.ask(produced(topic, count, producer, name), 11, m.ProduceResponse)
    _require(answer.responses[0].partition_responses[0].error_code)
    if ends:
        ending = m.EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=False
        )
        _require(client.ask(ending, 4, m.EndTxnResponse).error_code)


def _require(code: int) -> None:
    if code:
        raise RuntimeError(f"a request of the attack is refused: {error_name(code)}")
