"""Defines and runs scenarios: a scenario is a function that sends requests to one broker and yields named answers.

    @scenario
    def metadata_of_one_topic(side):
        topic = side.create_topic("one")
        yield "known", side.ask(metadata(topic), 12)

It runs against both sides at the same time, in a thread each; what the two runs yield is compared name by name. The
function's name is the scenario's, and names its topics and groups. A `@cluster_scenario` runs against clusters; one
that stops a broker is declared as `@cluster_scenario(disturbs=True)`, and runs after the others. A `@sasl_scenario`
runs against brokers with logins.
"""

import importlib
import pathlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from compat_tests.differential.plain import plain
from compat_tests.differential.side import Answer, Side

Scenario = Callable[[Side], Iterator[tuple[str, Answer]]]

SCENARIOS: dict[str, Scenario] = {}
CLUSTER_SCENARIOS: dict[str, Callable[[Any], Iterator[tuple[str, Answer]]]] = {}
SASL_SCENARIOS: dict[str, Callable[[Any], Iterator[tuple[str, Answer]]]] = {}
DISTURBING: list[str] = []  # cluster scenarios that take brokers down


def _check_name(function: Any) -> None:
    # One name for one scenario, also among those for other kinds of brokers: a run finds it by its name alone.
    assert function.__name__ not in {**SCENARIOS, **CLUSTER_SCENARIOS, **SASL_SCENARIOS}, function.__name__


def scenario(function: Scenario) -> Scenario:
    """Register a scenario under its function's name."""
    _check_name(function)
    SCENARIOS[function.__name__] = function
    return function


def sasl_scenario(function: Any) -> Any:
    """Register a scenario about logins."""
    _check_name(function)
    SASL_SCENARIOS[function.__name__] = function
    return function


def cluster_scenario(function: Any = None, *, disturbs: bool = False) -> Any:
    """Register a scenario that only clusters can answer."""

    def register(function: Any) -> Any:
        _check_name(function)
        CLUSTER_SCENARIOS[function.__name__] = function
        if disturbs:
            DISTURBING.append(function.__name__)
        return function

    return register if function is None else register(function)


def load(folder: ModuleType) -> None:
    """Register the scenarios of all files in a folder."""
    for found in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{found.name}")


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
    return run_on(
        name, {called: Side(called, broker.port, broker.directory, name) for called, broker in brokers.items()}
    )


def run_on(name: str, sides: Mapping[str, Side]) -> Run:
    """Run a scenario on both sides."""
    with ThreadPoolExecutor(len(sides)) as threads:
        running = {broker: threads.submit(answers_of, name, side) for broker, side in sides.items()}
        answers = {broker: future.result() for broker, future in running.items()}
    return Run(**answers, requests=max(side.requests for side in sides.values()), asked=sides["kafka"].asked)


def answers_of(scenario: str, side: Side) -> dict[str, Any]:
    """What one broker answers; a scenario that cannot go on says why instead of its remaining answers."""
    function = SCENARIOS.get(scenario) or CLUSTER_SCENARIOS.get(scenario) or SASL_SCENARIOS[scenario]
    found: dict[str, Any] = {}
    try:
        for name, answer in function(side):
            assert name not in found, f"two answers are called {name!r}"
            found[name] = plain(answer, side.names)
    except Exception as error:
        error.add_note(f"{side.broker} answered so far: {list(found.items())[-3:]}")
        raise
    return found
