"""One cell: a client's program writes and reads while one fault is armed; then the log is compared with what it said.

The programs are those of `clients/access.py`, over PLAINTEXT and with the client's default settings: ten numbers are
written, each acknowledged, and read back through a group.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import kafka

from barnabas.testing import LocalBroker, LocalCluster
from barnabas.testing.errors import FaultMissed
from compat_tests.clients.access import Access, Task, settings_file
from compat_tests.clients.client import ROOT, Ran, Session
from compat_tests.faults.changes import BEGIN_SECONDS, CHANGES
from compat_tests.faults.faults import FAULTS, GROUP, TOPIC

RECORDS = 10
HUNG_SECONDS = 60.0
KILLED = -9


class Cell(NamedTuple):
    """What became of the records."""

    outcome: str
    fired: int  # how often the fault hit a request
    seconds: float


class Ended(NamedTuple):
    """How a program ended."""

    ran: Ran
    seconds: float


def cell(session: Session, command: Sequence[str], fault_name: str) -> Cell:
    """A fresh broker, one fault, one program."""
    with LocalBroker(topics=[TOPIC]) as broker:
        fault = FAULTS[fault_name].arm(broker.faults)
        ended = _write_and_read(session, command, broker.bootstrap_servers)
        fired = fault.fired
        broker.faults.clear()
        return _judged(ended, fired, broker.bootstrap_servers)


def cluster_cell(session: Session, command: Sequence[str], change_name: str) -> Cell:
    """Three fresh brokers, one change while the program runs."""
    change = CHANGES[change_name]
    config = {"min.insync.replicas": "2"}
    with LocalCluster(3, topics={TOPIC: (1, 3)}, config=config) as cluster, ThreadPoolExecutor(1) as beside:
        held = cluster.faults.hang(change.api, times=1, after=change.after)

        def happen() -> None:
            # A client without groups, say, never sends the request; the table says so.
            with suppress(FaultMissed):
                held.wait(seconds=BEGIN_SECONDS)
                change.happen(cluster, held)

        happening = beside.submit(happen)
        ended = _write_and_read(session, command, cluster.bootstrap_servers)
        happening.result()
        cluster.recover()
        return _judged(ended, held.fired, cluster.bootstrap_servers)


def _write_and_read(session: Session, command: Sequence[str], bootstrap_servers: str) -> Ended:
    """Run the program of a client."""
    access = Access(bootstrap_servers, "PLAINTEXT")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        settings = settings_file(Path(name), access, Task("once", TOPIC, GROUP, RECORDS))
        began = time.monotonic()
        ran = session.execute(*command, str(settings), cwd=ROOT, timeout=HUNG_SECONDS)
        return Ended(ran, time.monotonic() - began)


def _judged(ended: Ended, fired: int, bootstrap_servers: str) -> Cell:
    written = written_to(bootstrap_servers, TOPIC)
    return Cell(outcome_of(written, ended.ran.status, ended.ran.output), fired, round(ended.seconds, 1))


def written_to(bootstrap_servers: str, topic: str) -> Counter[bytes]:
    """How often each value is in the log of the topic's one partition, as a stock client reads it."""
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end_offset = consumer.end_offsets([partition])[partition]
    values: Counter[bytes] = Counter()
    while consumer.position(partition) < end_offset:
        for messages in consumer.poll(1000).values():
            values.update(message.value for message in messages)
    consumer.close()
    return values


def outcome_of(written: Counter[bytes], status: int, output: str) -> str:
    """In words: what the log holds, and what the program said."""
    lost = RECORDS - len(written)
    doubled = sum(count > 1 for count in written.values())
    log = "lost" if lost else "twice" if doubled else "once"
    if status == KILLED:
        return f"{log}, hung"
    if status:
        return f"{log} with an error"
    read = json.loads(output.splitlines()[-1])["read"]
    said = "" if read == RECORDS else f", {RECORDS - read} not read"
    return f"{log}{' in silence' if lost else ''}{said}"
