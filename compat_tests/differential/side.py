"""One of the two brokers as a scenario sees it: connections that say anything, and names for what differs by chance.

`Side` belongs to one broker and one scenario. It gives the scenario topic and group names of its own, the same on both
sides, and keeps the `Names` by which topic ids, member ids and producer ids are recognised in answers.

A `Connection` never raises for what a broker does: that it closes the connection, is silent, or sends something
unreadable is an answer too, and a string. After such an answer `ask` goes on over a new connection.
"""

import itertools
import pathlib
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, request_header_version, response_header_version
from barnabas.wire.errors import ProtocolViolation
from compat_tests.differential.plain import Names

ANSWER_SECONDS = 8.0
CLOSED, SILENT = "the connection is closed", "no answer"
UNKNOWN_MEMBER = 25

Answer = Any  # a response, or a string that says what came instead


def fitted(request: m.Message, version: int) -> m.Message:
    """A copy without the fields that this version lacks: a scenario states a request once, for all its versions."""
    schema = request.SCHEMA

    def fit(value: Any, fields: Iterable[Any]) -> Any:
        kept = {}
        for field in fields:
            if field.exists_in(version):
                inner = getattr(value, field.name)
                if field.is_struct and field.is_array and inner is not None:
                    inner = [fit(item, schema.fields_of(field)) for item in inner]
                kept[field.name] = inner
        return type(value)(**kept)

    fit_request: m.Message = fit(request, schema.fields)
    return fit_request


class Connection:
    """One socket to a broker."""

    def __init__(self, side: "Side", client_id: str | None, port: int | None = None) -> None:
        self._side = side
        self._port = side.port if port is None else port
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._sent: list[tuple[int, int, int]] = []  # key, version, correlation id of what has no answer yet
        self._connect()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def ask(self, request: m.Message, version: int, seconds: float = ANSWER_SECONDS) -> Answer:
        """Send one request and read its answer."""
        try:
            self.send(request, version)
        except OSError:
            self._connect()
            return CLOSED
        answer = self.receive(seconds)
        if isinstance(answer, str):
            self.close()
            self._connect()
        return answer

    def ask_all(self, version: int, requests: Mapping[str, m.Message]) -> Iterator[tuple[str, Answer]]:
        """Ask one request after the other, each under its name."""
        for name, request in requests.items():
            yield f"v{version} {name}", self.ask(request, version)

    def send(self, request: m.Message, version: int) -> None:
        """Send one request; its answer is for `receive`."""
        key = request.API_KEY
        assert key is not None
        self.send_body(key, version, m.encode(fitted(request, version), version))

    def send_body(self, key: int, version: int, body: bytes, header: bytes | None = None) -> None:
        """Send any bytes as a request of this API and version."""
        correlation_id = next(self._correlation_ids)
        self._side.requests += 1
        self._side.asked.add((key, version))
        self._sent.append((key, version, correlation_id))
        usual = m.RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        head = m.encode(usual, request_header_version(key, version)) if header is None else header
        self.socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def receive(self, seconds: float = ANSWER_SECONDS) -> Answer:
        """The answer to the oldest request that has none yet."""
        key, version, correlation_id = self._sent.pop(0)
        self.socket.settimeout(seconds)
        try:
            frame = self._read(struct.unpack(">i", self._read(4))[0])
        except TimeoutError:
            return SILENT
        except OSError:
            return CLOSED
        header, position = m.decode_from(m.ResponseHeader, response_header_version(key, version), frame, 0)
        if header.correlation_id != correlation_id:
            return f"an answer to {header.correlation_id} instead of {correlation_id}"
        try:
            answer, end = m.decode_from(m.response_class(APIS[key]), version, frame, position)
        except ProtocolViolation as error:
            return f"unreadable: {error}"
        if end != len(frame):
            return f"{len(frame) - end} bytes too many"
        self._side.names.learn(answer)
        return answer

    def listen(self, seconds: float = 0.5) -> str:
        """What the broker does when nothing is asked of it: closes, is silent, or sends bytes."""
        self.socket.settimeout(seconds)
        try:
            return "bytes" if self.socket.recv(1) else CLOSED
        except TimeoutError:
            return SILENT
        except OSError:
            return CLOSED

    def _connect(self) -> None:
        self._sent.clear()
        self.socket = socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_SECONDS)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return bytes(data)


