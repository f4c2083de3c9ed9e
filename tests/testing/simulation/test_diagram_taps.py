"""What a diagram's recorder hears of messages: when each is sent, when it arrives, and how it is lost."""

import pytest
import trio

from barnabas.controller.store.paths import PartitionState
from barnabas.controller.store.store import Check, Create, Delete, NodeExists
from barnabas.testing.simulation.diagram.frames import Row
from barnabas.testing.simulation.diagram.recorder import Recorder
from barnabas.testing.simulation.diagram.recording import NO_REQUEST, UNDER_WAY
from barnabas.testing.simulation.diagram.taps import STORE_LOST, TO_CLOSED
from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.schedule import START_SECONDS, Process, simulate
from barnabas.testing.simulation.session import StoreSession
from barnabas.testing.simulation.store import STORE, StoreServer
from barnabas.wire import messages as m
from barnabas.wire.asking import request_frame
from tests.testing.simulation.connections import between


def frame(correlation_id=0):
    return request_frame(m.HeartbeatRequest(group_id="clerks", generation_id=3, member_id="K."), 4, correlation_id, "a")


def response(correlation_id=0):
    body = correlation_id.to_bytes(4, "big") + b"\0" + m.encode(m.HeartbeatResponse(), 4)
    return len(body).to_bytes(4, "big") + body


def recorded(scenario, seed=1):
    """Run the scenario; what was heard."""
    recorder = Recorder()

    def begin(simulation, net):
        recorder.begin(lambda: simulation.clock.now - START_SECONDS, [])
        net.recorder = recorder

    between(scenario, seed, begin=begin)
    recorder.finish()
    return recorder.recording


def test_a_request_and_its_response_are_two_messages():
    async def scenario(net, near, far):
        await near.send_all(frame(5))
        await far.receive_some(1000)
        await far.send_all(response(5))
        await near.receive_some(1000)

    asked, answered = recorded(scenario).messages
    assert (asked.source, asked.target, asked.size_bytes) == ("a", "b", len(frame()))
    assert (asked.summary.api, asked.lost) == ("Heartbeat", "")
    assert asked.summary.words == "group clerks, generation 3, member K."
    assert (answered.source, answered.target, answered.answers) == ("b", "a", asked.number)
    assert asked.answers == NO_REQUEST
    assert asked.began < asked.ended <= answered.began < answered.ended


def test_a_frame_that_is_sent_in_pieces_is_one_message():
    async def scenario(net, near, far):
        for byte in frame(1) + frame(2):
            await near.send_all(bytes([byte]))
            await trio.sleep(0.01)
        await far.receive_some(1000)

    first, second = recorded(scenario).messages
    assert first.size_bytes == second.size_bytes == len(frame())
    assert first.ended - first.began > 0.01 * (len(frame()) - 1)
    assert first.ended < second.ended


def test_several_frames_in_one_piece_are_several_messages():
    async def scenario(net, near, far):
        await near.send_all(frame(1) + frame(2) + frame(3)[:10])
        await far.receive_some(1000)

    *whole, unfinished = recorded(scenario).messages
    assert [(each.lost, each.size_bytes) for each in whole] == [("", len(frame()))] * 2
    assert (unfinished.lost, unfinished.size_bytes) == (UNDER_WAY, 10)


def test_a_request_without_a_response_does_not_take_that_of_the_next_one():
    async def scenario(net, near, far):
        await near.send_all(frame(1) + frame(2))
        await far.send_all(response(2))
        await near.receive_some(1000)

    assert [each.answers for each in recorded(scenario).messages] == [NO_REQUEST, NO_REQUEST, 1]


def test_messages_of_a_connection_that_is_lost_are_lost_with_its_reason():
    async def scenario(net, near, far):
        net.cut("a", "b")
        await near.send_all(frame())
        net.lose_connections("a", "b", late=False)
        await trio.sleep(30)
        net.mend("a", "b")

    (sent,) = recorded(scenario).messages
    assert (sent.lost, sent.ended) == ("connection lost", sent.began)


def test_a_message_waits_behind_a_cut_link_and_arrives_when_it_is_mended():
    async def scenario(net, near, far):
        net.cut("a", "b")
        await near.send_all(frame())
        await trio.sleep(3)
        net.mend("a", "b")
        await far.receive_some(1000)

    recording = recorded(scenario)
    (sent,) = recording.messages
    assert sent.lost == ""
    assert sent.ended - sent.began > 3
    assert [(cut.source, cut.target, cut.ended - cut.began > 2.9) for cut in recording.cuts] == [("a", "b", True)]


def test_a_cut_that_is_never_taken_back_ends_with_the_run():
    async def scenario(net, near, far):
        net.cut("b", "a")
        await trio.sleep(1)

    recording = recorded(scenario)
    assert [(cut.source, cut.target, cut.ended) for cut in recording.cuts] == [("b", "a", recording.end)]


