"""Compares two lists of named answers, field by field, and separates known differences, with a reason, from others.

A path says where a difference lies: "scenario / answer / field.0.field". The parts of a `Known` are patterns for the
three parts of such a path, with `*` for anything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from compat_tests.differential.scenario import Run

ABSENT = "(absent)"
SHOWN_CHARACTERS = 400
KEYS = ("name", "topic", "topic_id", "group_id", "partition_index", "index")  # what tells the structs of a list apart


class Known(NamedTuple):
    """A difference that is meant to be, and why; or that is none of the broker's behaviour."""

    scenario: str
    answer: str
    field: str
    reason: str

    def covers(self, difference: "Difference") -> bool:
        return (
            fnmatchcase(difference.scenario, self.scenario)
            and fnmatchcase(difference.answer, self.answer)
            and fnmatchcase(difference.field, self.field)
        )


class Difference(NamedTuple):
    """One field that the two brokers answer differently."""

    scenario: str
    answer: str
    field: str
    kafka: Any
    barnabas: Any

    def __str__(self) -> str:
        return (
            f"{self.scenario} / {self.answer} / {self.field}\n"
            f"    Kafka:    {str(self.kafka)[:SHOWN_CHARACTERS]}\n"
            f"    Barnabas: {str(self.barnabas)[:SHOWN_CHARACTERS]}"
        )


@dataclass
class Tally:
    """What a run of the suite has seen."""

    scenarios: set[str] = field(default_factory=set)
    comparisons: int = 0
    fields: int = 0
    requests: int = 0
    known: dict[Known, int] = field(default_factory=dict)
    asked: set[tuple[int, int]] = field(default_factory=set)

    def report(self) -> str:
        listed = sum(self.known.values())
        return (
            f"differential: {len(self.scenarios)} scenarios, {self.requests} requests, {self.comparisons} comparisons"
            f" of {self.fields} fields; {listed} differences of {len(self.known)} known kinds"
        )


def differences(scenario: str, kafka: dict[str, Any], barnabas: dict[str, Any]) -> Iterator[Difference]:
    """Every field in which the answers of a scenario differ."""
    for answer in dict.fromkeys([*kafka, *barnabas]):
        ours, theirs = barnabas.get(answer, ABSENT), kafka.get(answer, ABSENT)
        for path, expected, got in _unequal(theirs, ours, ""):
            yield Difference(scenario, answer, path, expected, got)


def _unequal(kafka: Any, barnabas: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(barnabas, dict):
        for name in dict.fromkeys([*kafka, *barnabas]):
            yield from _unequal(kafka.get(name, ABSENT), barnabas.get(name, ABSENT), _join(path, name))
    elif isinstance(kafka, list) and isinstance(barnabas, list) and keys_of(kafka) and keys_of(barnabas):
        yield from _unequal(
            dict(zip(keys_of(kafka), kafka, strict=True)), dict(zip(keys_of(barnabas), barnabas, strict=True)), path
        )
    elif isinstance(kafka, list) and isinstance(barnabas, list) and len(kafka) == len(barnabas):
        for index, (theirs, ours) in enumerate(zip(kafka, barnabas, strict=True)):
            yield from _unequal(theirs, ours, _join(path, index))
    elif kafka != barnabas or type(kafka) is not type(barnabas):
        yield path, kafka, barnabas


def keys_of(items: list[Any]) -> list[Any]:
    """What tells the structs of a list apart, if they have a key: their names or indexes."""
    for key in KEYS:
        found = [item[key] for item in items if isinstance(item, dict) and key in item]
        if all(value != "" for value in found) and len(set(map(repr, found))) == len(items) > 0:
            return found
    return []


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def count_fields(value: Any) -> int:
    """How many values an answer compares."""
    match value:
        case dict():
            return sum(count_fields(item) for item in value.values())
        case list():
            return sum(count_fields(item) for item in value)
        case _:
            return 1


def unexplained(found: Sequence[Difference], known: Sequence[Known], tally: Tally) -> list[Difference]:
    """The differences that nothing explains; those that are explained are counted."""
    left = []
    for difference in found:
        reason = next((entry for entry in known if entry.covers(difference)), None)
        if reason is None:
            left.append(difference)
        else:
            tally.known[reason] = tally.known.get(reason, 0) + 1
    return left


def take_stock(name: str, found: "Run", known: Sequence[Known], tally: Tally) -> list[Difference]:
    """Count what a scenario compared; the differences that nothing explains."""
    tally.scenarios.add(name)
    tally.requests += found.requests
    tally.asked |= found.asked
    tally.comparisons += len(found.kafka)
    tally.fields += count_fields(found.kafka)
    return unexplained(list(differences(name, found.kafka, found.barnabas)), known, tally)


def stale(known: Sequence[Known], tally: Tally) -> list[Known]:
    """Entries about scenarios that ran, which no difference needed."""
    ran = [entry for entry in known if any(fnmatchcase(name, entry.scenario) for name in tally.scenarios)]
    return [entry for entry in ran if entry not in tally.known]
