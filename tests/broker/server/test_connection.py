"""Connections: order, limits, idleness, memory, hostile bytes; and the network of these tests beside the real one."""

import struct

import pytest
import trio

from barnabas.broker.server import dispatch
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.net import ConnectionLost
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, fetched, records_in, values_in
from tests.broker.steps import StepMeter

SMALL_MEMORY = {"socket_request_max_bytes": "100000", "queued_max_request_bytes": "100000"}


def metadata_frame(correlation_id: int, version: int = 1, rest: bytes = b"") -> bytes:
    """A Metadata request without topics, followed by `rest`."""
    return struct.pack(">hhih", 3, version, correlation_id, -1) + struct.pack(">i", 0) + rest


async def correlation_id_of(client) -> int:
    return struct.unpack_from(">i", await client.receive_frame())[0]


# -- one request after the other


async def test_answers_leave_in_the_order_of_the_requests_even_if_the_first_one_waits(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await client.create_topic("t")
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=5000), 12)
    await client.send(m.MetadataRequest(topics=[]))
    began = trio.current_time()
    assert isinstance(await client.receive(), m.FetchResponse)
    assert trio.current_time() == pytest.approx(began + 5, abs=0.1)
    assert isinstance(await client.receive(), m.MetadataResponse)


async def test_a_waiting_request_holds_up_no_other_connection(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client, other = await machine.connect(), await machine.connect()
    await client.create_topic("t")
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=5000), 12)
    began = trio.current_time()
    await other.metadata("t")
    assert trio.current_time() < began + 1


async def test_several_requests_in_one_piece_and_one_in_many_pieces_are_answered(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    frames = b"".join(struct.pack(">i", len(frame)) + frame for frame in map(metadata_frame, range(3)))
    await client.send_bytes(frames[:-7])
    assert [await correlation_id_of(client) for _ in range(2)] == [0, 1]
    for byte in frames[-7:]:
        await client.send_bytes(bytes([byte]))
        await trio.sleep(1)
    assert await correlation_id_of(client) == 2


async def test_bytes_behind_a_request_are_ignored(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await client.send_frame(metadata_frame(7, rest=b"whatever"))
    assert await correlation_id_of(client) == 7


async def test_all_topics_as_librdkafka_asks_for_them_are_answered(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await client.create_topic("t")
    body = struct.pack(">hhih", 3, 9, 5, -1) + b"\x00" + bytes.fromhex("00000000010000")
    await client.send_frame(body)
    frame = await client.receive_frame()
    assert [topic.name for topic in m.decode(m.MetadataResponse, 9, frame, 5).topics] == ["t"]


async def test_api_versions_above_ours_is_answered_in_version_0_with_its_true_range(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await client.send_frame(struct.pack(">hhi", 18, 5, 9) + b"\x00\x04abc\x00")
    frame = await client.receive_frame()
    answer = m.decode(m.ApiVersionsResponse, 0, frame, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]
    assert (await client.ask(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))).api_keys


# -- who breaks the protocol


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 2**31 - 1),
        bytes.fromhex("16030100c8010000c40303") + bytes(190),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">ihhih", 10, 9999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 13, 1, -1),
        struct.pack(">ihhih", 10, 3, -1, 1, -1),
        struct.pack(">ihhih", 10, 71, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 1, 1, 30000),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, -2),
    ],
    ids=[
        "no length",
        "negative length",
        "length three",
        "two gibibytes",
        "tls",
        "http",
        "unknown key",
        "version above",
        "version below",
        "key of another kind of cluster",
        "client id beyond the frame",
        "array beyond the frame",
        "negative count",
    ],
)
async def test_what_is_no_request_closes_its_connection_alone(nursery, autojump_clock, data):
    machine = await Machine(nursery).start()
    client, bystander = await machine.connect(), await machine.connect()
    await client.send_bytes(data)
    assert await client.is_closed(within_seconds=1)
    assert (await bystander.ask(m.MetadataRequest(topics=[]))).brokers


