"""The security of a listener from its settings: stores, versions, rules, logins, and every refusal with its name."""

import pytest

from barnabas.config.listener_settings import read_listener
from barnabas.security.jaas import parse_jaas_file
from barnabas.security.listener_security import security_of
from barnabas.security.principals import KafkaPrincipal, principal_of_certificate
from barnabas.security.tls.contexts import client_context, load_stores, prove, server_context
from tests.security.key_material import authority_pem, chain_pem, der_of, key_pem, leaf

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
OWN = "listener.name.outside."
PEM = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": key_pem(leaf()),
    "ssl.keystore.certificate.chain": chain_pem(leaf()),
    f"{OWN}ssl.truststore.type": "PEM",
    f"{OWN}ssl.truststore.certificates": authority_pem(),
}
USERS = {
    "sasl.enabled.mechanisms": "PLAIN",
    f"{OWN}plain.sasl.jaas.config": f'{PLAIN} required user_klamm="sortini";',
}


def found(texts, protocol="SASL_SSL", contexts=None, inter_broker=None):
    """The security of a listener, and the problems."""
    problems = []
    settings = read_listener(texts, "OUTSIDE", protocol, problems)
    security = security_of(settings, problems, contexts=contexts or {}, inter_broker=inter_broker)
    assert (security is None) == bool(problems)
    return security, problems


def problem_of(texts, protocol="SASL_SSL", **values):
    _, (problem,) = found(texts, protocol, **values)
    return problem


def test_a_listener_with_tls_and_logins():
    security, _ = found(PEM | USERS)
    assert security.logins["PLAIN"].options == {"user_klamm": "sortini"}
    assert security.warnings == ()
    stores = load_stores(security.tls.key_store, security.tls.trust_store)
    prove(
        server_context(stores, security.tls.choice, security.tls.client_auth),
        client_context(stores, security.tls.choice, checks_host_name=False),
    )
    assert (security.tls.client_auth, security.tls.checks_host_name) == ("none", True)


def test_a_client_with_a_certificate_is_who_the_rules_say():
    rules = {"ssl.principal.mapping.rules": "RULE:^.*O=([^,]*) v.*$/$1/U", "ssl.client.auth": "required"}
    security, _ = found(PEM | rules, "SSL")
    assert security.tls.client_auth == "required"
    principal = principal_of_certificate(der_of(chain_pem(leaf()))[0], security.tls.mapping_rules)
    assert principal == KafkaPrincipal("User", "TRUSTME")


@pytest.mark.parametrize(("protocol", "texts"), [("PLAINTEXT", {}), ("SASL_PLAINTEXT", USERS), ("SSL", PEM)])
def test_a_listener_needs_only_what_its_protocol_uses(protocol, texts):
    broken = {} if protocol != "PLAINTEXT" else {"ssl.keystore.password": "x", f"{OWN}plain.sasl.jaas.config": "x"}
    security, _ = found(texts | broken, protocol)
    assert (security.tls is not None) == (protocol == "SSL")
    assert bool(security.logins) == (protocol == "SASL_PLAINTEXT")


@pytest.mark.parametrize(
    ("texts", "names", "why"),
    [
        (
            {f"{OWN}ssl.keystore.location": "castle.pem"},
            {f"{OWN}ssl.keystore.location"},
            f"{OWN}ssl.keystore.key: Both SSL key store location and separate private key are specified.",
        ),
        (
            {"ssl.truststore.location": "castle.pem"},
            {"ssl.truststore.location"},
            f"{OWN}ssl.truststore.certificates: Both SSL trust store location and separate trust",
        ),
        (
            {"ssl.enabled.protocols": "TLSv9"},
            {"ssl.enabled.protocols"},
            "ssl.enabled.protocols: Unsupported protocol TLSv9",
        ),
        (
            {f"{OWN}ssl.cipher.suites": "AES"},
            {f"{OWN}ssl.cipher.suites"},
            f"{OWN}ssl.cipher.suites: Unsupported CipherSuite: AES",
        ),
        (
            {"ssl.principal.mapping.rules": "RULE:(/x/"},
            {"ssl.principal.mapping.rules"},
            "ssl.principal.mapping.rules: Invalid rule: `RULE:(/x/`",
        ),
        (
            {"ssl.endpoint.identification.algorithm": "LDAPS"},
            {"ssl.endpoint.identification.algorithm"},
            "ssl.endpoint.identification.algorithm: LDAPS is not served: https is, or an empty value for no check",
        ),
    ],
)
def test_broken_settings_of_tls_are_refused_with_their_names(texts, names, why):
    problem = problem_of(PEM | texts, "SSL")
    assert names <= set(problem.names)
    assert problem.why.startswith(why)


