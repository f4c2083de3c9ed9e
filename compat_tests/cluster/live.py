"""A whole cluster of either kind: ZooKeeper, brokers, the network between them, and a supervisor that restarts them.

    with LiveCluster("barnabas", directory) as cluster:
        cluster.create_topic("letters", partitions=4)
        ... cluster.bootstrap, cluster.view, cluster.broker(1).hold(signal.SIGKILL), cluster.network.cut(...)

Addresses stay the same over restarts. `SETTINGS` are those under which the promises of docs and tests are checked.
"""

import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from barnabas.wire import messages as m
from compat_tests.cluster.network import NamespaceNetwork, Network, can_make_namespaces
from compat_tests.cluster.nodes import (
    BROKER_PORT,
    KINDS,
    ZOOKEEPER,
    Node,
    broker_node,
    party_of,
    zookeeper_node,
)
from compat_tests.cluster.secured import PLAINTEXT_PORT, Secured
from compat_tests.cluster.view import Unanswered, View

Seen = TypeVar("Seen")

CLIENTS = "clients"
START_SECONDS = 120.0
START_ATTEMPTS = 4
WATCH_SECONDS = 0.25
TICK_MS = 500
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "10000",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class NotWhole(Exception):
    """What was waited for has not come."""


class NodeFails(Exception):
    """A process ends again and again."""


