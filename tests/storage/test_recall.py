"""Retries that are older than what a snapshot of the producers remembers."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage import recall
from barnabas.storage.log import PartitionLog
from barnabas.storage.producers import BATCHES_REMEMBERED, Duplicate, Origin, sequence_after
from barnabas.storage.recall import read_recent_batches
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import SEQUENCE_MAX

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def look(log: PartitionLog) -> None:
    """What a leader does before it refuses a batch as out of order."""
    log.producers.recall(read_recent_batches(log, log.producers.forgotten_before))


def verdict(world, log: PartitionLog, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0):
    header = world.batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence).header
    return log.producers.check(header, Origin.CLIENT), log.producers.may_lie_before(header)


def write(world, log: PartitionLog, *sequences: int, producer_id: int = 7, epoch: int = 0, **fields) -> None:
    for sequence in sequences:
        world.append(log, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def test_after_a_clean_restart_the_last_five_batches_are_found_again(world):
    log = world.open()
    write(world, log, *range(8))
    log = world.restarted(log)
    assert [verdict(world, log, sequence) for sequence in (2, 3, 6)] == [(OUT_OF_ORDER, 8)] * 3
    look(log)
    assert [verdict(world, log, sequence)[0] for sequence in range(3, 8)] == [
        Duplicate(offset, offset, world.now_ms) for offset in range(3, 8)
    ]
    assert verdict(world, log, 2) == (OUT_OF_ORDER, None)  # and it is not looked for a second time


def test_what_was_written_since_the_restart_counts_among_the_five(world):
    log = world.open()
    write(world, log, *range(5))
    log = world.restarted(log)
    write(world, log, 5, 6)
    look(log)
    assert [isinstance(verdict(world, log, sequence)[0], Duplicate) for sequence in range(1, 7)] == [False] + [True] * 5


def test_a_gap_ahead_and_an_unknown_producer_are_not_looked_for(world):
    log = world.open()
    write(world, log, 0, 1, 2)
    log = world.restarted(log)
    assert verdict(world, log, 4) == (OUT_OF_ORDER, None)
    assert verdict(world, log, 1, epoch=1) == (OUT_OF_ORDER, None)
    assert verdict(world, log, 4, producer_id=8) == (None, None)


def test_a_log_that_was_never_loaded_from_a_snapshot_has_forgotten_nothing(world):
    log = world.open()
    write(world, log, 0, 1)
    assert log.producers.forgotten_before is None
    assert verdict(world, log, SEQUENCE_MAX) == (OUT_OF_ORDER, None)


def test_batches_of_an_earlier_epoch_stay_forgotten(world):
    log = world.open()
    write(world, log, 0, 1, 2)
    write(world, log, 0, 1, epoch=1)
    log = world.restarted(log)
    look(log)
    assert isinstance(verdict(world, log, 0, epoch=1)[0], Duplicate)
    assert verdict(world, log, 2) == (ErrorCode.INVALID_PRODUCER_EPOCH, None)


def test_a_batch_that_is_missing_ends_the_search(world):
    """Its producer was let begin anywhere, for it was unknown: what came before does not follow."""
    log = world.open()
    write(world, log, 0, 1)
    log.producers.clear()
    write(world, log, 5, 6)
    log = world.restarted(log)
    look(log)
    assert isinstance(verdict(world, log, 5)[0], Duplicate)
    assert verdict(world, log, 1) == (OUT_OF_ORDER, None)


def test_only_so_much_of_the_log_is_read(world, monkeypatch):
    log = world.open()
    write(world, log, 0, 1)
    for _ in range(20):
        world.append(log, size=200)
    write(world, log, 2, 3)
    log = world.restarted(log)
    monkeypatch.setattr(recall, "RECALLED_BYTES", 1000)
    look(log)
    assert isinstance(verdict(world, log, 2)[0], Duplicate)
    assert verdict(world, log, 1) == (OUT_OF_ORDER, None)


def test_what_was_read_before_a_truncation_is_not_believed_after_it(world):
    log = world.open()
    write(world, log, *range(5))
    log = world.restarted(log)
    read = read_recent_batches(log, log.producers.forgotten_before)
    log.truncate_to(3)
    log.producers.recall(read)
    assert log.log_end_offset == 3
    assert verdict(world, log, 3) == (None, None)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=40),
    st.sampled_from([150, 400, 1 << 20]),
    st.integers(0, 40),
    st.sampled_from([0, SEQUENCE_MAX - 3]),
)
def test_a_restart_at_any_moment_changes_no_answer(new_world, history, segment_bytes, restart_at, first_sequence):
    world = new_world(segment_bytes=segment_bytes)
    log, kept, sequences, batches = world.open(), {}, {}, []
    for number, (producer_id, count) in enumerate(history):
        if number == restart_at:
            log = world.restarted(log)
        sequence = sequences.get(producer_id, first_sequence)
        sequences[producer_id] = sequence_after(sequence, count)
        appended = world.append(log, count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        batches.append((producer_id, sequence, count))
        kept.setdefault(producer_id, []).append(Duplicate(appended.base_offset, appended.last_offset, world.now_ms))
    if restart_at >= len(history):
        log = world.restarted(log)
    expected = {producer_id: answers[-BATCHES_REMEMBERED:] for producer_id, answers in kept.items()}
    for producer_id, sequence, count in batches:
        answer, before_offset = verdict(world, log, sequence, count, producer_id=producer_id)
        if before_offset is not None:
            look(log)
            answer, _ = verdict(world, log, sequence, count, producer_id=producer_id)
        original = kept[producer_id].pop(0)
        assert answer == (original if original in expected[producer_id] else OUT_OF_ORDER)
