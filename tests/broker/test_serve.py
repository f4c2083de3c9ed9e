"""The broker's life as its clients see it: start, restart after each kind of end, stop, listeners."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from barnabas.broker.cluster.identity import IdentityConflict
from barnabas.broker.serve import STOP_SECONDS
from barnabas.config.parse import ConfigError
from barnabas.replication.logs.directory import LogDirectoryRefused
from barnabas.storage.log import PartitionLog
from barnabas.storage.memdisk import MemDisk
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.topics import partition_for
from tests.broker.clock import now_ms
from tests.broker.harness import CrashRecorder, Machine
from tests.broker.requests import batch_of, fetch_request, produce_request


class CountingDisk(MemDisk):
    """Counts the bytes that are read of logs."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.log_bytes_read = 0

    def open(self, path, **options):
        file = super().open(path, **options)
        if path.endswith(".log"):
            read = file.read

            def counting(position, size_bytes):
                self.log_bytes_read += size_bytes
                return read(position, size_bytes)

            return Proxy(file, read=counting)
        return file


class Proxy:
    """An object with some methods of its own."""

    def __init__(self, inner, **methods) -> None:
        self.__dict__.update(methods, _inner=inner)

    def __getattr__(self, name):
        return getattr(self._inner, name)


async def filled(machine, count=30) -> list[bytes]:
    """Topic t with so many records in small segments, by an idempotent producer; their values."""
    client = await machine.connect()
    await client.create_topic("t", segment_bytes="1000")
    values = [b"value %d" % number for number in range(count)]
    for number, value in enumerate(values):
        row = await client.produce("t", batch_of(value, producer_id=7, producer_epoch=0, base_sequence=number))
        assert row.error_code == 0
    return values


# -- again on the same disk


@pytest.mark.parametrize("end", ["stop", "crash", "power cut after a sync"])
async def test_everything_is_there_again_after_a_restart(nursery, autojump_clock, end):
    machine = await Machine(nursery).start()
    values = await filled(machine)
    before = (await (await machine.connect()).metadata("t"))["t"]
    if end == "stop":
        await machine.stop()
    elif end == "crash":
        await machine.crash()
    else:
        await machine.stop()
        await machine.start()
        await machine.cut_power(seed=1)
    client = await (await machine.start()).connect()
    assert await client.read_values("t") == values
    after = (await client.metadata("t"))["t"]
    assert after.topic_id == before.topic_id
    assert after.partitions[0].leader_epoch >= before.partitions[0].leader_epoch
    again = await client.produce("t", batch_of(b"value 29", producer_id=7, producer_epoch=0, base_sequence=29))
    assert (again.error_code, again.base_offset) == (0, 29)
    assert (await client.produce("t", b"new")).base_offset == 30


@pytest.mark.parametrize("end", ["stop", "crash"])
async def test_logs_are_read_again_after_a_crash_only(nursery, autojump_clock, end):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    for _ in range(20):
        await client.produce("t", bytes(3000))
    await (machine.stop() if end == "stop" else machine.crash())
    machine.disk, before = CountingDisk(now_ms=now_ms), machine.disk
    machine.disk._root = before._root
    await machine.start()
    is_read = machine.disk.log_bytes_read > 60_000
    assert is_read is (end == "crash")


