"""The request log, and faults, beside requests that the broker answers in the step that has read them."""

import re

import pytest
import trio

from barnabas.broker.now.shapes import Shapes
from barnabas.wire import messages as m
from tests.broker.clusters import create_topic
from tests.broker.requests import batch_of, fetch_request, idempotent
from tests.testing.faulty import stage

__all__ = ["stage"]

LARGE = bytes(40_000)  # too large to be copied into a response, and a Produce of it is not kept whole


@pytest.fixture
async def log(stage):
    stage.log.is_on = True
    return stage.log


@pytest.fixture
def answered_now(monkeypatch):
    """The classes of what was begun, or answered, in the step that has read it."""
    kinds = []
    answer = Shapes.answer

    def watched(self, broker, frame, began):
        found = answer(self, broker, frame, began)
        kinds.append(type(found).__name__)
        return found

    monkeypatch.setattr(Shapes, "answer", watched)
    return kinds


def lines_of(log):
    """What can be read of each entry, but its connection and times."""
    lines = []
    for entry in log:
        response = re.sub(r"append_time_ms=\d+", "append_time_ms=…", repr(entry.response))
        head = entry.number, entry.api, entry.version, entry.client_id
        lines.append((*head, repr(entry.request), response, entry.outcome))
    return lines


async def produce_and_fetch(stage):
    """Requests of the same shapes, some of which have errors."""
    for sequence in (0, 1, 2, 4, 3, 3):
        await stage.client.produce("t", idempotent(sequence))
    await stage.client.produce("t", batch_of(LARGE))
    for offset in (0, 1, 2, 4, 99):
        await stage.client.fetch("t", offset, max_wait_ms=0)


async def test_what_is_answered_in_one_step_is_logged_as_everything_is(stage, log, answered_now, monkeypatch):
    await produce_and_fetch(stage)
    assert {"list", "dict", "Planned"} <= set(answered_now)
    assert len(log) == 12
    now = lines_of(log)
    await stage.client.ask(m.DeleteTopicsRequest(topic_names=["t"]), 5)
    await stage.client.create_topic("t", 2)

    log.clear()
    log._seen = 0
    monkeypatch.setattr(Shapes, "learn", lambda *_: None)
    stage.client = await stage.machine.connect()
    answered_now.clear()
    await produce_and_fetch(stage)
    assert set(answered_now) == {"NoneType"}
    assert lines_of(log) == now


@pytest.mark.parametrize("value", [b"v", LARGE])
async def test_a_fetch_that_waits_is_in_the_log_once_from_the_start(stage, log, answered_now, value):
    await fetch_twice(stage)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch_patiently, stage.client, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert answered_now[-1] == "WaitingFetch"
        assert [entry.outcome for entry in log("Fetch")] == ["answered", "answered", "waits"]
        await (await stage.machine.connect()).produce("t", batch_of(value))
    assert [entry.outcome for entry in log("Fetch")] == ["answered"] * 3
    (topic,) = log("Fetch")[2].response.responses
    assert len(topic.partitions[0].records) > len(value)


async def fetch_twice(stage):
    """A record is there, so this leaves a shape and does not wait."""
    await stage.client.produce("t", batch_of(b"v"))
    for _ in range(2):
        await fetch_patiently(stage.client, 0)


async def fetch_patiently(client, offset):
    assert (await client.fetch("t", offset, max_wait_ms=60_000, min_bytes=1)).records


async def test_a_produce_that_waits_for_followers_is_in_the_log_with_its_outcome(stage, log, answered_now):
    leader = stage.machine.broker.broker_id
    await stage.machine.join(2)
    await create_topic(stage.client, "r", [leader, 2], [leader, 2])
    refused = await stage.client.produce("r", batch_of(b"v"), acks=-1, timeout_ms=5000)
    assert refused.error_code == 7
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce_to_both, stage.client)
        await trio.testing.wait_all_tasks_blocked()
        assert answered_now[-1] == "PendingProduce"
        assert [entry.outcome for entry in log("Produce")] == ["answered", "waits"]
        other = await stage.machine.connect()
        for offset in (0, 2, 2):
            await other.ask(fetch_request([("r", 0, offset)], replica_id=2, max_wait_ms=0), 12)
    await stage.client.produce("r", batch_of(b"v"), acks=-1, timeout_ms=5000)
    assert [entry.errors for entry in log("Produce")] == [["REQUEST_TIMED_OUT"], [], ["REQUEST_TIMED_OUT"]]
    assert [entry.outcome for entry in log("Produce")] == ["answered"] * 3


async def produce_to_both(client):
    assert (await client.produce("r", batch_of(b"v"), acks=-1, timeout_ms=5000)).error_code == 0


async def test_a_fault_for_another_api_leaves_the_short_way_open(stage, answered_now):
    stage.faults.fail("DeleteTopics", "REQUEST_TIMED_OUT", may_miss=True)
    answered_now.clear()
    for _ in range(3):
        await stage.client.produce("t", batch_of(b"v"))
    assert answered_now[1:] == ["list", "list"]
    failed = stage.faults.fail("Produce", "REQUEST_TIMED_OUT", times=1)
    assert (await stage.client.produce("t", batch_of(b"v"))).error_code == 7
    assert failed.fired == 1


async def test_a_fault_is_not_about_a_request_that_waited_before_it_was_set(stage, answered_now):
    await fetch_twice(stage)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch_patiently, stage.client, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert answered_now[-1] == "WaitingFetch"
        late = stage.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", may_miss=True)
        await (await stage.machine.connect()).produce("t", batch_of(LARGE))
    assert late.fired == 0
