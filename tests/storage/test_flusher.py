"""Group commit under virtual time: which flushes share a sync, and the effects of a failed one."""

import pytest
import trio

from barnabas.storage.disk import StorageError, make_durable_directory
from barnabas.storage.flusher import Flusher
from barnabas.storage.memdisk import MemDisk
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.topics import TopicPartition

SYNC_SECONDS = 0.010


class TinyLog:
    """What the flusher needs of a log: one file, and how far it is flushed."""

    def __init__(self, disk: MemDisk, directory: str) -> None:
        make_durable_directory(disk, directory)
        self.disk = disk
        self.directory = directory
        self.topic_partition = TopicPartition(directory, 0)
        self.file = disk.open(directory + "/log", create=True)
        self.flushed_bytes = 0
        self.flush_demanded = False
        self.is_being_renamed = False
        self.flushed_at = []

    def append(self) -> int:
        self.file.write(self.file.size_bytes(), b"x")
        return self.file.size_bytes()

    def flush_plan(self):
        if self.is_being_renamed:
            return None
        return TinyPlan(self.disk, self.file) if self.file.size_bytes() > self.flushed_bytes else None

    def flushed(self, plan) -> None:
        plan.release()
        self.flushed_bytes = plan.size_bytes
        self.flushed_at.append(round(trio.current_time() * 1000))


class TinyPlan:
    def __init__(self, disk, file) -> None:
        file.retain()
        self.disk = disk
        self.file = file
        self.size_bytes = file.size_bytes()

    def sync(self) -> None:
        self.disk.open(self.file.path, read_only=True).release()  # as those of sealed segments are
        self.file.sync()

    def release(self) -> None:
        self.file.release()


class Scene:
    """A disk, a running flusher whose rounds take 10 ms, and what it reported."""

    def __init__(self) -> None:
        self.disk = MemDisk()
        self.flushed, self.failed = [], []
        self.rounds = self.running = self.running_most = 0
        self.flusher = Flusher(self.in_thread)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """The flusher's task."""
        await self.flusher.run(self.flushed.append, self.fail, task_status=task_status)

    def fail(self, log, error) -> None:
        self.failed.append((log, str(error)))

    async def in_thread(self, function, *args):
        self.rounds += 1
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        result = function(*args)
        await trio.sleep(SYNC_SECONDS)
        self.running -= 1
        return result

    def log(self, directory: str = "/d1/t-0") -> TinyLog:
        return TinyLog(self.disk, directory)


@pytest.fixture
async def scene(nursery) -> Scene:
    scene = Scene()
    await nursery.start(scene.run)
    return scene


def milliseconds() -> int:
    return round(trio.current_time() * 1000)


async def test_a_wanted_log_is_flushed_and_reported(scene, autojump_clock):
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await trio.sleep(1)
    assert (log.flushed_bytes, scene.flushed) == (1, [log])


async def test_a_round_that_is_cancelled_holds_no_file(autojump_clock):
    scene = Scene()
    log = scene.log()
    async with trio.open_nursery() as nursery:
        await nursery.start(scene.run)
        log.append()
        scene.flusher.want(log)
        await trio.sleep(SYNC_SECONDS / 2)
        nursery.cancel_scope.cancel()
    log.file.release()
    assert scene.disk.open_count == 0


async def test_a_hundred_producers_share_few_syncs(scene, autojump_clock):
    log = scene.log()

    async def produce() -> None:
        for _ in range(5):
            log.append()
            await scene.flusher.flush([log])

    async with trio.open_nursery() as producers:
        for _ in range(100):
            producers.start_soon(produce)
    assert log.flushed_bytes == 500
    assert scene.rounds == 5
    assert milliseconds() == 50


