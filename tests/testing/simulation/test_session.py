"""Sessions with the simulated metadata store: lost answers, lost connections, expiry seen late, late watches."""

import pytest
import trio

from barnabas.controller.store.store import Create, Created, NodeExists, SessionExpired, StoreUnavailable
from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.schedule import Process, simulate
from barnabas.testing.simulation.session import StoreSession
from barnabas.testing.simulation.store import STORE, StoreServer

TIMEOUT_SECONDS = 6.0


def on_a_store(scenario, seed=1):
    """Run `scenario(server, process, session)` of party "a"."""

    async def main(simulation):
        server = StoreServer(simulation, SimNet(simulation))
        process = Process("a")
        with trio.fail_after(600):
            await scenario(server, process, await StoreSession(server, process, TIMEOUT_SECONDS).open())

    simulate(seed, main)


def cut(server, *, both=True):
    server.net.cut("a", STORE)
    if both:
        server.net.cut(STORE, "a")


def mend(server):
    server.net.mend("a", STORE)
    server.net.mend(STORE, "a")


def test_a_write_whose_answer_is_lost_is_carried_out_a_second_time():
    async def scenario(server, process, session):
        server.lose_next_answer("a")
        with pytest.raises(NodeExists):
            await session.create("/x", b"1", ephemeral=True)
        assert (await session.get("/x"))[0] == b"1"
        assert (await session.exists("/x")).owner == session.session_id

    on_a_store(scenario)


def test_a_connection_may_break_between_two_items_of_a_batch():
    async def scenario(server, process, session):
        server.lose_next_answer("a")
        outcomes = await session.batch([Create("/1"), Create("/2"), Create("/3")])
        assert [type(outcome) for outcome in outcomes] == [NodeExists, Created, Created]

    on_a_store(scenario)


def test_every_watch_fires_when_a_connection_is_lost():
    async def scenario(server, process, session):
        fired = trio.Event()
        await session.exists("/x", fired.set)
        server.lose_next_answer("a")
        with pytest.raises(NodeExists):
            await session.create("/other")
        await fired.wait()

    on_a_store(scenario)


def test_a_session_that_cannot_begin_in_time_says_so():
    async def scenario(server, process, session):
        server.net.cut("b", STORE)
        begin = trio.current_time()
        with pytest.raises(StoreUnavailable):
            await StoreSession(server, Process("b"), TIMEOUT_SECONDS).open(within_seconds=5.0)
        assert trio.current_time() - begin == 5.0

    on_a_store(scenario)


def test_a_read_that_was_on_its_way_is_asked_again_after_the_cut():
    async def scenario(server, process, session):
        await session.create("/x", b"1")
        cut(server)
        server.clock.call_in(3.0, mend, server)
        begin = trio.current_time()
        assert (await session.get("/x"))[0] == b"1"
        assert trio.current_time() - begin >= 3.0

    on_a_store(scenario)


@pytest.mark.parametrize("both", [True, False])
def test_a_session_that_is_cut_off_expires_at_the_server_first(both):
    async def scenario(server, process, session):
        expired = []
        session.on_expired(lambda: expired.append(trio.current_time()))
        await session.create("/e", ephemeral=True)
        cut(server, both=both)
        begin = trio.current_time()
        while server.tree.stat("/e") is not None:
            await trio.sleep(0.1)
        assert TIMEOUT_SECONDS / 2 < trio.current_time() - begin < TIMEOUT_SECONDS + 0.2
        await trio.sleep(20)
        assert expired == []
        if not both:
            server.net.cut(STORE, "a")
        mend(server)
        with pytest.raises(SessionExpired):
            await session.get("/")
        assert len(expired) == 1
        before = session.session_id
        await session.renew()
        assert session.session_id != before
        await session.create("/e", ephemeral=True)

    on_a_store(scenario)


def test_late_watches_are_late_and_come():
    async def scenario(server, process, session):
        server.watch_delay_seconds = 5.0
        fired = trio.Event()
        await session.create("/x")
        await session.exists("/x", fired.set)
        begin = trio.current_time()
        await session.set("/x", b"2")
        await fired.wait()
        assert 0.05 < trio.current_time() - begin < 5.1

    on_a_store(scenario)


def test_a_paused_process_loses_its_session_and_hears_of_it_when_it_goes_on():
    async def scenario(server, process, session):
        expired = trio.Event()
        session.on_expired(expired.set)
        process.pause()
        await trio.sleep(2 * TIMEOUT_SECONDS)
        assert server.expired_count == 1
        assert not expired.is_set()
        process.resume()
        with trio.fail_after(TIMEOUT_SECONDS):
            await expired.wait()

    on_a_store(scenario)


def test_no_session_expires_while_the_server_is_down():
    async def scenario(server, process, session):
        await session.create("/e", ephemeral=True)
        server.stop()
        server.clock.call_in(60.0, server.restart)
        begin = trio.current_time()
        assert (await session.exists("/e")).owner == session.session_id
        assert trio.current_time() - begin >= 60

    on_a_store(scenario)


def test_a_dead_process_keeps_its_ephemeral_nodes_until_the_timeout():
    async def scenario(server, process, session):
        await session.create("/e", ephemeral=True)
        session.die()
        await trio.sleep(TIMEOUT_SECONDS / 2)
        assert server.tree.stat("/e") is not None
        await trio.sleep(TIMEOUT_SECONDS)
        assert server.tree.stat("/e") is None

    on_a_store(scenario)


def test_a_session_that_ends_takes_its_nodes_along_at_once():
    async def scenario(server, process, session):
        await session.create("/e", ephemeral=True)
        await session.close()
        assert server.tree.stat("/e") is None
        with pytest.raises(SessionExpired):
            await session.get("/")

    on_a_store(scenario)
