"""Those that are compared: Barnabas, Apache Kafka, and the bare loop, each a process behind the same few names.

Barnabas runs from a wheel that was installed with byte code, as a user has it; Kafka with the Java options of its own
start script and a heap of one size, its ZooKeeper beside it (whose CPU and memory are not counted). Both read the same
properties file; directories lie beside each other on the same disk. A `Cluster` is several of one kind, which behave
like one.
"""

import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from barnabas.testing.running.processes import cpu_seconds_of, resident_bytes_of
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from bench.pairs import BARNABAS
from bench.processes import Measured, environment_of
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess, free_port
from compat_tests.raw import RawClient

PROPERTIES_FILE = pathlib.Path(__file__).parent / "server.properties"
KAFKA_HEAP = ("-Xms1g", "-Xmx1g")
KAFKA_JVM = (  # KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
REAL_CLUSTER = {  # Kafka's own defaults again, where the test process has those of a broker that is alone
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, METADATA_VERSION = 5, 4, 9
READY_SECONDS_MAX = 60.0


def properties(path: pathlib.Path) -> dict[str, str]:
    """What a properties file says."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


class Contender:
    """A broker under comparison."""

    name: str
    pid: int
    port: int
    seconds_max = READY_SECONDS_MAX  # of a start or a stop

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        return cpu_seconds_of(self.pid)

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return resident_bytes_of(self.pid)

    def wait_at_most(self, seconds: float) -> None:
        """How long a start or a stop may take."""
        self.seconds_max = seconds

    def is_running(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """With as many replicas as are configured; waits until there are leaders."""
        create_topic(self.controller_port(), topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Data that was measured must not fill the disk, nor be written back during the next case."""
        delete_topic(self.controller_port(), topic)

    def controller_port(self) -> int:
        """Who takes requests about topics: in ZooKeeper's time, the controller alone."""
        return self.port


class Barnabas(Contender):
    """Barnabas, in the form that is installed there."""

    def __init__(
        self,
        directory: pathlib.Path,
        installed: pathlib.Path,
        *,
        name: str = BARNABAS,
        properties_file: pathlib.Path = PROPERTIES_FILE,
        settings: Mapping[str, str] = {},
    ) -> None:
        self.name = name
        self.directory = directory
        self._installed = installed
        self._properties_file = properties_file
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait for the ready line."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "barnabas", "serve", str(self._properties_file), "--data-dir"]
        command += [str(self.directory / "data")]
        # `--listen` is for one listener; a contender with several has them in its settings.
        if "listeners" not in self._settings:
            command += ["--listen", f"127.0.0.1:{self.port}"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        environment = environment_of(self._installed)
        with (self.directory / "barnabas.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.directory, env=environment
            )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], self.seconds_max)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            self._process.kill()
            raise RuntimeError(f"Barnabas did not start: {(self.directory / 'barnabas.log').read_text()[-2000:]}")
        self.pid = self._process.pid
        self.port = int(line.split("://")[1].split(",")[0].rsplit(":", 1)[1])

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=self.seconds_max)
            self._process = None


