"""Snapshots of the producers: of each roll there is one, and no record is deleted whose producer only it remembers."""

import pytest

from barnabas.storage.disk import StorageError
from tests.storage.contents import idempotent

RETRIED = idempotent(0)  # the last batch of producer 7


def ids(log) -> list[int]:
    return sorted(log.producers.ids())


def snapshots(world) -> list[int]:
    return [int(name.partition(".")[0]) for name in world.names(".snapshot")]


def retain(world, log) -> None:
    """Retention as far as it comes without a flush."""
    while log.delete_old_segments(world.now_ms, log.log_end_offset):
        pass


def after_process_crash(world, log):
    world.checkpoint(log)
    return world.after_process_crash().open()


def test_no_segment_goes_before_the_snapshot_at_its_end_is_written(new_world):
    world = new_world(retention_bytes=0)
    log = world.open()
    world.append(log, **RETRIED)
    retain(world, log)
    assert ids(after_process_crash(world, log)) == [7]
    assert (log.log_start_offset, log.flush_demanded, log.has_unsaved_snapshots) == (0, True, True)
    world.flush(log)
    retain(world, log)
    assert (log.log_start_offset, log.has_unsaved_snapshots) == (1, False)
    found = after_process_crash(world, log)
    assert ids(found) == [7]
    assert world.append(found, **RETRIED).duplicate


@pytest.mark.parametrize("seed", range(6))
def test_after_a_deletion_a_power_failure_loses_no_producer(new_world, seed):
    world = new_world(retention_bytes=0)
    log = world.open()
    world.append(log, **RETRIED)
    retain(world, log)
    world.flush(log)
    retain(world, log)
    log.segments.remove_deleted(world.now_ms + 60_000)
    world.checkpoint(log)
    assert ids(world.after_machine_crash(seed).open()) == [7]


def four_segments(new_world, **settings):
    """A log whose last three segments were begun without a flush, each record of another producer."""
    world = new_world(segment_bytes=120, **settings)
    log = world.open()
    for producer_id in (1, 2, 3, 4):
        world.append(log, **idempotent(0, producer_id))
    return world, log


def test_one_flush_writes_the_snapshots_of_all_rolls(new_world):
    world, log = four_segments(new_world)
    world.flush(log)
    assert snapshots(world) == [1, 2, 3]
    log.raise_log_start(2)
    retain(world, log)
    assert log.segments[0].base_offset == 2
    assert ids(after_process_crash(world, log)) == [1, 2, 3, 4]


def test_a_roll_during_a_sync_leaves_its_snapshot_to_the_next(new_world):
    world, log = four_segments(new_world)
    plan = log.flush_plan()
    log.roll(world.now_ms)
    plan.sync()
    log.flushed(plan)
    assert snapshots(world) == [1, 2, 3]
    world.flush(log)
    assert snapshots(world) == [1, 2, 3, 4]


def test_a_cut_keeps_the_unsaved_snapshots_of_what_is_left(new_world):
    world, log = four_segments(new_world, retention_bytes=0)
    log.truncate_to(2)
    assert (snapshots(world), ids(log), log.has_unsaved_snapshots) == ([1, 2], [1, 2], False)
    retain(world, log)
    assert log.log_start_offset == 2
    log = after_process_crash(world, log)
    assert ids(log) == [1, 2]
    world.append(log)
    log.truncate_to(2)
    assert ids(log) == [1, 2]


def test_a_log_that_starts_over_has_no_snapshot_of_before(new_world):
    world, log = four_segments(new_world)
    log.truncate_fully_and_start_at(3)
    world.flush(log)
    assert (snapshots(world), ids(log)) == ([], [])


def test_a_snapshot_that_a_cut_cannot_write_is_an_error(new_world):
    world, log = four_segments(new_world)
    world.disk.fail_next("write", path_part=".snapshot")
    with pytest.raises(StorageError):
        log.truncate_to(3)


def test_a_stop_writes_the_snapshots_of_all_rolls(new_world):
    world, log = four_segments(new_world)
    log = world.restarted(log)
    assert snapshots(world) == [1, 2, 3, 4]
    log.raise_log_start(2)
    retain(world, log)
    assert log.segments[0].base_offset == 2
    assert ids(after_process_crash(world, log)) == [1, 2, 3, 4]


def test_recovery_writes_the_snapshot_where_the_log_starts(new_world):
    """The segments below the log start are still there, and retention deletes them after the recovery."""
    world, log = four_segments(new_world)
    log.raise_log_start(2)
    log = after_process_crash(world, log)
    retain(world, log)
    assert log.segments[0].base_offset == 2
    log.truncate_to(2)
    assert ids(log) == [1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_begins_with_the_producers_of_what_is_not_copied(new_world, seed):
    _, log = four_segments(new_world)
    world = new_world()
    copy = world.open()
    copy.truncate_fully_and_start_at(2, log.producers.entries())
    assert (ids(copy), snapshots(world)) == ([1, 2], [2])
    world.checkpoint(copy)
    copy = world.after_machine_crash(seed).open()
    assert (copy.log_end_offset, ids(copy)) == (2, [1, 2])
    copy.truncate_fully_and_start_at(0, log.producers.entries())
    assert ids(copy) == []
