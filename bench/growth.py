"""How the cost grows with connections, partitions, groups and data: Barnabas beside a warm Apache Kafka.

Requests come at a fixed rate, so the broker is not the limit: what counts is its CPU per request and the latencies.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.records import read_batch_header, walk_entries
from bench.against_kafka import BrokerRun, run_client
from bench.contenders import Barnabas, Contender, Kafka, metadata_of_all
from bench.load import FETCH_VERSION, Client, fetch_frame
from bench.run import MB, TOOL_SECONDS_MAX, Cases, Cost, add_cost, tell

CONNECTIONS = (10, 100, 1000)
GROUPS = (100, 1000)
SECONDS = 5.0
# Runs of paced requests differ by 10 % when Kafka is long warm: its threads wake up more or less often.
PACED_SPREAD = 1.15
KEYED_PARTITIONS, KEYED_RECORDS, KEYED_BYTES = (100, 1000), 600_000, 1000
MANY, CREATED_AT_A_TIME, METADATA_ASKED = 10_000, 1000, 20
STARTS_MAX = 40
COLD_RECORDS, COLD_RECORD_BYTES, COLD_FETCH_BYTES = 500_000, 1000, 1 << 20


class Timed(NamedTuple):
    """A program of `pacing_clients.py`, the kinds of requests that it times, and what the ratios should be."""

    group: str
    program: str
    kinds: tuple[str, ...]
    p50_targets: dict[str, float]
    # False where the program does more before the time begins: groups join, a log is filled.
    counts_cpu: bool = True


CONNECTED = Timed("Connections", "connections", ("produce",), {"produce": 1.2})
BACK_TO_BACK = Timed("One record at a time", "back-to-back", ("produce",), {"produce": 1.05})
PACED = Timed("One record at a time", "paced", ("produce",), {"produce": 0.8})
GROUPED = Timed("Groups", "groups", ("heartbeat", "commit"), {"commit": 1.1}, counts_cpu=False)
LOOKED_UP = Timed("Lookup by time", "lookups", ("lookup",), {"lookup": 1.0}, counts_cpu=False)


def timed(run: BrokerRun, what: Timed, name: str, count: int = 1) -> None:
    """The program on each broker, in pairs: latencies by kind of request, CPU per request."""
    seconds = SECONDS / run.shrink

    def note(contender: Contender, figure_name: str, unit: str, figure: float | None, target: float | None) -> None:
        full_name = f"{name}: {figure_name}"
        tell(full_name, contender, figure, unit)
        line = run.book.line(what.group, full_name, unit, target=target, higher_is_better=False)
        line.add(contender.name, figure)

    run.warm_up(name, run.brokers, lambda c, t: latencies_of(c, what.program, t, count, seconds), spread=PACED_SPREAD)
    for pair in range(run.pairs):
        topic = run.new_topic(run.brokers)
        for contender in run.order(pair, *run.brokers):
            cost = Cost(contender)
            found = run.attempt(
                f"{name} on {contender.name}",
                lambda c=contender, t=topic: latencies_of(c, what.program, t, count, seconds),
            )
            cpu = cost.seconds()
            if what.counts_cpu:
                each = cpu / sum(map(len, found.values())) * 1e6 if found else None
                note(contender, "CPU", "µs a request", each, 1.0)
            for kind in what.kinds:
                values = found[kind] if found else None
                note(contender, f"{kind} p50", "ms", share_of(values, 0.5), what.p50_targets.get(kind))
                note(contender, f"{kind} p99", "ms", share_of(values, 0.99), None)
        run.drop(topic, run.brokers)


def share_of(latencies: list[float] | None, share: float) -> float | None:
    """The latency that this share of the requests does not exceed; they are sorted."""
    return latencies[int(len(latencies) * share)] if latencies else None


def latencies_of(contender: Contender, what: str, topic: str, count: int, seconds: float) -> dict[str, list[float]]:
    """Sorted, in ms, by kind of request."""
    command = [sys.executable, "-m", "bench.pacing_clients", what, str(contender.port), topic, str(count), str(seconds)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    if ran.returncode:
        raise RuntimeError(f"{what} ended with status {ran.returncode}: {ran.stderr[-1500:]}")
    found: dict[str, list[float]] = json.loads(ran.stdout)
    return found


def connections(run: BrokerRun) -> None:
    """Small Produce requests, RATE a second over 10, 100 and 1,000 connections."""
    for count in CONNECTIONS:
        timed(run, CONNECTED, f"{count:,} connections", count)


def one_by_one(run: BrokerRun) -> None:
    """One record after the other on one connection: back to back, and one each millisecond."""
    timed(run, BACK_TO_BACK, "back to back")
    timed(run, PACED, "one each ms")


def groups(run: BrokerRun) -> None:
    """Groups of one member each, which sends a heartbeat and a commit a second."""
    for count in GROUPS:
        timed(run, GROUPED, f"{count:,} groups", count)


def lookups(run: BrokerRun) -> None:
    """ListOffsets by time, in a log of 1.8 million records."""
    timed(run, LOOKED_UP, "random times")


def keys(run: BrokerRun) -> None:
    """confluent-kafka with random keys, linger 5 ms, to 100 and 1,000 partitions."""
    count = run.count(KEYED_RECORDS)
    for partitions in KEYED_PARTITIONS:
        run.warm_up(
            f"keys, {partitions:,} partitions",
            run.brokers,
            lambda c, t: run_client("confluent-keys", c, t, count, KEYED_BYTES),
            count * KEYED_BYTES,
            partitions=partitions,
        )
        for pair in range(run.pairs):
            topic = run.new_topic(run.brokers, partitions)
            for contender in run.order(pair, *run.brokers):
                cost = Cost(contender)
                seconds = run.attempt(
                    f"keys on {contender.name}",
                    lambda c=contender, t=topic: run_client("confluent-keys", c, t, count, KEYED_BYTES),
                )
                cpu = cost.seconds() if seconds is not None else None
                rate = None if seconds is None else count / seconds
                tell(f"keys, {partitions:,} partitions", contender, rate, "records/s", cpu)
                line = run.book.line("Keys", f"{partitions:,} partitions", "records/s", target=1.0)
                line.add(contender.name, rate)
                add_cost(run, f"keys, {partitions:,} partitions", contender, cpu, count * KEYED_BYTES)
            run.drop(topic, run.brokers)


def many_partitions(run: BrokerRun) -> None:
    """10,000 partitions on brokers of their own: creation, Metadata, stop, start, start after SIGKILL."""
    count = run.count(MANY)
    for pair in range(run.pairs if run.shrink > 1 else (run.pairs + 1) // 2):  # each takes two minutes
        name = f"many-{pair}"
        fresh = (
            Kafka(run.directory / name / "kafka", run.zookeeper, name),
            Barnabas(run.directory / name / "barnabas", run.installed),
        )
        for contender in run.order(pair, *fresh):
            try:
                contender.start()
                run.attempt(f"{count} partitions on {contender.name}", lambda c=contender: many(run, c, count))
            finally:
                contender.stop()


def many(run: BrokerRun, contender: Contender, count: int) -> None:
    """One pair's half."""

    def note(name: str, target: float | None, seconds: float) -> None:
        tell(name, contender, seconds, "s")
        line = run.book.line("Ten thousand partitions", name, "s", target=target, higher_is_better=False)
        line.add(contender.name, seconds)

    def create() -> None:
        for first in range(0, count, CREATED_AT_A_TIME):
            contender.create_topic(f"many-{first}", min(CREATED_AT_A_TIME, count - first))
        until_led()

    def until_led() -> None:
        while led_partitions(contender.port) < count:
            time.sleep(0.05)

    def start() -> float:
        """Seconds of the start that succeeds: a killed Kafka does not start while its ZooKeeper session lasts."""
        for left in reversed(range(STARTS_MAX)):
            began = time.monotonic()
            try:
                contender.start()
                break
            except RuntimeError:
                if not left:
                    raise
                time.sleep(1)
        until_led()
        return time.monotonic() - began

    note("creation", 1.0, seconds_of(create))
    # With the time of the client's decoding, which is the same for both.
    asked = [seconds_of(lambda: metadata_of_all(contender.port)) * 1000 for _ in range(METADATA_ASKED)]
    line = run.book.line("Ten thousand partitions", "Metadata of all topics", "ms", target=1.0, higher_is_better=False)
    line.add(contender.name, statistics.median(asked))
    note("clean stop", 1.0, seconds_of(contender.stop))
    note("start", None, start())
    contender.kill()
    note("start after SIGKILL", 0.3, start())


