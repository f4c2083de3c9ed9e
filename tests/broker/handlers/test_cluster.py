"""DescribeCluster of a broker that has two listeners and is in a rack."""

import pytest

from barnabas.wire import messages as m
from tests.broker.harness import Machine


@pytest.fixture
async def machine(nursery):
    two_listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,IN://127.0.0.1:9093",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,IN:PLAINTEXT",
    }
    return await Machine(nursery, broker_rack="r1", **two_listeners).start()


async def described(machine, version=1, listener="PLAINTEXT", **fields):
    client = await machine.connect(listener)
    return await client.ask(m.DescribeClusterRequest(**fields), version)


@pytest.mark.parametrize("version", [0, 1])
async def test_the_cluster_is_described(autojump_clock, machine, version):
    answer = await described(machine, version)
    (broker,) = answer.brokers
    assert (answer.error_code, answer.error_message, answer.controller_id) == (0, None, machine.serving.broker_id)
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (answer.controller_id, "127.0.0.1", 9092, "r1")
    assert len(answer.cluster_id) == 22
    assert answer.cluster_authorized_operations == -(1 << 31)


async def test_addresses_are_those_of_the_asked_listener(autojump_clock, machine):
    (broker,) = (await described(machine, listener="IN")).brokers
    assert broker.port == 9093
