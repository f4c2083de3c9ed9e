"""Barnabas beside Apache Kafka 3.9.1 in one run: the same clients, the same properties, the same disk.

Both brokers are up all the time. A case is run in pairs, one broker right after the other, and which one goes first
alternates; every pair has a topic of its own, deleted after it. Before the first pair of a case each broker does one
run that does not count, for the JVM compiles what it runs often.

A run that fails is told and counts as missing in its pair; the rest goes on.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.contenders import (
    BareLoop,
    Barnabas,
    Contender,
    Kafka,
    seconds_until_open,
)
from bench.pairs import Book, table
from bench.processes import install_wheel
from compat_tests.kafka import ZooKeeperProcess, free_port, java_command

PAIRS = 5
TOOL_JVM = ("-Xms512m", "-Xmx512m")  # as in kafka-producer-perf-test.sh
TOOL_SECONDS_MAX = 120.0
SETTLE_SECONDS = 1.5  # until deleted files are gone
IDLE_SECONDS = 10.0
QUIET_LOAD_MAX = 0.5
MB = 1_000_000


class Size(NamedTuple):
    """One size of record, and how many make about three seconds."""

    name: str
    record_bytes: int
    records: int
    produce_target: float


SIZES = (
    Size("10 B", 10, 1_500_000, 1.2),
    Size("100 B", 100, 700_000, 1.3),
    Size("1 kB", 1000, 140_000, 1.1),
    Size("10 kB", 10_000, 13_000, 1.2),
)
LATENCY_MESSAGES = 4000
CONFLUENT_RECORDS = 2_000_000
PYTHON_RECORDS = 80_000
PYTHON_RECORD_BYTES = 100


class Run:
    """What the cases share: the brokers, the book, and how long they may take."""

    def __init__(self, directory: pathlib.Path, *, pairs: int, shrink: int) -> None:
        self.directory = directory
        self.pairs = pairs
        self.shrink = shrink  # records are divided by it
        self.book = Book()
        self.installed = install_wheel(directory)
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper")
        self.zookeeper.port = free_port()
        self.kafka = Kafka(directory / "kafka", self.zookeeper, "bench")
        self.barnabas = Barnabas(directory / "barnabas", self.installed)
        self.bare = BareLoop(directory / "bare")
        self._topics = 0

    def start(self) -> None:
        self.zookeeper.start()
        for contender in (self.kafka, self.barnabas, self.bare):
            contender.start()

    def close(self) -> None:
        for contender in (self.kafka, self.barnabas, self.bare):
            contender.stop()
        self.zookeeper.kill()

    def count(self, records: int) -> int:
        return max(records // self.shrink, 100)

    def order(self, pair: int, *contenders: Contender) -> list[Contender]:
        """Who goes first alternates."""
        turn = pair % len(contenders)
        return [*contenders[turn:], *contenders[:turn]]

    def new_topic(self, contenders: Sequence[Contender]) -> str:
        """A topic that nobody has used, on each of them."""
        self._topics += 1
        name = f"bench-{self._topics}"
        for contender in contenders:
            if not contender.is_running():
                print(f"{contender.name} has ended and is started again", flush=True)
                contender.start()
            contender.create_topic(name)
        return name

    def drop(self, topic: str, contenders: Sequence[Contender]) -> None:
        for contender in contenders:
            self.attempt(f"deleting {topic} on {contender.name}", lambda c=contender: c.delete_topic(topic))
        time.sleep(SETTLE_SECONDS)

    def attempt(self, what: str, act: Callable[[], Any]) -> Any:
        """What `act` measures; None, and a line, when it fails."""
        try:
            return act()
        except Exception as error:  # whatever it is, the other cases go on
            failure = f"{what}: {type(error).__name__}: {str(error)[-1500:]}"
            print(f"FAILED {failure}", flush=True)
            self.book.failures.append(failure)
            return None


class Cost:
    """The broker's CPU seconds while inside."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._before = contender.cpu_seconds()

    def seconds(self) -> float:
        return self._contender.cpu_seconds() - self._before


# -- Kafka's own tools


def run_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's performance tools; what it printed."""
    command = java_command(f"org.apache.kafka.tools.{main_class}", *arguments, jvm=TOOL_JVM)
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    if ran.returncode:
        raise RuntimeError(f"{main_class} ended with status {ran.returncode}: {ran.stdout[-500:]}{ran.stderr[-1000:]}")
    return ran.stdout


def java_produce(contender: Contender, topic: str, count: int, size: int, acks: str) -> float:
    """Records a second."""
    said = run_tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={contender.bootstrap}", f"acks={acks}"),
    )
    last = [line for line in said.splitlines() if "records sent" in line][-1]
    if not last.startswith(f"{count} records sent"):
        raise RuntimeError(f"not everything was sent: {last}")
    return float(re.search(r"([\d.]+) records/sec", last)[1])


