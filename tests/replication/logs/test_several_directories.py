"""A broker with several log directories: one fails or fills up, the others go on; the last one ends it."""

import trio

from barnabas.replication.logs.partition_logs import AllDirectoriesOffline
from barnabas.storage.memdisk import MemDisk
from barnabas.wire.errors import ErrorCode
from tests.broker.clock import now_ms
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, produce_many, produce_request


async def spread(machine, partitions=4):
    """Topic t over the directories, a record in each partition; partition -> directory."""
    client = await machine.connect()
    await client.create_topic("t", partitions)
    for partition in range(partitions):
        await client.produce("t", b"before", partition)
    return {
        partition: next(
            path for path in machine.properties["log.dirs"].split(",") if machine.disk.exists(f"{path}/t-{partition}")
        )
        for partition in range(partitions)
    }


async def test_a_directory_that_fails_takes_its_partitions_along_and_no_others(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    directories = await spread(machine)
    assert sorted(directories.values()) == ["/a", "/a", "/b", "/b"]
    client = await machine.connect()
    machine.disk.fail_next("write", "EIO", path_part="/b/")
    answers = await client.ask(produce_many({("t", partition): b"after" for partition in range(4)}))
    codes = {row.index: row.error_code for row in answers.responses[0].partition_responses}
    expected = {partition: 0 if path == "/a" else 56 for partition, path in directories.items()}
    assert codes == expected
    for partition, code in expected.items():
        assert (await client.fetch("t", 0, partition, max_wait_ms=0)).error_code == code
        assert (await client.list_offset("t", -1, partition)).error_code == code


async def test_waiting_fetches_are_answered_when_their_directory_fails(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    directories = await spread(machine)
    (partition, *_) = [partition for partition, path in directories.items() if path == "/b"]
    client, other = await machine.connect(), await machine.connect()
    await client.send(fetch_request([("t", partition, 1)], max_wait_ms=60_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    machine.disk.fail_next("write", "EIO", path_part="/b/")
    began = trio.current_time()
    await other.produce("t", b"after", partition)
    assert (await client.receive()).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert trio.current_time() < began + 1


async def test_new_topics_go_where_the_disk_works(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    await spread(machine)
    machine.disk.fail_next("write", "EIO", path_part="/b/")
    client = await machine.connect()
    await client.ask(produce_many({("t", partition): b"after" for partition in range(4)}))
    await client.create_topic("u", 3)
    for partition in range(3):
        assert machine.disk.exists(f"/a/u-{partition}")
        assert (await client.produce("u", b"x", partition)).error_code == 0


async def test_after_a_restart_the_partitions_of_a_failed_directory_are_there_again(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    await spread(machine)
    machine.disk.fail_next("write", "EIO", path_part="/b/")
    client = await machine.connect()
    await client.ask(produce_many({("t", partition): b"after" for partition in range(4)}))
    await machine.stop()
    client = await (await machine.start()).connect()
    for partition in range(4):
        values = await client.read_values("t", 0, partition)
        assert values[0] == b"before"
        assert (await client.produce("t", b"again", partition)).base_offset == len(values)


async def test_a_directory_that_fails_at_the_start_leaves_the_others_serving(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    directories = await spread(machine)
    await machine.stop()
    machine.disk.fail_next("list", "EIO", path_part="/b")
    client = await (await machine.start()).connect()
    for partition, path in directories.items():
        row = await client.fetch("t", 0, partition, max_wait_ms=0)
        assert row.error_code == (0 if path == "/a" else ErrorCode.KAFKA_STORAGE_ERROR)
    await machine.stop()
    client = await (await machine.start()).connect()
    assert [await client.read_values("t", 0, partition) for partition in range(4)] == [[b"before"]] * 4


async def test_the_last_directory_that_fails_ends_the_broker(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    directories = await spread(machine)
    client = await machine.connect()
    for path in ("/a", "/b"):
        assert machine.failure is None
        machine.disk.fail_next("write", "EIO", path_part=path + "/")
        (partition, *_) = [each for each, where in directories.items() if where == path]
        await client.send(produce_request("t", b"after", partition))
        await trio.sleep(1)
    await machine.ended()
    assert isinstance(machine.failure, AllDirectoriesOffline)
    assert "/a" in str(machine.failure)
    assert "/b" in str(machine.failure)


async def test_a_full_disk_refuses_records_and_loses_none(nursery, autojump_clock):
    disk = MemDisk(now_ms=now_ms)
    machine = await Machine(nursery, disk=disk, log_dirs="/a,/b").start()
    directories = await spread(machine)
    client, acknowledged = await machine.connect(), []
    disk.capacity_bytes = disk.used_bytes + 20_000
    while (row := await client.produce("t", bytes(1000), 0)).error_code == 0:
        acknowledged.append(row.base_offset)
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(acknowledged) >= 10
    other = next(each for each, path in directories.items() if path != directories[0])
    assert (await client.fetch("t", 0, other, max_wait_ms=0)).error_code == 0
    await machine.crash()
    machine.disk.capacity_bytes *= 100
    client = await (await machine.start()).connect()
    assert await client.read_values("t") == [b"before"] + [bytes(1000)] * len(acknowledged)
    assert (await client.produce("t", b"goes on")).error_code == 0
