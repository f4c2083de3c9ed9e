"""Delegation tokens: nodes, HMACs, and what each of the four requests decides."""

import base64
import hashlib
import hmac
import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.security.sasl.exchange import Compute
from barnabas.security.sasl.scram import MECHANISMS
from barnabas.security.sasl.scram_exchange import ScramClient, ScramServer
from barnabas.security.sasl.tokens import (
    DelegationToken,
    DelegationTokens,
    TokenRules,
    check_caller,
    create_token,
    expire_token,
    is_described,
    new_token_id,
    renew_token,
    token_hmac,
)
from barnabas.wire.errors import Refuse

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
RULES = TokenRules("the secret")
DISABLED = TokenRules(None)
OWNER, REQUESTER, RENEWER, OTHER = (KafkaPrincipal("User", name) for name in ("owner", "requester", "renewer", "other"))
TOKEN = DelegationToken("id", OWNER, REQUESTER, (RENEWER,), NOW_MS, NOW_MS + 7 * DAY_MS, NOW_MS + DAY_MS)
PATH = "/delegation_token/tokens/id"


def refused(function, *arguments, **named):
    with pytest.raises(Refuse) as caught:
        function(*arguments, **named)
    return int(caught.value.code)


# -- nodes


def test_a_node_is_kafkas():
    token = TOKEN._replace(owner=KafkaPrincipal("User", "CN=a, b*"))
    assert json.loads(token.encode()) == {
        "version": 3,
        "owner": "User%3ACN%3Da%2C%20b%2A",
        "tokenRequester": "User%3Arequester",
        "renewers": ["User%3Arenewer"],
        "issueTimestamp": NOW_MS,
        "maxTimestamp": NOW_MS + 7 * DAY_MS,
        "expiryTimestamp": NOW_MS + DAY_MS,
        "tokenId": "id",
    }
    assert DelegationToken.decode(token.encode(), PATH) == token


@pytest.mark.parametrize("version", [1, 2])
def test_older_nodes_have_no_requester(version):
    fields = json.loads(TOKEN.encode()) | {"version": version}
    del fields["tokenRequester"]
    assert DelegationToken.decode(json.dumps(fields).encode(), PATH) == TOKEN._replace(requester=OWNER)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 4},
        {"version": "3"},
        {"owner": 7},
        {"owner": "nocolon"},
        {"renewers": "User%3Aa"},
        {"renewers": ["nocolon"]},
        {"renewers": None},
        {"issueTimestamp": "soon"},
        {"expiryTimestamp": None},
        {"tokenId": None},
    ],
)
def test_a_malformed_node_is_refused_by_its_path(wrong):
    data = json.dumps(json.loads(TOKEN.encode()) | wrong).encode()
    with pytest.raises(ValueError, match=PATH) as caught:
        DelegationToken.decode(data, PATH)
    assert str(caught.value).count(PATH) == 1
    with pytest.raises(ValueError, match=PATH):
        DelegationToken.decode(None, PATH)


principals = st.builds(KafkaPrincipal, st.just("User"), st.text(st.characters(exclude_categories=["Cs"]), max_size=10))
times = st.integers(-1, 1 << 62)


@given(
    st.builds(
        DelegationToken,
        st.text("abc-_", min_size=1),
        principals,
        principals,
        st.lists(principals, max_size=3).map(tuple),
        times,
        times,
        times,
    )
)
def test_every_token_is_read_back(token):
    assert DelegationToken.decode(token.encode(), PATH) == token


def test_the_hmac_is_made_of_the_id_and_the_secret():
    expected = hmac.new(b"the secret", b"id", hashlib.sha512).digest()
    assert token_hmac("id", "the secret") == expected
    assert "secret" not in repr(RULES)


def test_a_token_id_has_22_characters():
    assert new_token_id(bytes(range(240, 256))) == "8PHy8_T19vf4-fr7_P3-_w"


# -- who may ask


@pytest.mark.parametrize(
    ("protocol", "principal", "is_token", "is_allowed"),
    [
        ("PLAINTEXT", ANONYMOUS, False, False),
        ("SSL", ANONYMOUS, False, False),
        ("SSL", OWNER, False, True),
        ("SASL_PLAINTEXT", OWNER, False, True),
        ("SASL_SSL", OWNER, False, True),
        ("SASL_SSL", OWNER, True, False),
        ("SASL_PLAINTEXT", OWNER, True, False),
    ],
)
def test_who_may_ask_for_tokens(protocol, principal, is_token, is_allowed):
    if is_allowed:
        check_caller(protocol, principal, is_token=is_token)
    else:
        assert refused(check_caller, protocol, principal, is_token=is_token) == 64


# -- create


