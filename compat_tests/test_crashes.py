"""A broker that is killed twenty times under load: what it acknowledged is there, once, in order."""

import random
import threading
import time
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import BrokerProcess, run_barnabas

KILLS = 20
PARTITIONS = 3
GROUP = "crash-readers"
UNDER_WAY = 500  # records that wait to be acknowledged: enough that every kill finds some


class Writer:
    """An idempotent producer with acks=all that never stops; it notes what was acknowledged, in order of sending."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
        self.failures: list[str] = []
        self.sent = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def await_progress(self) -> None:
        """Return when something was acknowledged since the call: the broker serves, and is under load."""
        before, deadline = self.acknowledged_count(), time.monotonic() + 30
        while self.acknowledged_count() == before:
            assert time.monotonic() < deadline, "nothing was acknowledged for 30 s"
            time.sleep(0.01)

    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def finish(self) -> None:
        """Send no more, and wait until everything is decided."""
        self._stop.set()
        self._thread.join()
        if self._producer.flush(120):
            self.failures.append("not everything was delivered within 120 s")

    def _run(self) -> None:
        while not self._stop.is_set():
            while len(self._producer) < UNDER_WAY:
                number = self.sent
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0.005)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        self.acknowledged[message.partition()].append((message.offset(), int(message.value())))  # type: ignore[attr-defined]


def committed(bootstrap: str, topic: str) -> dict[int, int]:
    """The group's committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    found = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset != OFFSET_INVALID}


def read_some_and_commit(bootstrap: str, topic: str) -> dict[int, int]:
    """Join the group, read a little, commit; the committed offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([topic])
    first: dict[int, int] = {}
    next_offsets: dict[int, int] = {}
    deadline = time.monotonic() + 30
    while len(next_offsets) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(200, timeout=1.0):
            assert message.error() is None, message.error()
            first.setdefault(message.partition(), message.offset())
            next_offsets[message.partition()] = message.offset() + 1
    consumer.commit(
        offsets=[TopicPartition(topic, partition, offset) for partition, offset in next_offsets.items()],
        asynchronous=False,
    )
    consumer.close()
    assert len(next_offsets) == PARTITIONS, "the group did not get records of every partition within 30 s"
    assert all(first[partition] >= 0 for partition in first)
    return next_offsets


def everything(bootstrap: str, topic: str) -> Iterator[tuple[int, int, int]]:
    """(partition, offset, number) of every record from the beginning to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audit", "enable.auto.commit": False})
    for partition in range(PARTITIONS):
        assigned = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(assigned, timeout=30)
        consumer.assign([assigned])
        position = 0
        deadline = time.monotonic() + 60
        while position < end and time.monotonic() < deadline:
            for message in consumer.consume(5000, timeout=1.0):
                assert message.error() is None, message.error()
                position = message.offset() + 1
                yield partition, message.offset(), int(message.value())
        assert position >= end, f"partition {partition} ends at {end}, but only {position} could be read"
    consumer.close()


def test_killed_twenty_times_it_keeps_every_acknowledged_record_once_in_order(
    start_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)
    rng = random.Random(20)
    with Writer(broker.bootstrap, topic) as writer:
        expected_commits: dict[int, int] = {}
        for kill in range(KILLS):
            time.sleep(rng.uniform(0.1, 0.6))  # the moment of the kill, not a wait for something
            writer.await_progress()
            if kill % 5 == 2:
                expected_commits = read_some_and_commit(broker.bootstrap, topic)
            broker.kill()
            broker.restart()
            if expected_commits:
                assert committed(broker.bootstrap, topic) == expected_commits, "the group resumes where it committed"
        writer.finish()

    assert writer.failures == []
    found: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
    for partition, offset, number in everything(broker.bootstrap, topic):
        found[partition].append((offset, number))
    assert writer.acknowledged_count() == writer.sent
    for partition in range(PARTITIONS):
        assert found[partition] == sorted(writer.acknowledged[partition]), f"partition {partition} differs"
        numbers = [number for _, number in found[partition]]
        assert numbers == sorted(set(numbers)), f"partition {partition} is out of order or has doubles"

    assert broker.stop() == 0
    checked = run_barnabas("log", "check", str(broker.data_dir))
    assert checked.returncode == 0, checked.stdout + checked.stderr
