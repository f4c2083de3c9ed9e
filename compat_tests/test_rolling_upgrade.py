"""A rolling upgrade on a running ZooKeeper, under load: `inter.broker.protocol.version` is raised broker by broker."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from compat_tests.beside import Beside
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import ZooKeeperProcess
from compat_tests.raw import eventually
from compat_tests.test_zookeeper_brokers import COUNT, SESSION_MS, await_brokers, controller, create_topic, leadership
from compat_tests.zookeeper_sessions import fresh_chroot

TOPICS = [f"t{number}" for number in range(6)]
OLD, NEW = "2.7", "3.9"
PAUSE_SECONDS = 0.05  # between two records to each topic
DELIVERY_TIMEOUT_MS = 30_000
SECONDS_AFTER_RESTART_MAX = 10.0  # in which acks=all works again: for a follower that rejoins, on a busy machine


class Load(Beside):
    """Writes to every topic with acks=all, and notes when each was acknowledged last, and what failed for good."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        super().__init__()
        self.failures: list[KafkaError] = []
        self.acknowledged = dict.fromkeys(TOPICS, 0)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                **{name.replace("_", "."): value for name, value in settings.items()},
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            }
        )

    def await_progress(self) -> float:
        """How long it takes until a record that is written from now on is acknowledged in every topic."""
        began, before = time.monotonic(), dict(self.acknowledged)
        eventually(lambda: all(self.acknowledged[each] > before[each] + 2 for each in TOPICS), bool)
        return time.monotonic() - began

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            for topic in TOPICS:
                self._producer.produce(topic, b"v", on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[str(message.topic())] += 1


@pytest.fixture
def brokers(tmp_path: Path, start_broker: Callable[..., BrokerProcess]) -> Iterator[list[BrokerProcess]]:
    server = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=500).start()
    chroot = fresh_chroot()
    started = [
        start_broker(
            broker_id=number,
            zookeeper_connect=server.bootstrap + chroot,
            zookeeper_session_timeout_ms=SESSION_MS,
            inter_broker_protocol_version=OLD,
            min_insync_replicas=2,
        )
        for number in range(1, COUNT + 1)
    ]
    for broker in started:
        await_brokers(broker, COUNT)
    yield started
    for broker in started:
        broker.kill()
    server.kill()


def test_every_isr_is_whole_after_each_restart_and_writes_go_on(brokers: list[BrokerProcess]) -> None:
    for topic in TOPICS:
        create_topic(brokers, topic)
    last = controller(brokers)  # as is recommended
    with Load(",".join(broker.bootstrap for broker in brokers)) as load:
        load.await_progress()
        for broker in [*(each for each in brokers if each is not last), last]:
            broker.properties["inter.broker.protocol.version"] = NEW
            assert broker.stop() == 0
            broker.restart()
            assert load.await_progress() < SECONDS_AFTER_RESTART_MAX
            for topic in TOPICS:
                eventually(lambda: leadership(broker, topic)[1], lambda in_sync: in_sync == [1, 2, 3])  # noqa: B023
    assert load.failures == []
    assert not any("Traceback" in broker.log_text() for broker in brokers)
