"""The partition log and its syncs: what may be acknowledged when, and what happens while a sync runs."""

import pytest

from barnabas.storage.disk import StorageError
from barnabas.wire.errors import InvariantBroken


def test_without_flush_settings_everything_may_be_acknowledged_at_once(world):
    log = world.open()
    world.append(log)
    assert (log.acknowledgeable_offset, log.flush_demanded, log.recovery_point) == (1, False, 0)


def test_with_flush_messages_1_nothing_is_acknowledged_before_its_sync(new_world):
    world = new_world(flush_messages=1)
    log = world.open()
    world.append(log)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (0, True)
    world.flush(log)
    assert (log.acknowledgeable_offset, log.flush_demanded, log.recovery_point) == (1, False, 1)


def test_a_log_that_starts_over_further_on_has_nothing_left_to_sync(new_world):
    world = new_world(flush_messages=1)
    log = world.open()
    world.append(log)
    log.truncate_fully_and_start_at(100)
    assert (log.acknowledgeable_offset, log.flush_demanded, log.recovery_point) == (100, False, 100)
    world.append(log)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (100, True)


def test_what_is_appended_during_a_sync_waits_for_the_next(new_world):
    world = new_world(flush_messages=1)
    log = world.open()
    world.append(log)
    plan = log.flush_plan()
    world.append(log)
    plan.sync()
    log.flushed(plan)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (1, True)
    world.flush(log)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (2, False)


def test_flush_messages_lets_so_many_be_acknowledged_unsynced(new_world):
    world = new_world(flush_messages=3)
    log = world.open()
    world.append(log)
    world.append(log)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (2, False)
    world.append(log)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (2, True)
    world.flush(log)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (3, False)


def test_flush_messages_may_change_while_the_log_is_open(world):
    log = world.open()
    world.append(log)
    world.config.flush_messages = 1
    world.append(log)
    assert (log.acknowledgeable_offset, log.flush_demanded) == (1, True)


def test_a_roll_during_a_sync_loses_nothing(new_world):
    world = new_world(flush_messages=1, segment_bytes=150)
    log = world.open()
    world.append(log)
    plan = log.flush_plan()
    world.append(log)
    world.append(log)
    plan.sync()
    log.flushed(plan)
    assert (log.acknowledgeable_offset, log.flush_demanded, log.recovery_point) == (1, True, 1)
    world.flush(log)
    assert (log.acknowledgeable_offset, log.flush_demanded, log.recovery_point) == (3, False, 3)


def test_a_sealed_segment_is_to_be_flushed(new_world):
    world = new_world(segment_bytes=150)
    log = world.open()
    for _ in range(3):
        world.append(log)
    assert log.flush_demanded
    world.flush(log)
    assert not log.flush_demanded


def test_nothing_is_planned_when_all_is_synced(world):
    log = world.open()
    world.append(log)
    world.flush(log)
    assert log.flush_plan() is None
    log.begin_leader_epoch(9)
    assert log.flush_plan() is not None


def test_the_epochs_are_in_the_file_before_the_recovery_point_passes_them(world):
    log = world.open()
    world.append(log, epoch=3)
    world.flush(log)
    assert world.content("leader-epoch-checkpoint") == b"0\n1\n3 0\n"


def test_a_truncation_during_a_sync_makes_its_plan_worthless(new_world):
    world = new_world(flush_messages=1)
    log = world.open()
    for _ in range(4):
        world.append(log)
    plan = log.flush_plan()
    log.truncate_to(1)
    world.append(log)
    plan.sync()
    log.flushed(plan)
    assert log.recovery_point <= 1
    assert log.acknowledgeable_offset <= 1


def test_segments_deleted_during_a_sync_are_no_error(new_world):
    world = new_world(retention_bytes=0)
    log = world.open()
    for _ in range(4):
        world.append(log)
    log.roll(world.now_ms)
    world.flush(log)
    world.append(log)
    plan = log.flush_plan()  # also of the segment that ends at the recovery point
    assert log.delete_old_segments(world.now_ms, 5) == 1
    log.segments.remove_deleted(world.now_ms + 60_000)
    plan.sync()
    log.flushed(plan)
    # The plan was about segments that are gone, so the next one counts.
    assert log.flush_demanded
    world.flush(log)
    assert log.recovery_point == 5


@pytest.mark.parametrize("seed", range(8))
def test_a_power_failure_after_a_deletion_leaves_what_the_recovery_point_says(new_world, seed):
    """The deletion is not durable yet: the old segments are back."""
    world = new_world(retention_bytes=0)
    log = world.open()
    world.append(log)
    world.flush(log)
    world.append(log)
    world.append(log)
    assert log.delete_old_segments(world.now_ms, 3) == 0
    world.flush(log)
    assert log.delete_old_segments(world.now_ms, 3) == 1
    recovery_point = log.recovery_point
    found = world.after_machine_crash(seed).open()
    assert found.log_end_offset >= recovery_point


def test_a_failed_sync_is_reported_and_its_file_given_back(world):
    log = world.open()
    world.append(log)
    plan = log.flush_plan()
    world.disk.fail_next("sync")
    with pytest.raises(StorageError):
        plan.sync()
    plan.release()
    log.abandon()
    with pytest.raises(InvariantBroken):
        log.segments.active.file.retain()


@pytest.mark.parametrize("seed", range(6))
def test_the_name_of_a_new_segment_is_synced_by_the_next_flush_if_one_was_dropped(new_world, seed):
    world = new_world(segment_bytes=150)
    log = world.open()
    world.append(log)
    world.flush(log)  # with the leader epoch, which would sync the directory as well
    for _ in range(2):
        world.append(log)
    log.flush_plan().release()  # its sync failed, or the log was forgotten
    world.flush(log)
    world.checkpoint(log)
    assert log.recovery_point == 3
    assert world.after_machine_crash(seed).open().log_end_offset == 3
