"""Transactions beside Apache Kafka, on one broker and on three.

Producers are Kafka's own ProducerPerformance, confluent-kafka, and many ids in one process (`transaction_clients.py`).
"""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench.contenders import Contender
from bench.growth import PACED_SPREAD, share_of
from bench.pairs import BARNABAS, COMPILED
from bench.run import TOOL_SECONDS_MAX, Cases, Cost, Run, Size, add_cost, java_consume, java_produce, tell
from bench.transaction_clients import FIRST_TRANSACTIONS, Took

COMMIT_EVERY_MS = 100
IDS, PARTITIONS = 50, 10
READ_TARGET = 0.9  # a reader of committed records to one of all records, on the same broker
MOCK = "mock cluster"
READS = 2  # of the same records in one pair: one is too short


class Place(NamedTuple):
    """Where the cases run: how much makes about three seconds, and what the ratios should be."""

    prefix: str  # of the cases' names
    sizes: tuple[Size, ...]
    one_by_one: int  # transactions
    at_once: int
    one_by_one_target: float
    produce_target: float = 1.2
    at_once_target: float = 1.2


ONE_BROKER = Place("transactions", (Size("100 B", 100, 500_000), Size("1 kB", 1000, 100_000)), 150, 2000, 1.5)
THREE_BROKERS = Place("transactions-cluster", (Size("100 B", 100, 100_000), Size("1 kB", 1000, 16_000)), 100, 1000, 1.0)


def producing(run: Run, place: Place, size: Size) -> None:
    """ProducerPerformance that commits every 100 ms; then ConsumerPerformance of what it wrote, at both levels."""
    count = run.count(size.records)
    data_bytes = count * size.record_bytes
    run.warm_up(f"transactions, {size.name}", run.brokers, lambda c, t: use_once(run, c, t, count, size), data_bytes)
    for pair in range(run.pairs):
        topic = run.new_topic(run.brokers)
        for contender in run.order(pair, *run.brokers):
            cost = Cost(contender)
            rate = run.attempt(
                f"transactions of {size.name} on {contender.name}",
                lambda c=contender, t=topic: produce(c, t, count, size),
            )
            cpu = cost.seconds() if rate is not None else None
            tell(f"produce {size.name}", contender, rate, "records/s", cpu)
            line = run.book.line(
                "Produce", f"{size.name}, a commit each 100 ms", "records/s", target=place.produce_target
            )
            line.add(contender.name, rate)
            add_cost(run, f"produce {size.name}", contender, cpu, data_bytes)
        for contender in run.order(pair + 1, *run.brokers):
            reading(run, contender, topic, count, size, pair)
        run.drop(topic, run.brokers)


def reading(run: Run, contender: Contender, topic: str, count: int, size: Size, pair: int) -> None:
    """The same records at both isolation levels; which one goes first alternates."""
    rates: dict[str, float | None] = {}
    for level in ("read_committed", "read_uncommitted")[:: 1 if pair % 2 else -1]:
        case = f"{size.name}, {level}"
        cost = Cost(contender)
        rates[level] = run.attempt(
            f"{case} on {contender.name}",
            lambda level=level: sum(consume(run, contender, topic, count, level) for _ in range(READS)) / READS,
        )
        cpu = cost.seconds() if rates[level] is not None else None
        tell(f"consume {case}", contender, rates[level], "records/s", cpu)
        run.book.line("Consume", case, "records/s").add(contender.name, rates[level])
        add_cost(run, f"consume {case}", contender, cpu, READS * count * size.record_bytes)
    if contender.name in (BARNABAS, COMPILED):
        name = size.name if contender.name == BARNABAS else f"{size.name}, compiled"
        line = run.book.line(
            "Committed records beside all records", name, "records/s", against="read_uncommitted", target=READ_TARGET
        )
        line.add("read_uncommitted", rates["read_uncommitted"])
        line.add(BARNABAS, rates["read_committed"])


def use_once(run: Run, contender: Contender, topic: str, count: int, size: Size) -> None:
    produce(contender, topic, count, size)
    for level in ("read_committed", "read_uncommitted"):
        consume(run, contender, topic, count, level)


def produce(contender: Contender, topic: str, count: int, size: Size) -> float:
    """ProducerPerformance with a transactional id: records a second."""
    transactional = ("--transactional-id", "bench", "--transaction-duration-ms", str(COMMIT_EVERY_MS))
    return java_produce(contender, topic, count, size.record_bytes, "all", *transactional)


def consume(run: Run, contender: Contender, topic: str, count: int, level: str) -> float:
    """ConsumerPerformance at this isolation level: records a second while fetching."""
    path = run.directory / f"{level}.properties"
    path.write_text(f"isolation.level={level}\n")
    fetching, _ = java_consume(contender, topic, count, "--consumer.config", str(path))
    return fetching


