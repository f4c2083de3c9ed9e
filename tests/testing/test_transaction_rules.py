"""What the simulator knows of transactions: the books that the rules X1 to X10 are checked with."""

import pytest

from barnabas.coordinators.transactions.state import NO_PRODUCER, Producer, Recorded, Status, TransactionRecord
from barnabas.testing.simulation.committed_readers import filter_batches
from barnabas.testing.simulation.log_transactions import Ended, LogTransactions, Marker
from barnabas.testing.simulation.transaction_rules import Attempt, TransactionRules
from barnabas.testing.simulation.truth import Shadow, Truth
from barnabas.wire import messages as m
from barnabas.wire.records import ABORT, CONTROL, TRANSACTIONAL, BatchHeader, build_batch, build_control_batch
from barnabas.wire.topics import TRANSACTION_TOPIC, TopicPartition

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
ONE, TWO = Producer(7, 0), Producer(7, 1)
COMMITTED, ABORTED = Marker(True, 0), Marker(False, 0)


def batch(offset, *, producer=ONE, crc=None, is_control=False):
    attributes = TRANSACTIONAL | (CONTROL if is_control else 0)
    crc = 1000 + offset if crc is None else crc
    return BatchHeader(offset, 100, 0, 2, crc, attributes, 0, 0, 0, *producer, -1 if is_control else 0, 1)


