"""One of the two clusters as a scenario sees it.

A scenario that was written for one broker runs unchanged: every scenario has a broker where it is at home, which leads
the partitions of the topics that it creates; what is asked of the controller goes to the controller, what is asked of
the coordinator of a group or a transaction to that one, and everything else home. A scenario about clusters asks any
broker by its id (`at`, `ask_at`), and says where its replicas are.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.topics import java_string_hash
from compat_tests.differential.asking import metadata
from compat_tests.differential.clusters import (
    BROKERS,
    OFFSETS_LAYOUT,
    OFFSETS_TOPIC,
    TRANSACTIONS_LAYOUT,
    Cluster,
)
from compat_tests.differential.side import ANSWER_SECONDS, Answer, Connection, Side
from compat_tests.raw import eventually
from compat_tests.zookeeper_sessions import client_of

# What only the controller does.
TO_THE_CONTROLLER = (
    m.CreateTopicsRequest,
    m.DeleteTopicsRequest,
    m.CreatePartitionsRequest,
    m.ElectLeadersRequest,
    m.AlterPartitionReassignmentsRequest,
    m.ListPartitionReassignmentsRequest,
    m.UpdateFeaturesRequest,
    m.ControlledShutdownRequest,
    m.AlterPartitionRequest,
    m.AllocateProducerIdsRequest,
)
METADATA_VERSION = 12


class Node(NamedTuple):
    """A node of the store."""

    data: bytes
    created: int  # the number of the transaction


def coordinator_of(group: str) -> int:
    """The broker that leads the group's partition, by Java's hash of its name."""
    return OFFSETS_LAYOUT[abs(java_string_hash(group)) % len(OFFSETS_LAYOUT)][0]


def transaction_coordinator_of(name: str) -> int:
    """The same for a transactional id."""
    return TRANSACTIONS_LAYOUT[abs(java_string_hash(name)) % len(TRANSACTIONS_LAYOUT)][0]


def transaction_of(request: m.Message) -> str | None:
    """The transactional id whose coordinator is asked; of several the first."""
    match request:
        case m.InitProducerIdRequest() | m.AddOffsetsToTxnRequest() | m.EndTxnRequest():
            return request.transactional_id
        case m.AddPartitionsToTxnRequest():
            several = request.transactions
            return several[0].transactional_id if several else request.v3_and_below_transactional_id
        case m.DescribeTransactionsRequest():
            return next(iter(request.transactional_ids), None)
    return None


def marked_group_partition(request: m.Message) -> int | None:
    """The partition of `__consumer_offsets` that markers are for, if they are."""
    if isinstance(request, m.WriteTxnMarkersRequest):
        for marker in request.markers:
            for topic in marker.topics:
                if topic.name == OFFSETS_TOPIC:
                    return topic.partition_indexes[0]
    return None


def group_of(request: m.Message) -> str | None:
    """The group that a request is about; of several the first."""
    named = getattr(request, "group_id", None)
    for several in ("groups", "groups_names"):
        of = getattr(request, several, None)
        if of:
            named = of[0] if isinstance(of[0], str) else of[0].group_id
    return named


class RoutedConnection(Connection):
    """A connection to each broker that is asked; one conversation for the scenario."""

    def __init__(self, side: "ClusterSide", client_id: str | None) -> None:
        self._side: ClusterSide = side
        self._client_id = client_id
        self._open: dict[int, Connection] = {}
        self._waited_for: list[Connection] = []

    @property
    def socket(self):  # the one at home
        return self._to(self._side.home).socket

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()

    def ask(self, request: m.Message, version: int, seconds: float = ANSWER_SECONDS) -> Answer:
        return self._to(self._side.whom(request)).ask(request, version, seconds)

    def send(self, request: m.Message, version: int) -> None:
        connection = self._to(self._side.whom(request))
        connection.send(request, version)
        self._waited_for.append(connection)

    def send_body(self, key: int, version: int, body: bytes, header: bytes | None = None) -> None:
        connection = self._to(self._side.home)
        connection.send_body(key, version, body, header)
        self._waited_for.append(connection)

    def receive(self, seconds: float = ANSWER_SECONDS) -> Answer:
        return self._waited_for.pop(0).receive(seconds)

    def listen(self, seconds: float = 0.5) -> str:
        return self._to(self._side.home).listen(seconds)

    def _to(self, broker: int) -> Connection:
        if broker not in self._open:
            self._open[broker] = self._side.at(broker, self._client_id)
        return self._open[broker]


class ClusterSide(Side):
    """One cluster under one scenario."""

    def __init__(self, kind: str, cluster: Cluster, scenario: str) -> None:
        self.cluster = cluster
        self.home = BROKERS[zlib.crc32(scenario.encode()) % len(BROKERS)]
        super().__init__(kind, cluster.ports[self.home], cluster.directory_of(self.home), scenario)
        self.names.places = {f":{port}": f":PORT-{broker}" for broker, port in cluster.ports.items()}
        self.names.places[str(cluster.directory)] = "DIRECTORY"
        self.names.ports = {port: f"PORT-{broker}" for broker, port in cluster.ports.items()}

    # -- as for one broker

    def connect(self, client_id: str | None = "raw") -> Connection:
        return RoutedConnection(self, client_id)

    def whom(self, request: m.Message) -> int:
        """The broker that answers for what this request is about."""
        if isinstance(request, TO_THE_CONTROLLER):
            return self.controller()
        transaction = transaction_of(request)
        if transaction is not None:
            return transaction_coordinator_of(transaction)
        marked = marked_group_partition(request)
        if marked is not None:
            return OFFSETS_LAYOUT[marked][0]
        group = group_of(request)
        return self.home if group is None else coordinator_of(group)

    def create_topic(self, of: str, partitions: int = 1, **configs: str) -> str:
        """Three replicas each, led from home."""
        others = [broker for broker in BROKERS if broker != self.home]
        return self.create_placed(of, [[self.home, *others]] * partitions, **configs)

    def create_alone(self, of: str) -> str:
        return self.create_placed(of, [[self.home]])

    # -- for scenarios about clusters

    def at(self, broker: int, client_id: str | None = "raw") -> Connection:
        """A connection to this broker."""
        return Connection(self, client_id, self.cluster.ports[broker])

    def ask_at(self, broker: int, request: m.Message, version: int, seconds: float = ANSWER_SECONDS) -> Answer:
        with self.at(broker) as client:
            return client.ask(request, version, seconds)

    def node(self, path: str) -> Node:
        """What ZooKeeper holds there."""
        with client_of(self.cluster.zookeeper.bootstrap) as client:
            data, stat = client.get(path)
        return Node(data, stat.czxid)

    def broker_epoch(self, broker: int) -> int:
        return self.node(f"/brokers/ids/{broker}").created

    def tell(self, broker: int, request: m.LeaderAndIsrRequest | m.StopReplicaRequest) -> Answer:
        """Say this as the controller would."""
        request.controller_id, request.controller_epoch = self.controller(), int(self.node("/controller_epoch").data)
        return self.ask_at(broker, request, 7 if isinstance(request, m.LeaderAndIsrRequest) else 4)

    def controller(self) -> int:
        """Who controls now, as a broker that is up says."""
        return int(self.ask_at(self._any_up(), m.MetadataRequest(topics=[]), METADATA_VERSION).controller_id)

    def create_placed(self, of: str, replicas: Sequence[Sequence[int]], **configs: str) -> str:
        """Create a topic with these replicas a partition, and wait until every broker knows its leaders; its name."""
        name = self.name(of)
        Request = m.CreateTopicsRequest
        topic = Request.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                Request.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(replicas)
            ],
            configs=[
                Request.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
            ],
        )
        # Kafka's controller deletes a topic in steps; until the last one its name is "marked for deletion".
        created = eventually(
            lambda: self.ask(Request(topics=[topic], timeout_ms=15_000), 7).topics[0],
            lambda row: "marked for deletion" not in (row.error_message or ""),
        )
        assert created.error_code == 0, created
        self.await_leaders(name)
        return name

    def await_leaders(self, name: str) -> None:
        """Until every broker that is up knows a leader of every partition."""
        for broker in self._up():
            self.wait(lambda broker=broker: self._all_led(self.topic_seen_by(broker, name)))

    def topic_seen_by(self, broker: int, name: str) -> m.MetadataResponse.MetadataResponseTopic:
        (topic,) = self.ask_at(broker, metadata(name, create=False), METADATA_VERSION).topics
        return topic

    def await_isr(self, name: str, isr: Iterable[int], partition: int = 0, leader: int | None = None) -> None:
        """Until every broker that is up sees exactly these in sync (and this one leading)."""
        wanted = set(isr)

        def is_so(broker: int) -> bool:
            rows = {row.partition_index: row for row in self.topic_seen_by(broker, name).partitions}
            row = rows.get(partition)
            return row is not None and set(row.isr_nodes) == wanted and leader in (None, row.leader_id)

        for broker in self._up():
            self.wait(lambda broker=broker: is_so(broker), 40)

    def everywhere(self, version: int, requests: Mapping[str, m.Message]) -> Iterable[tuple[str, Answer]]:
        """Ask every broker that is up each of these."""
        for broker in self._up():
            with self.at(broker) as client:
                for name, answer in client.ask_all(version, requests):
                    yield f"broker {broker} {name}", answer

    def has_leaders(self, name: str) -> bool:
        return all(self._all_led(self.topic_seen_by(broker, name)) for broker in self._up())

    @staticmethod
    def _all_led(topic: m.MetadataResponse.MetadataResponseTopic) -> bool:
        return topic.error_code == 0 and all(p.error_code == 0 and p.leader_id >= 0 for p in topic.partitions)

    def _up(self) -> list[int]:
        return [broker for broker in BROKERS if broker not in self.cluster.down]

    def _any_up(self) -> int:
        return self._up()[0]
