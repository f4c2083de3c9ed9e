"""Brokers as processes with a running ZooKeeper: loss of ZooKeeper, and end of their sessions."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing.errors import LocalBrokerError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_writer import build_batch
from compat_tests.brokers import BrokerProcess, run_barnabas
from compat_tests.kafka import ZooKeeperProcess, free_port
from compat_tests.raw import RawClient, ask, eventually, produce_request
from compat_tests.zookeeper_sessions import client_of, fresh_chroot

SESSION_MS = 3000
COUNT = 3

Start = Callable[..., BrokerProcess]


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=500).start()
    yield server
    server.kill()


@pytest.fixture
def start(start_broker: Start, zookeeper: ZooKeeperProcess) -> Start:
    """Start a broker of one cluster, below a chroot that it makes."""
    where = {
        "zookeeper_connect": zookeeper.bootstrap + fresh_chroot(),
        "zookeeper_session_timeout_ms": SESSION_MS,
        "zookeeper_connection_timeout_ms": 30_000,
    }
    return lambda **settings: start_broker(**{**where, **settings})


@pytest.fixture
def brokers(start: Start) -> list[BrokerProcess]:
    started = [start(broker_id=number) for number in range(1, COUNT + 1)]
    for broker in started:
        await_brokers(broker, COUNT)
    return started


def metadata(broker: BrokerProcess, *topics: str) -> m.MetadataResponse:
    named = [m.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    with RawClient(broker.port) as client:
        found: m.MetadataResponse = ask(client, m.MetadataRequest(topics=named, allow_auto_topic_creation=False), 9)
    return found


def await_brokers(broker: BrokerProcess, count: int) -> None:
    """Until this broker knows of so many, and of a controller."""
    eventually(lambda: metadata(broker), lambda seen: len(seen.brokers) == count and seen.controller_id >= 0)


def controller(brokers: list[BrokerProcess]) -> BrokerProcess:
    return brokers[metadata(brokers[0]).controller_id - 1]


def create_topic(brokers: list[BrokerProcess], topic: str, replication_factor: int = COUNT) -> None:
    creatable = m.CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=replication_factor
    )

    def created() -> int:
        with RawClient(controller(brokers).port) as client:
            (answer,) = ask(client, m.CreateTopicsRequest(topics=[creatable], timeout_ms=15_000), 5).topics
            return int(answer.error_code)

    eventually(created, lambda code: code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))


def leadership(broker: BrokerProcess, topic: str) -> tuple[int, list[int]]:
    """Who leads the topic's partition, and who is in sync."""
    (found,) = metadata(broker, topic).topics
    if not found.partitions:
        return -1, []
    return found.partitions[0].leader_id, sorted(found.partitions[0].isr_nodes)


def produce(broker: BrokerProcess, topic: str, acks: int = -1) -> int:
    with RawClient(broker.port) as client:
        answer = ask(
            client, produce_request(topic, bytes(build_batch([(b"k", b"v")], timestamp_ms=1).data), acks=acks), 7
        )
        return int(answer.responses[0].partition_responses[0].error_code)


def test_a_cluster_outlives_its_zookeeper(brokers: list[BrokerProcess], zookeeper: ZooKeeperProcess) -> None:
    create_topic(brokers, "t")
    leader, _ = eventually(lambda: leadership(brokers[0], "t"), lambda seen: seen[1] == [1, 2, 3])
    zookeeper.kill()
    for acks in (1, -1):
        assert produce(brokers[leader - 1], "t", acks) == ErrorCode.NONE
    in_office = metadata(brokers[0]).controller_id
    zookeeper.start()
    create_topic(brokers, "after")
    eventually(lambda: leadership(brokers[0], "after"), lambda seen: seen[1] == [1, 2, 3])
    assert metadata(brokers[0]).controller_id == in_office
    assert "is over" not in "".join(broker.log_path.read_text() for broker in brokers)


