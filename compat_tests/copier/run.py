"""One case: numbers are copied while brokers or copiers are struck, and what was read is compared with the numbers.

The order: three brokers start, all numbers are written, a reader of the copies begins, then the copiers do. When all of
them have ended, the reader must reach the end of every partition (no transaction is left open), and a second one reads
everything from the beginning.
"""

import contextlib
import pathlib
import time
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from compat_tests.cluster.checker import Finding
from compat_tests.cluster.live import SETTINGS, LiveCluster, NotWhole, await_none
from compat_tests.cluster.worker import QUICK_RETRIES
from compat_tests.copier.cases import Case, draw_strikes
from compat_tests.copier.checker import Read, check, count_transactions
from compat_tests.copier.copiers import INPUT, OUTPUT
from compat_tests.copier.copying import Copying, Stuck
from compat_tests.copier.reader import READ_COMMITTED, READ_UNCOMMITTED, Reader

STATES = "__transaction_state"
STATES_PARTITIONS = int(SETTINGS["transaction.state.log.num.partitions"])
SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}  # what timed out is aborted soon
END_SECONDS = 60.0
WRITE_SECONDS = 60.0
WRITTEN_AT_ONCE = 10_000


class Result(NamedTuple):
    """What a case came to; a line of the results file."""

    case: str
    kind: str
    seed: int
    numbers: int
    verdict: str
    findings: list[list[str]]
    seconds: float  # from the start of the copiers to the last number at the reader
    committed: int  # transactions
    aborted: int
    struck: list[str]
    starts: int  # of copiers


def run(
    case: Case,
    seed: int,
    numbers: int,
    directory: pathlib.Path,
    *,
    rounds: int | None = None,
    kind: str = "barnabas",
    namespaces: bool | None = None,
) -> Result:
    """One case in this directory, which keeps the logs, the data and the reads."""
    directory.mkdir(parents=True, exist_ok=True)
    transactions = (0, 0)
    with LiveCluster(kind, directory, settings=SOON, namespaces=namespaces) as cluster:
        for topic in (INPUT, OUTPUT):
            cluster.create_topic(topic, case.partitions)
        write_numbers(cluster.bootstrap, numbers, case.partitions)
        with (
            Reader(cluster.bootstrap, OUTPUT, case.partitions) as beside,
            contextlib.closing(Copying(cluster, case, numbers, beside)) as copying,
        ):
            began = time.monotonic()
            try:
                copying.run(draw_strikes(case, seed, rounds))
                findings = compare(cluster, case, numbers, beside)
                transactions = count_transactions(read_all(cluster, STATES, STATES_PARTITIONS, READ_UNCOMMITTED))
            except (Stuck, NotWhole) as error:
                found = check(beside.reads, numbers, case.partitions)
                # A number that has not been read yet is not lost.
                findings = [Finding("stuck", str(error)), *(each for each in found if each.kind != "lost")]
            beside.write(directory / "read-beside.txt")
    return Result(
        case=case.name,
        kind=kind,
        seed=seed,
        numbers=numbers,
        verdict="broken" if findings else "kept",
        findings=[list(finding) for finding in findings],
        seconds=round(beside.latest_at - began, 1),
        committed=transactions[0],
        aborted=transactions[1],
        struck=copying.struck,
        starts=sum(copier.starts for copier in copying.copiers),
    )


def write_numbers(bootstrap: str, numbers: int, partitions: int) -> None:
    """Number n goes to partition n modulo the count of partitions; all of them are acknowledged by every ISR."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2, **QUICK_RETRIES})
    refused: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(f"{message.value()!r}: {error}")

    for number in range(numbers):
        producer.produce(INPUT, b"%d" % number, partition=number % partitions, on_delivery=on_delivery)
        if number % WRITTEN_AT_ONCE == WRITTEN_AT_ONCE - 1:
            producer.flush(WRITE_SECONDS)
    left = producer.flush(WRITE_SECONDS)
    if left or refused:
        raise RuntimeError(f"{left} numbers were not written within {WRITE_SECONDS} s, and of others: {refused[:3]}")


def compare(cluster: LiveCluster, case: Case, numbers: int, beside: Reader) -> list[Finding]:
    """What is wrong with the reads of the reader beside, and of one that begins now. NotWhole if one does not end."""
    ends = ends_of(cluster, OUTPUT, case.partitions)
    await_none(lambda: beside.what_is_unread(ends), END_SECONDS)
    histories = {"beside": beside.reads, "afterwards": read_all(cluster, OUTPUT, case.partitions)}
    return [
        Finding(kind, f"read {when}: {text}")
        for when, reads in histories.items()
        for kind, text in check(reads, numbers, case.partitions)
    ]


def ends_of(cluster: LiveCluster, topic: str, partitions: int) -> dict[int, int]:
    """The high watermarks."""
    ends: dict[int, int] = {}

    def ask() -> list[str]:
        ends.update({partition: cluster.view.latest_offset(topic, partition) for partition in range(partitions)})
        return []

    await_none(ask, END_SECONDS)
    return ends


def read_all(cluster: LiveCluster, topic: str, partitions: int, isolation: str = READ_COMMITTED) -> list[Read]:
    """What a reader gets from the beginning to the high watermarks. NotWhole if it does not get there."""
    ends = ends_of(cluster, topic, partitions)
    with Reader(cluster.bootstrap, topic, partitions, isolation) as reader:
        await_none(lambda: reader.what_is_unread(ends), END_SECONDS)
    return reader.reads
