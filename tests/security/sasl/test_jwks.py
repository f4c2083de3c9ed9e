"""Signed access tokens: which keys and tokens are accepted, and when keys are fetched again."""

import json

import pytest
import trio
from cryptography.hazmat.primitives import hashes, hmac

from barnabas.security.sasl import jwks
from barnabas.security.sasl.jwks import Jwk, JwksCache, SignedTokenRules, SignedValidator, parse_jwks
from barnabas.security.sasl.jwks_refresh import ATTEMPTS_AT_START, JwksRefresher, JwksUnavailable
from barnabas.security.sasl.oauth import InvalidToken, ValidToken
from barnabas.world.world import run_inline
from tests.security.sasl.signed_tokens import CLAIMS, NOW, NOW_MS, PRIVATE, encoded, key_set, public, token

ALL = parse_jwks(key_set(*(public(name) for name in PRIVATE if name != "other")))


def validator(keys=ALL, missed=None, **rules):
    cache = JwksCache(3_600_000, 100, 10_000)
    cache.fetched(keys, 0)
    return SignedValidator(cache, SignedTokenRules(**rules), ([] if missed is None else missed).append)


def refusal(text, **options):
    with pytest.raises(InvalidToken) as caught:
        validator(**options).validate(text, NOW_MS)
    assert caught.value.answer == '{"status":"invalid_token"}'
    return str(caught.value)


# -- signatures


@pytest.mark.parametrize("algorithm", jwks.ALGORITHMS)
def test_each_algorithm_is_verified(algorithm):
    text = token(algorithm)
    assert validator().validate(text, NOW_MS) == ValidToken("alice", NOW_MS + 60_000)
    head, claims, signed = text.split(".")
    forged = encoded(json.dumps(CLAIMS | {"sub": "root"}).encode())
    assert refusal(f"{head}.{forged}.{signed}") == "the signature is wrong"
    assert refusal(f"{head}.{claims}.{signed[:-8]}") == "the signature is wrong"
    assert refusal(f"{head}.{claims}.") == "the signature is wrong"


def test_no_algorithm_without_a_public_key_is_accepted():
    def claimed(algorithm, sign=lambda signed: b""):
        signed = ".".join(
            encoded(json.dumps(part).encode()) for part in ({"alg": algorithm, "kid": "rsa"}, CLAIMS)
        ).encode()
        return f"{signed.decode()}.{encoded(sign(signed))}"

    def with_public_key_as_secret(signed):
        key = hmac.HMAC(public("rsa")["n"].encode(), hashes.SHA256())
        key.update(signed)
        return key.finalize()

    assert refusal(claimed("none")) == "an algorithm that is not accepted"
    assert refusal(claimed("HS256", with_public_key_as_secret)) == "an algorithm that is not accepted"
    for algorithm in (None, "", "RS1", ["RS256"], 7):
        assert refusal(claimed(algorithm)) == "an algorithm that is not accepted"


def test_the_key_must_be_the_one_that_is_named_and_of_the_algorithms_kind():
    assert refusal(token(name="other", kid="rsa")) == "the signature is wrong"
    assert refusal(token("RS256", kid="P-256")) == "no key of the set fits"
    assert refusal(token("ES256", kid="P-384")) == "no key of the set fits"
    only = parse_jwks(key_set(public("rsa", alg="RS512")))
    assert refusal(token("RS256"), keys=only) == "no key of the set fits"
    assert validator(only).validate(token("RS512"), NOW_MS)


def test_a_token_without_a_key_id_is_tried_with_the_keys_of_its_kind():
    keys = parse_jwks(key_set(public("other"), public("P-256"), public("rsa")))
    assert validator(keys).validate(token(kid=None), NOW_MS)
    assert refusal(token(name="other", kid=None)) == "the signature is wrong"


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"kid": 7}, {"kid": ["rsa"]}], ids=["crit", "number", "list"])
def test_a_header_that_is_not_understood_is_refused(header):
    assert refusal(token(**header)) == "a header that is not understood"


