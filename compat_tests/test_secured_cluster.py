"""Three brokers that reach each other over SASL_SSL with SCRAM, whose users are in ZooKeeper before the first start."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from compat_tests.clients.confluent_kafka import secured_client as with_confluent
from compat_tests.kafka import KafkaProcess, ZooKeeperProcess, free_port
from compat_tests.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    PASSWORD,
    USER,
    Certificates,
    SecuredBroker,
    access_of,
    jaas,
    write_user,
)
from compat_tests.test_secured import SECONDS_MAX, write_and_read

MECHANISM = "SCRAM-SHA-512"
BROKERS = (1, 2, 3)


class SecuredKafka(KafkaProcess):
    """Apache Kafka with the same properties, and a listener of PLAINTEXT that shows when it is ready."""

    def __init__(self, directory: Path, listeners: Mapping[str, str], properties: Mapping[str, str | int]) -> None:
        directory.mkdir()
        model = SecuredBroker(directory / "model", listeners, properties)
        super().__init__(directory, zookeeper=ZooKeeperProcess(directory))
        self.ports, self.port = model.ports, free_port()
        plain = f"PLAINTEXT://127.0.0.1:{self.port}"
        self.settings = {name: str(text) for name, text in model.settings.items() if name != "log.dirs"}
        self.settings["listeners"] = f"{plain},{model.settings['listeners']}"
        self.settings["listener.security.protocol.map"] += ",PLAINTEXT:PLAINTEXT"
        self.at = model.at


@pytest.fixture(params=["barnabas", "kafka"])
def brokers(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path
) -> Iterator[dict[int, SecuredBroker | SecuredKafka]]:
    """The first broker, which controls the cluster, is of this kind; the others are Barnabas."""
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper").start()
    made: dict[int, SecuredBroker | SecuredKafka] = {}
    try:
        write_user(zookeeper.bootstrap, MECHANISM, ADMIN, ADMIN_PASSWORD)
        write_user(zookeeper.bootstrap, MECHANISM, USER, PASSWORD)
        for number in BROKERS:
            properties = {
                **certificates.pem_stores(),
                **jaas("INSIDE"),
                **jaas("OUTSIDE"),
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                "broker.id": number,
                "zookeeper.connect": zookeeper.bootstrap,
                "zookeeper.connection.timeout.ms": 60_000,
                "default.replication.factor": 3,
                "min.insync.replicas": 2,
                "connections.max.reauth.ms": 4000,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": f"User:{ADMIN}",
                "allow.everyone.if.no.acl.found": "true",
            }
            listeners = {"INSIDE": "SASL_SSL", "OUTSIDE": "SASL_SSL"}
            kind = SecuredKafka if number == 1 and request.param == "kafka" else SecuredBroker
            made[number] = kind(tmp_path / f"broker-{number}", listeners, properties)
        made[1].start()
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda each: each.start(), [made[2], made[3]]))
        yield made
    finally:
        for each in made.values():
            each.kill()
        zookeeper.kill()


def test_brokers_log_in_to_each_other(
    brokers: dict[int, SecuredBroker | SecuredKafka], certificates: Certificates
) -> None:
    bootstrap = ",".join(each.at("OUTSIDE") for each in brokers.values())
    access = access_of(bootstrap, "SASL_SSL", MECHANISM, authority=certificates.trusted)
    admin = confluent_kafka.admin.AdminClient(with_confluent.settings_of(access))
    until = time.monotonic() + SECONDS_MAX
    while len(admin.list_topics(timeout=10).brokers) < len(BROKERS) and time.monotonic() < until:
        time.sleep(0.1)  # the pace of looking
    topic = confluent_kafka.admin.NewTopic("replicated", num_partitions=3, replication_factor=3)
    for future in admin.create_topics([topic]).values():
        future.result(SECONDS_MAX)
    write_and_read("confluent-kafka", access, "replicated")
    # Sessions between brokers end after 4 s, so these logins are not the first.
    producer = confluent_kafka.Producer({**with_confluent.settings_of(access), "acks": "all"})
    failed: list[Any] = []
    until = time.monotonic() + 10
    while time.monotonic() < until:
        producer.produce("replicated", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.05)  # the pace of a quiet producer
    # One broker is away, and returns: it catches up over the same listener.
    brokers[3].stop()
    producer.produce("replicated", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(SECONDS_MAX) == 0
    brokers[3].start()
    until = time.monotonic() + SECONDS_MAX
    while not all_in_sync(admin) and time.monotonic() < until:
        time.sleep(0.1)  # the pace of looking
    assert all_in_sync(admin)
    assert failed == []
    for each in brokers.values():
        text = each.log_text().lower()
        assert "failed authentication" not in text
        assert "cannot log in" not in text
        assert ADMIN_PASSWORD not in text


def all_in_sync(admin: Any) -> bool:
    partitions = admin.list_topics("replicated", timeout=10).topics["replicated"].partitions.values()
    return all(len(each.isrs) == len(BROKERS) for each in partitions)
