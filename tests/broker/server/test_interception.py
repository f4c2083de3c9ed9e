"""What intercepts the requests of a broker in a test sees each one, has it handled, and decides about the response."""

import pytest
import trio

from barnabas.broker.interception import Dropped
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from tests.broker.harness import Machine

PRODUCE = 0
METADATA = 3
RECORDS = bytes(build_batch([(None, b"value")], timestamp_ms=0).data)


class Seam:
    """Remembers what it is asked; `act` is what it does with each request."""

    def __init__(self):
        self.is_active = True
        self.armed_keys = range(100)
        self.seen = []

        async def pass_on(call, request, handle):
            return await handle(request)

        self.act = pass_on

    def see(self, call, request, frame, body_start, size_bytes):
        return None

    async def intercept(self, call, request, handle):
        response = await self.act(call, request, handle)
        self.seen.append((type(request).__name__, type(response).__name__))
        return response


@pytest.fixture
def seam():
    return Seam()


@pytest.fixture
async def machine(nursery, autojump_clock, seam):
    return await Machine(nursery, interception=seam).start()


async def test_requests_and_their_responses_are_shown(machine, seam):
    client = await machine.connect()
    await client.create_topic("t")
    seam.seen.clear()
    assert (await client.produce("t", RECORDS, acks=-1)).error_code == 0
    assert seam.seen == [("ProduceRequest", "ProduceResponse")]


async def test_one_that_is_not_active_is_shown_nothing(machine, seam):
    client = await machine.connect()
    seam.is_active = False
    await client.create_topic("t")
    assert seam.seen == []


async def test_the_metadata_of_all_topics_are_shown_as_a_message(machine, seam):
    client = await machine.connect()
    await client.create_topic("t")
    assert [topic.name for topic in (await client.ask(m.MetadataRequest(topics=None))).topics] == ["t"]
    assert seam.seen[-1] == ("MetadataRequest", "MetadataResponse")


async def test_requests_of_the_broker_to_itself_are_not_shown(machine, seam):
    client = await machine.connect()
    await client.create_topic("t")
    assert {request for request, _ in seam.seen} <= {"CreateTopicsRequest", "MetadataRequest"}


async def test_a_request_need_not_be_handled(machine, seam):
    async def answer(call, request, handle):
        return m.CreateTopicsResponse(topics=[])

    client = await machine.connect()
    passing, seam.act = seam.act, answer
    created = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert (await client.ask(m.CreateTopicsRequest(topics=[created]))).topics == []
    seam.act = passing
    assert (await client.ask(m.MetadataRequest(topics=None))).topics == []


async def test_a_request_may_be_handled_twice(machine, seam):
    async def twice(call, request, handle):
        await handle(request)
        return await handle(request)

    client = await machine.connect()
    await client.create_topic("t")
    seam.act = twice
    assert (await client.produce("t", RECORDS)).base_offset == 1


async def test_a_response_is_changed_when_its_request_is_done(machine, seam):
    async def fail(call, request, handle):
        response = await handle(request)
        if call.api_key == PRODUCE:
            response.responses[0].partition_responses[0].error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    client = await machine.connect()
    await client.create_topic("t")
    seam.act = fail
    assert (await client.produce("t", RECORDS)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await client.list_offset("t", -1)).offset == 1


async def test_a_response_that_is_dropped_closes_its_connection_alone(machine, seam):
    client, other = await machine.connect(), await machine.connect()
    seam.act = dropping(whole=False)
    await client.send(m.MetadataRequest(topics=[]))
    assert await client.is_closed(within_seconds=1)
    assert (await other.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))).coordinators


async def test_half_of_a_response_leaves(machine, seam):
    client = await machine.connect()
    seam.act = dropping(whole=True)
    await client.send(m.MetadataRequest(topics=[]))
    received = b""
    with trio.fail_after(1):
        while data := await client.stream.receive_some(1000):
            received += data
    announced_bytes = int.from_bytes(received[:4], "big")
    assert len(received) == (4 + announced_bytes) // 2


def dropping(*, whole):
    """What drops the response to Metadata, or half of it."""

    async def act(call, request, handle):
        response = await handle(request)
        if call.api_key != METADATA:
            return response
        raise Dropped(response if whole else None)

    return act


async def test_a_request_that_is_dropped_is_not_done_and_those_before_it_are_answered(machine, seam):
    async def drop(call, request, handle):
        if call.api_key == METADATA:
            raise Dropped
        return await handle(request)

    client = await machine.connect()
    await client.create_topic("t")
    seam.act = drop
    await client.send(m.ApiVersionsRequest())
    await client.send(m.MetadataRequest(topics=None))
    assert await client.stream.receive_some(1000)
    assert await client.is_closed(within_seconds=1)