def test_an_unknown_key_is_reported():
    missed = []
    assert refusal(token(kid="new"), missed=missed) == "no key of the set fits"
    assert missed == ["new"]
    assert refusal(token(), keys=()) == "no key of the set fits"


# -- claims


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": "alice", "exp": NOW + 60},
        {"sub": "alice", "iat": NOW},
        {"exp": NOW + 60, "iat": NOW},
        CLAIMS | {"sub": " "},
        CLAIMS | {"sub": "\ud800"},
        CLAIMS | {"sub": 7},
        CLAIMS | {"exp": NOW - 30},
        CLAIMS | {"exp": 0, "iat": 0},
        CLAIMS | {"exp": "253402300799"},
        CLAIMS | {"nbf": NOW + 31},
        CLAIMS | {"iat": NOW + 61},
        CLAIMS | {"aud": "other"},
        CLAIMS | {"scope": "a  b"},
        CLAIMS | {"scope": "a a"},
        CLAIMS | {"scope": ["a", ""]},
        CLAIMS | {"scope": ["a", 7]},
        CLAIMS | {"scope": {}},
        '{"sub":"root",' + json.dumps(CLAIMS)[1:],
    ],
)
def test_a_token_whose_claims_do_not_suffice_is_refused(claims):
    refusal(token(claims=claims))


@pytest.mark.parametrize(
    "claims",
    [
        CLAIMS | {"exp": NOW - 29},
        CLAIMS | {"exp": 253402300799},
        CLAIMS | {"nbf": NOW + 30},
        CLAIMS | {"scope": "a b"},
        CLAIMS | {"scope": ["a", "b"]},
        CLAIMS | {"sub": " alice "},
    ],
)
def test_a_token_whose_claims_suffice_is_accepted(claims):
    # The margins of 30 s are `sasl.oauthbearer.clock.skew.seconds`.
    if claims["exp"] < NOW:
        claims |= {"iat": NOW - 60}
    assert validator().validate(token(claims=claims), NOW_MS).principal_name == "alice"


def test_issuer_audience_and_other_names_of_claims():
    rules = {"issuer": "https://issuer", "audiences": ("one", "two"), "sub_claim": "user", "scope_claim": "rights"}
    good = {"iss": "https://issuer", "aud": "two", "user": "bob", "rights": "a", "exp": NOW + 60, "iat": NOW}
    assert validator(**rules).validate(token(claims=good), NOW_MS).principal_name == "bob"
    assert validator(**rules).validate(token(claims=good | {"aud": ["x", "one"]}), NOW_MS)
    for wrong in ({"iss": "https://issuer/"}, {"iss": None}, {"aud": "three"}, {"aud": None}, {"aud": []}):
        refusal(token(claims=good | wrong), **rules)


def test_no_refusal_repeats_the_token():
    text = token(claims=CLAIMS | {"aud": "hunter2"})
    said = refusal(text)
    assert "hunter2" not in said
    assert text not in said


# -- key sets


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"kty": "oct", "k": "AAAA"},
        public("rsa", use="enc"),
        public("rsa", key_ops=["sign"]),
        public("rsa", n=""),
        public("rsa", n="~"),
        public("rsa", e="AA"),
        public("rsa", n=encoded(1 << 20_000)),
        public("rsa", n=7),
        public("P-256", crv="P-384"),
        public("P-256", crv="secp256k1"),
        public("P-256", x="AAAA"),
        public("Ed25519", x="AAAA"),
        public("Ed25519", crv="X25519"),
    ],
)
def test_keys_that_cannot_verify_are_left_out(row):
    assert [key.key_id for key in parse_jwks(key_set(row, "text", public("rsa")))] == ["rsa"]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys":{}}', b"\xff", b"[" * 100_000, b" " * (jwks.JWKS_BYTES_MAX + 1)]
)
def test_what_is_no_key_set_is_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011  # of several kinds
        parse_jwks(data)