class Books:
    """One cluster of one broker: what is appended is committed at once, unless a test says otherwise."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.rules = TransactionRules(lambda rule, _: self.broken.append(rule), lambda: 0)
        self.truths: dict[TopicPartition, tuple[Truth, Shadow]] = {}
        self.number = 0

    def partition(self, key: TopicPartition) -> tuple[Truth, Shadow]:
        return self.truths.setdefault(key, (Truth(key.topic, bytes(16), key.partition), Shadow(1)))

    def append(self, key, header, content=None, *, commits=True) -> None:
        truth, shadow = self.partition(key)
        if content is not None:
            truth.contents[header.crc] = content
        self.rules.taken(truth, shadow, header, is_new=True)
        self.rules.looked()
        if commits:
            truth.committed.append(header)
            self.rules.committed(truth, header, 1)

    def decide(self, status, *, producer=ONE, partitions=(T0,), name="id") -> None:
        self.number += 1
        recorded = Recorded(*producer, 60_000, status, dict.fromkeys(partitions), 0)
        header = batch(self.number)._replace(attributes=0, producer_id=-1)
        self.append(TopicPartition(TRANSACTION_TOPIC, 0), header, [TransactionRecord(name, recorded)])

    def mark(self, key, offset, marker, *, producer=ONE, commits=True) -> None:
        self.append(key, batch(offset, producer=producer, is_control=True), marker, commits=commits)

    def begin(self, *, producer=ONE, partitions=(T0,), number=1) -> Attempt:
        attempt = Attempt("id", "client", number, producer)
        self.rules.begun(attempt)
        self.decide(Status.ONGOING, producer=producer, partitions=partitions)
        self.rules.added(attempt, partitions)
        return attempt

    def write(self, attempt, key, offset, *, commits=True) -> None:
        header = batch(offset, producer=attempt.producer)
        self.rules.sent(attempt, key, header.crc)
        self.append(key, header, commits=commits)
        attempt.batches[key, header.crc] = True


@pytest.fixture
def books():
    books = Books()
    books.decide(Status.EMPTY, partitions=())
    books.rules.given("id", ONE, "client", NO_PRODUCER)
    return books


def a_transaction(books, *, commit=True, partitions=(T0,), first_offset=0, number=1):
    attempt = books.begin(partitions=partitions, number=number)
    for key in partitions:
        books.write(attempt, key, first_offset)
    attempt.asked = commit
    books.decide(Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT, partitions=partitions)
    books.rules.answered(attempt, is_commit=commit)
    return attempt


def finish(books, *, commit=True, partitions=(T0,), offset=1):
    for key in partitions:
        books.mark(key, offset, COMMITTED if commit else ABORTED)
    books.decide(Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT, partitions=())


@pytest.mark.parametrize("commit", [True, False])
def test_two_right_transactions_break_no_rule(books, commit):
    a_transaction(books, commit=commit, partitions=(T0, U0))
    finish(books, commit=commit, partitions=(T0, U0))
    a_transaction(books, first_offset=2, number=2)
    finish(books, offset=3)
    books.rules.check_attempts(truth for truth, _ in books.truths.values())
    assert books.broken == []
    assert books.rules.why_not_ended(truth for truth, _ in books.truths.values()) is None


def test_a_decision_is_not_reversed(books):
    a_transaction(books)
    books.decide(Status.PREPARE_ABORT)
    assert books.broken[0] == "X1"


def test_a_commit_that_no_client_asked_for(books):
    books.write(books.begin(), T0, 0)
    books.decide(Status.PREPARE_COMMIT)
    assert books.broken == ["X1"]


def test_an_abort_that_no_client_asked_for_raises_the_epoch(books):
    attempt = books.begin()
    books.write(attempt, T0, 0)
    books.decide(Status.PREPARE_ABORT, producer=TWO)
    assert books.broken == []
    books = Books()
    books.begin()
    books.decide(Status.PREPARE_ABORT)
    assert "X9" in books.broken


def test_a_client_is_answered_what_is_not_decided(books):
    attempt = books.begin()
    books.write(attempt, T0, 0)
    attempt.asked = True
    books.rules.answered(attempt, is_commit=True)
    assert books.broken == ["X1"]


def test_two_attempts_in_one_transaction(books):
    books.write(books.begin(), T0, 0)
    second = Attempt("id", "client", 2, ONE)
    books.rules.begun(second)
    books.write(second, T0, 1)
    assert books.broken == ["X1"]


def test_a_marker_before_its_decision_is_committed(books):
    books.write(books.begin(), T0, 0)
    books.mark(T0, 1, COMMITTED)
    assert "X7" in books.broken


def test_the_marker_of_the_transaction_before(books):
    a_transaction(books)
    finish(books)
    books.write(books.begin(number=2), T0, 2)
    books.mark(T0, 3, COMMITTED)
    assert books.broken == ["X6"]


def test_data_behind_the_marker(books):
    attempt = a_transaction(books, partitions=(T0, U0))
    books.mark(T0, 1, COMMITTED)
    books.write(attempt, T0, 2)
    assert books.broken == ["X6"]


def test_data_in_a_partition_that_was_not_added(books):
    books.write(books.begin(), U0, 0)
    assert books.broken == ["X6"]


def test_a_leader_that_was_replaced_may_write_what_no_other_broker_has(books):
    books.begin()
    truth, _ = books.partition(U0)
    truth.leaders |= {0: 1, 1: 2}
    books.append(U0, batch(0), commits=False)
    assert books.broken == []


def test_what_a_replaced_leader_has_written_counts_if_it_leads_again(books):
    attempt = books.begin()
    truth, _ = books.partition(T0)
    truth.leaders |= {0: 1, 1: 2}
    books.write(attempt, T0, 0, commits=False)
    truth.leaders[2] = 1
    books.rules.committed(truth, batch(0), 1)
    attempt.asked = True
    books.decide(Status.PREPARE_COMMIT)
    assert books.rules.is_committed(truth, batch(0))
    assert books.broken == []


def test_data_of_an_epoch_that_was_not_given_out(books):
    attempt = books.begin()
    books.write(attempt, T0, 0)
    books.append(T0, batch(1, producer=TWO))
    assert books.broken == ["X6"]


def test_complete_without_a_marker(books):
    a_transaction(books, partitions=(T0, U0))
    finish(books, partitions=(T0,))
    assert books.broken == ["X6"]


def test_complete_without_a_marker_where_nothing_was_written(books):
    attempt = books.begin(partitions=(T0, U0))
    books.write(attempt, T0, 0)
    attempt.asked = True
    books.decide(Status.PREPARE_COMMIT, partitions=(T0, U0))
    finish(books, partitions=(T0,))
    assert books.broken == []


def test_an_epoch_that_is_given_to_two_clients(books):
    books.rules.given("id", ONE, "other", NO_PRODUCER)
    assert books.broken == ["X9"]


def test_a_commit_of_an_epoch_that_was_replaced(books):
    attempt = books.begin()
    books.write(attempt, T0, 0)
    attempt.asked = True
    books.rules._id_of(7).producers.append(TWO)
    books.rules._id_of(7).given = TWO
    books.decide(Status.PREPARE_COMMIT)
    assert "X9" in books.broken


def test_a_client_that_was_fenced_does_not_recover(books):
    books.decide(Status.EMPTY, producer=TWO, partitions=())
    books.rules.given("id", TWO, "other", NO_PRODUCER)
    books.decide(Status.EMPTY, producer=Producer(7, 2), partitions=())
    books.rules.given("id", Producer(7, 2), "client", ONE)
    assert books.broken == ["X9"]


def test_what_readers_of_committed_records_get(books):
    a_transaction(books)
    truth, _ = books.partition(T0)
    books.rules.read(truth, "reader", truth.committed, {0})
    assert books.broken == []
    books.rules.read(truth, "reader", truth.committed, set())
    assert books.broken == ["X4"]
    finish(books)
    books.write(books.begin(number=2), T0, 2)
    books.rules.read(truth, "reader", truth.committed[2:], {2})
    assert books.broken == ["X4", "X3"]
    books.rules.read(truth, "reader", [truth.committed[0], truth.committed[2]], {0})
    assert "X4" in books.broken[2:]


def test_an_input_is_consumed_once(books):
    first = books.begin()
    first.offsets["group", T0] = (0, 5)
    first.asked = True
    books.decide(Status.PREPARE_COMMIT)
    books.rules.resumed("group", 1, T0, 5, asked_ms=1)
    assert books.broken == []
    books.rules.resumed("group", 1, T0, 0, asked_ms=1)
    assert books.broken == ["X8"]
    finish(books, offset=0)
    second = books.begin(number=2)
    second.offsets["group", T0] = (4, 6)
    second.asked = True
    books.decide(Status.PREPARE_COMMIT)
    assert books.broken == ["X8", "X10"]


def test_what_is_missing_at_the_end(books):
    attempt = a_transaction(books)
    assert books.rules.why_not_ended([])[0] == "X12"
    finish(books)
    attempt.batches[T0, 99] = True
    books.rules.check_attempts(truth for truth, _ in books.truths.values())
    assert books.broken == ["X2"]


# -- one log


def test_a_last_stable_offset_waits_until_the_marker_is_committed():
    log, contents = LogTransactions(), {}
    log.take(batch(0), contents)
    assert log.stable_offsets(1, 0) == (0, 0)
    contents[50] = ABORTED
    ended = log.take(batch(1, crc=50, is_control=True), contents)
    assert ended == Ended(7, 0, 1, 2, False)
    assert log.stable_offsets(1, 0) == (0, 0)
    assert log.stable_offsets(2, 0) == (2, 2)


def test_a_process_may_not_know_that_a_marker_is_not_committed_yet():
    log, contents = LogTransactions(), {50: COMMITTED}
    log.take(batch(0), contents)
    log.take(batch(1, crc=50, is_control=True), contents)
    log.reread_end = 2
    assert log.stable_offsets(1, 0) == (0, 1)


def test_an_entry_of_the_index_names_the_oldest_transaction_that_is_still_open():
    log, contents = LogTransactions(), {50: ABORTED}
    for offset, producer in enumerate((ONE, Producer(8, 0), Producer(9, 0))):
        log.take(batch(offset, producer=producer), contents)
    assert log.take(batch(3, crc=50, is_control=True), contents).last_stable_offset == 1


# -- a reader


def test_a_reader_leaves_out_what_is_aborted_up_to_its_marker():
    made = [build_batch([(None, b"a")], timestamp_ms=0, producer_id=7, producer_epoch=0, base_sequence=0,
                        base_offset=offset, attributes=TRANSACTIONAL) for offset in (0, 2)]  # fmt: skip
    marker = build_control_batch(ABORT, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=0)
    control = bytearray(marker.data)
    control[:8] = (1).to_bytes(8)
    records = memoryview(bytes(made[0].data) + bytes(control) + bytes(made[1].data))
    aborted = [m.FetchResponse.AbortedTransaction(producer_id=7, first_offset=0)]
    served, delivered = filter_batches(m.FetchResponse.PartitionData(aborted_transactions=aborted, records=records))
    assert [each.base_offset for each in served] == [0, 1, 2]
    assert delivered == {2}
