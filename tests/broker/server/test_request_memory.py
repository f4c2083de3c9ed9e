"""What requests become when they are decoded, and answers that are not read: bounded in memory, for all clients."""

import struct
import weakref
from itertools import pairwise
from types import SimpleNamespace

import pytest
import trio

from barnabas.broker import response_memory
from barnabas.broker.config.live import BrokerConfig
from barnabas.broker.response_memory import (
    ANSWER_BYTES_ALL,
    MAKING_MAX,
    SLOW_SECONDS,
    UNREAD_SECONDS,
    ResponseMemory,
    laggards,
)
from barnabas.broker.server import decoding, dispatch
from barnabas.broker.server.connections import STALLED_SECONDS, Connections
from barnabas.broker.server.sending import SENT_AT_A_TIME_BYTES, send
from barnabas.storage.disk import FileSlice
from barnabas.wire import compression
from barnabas.wire import messages as m
from tests.broker.harness import Machine
from tests.broker.memnet import MemStream, Pipe
from tests.broker.requests import fetch_request
from tests.wire.bombs import window_bomb

SMALL = 1 << 18  # for the limits of these tests


def metadata_of(count):
    """Metadata of so many topics that do not exist, two bytes each."""
    counted = struct.pack(">BBB", (count + 1) & 127 | 128, (count + 1) >> 7 & 127 | 128, (count + 1) >> 14)
    return struct.pack(">hhih", 3, 9, 1, -1) + b"\0" + counted + b"\1\0" * count + b"\0\0\0\0"


# -- decoding


async def test_a_request_of_many_elements_is_decoded_in_a_thread_whatever_its_kind(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client, threads_before = await machine.connect(), machine.threads
    topics = [m.ProduceRequest.TopicProduceData(name="")] * 20_000
    await client.ask(m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
    assert machine.threads > threads_before + 3


async def test_a_produce_whose_bytes_are_records_is_decoded_without_a_thread(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    threads_before = machine.threads
    assert (await client.produce("t", bytes(60_000))).error_code == 0
    assert machine.threads == threads_before


async def test_a_request_that_becomes_too_large_closes_its_connection_alone(nursery, autojump_clock, monkeypatch):
    machine = await Machine(nursery).start()
    client, bystander = await machine.connect(), await machine.connect()
    monkeypatch.setattr(decoding, "DECODED_BYTES_MAX", SMALL)
    await client.send_frame(metadata_of(30_000))
    assert await client.is_closed(within_seconds=5)
    assert (await bystander.ask(m.MetadataRequest(topics=[]))).brokers


U, F, L = m.UpdateMetadataRequest, m.FetchRequest, m.LeaderAndIsrRequest
REPLICAS = [1001, 1002, 1003]
LEGITIMATE = {
    "fetch": lambda: (F(topics=[F.FetchTopic(topic="a-topic" * 5, partitions=[F.FetchPartition()] * 1000)]), 12),
    "metadata": lambda: (
        m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="a-topic" * 5)] * 1000),
        9,
    ),
}
OF_CONTROLLERS = {
    "update metadata": lambda: (
        U(
            topic_states=[
                U.UpdateMetadataTopicState(
                    partition_states=[U.UpdateMetadataPartitionState(isr=REPLICAS, replicas=REPLICAS)] * 1000
                )
            ]
        ),
        7,
    ),
    "leader and isr": lambda: (
        L(
            topic_states=[
                L.LeaderAndIsrTopicState(
                    partition_states=[L.LeaderAndIsrPartitionState(isr=REPLICAS, replicas=REPLICAS)] * 1000
                )
            ]
        ),
        5,
    ),
}


def size_when_decoded(request, version):
    steps = m.decode_steps(type(request)(), version, m.encode(request, version), 0)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("kind", LEGITIMATE)
def test_a_client_may_ask_about_fifty_thousand_partitions(kind):
    assert size_when_decoded(*LEGITIMATE[kind]()) * 50 <= decoding.DECODED_BYTES_MAX


@pytest.mark.parametrize("kind", OF_CONTROLLERS)
def test_a_controller_may_speak_of_three_hundred_thousand_partitions(kind):
    assert size_when_decoded(*OF_CONTROLLERS[kind]()) * 300 <= decoding.CONTROLLER_BYTES_MAX


@pytest.mark.thorough
async def test_one_that_holds_much_and_only_waits_makes_room_for_the_next(nursery, autojump_clock, monkeypatch):
    machine = await Machine(nursery).start()
    monkeypatch.setattr(decoding, "LARGE_BYTES", SMALL)
    monkeypatch.setattr(decoding, "DECODED_BYTES_ALL", 2 * SMALL)
    holder, client = await machine.connect(), await machine.connect()
    await client.create_topic("t", 5000)
    await holder.send(fetch_request([("t", each, 0) for each in range(5000)], max_wait_ms=2**31 - 1), 12)
    assert await holder.is_quiet(10)
    began = trio.current_time()
    await client.send_frame(metadata_of(8000))
    assert await client.receive_frame()
    assert trio.current_time() - began <= STALLED_SECONDS + 5
    assert await holder.is_closed(within_seconds=1)