@pytest.mark.parametrize(
    ("lifetime_ms", "max_days", "expires_days"),
    [(-1, 7, 1), (0, 7, 1), (DAY_MS // 2, 0.5, 0.5), (2 * DAY_MS, 2, 1), (99 * DAY_MS, 7, 1), ((1 << 63) - 1, 7, 1)],
)
def test_a_new_token_ends_with_its_lifetime(lifetime_ms, max_days, expires_days):
    token = create_token(RULES, OWNER, REQUESTER, [RENEWER], lifetime_ms, "id", NOW_MS)
    assert token == TOKEN._replace(
        max_at_ms=NOW_MS + int(max_days * DAY_MS), expires_at_ms=NOW_MS + int(expires_days * DAY_MS)
    )


def test_a_token_is_not_created():
    group = KafkaPrincipal("Group", "g")
    assert refused(create_token, RULES, OWNER, OWNER, [RENEWER, group], -1, "id", NOW_MS) == 67
    assert refused(create_token, DISABLED, OWNER, OWNER, [], -1, "id", NOW_MS) == 61


# -- renew and expire


@pytest.mark.parametrize("decide", [renew_token, expire_token])
def test_who_may_renew_and_expire_what(decide):
    assert refused(decide, DISABLED, TOKEN, OWNER, 1, NOW_MS) == 61
    assert refused(decide, RULES, None, OWNER, 1, NOW_MS) == 62
    for stranger in (REQUESTER, OTHER, KafkaPrincipal("Group", "owner")):
        assert refused(decide, RULES, TOKEN, stranger, 1, NOW_MS) == 63
    for expired in (TOKEN._replace(expires_at_ms=NOW_MS - 1), TOKEN._replace(max_at_ms=NOW_MS - 1)):
        assert refused(decide, RULES, expired, OWNER, 1, NOW_MS) == 66
        assert refused(decide, RULES, expired, OTHER, 1, NOW_MS) == 63
    for friend in (OWNER, RENEWER):
        decide(RULES, TOKEN, friend, 1, NOW_MS)
    decide(RULES, TOKEN._replace(expires_at_ms=NOW_MS), OWNER, 1, NOW_MS)


@pytest.mark.parametrize(
    ("period_ms", "expires_after_ms"),
    [(-1, DAY_MS), (0, 0), (1000, 1000), (8 * DAY_MS, 7 * DAY_MS), ((1 << 63) - 1, 7 * DAY_MS)],
)
def test_a_renewed_token_ends_after_the_period(period_ms, expires_after_ms):
    renewed = renew_token(RULES, TOKEN, RENEWER, period_ms, NOW_MS)
    assert renewed == TOKEN._replace(expires_at_ms=NOW_MS + expires_after_ms)


@pytest.mark.parametrize(
    ("period_ms", "expires_after_ms", "is_removed"),
    [(-1, 0, True), (0, 0, False), (1000, 1000, False), (8 * DAY_MS, 7 * DAY_MS, False)],
)
def test_an_expired_token_ends_after_the_period_or_is_removed(period_ms, expires_after_ms, is_removed):
    ended = TOKEN._replace(expires_at_ms=NOW_MS + expires_after_ms), is_removed
    assert expire_token(RULES, TOKEN, OWNER, period_ms, NOW_MS) == ended


def test_a_token_that_has_ended_can_be_removed():
    dead = TOKEN._replace(expires_at_ms=NOW_MS - 5)
    assert expire_token(RULES, dead, OWNER, -1, NOW_MS)[1]


# -- describe


@pytest.mark.parametrize(
    ("owners", "caller", "is_authorized", "is_shown"),
    [
        (None, OWNER, False, True),
        (None, REQUESTER, False, True),
        (None, RENEWER, False, True),
        (None, OTHER, False, False),
        (None, OTHER, True, True),
        ([], OWNER, True, False),
        ([OTHER], OWNER, True, False),
        ([OTHER, OWNER], OWNER, False, True),
        ([RENEWER], OWNER, False, True),
        ([OWNER], OTHER, True, True),
        ([OWNER], OTHER, False, False),
    ],
)
def test_which_tokens_are_described(owners, caller, is_authorized, is_shown):
    wanted = None if owners is None else frozenset(owners)
    assert is_described(TOKEN, wanted, caller, lambda token: is_authorized) is is_shown


# -- what a broker knows


def test_tokens_are_found_by_id_and_by_hmac_until_they_are_removed():
    known = DelegationTokens(RULES)
    known.put(TOKEN)
    known.put(TOKEN._replace(token_id="two"))
    assert known.with_hmac(token_hmac("id", "the secret")) == TOKEN
    assert known.with_hmac(token_hmac("id", "another secret")) is None
    assert known.with_hmac(b"") is None
    known.put(TOKEN._replace(expires_at_ms=NOW_MS - 1))
    assert [token.token_id for token in known.expired(NOW_MS)] == ["id"]
    known.remove("id")
    known.remove("id")
    assert known.with_hmac(token_hmac("id", "the secret")) is None
    assert [token.token_id for token in known] == ["two"]
    known.replace([TOKEN])
    assert list(known) == [TOKEN]
    assert len(known) == 1


def test_without_a_secret_there_are_no_tokens():
    known = DelegationTokens(DISABLED)
    known.put(TOKEN)
    assert list(known) == []
    assert refused(known.hmac_of, "id") == 61


def test_a_token_logs_in_by_both_mechanisms_and_computes_each_once():
    known = DelegationTokens(RULES)
    known.put(TOKEN)
    password = base64.b64encode(known.hmac_of("id")).decode()
    for mechanism in MECHANISMS.values():
        for is_first in (True, False):
            server = ScramServer(mechanism, {}.get, partial(known.login, mechanism), "server", b"salt")
            client = ScramClient(mechanism, "id", password, "client", is_token=True)
            step = server.evaluate(client.begin(), NOW_MS)
            assert isinstance(step, Compute) is is_first
            if is_first:
                step = step.then(step.run())
            prove = client.evaluate(step.token)
            complete = server.evaluate(prove.then(prove.run()), NOW_MS)
            assert (complete.principal, complete.expires_at_ms, complete.is_token) == (OWNER, NOW_MS + DAY_MS, True)
    known.remove("id")
    assert known.login(MECHANISMS[1], "id") is None


def test_a_token_that_is_removed_while_its_login_is_computed_leaves_nothing():
    known = DelegationTokens(RULES)
    known.put(TOKEN)
    server = ScramServer(MECHANISMS[1], {}.get, partial(known.login, MECHANISMS[1]), "server", b"salt")
    step = server.evaluate(b"n,,n=id,r=abc,tokenauth=true", NOW_MS)
    known.remove("id")
    step.then(step.run())
    known.put(TOKEN)
    assert known.login(MECHANISMS[1], "id").credential is None
