"""What a scenario is, and how it runs: a function that asks one broker and yields its answers under their names.

    @scenario
    def metadata_of_one_topic(side):
        topic = side.create_topic("one")
        yield "known", side.ask(metadata(topic), 12)

It runs against both brokers at the same time, in a thread each; what the two runs yield is compared name by name. The
function's name is the scenario's, and names its topics and groups.
"""

import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from compat_tests.differential.plain import plain
from compat_tests.differential.side import Answer, Side

Scenario = Callable[[Side], Iterator[tuple[str, Answer]]]

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a scenario under its function's name."""
    assert function.__name__ not in SCENARIOS, function.__name__
    SCENARIOS[function.__name__] = function
    return function


class Broker(Protocol):
    """What a scenario needs to know of the process it runs against."""

    port: int
    directory: pathlib.Path


class Run(NamedTuple):
    """What one scenario has brought."""

    kafka: dict[str, Any]  # answers by name
    barnabas: dict[str, Any]
    requests: int  # to one of them
    asked: set[tuple[int, int]]  # API keys and versions


def run(name: str, brokers: dict[str, Broker]) -> Run:
    """Run a scenario against both brokers."""
    sides = {called: Side(called, broker.port, broker.directory, name) for called, broker in brokers.items()}
    with ThreadPoolExecutor(len(sides)) as threads:
        running = {broker: threads.submit(_answers, SCENARIOS[name], side) for broker, side in sides.items()}
        answers = {broker: future.result() for broker, future in running.items()}
    return Run(**answers, requests=max(side.requests for side in sides.values()), asked=sides["kafka"].asked)


def _answers(function: Scenario, side: Side) -> dict[str, Any]:
    """What one broker answers; a scenario that cannot go on says why instead of its remaining answers."""
    found: dict[str, Any] = {}
    try:
        for name, answer in function(side):
            assert name not in found, f"two answers are called {name!r}"
            found[name] = plain(answer, side.names)
    except Exception as error:
        error.add_note(f"{side.broker} answered so far: {list(found)[-5:]}")
        raise
    return found
