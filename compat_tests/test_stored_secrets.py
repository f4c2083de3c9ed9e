"""Credentials and passwords in the metadata store: written before the first start, and exchanged with Apache Kafka."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from cryptography import x509

from compat_tests.brokers import run_barnabas
from compat_tests.clients.access import Access
from compat_tests.clients.confluent_kafka import secured_client as with_confluent
from compat_tests.kafka import ZooKeeperProcess, run_java_tool
from compat_tests.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    PASSWORD,
    PLAIN_MODULE,
    STORE_PASSWORD,
    USER,
    Certificates,
    SecuredBroker,
    access_of,
    scram_login,
)
from compat_tests.test_secured import serial_number, write_and_read
from compat_tests.test_secured_cluster import SecuredKafka

SECONDS_MAX = 60.0
SECRET, NEW_SECRET = "encoder-secret-2201", "encoder-secret-2202"
LISTENERS = {"BROKERS": "PLAINTEXT", "LATER": "SASL_PLAINTEXT"}
MECHANISM = "listener.name.{}.plain.sasl.jaas.config"
SALTED = re.compile(r"SCRAM-SHA-\d+=salt=[^,]+,stored_key=[^,]+,server_key=[^,]+,iterations=4096")


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path / "zookeeper").start()
    yield server
    server.kill()


def access_to(broker: SecuredBroker | SecuredKafka, mechanism: str, password: str, listener: str = "LATER") -> Access:
    return access_of(broker.at(listener), "SASL_PLAINTEXT", mechanism, password=password)


def is_let_in(access: Access) -> bool:
    admin = confluent_kafka.admin.AdminClient(with_confluent.settings_of(access))
    try:
        admin.list_topics(timeout=5)
    except confluent_kafka.KafkaException:
        return False
    return True


# -- SCRAM credentials before the first start


def scram(command: str, *arguments: str, password: str | None = None) -> str:
    given = () if password is None else ("--password-file", "-")
    ran = run_barnabas("store", "scram", command, *arguments, *given, stdin=password)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_the_first_login_at_a_new_broker_is_by_scram(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    store = ("--data-dir", str(directory / "data"))
    scram("add", ADMIN, *store, password=ADMIN_PASSWORD)
    scram("add", USER, *store, password=PASSWORD)
    own = scram_login(ADMIN, ADMIN_PASSWORD)
    properties = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.later.scram-sha-256.sasl.jaas.config": own,
        "listener.name.later.scram-sha-512.sasl.jaas.config": own,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN}",
        "allow.everyone.if.no.acl.found": "true",
    }
    with SecuredBroker(directory, {"LATER": "SASL_PLAINTEXT"}, properties) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            write_and_read("confluent-kafka", access_to(broker, mechanism, PASSWORD), mechanism.lower())
            assert not is_let_in(access_to(broker, mechanism, "wrong-password-9"))
        assert broker.stop() == 0
        scram("add", USER, *store, "--mechanism", "SCRAM-SHA-256", password="another-secret-1")
        scram("remove", USER, *store, "--mechanism", "SCRAM-SHA-512")
        broker.start()
        assert is_let_in(access_to(broker, "SCRAM-SHA-256", "another-secret-1"))
        assert not is_let_in(access_to(broker, "SCRAM-SHA-256", PASSWORD))
        assert not is_let_in(access_to(broker, "SCRAM-SHA-512", PASSWORD))


def test_credentials_are_those_of_kafkas_tool(zookeeper: ZooKeeperProcess) -> None:
    def kafkas(*arguments: str) -> str:
        tool = ("--zookeeper", f"{zookeeper.bootstrap}/castle", "--entity-type", "users", *arguments)
        return run_java_tool("kafka.admin.ConfigCommand", *tool).stdout

    # Ours is the first program that writes into this chroot.
    store = ("--zookeeper", f"{zookeeper.bootstrap}/castle")
    scram("add", "a/b=c", *store, password=PASSWORD)
    described = kafkas("--describe", "--entity-name", "a/b=c")
    assert len(SALTED.findall(described)) == 2, described
    # And Kafka's tool writes what ours lists and leaves alone.
    kafkas("--alter", "--entity-name", "klamm", "--add-config", f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}]")
    listed = [tuple(row.values()) for row in json.loads(scram("list", *store, "--json"))]
    assert listed == [
        ("a/b=c", "SCRAM-SHA-256", 4096),
        ("a/b=c", "SCRAM-SHA-512", 4096),
        ("klamm", "SCRAM-SHA-512", 8192),
    ]
    scram("remove", "a/b=c", *store)
    assert "SCRAM" not in kafkas("--describe", "--entity-name", "a/b=c")
    assert "iterations=8192" in kafkas("--describe", "--entity-name", "klamm")


# -- passwords


def jaas(password: str) -> str:
    return f'{PLAIN_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}" user_{USER}="{password}";'


def alter(broker: SecuredBroker | SecuredKafka, **texts: str) -> None:
    module = confluent_kafka.admin
    admin = module.AdminClient({"bootstrap.servers": broker.at("BROKERS")})
    entries = [
        module.ConfigEntry(name, text, incremental_operation=module.AlterConfigOpType.SET)
        for name, text in texts.items()
    ]
    resource = module.ConfigResource(module.ConfigResource.Type.BROKER, "1", incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS_MAX)


def stored(zookeeper: ZooKeeperProcess) -> dict[str, str]:
    """The properties of broker 1 in ZooKeeper."""
    exported = json.loads(run_barnabas("store", "export", "--zookeeper", zookeeper.bootstrap).stdout)["nodes"]
    texts: list[dict[str, str]] = [each["json"]["config"] for each in exported if each["path"] == "/config/brokers/1"]
    return texts[0]


def test_a_key_store_with_another_password_is_taken_and_kept(tmp_path: Path) -> None:
    certificates, prefix = Certificates(tmp_path / "certificates"), "listener.name.tls.ssl.keystore."
    names = {"common_name": "broker", "organization_name": "Castle", "organization_unit_name": "Brokers"}
    leaves = [certificates.issue("localhost", "127.0.0.1", **names) for _ in range(2)]
    numbers = [x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number for leaf in leaves]
    properties = {
        "broker.id": 1,
        "password.encoder.secret": SECRET,
        f"{prefix}type": "PKCS12",
        f"{prefix}location": certificates.pkcs12("first.p12", leaves[0]),
        f"{prefix}password": STORE_PASSWORD,
    }
    with SecuredBroker(tmp_path / "broker", {"BROKERS": "PLAINTEXT", "TLS": "SSL"}, properties) as broker:
        assert serial_number(broker, certificates, "TLS") == numbers[0]
        other = certificates.pkcs12("second.p12", leaves[1], "another-secret-3")
        with pytest.raises(confluent_kafka.KafkaException, match="Failed to load SSL keystore"):
            alter(broker, **{f"{prefix}location": other})
        alter(broker, **{f"{prefix}location": other, f"{prefix}password": "another-secret-3"})
        assert serial_number(broker, certificates, "TLS") == numbers[1]
        assert broker.stop() == 0
        assert b"another-secret-3" not in (tmp_path / "broker" / "data" / "metadata.sqlite").read_bytes()
        broker.start()
        assert serial_number(broker, certificates, "TLS") == numbers[1]
        assert not re.search(r"secret-\d", broker.log_text())


def test_passwords_in_zookeeper_are_read_by_both_brokers(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    later, third = MECHANISM.format("later"), MECHANISM.format("third")
    properties: dict[str, Any] = {
        "broker.id": 1,
        "zookeeper.connect": zookeeper.bootstrap,
        "zookeeper.connection.timeout.ms": 60_000,
        "offsets.topic.replication.factor": 1,
        "password.encoder.secret": SECRET,
        "sasl.enabled.mechanisms": "PLAIN",
    }
    # Kafka's tool writes the users of a listener before the first start.
    added = f"{later}=[{jaas(PASSWORD)}],password.encoder.secret={SECRET}"
    tool = ("--zookeeper", zookeeper.bootstrap, "--entity-type", "brokers", "--entity-name", "1", "--alter")
    wrote = run_java_tool("kafka.admin.ConfigCommand", *tool, "--add-config", added)
    assert wrote.returncode == 0, wrote.stdout + wrote.stderr
    assert stored(zookeeper)[later].count("encryptedPassword:") == 1
    with SecuredBroker(tmp_path / "ours", LISTENERS, properties) as ours:
        write_and_read("confluent-kafka", access_to(ours, "PLAIN", PASSWORD), "first")
        assert not is_let_in(access_to(ours, "PLAIN", "wrong-password-9"))
        # We write those of another listener, for Kafka.
        alter(ours, **{third: jaas("third-secret-7")})
        assert stored(zookeeper)[third].count("encryptedPassword:") == 1
        assert ours.stop() == 0
    # Another directory, and the same cluster and broker.
    kafka = SecuredKafka(tmp_path / "kafka", {**LISTENERS, "THIRD": "SASL_PLAINTEXT"}, properties)
    try:
        kafka.start()
        assert is_let_in(access_to(kafka, "PLAIN", "third-secret-7", "THIRD"))
        assert is_let_in(access_to(kafka, "PLAIN", PASSWORD))
        assert not is_let_in(access_to(kafka, "PLAIN", PASSWORD, "THIRD"))
        # Kafka encodes all passwords again with each change, each with another salt.
        before = stored(zookeeper)
        alter(kafka, **{"log.cleaner.threads": "1"})
        assert all(stored(zookeeper)[name] != before[name] for name in (later, third))
        kafka.stop()
    finally:
        kafka.kill()
    # The secret changes: what is stored is encoded again, and Kafka reads that, too.
    changed = properties | {"password.encoder.secret": NEW_SECRET, "password.encoder.old.secret": SECRET}
    with SecuredBroker(tmp_path / "new", {**LISTENERS, "THIRD": "SASL_PLAINTEXT"}, changed) as ours:
        assert is_let_in(access_to(ours, "PLAIN", "third-secret-7", "THIRD"))
        assert is_let_in(access_to(ours, "PLAIN", PASSWORD))
        assert ours.stop() == 0
    kafka.settings["password.encoder.secret"] = NEW_SECRET
    try:
        kafka.start()
        assert is_let_in(access_to(kafka, "PLAIN", "third-secret-7", "THIRD"))
    finally:
        kafka.kill()
    for text in (ours.log_text(), json.dumps(stored(zookeeper))):
        assert not re.search(r"secret-\d", text)
