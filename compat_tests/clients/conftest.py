"""Fixtures for our own scenarios with other people's clients, and their allow-lists as expected failures."""

import contextlib
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from compat_tests.brokers import BrokerProcess
from compat_tests.clients.client import HERE
from compat_tests.clients.pytest_suite import BOOTSTRAP, test_name
from compat_tests.clients.verdict import read_allowed

GROUP_TOPIC = "__consumer_offsets"


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


def await_leader(admin: AdminClient, partition: TopicPartition) -> None:
    """Until the leader answers: others know of it before itself, and what it is sent with acks=0 until then is lost."""
    while True:
        (asked,) = admin.list_offsets({partition: OffsetSpec.latest()}).values()
        with contextlib.suppress(KafkaException):
            asked.result(30)
            return
        time.sleep(0.02)


@pytest.fixture(scope="session", autouse=True)
def led_groups(admin: AdminClient) -> None:
    """The topic of the groups is there, and led: librdkafka reports NOT_COORDINATOR, which it gets until then."""
    while True:
        with contextlib.suppress(KafkaException):
            admin.describe_consumer_groups(["none"])["none"].result(30)  # the first question makes the topic
            break
        time.sleep(0.02)
    for number in admin.list_topics(GROUP_TOPIC, timeout=30).topics[GROUP_TOPIC].partitions:
        await_leader(admin, TopicPartition(GROUP_TOPIC, number))


@pytest.fixture
def create_topic(admin: AdminClient) -> Callable[..., str]:
    """Make a topic of the test's own."""

    def create(partitions: int = 1, **config: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:10]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(30)
        while (
            len(admin.list_topics(name, timeout=30).topics[name].partitions) < partitions
        ):  # Kafka tells brokers later
            time.sleep(0.01)
        for number in range(partitions):
            await_leader(admin, TopicPartition(name, number))
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
