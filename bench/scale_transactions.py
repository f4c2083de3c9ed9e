"""How large transactions may grow: many ids, many partitions in one transaction, the fail-over of a coordinator.

Figures are those of one run, as clients see them. Pings are records that another client writes meanwhile.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.testing.running.processes import peak_resident_bytes_of
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from bench.cluster import PROPERTIES_FILE, until_known
from bench.contenders import (
    Barnabas,
    Cluster,
    Contender,
    Kafka,
    barnabas_cluster,
    kafka_cluster,
    metadata_of_all,
)
from bench.growth import share_of
from bench.processes import install_wheel
from bench.scale_cluster import KAFKA_HEAP, longest_steps
from bench.transaction_clients import (
    END_VERSION,
    FIND_VERSION,
    REPEATED,
    TRANSACTION,
    Connection,
    Steps,
    TransactionalProducer,
    leader_ports,
    run,
)
from bench.transactions import took_of
from compat_tests.kafka import ZooKeeperProcess, free_port

WORKERS = 20  # that make ids at once
IDS_BEFORE = 500  # for the baseline: every partition of `__transaction_state` is used
SETTLE_SECONDS, IDLE_SECONDS = 15.0, 20.0  # a broker returns freed memory every ten seconds
PARTITIONS_OF_A_TOPIC, TOPICS_OF_A_PRODUCE = 1000, 5
DESCRIBE_VERSION = 0
LOOK_SECONDS = 0.02
ASK_SECONDS_MAX = 1.0
PATIENCE_SECONDS = 120.0
START_STOP_SECONDS_MAX = 900.0  # a clean stop syncs thousands of logs, and a busy machine starts Kafka slowly


@contextmanager
def one_broker(kind: str) -> Iterator[Contender]:
    """A broker that has not started yet."""
    with tempfile.TemporaryDirectory(prefix="barnabas-scale-") as place:
        directory = pathlib.Path(place)
        zookeeper = ZooKeeperProcess(directory / "zookeeper")
        broker: Contender
        if kind == "kafka":
            zookeeper.start()
            broker = Kafka(directory / "kafka", zookeeper, "scale")
        else:
            broker = Barnabas(directory / "barnabas", install_wheel(directory, compiled=kind == "compiled"))
        broker.wait_at_most(START_STOP_SECONDS_MAX)
        try:
            yield broker
        finally:
            broker.stop()
            zookeeper.kill()
            for step in longest_steps(broker):
                print(f"{step} (from a start to a stop)", flush=True)


@contextmanager
def pinged(port: int, what: str) -> Iterator[None]:
    """Prints how long the pings of another client took meanwhile. The broker may start meanwhile."""
    command = [sys.executable, "-m", "bench.transaction_clients", "pings", f"127.0.0.1:{port}", "pings", "1", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        client.stdout.readline()
        try:
            yield
        finally:
            said, _ = client.communicate(timeout=PATIENCE_SECONDS)
    took = took_of(said).latencies_ms
    p50, p99 = share_of(took, 0.5), share_of(took, 0.99)
    print(f"pings {what}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {took[-1]:.1f} ms", flush=True)


def megabytes(resident_bytes: int) -> str:
    return f"{resident_bytes / 1e6:.0f} MB"


# -- the command line


def add_command(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """`transactions [--only ids|partitions|fail-over]`."""
    command = kinds.add_parser("transactions", help="many ids, large transactions, the fail-over of the coordinator")
    command.add_argument("--only", choices=("ids", "partitions", "fail-over"))
    command.add_argument("--contender", choices=("barnabas", "compiled", "kafka"), default="barnabas")
    command.add_argument("--ids", type=int, default=100_000)
    command.add_argument("--partitions", type=int, default=10_000)
    command.add_argument("--rounds", type=int, default=10, help="of fail-overs; Apache Kafka takes turns (10)")
    command.set_defaults(run=measure)


def measure(options: argparse.Namespace) -> None:
    """The three parts, or one of them."""
    if options.only in (None, "ids"):
        many_ids(options.contender, options.ids)
    if options.only in (None, "partitions"):
        many_partitions(options.contender, options.partitions)
    if options.only in (None, "fail-over"):
        fail_over(options.rounds, compiled=options.contender == "compiled")


# -- many ids


def many_ids(kind: str, count: int) -> None:
    """Each id has committed one transaction: memory, idle CPU, and loading after a restart."""
    with one_broker(kind) as broker:
        broker.start()
        for topic in ("pings", "written"):
            broker.create_topic(topic)
        make_ids(broker, "before", IDS_BEFORE)
        time.sleep(SETTLE_SECONDS)
        baseline = broker.resident_bytes()
        print(f"\n{broker.name}, {count:,} transactional ids\nbaseline: {megabytes(baseline)}", flush=True)
        began, cpu = time.monotonic(), broker.cpu_seconds()
        names = make_ids(broker, "id", count)
        spent = broker.cpu_seconds() - cpu
        print(f"made and used: {time.monotonic() - began:.1f} s, CPU {spent / count * 1e6:.0f} µs each", flush=True)
        say_idle(broker, baseline)
        broker.stop()
        with pinged(broker.port, "while ids are loaded"):
            began = time.monotonic()
            broker.start()
            print(f"start: {time.monotonic() - began:.2f} s until it is ready", flush=True)
            until_loaded(broker, names)
            print(f"loaded: {time.monotonic() - began:.2f} s after the start", flush=True)
        say_idle(broker, baseline)


def make_ids(broker: Contender, prefix: str, count: int) -> list[str]:
    """Ids that have each committed a transaction of one record; their names."""
    names = [f"{prefix}-{number}" for number in range(count)]
    (leader_port,) = leader_ports(broker.port, "written")

    def work(mine: list[str]) -> Steps:
        for name in mine:
            producer = TransactionalProducer(broker.port, name)
            producer.coordinator_port = broker.port
            yield from producer.init()
            yield from producer.add({"written": [0]})
            yield from producer.produce(leader_port, {"written": [0]})
            yield from producer.end()

    run([TransactionalProducer(broker.port, prefix).find_coordinator()])
    run([work(names[worker::WORKERS]) for worker in range(WORKERS)])
    return names


def until_loaded(broker: Contender, names: list[str]) -> None:
    """Wait until so many ids are known that they belong to all partitions of `__transaction_state`."""
    connection = Connection(broker.port)
    request = m.DescribeTransactionsRequest(transactional_ids=names[:IDS_BEFORE])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(row.error_code for row in connection.ask(request, DESCRIBE_VERSION).transaction_states):
        if time.monotonic() > deadline:
            raise RuntimeError("the ids are not loaded")
        time.sleep(LOOK_SECONDS)
    connection.client.close()


def say_idle(broker: Contender, baseline: int) -> None:
    """Memory above the baseline, and CPU, when nothing is asked."""
    time.sleep(SETTLE_SECONDS)
    cpu = broker.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    share = (broker.cpu_seconds() - cpu) / IDLE_SECONDS
    above = broker.resident_bytes() - baseline
    peak = peak_resident_bytes_of(broker.pid)
    print(
        f"idle: {megabytes(above)} above the baseline (peak {megabytes(peak)}), CPU {share:.2%} of a core", flush=True
    )


# -- many partitions in one transaction


def many_partitions(kind: str, count: int) -> None:
    """A transaction of one record in each of these partitions, twice: the first one makes producer states."""
    with one_broker(kind) as broker:
        broker.start()
        broker.create_topic("pings")
        partitions = {}
        for first in range(0, count, PARTITIONS_OF_A_TOPIC):
            many = min(PARTITIONS_OF_A_TOPIC, count - first)
            broker.create_topic(f"many-{first}", many)
            partitions[f"many-{first}"] = list(range(many))
        print(f"\n{broker.name}, a transaction over {count:,} partitions", flush=True)
        time.sleep(SETTLE_SECONDS)
        producer = TransactionalProducer(broker.port, "large")
        run([producer.find_coordinator()])
        run([producer.init()])
        with pinged(broker.port, "before"):
            time.sleep(1)
        for turn in ("first", "second"):
            transact(broker, producer, partitions, turn)


def transact(broker: Contender, producer: TransactionalProducer, partitions: dict[str, list[int]], turn: str) -> None:
    """One transaction; prints what each part took, and the pings meanwhile."""

    def timed(what: str, *works: Steps) -> None:
        began, cpu = time.monotonic(), broker.cpu_seconds()
        for work in works:
            run([work])
        seconds, spent = time.monotonic() - began, broker.cpu_seconds() - cpu
        print(f"{turn} transaction, {what}: {seconds:.2f} s, CPU {spent:.2f} s", flush=True)

    with pinged(broker.port, f"in the {turn} transaction, AddPartitionsToTxn"):
        timed("AddPartitionsToTxn", producer.add(partitions))
    with pinged(broker.port, f"in the {turn} transaction, Produce"):
        timed("Produce", *(producer.produce(broker.port, piece) for piece in pieces_of(partitions)))
    with pinged(broker.port, f"in the {turn} transaction, commit"):
        began = time.monotonic()
        timed("EndTxn", producer.end())
        until_complete(broker, producer.name)
        print(f"{turn} transaction, until the last marker: {time.monotonic() - began:.2f} s", flush=True)


def pieces_of(partitions: dict[str, list[int]]) -> Iterator[dict[str, list[int]]]:
    """The partitions of one Produce each: so many as fit into `max.request.size`, 1 MB, of a Java producer."""
    names = list(partitions)
    for first in range(0, len(names), TOPICS_OF_A_PRODUCE):
        yield {name: partitions[name] for name in names[first : first + TOPICS_OF_A_PRODUCE]}


def until_complete(broker: Contender, name: str) -> None:
    """Wait until each partition has its marker."""
    connection = Connection(broker.port)
    request = m.DescribeTransactionsRequest(transactional_ids=[name])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        (row,) = connection.ask(request, DESCRIBE_VERSION).transaction_states
        if not row.error_code and row.transaction_state == "CompleteCommit":
            break
        if time.monotonic() > deadline:
            raise RuntimeError(f"the transaction of {name} is not complete: {row}")
        time.sleep(LOOK_SECONDS)
    connection.client.close()


# -- fail-over


def fail_over(rounds: int, *, compiled: bool) -> None:
    """SIGKILL of the coordinator of an open transaction: when the commit is confirmed; of both, in turns."""
    with tempfile.TemporaryDirectory(prefix="barnabas-scale-") as place:
        directory = pathlib.Path(place)
        zookeeper = ZooKeeperProcess(directory / "zookeeper")
        zookeeper.port = free_port()
        installed = install_wheel(directory, compiled=compiled)
        clusters = (
            kafka_cluster(directory, zookeeper, PROPERTIES_FILE, KAFKA_HEAP),
            barnabas_cluster(directory, zookeeper, PROPERTIES_FILE, installed),
        )
        for member in (*clusters[0].members, *clusters[1].members):
            member.wait_at_most(START_STOP_SECONDS_MAX)
        zookeeper.start()
        seconds: dict[str, list[float]] = {cluster.name: [] for cluster in clusters}
        try:
            for cluster in clusters:
                cluster.start()
            for number in range(rounds):
                for cluster in clusters[:: 1 if number % 2 else -1]:
                    seconds[cluster.name].append(fail_over_once(cluster, f"id-{number}"))
        finally:
            for cluster in clusters:
                for member in cluster.members:
                    if member.is_running():
                        member.kill()
            zookeeper.kill()
    for name, each in seconds.items():
        shown = ", ".join(f"{value:.2f}" for value in each)
        print(f"{name}: until the commit: median {statistics.median(each):.2f} s ({shown})", flush=True)


def fail_over_once(cluster: Cluster, name: str) -> float:
    """Seconds from the signal to the answer of EndTxn."""
    # A new one, for the leaders of an older topic may be those that outlived the rounds before.
    topic = f"written-by-{name}"
    cluster.create_topic(topic, len(cluster.members))
    until_known(cluster.members, topic, lambda leaders: len(leaders) == len(cluster.members) and min(leaders) >= 0)
    until_in_sync(cluster)
    producer = TransactionalProducer(cluster.members[0].port, name)
    run([producer.find_coordinator()])
    run([producer.init()])
    victim = next(member for member in cluster.members if member.port == producer.coordinator_port)
    # Written to a partition whose leader stays, so that only the coordinator is missing.
    ports = leader_ports(victim.port, topic)
    index = next(index for index, port in enumerate(ports) if port != victim.port)
    run([producer.add({topic: [index]})])
    run([producer.produce(ports[index], {topic: [index]})])
    was_controller = cluster.controller_port() == victim.port
    living = [member.port for member in cluster.members if member is not victim]
    began = time.monotonic()
    victim.kill()
    committed = until_committed(living, producer) - began
    print(
        f"{cluster.name}: {committed:.2f} s{', the controller was killed as well' if was_controller else ''}",
        flush=True,
    )
    while victim.is_running():
        time.sleep(LOOK_SECONDS)
    cluster.start()
    return committed


def until_committed(ports: list[int], producer: TransactionalProducer) -> float:
    """Find the coordinator and ask it for the commit, again and again; when it was confirmed."""
    find = m.FindCoordinatorRequest(key=producer.name, key_type=TRANSACTION)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for port in ports:
            try:
                found = asked(port, find, FIND_VERSION)
                if found.error_code or found.port not in ports:
                    continue
                error = asked(found.port, producer.end_request(), END_VERSION).error_code
            # The broker that was killed, or one that does not answer in time.
            except OSError:
                continue
            if not error:
                return time.monotonic()
            if error not in REPEATED:
                raise RuntimeError(f"EndTxn failed: {ErrorCode(error).name}")
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"the transaction of {producer.name} cannot be committed")


def asked(port: int, request: m.Message, version: int) -> m.FindCoordinatorResponse | m.EndTxnResponse:
    """The response, on a connection of its own."""
    connection = Connection(port)
    connection.client.socket.settimeout(ASK_SECONDS_MAX)
    try:
        response: m.FindCoordinatorResponse | m.EndTxnResponse = connection.ask(request, version)
        return response
    finally:
        connection.client.close()


def until_in_sync(cluster: Cluster) -> None:
    """Wait until every replica is in sync, on every broker's word."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    size = len(cluster.members)
    for member in cluster.members:
        while not all(
            row.leader_id >= 0 and len(row.isr_nodes) == size
            for topic in metadata_of_all(member.port).topics
            for row in topic.partitions
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the replicas of {cluster.name} are not in sync")
            time.sleep(LOOK_SECONDS)
