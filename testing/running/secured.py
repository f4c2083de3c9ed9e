"""Listeners with TLS or a login for a `LocalBroker` or a `LocalCluster`, and how clients reach them (edge).

The authority, the certificates and the user are made for each broker, or for all brokers of a cluster. The requests of
this package take another listener, without TLS and login.
"""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from barnabas.testing.arguments import HOST
from barnabas.testing.asking import ask
from barnabas.testing.errors import LocalBrokerError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from barnabas.broker.call import Broker

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
SCRAM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
CONTROL = "CONTROL"  # the listener for this package
USER = "alice"
PASSWORD_BYTES = 12
SALT_BYTES = 16
OURS = {"listener.security.protocol.map", "inter.broker.listener.name", "security.inter.broker.protocol"}
NAME_CHARACTERS_MAX = 64  # of the common name in a certificate (RFC 5280)
JAAS = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_NUMBERS, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}


class Secured:
    """How clients reach the brokers. The files for them are removed by `close`."""

    def __init__(self, protocol: str, mechanism: str, client_certificate: str | None = None) -> None:
        if protocol not in PROTOCOLS:
            raise LocalBrokerError(f"security: one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        if mechanism not in JAAS:
            raise LocalBrokerError(f"mechanism: one of {', '.join(JAAS)}, not {mechanism!r}")
        if client_certificate is not None:
            _check_name(client_certificate, protocol)
        self.protocol = protocol
        self.mechanism = mechanism if protocol.startswith("SASL") else None
        self.user = USER
        # A password of each run cannot end up in a configuration that is used elsewhere.
        self.password = os.urandom(PASSWORD_BYTES).hex()
        self._directory: TemporaryDirectory[str] | None = None
        self._stores: Mapping[str, str] = {}
        self.authority_file = ""
        self.certificate_file = ""  # the client's, if it has one
        self.key_file = ""
        if protocol.endswith("SSL"):
            self._make_certificates(client_certificate)

    @property
    def is_plaintext(self) -> bool:
        """Whether clients need neither TLS nor a login, so that this package needs no listener of its own."""
        return self.protocol == "PLAINTEXT"

    def refuse(self, properties: Collection[str], owner: str) -> None:
        """LocalBrokerError for a property that is set here."""
        if self.is_plaintext:
            return
        taken = (OURS | self.listeners({}, CONTROL).keys()) & set(properties)
        if taken:
            raise LocalBrokerError(f"{', '.join(sorted(taken))}: with `security` {owner} sets this itself")

    def listeners(self, ports: Mapping[str, int], inter_broker: str) -> Mapping[str, str]:
        """The properties of these listeners. The one with the name of the protocol is for clients."""
        protocols = {name: self.protocol if name == self.protocol else "PLAINTEXT" for name in ports}
        found = {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
            "inter.broker.listener.name": inter_broker,
            **self._stores,
        }
        if self.mechanism is not None:
            # The login is a property of the listener for clients alone. The other one needs none.
            prefix = f"listener.name.{self.protocol.lower()}"
            users = f' user_{self.user}="{self.password}"' if self.mechanism == PLAIN else ""
            login = f"{JAAS[self.mechanism]} required{users};"
            found[f"{prefix}.sasl.enabled.mechanisms"] = self.mechanism
            found[f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config"] = login
        return found

    def add_user(self, control_port: int) -> ErrorCode:
        """Store the user of SCRAM, when the broker serves; those of PLAIN are properties. What the broker answers."""
        number = SCRAM_NUMBERS.get(self.mechanism or "")
        if number is None:
            return ErrorCode.NONE
        from barnabas.security.sasl.scram import ITERATIONS_MIN, MECHANISMS, salted_password

        salt = os.urandom(SALT_BYTES)
        # Kafka's request has the salted password, so the broker never sees the password itself
        # (KIP-554).
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
        return ErrorCode(result.error_code)

    def is_user_known(self, broker: "Broker") -> bool:
        """Whether a broker lets the user log in; true without SCRAM. On its loop."""
        number = SCRAM_NUMBERS.get(self.mechanism or "")
        if number is None or broker.secured is None:
            return True
        from barnabas.security.sasl.scram import MECHANISMS

        return broker.secured.scram.find(MECHANISMS[number], self.user) is not None

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

    def _make_certificates(self, client_name: str | None) -> None:
        # These are imported here, because few brokers of tests have TLS, and all are to start
        # within milliseconds.
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from barnabas.testing.running.certificates import make_certificates

        made = make_certificates(HOST, "localhost", client_name=client_name)
        self._directory = TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        directory = Path(self._directory.name)

        def file(name: str, content: str) -> str:
            (directory / name).write_text(content)
            return str(directory / name)

        self.authority_file = file("authority.pem", made.authority)
        self._stores = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": made.broker.key,
            "ssl.keystore.certificate.chain": made.broker.chain,
        }
        if made.client is not None:
            self.key_file = file("client.key", made.client.key)
            # A keystore of Java is one file with key and certificate; other clients take the
            # certificate from it.
            self.certificate_file = file("client.pem", made.client.key + made.client.chain)
            self._stores |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": made.authority,
                "ssl.client.auth": "required",
            }


def _check_name(client_certificate: object, protocol: str) -> None:
    """LocalBrokerError for a name that no certificate has, or without TLS of both sides."""
    # With a login Kafka's brokers ignore the certificate of a client.
    if protocol != "SSL":
        raise LocalBrokerError(f"client_certificate: only with security='SSL', not {protocol!r}")
    if not isinstance(client_certificate, str) or not 1 <= len(client_certificate) <= NAME_CHARACTERS_MAX:
        raise LocalBrokerError(
            f"client_certificate: a name of 1 to {NAME_CHARACTERS_MAX} characters, not {client_certificate!r}"
        )


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
    if secured.certificate_file:
        found |= {"ssl.certificate.location": secured.certificate_file, "ssl.key.location": secured.key_file}
    return found


def _java(secured: Secured, servers: str) -> dict[str, object]:
    found = _properties(secured, servers)
    if secured.mechanism is not None:
        found["sasl.jaas.config"] = secured.jaas_config
    if secured.authority_file:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": secured.authority_file}
    if secured.certificate_file:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": secured.certificate_file}
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
    if secured.certificate_file:
        found |= {"ssl_certfile": secured.certificate_file, "ssl_keyfile": secured.key_file}
    return found


def _aiokafka(secured: Secured, servers: str) -> dict[str, object]:
    import ssl

    found = _arguments(secured, servers)
    if secured.authority_file:
        found["ssl_context"] = context = ssl.create_default_context(cafile=secured.authority_file)
        if secured.certificate_file:
            context.load_cert_chain(secured.certificate_file)
    return found


CLIENTS = {
    "confluent-kafka": _confluent_kafka,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "java": _java,
}
