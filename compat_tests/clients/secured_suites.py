"""Clients' own tests of TLS, logins and ACLs, at three brokers that have all of these.

The set-up is what such tests commonly want: a listener of every protocol that clients use, one listener more that asks
for a client's certificate, every mechanism, and an authorizer whose only super user is the login of the brokers. A
resource that no ACL names is open to everybody.
"""

import pathlib
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from barnabas.wire import messages as m
from compat_tests.clients.client import SecuredBrokers
from compat_tests.clients.secured import SCRAM_MECHANISMS
from compat_tests.kafka import ZooKeeperProcess
from compat_tests.raw import RawClient, ask, eventually
from compat_tests.secured import PASSWORD, USER, Certificates, SecuredBroker, jaas, scram_login, write_user

SUITE = "suite"  # instead of the name of a listener
BROKERS = 3
INTER_BROKER, INTER_BROKER_PASSWORD = "broker", "broker-secret-3341"
INTER_BROKER_MECHANISM = "SCRAM-SHA-512"
LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "BROKERS": "SASL_SSL",
}


@contextmanager
def secured_brokers(certificates_folder: pathlib.Path) -> Iterator[SecuredBrokers]:
    """Three brokers; nothing of theirs is kept."""
    certificates = Certificates(certificates_folder)
    with tempfile.TemporaryDirectory(prefix="secured-brokers-") as name, ExitStack() as stack:
        folder = pathlib.Path(name)
        zookeeper = ZooKeeperProcess(folder / "zookeeper").start()
        stack.callback(zookeeper.kill)
        brokers = [_broker(folder, certificates, zookeeper.bootstrap, number) for number in range(1, BROKERS + 1)]
        write_user(zookeeper.bootstrap, INTER_BROKER_MECHANISM, INTER_BROKER, INTER_BROKER_PASSWORD)
        for mechanism in SCRAM_MECHANISMS:
            write_user(zookeeper.bootstrap, mechanism, USER, PASSWORD)
        for broker in brokers:
            stack.callback(broker.kill)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: broker.start(), brokers))
        for broker in brokers:
            eventually(lambda port=broker.ports["PLAINTEXT"]: _known_at(port), lambda known: known == BROKERS)
        yield SecuredBrokers(
            ports={name: [broker.ports[name] for broker in brokers] for name in LISTENERS},
            authority=certificates.trusted,
            certificate=certificates.client_certificate,
            key=certificates.client_key,
            username=USER,
            password=PASSWORD,
        )


def _known_at(port: int) -> int:
    """How many brokers this one knows of."""
    with RawClient(port) as client:
        return len(ask(client, m.MetadataRequest(topics=[]), 9).brokers)


def _broker(folder: pathlib.Path, certificates: Certificates, zookeeper: str, number: int) -> SecuredBroker:
    own = scram_login(INTER_BROKER, INTER_BROKER_PASSWORD)
    properties = {
        **certificates.pem_stores(),
        **jaas("SASL_PLAINTEXT"),
        **jaas("SASL_SSL"),
        "listener.name.mtls.ssl.client.auth": "required",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": INTER_BROKER_MECHANISM,
        "listener.name.brokers.sasl.enabled.mechanisms": INTER_BROKER_MECHANISM,
        f"listener.name.brokers.{INTER_BROKER_MECHANISM.lower()}.sasl.jaas.config": own,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{INTER_BROKER}",
        "allow.everyone.if.no.acl.found": "true",
        "broker.id": number,
        "zookeeper.connect": zookeeper,
        "zookeeper.connection.timeout.ms": 60_000,
        "default.replication.factor": BROKERS,
        "offsets.topic.replication.factor": BROKERS,
        "transaction.state.log.replication.factor": BROKERS,
        "transaction.state.log.min.isr": 2,
    }
    return SecuredBroker(folder / f"broker-{number}", LISTENERS, properties)
