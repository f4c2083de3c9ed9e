"""How often the periodic tasks of the logs run, for every interval that Kafka takes."""

import pytest
import trio

from barnabas.replication.logs.checkpoints import Checkpoints
from barnabas.storage.checkpoint import HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.replication.logs.logs_scene import Scene

INTERVALS = {
    "log_flush_offset_checkpoint_interval_ms": RECOVERY_POINT_CHECKPOINT,
    "log_flush_start_offset_checkpoint_interval_ms": LOG_START_CHECKPOINT,
    "replica_high_watermark_checkpoint_interval_ms": HIGH_WATERMARK_CHECKPOINT,
}


@pytest.mark.parametrize(("text", "runs"), [("60000", 10), ("0", 1)])
@pytest.mark.parametrize("interval", INTERVALS)
async def test_a_checkpoint_without_an_interval_is_written_once(
    nursery, autojump_clock, monkeypatch, interval, text, runs
):
    written = []

    async def write(checkpoints, name):
        written.append(name)
        if len(written) > 1000:  # without any pause virtual time would stand still
            await trio.sleep_forever()

    monkeypatch.setattr(Checkpoints, "write_everywhere", write)
    await Scene(**{interval: text}).start(nursery)
    await trio.sleep(600)
    assert written.count(INTERVALS[interval]) == runs


@pytest.mark.parametrize(
    "interval", ["log_flush_scheduler_interval_ms", "replica_high_watermark_checkpoint_interval_ms"]
)
async def test_an_interval_below_zero_ends_nothing(nursery, autojump_clock, interval):
    scene = await Scene(**{interval: "-1"}).start(nursery)
    await trio.sleep(600)
    assert scene.failed == []
