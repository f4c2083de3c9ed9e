"""A broker with listeners of TLS and SASL, certificates for it, and what clients need to connect.

Secrets are in files, never among the arguments of a process.
"""

import json
import pathlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from time import time
from typing import Any, Self

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from barnabas.security.sasl.client import Credentials, LoggedIn
from barnabas.security.sasl.exchange import Compute
from barnabas.security.sasl.scram import ITERATIONS_MIN, salted_password
from barnabas.security.sasl.scram import MECHANISMS as SCRAM_MECHANISMS
from barnabas.testing.running.child import BrokerChild
from barnabas.wire import messages as m
from compat_tests.brokers import run_barnabas
from compat_tests.clients.access import Access
from compat_tests.kafka import free_port
from compat_tests.raw import RawClient, ask

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret-8731"
USER, PASSWORD = "alice", "alice-secret-4711"
STORE_PASSWORD = "store-secret-5519"
SALT = b"salt of the tests"


class Certificates:
    """An authority, a certificate of the broker for this machine (and for these hosts), and one of a client."""

    def __init__(self, folder: pathlib.Path, *hosts: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.trusted = self._written("authority.pem", self.authority.cert_pem.bytes())
        stranger = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.other_trusted = self._written("other-authority.pem", stranger.cert_pem.bytes())
        self.broker = self.issue("localhost", "127.0.0.1", *hosts)
        # With a name of this machine: Java reads no empty list of them.
        self.client = self.issue("localhost", common_name="writer", organization_name="Castle")
        self.broker_pem = self.pem("broker.pem", self.broker)
        self.client_certificate = self._written("client.pem", self._chain(self.client))
        self.client_key = self._written("client.key", _pkcs8(self.client))

    def issue(self, *hosts: str, **names: str) -> trustme.LeafCert:
        return self.authority.issue_cert(*hosts, **names, key_type=trustme.KeyType.ECDSA)

    def pem(self, name: str, leaf: trustme.LeafCert) -> str:
        """A PEM key store, as Kafka takes it: the key in PKCS#8, and the chain."""
        return self._written(name, _pkcs8(leaf) + self._chain(leaf))

    def pkcs12(self, name: str, leaf: trustme.LeafCert, password: str = STORE_PASSWORD) -> str:
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = [x509.load_pem_x509_certificate(each.bytes()) for each in leaf.cert_chain_pems]
        encryption = serialization.BestAvailableEncryption(password.encode())
        return self._written(
            name,
            pkcs12.serialize_key_and_certificates(b"broker", key, chain[0], chain[1:], encryption),  # type: ignore[arg-type]
        )

    def trust_pkcs12(self, name: str) -> str:
        certificate = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        encryption = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        trusted = [pkcs12.PKCS12Certificate(certificate, b"authority")]
        return self._written(name, pkcs12.serialize_key_and_certificates(None, None, None, trusted, encryption))

    def _chain(self, leaf: trustme.LeafCert) -> bytes:
        return b"".join(each.bytes() for each in leaf.cert_chain_pems)

    def _written(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def pem_stores(self, prefix: str = "") -> dict[str, str]:
        """Properties for the PEM stores of the broker."""
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": self.broker_pem,
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": self.trusted,
        }


def _pkcs8(leaf: trustme.LeafCert) -> bytes:
    """The key in PEM, in the only form that Java reads."""
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, kind, serialization.NoEncryption())


def jaas(listener: str) -> dict[str, str]:
    """Logins of all mechanisms at a listener: users of PLAIN, and the broker's own login with each mechanism."""
    own = f'username="{ADMIN}" password="{ADMIN_PASSWORD}"'
    prefix = f"listener.name.{listener.lower()}"
    users = f'user_{ADMIN}="{ADMIN_PASSWORD}" user_{USER}="{PASSWORD}"'
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} {users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": scram_login(ADMIN, ADMIN_PASSWORD),
        f"{prefix}.scram-sha-512.sasl.jaas.config": scram_login(ADMIN, ADMIN_PASSWORD),
        f"{prefix}.oauthbearer.sasl.jaas.config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="{ADMIN}";',
    }


def scram_login(user: str, password: str) -> str:
    """As sasl.jaas.config has it."""
    return f'{SCRAM_MODULE} required username="{user}" password="{password}";'


def access_of(
    bootstrap: str, protocol: str, mechanism: str = "", user: str = USER, password: str = PASSWORD, authority: str = ""
) -> Access:
    """How this user connects."""
    access = Access(bootstrap, protocol, mechanism, authority=authority)
    return access._replace(username=user, password=password, token=unsecured_token(user)) if mechanism else access


def unsecured_token(subject: str, seconds: float = 3600, claim: str = "sub") -> str:
    """An access token without a signature. Brokers take the user from the claim `sub`; without it they refuse."""

    def part(value: Mapping[str, object]) -> str:
        return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({claim: subject, 'iat': int(time()), 'exp': time() + seconds})}."


def create_scram_user(port: int, mechanism_name: str, user: str, password: str) -> None:
    """Create or replace the SCRAM credential of a user, through a listener without a login."""
    number, mechanism = next((key, each) for key, each in SCRAM_MECHANISMS.items() if each.name == mechanism_name)
    salted = salted_password(password.encode(), SALT, ITERATIONS_MIN, mechanism)
    wanted = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=ITERATIONS_MIN, salt=SALT, salted_password=salted
    )
    with RawClient(port) as client:
        (result,) = ask(client, m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted]), 0).results
    if result.error_code:
        raise RuntimeError(f"{user} cannot be created: {result}")


def write_user(zookeeper: str, mechanism: str, user: str, password: str) -> None:
    """Write a SCRAM credential into ZooKeeper before any broker runs."""
    options = ("--zookeeper", zookeeper, "--mechanism", mechanism, "--password-file", "-")
    added = run_barnabas("store", "scram", "add", user, *options, stdin=password)
    if added.returncode:
        raise RuntimeError(f"{user} cannot be created: {added.stderr}")


def log_in(client: RawClient, credentials: Credentials) -> None:
    """Log in on this connection, as a broker does it at another one."""
    login = credentials.login(lambda: "a-nonce-of-the-client", int(time() * 1000))
    step: Any = login.begin()
    while not isinstance(step, LoggedIn):
        step = step.then(step.run()) if isinstance(step, Compute) else login.take(ask(client, step, 1))


class SecuredBroker(BrokerChild):
    """`barnabas serve` with a properties file; `listeners` are name -> protocol, each on a port of its own."""

    def __init__(
        self, directory: pathlib.Path, listeners: Mapping[str, str], properties: Mapping[str, str | int]
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory / "data", {}, directory / "stderr.log")
        self.ports = {name: free_port() for name in listeners}
        self.log_level = "info"
        self.file = directory / "server.properties"
        self.settings: dict[str, str | int] = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in listeners.items()),
            "inter.broker.listener.name": next(iter(listeners)),
            "log.dirs": str(directory / "data"),
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 3,
            **properties,
        }

    def arguments(self) -> list[str]:
        escaped = {name: str(text).replace("\\", "\\\\").replace("\n", "\\n") for name, text in self.settings.items()}
        self.file.write_text("".join(f"{name}={text}\n" for name, text in escaped.items()))
        return ["--log-level", self.log_level, str(self.file)]

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
