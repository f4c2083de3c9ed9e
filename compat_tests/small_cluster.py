"""Several brokers of either kind on one ZooKeeper, for tests of clients and responses with replicated topics.

The brokers are plain processes on 127.0.0.1 without a network of their own: a broker may be killed or paused;
`compat_tests/cluster/` has other faults. Brokers keep their addresses over restarts. By default every topic has a
replica on each broker, the internal ones as well.
"""

import os
import pathlib
import shutil
import signal
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from barnabas.wire import messages as m
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess, free_port
from compat_tests.raw import RawClient, ask, eventually

Process = KafkaProcess | BrokerProcess

KINDS = ("kafka", "barnabas")


class SmallCluster:
    """So many brokers, known to each other; `with` starts and ends them.

    The one with the lowest id starts first and therefore controls the cluster. Settings are keywords, underscores dots.
    """

    def __init__(
        self, kind: str, directory: pathlib.Path, count: int = 3, *, tick_ms: int = 2000, **settings: str | int
    ) -> None:
        self.kind = kind
        self.directory = directory
        self.down: set[int] = set()
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper", tick_ms)
        self.zookeeper.port = free_port()
        first = int(settings.get("broker_id", 1))
        settings = {
            "default_replication_factor": count,
            "offsets_topic_replication_factor": count,
            "offsets_topic_num_partitions": 10,  # fewer to make before the first group can begin
            "transaction_state_log_replication_factor": count,
            "transaction_state_log_min_isr": min(count, 2),
            "group_initial_rebalance_delay_ms": 0,  # the default of a single broker
            "zookeeper_connection_timeout_ms": 60_000,
            **settings,
        }
        self.brokers = {broker: self._process(broker, settings) for broker in range(first, first + count)}

    @property
    def bootstrap(self) -> str:
        return ",".join(process.bootstrap for process in self.brokers.values())

    @property
    def ports(self) -> dict[int, int]:
        return {broker: process.port for broker, process in self.brokers.items()}

    def directory_of(self, broker: int) -> pathlib.Path:
        return self.directory / f"broker-{broker}"

    def settings_of(self, broker: int) -> Mapping[str, str | int]:
        """The settings of this broker only."""
        return {"broker_id": broker}

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        self.zookeeper.start()
        first, *others = self.brokers.values()
        first.start()
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda process: process.start(), others))
        self.await_brokers(self.brokers)
        return self

    def close(self) -> None:
        """All of it, at once; nothing is kept."""
        for process in self.brokers.values():
            process.kill()
        self.zookeeper.kill()

    def kill(self, broker: int) -> None:
        """SIGKILL, and wait until the others have noticed."""
        self.brokers[broker].kill()
        self._gone(broker)

    def stop(self, broker: int) -> None:
        """SIGTERM: the broker hands its leaderships over and goes."""
        self.brokers[broker].stop()
        self._gone(broker)

    def _gone(self, broker: int) -> None:
        self.down.add(broker)
        self.await_brokers(self.brokers.keys() - self.down)

    def restart(self, broker: int) -> None:
        """Start it again, and wait until everybody has noticed."""
        self.brokers[broker].restart()
        self.down.discard(broker)
        self.await_brokers(self.brokers.keys() - self.down)

    def heal(self) -> None:
        """Restart brokers that a failed test left down."""
        for broker in sorted(self.down):
            self.restart(broker)

    def pause(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        os.kill(self.brokers[broker].pid, signal.SIGCONT)

    def await_brokers(self, wanted: Iterable[int]) -> None:
        """Wait until every broker that is up knows of exactly these, and of a controller."""
        for broker in sorted(self.brokers.keys() - self.down):
            eventually(lambda broker=broker: self._seen_by(broker), lambda seen: seen == (set(wanted), True))

    def keep_logs(self, folder: pathlib.Path) -> None:
        """Copy what the brokers said to where it outlives them."""
        for broker, process in self.brokers.items():
            if process.log_path.exists():
                shutil.copy(process.log_path, folder / f"broker-{broker}.log")

    def _seen_by(self, broker: int) -> tuple[set[int], bool]:
        with RawClient(self.brokers[broker].port) as client:
            metadata = ask(client, m.MetadataRequest(topics=[]), 9)
        return {row.node_id for row in metadata.brokers}, metadata.controller_id >= 0

    def _process(self, broker: int, settings: Mapping[str, str | int]) -> Process:
        own = self.directory_of(broker)
        own.mkdir(parents=True)
        settings = {**settings, **self.settings_of(broker)}
        if self.kind == "kafka":
            return KafkaProcess(own, zookeeper=self.zookeeper, **settings)
        made = BrokerProcess(own, zookeeper_connect=self.zookeeper.bootstrap, **settings)
        made.port = free_port()  # so that both kinds are configured with a port
        return made
