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

# Cells that depend on chance; docs/faults.md says on what.
CHANCES = {
    ("kcat", "acknowledgement lost"): {"lost with an error", "once with an error"},
    ("kcat", "half an acknowledgement"): {"lost with an error", "once with an error"},
    ("rskafka", "leader killed, unnoticed"): {"once with an error", "twice"},
}
OR = " / "
NOT_ASKED = " (not asked)"


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
        ended = write_and_read(session, command, broker.bootstrap_servers)
        fired = fault.fired
        broker.faults.clear()
        return judged(ended, fired, broker.bootstrap_servers)


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
        ended = write_and_read(session, command, cluster.bootstrap_servers)
        happening.result()
        cluster.recover()
        return judged(ended, held.fired, cluster.bootstrap_servers)


def write_and_read(
    session: Session, command: Sequence[str], bootstrap_servers: str, topic: str = TOPIC, group: str = GROUP
) -> Ended:
    """Run the program of a client."""
    access = Access(bootstrap_servers, "PLAINTEXT")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        settings = settings_file(Path(name), access, Task("once", topic, group, RECORDS))
        began = time.monotonic()
        ran = session.execute(*command, str(settings), cwd=ROOT, timeout=HUNG_SECONDS)
        return Ended(ran, time.monotonic() - began)


def judged(ended: Ended, fired: int, bootstrap_servers: str, topic: str = TOPIC) -> Cell:
    """Compare the log with what the program said."""
    written = written_to(bootstrap_servers, topic)
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


def cell_text(label: str, fault: str, cells: Sequence[Cell]) -> str:
    """What the table says after these runs; of a cell that depends on chance, all that may come."""
    seen = {each.outcome for each in cells}
    chances = CHANCES.get((label, fault), set())
    missed = "" if all(each.fired for each in cells) else NOT_ASKED
    return OR.join(sorted(chances if seen <= chances else seen)) + missed


def outcomes_of(text: str) -> set[str]:
    """Those that a cell of the table allows."""
    return set(text.removesuffix(NOT_ASKED).split(OR))


def is_stable(label: str, fault: str, text: str) -> bool:
    """Whether runs differ only as chance has it."""
    outcomes = outcomes_of(text)
    return len(outcomes) == 1 or outcomes == CHANCES.get((label, fault))
