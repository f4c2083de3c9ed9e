"""Three brokers with many partitions: creation, idle cost, a SIGKILL, the restart after it, a clean stop.

One cluster at a time, Barnabas or Apache Kafka, with replication factor 3 and empty logs: each broker has a replica of
every partition. Times are what a client sees in Metadata, so they include its asking: the brokers are asked again after
ten times as long as the last response took.
"""

import os
import pathlib
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from barnabas.testing.running.processes import cpu_seconds_of
from barnabas.wire import messages as m
from bench.cluster import PROPERTIES_FILE
from bench.contenders import (
    CREATE_TOPICS_VERSION,
    Barnabas,
    Contender,
    barnabas_cluster,
    kafka_cluster,
    metadata_of_all,
)
from bench.processes import install_wheel
from compat_tests.kafka import ZooKeeperProcess, free_port
from compat_tests.raw import RawClient

PARTITIONS_OF_A_TOPIC, TOPICS_OF_A_REQUEST = 100, 10
KAFKA_HEAP = ("-Xms1g", "-Xmx1g")
ZOOKEEPER_JVM = ("-Xmx1g", "-XX:+UseSerialGC")
CREATE_SECONDS_MAX = 120.0
PATIENCE_SECONDS = 900.0
IDLE_SECONDS = 15.0
METADATA_ASKED = 5
LOOK_SECONDS, LOOK_SHARE = 0.05, 0.1  # how often Metadata is asked for; which share of the time that may take
BROKERS = 3