def test_a_broker_whose_session_expired_comes_back(brokers: list[BrokerProcess]) -> None:
    create_topic(brokers, "t")
    for silent in brokers:  # the controller is among them
        other = brokers[silent is brokers[0]]
        subprocess.run(["kill", "-STOP", str(silent.pid)], check=True)
        await_brokers(other, COUNT - 1)
        subprocess.run(["kill", "-CONT", str(silent.pid)], check=True)
        await_brokers(other, COUNT)
        await_brokers(silent, COUNT)
        create_topic(brokers, f"after-{silent.port}")
        eventually(lambda: leadership(other, "t")[1], lambda in_sync: in_sync == [1, 2, 3])  # noqa: B023
    assert all(broker.log_path.read_text().count("it expired") == 1 for broker in brokers)


def test_a_killed_broker_that_is_started_again_waits_for_its_earlier_session(start: Start) -> None:
    broker = start(broker_id=1, zookeeper_session_timeout_ms=10_000)  # longer than a start takes on a busy machine
    broker.kill()
    broker.restart()
    assert "waiting until it is gone" in broker.log_path.read_text()
    await_brokers(broker, 1)


def test_an_id_or_an_address_that_is_taken_is_refused_at_once(start: Start, tmp_path: Path) -> None:
    first = start(broker_id=1)
    with pytest.raises(LocalBrokerError, match="broker id 1 is in use"):
        start(broker_id=1)
    listener = f"PLAINTEXT://127.0.0.1:{first.port}"
    with pytest.raises(LocalBrokerError, match=f"broker 1 is registered at 127.0.0.1:{first.port} already"):
        start(broker_id=2, advertised_listeners=listener)


def test_ids_are_given_out_where_none_is_configured(start: Start) -> None:
    ids = [start().ready_line.split("broker ")[1].split(" at ")[0] for _ in range(2)]
    assert ids == ["1001", "1002"]


