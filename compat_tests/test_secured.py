"""Stock clients over TLS and SASL: every kind of listener and mechanism, wrong passwords, wrong authorities, stores."""

import os
import re
import signal
import socket
import ssl
import time
import uuid
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
from cryptography import x509

from barnabas.security.sasl.client import Credentials
from barnabas.wire import messages as m
from compat_tests.brokers import run_barnabas
from compat_tests.clients.access import Access, Task
from compat_tests.clients.aiokafka import secured_client as with_aiokafka
from compat_tests.clients.confluent_kafka import secured_client as with_confluent
from compat_tests.clients.kafka_python import secured_client as with_kafka_python
from compat_tests.raw import RawClient, ask, eventually
from compat_tests.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    MECHANISMS,
    PASSWORD,
    STORE_PASSWORD,
    USER,
    Certificates,
    SecuredBroker,
    access_of,
    jaas,
    log_in,
)

RECORDS = 500
SECRETS = re.compile(r"secret-\d{4}|PRIVATE KEY")
SECONDS_MAX = 60.0
LISTENERS = {
    "BROKERS": "PLAINTEXT",
    "ONE_WAY": "SSL",
    "TWO_WAY": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
}
# Each writes RECORDS records, and reads them through a group.
CLIENTS = {"confluent-kafka": with_confluent, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}


def write_and_read(client: str, access: Access, topic: str) -> None:
    task = Task("once", topic, f"{topic}-{client}", RECORDS)
    assert CLIENTS[client].once(access, task) == {"read": RECORDS}


# -- the broker


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    properties = {
        **certificates.pem_stores(),
        "listener.name.two_way.ssl.client.auth": "required",
        "listener.name.two_way.ssl.principal.mapping.rules": "RULE:^.*O=([^,]+).*$/$1/L,DEFAULT",
        **jaas("LOGIN"),
        **jaas("BOTH"),
        "delegation.token.secret.key": "token-secret-2290",
    }
    with SecuredBroker(tmp_path_factory.mktemp("secured"), LISTENERS, properties) as broker:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.at("BROKERS")})
        create_users(admin, {USER: PASSWORD, ADMIN: ADMIN_PASSWORD})
        yield broker


def create_users(admin: Any, users: Mapping[str, str]) -> None:
    """SCRAM credentials of both mechanisms."""
    module = confluent_kafka.admin
    for mechanism in (module.ScramMechanism.SCRAM_SHA_256, module.ScramMechanism.SCRAM_SHA_512):
        information = module.ScramCredentialInfo(mechanism, 4096)
        wanted = [
            module.UserScramCredentialUpsertion(name, information, password.encode())
            for name, password in users.items()
        ]
        for future in admin.alter_user_scram_credentials(wanted).values():
            future.result(SECONDS_MAX)


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:10]}"


def access_to(broker: SecuredBroker, certificates: Certificates, listener: str, mechanism: str = "") -> Access:
    protocol = LISTENERS[listener]
    authority = certificates.trusted if "SSL" in protocol.split("_") else ""
    access = access_of(broker.at(listener), protocol, mechanism, authority=authority)
    if listener == "TWO_WAY":
        access = access._replace(certificate=certificates.client_certificate, key=certificates.client_key)
    return access


# -- clients


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("listener", ["ONE_WAY", "TWO_WAY"])
def test_clients_over_tls(
    client: str, listener: str, broker: SecuredBroker, certificates: Certificates, topic: str
) -> None:
    write_and_read(client, access_to(broker, certificates, listener), topic)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["LOGIN", "BOTH"])
def test_clients_log_in(
    client: str, listener: str, mechanism: str, broker: SecuredBroker, certificates: Certificates, topic: str
) -> None:
    write_and_read(client, access_to(broker, certificates, listener, mechanism), topic)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(mechanism: str, broker: SecuredBroker, certificates: Certificates) -> None:
    access = access_to(broker, certificates, "BOTH", mechanism)._replace(password="wrong-password-9")
    for client in CLIENTS.values():
        assert client.refused(access, Task("refused", "none", "none"))["refused"]
    assert "failed authentication with 127.0.0.1" in broker.log_text()
    assert "wrong-password-9" not in broker.log_text()