async def test_the_cluster_and_the_broker_keep_their_ids(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    first = machine.serving
    cluster_id = (await (await machine.connect()).ask(m.MetadataRequest())).cluster_id
    await machine.crash()
    await machine.start()
    assert machine.serving.broker_id == first.broker_id == 1001
    assert (await (await machine.connect()).ask(m.MetadataRequest())).cluster_id == cluster_id


async def test_producer_ids_are_never_given_twice(nursery, autojump_clock):
    machine, ids = Machine(nursery), []
    for _ in range(3):
        client = await (await machine.start()).connect()
        ids += [(await client.ask(m.InitProducerIdRequest(transactional_id=None))).producer_id for _ in range(3)]
        await machine.crash()
    assert len(set(ids)) == 9
    assert min(ids) >= 0


async def test_a_high_watermark_that_was_seen_does_not_go_back_in_a_crash_of_the_process(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    await filled(machine, 3)
    seen = (await (await machine.connect()).list_offset("t", -1)).offset
    await machine.crash()
    assert (await (await (await machine.start()).connect()).list_offset("t", -1)).offset == seen == 3


@pytest.mark.thorough
@settings(max_examples=15)
@given(moments=st.sets(st.integers(0, 129), min_size=1, max_size=5), seed=st.integers(0, 2**32))
def test_after_a_power_cut_a_broker_starts_with_a_beginning_of_each_log(moments, seed):
    trio.run(_live_and_cut_power, moments, seed, clock=MockClock(autojump_threshold=0))


async def _live_and_cut_power(moments, seed):
    written: dict[tuple[str, int], list[bytes]] = {}
    disk = CrashRecorder(moments, seed, lambda: list(written))
    async with trio.open_nursery() as nursery:
        machine = await Machine(nursery, disk=disk, log_dirs="/a,/b").start()
        client = await machine.connect()
        for topic in ("t", "u"):
            await client.create_topic(topic, 2, segment_bytes="200")
            for number in range(12):
                value = b"%d" % number
                written.setdefault((topic, number % 2), []).append(value)
                await client.produce(topic, value, number % 2)
        await machine.stop()
        disk.is_recording = False
        for left, known in disk.left_behind:
            machine.disk = left
            client = await (await machine.start()).connect()
            for topic, partition in known:
                values = await client.read_values(topic, 0, partition)
                assert values == written[topic, partition][: len(values)]
                assert (await client.produce(topic, b"goes on", partition)).base_offset == len(values)
            await machine.crash()
        nursery.cancel_scope.cancel()


# -- groups


async def coordinated(client):
    """Wait until the group topic is there."""
    while (await client.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0].error_code:
        await trio.sleep(0.1)


def committing(offset, metadata, group="g"):
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])
    return m.OffsetCommitRequest(group_id=group, topics=[topic])


