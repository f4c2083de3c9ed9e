"""Compares what clients know of transactions with what readers of committed records got (pure).

The *fate* of a transaction is what its producer knows: committed or aborted if that was the answer; aborted if it never
asked for a commit, or only after a successor had taken the id over; else either. A `Finding` is one broken guarantee:

    lost           a transaction was committed, and none of its records is read; or an input was never transformed,
                   although the group had the time
    torn           some records of a transaction are read, others are not
    aborted-read   a record of an aborted transaction is read; or of none that was begun
    fenced         a producer committed a transaction after a successor had taken the id over
    doubled        a record is read at two offsets, or an input was transformed by two transactions that are read
    missed         a reader that was there all the time did not get a record, got one too many, or one twice
    differ         a replica's log, with its markers, commits other records than readers get
    offset-alone   the group's offset is past an input of which no transformation is read, or is that of a transaction
                   that is not read
    records-alone  the transformation of an input is read, and the group's offset is not past it
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from compat_tests.cluster.checker import Finding, Place, Records, few, name_of
from compat_tests.cluster.ledger import Event, Stamp

Source = tuple[int, int]  # partition and offset of the input topic

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


class Readings(NamedTuple):
    """What lies in the partitions in the end."""

    committed: Mapping[Place, Records]  # a read_committed reader's
    all: Mapping[Place, Records]  # a read_uncommitted reader's
    replicas: Mapping[Place, Mapping[int, Records]]  # what is committed in the log of each broker
    group_offsets: Mapping[int, int]  # of the input topic's partitions


class Transaction:
    """One transaction, as its producer knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: dict[int, Place] = {}  # by number
        self.sources: dict[int, Source] = {}  # by number; of input transactions there are none
        self.offsets: dict[int, int] = {}
        self.fate = ABORTED  # a commit was not asked for
        self.is_fenced = False
        self.outcome = ""

    def take(self, event: Event) -> None:
        kind = event["event"]
        if kind == "fenced":
            self.is_fenced = True
        elif kind == "ending":
            for topic, partition, number, source in event["records"]:
                self.records[number] = topic, partition
                if source is not None:
                    self.sources[number] = source[0], source[1]
            self.offsets = {int(partition): offset for partition, offset in event["offsets"].items()}
            if event["wish"] == "commit" and not self.is_fenced:
                self.fate = UNKNOWN
        elif kind == "ended":
            self.outcome = event["outcome"]
            if not self.is_fenced:
                self.fate = self.outcome


def check_transactions(events: Iterable[Event], source: str, readings: Readings) -> list[Finding]:
    """All broken guarantees; `source` is the input topic."""
    events = list(events)
    transactions = transactions_of(events)
    read = _read_by_transaction(readings.committed)
    inputs = {
        (place[1], offset) for place, records in readings.committed.items() if place[0] == source for offset in records
    }
    visible = [transaction for transaction in transactions.values() if read.get(transaction.name)]
    return [
        *_check_fates(transactions, read),
        *_check_begun(events, transactions, read),
        *_check_twice(readings.committed),
        *_check_inputs(transactions.values(), visible, inputs, readings.group_offsets),
        *_check_resumed(events, transactions, read),
        *_check_readers(events, READ_COMMITTED, readings.committed),
        *_check_readers(events, READ_UNCOMMITTED, readings.all),
        *_check_logs(readings),
    ]


def transactions_of(events: Iterable[Event]) -> dict[str, Transaction]:
    """Every transaction that was begun, by name."""
    transactions: dict[str, Transaction] = {}
    for event in events:
        if event["event"] == "begun":
            transactions[event["transaction"]] = Transaction(event["transaction"])
        elif event["event"] in ("fenced", "ending", "ended"):
            transactions[event["transaction"]].take(event)
    return transactions


def _read_by_transaction(committed: Mapping[Place, Records]) -> dict[str, set[int]]:
    """The numbers of the records that are read, by transaction; plain producers count as well."""
    read: dict[str, set[int]] = defaultdict(set)
    for records in committed.values():
        for stamp in records.values():
            read[stamp.producer].add(stamp.sequence)
    return read


def _is_read(transaction: Transaction, read: Mapping[str, set[int]]) -> bool:
    return bool(read.get(transaction.name))


# -- records


def _check_fates(transactions: Mapping[str, Transaction], read: Mapping[str, set[int]]) -> Iterator[Finding]:
    lost, torn, aborted, fenced = [], [], [], []
    for transaction in transactions.values():
        numbers = read.get(transaction.name, set())
        if transaction.is_fenced and transaction.outcome == COMMITTED:
            fenced.append(f"{transaction.name} was committed by a fenced producer")
        if transaction.fate == ABORTED and numbers:
            aborted.append(f"{transaction.name} was aborted, and its records {_short(numbers)} are read")
        elif transaction.fate == COMMITTED and transaction.records and not numbers:
            lost.append(f"{transaction.name} was committed, and none of its records is read")
        elif numbers and (missing := transaction.records.keys() - numbers):
            places = sorted({name_of(transaction.records[number]) for number in missing})
            torn.append(f"{transaction.name} ({transaction.fate}): {_short(missing)} in {places} are not read")
    yield from few("lost", lost)
    yield from few("torn", torn)
    yield from few("aborted-read", aborted)
    yield from few("fenced", fenced)