def java_consume(contender: Contender, topic: str, count: int) -> tuple[float, float]:
    """Records a second while fetching, and with the time that joining the group took."""
    said = run_tool(
        "ConsumerPerformance",
        *("--bootstrap-server", contender.bootstrap, "--topic", topic, "--messages", str(count)),
        *("--timeout", "30000"),
    )
    header, row = (line.split(", ") for line in said.splitlines() if line.count(", ") >= 9)
    figures = dict(zip(header, row, strict=True))
    if int(figures["data.consumed.in.nMsg"]) < count:
        raise RuntimeError(f"{figures['data.consumed.in.nMsg']} of {count} records came")
    return float(figures["fetch.nMsg.sec"]), float(figures["nMsg.sec"])


def java_tools(run: Run, size: Size) -> None:
    """ProducerPerformance with acks=1 and all, beside the bare loop, and ConsumerPerformance of what they wrote."""
    count = run.count(size.records)
    contenders = (run.kafka, run.barnabas, run.bare)
    brokers = (run.kafka, run.barnabas)
    warm = run.new_topic(contenders)
    for contender in contenders:
        run.attempt(f"warming {contender.name}", lambda c=contender: warm_up(c, warm, count, size))
    run.drop(warm, brokers)
    for pair in range(run.pairs):
        topic = run.new_topic(contenders)
        for contender in run.order(pair, *contenders):
            produce_case(run, contender, topic, count, size, "1")
        for contender in run.order(pair + 1, *brokers):
            produce_case(run, contender, topic, count, size, "all")
        for contender in run.order(pair, *brokers):
            consume_case(run, contender, topic, 2 * count, size)
        run.drop(topic, brokers)


def warm_up(contender: Contender, topic: str, count: int, size: Size) -> None:
    java_produce(contender, topic, count, size.record_bytes, "1")
    if not isinstance(contender, BareLoop):
        java_consume(contender, topic, count)


def produce_case(run: Run, contender: Contender, topic: str, count: int, size: Size, acks: str) -> None:
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
    run.book.line("Produce", case, "records/s", target=size.produce_target).add(contender.name, rate)
    add_cost(run, f"produce {case}", contender, cpu, count * size.record_bytes)


def consume_case(run: Run, contender: Contender, topic: str, count: int, size: Size) -> None:
    cost = Cost(contender)
    joined: list[float] = []

    def consume() -> float:
        fetching, whole = java_consume(contender, topic, count)
        joined.append(whole)
        return fetching

    rate = run.attempt(f"consume {size.name} on {contender.name}", consume)
    cpu = cost.seconds() if rate is not None else None
    tell(f"consume {size.name}", contender, rate, "records/s", cpu)
    run.book.line("Consume", size.name, "records/s", target=1.0).add(contender.name, rate)
    run.book.line("Consume", f"{size.name}, joining included", "records/s").add(
        contender.name, joined[0] if joined else None
    )
    add_cost(run, f"consume {size.name}", contender, cpu, count * size.record_bytes)


def add_cost(run: Run, case: str, contender: Contender, cpu: float | None, data_bytes: int) -> None:
    """The broker's CPU, per MB of values; seconds are in the book, too, for people who know the case."""
    seconds = run.book.line("Broker CPU", case, "s", higher_is_better=False)
    seconds.add(contender.name, cpu)
    each = None if cpu is None else cpu * 1000 / (data_bytes / MB)
    run.book.line("Broker CPU per MB", case, "ms", higher_is_better=False).add(contender.name, each)


def tell(case: str, contender: Contender, figure: float | None, unit: str, cpu: float | None = None) -> None:
    told = "failed" if figure is None else f"{figure:,.3f}" if figure < 100 else f"{figure:,.0f}"
    print(f"  {case:28} {contender.name:10} {told} {unit}{'' if cpu is None else f', {cpu:.2f} s CPU'}", flush=True)


