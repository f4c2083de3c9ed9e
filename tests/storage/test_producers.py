"""Producer state: sequences, duplicates, transactions and their snapshot."""

import tracemalloc
from itertools import product

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.producers import (
    COMMITTED_A_STEP,
    CompletedTransaction,
    Duplicate,
    Origin,
    ProducerStates,
    SnapshotCorrupt,
    decode_snapshot,
    encode_snapshot,
    sequence_after,
    sequence_before,
)
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import SEQUENCE_MAX
from barnabas.wire.records import BatchHeader, ControlRecord

DAY_MS = 86_400_000
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
COMMIT, ABORT = ControlRecord(1, 0), ControlRecord(0, 0)
TRANSACTIONAL, CONTROL = 16, 32


def batch(  # a batch has that many fields
    sequence: int = 0,
    count: int = 1,
    *,
    offset: int = 0,
    producer_id: int = 7,
    epoch: int = 0,
    time: int = 1000,
    flags=0,
) -> BatchHeader:
    return BatchHeader(offset, 49, 0, 2, 0, flags, count - 1, time, time, producer_id, epoch, sequence, count)


def marker(offset: int, *, producer_id: int = 7, epoch: int = 0, time: int = 1000) -> BatchHeader:
    flags = TRANSACTIONAL | CONTROL
    return batch(-1, offset=offset, producer_id=producer_id, epoch=epoch, time=time, flags=flags)


def wrote(*headers: BatchHeader) -> ProducerStates:
    """The state after these data batches were appended."""
    states = ProducerStates()
    for header in headers:
        states.update(header)
    return states