# -- transactions of one record


def one_by_one(run: Run, place: Place) -> None:
    """confluent-kafka: one after the other."""
    measure(run, "one id after the other", "one-by-one", 1, place.one_by_one, place.one_by_one_target, p99_target=1.0)


def beside_a_mock(run: Run, place: Place) -> None:
    """The same client at librdkafka's mock cluster, which stores nothing: how much of a transaction is the client's."""
    count = run.count(place.one_by_one)
    one_by_one_at = partial(run_client, "one-by-one", ids=1, transactions=count)
    run.warm_up("beside a mock cluster", run.brokers, one_by_one_at, spread=PACED_SPREAD)
    for _ in range(run.pairs):
        topic = run.new_topic(run.brokers)
        mocked = commits_a_second(run, "one-by-one-mocked", run.brokers[0], topic, count)
        for contender in run.brokers:
            line = run.book.line("Commits beside a mock cluster's", contender.name, "per s", against=MOCK)
            line.add(MOCK, mocked)
            line.add(BARNABAS, commits_a_second(run, "one-by-one", contender, topic, count))
        run.drop(topic, run.brokers)


def commits_a_second(run: Run, program: str, contender: Contender, topic: str, count: int) -> float | None:
    """Of one id, whose transactions follow each other."""
    took: Took | None = run.attempt(program, lambda: run_client(program, contender, topic, 1, count))
    return took and len(took.latencies_ms) / took.seconds


def at_once(run: Run, place: Place) -> None:
    """Many ids at once."""
    measure(run, f"{IDS} ids at once", "at-once", IDS, place.at_once, place.at_once_target)


def measure(
    run: Run, name: str, program: str, ids: int, transactions: int, target: float, *, p99_target: float | None = None
) -> None:
    """Commits per second, latencies, and the broker's CPU for each transaction."""
    count, partitions = run.count(transactions), PARTITIONS if ids > 1 else 1
    run.warm_up(
        name,
        run.brokers,
        lambda c, t: run_client(program, c, t, ids, count),
        partitions=partitions,
        spread=PACED_SPREAD,  # Kafka's clients pause between transactions
    )
    for pair in range(run.pairs):
        topic = run.new_topic(run.brokers, partitions)
        for contender in run.order(pair, *run.brokers):
            cost = Cost(contender)
            took: Took | None = run.attempt(
                f"{name} on {contender.name}",
                lambda c=contender, t=topic: run_client(program, c, t, ids, count),
            )
            # The broker paid for those that were not measured, too.
            cpu_ms_each = cost.seconds() * 1000 / (count + FIRST_TRANSACTIONS * ids)
            note = noting(run, contender, name)
            note("commits", "per s", took and len(took.latencies_ms) / took.seconds, target, True)
            note("p50", "ms", took and share_of(took.latencies_ms, 0.5), None, False)
            note("p99", "ms", took and share_of(took.latencies_ms, 0.99), p99_target, False)
            note("CPU", "ms a transaction", took and cpu_ms_each, None, False)
        run.drop(topic, run.brokers)


def noting(run: Run, contender: Contender, case: str) -> Callable[[str, str, float | None, float | None, bool], None]:
    """What writes a figure of this case into the book."""

    def note(name: str, unit: str, figure: float | None, target: float | None, higher_is_better: bool) -> None:
        full_name = f"{case}: {name}"
        tell(full_name, contender, figure, unit)
        line = run.book.line(
            "Transactions of one record", full_name, unit, target=target, higher_is_better=higher_is_better
        )
        line.add(contender.name, figure)

    return note


def run_client(program: str, contender: Contender, topic: str, ids: int, transactions: int) -> Took:
    """Run a program of `transaction_clients.py`."""
    command = [sys.executable, "-m", "bench.transaction_clients", program, contender.bootstrap, topic]
    command += [str(ids), str(transactions)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    if ran.returncode:
        raise RuntimeError(f"{program} ended with status {ran.returncode}: {ran.stderr[-1500:]}")
    return took_of(ran.stdout)


def took_of(said: str) -> Took:
    """What a program printed last."""
    found = json.loads(said.splitlines()[-1])
    return Took(found["seconds"], found["latencies"])


def cases_of(place: Place) -> Cases:
    sizes = {
        f"{place.prefix}-{size.name.replace(' ', '')}": lambda run, size=size: producing(run, place, size)
        for size in place.sizes
    }
    return {
        **sizes,
        f"{place.prefix}-one-by-one": lambda run: one_by_one(run, place),
        f"{place.prefix}-at-once": lambda run: at_once(run, place),
    }


BROKER_CASES = {
    **cases_of(ONE_BROKER),
    f"{ONE_BROKER.prefix}-mocked": lambda run: beside_a_mock(run, ONE_BROKER),
}
CLUSTER_CASES = cases_of(THREE_BROKERS)
