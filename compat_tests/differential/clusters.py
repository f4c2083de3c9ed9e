"""Three brokers of one kind on a ZooKeeper of their own, each with two log directories and in a rack of its own.

Both kinds are laid out alike, so that answers can be compared: broker 1 starts first and therefore controls the
cluster, and the partitions of `__consumer_offsets` are created with leaders that are chosen here. Ports are the same
over restarts, which is what lets answers name them.
"""

import os
import pathlib
import signal
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from barnabas.wire import messages as m
from compat_tests.brokers import BrokerProcess
from compat_tests.differential.asking import metadata, new_topic
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess, free_port
from compat_tests.raw import RawClient, ask, eventually

Process = KafkaProcess | BrokerProcess

KINDS: dict[str, type[KafkaProcess] | type[BrokerProcess]] = {"kafka": KafkaProcess, "barnabas": BrokerProcess}
BROKERS = (1, 2, 3)
CONTROLLER = 1
LOG_DIRS = ("data", "data-2")
OFFSETS_TOPIC = "__consumer_offsets"
# Each group partition has another leader, none of them the controller's only.
OFFSETS_LAYOUT = {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2, 3)}
OFFSETS_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer"}
TICK_MS = 500
SETTINGS = {
    "default_replication_factor": 3,
    "offsets_topic_num_partitions": len(OFFSETS_LAYOUT),
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_num_partitions": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1000,
    "zookeeper_session_timeout_ms": 6000,
    "zookeeper_connection_timeout_ms": 60_000,
    "auto_leader_rebalance_enable": "false",  # leaders move when a scenario says so
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class Cluster:
    """The processes; whoever opens it closes it."""

    def __init__(self, kind: str, directory: pathlib.Path) -> None:
        self.kind = kind
        self.directory = directory
        self.zookeeper = ZooKeeperProcess(directory, TICK_MS)
        self.brokers: dict[int, Process] = {}
        self.down: set[int] = set()

    @property
    def ports(self) -> dict[int, int]:
        return {broker: process.port for broker, process in self.brokers.items()}

    def directory_of(self, broker: int) -> pathlib.Path:
        return self.directory / f"broker-{broker}"

    def start(self) -> "Cluster":
        self.zookeeper.start()
        for broker in BROKERS:
            self.brokers[broker] = self._process(broker)
        self.brokers[CONTROLLER].start()
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda process: process.start(), (self.brokers[b] for b in BROKERS if b != CONTROLLER)))
        self.await_brokers(BROKERS)
        self._lay_out_groups()
        return self

    def close(self) -> None:
        for process in self.brokers.values():
            process.kill()
        self.zookeeper.kill()

    def kill(self, broker: int) -> None:
        """SIGKILL, and wait until the others have noticed."""
        self.brokers[broker].kill()
        self.down.add(broker)
        self.await_brokers(set(BROKERS) - self.down)

    def stop(self, broker: int) -> None:
        """SIGTERM: the broker hands its leaderships over and goes."""
        self.brokers[broker].stop()
        self.down.add(broker)
        self.await_brokers(set(BROKERS) - self.down)

    def restart(self, broker: int) -> None:
        """Start it again, and wait until everybody has noticed."""
        self.brokers[broker].restart()
        self.down.discard(broker)
        self.await_brokers(set(BROKERS) - self.down)

    def heal(self) -> None:
        """Bring back whoever is still down after a scenario that failed."""
        for broker in sorted(self.down):
            self.restart(broker)

    def pause(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGCONT)

    def await_brokers(self, wanted: Iterable[int]) -> None:
        """Wait until every broker that is up knows of exactly these, and of a controller."""
        for broker in sorted(set(BROKERS) - self.down):
            eventually(lambda broker=broker: self._seen_by(broker), lambda seen: seen == (set(wanted), True))

    def _seen_by(self, broker: int) -> tuple[set[int], bool]:
        with RawClient(self.brokers[broker].port) as client:
            told = ask(client, m.MetadataRequest(topics=[]), 9)
        return {row.node_id for row in told.brokers}, told.controller_id >= 0

    def _process(self, broker: int) -> Process:
        own = self.directory_of(broker)
        own.mkdir(parents=True)
        settings = {
            **SETTINGS,
            "broker_id": broker,
            "broker_rack": f"rack-{broker}",
            "log_dirs": ",".join(str(own / folder) for folder in LOG_DIRS),
        }
        if self.kind == "kafka":
            return KafkaProcess(own, zookeeper=self.zookeeper, **settings)
        made = BrokerProcess(own, zookeeper_connect=self.zookeeper.bootstrap, **settings)
        made.port = free_port()  # so that both kinds are configured with a port
        return made

    def _lay_out_groups(self) -> None:
        topic = new_topic(OFFSETS_TOPIC, -1, -1, assigned=OFFSETS_LAYOUT.items(), configs=OFFSETS_CONFIGS.items())
        with RawClient(self.brokers[CONTROLLER].port) as client:
            (created,) = ask(client, m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics
        assert created.error_code == 0, created
        for process in self.brokers.values():
            eventually(lambda process=process: _leaders(process.port, OFFSETS_TOPIC), lambda seen: seen == [2, 3, 1])


def _leaders(port: int, topic: str) -> list[int]:
    with RawClient(port) as client:
        (told,) = ask(client, metadata(topic, create=False), 9).topics
    return [row.leader_id for row in sorted(told.partitions, key=lambda row: row.partition_index)]