async def test_a_small_request_never_waits_for_memory_of_large_ones(nursery, autojump_clock, monkeypatch):
    machine = await Machine(nursery).start()
    monkeypatch.setattr(decoding, "LARGE_BYTES", SMALL)
    monkeypatch.setattr(decoding, "DECODED_BYTES_ALL", 0)
    large, client = await machine.connect(), await machine.connect()
    await large.send_frame(metadata_of(8000))
    assert await large.is_quiet(10)
    with trio.fail_after(1):
        assert (await client.ask(m.MetadataRequest(topics=[]))).brokers


# -- decompressing


@pytest.fixture
def windows(monkeypatch):
    """What the streams that are open hold, and the most that it ever was."""
    held = SimpleNamespace(streams=weakref.WeakSet(), most_bytes=0)

    class Watched(compression._ZstdStream):
        def read(self, size_bytes):
            held.streams.add(self)
            chunk = super().read(size_bytes)
            held.now_bytes = sum(min(each._window_bytes, each._reader.tell()) for each in held.streams)
            held.most_bytes = max(held.most_bytes, held.now_bytes)
            return chunk

    monkeypatch.setattr(compression, "_ZstdStream", Watched)
    return held


@pytest.mark.thorough
@pytest.mark.parametrize(("compression_type", "log"), [("producer", 23), ("producer", 24), ("lz4", 23)])
async def test_many_clients_with_large_windows_hold_a_few_of_them(
    nursery, autojump_clock, windows, compression_type, log
):
    machine = await Machine(nursery).start()
    client, crowd = await machine.connect(), [await machine.connect() for _ in range(40)]
    batch, codes = window_bomb(log, (1 << log) + (1 << 20)), []
    await client.create_topic("t", 1, compression_type=compression_type)

    async def produce(each):
        codes.append((await each.produce("t", batch)).error_code)

    async with trio.open_nursery() as crowding:
        for each in crowd:
            crowding.start_soon(produce, each)
    assert codes == [0] * 40
    assert windows.most_bytes < 150 << 20


async def test_many_searches_in_batches_with_large_windows_hold_a_few_of_them(nursery, autojump_clock, windows):
    machine = await Machine(nursery).start()
    client, crowd = await machine.connect(), [await machine.connect() for _ in range(40)]
    await client.create_topic("t")
    assert (await client.produce("t", window_bomb(23, 9 << 20))).error_code == 0
    windows.most_bytes, found = 0, []

    async def search(each):
        found.append((await each.list_offset("t", 1000)).offset)

    async with trio.open_nursery() as crowding:
        for each in crowd:
            crowding.start_soon(search, each)
    assert found == [0] * 40
    assert 8 << 20 <= windows.most_bytes < 150 << 20


# -- answers


def sender(answer_bytes, *, unread_seconds=0.0, seconds=0.0, is_leaving=False):
    """A connection as it is at second 100."""
    return SimpleNamespace(
        answer_bytes=answer_bytes, moved_at=100 - unread_seconds, answer_began_at=100 - seconds, is_leaving=is_leaving
    )


HALF = ANSWER_BYTES_ALL // 2
STUCK = {"unread_seconds": UNREAD_SECONDS, "seconds": UNREAD_SECONDS}


@pytest.mark.parametrize(
    ("senders", "expected"),
    [
        ([sender(HALF, **STUCK), sender(HALF, **STUCK)], []),
        ([sender(HALF, **STUCK), sender(HALF + 1, **STUCK)], [1]),
        ([sender(HALF + 9), sender(9, **STUCK), sender(HALF, **STUCK)], [2]),
        ([sender(HALF + 9), sender(HALF, seconds=SLOW_SECONDS)], [1]),
        ([sender(HALF + 9, seconds=SLOW_SECONDS), sender(HALF, **STUCK)], [1]),
        ([sender(HALF + 9), sender(HALF)], []),
        ([sender(HALF, **STUCK), sender(HALF + 1, **STUCK, is_leaving=True)], []),
    ],
    ids=["all fit", "the largest", "not who reads", "who takes long", "who reads nothing first", "just begun", "gone"],
)
def test_who_holds_back_answers_goes_when_they_do_not_fit(senders, expected):
    assert [senders.index(each) for each in laggards(senders, 100)] == expected


@pytest.fixture
def large_answers(monkeypatch):
    """ListGroups is answered with half a megabyte, and there is memory for five such answers."""
    rows = [m.ListGroupsResponse.ListedGroup(group_id="g" * 500) for _ in range(1000)]
    route = dispatch.HANDLERS[16]._replace(handle=lambda *_: m.ListGroupsResponse(groups=rows))
    monkeypatch.setitem(dispatch.HANDLERS, 16, route)
    monkeypatch.setitem(dispatch._WAITS, 16, False)
    monkeypatch.setattr(response_memory, "ANSWER_BYTES_ALL", 2_700_000)