async def test_a_request_before_the_nonsense_is_still_answered(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    frame = metadata_frame(3)
    await client.send_bytes(struct.pack(">i", len(frame)) + frame + struct.pack(">i", -1))
    assert await correlation_id_of(client) == 3
    assert await client.is_closed(within_seconds=1)


async def test_many_tiny_frames_behind_a_waiting_request_take_no_long_step(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await client.create_topic("t")
    with StepMeter() as meter:
        await client.send(fetch_request([("t", 0, 0)], max_wait_ms=5000), 12)
        await client.send_bytes(b"\0\0\0\1x" * 12_000)
        assert isinstance(await client.receive(), m.FetchResponse)
    meter.check()


async def test_a_client_that_leaves_in_the_middle_of_a_request_is_forgotten(nursery, autojump_clock):
    machine = await Machine(nursery, max_connections="1").start()
    client = await machine.connect()
    await client.send_bytes(struct.pack(">i", 100) + b"half")
    client.close()
    assert (await (await machine.connect()).ask(m.MetadataRequest(topics=[]))).brokers


async def test_a_client_that_leaves_while_its_fetch_waits_is_forgotten_when_it_ends(nursery, autojump_clock):
    machine = await Machine(nursery, max_connections="1").start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=5000), 12)
    client.close()
    assert (await (await machine.connect()).ask(m.MetadataRequest(topics=[]))).brokers


# -- numbers and idleness


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(nursery, autojump_clock):
    machine = await Machine(nursery, connections_max_idle_ms="10000").start()
    idle, busy = await machine.connect(), await machine.connect()
    closed_at = []
    nursery.start_soon(note_when_closed, idle, closed_at)
    for _ in range(8):
        await busy.metadata("t")
        await trio.sleep(5)
    assert 10 <= closed_at[0] <= 12


async def note_when_closed(client, closed_at):
    began = trio.current_time()
    if await client.is_closed():
        closed_at.append(trio.current_time() - began)


async def test_a_connection_whose_request_waits_is_idle_after_the_same_time_as_in_kafka(nursery, autojump_clock):
    machine = await Machine(nursery, connections_max_idle_ms="10000").start()
    client = await machine.connect()
    await client.create_topic("t")
    assert (await client.fetch("t", max_wait_ms=9_000)).error_code == 0
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=60_000), 12)
    began = trio.current_time()
    assert await client.is_closed(within_seconds=30)
    assert 10 <= trio.current_time() - began <= 12


async def test_an_answer_that_leaves_slowly_but_steadily_is_not_idle(nursery, autojump_clock):
    machine = await Machine(nursery, connections_max_idle_ms="10000").start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.produce("t", bytes(900_000))
    await client.send(fetch_request([("t", 0, 0)]), 12)
    received = 0
    while received < 900_000:  # in a minute or so, a part of it every few seconds
        data = await client.stream.receive_some(1 << 16)
        assert data, "the broker closed the connection"
        received += len(data)
        await trio.sleep(5)


async def test_addresses_with_too_many_connections_are_refused(nursery, autojump_clock):
    limits = {"max_connections_per_ip": "2", "max_connections_per_ip_overrides": "10.0.0.9:1"}
    machine = await Machine(nursery, **limits).start()
    first, second, third = [await settled(machine, "10.0.0.1") for _ in range(3)]
    assert await third.is_closed(within_seconds=1)
    assert await first.is_quiet()
    assert await second.is_quiet()
    one, two = [await settled(machine, "10.0.0.9") for _ in range(2)]
    assert await two.is_closed(within_seconds=1)
    assert await one.is_quiet()
    first.close()
    await trio.testing.wait_all_tasks_blocked()
    assert await (await settled(machine, "10.0.0.1")).is_quiet()


async def settled(machine, address, *listener):
    """A connection from that address, let in or refused before the next one comes."""
    client = await machine.connect(*listener, address=address)
    await trio.testing.wait_all_tasks_blocked()
    return client


async def test_below_zero_no_connection_is_idle_for_too_long(nursery, autojump_clock):
    machine = await Machine(nursery, connections_max_idle_ms="-1").start()
    client = await machine.connect()
    assert await client.is_quiet(3600)


