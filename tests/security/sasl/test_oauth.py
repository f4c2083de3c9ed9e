"""SASL OAUTHBEARER: the message, unsecured tokens, and refusals that the client acknowledges."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.principals import KafkaPrincipal
from barnabas.security.sasl.exchange import Broken, Challenge, Complete, LoginFailed, Rejected
from barnabas.security.sasl.oauth import (
    LONG_MAX,
    InvalidToken,
    OAuthClient,
    OAuthServer,
    UnsecuredValidator,
    parse_jwt,
    unsecured_claims,
    unsecured_token,
)

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
CLAIMS = {"sub": "alice", "exp": NOW + 60}
INVALID = '{"status":"invalid_token"}'


def first(token, *, authorization_id="", scheme="Bearer", more=""):
    return f"n,{authorization_id},\x01auth={scheme} {token}\x01{more}\x01".encode()


def part(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.b64encode(text.encode()).decode().rstrip("=")


def server(**options):
    return OAuthServer(UnsecuredValidator({f"unsecuredValidator{name}": text for name, text in options.items()}))


def answer(token, **options):
    return server(**options).evaluate(first(token), NOW_MS)


def test_a_valid_token_logs_its_subject_in_until_it_expires():
    complete = Complete(b"", KafkaPrincipal("User", "alice"), NOW_MS + 60_000)
    assert answer(unsecured_token(CLAIMS)) == complete
    for message in [
        first(unsecured_token(CLAIMS), authorization_id="a=alice"),
        first(unsecured_token(CLAIMS), scheme="bEARER"),
        first(unsecured_token(CLAIMS), scheme="Bearer    "),
        first(unsecured_token(CLAIMS), more="trace=a b\tc\x01auths=x\x01"),
        first("x.y.z", more=f"auth=Bearer {unsecured_token(CLAIMS)}\x01"),
    ]:
        assert server().evaluate(message, NOW_MS) == complete, message


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"y,,\x01auth=Bearer a.b.\x01\x01",
        b"n,a=,\x01auth=Bearer a.b.\x01\x01",
        b"n,,\x01auth=Bearer a.b.\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a.b.\x01x1=y\x01\x01",
        b"n,,\x01auth=Bearer a.b.\x01x=\xff\x01\x01",
        b"n,,\x01auth=Bearer a.b.\x01x=\0\x01\x01",
        b"n,,\x01AUTH=Bearer a.b.\x01\x01",
        b"\0" * 524_288,
        b"n,a=" + b"=2C" * 20_000,
        first("A" * 65_536),
    ],
)
def test_a_malformed_message_is_rejected(message):
    rejected = server().evaluate(message, NOW_MS)
    assert isinstance(rejected, Rejected)
    assert rejected.message is None


def test_another_scheme_breaks_the_exchange():
    assert isinstance(server().evaluate(first("abc", scheme="Basic"), NOW_MS), Broken)


HEADER = part({"alg": "none"})
MANY = "[" * 40_000
NO_NUMBER = '{"sub":"alice","exp":NaN}'
LONG_NUMBER = '{"sub":"alice","exp":' + "9" * 5000 + "}"


@pytest.mark.parametrize(
    "token",
    [
        "a",
        "a.b",
        "a.b.c",
        "..",
        f"{HEADER}..",
        f"{HEADER}.{part(CLAIMS)}",
        f"{HEADER}.{part(CLAIMS)}.AAAA",
        f"{HEADER}.{part(CLAIMS)}..",
        f"{HEADER}.{part(CLAIMS)[:-5]}~.",
        f"{HEADER}.{part(MANY)}.",
        f"{HEADER}.{part([])}.",
        f"{HEADER}.{part('{')}.",
        f"{HEADER}.{part('null')}.",
        f"{part({'alg': 'None'})}.{part(CLAIMS)}.",
        f"{part({'alg': 'HS256'})}.{part(CLAIMS)}.",
        f"{part({})}.{part(CLAIMS)}.",
        f"{part({'alg': ['none']})}.{part(CLAIMS)}.",
        *(
            unsecured_token(claims)
            for claims in [
                {},
                {"sub": "alice"},
                {"exp": NOW + 60},
                CLAIMS | {"sub": " "},
                CLAIMS | {"sub": "\ud800"},
                CLAIMS | {"sub": 7},
                CLAIMS | {"exp": "soon"},
                CLAIMS | {"exp": True},
                CLAIMS | {"exp": None},
                CLAIMS | {"exp": 1e400},
                CLAIMS | {"exp": 10**400},
                CLAIMS | {"exp": NOW},
                CLAIMS | {"exp": 0},
                CLAIMS | {"exp": -1},
                CLAIMS | {"iat": NOW + 1},
                CLAIMS | {"iat": NOW + 60},
                CLAIMS | {"iat": "x"},
            ]
        ),
        f"{HEADER}.{part(NO_NUMBER)}.",
        f"{HEADER}.{part(LONG_NUMBER)}.",
    ],
)
def test_an_invalid_token_fails_once_the_client_has_read_why(token):
    side = server()
    assert side.evaluate(first(token), NOW_MS) == Challenge(INVALID.encode())
    rejected = side.evaluate(b"\x01", NOW_MS)
    assert rejected.message == INVALID
    # A second acknowledgement is no message.
    assert side.evaluate(b"\x01", NOW_MS).message == INVALID


def test_a_refused_client_may_try_another_token():
    side = server()
    side.evaluate(first("a.b.c"), NOW_MS)
    assert isinstance(side.evaluate(first(unsecured_token(CLAIMS)), NOW_MS), Complete)


def test_both_base64_alphabets_are_read():
    claims = CLAIMS | {"sub": "???>>>~~~"}
    url_safe = unsecured_token(claims)
    standard = url_safe.replace("-", "+").replace("_", "/")
    assert url_safe != standard
    assert answer(url_safe).principal == answer(standard).principal == KafkaPrincipal("User", "???>>>~~~")


def test_the_skew_and_the_years_1970_and_9999():
    late = unsecured_token(CLAIMS | {"exp": NOW - 1, "iat": NOW - 10})
    assert answer(late) == Challenge(INVALID.encode())
    assert isinstance(answer(late, AllowableClockSkewMs="1001"), Complete)
    assert answer(unsecured_token(CLAIMS | {"exp": 1})) == Challenge(INVALID.encode())
    assert answer(unsecured_token(CLAIMS | {"exp": 253402300799})).expires_at_ms == 253402300799000
    assert answer(unsecured_token(CLAIMS | {"exp": 9e18})).expires_at_ms == LONG_MAX


def test_required_scopes():
    def scoped(scope):
        return answer(unsecured_token(CLAIMS | {"scope": scope}), RequiredScope="read write")

    lacking = Challenge(b'{"status":"insufficient_scope", "scope":"[read, write]"}')
    assert isinstance(scoped(["write", " read ", "more"]), Complete)
    assert [scoped(each) for each in (None, "read write", ["read"], 7, [7])] == [lacking] * 5


def test_claims_with_other_names():
    token = unsecured_token({"user": "bob", "exp": NOW + 60, "rights": ["read"]})
    complete = answer(token, PrincipalClaimName="user", ScopeClaimName="rights", RequiredScope="read")
    assert complete.principal.name == "bob"


def test_another_authorization_id_is_rejected_in_kafkas_words():
    rejected = server().evaluate(first(unsecured_token(CLAIMS), authorization_id="a=bob"), NOW_MS)
    assert rejected.message == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's principal"
        " name (alice)"
    )


@given(st.text(max_size=100))
def test_no_text_is_a_jwt_by_chance(text):
    try:
        parse_jwt(text)
    except InvalidToken as refusal:
        assert text == "" or text not in str(refusal) or len(text) < 10


@given(st.lists(st.binary(max_size=100), max_size=3))
def test_random_messages_never_raise(sent):
    side = server()
    for message in sent:
        assert isinstance(side.evaluate(message, NOW_MS), Rejected)


def test_no_refusal_repeats_the_token():
    side = server()
    token = f"{part({'alg': 'RS256'})}.{part(CLAIMS | {'jti': 'hunter2'})}.AAAA"
    seen = [side.evaluate(first(token), NOW_MS), side.evaluate(b"\x01", NOW_MS)]
    assert token not in repr(seen)
    assert "hunter2" not in repr(seen)


# -- the client's side


def test_our_own_login_with_an_unsecured_token():
    options = {
        "unsecuredLoginStringClaim_sub": "broker",
        "unsecuredLoginNumberClaim_n": "1.5",
        "unsecuredLoginListClaim_scope": ",a,b",
        "unsecuredLoginLifetimeSeconds": "10",
        "serviceName": "ignored",
    }
    client = OAuthClient(unsecured_token(unsecured_claims(options, NOW_MS)))
    complete = server(RequiredScope="a b").evaluate(client.begin(), NOW_MS)
    assert complete == Complete(b"", KafkaPrincipal("User", "broker"), NOW_MS + 10_000)
    assert client.evaluate(complete.token) is None
    assert client.evaluate(INVALID.encode()) == b"\x01"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unsecuredLoginStringClaim_sub": "b", "unsecuredLoginLifetimeSeconds": "x"},
        {"unsecuredLoginStringClaim_sub": "b", "unsecuredLoginNumberClaim_n": "inf"},
    ],
)
def test_options_that_make_no_token(options):
    with pytest.raises(LoginFailed):
        unsecured_claims(options, NOW_MS)
