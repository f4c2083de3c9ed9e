"""DescribeLogDirs and AlterReplicaLogDirs: replicas and their sizes, and the directory of a new partition."""

import pytest

from barnabas.replication.logs import placement
from barnabas.storage.memdisk import MemDisk
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.clock import now_ms
from tests.broker.harness import Machine
from tests.broker.requests import placement_request

Asked = m.DescribeLogDirsRequest.DescribableLogDirTopic


async def with_two_directories(nursery, **properties):
    machine = await Machine(nursery, log_dirs="/a,/b/", **properties).start()
    return machine, await machine.connect()


async def describe(client, *topics: Asked, version: int = 4):
    """Of every directory: path -> row."""
    answer = await client.ask(m.DescribeLogDirsRequest(topics=list(topics)), version)
    assert answer.error_code == 0
    return {row.log_dir: row for row in answer.results}


async def places(client, topic: str, partitions: int) -> dict[int, str]:
    """Partition -> its directory."""
    rows = await describe(client, Asked(topic=topic, partitions=range(partitions)))
    return {
        found.partition_index: path
        for path, row in rows.items()
        for each in row.topics
        for found in each.partitions
        if each.name == topic
    }


async def alter_log_dir(client, path: str, topic: str, partition: int = 0, *, version: int = 2) -> int:
    """The error code of the one row of the answer."""
    answer = await client.ask(placement_request(path, (topic, partition)), version)
    ((row,),) = [each.partitions for each in answer.results]
    return row.error_code


# -- DescribeLogDirs


@pytest.mark.parametrize("version", range(5))
async def test_every_directory_is_reported_with_the_sizes_of_its_logs(nursery, autojump_clock, version):
    _, client = await with_two_directories(nursery)
    await client.create_topic("t", 2)
    await client.produce("t", b"v", 1)
    found = await describe(client, Asked(topic="t", partitions=[0, 1]), version=version)
    assert list(found) == ["/a", "/b"]
    sizes = {}
    for path, row in found.items():
        assert row.error_code == 0
        (topic,) = row.topics
        (log,) = topic.partitions
        assert (topic.name, log.offset_lag, log.is_future_key) == ("t", 0, False)
        sizes[log.partition_index, path] = log.partition_size
    assert sizes == {(0, "/a"): 0, (1, "/b"): 69}


async def test_version_4_tells_the_size_of_the_volume_and_what_is_free(nursery, autojump_clock):
    disk = MemDisk(capacity_bytes=10_000_000, now_ms=now_ms)
    _, client = await with_two_directories(nursery, disk=disk)
    await client.create_topic("t")
    for row in (await describe(client)).values():
        assert (row.total_bytes, row.usable_bytes) == disk.volume_bytes("/a")
        assert 0 < row.usable_bytes < 10_000_000
    for row in (await describe(client, version=3)).values():
        assert (row.total_bytes, row.usable_bytes) == (-1, -1)


async def test_many_logs_are_reported_completely(nursery, autojump_clock):
    _, client = await with_two_directories(nursery)
    await client.create_topic("t", 1100)
    assert sorted(await places(client, "t", 1100)) == list(range(1100))