def test_a_listener_with_tls_needs_a_key():
    assert problem_of({}, "SSL").why == (
        f"the listener OUTSIDE uses SSL, and has no key: set {OWN}ssl.keystore.location, or {OWN}ssl.keystore.key and"
        f" {OWN}ssl.keystore.certificate.chain"
    )


def test_the_check_of_host_names_can_be_left_out():
    security, _ = found(PEM | {"ssl.endpoint.identification.algorithm": ""}, "SSL")
    assert not security.tls.checks_host_name


def test_a_login_that_is_wrong_is_refused_without_its_passwords():
    name = f"{OWN}plain.sasl.jaas.config"
    texts = USERS | {name: f"{PLAIN} required user_klamm=sortini"}
    column = len(texts[name]) + 1
    assert problem_of(texts, "SASL_PLAINTEXT") == (
        (name,),
        f"{name}: JAAS config entry not terminated by semi-colon (line 1, column {column})",
    )
    wrong = problem_of(USERS | {name: f"{SCRAM} required password=sortini;"}, "SASL_PLAINTEXT")
    assert wrong.why == f"{name}: the login module {SCRAM} does not serve PLAIN, which needs {PLAIN}"


def test_logins_may_stand_in_a_jaas_file():
    contexts = parse_jaas_file(
        f"KafkaServer {{ {PLAIN} required user_a=a; {SCRAM} required; }}; outside.KafkaServer {{ {PLAIN} required; }};"
    )
    enabled = {"sasl.enabled.mechanisms": "PLAIN"}
    security, _ = found(enabled, "SASL_PLAINTEXT", contexts)
    assert security.logins["PLAIN"].options == {}  # the listener's own context
    del contexts["outside.KafkaServer"]
    security, _ = found({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}, "SASL_PLAINTEXT", contexts)
    assert (security.logins["PLAIN"].options, security.logins["SCRAM-SHA-256"].module) == ({"user_a": "a"}, SCRAM)
    security, _ = found(USERS, "SASL_PLAINTEXT", contexts)
    assert security.logins["PLAIN"].options == {"user_klamm": "sortini"}  # the property comes first


def test_a_mechanism_without_a_login_is_refused():
    problem = problem_of({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "SASL_PLAINTEXT")
    assert problem.names == (f"{OWN}scram-sha-256.sasl.jaas.config",)
    assert "Could not find a 'KafkaServer' or 'outside.KafkaServer' entry in the JAAS configuration" in problem.why


def test_tokens_are_not_accepted_without_the_keys_to_verify_them():
    texts = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{OWN}oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        f"{OWN}oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
    }
    assert problem_of(texts, "SASL_PLAINTEXT").why == (
        f"{OWN}oauthbearer.sasl.oauthbearer.jwks.endpoint.url is not set: without the keys of the provider no token can"
        " be verified"
    )
    for prefix in (f"{OWN}oauthbearer.", OWN, ""):
        assert found(texts | {f"{prefix}sasl.oauthbearer.jwks.endpoint.url": "file:/k"}, "SASL_PLAINTEXT")[0]


def test_all_problems_are_found_at_once():
    texts = {"ssl.protocol": "SSLv3", "ssl.principal.mapping.rules": "x", "sasl.login.class": "x"} | USERS
    _, problems = found(texts, inter_broker="SCRAM-SHA-512")
    assert len(problems) == 5


def test_what_does_not_keep_a_listener_from_being_served_is_a_warning():
    security, _ = found(PEM | USERS | {"ssl.client.auth": "required", "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"})
    assert [warning.split()[0] for warning in security.warnings] == ["ssl.client.auth", "ssl.cipher.suites:"]
