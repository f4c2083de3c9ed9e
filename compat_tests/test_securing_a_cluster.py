"""A running cluster in clear text is secured as docs/security.md says, and later its certificate and the password that
brokers log in with are replaced, while clients write without a failure."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from cryptography.x509 import load_pem_x509_certificate

from compat_tests.kafka import ZooKeeperProcess
from compat_tests.raw import eventually
from compat_tests.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    PASSWORD,
    USER,
    Certificates,
    SecuredBroker,
    create_scram_user,
    scram_login,
)
from compat_tests.test_rolling_upgrade import TOPICS, Load
from compat_tests.test_secured import serial_number

MECHANISM = "SCRAM-SHA-512"
CLEAR, SECURED = "PLAINTEXT", "SECURED"
SESSION_MS = 6000
SECONDS_MAX = 60.0
NEXT_ADMIN, NEXT_ADMIN_PASSWORD = "next-admin", "next-admin-secret-8732"
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{ADMIN};User:{NEXT_ADMIN}",
    "allow.everyone.if.no.acl.found": "true",
}


LOGIN = "listener.name.secured.scram-sha-512.sasl.jaas.config"


class Cluster:
    """Three brokers, which are restarted one after the other with other properties."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess) -> None:
        self.certificates = Certificates(folder / "certificates")
        self.brokers = [self._broker(folder, zookeeper, number) for number in (1, 2, 3)]
        self._secured_addresses = ",".join(broker.at(SECURED) for broker in self.brokers)
        for broker in self.brokers:
            listen(broker, CLEAR)
            broker.start()

    def _broker(self, folder: Path, zookeeper: ZooKeeperProcess, number: int) -> SecuredBroker:
        properties = {
            "broker.id": number,
            "zookeeper.connect": zookeeper.bootstrap,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "inter.broker.listener.name": CLEAR,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "listener.name.secured.sasl.enabled.mechanisms": MECHANISM,
            LOGIN: scram_login(ADMIN, ADMIN_PASSWORD),
            **self.certificates.pem_stores(),
        }
        return SecuredBroker(folder / f"broker-{number}", {CLEAR: "PLAINTEXT", SECURED: "SASL_SSL"}, properties)

    def restart_each(self, *listeners: str, load: Load, **properties: str) -> None:
        """A rolling restart with these listeners and properties; each broker is in sync again before the next stops."""
        for broker in self.brokers:
            assert broker.stop() == 0
            listen(broker, *listeners)
            broker.settings |= properties
            broker.restart()
            load.await_progress()
            eventually(lambda: self.in_sync(listeners[-1]), lambda counts: counts == {3})

    def in_sync(self, listener: str) -> set[int]:
        topics = self.admin(listener).list_topics(timeout=20).topics
        return {len(row.isrs) for name in TOPICS for row in topics[name].partitions.values()}

    def admin(self, listener: str, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> AdminClient:
        return AdminClient(self.client(listener, user, password))

    def client(self, listener: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
        if listener == CLEAR:
            return {"bootstrap.servers": ",".join(broker.at(CLEAR) for broker in self.brokers)}
        return {
            "bootstrap.servers": self._secured_addresses,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.certificates.trusted,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
        }

    def load(self, listener: str) -> Load:
        settings = self.client(listener)
        return Load(settings.pop("bootstrap.servers"), **settings)


def listen(broker: SecuredBroker, *names: str) -> None:
    """The broker has these of its listeners from its next start on."""
    protocols = {CLEAR: "PLAINTEXT", SECURED: "SASL_SSL"}
    broker.settings["listeners"] = ",".join(f"{name}://{broker.at(name)}" for name in names)
    broker.settings["listener.security.protocol.map"] = ",".join(f"{name}:{protocols[name]}" for name in names)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=500).start()
    made = None
    try:
        made = Cluster(tmp_path, zookeeper)
        yield made
    finally:
        for broker in made.brokers if made else ():
            broker.kill()
        zookeeper.kill()


def test_a_running_cluster_is_secured_without_an_interruption(cluster: Cluster) -> None:
    in_clear = AdminClient(cluster.client(CLEAR))
    eventually(lambda: len(in_clear.list_topics(timeout=20).brokers), lambda count: count == 3)
    for created in in_clear.create_topics([NewTopic(name, 1, 3) for name in TOPICS]).values():
        created.result(SECONDS_MAX)
    for user, password in ((ADMIN, ADMIN_PASSWORD), (NEXT_ADMIN, NEXT_ADMIN_PASSWORD), (USER, PASSWORD)):
        create_scram_user(cluster.brokers[0].ports[CLEAR], MECHANISM, user, password)
    with ExitStack() as loads:
        with cluster.load(CLEAR) as old:
            old.await_progress()
            cluster.restart_each(CLEAR, SECURED, load=old)
            cluster.restart_each(CLEAR, SECURED, load=old, **{"inter.broker.listener.name": SECURED})
            new = loads.enter_context(cluster.load(SECURED))
            new.await_progress()
        assert old.failures == []
        cluster.restart_each(SECURED, load=new, **AUTHORIZER)
        allow_writes(cluster.admin(SECURED))
        new.await_progress()
        # The file is read at the restart. The password has a user of its own, as brokers know only one of each.
        renewed = cluster.certificates.issue("localhost", "127.0.0.1")
        cluster.certificates.pem("broker.pem", renewed)
        cluster.restart_each(SECURED, load=new, **{LOGIN: scram_login(NEXT_ADMIN, NEXT_ADMIN_PASSWORD)})
        delete_scram_user(cluster.admin(SECURED, NEXT_ADMIN, NEXT_ADMIN_PASSWORD), ADMIN)
        new.await_progress()
    assert new.failures == []
    certificate = load_pem_x509_certificate(renewed.cert_chain_pems[0].bytes())
    shown = {serial_number(broker, cluster.certificates, SECURED) for broker in cluster.brokers}
    assert shown == {certificate.serial_number}
    with cluster.load(SECURED) as allowed:
        allowed.await_progress()
    assert not any("Traceback" in broker.log_text() for broker in cluster.brokers)


def delete_scram_user(admin: AdminClient, user: str) -> None:
    deletion = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)
    for deleted in admin.alter_user_scram_credentials([deletion]).values():
        deleted.result(SECONDS_MAX)


def allow_writes(admin: AdminClient) -> None:
    """The user may write to the topics; other users, but for super users, may not any more."""
    acls = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in (
            *((ResourceType.TOPIC, topic, AclOperation.WRITE) for topic in TOPICS),
            (ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
        )
    ]
    for created in admin.create_acls(acls).values():
        created.result(SECONDS_MAX)