async def test_logs_that_want_a_flush_during_a_round_share_the_next_one(scene, autojump_clock):
    log, other = scene.log(), scene.log("/d1/t-1")
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)
    for _ in range(10):
        log.append()
        other.append()
        scene.flusher.want(log)
        scene.flusher.want(other)
    await trio.sleep(1)
    assert (log.flushed_at, other.flushed_at) == ([10, 20], [20])
    assert scene.rounds == 2


async def test_a_log_that_is_held_is_flushed_when_it_is_released(scene, autojump_clock):
    log, done = scene.log(), []
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)
    await scene.flusher.hold(log)
    assert milliseconds() == 10  # the sync that was under way has ended

    async def flush() -> None:
        log.append()
        await scene.flusher.flush([log])
        done.append(milliseconds())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flush)
        await trio.sleep(1)
        scene.flusher.want(log)
        await trio.sleep(1)
        assert (log.flushed_at, done) == ([10], [])
        scene.flusher.release(log)
    assert (log.flushed_at, done) == ([10, 2020], [2020])


async def test_a_log_that_is_gone_after_it_was_held_is_not_flushed(scene, autojump_clock):
    log = scene.log()
    await scene.flusher.hold(log)
    async with trio.open_nursery() as nursery:
        log.append()
        nursery.start_soon(scene.flusher.flush, [log])
        await trio.sleep(1)
        scene.flusher.release(log, is_gone=True)
    assert (log.flushed_at, scene.failed) == ([], [])


async def test_bytes_written_during_a_round_are_not_reported_by_it(scene, autojump_clock):
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)
    log.append()
    await trio.sleep(0.020)
    assert log.flushed_bytes == 1
    await scene.flusher.flush([log])
    assert log.flushed_bytes == 2


async def test_directories_do_not_wait_for_each_other(scene, autojump_clock):
    logs = [scene.log("/d1/t-0"), scene.log("/d2/t-1"), scene.log("/d1/t-2")]
    for log in logs:
        log.append()
    await scene.flusher.flush(logs)
    assert milliseconds() == 10
    assert (scene.rounds, scene.running_most) == (2, 2)


async def test_a_log_without_news_costs_no_round(scene, autojump_clock):
    await scene.flusher.flush([scene.log()])
    assert (scene.rounds, scene.flushed) == (0, [])


async def test_wants_that_came_before_the_flusher_runs_are_served(nursery, autojump_clock):
    scene = Scene()
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await nursery.start(scene.run)
    await trio.sleep(1)
    assert log.flushed_bytes == 1


async def test_a_log_that_demands_more_is_flushed_again(scene, autojump_clock):
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)
    log.append()
    log.flush_demanded = True
    await trio.sleep(0.015)
    log.flush_demanded = False
    await trio.sleep(1)
    assert (log.flushed_at, log.flushed_bytes) == ([10, 20], 2)


# -- failures


async def test_a_failed_sync_is_final_for_its_directory_and_reported_once(scene, autojump_clock):
    log, neighbour = scene.log(), scene.log("/d1/t-1")
    scene.disk.fail_next("sync", path_part="/d1/t-0")
    log.append()
    neighbour.append()
    for _ in range(3):
        scene.flusher.want(log)
        scene.flusher.want(neighbour)
        await trio.sleep(1)
    assert scene.failed == [(log, "/d1/t-0/log: EIO (sync)")]
    assert (scene.rounds, scene.flushed, log.flushed_bytes, neighbour.flushed_bytes) == (1, [], 0, 0)


async def test_other_directories_go_on_after_a_failure(scene, autojump_clock):
    log, other = scene.log("/d1/t-0"), scene.log("/d2/t-0")
    scene.disk.fail_next("sync", path_part="/d1")
    log.append()
    other.append()
    with pytest.raises(StorageError):
        await scene.flusher.flush([log, other])
    other.append()
    await scene.flusher.flush([other])
    assert (log.flushed_bytes, other.flushed_bytes) == (0, 2)


