"""Which markers are owed to whom, and what follows from an answer."""

import pytest

from barnabas.coordinators.runtime.shard import Shard
from barnabas.coordinators.transactions.owed import SENT_AT_A_TIME, Debt, Owed, errors_of, request_of, settle
from barnabas.coordinators.transactions.state import (
    Overdue,
    Recorded,
    Status,
    TransactionalIds,
    TransactionRecord,
    replay,
)
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
LEADERS = {A0: 1, A1: 2, B0: 1}


class FakePartition:
    """The partition of `__transaction_state` that the debts come from."""

    log = None
    is_leader = True
    leader_epoch = 5


def a_shard() -> Shard[TransactionalIds]:
    shard: Shard[TransactionalIds] = Shard(0, FakePartition(), TransactionalIds())  # type: ignore[arg-type]
    shard.refusal = ErrorCode.NONE
    return shard


def a_debt(shard, *partitions, name="id", producer_id=7, status=Status.PREPARE_COMMIT) -> Debt:
    recorded = Recorded(producer_id, 3, 60_000, status, dict.fromkeys(partitions), 0, 0)
    replay(shard.state, TransactionRecord(name, recorded), len(shard.state.by_name))
    return Debt(shard, shard.state.by_name[name])


def answered(producer_id, errors) -> m.WriteTxnMarkersResponse:
    result = m.WriteTxnMarkersResponse
    return result(
        markers=[
            result.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    result.WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            result.WritableTxnMarkerPartitionResult(partition_index=index, error_code=int(error))
                        ],
                    )
                    for (topic, index), error in errors.items()
                ],
            )
        ]
    )


def test_each_broker_gets_one_request_for_the_partitions_that_it_leads():
    shard, owed = a_shard(), Owed()
    first = a_debt(shard, A0, A1, B0)
    second = a_debt(shard, B0, name="other", producer_id=8, status=Status.PREPARE_ABORT)
    assert owed.add(first, first.known.unmarked, LEADERS.get) == ({1, 2}, {})
    assert owed.add(second, second.known.unmarked, LEADERS.get) == ({1}, {})
    request = request_of(owed.take(1))
    said = [
        (
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            [(topic.name, list(topic.partition_indexes)) for topic in each.topics],
            each.coordinator_epoch,
        )
        for each in request.markers
    ]
    assert said == [(7, 3, True, [("a", [0]), ("b", [0])], 5), (8, 3, False, [("b", [0])], 5)]
    assert not owed.is_owed(1)
    assert owed.take(2) == [(first, [A1])]
    assert owed.take(2) == []


def test_a_partition_without_a_leader_is_given_back():
    debt, owed = a_debt(a_shard(), A0, A1), Owed()
    assert owed.add(debt, debt.known.unmarked, {A0: 1}.get) == ({1}, {A1: None})


def test_a_large_transaction_takes_several_requests():
    partitions = [TopicPartition("a", index) for index in range(SENT_AT_A_TIME + 10)]
    shard, owed = a_shard(), Owed()
    debt, small = a_debt(shard, *partitions), a_debt(shard, B0, name="small")
    for each in (debt, small):
        owed.add(each, each.known.unmarked, lambda key: 1)
    (first,) = owed.take(1)
    assert first == (debt, partitions[:SENT_AT_A_TIME])
    # The others do not wait for the rest of it.
    assert owed.take(1) == [(small, [B0]), (debt, partitions[SENT_AT_A_TIME:])]


def test_a_debt_that_another_coordinator_has_taken_over_is_not_sent():
    for resign in (lambda shard: setattr(shard, "refusal", ErrorCode.NOT_COORDINATOR), _lose_leadership):
        shard, owed = a_shard(), Owed()
        debt = a_debt(shard, A0)
        owed.add(debt, debt.known.unmarked, LEADERS.get)
        resign(shard)
        assert not debt.is_open
        assert owed.take(1) == []


def _lose_leadership(shard):
    shard.partition.is_leader = False