async def test_above_max_connections_the_quietest_client_makes_room_for_a_broker(nursery, autojump_clock):
    listeners = {
        "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093",
        "listener_security_protocol_map": "OUT:PLAINTEXT,IN:PLAINTEXT",
        "inter_broker_listener_name": "IN",
    }
    machine = await Machine(nursery, max_connections="3", **listeners).start()
    clients = [await machine.connect("OUT") for _ in range(3)]
    for client in (clients[1], clients[2], clients[0]):
        await trio.sleep(1)
        await client.metadata("t")
    for brokers in (1, 2):
        broker = await machine.connect("IN")
        await broker.metadata("t")
        assert [await client.is_closed(1) for client in clients] == [False, True, brokers == 2]
    assert not await (await machine.connect("OUT")).is_closed(1)  # it waits, as before


async def test_a_request_that_is_being_handled_is_not_cut_to_make_room(nursery, autojump_clock, monkeypatch):
    listeners = {
        "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093",
        "listener_security_protocol_map": "OUT:PLAINTEXT,IN:PLAINTEXT",
        "inter_broker_listener_name": "IN",
    }
    machine = await Machine(nursery, max_connections="2", **listeners).start()
    at_work, idle = await machine.connect("OUT"), await machine.connect("OUT")

    async def work(*_):
        await trio.sleep(10)
        return m.InitProducerIdResponse(producer_id=7, producer_epoch=0)

    monkeypatch.setitem(dispatch.HANDLERS, 22, dispatch.HANDLERS[22]._replace(handle=work))
    monkeypatch.setitem(dispatch._WAITS, 22, True)
    await at_work.send(m.InitProducerIdRequest(transactional_id=None))
    await trio.sleep(1)
    await idle.metadata("t")
    broker = await machine.connect("IN")
    await broker.metadata("t")
    assert await idle.is_closed(1), "it was heard of last, but can be closed at any time"
    assert (await at_work.receive()).producer_id == 7


async def test_above_max_connections_a_connection_waits_until_another_one_ends(nursery, autojump_clock):
    machine = await Machine(nursery, max_connections="1").start()
    first, second = [await settled(machine, "127.0.0.1") for _ in range(2)]
    await second.send(m.MetadataRequest(topics=[]))
    assert await second.is_quiet(10)
    first.close()
    assert (await second.receive()).brokers


async def test_above_max_connections_all_who_wait_get_their_turn(nursery, autojump_clock):
    machine = await Machine(nursery, max_connections="1").start()
    clients = [await machine.connect() for _ in range(4)]
    served = []
    for client in clients:
        nursery.start_soon(serve_and_close, client, served)
    await trio.sleep(10)
    assert len(served) == 4


async def test_clients_that_go_while_they_wait_leave_nothing_behind(nursery, autojump_clock):
    machine = await Machine(nursery, max_connections="1").start()
    await settled(machine, "127.0.0.1")
    before = trio.lowlevel.current_statistics().tasks_living
    for _ in range(20):
        (await machine.connect()).close()
    await trio.sleep(3)
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_no_more_wait_for_a_listener_than_its_backlog(nursery, autojump_clock, caplog):
    """Each one has a file descriptor, of which the brokers' listener must get some too."""
    caplog.set_level("INFO")
    machine = await Machine(
        nursery, listener_name_out_max_connections="1", socket_listen_backlog_size="3", **TWO_LISTENERS
    ).start()
    first, *waiting = [await settled(machine, "127.0.0.1", "OUT") for _ in range(4)]
    assert await (await machine.connect("OUT")).is_closed(1)
    assert "max.connections is reached, and socket.listen.backlog.size wait already" in caplog.text
    broker = await machine.connect("IN")
    assert (await broker.ask(m.MetadataRequest(topics=[]))).brokers
    first.close()
    served = []
    for client in waiting:
        nursery.start_soon(serve_and_close, client, served)
    await trio.sleep(10)
    assert len(served) == 3


async def serve_and_close(client, served):
    served.append(await client.ask(m.MetadataRequest(topics=[])))
    client.close()


TWO_LISTENERS = {
    "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093",
    "listener_security_protocol_map": "OUT:PLAINTEXT,IN:PLAINTEXT",
    "inter_broker_listener_name": "IN",
}


