"""Barnabas beside Apache Kafka 3.9.1 in one run: the same clients, the same properties, the same disk.

Both brokers are up all the time, and warm before the first pair of a case (`Run.warm_up`).
"""

import json
import pathlib
import subprocess
import sys
import threading
import time

from bench.contenders import BareLoop, Barnabas, Contender, Kafka, seconds_until_open
from bench.pairs import COMPILED
from bench.run import (
    TOOL_SECONDS_MAX,
    Cases,
    Cost,
    Run,
    Size,
    add_cost,
    end_to_end,
    java_consume,
    java_produce,
    tell,
)
from compat_tests.kafka import free_port

SIZES = (
    Size("10 B", 10, 1_500_000),
    Size("100 B", 100, 700_000),
    Size("1 kB", 1000, 140_000),
    Size("10 kB", 10_000, 13_000),
)
PRODUCE_TARGET, PRODUCE_CPU_TARGET = 1.0, 0.95
CONSUME_TARGET, CONSUME_CPU_TARGET = 1.05, 0.8
LATENCY_MESSAGES = 4000
CONFLUENT_RECORDS = 2_000_000
PYTHON_RECORDS = 80_000
PYTHON_RECORD_BYTES = 100


class BrokerRun(Run):
    """One broker of each, and the bare loop."""

    def __init__(self, directory: pathlib.Path, *, pairs: int, shrink: int) -> None:
        super().__init__(directory, pairs=pairs, shrink=shrink)
        self.kafka = Kafka(directory / "kafka", self.zookeeper, "bench")
        barnabas = Barnabas(directory / "barnabas", self.installed)
        compiled = Barnabas(directory / "compiled", self.installed_compiled, name=COMPILED)
        self.bare = BareLoop(directory / "bare")
        self.brokers = self.kafka, barnabas, compiled
        self.contenders = *self.brokers, self.bare


# -- Kafka's own tools


def java_tools(run: BrokerRun, size: Size) -> None:
    """ProducerPerformance with acks=1 and all, beside the bare loop, and ConsumerPerformance of what they wrote."""
    count = run.count(size.records)
    contenders, brokers = run.contenders, run.brokers
    run.warm_up(size.name, contenders, lambda c, t: use_once(c, t, count, size), count * size.record_bytes)
    for pair in range(run.pairs):
        topic = run.new_topic(contenders)
        for contender in run.order(pair, *contenders):
            produce_case(run, contender, topic, count, size, "1")
        for contender in run.order(pair + 1, *brokers):
            produce_case(run, contender, topic, count, size, "all")
        for contender in run.order(pair, *brokers):
            consume_case(run, contender, topic, 2 * count, size)
        run.drop(topic, brokers)


def use_once(contender: Contender, topic: str, count: int, size: Size) -> None:
    java_produce(contender, topic, count, size.record_bytes, "1")
    if not isinstance(contender, BareLoop):
        java_consume(contender, topic, count)


def produce_case(run: BrokerRun, contender: Contender, topic: str, count: int, size: Size, acks: str) -> None:
    case = f"{size.name}, acks={acks}"
    cost = Cost(contender)
    rate = run.attempt(
        f"produce {case} on {contender.name}",
        lambda: java_produce(contender, topic, count, size.record_bytes, acks),
    )
    cpu = cost.seconds() if rate is not None else None
    tell(case, contender, rate, "records/s", cpu)
    if acks == "1":
        if contender is not run.kafka:
            line = run.book.line("Produce beside the bare loop", case, "records/s", against=run.bare.name, target=0.85)
            line.add(contender.name, rate)
        if contender is run.bare:
            return
    run.book.line("Produce", case, "records/s", target=PRODUCE_TARGET).add(contender.name, rate)
    add_cost(run, f"produce {case}", contender, cpu, count * size.record_bytes, PRODUCE_CPU_TARGET)


def consume_case(run: BrokerRun, contender: Contender, topic: str, count: int, size: Size) -> None:
    cost = Cost(contender)
    joined: list[float] = []

    def consume() -> float:
        fetching, whole = java_consume(contender, topic, count)
        joined.append(whole)
        return fetching

    rate = run.attempt(f"consume {size.name} on {contender.name}", consume)
    cpu = cost.seconds() if rate is not None else None
    tell(f"consume {size.name}", contender, rate, "records/s", cpu)
    run.book.line("Consume", size.name, "records/s", target=CONSUME_TARGET).add(contender.name, rate)
    run.book.line("Consume", f"{size.name}, joining included", "records/s").add(
        contender.name, joined[0] if joined else None
    )
    add_cost(run, f"consume {size.name}", contender, cpu, count * size.record_bytes, CONSUME_CPU_TARGET)