def test_internal_topics_are_not_made_with_fewer_replicas_than_configured(start: Start) -> None:
    broker = start(broker_id=1)
    request = m.FindCoordinatorRequest(key="group", key_type=0)
    with RawClient(broker.port) as client:
        assert ask(client, request, 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not [topic for topic in metadata(broker, "__consumer_offsets").topics if topic.partitions]
    assert "needs 3 replicas, and 1 brokers live" in broker.log_path.read_text()


def test_a_broker_may_be_started_before_its_zookeeper(tmp_path: Path) -> None:
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper")
    zookeeper.port = free_port()
    where = {"broker.id": "1", "zookeeper.connect": f"{zookeeper.bootstrap}/later"}
    settings = [f"--set={name}={value}" for name, value in where.items()]
    command = [sys.executable, "-m", "barnabas", "serve", "--data-dir", str(tmp_path / "data"), "--listen=127.0.0.1:0"]
    impatient = run_barnabas(*command[3:], *settings, "--set=zookeeper.connection.timeout.ms=300")
    assert impatient.returncode == 1
    assert "no session within 300 ms" in impatient.stderr
    with (tmp_path / "log").open("w") as log:
        broker = subprocess.Popen([*command, *settings], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        zookeeper.start()
        assert broker.stdout is not None
        assert "ready: broker 1" in broker.stdout.readline()
        zookeeper.kill()
        broker.send_signal(signal.SIGTERM)  # which it can do without
        assert broker.wait(20) == 0
    finally:
        zookeeper.kill()
        broker.kill()
        broker.communicate()


def test_a_session_that_another_closes_is_replaced(start: Start, zookeeper: ZooKeeperProcess) -> None:
    connect = zookeeper.bootstrap + fresh_chroot()
    broker = start(broker_id=1, zookeeper_connect=connect)
    with client_of(connect) as witness:
        _, before = witness.get("/brokers/ids/1")
        witness.delete("/controller")
        eventually(lambda: witness.exists("/controller"), bool)
        assert metadata(broker).controller_id == 1
        assert witness.exists("/brokers/ids/1").czxid == before.czxid


def test_one_broker_becomes_three_without_losing_anything(
    start_broker: Start, start: Start, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    alone = start_broker(offsets_topic_num_partitions=1)
    bootstrap = {"bootstrap.servers": alone.bootstrap}
    producer = Producer(bootstrap)
    for number in range(10):
        producer.produce("t", b"%d" % number)
    producer.flush()
    consumer = Consumer({**bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    consumer.close()
    assert alone.stop() == 0
    chroot = zookeeper.bootstrap + fresh_chroot()
    nodes = str(tmp_path / "nodes.json")
    assert run_barnabas("store", "export", "--data-dir", str(alone.data_dir), nodes).returncode == 0
    assert run_barnabas("store", "import", "--zookeeper", chroot, nodes).returncode == 0

    first = BrokerProcess(alone.directory, zookeeper_connect=chroot, zookeeper_session_timeout_ms=SESSION_MS).start()
    others = [start(broker_id=number, zookeeper_connect=chroot) for number in (1, 2)]
    await_brokers(others[0], COUNT)
    replicas = [1, 2, int(first.ready_line.split("broker ")[1].split(" at ")[0])]
    for topic in ("t", "__consumer_offsets"):
        move(others[0], topic, replicas)
    for topic in ("t", "__consumer_offsets"):
        eventually(lambda: leadership(others[0], topic)[1], lambda in_sync: in_sync == replicas)  # noqa: B023
    first.kill()
    shutil.rmtree(first.data_dir)
    await_brokers(others[0], COUNT - 1)
    reader = Consumer({"bootstrap.servers": others[0].bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    assert reader.committed([TopicPartition("t", 0)], timeout=20)[0].offset == 7
    reader.assign([TopicPartition("t", 0, 0)])
    read: list[Any] = []
    while len(read) < 10:
        message = reader.poll(20)
        assert message is not None
        assert message.error() is None
        read.append(message.value())
    assert read == [b"%d" % number for number in range(10)]
    reader.close()


def test_committed_offsets_outlive_the_directory_of_any_broker(
    start_broker: Start, zookeeper: ZooKeeperProcess
) -> None:
    connect = zookeeper.bootstrap + fresh_chroot()  # beside id, listener and directory the only setting
    brokers = [start_broker(broker_id=number, zookeeper_connect=connect) for number in range(1, COUNT + 1)]
    for broker in brokers:
        await_brokers(broker, COUNT)
    create_topic(brokers, "t", replication_factor=1)
    groups = [f"group-{number}" for number in range(8)]  # in several partitions of __consumer_offsets
    commit(brokers, groups, 1)
    for turn, lost in enumerate(brokers, 1):
        eventually(lambda: in_sync_everywhere(brokers[0], "__consumer_offsets"), bool)
        lost.kill()
        shutil.rmtree(lost.data_dir)
        others = [broker for broker in brokers if broker is not lost]
        await_brokers(others[0], COUNT - 1)
        assert committed(others, groups) == [turn] * len(groups)
        lost.restart()
        commit(brokers, groups, turn + 1)
    eventually(lambda: in_sync_everywhere(brokers[0], "__consumer_offsets"), bool)
    assert committed(brokers, groups) == [COUNT + 1] * len(groups)
    assert all("__consumer_offsets-0" in {path.name for path in broker.data_dir.iterdir()} for broker in brokers)


def in_sync_everywhere(broker: BrokerProcess, topic: str) -> bool:
    """Whether each partition of the topic has all brokers in sync."""
    (found,) = metadata(broker, topic).topics
    return all(sorted(partition.isr_nodes) == [1, 2, 3] for partition in found.partitions)


def member(brokers: list[BrokerProcess], group: str) -> Consumer:
    return Consumer({"bootstrap.servers": ",".join(broker.bootstrap for broker in brokers), "group.id": group})


def commit(brokers: list[BrokerProcess], groups: list[str], offset: int) -> None:
    for group in groups:
        consumer = member(brokers, group)
        (kept,) = consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        assert kept.error is None
        consumer.close()


def committed(brokers: list[BrokerProcess], groups: list[str]) -> list[int]:
    """The committed offset of each group, as these brokers respond."""
    offsets = []
    for group in groups:
        consumer = member(brokers, group)
        offsets.append(consumer.committed([TopicPartition("t", 0)], timeout=30)[0].offset)
        consumer.close()
    return offsets


def move(broker: BrokerProcess, topic: str, replicas: list[int]) -> None:
    """Give the topic's partition these replicas."""
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=replicas)
    moved = request(topics=[request.ReassignableTopic(name=topic, partitions=[partition])], timeout_ms=15_000)

    def code() -> int:
        found = metadata(broker)
        (in_office,) = [each for each in found.brokers if each.node_id == found.controller_id]
        with RawClient(in_office.port) as client:
            answer = ask(client, moved, 0)
            return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    eventually(code, lambda code: code == ErrorCode.NONE)
