"""A client that sends any request, encoded by our own codec, or any bytes."""

import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.client.blocking import BlockingConnection
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of, request_frame

Seen = TypeVar("Seen")
TIMEOUT_SECONDS = 20.0
TOPIC, BROKER = 2, 4  # types of resources that have properties


class RawClient(BlockingConnection):
    """One plain socket."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", timeout: float = TIMEOUT_SECONDS, source: str | None = None
    ) -> None:
        """`source` is an address of this machine that the broker sees."""
        connected = socket.create_connection((host, port), timeout, (source, 0) if source else None)
        super().__init__(connected, "raw")

    def is_closed_by_broker(self) -> bool:
        """Whether the broker closes this connection without another word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def request(self, request: m.Message, version: int) -> None:
        """Send one request."""
        # Responses to earlier ones were read as frames, or are never read.
        self.in_flight.forget()
        super().request(request, version)


def frame_of(request: m.Message, version: int, client_id: str = "raw", correlation_id: int = 1) -> bytes:
    """The bytes of a request, their length included."""
    return request_frame(request, version, correlation_id, client_id)


def ask(client: RawClient, request: m.Message, version: int) -> Any:
    """Send one request and read its response, of the type that belongs to the request."""
    return client.ask(request, version, m.response_class(APIS[key_of(request)]))


def eventually(look: Callable[[], Seen], is_there: Callable[[Seen], bool]) -> Seen:
    """Call `look` until `is_there` holds for its result, and return the result."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_there(seen := look()):
        assert time.monotonic() < deadline, f"{seen!r} has not become what was waited for"
        time.sleep(0.02)  # the pace of looking
    return seen


def produce_request(topic: str, records: bytes, *, acks: int = -1, partition: int = 0) -> m.ProduceRequest:
    """One batch for one partition."""
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name=topic, partition_data=[m.ProduceRequest.PartitionProduceData(index=partition, records=records)]
            )
        ],
    )


def alter_config(client: RawClient, resource_type: int, resource: str, name: str, value: str | None) -> None:
    """Set one property of a resource; None removes it."""
    Request = m.IncrementalAlterConfigsRequest
    config = Request.AlterableConfig(name=name, config_operation=int(value is None), value=value)
    altered = Request.AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[config])
    (row,) = ask(client, Request(resources=[altered]), 1).responses
    assert row.error_code == 0, row


def create_topic(port: int, topic: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic and wait until it has leaders."""
    request = m.CreateTopicsRequest(
        topics=[
            m.CreateTopicsRequest.CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    m.CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
                    for name, value in configs.items()
                ],
            )
        ],
        timeout_ms=15_000,
    )
    with RawClient(port) as client:
        (created,) = client.ask(request, 5, m.CreateTopicsResponse).topics
    assert created.error_code == 0, created.error_message
