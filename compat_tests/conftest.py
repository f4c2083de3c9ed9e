"""Fixtures for tests against a running broker."""

import pathlib
import shutil
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import ZooKeeperProcess
from compat_tests.secured import Certificates
from compat_tests.tools import give_up, require_tool

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The files that need Python alone and are quick. `make test` runs them, `make test-all` everything.
QUICK = {
    "test_aiokafka.py",
    "test_confluent_kafka.py",
    "test_confluent_kafka_admin.py",
    "test_delivery.py",
    "test_examples.py",
    "test_hostile.py",
    "test_hostile_http.py",
    "test_kafka_python.py",
    "test_kafka_python_admin.py",
    "test_local_broker.py",
    "test_old_clients.py",
    "test_operations_page.py",
    "test_process.py",
    "test_replay.py",
    "test_roundtrip.py",
    "test_secured.py",
}
# The longest files, by name: they begin first, so that no process is left with one at the end; and those that compute
# (Spark) beside those that wait (for brokers of both kinds).
LONGEST = (
    "test_spark.py",
    "test_clusters.py",
    "test_differential.py",
    "test_replay.py",
    "test_walkthrough.py",
    "test_readme.py",
    "test_archive_restore.py",
    "test_live.py",
    "test_audit.py",
    "test_streams.py",
    "test_logins.py",
)
HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is not in a quick file is thorough; the longest files come first."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.name not in QUICK:
            item.add_marker(pytest.mark.thorough)
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium. The module imports playwright with `importorskip`."""
    from playwright.sync_api import Error, sync_playwright

    require_tool("chromium")
    with sync_playwright() as started:
        try:
            # A container's root has no sandbox.
            opened = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        except Error as error:
            give_up(f"chromium does not start: {error}")
        yield opened
        opened.close()


@pytest.fixture
def start_broker(tmp_path: pathlib.Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers with settings (underscores for dots); all are stopped at the end of the test."""
    started: list[BrokerProcess] = []

    def start(**settings: str | int) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(started)}"
        directory.mkdir()
        broker = BrokerProcess(directory, **settings)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.kill()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with default settings for all tests that only use topics of their own."""
    broker = BrokerProcess(tmp_path_factory.mktemp("shared-broker")).start()
    yield broker
    broker.kill()


@pytest.fixture
def topic() -> str:
    """A topic name of the test's own."""
    return f"topic-{uuid.uuid4().hex[:10]}"
