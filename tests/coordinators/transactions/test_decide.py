"""The table of `coordinators/transactions/state.py`, row by row: what follows from each event in each state."""

import pytest

from barnabas.coordinators.transactions.decide import decide, is_unused
from barnabas.coordinators.transactions.events import (
    NEEDS_PRODUCER_ID,
    NOTHING,
    AddPartitions,
    Answer,
    Decision,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    TimeoutPassed,
    VerifyPartitions,
)
from barnabas.coordinators.transactions.state import (
    AT_REST,
    EPOCH_MAX,
    EXHAUSTED_EPOCH,
    NO_PRODUCER,
    NO_TIME,
    PREPARED,
    Producer,
    Recorded,
    Status,
    TransactionalId,
    TransactionalIds,
    TransactionRecord,
    replay,
)
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.topics import TopicPartition

NOW, THEN, TIMEOUT = 1_000_000, 990_000, 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OWNER = Producer(7, 3)
FRESH_ID = 99
OPEN = (Status.ONGOING, *PREPARED)


def an_id(status: Status, producer: Producer = OWNER, previous: Producer = NO_PRODUCER) -> TransactionalId:
    partitions = {A0: None, A1: None} if status in OPEN else {}
    start_ms = NO_TIME if status is Status.EMPTY else THEN
    recorded = Recorded(*producer, TIMEOUT, status, partitions, THEN, start_ms)
    ids = TransactionalIds()
    replay(ids, TransactionRecord("id", recorded), 12)
    ids.by_name["id"].previous = previous
    return ids.by_name["id"]


def decided(known: TransactionalId | None, event: object, *, pending: bool = False, now_ms: int = NOW) -> Decision:
    return decide(known, event, now_ms, pending=pending)  # type: ignore[arg-type]


def error_of(decision: Decision) -> ErrorCode:
    assert isinstance(decision.answer, Answer)
    if decision.answer.error:
        assert decision.record is None or decision.answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
    return decision.answer.error


def recorded_of(decision: Decision) -> Recorded:
    assert isinstance(decision.record, Recorded)
    return decision.record


def given(decision: Decision) -> Producer:
    """The producer that InitProducerId answers with, which is the one that is stored."""
    assert error_of(decision) is ErrorCode.NONE
    assert isinstance(decision.answer, Answer)
    recorded = recorded_of(decision)
    assert decision.answer.producer == Producer(recorded.producer_id, recorded.producer_epoch)
    return decision.answer.producer


# -- InitProducerId


def test_an_unknown_id_gets_a_fresh_producer_id_with_epoch_0():
    asked = decided(None, InitProducer(TIMEOUT))
    assert asked.answer is NEEDS_PRODUCER_ID
    decision = decided(None, InitProducer(TIMEOUT, fresh_id=FRESH_ID))
    assert given(decision) == Producer(FRESH_ID, 0)
    assert recorded_of(decision) == Recorded(FRESH_ID, 0, TIMEOUT, Status.EMPTY, {}, NOW, NO_TIME)


def test_what_the_client_of_an_unknown_id_expects_does_not_count():
    decision = decided(None, InitProducer(TIMEOUT, Producer(5, 9), FRESH_ID))
    assert given(decision) == Producer(FRESH_ID, 0)


@pytest.mark.parametrize("status", AT_REST)
@pytest.mark.parametrize("expected", [None, OWNER])
def test_an_id_at_rest_gets_the_next_epoch_and_the_new_timeout(status, expected):
    decision = decided(an_id(status), InitProducer(5, expected))
    assert given(decision) == Producer(7, 4)
    assert recorded_of(decision) == Recorded(7, 4, 5, Status.EMPTY, {}, NOW, NO_TIME)


def test_a_repeated_request_gets_the_same_answer():
    first = decided(an_id(Status.EMPTY), InitProducer(TIMEOUT, OWNER))
    known = an_id(Status.EMPTY, given(first), first.previous)
    again = decided(known, InitProducer(TIMEOUT, OWNER))
    assert given(again) == given(first)
    assert again.previous == first.previous


