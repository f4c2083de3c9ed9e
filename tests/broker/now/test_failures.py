"""A bug in the step that answers an ordinary request: its client gets an error, as from a handler, and stays."""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.waiting import wake
from tests.broker.harness import Machine
from tests.broker.requests import batch_of, fetch_request, fetched, produce_request


class Planted(Exception):
    """A bug."""


def fail_once(monkeypatch, machine):
    """The next search for a partition fails; how many searches there were is known then."""
    replicas = machine.broker.replicas
    real, calls = replicas.get, []

    def get(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise Planted("oh")
        return real(*arguments)

    monkeypatch.setattr(replicas, "get", get)
    return calls


@pytest.mark.provokes_mistakes
async def test_a_produce_is_refused_and_the_next_one_is_answered(nursery, autojump_clock, monkeypatch, caplog):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")

    async def code():
        response = await client.ask(produce_request("t", batch_of(b"v"), acks=1), 9)
        return response.responses[0].partition_responses[0].error_code

    assert await code() == ErrorCode.NONE
    calls = fail_once(monkeypatch, machine)
    assert await code() == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(calls) == 1, "it is not handled once more"
    assert "Planted: oh" in caplog.text
    assert "Produce v9 from client 'test' failed" in caplog.text
    assert await code() == ErrorCode.NONE
    (partition,) = [each for each in machine.broker.replicas if each.topic_partition.topic == "t"]
    assert partition.log.log_end_offset == 2


@pytest.mark.provokes_mistakes
async def test_a_fetch_that_waits_is_refused_and_the_next_one_is_answered(nursery, autojump_clock, monkeypatch, caplog):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    request = fetch_request([("t", 0, 0)], session=(0, -1), max_wait_ms=5000)
    assert [row.error_code for _, row in fetched(await client.ask(request, 12))] == [0]
    await client.send(request, 12)
    await trio.testing.wait_all_tasks_blocked()
    (partition,) = [each for each in machine.broker.replicas if each.topic_partition.topic == "t"]
    calls = fail_once(monkeypatch, machine)
    wake(partition)
    answer = await client.receive()
    assert isinstance(answer, m.FetchResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(calls) == 1
    assert "Planted: oh" in caplog.text
    assert [row.error_code for _, row in fetched(await client.ask(request, 12))] == [0]
