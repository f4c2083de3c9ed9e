"""Retention in the running broker: what a flush has to write first, and what it does if that is not possible."""

import trio

from barnabas.replication.logs.retention import FLUSH_SECONDS_MAX
from barnabas.storage.producers import Origin
from barnabas.wire.records import build_batch
from tests.replication.logs.logs_scene import MINUTE, T0, T1, Scene, now_ms

OFTEN = {"log_retention_check_interval_ms": "60000", "log_initial_task_delay_ms": "1000", "log_retention_ms": "60000"}


def append_idempotent(scene, key=T0):
    batch = build_batch([(None, b"v")], timestamp_ms=now_ms(), producer_id=7, producer_epoch=0, base_sequence=0)
    log = scene.logs.get(key)
    appended = log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT, now_ms=now_ms())
    scene.high_watermarks[key] = log.log_end_offset
    return appended


async def quiet(nursery, *keys) -> Scene:
    """Logs with one old batch of an idempotent producer, that is quiet since."""
    scene = await Scene(directories="/d1", **OFTEN).start(nursery)
    await scene.create(*keys)
    for key in keys:
        append_idempotent(scene, key)
    return scene


async def test_a_log_that_retention_emptied_knows_its_producers_after_a_crash(autojump_clock, nursery):
    scene = await quiet(nursery, T0)
    await trio.sleep(3 * MINUTE)
    log = scene.logs.get(T0)
    assert (log.log_start_offset, log.flush_demanded) == (1, False)
    again = await Scene(scene.disk.crash_process(), directories="/d1").start()
    assert append_idempotent(again).duplicate


async def test_a_shortage_while_the_producers_are_saved_delays_the_deletion(autojump_clock, nursery):
    scene = await quiet(nursery, T0)
    log = scene.logs.get(T0)
    for _ in range(10_000):
        scene.disk.fail_next("open", "EMFILE", path_part=".snapshot")
    await trio.sleep(3 * MINUTE)
    assert (log.log_start_offset, scene.failed) == (0, [])
    scene.disk.forget_faults()
    await trio.sleep(2 * MINUTE)
    assert log.log_start_offset == 1


async def test_a_flush_that_does_not_end_keeps_retention_waiting_for_a_while_only(autojump_clock, nursery):
    scene = await quiet(nursery, T0, T1)
    await scene.flusher.hold(scene.logs.get(T0))
    scene.logs.get(T0).is_being_renamed = False  # or retention would not look at the log
    await trio.sleep(2 * MINUTE + FLUSH_SECONDS_MAX)
    assert [scene.logs.get(key).log_start_offset for key in (T0, T1)] == [0, 1]