class Kafka(Contender):
    name = "Kafka"

    def __init__(
        self,
        directory: pathlib.Path,
        zookeeper: ZooKeeperProcess,
        chroot: str,
        *,
        properties_file: pathlib.Path = PROPERTIES_FILE,
        settings: Mapping[str, str] = {},
        heap: tuple[str, ...] = KAFKA_HEAP,
    ) -> None:
        settings = properties(properties_file) | {"zookeeper.connect": f"{zookeeper.bootstrap}/{chroot}"} | settings
        self._kafka = KafkaProcess(directory, zookeeper=zookeeper, jvm=(*heap, *KAFKA_JVM), **settings)

    @property
    def port(self) -> int:  # type: ignore[override]  # the process knows it
        return self._kafka.port

    @port.setter
    def port(self, port: int) -> None:
        self._kafka.port = port

    @property
    def pid(self) -> int:  # type: ignore[override]  # the process knows it
        return self._kafka.pid

    def wait_at_most(self, seconds: float) -> None:
        self._kafka.seconds_max = seconds

    def is_running(self) -> bool:
        return self._kafka.is_running()

    def start(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()


class BareLoop(Contender):
    name = "bare loop"

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._measured: Measured | None = None

    def is_running(self) -> bool:
        return self._measured is not None and self._measured.process.poll() is None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._measured = Measured([sys.executable, "-m", "bench.bare_broker", str(self.directory)])
        self.pid, self.port = self._measured.process.pid, self._measured.port

    def stop(self) -> None:
        if self._measured is not None:
            self._measured.stop()
            self._measured = None

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Every topic exists."""

    def delete_topic(self, topic: str) -> None:
        """The file is overwritten again and again."""


class Cluster(Contender):
    """Several brokers of one kind."""

    def __init__(self, name: str, members: Sequence[Contender]) -> None:
        self.name = name
        self.members = members

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members)

    def cpu_seconds(self) -> float:
        return sum(member.cpu_seconds() for member in self.members)

    def resident_bytes(self) -> int:
        return sum(member.resident_bytes() for member in self.members)

    def is_running(self) -> bool:
        return all(member.is_running() for member in self.members)

    def start(self) -> None:
        """Start those that do not run, and wait until each has heard of all others."""
        for member in self.members:
            if not member.is_running():
                member.start()
        deadline = time.monotonic() + READY_SECONDS_MAX
        while any(len(metadata_of(member.port).brokers) < len(self.members) for member in self.members):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the brokers of {self.name} have not found each other")
            time.sleep(0.05)

    def stop(self) -> None:
        for member in self.members:
            member.stop()

    def controller_port(self) -> int:
        living = next(member for member in self.members if member.is_running())
        metadata = metadata_of(living.port)
        return next(broker.port for broker in metadata.brokers if broker.node_id == metadata.controller_id)

    def leader_of(self, topic: str) -> Contender:
        """Who leads the topic's first partition."""
        metadata = metadata_of(self.members[0].port, topic)
        leader_id = metadata.topics[0].partitions[0].leader_id
        port = next(broker.port for broker in metadata.brokers if broker.node_id == leader_id)
        return next(member for member in self.members if member.port == port)


def kafka_cluster(
    directory: pathlib.Path, zookeeper: ZooKeeperProcess, properties_file: pathlib.Path, heap: tuple[str, ...]
) -> Cluster:
    """Three brokers of Apache Kafka."""
    members = [
        Kafka(
            directory / f"kafka-{broker_id}",
            zookeeper,
            "kafka",
            properties_file=properties_file,
            settings={"broker.id": str(broker_id)} | REAL_CLUSTER,
            heap=heap,
        )
        for broker_id in (1, 2, 3)
    ]
    return Cluster("Kafka", members)


def barnabas_cluster(
    directory: pathlib.Path,
    zookeeper: ZooKeeperProcess,
    properties_file: pathlib.Path,
    installed: pathlib.Path,
    *,
    name: str = BARNABAS,
) -> Cluster:
    """Three brokers of Barnabas."""
    members = []
    for broker_id in (1, 2, 3):
        settings = {"broker.id": str(broker_id), "zookeeper.connect": f"{zookeeper.bootstrap}/{name}"}
        member = Barnabas(
            directory / f"{name}-{broker_id}", installed, properties_file=properties_file, settings=settings
        )
        member.port = free_port()  # the same one over restarts
        members.append(member)
    return Cluster(name, members)


def metadata_of(port: int, *topics: str) -> m.MetadataResponse:
    """What a broker says of the cluster and of these topics."""
    asked = [m.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    with RawClient(port) as client:
        return client.ask(
            m.MetadataRequest(topics=asked, allow_auto_topic_creation=False), METADATA_VERSION, m.MetadataResponse
        )


def metadata_of_all(port: int) -> m.MetadataResponse:
    """What a broker says of every topic."""
    with RawClient(port) as client:
        return client.ask(m.MetadataRequest(topics=None), METADATA_VERSION, m.MetadataResponse)


def create_topic(port: int, topic: str, partitions: int) -> None:
    """CreateTopics with the configured number of replicas."""
    wanted = m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=partitions, replication_factor=-1)
    request = m.CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)
    with RawClient(port) as client:
        client.socket.settimeout(READY_SECONDS_MAX)
        (row,) = client.ask(request, CREATE_TOPICS_VERSION, m.CreateTopicsResponse).topics
    if row.error_code:
        raise RuntimeError(f"creating {topic} failed: {ErrorCode(row.error_code).name} {row.error_message}")


def delete_topic(port: int, topic: str) -> None:
    """DeleteTopics."""
    request = m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
    with RawClient(port) as client:
        client.socket.settimeout(READY_SECONDS_MAX)
        (row,) = client.ask(request, DELETE_TOPICS_VERSION, m.DeleteTopicsResponse).responses
    if row.error_code:
        raise RuntimeError(f"deleting {topic} failed: {ErrorCode(row.error_code).name}")


def seconds_until_open(port: int, since: float) -> float:
    """From `since` until a process accepts a connection."""
    deadline = since + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.002)
        else:
            return time.monotonic() - since
    raise RuntimeError(f"no process listens on port {port}")
