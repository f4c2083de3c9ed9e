"""Access tokens for our own logins: what is asked, what is accepted, and how long a token is used."""

import json

import pytest

from barnabas.security.sasl.client import Credentials
from barnabas.security.sasl.exchange import Challenge, Complete, LoginFailed
from barnabas.security.sasl.oauth import OAuthServer, UnsecuredValidator, unsecured_token
from barnabas.security.sasl.oauth_login import AccessTokens
from barnabas.wire import messages as m

NOW_MS = 1_700_000_000_000
OPTIONS = {"clientId": "broker", "clientSecret": "hunter2:ü"}


def answer(**claims):
    token = unsecured_token({"sub": "broker", "exp": NOW_MS / 1000 + 100} | claims)
    return json.dumps({"access_token": token, "token_type": "Bearer"}).encode(), token


def test_what_is_asked():
    tokens = AccessTokens(OPTIONS)
    assert tokens.form == b"grant_type=client_credentials"
    assert tokens.headers["Authorization"] == "Basic YnJva2VyOmh1bnRlcjI6w7w="
    assert AccessTokens(OPTIONS | {"scope": "a b&c"}).form == b"grant_type=client_credentials&scope=a+b%26c"


@pytest.mark.parametrize("options", [{}, {"clientId": "broker"}, {"clientSecret": "hunter2"}])
def test_options_that_do_not_suffice(options):
    with pytest.raises(LoginFailed, match="not both set") as caught:
        AccessTokens(options)
    assert "hunter2" not in str(caught.value)


def test_a_token_is_used_for_most_of_its_lifetime():
    tokens = AccessTokens(OPTIONS)
    assert tokens.current(NOW_MS) is None
    data, token = answer()
    assert tokens.take(data, NOW_MS) == token
    assert tokens.current(NOW_MS + 79_999) == token
    assert tokens.current(NOW_MS + 80_000) is None


def test_a_token_that_has_expired_already_is_used_once():
    tokens = AccessTokens(OPTIONS)
    data, token = answer(exp=1)
    assert tokens.take(data, NOW_MS) == token
    assert tokens.current(NOW_MS) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "JSON"),
        (b"<html>", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "without an access_token"),
        (b"{}", "without an access_token"),
        (b'{"access_token":7}', "without an access_token"),
        (b'{"access_token":"opaque"}', "no JWT"),
        (answer(exp=None)[0], "without exp or sub"),
        (answer(exp="soon")[0], "no JWT"),
        (answer(sub=None)[0], "without exp or sub"),
    ],
)
def test_answers_that_are_refused(data, why):
    with pytest.raises(LoginFailed, match=why):
        AccessTokens(OPTIONS).take(data, NOW_MS)


def test_a_login_with_such_a_token():
    token = AccessTokens(OPTIONS).take(answer()[0], NOW_MS)
    login = Credentials("OAUTHBEARER", OPTIONS).login(lambda: "", NOW_MS, token)
    first = login.take(m.SaslHandshakeResponse()).auth_bytes
    assert isinstance(OAuthServer(UnsecuredValidator({})).evaluate(first, NOW_MS), Complete)
    assert isinstance(OAuthServer(UnsecuredValidator({})).evaluate(first, NOW_MS + 200_000), Challenge)