class ScaleRun:
    """One cluster on its own ZooKeeper, and the rows of its table."""

    def __init__(self, directory: pathlib.Path, kind: str, partitions: int) -> None:
        self.partitions = partitions
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper", jvm=ZOOKEEPER_JVM)
        self.zookeeper.port = free_port()
        if kind == "kafka":
            self.cluster = kafka_cluster(directory, self.zookeeper, PROPERTIES_FILE, KAFKA_HEAP)
        else:
            installed = install_wheel(directory)
            self.cluster = barnabas_cluster(directory, self.zookeeper, PROPERTIES_FILE, installed)
        for member in self.cluster.members:
            member.wait_at_most(PATIENCE_SECONDS)

    def run(self) -> None:
        """All of it, one row after the other."""
        self.zookeeper.start()
        members = self.cluster.members
        try:
            self.cluster.start()
            print(f"\n{self.cluster.name}, {self.partitions:,} partitions, RF {BROKERS}\n")
            print("| | s | CPU s of the brokers | of ZooKeeper | |\n|-|-:|-:|-:|-|", flush=True)
            self.row("idle, without partitions", self.idle)
            self.row("creation", self.create)
            self.row("idle", self.idle)
            self.row("Metadata of all topics", self.metadata)
            self.row("a follower of the controller is killed", lambda: self.kill(is_controller=False))
            self.row("its restart, until it serves", self.restart)
            self.row("… until every ISR is full", self.until_in_sync)
            self.row("the controller is killed", lambda: self.kill(is_controller=True))
            self.row("its restart, until it serves", self.restart)
            self.row("… until every ISR is full", self.until_in_sync)
            self.row("clean stop of a broker", self.stop_one)
            self.row("its start, until it serves", self.restart)
            self.row("… until every ISR is full", self.until_in_sync)
            self.row("idle", self.idle)
            self.row("clean stop of all", self.stop_all)
        except Exception as error:
            print(f"\nended by {error!r}", flush=True)
        finally:
            for member in members:
                if member.is_running():
                    member.kill()
            self.zookeeper.kill()
        for member in members:
            print(f"longest steps of {member.name}: {', '.join(longest_steps(member)) or 'not written'}", flush=True)

    def row(self, name: str, act: Callable[[], str | None]) -> None:
        """Do it, and print what it took."""
        before, zookeeper = self.cpu_seconds(), cpu_seconds_of(self.zookeeper.pid)
        began = time.monotonic()
        said = act()
        seconds = time.monotonic() - began
        # A process that has ended has no CPU time any more; one that was started has begun at 0.
        cpu = sum(now - before.get(pid, 0.0) for pid, now in self.cpu_seconds().items())
        used = cpu_seconds_of(self.zookeeper.pid) - zookeeper
        print(f"| {name} | {seconds:.2f} | {cpu:.2f} | {used:.2f} | {said or ''} |", flush=True)

    def cpu_seconds(self) -> dict[int, float]:
        """CPU seconds of each broker that runs, by process id."""
        return {member.pid: member.cpu_seconds() for member in self.running()}

    def running(self) -> list[Contender]:
        return [member for member in self.cluster.members if member.is_running()]

    # -- the rows

    def create(self) -> str:
        """CreateTopics, a thousand partitions at a time."""
        topics = -(-self.partitions // PARTITIONS_OF_A_TOPIC)
        left, took = self.partitions, []
        for first in range(0, topics, TOPICS_OF_A_REQUEST):
            wanted = []
            for number in range(first, min(first + TOPICS_OF_A_REQUEST, topics)):
                count = min(left, PARTITIONS_OF_A_TOPIC)
                left -= count
                wanted.append(
                    m.CreateTopicsRequest.CreatableTopic(
                        name=f"many-{number}", num_partitions=count, replication_factor=-1
                    )
                )
            began = time.monotonic()
            with RawClient(self.cluster.controller_port(), timeout=CREATE_SECONDS_MAX) as client:
                request = m.CreateTopicsRequest(topics=wanted, timeout_ms=int(CREATE_SECONDS_MAX * 1000))
                response = client.ask(request, CREATE_TOPICS_VERSION, m.CreateTopicsResponse)
            took.append(time.monotonic() - began)
            for topic in response.topics:
                if topic.error_code:
                    raise RuntimeError(f"creating {topic.name}: {topic.error_code} {topic.error_message}")
        self.until_all_members(lambda row: row.leader_id >= 0 and len(row.isr_nodes) == BROKERS)
        return f"a request first {took[0]:.2f} s, median {statistics.median(took):.2f}, last {took[-1]:.2f}"

    def idle(self) -> str:
        """Nothing for a while; resident memory."""
        time.sleep(IDLE_SECONDS)
        resident = ", ".join(f"{member.resident_bytes() / 1e6:.0f}" for member in self.running())
        files = ", ".join(str(len(os.listdir(f"/proc/{member.pid}/fd"))) for member in self.running())
        return f"RSS MB {resident}; descriptors {files}"

    def metadata(self) -> str:
        """As a client sees it, with its decoding."""
        asked = []
        for _ in range(METADATA_ASKED):
            began = time.monotonic()
            metadata_of_all(self.cluster.members[0].port)
            asked.append((time.monotonic() - began) * 1000)
        return f"median of {METADATA_ASKED}: {statistics.median(asked):.0f} ms"

    def kill(self, *, is_controller: bool) -> str:
        """SIGKILL of one broker, until the Metadata of both others has another leader for each partition."""
        port = self.cluster.controller_port()
        victim = next(each for each in self.cluster.members if (each.port == port) is is_controller)
        metadata = metadata_of_all(victim.port)
        victim_id = next(broker.node_id for broker in metadata.brokers if broker.port == victim.port)
        led = sum(row.leader_id == victim_id for topic in metadata.topics for row in topic.partitions)
        victim.kill()
        while victim.is_running():
            time.sleep(LOOK_SECONDS)
        self.until_all_members(lambda row: row.leader_id >= 0 and row.leader_id != victim_id)
        return f"it led {led:,}"

    def restart(self) -> str | None:
        """Start those that do not run."""
        for member in self.cluster.members:
            if not member.is_running():
                member.start()
        return None

    def until_in_sync(self) -> None:
        """Until every broker's Metadata has a full ISR for each partition."""
        self.until_all_members(lambda row: row.leader_id >= 0 and len(row.isr_nodes) == BROKERS)

    def stop_one(self) -> None:
        self.cluster.members[0].stop()

    def stop_all(self) -> None:
        self.cluster.stop()

    def until_all_members(self, is_so: Callable[[m.MetadataResponse.MetadataResponsePartition], bool]) -> None:
        """Wait until the Metadata of every running broker has all partitions, and this holds for each of them."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for member in self.running():
            while True:
                began = time.monotonic()
                good = sum(map(is_so, rows_of(member)))
                if good == self.partitions:
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{member.bootstrap} has only {good:,} of {self.partitions:,} partitions")
                time.sleep(max(LOOK_SECONDS, (time.monotonic() - began) / LOOK_SHARE))


def rows_of(member: Contender) -> Iterator[m.MetadataResponse.MetadataResponsePartition]:
    """The partitions in the Metadata of this broker."""
    for topic in metadata_of_all(member.port).topics:
        yield from topic.partitions


def longest_steps(member: Contender) -> list[str]:
    """What the broker wrote of its event loop at each clean stop."""
    if not isinstance(member, Barnabas):
        return []
    text = (member.directory / "barnabas.log").read_text()
    return re.findall(r"longest step [\d.]+ ms, \d+ steps above 2 ms", text)


def measure(kind: str, partitions: int, directory: pathlib.Path | None) -> None:
    """Print the table of one cluster."""
    with tempfile.TemporaryDirectory(prefix="barnabas-scale-", dir=directory) as place:
        ScaleRun(pathlib.Path(place), kind, partitions).run()
