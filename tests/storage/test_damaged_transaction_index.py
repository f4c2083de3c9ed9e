"""A damaged .txnindex is detected wherever it is read, and rebuilt where a thread may read the log."""

import contextlib

import pytest

from barnabas.storage.cleaner import Cleaning, cleanable_part
from barnabas.storage.index import IndexCorrupt
from barnabas.wire.compression import CorruptRecords
from barnabas.wire.records import ABORT, COMMIT, TRANSACTIONAL

FIRST, SECOND = "00000000000000000000", "00000000000000000006"
ABORTED = [(7, 0), (9, 1), (7, 6)]
DAMAGES = {
    "a part of an entry": b"x" * 10,
    "an unknown version": b"\x01" * 34,
    "an offset beyond the segment": bytes(2) + (7).to_bytes(8, "big") + (0).to_bytes(8, "big") + b"\x7f" * 16,
}


@pytest.fixture
def world(new_world):
    return new_world(compacted=True, deletes=False)


def put(world, log, producer_id: int, sequence: int) -> None:
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    world.append(log, attributes=TRANSACTIONAL, **fields)


def log_of_aborted_transactions(world):
    """Two sealed segments; the transaction of producer 9 begins in the first and ends in the second."""
    log = world.open()
    put(world, log, 7, 0)
    put(world, log, 9, 0)
    world.append_marker(log, ABORT, 7)
    put(world, log, 8, 0)
    world.append_marker(log, COMMIT, 8)
    world.append(log)
    log.roll(world.now_ms)
    world.flush(log)
    put(world, log, 7, 1)
    world.append_marker(log, ABORT, 9)
    world.append_marker(log, ABORT, 7)
    log.roll(world.now_ms)
    world.append(log)
    world.flush(log)
    assert world.aborted(log, 0, log.log_end_offset) == ABORTED
    return log


@pytest.fixture(params=DAMAGES, ids=str)
def damage(request):
    return DAMAGES[request.param]


@pytest.mark.parametrize("also_gone", [None, ".index", ".snapshot"])
def test_a_clean_start_rebuilds_a_damaged_index(world, damage, also_gone):
    log = log_of_aborted_transactions(world)
    log.close(world.now_ms)
    world.checkpoint(log)
    good = world.content(f"{SECOND}.txnindex")
    for name in (FIRST, SECOND):
        world.put(f"{name}.txnindex", damage)
    if also_gone is not None:
        world.disk.remove(f"{log.directory}/{SECOND}{also_gone}")
    again = world.open(clean=True)
    assert world.aborted(again, 0, again.log_end_offset) == ABORTED
    assert world.content(f"{SECOND}.txnindex") == good


def test_a_truncation_rebuilds_a_damaged_index(world, damage):
    log = log_of_aborted_transactions(world)
    world.put(f"{SECOND}.txnindex", damage)
    log.truncate_to(8)
    assert world.aborted(log, 0, 8) == ABORTED[:2]
    world.append_marker(log, ABORT, 7)
    assert world.aborted(log, 0, 9) == ABORTED


def test_a_truncation_rebuilds_a_damaged_index_of_the_active_segment(world, damage, monkeypatch):
    """Some of its rows are in the file, the last one is in memory."""
    log = log_of_aborted_transactions(world)
    for sequence in range(2, 5):
        put(world, log, 7, sequence)
        world.append_marker(log, ABORT, 7)
    log.segments.active.save_indexes()
    put(world, log, 7, 5)
    world.append_marker(log, ABORT, 7)
    world.put(f"{log.segments.active.base_offset:020d}.txnindex", damage)
    aborted = [*ABORTED, (7, 10), (7, 12)]
    log.truncate_to(15)
    assert world.aborted(log, 0, 15) == aborted
    world.append_marker(log, ABORT, 7)
    log.close(world.now_ms)
    world.checkpoint(log)
    again = world.open(clean=True)
    assert world.aborted(again, 0, again.log_end_offset) == [*aborted, (7, 14)]


def test_compaction_rebuilds_a_damaged_index(world, damage):
    log = log_of_aborted_transactions(world)
    world.put(f"{SECOND}.txnindex", damage)
    part = cleanable_part(log, log.log_end_offset, world.now_ms)
    assert part.end_offset == 9
    cleaning = Cleaning(log, part, keys_max=1000, window_bytes=0, now_ms=world.now_ms)
    with contextlib.closing(cleaning.steps()) as steps:
        for step in steps:
            if step.replacement is not None:
                assert step.replacement.apply(world.now_ms)
    assert world.aborted(log, 0, log.log_end_offset) == ABORTED


def test_a_reader_learns_that_an_index_is_damaged(world):
    log = log_of_aborted_transactions(world)
    world.put(f"{FIRST}.txnindex", b"x" * 10)
    with pytest.raises(CorruptRecords):
        world.aborted(log, 0, log.log_end_offset)
    assert issubclass(IndexCorrupt, CorruptRecords)
