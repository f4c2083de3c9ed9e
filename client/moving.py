"""Leaders and replicas: ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments.

Each raises Refused for the request as a whole, and Unreachable. What was refused of single partitions is returned.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.offsets import by_topic
from barnabas.wire import messages as m
from barnabas.wire.topics import TopicPartition

PREFERRED, UNCLEAN = 0, 1  # types of elections
UNCLEAN_VERSION = 1  # of ElectLeaders: since Kafka 2.4


class Outcome(NamedTuple):
    """What became of one partition: an error code, 0 for none, and the broker's message."""

    code: int
    message: str | None


class Moving(NamedTuple):
    """A partition whose replicas are being moved: all of its replicas, those that come and those that go."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


async def elect_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, election_type: int
) -> dict[TopicPartition, Outcome]:
    """Elect leaders of these partitions; None: of all that need it, and only those are returned."""
    topics = None
    if partitions is not None:
        topics = [
            m.ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    request = m.ElectLeadersRequest(
        election_type=election_type, topic_partitions=topics, timeout_ms=round(cluster.timeout_seconds * 1000)
    )
    # Version 0 has no type: an older broker would hold a preferred election instead.
    response = await cluster.ask_controller(request, UNCLEAN_VERSION if election_type == UNCLEAN else 0)
    assert isinstance(response, m.ElectLeadersResponse)
    check("the election", response.error_code)
    return {
        TopicPartition(topic.topic, row.partition_id): Outcome(row.error_code, row.error_message)
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


async def move_replicas(
    cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Outcome]:
    """Begin to move partitions to these brokers, the preferred leader first; None takes a move back."""
    topics: dict[str, list[m.AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
    for (topic, partition), brokers in replicas.items():
        row = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=brokers)
        topics.setdefault(topic, []).append(row)
    request = m.AlterPartitionReassignmentsRequest(
        timeout_ms=round(cluster.timeout_seconds * 1000),
        topics=[
            m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=rows)
            for name, rows in topics.items()
        ],
    )
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.AlterPartitionReassignmentsResponse)
    check("the move", response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, answered.partition_index): Outcome(answered.error_code, answered.error_message)
        for topic in response.responses
        for answered in topic.partitions
    }


async def moving_partitions(cluster: Cluster) -> dict[TopicPartition, Moving]:
    """The partitions whose replicas are being moved."""
    request = m.ListPartitionReassignmentsRequest(topics=None, timeout_ms=round(cluster.timeout_seconds * 1000))
    response = await cluster.ask_controller(request)
    assert isinstance(response, m.ListPartitionReassignmentsResponse)
    check("moves", response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, row.partition_index): Moving(
            row.replicas, row.adding_replicas, row.removing_replicas
        )
        for topic in response.topics
        for row in topic.partitions
    }