def latency(run: Run) -> None:
    """EndToEndLatency: one record of 100 bytes at a time, acks=1, from send to receive."""
    brokers = (run.kafka, run.barnabas)
    count = run.count(LATENCY_MESSAGES)
    for pair in range(-1, run.pairs):  # the first one does not count
        topic = run.new_topic(brokers)
        for contender in run.order(pair, *brokers):
            cost = Cost(contender)
            found: dict[str, float] = {}

            def measure(contender: Contender = contender, found: dict[str, float] = found, topic: str = topic) -> float:
                said = run_tool("EndToEndLatency", contender.bootstrap, topic, str(count), "1", "100")
                found["average"] = float(re.search(r"Avg latency: ([\d.]+) ms", said)[1])
                for name in ("50th", "99th"):
                    found[name] = float(re.search(rf"{name} = (\d+)", said)[1])
                return found["average"]

            average = run.attempt(f"latency on {contender.name}", measure)
            cpu = cost.seconds() if average is not None else None
            if pair < 0:
                continue
            tell("end to end", contender, average, f"ms on average, p99 {found.get('99th')} ms", cpu)
            for name, target in (("average", None), ("99th", 1.0)):
                title = "average" if name == "average" else f"{name} percentile"
                line = run.book.line("End to end", title, "ms", target=target, higher_is_better=False)
                line.add(contender.name, found.get(name))
            run.book.line("Broker CPU", f"end to end, {count:,} records", "s", higher_is_better=False).add(
                contender.name, cpu
            )
        run.drop(topic, brokers)


# -- Python clients


def run_client(what: str, contender: Contender, topic: str, count: int, size: int) -> float:
    """Seconds that the client measured."""
    command = [sys.executable, "-m", "bench.clients", what, contender.bootstrap, topic, str(count), str(size)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    if ran.returncode:
        raise RuntimeError(f"{what} ended with status {ran.returncode}: {ran.stderr[-1500:]}")
    return float(json.loads(ran.stdout.splitlines()[-1])["seconds"])


def python_client(run: Run, client: str, records: int) -> None:
    """Produce and consume 100-byte records with a Python client in its default settings."""
    brokers, count, size = (run.kafka, run.barnabas), run.count(records), PYTHON_RECORD_BYTES
    for pair in range(-1, run.pairs):  # the first one does not count
        topic = run.new_topic(brokers)
        for what in ("produce", "consume"):
            for contender in run.order(pair, *brokers):
                cost = Cost(contender)
                seconds = run.attempt(
                    f"{client} {what} on {contender.name}",
                    lambda c=contender, w=what, t=topic: run_client(f"{client}-{w}", c, t, count, size),
                )
                cpu = cost.seconds() if seconds is not None else None
                if pair < 0:
                    continue
                rate = None if seconds is None else count / seconds
                tell(f"{client} {what}", contender, rate, "records/s", cpu)
                run.book.line("Python clients", f"{client} {what}", "records/s").add(contender.name, rate)
                add_cost(run, f"{client} {what}", contender, cpu, count * size)
        run.drop(topic, brokers)


# -- start


def start_up(run: Run) -> None:
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
            time.sleep(0.5)  # it tries, and nobody is there
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


# -- memory


def memory(run: Run, when: str, target: float | None) -> None:
    """Resident memory now."""
    for contender in (run.kafka, run.barnabas):
        resident = run.attempt(f"memory of {contender.name}", contender.resident_bytes)
        tell(f"resident {when}", contender, None if resident is None else resident / MB, "MB")
        line = run.book.line("Resident memory", when, "MB", target=target, higher_is_better=False)
        line.add(contender.name, None if resident is None else resident / MB)


CASES: dict[str, Callable[[Run], None]] = {
    **{f"java-{size.name.replace(' ', '')}": lambda run, size=size: java_tools(run, size) for size in SIZES},
    "latency": latency,
    "confluent": lambda run: python_client(run, "confluent", CONFLUENT_RECORDS),
    "kafka-python": lambda run: python_client(run, "kafka-python", PYTHON_RECORDS),
    "start": start_up,
}


def compare(names: Sequence[str], *, pairs: int = PAIRS, shrink: int = 1) -> Book:
    """Run these cases and print the tables; the book of all figures."""
    began = time.monotonic()
    load = os.getloadavg()[0]
    if load > QUIET_LOAD_MAX:
        print(f"the machine is busy (load {load:.1f}): figures will be noisy", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        run = Run(pathlib.Path(directory), pairs=pairs, shrink=shrink)
        try:
            run.start()
            time.sleep(IDLE_SECONDS / shrink)
            memory(run, "idle", None)
            for name in names:
                print(f"\n{name} ({time.monotonic() - began:.0f} s)", flush=True)
                run.attempt(name, lambda name=name: CASES[name](run))
            time.sleep(IDLE_SECONDS / shrink)
            memory(run, "10 s after the cases", 1 / 8)
        finally:
            run.close()
    print(f"\n{time.monotonic() - began:.0f} s in all", flush=True)
    for group, lines in run.book.groups():
        print(f"\n### {group}\n", *table(lines), sep="\n", flush=True)
    for failure in run.book.failures:
        print(f"FAILED {failure}", flush=True)
    return run.book