def test_a_wrong_authority(broker: SecuredBroker, certificates: Certificates) -> None:
    access = access_to(broker, certificates, "ONE_WAY")._replace(authority=certificates.other_trusted)
    for client in CLIENTS.values():
        assert client.refused(access, Task("refused", "none", "none"))["refused"]
    # The broker has the client's alert a moment later.
    eventually(broker.log_text, lambda text: "failed SSL handshake with 127.0.0.1" in text)


def test_a_client_without_the_certificate_that_is_required(broker: SecuredBroker, certificates: Certificates) -> None:
    access = access_to(broker, certificates, "TWO_WAY")._replace(certificate="", key="")
    for client in CLIENTS.values():
        assert client.refused(access, Task("refused", "none", "none"))["refused"]


def test_no_secret_is_logged(broker: SecuredBroker) -> None:
    assert not SECRETS.search(broker.log_text())


# -- stores


@pytest.mark.parametrize("kind", ["PKCS12", "PKCS12 called JKS", "JKS"])
def test_stores(kind: str, certificates: Certificates, tmp_path: Path, topic: str) -> None:
    if kind == "JKS":
        from tests.security.key_material import der_of, jks, jks_key, jks_trusted, key_der

        leaf = certificates.broker
        chain = der_of("".join(each.bytes().decode() for each in leaf.cert_chain_pems))
        store, trust = tmp_path / "broker.jks", tmp_path / "trust.jks"
        store.write_bytes(jks(STORE_PASSWORD, jks_key("broker", STORE_PASSWORD, key_der(leaf), chain)))
        authority = der_of(certificates.authority.cert_pem.bytes().decode())[0]
        trust.write_bytes(jks(STORE_PASSWORD, jks_trusted("authority", authority)))
        paths = str(store), str(trust)
    else:
        paths = certificates.pkcs12("broker.p12", certificates.broker), certificates.trust_pkcs12("trust.p12")
    properties = {
        "ssl.keystore.type": kind.rsplit(maxsplit=1)[-1],
        "ssl.keystore.location": paths[0],
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.type": kind.rsplit(maxsplit=1)[-1],
        "ssl.truststore.location": paths[1],
        "ssl.truststore.password": STORE_PASSWORD,
    }
    with SecuredBroker(tmp_path / "broker", {"SSL": "SSL"}, properties) as broker:
        write_and_read("confluent-kafka", access_of(broker.at("SSL"), "SSL", authority=certificates.trusted), topic)


# -- sessions


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_clients_log_in_again(mechanism: str, certificates: Certificates, tmp_path: Path, topic: str) -> None:
    properties = {
        **certificates.pem_stores(),
        **jaas("BOTH"),
        "connections.max.reauth.ms": 3000,
    }
    listeners = {"BROKERS": "PLAINTEXT", "BOTH": "SASL_SSL"}
    with SecuredBroker(tmp_path / "broker", listeners, properties) as broker:
        access = access_of(broker.at("BOTH"), "SASL_SSL", mechanism, authority=certificates.trusted)
        errors: list[Any] = []
        producer = confluent_kafka.Producer(
            {**with_confluent.settings_of(access), "error_cb": errors.append, "connections.max.idle.ms": 0}
        )
        other = kafka.KafkaProducer(**with_kafka_python.settings_of(access))
        until = time.monotonic() + 8
        while time.monotonic() < until:
            producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error) if error else None)
            producer.poll(0.05)  # the pace of a quiet producer
            other.send(topic, b"x").get(SECONDS_MAX)
        other.close()
        assert producer.flush(SECONDS_MAX) == 0
        assert errors == []
        assert "the session has ended" not in broker.log_text()


def test_a_delegation_token_logs_in(broker: SecuredBroker) -> None:
    """The stock Python clients cannot say that a login is one by a token, so this is our own."""
    with RawClient(broker.ports["LOGIN"]) as client:
        log_in(client, Credentials("PLAIN", {"username": USER, "password": PASSWORD}))
        created = client.ask(m.CreateDelegationTokenRequest(max_lifetime_ms=-1), 3, m.CreateDelegationTokenResponse)
        assert created.error_code == 0
    secret = b64encode(created.hmac).decode()
    credentials = {"username": created.token_id, "password": secret, "tokenauth": "true"}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with RawClient(broker.ports["LOGIN"]) as client:
            log_in(client, Credentials(mechanism, credentials))
            described = ask(client, m.DescribeDelegationTokenRequest(owners=None), 3)
            assert described.error_code == 64  # a token's session gives out no tokens
            assert ask(client, m.MetadataRequest(topics=[]), 9).brokers
    assert secret not in broker.log_text()


