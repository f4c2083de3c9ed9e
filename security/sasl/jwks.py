"""Signed access tokens (pure): JWKs (RFC 7517), signatures (RFC 7515), and when keys are fetched again (KIP-768).

`JwksCache` holds the keys that `jwks_refresh.py` fetches from `sasl.oauthbearer.jwks.endpoint.url`, and decides when
that is due: at an interval, after a failure with a growing delay, and early when a token names a key that is not there,
but at most once a minute for each name. Until the first keys are there, and whenever none fits, tokens are refused.

Only signatures by RSA, ECDSA and Ed25519 keys count. A header's `alg` never chooses anything that its key does not
allow: "none" and HMAC, whose secret would be a public key, are unknown here (CVE-2026-33557).

`cryptography` is imported when the first key set is parsed, in a thread.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.security.sasl.oauth import (
    LONG_MAX,
    InvalidToken,
    ValidToken,
    from_base64,
    parse_jwt,
    principal_in,
    times_of,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

JWKS_BYTES_MAX = 1 << 20
KEYS_MAX = 1000
RSA_BITS_MAX = 16384  # the time of a check grows with the square of the bits
EARLY_REFRESH_MS = 60_000  # between two early refreshes for one key id
KEY_IDS_REMEMBERED_MAX = 16
KEY_ID_CHARACTERS_MAX = 1000
TRIED_MAX = 16  # keys, for a token that names none

RSA, EC, OKP = "RSA", "EC", "OKP"  # types of keys
# `alg` of a header -> the type of the key, its curve or padding, and the bits of the hash.
ALGORITHMS: Mapping[str, tuple[str, str, int]] = {
    "RS256": (RSA, "PKCS1", 256),
    "RS384": (RSA, "PKCS1", 384),
    "RS512": (RSA, "PKCS1", 512),
    "PS256": (RSA, "PSS", 256),
    "PS384": (RSA, "PSS", 384),
    "PS512": (RSA, "PSS", 512),
    "ES256": (EC, "P-256", 256),
    "ES384": (EC, "P-384", 384),
    "ES512": (EC, "P-521", 512),
    "EdDSA": (OKP, "Ed25519", 0),
}


class Jwk(NamedTuple):
    """A public key of a key set."""

    key_type: str
    curve: str  # "" for RSA
    key_id: str | None
    algorithm: str | None  # the only one that it may be used with
    key: "PublicKey"

    def fits(self, key_id: str | None, algorithm: str) -> bool:
        """Whether it may verify a token of this header."""
        # The header is the client's choice, so the key has to agree with its algorithm: a key must
        # not be used as one of another type (RFC 8725, 3.1).
        key_type, kind, _ = ALGORITHMS[algorithm]
        return (
            self.key_type == key_type
            and (key_type == RSA or self.curve == kind)
            and self.algorithm in (None, algorithm)
            and key_id in (None, self.key_id)
        )

    def verifies(self, algorithm: str, signature: bytes, signed: bytes) -> bool:
        """Whether this key made the signature. About 0.1 ms, so it runs on the event loop."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

        _, kind, bits = ALGORITHMS[algorithm]
        digest = {0: None, 256: hashes.SHA256(), 384: hashes.SHA384(), 512: hashes.SHA512()}[bits]
        try:
            if digest is None or not isinstance(self.key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
                self.key.verify(signature, signed)  # type: ignore[call-arg]  # Ed25519 has a hash of its own
            elif isinstance(self.key, rsa.RSAPublicKey):
                is_pss = kind == "PSS"
                filling = padding.PSS(padding.MGF1(digest), digest.digest_size) if is_pss else padding.PKCS1v15()
                self.key.verify(signature, signed, filling, digest)
            else:
                # JOSE joins r and s, each of the curve's size; OpenSSL wants them in DER.
                half = (self.key.curve.key_size + 7) // 8
                if len(signature) != 2 * half:
                    return False
                r = int.from_bytes(signature[:half], "big")
                s = int.from_bytes(signature[half:], "big")
                self.key.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        except InvalidSignature:
            return False

        return True


def parse_jwks(data: bytes) -> tuple[Jwk, ...]:
    """The keys of a key set that can verify signatures; all others are left out. ValueError if it is no key set."""
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"a key set of more than {JWKS_BYTES_MAX} bytes")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("a key set that is nested too deeply") from None
    rows = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        raise ValueError('a key set without "keys"')
    # Key sets also have keys for other purposes and of newer types, which a reader ignores (RFC
    # 7517, 5).
    keys = (_parse_jwk(row) for row in rows[:KEYS_MAX] if isinstance(row, dict))
    return tuple(key for key in keys if key is not None)


