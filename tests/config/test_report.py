"""`barnabas config`: where values come from, what a single listener gets, and what is not shown."""

import json

import pytest

from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError, settings_of
from barnabas.config.report import HIDDEN, broker_report, listener_report

SECRET = "sortini"
TEXTS = {
    "listeners": "OUTSIDE://127.0.0.1:9092,TLS://127.0.0.1:9093,PLAINTEXT://127.0.0.1:9094",
    "listener.security.protocol.map": "OUTSIDE:SASL_SSL,TLS:SSL,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "ssl.client.auth": "required",
    "ssl.key.password": SECRET,
    "listener.name.outside.ssl.keystore.location": "/outside.p12",
    "listener.name.outside.ssl.keystore.password": SECRET,
    "listener.name.outside.ssl.provider": "SunJSSE",
    "listener.name.outside.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "listener.name.outside.plain.sasl.jaas.config": SECRET,
    "plain.connections.max.reauth.ms": "7",
    "listener.name.outside.my.own": SECRET,
}


def configured(**texts: str) -> BrokerConfig:
    return BrokerConfig(settings_of(TEXTS | texts, "server.properties:7"))


def gets(listener: str, mechanism: str | None = None) -> dict[str, tuple[str | None, str | None, str | None]]:
    """Name -> value, place and full name of what a listener gets."""
    return {
        row["name"]: (row["value"], row["source"], row["set_by"])
        for row in listener_report(configured())
        if (row["listener"], row["mechanism"]) == (listener, mechanism)
    }


def test_a_listener_gets_its_own_values_before_those_of_all():
    outside = gets("OUTSIDE")
    own = "listener.name.outside.ssl.keystore.location"
    assert outside["ssl.keystore.location"] == ("/outside.p12", "server.properties:7", own)
    assert outside["ssl.key.password"] == (HIDDEN, "server.properties:7", "ssl.key.password")
    assert outside["ssl.truststore.password"] == (None, "default", None)
    assert gets("TLS")["ssl.keystore.location"] == (None, "default", None)


def test_a_mechanism_gets_its_own_values_and_those_of_all_listeners():
    plain = gets("OUTSIDE", "PLAIN")
    assert plain["sasl.jaas.config"][0::2] == (HIDDEN, "listener.name.outside.plain.sasl.jaas.config")
    assert plain["connections.max.reauth.ms"][0::2] == ("7", "plain.connections.max.reauth.ms")
    assert gets("OUTSIDE", "OAUTHBEARER")["connections.max.reauth.ms"] == ("0", "default", None)


def test_a_listener_of_sasl_does_not_take_the_client_certificates_of_all_listeners():
    assert gets("OUTSIDE")["ssl.client.auth"] == ("none", "default", None)
    assert gets("TLS")["ssl.client.auth"] == ("required", "server.properties:7", "ssl.client.auth")


def test_what_does_not_concern_a_listener_is_left_out():
    assert not any(name.startswith("sasl.") for name in gets("TLS"))
    assert gets("PLAINTEXT") == {}
    assert not any(name.startswith("sasl.oauthbearer.") for name in gets("OUTSIDE", "PLAIN"))
    assert any(name.startswith("sasl.oauthbearer.") for name in gets("OUTSIDE", "OAUTHBEARER"))
    # What has no effect is shown when it is set.
    assert "ssl.provider" in gets("OUTSIDE")
    assert "ssl.provider" not in gets("TLS")


def test_properties_of_single_listeners_are_shown_as_they_are_written():
    rows = {row["name"]: row for row in broker_report(configured())}
    assert rows["listener.name.outside.ssl.keystore.location"]["value"] == "/outside.p12"
    assert rows["plain.connections.max.reauth.ms"]["value"] == "7"
    hidden = {name for name, row in rows.items() if row["value"] == HIDDEN}
    assert hidden == {name for name, text in TEXTS.items() if text == SECRET}
    assert (rows["listener.name.outside.my.own"]["effect"], rows["listener.name.outside.my.own"]["type"]) == (
        "unknown",
        None,
    )


def test_no_secret_is_shown():
    assert SECRET not in json.dumps([broker_report(configured()), listener_report(configured())])


def test_a_malformed_value_of_a_listener_is_an_error_with_its_place():
    name = "listener.name.tls.ssl.allow.dn.changes"
    with pytest.raises(ConfigError, match=r"^server.properties:7: Invalid value x"):
        listener_report(configured(**{name: "x"}))
