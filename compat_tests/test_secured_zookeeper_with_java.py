"""One secured ZooKeeper for brokers of both kinds and for Kafka's own tool that changes the ACLs of nodes."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from barnabas.wire import messages as m
from compat_tests.kafka import BROKER_JVM, TOOL_JVM, KafkaProcess, java_command
from compat_tests.raw import RawClient, ask, create_topic, eventually
from compat_tests.secured import Certificates, create_scram_user
from compat_tests.secured_zookeeper import LOGIN, PASSWORD, USER, Broker, SecuredZooKeeper, properties_of
from compat_tests.zookeeper_sessions import client_of

MIGRATOR = "kafka.admin.ZkSecurityMigrator"
JAVA, OURS = 1, 2  # broker ids
RECORDS = 100

Acls = dict[str, frozenset[ACL]]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[SecuredZooKeeper]:
    server = SecuredZooKeeper(tmp_path_factory.mktemp("zookeeper"), certificates)
    server.start()
    yield server
    server.kill()


def chroot_of(properties: dict[str, str]) -> str:
    return "/" + properties["zookeeper.connect"].partition("/")[2]


def acls_of(zookeeper: SecuredZooKeeper, chroot: str) -> Acls:
    """The ACL of each persistent node, read by the user of the brokers; paths are below the chroot."""
    login = {"mechanism": "DIGEST-MD5", "username": USER, "password": PASSWORD}
    found: Acls = {}
    with client_of(zookeeper.bootstrap + chroot, sasl_options=login) as client:
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            acls, stat = client.get_acls(path)
            if not stat.ephemeralOwner:
                found[path] = frozenset(acls)
                waiting += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
    return found


def migrate(zookeeper: SecuredZooKeeper, jaas: Path, chroot: str, to: str) -> None:
    jvm = (*TOOL_JVM, f"-Djava.security.auth.login.config={jaas}")
    arguments = (f"--zookeeper.acl={to}", f"--zookeeper.connect={zookeeper.bootstrap}{chroot}")
    command = java_command(MIGRATOR, *arguments, jvm=jvm)
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def fill(broker: Broker, topic: str) -> None:
    """Have nodes of every kind that the tool knows."""
    create_topic(broker.port, topic)
    create_scram_user(broker.port, "SCRAM-SHA-256", f"user-of-{topic}", "alice-secret-1202")


def test_the_migrator_has_nothing_to_change_in_our_nodes_and_opens_them(
    zookeeper: SecuredZooKeeper, certificates: Certificates, tmp_path: Path
) -> None:
    properties = properties_of(zookeeper, certificates)
    broker = Broker(tmp_path / "broker", properties, LOGIN)
    broker.start()
    try:
        fill(broker, "letters")
    finally:
        broker.stop()
    chroot = chroot_of(properties)
    ours = acls_of(zookeeper, chroot)
    assert ours["/config/users/user-of-letters"] != ours["/brokers/topics/letters"]
    migrate(zookeeper, broker.jaas, chroot, "secure")
    after = acls_of(zookeeper, chroot)
    # The tool also creates what Kafka has and this broker does not need, as /kafka-acl without an authorizer.
    assert {path: after.get(path) for path in ours} == ours
    migrate(zookeeper, broker.jaas, chroot, "unsecure")
    opened = acls_of(zookeeper, chroot)
    assert {opened[path] for path in ("/config/users/user-of-letters", "/brokers/topics/letters")} == {
        frozenset(OPEN_ACL_UNSAFE)
    }


def test_the_migrator_restricts_an_open_cluster_of_ours(
    zookeeper: SecuredZooKeeper, certificates: Certificates, tmp_path: Path
) -> None:
    properties = properties_of(zookeeper, certificates, zookeeper_set_acl="false")
    broker = Broker(tmp_path / "open", properties, LOGIN)
    broker.start()
    try:
        fill(broker, "letters")
        chroot = chroot_of(properties)
        assert set(acls_of(zookeeper, chroot).values()) == {frozenset(OPEN_ACL_UNSAFE)}
        # While the broker runs: it goes on to write the nodes that are its user's now.
        migrate(zookeeper, broker.jaas, chroot, "secure")
        fill(broker, "during")
    finally:
        broker.stop()
    restricted = Broker(tmp_path / "restricted", properties | {"zookeeper.set.acl": "true"}, LOGIN)
    restricted.start()
    try:
        fill(restricted, "after")
        found = acls_of(zookeeper, chroot)
        for kind in ("/brokers/topics", "/config/users/user-of-"):
            separator = "/" if kind == "/brokers/topics" else ""
            migrated, created = found[f"{kind}{separator}letters"], found[f"{kind}{separator}after"]
            assert migrated == created != frozenset(OPEN_ACL_UNSAFE)
            # Created without set.acl after the tool had run: open, as Kafka's would be.
            assert found[f"{kind}{separator}during"] == frozenset(OPEN_ACL_UNSAFE)
    finally:
        restricted.kill()


def controller_of(port: int) -> int:
    with RawClient(port) as client:
        return int(ask(client, m.MetadataRequest(topics=[]), 9).controller_id)


def live_brokers(port: int) -> set[int]:
    with RawClient(port) as client:
        return {each.node_id for each in ask(client, m.MetadataRequest(topics=[]), 9).brokers}


def in_sync(port: int, topic: str) -> set[int]:
    with RawClient(port) as client:
        named = [m.MetadataRequest.MetadataRequestTopic(name=topic)]
        (found,) = ask(client, m.MetadataRequest(topics=named, allow_auto_topic_creation=False), 9).topics
    return set(found.partitions[0].isr_nodes) if found.partitions else set()


def create_replicated(port: int, topic: str) -> None:
    topics = [m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=2)]
    with RawClient(port) as client:
        (answer,) = ask(client, m.CreateTopicsRequest(topics=topics, timeout_ms=15_000), 5).topics
    assert answer.error_code == 0, answer


def write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failures: list[object] = []
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(60) == 0
    assert not failures


def read(bootstrap: str, topic: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(RECORDS, 60)]
    finally:
        consumer.close()


def test_a_broker_of_kafka_and_one_of_ours_share_a_secured_zookeeper(
    zookeeper: SecuredZooKeeper, certificates: Certificates, tmp_path: Path
) -> None:
    properties = properties_of(zookeeper, certificates, broker_id=str(OURS))
    ours = Broker(tmp_path / "ours", properties, LOGIN)
    shared = {name: value for name, value in properties.items() if name.startswith("zookeeper.")}
    java = KafkaProcess(
        tmp_path / "java",
        zookeeper=zookeeper,
        jvm=(*BROKER_JVM, f"-Djava.security.auth.login.config={ours.jaas}"),
        **{**shared, "broker.id": JAVA},
    )
    expected = [str(number).encode() for number in range(RECORDS)]
    try:
        java.start()
        ours.start()
        eventually(lambda: live_brokers(ours.port), lambda found: found == {JAVA, OURS})
        assert controller_of(ours.port) == JAVA
        create_replicated(java.port, "of-java")
        create_scram_user(java.port, "SCRAM-SHA-256", "user-of-java", "alice-secret-1202")
        eventually(lambda: in_sync(ours.port, "of-java"), lambda found: found == {JAVA, OURS})
        write(java.bootstrap, "of-java")

        # Ours becomes the controller, and changes the nodes that Kafka has created.
        assert java.stop() in (0, 143)
        eventually(lambda: controller_of(ours.port), lambda found: found == OURS)
        eventually(lambda: in_sync(ours.port, "of-java"), lambda found: found == {OURS})
        assert read(f"127.0.0.1:{ours.port}", "of-java") == expected
        java.start()
        eventually(lambda: in_sync(ours.port, "of-java"), lambda found: found == {JAVA, OURS})
        create_replicated(ours.port, "of-ours")
        create_scram_user(ours.port, "SCRAM-SHA-256", "user-of-ours", "alice-secret-1202")
        eventually(lambda: in_sync(java.port, "of-ours"), lambda found: found == {JAVA, OURS})
        write(f"127.0.0.1:{ours.port}", "of-ours")

        # And Kafka those of ours.
        ours.stop()
        eventually(lambda: controller_of(java.port), lambda found: found == JAVA)
        eventually(lambda: in_sync(java.port, "of-ours"), lambda found: found == {JAVA})
        assert read(java.bootstrap, "of-ours") == expected

        found = acls_of(zookeeper, chroot_of(properties))
        for of_java, of_ours in (
            ("/brokers/topics/of-java", "/brokers/topics/of-ours"),
            ("/brokers/topics/of-java/partitions/0/state", "/brokers/topics/of-ours/partitions/0/state"),
            ("/config/topics/of-java", "/config/topics/of-ours"),
            ("/config/users/user-of-java", "/config/users/user-of-ours"),
        ):
            assert found[of_java] == found[of_ours] != frozenset(OPEN_ACL_UNSAFE)
    finally:
        ours.kill()
        java.kill()
