"""Asking another broker: in order, in time, and what happens to a connection on which something goes wrong."""

import os
import struct
from contextlib import closing, suppress

import pytest
import trio

from barnabas.client.remote import Bounds, RemotePeer
from barnabas.controller.store.paths import Endpoint
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, response_header_version
from barnabas.wire.errors import PeerLost
from barnabas.wire.frame import FrameReader, read_request_header
from barnabas.world.net import ConnectionLost, OsNet
from tests.broker.memnet import MemNet

HERE = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
SHUTDOWN = 7
ANSWER = m.ControlledShutdownResponse(error_code=0)
Row = m.ApiVersionsResponse.ApiVersion


def asked(broker_id=1):
    return m.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=5)


def frame_of(response, *, key=SHUTDOWN, version=3, correlation_id=0):
    body = m.encode(m.ResponseHeader(correlation_id=correlation_id), response_header_version(key, version))
    body += m.encode(response, version)
    return struct.pack(">i", len(body)) + body


class Other:
    """The other side: what it was asked, and how it answers: a function of a request and its header, or bytes."""

    def __init__(self, net):
        self.net = net
        self.asked = []  # broker id and version of each request
        self.streams = []
        self.answer = self.answer_well

    def answer_well(self, request, header):
        if header.api_key == API_VERSIONS_KEY:
            rows = [Row(api_key=SHUTDOWN, min_version=0, max_version=2)]
            return frame_of(
                m.ApiVersionsResponse(api_keys=rows),
                key=header.api_key,
                version=header.api_version,
                correlation_id=header.correlation_id,
            )
        return frame_of(ANSWER, version=header.api_version, correlation_id=header.correlation_id)

    async def is_closed(self, number):
        """Whether the client's end of one of the connections is."""
        with trio.fail_after(1), suppress(ConnectionLost):
            return await self.streams[number].receive_some(1) == b""
        return True

    async def run(self, task_status=trio.TASK_STATUS_IGNORED):
        await self.run_at(await self.net.listen("127.0.0.1", 9092, backlog=1), task_status)

    async def run_at(self, listener, task_status=trio.TASK_STATUS_IGNORED):
        async with trio.open_nursery() as nursery:
            task_status.started()
            await listener.serve(self._serve, nursery)

    async def _serve(self, stream):
        self.streams.append(stream)
        with suppress(ConnectionLost), closing(stream):
            await self._answer_all(stream)

    async def _answer_all(self, stream):
        reader = FrameReader(1 << 20)
        while data := await stream.receive_some(1 << 16):
            reader.feed(data)
            while (frame := reader.next_frame()) is not None:
                header = read_request_header(frame)
                request = m.decode(m.request_class(APIS[header.api_key]), header.api_version, frame, header.position)
                self.asked.append((getattr(request, "broker_id", None), header.api_version))
                answer = self.answer(request, header)
                if not isinstance(answer, bytes):
                    answer = await answer
                await stream.send_all(answer)


@pytest.fixture
def net():
    return MemNet()


@pytest.fixture
async def other(net, nursery):
    other = Other(net)
    await nursery.start(other.run)
    return other


@pytest.fixture
def peer(net):
    return RemotePeer(net, lambda: HERE, "1", {SHUTDOWN: 3}, bounds=Bounds(response_bytes=1000))


async def lost(peer, deadline_ms=1000):
    """Why an answer did not come."""
    with pytest.raises(PeerLost) as raised:
        await peer.ask(asked(), deadline_ms)
    return str(raised.value)


async def test_one_connection_carries_all_requests(autojump_clock, other, peer):
    for number in (1, 2, 3):
        assert await peer.ask(asked(number), 1000) == ANSWER
    assert other.asked == [(1, 3), (2, 3), (3, 3)]
    assert len(other.streams) == 1


async def test_those_who_ask_at_once_are_served_in_turn(autojump_clock, other, peer, nursery):
    async def slowly(request, header):
        await trio.sleep(1)
        return other.answer_well(request, header)

    other.answer = slowly
    for number in (1, 2, 3):
        nursery.start_soon(peer.ask, asked(number), 10_000)
        await trio.sleep(0.1)
    assert [number for number, _ in other.asked] == [1]
    await trio.sleep(3)
    assert [number for number, _ in other.asked] == [1, 2, 3]
    assert len(other.streams) == 1


async def test_one_that_waits_too_long_for_a_turn_leaves_the_connection_to_others(autojump_clock, other, peer, nursery):
    async def slowly(request, header):
        await trio.sleep(2)
        return other.answer_well(request, header)

    other.answer = slowly
    answers = []

    async def ask_first():
        answers.append(await peer.ask(asked(1), 10_000))

    nursery.start_soon(ask_first)
    await trio.sleep(0.1)
    assert "1000 ms" in await lost(peer)
    await trio.sleep(2)
    assert answers == [ANSWER]
    assert len(other.streams) == 1