# -- changes while the broker runs


def serial_number(broker: SecuredBroker, certificates: Certificates, listener: str = "SSL") -> int:
    """Of the certificate that the broker shows now."""
    context = ssl.create_default_context(cafile=certificates.trusted)
    with (
        socket.create_connection(("127.0.0.1", broker.ports[listener]), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as stream,
    ):
        shown = stream.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)


def test_a_new_certificate_is_shown_after_a_change(certificates: Certificates, tmp_path: Path, topic: str) -> None:
    store = tmp_path / "broker.pem"

    def renew(leaf: Any) -> int:
        store.write_text(Path(certificates.pem("renewed.pem", leaf)).read_text())
        return int(x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number)

    names = {"common_name": "broker", "organization_name": "Castle", "organization_unit_name": "Brokers"}
    first = renew(certificates.issue("localhost", "127.0.0.1", **names))
    stores = {**certificates.pem_stores("listener.name.ssl."), "listener.name.ssl.ssl.keystore.location": str(store)}
    with SecuredBroker(tmp_path / "broker", {"BROKERS": "PLAINTEXT", "SSL": "SSL"}, stores) as broker:
        assert serial_number(broker, certificates) == first
        # A connection that is there stays.
        producer = confluent_kafka.Producer(
            with_confluent.settings_of(access_of(broker.at("SSL"), "SSL", authority=certificates.trusted))
        )
        producer.produce(topic, b"before")
        assert producer.flush(SECONDS_MAX) == 0
        # By AlterConfigs of the same value, as Kafka's documentation says.
        second = renew(certificates.issue("localhost", "127.0.0.1", **names))
        alter(broker, "listener.name.ssl.ssl.keystore.location", str(store))
        assert serial_number(broker, certificates) == second
        # Another name is refused, and the old one stays.
        renew(certificates.issue("localhost", "127.0.0.1", **{**names, "common_name": "stranger"}))
        with pytest.raises(confluent_kafka.KafkaException, match="Keystore DistinguishedName does not match"):
            alter(broker, "listener.name.ssl.ssl.keystore.location", str(store))
        assert serial_number(broker, certificates) == second
        with pytest.raises(confluent_kafka.KafkaException, match="cannot be updated dynamically"):
            alter(broker, "listener.name.ssl.ssl.client.auth", "required")
        # And by a signal.
        third = renew(certificates.issue("localhost", "127.0.0.1", **names))
        os.kill(broker.pid, signal.SIGHUP)
        eventually(lambda: serial_number(broker, certificates), lambda shown: shown == third)
        producer.produce(topic, b"after")
        assert producer.flush(SECONDS_MAX) == 0


def alter(broker: SecuredBroker, name: str, text: str) -> None:
    module = confluent_kafka.admin
    admin = module.AdminClient({"bootstrap.servers": broker.at("BROKERS")})
    entry = module.ConfigEntry(name, text, incremental_operation=module.AlterConfigOpType.SET)
    resource = module.ConfigResource(
        module.ConfigResource.Type.BROKER, str(broker_id(admin)), incremental_configs=[entry]
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(SECONDS_MAX)


def broker_id(admin: Any) -> int:
    (number,) = admin.list_topics(timeout=10).brokers
    return int(number)


def test_no_secret_is_described(broker: SecuredBroker) -> None:
    module = confluent_kafka.admin
    admin = module.AdminClient({"bootstrap.servers": broker.at("BROKERS")})
    resource = module.ConfigResource(module.ConfigResource.Type.BROKER, str(broker_id(admin)))
    for future in admin.describe_configs([resource]).values():
        described = future.result(SECONDS_MAX)
    assert "listener.name.both.plain.sasl.jaas.config" in described
    texts = [str(described), run_barnabas("config", "--json", str(broker.file)).stdout]
    texts += [
        str({name: each.value for name, each in described.items()}),
        run_barnabas("config", str(broker.file)).stdout,
    ]
    for text in texts:
        assert text
        assert not SECRETS.search(text)