def _parse_jwk(row: Mapping[str, object]) -> Jwk | None:
    texts = {name: value for name, value in row.items() if isinstance(value, str)}
    operations = row.get("key_ops")
    if texts.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return None
    try:
        key = _load(texts)
    # ValueError: the numbers are no key. KeyError: a part is missing, or the curve is not known.
    except (InvalidToken, ValueError, KeyError):
        return None
    return None if key is None else Jwk(texts["kty"], texts.get("crv", ""), texts.get("kid"), texts.get("alg"), key)


def _load(texts: Mapping[str, str]) -> "PublicKey | None":
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    curves: Mapping[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}

    def number(name: str) -> int:
        return int.from_bytes(from_base64(texts[name]), "big")

    key_type = texts.get("kty")
    if key_type == RSA:
        modulus = number("n")
        if modulus.bit_length() > RSA_BITS_MAX:
            return None
        return rsa.RSAPublicNumbers(number("e"), modulus).public_key()

    if key_type == EC:
        return ec.EllipticCurvePublicNumbers(number("x"), number("y"), curves[texts["crv"]]).public_key()
    if key_type == OKP and texts["crv"] == "Ed25519":
        return ed25519.Ed25519PublicKey.from_public_bytes(from_base64(texts["x"]))
    return None


# -- when keys are fetched


class JwksCache:
    """The keys, and the time of the next fetch. All times are of the monotonic clock, in milliseconds."""

    def __init__(self, refresh_ms: int, retry_backoff_ms: int, retry_backoff_max_ms: int) -> None:
        self.keys: tuple[Jwk, ...] = ()
        self.due_at_ms = 0.0  # from then on keys are to be fetched
        self._refresh_ms = refresh_ms
        self._backoff_ms = retry_backoff_ms
        self._backoff_max_ms = retry_backoff_max_ms
        self._failures = 0  # in a row
        self._missed: OrderedDict[str, float] = OrderedDict()  # key id -> when it was last missed

    def fetched(self, keys: Iterable[Jwk], now_ms: float) -> None:
        """Take a new key set."""
        self.keys, self._failures = tuple(keys), 0
        self.due_at_ms = now_ms + self._refresh_ms

    def failed(self, now_ms: float) -> None:
        """A fetch has failed: the old keys stay, the next attempt is soon."""
        self.due_at_ms = now_ms + min(self._backoff_ms * 2**self._failures, self._backoff_max_ms)
        self._failures = min(self._failures + 1, 30)

    def missed(self, key_id: str | None, now_ms: float) -> bool:
        """A token names a key that is not there; True if keys are to be fetched at once for that."""
        # The client chooses the key id, so a long one is ignored, and only a few are remembered.
        if key_id is None or len(key_id) > KEY_ID_CHARACTERS_MAX:
            return False
        last = self._missed.get(key_id)
        if last is not None and now_ms - last < EARLY_REFRESH_MS:
            return False
        self._missed[key_id] = now_ms
        self._missed.move_to_end(key_id)

        # A key id that is forgotten could cause a fetch again. So a new one causes none while all
        # that are remembered are younger than EARLY_REFRESH_MS: otherwise a client could cause a
        # fetch with each token, by key ids that it makes up.
        if len(self._missed) > KEY_IDS_REMEMBERED_MAX:
            oldest = next(iter(self._missed))
            if now_ms - self._missed[oldest] < EARLY_REFRESH_MS:
                del self._missed[key_id]
                return False
            del self._missed[oldest]

        self.due_at_ms = min(self.due_at_ms, now_ms)
        return True


