"""The simulated network shows its parties what TCP would: order, limits, ends, resets, silence."""

import pytest
import trio

from barnabas.testing.simulation.links import GIVE_UP_SECONDS_MAX, GIVE_UP_SECONDS_MIN
from barnabas.testing.simulation.net import BUFFER_BYTES, LATE_SECONDS_MAX, SimNet
from barnabas.testing.simulation.schedule import simulate
from barnabas.world.net import ConnectionLost
from tests.testing.simulation.connections import PORT, between


async def seconds_until_lost(stream):
    """How long until this end learns that its connection is dead."""
    begin = trio.current_time()
    with pytest.raises(ConnectionLost):
        while await stream.receive_some(1 << 16):
            pass
        raise AssertionError("an end, and not a reset")
    return trio.current_time() - begin


async def receive(stream, size_bytes):
    data = b""
    while len(data) < size_bytes:
        data += await stream.receive_some(size_bytes - len(data))
    return data


def test_bytes_arrive_later_and_in_order_both_ways():
    async def scenario(net, near, far):
        begin = trio.current_time()
        for number in range(100):
            await near.send_all(bytes([number]))
            if number % 10 == 0:
                await trio.sleep(0.0001)
        assert await receive(far, 100) == bytes(range(100))
        assert trio.current_time() > begin
        await far.send_all(b"back")
        assert await receive(near, 4) == b"back"
        assert (near.peer_address, far.peer_address) == ("b", "a")

    between(scenario)


def test_a_sender_waits_while_the_reader_sleeps():
    async def scenario(net, near, far):
        with trio.move_on_after(60) as patience:
            await near.send_all(bytes(BUFFER_BYTES + 1))
        assert patience.cancelled_caught
        assert len(await receive(far, BUFFER_BYTES)) == BUFFER_BYTES
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.send_all, bytes(3 * BUFFER_BYTES))
            assert len(await receive(far, 3 * BUFFER_BYTES)) == 3 * BUFFER_BYTES

    between(scenario)


def test_a_hang_up_is_seen_behind_what_is_still_to_be_read():
    async def scenario(net, near, far):
        await near.send_all(b"one more")
        await trio.sleep(1)
        assert (far.has_hung_up(), near.sent_bytes) == (False, 8)
        near.close()
        await trio.sleep(1)
        assert far.has_hung_up()
        assert await receive(far, 8) == b"one more"

    between(scenario)


def test_what_was_sent_before_a_close_is_read_and_then_the_end():
    async def scenario(net, near, far):
        await near.send_all(b"last words")
        near.close()
        assert await receive(far, 10) == b"last words"
        assert await far.receive_some(10) == b""
        await far.send_all(b"anybody there?")
        await trio.sleep(1)
        with pytest.raises(ConnectionLost, match="reset"):
            await far.send_all(b"no")
        with pytest.raises(ConnectionLost):
            await near.receive_some(1)

    between(scenario)


def test_a_held_connection_is_overtaken_by_a_new_one():
    async def scenario(net, near, far):
        assert len(net.hold_connections("a", "b", 3.0)) == 1
        await near.send_all(b"late")
        begin = trio.current_time()
        await net.parties["a"].connect("b", PORT)
        assert trio.current_time() - begin < 0.1
        assert await receive(far, 4) == b"late"
        assert 2.9 < trio.current_time() - begin < 3.1

    between(scenario)


def test_what_was_sent_on_a_connection_that_its_end_has_lost_arrives():
    async def scenario(net, near, far):
        net.hold_connections("a", "b", 3.0)
        await near.send_all(b"last words")
        net.part_connections("a", "b", 5.0)
        with pytest.raises(ConnectionLost, match="lost"):
            await near.receive_some(1)
        assert await receive(far, 10) == b"last words"
        await far.send_all(b"anybody there?")
        near.close()
        assert 1.9 < await seconds_until_lost(far) < 2.1

    between(scenario)


def test_who_has_connected_soon_hears_that_the_other_end_has_lost_the_connection():
    async def scenario(net, near, far):
        net.part_connections("b", "a", 5.0)
        with pytest.raises(ConnectionLost, match="lost"):
            await far.receive_some(1)
        assert await seconds_until_lost(near) < 0.1

    between(scenario)


def test_what_is_held_can_be_released():
    async def scenario(net, near, far):
        held = net.hold_connections("a", "b", 3.0)
        begin = trio.current_time()
        await near.send_all(b"late")
        net.part_connections("a", "b", 5.0)
        await trio.sleep(1)
        held[0].release()
        assert await receive(far, 4) == b"late"
        assert trio.current_time() - begin < 1.1

    between(scenario)


