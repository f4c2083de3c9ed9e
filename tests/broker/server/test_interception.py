"""A broker in a test is asked about each request of a client, before it is handled and before it is answered."""

import pytest
import trio

from barnabas.broker.interception import Answered, Dropped
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from tests.broker.harness import Machine

PRODUCE = 0
METADATA = 3
RECORDS = bytes(build_batch([(None, b"value")], timestamp_ms=0).data)


class Passing:
    """Remembers what it is asked, and changes nothing."""

    def __init__(self):
        self.asked = []

    async def before(self, call, request):
        self.asked.append(("before", type(request).__name__))
        return request

    async def after(self, call, request, response):
        self.asked.append(("after", type(response).__name__))
        return response


@pytest.fixture
def seam():
    return Passing()


@pytest.fixture
async def machine(nursery, autojump_clock, seam):
    return await Machine(nursery, interception=seam).start()


async def test_requests_and_their_responses_are_shown(machine, seam):
    client = await machine.connect()
    await client.create_topic("t")
    seam.asked.clear()
    assert (await client.produce("t", RECORDS, acks=-1)).error_code == 0
    assert seam.asked == [("before", "ProduceRequest"), ("after", "ProduceResponse")]


async def test_the_metadata_of_all_topics_are_shown_as_a_message(machine, seam):
    client = await machine.connect()
    await client.create_topic("t")
    assert [topic.name for topic in (await client.ask(m.MetadataRequest(topics=None))).topics] == ["t"]
    assert seam.asked[-1] == ("after", "MetadataResponse")


async def test_requests_of_the_broker_to_itself_are_not_shown(machine, seam):
    client = await machine.connect()
    await client.create_topic("t")
    assert {name for _, name in seam.asked} == {"CreateTopicsRequest", "CreateTopicsResponse"} | {
        name for _, name in seam.asked if name.startswith("Metadata")
    }


async def test_an_answer_takes_the_place_of_the_handling(machine, seam):
    async def before(call, request):
        return Answered(m.CreateTopicsResponse(topics=[]))

    client = await machine.connect()
    seam.before = before
    created = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert (await client.ask(m.CreateTopicsRequest(topics=[created]))).topics == []
    seam.before = Passing().before
    assert (await client.ask(m.MetadataRequest(topics=None))).topics == []


async def test_a_response_is_changed_when_its_request_is_done(machine, seam):
    async def after(call, request, response):
        if call.api_key == PRODUCE:
            response.responses[0].partition_responses[0].error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    client = await machine.connect()
    await client.create_topic("t")
    seam.after = after
    assert (await client.produce("t", RECORDS)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await client.list_offset("t", -1)).offset == 1


async def test_a_response_that_is_dropped_closes_its_connection_alone(machine, seam):
    client, other = await machine.connect(), await machine.connect()
    seam.after = dropping(whole=False)
    await client.send(m.MetadataRequest(topics=[]))
    assert await client.is_closed(within_seconds=1)
    assert (await other.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))).coordinators


async def test_half_of_a_response_leaves(machine, seam):
    client = await machine.connect()
    seam.after = dropping(whole=True)
    await client.send(m.MetadataRequest(topics=[]))
    received = b""
    with trio.fail_after(1):
        while data := await client.stream.receive_some(1000):
            received += data
    announced_bytes = int.from_bytes(received[:4], "big")
    assert len(received) == (4 + announced_bytes) // 2


def dropping(*, whole):
    """An `after` that drops Metadata, or half of it."""

    async def after(call, request, response):
        if call.api_key != METADATA:
            return response
        raise Dropped(response if whole else None)

    return after


async def test_a_request_that_is_dropped_is_not_done_and_those_before_it_are_answered(machine, seam):
    async def before(call, request):
        if call.api_key == METADATA:
            raise Dropped
        return request

    client = await machine.connect()
    await client.create_topic("t")
    seam.before = before
    await client.send(m.ApiVersionsRequest())
    await client.send(m.MetadataRequest(topics=None))
    assert await client.stream.receive_some(1000)
    assert await client.is_closed(within_seconds=1)
