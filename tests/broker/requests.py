"""Requests as tests write them, and the records of the answers."""

from collections.abc import Iterable, Iterator, Sequence

from barnabas.wire import messages as m
from barnabas.wire.records import build_batch, read_all_records
from tests.broker.clock import now_ms


def new_topics(name: str, partitions: int = 1, *, timeout_ms: int = 15_000, **configs: str) -> m.CreateTopicsRequest:
    """CreateTopics for one topic."""
    settings = [
        m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in dotted(configs).items()
    ]
    topic = m.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def batch_of(*values: bytes | None, key: bytes | None = None, **fields) -> bytearray:
    """The bytes of one batch."""
    return bytearray(build_batch([(key, value) for value in values], timestamp_ms=now_ms(), **fields).data)


def bytes_of(records: bytes | bytearray | None) -> bytes | None:
    """What is to be produced: one value, or (as a bytearray) any bytes."""
    return bytes(batch_of(records)) if isinstance(records, bytes) else records and bytes(records)


def idempotent(sequence: int, value: bytes = b"v", *, epoch: int = 0, count: int = 1) -> bytearray:
    return batch_of(*[value] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def produce_request(
    topic: str, records, partition: int = 0, *, acks: int = -1, timeout_ms: int = 10_000, transactional_id=None
) -> m.ProduceRequest:
    """Produce to one partition."""
    return produce_many({(topic, partition): records}, acks=acks, timeout_ms=timeout_ms, name=transactional_id)


def produce_many(batches: dict, *, acks: int = -1, timeout_ms: int = 10_000, name=None) -> m.ProduceRequest:
    """Produce to several: (topic, partition) -> one value, or (as a bytearray) any bytes."""
    topics: dict[str, list] = {}
    for (topic, partition), records in batches.items():
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=bytes_of(records))
        topics.setdefault(topic, []).append(data)
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=name,
        topic_data=[
            m.ProduceRequest.TopicProduceData(name=topic, partition_data=data) for topic, data in topics.items()
        ],
    )


def fetch_request(  # noqa: PLR0913  # the request's own fields, all by keyword
    wanted: Iterable[tuple[str | bytes, int, int]],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    forget: Sequence[tuple[str | bytes, int]] = (),
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields,
) -> m.FetchRequest:
    """Fetch from [(topic or its id, partition, offset)]."""
    topics = []
    for topic, partition, offset in wanted:
        asked = m.FetchRequest.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        topics.append(m.FetchRequest.FetchTopic(**named(topic), partitions=[asked]))
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=[
            m.FetchRequest.ForgottenTopic(**named(topic), partitions=[partition]) for topic, partition in forget
        ],
        **fields,
    )


def named(topic: str | bytes) -> dict:
    return {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}


def list_offsets_request(
    wanted: Iterable[tuple[str, int, int]], *, leader_epoch: int = -1, max_num_offsets: int | None = None, **fields
) -> m.ListOffsetsRequest:
    """ListOffsets for [(topic, partition, timestamp)]; `max_num_offsets` is for version 0."""
    counted = {} if max_num_offsets is None else {"max_num_offsets": max_num_offsets}
    topics: dict[str, list] = {}
    for topic, partition, timestamp in wanted:
        asked = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch, **counted
        )
        topics.setdefault(topic, []).append(asked)
    return m.ListOffsetsRequest(
        replica_id=fields.pop("replica_id", -1),
        topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        **fields,
    )


def deletion_request(*asked: tuple[str, int, int], timeout_ms: int = 10_000) -> m.DeleteRecordsRequest:
    """DeleteRecords for (topic, partition, offset)."""
    topics: dict[str, list] = {}
    for topic, partition, offset in asked:
        row = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics.setdefault(topic, []).append(row)
    return m.DeleteRecordsRequest(
        topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=timeout_ms,
    )


def epoch_request(*asked: tuple[str, int, int], leader_epoch: int = -1) -> m.OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpoch for (topic, partition, epoch); `leader_epoch` is what the client takes for the newest."""
    topics: dict[str, list] = {}
    for topic, partition, epoch in asked:
        row = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=leader_epoch
        )
        topics.setdefault(topic, []).append(row)
    return m.OffsetForLeaderEpochRequest(
        topics=[
            m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=rows)
            for name, rows in topics.items()
        ]
    )


def placement_request(path: str, *asked: tuple[str, int]) -> m.AlterReplicaLogDirsRequest:
    """AlterReplicaLogDirs: these (topic, partition) shall lie in that directory."""
    topics = [
        m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[partition])
        for topic, partition in asked
    ]
    return m.AlterReplicaLogDirsRequest(
        dirs=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=topics)]
    )


def producers_request(*asked: tuple[str, int]) -> m.DescribeProducersRequest:
    """DescribeProducers for (topic, partition)."""
    topics: dict[str, list] = {}
    for topic, partition in asked:
        topics.setdefault(topic, []).append(partition)
    return m.DescribeProducersRequest(
        topics=[
            m.DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )


def records_in(row) -> list:
    """The whole records of a fetched partition."""
    return [record for _, record in read_all_records(row.records)]


def values_in(row) -> list[bytes]:
    """Their values."""
    return [record.value for record in records_in(row)]


def fetched(answer) -> Iterator[tuple[str | bytes, object]]:
    """(topic or its id, row) of every partition of a Fetch answer, in order."""
    for topic in answer.responses:
        for row in topic.partitions:
            yield topic.topic or topic.topic_id, row


def dotted(properties: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in properties.items()}