def test_the_answer_to_a_request_of_one_api_is_late():
    async def scenario(net, near, far):
        net.late_answers["a", 24] = 3.0
        for key, least, most in ((23, 0.0, 0.1), (24, 2.9, 3.1)):
            begin = trio.current_time()
            await near.send_all(bytes([0, 0, 0, 2, 0, key]))
            await receive(far, 6)
            assert trio.current_time() - begin < 0.1
            await far.send_all(b"answer")
            await receive(near, 6)
            assert least < trio.current_time() - begin < most

    between(scenario)


@pytest.mark.parametrize("seed", range(1, 6))
def test_after_a_process_crash_connections_end_soon_and_connecting_is_refused(seed):
    async def scenario(net, near, far):
        net.crash("b", machine=False)
        with trio.fail_after(1), pytest.raises(ConnectionLost):
            assert await near.receive_some(1) == b""
            raise ConnectionLost("the end")
        with pytest.raises(ConnectionLost, match="refused"):
            await net.parties["a"].connect("b", PORT)
        with pytest.raises(ConnectionLost):
            await far.send_all(b"from the dead")

    between(scenario, seed)


def test_after_a_machine_crash_there_is_silence_and_no_one_answers():
    async def scenario(net, near, far):
        net.crash("b", machine=True)
        assert await seconds_until_lost(near) <= LATE_SECONDS_MAX
        with pytest.raises(ConnectionLost, match="no server answers"):
            await net.parties["a"].connect("b", PORT)

    between(scenario)


def test_bytes_wait_while_one_way_is_cut_and_the_other_way_carries():
    async def scenario(net, near, far):
        net.cut("a", "b")
        await near.send_all(b"question")
        await far.send_all(b"unasked")
        assert await receive(near, 7) == b"unasked"
        with trio.move_on_after(GIVE_UP_SECONDS_MIN / 2) as patience:
            await far.receive_some(1)
        assert patience.cancelled_caught
        net.mend("a", "b")
        assert await receive(far, 8) == b"question"

    between(scenario)


def test_a_connection_whose_bytes_are_not_acknowledged_dies_at_both_ends():
    async def scenario(net, near, far):
        net.cut("a", "b")
        await near.send_all(b"question")
        seconds = await seconds_until_lost(near)
        assert GIVE_UP_SECONDS_MIN <= seconds <= GIVE_UP_SECONDS_MAX + 1
        assert await seconds_until_lost(far) <= LATE_SECONDS_MAX

    between(scenario)


def test_cuts_add_up():
    async def scenario(net, near, far):
        net.cut("a", "b")
        net.cut("a", "b")
        await near.send_all(b"?")
        net.mend("a", "b")
        with trio.move_on_after(2) as patience:
            await far.receive_some(1)
        assert patience.cancelled_caught
        net.mend("a", "b")
        assert await far.receive_some(1) == b"?"

    between(scenario)


@pytest.mark.parametrize("cut", [("a", "b"), ("b", "a")])
def test_connecting_needs_both_ways_and_tries_again(cut):
    async def scenario(net, near, far):
        net.cut(*cut)
        with pytest.raises(ConnectionLost, match="no server answers"):
            await net.parties["a"].connect("b", PORT)
        net.clock.call_in(1.0, net.mend, *cut)
        (await net.parties["a"].connect("b", PORT)).close()

    between(scenario)


def test_a_lost_connection_is_noticed_at_both_ends_at_different_times():
    async def scenario(net, near, far):
        assert net.lose_connections("a", "b", late=True) == 1
        assert await seconds_until_lost(near) == 0
        assert 0 < await seconds_until_lost(far) <= LATE_SECONDS_MAX
        assert net.connection_count == 0

    between(scenario)


def test_a_message_costs_its_receiver_one_step_and_no_other_any():
    messages = 100

    async def main(simulation):
        net = SimNet(simulation)
        listener = await net.party("b").listen("b", PORT, backlog=5)

        async def echo(stream):
            while data := await stream.receive_some(100):
                await stream.send_all(data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve, echo, nursery)
            near = await net.party("a").connect("b", PORT)
            before = simulation.trace.step_count
            for _ in range(messages):
                await near.send_all(b"ping")
                await near.receive_some(100)
            nursery.cancel_scope.cancel()
            return simulation.trace.step_count - before

    assert simulate(1, main)[0] <= 2 * messages + 5