def opened(offset: int, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return batch(0, 3, offset=offset, producer_id=producer_id, epoch=epoch, flags=TRANSACTIONAL)


# -- sequences


def test_an_unknown_producer_may_begin_with_any_sequence():
    assert ProducerStates().check(batch(500), Origin.CLIENT) is ErrorCode.NONE


def test_a_batch_continues_where_the_last_one_ended():
    states = wrote(batch(0, 3))
    assert states.check(batch(3, 2), Origin.CLIENT) is ErrorCode.NONE
    assert states.check(batch(4), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(batch(1), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_checking_changes_nothing():
    states = wrote(batch(0, 3))
    for _ in range(2):
        assert states.check(batch(3), Origin.CLIENT) is ErrorCode.NONE


def test_sequences_wrap_from_the_largest_number_to_zero():
    states = wrote(batch(SEQUENCE_MAX - 1, 2))
    assert states.check(batch(0), Origin.CLIENT) is ErrorCode.NONE
    assert states.check(batch(1), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_may_wrap_in_its_middle():
    states = wrote(batch(SEQUENCE_MAX - 1, 4, offset=10))
    assert states.get(7).last_sequence == 1
    assert states.check(batch(2), Origin.CLIENT) is ErrorCode.NONE
    assert states.check(batch(SEQUENCE_MAX - 1, 4), Origin.CLIENT) == Duplicate(10, 13, 1000)


def test_a_new_epoch_begins_with_sequence_zero():
    states = wrote(batch(0, 3))
    assert states.check(batch(0, epoch=1), Origin.CLIENT) is ErrorCode.NONE
    assert states.check(batch(3, epoch=1), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_any_sequence_may_follow_where_no_epoch_is_known():
    states = wrote(batch(-1, epoch=-1))
    assert states.check(batch(7, epoch=0), Origin.CLIENT) is ErrorCode.NONE


def test_an_old_epoch_is_fenced():
    states = wrote(batch(0, epoch=5))
    assert states.check(batch(1, epoch=4), Origin.CLIENT) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(batch(1, epoch=4), Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_without_producer_id_is_never_refused_nor_remembered():
    states = wrote(batch(-1, producer_id=-1, epoch=-1))
    assert states.check(batch(-1, producer_id=-1, epoch=-1), Origin.CLIENT) is ErrorCode.NONE
    assert len(states) == 0


def test_coordinators_and_leaders_are_not_asked_for_their_sequence():
    states = wrote(batch(0, 3))
    assert states.check(batch(-1), Origin.COORDINATOR) is ErrorCode.NONE
    assert states.check(batch(99), Origin.REPLICATION) is ErrorCode.NONE
    assert states.check(batch(0, epoch=-1), Origin.REPLICATION) is ErrorCode.NONE


def test_a_follower_takes_over_an_older_epoch():
    states = wrote(batch(0, epoch=5), batch(0, 2, epoch=4))
    assert (states.get(7).epoch, states.get(7).last_sequence) == (4, 1)


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX))
def test_sequences_before_and_after_are_inverse(sequence, count):
    assert sequence_before(sequence_after(sequence, count), count) == sequence
    assert 0 <= sequence_after(sequence, count) <= SEQUENCE_MAX


# -- duplicates


def test_a_repeated_batch_is_answered_with_its_first_offsets():
    states = wrote(batch(0, 3, offset=100, time=5), batch(3, 2, offset=103, time=6))
    assert states.check(batch(0, 3), Origin.CLIENT) == Duplicate(100, 102, 5)
    assert states.check(batch(3, 2), Origin.CLIENT) == Duplicate(103, 104, 6)


def test_a_batch_that_only_overlaps_a_remembered_one_is_no_duplicate():
    states = wrote(batch(0, 3))
    assert states.check(batch(0, 2), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(batch(0, 3, epoch=1), Origin.CLIENT) is ErrorCode.NONE


def test_the_last_five_batches_are_remembered():
    states = wrote(*(batch(number, offset=number) for number in range(6)))
    assert states.check(batch(0), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(1, 6):
        assert states.check(batch(number), Origin.CLIENT) == Duplicate(number, number, 1000)


def test_a_new_epoch_forgets_the_batches_of_the_old_one():
    states = wrote(batch(0, 4), batch(0, epoch=1))
    assert states.check(batch(0, 4, epoch=0), Origin.CLIENT) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(batch(0, 4, epoch=1), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["new", "retry", "gap"])), max_size=30))
def test_an_idempotent_client_writes_each_record_once_whatever_it_retries(steps):
    states, log, sent = ProducerStates(), [], []
    sequence = SEQUENCE_MAX - 5  # so that some histories wrap
    for count, kind in steps:
        header = batch(sequence, count, offset=len(log)) if kind != "retry" or not sent else sent[-1]
        if kind == "gap":
            header = header._replace(base_sequence=sequence_after(sequence, 1))
        verdict = states.check(header, Origin.CLIENT)
        if verdict is ErrorCode.NONE:
            states.update(header)
            log += [sequence_after(header.base_sequence, i) for i in range(count)]
            sequence = sequence_after(header.last_sequence, 1)
            sent.append(header)
        elif kind == "retry":
            assert verdict == Duplicate(header.base_offset, header.last_offset, 1000)
        else:
            assert verdict is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log == [sequence_after(log[0], i) for i in range(len(log))] if log else not sent


# -- transactions


def test_an_open_transaction_makes_its_first_offset_unstable():
    states = wrote(opened(10), batch(3, offset=13, flags=TRANSACTIONAL))
    assert states.first_unstable_offset(high_watermark=14) == 10


def test_a_completed_transaction_is_unstable_until_its_marker_is_replicated():
    states = wrote(opened(10))
    states.update(marker(13), control=COMMIT)
    assert states.first_unstable_offset(high_watermark=13) == 10
    assert states.first_unstable_offset(high_watermark=14) is None


def test_the_oldest_of_open_and_unreplicated_transactions_counts():
    states = wrote(opened(0, producer_id=1), opened(3, producer_id=2), opened(6, producer_id=3))
    states.update(marker(9, producer_id=2), control=COMMIT)
    states.update(marker(10, producer_id=1), control=COMMIT)
    assert states.first_unstable_offset(high_watermark=9) == 0
    assert states.first_unstable_offset(high_watermark=10) == 0  # producer 2 is stable, but lies behind
    assert states.first_unstable_offset(high_watermark=11) == 6


@pytest.mark.parametrize("high_watermark", [0, 100, 2 * COMMITTED_A_STEP, 2000, 3996, 4000])
def test_however_many_transactions_are_due_the_others_stay(high_watermark):
    """After a restart all that were replayed are due at once."""
    states = ProducerStates()
    for number in range(1000):
        for update in (opened(4 * number), opened(4 * number + 1, producer_id=8)):
            states.update(update)
        states.update(marker(4 * number + 2), control=COMMIT)
        states.update(marker(4 * number + 3, producer_id=8), control=COMMIT)
    states.forget_committed(high_watermark)
    first = high_watermark // 4 * 4
    assert states.first_unstable_offset(high_watermark) == (first if high_watermark < 4000 else None)
    assert states.uncommitted_count <= (4000 - first) // 2


def test_a_marker_returns_the_transaction_that_it_completed():
    states = wrote(opened(10), opened(13, producer_id=8))
    assert states.update(marker(16), control=ABORT) == CompletedTransaction(7, 10, 16, 13, aborted=True)
    assert states.update(marker(17, producer_id=8), control=COMMIT) == CompletedTransaction(
        8, 13, 17, 18, aborted=False
    )


def test_a_marker_without_a_transaction_completes_nothing():
    states = ProducerStates()
    assert states.update(marker(5), control=COMMIT) is None
    assert states.first_unstable_offset(high_watermark=0) is None
    assert states.get(7).coordinator_epoch == 0


def test_a_control_batch_whose_record_was_compacted_away_says_nothing():
    states = wrote(opened(10))
    assert states.update(marker(13)) is None
    assert states.first_unstable_offset(high_watermark=100) == 10


def test_a_plain_batch_inside_a_transaction_is_refused():
    states = wrote(opened(10))
    assert states.check(batch(3), Origin.CLIENT) is ErrorCode.INVALID_TXN_STATE
    assert states.check(batch(3, flags=TRANSACTIONAL), Origin.CLIENT) is ErrorCode.NONE


def test_a_marker_of_an_old_coordinator_is_fenced():
    states = wrote(opened(10))
    states.update(marker(13), control=ControlRecord(1, coordinator_epoch=4))
    fenced = states.check(marker(14), Origin.COORDINATOR, control=ControlRecord(1, coordinator_epoch=3))
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert states.check(marker(14), Origin.COORDINATOR, control=ControlRecord(1, coordinator_epoch=4)) is ErrorCode.NONE


def test_a_marker_may_bump_the_epoch_and_fences_its_producer():
    states = wrote(opened(10))
    states.update(marker(13, epoch=1), control=ABORT)
    assert states.check(batch(3, flags=TRANSACTIONAL), Origin.CLIENT) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(batch(0, epoch=1), Origin.CLIENT) is ErrorCode.NONE
    assert states.check(batch(3, epoch=1), Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_of_the_same_epoch_leaves_the_sequence():
    states = wrote(opened(10))
    states.update(marker(13), control=COMMIT)
    assert states.check(batch(3, flags=TRANSACTIONAL), Origin.CLIENT) is ErrorCode.NONE


transactions = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "commit", "abort"])), max_size=40)