async def test_a_crowd_that_does_not_read_costs_itself_and_no_slow_reader(nursery, autojump_clock, large_answers):
    machine = await Machine(nursery).start()
    reader, crowd, received = await machine.connect(), [await machine.connect() for _ in range(8)], 0
    await reader.send(m.ListGroupsRequest())
    for number in range(40):
        if number < len(crowd):
            await crowd[number].send(m.ListGroupsRequest())
        data = await reader.stream.receive_some(1 << 15)
        assert data, "the one that reads is closed"
        received += len(data)
        await trio.sleep(1)
        if received >= 500_000:
            break
    assert received >= 500_000
    async with trio.open_nursery() as looking:
        lost = []
        for client in crowd:
            looking.start_soon(drained, client, lost)
    assert len(lost) == 4, "the other four, and the reader, fit"


async def drained(client, lost):
    """Read what comes; note a connection that ends before the answer does."""
    try:
        await client.receive()
    except EOFError:
        lost.append(client)


async def test_a_large_answer_is_encoded_in_a_thread_though_its_question_is_small(
    nursery, autojump_clock, large_answers
):
    machine = await Machine(nursery).start()
    client, threads_before = await machine.connect(), machine.threads
    assert len((await client.ask(m.ListGroupsRequest())).groups) == 1000
    assert machine.threads > threads_before


async def test_of_an_answer_only_what_has_not_left_is_kept(nursery, autojump_clock):
    out, back, kept = Pipe(), Pipe(), []
    connections = Connections(BrokerConfig({"log.dirs": "/data"}), ResponseMemory())
    sending = await connections.admit(MemStream(back, out, "a client"), "PLAINTEXT")
    reader, pieces = MemStream(out, back, "the broker"), [bytes(1 << 16) for _ in range(10)]
    nursery.start_soon(send, connections, sending, pieces)
    for _ in range(10):
        await trio.testing.wait_all_tasks_blocked()
        kept.append((len(pieces), sending.answer_bytes))
        await reader.receive_some(1 << 16)
    assert kept == [(left, left << 16) for left in range(9, -1, -1)]


class FastReader:
    """A stream whose other side takes everything at once."""

    peer_address, sent_bytes = "a client", 0

    async def send_slice(self, piece):
        self.sent_bytes += piece.size_bytes


async def test_others_run_while_a_fast_client_takes_many_slices(autojump_clock):
    connections, released, turns = Connections(BrokerConfig({"log.dirs": "/data"}), ResponseMemory()), [], []
    file = SimpleNamespace(retain=lambda: None, release=lambda: released.append(1))
    sending = await connections.admit(FastReader(), "PLAINTEXT")

    async def look():
        while sending.stream.sent_bytes < 100 << 17:
            turns.append(sending.stream.sent_bytes)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.lowlevel.checkpoint()
        await send(connections, sending, [FileSlice(file, 0, 1 << 17) for _ in range(100)])
    assert max(after - before for before, after in pairwise(turns)) <= 2 * SENT_AT_A_TIME_BYTES
    assert len(released) == 100


async def test_large_responses_are_made_a_few_at_a_time_and_while_memory_is_left(nursery, autojump_clock):
    memory, holders, made = ResponseMemory(), [SimpleNamespace(answer_bytes=0) for _ in range(2)], []

    async def make(number):
        async with memory.room():
            made.append(number)
            await trio.sleep(1)

    for number in range(MAKING_MAX + 1):
        nursery.start_soon(make, number)
    await trio.sleep(0.5)
    assert len(made) == MAKING_MAX
    memory.hold(holders[0], ANSWER_BYTES_ALL)
    memory.hold(holders[1], 1)
    await trio.sleep(100)
    assert len(made) == MAKING_MAX, "the last one waits for memory"
    memory.hold(holders[1], 0)
    await trio.sleep(0.5)
    assert len(made) == MAKING_MAX + 1


async def test_a_response_that_waits_for_room_can_be_given_up(nursery, autojump_clock):
    memory, holder = ResponseMemory(), SimpleNamespace(answer_bytes=0)
    memory.hold(holder, ANSWER_BYTES_ALL + 1)
    for _ in range(2 * MAKING_MAX):
        with trio.move_on_after(1) as waited:
            async with memory.room():
                pass
        assert waited.cancelled_caught
    memory.hold(holder, 0)
    async with memory.room():
        pass


async def test_memory_is_awaited_no_more_when_the_connection_that_waited_is_closed(autojump_clock):
    memory, holder = decoding.DecodedMemory(), SimpleNamespace(decoded_bytes=0)
    memory.hold(holder, decoding.DECODED_BYTES_ALL)
    with trio.move_on_after(1):
        async with memory.room():
            pass
    assert not memory.is_awaited
    memory.hold(holder, 0)
    async with memory.room():
        assert not memory.is_awaited
