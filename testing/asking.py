"""CreateTopics from synchronous code (edge): one socket, our own codec, no client library.

The request is the same for a broker on a thread and one in a process, and the same as a client's.
"""

import itertools
import re
import socket
from collections.abc import Mapping

from barnabas.client.blocking import BlockingConnection
from barnabas.testing.errors import LocalBrokerError, TopicRefused
from barnabas.wire import messages as m

CREATE_TOPICS_VERSION = 5
CLIENT_ID = "barnabas.testing"
CREATE_SECONDS = 30.0
TOPIC_STEM_CHARACTERS_MAX = 200  # of Kafka's 249; the rest is for the number

_numbers = itertools.count(1)


def unused_topic_name(stem: str) -> str:
    """A legal topic name, made of `stem`, that this process has not used."""
    legal = re.sub(r"[^a-zA-Z0-9-]+", "-", stem).strip("-")
    return f"{legal[:TOPIC_STEM_CHARACTERS_MAX]}-{next(_numbers)}"


def create_topic(port: int, name: str, partitions: int, config: Mapping[str, str]) -> None:
    """Create a topic and wait until its partitions have leaders. LocalBrokerError has the reason of a failure."""
    request = m.CreateTopicsRequest(
        topics=[
            m.CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    m.CreateTopicsRequest.CreatableTopicConfig(name=each, value=value) for each, value in config.items()
                ],
            )
        ],
        timeout_ms=round(CREATE_SECONDS * 1000),
    )
    try:
        connected = socket.create_connection(("127.0.0.1", port), timeout=CREATE_SECONDS)
        with BlockingConnection(connected, CLIENT_ID) as connection:
            (created,) = connection.ask(request, CREATE_TOPICS_VERSION, m.CreateTopicsResponse).topics
    except OSError as error:
        raise LocalBrokerError(f"topic {name!r} cannot be created: {error}") from error

    if created.error_code:
        raise TopicRefused(name, created.error_code, created.error_message)
