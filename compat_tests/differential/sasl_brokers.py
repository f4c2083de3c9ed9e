"""A broker of Apache Kafka and one of Barnabas with the same listeners, mechanisms and users."""

import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from compat_tests.differential.sasl_side import AGAIN, DELAY_MS, LOGIN, REAUTH_MS, SaslSide
from compat_tests.kafka import SINGLE_BROKER, KafkaProcess, free_port
from compat_tests.secured import PASSWORD, USER, SecuredBroker, create_scram_user, jaas

OPEN = "PLAINTEXT"
PROTOCOLS = {OPEN: "PLAINTEXT", LOGIN: "SASL_PLAINTEXT", AGAIN: "SASL_PLAINTEXT"}
# Users of SCRAM; their password is PASSWORD.
SCRAM_USERS = (USER, "a=b,c", "käthe")
SETTINGS = {
    **SINGLE_BROKER,
    "connection.failed.authentication.delay.ms": str(DELAY_MS),
    "offsets.topic.num.partitions": "3",
    f"listener.name.{AGAIN.lower()}.connections.max.reauth.ms": str(REAUTH_MS),
    **jaas(LOGIN),
    **jaas(AGAIN),
}


class SaslBrokers:
    """Both brokers; the caller must close them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.barnabas = SecuredBroker(directory / "barnabas", PROTOCOLS, SETTINGS)
        self.kafka = KafkaProcess(directory / "kafka")
        ports = {name: free_port() for name in PROTOCOLS}
        self.kafka.port = ports[OPEN]
        self.kafka.settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
            "inter.broker.listener.name": OPEN,
            **SETTINGS,
        }
        self._ports = {"kafka": ports, "barnabas": self.barnabas.ports}
        self._directory = directory

    def start(self) -> None:
        """Start both at the same time, and create the users of SCRAM."""
        starts: list[Any] = [self.kafka.start, self.barnabas.start]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda start: start(), starts))
        for ports in self._ports.values():
            for user in SCRAM_USERS:
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                    create_scram_user(ports[OPEN], mechanism, user, PASSWORD)

    def ports(self, kind: str) -> dict[str, int]:
        """The ports of a broker, by listener."""
        return self._ports[kind]

    def sides(self, scenario: str) -> dict[str, SaslSide]:
        return {
            kind: SaslSide(kind, ports, ports[OPEN], self._directory / kind, scenario)
            for kind, ports in self._ports.items()
        }

    def close(self) -> None:
        self.kafka.close()
        self.barnabas.kill()