# -- Python clients


def run_client(
    what: str, contender: Contender, topic: str, count: int, size: int, *settings: str, port: int | None = None
) -> float:
    """Seconds that the client measured. `settings` are more of the client's; `port` is that of another listener."""
    bootstrap = contender.bootstrap if port is None else f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "bench.clients", what, bootstrap, topic, str(count), str(size), *settings]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    if ran.returncode:
        raise RuntimeError(f"{what} ended with status {ran.returncode}: {ran.stderr[-1500:]}")
    return float(json.loads(ran.stdout.splitlines()[-1])["seconds"])


def python_client(run: BrokerRun, client: str, records: int) -> None:
    """Produce and consume 100-byte records with a Python client in its default settings."""
    brokers, count, size = run.brokers, run.count(records), PYTHON_RECORD_BYTES
    run.warm_up(client, brokers, lambda c, t: python_client_once(c, t, client, count, size), count * size)
    for pair in range(run.pairs):
        topic = run.new_topic(brokers)
        for what in ("produce", "consume"):
            for contender in run.order(pair, *brokers):
                cost = Cost(contender)
                seconds = run.attempt(
                    f"{client} {what} on {contender.name}",
                    lambda c=contender, w=what, t=topic: run_client(f"{client}-{w}", c, t, count, size),
                )
                cpu = cost.seconds() if seconds is not None else None
                rate = None if seconds is None else count / seconds
                tell(f"{client} {what}", contender, rate, "records/s", cpu)
                run.book.line("Python clients", f"{client} {what}", "records/s", target=1.0).add(contender.name, rate)
                add_cost(run, f"{client} {what}", contender, cpu, count * size)
        run.drop(topic, brokers)


def python_client_once(contender: Contender, topic: str, client: str, count: int, size: int) -> None:
    for what in ("produce", "consume"):
        run_client(f"{client}-{what}", contender, topic, count, size)


# -- start


def start_up(run: BrokerRun) -> None:
    """From exec of a broker on an empty directory until it is ready, and until a waiting group has a record."""
    for pair in range(run.pairs):
        name = f"start-{pair}"
        fresh = (
            Kafka(run.directory / name / "kafka", run.zookeeper, name),
            Barnabas(run.directory / name / "barnabas", run.installed),
        )
        for contender in run.order(pair, *fresh):
            times: list[float] = []
            try:
                until_record = run.attempt(
                    f"start of {contender.name}", lambda c=contender, times=times: start_once(c, times)
                )
            finally:
                contender.stop()
            until_ready = times[0] if times else None
            tell("start to ready", contender, until_ready, "s")
            tell("start to first group record", contender, until_record, "s")
            ready = run.book.line("Start", "ready", "s", target=1 / 8, higher_is_better=False)
            ready.add(contender.name, until_ready)
            record = run.book.line("Start", "first group record", "s", target=1 / 4, higher_is_better=False)
            record.add(contender.name, until_record)


def start_once(contender: Contender, times: list[float]) -> float:
    """Start a client that waits, then the broker; seconds to the first record. The seconds to ready go into `times`.

    Ready is what the broker's own user sees: Barnabas's ready line, an open port of Kafka.
    """
    contender.port = free_port()
    command = [sys.executable, "-m", "bench.clients", "first-group-record", contender.bootstrap, "first", "1", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            client.stdout.readline()
            time.sleep(0.5)  # the client's first attempts must fail: no broker runs yet
            began = time.monotonic()
            if isinstance(contender, Barnabas):
                contender.start()
                times.append(time.monotonic() - began)
            else:
                starter = threading.Thread(target=contender.start)
                starter.start()
                times.append(seconds_until_open(contender.port, began))
                starter.join()
            said, errors = client.communicate(timeout=TOOL_SECONDS_MAX)
        finally:
            client.kill()
    if client.returncode:
        raise RuntimeError(f"the client ended with status {client.returncode}: {errors[-1500:]}")
    return float(json.loads(said.splitlines()[-1])["seconds"]) - began


CASES: Cases = {
    **{f"java-{size.name.replace(' ', '')}": lambda run, size=size: java_tools(run, size) for size in SIZES},
    "latency": lambda run: end_to_end(run, run.count(LATENCY_MESSAGES), "1"),
    "confluent": lambda run: python_client(run, "confluent", CONFLUENT_RECORDS),
    "kafka-python": lambda run: python_client(run, "kafka-python", PYTHON_RECORDS),
    "start": start_up,
}
