"""The programs of Kafka's StreamsEosTest as processes: the driver, the instances, the verification.

All of it is in the test jars of Kafka 3.9.1, which `pom.xml` names and Maven copies once. The driver writes random
integers to the topic `data`, some 200 records a second. Each instance copies them to `echo` and keeps minimum and sum
of each key in stores with two standbys; the complex form repartitions them and keeps maximum and count as well. It
commits every five seconds, so that most kills meet an open transaction. The verification waits until no transaction is
open, computes what must be there from the committed input, and compares it with what a read_committed consumer reads.
"""

import pathlib
import signal
import subprocess
from typing import NamedTuple

from compat_tests.cluster.live import CLIENTS, LiveCluster
from compat_tests.cluster.nodes import Node
from compat_tests.kafka import QUIET_LOG, bring_jars
from compat_tests.streams import output
from compat_tests.tools import require_tool

HERE = pathlib.Path(__file__).parent
MAIN = "org.apache.kafka.streams.tests.StreamsEosTest"
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
APPLICATION, INPUT, PARTITIONS = "EosTest", "data", 5  # the program's own names
TOPICS = (INPUT, "echo", "min", "sum")
MORE_TOPICS = ("repartition", "max", "cnt")  # of the complex form
DRIVER_END_SECONDS = 300.0  # it waits for the fate of every record
INSTANCE_END_SECONDS = 120.0
VERIFY_SECONDS = 900.0  # it gives up by itself after ten minutes without a record


class Form(NamedTuple):
    """What the instances do, and how they are to do it."""

    command: str
    guarantee: str

    @property
    def topics(self) -> tuple[str, ...]:
        return (*TOPICS, *MORE_TOPICS) if self.command == "process-complex" else TOPICS

    @property
    def verification(self) -> str:
        return self.command.replace("process", "verify")


FORMS = {
    "process": Form("process", "exactly_once_v2"),
    "complex": Form("process-complex", "exactly_once_v2"),
    "one-producer-a-task": Form("process", "exactly_once"),
}


class Driver:
    """Writes the input until it is stopped."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._node = _node(cluster, "driver", "run", {})

    def start(self) -> None:
        self._node.start()

    def stop(self) -> output.Produced | None:
        """What it wrote, if it ended in order."""
        self._node.hold(signal.SIGTERM, DRIVER_END_SECONDS)
        return output.produced(self._node.log_text())

    def end(self) -> None:
        self._node.end()


class Instance:
    """One instance of the application, with one thread; its stores survive its restarts."""

    def __init__(self, cluster: LiveCluster, number: int, form: Form) -> None:
        self.name = f"instance-{number}"
        more = {
            "processing.guarantee": form.guarantee,
            "state.dir": str(cluster.directory / self.name / "state"),
            # As in Kafka's own runs: tasks move at once, members that were killed are missed soon.
            "acceptable.recovery.lag": "9223372036854775807",
            "session.timeout.ms": "10000",
        }
        self._node = _node(cluster, self.name, form.command, more)
        self.kills = 0

    @property
    def thrown(self) -> list[output.Thrown]:
        return output.thrown(self._node.log_text())

    def start(self) -> None:
        self._node.start()

    def kill(self) -> None:
        """SIGKILL; it is down until `restart`."""
        self.kills += 1
        self._node.hold(signal.SIGKILL)

    def restart(self) -> None:
        self._node.release()

    def is_running(self) -> bool:
        return self._node.is_running()

    def is_processing(self) -> bool:
        return self.is_running() and output.last_state(self._node.log_text()) == output.RUNNING

    def stop(self) -> bool:
        """Whether it ended in order."""
        self._node.hold(signal.SIGTERM, INSTANCE_END_SECONDS)
        return output.CLOSED in output.last_run(self._node.log_text())

    def end(self) -> None:
        self._node.end()


def verify(cluster: LiveCluster, form: Form) -> str:
    """What the verification said, which also lies in `verify.log`."""
    words = _words(cluster, cluster.directory, form.verification, {})
    try:
        ran = cluster.run(words, VERIFY_SECONDS)
        said = ran.stdout + ran.stderr
    except subprocess.TimeoutExpired as error:
        said = f"{error}\n{(error.stdout or b'').decode()}"
    (cluster.directory / "verify.log").write_text(said)
    return said


def jars() -> pathlib.Path:
    """The folder with the jars; Maven fills it when it has not yet."""
    require_tool("java")
    return bring_jars(HERE / "pom.xml", HERE / "target")


def _node(cluster: LiveCluster, name: str, command: str, more: dict[str, str]) -> Node:
    directory = cluster.directory / name
    return Node(CLIENTS, cluster.network, directory, lambda: _words(cluster, directory, command, more))


def _words(cluster: LiveCluster, directory: pathlib.Path, command: str, more: dict[str, str]) -> list[str]:
    properties = {"bootstrap.servers": cluster.bootstrap, **more}
    path = directory / f"{command}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return ["java", *JVM, *QUIET_LOG, "-cp", f"{jars()}/*", MAIN, str(path), command]
