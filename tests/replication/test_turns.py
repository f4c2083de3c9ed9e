"""A partition that waits for the disk holds up the control requests about no other partition."""

import pytest
import trio

from barnabas.replication.turns import Turns
from tests.broker.harness import Machine
from tests.broker.requests import new_topics, placement_request

SLOW_SECONDS = 20


async def with_slow_syncs(nursery, **properties):
    """A broker whose flushes take `machine.sync_seconds`, while everything else is as fast as ever."""
    machine = Machine(nursery, **properties)
    machine.sync_seconds = 0
    in_thread = machine._in_thread

    async def slowly(function, *args):
        if function.__name__ == "_sync":
            with trio.CancelScope(shield=True):
                await trio.sleep(machine.sync_seconds)
        return await in_thread(function, *args)

    machine._in_thread = slowly
    await machine.start()
    return machine, await machine.connect()


async def seconds_to_lead(machine, topic: str) -> float:
    """How long it takes from the request to create a topic until a producer can write to it."""
    began, client = trio.current_time(), await machine.connect()
    with trio.fail_after(60):
        while not (await client.metadata(topic))[topic].partitions or (await client.produce(topic, b"x")).error_code:
            await client.ask(new_topics(topic, timeout_ms=60_000))  # again, if a deletion is not complete yet
            await trio.sleep(0.1)
    return trio.current_time() - began


async def test_a_slow_sync_of_a_moving_partition_holds_up_no_other_partition(nursery, autojump_clock):
    machine, client = await with_slow_syncs(nursery, log_dirs="/a,/b")
    await client.ask(placement_request("/a", ("t", 0)))
    await client.create_topic("t", segment_bytes="150")
    for number in range(5):
        await client.produce("t", b"v%d" % number)
    await trio.sleep(5)
    machine.sync_seconds = SLOW_SECONDS
    await client.ask(placement_request("/b", ("t", 0)))
    await trio.sleep(1)
    assert await seconds_to_lead(machine, "other") < 2
    await trio.sleep(200)
    assert "t-0" in machine.disk.list("/b")
    assert await client.read_values("t") == [b"v%d" % number for number in range(5)]


async def test_the_deletion_of_a_log_that_is_being_synced_holds_up_no_other_partition(nursery, autojump_clock):
    machine, client = await with_slow_syncs(nursery)
    await client.create_topic("t", flush_messages="1")
    machine.sync_seconds = SLOW_SECONDS
    nursery.start_soon(client.produce, "t", b"of the deleted topic")
    await trio.sleep(1)
    await (await machine.connect()).delete_topic("t")
    assert await seconds_to_lead(machine, "other") < 2


async def test_a_topic_that_is_made_again_waits_for_the_last_sync_of_the_old_one(nursery, autojump_clock):
    machine, client = await with_slow_syncs(nursery)
    await client.create_topic("t", flush_messages="1")
    machine.sync_seconds = SLOW_SECONDS
    nursery.start_soon(client.produce, "t", b"of the deleted topic")
    await trio.sleep(1)
    began = trio.current_time()
    await (await machine.connect()).delete_topic("t")
    assert trio.current_time() < began + 1
    machine.sync_seconds = 0
    assert SLOW_SECONDS - 2 < await seconds_to_lead(machine, "t") < SLOW_SECONDS
    assert await (await machine.connect()).read_values("t") == [b"x"]
    assert machine.broker.replicas.logs.online_directories == ["/data"]


@pytest.mark.parametrize("after_seconds", range(1, 90, 8))
async def test_a_role_that_arrives_at_any_point_of_a_swap_is_taken_at_once(nursery, autojump_clock, after_seconds):
    machine, client = await with_slow_syncs(nursery, log_dirs="/a,/b", log_flush_interval_messages="1")
    await client.create_topic("t")
    for number in range(3):
        await client.produce("t", b"v%d" % number)
    machine.sync_seconds = SLOW_SECONDS
    (directory,) = [path for path in ("/a", "/b") if "t-0" in machine.disk.list(path)]
    target = "/b" if directory == "/a" else "/a"
    await client.ask(placement_request(target, ("t", 0)))
    await trio.sleep(after_seconds)
    began = trio.current_time()
    assert await client.give_role(machine, "t") == 0
    assert trio.current_time() < began + 1
    machine.sync_seconds = 0
    await trio.sleep(200)
    assert "t-0" in machine.disk.list(target)
    assert await client.read_values("t") == [b"v%d" % number for number in range(3)]
    assert (await client.produce("t", b"goes on")).error_code == 0


# -- the lines


async def test_requests_about_one_key_are_served_in_order_and_those_about_others_at_once(nursery):
    turns, seen, go_on = Turns[str](), [], trio.Event()

    async def work(name, keys, until=None):
        with turns.of(keys) as turn:
            async for some in turn:
                seen.append((name, some))
                if until is not None:
                    await until.wait()

    for name, keys, until in (("1", "a", go_on), ("2", "ab", None), ("3", "b", None), ("4", "c", None)):
        nursery.start_soon(work, name, keys, until)
        await trio.testing.wait_all_tasks_blocked()
    assert seen == [("1", ["a"]), ("2", ["b"]), ("3", ["b"]), ("4", ["c"])]
    go_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert seen[4:] == [("2", ["a"])]
    assert turns.heads == turns.behind == {}


async def test_a_request_that_gives_up_leaves_its_lines(nursery):
    turns = Turns[str]()
    with turns.of("ab") as first:
        assert await anext(first) == ["a", "b"]
        with trio.move_on_after(0.001):
            async with turns.alone("a"):
                pytest.fail("the first one has it")
        first.give_back("b")
        async with turns.alone("b"):
            assert list(turns.heads) == ["a", "b"]
    assert turns.heads == turns.behind == {}
