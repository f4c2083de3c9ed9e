"""Responses of Produce requests that arrive together leave together, and wait for nothing else."""

import struct

import pytest
import trio

from barnabas.broker.handlers import produce as handler
from barnabas.wire import messages as m
from barnabas.wire.records import SMALL_BYTES_MAX
from barnabas.world.pacing import calling_before_wait
from tests.broker.harness import Machine
from tests.broker.memnet import MemStream
from tests.broker.requests import batch_of, produce_request


@pytest.fixture
async def client(nursery):
    client = await (await Machine(nursery).start()).connect()
    await client.create_topic("t")
    await client.produce("t", b"first")  # which opens the files of the log
    return client


@pytest.fixture
def sends(client, monkeypatch):
    """The bytes of each send from now on, of the broker and its client."""
    sent, send_now = [], MemStream.send_now

    def noting(self, data):
        sent.append(bytes(data))
        return send_now(self, data)

    monkeypatch.setattr(MemStream, "send_now", noting)
    return sent


async def send_together(client, *requests):
    frames = [client.frame_of(request) for request in requests]
    await client.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))


def small(number):
    return produce_request("t", b"%d" % number, acks=1)


def base_offset_of(response):
    return response.responses[0].partition_responses[0].base_offset


async def test_the_responses_of_produces_that_arrive_together_are_one_send(client, sends, autojump_clock):
    await send_together(client, *map(small, range(4)))
    assert [base_offset_of(await client.receive()) for _ in range(4)] == [1, 2, 3, 4]
    assert len(sends) == 2, "the requests, and the responses"


async def test_a_response_leaves_before_a_request_of_another_kind_is_handled(client, sends, autojump_clock):
    await send_together(client, small(1), m.MetadataRequest(topics=[]), small(2))
    assert base_offset_of(await client.receive()) == 1
    assert (await client.receive()).brokers
    assert base_offset_of(await client.receive()) == 2
    _, first, *_ = sends
    assert len(first) == 4 + int.from_bytes(first[:4], "big"), "nothing leaves with it"


async def test_a_response_leaves_while_the_next_produce_waits(client, monkeypatch, autojump_clock):
    complete, goes_on = handler.complete, trio.Event()

    async def put_off(*arguments):
        await goes_on.wait()
        return await complete(*arguments)

    monkeypatch.setattr(handler, "complete", put_off)
    large = batch_of(bytes(SMALL_BYTES_MAX))
    await send_together(client, small(1), produce_request("t", large, acks=1), small(3))
    assert base_offset_of(await client.receive()) == 1
    assert await client.is_quiet()
    goes_on.set()
    assert [base_offset_of(await client.receive()) for _ in range(2)] == [2, 3]


async def test_a_response_leaves_before_the_next_produce_ends_the_connection(client, autojump_clock):
    frame = client.frame_of(small(1))
    malformed = frame[:8] + b"\xff\xff\xff"
    await client.send_bytes(b"".join(struct.pack(">i", len(each)) + each for each in (frame, malformed)))
    assert base_offset_of(await client.receive()) == 1
    assert await client.is_closed(within_seconds=1)


# -- the means


async def test_nothing_is_called_for_work_that_does_not_wait():
    async def work():
        return 7

    called = []
    assert await calling_before_wait(work(), lambda: called.append(1)) == 7
    assert called == []


async def test_what_is_called_is_called_once_before_the_first_wait(autojump_clock):
    order = []

    async def work():
        order.append("begun")
        await trio.sleep(1)
        await trio.sleep(1)
        order.append("ended")
        raise KeyError("passed on")

    with pytest.raises(KeyError):
        await calling_before_wait(work(), lambda: order.append("called"))
    assert order == ["begun", "called", "ended"]


async def test_work_that_waits_can_be_cancelled(autojump_clock):
    ended = []

    async def work():
        try:
            await trio.sleep_forever()
        finally:
            ended.append(True)

    with trio.move_on_after(1) as scope:
        await calling_before_wait(work(), lambda: None)
    assert scope.cancelled_caught
    assert ended == [True]
