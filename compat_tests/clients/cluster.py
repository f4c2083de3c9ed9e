"""Several brokers of either kind on one ZooKeeper, for suites that ask how a client fares with replicas.

The brokers are plain processes on 127.0.0.1 without a network of their own: nothing is broken on purpose here (that is
`compat_tests/cluster/`), and the addresses that clients get are those that they can reach. Every topic that says
nothing else has a replica on each broker, the internal ones as well.
"""

import pathlib
import shutil
import time
from collections.abc import Mapping

from barnabas.wire import messages as m
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess
from compat_tests.raw import RawClient, eventually

KNOWN_SECONDS = 60.0
FIRST_ID = 1


class SmallCluster:
    """So many brokers, known to each other; `with` starts and ends them."""

    def __init__(self, directory: pathlib.Path, count: int, settings: Mapping[str, str], kafka: bool = False) -> None:
        self._zookeeper = ZooKeeperProcess(directory / "zookeeper")
        first = int(settings.get("broker.id", FIRST_ID))
        replicated = {
            "default.replication.factor": count,
            "offsets.topic.replication.factor": count,
            "transaction.state.log.replication.factor": count,
            "transaction.state.log.min.isr": min(count, 2),
            "group.initial.rebalance.delay.ms": 0,  # what a broker alone does without being told
            "offsets.topic.num.partitions": 10,  # fewer to make before the first group can begin
            **settings,
        }
        self.brokers: list[BrokerProcess | KafkaProcess] = []
        for broker_id in range(first, first + count):
            own = {**replicated, "broker.id": broker_id}
            keywords = {name.replace(".", "_"): value for name, value in own.items()}
            home = directory / f"broker-{broker_id}"
            home.mkdir()
            if kafka:
                self.brokers.append(KafkaProcess(home, zookeeper=self._zookeeper, **keywords))
            else:
                self.brokers.append(BrokerProcess(home, **keywords))

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> "SmallCluster":
        try:
            self._zookeeper.start()
            for broker in self.brokers:
                if isinstance(broker, BrokerProcess):
                    broker.properties["zookeeper.connect"] = self._zookeeper.bootstrap
                    broker.properties["zookeeper.connection.timeout.ms"] = "60000"
                broker.start()
            for broker in self.brokers:
                self._await_known(broker.port)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """All of it, at once; nothing is kept."""
        for broker in self.brokers:
            broker.kill()
        self._zookeeper.kill()

    def keep_logs(self, folder: pathlib.Path) -> None:
        """Copy what the brokers said to where it outlives them."""
        for number, broker in enumerate(self.brokers):
            if broker.log_path.exists():
                shutil.copy(broker.log_path, folder / f"broker-{number}.log")

    def _await_known(self, port: int) -> None:
        """Until this broker knows of all of them, and of a controller."""

        def seen() -> m.MetadataResponse:
            with RawClient(port) as client:
                told: m.MetadataResponse = client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse)
            return told

        deadline = time.monotonic() + KNOWN_SECONDS
        eventually(
            seen,
            lambda told: (
                (len(told.brokers) == len(self.brokers) and told.controller_id >= 0) or time.monotonic() > deadline
            ),
        )
