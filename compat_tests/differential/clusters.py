"""Three brokers of one kind on a ZooKeeper of their own, each with two log directories and in a rack of its own.

Both kinds are laid out alike, so that answers can be compared: broker 1 starts first and therefore controls the
cluster, and the partitions of `__consumer_offsets` and `__transaction_state` are created with leaders that are chosen
here. Ports are the same over restarts, which is what lets answers name them.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Self

from barnabas.wire import messages as m
from compat_tests.differential.asking import metadata, new_topic
from compat_tests.raw import RawClient, ask, eventually
from compat_tests.small_cluster import SmallCluster

BROKERS = (1, 2, 3)
CONTROLLER = 1
LOG_DIRS = ("data", "data-2")
OFFSETS_TOPIC = "__consumer_offsets"
# Each group partition has another leader, none of them the controller's only.
OFFSETS_LAYOUT = {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2, 3)}
TRANSACTIONS_TOPIC = "__transaction_state"
TRANSACTIONS_LAYOUT = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
TRANSACTIONS_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "104857600",
    "compression.type": "uncompressed",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}
OFFSETS_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer"}
TICK_MS = 500
SETTINGS = {
    "offsets_topic_num_partitions": len(OFFSETS_LAYOUT),
    "transaction_state_log_num_partitions": len(TRANSACTIONS_LAYOUT),
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
    "group_min_session_timeout_ms": 1000,
    "zookeeper_session_timeout_ms": 6000,
    "auto_leader_rebalance_enable": "false",  # leaders move when a scenario says so
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class Cluster(SmallCluster):
    """The processes; the caller must close it."""

    def __init__(self, kind: str, directory: pathlib.Path) -> None:
        super().__init__(kind, directory, len(BROKERS), tick_ms=TICK_MS, **SETTINGS)

    def start(self) -> Self:
        super().start()
        self._lay_out(OFFSETS_TOPIC, OFFSETS_LAYOUT, OFFSETS_CONFIGS)
        self._lay_out(TRANSACTIONS_TOPIC, TRANSACTIONS_LAYOUT, TRANSACTIONS_CONFIGS)
        return self

    def settings_of(self, broker: int) -> Mapping[str, str | int]:
        log_dirs = ",".join(str(self.directory_of(broker) / folder) for folder in LOG_DIRS)
        return {**super().settings_of(broker), "broker_rack": f"rack-{broker}", "log_dirs": log_dirs}

    def _lay_out(self, name: str, layout: Mapping[int, Sequence[int]], configs: Mapping[str, str]) -> None:
        topic = new_topic(name, -1, -1, assigned=layout.items(), configs=configs.items())
        with RawClient(self.brokers[CONTROLLER].port) as client:
            (created,) = ask(client, m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics
        assert created.error_code == 0, created
        leaders = [replicas[0] for replicas in layout.values()]
        for process in self.brokers.values():
            eventually(lambda process=process: _leaders(process.port, name), lambda found: found == leaders)


def _leaders(port: int, topic: str) -> list[int]:
    with RawClient(port) as client:
        (found,) = ask(client, metadata(topic, create=False), 9).topics
    return [row.leader_id for row in sorted(found.partitions, key=lambda row: row.partition_index)]
