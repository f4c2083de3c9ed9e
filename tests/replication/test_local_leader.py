"""A broker as the leader of its own future logs: what it answers from logs that were cut, and how fast."""

from types import SimpleNamespace

import pytest
import trio

from barnabas.config.live import BrokerConfig
from barnabas.replication.local_leader import LocalLeader, Pace
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.opening import open_log
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from barnabas.wire.topics import TopicPartition
from barnabas.world.waiting import wake
from barnabas.world.world import run_inline

KEY = TopicPartition("t", 0)


class Hosted:
    """What is asked of a partition."""

    def __init__(self, log) -> None:
        self.log = log
        self.high_watermark = 0
        self.waiters = {}


def scene(*epochs: int, rate: int = 2**63 - 1):
    """A leader, and a partition whose log holds one record of each of these leader epochs."""
    log = open_log(
        MemDisk(),
        "/d/t-0",
        KEY,
        BrokerConfig().topic({}),
        recovery_point=0,
        log_start_offset=None,
        clean=True,
        now_ms=0,
    )
    partition = Hosted(log)
    for epoch in epochs:
        append(partition, epoch)
    hosted = SimpleNamespace(get=lambda topic, index: partition)
    limits = SimpleNamespace(alter_log_dirs_bytes_per_second=rate)
    return LocalLeader(lambda: hosted, SimpleNamespace(in_thread=run_inline), Pace(limits)), partition, limits


def append(partition, epoch: int) -> None:
    data = bytearray(build_batch([(None, b"v")], timestamp_ms=0, base_offset=partition.log.log_end_offset).data)
    data[12:16] = epoch.to_bytes(4, "big")
    assert not isinstance(partition.log.append_as_follower(memoryview(data), 0), ErrorCode)


async def fetch(leader, offset: int, last_epoch: int, *, max_wait_ms: int = 0):
    asked = m.FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, last_fetched_epoch=last_epoch, partition_max_bytes=100
    )
    topic = m.FetchRequest.FetchTopic(topic="t", partitions=[asked])
    request = m.FetchRequest(max_wait_ms=max_wait_ms, max_bytes=1000, topics=[topic])
    return (await leader.ask(request, 0)).responses[0].partitions[0]


async def test_what_follows_is_sent_whatever_the_role(autojump_clock):
    leader, partition, _ = scene(1, 1)
    row = await fetch(leader, 1, 1)
    assert (row.error_code, row.records) == (0, partition.log.read(1, max_bytes=100, end_offset=2).slice.read())


@pytest.mark.parametrize(
    ("offset", "last_epoch", "parted"),
    [(3, 2, (1, 2)), (3, 1, (1, 2)), (5, 3, (3, 4)), (4, 9, (3, 4)), (4, 3, (-1, -1)), (2, 1, (-1, -1))],
)
async def test_a_log_that_parted_learns_where(autojump_clock, offset, last_epoch, parted):
    leader, _, _ = scene(1, 1, 3, 3)
    row = await fetch(leader, offset, last_epoch)
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == parted


async def test_a_fetch_at_the_end_waits_for_more(autojump_clock, nursery):
    leader, partition, _ = scene(1)

    async def write():
        await trio.sleep(3)
        append(partition, 1)
        wake(partition)

    nursery.start_soon(write)
    assert (await fetch(leader, 1, 1, max_wait_ms=10_000)).records
    assert trio.current_time() == pytest.approx(3)
    assert not (await fetch(leader, 2, 1, max_wait_ms=2_000)).records
    assert trio.current_time() == pytest.approx(5)


async def test_a_log_that_is_being_cut_is_not_read(autojump_clock):
    leader, partition, _ = scene(1)
    partition.log.is_being_cut = True
    assert (await fetch(leader, 0, -1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_reading_waits_until_the_rate_allows_it_and_for_ever_at_zero(autojump_clock):
    leader, partition, limits = scene(1, rate=10)
    size_bytes = partition.log.size_bytes
    for _ in range(3):
        await fetch(leader, 0, -1)
    assert trio.current_time() == pytest.approx(2 * size_bytes / 10, abs=0.1)
    limits.alter_log_dirs_bytes_per_second = 0
    with trio.move_on_after(10_000) as patience:
        await fetch(leader, 0, -1)
    assert patience.cancelled_caught
