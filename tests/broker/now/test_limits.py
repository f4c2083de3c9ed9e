"""What the short way keeps of requests, and how long its step may take."""

import gc
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.broker.fetching.plan import FetchPlan
from barnabas.broker.now import produce_rows
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.pacing import Pace
from tests.broker.clusters import create_topic
from tests.broker.harness import Machine
from tests.broker.now.both_ways import Client
from tests.broker.requests import batch_of, fetch_request, fetched, produce_many, produce_request

FOLLOWER = 2
LONG_NAME = "n" * 2000
NO_TAGS, ONE_LONG_TAG = b"\0", b"\1\7\xd0\x0f" + bytes(2000)  # one tag with number 7


def framed(number, request, version, client_id="test", tags=NO_TAGS):
    """The bytes of a request with a flexible header."""
    key = {m.ProduceRequest: 0, m.FetchRequest: 1}[type(request)]
    head = b"".join(value.to_bytes(size, "big") for value, size in ((key, 2), (version, 2), (number, 4)))
    return head + len(client_id).to_bytes(2, "big") + client_id.encode() + tags + m.encode(request, version)


KINDS = ("produce", "produce to two", "fetch")


def request_of(kind, topic="t"):
    """A request of this kind, and its version."""
    return {
        "produce": (produce_request(topic, batch_of(b"v"), acks=1), 9),
        "produce to two": (produce_many({(topic, 0): batch_of(b"v"), (topic, 1): batch_of(b"w")}, acks=1), 9),
        "fetch": (fetch_request([(topic, 0, 0)], session=(0, -1), max_wait_ms=1), 12),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("long", "learnt"),
    [({}, 2), ({"client_id": LONG_NAME}, 0), ({"tags": ONE_LONG_TAG}, 0)],
    ids=["an ordinary one", "a long client id", "a long tag"],
)
async def test_a_request_with_a_long_head_is_not_learnt(nursery, autojump_clock, kind, long, learnt):
    machine = await Machine(nursery).start()
    await (await machine.connect()).create_topic("t", 2)
    client = Client(machine, is_now=True)
    request, version = request_of(kind)
    for number in range(3):
        (answer,) = await client.ask(framed(number, request, version, **long))
        assert answer is not None
    assert client.shapes.answered == learnt


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_with_a_long_name_of_a_topic_is_not_learnt(nursery, autojump_clock, kind):
    client = Client(await Machine(nursery).start(), is_now=True)
    request, version = request_of(kind, LONG_NAME)
    for number in range(3):
        await client.ask(framed(number, request, version))
    assert client.shapes.answered == 0


@asynccontextmanager
async def led_with_a_follower(nursery):
    """A machine that leads two partitions, with a follower that fetches when a test says so."""
    machine = await Machine(nursery).start()
    await machine.join(FOLLOWER)
    replicas = [machine.broker.broker_id, FOLLOWER]
    await create_topic(await machine.connect(), "t", replicas, replicas)
    yield machine, [machine.broker.replicas.get("t", index) for index in (0, 1)]
    nursery.cancel_scope.cancel()


def kept_bytes(size_bytes):
    """Of all buffers of at least this size that something refers to."""
    views = [each for each in gc.get_objects() if isinstance(each, memoryview)]
    return sum({id(view.obj): view.nbytes for view in views if view.nbytes >= size_bytes}.values())


async def test_a_produce_that_waits_for_a_follower_does_not_hold_its_records(nursery, autojump_clock):
    async with led_with_a_follower(nursery) as (machine, partitions):
        client = await machine.connect()
        large = batch_of(bytes(30_000))
        request = produce_many({("t", 0): large, ("t", 1): large}, acks=-1, timeout_ms=60_000)
        gc.collect()
        before = kept_bytes(20_000)
        for number in range(3):
            await client.send_frame(framed(number, request, 9))
        await trio.sleep(1)
        assert [each.log.log_end_offset for each in partitions] == [3, 3]
        gc.collect()
        assert kept_bytes(20_000) == before


async def test_a_produce_is_counted_once_though_the_next_one_fails(nursery, autojump_clock):
    async with led_with_a_follower(nursery) as (machine, partitions):
        client = Client(machine, is_now=True)
        tally = machine.broker.tally.apis[0]
        for index in (0, 1):
            await client.ask(framed(1, produce_request("t", batch_of(b"v"), index, acks=-1, timeout_ms=1000), 9))
        before = tally.count, sum(tally.error_counts().values())

        async def second_fails_then_first_is_committed():
            await trio.sleep(1)
            partitions[1].resign()
            await trio.sleep(1)
            partitions[0].follower_fetched(FOLLOWER, partitions[0].log.log_end_offset, log_start_offset=0)

        nursery.start_soon(second_fails_then_first_is_committed)
        answers = await client.ask(
            *[framed(2, produce_request("t", batch_of(b"v"), index, acks=-1, timeout_ms=9000), 9) for index in (0, 1)]
        )
        codes = [
            m.decode(m.ProduceResponse, 9, answer[5:]).responses[0].partition_responses[0].error_code
            for answer in answers
        ]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert (tally.count - before[0], sum(tally.error_counts().values()) - before[1]) == (2, 2)


async def test_a_produce_whose_client_is_gone_is_counted_once(nursery, autojump_clock):
    async with led_with_a_follower(nursery) as (machine, (partition, _)):
        client = await machine.connect()
        tally = machine.broker.tally.apis[0]
        before = tally.count
        await client.send(produce_request("t", batch_of(b"v"), acks=-1, timeout_ms=9000), 9)
        await trio.sleep(0.1)
        client.close()
        partition.follower_fetched(FOLLOWER, partition.log.log_end_offset, log_start_offset=0)
        await trio.sleep(1)
        assert tally.count - before == 1


async def test_a_turn_that_is_over_is_gone_on_with_by_the_handler(nursery, autojump_clock, monkeypatch):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t", 4)
    request = produce_many({("t", index): batch_of(b"v") for index in range(4)}, acks=1)
    pace = Pace()
    times = iter(range(100))
    pace.now = lambda: next(times) * 0.0006
    monkeypatch.setattr(produce_rows, "pace_of_run", lambda: pace)
    for number in range(1, 4):
        rows = (await client.ask(request, 9)).responses[0].partition_responses
        assert [(row.error_code, row.base_offset) for row in rows] == [(0, number - 1)] * 4
    assert next(times) == 4, "twice: after the first row, and after the second, with which the turn was over"


@pytest.mark.provokes_mistakes
async def test_what_was_due_in_a_session_stays_due_after_a_bug(nursery, autojump_clock, monkeypatch, caplog):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    opened = await client.ask(fetch_request([("t", 0, 0)], session=(0, 0), max_wait_ms=1), 12)

    async def fetch(epoch):
        return await client.ask(fetch_request([], session=(opened.session_id, epoch), max_wait_ms=1), 12)

    for epoch in (1, 2):
        assert [*fetched(await fetch(epoch))] == []
    await (await machine.connect()).produce("t", b"v")
    real = FetchPlan._read

    def read_once(*_):
        monkeypatch.setattr(FetchPlan, "_read", real)
        raise ValueError("planted")

    monkeypatch.setattr(FetchPlan, "_read", read_once)
    assert (await fetch(3)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "planted" in caplog.text
    ((_, row),) = fetched(await fetch(4))
    assert len(row.records) > 0
