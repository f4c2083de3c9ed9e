"""How many files of one log a step of the event loop opens, however many segments the log has."""

import pytest
import trio

from barnabas.storage.memdisk import MemDisk
from barnabas.storage.retention import DELETIONS_AT_A_TIME
from barnabas.world import pacing
from tests.broker.clock import now_ms
from tests.replication.logs.cleaner_scene import BACKOFF, T0, Scene

SEGMENTS = 500
DAY_MS = 24 * 60 * 60 * 1000


class OpeningDisk(MemDisk):
    """A disk that counts the files that are opened in each step of a task."""

    opened = 0

    def open(self, *args, **kwargs):
        self.opened += 1
        return super().open(*args, **kwargs)


class SteppedScene(Scene):
    """What a thread opens belongs to no step."""

    async def in_thread(self, function, *args):
        def outside():
            before = self.disk.opened
            try:
                return function(*args)
            finally:
                self.disk.opened = before

        return await super().in_thread(outside)


class Openings(trio.abc.Instrument):
    def __init__(self, disk: OpeningDisk) -> None:
        self.disk = disk
        self.most = self.total = disk.opened = 0

    def before_task_step(self, task) -> None:
        self.disk.opened = 0

    def after_task_step(self, task) -> None:
        self.most = max(self.most, self.disk.opened)
        self.total += self.disk.opened


async def started_again(**topic) -> Scene:
    """The logs of a broker after a start, with many segments of which no timestamp is known; nothing runs yet."""
    disk = OpeningDisk(now_ms=now_ms)
    scene = SteppedScene(disk)
    async with trio.open_nursery() as nursery:
        scene.configure(cleanup_policy="delete")
        await scene.start(nursery, T0)
        for number in range(SEGMENTS):
            scene.put(T0, (b"k%d" % number, b"v"))
            scene.logs.get(T0).roll(now_ms())
        await scene.flusher.flush(scene.logs)
        nursery.cancel_scope.cancel()
    await scene.logs.close()
    again = SteppedScene(disk, log_retention_check_interval_ms="1000", log_initial_task_delay_ms="1000")
    again.configure(**topic)
    return again


LAGS = {
    "max": {"cleanup_policy": "compact", "max_compaction_lag_ms": str(DAY_MS)},
    "min": {"cleanup_policy": "compact", "min_compaction_lag_ms": "1", "min_cleanable_dirty_ratio": "1"},
}


@pytest.mark.parametrize("lag", LAGS)
async def test_the_search_for_logs_to_clean_looks_at_few_segments_in_a_step(autojump_clock, nursery, lag):
    scene = await started_again(**LAGS[lag])
    await trio.sleep(10)
    openings = Openings(scene.disk)
    trio.lowlevel.add_instrument(openings)
    await scene.start(nursery)
    await trio.sleep(BACKOFF + 1)
    trio.lowlevel.remove_instrument(openings)
    assert openings.total >= SEGMENTS
    assert openings.most <= 2 * pacing.ROWS_AT_A_TIME + 10


async def test_retention_looks_at_few_segments_in_a_step(autojump_clock, nursery):
    scene = await started_again(cleanup_policy="delete", retention_ms="1000")
    await trio.sleep(10)
    openings = Openings(scene.disk)
    await scene.start(nursery)
    trio.lowlevel.add_instrument(openings)
    await trio.sleep(10)
    trio.lowlevel.remove_instrument(openings)
    assert scene.logs.get(T0).log_start_offset == SEGMENTS
    assert openings.most <= DELETIONS_AT_A_TIME + 10
