"""The settings of single listeners and mechanisms: what applies, what is refused, and what nothing reads."""

import pytest

from barnabas.config.listener_settings import (
    OF_LISTENER,
    ListenerSettings,
    problems_of,
    read_listener,
    unused,
    warnings_of,
)

OAUTH = "org.apache.kafka.common.security.oauthbearer"
PLAIN_ENABLED = {"sasl.enabled.mechanisms": "PLAIN"}


def settings_of(texts: dict[str, str], protocol="SASL_SSL", listener="OUTSIDE") -> ListenerSettings:
    problems = []
    settings = read_listener(texts, listener, protocol, problems)
    assert problems == []
    return settings


def problem_of(texts: dict[str, str], protocol="SASL_SSL", inter_broker=None) -> tuple[tuple[str, ...], str]:
    (problem,) = problems_of(settings_of(texts, protocol), inter_broker=inter_broker)
    return problem


def test_what_is_set_for_the_listener_applies_before_what_is_set_for_all():
    texts = {
        "ssl.keystore.location": "all.jks",
        "listener.name.outside.ssl.keystore.location": "outside.jks",
        "listener.name.inside.ssl.key.password": "sortini",
        "ssl.key.password": "burgel",
    }
    outside, inside = settings_of(texts), settings_of(texts, listener="inside")
    assert outside.text("ssl.keystore.location") == "outside.jks"
    assert outside.name_of("ssl.keystore.location") == "listener.name.outside.ssl.keystore.location"
    assert (outside.text("ssl.key.password"), inside.text("ssl.key.password")) == ("burgel", "sortini")
    assert inside.text("ssl.keystore.location") == "all.jks"
    assert (inside.text("ssl.keystore.type"), inside.name_of("ssl.keystore.type")) == ("JKS", "ssl.keystore.type")
    assert inside.texts("ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")
    assert inside.number("sasl.server.max.receive.size") == 524288
    assert inside.is_true("ssl.allow.dn.changes") is False


def test_a_mechanism_may_have_settings_of_its_own():
    """Listener and mechanism, mechanism, listener, all: the first that is set."""
    texts = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    found = []
    for name in ("", "listener.name.outside.", "scram-sha-512.", "listener.name.outside.scram-sha-512."):
        texts[f"{name}connections.max.reauth.ms"] = str(len(texts))
        found.append(settings_of(texts).by_mechanism["SCRAM-SHA-512"].number("connections.max.reauth.ms"))
    assert found == [1, 2, 3, 4]
    assert settings_of(texts).by_mechanism["PLAIN"].number("connections.max.reauth.ms") == 2


def test_a_login_is_that_of_a_mechanism_of_the_listener_only():
    texts = PLAIN_ENABLED | {
        "sasl.jaas.config": "all",
        "plain.sasl.jaas.config": "mechanism",
        "listener.name.outside.sasl.jaas.config": "listener",
    }
    assert settings_of(texts).by_mechanism["PLAIN"].text("sasl.jaas.config") is None
    texts["listener.name.outside.plain.sasl.jaas.config"] = "both"
    assert settings_of(texts).by_mechanism["PLAIN"].text("sasl.jaas.config") == "both"


def test_passwords_are_not_in_the_text_of_settings():
    texts = PLAIN_ENABLED | {"ssl.key.password": "sortini", "listener.name.outside.plain.sasl.jaas.config": "sortini"}
    assert "sortini" not in repr(settings_of(texts))


def test_settings_do_not_change():
    texts = {"ssl.keystore.type": "PEM"}
    settings = settings_of(texts)
    texts["ssl.keystore.type"] = "JKS"
    assert settings.text("ssl.keystore.type") == "PEM"
    with pytest.raises(TypeError):
        settings.values["ssl.keystore.type"] = "JKS"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "listener.name.outside.ssl.client.auth",
            "Required",
            "Invalid value Required for configuration ssl.client.auth: String must be one of: required, requested,"
            " none",
        ),
        (
            "listener.name.outside.plain.connections.max.reauth.ms",
            "soon",
            "Invalid value soon for configuration connections.max.reauth.ms: Not a number of type LONG",
        ),
        (
            "sasl.server.max.receive.size",
            "1e3",
            "Invalid value 1e3 for configuration sasl.server.max.receive.size: Not a number of type INT",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_name_that_sets_it(name, text, why):
    problems = []
    assert read_listener(PLAIN_ENABLED | {name: text}, "OUTSIDE", "SASL_SSL", problems) is None
    assert problems == [((name,), why)]


# -- rules


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({}, "and its mechanism is GSSAPI by default, which is not served"),
        ({"sasl.enabled.mechanisms": "GSSAPI,PLAIN"}, "and it names GSSAPI, which is not served"),
        ({"sasl.enabled.mechanisms": "PLAIN,plain,CRAM-MD5"}, "and it names plain, CRAM-MD5, which is not served"),
        ({"sasl.enabled.mechanisms": ""}, "and has no mechanism"),
    ],
)
def test_a_mechanism_that_is_not_served_is_refused(texts, why):
    names, message = problem_of(texts)
    assert names == ("sasl.enabled.mechanisms",)
    assert message == (
        f"the listener OUTSIDE uses SASL_SSL, {why}: set listener.name.outside.sasl.enabled.mechanisms"
        " (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are served)"
    )


