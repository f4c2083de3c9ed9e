"""Clients that go while their request waits: they are noticed, and nothing of them stays."""

import gc

import pytest
import trio

from barnabas.broker.server import connection, connections, dispatch
from barnabas.wire import messages as m
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, produce_request

FOREVER_MS = 2**31 - 1
FOLLOWER = 2
PROTOCOL = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")


def joining(rebalance_timeout_ms: int = FOREVER_MS, member_id: str = "") -> m.JoinGroupRequest:
    """Of a consumer that lets the others wait for so long."""
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[PROTOCOL],
    )


WAITING = {
    "fetch": lambda: (fetch_request([("t", 0, 0)], max_wait_ms=FOREVER_MS), 11),
    "join": lambda: (joining(), 3),
    "produce": lambda: (produce_request("t", b"x", timeout_ms=FOREVER_MS), 9),
}


async def machine_where_all_waits(nursery):
    """With a follower that fetches nothing, a group that waits for members, and room for one client."""
    delayed = {"group_initial_rebalance_delay_ms": str(FOREVER_MS)}
    machine = await Machine(nursery, max_connections="1", connections_max_idle_ms="-1", **delayed).start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.ask(m.FindCoordinatorRequest(key="g"), 2)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", leader=me, isr=[me, FOLLOWER], replicas=[me, FOLLOWER])
    client.close()
    return machine


@pytest.mark.parametrize("behind", [b"", b"\0\0"], ids=["at the end", "with more to read"])
@pytest.mark.parametrize("kind", ["fetch", "join", "produce"])
async def test_a_client_that_goes_while_its_request_waits_leaves_nothing_behind(nursery, autojump_clock, kind, behind):
    machine = await machine_where_all_waits(nursery)
    client = await machine.connect()
    await client.send(*WAITING[kind]())
    await client.send_bytes(behind)
    assert await client.is_quiet(60), "it waits as long as its client is there"
    client.close()
    with trio.fail_after(5):
        assert (await (await machine.connect()).ask(m.MetadataRequest(topics=[]))).brokers
    assert not machine.broker.replicas.get("t", 0).waiters


async def test_what_was_appended_for_a_client_that_went_stays_appended(nursery, autojump_clock):
    machine = await machine_where_all_waits(nursery)
    client = await machine.connect()
    await client.send(*WAITING["produce"]())
    await client.is_quiet(5)
    client.close()
    await trio.sleep(5)
    assert machine.broker.replicas.get("t", 0).log.log_end_offset == 1


async def test_a_member_that_goes_while_it_waits_to_join_has_not_joined(nursery, autojump_clock):
    """Else its group would wait for it, or hand it partitions, for as long as its rebalance timeout."""
    machine = await Machine(nursery).start()
    first, second = await machine.connect(), await machine.connect()
    await first.ask(m.FindCoordinatorRequest(key="g"), 2)
    member = (await first.ask(joining(3_600_000), 3)).member_id
    await second.send(joining(), 3)
    await second.is_quiet(5)
    second.close()
    await trio.sleep(3)
    began = trio.current_time()
    rejoined = await first.ask(joining(3_600_000, member), 3)
    assert (rejoined.error_code, [each.member_id for each in rejoined.members]) == (0, [member])
    assert trio.current_time() - began < 15, "the session of the one that went"


async def test_a_request_at_work_is_not_interrupted_when_its_client_goes(nursery, autojump_clock, monkeypatch):
    machine, ended = await Machine(nursery).start(), trio.Event()
    client = await machine.connect()

    async def work(broker, call, request):
        await trio.sleep(60)
        ended.set()

    monkeypatch.setitem(dispatch.HANDLERS, 22, dispatch.HANDLERS[22]._replace(handle=work))
    await client.send(m.InitProducerIdRequest(transactional_id=None))
    await trio.sleep(1)
    client.close()
    with trio.fail_after(61):
        await ended.wait()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread"), KeyError("ours")])
@pytest.mark.provokes_mistakes
async def test_what_goes_wrong_with_one_connection_ends_no_other(nursery, autojump_clock, monkeypatch, caplog, error):
    machine = await Machine(nursery).start()
    client, bystander = await machine.connect(), await machine.connect()

    async def fails(*_):
        raise error

    with monkeypatch.context() as planted:
        planted.setattr(connection, "respond", fails)
        await client.send(m.MetadataRequest(topics=[]))
        assert await client.is_closed(within_seconds=1)
    assert type(error).__name__ in caplog.text
    assert (await bystander.ask(m.MetadataRequest(topics=[]))).brokers


async def test_clients_that_go_during_a_sweep_are_freed_one_by_one(nursery, autojump_clock, monkeypatch):
    machine = await Machine(nursery).start()
    clients = [await machine.connect() for _ in range(20)]
    for client in clients:
        await client.ask(m.ApiVersionsRequest(), 0)
    del client
    alive = []

    async def all_go(_=1):
        while clients:
            clients.pop().close()
        await trio.sleep(0.01)
        alive.append(sum(isinstance(each, connections.Connection) for each in gc.get_objects()))

    monkeypatch.setattr(connections, "pause_after", all_go)
    await trio.sleep(1.5)
    assert len(alive) >= 20
    assert alive[:20] == [alive[0] - each for each in range(20)]
