"""One run of comparisons: who takes part, the book of figures, Kafka's performance tools.

A case is run in pairs, one contender right after the other, and which one goes first alternates; every pair has a topic
of its own, deleted after it. A failed run is reported and counts as missing in its pair; the rest continues.

Before the first pair both brokers are *warm*: they have done the same runs until Kafka's CPU per MB did not fall any
more. A JVM compiles what runs often; a Kafka that has just started costs four times what it costs later.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.contenders import Contender
from bench.pairs import Book, number, table
from bench.processes import install_wheel
from compat_tests.kafka import ZooKeeperProcess, free_port, java_command

TOOL_JVM = ("-Xms512m", "-Xmx512m")  # as in kafka-producer-perf-test.sh
TOOL_SECONDS_MAX = 120.0
SETTLE_SECONDS = 1.5  # until deleted files are gone
IDLE_SECONDS = 10.0
LATENCY_RECORD_BYTES = 100
QUIET_LOAD_MAX = 0.5
STEADY_RUNS, STEADY_SPREAD = 3, 1.05  # warm: Kafka's last runs, and how far apart they may be
WARM_RUNS_MAX = 20
MB = 1_000_000


class Size(NamedTuple):
    """One size of record, and how many make about three seconds."""

    name: str
    record_bytes: int
    records: int


class Run:
    """What the cases share: those who are compared, the book, and how long they may take."""

    contenders: tuple[Contender, ...]  # all that are started
    brokers: tuple[Contender, ...]  # Apache Kafka first, then Barnabas in both forms, whatever they consist of

    def __init__(self, directory: pathlib.Path, *, pairs: int, shrink: int) -> None:
        self.directory = directory
        self.pairs = pairs
        self.shrink = shrink  # records are divided by it
        self.book = Book()
        self.installed = install_wheel(directory)
        self.installed_compiled = install_wheel(directory, compiled=True)
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper")
        self.zookeeper.port = free_port()
        self._topics = 0

    def start(self) -> None:
        self.zookeeper.start()
        for contender in self.contenders:
            contender.start()

    def close(self) -> None:
        for contender in self.contenders:
            contender.stop()
        self.zookeeper.kill()

    def count(self, records: int) -> int:
        return max(records // self.shrink, 100)

    def order(self, pair: int, *contenders: Contender) -> list[Contender]:
        """Who goes first alternates."""
        turn = pair % len(contenders)
        return [*contenders[turn:], *contenders[:turn]]

    def new_topic(self, contenders: Sequence[Contender], partitions: int = 1) -> str:
        """A new topic on each of them."""
        self._topics += 1
        name = f"bench-{self._topics}"
        for contender in contenders:
            if not contender.is_running():
                print(f"{contender.name} has ended and is started again", flush=True)
                contender.start()
            contender.create_topic(name, partitions)
        return name

    def drop(self, topic: str, contenders: Sequence[Contender]) -> None:
        for contender in contenders:
            self.attempt(f"deleting {topic} on {contender.name}", lambda c=contender: c.delete_topic(topic))
        time.sleep(SETTLE_SECONDS)

    def warm_up(
        self,
        what: str,
        contenders: Sequence[Contender],
        act: Callable[[Contender, str], object],
        data_bytes: int = MB,
        *,
        partitions: int = 1,
        spread: float = STEADY_SPREAD,
    ) -> None:
        """Repeat `act(contender, topic)` on all of them, until Kafka's cost is steady: within `spread`."""
        kafka = self.brokers[0]
        costs: list[float] = []
        while not is_steady(costs, spread) and len(costs) < WARM_RUNS_MAX // self.shrink + 1:
            topic = self.new_topic(contenders, partitions)
            for contender in self.order(len(costs), *contenders):
                cost = Cost(contender)
                self.attempt(f"warming {contender.name}, {what}", lambda c=contender, t=topic: act(c, t))
                if contender is kafka:
                    costs.append(cost.seconds() * 1000 / (data_bytes / MB))
            self.drop(topic, [contender for contender in contenders if contender in self.brokers])
        print(
            f"  warm after {len(costs)} runs, Kafka's CPU (ms/MB, or ms): {', '.join(map(number, costs))}", flush=True
        )
        self.book.warm_ups[what] = costs

    def attempt(self, what: str, act: Callable[[], Any]) -> Any:
        """What `act` measures; None, and a line, when it fails."""
        try:
            return act()
        except Exception as error:  # whatever it is, the other cases go on
            failure = f"{what}: {type(error).__name__}: {str(error)[-1500:]}"
            print(f"FAILED {failure}", flush=True)
            self.book.failures.append(failure)
            return None


Cases = Mapping[str, Callable[[Run], None]]


def is_steady(costs: Sequence[float], spread: float = STEADY_SPREAD) -> bool:
    """Whether the last runs cost the same CPU, within `spread`: then Kafka is warm."""
    last = costs[-STEADY_RUNS:]
    return len(last) == STEADY_RUNS and max(last) < min(last) * spread


def touch_memory() -> None:
    """Write to each free page of the machine once.

    A virtual machine gets a page from its host when it first writes to it. That costs 30 to 50 µs for a batch of 16 kB,
    and would be counted in the first runs.
    """
    subprocess.run([sys.executable, "-c", TOUCH], check=True)


# In a process of its own, whose end frees the memory.
TOUCH = """
import mmap, re
free_bytes = int(re.search(r"MemAvailable: +(\\d+) kB", open("/proc/meminfo").read())[1]) * 1024
memory = mmap.mmap(-1, free_bytes * 8 // 10)
for position in range(0, len(memory), mmap.PAGESIZE):
    memory[position] = 1
"""