def test_a_request_without_an_epoch_is_no_repetition():
    first = decided(an_id(Status.EMPTY), InitProducer(TIMEOUT))
    known = an_id(Status.EMPTY, given(first), first.previous)
    assert given(decided(known, InitProducer(TIMEOUT))) == Producer(7, 5)
    assert error_of(decided(known, InitProducer(TIMEOUT, OWNER))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("status", [*AT_REST, Status.ONGOING])
@pytest.mark.parametrize("expected", [Producer(8, 3), Producer(7, 2), Producer(7, 4), Producer(8, EXHAUSTED_EPOCH)])
def test_who_is_not_the_owner_is_fenced_and_aborts_nothing(status, expected):
    decision = decided(an_id(status), InitProducer(TIMEOUT, expected, FRESH_ID))
    assert error_of(decision) is ErrorCode.PRODUCER_FENCED
    assert decision.record is None


@pytest.mark.parametrize("expected", [None, OWNER])
def test_an_open_transaction_is_aborted_with_a_higher_epoch(expected):
    decision = decided(an_id(Status.ONGOING), InitProducer(5, expected))
    assert error_of(decision) is ErrorCode.CONCURRENT_TRANSACTIONS
    fenced = Recorded(7, 4, TIMEOUT, Status.PREPARE_ABORT, {A0: None, A1: None}, NOW, THEN)
    assert recorded_of(decision) == fenced
    # The raised epoch is given to no client; one without an epoch gets the one behind it.
    assert given(decided(an_id(Status.COMPLETE_ABORT, Producer(7, 4)), InitProducer(5))) == Producer(7, 5)


@pytest.mark.parametrize("status", PREPARED)
def test_while_the_markers_are_written_the_client_asks_again(status):
    for expected in (None, OWNER, Producer(99, 0)):
        decision = decided(an_id(status), InitProducer(TIMEOUT, expected))
        assert error_of(decision) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert decision.record is None


@pytest.mark.parametrize("status", AT_REST)
@pytest.mark.parametrize("epoch", [EXHAUSTED_EPOCH, EPOCH_MAX])
@pytest.mark.parametrize("names_its_epoch", [True, False])
def test_an_exhausted_epoch_gets_a_new_producer_id(status, epoch, names_its_epoch):
    owner = Producer(7, epoch)
    expected = owner if names_its_epoch else None
    assert decided(an_id(status, owner), InitProducer(TIMEOUT, expected)).answer is NEEDS_PRODUCER_ID
    decision = decided(an_id(status, owner), InitProducer(TIMEOUT, expected, FRESH_ID))
    assert given(decision) == Producer(FRESH_ID, 0)
    # The client of the old id may not have received the answer.
    known = an_id(Status.EMPTY, Producer(FRESH_ID, 0), decision.previous)
    again = decided(known, InitProducer(TIMEOUT, owner))
    if names_its_epoch:
        assert given(again) == Producer(FRESH_ID, 0)
    else:
        assert error_of(again) is ErrorCode.PRODUCER_FENCED


def test_the_last_epoch_that_is_given_out_is_given_again_to_a_repeated_request():
    # Kafka fails with UNKNOWN_SERVER_ERROR.
    before = Producer(7, EXHAUSTED_EPOCH - 1)
    first = decided(an_id(Status.EMPTY, before), InitProducer(TIMEOUT, before))
    assert given(first) == Producer(7, EXHAUSTED_EPOCH)
    known = an_id(Status.EMPTY, given(first), first.previous)
    assert given(decided(known, InitProducer(TIMEOUT, before, FRESH_ID))) == Producer(7, EXHAUSTED_EPOCH)


@pytest.mark.parametrize("status", list(Status))
def test_while_a_record_is_not_committed_nothing_changes(status):
    known = an_id(status)
    events = (
        InitProducer(TIMEOUT),
        InitProducer(TIMEOUT, OWNER),
        AddPartitions(OWNER, {B0: None}),
        EndTransaction(OWNER, commit=True),
    )
    for event in events:
        decision = decided(known, event, pending=True)
        assert error_of(decision) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert decision.record is None
    assert decided(known, TimeoutPassed(), pending=True, now_ms=NOW + 10 * TIMEOUT) is NOTHING
    assert not is_unused(known.recorded, NOW, 0, pending=True)


# -- AddPartitionsToTxn


@pytest.mark.parametrize("status", AT_REST)
def test_the_first_partitions_begin_a_transaction(status):
    decision = decided(an_id(status), AddPartitions(OWNER, {B0: None}))
    assert error_of(decision) is ErrorCode.NONE
    assert recorded_of(decision) == Recorded(7, 3, TIMEOUT, Status.ONGOING, {B0: None}, NOW, NOW)


def test_more_partitions_join_the_transaction_which_keeps_its_start():
    decision = decided(an_id(Status.ONGOING), AddPartitions(OWNER, {A1: None, B0: None}))
    partitions = {A0: None, A1: None, B0: None}
    assert recorded_of(decision) == Recorded(7, 3, TIMEOUT, Status.ONGOING, partitions, NOW, THEN)


@pytest.mark.parametrize("partitions", [{A1: None}, {}])
def test_partitions_that_the_transaction_has_are_not_stored_again(partitions):
    decision = decided(an_id(Status.ONGOING), AddPartitions(OWNER, partitions))
    assert (error_of(decision), decision.record) == (ErrorCode.NONE, None)


def test_no_partition_begins_a_transaction_too():
    assert recorded_of(decided(an_id(Status.EMPTY), AddPartitions(OWNER, {}))).status is Status.ONGOING


@pytest.mark.parametrize("status", PREPARED)
def test_a_decided_transaction_takes_no_partitions(status):
    assert error_of(decided(an_id(status), AddPartitions(OWNER, {}))) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("pending", [True, False])
def test_only_the_owner_may_add_verify_or_end(status, pending):
    known = an_id(status)
    wrong = {
        Producer(8, 3): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        Producer(7, 2): ErrorCode.PRODUCER_FENCED,
        Producer(7, 4): ErrorCode.PRODUCER_FENCED,
    }
    for producer, error in wrong.items():
        events = AddPartitions(producer, {}), VerifyPartitions(producer, {}), EndTransaction(producer, commit=True)
        for event in events:
            decision = decided(known, event, pending=pending)
            assert (error_of(decision), decision.record) == (error, None)
            assert error_of(decided(None, event)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- verification


@pytest.mark.parametrize("status", [Status.ONGOING, *AT_REST])
@pytest.mark.parametrize("pending", [True, False])
def test_a_leader_learns_which_partitions_the_transaction_has(status, pending):
    decision = decided(an_id(status), VerifyPartitions(OWNER, {A0: None, B0: None}), pending=pending)
    has = ErrorCode.NONE if status is Status.ONGOING else ErrorCode.TRANSACTION_ABORTABLE
    errors = {A0: has, B0: ErrorCode.TRANSACTION_ABORTABLE}
    assert decision == Decision(Answer(ErrorCode.NONE, partition_errors=errors))


@pytest.mark.parametrize("status", PREPARED)
def test_a_leader_learns_that_the_transaction_is_decided(status):
    assert error_of(decided(an_id(status), VerifyPartitions(OWNER, {}))) is ErrorCode.CONCURRENT_TRANSACTIONS


# -- EndTxn


@pytest.mark.parametrize("commit", [True, False])
def test_the_decision_is_stored_with_the_partitions(commit):
    decision = decided(an_id(Status.ONGOING), EndTransaction(OWNER, commit))
    status = Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT
    assert error_of(decision) is ErrorCode.NONE
    assert recorded_of(decision) == Recorded(7, 3, TIMEOUT, status, {A0: None, A1: None}, NOW, THEN)


@pytest.mark.parametrize(
    ("status", "commit", "error"),
    [
        (Status.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (Status.EMPTY, False, ErrorCode.INVALID_TXN_STATE),
        (Status.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (Status.PREPARE_COMMIT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (Status.PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (Status.PREPARE_ABORT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (Status.COMPLETE_COMMIT, True, ErrorCode.NONE),
        (Status.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (Status.COMPLETE_ABORT, False, ErrorCode.NONE),
        (Status.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_decision_cannot_be_reversed_and_a_repeated_one_is_confirmed(status, commit, error):
    decision = decided(an_id(status), EndTransaction(OWNER, commit))
    assert (error_of(decision), decision.record) == (error, None)


# -- time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced():
    known = an_id(Status.ONGOING)
    assert decided(known, TimeoutPassed(), now_ms=THEN + TIMEOUT) is NOTHING
    decision = decided(known, TimeoutPassed(), now_ms=THEN + TIMEOUT + 1)
    assert decision.answer is None
    recorded = recorded_of(decision)
    assert (recorded.status, recorded.producer_epoch) == (Status.PREPARE_ABORT, 4)


@pytest.mark.parametrize("status", [*AT_REST, *PREPARED])
def test_only_an_open_transaction_can_take_too_long(status):
    assert decided(an_id(status), TimeoutPassed(), now_ms=NOW + 10 * TIMEOUT) is NOTHING


def test_the_highest_epoch_is_fenced_once_more_without_a_higher_one():
    # Kafka throws an exception, and the transaction is never aborted.
    known = an_id(Status.ONGOING, Producer(7, EPOCH_MAX))
    assert recorded_of(decided(known, InitProducer(TIMEOUT))).producer_epoch == EPOCH_MAX


@pytest.mark.parametrize(
    ("status", "complete"),
    [(Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT), (Status.PREPARE_ABORT, Status.COMPLETE_ABORT)],
)
def test_a_transaction_is_complete_when_each_partition_has_its_marker(status, complete):
    known = an_id(status)
    assert decided(known, MarkersWritten()) is NOTHING
    known.unmarked.clear()
    assert recorded_of(decided(known, MarkersWritten())) == Recorded(7, 3, TIMEOUT, complete, {}, NOW, THEN)


@pytest.mark.parametrize("status", [*AT_REST, Status.ONGOING])
def test_only_a_decided_transaction_can_be_complete(status):
    assert decided(an_id(status), MarkersWritten()) is NOTHING


@pytest.mark.parametrize("status", list(Status))
def test_an_unused_id_is_forgotten_unless_it_has_a_transaction(status):
    recorded, age_ms = an_id(status).recorded, NOW - THEN
    assert not is_unused(recorded, NOW, age_ms + 1, pending=False)
    assert is_unused(recorded, NOW, age_ms, pending=False) is (status in AT_REST)


def test_the_coordinator_does_nothing_about_an_id_that_is_gone():
    for event in (TimeoutPassed(), MarkersWritten()):
        assert decided(None, event) is NOTHING


# -- transitions


def test_a_transition_that_the_table_does_not_allow_is_a_bug():
    with pytest.raises(InvariantBroken, match="cannot go from PREPARE_COMMIT to PREPARE_ABORT"):
        an_id(Status.PREPARE_COMMIT).recorded.entering(Status.PREPARE_ABORT, NOW)
