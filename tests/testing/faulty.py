"""A broker whose faults and request log a test uses, with clients in the same loop."""

import pytest

from barnabas.testing.faults.interceptor import Interceptor
from barnabas.wire import messages as m
from tests.broker.harness import Machine


class Stage:
    """A broker with the topics t (two partitions) and u (one), a client, and the faults between them."""

    def __init__(self, machine, interceptor, client):
        self.machine = machine
        self.interceptor = interceptor
        self.faults = interceptor.faults
        self.log = interceptor.log
        self.client = client

    async def values(self, topic="t", partition=0):
        """What is in the log."""
        return await (await self.machine.connect()).read_values(topic, partition=partition)


async def open_stage(nursery) -> Stage:
    interceptor = Interceptor()
    interceptor.want_pictures()
    machine = await Machine(nursery, interception=interceptor).start()
    interceptor.built(machine.broker)
    client = await machine.connect()
    await client.create_topic("t", 2)
    await client.create_topic("u")
    return Stage(machine, interceptor, client)


@pytest.fixture
async def stage(nursery, autojump_clock):
    return await open_stage(nursery)


def answer_of(key="g", **fields):
    """A response to FindCoordinator that no broker would give."""
    row = m.FindCoordinatorResponse.Coordinator(key=key, node_id=4711, host="castle.example", port=9, **fields)
    return m.FindCoordinatorResponse(coordinators=[row])
