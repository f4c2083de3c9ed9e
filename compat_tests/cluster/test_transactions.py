"""The check of transactions finds errors: each guarantee is broken once, in a made-up history.

The history: `t0-1-0` writes two inputs, `t0-1-1` one more and is aborted. `e0-1-0` transforms the first input and
`e0-1-1` the second one, both to two topics. `e0-1-2` is aborted. The readers got what is committed.
"""

import copy

import pytest

from barnabas.wire.records import ABORT, COMMIT, build_batch, build_control_batch
from compat_tests.cluster.ledger import make_value, read_stamp
from compat_tests.cluster.replicas import read_replicas
from compat_tests.cluster.transactions import Readings, check_transactions

SOURCE, DEBITS, CREDITS = ("ledger", 0), ("debits", 0), ("credits", 0)


def stamp(transaction, number):
    return read_stamp(make_value(transaction, number, 60))


def ending(transaction, wish, *sources, offset):
    """The end of a transaction that transforms these inputs, as its producer asks for it."""
    records = []
    for source in sources:
        for place in (DEBITS, CREDITS):
            records.append([*place, len(records), [0, source]])
    return event("ending", transaction=transaction, wish=wish, records=records, offsets={"0": offset})


def event(kind, **values):
    return {"event": kind, "time": 0.0, **values}


def begun(transaction):
    return event("begun", transaction=transaction, id=transaction[:2])


def ended(transaction, outcome):
    return event("ended", transaction=transaction, id=transaction[:2], outcome=outcome)


def written(transaction, wish, *numbers):
    records = [[*SOURCE, number, None] for number in numbers]
    return event("ending", transaction=transaction, wish=wish, records=records, offsets={})


def resumed(offset):
    return event("resumed", member="e1", group="readers", asked=0.0, topic="ledger", partition=0, offset=offset)


# Offset 2 of the input is that of the marker; offset 1 of the outputs as well, and 3 to 4 are the aborted transaction.
COMMITTED = {
    SOURCE: {0: stamp("t0-1-0", 0), 1: stamp("t0-1-0", 1)},
    DEBITS: {0: stamp("e0-1-0", 0), 2: stamp("e0-1-1", 0)},
    CREDITS: {0: stamp("e0-1-0", 1), 2: stamp("e0-1-1", 1)},
}
ABORTED = {SOURCE: {3: stamp("t0-1-1", 0)}, DEBITS: {4: stamp("e0-1-2", 0)}, CREDITS: {4: stamp("e0-1-2", 1)}}


class History:
    """What clients know, and what lies there; tests change it."""

    def __init__(self):
        self.committed = copy.deepcopy(COMMITTED)
        self.aborted = copy.deepcopy(ABORTED)
        self.events = [
            *(begun("t0-1-0"), written("t0-1-0", "commit", 0, 1), ended("t0-1-0", "committed")),
            *(begun("t0-1-1"), written("t0-1-1", "abort", 0), ended("t0-1-1", "aborted")),
            *(begun("e0-1-0"), ending("e0-1-0", "commit", 0, offset=1), ended("e0-1-0", "committed")),
            *(begun("e0-1-1"), ending("e0-1-1", "commit", 1, offset=2), ended("e0-1-1", "committed")),
            *(begun("e0-1-2"), ending("e0-1-2", "abort", 1, offset=2), ended("e0-1-2", "aborted")),
            resumed(1),
        ]
        self.group_offset = 2
        self.replicas = None
        self.reads = None

    def forget(self, *kinds, transaction):
        """The client has not heard these, or was killed before."""
        self.events = [
            each for each in self.events if each.get("transaction") != transaction or each["event"] not in kinds
        ]

    def kinds(self):
        """What is found."""
        everything = {
            place: dict(sorted({**self.aborted[place], **self.committed[place]}.items())) for place in COMMITTED
        }
        reads = self.reads or [*read_by("read_committed", self.committed), *read_by("read_uncommitted", everything)]
        replicas = self.replicas or {place: {1: records, 2: records} for place, records in self.committed.items()}
        readings = Readings(self.committed, everything, replicas, {0: self.group_offset})
        return {finding.kind for finding in check_transactions([*self.events, *reads], "ledger", readings)}


def read_by(isolation, there):
    return [
        event(
            "read",
            member=isolation,
            isolation=isolation,
            topic=place[0],
            partition=place[1],
            offset=offset,
            **each._asdict(),
        )
        for place, records in there.items()
        for offset, each in records.items()
    ]


@pytest.fixture
def history():
    return History()


def test_nothing_is_found_where_every_promise_was_kept(history):
    assert history.kinds() == set()


# -- the five plants


def test_a_committed_transaction_of_which_nothing_is_read_is_lost(history):
    del history.committed[DEBITS][2], history.committed[CREDITS][2]
    assert "lost" in history.kinds()


def test_a_transaction_of_which_a_part_is_read_is_torn(history):
    del history.committed[CREDITS][2]
    assert history.kinds() == {"torn"}


def test_an_aborted_transaction_must_not_be_read(history):
    for place in (DEBITS, CREDITS):
        history.committed[place][4] = history.aborted[place][4]
    assert history.kinds() == {"aborted-read", "doubled"}  # the input was transformed before


def test_an_input_that_two_transactions_transformed_is_doubled(history):
    history.events += [begun("e1-1-0"), ending("e1-1-0", "commit", 1, offset=2), ended("e1-1-0", "committed")]
    for number, place in enumerate((DEBITS, CREDITS)):
        history.committed[place][6] = stamp("e1-1-0", number)
    assert history.kinds() == {"doubled"}