async def served_after(machine, listener, count):
    """When each of so many connections, opened at once, has its first response."""
    began, after = trio.current_time(), []

    async def ask(client):
        await client.ask(m.MetadataRequest(topics=[]))
        after.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(ask, await machine.connect(listener))
    return after


async def test_connections_above_the_rate_wait_their_turn(nursery, autojump_clock):
    # A rate is a mean over eleven seconds, and time without connections counts for ten.
    machine = await Machine(nursery, max_connection_creation_rate="2", **TWO_LISTENERS).start()
    after = await served_after(machine, "OUT", 30)
    assert after[19] == pytest.approx(0, abs=0.1)
    # Within the first ten seconds the mean does not fall, so each further one waits as long as it may: a second.
    assert after[-1] == pytest.approx(9.5, abs=1)


async def test_above_the_rate_no_more_wait_than_a_backlog_holds(nursery, autojump_clock):
    rate = {"max_connection_creation_rate": "1", "socket_listen_backlog_size": "3"}
    machine = await Machine(nursery, **rate, **TWO_LISTENERS).start()
    await served_after(machine, "OUT", 11)
    clients = [await settled(machine, "127.0.0.1", "OUT") for _ in range(6)]
    # One has its turn and three wait for theirs.
    assert [await client.is_closed(0.1) for client in clients] == [False] * 4 + [True] * 2


async def test_the_brokers_own_listener_is_exempt_and_may_have_its_own_rate(nursery, autojump_clock):
    own = {"listener_name_in_max_connection_creation_rate": "1000"}
    machine = await Machine(nursery, max_connection_creation_rate="1", **own, **TWO_LISTENERS).start()
    assert (await served_after(machine, "IN", 30))[-1] == pytest.approx(0, abs=0.1)
    own = {"listener_name_in_max_connection_creation_rate": "1"}
    machine = await Machine(nursery, **own, **TWO_LISTENERS).start()
    assert (await served_after(machine, "IN", 20))[-1] == pytest.approx(9, abs=1.5)


async def test_a_listener_may_have_fewer_connections_than_the_broker(nursery, autojump_clock):
    machine = await Machine(nursery, listener_name_out_max_connections="1", **TWO_LISTENERS).start()
    first, second = [await settled(machine, "127.0.0.1", "OUT") for _ in range(2)]
    await second.send(m.MetadataRequest(topics=[]))
    assert await second.is_quiet(10)
    assert (await (await machine.connect("IN")).ask(m.MetadataRequest(topics=[]))).brokers
    first.close()
    assert (await second.receive()).brokers


# -- memory


async def test_a_frame_above_the_limit_is_refused_when_it_is_announced(nursery, autojump_clock):
    machine = await Machine(nursery, **SMALL_MEMORY).start()
    client = await machine.connect()
    await client.send_bytes(struct.pack(">i", 100_001))
    assert await client.is_closed(within_seconds=1)


async def half_sent(machine):
    """A connection that has sent 60 kB of a frame."""
    client = await machine.connect()
    await client.send_bytes(struct.pack(">i", 90_000) + bytes(60_000))
    return client


async def test_of_half_sent_frames_that_use_up_the_memory_the_oldest_is_closed(nursery, autojump_clock, caplog):
    machine = await Machine(nursery, **SMALL_MEMORY).start()
    crowd = []
    for _ in range(3):
        crowd.append(await half_sent(machine))
        await trio.sleep(10)
    assert [await client.is_closed(within_seconds=0.1) for client in crowd] == [True, True, False]
    assert "closing the connection of 127.0.0.1: memory for requests and responses is used up" in caplog.text


@pytest.mark.parametrize("drip_seconds", [0.4, 20])
async def test_half_sent_frames_delay_no_other_client(nursery, autojump_clock, drip_seconds):
    machine = await Machine(nursery, **SMALL_MEMORY).start()
    await (await machine.connect()).create_topic("t")
    closed = []

    async def attack():
        while True:
            client = await half_sent(machine)
            try:
                for _ in range(20_000):
                    await trio.sleep(drip_seconds)
                    await client.send_bytes(b"\0")
            except ConnectionLost:
                closed.append(client)

    async with trio.open_nursery() as attackers:
        for _ in range(20):
            attackers.start_soon(attack)
        for _ in range(60):
            await trio.sleep(1)
            with trio.fail_after(1):
                assert (await (await machine.connect()).produce("t", bytes(80_000))).error_code == 0
        attackers.cancel_scope.cancel()
    assert len(closed) >= 19


