"""Those that are compared: Barnabas, Apache Kafka, and the bare loop, each a process behind the same few names.

Barnabas runs from a wheel that was installed with byte code, as a user has it; Kafka with the Java options of its own
start script and `-Xms1g -Xmx1g`, its ZooKeeper beside it (whose CPU and memory are not counted). Both read
`server.properties`; directories lie beside each other on the same disk.
"""

import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import time

from barnabas.testing.asking import create_topic
from barnabas.wire import messages as m
from barnabas.wire.apis import request_header_version, response_header_version
from bench.processes import Measured, environment_of
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess

PROPERTIES_FILE = pathlib.Path(__file__).parent / "server.properties"
KAFKA_JVM = (  # the heap that was asked for, and KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
DELETE_TOPICS_VERSION = 4
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READY_SECONDS_MAX = 60.0


def properties() -> dict[str, str]:
    """What `server.properties` says."""
    lines = (line.strip() for line in PROPERTIES_FILE.read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


class Contender:
    """A broker under comparison."""

    name: str
    pid: int
    port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def is_running(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def create_topic(self, topic: str) -> None:
        """One partition."""
        create_topic(self.port, topic, 1, {})

    def delete_topic(self, topic: str) -> None:
        """Data that was measured must not fill the disk, nor be written back during the next case."""
        delete_topic(self.port, topic)


class Barnabas(Contender):
    name = "Barnabas"

    def __init__(self, directory: pathlib.Path, installed: pathlib.Path) -> None:
        self.directory = directory
        self._installed = installed
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait for the ready line."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "barnabas", "serve", str(PROPERTIES_FILE), "--data-dir"]
        command += [str(self.directory / "data"), "--listen", f"127.0.0.1:{self.port}"]
        environment = environment_of(self._installed)
        with (self.directory / "barnabas.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.directory, env=environment
            )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], READY_SECONDS_MAX)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            self._process.kill()
            raise RuntimeError(f"Barnabas did not start: {(self.directory / 'barnabas.log').read_text()[-2000:]}")
        self.pid = self._process.pid
        self.port = int(line.split("://")[1].split(",")[0].rsplit(":", 1)[1])

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=60)
            self._process = None


class Kafka(Contender):
    name = "Kafka"

    def __init__(self, directory: pathlib.Path, zookeeper: ZooKeeperProcess, chroot: str) -> None:
        settings = properties() | {"zookeeper.connect": f"{zookeeper.bootstrap}/{chroot}"}
        self._kafka = KafkaProcess(directory, zookeeper=zookeeper, jvm=KAFKA_JVM, **settings)

    @property
    def port(self) -> int:  # type: ignore[override]  # the process knows it
        return self._kafka.port

    @port.setter
    def port(self, port: int) -> None:
        self._kafka.port = port

    @property
    def pid(self) -> int:  # type: ignore[override]  # the process knows it
        return self._kafka.pid

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

    def create_topic(self, topic: str) -> None:
        """Every topic exists."""

    def delete_topic(self, topic: str) -> None:
        """The file is overwritten again and again."""


def delete_topic(port: int, topic: str) -> None:
    """DeleteTopics, through our own codec; both brokers speak it."""
    request = m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
    key = request.API_KEY
    assert key is not None
    version = DELETE_TOPICS_VERSION
    header = m.RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="bench")
    body = m.encode(header, request_header_version(key, version)) + m.encode(request, version)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.makefile("rb")
        frame = answer.read(int.from_bytes(answer.read(4), "big"))
    _, position = m.decode_from(m.ResponseHeader, response_header_version(key, version), frame, 0)
    (row,) = m.decode(m.DeleteTopicsResponse, version, frame, position).responses
    if row.error_code:
        raise RuntimeError(f"deleting {topic} failed with error {row.error_code}")


def seconds_until_open(port: int, since: float) -> float:
    """From `since` until somebody accepts a connection."""
    deadline = since + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.002)
        else:
            return time.monotonic() - since
    raise RuntimeError(f"nobody listens on port {port}")
