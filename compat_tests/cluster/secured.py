"""A cluster with TLS, logins and ACLs: what its processes and its clients need.

Brokers reach each other over SASL_SSL with SCRAM-SHA-512. Clients have a listener of SASL_SSL of their own, whose
sessions last ten seconds. ZooKeeper is reached over TLS with a DIGEST-MD5 login, and nodes are restricted. The tests
look at brokers through a listener of PLAINTEXT.
"""

import pathlib
import sys
from collections.abc import Iterator, Sequence

from barnabas.wire import messages as m
from compat_tests.clients.access import librdkafka_settings
from compat_tests.cluster.network import Network
from compat_tests.cluster.nodes import BROKER_PORT, ZOOKEEPER, party_of, write_properties
from compat_tests.secured import Certificates, access_of, scram_login
from compat_tests.secured_zookeeper import LOGIN, PASSWORD, SERVER_JAAS, USER, client_properties, server_properties

MECHANISM = "SCRAM-SHA-512"
BROKERS_PORT, PLAINTEXT_PORT, ZOOKEEPER_TLS_PORT = 9093, 9094, 2182
PORTS = {"CLIENTS": BROKER_PORT, "BROKERS": BROKERS_PORT, "LOOKING": PLAINTEXT_PORT}
PASSWORDS = {"broker": "broker-secret-7701", "writer": "writer-secret-7702"}
# The numbers of types, operations and permissions in requests.
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, ALL, IDEMPOTENT_WRITE, LITERAL, ALLOW = 2, 3, 4, 5, 2, 12, 3, 3
ALLOWED = (
    (TOPIC, "*", ALL),
    (GROUP, "*", ALL),
    (TRANSACTIONAL_ID, "*", ALL),
    (CLUSTER, "kafka-cluster", IDEMPOTENT_WRITE),
)


class Secured:
    """Certificates and files of one cluster; a network of namespaces, where every party has an address of its own."""

    def __init__(self, folder: pathlib.Path, network: Network, broker_ids: Sequence[int]) -> None:
        self._network = network
        self._broker_ids = broker_ids
        parties = [ZOOKEEPER, *map(party_of, broker_ids)]
        hosts = [network.reach_address(party, BROKER_PORT)[0] for party in parties]
        self.certificates = Certificates(folder, *hosts)
        self._key_store = self.certificates.pkcs12("zookeeper.p12", self.certificates.broker)
        server, client = folder / "server.jaas", folder / "client.jaas"
        server.write_text(SERVER_JAAS.format(user=USER, password=PASSWORD))
        client.write_text(LOGIN)
        self.zookeeper_jvm = (f"-Djava.security.auth.login.config={server}",)
        self.environment = {"KAFKA_OPTS": f"-Djava.security.auth.login.config={client}"}
        self._store_properties = write_properties(folder / "store.properties", self._zookeeper_access())

    def zookeeper_properties(self) -> dict[str, str]:
        host, port = self._network.listen_address(ZOOKEEPER, ZOOKEEPER_TLS_PORT)
        return {**server_properties(self._key_store, port), "secureClientPortAddress": host}

    def broker_properties(self, broker: int) -> dict[str, str]:
        return {
            "listeners": ",".join(f"{name}://{self._address(broker, name)}" for name in PORTS),
            "advertised.listeners": ",".join(f"{name}://{self._address(broker, name)}" for name in PORTS),
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SASL_SSL,LOOKING:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.brokers.scram-sha-512.sasl.jaas.config": jaas("broker"),
            "listener.name.clients.scram-sha-512.sasl.jaas.config": jaas("broker"),
            "connections.max.reauth.ms": "10000",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:ANONYMOUS",
            **self.certificates.pem_stores(),
            **self._zookeeper_access(),
        }

    def user_commands(self) -> Iterator[tuple[list[str], str]]:
        """The commands that write the users into ZooKeeper, each with its standard input."""
        variables = ["env", *(f"{name}={text}" for name, text in self.environment.items())]
        for user, password in PASSWORDS.items():
            options = ["--mechanism", MECHANISM, "--password-file", "-", "--config", str(self._store_properties)]
            yield [*variables, sys.executable, "-m", "barnabas", "store", "scram", "add", user, *options], password

    def acls_of_clients(self) -> m.CreateAclsRequest:
        """What the clients of the load do."""
        return m.CreateAclsRequest(
            creations=[
                m.CreateAclsRequest.AclCreation(
                    resource_type=resource_type,
                    resource_name=name,
                    resource_pattern_type=LITERAL,
                    principal="User:writer",
                    host="*",
                    operation=operation,
                    permission_type=ALLOW,
                )
                for resource_type, name, operation in ALLOWED
            ]
        )

    def client_settings(self) -> dict[str, str]:
        """Of librdkafka."""
        authority = self.certificates.trusted
        return librdkafka_settings(
            access_of(self._bootstrap(), "SASL_SSL", MECHANISM, "writer", PASSWORDS["writer"], authority)
        )

    def java_settings(self) -> dict[str, str]:
        """Of the Java client."""
        return {
            "bootstrap.servers": self._bootstrap(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas("writer"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.trusted,
        }

    def _bootstrap(self) -> str:
        return ",".join(self._address(broker, "CLIENTS") for broker in self._broker_ids)

    def _address(self, broker: int, listener: str) -> str:
        host, port = self._network.reach_address(party_of(broker), PORTS[listener])
        return f"{host}:{port}"

    def _zookeeper_access(self) -> dict[str, str]:
        host, port = self._network.reach_address(ZOOKEEPER, ZOOKEEPER_TLS_PORT)
        return {"zookeeper.connect": f"{host}:{port}", **client_properties(self.certificates)}


def jaas(user: str) -> str:
    return scram_login(user, PASSWORDS[user])
