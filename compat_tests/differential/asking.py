"""Short functions that build requests. Fields that a version lacks are left out at sending (`side.fitted`)."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.wire import messages as m
from barnabas.wire.records import Record, build_batch

NO_ID = bytes(16)
MIB = 1 << 20
# One time in the past, the same for both brokers. Its low bits are 0 in each run, for what is damaged of a time may be
# read as something else.
PAST_MS = (int(time.time() * 1000) - 3_600_000) >> 20 << 20
YEAR_MS = 365 * 86_400_000

# partition, fetch offset, current leader epoch, last fetched epoch, byte limit: as many as matter
FetchFrom = Sequence[int]


def now_ms() -> int:
    return int(time.time() * 1000)


def batch(*records: Any, at: int | None = None, **fields: Any) -> bytes:
    """A batch of values, (key, value) pairs or Records; of one record "v" when none is given."""
    content = [record if isinstance(record, tuple | Record) else (None, record) for record in records or (b"v",)]
    return bytes(build_batch(content, timestamp_ms=now_ms() if at is None else at, **fields).data)


def produce(
    topics: Iterable[tuple[str, Iterable[tuple[int, bytes]]]],
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> m.ProduceRequest:
    """[(topic, [(partition, records)])]"""
    Topic, Partition = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
        topic_data=[
            Topic(name=name, partition_data=[Partition(index=index, records=records) for index, records in partitions])
            for name, partitions in topics
        ],
    )


def produce_one(topic: str, records: bytes, partition: int = 0, **fields: Any) -> m.ProduceRequest:
    """One batch for one partition."""
    return produce([(topic, [(partition, records)])], **fields)


def alter_quotas(
    entity: Iterable[tuple[str, str | None]], *changes: tuple[str, float | None], validate_only: bool = False
) -> m.AlterClientQuotasRequest:
    """[(type, name or None for the default)], (quota, value or None to remove)..."""
    Entry = m.AlterClientQuotasRequest.EntryData
    Entity, Op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
    ops = [Op(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in changes]
    entry = Entry(entity=[Entity(entity_type=kind, entity_name=name) for kind, name in entity], ops=ops)
    return m.AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)


def fetch(  # noqa: PLR0913  # the request's own fields, by keyword
    topics: Iterable[tuple[str | bytes, Iterable[FetchFrom]]],
    *,
    wait_ms: int = 100,
    min_bytes: int = 1,
    max_bytes: int = MIB,
    partition_bytes: int = MIB,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Iterable[tuple[str | bytes, Sequence[int]]] = (),
    rack: str = "",
) -> m.FetchRequest:
    """[(topic or its id, [(partition, offset, ...)])]; `session` is (id, epoch)."""
    Partition, Topic, Forgotten = (
        m.FetchRequest.FetchPartition,
        m.FetchRequest.FetchTopic,
        m.FetchRequest.ForgottenTopic,
    )

    def of(start: FetchFrom) -> m.FetchRequest.FetchPartition:
        index, offset, leader_epoch, fetched_epoch, limit = (*start, *(-1, -1, partition_bytes)[len(start) - 2 :])
        return Partition(
            partition=index,
            fetch_offset=offset,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=fetched_epoch,
            partition_max_bytes=limit,
        )

    return m.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[Topic(**_named(name), partitions=[of(start) for start in starts]) for name, starts in topics],
        forgotten_topics_data=[Forgotten(**_named(name), partitions=list(indexes)) for name, indexes in forgotten],
        rack_id=rack,
    )


def _named(topic: str | bytes) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}


def metadata(*names: str, create: bool = True, ids: Iterable[bytes] = (), **fields: bool) -> m.MetadataRequest:
    """Topics by name, then topics by id."""
    Topic = m.MetadataRequest.MetadataRequestTopic
    topics = [Topic(name=name) for name in names] + [Topic(name=None, topic_id=topic_id) for topic_id in ids]
    return m.MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assigned: Iterable[tuple[int, Sequence[int]]] = (),
    configs: Iterable[tuple[str, str | None]] = (),
) -> m.CreateTopicsRequest.CreatableTopic:
    Request = m.CreateTopicsRequest
    return Request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            Request.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in assigned
        ],
        configs=[Request.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def list_offsets(
    topics: Mapping[str, Iterable[tuple[int, int]]] | Iterable[tuple[str, Iterable[tuple[int, int]]]],
    *,
    leader_epoch: int = -1,
    limit: int = 1,
    isolation: int = 0,
    replica: int = -1,
) -> m.ListOffsetsRequest:
    """{topic: [(partition, timestamp)]}"""
    Topic, Partition = m.ListOffsetsRequest.ListOffsetsTopic, m.ListOffsetsRequest.ListOffsetsPartition

    def of(partition: int, timestamp: int) -> m.ListOffsetsRequest.ListOffsetsPartition:
        return Partition(
            partition_index=partition,
            timestamp=timestamp,
            current_leader_epoch=leader_epoch,
            max_num_offsets=limit,
        )

    pairs = topics.items() if isinstance(topics, Mapping) else topics
    return m.ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[Topic(name=name, partitions=[of(*partition) for partition in asked]) for name, asked in pairs],
    )