async def committed(client, group="g"):
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    asked = m.OffsetFetchRequest(group_id=group, topics=[topic])
    while (answer := await client.ask(asked, 7)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await trio.sleep(0.1)
    (row,) = answer.topics[0].partitions
    return row.error_code, row.committed_offset, row.metadata


async def test_what_was_never_committed_is_no_error(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await client.create_topic("t")
    await coordinated(client)
    assert await committed(client, "unknown") == (0, -1, "")


@pytest.mark.parametrize("end", ["stop", "crash"])
async def test_commits_come_back_with_their_metadata_after_a_restart(nursery, autojump_clock, end):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    await coordinated(client)
    for offset in (3, 17):
        (row,) = (await client.ask(committing(offset, f"read up to {offset} \u2713"))).topics[0].partitions
        assert row.error_code == 0
    await (machine.stop() if end == "stop" else machine.crash())
    client = await (await machine.start()).connect()
    await coordinated(client)
    assert await committed(client) == (0, 17, "read up to 17 \u2713")


async def test_a_group_that_is_asked_for_is_loaded_before_the_others(nursery, autojump_clock):
    groups = [f"group-{number}" for number in range(40)]
    machine = await Machine(nursery, offsets_topic_num_partitions="20").start()
    client = await machine.connect()
    await client.create_topic("t")
    await coordinated(client)
    for group in groups:
        await client.ask(committing(3, "", group))
    await machine.stop()
    machine.thread_seconds = 10.0  # loading a partition takes two threads, one after the other
    client = await (await machine.start()).connect()
    await coordinated(client)
    for group in sorted(groups, key=lambda group: partition_for(group, 20))[-1:-4:-1]:
        began = trio.current_time()
        assert await committed(client, group) == (0, 3, "")
        assert trio.current_time() - began < 50


async def test_a_member_without_an_id_is_given_one_and_joins_with_it(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    await coordinated(client)
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"mine")
    fields = {"group_id": "g", "protocol_type": "consumer", "protocols": [protocol]}
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    first = await client.ask(m.JoinGroupRequest(**fields, **times), 5)
    assert (first.error_code, first.member_id != "") == (ErrorCode.MEMBER_ID_REQUIRED, True)
    joined = await client.ask(m.JoinGroupRequest(member_id=first.member_id, **fields, **times), 5)
    assert (joined.error_code, joined.leader, joined.generation_id) == (0, first.member_id, 1)
    assert [(member.member_id, member.metadata) for member in joined.members] == [(first.member_id, b"mine")]


# -- the ready line, and what prevents it


async def test_the_ready_line_names_broker_address_cluster_and_data(nursery, autojump_clock):
    machine = await Machine(nursery, listeners="PLAINTEXT://127.0.0.1:0", log_dirs="/a,/b").start()
    cluster_id = machine.disk.read_file("/a/meta.properties").decode().split("cluster.id=")[1].split()[0]
    expected = f"broker 1001 at PLAINTEXT://127.0.0.1:40000, cluster {cluster_id}, data /a, /b"
    assert machine.serving.ready_line.endswith(expected)


async def test_directories_in_use_refuse_a_second_broker(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    with pytest.raises(LogDirectoryRefused, match="used by another process"):
        await Machine(nursery, disk=machine.disk).start()


async def test_directories_of_another_cluster_are_refused_and_free_again(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    await machine.stop()
    with pytest.raises(IdentityConflict, match="belong to cluster"):
        await Machine(nursery, disk=machine.disk, seed=1).start()
    await machine.start()


async def test_an_address_in_use_is_reported_with_its_listener(nursery, autojump_clock):
    machine = Machine(nursery, listeners="PLAINTEXT://127.0.0.1:9092,EXTERNAL://127.0.0.1:9093")
    machine.properties["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"
    taken = await machine.net.listen("127.0.0.1", 9093, backlog=1)
    with pytest.raises(OSError, match=r"EXTERNAL://127\.0\.0\.1:9093"):
        await machine.start()
    taken.close()
    await machine.start()


async def test_a_configured_id_that_contradicts_the_directories_is_refused(nursery, autojump_clock):
    machine = await Machine(nursery, broker_id="3").start()
    await machine.stop()
    with pytest.raises(IdentityConflict, match="belong to broker 3"):
        await machine.start(broker_id="4")
    await machine.start(broker_id="3")


async def test_a_start_that_failed_after_binding_leaves_the_address_free(nursery, autojump_clock):
    machine = Machine(nursery)
    other = Machine(nursery, disk=MemDisk(), listeners="PLAINTEXT://127.0.0.1:9093", broker_id="5")
    other.net, other._open_store = machine.net, machine._open_store
    await machine.start(broker_id="5")
    with pytest.raises(Exception, match="broker id 5 is in use"):
        await other.start()
    assert list(machine.net.listeners) == [9092]


async def test_a_start_that_finds_its_port_taken_leaves_the_logs_closed(nursery, autojump_clock, caplog):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.produce("t", b"v")
    await machine.crash()
    taken = await machine.net.listen("127.0.0.1", 9092, backlog=1)
    with pytest.raises(OSError, match="cannot listen on"):
        await machine.start()
    assert machine.disk.exists("/data/.kafka_cleanshutdown")
    taken.close()
    caplog.clear()
    with caplog.at_level("INFO"):
        await machine.start()
    assert "loaded 1 logs" in caplog.text
    assert await (await machine.connect()).read_values("t") == [b"v"]


async def test_a_start_that_fails_before_the_logs_are_loaded_says_nothing_of_them(nursery, autojump_clock):
    machine = await Machine(nursery, broker_id="3").start()
    await (await machine.connect()).create_topic("t")
    await machine.crash()
    with pytest.raises(IdentityConflict):
        await machine.start(broker_id="4")
    assert not machine.disk.exists("/data/.kafka_cleanshutdown")


async def test_after_a_mistake_of_ours_the_logs_are_checked(nursery, autojump_clock, monkeypatch):
    machine = await Machine(nursery, log_flush_interval_messages="1").start()
    client = await machine.connect()
    await client.create_topic("t")

    def mistake(self):
        raise InvariantBroken("planted")

    monkeypatch.setattr(PartitionLog, "flush_plan", mistake)
    await client.send(produce_request("t", b"v"))
    await machine.ended()
    assert isinstance(machine.failure, InvariantBroken)
    assert not machine.disk.exists("/data/.kafka_cleanshutdown")


async def test_what_prevents_the_start_is_raised_as_it_is(nursery, autojump_clock):
    machine = Machine(nursery)
    other = Machine(nursery, disk=MemDisk(), listeners="PLAINTEXT://127.0.0.1:9093", broker_id="5")
    other.net, other._open_store = machine.net, machine._open_store
    await machine.start(broker_id="5")
    with pytest.raises(Exception, match="broker id 5 is in use") as caught:
        await other.start()
    assert not isinstance(caught.value, BaseExceptionGroup)


@pytest.mark.parametrize("filled_before", [False, True])
async def test_a_start_that_is_given_up_at_any_moment_leaves_everything_free(nursery, autojump_clock, filled_before):
    machine = Machine(nursery)
    if filled_before:
        await machine.start()
        await filled(machine)
        await machine.stop()
    machine.thread_seconds = 0.01
    for steps in range(12):
        with trio.CancelScope() as starting:
            nursery.start_soon(give_up, machine, steps * 0.009, starting)
            await machine.start()
        await machine.ended()
        assert machine.failure is None
        assert machine.net.listeners == {}
    client = await (await machine.start()).connect()
    assert (await client.metadata("t"))["t"].error_code == (0 if filled_before else 3)


async def give_up(machine, seconds, starting):
    await trio.sleep(seconds)
    machine.give_up()
    starting.cancel()


# -- listeners


TWO_LISTENERS = {
    "listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093",
    "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter_broker_listener_name": "INSIDE",
}


async def addresses_seen(machine, listener):
    client = await machine.connect(listener)
    metadata = await client.ask(m.MetadataRequest(topics=[]))
    coordinator = await client.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    return [(row.host, row.port) for row in (*metadata.brokers, *coordinator.coordinators)]


async def test_each_client_gets_the_addresses_of_its_own_listener(nursery, autojump_clock):
    machine = await Machine(nursery, **TWO_LISTENERS).start()
    assert await addresses_seen(machine, "INSIDE") == [("127.0.0.1", 9092)] * 2
    assert await addresses_seen(machine, "OUTSIDE") == [("127.0.0.1", 9093)] * 2


async def test_advertised_listeners_are_what_clients_get(nursery, autojump_clock):
    advertised = "INSIDE://node1.internal:19092,OUTSIDE://kafka.example.org:29092"
    machine = await Machine(nursery, **TWO_LISTENERS, advertised_listeners=advertised).start()
    assert await addresses_seen(machine, "INSIDE") == [("node1.internal", 19092)] * 2
    assert await addresses_seen(machine, "OUTSIDE") == [("kafka.example.org", 29092)] * 2
    assert advertised.replace(",", ", ") in machine.serving.ready_line


async def test_a_listener_that_is_not_advertised_has_no_broker_and_no_leader(nursery, autojump_clock):
    machine = await Machine(nursery, **TWO_LISTENERS, advertised_listeners="INSIDE://node1:19092").start()
    await (await machine.connect("INSIDE")).create_topic("t")
    client = await machine.connect("OUTSIDE")
    assert (await client.ask(m.MetadataRequest(topics=[]))).brokers == []
    topic = (await client.metadata("t"))["t"]
    assert (topic.error_code, topic.partitions[0].error_code) == (0, ErrorCode.LISTENER_NOT_FOUND)
    old = (await client.metadata("t", version=5))["t"]
    assert old.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_wildcard_address_without_a_name_for_it_is_refused(nursery, autojump_clock, monkeypatch):
    monkeypatch.setattr("barnabas.broker.serve.machine_host_name", lambda: "no-such-host.invalid")
    monkeypatch.setattr("barnabas.broker.serve.resolves", unresolved)
    machine = Machine(nursery, listeners="PLAINTEXT://:9092")
    with pytest.raises(ConfigError, match=r"set advertised\.listeners"):
        await machine.start()


async def unresolved(host):
    return False


# -- nothing to do


async def test_after_retention_and_removal_nothing_is_left_to_do(nursery, autojump_clock):
    machine = await Machine(nursery, log_retention_check_interval_ms="1000", log_initial_task_delay_ms="0").start()
    client = await machine.connect()
    await client.create_topic("t", segment_bytes="100", retention_bytes="100", file_delete_delay_ms="1000")
    for _ in range(40):
        await client.produce("t", b"value")
    await trio.sleep(100)
    assert [name for name in machine.disk.list("/data/t-0") if name.endswith(".deleted")] == []
    before = machine.threads
    await trio.sleep(100)
    assert machine.threads == before


# -- stop


async def joining(machine):
    """A client whose JoinGroup waits for the group's first rebalance."""
    client = await machine.connect()
    await client.ask(m.FindCoordinatorRequest(key="g"), 3)
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    await client.send(join, 3)
    await trio.testing.wait_all_tasks_blocked()
    return client


async def test_a_stop_lets_a_request_in_hand_finish(nursery, autojump_clock):
    machine = await Machine(nursery, group_initial_rebalance_delay_ms="2000").start()
    client, idle = await joining(machine), await machine.connect()
    began = trio.current_time()
    machine.ask_to_stop()
    assert await idle.is_closed(within_seconds=0.1)
    assert (await client.receive()).error_code == 0
    assert trio.current_time() == pytest.approx(began + 2, abs=0.1)
    await machine.ended()
    assert trio.current_time() < began + 3
    assert machine.failure is None


async def test_a_stop_gives_up_what_waits_beyond_the_deadline_and_closes_cleanly(nursery, autojump_clock):
    machine = await Machine(nursery, group_initial_rebalance_delay_ms="600000").start()
    client = await joining(machine)
    began = trio.current_time()
    await machine.stop()
    assert trio.current_time() == pytest.approx(began + STOP_SECONDS, abs=1)
    assert await client.is_closed()
    assert machine.failure is None
    assert machine.disk.exists("/data/.kafka_cleanshutdown")


async def test_a_stop_does_not_wait_for_a_fetch_that_waits_for_records(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    await client.send(fetch_request([("t", 0, 0)], max_wait_ms=4000), 12)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await machine.stop()
    assert trio.current_time() < began + 0.1
    assert await client.is_closed()


async def test_during_a_stop_no_one_new_is_let_in(nursery, autojump_clock):
    machine = await Machine(nursery, group_initial_rebalance_delay_ms="4000").start()
    await joining(machine)
    machine.ask_to_stop()
    await trio.sleep(1)
    assert machine.net.listeners == {}


async def test_a_stop_does_not_wait_for_those_who_were_not_let_in(nursery, autojump_clock):
    machine = await Machine(nursery, max_connections="1").start()
    clients = [await machine.connect() for _ in range(3)]
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await machine.stop()
    assert trio.current_time() < began + 1
    assert [await client.is_closed(within_seconds=1) for client in clients] == [True] * 3


async def test_a_broker_that_is_stopped_at_once_leaves_a_clean_disk(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    await machine.stop()
    assert machine.disk.exists("/data/.kafka_cleanshutdown")
    await machine.start()
