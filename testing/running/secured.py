"""A listener with TLS or a login for a `LocalBroker`, and the settings with which clients reach it (edge).

The authority, the broker's certificate and the user are made for each broker. The requests of this package take another
listener, without TLS and login.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.testing.arguments import HOST
from barnabas.testing.asking import ask
from barnabas.testing.errors import LocalBrokerError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
SCRAM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
CONTROL = "CONTROL"  # the listener for this package
USER = "alice"
PASSWORD_BYTES = 12
SALT_BYTES = 16
OURS = {"listener.security.protocol.map", "inter.broker.listener.name", "security.inter.broker.protocol"}
JAAS = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_NUMBERS, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}


class Secured:
    """How clients reach one broker. The file of the authority is removed by `close`."""

    def __init__(self, protocol: str, mechanism: str) -> None:
        if protocol not in PROTOCOLS:
            raise LocalBrokerError(f"security: one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        if mechanism not in JAAS:
            raise LocalBrokerError(f"mechanism: one of {', '.join(JAAS)}, not {mechanism!r}")
        self.protocol = protocol
        self.mechanism = mechanism if protocol.startswith("SASL") else None
        self.user = USER
        self.password = os.urandom(PASSWORD_BYTES).hex()
        self._directory: TemporaryDirectory[str] | None = None
        self._stores: Mapping[str, str] = {}
        self.authority_file = ""
        if protocol.endswith("SSL"):
            self._make_certificates()

    def properties(self, port: int, control_port: int) -> Mapping[str, str]:
        """The broker's listeners, and what they need."""
        if self.protocol == "PLAINTEXT":
            return {"listeners": f"PLAINTEXT://{HOST}:{port}"}
        found = {
            "listeners": f"{self.protocol}://{HOST}:{port},{CONTROL}://{HOST}:{control_port}",
            "listener.security.protocol.map": f"{self.protocol}:{self.protocol},{CONTROL}:PLAINTEXT",
            "inter.broker.listener.name": CONTROL,
            **self._stores,
        }
        if self.mechanism is not None:
            prefix = f"listener.name.{self.protocol.lower()}"
            users = f' user_{self.user}="{self.password}"' if self.mechanism == PLAIN else ""
            login = f"{JAAS[self.mechanism]} required{users};"
            found[f"{prefix}.sasl.enabled.mechanisms"] = self.mechanism
            found[f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config"] = login
        return found

    def add_user(self, control_port: int) -> None:
        """Store the user of SCRAM, when the broker serves; those of PLAIN are properties."""
        number = SCRAM_NUMBERS.get(self.mechanism or "")
        if number is None:
            return
        from barnabas.security.sasl.scram import ITERATIONS_MIN, MECHANISMS, salted_password

        salt = os.urandom(SALT_BYTES)
        salted = salted_password(self.password.encode(), salt, ITERATIONS_MIN, MECHANISMS[number])
        row = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=self.user,
            mechanism=number,
            iterations=ITERATIONS_MIN,
            salt=salt,
            salted_password=salted,
        )
        request = m.AlterUserScramCredentialsRequest(upsertions=[row])
        (result,) = ask(control_port, request, 0, m.AlterUserScramCredentialsResponse).results
        if result.error_code:
            raise LocalBrokerError(f"user {self.user!r} cannot be added: {ErrorCode(result.error_code).name}")

    def client_config(self, client: str, bootstrap_servers: str) -> dict[str, object]:
        """The settings of one of CLIENTS that reach the broker."""
        if client not in CLIENTS:
            raise LocalBrokerError(f"client_config: one of {', '.join(CLIENTS)}, not {client!r}")
        return CLIENTS[client](self, bootstrap_servers)

    def close(self) -> None:
        """Remove the file of the authority."""
        if self._directory is not None:
            self._directory.cleanup()

    @property
    def jaas_config(self) -> str:
        """The login of a Java client."""
        assert self.mechanism is not None
        return f'{JAAS[self.mechanism]} required username="{self.user}" password="{self.password}";'

    def _make_certificates(self) -> None:
        # Few brokers of tests have TLS, and all start within milliseconds.
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from barnabas.testing.running.certificates import make_certificates

        made = make_certificates(HOST, "localhost")
        self._directory = TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        authority = Path(self._directory.name) / "authority.pem"
        authority.write_text(made.authority)
        self.authority_file = str(authority)
        self._stores = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": made.key,
            "ssl.keystore.certificate.chain": made.chain,
        }


def _properties(secured: Secured, servers: str) -> dict[str, object]:
    """What librdkafka and Java call the same."""
    found: dict[str, object] = {"bootstrap.servers": servers, "security.protocol": secured.protocol}
    if secured.mechanism is not None:
        found["sasl.mechanism"] = secured.mechanism
    return found


def _confluent_kafka(secured: Secured, servers: str) -> dict[str, object]:
    found = _properties(secured, servers)
    if secured.mechanism is not None:
        found |= {"sasl.username": secured.user, "sasl.password": secured.password}
    if secured.authority_file:
        found["ssl.ca.location"] = secured.authority_file
    return found


def _java(secured: Secured, servers: str) -> dict[str, object]:
    found = _properties(secured, servers)
    if secured.mechanism is not None:
        found["sasl.jaas.config"] = secured.jaas_config
    if secured.authority_file:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": secured.authority_file}
    return found


def _arguments(secured: Secured, servers: str) -> dict[str, object]:
    """What kafka-python and aiokafka call the same."""
    found: dict[str, object] = {"bootstrap_servers": servers, "security_protocol": secured.protocol}
    if secured.mechanism is not None:
        found["sasl_mechanism"] = secured.mechanism
        found |= {"sasl_plain_username": secured.user, "sasl_plain_password": secured.password}
    return found


def _kafka_python(secured: Secured, servers: str) -> dict[str, object]:
    found = _arguments(secured, servers)
    if secured.authority_file:
        found["ssl_cafile"] = secured.authority_file
    return found


def _aiokafka(secured: Secured, servers: str) -> dict[str, object]:
    import ssl

    found = _arguments(secured, servers)
    if secured.authority_file:
        found["ssl_context"] = ssl.create_default_context(cafile=secured.authority_file)
    return found


CLIENTS = {
    "confluent-kafka": _confluent_kafka,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "java": _java,
}