def seconds_of(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def led_partitions(port: int) -> int:
    """How many partitions have a leader."""
    return sum(row.leader_id >= 0 for topic in metadata_of_all(port).topics for row in topic.partitions)


def cold(run: BrokerRun) -> None:
    """Fetches of 1 MB each, of data that is not in the page cache."""
    count = run.count(COLD_RECORDS)
    topic = run.new_topic(run.brokers)
    for contender in run.brokers:
        run.attempt(
            f"filling {contender.name}",
            lambda c=contender: run_client("confluent-produce", c, topic, count, COLD_RECORD_BYTES),
        )
    for pair in range(-1, run.pairs):  # the first one does not count
        for contender in run.order(pair, *run.brokers):
            drop_page_cache()
            cost, began = Cost(contender), time.monotonic()
            read_bytes = run.attempt(f"cold read of {contender.name}", lambda c=contender: read_all(c, topic, count))
            seconds, cpu = time.monotonic() - began, cost.seconds()
            if pair < 0:
                continue
            rate = None if read_bytes is None else read_bytes / MB / seconds
            tell("cold read", contender, rate, "MB/s", cpu)
            run.book.line("Cold data", "fetches of 1 MB", "MB/s").add(contender.name, rate)
            each = None if read_bytes is None else cpu * 1000 / (read_bytes / MB)
            line = run.book.line("Cold data", "CPU", "ms per MB", target=1.1, higher_is_better=False)
            line.add(contender.name, each)
    run.drop(topic, run.brokers)


def drop_page_cache() -> None:
    """Write everything back and make the kernel forget it; needs root."""
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")


def read_all(contender: Contender, topic: str, count: int) -> int:
    """Fetch the whole log; how many bytes came."""
    client, offset, read_bytes = Client(contender.port), 0, 0
    while offset < count:
        answer = client.ask_frame(fetch_frame(topic, offset, COLD_FETCH_BYTES))
        row = m.decode(m.FetchResponse, FETCH_VERSION, answer, 5).responses[0].partitions[0]
        records = bytes(row.records or b"")
        read_bytes += len(records)
        if row.error_code or not records:
            raise RuntimeError(f"a fetch at {offset} found nothing, error {row.error_code}")
        for position, _ in walk_entries(records):
            offset = read_batch_header(records, position).last_offset + 1
    client.close()
    return read_bytes


CASES: Cases = {
    "connections": connections,
    "one-by-one": one_by_one,
    "groups": groups,
    "lookups": lookups,
    "keys": keys,
    "many-partitions": many_partitions,
    "cold": cold,
}
