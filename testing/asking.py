"""Requests of the administrator from synchronous code (edge): one socket, our own codec, no client library.

The requests are the same for a broker on a thread and one in a process, and the same as a client's.
"""

import itertools
import re
import socket
from collections.abc import Mapping, Sequence
from typing import TypeVar

from barnabas.client.blocking import BlockingConnection
from barnabas.testing.arguments import is_number
from barnabas.testing.errors import LocalBrokerError, TopicRefused
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

CREATE_TOPICS_VERSION = 5
FIND_COORDINATOR_VERSION = 2
ELECT_LEADERS_VERSION = 1
INT32_MAX = (1 << 31) - 1
INT16_MAX = (1 << 15) - 1
CLIENT_ID = "barnabas.testing"
CREATE_SECONDS = 30.0
TOPIC_STEM_CHARACTERS_MAX = 200  # of Kafka's 249; the rest is for the number

Answer = TypeVar("Answer", bound=m.Message)

_numbers = itertools.count(1)


def unused_topic_name(stem: str) -> str:
    """A legal topic name, made of `stem`, that this process has not used."""
    legal = re.sub(r"[^a-zA-Z0-9-]+", "-", stem).strip("-")
    return f"{legal[:TOPIC_STEM_CHARACTERS_MAX]}-{next(_numbers)}"


def create_topic(port: int, name: str, partitions: int, config: Mapping[str, str], replicas: int = 1) -> None:
    """Create a topic and wait until its partitions have leaders. LocalBrokerError has the reason of a failure."""
    for what, count, largest in (("partitions", partitions, INT32_MAX), ("replicas", replicas, INT16_MAX)):
        if not is_number(count) or not -1 <= count <= largest:
            raise LocalBrokerError(f"{what}: a number up to {largest}, not {count!r}")
    request = m.CreateTopicsRequest(
        topics=[
            m.CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                configs=[
                    m.CreateTopicsRequest.CreatableTopicConfig(name=each, value=value) for each, value in config.items()
                ],
            )
        ],
        timeout_ms=round(CREATE_SECONDS * 1000),
    )
    try:
        (created,) = ask(port, request, CREATE_TOPICS_VERSION, m.CreateTopicsResponse).topics
    except (OSError, UnicodeEncodeError) as error:
        raise LocalBrokerError(f"topic {name!r} cannot be created: {error}") from error

    if created.error_code:
        raise TopicRefused(name, created.error_code, created.error_message)


def ask(port: int, request: m.Message, version: int, answer_type: type[Answer]) -> Answer:
    """The response to one request, over a connection of its own; OSError when there is none."""
    connected = socket.create_connection(("127.0.0.1", port), timeout=CREATE_SECONDS)
    with BlockingConnection(connected, CLIENT_ID) as connection:
        return connection.ask(request, version, answer_type)


def find_coordinator(port: int, key: str, key_type: int) -> tuple[int, ErrorCode]:
    """The broker that coordinates a group or transactional id; or the error, for now or for good. OSError as `ask`."""
    request = m.FindCoordinatorRequest(key=key, key_type=key_type)
    found = ask(port, request, FIND_COORDINATOR_VERSION, m.FindCoordinatorResponse)
    return found.node_id, ErrorCode(found.error_code)


def prefer(port: int, topic: str, partition: int, replicas: Sequence[int]) -> ErrorCode:
    """Have the controller give a partition these replicas, the preferred leader first. OSError as `ask`."""
    row = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=list(replicas))
    topics = [m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[row])]
    request = m.AlterPartitionReassignmentsRequest(timeout_ms=round(CREATE_SECONDS * 1000), topics=topics)
    answer = ask(port, request, 0, m.AlterPartitionReassignmentsResponse)
    return ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)


def elect_preferred(port: int, topic: str, partition: int) -> ErrorCode:
    """Have the controller elect the preferred leader of a partition. OSError as `ask`."""
    chosen = m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
    request = m.ElectLeadersRequest(topic_partitions=[chosen], timeout_ms=round(CREATE_SECONDS * 1000))
    answer = ask(port, request, ELECT_LEADERS_VERSION, m.ElectLeadersResponse)
    rows = [row for each in answer.replica_election_results for row in each.partition_result]
    return ErrorCode(answer.error_code or (rows[0].error_code if rows else 0))