def test_a_debt_ends_with_the_next_record_of_the_id():
    shard = a_shard()
    debt = a_debt(shard, A0)
    assert debt.is_open
    replay(shard.state, TransactionRecord("id", debt.known.recorded._replace(status=Status.COMPLETE_COMMIT)), 9)
    assert not debt.is_open


CONFIRMED = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


@pytest.mark.parametrize("error", list(ErrorCode))
def test_every_error_code_is_final_or_tried_again(error):
    debt = a_debt(a_shard(), A0, A1)
    settled = settle([(debt, [A0, A1])], errors_of(answered(7, {A0: error, A1: ErrorCode.NONE})))
    if error in CONFIRMED:
        assert settled == ({}, {}, [debt])
        assert debt.known.unmarked == {}
    else:
        assert (settled.later if error in FENCED else settled.again) == {debt: {A0: None}}
        assert (settled.paid, debt.known.unmarked) == ([], {A0: None})


def test_what_an_answer_does_not_name_is_tried_again():
    debt = a_debt(a_shard(), A0, A1)
    settled = settle([(debt, [A0, A1])], errors_of(answered(7, {A1: ErrorCode.NONE})))
    assert settled == ({debt: {A0: None}}, {}, [])
    # Also without a row for the producer, and with an unknown error code.
    assert settle([(debt, [A0])], {}).again == {debt: {A0: None}}
    assert settle([(debt, [A0])], errors_of(answered(7, {A0: 9999}))).again == {debt: {A0: None}}


def test_an_answer_to_an_older_decision_confirms_nothing():
    shard = a_shard()
    old = a_debt(shard, A0)
    replay(shard.state, TransactionRecord("id", old.known.recorded), 9)
    assert settle([(old, [A0])], errors_of(answered(7, {A0: ErrorCode.NONE}))) == ({}, {}, [])
    assert old.known.unmarked == {A0: None}


# -- transactions that take too long


def ongoing(start_ms, timeout_ms=100, name="id", ids=None):
    ids = TransactionalIds() if ids is None else ids
    record = TransactionRecord(name, Recorded(7, 0, timeout_ms, Status.ONGOING, {A0: None}, start_ms, start_ms))
    replay(ids, record, 0)
    return ids


def test_transactions_come_when_their_time_is_over_the_oldest_first():
    ids = ongoing(50, name="late")
    ongoing(10, name="early", ids=ids)
    assert list(ids.overdue.pop(110)) == []
    assert [each.name for each in ids.overdue.pop(151)] == ["early", "late"]
    assert len(ids.overdue) == 0


def test_a_producer_with_many_transactions_has_one_entry():
    ids = ongoing(10)
    for start_ms in range(11, 100):
        ids.overdue.pop(0)
        ongoing(start_ms, ids=ids)
    assert len(ids.overdue) == 1
    assert list(ids.overdue.pop(112)) == []
    assert [each.name for each in ids.overdue.pop(200)] == ["id"]


def test_a_transaction_that_has_ended_does_not_come():
    ids = ongoing(10)
    replay(ids, TransactionRecord("id", ids.by_name["id"].recorded._replace(status=Status.PREPARE_COMMIT)), 1)
    assert list(ids.overdue.pop(1000)) == []
    ongoing(1000, ids=ids)
    assert [each.name for each in ids.overdue.pop(2000)] == ["id"]


def test_a_shorter_timeout_of_the_next_transaction_counts():
    ids = ongoing(0, timeout_ms=900_000)
    replay(ids, TransactionRecord("id", ids.by_name["id"].recorded._replace(status=Status.COMPLETE_COMMIT)), 1)
    ongoing(10, timeout_ms=100, ids=ids)
    assert list(ids.overdue.pop(110)) == []
    assert [each.name for each in ids.overdue.pop(111)] == ["id"]
    # The later entry is left. It counts for nothing, and comes only once if the id waits for the same time again.
    ongoing(0, timeout_ms=900_000, ids=ids)
    assert [each.name for each in ids.overdue.pop(900_001)] == ["id"]
    assert len(ids.overdue) == 0


def test_an_empty_heap_gives_nothing():
    assert list(Overdue().pop(1 << 60)) == []