# -- validation


class SignedTokenRules(NamedTuple):
    """What a signed token must say: the properties `sasl.oauthbearer.*`."""

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    skew_ms: int = 30_000
    scope_claim: str = "scope"
    sub_claim: str = "sub"

    def judge(self, claims: Mapping[str, object], now_ms: int) -> ValidToken:
        """What these claims say, whose signature is verified. InvalidToken."""
        expires_at_ms = self._check_times(claims, now_ms)
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidToken("another issuer")
        self._check_audience(claims.get("aud"))
        self._check_scopes(claims.get(self.scope_claim))
        return ValidToken(principal_in(claims, self.sub_claim).strip(), min(round(expires_at_ms), LONG_MAX))

    def _check_times(self, claims: Mapping[str, object], now_ms: int) -> float:
        times = times_of(claims)
        expires_at_ms = times["exp"]
        issued_at_ms = times["iat"]
        not_before_ms = times["nbf"]
        if expires_at_ms is None or issued_at_ms is None:
            raise InvalidToken("no expiry time, or no time of issue")
        if now_ms - self.skew_ms >= expires_at_ms:
            raise InvalidToken("expired")
        if not_before_ms is not None and now_ms + self.skew_ms < not_before_ms:
            raise InvalidToken("not valid yet")
        if expires_at_ms < issued_at_ms or (not_before_ms is not None and expires_at_ms < not_before_ms):
            raise InvalidToken("it expires before it begins")
        return expires_at_ms

    def _check_audience(self, value: object) -> None:
        audiences = value if isinstance(value, list) else [value] if value is not None else []
        # If no audience is expected, a token with an audience is meant for another service.
        if self.audiences and not any(audience in self.audiences for audience in audiences):
            raise InvalidToken("for another audience")
        if not self.audiences and audiences:
            raise InvalidToken("for an audience, and none is expected")

    def _check_scopes(self, value: object) -> None:
        scopes = value.split(" ") if isinstance(value, str) else [] if value is None else value
        if not isinstance(scopes, list) or not all(isinstance(each, str) and each.strip() for each in scopes):
            raise InvalidToken("an empty scope, or one that is no text")
        if len({each.strip() for each in scopes}) < len(scopes):
            raise InvalidToken("a scope twice")


class SignedValidator:
    """Takes tokens that a key of the set has signed. `on_missed` is called with the key id of one that has no key."""

    def __init__(self, cache: JwksCache, rules: SignedTokenRules, on_missed: Callable[[str | None], object]) -> None:
        self._cache = cache
        self._rules = rules
        self._on_missed = on_missed

    def validate(self, token: str, now_ms: int) -> ValidToken:
        jwt = parse_jwt(token, _unique)
        algorithm = jwt.header.get("alg")
        key_id = jwt.header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidToken("an algorithm that is not accepted")

        # `crit` names extensions that a verifier must know (RFC 7515, 4.1.11), and this one knows
        # none.
        if "crit" in jwt.header or not (key_id is None or isinstance(key_id, str)):
            raise InvalidToken("a header that is not understood")
        keys = [key for key in self._cache.keys if key.fits(key_id, algorithm)]
        if not keys:
            self._on_missed(key_id)
            raise InvalidToken("no key of the set fits")
        signed = token[: token.rindex(".")].encode("ascii")
        if not any(key.verifies(algorithm, jwt.signature, signed) for key in keys[:TRIED_MAX]):
            raise InvalidToken("the signature is wrong")
        return self._rules.judge(jwt.claims, now_ms)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    # If a name occurs twice, one reader may take the first value, another the last.
    if len(value) < len(pairs):
        raise ValueError("a name occurs twice")
    return value
