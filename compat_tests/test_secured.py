"""Stock clients over TLS and SASL: every kind of listener and mechanism, wrong passwords, wrong authorities, stores."""

import asyncio
import os
import re
import signal
import socket
import ssl
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest
from cryptography import x509
from kafka.net.sasl.oauth import AbstractTokenProvider

from barnabas.broker.security.client import Credentials, LoggedIn
from barnabas.broker.security.exchange import Compute
from barnabas.wire import messages as m
from compat_tests.brokers import run_barnabas
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
    jaas,
    unsecured_token,
)

RECORDS = 500
SECRETS = re.compile(r"secret-\d{4}|PRIVATE KEY")
SECONDS_MAX = 60.0
FAILS_SECONDS_MAX = 15.0
LISTENERS = {
    "BROKERS": "PLAINTEXT",
    "ONE_WAY": "SSL",
    "TWO_WAY": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
}


class Access(NamedTuple):
    """How a client connects."""

    bootstrap: str
    protocol: str
    mechanism: str = ""
    username: str = USER
    password: str = PASSWORD
    authority: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def token(self) -> str:
        return unsecured_token(self.username)


# -- one client each: produces RECORDS records, and reads them through a group


def with_confluent(access: Access, topic: str) -> None:
    settings = confluent_settings(access)
    producer = confluent_kafka.Producer(settings)
    failed: list[Any] = []
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == []
    consumer = confluent_kafka.Consumer({**settings, "group.id": f"{topic}-confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read, until = set(), time.monotonic() + SECONDS_MAX
    while len(read) < RECORDS and time.monotonic() < until:
        read |= {message.value() for message in consumer.consume(RECORDS, 0.5) if message.error() is None}
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(read) == RECORDS


def confluent_settings(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": access.protocol,
        "broker.address.family": "v4",
        "log_level": 0,
        "message.timeout.ms": 30_000,
    }
    if access.mechanism == "OAUTHBEARER":
        settings["sasl.mechanism"] = access.mechanism
        settings["oauth_cb"] = lambda _: (access.token, time.time() + 3600)
    elif access.mechanism:
        settings |= {
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.username,
            "sasl.password": access.password,
        }
    if access.authority:
        settings["ssl.ca.location"] = access.authority
    if access.certificate:
        settings |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.key}
    return settings


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, access: Access) -> None:
        self._access = access

    def token(self) -> str:
        return self._access.token


def with_kafka_python(access: Access, topic: str) -> None:
    settings = kafka_python_settings(access)
    producer = kafka.KafkaProducer(**settings)
    sent = [producer.send(topic, b"%d" % number) for number in range(RECORDS)]
    for each in sent:
        each.get(SECONDS_MAX)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        **settings,
        group_id=f"{topic}-kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(SECONDS_MAX * 1000),
    )
    read = set()
    for message in consumer:
        read.add(message.value)
        if len(read) == RECORDS:
            break
    consumer.commit()
    consumer.close()
    assert len(read) == RECORDS


def kafka_python_settings(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": access.mechanism, "sasl_oauth_token_provider": Token(access)}
    elif access.mechanism:
        settings |= {
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": access.username,
            "sasl_plain_password": access.password,
        }
    if access.authority:
        settings["ssl_cafile"] = access.authority
    if access.certificate:
        settings |= {"ssl_certfile": access.certificate, "ssl_keyfile": access.key}
    return settings


class AioToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, access: Access) -> None:
        self._access = access

    async def token(self) -> str:
        return self._access.token


def with_aiokafka(access: Access, topic: str) -> None:
    async def run() -> None:
        settings = aiokafka_settings(access)
        producer = aiokafka.AIOKafkaProducer(**settings)
        await producer.start()
        try:
            sent = [await producer.send(topic, b"%d" % number) for number in range(RECORDS)]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, **settings, group_id=f"{topic}-aiokafka", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            read: set[bytes] = set()
            while len(read) < RECORDS:
                read.add((await consumer.getone()).value)
            await consumer.commit()
        finally:
            await consumer.stop()

    asyncio.run(asyncio.wait_for(run(), SECONDS_MAX))


def aiokafka_settings(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.mechanism == "OAUTHBEARER":
        settings |= {"sasl_mechanism": access.mechanism, "sasl_oauth_token_provider": AioToken(access)}
    elif access.mechanism:
        settings |= {
            "sasl_mechanism": access.mechanism,
            "sasl_plain_username": access.username,
            "sasl_plain_password": access.password,
        }
    if access.authority:
        context = ssl.create_default_context(cafile=access.authority)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key)
        settings["ssl_context"] = context
    return settings


CLIENTS: Mapping[str, Callable[[Access, str], None]] = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


# -- the broker


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


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