def test_an_offset_without_its_records_and_records_without_their_offset(history):
    history.group_offset = 1
    assert history.kinds() == {"records-alone"}
    history.group_offset = 2
    history.forget("begun", "ending", "ended", transaction="e0-1-1")
    del history.committed[DEBITS][2], history.committed[CREDITS][2]
    assert history.kinds() == {"offset-alone"}


# -- fates


def test_a_transaction_with_an_unknown_outcome_is_read_as_a_whole_or_not_at_all(history):
    history.forget("ended", transaction="e0-1-1")
    assert history.kinds() == set()
    del history.committed[CREDITS][2]
    assert history.kinds() == {"torn"}
    del history.committed[DEBITS][2]
    history.group_offset = 1
    assert history.kinds() == {"lost"}  # the input, in the end


def test_a_transaction_that_never_asked_for_a_commit_is_aborted(history):
    history.forget("ending", "ended", transaction="e0-1-1")
    assert "aborted-read" in history.kinds()


def test_a_transaction_is_aborted_when_a_successor_has_come(history):
    history.events.insert(-2, event("fenced", transaction="e0-1-2"))
    assert history.kinds() == set()
    history.events[-2]["outcome"] = "committed"
    assert history.kinds() == {"fenced"}


def test_a_record_of_no_transaction_must_not_be_read(history):
    history.committed[DEBITS][6] = stamp("e9-1-0", 0)
    assert history.kinds() == {"aborted-read"}


def test_records_of_plain_producers_are_read(history):
    place = {"topic": "ledger", "partition": 0, "offset": 5}
    history.committed[SOURCE][5] = stamp("p0", 0)
    history.events += [event("acked", **place, **stamp("p0", 0)._asdict())]
    assert history.kinds() == {"lost"}  # not transformed
    history.events += [begun("e1-1-0"), ending("e1-1-0", "commit", 5, offset=6), ended("e1-1-0", "committed")]
    for number, output in enumerate((DEBITS, CREDITS)):
        history.committed[output][6] = stamp("e1-1-0", number)
    history.group_offset = 6
    assert history.kinds() == set()


def test_a_record_at_two_offsets_is_doubled(history):
    history.committed[DEBITS][6] = history.committed[DEBITS][0]
    assert history.kinds() == {"doubled"}


def test_an_aborted_input_must_not_be_transformed(history):
    history.events += [begun("e1-1-0"), ending("e1-1-0", "abort", 3, offset=4), ended("e1-1-0", "aborted")]
    assert history.kinds() == {"aborted-read"}


def test_a_member_goes_on_from_an_offset_that_was_committed(history):
    history.events += [event("begun", transaction="e1-1-0", id="e1")]
    history.events += [ending("e1-1-0", "abort", 1, offset=7), ended("e1-1-0", "aborted"), resumed(7)]
    assert history.kinds() == {"offset-alone"}


# -- readers and logs


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_reader_that_did_not_get_a_record_missed_it(history, isolation):
    reads = [*read_by("read_committed", COMMITTED), *read_by("read_uncommitted", everything())]
    reads.remove(next(each for each in reads if each["isolation"] == isolation and each["topic"] == "debits"))
    history.reads = reads
    assert history.kinds() == {"missed"}


def test_a_reader_that_got_an_aborted_record_for_a_while_is_found(history):
    history.reads = [*read_by("read_committed", everything()), *read_by("read_uncommitted", everything())]
    assert history.kinds() == {"missed"}


def test_of_a_reader_that_hung_only_the_end_may_be_missing(history):
    whole = read_by("read_committed", COMMITTED)
    debits = [each for each in whole if each["topic"] == "debits"]
    history.events += [event("hung", member="read_committed")]
    everything_else = [*read_by("read_uncommitted", everything()), *(each for each in whole if each not in debits)]
    history.reads = [*everything_else, *debits[:-1]]
    assert history.kinds() == set()
    history.reads = [*everything_else, *debits[1:]]
    assert history.kinds() == {"missed"}


def test_a_reader_that_got_a_record_twice_is_found(history):
    history.reads = [*read_by("read_committed", COMMITTED) * 2, *read_by("read_uncommitted", everything())]
    assert history.kinds() == {"missed"}


def everything():
    return {place: {**records, **ABORTED[place]} for place, records in COMMITTED.items()}


def test_a_log_that_commits_other_records_than_are_read_differs(history):
    history.replicas = {place: {1: records, 2: everything()[place]} for place, records in COMMITTED.items()}
    assert history.kinds() == {"differ"}


def test_what_is_committed_in_a_log_is_what_its_markers_say(tmp_path):
    def data(offset, producer_id, transaction):
        value = make_value(transaction, 0, 60)
        bits = 1 << 4 if producer_id >= 0 else 0
        return build_batch(
            [(None, value)], timestamp_ms=0, producer_id=producer_id, base_offset=offset, attributes=bits
        )

    def marker(offset, producer_id, kind):
        return build_control_batch(
            kind, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp_ms=0, base_offset=offset
        )

    directory = tmp_path / "letters-0"
    directory.mkdir()
    batches = [data(0, 7, "a"), data(1, 8, "b"), marker(2, 7, COMMIT), data(3, -1, "p0"), marker(4, 8, ABORT)]
    batches += [data(5, 7, "c"), marker(6, 8, COMMIT)]  # still open; of no transaction
    (directory / f"{0:020}.log").write_bytes(b"".join(bytes(batch.data) for batch in batches))
    for committed, offsets in ((True, [0, 3]), (False, [0, 1, 3, 5])):
        held = read_replicas({1: tmp_path}, ["letters"], committed=committed)
        assert sorted(held["letters", 0][1]) == offsets
