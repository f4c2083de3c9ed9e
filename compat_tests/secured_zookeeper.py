"""A ZooKeeper with TLS and a DIGEST-MD5 login, and brokers that use it so."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from barnabas.testing.running.child import BrokerChild
from compat_tests.kafka import TOOL_JVM, ZooKeeperProcess, free_port
from compat_tests.secured import STORE_PASSWORD, Certificates

USER, PASSWORD = "kafka", "zookeeper-secret-3306"
SESSION_MS = 3000
SERVER_JAAS = """Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{user}="{password}";
}};
"""
CLIENT_JAAS = """Client {{
  org.apache.zookeeper.server.auth.DigestLoginModule required username="{user}" password="{password}";
}};
"""
LOGIN = CLIENT_JAAS.format(user=USER, password=PASSWORD)


def server_properties(key_store: str, tls_port: int) -> dict[str, str]:
    """Of a server that takes TLS at this port, and logins."""
    return {
        "secureClientPort": str(tls_port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": key_store,
        "ssl.keyStore.password": STORE_PASSWORD,
        "ssl.keyStore.type": "PKCS12",
        "ssl.clientAuth": "none",
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }


class SecuredZooKeeper(ZooKeeperProcess):
    """A ZooKeeper with a port for TLS beside the other one, whose clients may log in."""

    def __init__(self, folder: Path, certificates: Certificates, **more: str) -> None:
        jaas = folder / "server.jaas"
        folder.mkdir(parents=True, exist_ok=True)
        jaas.write_text(SERVER_JAAS.format(user=USER, password=PASSWORD))
        super().__init__(folder, 500, jvm=(*TOOL_JVM, f"-Djava.security.auth.login.config={jaas}"))
        self.tls_port = free_port()
        self._more = {name.replace("_", "."): value for name, value in more.items()}
        self._key_store = certificates.pkcs12("zookeeper.p12", certificates.broker)

    @property
    def over_tls(self) -> str:
        return f"localhost:{self.tls_port}"

    def _properties(self) -> dict[str, str]:
        return {**super()._properties(), **server_properties(self._key_store, self.tls_port), **self._more}


class Broker(BrokerChild):
    """A broker with a JAAS file."""

    def __init__(self, folder: Path, properties: Mapping[str, str], jaas: str, *options: str) -> None:
        folder.mkdir()
        self.options = options
        self.jaas = folder / "client.jaas"
        self.jaas.write_text(jaas)
        super().__init__(folder / "data", properties, folder / "stderr.log")

    def program(self) -> list[str]:
        options = " ".join((f"-Djava.security.auth.login.config={self.jaas}", *self.options))
        return ["env", f"KAFKA_OPTS={options}", sys.executable, "-m", "barnabas"]


def properties_of(zookeeper: SecuredZooKeeper, certificates: Certificates, **more: str) -> dict[str, str]:
    return {
        "broker.id": "1",
        "zookeeper.connect": f"{zookeeper.over_tls}/{time.time_ns()}",
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        # ZooKeeper's first handshakes may take seconds, when its machine is cold and the processor is shared.
        "zookeeper.connection.timeout.ms": "20000",
        **client_properties(certificates),
        "offsets.topic.replication.factor": "1",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def client_properties(certificates: Certificates) -> dict[str, str]:
    """How a broker connects."""
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.location": certificates.trusted,
        "zookeeper.ssl.protocol": "TLSv1.3",
        "zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "zookeeper.set.acl": "true",
    }