def access_of(broker: SecuredBroker, certificates: Certificates, listener: str, mechanism: str = "") -> Access:
    protocol = LISTENERS[listener]
    authority = certificates.trusted if "SSL" in protocol.split("_") else ""
    access = Access(broker.at(listener), protocol, mechanism, authority=authority)
    if listener == "TWO_WAY":
        access = access._replace(certificate=certificates.client_certificate, key=certificates.client_key)
    return access


# -- clients


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("listener", ["ONE_WAY", "TWO_WAY"])
def test_clients_over_tls(
    client: str, listener: str, broker: SecuredBroker, certificates: Certificates, topic: str
) -> None:
    CLIENTS[client](access_of(broker, certificates, listener), topic)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["LOGIN", "BOTH"])
def test_clients_log_in(
    client: str, listener: str, mechanism: str, broker: SecuredBroker, certificates: Certificates, topic: str
) -> None:
    CLIENTS[client](access_of(broker, certificates, listener, mechanism), topic)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(mechanism: str, broker: SecuredBroker, certificates: Certificates) -> None:
    access = access_of(broker, certificates, "BOTH", mechanism)._replace(password="wrong-password-9")
    errors: list[Any] = []
    producer = confluent_kafka.Producer({**confluent_settings(access), "error_cb": errors.append})
    until = time.monotonic() + FAILS_SECONDS_MAX
    while time.monotonic() < until and not any(error.code() == -169 for error in errors):
        producer.poll(0.1)  # the pace of looking
    assert any(error.code() == -169 for error in errors), errors  # _AUTHENTICATION
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**kafka_python_settings(access), max_block_ms=3000, bootstrap_timeout_ms=3000).send(
            "none", b"x"
        ).get(5)

    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(**aiokafka_settings(access))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(start())
    assert "failed authentication with 127.0.0.1" in broker.log_text()
    assert "wrong-password-9" not in broker.log_text()


def test_a_wrong_authority(broker: SecuredBroker, certificates: Certificates) -> None:
    access = access_of(broker, certificates, "ONE_WAY")._replace(authority=certificates.other_trusted)
    errors: list[Any] = []
    producer = confluent_kafka.Producer({**confluent_settings(access), "error_cb": errors.append})
    until = time.monotonic() + FAILS_SECONDS_MAX
    while time.monotonic() < until and not any(error.code() == -181 for error in errors):
        producer.poll(0.1)  # the pace of looking
    assert any(error.code() == -181 for error in errors), errors  # _SSL
    # The broker has the client's alert a moment later.
    eventually(broker.log_text, lambda text: "failed SSL handshake with 127.0.0.1" in text)


def test_a_client_without_the_certificate_that_is_required(broker: SecuredBroker, certificates: Certificates) -> None:
    access = access_of(broker, certificates, "TWO_WAY")._replace(certificate="", key="")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(**kafka_python_settings(access), max_block_ms=3000, bootstrap_timeout_ms=3000).send(
            "none", b"x"
        ).get(5)


def test_no_secret_is_logged(broker: SecuredBroker) -> None:
    assert not SECRETS.search(broker.log_text())


# -- stores


@pytest.mark.parametrize("kind", ["PKCS12", "PKCS12 called JKS", "JKS"])
def test_stores(kind: str, certificates: Certificates, tmp_path: Path, topic: str) -> None:
    if kind == "JKS":
        from tests.broker.security.key_material import der_of, jks, jks_key, jks_trusted, key_der

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
        with_confluent(Access(broker.at("SSL"), "SSL", authority=certificates.trusted), topic)


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
        access = Access(broker.at("BOTH"), "SASL_SSL", mechanism, authority=certificates.trusted)
        errors: list[Any] = []
        producer = confluent_kafka.Producer(
            {**confluent_settings(access), "error_cb": errors.append, "connections.max.idle.ms": 0}
        )
        other = kafka.KafkaProducer(**kafka_python_settings(access))
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


def log_in(client: RawClient, credentials: Credentials) -> None:
    login = credentials.login(lambda: "a-nonce-of-the-client", int(time.time() * 1000))
    step: Any = login.begin()
    while not isinstance(step, LoggedIn):
        step = step.then(step.run()) if isinstance(step, Compute) else login.take(ask(client, step, 1))


# -- changes while the broker runs


def serial_number(broker: SecuredBroker, certificates: Certificates) -> int:
    """Of the certificate that the broker shows now."""
    context = ssl.create_default_context(cafile=certificates.trusted)
    with (
        socket.create_connection(("127.0.0.1", broker.ports["SSL"]), timeout=10) as raw,
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
            confluent_settings(Access(broker.at("SSL"), "SSL", authority=certificates.trusted))
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