class Cost:
    """The broker's CPU seconds since this was made."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._before = contender.cpu_seconds()

    def seconds(self) -> float:
        return self._contender.cpu_seconds() - self._before


def compare(make: Callable[..., Run], cases: Cases, names: Sequence[str], *, pairs: int, shrink: int) -> Book:
    """Run these cases and print the tables; the book of all figures."""
    began = time.monotonic()
    load = os.getloadavg()[0]
    if load > QUIET_LOAD_MAX:
        print(f"the machine is busy (load {load:.1f}): figures will be noisy", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        run = make(pathlib.Path(directory), pairs=pairs, shrink=shrink)
        try:
            if shrink == 1:
                touch_memory()
            run.start()
            time.sleep(IDLE_SECONDS / shrink)
            memory(run, "idle", None)
            for name in names:
                print(f"\n{name} ({time.monotonic() - began:.0f} s)", flush=True)
                run.attempt(name, lambda name=name: cases[name](run))
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


# -- figures


def add_cost(
    run: Run, case: str, contender: Contender, cpu: float | None, data_bytes: int, target: float | None = None
) -> None:
    """The broker's CPU, per MB of values; seconds are in the book, too, for people who know the case."""
    seconds = run.book.line("Broker CPU", case, "s", higher_is_better=False)
    seconds.add(contender.name, cpu)
    each = None if cpu is None else cpu * 1000 / (data_bytes / MB)
    per_mb = run.book.line("Broker CPU per MB", case, "ms", target=target, higher_is_better=False)
    per_mb.add(contender.name, each)


def tell(case: str, contender: Contender, figure: float | None, unit: str, cpu: float | None = None) -> None:
    text = "failed" if figure is None else f"{figure:,.3f}" if figure < 100 else f"{figure:,.0f}"
    print(f"  {case:28} {contender.name:10} {text} {unit}{'' if cpu is None else f', {cpu:.2f} s CPU'}", flush=True)


def memory(run: Run, when: str, target: float | None) -> None:
    """Resident memory now."""
    for contender in run.brokers:
        resident = run.attempt(f"memory of {contender.name}", contender.resident_bytes)
        tell(f"resident {when}", contender, None if resident is None else resident / MB, "MB")
        line = run.book.line("Resident memory", when, "MB", target=target, higher_is_better=False)
        line.add(contender.name, None if resident is None else resident / MB)


# -- Kafka's own tools


def run_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's performance tools; what it printed."""
    command = java_command(f"org.apache.kafka.tools.{main_class}", *arguments, jvm=TOOL_JVM)
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    if ran.returncode:
        raise RuntimeError(f"{main_class} ended with status {ran.returncode}: {ran.stdout[-500:]}{ran.stderr[-1000:]}")
    return ran.stdout


def java_produce(contender: Contender, topic: str, count: int, size: int, acks: str, *more: str) -> float:
    """ProducerPerformance, with `more` arguments: records a second."""
    said = run_tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={contender.bootstrap}", f"acks={acks}"),
        *more,
    )
    last = [line for line in said.splitlines() if "records sent" in line][-1]
    if not last.startswith(f"{count} records sent"):
        raise RuntimeError(f"not everything was sent: {last}")
    return float(re.search(r"([\d.]+) records/sec", last)[1])


def java_consume(contender: Contender, topic: str, count: int, *more: str) -> tuple[float, float]:
    """ConsumerPerformance, with `more` arguments: records a second.

    While fetching, and with the time that joining the group took.
    """
    said = run_tool(
        "ConsumerPerformance",
        *("--bootstrap-server", contender.bootstrap, "--topic", topic, "--messages", str(count)),
        *("--timeout", "30000"),
        *more,
    )
    header, row = (line.split(", ") for line in said.splitlines() if line.count(", ") >= 9)
    figures = dict(zip(header, row, strict=True))
    if int(figures["data.consumed.in.nMsg"]) < count:
        raise RuntimeError(f"{figures['data.consumed.in.nMsg']} of {count} records came")
    return float(figures["fetch.nMsg.sec"]), float(figures["nMsg.sec"])


def end_to_end(run: Run, count: int, acks: str) -> None:
    """EndToEndLatency: one record of 100 bytes at a time, from send to receive."""
    run.warm_up("end to end", run.brokers, lambda c, t: java_latency(c, t, count, acks), count * LATENCY_RECORD_BYTES)
    for pair in range(run.pairs):
        topic = run.new_topic(run.brokers)
        for contender in run.order(pair, *run.brokers):
            cost = Cost(contender)
            found = run.attempt(
                f"latency on {contender.name}", lambda c=contender, t=topic: java_latency(c, t, count, acks)
            )
            cpu = cost.seconds() if found is not None else None
            average, p99 = found or (None, None)
            tell("end to end", contender, average, f"ms on average, p99 {p99} ms", cpu)
            book = run.book
            book.line("End to end", "average", "ms", higher_is_better=False).add(contender.name, average)
            book.line("End to end", "99th percentile", "ms", target=1.0, higher_is_better=False).add(
                contender.name, p99
            )
            book.line("Broker CPU", f"end to end, {count:,} records", "s", higher_is_better=False).add(
                contender.name, cpu
            )
        run.drop(topic, run.brokers)


def java_latency(contender: Contender, topic: str, count: int, acks: str) -> tuple[float, float]:
    """EndToEndLatency: average and 99th percentile, in ms."""
    said = run_tool("EndToEndLatency", contender.bootstrap, topic, str(count), acks, str(LATENCY_RECORD_BYTES))
    average = re.search(r"Avg latency: ([\d.]+) ms", said)
    p99 = re.search(r"99th = (\d+)", said)
    if average is None or p99 is None:
        raise RuntimeError(f"EndToEndLatency said {said[-500:]!r}")
    return float(average[1]), float(p99[1])
