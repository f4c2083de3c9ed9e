"""The pytest plugin: `barnabas_broker`, one broker for the test run, and what belongs to it.

`barnabas_topic` is a topic for one test, `barnabas_clock` the time of the broker. `barnabas_faults` and
`barnabas_requests` are what it does wrong and what it is asked during one test. `barnabas_cluster` is a cluster of
three brokers for the test run.

pytest loads this file at every start in an environment that has Barnabas installed, so it imports nothing but pytest;
the broker's code comes with the first test that uses a fixture. Under pytest-xdist a session is a worker process: each
has its own broker, on its own free port.

pytest rewrites the assert statements of a plugin, and takes every module of an installed distribution that has one for
a part of it. For the broker's 250 modules that takes a second in each run that may not write byte code. `AsInstalled`
finds them before pytest does, so that Python loads them as it always does.

For other settings define a fixture of the same name in a conftest.py:

    @pytest.fixture(scope="session")
    def barnabas_broker():
        with LocalBroker(config={"num.partitions": "3"}) as broker:
            yield broker
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from types import ModuleType

    from barnabas.testing.cluster.cluster import LocalCluster
    from barnabas.testing.faults.faults import Faults
    from barnabas.testing.faults.requests import RequestLog
    from barnabas.testing.local import LocalBroker
    from barnabas.testing.running.clock import BrokerClock

# What a failing test shows of the broker. It is kept with the test, because the broker then serves
# the next one.
_SECTION = pytest.StashKey[str]()
SECTION_TITLE = "barnabas: the last 40 requests, and the faults that fired"


class AsInstalled:
    """Finds the modules of Barnabas on the path of their package, and no others."""

    @staticmethod
    def find_spec(
        name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """For `sys.meta_path`."""
        return PathFinder.find_spec(name, path, target) if name.startswith("barnabas.") else None


sys.meta_path.insert(0, AsInstalled)


@pytest.fixture(scope="session")
def barnabas_broker() -> "Iterator[LocalBroker]":
    """A broker in memory for all tests of this run; each test should use topics and groups of its own."""
    from barnabas.testing.local import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def barnabas_topic(barnabas_broker: "LocalBroker", request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, for this test only."""
    from barnabas.testing.asking import unused_topic_name
    from barnabas.testing.errors import TopicRefused
    from barnabas.wire.errors import ErrorCode

    while True:
        name = unused_topic_name(request.node.name)
        try:
            barnabas_broker.create_topic(name)
        except TopicRefused as refused:
            if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # a broker with a data_dir has those of earlier runs
                raise
        else:
            return name


@pytest.fixture
def barnabas_clock(barnabas_broker: "LocalBroker") -> "Iterator[BrokerClock]":
    """The time of the session's broker. It runs on after the test; what it was advanced by stays."""
    yield barnabas_broker.clock
    barnabas_broker.clock.resume()


@pytest.fixture(scope="session")
def _barnabas_cluster_of_the_run() -> "Iterator[LocalCluster]":
    from barnabas.testing.cluster.cluster import LocalCluster

    with LocalCluster(3) as cluster:
        yield cluster


@pytest.fixture
def barnabas_cluster(_barnabas_cluster_of_the_run: "LocalCluster") -> "Iterator[LocalCluster]":
    """Three brokers in memory for all tests of this run. After each test all run, are healed and in sync again."""
    yield _barnabas_cluster_of_the_run
    _barnabas_cluster_of_the_run.faults.clear()
    _barnabas_cluster_of_the_run.recover()


@pytest.fixture
def barnabas_faults(barnabas_broker: "LocalBroker", request: pytest.FixtureRequest) -> "Iterator[Faults]":
    """The faults of the session's broker, for this test. At its end each of them must have fired."""
    faults = barnabas_broker.faults
    log = barnabas_broker.requests
    faults.clear()
    log.clear()
    yield faults
    try:
        faults.check()
    finally:
        request.node.stash[_SECTION] = _section(barnabas_broker)
        faults.clear()
        log.stop()


@pytest.fixture
def barnabas_requests(barnabas_broker: "LocalBroker", request: pytest.FixtureRequest) -> "Iterator[RequestLog]":
    """What clients send to the session's broker in this test."""
    log = barnabas_broker.requests
    log.clear()
    yield log
    request.node.stash.setdefault(_SECTION, _section(barnabas_broker))
    log.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> "Generator[None, pytest.TestReport, pytest.TestReport]":
    """A failing test that uses the faults or the request log shows both."""
    report = yield
    used = {"barnabas_faults", "barnabas_requests"} & set(getattr(item, "fixturenames", ()))
    if not report.failed or not used:
        return report
    text = item.stash.get(_SECTION, None)
    broker = getattr(item, "funcargs", {}).get("barnabas_broker")
    if text is None and broker is not None:
        text = _section(broker)
    if text is not None:
        report.sections.append((SECTION_TITLE, text))
    return report


def _section(broker: "LocalBroker") -> str:
    """The requests and the faults until now."""
    return "\n".join([broker.requests.show(), *(f"{fault!r}" for fault in broker.faults)])
