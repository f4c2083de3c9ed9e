"""Load: frames made beforehand, sent in windows, so that the client costs next to nothing beside the broker."""

import socket
import ssl
import struct
import time
from typing import NamedTuple

from barnabas.client.blocking import BlockingConnection
from barnabas.wire import messages as m
from barnabas.wire.apis import request_header_version
from barnabas.wire.records import build_batch
from bench.processes import Measured

PRODUCE_VERSION = 9
FETCH_VERSION = 12
KEY_BYTES = 8
READ_AHEAD_BYTES = 1 << 20
WINDOW = 8  # requests under way at once: enough to keep the broker busy, as a pipelining client does


class Case(NamedTuple):
    """One size of batch."""

    name: str
    records: int
    record_bytes: int  # key and value
    codec: int = 0


CASES = (
    Case("1 x 100 B", 1, 100),
    Case("150 x 100 B", 150, 100),
    Case("9,000 x 100 B", 9000, 100),
    Case("1 x 1 MB", 1, 1_000_000),
    Case("150 x 100 B lz4", 150, 100, codec=3),
)


class Figures(NamedTuple):
    """What one run gave."""

    requests_per_second: float
    cpu_us_per_request: float
    bytes_per_second: float


def batch_of(case: Case) -> bytes:
    """A batch as a client sends it; the values are text-like, so that lz4 has something to do."""
    words = b"the quick brown fox jumps over the lazy dog and runs away from it all again "
    value = (words * (case.record_bytes // len(words) + 1))[: case.record_bytes - KEY_BYTES]
    records = [(b"%08d" % number, value) for number in range(case.records)]
    # Of now: retention would delete older records while they are being fetched.
    return bytes(build_batch(records, timestamp_ms=int(time.time() * 1000), codec=case.codec).data)


def frame(request: m.Message, version: int) -> bytes:
    """A whole request on the wire."""
    key = request.API_KEY
    assert key is not None
    header = m.RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="bench")
    body = m.encode(header, request_header_version(key, version)) + m.encode(request, version)
    return struct.pack(">i", len(body)) + body


def produce_frame(topic: str, batch: bytes, acks: int = -1) -> bytes:
    """A Produce of one batch to partition 0."""
    data = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic_data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    return frame(m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic_data]), PRODUCE_VERSION)


def fetch_frame(topic: str, offset: int, max_bytes: int) -> bytes:
    """A Fetch of at least one batch from `offset` of partition 0, without session and without waiting."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = m.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50_000_000,
        session_id=0,
        session_epoch=-1,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    return frame(request, FETCH_VERSION)


def bare_frame(key: int, batch: bytes) -> bytes:
    """What `bare_loop.py` understands: key, correlation id, where the batch starts, padding, batch."""
    body = struct.pack(">hxxii", key, 1, 12) + batch
    return struct.pack(">i", len(body)) + body


def connected(port: int, trusted: str | None = None) -> socket.socket:
    """A connection to this machine; with TLS if `trusted` is given, the PEM file of an authority."""
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if trusted is None:
        return plain
    return ssl.create_default_context(cafile=trusted).wrap_socket(plain, server_hostname="localhost")


class Client(BlockingConnection):
    """One socket that sends windows of frames and counts answers."""

    def __init__(self, port: int, trusted: str | None = None) -> None:
        super().__init__(connected(port, trusted), "bench", read_ahead_bytes=READ_AHEAD_BYTES)

    def ask_frame(self, request: bytes) -> bytes:
        """Send one frame, read its answer."""
        self.send(request)
        return self.receive_frame()

    def repeat(self, requests: list[bytes], server: Measured, payload_bytes: int) -> Figures:
        """Send all frames, `WINDOW` of them under way at once, and say what that cost the server."""
        cpu, began = server.cpu_seconds(), time.perf_counter()
        under_way = 0
        for request in requests:
            if under_way == WINDOW:
                self.receive_frame()
                under_way -= 1
            self.send(request)
            under_way += 1
        for _ in range(under_way):
            self.receive_frame()
        elapsed, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
        count = len(requests)
        return Figures(count / elapsed, cpu / count * 1e6, count * payload_bytes / elapsed)


def create_topic(client: Client, topic: str, partitions: int = 1) -> None:
    """Create a topic with default settings."""
    wanted = m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    answer = client.ask_frame(frame(m.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 4))
    response = m.decode(m.CreateTopicsResponse, 4, answer, 4)
    if response.topics[0].error_code:
        raise RuntimeError(f"creating {topic} failed: {response.topics[0].error_message}")


def check_fetched(answer: bytes) -> None:
    """RuntimeError unless this Fetch answer has records."""
    row = m.decode(m.FetchResponse, FETCH_VERSION, answer, 5).responses[0].partitions[0]
    if row.error_code or not row.records:
        raise RuntimeError(f"a fetch found nothing, error {row.error_code}")


def check_produced(answer: bytes) -> None:
    """RuntimeError unless this Produce answer says that all is well."""
    response = m.decode(m.ProduceResponse, PRODUCE_VERSION, answer, 5)
    code = response.responses[0].partition_responses[0].error_code
    if code:
        raise RuntimeError(f"produce failed with error {code}")
