"""Compares the ledger of responses to clients with the content of the replicas (pure).

A `Finding` is one broken guarantee, with its id:

    lost          a record was acknowledged, but its offset has another record or none
    duplicated    a partition has a record at two offsets; also if the producer's send failed
    reordered     of two acknowledged records of one producer and partition, the later one has the lower offset
    unknown       a partition has a record that no client sent
    differ        two replicas have different records, or different offsets, below the high watermark
    reread        a consumer got a record that is not the one that its offset has now
    skipped       an owner of a partition got records with a gap between, or did not begin at the committed offset
    went-back     a group read a committed offset below one whose commit was acknowledged
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from compat_tests.cluster.ledger import Event, Stamp

Place = tuple[str, int]  # topic, partition
Records = dict[int, Stamp]  # by offset

SHOWN = 5


class Finding(NamedTuple):
    """One promise that was not kept."""

    kind: str
    text: str


class Partition(NamedTuple):
    """What the replicas of a partition hold (by broker), and up to where it counts."""

    replicas: Mapping[int, Records]
    high_watermark: int


def check(events: Iterable[Event], partitions: Mapping[Place, Partition]) -> list[Finding]:
    """All differences between the ledger and the replicas."""
    events = list(events)
    acked = _by_place(event for event in events if event["event"] == "acked")
    known = {(event["producer"], event["sequence"]) for event in events if event["event"] in ("acked", "failed")}
    sent = {event["producer"]: event["count"] for event in events if event["event"] == "sent"}
    gone = sorted(acked.keys() - partitions.keys())
    findings = [Finding("lost", f"{name_of(place)}: no replica has this partition") for place in gone]
    for place, partition in partitions.items():
        findings += _check_replicas(place, partition)
        for broker, records in partition.replicas.items():
            findings += _check_acked(place, broker, records, acked[place])
            findings += _check_twice(place, broker, records)
            findings += _check_known(place, broker, records, known, sent)
        findings += _check_order(place, acked[place])
    findings += _check_read(events, partitions)
    findings += _check_owners(events)
    return [*findings, *_check_commits(events)]


def counts(events: Iterable[Event]) -> dict[str, int]:
    """How many events of each kind."""
    found: dict[str, int] = defaultdict(int)
    for event in events:
        found[event["event"]] += 1
    return dict(found)


def longest_gap(events: Iterable[Event], since: float = 0.0, until: float = float("inf")) -> float:
    """The longest time in which nothing was acknowledged, in seconds, between acknowledgements of this time."""
    times = sorted(event["time"] for event in events if event["event"] == "acked" and since <= event["time"] <= until)
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def _by_place(events: Iterable[Event]) -> dict[Place, list[Event]]:
    found: dict[Place, list[Event]] = defaultdict(list)
    for event in events:
        found[event["topic"], event["partition"]].append(event)
    return found


def _stamp(event: Event) -> Stamp:
    return Stamp(event["producer"], event["sequence"], event["digest"])


def name_of(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def few(kind: str, texts: list[str]) -> Iterator[Finding]:
    """The first few, and how many more: one broken log must not fill the report."""
    for text in texts[:SHOWN]:
        yield Finding(kind, text)
    if len(texts) > SHOWN:
        yield Finding(kind, f"... and {len(texts) - SHOWN} more like these")


# -- records


def _check_acked(place: Place, broker: int, records: Records, acked: list[Event]) -> Iterator[Finding]:
    wrong = []
    anywhere = set(records.values())
    for event in acked:
        if event["offset"] is None:
            if _stamp(event) not in anywhere:
                name = f"{event['producer']}.{event['sequence']}"
                wrong.append(f"{name_of(place)}: {name} was acknowledged, broker {broker} has it nowhere")
            continue
        there = records.get(event["offset"])
        if there != _stamp(event):
            wrong.append(
                f"{name_of(place)} offset {event['offset']}: {event['producer']}.{event['sequence']} was acknowledged, "
                f"broker {broker} has {'nothing' if there is None else f'{there.producer}.{there.sequence}'} there"
            )
    return few("lost", wrong)


def _check_twice(place: Place, broker: int, records: Records) -> Iterator[Finding]:
    first: dict[tuple[str, int], int] = {}
    wrong = []
    for offset, stamp in sorted(records.items()):
        key = stamp.producer, stamp.sequence
        if key in first:
            name = f"{stamp.producer}.{stamp.sequence}"
            wrong.append(f"{name_of(place)}: {name} lies at {first[key]} and {offset} on broker {broker}")
        first.setdefault(key, offset)
    return few("duplicated", wrong)


def _check_known(
    place: Place, broker: int, records: Records, known: set[tuple[str, int]], sent: Mapping[str, int]
) -> Iterator[Finding]:
    """Records that were not sent. A producer reports at its end how many it sent; a killed one may have sent any."""
    wrong = []
    for offset, stamp in records.items():
        if (stamp.producer, stamp.sequence) not in known and stamp.sequence >= sent.get(stamp.producer, 1 << 62):
            wrong.append(
                f"{name_of(place)} offset {offset}: {stamp.producer}.{stamp.sequence} on broker {broker} was never sent"
            )
    return few("unknown", wrong)


def _check_order(place: Place, acked: list[Event]) -> Iterator[Finding]:
    latest: dict[str, Event] = {}
    wrong = []
    placed = [event for event in acked if event["offset"] is not None]
    for event in sorted(placed, key=lambda event: event["offset"]):
        before = latest.get(event["producer"])
        if before is not None and before["sequence"] >= event["sequence"]:
            wrong.append(
                f"{name_of(place)}: {event['producer']}.{event['sequence']} lies at {event['offset']}, "
                f"after .{before['sequence']} at {before['offset']}"
            )
        latest[event["producer"]] = event
    return few("reordered", wrong)


def _check_replicas(place: Place, partition: Partition) -> Iterator[Finding]:
    below = {
        broker: {offset: stamp for offset, stamp in records.items() if offset < partition.high_watermark}
        for broker, records in partition.replicas.items()
    }
    (first, model), *others = sorted(below.items())
    wrong = []
    for broker, records in others:
        for offset in sorted(records.keys() | model.keys()):
            one, other = model.get(offset), records.get(offset)
            if one != other:
                wrong.append(f"{name_of(place)} offset {offset}: broker {first} has {one}, broker {broker} has {other}")
    return few("differ", wrong)


# -- consumers


def _check_read(events: list[Event], partitions: Mapping[Place, Partition]) -> Iterator[Finding]:
    wrong = []
    for place, reads in _by_place(event for event in events if event["event"] == "read").items():
        if place not in partitions:
            continue
        for broker, records in partitions[place].replicas.items():
            for event in reads:
                there = records.get(event["offset"])
                if there != _stamp(event):
                    wrong.append(
                        f"{name_of(place)} offset {event['offset']}: {event['producer']}.{event['sequence']} was read, "
                        f"broker {broker} has {there}"
                    )
    return few("reread", wrong)


def _check_owners(events: list[Event]) -> Iterator[Finding]:
    """Within one ownership the offsets follow each other: nothing here is compacted or transactional."""
    wrong = []
    expected: dict[tuple[str, str, int], int] = {}
    for event in events:
        if event["event"] not in ("resumed", "read", "revoked"):
            continue
        owner = event["member"], event["topic"], event["partition"]
        if event["event"] == "revoked":
            expected.pop(owner, None)
        elif event["event"] == "resumed":
            expected[owner] = max(event["offset"], 0)
        elif owner in expected:
            if event["offset"] != expected[owner]:
                place = name_of((event["topic"], event["partition"]))
                wrong.append(f"{place}: {event['member']} read {event['offset']}, {expected[owner]} was next")
            expected[owner] = event["offset"] + 1
    return few("skipped", wrong)


def _check_commits(events: list[Event]) -> Iterator[Finding]:
    """Committed offsets that a group read, compared with the commits that were acknowledged before."""
    wrong = []
    commits: dict[tuple[str, str, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["event"] == "committed":
            commits[event["group"], event["topic"], event["partition"]].append(event)
    for event in events:
        if event["event"] != "resumed":
            continue
        before = [
            commit["offset"]
            for commit in commits[event["group"], event["topic"], event["partition"]]
            if commit["time"] < event["asked"]
        ]
        if before and event["offset"] < max(before):
            place = name_of((event["topic"], event["partition"]))
            wrong.append(
                f"{event['group']} on {place}: {max(before)} was committed, {event['member']} read {event['offset']}"
            )
    return few("went-back", wrong)