async def test_all_waiting_callers_get_the_failure(scene, autojump_clock):
    log = scene.log()
    scene.disk.fail_next("sync")
    learned = []

    async def produce(delay: float) -> None:
        await trio.sleep(delay)
        log.append()
        with pytest.raises(StorageError):
            await scene.flusher.flush([log])
        learned.append(delay)

    async with trio.open_nursery() as producers:
        for delay in (0, 0.005, 0.5):  # in the failing round, behind it, long after it
            producers.start_soon(produce, delay)
    assert sorted(learned) == [0, 0.005, 0.5]
    assert scene.rounds == 1


async def test_a_plan_that_cannot_be_made_fails_the_directory(scene, autojump_clock):
    log = scene.log()

    def flush_plan():
        raise StorageError(log.directory, "open", "EIO")

    log.flush_plan = flush_plan
    scene.flusher.want(log)
    await trio.sleep(1)
    assert scene.failed == [(log, "/d1/t-0: EIO (open)")]


async def test_a_failed_round_gives_its_files_back(scene, autojump_clock):
    logs = [scene.log(f"/d1/t-{number}") for number in range(3)]
    scene.disk.fail_next("sync", path_part="t-1")
    for log in logs:
        log.append()
        scene.flusher.want(log)
    await trio.sleep(1)
    for log in logs:
        log.file.release()
        with pytest.raises(InvariantBroken):  # that was the last reference
            log.file.release()


async def test_a_directory_that_failed_elsewhere_is_left_alone(scene, autojump_clock):
    log, other = scene.log(), scene.log("/d2/t-0")
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)  # a round runs
    log.append()
    scene.flusher.want(log)
    scene.flusher.give_up("/d1", StorageError("/d1", "write", "EIO"))
    scene.flusher.want(log)
    await trio.sleep(1)
    assert (log.flushed_bytes, scene.rounds, scene.failed) == (0, 1, [])
    other.append()
    await scene.flusher.flush([other])


# -- logs that go away


async def test_a_forgotten_log_is_flushed_no_more(scene, autojump_clock):
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await scene.flusher.forget(log)
    await trio.sleep(1)
    assert (log.flushed_bytes, scene.rounds) == (0, 0)


async def test_forgetting_waits_for_the_sync_that_runs(scene, autojump_clock):
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)
    await scene.flusher.forget(log)
    assert milliseconds() == 10
    assert scene.flushed == []
    assert scene.rounds == 1


async def test_a_log_that_is_deleted_during_its_sync_fails_no_other_log(scene, autojump_clock):
    deleted, other = scene.log("/d1/deleted-0"), scene.log("/d1/other-0")
    for log in (deleted, other):
        log.append()
        scene.flusher.want(log)
    scene.disk.fail_next("open", "ENOENT", path_part="deleted")
    await trio.sleep(0.001)
    scene.flusher.drop(deleted)
    assert milliseconds() == 1
    await scene.flusher.dropped_ended(other.topic_partition)
    assert milliseconds() == 1
    await scene.flusher.dropped_ended(deleted.topic_partition)
    assert milliseconds() == 10
    await scene.flusher.flush([other])
    assert scene.failed == []
    assert other.flushed_bytes == 1


async def test_a_forgotten_log_that_demands_a_flush_is_not_flushed_again(scene, autojump_clock):
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)
    log.flush_demanded = True
    await scene.flusher.forget(log)
    await trio.sleep(0.1)
    assert scene.rounds == 1


async def test_callers_do_not_wait_for_ever_for_a_forgotten_log(scene, nursery, autojump_clock):
    log = scene.log()
    log.append()
    scene.flusher.want(log)
    await trio.sleep(0.001)  # a round runs; the next one fills
    log.append()
    with trio.fail_after(1):
        async with trio.open_nursery() as waiters:
            waiters.start_soon(scene.flusher.flush, [log])
            await trio.sleep(0.001)
            waiters.start_soon(scene.flusher.forget, log)
    assert scene.failed == []
