"""Offsets of partitions by time, and of groups: ListOffsets, OffsetFetch, OffsetCommit, OffsetDelete.

Requests are split by leader and sent one after the other. Only those partitions are asked for again that have no
answer, or a retriable error.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.cluster import OUTDATED, Cluster
from barnabas.client.errors import ClientError, Refused, Unreachable, check
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerTooOld, error_of
from barnabas.wire.sentinels import CONSUMER, NO_LEADER_EPOCH, NO_OFFSET
from barnabas.wire.topics import TopicPartition

MAX_TIMESTAMP = -3  # the record with the highest timestamp; since ListOffsets 7 (Kafka 3.0)
MAX_TIMESTAMP_VERSION = 7
READ_UNCOMMITTED = 0
NO_GENERATION = -1


class Found(NamedTuple):
    """An offset, and the timestamp of its record; both -1 if there is no such record."""

    offset: int
    timestamp_ms: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, Found]:
    """The first offset whose record is at least so young; or EARLIEST, LATEST, MAX_TIMESTAMP. Refused, Unreachable."""
    found: dict[TopicPartition, Found] = {}
    retry = cluster.retry()
    # An older broker would take -3 for a time and answer with some offset, so the version is
    # demanded.
    version_min = MAX_TIMESTAMP_VERSION if MAX_TIMESTAMP in wanted.values() else 0
    while len(found) < len(wanted):
        # Partitions that are answered keep their answer, though it is of an earlier moment than the
        # others'.
        left = [key for key in wanted if key not in found]
        failed: ClientError | None
        led, failed = await cluster.by_leader(left)
        for leader, keys in led.items():
            request = _list_offsets_request({key: wanted[key] for key in keys}, isolation_level)
            try:
                response = await cluster.ask_broker(leader, request, version_min)
            except Unreachable as error:
                # Another attempt does not make the broker newer.
                if isinstance(error.__cause__, PeerTooOld):
                    raise
                for key in keys:
                    cluster.forget(key.topic)
                failed = error
                continue
            assert isinstance(response, m.ListOffsetsResponse)
            for topic in response.topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    if error_of(row.error_code).retriable:
                        cluster.forget(topic.name)
                        failed = Refused(f"partition {key}", row.error_code)
                        continue
                    check(f"partition {key}", row.error_code)
                    found[key] = Found(row.offset, row.timestamp)
        if failed is not None and not await retry.pause():
            raise failed
    return found


def _list_offsets_request(wanted: Mapping[TopicPartition, int], isolation_level: int) -> m.ListOffsetsRequest:
    topics: dict[str, list[m.ListOffsetsRequest.ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in wanted.items():
        row = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=NO_LEADER_EPOCH, timestamp=timestamp
        )
        topics.setdefault(topic, []).append(row)
    rows = [m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]
    return m.ListOffsetsRequest(replica_id=CONSUMER, isolation_level=isolation_level, topics=rows)


async def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Committed offsets of a group: all, or those of these partitions. Refused, Unreachable.

    Who names partitions reads on from there, so that an open transaction that commits offsets of them is waited for.
    """
    topics = None
    if partitions is not None:
        rows = by_topic(partitions).items()
        topics = [
            m.OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in rows
        ]
    request = m.OffsetFetchRequest(group_id=group, topics=topics, require_stable=partitions is not None)
    retry = cluster.retry()
    while True:
        response = await cluster.ask_coordinator(group, request)
        assert isinstance(response, m.OffsetFetchResponse)
        if await cluster.is_other_coordinator(group, response.error_code, retry):
            continue
        check(f"group {group!r}", response.error_code)
        errors = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
            if row.error_code
        }
        if not any(error_of(code).retriable for code in errors.values()) or not await retry.pause():
            break
    for key, code in errors.items():
        check(f"group {group!r}, partition {key}", code)
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in response.topics
        for row in topic.partitions
        if row.committed_offset != NO_OFFSET
    }


async def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set committed offsets of a group without members. Refused for the first that is not taken; Unreachable."""
    # Without a generation the coordinator accepts offsets only while the group has no members.
    request = commit_request(group, offsets, generation=NO_GENERATION, member_id="")
    retry = cluster.retry()
    while True:
        response = await cluster.ask_coordinator(group, request)
        assert isinstance(response, m.OffsetCommitResponse)
        errors = [
            (TopicPartition(topic.name, row.partition_index), row.error_code)
            for topic in response.topics
            for row in topic.partitions
        ]
        # The response has no error of its own: each partition has the one of the coordinator.
        moved = next((code for _, code in errors if code in OUTDATED), ErrorCode.NONE)
        if not await cluster.is_other_coordinator(group, moved, retry):
            break
    for key, code in errors:
        check(f"group {group!r}, partition {key}", code)


def commit_request(
    group: str, offsets: Mapping[TopicPartition, int], *, generation: int, member_id: str
) -> m.OffsetCommitRequest:
    """The request that commits these offsets for a member of this generation."""
    topics: dict[str, list[m.OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=NO_LEADER_EPOCH,
            committed_metadata="",
        )
        topics.setdefault(topic, []).append(row)
    rows = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()]
    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=-1,
        topics=rows,
    )


async def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Forget committed offsets of a group that does not subscribe to their topics. Refused, Unreachable."""
    rows = [
        m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=name,
            partitions=[m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in indexes],
        )
        for name, indexes in by_topic(partitions).items()
    ]
    response = await cluster.ask_coordinator(group, m.OffsetDeleteRequest(group_id=group, topics=rows))
    assert isinstance(response, m.OffsetDeleteResponse)
    # The group as a whole may be refused, and then no partition has a row.
    check(f"group {group!r}", response.error_code)
    for answered in response.topics:
        for row in answered.partitions:
            check(f"group {group!r}, partition {answered.name}-{row.partition_index}", row.error_code)


def partitions_of(topic: m.MetadataResponse.MetadataResponseTopic) -> Sequence[TopicPartition]:
    """The partitions of a topic, in order."""
    return [
        TopicPartition(topic.name or "", index) for index in sorted(row.partition_index for row in topic.partitions)
    ]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions of each topic, in the order given."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
