"""Kafka's answers as `answers/` keeps them: a file for each file of scenarios, a line for each different answer.

    ["metadata_by_name",["v1 no topics","v2 no topics"],{"brokers":[...],...}]

They are plain values (`plain.py`), so a second recording writes the same bytes. What is long is kept as its length and
a hash: who wants to see it runs the scenario against both brokers. `python -m compat_tests.differential --record`
writes the files; `test_differential.py` compares them with a running Kafka, and `test_replay.py` with a broker in
memory.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from compat_tests.differential.compare import keys_of
from compat_tests.differential.scenario import SCENARIOS

FOLDER = pathlib.Path(__file__).parent / "answers"
CHARACTERS_MAX = 300  # of a text that is kept as it is
SHOWN_CHARACTERS = 40  # of one that is longer
ITEMS_MAX = 20  # of a list that is kept as it is, however long they are
LIST_CHARACTERS_MAX = 1200
HASH_CHARACTERS = 16

CLIENTS = "What a client library shows changes with the version of the library."
LONG = "It takes longer than all that one waits for in `make test`."
NOT_RECORDED = {
    "kafka_python_produces_and_consumes": CLIENTS,
    "kafka_python_in_a_group": CLIENTS,
    "confluent_produces_and_consumes": CLIENTS,
    "confluent_looks_after_the_cluster": CLIENTS,
    "every_changeable_broker_property_with_every_value": LONG,
    "requests_for_many_partitions": LONG,
    "epochs_that_are_exhausted": LONG,
}

Answers = Mapping[str, Any]  # by their names within a scenario


def recorded_scenarios() -> list[str]:
    """The names of the scenarios that have a record, in the order in which they run."""
    return [name for name in SCENARIOS if name not in NOT_RECORDED]


def family_of(scenario: str) -> str:
    """The file that defines a scenario, without its ending."""
    return SCENARIOS[scenario].__module__.rpartition(".")[2]


def as_recorded(answers: Answers) -> dict[str, Any]:
    """The answers as they are when they have been written and read again."""
    read: dict[str, Any] = json.loads(json.dumps(answers))
    return {name: _shortened(answer) for name, answer in read.items()}


def _shortened(value: Any) -> Any:
    match value:
        case str() if len(value) > CHARACTERS_MAX:
            return f"{value[:SHOWN_CHARACTERS]}... {len(value)} characters, {_hash(value)}"
        case dict():
            return {name: _shortened(item) for name, item in value.items()}
        case list():
            text = json.dumps(value)
            # Where items have names, a known difference may be about some of them only.
            if len(value) > ITEMS_MAX and len(text) > LIST_CHARACTERS_MAX and not keys_of(value):
                return f"{len(value)} items, {_hash(text)}"
            return [_shortened(item) for item in value]
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARACTERS]


def lines_of(answers: Mapping[str, Answers]) -> str:
    """The content of a file: a row has all names of one answer, and the scenarios are sorted."""
    lines = []
    for scenario in sorted(answers):
        names_of: dict[str, list[str]] = {}
        for name, answer in as_recorded(answers[scenario]).items():
            names_of.setdefault(_text(answer), []).append(name)
        lines += [f"[{_text(scenario)},{_text(names)},{answer}]\n" for answer, names in names_of.items()]
    return "".join(lines)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def write(answers: Mapping[str, Answers]) -> Iterator[pathlib.Path]:
    """Write the answers of all scenarios of some families; the paths that changed."""
    families: dict[str, dict[str, Answers]] = {}
    for scenario, found in answers.items():
        families.setdefault(family_of(scenario), {})[scenario] = found

    FOLDER.mkdir(exist_ok=True)
    for family, found_in_family in families.items():
        path = path_of(family)
        content = lines_of(found_in_family)
        if not path.exists() or path.read_text(encoding="ascii") != content:
            path.write_text(content, encoding="ascii")
            yield path


def path_of(family: str) -> pathlib.Path:
    return FOLDER / f"{family}.jsonl"


def recorded(scenario: str) -> dict[str, Any]:
    """Kafka's answers to a scenario; none if it was not recorded."""
    return _read(family_of(scenario)).get(scenario, {})


@cache
def _read(family: str) -> dict[str, dict[str, Any]]:
    path = path_of(family)
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="ascii").splitlines() if path.exists() else ():
        scenario, names, answer = json.loads(line)
        found.setdefault(scenario, {}).update(dict.fromkeys(names, answer))
    return found
