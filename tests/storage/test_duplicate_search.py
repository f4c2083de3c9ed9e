"""Retries of batches that the producer state no longer has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage import duplicate_search
from barnabas.storage.duplicate_search import find_batch, fingerprint_of
from barnabas.storage.producers import Duplicate, Origin, sequence_after
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import SEQUENCE_MAX
from barnabas.wire.records import build_batch
from barnabas.world.pacing import complete_inline

LATER = tuple(range(100, 105))  # five batches that push the earlier ones out of what is remembered


def batch_of(world, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **fields):
    return world.batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def write(world, log, *sequences: int, producer_id: int = 7, epoch: int = 0, **fields) -> None:
    for sequence in sequences:
        batch = batch_of(world, sequence, producer_id=producer_id, epoch=epoch, **fields)
        log.append_as_leader(batch, leader_epoch=0, origin=Origin.COORDINATOR, now_ms=world.now_ms)


def find(log, batch):
    return complete_inline(find_batch(log, batch))


def test_what_is_older_than_the_last_five_is_found(world):
    log = world.open()
    write(world, log, *range(8))
    batch = batch_of(world, 1)
    assert log.producers.check(batch.header, Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.producers.is_behind(batch.header)
    assert find(log, batch) == Duplicate(1, 1, world.now_ms)


def test_what_a_snapshot_left_out_is_found(world):
    log = world.open()
    write(world, log, *range(4))
    log = world.restarted(log)
    batch = batch_of(world, 1)
    assert log.producers.check(batch.header, Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.producers.is_behind(batch.header)
    assert find(log, batch) == Duplicate(1, 1, world.now_ms)


def test_only_what_is_behind_in_the_same_epoch_is_worth_a_search(world):
    log = world.open()
    write(world, log, 0, 1, 2)
    assert not log.producers.is_behind(batch_of(world, 4).header)
    assert not log.producers.is_behind(batch_of(world, 1, epoch=1).header)
    assert not log.producers.is_behind(batch_of(world, 1, producer_id=8).header)


def test_other_numbers_are_another_batch(world):
    log = world.open()
    for producer_id in (7, 8):
        write(world, log, 0, 1, *LATER, producer_id=producer_id)
    assert find(log, batch_of(world, 0, 2)) is None
    assert find(log, batch_of(world, 1, epoch=1)) is None
    assert find(log, batch_of(world, 1)).base_offset == 1
    assert find(log, batch_of(world, 1, producer_id=8)).base_offset == 8


@pytest.mark.parametrize("other", [{"size": 21}, {"timestamp": 5}, {"attributes": 8}])
def test_the_same_numbers_with_other_records_are_another_batch(world, other):
    log = world.open()
    write(world, log, 0, 1, *LATER)
    assert find(log, batch_of(world, 1)) is not None
    assert find(log, batch_of(world, 1, **other)) is None


def test_what_only_looks_like_the_batch_inside_a_record_is_not_it(world):
    log = world.open()
    batch = batch_of(world, 1)
    log.append_as_leader(
        build_batch([(None, bytes(batch.data))], timestamp_ms=0), leader_epoch=0, origin=Origin.CLIENT, now_ms=0
    )
    write(world, log, *LATER)
    assert bytes(batch.data) in world.content("00000000000000000000.log")
    assert find(log, batch) is None


def test_records_full_of_likenesses_end_the_search(world):
    log, batch = world.open(), batch_of(world, 1)
    hostile = build_batch([(None, fingerprint_of(batch) * duplicate_search.LIKENESSES_MAX)], timestamp_ms=0)
    log.append_as_leader(hostile, leader_epoch=0, origin=Origin.CLIENT, now_ms=0)
    write(world, log, 1, *LATER)
    assert find(log, batch) is None


def test_only_so_much_of_the_log_is_read_and_none_behind_what_is_remembered(world, monkeypatch):
    log = world.open()
    write(world, log, 0)
    for _ in range(20):
        world.append(log, size=200)
    write(world, log, 1, *LATER)
    for _ in range(20):
        world.append(log, size=200)
    monkeypatch.setattr(duplicate_search, "SEARCHED_BYTES", 1000)
    assert find(log, batch_of(world, 1)) is not None
    assert find(log, batch_of(world, 0)) is None


def test_a_search_takes_a_step_for_each_window_and_not_for_each_batch(world):
    log = world.open()
    while log.size_bytes < 2 * duplicate_search.WINDOW_BYTES:
        world.append(log)
    write(world, log, *LATER)
    assert len(list(find_batch(log, batch_of(world, 99)))) == 3


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=40),
    st.sampled_from([150, 400, 1 << 20]),
    st.integers(0, 40),
    st.sampled_from([0, SEQUENCE_MAX - 3]),
)
def test_whatever_is_in_the_log_is_found_where_it_lies(new_world, history, segment_bytes, restart_at, first_sequence):
    world = new_world(segment_bytes=segment_bytes)
    log, sequences, written = world.open(), {}, []
    for number, (producer_id, count) in enumerate(history):
        if number == restart_at:
            log = world.restarted(log)
        sequence = sequences.get(producer_id, first_sequence)
        sequences[producer_id] = sequence_after(sequence, count)
        appended = world.append(log, count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        written.append((producer_id, sequence, count, appended))
    for producer_id, sequence, count, appended in written:
        batch = batch_of(world, sequence, count, producer_id=producer_id)
        found = log.producers.check(batch.header, Origin.CLIENT)
        if found is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            assert log.producers.is_behind(batch.header)
            found = find(log, batch)
        assert (found.base_offset, found.last_offset) == (appended.base_offset, appended.last_offset)