async def test_an_answer_that_does_not_come_in_time_closes_the_connection(autojump_clock, other, peer):
    other.answer = lambda request, header: trio.sleep_forever()
    began = trio.current_time()
    assert "within 1000 ms" in await lost(peer)
    assert trio.current_time() - began == pytest.approx(1)
    assert not peer.is_connected
    other.answer = other.answer_well
    assert await peer.ask(asked(), 1000) == ANSWER
    assert len(other.streams) == 2


async def test_a_cancelled_question_leaves_no_connection_behind(autojump_clock, other, peer):
    other.answer = lambda request, header: trio.sleep_forever()
    with trio.move_on_after(1):
        await peer.ask(asked(), 10_000)
    assert not peer.is_connected
    other.answer = other.answer_well
    assert await peer.ask(asked(), 1000) == ANSWER


async def test_no_one_at_the_address_is_said_at_once(autojump_clock, net, peer):
    assert "no listener" in await lost(peer)


async def test_a_broker_that_is_unknown_is_lost(autojump_clock, net):
    assert "its address is not known" in await lost(RemotePeer(net, lambda: None, "1", {SHUTDOWN: 3}))


async def test_a_broker_that_moved_is_found_at_the_next_connect(autojump_clock, net, other):
    places = [HERE._replace(port=1), HERE]
    peer = RemotePeer(net, lambda: places.pop(0), "1", {SHUTDOWN: 3})
    await lost(peer)
    assert await peer.ask(asked(), 1000) == ANSWER


async def test_a_connection_that_the_other_side_closed_is_opened_again(autojump_clock, other, peer):
    await peer.ask(asked(), 1000)
    other.streams[0].close()
    await lost(peer)
    assert await peer.ask(asked(), 1000) == ANSWER
    assert len(other.streams) == 2


async def test_closing_ends_the_question_under_way_and_all_later_ones(autojump_clock, other, peer, nursery):
    other.answer = lambda request, header: trio.sleep_forever()
    nursery.start_soon(lost, peer, 60_000)
    await trio.sleep(1)
    peer.close()
    await trio.sleep(1)
    assert "this peer is closed" in await lost(peer)
    assert not peer.is_connected
    assert len(other.streams) == 1


async def test_a_connection_that_was_quiet_for_long_is_not_relied_on(autojump_clock, net, other):
    peer = RemotePeer(net, lambda: HERE, "1", {SHUTDOWN: 3}, bounds=Bounds(idle_seconds=60))
    for quiet_seconds in (0, 59, 61):
        await trio.sleep(quiet_seconds)
        assert await peer.ask(asked(), 1000) == ANSWER
    assert len(other.streams) == 2
    assert await other.is_closed(0)


async def test_a_connect_that_hangs_is_given_up_and_then_given_more_time(autojump_clock, net):
    class DeafNet:
        async def connect(self, host, port):
            await trio.sleep_forever()

    peer = RemotePeer(DeafNet(), lambda: HERE, "1", {SHUTDOWN: 3})
    took = []
    for _ in range(4):
        began = trio.current_time()
        assert "does not take a connection" in await lost(peer, 60_000)
        took.append(round(trio.current_time() - began))
    assert took == [10, 20, 30, 30]


async def test_a_request_about_many_partitions_is_encoded_in_a_thread(autojump_clock, net, other):
    threads = []

    async def in_thread(function, *args):
        threads.append(function.__name__)
        await trio.sleep(0.01)
        return function(*args)

    def about(count):
        states = [m.StopReplicaRequest.StopReplicaPartitionState(partition_index=index) for index in range(count)]
        topic = m.StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=states)
        return m.StopReplicaRequest(topic_states=[topic])

    other.answer = lambda request, header: frame_of(
        m.StopReplicaResponse(), key=5, version=4, correlation_id=header.correlation_id
    )
    peer = RemotePeer(net, lambda: HERE, "1", {5: 4}, in_thread=in_thread)
    for count in (1, 250, 251):
        assert await peer.ask(about(count), 1000) == m.StopReplicaResponse()
    assert threads == ["request_frame"]


# -- hostile answers


