"""What requests become when they are decoded, and answers that are not read: bounded in memory, for all clients."""

import struct
import weakref
from itertools import pairwise
from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.server import decoding, dispatch
from barnabas.broker.server.connections import Connections
from barnabas.broker.server.sending import SENT_AT_A_TIME_BYTES, send
from barnabas.config.live import BrokerConfig
from barnabas.storage.disk import FileSlice
from barnabas.wire import compression
from barnabas.wire import messages as m
from barnabas.wire.frame import read_request_header
from barnabas.world.net import ConnectionLost
from barnabas.world.resting import asker
from barnabas.world.turns import LARGE_AT_A_TIME, Turns
from tests.broker.harness import Machine
from tests.broker.memnet import MemStream, Pipe
from tests.broker.requests import fetch_request, produce_request
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


def wide_join(group_id):
    """A JoinGroup that becomes the member of a group with two megabytes of protocols, and waits for its round."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="r", metadata=bytes((2 << 20) - 1000))
    return m.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_700_000,
        protocol_type="c",
        protocols=[protocol],
    )


async def of_controller(machine, count):
    """An UpdateMetadata and a LeaderAndIsr about so many partitions."""
    me, epoch = machine.serving.broker_id, await machine.controller_epoch()
    endpoint = U.UpdateMetadataEndpoint(port=9092, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
    partitions = [
        U.UpdateMetadataPartitionState(
            partition_index=each, controller_epoch=epoch, leader=me, leader_epoch=0, isr=[me], replicas=[me]
        )
        for each in range(count)
    ]
    update = U(
        controller_id=me,
        controller_epoch=epoch,
        live_brokers=[U.UpdateMetadataBroker(id=me, endpoints=[endpoint])],
        topic_states=[
            U.UpdateMetadataTopicState(topic_name="big", topic_id=bytes(15) + b"1", partition_states=partitions)
        ],
    )
    # Of an earlier controller, so it is refused, partition by partition, and leaves nothing.
    roles = [
        L.LeaderAndIsrPartitionState(
            partition_index=each, controller_epoch=epoch - 1, leader=me, leader_epoch=0, isr=[me], replicas=[me]
        )
        for each in range(count)
    ]
    leader_and_isr = L(
        controller_id=me,
        controller_epoch=epoch - 1,
        topic_states=[L.LeaderAndIsrTopicState(topic_name="big", topic_id=bytes(15) + b"1", partition_states=roles)],
    )
    return update, leader_and_isr


async def assert_others_are_served(machine, count=1500):
    """Requests of a client and of the controller that become many objects are answered within a second each."""
    update, leader_and_isr = await of_controller(machine, count)
    names = [m.MetadataRequest.MetadataRequestTopic(name=f"topic{each}") for each in range(3 * count)]
    metadata = m.MetadataRequest(topics=names, allow_auto_topic_creation=False)
    client = await machine.connect()
    for request in (metadata, update, leader_and_isr, produce_request("t", bytes(900_000))):
        with trio.fail_after(1):
            await client.ask(request)


async def test_a_controller_does_not_wait_for_threads_that_work_for_clients(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client, controller = await machine.connect(), await machine.connect()

    async def busy(function, /, *args):
        await trio.sleep_forever()

    object.__setattr__(machine.broker, "world", machine.broker.world._replace(in_request_thread=busy))
    update, leader_and_isr = await of_controller(machine, 3000)
    for request in (update, leader_and_isr):
        with trio.fail_after(1):
            await controller.ask(request)
    await client.send_frame(metadata_of(30_000))
    assert await client.is_quiet(10)
    client.close()


async def test_large_requests_that_wait_for_others_delay_no_request(nursery, autojump_clock, monkeypatch):
    monkeypatch.setattr(decoding, "LARGE_BYTES", SMALL)
    machine = await Machine(nursery, group_initial_rebalance_delay_ms="1000000").start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]))
    waiting = [await machine.connect() for _ in range(2 * LARGE_AT_A_TIME)]
    for number, each in enumerate(waiting):
        await each.send(wide_join(f"g{number}"), 3)
    await trio.sleep(1)
    await assert_others_are_served(machine)
    assert all([await each.is_quiet(0.1) for each in waiting]), "there is memory for them"


async def test_a_large_request_that_only_waits_is_closed_when_memory_is_used_up(nursery, autojump_clock):
    machine = await Machine(
        nursery, **{"socket.request.max.bytes": "5000000", "queued.max.request.bytes": "5000000"}
    ).start()
    client = await machine.connect()
    await client.create_topic("t", 5000)
    patient, waiting = await machine.connect(), await machine.connect()
    await patient.send(fetch_request([("t", 0, 0)], max_wait_ms=2**31 - 1), 12)
    await waiting.send(fetch_request([("t", each, 0) for each in range(5000)], max_wait_ms=2**31 - 1), 12)
    assert await waiting.is_quiet(10)
    half_sent = await machine.connect()
    await half_sent.send_bytes(struct.pack(">i", 4_900_000) + bytes(4_800_000))
    assert await waiting.is_closed(within_seconds=1)
    assert await half_sent.is_quiet(1)
    assert await patient.is_quiet(1)


@pytest.mark.parametrize(("is_control", "rests"), [(False, {1}), (True, {0})])
async def test_a_connection_may_be_closed_while_its_request_waits_for_its_decoding(is_control, rests):
    connection = SimpleNamespace(rests=0, rested_seconds=0.0, turn=None, spent_seconds=0.0)
    asker.set(connection)
    frame = memoryview(metadata_of(100_000))
    begun = decoding.Decoding(m.MetadataRequest(), 9, frame, read_request_header(frame).position, is_control=is_control)
    charged = decoding.Charged(SimpleNamespace(hold_decoded=lambda *_: None), connection, Turns(1))
    seen = set()

    async def in_thread(function, *arguments):
        seen.add(connection.rests)
        return function(*arguments)

    async with decoding.decoded(begun, charged, in_thread) as request:
        assert seen == rests
        assert len(request.topics) == 100_000
        assert connection.rests == 0, "its handler may change something"


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


MEMORY = {"socket.request.max.bytes": "2700000", "queued.max.request.bytes": "2700000"}


@pytest.fixture
def large_answers(monkeypatch):
    """ListGroups is answered with half a megabyte; there is MEMORY for five such answers."""
    rows = [m.ListGroupsResponse.ListedGroup(group_id="g" * 500) for _ in range(1000)]
    route = dispatch.HANDLERS[16]._replace(handle=lambda *_: m.ListGroupsResponse(groups=rows))
    monkeypatch.setitem(dispatch.HANDLERS, 16, route)
    monkeypatch.setitem(dispatch._WAITS, 16, False)


async def test_a_crowd_that_does_not_read_loses_its_own_connections(nursery, autojump_clock, large_answers):
    machine = await Machine(nursery, **MEMORY).start()
    reader, crowd, received = await machine.connect(), [await machine.connect() for _ in range(8)], 0
    for each in crowd:
        await each.send(m.ListGroupsRequest())
        await trio.sleep(1)
    began = trio.current_time()
    await reader.send(m.ListGroupsRequest())
    while received < 500_000:
        data = await reader.stream.receive_some(1 << 15)
        assert data, "the one that reads is closed"
        received += len(data)
    assert trio.current_time() - began < 1
    async with trio.open_nursery() as looking:
        lost = []
        for client in crowd:
            looking.start_soon(drained, client, lost)
    assert set(lost) == set(crowd[:4]), "those that have not read for longest"


async def test_clients_that_read_slowly_delay_no_response(nursery, autojump_clock, large_answers):
    machine = await Machine(nursery, **MEMORY).start()
    await (await machine.connect()).create_topic("t")

    async def attack():
        while True:
            client = await machine.connect()
            try:
                await client.send(m.ListGroupsRequest())
                for _ in range(14):
                    await client.stream.receive_some(18_000)
                    await trio.sleep(1.9)
            except ConnectionLost:
                pass
            client.close()

    async with trio.open_nursery() as attackers:
        for _ in range(22):
            attackers.start_soon(attack)
            await trio.sleep(0.3)
        for _ in range(6):
            await assert_others_are_served(machine)
            await trio.sleep(10)
        attackers.cancel_scope.cancel()


async def drained(client, lost):
    """Read what comes; note a connection that ends before the answer does."""
    try:
        await client.receive()
    except ConnectionLost:
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
    connections = Connections(BrokerConfig({"log.dirs": "/data"}), 1 << 30)
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
    connections, released, turns = Connections(BrokerConfig({"log.dirs": "/data"}), 1 << 30), [], []
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
