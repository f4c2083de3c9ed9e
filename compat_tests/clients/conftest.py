"""Fixtures for our own scenarios with other people's clients, and their allow-lists as expected failures."""

import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import BrokerProcess
from compat_tests.clients.client import HERE
from compat_tests.clients.pytest_suite import BOOTSTRAP, test_name
from compat_tests.clients.verdict import read_allowed


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker that the runner names; without a runner, one for all clients."""
    if BOOTSTRAP in os.environ:
        yield os.environ[BOOTSTRAP]
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("clients")).start()
    yield broker.bootstrap
    broker.kill()


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """Who makes topics for clients that cannot, or whose own way of making them is not what the test is about."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # it outlives the broker


@pytest.fixture
def create_topic(admin: AdminClient) -> Callable[..., str]:
    """Make a topic of the test's own."""

    def create(partitions: int = 1, **config: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:10]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        while (
            len(admin.list_topics(name, timeout=30).topics[name].partitions) < partitions
        ):  # Kafka tells brokers later
            time.sleep(0.01)
        return name

    return create


@pytest.fixture
def new_topic(create_topic: Callable[..., str]) -> str:
    """A topic of one partition."""
    return create_topic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a client's allow-list names is expected to fail, unless a runner judges."""
    if BOOTSTRAP in os.environ:
        return
    for item in items:
        folder = pathlib.Path(item.path).parent
        if folder.parent == HERE:
            allowed = read_allowed(folder)
            if test_name(item) in allowed:
                strict = test_name(item) in allowed.never
                item.add_marker(pytest.mark.xfail(reason="on the allow-list, see FINDINGS.md", strict=strict))
