"""A broker with TLS or a login makes its own authority and user, and refuses those that have neither."""

import socket
import ssl
from pathlib import Path

import pytest

from barnabas.testing import LocalBroker, LocalBrokerError
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


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"security": "TLS"}, "security: one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'"),
        ({"security": "SASL_SSL", "mechanism": "GSSAPI"}, "mechanism: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security": "SSL", "process": True}, "a broker in a process of its own"),
        ({"security": "SSL", "config": {"inter.broker.listener.name": "X"}}, "LocalBroker sets this itself"),
    ],
)
def test_security_that_does_not_exist_is_refused(arguments, reason):
    with pytest.raises(LocalBrokerError, match=reason):
        LocalBroker(**arguments)


def test_settings_of_an_unknown_client_are_refused():
    with LocalBroker() as broker, pytest.raises(LocalBrokerError, match="client_config: one of confluent-kafka"):
        broker.client_config("sarama")