async def test_slow_frames_are_not_closed_while_there_is_memory(nursery, autojump_clock):
    machine = await Machine(nursery, **SMALL_MEMORY).start()
    client, frame = await machine.connect(), metadata_frame(4)
    await client.send_bytes(struct.pack(">i", len(frame)) + frame[:-1])
    assert await client.is_quiet(90)
    await client.send_bytes(frame[-1:])
    assert await correlation_id_of(client) == 4


async def test_one_frame_of_the_largest_size_is_served_whatever_it_becomes(nursery, autojump_clock):
    machine = await Machine(nursery, **SMALL_MEMORY).start()
    client = await machine.connect()
    await client.create_topic("t")
    for _ in range(3):
        assert (await client.produce("t", bytes(99_000))).error_code == 0


# -- answers that are not read


async def slow_reader(nursery, **properties):
    """A client that asked for a megabyte and reads nothing."""
    machine = await Machine(nursery, **properties).start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.produce("t", bytes(900_000))
    await client.send(fetch_request([("t", 0, 0)]), 12)
    await trio.testing.wait_all_tasks_blocked()
    return machine, client


async def test_an_answer_waits_for_its_slow_reader(nursery, autojump_clock):
    _, client = await slow_reader(nursery)
    await trio.sleep(60)
    ((_, row),) = fetched(await client.receive())
    assert values_in(row) == [bytes(900_000)]


async def test_a_client_that_does_not_read_its_answer_is_idle(nursery, autojump_clock):
    machine, _ = await slow_reader(nursery, connections_max_idle_ms="10000", max_connections="1")
    with trio.fail_after(60):
        assert (await (await machine.connect()).ask(m.MetadataRequest(topics=[]))).brokers


async def test_files_of_an_answer_that_is_not_read_are_closed_with_its_connection(nursery, autojump_clock):
    machine, client = await slow_reader(nursery)
    client.close()
    await trio.testing.wait_all_tasks_blocked()
    before = machine.disk.used_bytes
    other = await machine.connect()
    await other.delete_topic("t")
    await trio.sleep(120)
    assert machine.disk.used_bytes < before - 900_000


async def test_a_file_that_became_shorter_than_announced_ends_the_connection_alone(nursery, autojump_clock):
    machine, client = await slow_reader(nursery)
    machine.disk.open("/data/t-0/00000000000000000000.log").truncate(500_000)
    with pytest.raises(ConnectionLost, match="it closed the connection"):
        await client.receive()
    assert (await (await machine.connect()).metadata("t"))["t"].error_code == 0


async def test_an_answer_of_many_partitions_is_whole(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await client.create_topic("t", 40)
    sizes = [100 * 2 ** (partition % 11) for partition in range(40)]
    for partition, size in enumerate(sizes):
        await client.produce("t", bytes([partition]) * size, partition)
    answer = await client.ask(fetch_request([("t", partition, 0) for partition in range(40)]), 12)
    assert [record.value for _, row in fetched(answer) for record in records_in(row)] == [
        bytes([partition]) * size for partition, size in enumerate(sizes)
    ]


# -- our own mistakes


@pytest.mark.provokes_mistakes
async def test_an_answer_that_cannot_be_encoded_costs_one_connection(nursery, autojump_clock, monkeypatch):
    machine = await Machine(nursery).start()
    client, other = await machine.connect(), await machine.connect()
    route = dispatch.HANDLERS[18]
    broken = route._replace(handle=lambda *_: m.ApiVersionsResponse(throttle_time_ms="soon"))
    monkeypatch.setitem(dispatch.HANDLERS, 18, broken)
    await client.send(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert await client.is_closed(within_seconds=1)
    assert (await other.ask(m.MetadataRequest(topics=[]))).brokers
