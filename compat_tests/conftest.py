"""Fixtures for tests against a running broker."""

import pathlib
import uuid
from collections.abc import Callable, Iterator

import pytest

from compat_tests.brokers import BrokerProcess


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