@pytest.mark.parametrize(
    "answer",
    [
        frame_of(ANSWER, correlation_id=7),  # to something that was not asked
        struct.pack(">i", 2) + b"\0\0",  # shorter than its header
        struct.pack(">i", 30) + b"\0\0\0\0\0" + b"\xff" * 25,
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 1001) + bytes(1001),  # above the limit
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_an_answer_that_makes_no_sense_closes_the_connection(autojump_clock, other, peer, answer, caplog):
    other.answer = lambda request, header: answer
    await lost(peer)
    assert not peer.is_connected
    assert "closing the connection" in caplog.text
    other.answer = other.answer_well
    assert await peer.ask(asked(), 1000) == ANSWER


async def test_what_comes_unasked_is_not_taken_for_the_next_answer(autojump_clock, other, peer):
    other.answer = lambda request, header: other.answer_well(request, header) + frame_of(ANSWER, correlation_id=9)
    assert await peer.ask(asked(), 1000) == ANSWER
    assert "correlation id 9 instead of 1" in await lost(peer)
    assert not peer.is_connected


async def test_an_answer_that_drips_is_given_up_at_the_deadline(autojump_clock, other, peer):
    async def drip(request, header):
        await other.streams[-1].send_all(struct.pack(">i", 1000))
        for _ in range(900):
            await other.streams[-1].send_all(b"\0")
            await trio.sleep(0.1)
        return b""

    other.answer = drip
    began = trio.current_time()
    await lost(peer, 5000)
    assert trio.current_time() - began == pytest.approx(5)


async def test_a_frame_that_never_ends_takes_no_more_than_what_came(autojump_clock, net, other):
    peer = RemotePeer(net, lambda: HERE, "1", {SHUTDOWN: 3}, bounds=Bounds(response_bytes=1 << 30))
    other.answer = lambda request, header: struct.pack(">i", 1 << 30) + bytes(100)
    await lost(peer)
    assert not peer.is_connected


# -- negotiated versions


async def test_versions_are_asked_once_a_connection_and_the_highest_common_one_is_used(autojump_clock, net, other):
    peer = RemotePeer(net, lambda: HERE, "1")
    assert [await peer.ask(asked(number), 1000) for number in (1, 2)] == [ANSWER, ANSWER]
    assert other.asked == [(None, 4), (1, 2), (2, 2)]


async def test_no_version_is_above_its_limit(autojump_clock, net, other):
    peer = RemotePeer(net, lambda: HERE, "1", versions_max={SHUTDOWN: 1})
    await peer.ask(asked(), 1000)
    assert other.asked == [(None, 4), (1, 1)]


async def test_a_broker_that_does_not_serve_the_request_is_lost(autojump_clock, net, other):
    peer = RemotePeer(net, lambda: HERE, "1")
    with pytest.raises(PeerLost, match=r"it does not serve AllocateProducerIds, which Apache Kafka has since 3\.0"):
        await peer.ask(m.AllocateProducerIdsRequest(), 1000)


# -- real sockets


def open_files():
    return len(os.listdir("/dev/fd"))


async def late(request, header):
    await trio.sleep(0.2)
    return frame_of(ANSWER, correlation_id=header.correlation_id)


async def test_whatever_happens_no_socket_is_left_open(nursery):
    net = OsNet()
    listener = await net.listen("127.0.0.1", 0, backlog=10)
    other = Other(net)
    await nursery.start(other.run_at, listener)
    peer = RemotePeer(net, lambda: HERE._replace(port=listener.port), "1", {SHUTDOWN: 3})
    assert await peer.ask(asked(), 10_000) == ANSWER
    peer.close()
    before = open_files()
    answers = [
        late,
        lambda request, header: struct.pack(">i", 100) + bytes(50),  # a half
        lambda request, header: frame_of(ANSWER, correlation_id=99),
        lambda request, header: b"\xff" * 1000,
    ]
    for number in range(40):
        peer = RemotePeer(net, lambda: HERE._replace(port=listener.port), "1", {SHUTDOWN: 3})
        other.answer = answers[number % len(answers)]
        with trio.move_on_after(0.02 if number % 3 else 10):
            await lost(peer, 20)
        peer.close()
    gone = RemotePeer(net, lambda: HERE._replace(port=1), "1", {SHUTDOWN: 3})
    assert "refused" in await lost(gone, 10_000)
    with trio.fail_after(10):
        while open_files() > before:  # the other side hears of it a moment later
            await trio.sleep(0.01)


async def test_a_whole_answer_of_many_megabytes_arrives(nursery):
    net = OsNet()
    listener = await net.listen("127.0.0.1", 0, backlog=10)
    other = Other(net)
    await nursery.start(other.run_at, listener)
    records = bytes(range(256)) * (5 << 12)
    row = m.FetchResponse.PartitionData(partition_index=0, records=records)
    answer = m.FetchResponse(responses=[m.FetchResponse.FetchableTopicResponse(topic="t", partitions=[row])])
    other.answer = lambda request, header: frame_of(answer, key=1, version=12, correlation_id=header.correlation_id)
    peer = RemotePeer(net, lambda: HERE._replace(port=listener.port), "1", {1: 12})
    fetched = await peer.ask(m.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[]), 60_000)
    assert fetched.responses[0].partitions[0].records == records
    peer.close()
