"""Producers and open transactions after a truncation, a fresh start of the log, and a crash."""

import pytest

from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import COMMIT, TRANSACTIONAL

ENDED, OTHER = 7, 8  # producer ids: of a transaction that ends, and of a producer without transactions


def put(world, log, producer_id, sequence):
    attributes = TRANSACTIONAL if producer_id == ENDED else 0
    appended = world.append(
        log, size=20, attributes=attributes, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    assert not isinstance(appended, ErrorCode)


def begun(world, how):
    """A log with one record of an open transaction, and a snapshot behind it."""
    log = world.open()
    put(world, log, ENDED, 0)
    if how == "stopped":
        return world.restarted(log)
    log.roll(1)
    world.flush(log)
    return log


@pytest.mark.parametrize("how", ["stopped", "rolled"])
def test_a_marker_below_the_log_start_ends_the_transaction_of_a_snapshot(world, how):
    """Records are deleted up to behind the marker, and then a diverged end is cut off."""
    log = begun(world, how)
    world.append_marker(log, COMMIT, ENDED)  # at 1
    put(world, log, OTHER, 0)
    put(world, log, OTHER, 1)
    log.raise_log_start(2)
    log.truncate_to(3)
    assert log.producers.open_transactions == {}
    assert log.last_stable_offset(3) == 3


def test_a_marker_below_the_log_start_ends_a_transaction_after_a_crash(world):
    """The newest snapshot is damaged, and an older one serves."""
    log = begun(world, "rolled")
    world.append_marker(log, COMMIT, ENDED)
    put(world, log, OTHER, 0)
    log.raise_log_start(2)
    log.roll(1)
    world.flush(log)
    put(world, log, OTHER, 1)  # at 3
    world.flush(log)
    world.checkpoint(log)
    world.put(f"{3:020d}.snapshot", b"damaged")
    log = world.open()
    assert log.producers.open_transactions == {}
    assert log.last_stable_offset(4) == 4


def test_a_log_that_starts_over_knows_no_producer(world):
    """A replica that was away too long begins at the log start of its leader. Its snapshots are of before that."""
    log = world.open()
    put(world, log, OTHER, 0)
    put(world, log, ENDED, 0)
    log = world.restarted(log)
    log.truncate_fully_and_start_at(500)
    assert log.producers.open_transactions == {}
    assert log.segments.list_snapshots() == []
    put(world, log, OTHER, 499)
    assert log.last_stable_offset(501) == 501


def test_a_snapshot_from_before_the_first_segment_is_not_used(world):
    """One that a crash left behind, between the fresh start of a log and its next snapshot."""
    log = begun(world, "stopped")
    old = world.content(f"{1:020d}.snapshot")
    log.truncate_fully_and_start_at(500)
    put(world, log, OTHER, 0)
    world.flush(log)
    world.put(f"{1:020d}.snapshot", old)
    log = world.open()
    assert log.producers.open_transactions == {}
    assert log.last_stable_offset(501) == 501
