"""Retries that are older than what is remembered of their producer."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage import recall
from barnabas.storage.producers import Duplicate, Origin, sequence_after
from barnabas.storage.recall import find_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import SEQUENCE_MAX


def header_of(world, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0):
    return world.batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence).header


def write(world, log, *sequences: int, producer_id: int = 7, epoch: int = 0, **fields) -> None:
    for sequence in sequences:
        world.append(log, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def test_what_is_older_than_the_last_five_is_found(world):
    log = world.open()
    write(world, log, *range(8))
    header = header_of(world, 1)
    assert log.producers.check(header, Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.producers.is_behind(header)
    assert find_batch(log, header) == Duplicate(1, 1, world.now_ms)


def test_what_a_snapshot_left_out_is_found(world):
    log = world.open()
    write(world, log, *range(4))
    log = world.restarted(log)
    header = header_of(world, 1)
    assert log.producers.check(header, Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.producers.is_behind(header)
    assert find_batch(log, header) == Duplicate(1, 1, world.now_ms)


def test_only_what_is_behind_in_the_same_epoch_is_worth_a_search(world):
    log = world.open()
    write(world, log, 0, 1, 2)
    assert not log.producers.is_behind(header_of(world, 4))
    assert not log.producers.is_behind(header_of(world, 1, epoch=1))
    assert not log.producers.is_behind(header_of(world, 1, producer_id=8))


def test_other_numbers_are_another_batch(world):
    log = world.open()
    write(world, log, 0, 1)
    write(world, log, 0, 1, producer_id=8)
    assert find_batch(log, header_of(world, 0, 2)) is None
    assert find_batch(log, header_of(world, 1, epoch=1)) is None
    assert find_batch(log, header_of(world, 1, producer_id=8)).base_offset == 3


def test_only_so_much_of_the_log_is_read(world, monkeypatch):
    log = world.open()
    write(world, log, 0, 1)
    for _ in range(20):
        world.append(log, size=200)
    write(world, log, 2, 3)
    monkeypatch.setattr(recall, "SEARCHED_BYTES", 1000)
    assert find_batch(log, header_of(world, 2)) is not None
    assert find_batch(log, header_of(world, 1)) is None


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
        header = header_of(world, sequence, count, producer_id=producer_id)
        found = find_batch(log, header)
        assert (found.base_offset, found.last_offset) == (appended.base_offset, appended.last_offset)
        assert log.producers.is_behind(header)