async def test_a_directory_that_is_offline_says_so_and_nothing_else(nursery, autojump_clock):
    machine, client = await with_two_directories(nursery)
    await client.create_topic("t", 2)
    machine.disk.fail_next("write", path_part="/b/")
    await client.produce("t", b"v", 1)
    found = await describe(client, Asked(topic="t", partitions=[0, 1]))
    assert (found["/a"].error_code, len(found["/a"].topics)) == (0, 1)
    row = found["/b"]
    assert (row.error_code, row.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert (row.total_bytes, row.usable_bytes) == (-1, -1)


async def test_a_log_that_is_not_used_has_no_lag(nursery, autojump_clock):
    machine, client = await with_two_directories(nursery)
    await client.create_topic("t")
    await client.stop_replica(machine, "t")
    rows = await describe(client, Asked(topic="t", partitions=[0]))
    (topic,) = rows["/a"].topics
    assert topic.partitions[0].offset_lag == -1


# -- AlterReplicaLogDirs


async def test_a_request_for_a_partition_on_other_brokers_is_refused(nursery, autojump_clock):
    machine, client = await with_two_directories(nursery)
    await client.create_topic("t")
    await client.stop_replica(machine, "t")
    assert await alter_log_dir(client, "/b", "t") == ErrorCode.REPLICA_NOT_AVAILABLE


async def test_a_requested_directory_is_used_once(nursery, autojump_clock):
    _, client = await with_two_directories(nursery)
    for expected in ("/b", "/a"):
        await alter_log_dir(client, "/b", "t") if expected == "/b" else None
        await client.create_topic("t")
        assert await places(client, "t", 1) == {0: expected}
        await client.delete_topic("t")


async def test_the_last_requested_directory_counts(nursery, autojump_clock):
    _, client = await with_two_directories(nursery)
    request = placement_request("/a", ("t", 0))
    request.dirs = [*request.dirs, *placement_request("/b", ("t", 0)).dirs]
    answer = await client.ask(request)
    assert [[row.partition_index for row in topic.partitions] for topic in answer.results] == [[0]]
    await client.create_topic("t")
    assert await places(client, "t", 1) == {0: "/b"}


async def test_a_directory_must_be_called_by_its_absolute_path(nursery, autojump_clock):
    _, client = await with_two_directories(nursery)
    for path in ("/c", "b", "/b/", "/a/../b", ""):
        assert await alter_log_dir(client, path, "t") == ErrorCode.LOG_DIR_NOT_FOUND
    await client.create_topic("t")
    assert await places(client, "t", 1) == {0: "/a"}


async def test_a_partition_may_stay_where_it_is(nursery, autojump_clock):
    machine, client = await with_two_directories(nursery)
    await client.create_topic("t")
    assert await alter_log_dir(client, "/a", "t") == 0
    assert await places(client, "t", 1) == {0: "/a"}
    assert not any(name.startswith("t-0") for name in machine.disk.list("/b"))


async def test_a_request_for_an_offline_directory_is_refused(nursery, autojump_clock):
    machine, client = await with_two_directories(nursery)
    await client.create_topic("t", 2)
    machine.disk.fail_next("write", path_part="/b/")
    await client.produce("t", b"v", 1)
    assert await alter_log_dir(client, "/b", "new") == ErrorCode.KAFKA_STORAGE_ERROR
    assert await alter_log_dir(client, "/a", "t", 1) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_requested_directory_that_fails_is_not_replaced_by_another(nursery, autojump_clock):
    machine, client = await with_two_directories(nursery)
    await alter_log_dir(client, "/b", "t")
    await client.create_topic("u", 2)
    machine.disk.fail_next("write", path_part="/b/")
    await client.produce("u", b"v", 1)
    await client.create_topic("t")
    assert (await client.produce("t", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await places(client, "t", 1) == {}


async def test_a_name_too_long_for_the_directory_of_a_move_is_refused(nursery, autojump_clock):
    _, client = await with_two_directories(nursery)
    assert await alter_log_dir(client, "/b", "x" * 213, 8) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter_log_dir(client, "/b", "x" * 214, 8) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await alter_log_dir(client, "/b", "x" * 212, 100) == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_oldest_of_too_many_requested_directories_is_forgotten(nursery, autojump_clock, monkeypatch):
    monkeypatch.setattr(placement, "REQUESTED_MAX", 2)
    _, client = await with_two_directories(nursery)
    for partition in (0, 1, 0, 2):
        await alter_log_dir(client, "/b", "t", partition)
    await client.create_topic("t", 3)
    assert await places(client, "t", 3) == {0: "/b", 1: "/a", 2: "/b"}