def test_what_is_sent_into_a_dead_connection_is_lost_at_once():
    async def scenario(net, near, far):
        far.reset("this machine is off")
        await near.send_all(frame())

    (sent,) = recorded(scenario).messages
    assert (sent.lost, sent.ended) == ("this machine is off", sent.began)


def test_a_message_that_its_sender_gives_up_is_lost_then():
    async def scenario(net, near, far):
        net.cut("a", "b")
        await near.send_all(frame())
        await trio.sleep(30)

    (sent,) = recorded(scenario).messages
    assert sent.lost == "no acknowledgement"
    assert 5 < sent.ended - sent.began < 21


def test_what_reaches_a_closed_connection_is_lost():
    async def scenario(net, near, far):
        far.close()
        await near.send_all(frame())
        await trio.sleep(1)

    (sent,) = recorded(scenario).messages
    assert sent.lost == TO_CLOSED


def test_bytes_that_are_no_protocol_are_messages_that_cannot_be_read():
    async def scenario(net, near, far):
        await near.send_all(b"\xff\xff\xff\xff" + b"\0\0\0\x02hi" + b"\0\0\0\0")
        await far.receive_some(1000)

    assert [each.summary.api for each in recorded(scenario).messages] == ["unreadable"] * 3


def heard_from_a_session(scenario):
    """Run `scenario(server, session)` against the simulated metadata store; the messages, but for the first two."""
    recorder = Recorder()

    async def main(simulation):
        server = StoreServer(simulation, SimNet(simulation))
        server.recorder = recorder
        recorder.begin(lambda: simulation.clock.now - START_SECONDS, [])
        with trio.fail_after(600):
            await scenario(server, await StoreSession(server, Process("a"), 6.0).open())
        recorder.finish()

    simulate(1, main)
    begun, met, *messages = recorder.recording.messages
    assert [begun.summary.api, met.summary.api] == ["store session", "store session"]
    return messages


def test_a_session_with_the_store_says_what_it_writes_and_reads():
    async def scenario(server, session):
        await session.create("/x", b"1")
        await session.get("/x", lambda: None)
        await session.set("/x", b"2")

    messages = [each for each in heard_from_a_session(scenario) if each.summary.api != "store ping"]
    assert [(each.source, each.summary.api, each.summary.words) for each in messages] == [
        ("a", "store write", "create /x"),
        ("store", "store write", "create /x"),
        ("a", "store read", "data of /x"),
        ("store", "store read", "data of /x"),
        ("a", "store write", "set /x"),
        ("store", "store watch", "data of /x"),
        ("store", "store write", "set /x"),
    ]
    by_number = {each.number: each for each in messages}
    asked = [by_number[each.answers] for each in messages if each.answers != NO_REQUEST]
    assert asked == messages[0:6:2], "each request has one response, and the watch has none"
    assert all(each.lost == "" and each.began < each.ended for each in messages)


def test_a_write_that_the_store_refuses_says_why():
    async def scenario(server, session):
        await session.batch([Create("/x"), Create("/x"), [Check("/x", 7), Delete("/x")]])

    answers = [each for each in heard_from_a_session(scenario) if each.source == STORE]
    assert [each.summary.errors for each in answers] == [(), ("NodeExists",), ("BadVersion",)]


def test_the_state_of_a_partition_in_the_store_is_shown():
    async def scenario(server, session):
        path = "/brokers/topics/orders/partitions/0/state"
        for parent in ("/brokers", "/brokers/topics", "/brokers/topics/orders", "/brokers/topics/orders/partitions"):
            await session.create(parent)
        await session.create("/brokers/topics/orders/partitions/0")
        await session.create(path, PartitionState(2, 5, 1, (2, 3)).encode())

    *_, asked, _ = heard_from_a_session(scenario)
    assert asked.summary.rows == (Row("orders", 0, "", "leader 2, epoch 5, ISR 2,3"),)


def test_a_request_to_the_store_whose_connection_breaks_is_lost_and_sent_again():
    async def scenario(server, session):
        server.lose_next_answer("a")
        with pytest.raises(NodeExists):
            await session.create("/x", b"1", ephemeral=True)
        server.net.cut("a", STORE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.exists, "/x")
            await trio.sleep(4.5)
            server.net.mend("a", STORE)

    messages = heard_from_a_session(scenario)
    writes = [each for each in messages if each.summary.api == "store write"]
    assert [each.source for each in writes] == ["a", "a", "store"], "the first one has no answer"
    assert writes[2].answers == writes[1].number
    reads = [each for each in messages if each.summary.api == "store read"]
    assert (reads[0].lost, reads[-1].lost) == (STORE_LOST, "")
