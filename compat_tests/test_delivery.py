"""At most once, at least once, exactly once: a group of two is killed in the middle and replaced.

What Kafka promises depends on when the consumer commits relative to its work. Each scenario kills both members with
SIGKILL at the worst moment for its order, starts two new ones, and looks at the effects.
"""

import pathlib
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import BrokerProcess

WORKER = pathlib.Path(__file__).with_name("delivery_worker.py")
RECORDS = 200
HALT_AFTER = 25
StartWorkers = Callable[[str, int], list["subprocess.Popen[str]"]]


@pytest.fixture
def effects(tmp_path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "effects.sqlite", isolation_level=None, timeout=30)
    connection.execute("CREATE TABLE effect (partition INTEGER, offset INTEGER, value TEXT)")
    connection.execute(
        "CREATE TABLE idempotent_effect"
        " (partition INTEGER, offset INTEGER, value TEXT, PRIMARY KEY (partition, offset))"
    )
    yield connection
    connection.close()


@pytest.fixture
def start_workers(
    shared_broker: BrokerProcess, topic: str, tmp_path: pathlib.Path, effects: sqlite3.Connection
) -> Iterator[StartWorkers]:
    """A topic with two partitions and 200 records, and a way to start the group's two members."""
    admin = AdminClient({"bootstrap.servers": shared_broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": shared_broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0
    started: list[subprocess.Popen[str]] = []

    def start(mode: str, halt_after: int) -> list[subprocess.Popen[str]]:
        arguments = [shared_broker.bootstrap, topic, f"group-{topic}", str(tmp_path / "effects.sqlite"), mode]
        # -P: this folder is not where the worker imports from, for `kafka` is the client, not the file kafka.py here.
        command = [sys.executable, "-P", str(WORKER), *arguments, str(halt_after)]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        started.extend(workers)
        return workers

    yield start
    for worker in started:
        worker.kill()
        worker.wait()
        assert worker.stdout is not None
        worker.stdout.close()


def kill_in_the_middle(workers: list["subprocess.Popen[str]"]) -> None:
    """SIGKILL both members as soon as one of them stands still at its worst moment."""
    halted, _, _ = select.select([worker.stdout for worker in workers], [], [], 60)
    assert halted, "no member got so far within 60 s"
    assert halted[0].readline() == "halted\n"
    for worker in workers:
        worker.kill()
        worker.wait()


def wait_for_last_records(effects: sqlite3.Connection, table: str) -> list[int]:
    """All effects, once those of each partition's last record are there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        values = [int(value) for (value,) in effects.execute(f"SELECT value FROM {table}")]
        if {RECORDS - 1, RECORDS - 2} <= set(values):
            return values
        time.sleep(0.1)
    raise AssertionError("the replaced members did not reach the end of their partitions within 60 s")


def test_commit_before_work_is_at_most_once(start_workers: StartWorkers, effects: sqlite3.Connection) -> None:
    kill_in_the_middle(start_workers("before", HALT_AFTER))
    start_workers("before", 0)
    values = wait_for_last_records(effects, "effect")
    assert len(values) == len(set(values)), "no record may have its effect twice"
    assert len(values) < RECORDS, "records that were committed and not worked on are lost"


def test_commit_after_work_is_at_least_once(start_workers: StartWorkers, effects: sqlite3.Connection) -> None:
    kill_in_the_middle(start_workers("after", HALT_AFTER))
    start_workers("after", 0)
    values = wait_for_last_records(effects, "effect")
    assert set(values) == set(range(RECORDS)), "every record must have its effect"
    assert len(values) > RECORDS, "records that were worked on and not committed come again"


def test_commit_after_an_idempotent_effect_is_exactly_once(
    start_workers: StartWorkers, effects: sqlite3.Connection
) -> None:
    kill_in_the_middle(start_workers("idempotent", HALT_AFTER))
    start_workers("idempotent", 0)
    values = wait_for_last_records(effects, "idempotent_effect")
    assert sorted(values) == list(range(RECORDS))