class LiveCluster:
    """Real processes; the caller must close it."""

    def __init__(
        self,
        kind: str,
        directory: pathlib.Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        namespaces: bool | None = None,
        is_secured: bool = False,
    ) -> None:
        assert kind in KINDS, f"{kind} is none of {KINDS}"
        self.kind = kind
        self.directory = directory
        self.broker_ids = tuple(range(1, brokers + 1))
        parties = [ZOOKEEPER, *map(party_of, self.broker_ids), CLIENTS]
        self.network = make_network(parties, namespaces)
        properties = {**SETTINGS, **(settings or {})}
        self.secured = Secured(directory / "security", self.network, self.broker_ids) if is_secured else None
        self.zookeeper = self._zookeeper()
        self.brokers = {broker: self._broker(broker, properties) for broker in self.broker_ids}
        port = BROKER_PORT if self.secured is None else PLAINTEXT_PORT
        self.view = View({broker: self.network.reach_address(party_of(broker), port) for broker in self.broker_ids})
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._keep_up, daemon=True)

    def __enter__(self) -> "LiveCluster":
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _zookeeper(self) -> Node:
        directory, secured = self.directory / ZOOKEEPER, self.secured
        if secured is None:
            return zookeeper_node(self.network, directory, TICK_MS)
        return zookeeper_node(self.network, directory, TICK_MS, secured.zookeeper_properties(), secured.zookeeper_jvm)

    def _broker(self, broker: int, properties: Mapping[str, str]) -> Node:
        directory, secured = self.directory / party_of(broker), self.secured
        if secured is None:
            return broker_node(self.kind, broker, self.network, directory, properties)
        properties = {**properties, **secured.broker_properties(broker)}
        return broker_node(self.kind, broker, self.network, directory, properties, secured.environment)

    @property
    def bootstrap(self) -> str:
        """Without TLS and a login."""
        return ",".join(f"{host}:{port}" for host, port in self.view.addresses.values())

    @property
    def client_settings(self) -> dict[str, str]:
        """How a client of librdkafka connects."""
        return {"bootstrap.servers": self.bootstrap} if self.secured is None else self.secured.client_settings()

    @property
    def java_settings(self) -> dict[str, str]:
        """How a client in Java connects."""
        return {"bootstrap.servers": self.bootstrap} if self.secured is None else self.secured.java_settings()

    @property
    def nodes(self) -> list[Node]:
        return [self.zookeeper, *self.brokers.values()]

    def broker(self, broker_id: int) -> Node:
        return self.brokers[broker_id]

    def start(self) -> "LiveCluster":
        """Start everything and wait until every broker sees every other."""
        self.zookeeper.start()
        self._watch.start()
        if self.secured is not None:
            self._write_users(self.secured)
        for node in self.brokers.values():
            node.start()
        try:
            await_none(self._what_does_not_start, START_SECONDS, self.what_was_said)
        except NodeFails as error:
            raise NotWhole(f"{error}\n{self.what_was_said()}") from None
        if self.secured is not None:
            self._allow_clients(self.secured)
        return self

    def _write_users(self, secured: Secured) -> None:
        """Before any broker runs; ZooKeeper may not serve yet."""

        def failed() -> list[str]:
            ran = [self.run(words, stdin=password) for words, password in secured.user_commands()]
            return [each.stderr for each in ran if each.returncode]

        await_none(failed, START_SECONDS, self.what_was_said)

    def _allow_clients(self, secured: Secured) -> None:
        results = self.view.ask_any(secured.acls_of_clients(), 3).results
        if any(each.error_code for each in results):
            raise NotWhole(f"the ACLs of clients cannot be created: {results}")

    def close(self) -> None:
        """End every process and take the network down."""
        self._closed.set()
        if self._watch.is_alive():
            self._watch.join()
        for node in reversed(self.nodes):
            node.end()
        self.network.close()

    def command(self, words: list[str]) -> list[str]:
        """The command that runs these words where the clients are."""
        return self.network.command(CLIENTS, words)

    def run(self, words: list[str], timeout: float = 120, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program where the clients are, to its end."""
        command = self.command(words)
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout)

    def create_topic(self, name: str, partitions: int, assignment: Mapping[int, list[int]] | None = None) -> None:
        """Create a topic with the default replication, or with this assignment, and wait for full ISRs."""
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1 if assignment else partitions,
            replication_factor=-1,
            assignments=[
                m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in (assignment or {}).items()
            ],
        )
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        (created,) = self.view.ask(self.view.controller(), request, 5, timeout=35.0).topics
        if created.error_code:
            raise NotWhole(f"topic {name} was not created: {created.error_code} {created.error_message}")
        self.await_seen(name, partitions)
        self.await_whole()

    def await_seen(self, topic: str, partitions: int, seconds: float = 30.0) -> None:
        """Wait until every broker knows all partitions of this topic."""

        def missing() -> list[str]:
            return [
                f"broker {broker} does not see all of {topic}"
                for broker in self.broker_ids
                if sum(name == topic for name, _ in self.view.partitions(broker)) < partitions
            ]

        await_none(missing, seconds)

    def await_whole(self, seconds: float = 60.0) -> float:
        """Wait until every broker sees every broker and full ISRs; how long it took. NotWhole."""
        return await_none(lambda: self.view.what_is_not_whole(len(self.broker_ids)), seconds, self.what_was_said)

    def _what_does_not_start(self) -> list[str]:
        for node in self.nodes:
            if node.starts > START_ATTEMPTS:
                raise NodeFails(f"{node.party} ended {START_ATTEMPTS} times")
        return self.view.what_is_not_whole(len(self.broker_ids))

    def what_was_said(self) -> str:
        """The last lines of every process's output, for a failure."""
        return "\n".join(f"-- {node.party}\n{node.log_text()[-1500:]}" for node in self.nodes)

    def _keep_up(self) -> None:
        while not self._closed.wait(WATCH_SECONDS):
            for node in self.nodes:
                node.keep_up()


def make_network(parties: list[str], namespaces: bool | None) -> Network:
    """Namespaces where they can be made (or must: `namespaces`), else proxies."""
    if namespaces or (namespaces is None and can_make_namespaces()):
        return NamespaceNetwork(parties)
    from compat_tests.cluster.proxy import ProxyNetwork

    return ProxyNetwork(parties)


def await_none(
    look: Callable[[], list[str]], seconds: float, more: Callable[[], str] | None = None, *, pace_seconds: float = 0.2
) -> float:
    """Wait until nothing is wrong; how long it took. NotWhole says what was wrong last."""
    began = time.monotonic()
    wrong = ["not checked yet"]
    while time.monotonic() - began < seconds:
        try:
            wrong = look()
            if not wrong:
                return time.monotonic() - began
        except Unanswered as error:
            wrong = [str(error)]
        time.sleep(pace_seconds)
    raise NotWhole(f"after {seconds:.0f} s: " + "; ".join(wrong[:8]) + ("\n" + more() if more else ""))
