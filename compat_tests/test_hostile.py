"""Hostile and broken clients on a live socket: each costs its own connection, and the broker serves on."""

import gzip
import os
import random
import socket
import struct
import time
from collections.abc import Callable

import pytest

from barnabas.testing.running.processes import peak_resident_bytes_of
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from compat_tests.brokers import BrokerProcess
from compat_tests.raw import RawClient, create_topic, produce_request

MIB = 1 << 20
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)
HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def serves_on(broker: BrokerProcess) -> bool:
    """Whether another client is served as if nothing had happened."""
    with RawClient(broker.port) as client:
        return client.ask(m.MetadataRequest(topics=None), 9, m.MetadataResponse).controller_id >= 0


@pytest.mark.parametrize(
    "opening",
    [
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        TLS_HELLO,
        HTTP_REQUEST,
        struct.pack(">ihhi", 8, 18, 3, 1)[:12],
        struct.pack(">ihhih", 10, 9999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, 3, -1, 1, -1),
        struct.pack(">ihhih", 10, 71, 0, 1, -1),
    ],
    ids=[
        "length zero",
        "length three",
        "negative length",
        "two gibibytes",
        "tls hello",
        "http",
        "header without client id",
        "unknown key",
        "version above",
        "version below",
        "a key that is not served",
    ],
)
def test_a_frame_that_is_no_request_closes_its_connection_alone(shared_broker: BrokerProcess, opening: bytes) -> None:
    with RawClient(shared_broker.port) as bystander, RawClient(shared_broker.port) as client:
        client.send(opening)
        assert client.is_closed_by_broker()
        assert bystander.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers
    assert serves_on(shared_broker)


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1),
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1_000_000),
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">ih", 1, 32000) + b"short",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x00" + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 1, 1, 32000) + b"client",
    ],
    ids=[
        "array beyond the frame",
        "a million elements that are not there",
        "string beyond the frame",
        "compact array beyond the frame",
        "client id beyond the frame",
    ],
)
def test_lengths_and_counts_that_lie_close_their_connection_alone(shared_broker: BrokerProcess, body: bytes) -> None:
    with RawClient(shared_broker.port) as client:
        client.send_frame(body)
        assert client.is_closed_by_broker()
    assert serves_on(shared_broker)


def test_a_name_that_is_no_utf_8_is_an_invalid_name_and_no_broken_frame(shared_broker: BrokerProcess) -> None:
    with RawClient(shared_broker.port) as client:
        client.send_frame(struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">ih", 1, 2) + b"\xff\xfe")
        frame = client.receive_frame()
        (topic,) = m.decode(m.MetadataResponse, 1, frame, 4).topics
        assert (topic.name, topic.error_code) == ("\ufffd\ufffd", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert serves_on(shared_broker)


def test_api_versions_above_ours_is_answered_in_version_0_with_the_true_range(shared_broker: BrokerProcess) -> None:
    with RawClient(shared_broker.port) as client:
        client.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\x00")
        frame = client.receive_frame()
        assert struct.unpack(">i", frame[:4]) == (7,)
        response = m.decode(m.ApiVersionsResponse, 0, frame, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 4)]
        assert client.ask(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse).error_code == ErrorCode.NONE


def test_bytes_after_a_request_are_ignored(shared_broker: BrokerProcess) -> None:
    with RawClient(shared_broker.port) as client:
        client.send_frame(struct.pack(">hhih", 3, 9, 5, -1) + b"\x00" + bytes.fromhex("00000000010000") + b"\x00")
        frame = client.receive_frame()
        assert struct.unpack(">i", frame[:4]) == (5,)


def damaged(change: str) -> bytes:
    """A batch of three records, damaged in one way."""
    batch = bytearray(build_batch([(b"k", b"v" * 50)] * 3, timestamp_ms=1000, codec=1 if "gzip" in change else 0).data)
    if change == "crc":
        batch[-1] ^= 1
    elif change == "length too long":
        struct.pack_into(">i", batch, 8, len(batch) + 100)
    elif change == "length too short":
        struct.pack_into(">i", batch, 8, 20)
    elif change == "negative length":
        struct.pack_into(">i", batch, 8, -5)
    elif change == "count":
        struct.pack_into(">i", batch, 57, 7)
        seal(batch)
    elif change == "gzip garbage":
        batch[61:] = random.Random(1).randbytes(len(batch) - 61)
        seal(batch)
    elif change == "magic 3":
        batch[16] = 3
    return bytes(batch)


def seal(batch: bytearray) -> None:
    from crc32c import crc32c

    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))


