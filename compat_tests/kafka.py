"""Apache Kafka from Maven: the reference broker with its ZooKeeper as processes, and Kafka's command-line mains.

Theory of operation. `java/pom.xml` names the reference (3.9.1), `java/v4/pom.xml` the clients and tools of Kafka 4.
Maven copies their jars once into `target/jars` beside the pom, which git ignores; a stamp holds the pom's hash, so that
another version is fetched when the pom changes, and a file lock lets several test processes do this at once. After
that no Maven runs: a tool is `java -cp target/jars/* MAIN ARGUMENTS`.

`KafkaProcess` has the interface of `brokers.BrokerProcess`, so tests can use either kind of broker.
"""

import fcntl
import functools
import hashlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from typing import Self

from barnabas.wire import messages as m
from compat_tests.raw import RawClient
from compat_tests.tools import give_up, require_tool

JAVA_DIR = pathlib.Path(__file__).parent / "java"
POMS = {"3.9": JAVA_DIR / "pom.xml", "4.1": JAVA_DIR / "v4" / "pom.xml"}
READY_SECONDS = 60.0
ANSWER_SECONDS = 1.0
MAVEN_SECONDS = 600
STARTED = "] started\n"  # the last word of kafka.server.KafkaServer's start
START_ATTEMPTS = 3  # a port that was free when we looked may be taken before it is bound

# Short-lived programs: a small heap, one collector thread, no second compiler.
TOOL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BROKER_JVM = ("-Xmx512m", "-XX:+UseSerialGC")
QUIET_LOG = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaServer=info",
)

# Settings that a single Kafka broker needs; in Barnabas they are defaults.
SINGLE_BROKER = {
    "broker.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.connection.timeout.ms": "60000",
}


@functools.cache
def jars(version: str = "3.9") -> pathlib.Path:
    """The folder that holds the jars of this version; Maven fills it when it has not yet."""
    require_tool("java")
    pom = POMS[version]
    return bring_jars(pom, pom.parent / "target")


def bring_jars(pom: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """The folder in `target` that holds the jars of this pom; Maven fills it when it has not yet."""
    target.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    stamp, folder = target / "stamp", target / "jars"
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            require_tool("mvn")
            _copy_jars(pom, folder)
            stamp.write_text(wanted)
    return folder


def _copy_jars(pom: pathlib.Path, folder: pathlib.Path) -> None:
    for old in folder.glob("*.jar"):
        old.unlink()
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    copied = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAVEN_SECONDS)
    if copied.returncode:
        give_up(f"Maven could not bring the jars of {pom}:\n{copied.stdout[-2000:]}{copied.stderr[-2000:]}")


def java_command(main_class: str, *arguments: str, version: str = "3.9", jvm: tuple[str, ...] = TOOL_JVM) -> list[str]:
    """How a main of Kafka is started."""
    return ["java", *jvm, *QUIET_LOG, "-cp", f"{jars(version)}/*", main_class, *arguments]


def run_java_tool(
    main_class: str, *arguments: str, version: str = "3.9", stdin: str | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line mains to its end."""
    return subprocess.run(
        java_command(main_class, *arguments, version=version),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class JavaProcess:
    """A server in a Java machine of its own; its output goes to a file."""

    def __init__(self, directory: pathlib.Path, name: str, main_class: str, jvm: tuple[str, ...]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = 0
        self.seconds_max = READY_SECONDS  # of a start or a stop
        self._name = name
        self._main_class = main_class
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> pathlib.Path:
        return self.directory / f"{self._name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self._name} is not running"
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start and wait until it serves."""
        chosen = self.port != 0
        for attempt in range(START_ATTEMPTS):
            if not chosen:
                self.port = free_port()
            self._spawn(self._properties())
            if self._await_ready(may_retry=not chosen and attempt < START_ATTEMPTS - 1):
                break
        return self

    def close(self) -> None:
        """End it; nothing is kept."""
        self.kill()

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def kill(self) -> None:
        """SIGKILL: what was not written is lost, what was not flushed is with the operating system."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM: a clean stop; its exit status."""
        return self._end(signal.SIGTERM)

    def _spawn(self, properties: dict[str, str]) -> None:
        path = self.directory / f"{self._name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = java_command(self._main_class, str(path), jvm=self._jvm)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env={**os.environ}
            )

    def _properties(self) -> dict[str, str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _await_ready(self, may_retry: bool) -> bool:
        """Wait until it serves; False if its port was taken in the meantime."""
        deadline = time.monotonic() + self.seconds_max
        while time.monotonic() < deadline and self.is_running():
            if self._is_ready():
                return True
            time.sleep(0.05)  # the pace of looking
        said = self._log_of_this_run()
        self.kill()
        if may_retry and "Address already in use" in said:
            return False
        self.close()
        raise RuntimeError(f"{self._name} did not start:\n{said[-4000:]}")

    def _log_of_this_run(self) -> str:
        return self.log_path.read_bytes()[self._log_start :].decode(errors="replace")

    def _end(self, with_signal: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(with_signal)
        status = self._process.wait(self.seconds_max)
        self._process = None
        return status


class ZooKeeperProcess(JavaProcess):
    """A ZooKeeper of one server; its port stays the same over restarts.

    Sessions last 2 to 20 ticks, whatever a client asks for.
    """

    def __init__(self, directory: pathlib.Path, tick_ms: int = 2000, *, jvm: tuple[str, ...] = TOOL_JVM) -> None:
        super().__init__(directory, "zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", jvm)
        self._tick_ms = tick_ms

    def _properties(self) -> dict[str, str]:
        return {
            "dataDir": str(self.directory / "zookeeper-data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(self._tick_ms),
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "forceSync": "no",  # what ZooKeeper loses in a power cut is not what is tested
        }

    def _is_ready(self) -> bool:
        """Whether it answers the one question that it answers to everybody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS) as connection:
                connection.sendall(b"srvr")
                return connection.recv(9) == b"Zookeeper"
        except OSError:
            return False


class KafkaProcess(JavaProcess):
    """Apache Kafka 3.9 with a ZooKeeper of its own, unless it is given one; the port stays the same over restarts."""

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        zookeeper: ZooKeeperProcess | None = None,
        jvm: tuple[str, ...] = BROKER_JVM,
        **settings: str | int,
    ) -> None:
        super().__init__(directory, "kafka", "kafka.Kafka", jvm)
        self.data_dir = directory / "data"
        self.settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.zookeeper = zookeeper or ZooKeeperProcess(directory)
        self._owns_zookeeper = zookeeper is None

    def start(self) -> Self:
        """Start and wait until it serves."""
        if self._owns_zookeeper and not self.zookeeper.is_running():
            self.zookeeper.start()
        return super().start()

    def restart(self) -> Self:
        """Start again on the same directory and port."""
        return self.start()

    def close(self) -> None:
        """End Kafka and, if it is its own, ZooKeeper; nothing is kept."""
        self.kill()
        if self._owns_zookeeper:
            self.zookeeper.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _properties(self) -> dict[str, str]:
        return {
            **SINGLE_BROKER,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir),
            "zookeeper.connect": self.zookeeper.bootstrap,
            **self.settings,
        }

    def _is_ready(self) -> bool:
        return STARTED in self._log_of_this_run() and self._knows_its_cluster()

    def _knows_its_cluster(self) -> bool:
        """Whether the broker has received the controller's UpdateMetadata, a moment after the start."""
        with RawClient(self.port) as client:
            metadata = client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse)
        return bool(metadata.brokers) and metadata.controller_id >= 0