# -- when keys are fetched


def test_keys_are_due_at_the_interval_and_sooner_after_a_failure():
    cache = JwksCache(3_600_000, 100, 1000)
    assert cache.due_at_ms == 0
    waits = []
    for _ in range(6):
        cache.failed(5000)
        waits.append(cache.due_at_ms - 5000)
    assert waits == [100, 200, 400, 800, 1000, 1000]
    cache.fetched((), 5000)
    assert cache.due_at_ms == 3_605_000
    cache.failed(5000)
    assert cache.due_at_ms == 5100


def test_an_unknown_key_id_makes_keys_due_at_most_once_a_minute():
    cache = JwksCache(3_600_000, 100, 1000)
    cache.fetched((), 0)
    assert not cache.missed(None, 10)
    assert not cache.missed("x" * 1001, 10)
    assert cache.missed("x" * 1000, 10)
    assert cache.due_at_ms == 10
    cache.fetched((), 20)
    assert [cache.missed("x" * 1000, now_ms) for now_ms in (20, 60_009, 60_010)] == [False, False, True]


def test_made_up_key_ids_fetch_at_most_sixteen_times_a_minute():
    cache = JwksCache(3_600_000, 100, 1000)
    assert sum(cache.missed(f"made up {number}", number) for number in range(1000)) == 16
    assert not cache.missed("made up 0", 1000)
    assert cache.missed("new", 60_001)


class Endpoint:
    """What `fetch` finds: key sets and errors, one after the other; the last one stays."""

    def __init__(self, *found):
        self.found = list(found)
        self.fetched_at = []

    def fetch(self, url):
        assert url == "https://issuer/keys"
        self.fetched_at.append(trio.current_time())
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found


def refresher(endpoint):
    cache = JwksCache(3_600_000, 100, 10_000)
    return cache, JwksRefresher(cache, "https://issuer/keys", endpoint.fetch, run_inline)


async def test_keys_are_fetched_at_the_start_at_the_interval_and_for_a_new_key_id(nursery, autojump_clock):
    endpoint = Endpoint(key_set(public("rsa")), key_set(public("rsa"), public("P-256")), OSError("unreachable"))
    cache, refreshing = refresher(endpoint)
    await refreshing.start()
    assert [key.key_id for key in cache.keys] == ["rsa"]
    nursery.start_soon(refreshing.run)
    await trio.sleep(10)
    refreshing.missed("P-256")
    refreshing.missed("P-256")
    await trio.sleep(1)
    assert [key.key_id for key in cache.keys] == ["rsa", "P-256"]
    # From now on the endpoint is not reachable: the keys stay.
    await trio.sleep(3601)
    assert [key.key_id for key in cache.keys] == ["rsa", "P-256"]
    start = endpoint.fetched_at[0]
    assert [round(at - start, 1) for at in endpoint.fetched_at[:6]] == [0, 10, 3610, 3610.1, 3610.3, 3610.7]


async def test_a_start_is_retried_and_then_fails(autojump_clock):
    endpoint = Endpoint(OSError("unreachable"), b"no keys", key_set(public("rsa")))
    cache, refreshing = refresher(endpoint)
    await refreshing.start()
    assert len(cache.keys) == 1
    endpoint = Endpoint(OSError("unreachable"))
    with pytest.raises(JwksUnavailable, match="https://issuer/keys"):
        await refresher(endpoint)[1].start()
    assert len(endpoint.fetched_at) == ATTEMPTS_AT_START


def test_a_key_of_a_set_fits_one_curve():
    (key,) = parse_jwks(key_set(public("P-256")))
    assert isinstance(key, Jwk)
    assert key.fits("P-256", "ES256")
    assert not key.fits("P-256", "ES384")