def _check_begun(
    events: list[Event], transactions: Mapping[str, Transaction], read: Mapping[str, set[int]]
) -> Iterator[Finding]:
    """Every record that is read is one of those that a producer has written."""
    plain = {
        event["producer"] for event in events if event["event"] in ("acked", "failed", "sent")
    } - transactions.keys()
    wrong = []
    for name, numbers in read.items():
        if name in plain:
            continue
        if name not in transactions:
            wrong.append(f"{name} was never begun, and is read")
        elif transactions[name].records and (others := numbers - transactions[name].records.keys()):
            wrong.append(f"{name} has no records {_short(others)}, and they are read")
    yield from few("aborted-read", wrong)


def _check_twice(committed: Mapping[Place, Records]) -> Iterator[Finding]:
    wrong = []
    first: dict[tuple[str, int], tuple[Place, int]] = {}
    for place, records in committed.items():
        for offset, stamp in sorted(records.items()):
            where = first.setdefault((stamp.producer, stamp.sequence), (place, offset))
            if where != (place, offset):
                wrong.append(
                    f"{stamp.producer}.{stamp.sequence} is read at {name_of(where[0])} {where[1]} "
                    f"and at {name_of(place)} {offset}"
                )
    yield from few("doubled", wrong)


# -- inputs and offsets


def _check_inputs(
    transactions: Iterable[Transaction],
    visible: list[Transaction],
    inputs: set[Source],
    group_offsets: Mapping[int, int],
) -> Iterator[Finding]:
    """Each committed input is transformed once, and the group's offset is past it."""
    by: dict[Source, list[str]] = defaultdict(list)
    for transaction in visible:
        for source in set(transaction.sources.values()):
            by[source].append(transaction.name)
    never = sorted({source for transaction in transactions for source in transaction.sources.values()} - inputs)
    twice = {source: names for source, names in sorted(by.items()) if len(names) > 1}
    before = {source for source in inputs if source[1] < group_offsets.get(source[0], 0)}
    yield from few("aborted-read", [f"input {source} was transformed, and is not committed" for source in never])
    yield from few("doubled", [f"input {source} was transformed by {names}" for source, names in twice.items()])
    missing = sorted(inputs - by.keys())
    lost = [f"input {source}: no transformation is read" for source in missing if source not in before]
    passed = [
        f"input {source}: no transformation is read, and the group is past it" for source in missing if source in before
    ]
    alone = [
        f"input {source}: {by[source]} is read, and the group is not past it"
        for source in sorted(by.keys() & inputs - before)
    ]
    yield from few("lost", lost)
    yield from few("offset-alone", passed)
    yield from few("records-alone", alone)


def _check_resumed(
    events: list[Event], transactions: Mapping[str, Transaction], read: Mapping[str, set[int]]
) -> Iterator[Finding]:
    """An offset that a member read is that of a transaction that is committed."""
    committed = {
        place
        for transaction in transactions.values()
        if _is_read(transaction, read)
        for place in transaction.offsets.items()
    }
    wrong = []
    for event in events:
        if event["event"] != "resumed" or event["offset"] < 0:
            continue
        if (event["partition"], event["offset"]) not in committed:
            place = name_of((event["topic"], event["partition"]))
            wrong.append(f"{event['member']} read {event['offset']} for {place}, which no transaction committed")
    yield from few("offset-alone", wrong)


# -- readers and logs


def _check_readers(events: list[Event], isolation: str, there: Mapping[Place, Records]) -> Iterator[Finding]:
    """What readers got that were there all the time, compared with what one gets in the end.

    Of a reader that hung, the records up to the last one that it got.
    """
    hung = {event["member"] for event in events if event["event"] == "hung"}
    got: dict[tuple[str, Place], Records] = {}
    wrong = []
    for event in events:
        if event["event"] == "read" and event.get("isolation") == isolation:
            records = got.setdefault((event["member"], (event["topic"], event["partition"])), {})
            if records and event["offset"] <= next(reversed(records)):
                wrong.append(f"{event['member']} got {event['offset']} after {next(reversed(records))}")
            records[event["offset"]] = Stamp(event["producer"], event["sequence"], event["digest"])
    for reader in sorted({reader for reader, _ in got}):
        for place, records in there.items():
            seen = got.get((reader, place), {})
            last = next(reversed(seen), -1) if reader in hung else max(records, default=-1)
            wrong += _differences(reader, place, seen, {at: each for at, each in records.items() if at <= last})
    yield from few("missed", wrong)


def _check_logs(readings: Readings) -> Iterator[Finding]:
    wrong = []
    for place, replicas in readings.replicas.items():
        for broker, records in replicas.items():
            wrong += _differences(f"broker {broker}", place, records, readings.committed.get(place, {}))
    yield from few("differ", wrong)


def _differences(who: str, place: Place, one: Records, model: Records) -> Iterator[str]:
    for offset in sorted(one.keys() | model.keys()):
        if one.get(offset) != model.get(offset):
            yield f"{name_of(place)} offset {offset}: {who} has {one.get(offset)}, in the end it is {model.get(offset)}"


def _short(numbers: Iterable[int]) -> str:
    shown = sorted(numbers)
    return f"{shown[:6]}{f' and {len(shown) - 6} more' if len(shown) > 6 else ''}"