@pytest.mark.parametrize(
    ("change", "code"),
    [  # as a running Apache Kafka 3.9.1 answers
        ("crc", ErrorCode.CORRUPT_MESSAGE),
        ("length too long", ErrorCode.INVALID_RECORD),
        ("length too short", ErrorCode.CORRUPT_MESSAGE),
        ("negative length", ErrorCode.CORRUPT_MESSAGE),
        ("count", ErrorCode.INVALID_RECORD),
        ("gzip garbage", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("magic 3", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_damaged_batch_is_refused_and_the_log_stays_empty(
    shared_broker: BrokerProcess, topic: str, change: str, code: ErrorCode
) -> None:
    create_topic(shared_broker.port, topic)
    with RawClient(shared_broker.port) as client:
        (answered,) = client.ask(produce_request(topic, damaged(change)), 9, m.ProduceResponse).responses
        assert answered.partition_responses[0].error_code == code
        good = bytes(build_batch([(None, b"good")], timestamp_ms=1000).data)
        (answered,) = client.ask(produce_request(topic, good), 9, m.ProduceResponse).responses
        assert (answered.partition_responses[0].error_code, answered.partition_responses[0].base_offset) == (0, 0)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "x" * 250, "ünïcode", "a b"])
def test_an_illegal_topic_name_is_refused_everywhere(shared_broker: BrokerProcess, name: str) -> None:
    with RawClient(shared_broker.port) as client:
        asked = m.MetadataRequest(
            topics=[m.MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        (known,) = client.ask(asked, 9, m.MetadataResponse).topics
        assert known.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        request = m.CreateTopicsRequest(
            topics=[m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
        )
        (created,) = client.ask(request, 5, m.CreateTopicsResponse).topics
        assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_acks_0_with_an_error_closes_the_connection_and_without_sends_nothing(
    shared_broker: BrokerProcess, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    batch = bytes(build_batch([(None, b"v")], timestamp_ms=1000).data)
    with RawClient(shared_broker.port) as client:
        client.request(produce_request(topic, batch, acks=0), 9)
        assert client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers, "the next answer is the next's"
        client.request(produce_request(topic, batch, acks=0, partition=7), 9)
        assert client.is_closed_by_broker()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc to see peak memory")
def test_memory_stays_small_while_200_connections_claim_50_mb_and_a_bomb_arrives(
    start_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = start_broker()
    create_topic(broker.port, topic)
    claims = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(200)]
    for claim in claims:
        claim.sendall(struct.pack(">ihhih", 50_000_000, 0, 9, 1, -1) + b"x" * 1000)
    with RawClient(broker.port) as client:
        zeros = bytes(build_batch([(None, bytes(30_000_000))], timestamp_ms=1000, codec=1).data)
        assert len(zeros) < 100_000
        (answered,) = client.ask(produce_request(topic, zeros), 9, m.ProduceResponse).responses
        assert answered.partition_responses[0].error_code == ErrorCode.NONE, "Kafka accepts a bomb, so do we"
        client.socket.settimeout(120)
        assert client.ask(metadata_of(50_000), 9, m.MetadataResponse).brokers
        client.request(metadata_of(1_000_000), 9)
        assert client.is_closed_by_broker(), "it would become more objects than a request may"
    assert serves_on(broker)
    peak = peak_resident_bytes_of(broker.pid)
    for claim in claims:
        claim.close()
    assert peak < 256 * MIB, f"peak resident memory was {peak / MIB:.0f} MiB"


def metadata_of(count: int) -> m.MetadataRequest:
    names = [m.MetadataRequest.MetadataRequestTopic(name="") for _ in range(count)]
    return m.MetadataRequest(topics=names, allow_auto_topic_creation=False)


def test_a_frame_that_never_ends_holds_up_no_other(shared_broker: BrokerProcess) -> None:
    with RawClient(shared_broker.port) as drip:
        drip.send(struct.pack(">i", 10_000))
        for _ in range(20):
            drip.send(b"\x00")
            assert serves_on(shared_broker)
            time.sleep(0.01)  # the drip's pace


def test_garbage_of_every_kind_leaves_the_broker_standing(shared_broker: BrokerProcess) -> None:
    rng = random.Random(4)
    for _ in range(300):
        with RawClient(shared_broker.port) as client:
            key, version = rng.randrange(-2, 80), rng.randrange(-1, 19)
            body = struct.pack(">hhih", key, version, 1, -1) + rng.randbytes(rng.randrange(200))
            client.send_frame(body if rng.random() < 0.8 else gzip.compress(body))
    assert serves_on(shared_broker)
    assert shared_broker.is_running()
