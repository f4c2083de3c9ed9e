"""A data directory that goes from Apache Kafka to Barnabas or the other way, as `docs/exchange.md` says."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from compat_tests.brokers import BrokerProcess, run_barnabas
from compat_tests.differential.side import Side
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess

PARTITION_STATE = re.compile(r"/brokers/topics/[^/]+/partitions/\d+/state")

Nodes = list[dict[str, object]]


def carry(*stores: str, change: Callable[[Nodes], None] = lambda _: None) -> None:
    """The metadata from one store into another; `change` may alter them on the way."""
    exported = run_barnabas("store", "export", *stores[:2])
    assert exported.returncode == 0, exported.stderr
    document = json.loads(exported.stdout)
    change(document["nodes"])
    imported = run_barnabas("store", "import", *stores[2:], stdin=json.dumps(document))
    assert imported.returncode == 0, imported.stderr


def without_leaders(nodes: Nodes) -> None:
    """As a controller leaves partitions whose only replica went away: the next one elects, so all epochs rise."""
    states = [node["json"] for node in nodes if PARTITION_STATE.fullmatch(str(node["path"]))]
    assert states
    for state in states:
        assert isinstance(state, dict)
        state |= {"leader": -1, "leader_epoch": state["leader_epoch"] + 1}


class Directory:
    """A data directory, its metadata, and the broker that uses it."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess, **settings: str | int) -> None:
        self.data = folder / "broker" / "data"  # where a BrokerProcess has it
        self.side: Side
        self._folder = folder
        self._zookeeper = zookeeper
        self._settings = settings
        self._stays = 0  # with either kind of broker
        self._broker: KafkaProcess | BrokerProcess | None = None
        (folder / "broker").mkdir(parents=True)

    def start(self, kind: str, **settings: str | int) -> Side:
        """Start a broker of this kind on the directory; the scenario's side of it."""
        together = self._settings | settings
        if kind == "kafka":
            root = self._store(kind)[1]
            self._broker = KafkaProcess(
                self._folder / "kafka",
                zookeeper=self._zookeeper,
                log_dirs=str(self.data),
                zookeeper_connect=root,
                **together,
            )
        else:
            self._broker = BrokerProcess(self._folder / "broker", **together)
        self._broker.start()
        self.side = Side(kind, self._broker.port, self.data, "exchange")
        return self.side

    def stop(self) -> None:
        """A clean stop."""
        assert self._broker is not None
        status = self._broker.stop()
        # Java ends with the number of the signal.
        assert status == (143 if self.side.broker == "kafka" else 0), status

    def kill(self) -> None:
        """SIGKILL; also for the end of a test."""
        if self._broker is not None:
            self._broker.kill()

    def hand_over(self, kind: str, change: Callable[[Nodes], None] = lambda _: None) -> None:
        """Carry the metadata to where a broker of this kind looks for them."""
        source = self._store(self.side.broker)
        self._stays += 1
        if kind == "barnabas":
            (self.data / "metadata.sqlite").unlink(missing_ok=True)  # of an earlier stay
        carry(*source, *self._store(kind), change=change)

    def _store(self, kind: str) -> tuple[str, str]:
        if kind == "kafka":
            return "--zookeeper", f"{self._zookeeper.bootstrap}/{self._folder.name}-{self._stays}"
        return "--data-dir", str(self.data)