@given(transactions, st.integers(0, 45))
def test_the_first_unstable_offset_is_that_of_a_model_that_remembers_everything(history, high_watermark):
    states, spans = ProducerStates(), []  # a span is [producer, first offset, marker's offset or None]
    for offset, (producer_id, kind) in enumerate(history):
        open_span = next((span for span in spans if span[0] == producer_id and span[2] is None), None)
        if kind == "data":
            states.update(batch(0, offset=offset, producer_id=producer_id, flags=TRANSACTIONAL))
            if open_span is None:
                spans.append([producer_id, offset, None])
        else:
            states.update(marker(offset, producer_id=producer_id), control=COMMIT if kind == "commit" else ABORT)
            if open_span is not None:
                open_span[2] = offset
    for watermark in (high_watermark, high_watermark + 5):  # it may ask again, later
        unstable = [first for _, first, end in spans if end is None or end >= watermark]
        assert states.first_unstable_offset(watermark) == min(unstable, default=None)


# -- expiry


def test_a_silent_producer_expires():
    states = wrote(batch(0, producer_id=1, time=1000), batch(0, producer_id=2, time=5000))
    assert states.expire(1000 + DAY_MS - 1, DAY_MS) == 0
    assert states.expire(1000 + DAY_MS, DAY_MS) == 1
    assert [producer.producer_id for producer in states] == [2]
    assert states.expire(5000 + DAY_MS, DAY_MS) == 1
    assert states.get(2) is None, "though it was the last one that wrote"


