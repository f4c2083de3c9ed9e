"""A broker with TLS or a login makes its own authority and user, and refuses those that have neither."""

import socket
import ssl
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.client.blocking import BlockingConnection
from barnabas.testing import LocalBroker, LocalBrokerError, LocalCluster
from barnabas.wire import messages as m
from tests.testing.client import Client, eventually


def test_a_client_that_trusts_the_authority_reaches_the_broker():
    with LocalBroker(security="SSL") as broker:
        file = broker.client_config("kafka-python")["ssl_cafile"]
        context = ssl.create_default_context(cafile=file)
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), 10) as raw:
            with context.wrap_socket(raw, server_hostname=host) as connected:
                assert connected.version()
            with pytest.raises(ssl.SSLCertVerificationError), socket.create_connection((host, int(port)), 10) as other:
                ssl.create_default_context().wrap_socket(other, server_hostname=host)
        assert Path(file).exists()
    assert not Path(file).exists()


def test_a_client_without_a_login_is_refused():
    with LocalBroker(topics=["t"], security="SASL_PLAINTEXT") as broker, Client(broker.bootstrap_servers) as client:
        with pytest.raises(ConnectionError):
            client.offset("t")
        broker.create_topic("u")  # by another listener
        assert {"t", "u"} <= broker._live("topics").look(lambda parts: set(parts.metadata.topics))


def test_the_settings_of_a_java_client():
    with LocalBroker(security="SASL_SSL", mechanism="SCRAM-SHA-512") as broker:
        config = broker.client_config("java")
        assert config["security.protocol"] == "SASL_SSL"
        assert config["sasl.jaas.config"].startswith("org.apache.kafka.common.security.scram.ScramLoginModule required")
        assert Path(config["ssl.truststore.location"]).read_text().startswith("-----BEGIN CERTIFICATE-----")


def test_a_broker_without_security_has_only_an_address():
    with LocalBroker() as broker:
        assert broker.client_config("confluent-kafka") == {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "PLAINTEXT",
        }


def test_the_ports_stay_over_a_restart():
    with LocalBroker(topics=["t"], security="SASL_PLAINTEXT") as broker:
        before = broker.bootstrap_servers
        broker.kill()
        broker.restart()
        assert broker.bootstrap_servers == before
        broker.create_topic("u")
        eventually(lambda: broker.is_running)


FOR_BILLING = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:CN=billing",  # the first one: for the requests of this package
}


def shake_hands(broker, *, certificate):
    """Connect with TLS, with or without the client's certificate, and ask for a topic."""
    config = broker.client_config("kafka-python")
    context = ssl.create_default_context(cafile=config["ssl_cafile"])
    if certificate:
        context.load_cert_chain(config["ssl_certfile"], config["ssl_keyfile"])
    host, port = broker.bootstrap_servers.split(":")
    raw = socket.create_connection((host, int(port)), 10)
    return BlockingConnection(context.wrap_socket(raw, server_hostname=host), "test")


def test_a_client_needs_its_certificate_and_is_named_by_it():
    with LocalBroker(topics=["t"], security="SSL", client_certificate="billing", config=FOR_BILLING) as broker:
        with shake_hands(broker, certificate=True) as client:
            (topic,) = client.ask(m.MetadataRequest(topics=None), 8, m.MetadataResponse).topics
            assert (topic.name, topic.error_code) == ("t", 0)
        with pytest.raises((ssl.SSLError, ConnectionError)), shake_hands(broker, certificate=False) as client:
            client.ask(m.MetadataRequest(topics=None), 8, m.MetadataResponse)


def test_a_client_of_another_name_has_not_its_rights():
    with (
        LocalBroker(topics=["t"], security="SSL", client_certificate="shipping", config=FOR_BILLING) as broker,
        shake_hands(broker, certificate=True) as client,
    ):
        assert client.ask(m.MetadataRequest(topics=None), 8, m.MetadataResponse).topics == []


def test_a_java_client_finds_its_certificate_and_its_key_in_one_file():
    with LocalBroker(security="SSL", client_certificate="billing") as broker:
        config = broker.client_config("java")
        assert config["ssl.keystore.type"] == "PEM"
        file = Path(config["ssl.keystore.location"])
        assert file.read_text().count("-----BEGIN PRIVATE KEY-----") == 1
        assert file.read_text().count("-----BEGIN CERTIFICATE-----") == 1
    assert not file.exists()


def test_all_brokers_of_a_cluster_have_one_authority_and_one_client():
    with LocalCluster(3, topics={"t": (3, 3)}, security="SSL", client_certificate="billing") as cluster:
        for broker in cluster.brokers.values():
            config = cluster.client_config("kafka-python")
            assert broker.bootstrap_servers in config["bootstrap_servers"]
            with shake_hands(LookAlike(broker.bootstrap_servers, config), certificate=True) as client:
                answered = client.ask(m.MetadataRequest(topics=None), 8, m.MetadataResponse)
                named = {f"{each.host}:{each.port}" for each in answered.brokers}
                assert named == {each.bootstrap_servers for each in cluster.brokers.values()}
        cluster.kill(1)
        cluster.create_topic("u", 1, 2)
        assert cluster.records("t") == []
        cluster.recover()
    assert not Path(config["ssl_cafile"]).exists()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_each_broker_of_a_cluster_wants_a_login(mechanism):
    with LocalCluster(2, topics={"t": (1, 2)}, security="SASL_PLAINTEXT", mechanism=mechanism) as cluster:
        assert cluster.client_config("kafka-python")["sasl_mechanism"] == mechanism
        for broker in cluster.brokers.values():
            with Client(broker.bootstrap_servers) as client, pytest.raises(ConnectionError):
                client.offset("t")
        cluster.move_leader("t", 0, to=2)
        assert cluster.coordinator("g") in {1, 2}


class LookAlike(NamedTuple):
    """What `shake_hands` needs of a broker."""

    bootstrap_servers: str
    config: dict

    def client_config(self, client):
        return self.config


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"security": "TLS"}, "security: one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'"),
        ({"security": "SASL_SSL", "mechanism": "GSSAPI"}, "mechanism: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security": "SSL", "process": True}, "a broker in a process of its own"),
        ({"client_certificate": "billing"}, "client_certificate: only with security='SSL', not 'PLAINTEXT'"),
        ({"client_certificate": "billing", "security": "SASL_SSL"}, "client_certificate: only with security='SSL'"),
        ({"client_certificate": "", "security": "SSL"}, "client_certificate: a name of 1 to 64 characters, not ''"),
        ({"client_certificate": True, "security": "SSL"}, "client_certificate: a name of 1 to 64 characters"),
        ({"security": "SSL", "config": {"ssl.keystore.key": "k"}}, "ssl.keystore.key: with `security` LocalBroker"),
        ({"security": "SSL", "config": {"inter.broker.listener.name": "X"}}, "LocalBroker sets this itself"),
    ],
)
def test_security_that_does_not_exist_is_refused(arguments, reason):
    with pytest.raises(LocalBrokerError, match=reason):
        LocalBroker(**arguments)


def test_a_cluster_refuses_the_same():
    with pytest.raises(LocalBrokerError, match="security: one of"):
        LocalCluster(security="TLS")
    with pytest.raises(LocalBrokerError, match="with `security` LocalCluster sets this itself"):
        LocalCluster(security="SSL", config={"ssl.keystore.type": "PEM"})


def test_settings_of_an_unknown_client_are_refused():
    with LocalBroker() as broker, pytest.raises(LocalBrokerError, match="client_config: one of confluent-kafka"):
        broker.client_config("sarama")
