"""What the simulator knows of compacted topics: rule X14, and what a compacted log was before."""

import pytest

from barnabas.coordinators.transactions.state import Producer
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.testing.simulation.compacted import check_table, committed_records
from barnabas.testing.simulation.log_transactions import Ended
from barnabas.testing.simulation.moments import DECIDED, OPENED, Moment, Moments
from barnabas.testing.simulation.transaction_replicas import _check_index_of_compacted
from barnabas.testing.simulation.transaction_rules import Transaction, TransactionRules
from barnabas.testing.simulation.truth import Shadow, Truth
from barnabas.wire import messages as m
from barnabas.wire.records import (
    ABORT,
    DELETE_HORIZON,
    TRANSACTIONAL,
    BatchHeader,
    build_batch,
    build_control_batch,
)
from barnabas.wire.topics import TopicPartition

KEY, ONE = TopicPartition("t", 0), Producer(7, 0)


def batch(offset, *, count=2):
    return BatchHeader(offset, 100, 0, 2, 1000 + offset, TRANSACTIONAL, count - 1, 5, 6, *ONE, 0, count)


@pytest.fixture
def truth():
    truth = Truth("t", bytes(16), 0)
    truth.is_compacted = True
    for each in (batch(0), batch(2), batch(4)):
        truth.known[each.base_offset, 0] = each
        truth.committed.append(each)
    return truth


def test_what_compaction_has_left_is_what_was_appended(truth):
    rest = batch(2)._replace(batch_length=80, crc=1, record_count=1, attributes=TRANSACTIONAL | DELETE_HORIZON)
    assert truth.restored([rest], 0, 6) == (truth.committed, {0, 4})
    assert truth.restored([batch(4)], 4, 6) == ([batch(4)], set())


def test_another_batch_is_not_taken_for_what_is_left(truth):
    other = batch(2)._replace(producer_epoch=3)
    assert truth.restored([other], 2, 4) == ([other], set())
    more = batch(2)._replace(record_count=3)
    assert truth.restored([more], 2, 4) == ([more], set())


def test_what_is_not_committed_cannot_be_gone(truth):
    last = truth.committed.pop()
    assert truth.restored([], 0, 6) == (truth.committed, {0, 2})
    assert truth.restored([last], 4, 6) == ([last], set())


# -- X14


def rules_of(truth, *fates):
    """The transaction of each batch is committed, aborted, or (None) undecided."""
    broken = []
    rules = TransactionRules(lambda rule, _: broken.append(rule), lambda: 0)
    for each, fate in zip(truth.committed, fates, strict=True):
        rules._belongs[KEY, each.crc] = Transaction("id", 1, ONE, {KEY: None}, is_commit=fate)
    truth.contents[1000] = ((0, b"a", b"0"), (1, b"b", b"1"))
    truth.contents[1002] = ((2, b"a", b"2"), (3, b"b", None))
    truth.contents[1004] = ((4, b"a", b"4"), (5, b"c", b"5"))
    return rules, broken


@pytest.mark.parametrize(
    ("fates", "right"),
    [
        ((True, True, True), {b"a": b"4", b"c": b"5"}),
        ((True, True, True), {b"a": b"4", b"b": None, b"c": b"5"}),
        ((True, True, False), {b"a": b"2"}),
        ((True, False, False), {b"a": b"0", b"b": b"1"}),
        ((True, False, None), {b"a": b"0", b"b": b"1"}),
        ((False, False, False), {}),
    ],
)
def test_a_table_has_the_last_committed_values(truth, fates, right):
    rules, broken = rules_of(truth, *fates)
    check_table(rules, truth, "reader", right, 6)
    assert broken == []
    for wrong in ({**right, b"a": b"x"}, {**right, b"d": b"y"}):
        broken.clear()
        check_table(rules, truth, "reader", wrong, 6)
        assert broken == ["X14"]


def test_a_reader_that_is_behind_may_miss_what_is_replaced_further_on(truth):
    rules, broken = rules_of(truth, True, True, True)
    check_table(rules, truth, "reader", {b"a": b"2"}, 4)
    check_table(rules, truth, "reader", {}, 4)
    assert broken == []
    check_table(rules, truth, "reader", {b"b": b"1"}, 4)
    assert broken == ["X14"]


def test_a_reader_of_a_table_gets_committed_values_below_the_last_stable_offset():
    def made(offset, value):
        return build_batch([(b"a", value)], timestamp_ms=0, producer_id=7, producer_epoch=0, base_sequence=0,
                           base_offset=offset, attributes=TRANSACTIONAL).data  # fmt: skip

    control = build_control_batch(ABORT, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0)
    marker = bytearray(control.data)
    marker[:8] = (1).to_bytes(8)
    records = memoryview(bytes(made(0, b"0")) + bytes(marker) + bytes(made(2, b"2")) + bytes(made(3, None)))
    aborted = [m.FetchResponse.AbortedTransaction(producer_id=7, first_offset=0)]
    row = m.FetchResponse.PartitionData(aborted_transactions=aborted, records=records)
    assert list(committed_records(row, 4)) == [(b"a", b"2"), (b"a", None)]
    assert list(committed_records(row, 3)) == [(b"a", b"2")]


def test_an_aborted_transaction_is_in_the_index_as_long_as_it_has_data():
    broken = []
    shadow = Shadow(1)
    shadow.transactions.ended = [Ended(7, 4, 6, 7, False), Ended(8, 5, 8, 9, True)]
    for indexed in ([AbortedTransaction(7, 2, 6, 7)], [AbortedTransaction(7, 4, 6, 7), AbortedTransaction(7, 0, 1, 2)]):
        _check_index_of_compacted(lambda rule, _: broken.append(rule), "t", shadow, indexed)
    assert broken == []
    for indexed in ([], [AbortedTransaction(7, 5, 6, 7)]):
        _check_index_of_compacted(lambda rule, _: broken.append(rule), "t", shadow, indexed)
    assert broken == ["X13", "X13"]


# -- moments


def test_who_waits_for_one_moment_hears_of_no_other():
    moments, heard = Moments(), []
    forget = moments.wait(OPENED, lambda moment: heard.append(("only", moment)), only=Moment(OPENED, 2, "a"))
    moments.wait(OPENED, lambda moment: heard.append(("any", moment)))
    moments.come(Moment(DECIDED, 2, "a"))
    moments.come(Moment(OPENED, 1, "a"))
    moments.come(Moment(OPENED, 1, "a"))
    moments.come(Moment(OPENED, 2, "a"))
    moments.come(Moment(OPENED, 2, "a"))
    forget()
    assert heard == [("any", Moment(OPENED, 1, "a")), ("only", Moment(OPENED, 2, "a"))]