class Side:
    """One broker under one scenario."""

    def __init__(self, broker: str, port: int, directory: pathlib.Path, scenario: str) -> None:
        self.broker = broker
        self.port = port
        self.directory = directory  # holds the broker's log directories
        self.requests = 0
        self.asked: set[tuple[int, int]] = set()  # API key and version
        self.names = Names(port, directory)
        self._prefix = scenario.replace("_", "-")

    def name(self, of: str) -> str:
        """A topic, group or user name that belongs to this scenario."""
        return f"{self._prefix}-{of}"

    def connect(self, client_id: str | None = "raw") -> Connection:
        return Connection(self, client_id)

    def ask(self, request: m.Message, version: int, seconds: float = ANSWER_SECONDS) -> Answer:
        """Ask over a connection of its own."""
        with self.connect() as client:
            return client.ask(request, version, seconds)

    def create_topic(self, of: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic of this scenario (underscores for dots) and wait until it has leaders; its name."""
        name = self.name(of)
        Topic = m.CreateTopicsRequest.CreatableTopic
        Config = m.CreateTopicsRequest.CreatableTopicConfig
        topic = Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        created = self.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=15_000), 7)
        assert created.topics[0].error_code == 0, created
        self.wait(lambda: self.has_leaders(name))
        return name

    def create_alone(self, of: str) -> str:
        """Create a topic of one partition that no follower copies: what waits for followers waits for none."""
        return self.create_topic(of)

    def give_up_topic(self, name: str) -> None:
        """Delete a topic that would be in the way of other scenarios."""
        self.ask(m.DeleteTopicsRequest(topic_names=[name], timeout_ms=15_000), 5)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until another one may have its name."""
        self.give_up_topic(name)
        new = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = m.CreateTopicsRequest(topics=[new], timeout_ms=1000, validate_only=True)
        self.wait(lambda: self.ask(request, 7).topics[0].error_code == 0)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic that exists."""
        asked = [m.MetadataRequest.MetadataRequestTopic(name=name)]
        (topic,) = self.ask(m.MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics
        assert topic.error_code == 0, topic
        return bytes(topic.topic_id)

    def new_producer(self) -> int:
        """A fresh producer id; a broker that has just started may still be asking for its first block."""
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        self.wait(lambda: self.ask(request, 4).error_code == 0)
        return int(self.ask(request, 4).producer_id)

    def await_coordinator(self, group: str = "warm") -> None:
        """Wait until the coordinator of this group serves."""
        beat = m.HeartbeatRequest(group_id=group, generation_id=1, member_id="x")
        self.wait(lambda: self.ask(m.FindCoordinatorRequest(key=group), 2).error_code == 0)
        self.wait(lambda: self.ask(beat, 2).error_code == UNKNOWN_MEMBER)  # while it loads, Kafka says that all is well

    def wait(self, is_there: Callable[[], object], seconds: float = 20.0) -> None:
        """Look until it is there."""
        deadline = time.monotonic() + seconds
        while not is_there():
            assert time.monotonic() < deadline, f"{self.broker}: what was waited for has not come"
            time.sleep(0.02)  # the pace of looking

    def has_leaders(self, name: str) -> bool:
        """Whether a topic exists, and all its partitions have leaders."""
        asked = [m.MetadataRequest.MetadataRequestTopic(name=name)]
        (topic,) = self.ask(m.MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics
        return topic.error_code == 0 and all(p.error_code == 0 and p.leader_id >= 0 for p in topic.partitions)
