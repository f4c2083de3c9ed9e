"""Hostile and broken clients on a live socket: each costs its own connection, and the broker serves on.

How each odd frame, and each damaged batch, is answered is compared with Apache Kafka in `differential/`.
"""

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


def serves_on(broker: BrokerProcess) -> bool:
    """Whether another client is served as if nothing had happened."""
    with RawClient(broker.port) as client:
        return client.ask(m.MetadataRequest(topics=None), 9, m.MetadataResponse).controller_id >= 0


@pytest.mark.parametrize(
    "opening",
    [
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">ihhih", 10, 71, 0, 1, -1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1_000_000),
    ],
    ids=["two gibibytes", "http", "a key that is not served", "a million elements that are not there"],
)
def test_a_frame_that_is_no_request_closes_its_connection_alone(shared_broker: BrokerProcess, opening: bytes) -> None:
    with RawClient(shared_broker.port) as bystander, RawClient(shared_broker.port) as client:
        client.send(opening)
        assert client.is_closed_by_broker()
        assert bystander.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers
    assert serves_on(shared_broker)


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
