"""Partitions that move from one log directory to another while they are served (KIP-113)."""

import pytest
import trio

from barnabas.controller.image.loading import subtree
from barnabas.controller.store import paths
from barnabas.replication.logs import future_logs
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from tests.broker.clusters import until
from tests.broker.harness import CrashRecorder
from tests.broker.replica_group import Group
from tests.broker.requests import batch_of, deletion_request, placement_request, produce_request
from tests.replication.moving import TEN, directories, has_moved, move, with_directories

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER = 4  # the type of a resource that has a configuration


async def set_rate(machine, client, rate: int) -> None:
    """Bytes a second that moves may read."""
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=RATE, config_operation=0, value=str(rate))
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name=str(machine.serving.broker_id), configs=[config]
    )
    answer = await client.ask(m.IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer
    await trio.sleep(1)


async def described(client) -> dict[str, tuple[int, bool]]:
    """Log directory -> (lag, is future) of what lies there."""
    answer = await client.ask(m.DescribeLogDirsRequest(topics=None))
    return {
        row.log_dir: (each.offset_lag, each.is_future_key)
        for row in answer.results
        for topic in row.topics
        for each in topic.partitions
    }


async def slowly_moving(nursery, dirs="/a,/b", **properties):
    """A partition with ten records, of which only the first has been copied from /a to /b."""
    machine, client = await with_directories(nursery, dirs, **properties)
    await client.create_topic("t")
    for value in TEN:
        await client.produce("t", value)
    await set_rate(machine, client, 1)
    assert await move(client, "/b") == 0
    await trio.sleep(5)
    return machine, client


async def test_a_partition_moves_with_its_records_and_leaves_nothing_behind(nursery, autojump_clock):
    machine, client = await with_directories(nursery)
    await client.create_topic("t", segment_bytes="20000")
    for value in TEN:
        await client.produce("t", value)
    assert await move(client, "/b") == 0
    await has_moved(machine, "/b")
    assert directories(machine) == {"/a": ["delete"], "/b": ["current"]}
    assert await client.read_values("t") == TEN
    assert (await client.produce("t", b"goes on")).base_offset == 10
    assert await described(client) == {"/b": (0, False)}
    await trio.sleep(120)
    assert directories(machine) == {"/a": [], "/b": ["current"]}
    await machine.stop()
    client = await (await machine.start()).connect()
    assert await client.read_values("t") == [*TEN, b"goes on"]


@pytest.mark.parametrize("left", [0, 2])
async def test_a_move_and_a_crash_leave_the_producers_of_deleted_records_known(nursery, autojump_clock, left):
    machine, client = await with_directories(nursery)
    await client.create_topic("t")
    retried = batch_of(b"deleted", producer_id=7, producer_epoch=0, base_sequence=0)
    await client.ask(produce_request("t", bytearray(retried)))
    for value in TEN[:left]:
        await client.produce("t", value)
    assert (await client.ask(deletion_request(("t", 0, 1)))).topics[0].partitions[0].error_code == 0
    for path in ("/b", "/a"):
        assert await move(client, path) == 0
        await has_moved(machine, path)
        await machine.crash()
        client = await (await machine.start()).connect()
        answer = await client.ask(produce_request("t", bytearray(retried)))
        assert answer.responses[0].partition_responses[0].base_offset == 0
    assert await client.read_values("t", 1) == TEN[:left]


async def test_an_empty_partition_moves_and_back_again(nursery, autojump_clock):
    machine, client = await with_directories(nursery)
    await client.create_topic("t")
    for path in ("/b", "/a", "/b"):
        assert await move(client, path) == 0
        await has_moved(machine, path)
    assert (await client.produce("t", b"first")).base_offset == 0


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
async def test_clients_that_read_and_write_during_a_move_see_one_log(nursery, autojump_clock, flush_messages):
    properties = {"log_flush_interval_messages": flush_messages, "replica_fetch_max_bytes": "1000"}
    machine, client = await with_directories(nursery, **properties)
    await client.create_topic("t")
    other = await machine.connect()
    moved = trio.Event()
    written, seen = [], []

    async def write():
        while not moved.is_set():
            written.append(b"%d" % len(written))
            row = await client.produce("t", written[-1])
            assert (row.error_code, row.base_offset) == (0, len(written) - 1)
            await trio.sleep(0.0005)

    async def read():
        while not moved.is_set() or len(seen) < len(written):
            seen.extend(await other.read_values("t", len(seen)))
            await trio.sleep(0.001)

    async with trio.open_nursery() as tasks:
        tasks.start_soon(write)
        tasks.start_soon(read)
        await trio.sleep(0.5)
        assert await move(await machine.connect(), "/b") == 0
        await has_moved(machine, "/b")
        await trio.sleep(0.1)
        moved.set()
    assert seen == written


async def test_a_move_is_described_with_how_far_it_is_behind(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    assert directories(machine) == {"/a": ["current"], "/b": ["future"]}
    assert await described(client) == {"/a": (0, False), "/b": (9, True)}
    await set_rate(machine, client, 1_000_000_000)
    await has_moved(machine, "/b")
    assert await described(client) == {"/b": (0, False)}


async def test_to_ask_again_for_the_same_directory_changes_nothing(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    before = machine.disk.list("/b")
    assert await move(client, "/b") == 0
    assert machine.disk.list("/b") == before


async def test_a_move_is_cancelled_by_asking_for_where_the_partition_is(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    assert await move(client, "/a") == 0
    assert directories(machine) == {"/a": ["current"], "/b": ["delete"]}
    await set_rate(machine, client, 1_000_000_000)
    await trio.sleep(120)
    assert directories(machine) == {"/a": ["current"], "/b": []}
    assert await client.read_values("t") == TEN


async def test_a_move_to_a_third_directory_replaces_the_one_to_the_second(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery, "/a,/b,/c")
    assert await move(client, "/c") == 0
    assert directories(machine) == {"/a": ["current"], "/b": ["delete"], "/c": ["future"]}
    await set_rate(machine, client, 1_000_000_000)
    await has_moved(machine, "/c")
    assert await client.read_values("t") == TEN


async def test_an_unknown_directory_is_refused_and_the_move_goes_on(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    assert await move(client, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert directories(machine) == {"/a": ["current"], "/b": ["future"]}


async def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    await client.delete_topic("t")
    await trio.sleep(200)
    assert directories(machine) == {"/a": [], "/b": []}
    await client.create_topic("t")
    assert await client.read_values("t") == []


@pytest.mark.parametrize("end", ["stop", "crash"])
async def test_a_move_begins_again_after_a_restart(nursery, autojump_clock, end):
    machine, client = await slowly_moving(nursery)
    await getattr(machine, end)()
    client = await (await machine.start()).connect()
    await trio.sleep(5)
    assert directories(machine) == {"/a": ["current"], "/b": ["delete", "future"]}
    assert await described(client) == {"/a": (0, False), "/b": (9, True)}
    await set_rate(machine, client, 1_000_000_000)
    await has_moved(machine, "/b")
    assert await client.read_values("t") == TEN


@pytest.mark.parametrize("after_seconds", range(1, 30, 2))
async def test_a_broker_stops_at_whatever_point_a_move_is(nursery, autojump_clock, after_seconds):
    machine, client = await with_directories(nursery, log_flush_interval_messages="1")
    await client.create_topic("t")
    for value in TEN[:3]:
        await client.produce("t", value)
    machine.thread_seconds = 1.0
    assert await move(client, "/b") == 0
    await trio.sleep(after_seconds)
    with trio.fail_after(200):
        await machine.stop()
    machine.thread_seconds = 0.001
    client = await (await machine.start()).connect()
    await has_moved(machine, "/b")
    assert await client.read_values("t") == TEN[:3]


async def test_a_directory_that_fails_ends_the_moves_to_it_and_no_partition(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery, "/a,/b,/c")
    machine.disk.fail_next("write", path_part="/b/t-0")
    await set_rate(machine, client, 1_000_000_000)
    await trio.sleep(5)
    assert machine.broker.replicas.logs.online_directories == ["/a", "/c"]
    assert await client.read_values("t") == TEN
    assert await move(client, "/b") == ErrorCode.KAFKA_STORAGE_ERROR
    assert await move(client, "/c") == ErrorCode.KAFKA_STORAGE_ERROR  # what is offline may hold a future log of it
    assert await move(client, "/a") == 0
    await machine.crash()
    client = await (await machine.start()).connect()
    await has_moved(machine, "/b")
    assert await client.read_values("t") == TEN


async def test_a_move_that_ends_in_the_step_that_began_it_is_not_fetched(nursery, autojump_clock):
    machine, _ = await slowly_moving(nursery)
    replicas = machine.broker.replicas
    partition, moves = replicas.get("t", 0), replicas._moves
    moves.forget(partition.topic_partition)
    moves.begin(partition)
    moves.forget(partition.topic_partition)
    await trio.sleep(1)
    assert (len(moves), len(moves._fetchers)) == (0, 0)


async def test_a_partition_whose_directory_fails_moves_when_that_is_back(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    machine.disk.fail_next("write", path_part="/a/t-0")
    assert (await client.produce("t", b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await set_rate(machine, client, 1_000_000_000)
    assert directories(machine) == {"/a": ["current"], "/b": ["future"]}
    await machine.crash()
    client = await (await machine.start()).connect()
    await has_moved(machine, "/b")
    assert await client.read_values("t") == TEN


async def test_a_moved_log_begins_where_it_began(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    answer = await client.ask(deletion_request(("t", 0, 7)))
    assert answer.topics[0].partitions[0].low_watermark == 7
    await set_rate(machine, client, 1_000_000_000)
    await has_moved(machine, "/b")
    assert (await client.list_offset("t", -2)).offset == 7
    await machine.crash()
    client = await (await machine.start()).connect()
    assert (await client.list_offset("t", -2)).offset == 7
    assert await client.read_values("t", 7) == TEN[7:]


async def test_a_producer_is_known_after_a_move_though_its_records_are_gone(nursery, autojump_clock):
    machine, client = await with_directories(nursery)
    await client.create_topic("t")
    batch = batch_of(b"once", producer_id=5, producer_epoch=0, base_sequence=0)
    assert (await client.produce("t", batch)).base_offset == 0
    await client.ask(deletion_request(("t", 0, 1)))
    await move(client, "/b")
    await has_moved(machine, "/b")
    await client.produce("t", batch)
    assert (await client.list_offset("t", -1)).offset == 1


async def test_a_move_is_not_disturbed_by_a_new_leader_epoch(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    assert await client.give_role(machine, "t") == 0
    assert await client.produce("t", b"in the new epoch")
    await set_rate(machine, client, 1_000_000_000)
    await has_moved(machine, "/b")
    assert await client.read_values("t") == [*TEN, b"in the new epoch"]


@pytest.mark.parametrize(("properties", "count"), [({}, 3), ({"num_replica_alter_log_dirs_threads": "1"}, 1)])
async def test_so_many_fetchers_move_partitions_as_are_configured(nursery, autojump_clock, caplog, properties, count):
    machine, client = await with_directories(nursery, "/a,/b,/c", **properties)
    await client.create_topic("t", 9)
    await set_rate(machine, client, 1)
    caplog.set_level("INFO", logger="barnabas.replication.fetcher")
    for path in ("/a", "/b", "/c"):
        await client.ask(placement_request(path, *(("t", partition) for partition in range(9))))
    started = {record.message for record in caplog.records if record.message.endswith("follows broker 1001")}
    assert len(started) == count


# -- followers


async def slowly_moving_follower(nursery):
    """Broker 2 follows, and copies its ten records from /data to /other, of which the first is there."""
    group = await Group.start(nursery, count=2, log_dirs="/data,/other", replica_fetch_max_bytes="60")
    topic = group.topic(replicas=(1, 2))
    await topic.led_by(1)
    await topic.produce(*TEN)
    await topic.is_copied_to(2)
    await set_rate(group.machines[2], group.clients[2], 1)
    assert await move(group.clients[2], "/other") == 0
    await trio.sleep(5)
    return group, topic


async def arrived(group, topic) -> None:
    """Broker 2 may go on, and does."""
    await set_rate(group.machines[2], group.clients[2], 1_000_000_000)
    await has_moved(group.machines[2], "/other")
    expected = topic.values(1)
    topic.path = "/other/t-0"
    await until(lambda: topic.values(2) == expected)


async def test_a_follower_moves_and_follows_on(nursery, autojump_clock):
    group, topic = await slowly_moving_follower(nursery)
    await topic.produce(b"during the move")
    await arrived(group, topic)
    assert await topic.produce(b"after it", acks=-1) == [11]
    assert topic.values(2)[-2:] == [b"during the move", b"after it"]


async def test_a_follower_becomes_leader_while_it_moves(nursery, autojump_clock):
    group, topic = await slowly_moving_follower(nursery)
    await topic.led_by(2)
    await topic.produce(b"by the new leader", acks=-1)
    await arrived(group, topic)
    await topic.produce(b"and after the move", acks=-1)
    assert topic.values(2) == [*TEN, b"by the new leader", b"and after the move"]


async def test_what_is_cut_off_a_follower_is_cut_off_its_future_log(nursery, autojump_clock, monkeypatch):
    monkeypatch.setattr(future_logs, "TAIL_BYTES_MAX", 0)
    group, topic = await slowly_moving_follower(nursery)
    await topic.led_by(2, isr=[2], to=[2])
    await topic.produce(b"only here" * 1000, b"and this" * 1000)
    await set_rate(group.machines[2], group.clients[2], 10_000)
    await until(lambda: group.machines[2].broker.replicas.logs.futures.get(topic.key).log_end_offset > 10, 60)
    await set_rate(group.machines[2], group.clients[2], 0)
    future = group.machines[2].broker.replicas.logs.futures.get(topic.key)
    copied = future.log_end_offset
    await topic.led_by(1)
    await topic.produce(b"elsewhere", b"and more")
    await topic.is_copied_to(2)
    assert copied == 11
    await arrived(group, topic)
    assert topic.values(2) == [*TEN, b"elsewhere", b"and more"]


async def test_a_partition_that_leaves_this_broker_takes_its_move_along(nursery, autojump_clock):
    group, topic = await slowly_moving_follower(nursery)
    await topic.stopped_on(2, delete=True)
    assert directories(group.machines[2]) == {"/data": ["delete"], "/other": ["delete"]}
    assert len(group.machines[2].broker.moves) == 0


# -- power


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
async def test_a_power_cut_at_any_step_of_a_move_loses_nothing_that_was_promised(nursery, autojump_clock, seed):
    promised = []
    disk = CrashRecorder(range(2000), seed, promised.copy)
    disk.is_recording = False
    machine, client = await with_directories(nursery, disk=disk, log_flush_interval_messages="1")
    await client.create_topic("t")

    async def produce(value):
        assert (await client.produce("t", value)).error_code == 0
        promised.append(value)

    for value in TEN:
        await produce(value)
    disk.is_recording = True
    assert await move(client, "/b") == 0
    while "current" not in directories(machine)["/b"]:
        await produce(b"during the move")
    for _ in range(3):
        await produce(b"after the move")
    await trio.sleep(100)
    disk.is_recording = False
    await machine.stop()
    assert len(disk.left_behind) > 50
    for left, known in disk.left_behind:
        machine.disk = left
        client = await (await machine.start()).connect()
        assert (await client.read_values("t"))[: len(known)] == known
        await has_moved(machine, "/b") if directories(machine)["/b"] else None
        assert (await client.read_values("t"))[: len(known)] == known
        assert (await client.produce("t", b"goes on")).error_code == 0
        await machine.crash()


@pytest.mark.parametrize("offline", ["/a", "/b"])
async def test_an_interrupted_swap_is_completed_when_both_directories_are_back(nursery, autojump_clock, offline):
    machine, client = await slowly_moving(nursery)
    (future,) = [name for name in machine.disk.list("/b") if name.startswith("t-0")]
    await set_rate(machine, client, 1_000_000_000)
    await has_moved(machine, "/b")
    await machine.stop()
    machine.disk.rename("/b/t-0", f"/b/{future}")
    machine.disk.fail_next("list", path_part=offline)
    client = await (await machine.start()).connect()
    assert (await client.fetch("t")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await trio.sleep(120)  # longer than deleted logs stay
    assert directories(machine) == {"/a": ["delete"], "/b": ["future"]}
    await machine.stop()
    client = await (await machine.start()).connect()
    assert await client.read_values("t") == TEN
    await trio.sleep(120)
    assert directories(machine) == {"/a": [], "/b": ["current"]}


# -- copies that have outlived their log


async def forget_topic(machine, topic: str) -> None:
    """Remove the topic from the store, while this broker is down."""
    store = machine.session()
    path = paths.topic(topic)
    for node in [*await subtree(store, path), path]:
        await store.delete(node)
    await store.close()


async def test_the_copy_of_a_deleted_topic_does_not_become_the_log_of_a_later_one(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    await machine.crash()
    await forget_topic(machine, "t")
    machine.disk.fail_next("list", path_part="/a")
    client = await (await machine.start()).connect()
    topic_id = await client.create_topic("t")
    for value in TEN[:3]:
        assert (await client.produce("t", value)).error_code == 0
    await set_rate(machine, client, 1_000_000_000)
    await trio.sleep(60)
    assert machine.broker.replicas.get("t", 0).log.topic_id == topic_id
    assert directories(machine)["/b"] == ["current", "future"]
    await machine.stop()
    client = await (await machine.start()).connect()
    assert await client.read_values("t") == TEN[:3]
    assert directories(machine) == {"/a": ["delete"], "/b": ["current", "delete"]}


async def test_a_log_that_is_created_where_a_lost_one_was_going_has_nothing_of_it(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    machine.disk.fail_next("write", path_part="/a/t-0")
    assert (await client.produce("t", b"refused")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    logs, key = machine.broker.replicas.logs, TopicPartition("t", 0)
    log = await logs.create(key, bytes(range(16)), logs.futures.get(key).config)
    assert logs.futures.get(key) is None
    assert directories(machine)["/b"] == ["current", "delete"]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)


async def test_a_copy_without_the_log_that_it_was_made_from_is_put_aside(nursery, autojump_clock):
    machine, client = await slowly_moving(nursery)
    await machine.stop()
    machine.disk.remove_tree("/a/t-0")
    client = await (await machine.start()).connect()
    assert await client.read_values("t") == []
    assert directories(machine) in ({"/a": ["current"], "/b": ["stray"]}, {"/a": [], "/b": ["current", "stray"]})


async def test_a_deleted_key_stays_deleted_though_its_copy_was_interrupted_before(nursery, autojump_clock):
    machine, client = await with_directories(nursery, log_cleaner_backoff_ms="1000")
    compacted = {"cleanup_policy": "compact", "segment_bytes": "150", "min_cleanable_dirty_ratio": "0"}
    await client.create_topic("t", **compacted, delete_retention_ms="0")
    await client.produce("t", batch_of(b"secret", key=b"K"))
    for number in range(30):
        await client.produce("t", batch_of(b"v%d" % number, key=b"k%d" % number))
    await set_rate(machine, client, 20)
    assert await move(client, "/b") == 0
    await trio.sleep(5)
    assert b"secret" in content_of(machine, "/b")
    machine.disk.fail_next("write", path_part="/b/t-0")
    await trio.sleep(60)
    await client.produce("t", batch_of(None, key=b"K"))
    for number in range(12):
        await client.produce("t", batch_of(b"again", key=b"k%d" % number))
        await trio.sleep(20)
    assert b"secret" not in content_of(machine, "/a")
    await machine.stop()
    client = await (await machine.start()).connect()
    await set_rate(machine, client, 1_000_000_000)
    await has_moved(machine, "/b")
    assert b"secret" not in content_of(machine, "/b")


def content_of(machine, path: str) -> bytes:
    """All records of the logs, current and future, of partition 0 of the topic in this directory."""
    disk = machine.disk
    names = [f"{path}/{name}" for name in disk.list(path) if name.startswith("t-0") and not name.endswith("-delete")]
    files = [f"{name}/{file}" for name in names for file in disk.list(name) if file.endswith(".log")]
    return b"".join(map(disk.read_file, files))