def test_a_listener_without_sasl_needs_no_mechanism():
    for protocol in ("PLAINTEXT", "SSL"):
        settings = settings_of({}, protocol)
        assert (problems_of(settings, inter_broker="GSSAPI"), settings.by_mechanism) == ([], {})


def test_the_mechanism_of_brokers_must_be_enabled():
    names, message = problem_of(PLAIN_ENABLED, inter_broker="SCRAM-SHA-256")
    assert names == ("sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms")
    assert message == (
        "requirement failed: sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL"
        " is used for inter-broker communication"
    )
    assert problems_of(settings_of(PLAIN_ENABLED), inter_broker="PLAIN") == []


@pytest.mark.parametrize(
    "name",
    [
        "principal.builder.class",
        "listener.name.outside.principal.builder.class",
        "ssl.engine.factory.class",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "plain.sasl.login.callback.handler.class",
        "listener.name.outside.plain.sasl.server.callback.handler.class",
    ],
)
def test_a_foreign_class_is_refused_by_name(name):
    names, message = problem_of(PLAIN_ENABLED | {name: "com.example.Castle"})
    assert names == (name,)
    assert message.startswith(f"{name}: the Java class com.example.Castle cannot be used: remove it (")


def test_the_classes_for_tokens_are_built_in():
    oauth = "listener.name.outside.oauthbearer.sasl"
    texts = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{oauth}.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{oauth}.login.callback.handler.class": f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler",
    }
    assert problems_of(settings_of(texts)) == []
    validator = {"sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler"}
    _, message = problem_of(PLAIN_ENABLED | validator)
    assert "remove it (set its users in sasl.jaas.config)" in message


# -- clients' certificates


@pytest.mark.parametrize(
    ("protocol", "name", "expected"),
    [
        ("SSL", "ssl.client.auth", "required"),
        ("SSL", "listener.name.outside.ssl.client.auth", "required"),
        ("SASL_SSL", "ssl.client.auth", "none"),
        ("SASL_SSL", "listener.name.outside.ssl.client.auth", "required"),
    ],
)
def test_with_sasl_certificates_are_asked_for_by_the_listeners_own_setting_only(protocol, name, expected):
    settings = settings_of(PLAIN_ENABLED | {name: "required"}, protocol)
    assert settings.client_auth == expected
    assert len(warnings_of(settings)) == (0 if expected == "required" else 1)


def test_settings_of_javas_tls_are_warned_of():
    texts = {"ssl.provider": "BC", "listener.name.outside.ssl.trustmanager.algorithm": "SunX509"}
    assert warnings_of(settings_of(texts, "SSL")) == [
        "ssl.provider has no effect: it is about Java's TLS",
        "listener.name.outside.ssl.trustmanager.algorithm has no effect: it is about Java's TLS",
    ]
    assert warnings_of(settings_of(texts, "PLAINTEXT")) == []


def test_what_nothing_reads_is_warned_of():
    texts = [
        "sasl.jaas.config",
        "listener.name.outside.ssl.keystore.type",
        "listener.name.outside.plain.sasl.jaas.config",
        "plain.connections.max.reauth.ms",
        "listener.name.OUTSIDE.ssl.keystore.type",
        "listener.name.inside.ssl.keystore.type",
        "listener.name.outside.scram-sha-256.sasl.jaas.config",
        "listener.name.outside.sasl.jaas.config",
        "listener.name.outside.log.dirs",
        "listener.name.outside.num.network.threads",
    ]
    warnings = unused(texts, {"OUTSIDE": ("PLAIN",)})
    assert warnings[0] == "Server config sasl.jaas.config should be prefixed with SASL mechanism name, ignoring config"
    assert [warning.split()[0] for warning in warnings[1:]] == texts[4:]


def test_the_properties_of_a_listener_are_those_of_kafka():
    assert {"ssl.keystore.key", "sasl.enabled.mechanisms", "max.connections", "num.network.threads"} <= set(OF_LISTENER)
    assert not {"sasl.jaas.config", "listeners", "authorizer.class.name"} & set(OF_LISTENER)
