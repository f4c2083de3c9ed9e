"""The processes of a cluster: ZooKeeper, and brokers of either kind, each as a party of the network.

A node is wanted up or held down. A fault that takes it down holds it, and it is restarted when the last hold is
released. A node that ends while it is not held is restarted as well, as by a service manager: Apache Kafka ends if the
registration of its earlier process has not expired yet. Holds are counted, because faults overlap. Pauses (SIGSTOP,
SIGCONT) are counted in the same way.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

from compat_tests.cluster.network import Network
from compat_tests.kafka import java_command

KINDS = ("barnabas", "kafka")
BROKER_PORT, ZOOKEEPER_PORT = 9092, 2181
ZOOKEEPER = "zookeeper"
ZOOKEEPER_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BROKER_JVM = ("-Xmx512m", "-XX:+UseSerialGC")
END_SECONDS = 20.0  # a broker whose hand-over fails gives up a little earlier
PAUSE_BETWEEN_STARTS_S = 0.5


class Node:
    """One process that comes back."""

    def __init__(self, party: str, network: Network, directory: pathlib.Path, words: Callable[[], list[str]]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.party = party
        self.directory = directory
        self.starts = 0
        self._network = network
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._holds = 1  # not started yet
        self._pauses = 0
        self._lock = threading.RLock()

    @property
    def log_path(self) -> pathlib.Path:
        return self.directory / "output.log"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """It is wanted up from now on."""
        self.release()

    def hold(self, with_signal: signal.Signals, end_seconds: float = END_SECONDS) -> None:
        """Send this signal, and keep it down until `release`; returns when it has ended (after so long: by SIGKILL)."""
        with self._lock:
            self._holds += 1
            process = self._process
            if process is not None and process.poll() is None:
                process.send_signal(with_signal)
        if process is not None:
            self._await_end(process, end_seconds)

    def release(self) -> None:
        """One hold less; without any it is started."""
        with self._lock:
            self._holds -= 1
            self.keep_up()

    def pause(self) -> None:
        with self._lock:
            self._pauses += 1
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        with self._lock:
            self._pauses -= 1
            if self._pauses == 0:
                self._signal(signal.SIGCONT)

    def keep_up(self) -> None:
        """Start it if it should run and does not."""
        with self._lock:
            rested = time.monotonic() - self._started_at > PAUSE_BETWEEN_STARTS_S
            if self._holds == 0 and not self.is_running() and rested:
                self._spawn()

    def end(self) -> None:
        """SIGKILL, for good."""
        with self._lock:
            self._holds += 1000
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(END_SECONDS)

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _spawn(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._network.command(self.party, self._words()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C is for the test, which ends what it started
            )
        self.starts += 1
        self._started_at = time.monotonic()
        self._network.note_process(self.party, self._process.pid)
        if self._pauses:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _await_end(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()  # a paused process takes SIGTERM only when it goes on
            process.wait(END_SECONDS)


def zookeeper_node(
    network: Network,
    directory: pathlib.Path,
    tick_ms: int,
    settings: Mapping[str, str] | None = None,
    jvm: tuple[str, ...] = (),
) -> Node:
    """A ZooKeeper of one server."""

    def words() -> list[str]:
        host, port = network.listen_address(ZOOKEEPER, ZOOKEEPER_PORT)
        path = write_properties(
            directory / "zoo.cfg",
            {
                "tickTime": str(tick_ms),
                "dataDir": str(directory / "data"),
                "clientPort": str(port),
                "clientPortAddress": host,
                "admin.enableServer": "false",
                "maxClientCnxns": "0",
                "forceSync": "no",  # what ZooKeeper loses in a power cut is not what is tested
                **(settings or {}),
            },
        )
        return java_command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(path), jvm=(*ZOOKEEPER_JVM, *jvm))

    return Node(ZOOKEEPER, network, directory, words)


def broker_node(
    kind: str,
    broker_id: int,
    network: Network,
    directory: pathlib.Path,
    settings: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> Node:
    """A broker of this kind; both get the same properties."""
    party = party_of(broker_id)

    def words() -> list[str]:
        listen, reach = network.listen_address(party, BROKER_PORT), network.reach_address(party, BROKER_PORT)
        zookeeper = network.reach_address(ZOOKEEPER, ZOOKEEPER_PORT)
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{listen[0]}:{listen[1]}",
            "advertised.listeners": f"PLAINTEXT://{reach[0]}:{reach[1]}",
            "log.dirs": str(directory / "data"),
            "zookeeper.connect": f"{zookeeper[0]}:{zookeeper[1]}",
            **settings,
        }
        path = str(write_properties(directory / "server.properties", properties))
        variables = ["env", *(f"{name}={text}" for name, text in (environment or {}).items())]
        if kind == "kafka":
            return [*variables, *java_command("kafka.Kafka", path, jvm=BROKER_JVM)]
        return [*variables, sys.executable, "-m", "barnabas", "serve", path]

    return Node(party, network, directory, words)


def party_of(broker_id: int) -> str:
    return f"broker-{broker_id}"


def write_properties(path: pathlib.Path, properties: Mapping[str, str]) -> pathlib.Path:
    written = path.with_suffix(f".{os.getpid()}.new")  # whole or not at all
    written.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return written.replace(path)