def test_only_the_producers_that_are_named_are_looked_at():
    states = wrote(*(batch(0, producer_id=producer_id) for producer_id in range(5)))
    assert states.expire(1000 + DAY_MS, DAY_MS, states.ids()[1:3]) == 2
    assert states.ids() == [0, 3, 4]
    assert states.expire(1000 + DAY_MS, DAY_MS, [1, 3]) == 1  # one of them has gone meanwhile


def test_a_producer_takes_less_than_400_bytes():
    states, count = ProducerStates(), 1000
    tracemalloc.start()
    for producer_id, number in product(range(count), range(5)):
        states.update(batch(number, offset=1000 * producer_id + number, producer_id=1000 + producer_id))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 400


def test_numbers_that_span_two_remembered_batches_are_no_duplicate():
    states = wrote(batch(0, 4, offset=0), batch(4, 4, offset=4))
    for sequence in range(8):
        expected = {0: Duplicate(0, 3, 1000), 4: Duplicate(4, 7, 1000)}.get(sequence, OUT_OF_ORDER)
        assert states.check(batch(sequence, 4), Origin.CLIENT) == expected


def test_an_open_transaction_keeps_its_producer():
    states = wrote(opened(10))
    assert states.expire(10 * DAY_MS, DAY_MS) == 0
    states.update(marker(13), control=COMMIT)
    assert states.expire(10 * DAY_MS, DAY_MS) == 1


# -- snapshots, as a running Kafka 3.9.1 writes them

# The batches of a log with one idempotent and three transactional producers: one commits, one aborts, one stays open.
KAFKA_LOG = [
    (BatchHeader(0, 85, 0, 2, 0, 0, 3, 1795270066903, 1795270066903, 0, 0, 0, 4), None),
    (BatchHeader(4, 85, 0, 2, 0, 0, 3, 1795270067963, 1795270067963, 0, 0, 4, 4), None),
    (BatchHeader(8, 85, 0, 2, 0, 0, 3, 1795270067967, 1795270067968, 0, 0, 8, 4), None),
    (BatchHeader(12, 76, 0, 2, 0, 16, 2, 1795270068499, 1795270068499, 1, 0, 0, 3), None),
    (BatchHeader(15, 66, 0, 2, 0, 48, 0, 1795270068565, 1795270068565, 1, 0, -1, 1), COMMIT),
    (BatchHeader(16, 76, 0, 2, 0, 16, 2, 1795270068612, 1795270068612, 2, 0, 0, 3), None),
    (BatchHeader(19, 66, 0, 2, 0, 48, 0, 1795270068627, 1795270068627, 2, 0, -1, 1), ABORT),
    (BatchHeader(20, 76, 0, 2, 0, 16, 2, 1795270069140, 1795270069140, 3, 0, 0, 3), None),
]
# What Kafka wrote for it on a clean shutdown, as 00000000000000000023.snapshot.
KAFKA_SNAPSHOT = bytes.fromhex(
    "0001e2c4049300000004"
    "000000000000000000000000000b000000000000000b00000003000001a1fe6f4700ffffffffffffffffffffffff"
    "0000000000000001000000000002000000000000000e00000002000001a1fe6f495500000000ffffffffffffffff"
    "0000000000000002000000000002000000000000001200000002000001a1fe6f499300000000ffffffffffffffff"
    "0000000000000003000000000002000000000000001600000002000001a1fe6f4b94ffffffff0000000000000014"
)
KAFKA_TIME_MS = 1795270069140


def test_kafkas_log_gives_kafkas_snapshot_byte_by_byte():
    states = ProducerStates()
    completed = [states.update(header, control=control) for header, control in KAFKA_LOG]
    assert encode_snapshot(states.entries()) == KAFKA_SNAPSHOT
    assert completed[4] == CompletedTransaction(1, 12, 15, 16, aborted=False)
    assert completed[6] == CompletedTransaction(2, 16, 19, 20, aborted=True)


