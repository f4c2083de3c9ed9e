"""The SASL of a listener, made of its properties: each mechanism logs in, with its own limits."""

import random
import re
from functools import partial

import pytest

from barnabas.config.listener_settings import read_listener
from barnabas.security.listener_security import security_of
from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.client import Credentials
from barnabas.security.sasl.exchange import Complete, Compute, Rejected
from barnabas.security.sasl.jwks import SignedTokenRules
from barnabas.security.sasl.mechanisms import (
    Shared,
    jwks_cache,
    nonce,
    own_credentials,
    sasl_settings,
    signed_token_rules,
    verifies_signatures,
)
from barnabas.security.sasl.oauth import ValidToken
from barnabas.security.sasl.scram import MECHANISMS, Upsertion, encode_credential, salted_password
from barnabas.security.sasl.scram_credentials import ScramCredentials
from barnabas.security.sasl.tokens import DelegationTokens, TokenRules, create_token
from barnabas.wire import messages as m

ALICE = KafkaPrincipal("User", "alice")
PACKAGE = "org.apache.kafka.common.security"
OWN = "listener.name.outside."
SCRAM = f"{PACKAGE}.scram.ScramLoginModule required"
TEXTS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.server.max.receive.size": "1000",
    "connections.max.reauth.ms": "5",
    f"{OWN}scram-sha-512.connections.max.reauth.ms": "7",
    f"{OWN}plain.sasl.jaas.config": (
        f'{PACKAGE}.plain.PlainLoginModule required username="broker" password="x" user_alice="alice-secret" user_="y";'
    ),
    f"{OWN}scram-sha-256.sasl.jaas.config": f'{SCRAM} username="alice" password="alice-secret";',
    f"{OWN}scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    f"{OWN}oauthbearer.sasl.jaas.config": (
        f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredValidatorRequiredScope="a";'
    ),
}
SIGNED = {
    f"{OWN}oauthbearer.sasl.server.callback.handler.class": (
        f"{PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
    f"{OWN}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    f"{OWN}oauthbearer.sasl.oauthbearer.expected.audience": "one, two",
    f"{OWN}oauthbearer.sasl.oauthbearer.clock.skew.seconds": "7",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
    "sasl.oauthbearer.sub.claim.name": "user",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "9000",
}


def security(**changes):
    problems = []
    settings = read_listener(TEXTS | changes, "OUTSIDE", "SASL_PLAINTEXT", problems)
    made = security_of(settings, problems, contexts={})
    assert problems == []
    return made


def shared():
    scram, tokens = ScramCredentials(), DelegationTokens(TokenRules("secret"))
    texts = {
        mechanism.name: encode_credential(
            Upsertion("alice", number, 4096, b"salt", salted_password(b"alice-secret", b"salt", 4096, mechanism))
        )
        for number, mechanism in MECHANISMS.items()
    }
    scram.changed("alice", texts)
    tokens.put(create_token(tokens.rules, ALICE, ALICE, [], -1, "id", 0))
    return Shared(scram, tokens, random.Random(1))


def enabled(signed=None, everyone=None):
    return sasl_settings(security(), everyone or shared(), 100, signed).mechanisms


def logged_in(exchange, credentials):
    """The server's last step in a login of ours."""
    login = credentials.login(partial(nonce, random.Random(2)), 0)
    request = login.take(m.SaslHandshakeResponse())
    while True:
        step = exchange.evaluate(bytes(request.auth_bytes), 0)
        if isinstance(step, Compute):
            step = step.then(step.run())
        if isinstance(step, Complete | Rejected):
            return step
        request = login.take(m.SaslAuthenticateResponse(auth_bytes=step.token))
        if isinstance(request, Compute):
            request = request.then(request.run())


USER = {"username": "alice", "password": "alice-secret"}
LOGINS = {
    "PLAIN": USER,
    "SCRAM-SHA-256": USER,
    "SCRAM-SHA-512": USER,
    "OAUTHBEARER": {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginStringClaim_scope": "a"},
}


@pytest.mark.parametrize("mechanism", LOGINS)
def test_each_mechanism_logs_in_with_its_settings(mechanism):
    settings = sasl_settings(security(), shared(), 250)
    assert (settings.failure_delay_ms, settings.token_bytes_max) == (250, 1000)
    assert settings.mechanisms[mechanism].max_reauth_ms == (7 if mechanism == "SCRAM-SHA-512" else 5)
    complete = logged_in(settings.mechanisms[mechanism].begin(), Credentials(mechanism, LOGINS[mechanism]))
    assert complete.principal == ALICE


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_delegation_token_logs_in_and_its_credential_is_kept(mechanism):
    everyone = shared()
    mechanisms = enabled(everyone=everyone)
    password = everyone.tokens.login(MECHANISMS[1], "id").password.decode()
    options = {"username": "id", "password": password, "tokenauth": "true"}
    assert logged_in(mechanisms[mechanism].begin(), Credentials(mechanism, options)).is_token
    assert not isinstance(mechanisms[mechanism].begin().evaluate(b"n,,n=id,r=abc,tokenauth=true", 0), Compute)


def test_the_brokers_own_username_is_no_user_of_plain():
    own = own_credentials(security(), "PLAIN")
    assert isinstance(logged_in(enabled()["PLAIN"].begin(), own), Rejected)


def test_the_brokers_own_login():
    own = own_credentials(security(), "SCRAM-SHA-256")
    assert logged_in(enabled()["SCRAM-SHA-256"].begin(), own).principal == ALICE


def test_signed_tokens_have_a_validator_of_their_own():
    class Everybody:
        def validate(self, token, now_ms):
            return ValidToken("bob", 5)

    mechanism = enabled(Everybody())["OAUTHBEARER"]
    assert logged_in(mechanism.begin(), Credentials("OAUTHBEARER", LOGINS["OAUTHBEARER"])).principal.name == "bob"


def test_the_properties_of_signed_tokens():
    assert not verifies_signatures(security().settings.by_mechanism["OAUTHBEARER"])
    own = security(**SIGNED).settings.by_mechanism["OAUTHBEARER"]
    assert verifies_signatures(own)
    assert signed_token_rules(own) == SignedTokenRules(("one", "two"), "https://issuer", 7000, "scope", "user")
    cache = jwks_cache(own)
    cache.fetched((), 0)
    assert cache.due_at_ms == 9000
    cache.failed(0)
    assert cache.due_at_ms == 100


@pytest.mark.parametrize("skew", ["-1", "soon", "9" * 20])
def test_a_senseless_option_of_unsecured_tokens_is_refused(skew):
    module = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
    text = f'{module} unsecuredValidatorAllowableClockSkewMs="{skew}";'
    with pytest.raises(ValueError, match="unsecuredValidatorAllowableClockSkewMs"):
        sasl_settings(security(**{f"{OWN}oauthbearer.sasl.jaas.config": text}), shared(), 100)


def test_a_nonce_is_printable_and_new_each_time():
    rng = random.Random(1)
    nonces = {nonce(rng) for _ in range(100)}
    assert len(nonces) == 100
    assert all(re.fullmatch("[0-9a-f]{20,33}", each) for each in nonces)
