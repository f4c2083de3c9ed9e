"""A broker's nodes in ZooKeeper, compared byte by byte with those of Apache Kafka.

Both brokers are asked for the same, each below a chroot of its own; then the two trees are compared. What must differ
(ids that are drawn, ports, times) is replaced by its name before.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess
from compat_tests.raw import RawClient, alter_config, ask, eventually
from compat_tests.zookeeper_sessions import client_of

CHANGING = [
    (r'"timestamp":"\d+"', '"timestamp":"NOW"'),
    (r'"topic_id":"[\w-]{22}"', '"topic_id":"DRAWN"'),
    (r'"id":"[\w-]{22}"', '"id":"DRAWN"'),
]

Node = tuple[str | None, int, bool]  # data, version, whether it is ephemeral


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Callable[[], dict[str, Node]]]]:
    """Two brokers that were asked for the same, and how to read what they left."""
    directory = tmp_path_factory.mktemp("nodes")
    zookeeper = ZooKeeperProcess(directory).start()
    settings = {
        "broker_id": 1,
        "broker_rack": "r",
        "offsets_topic_num_partitions": 1,
        "offsets_topic_replication_factor": 1,
        "group_initial_rebalance_delay_ms": 0,
    }
    (directory / "barnabas").mkdir()
    kafka = KafkaProcess(
        directory / "kafka", zookeeper=zookeeper, zookeeper_connect=f"{zookeeper.bootstrap}/kafka", **settings
    )
    barnabas = BrokerProcess(directory / "barnabas", zookeeper_connect=f"{zookeeper.bootstrap}/barnabas", **settings)
    try:
        for broker in (kafka, barnabas):
            broker.start()
            use(broker.port)
        with client_of(zookeeper.bootstrap) as client:
            yield {
                "kafka": lambda: read_tree(client, "/kafka", kafka.port),
                "barnabas": lambda: read_tree(client, "/barnabas", barnabas.port),
            }
    finally:
        barnabas.kill()
        kafka.kill()
        zookeeper.kill()


def use(port: int) -> None:
    """Everything that a broker writes down in ZooKeeper when it is asked."""
    with RawClient(port) as client:
        create(client, "plain", partitions=2)
        create(client, "configured", **{"retention.ms": "1000", "cleanup.policy": "compact"})
        create(client, "placed", assignment={0: [1], 1: [1]})
        create(client, "gone")
        grow(client, "plain", 3)
        alter_config(client, 2, "plain", "segment.bytes", "2000000")
        alter_config(client, 2, "configured", "retention.ms", None)
        alter_config(client, 4, "", "log.retention.ms", "1000000")
        alter_config(client, 4, "1", "log.cleaner.threads", "2")
        set_quota(client, [("user", "u")], 1000.0)
        set_quota(client, [("user", None), ("client-id", "c")], 2000.0)
        set_quota(client, [("client-id", None)], 3000.0)
        ask(client, m.DeleteTopicsRequest(topic_names=["gone"], timeout_ms=15_000), 5)
        eventually(lambda: find_coordinator(client), lambda code: code == ErrorCode.NONE)
        eventually(lambda: init_producer_id(client), lambda code: code == ErrorCode.NONE)


def create(
    client: RawClient, topic: str, partitions: int = 1, assignment: dict[int, list[int]] | None = None, **configs: str
) -> None:
    kinds = m.CreateTopicsRequest.CreatableTopic
    creatable = kinds(
        name=topic,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else 1,
        assignments=[
            m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in (assignment or {}).items()
        ],
        configs=[m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    (created,) = ask(client, m.CreateTopicsRequest(topics=[creatable], timeout_ms=15_000), 5).topics
    assert created.error_code == ErrorCode.NONE, created


def grow(client: RawClient, topic: str, count: int) -> None:
    grown = m.CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    (result,) = ask(client, m.CreatePartitionsRequest(topics=[grown], timeout_ms=15_000), 2).results
    assert result.error_code == ErrorCode.NONE, result


def set_quota(client: RawClient, entity: list[tuple[str, str | None]], value: float) -> None:
    request = m.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[request.OpData(key="producer_byte_rate", value=value, remove=False)],
    )
    (result,) = ask(client, request(entries=[entry]), 1).entries
    assert result.error_code == ErrorCode.NONE, result


def find_coordinator(client: RawClient) -> int:
    return int(ask(client, m.FindCoordinatorRequest(key="g", key_type=0), 3).error_code)


def init_producer_id(client: RawClient) -> int:
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    return int(ask(client, request, 4).error_code)


def read_tree(client: KazooClient, root: str, port: int) -> dict[str, Node]:
    """Path -> what is there, with names for what must differ."""
    nodes: dict[str, Node] = {}
    pending = [root]
    while pending:
        path = pending.pop()
        data, stat = client.get(path)
        text = None if data is None else normalised(data.decode(), port)
        nodes[path.removeprefix(root)] = (text, stat.version, stat.ephemeralOwner != 0)
        pending += [f"{path}/{name}" for name in client.get_children(path)]
    return nodes


def normalised(text: str, port: int) -> str:
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text)
    return text.replace(str(port), "PORT")


def test_the_same_nodes_hold_the_same_bytes(trees: dict[str, Callable[[], dict[str, Node]]]) -> None:
    def differences() -> dict[str, Any]:
        theirs, ours = trees["kafka"](), trees["barnabas"]()
        return {
            path: (theirs.get(path), ours.get(path)) for path in theirs | ours if theirs.get(path) != ours.get(path)
        }

    eventually(differences, lambda different: not different)  # a deletion takes its time