def test_kafkas_snapshot_is_loaded():
    states = ProducerStates()
    states.load_snapshot(KAFKA_SNAPSHOT, KAFKA_TIME_MS, DAY_MS)
    assert encode_snapshot(states.entries()) == KAFKA_SNAPSHOT
    assert states.first_unstable_offset(high_watermark=23) == 20
    assert states.check(batch(8, 4, producer_id=0), Origin.CLIENT) == Duplicate(8, 11, 1795270067968)
    assert states.check(batch(12, producer_id=0), Origin.CLIENT) is ErrorCode.NONE
    assert states.check(batch(3, producer_id=3), Origin.CLIENT) is ErrorCode.INVALID_TXN_STATE


def test_expired_producers_are_not_loaded_unless_a_transaction_is_open():
    states = wrote(batch(5))
    states.load_snapshot(KAFKA_SNAPSHOT, KAFKA_TIME_MS + 10 * DAY_MS, DAY_MS)
    assert [producer.producer_id for producer in states] == [3]


def test_open_transactions_are_ordered_by_offset_whatever_the_order_in_the_snapshot():
    states = wrote(opened(20, producer_id=1), opened(10, producer_id=2))
    loaded = ProducerStates()
    loaded.load_snapshot(encode_snapshot(states.entries()), 0, DAY_MS)
    assert loaded.first_unstable_offset(high_watermark=100) == 10


def test_a_producer_known_by_a_marker_only_has_no_batch_in_the_snapshot():
    states = ProducerStates()
    states.update(marker(5), control=COMMIT)
    (producer,) = decode_snapshot(encode_snapshot(states.entries()))
    assert encode_snapshot(states.entries())[10 + 22 : 10 + 26] == bytes(4)  # the offset delta
    assert (producer.last_sequence, producer.last_offset) == (-1, -1)


def test_clearing_forgets_producers_and_transactions():
    states = wrote(opened(10), opened(20, producer_id=8))
    states.update(marker(30), control=COMMIT)
    states.clear()
    assert (len(states), states.first_unstable_offset(high_watermark=0)) == (0, None)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:9], "too few"),
        (lambda data: b"\0\2" + data[2:], "version 2"),
        (lambda data: data[:-1] + b"\1", "checksum"),
        (lambda data: data[:-46], "checksum"),
    ],
)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(damage, why):
    states = wrote(batch(5))
    with pytest.raises(SnapshotCorrupt, match=why):
        states.load_snapshot(damage(KAFKA_SNAPSHOT), 0, DAY_MS)
    assert states.get(7).last_sequence == 5


def test_a_snapshot_of_another_length_than_it_says_is_refused():
    body = (2).to_bytes(4, "big") + bytes(46)
    with pytest.raises(SnapshotCorrupt, match="do not hold 2 producers"):
        list(decode_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body))


@given(st.binary(max_size=120))
def test_random_bytes_are_refused(data):
    with pytest.raises(SnapshotCorrupt):
        list(decode_snapshot(data))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from(["plain", "transactional", "commit"])),
        max_size=20,
    )
)
def test_a_loaded_snapshot_decides_as_the_state_it_was_taken_of(history):
    states, offset = ProducerStates(), 0
    for producer_id, count, kind in history:
        if kind == "commit":
            states.update(marker(offset, producer_id=producer_id), control=COMMIT)
        else:
            known = states.get(producer_id)
            flags = (
                TRANSACTIONAL
                if kind == "transactional" or (known and known.transaction_first_offset is not None)
                else 0
            )
            sequence = sequence_after(known.last_sequence, 1) if known and known.last_offset >= 0 else 0
            states.update(batch(sequence, count, offset=offset, producer_id=producer_id, flags=flags))
        offset += count
    loaded = ProducerStates()
    loaded.load_snapshot(encode_snapshot(states.entries()), 1000, DAY_MS)
    assert list(loaded) == [states.get(producer_id) for producer_id in states.ids()]
    for producer_id, sequence, flags in ((p, s, f) for p in range(4) for s in (0, 1, 2, 3) for f in (0, TRANSACTIONAL)):
        header = batch(sequence, producer_id=producer_id, flags=flags)
        before, after = states.check(header, Origin.CLIENT), loaded.check(header, Origin.CLIENT)
        assert after == before or isinstance(before, Duplicate)  # only the last batch is kept
    assert loaded.first_unstable_offset(10**6) == states.first_unstable_offset(10**6)
