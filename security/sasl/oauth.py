"""SASL OAUTHBEARER (pure): RFC 7628 and KIP-255, as Kafka does it (reference security.md, S.13).

The client's token is `n,[a=<authorization id>],^Aauth=Bearer <access token>^A[<name>=<value>^A...]^A`, where ^A is the
byte 1. The server answers a valid one with an empty token. It answers an invalid one with a small JSON text, which the
client acknowledges with ^A; only then the login fails.

An access token is a JWT (RFC 7519). `UnsecuredValidator` takes those without a signature, for tests and development;
`jwks.py` has the one for signed tokens.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from barnabas.security.principals import USER, KafkaPrincipal
from barnabas.security.sasl.exchange import (
    Broken,
    Challenge,
    Complete,
    Decided,
    LoginFailed,
    Rejected,
    bytes_of,
    text_of,
)

OAUTHBEARER = "OAUTHBEARER"
ACKNOWLEDGED = b"\x01"
# The limit is for the client's message, and for an access token: both are parsed on the event loop.
# Servers and proxies allow less in the header of an HTTP request, where access tokens usually
# travel; Kafka allows sasl.server.max.receive.size.
TOKEN_BYTES_MAX = 1 << 16
LONG_MAX = (1 << 63) - 1
SKEW_DIGITS_MAX = 10

OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id ({}) that is different from the token's principal"
    " name ({})"
)

# The quantifiers are possessive (++): a long message that does not match takes one attempt, not
# many.
_NAME = r"(?:[\x01-+\--<>-\x7f]++|=2C|=3D)++"
_PAIRS = r"(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01)*+"
_CLIENT_FIRST = re.compile(rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_BEARER = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class ValidToken(NamedTuple):
    """What an access token says."""

    principal_name: str
    expires_at_ms: int


class InvalidToken(Exception):
    """Why an access token is refused, and what the client learns of it."""

    def __init__(self, cause: str, scope: str | None = None) -> None:
        super().__init__(cause)
        self.scope = scope  # the scopes that it lacks

    @property
    def answer(self) -> str:
        """Kafka's JSON for the client, in its spacing."""
        if self.scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":"{self.scope}"}}'


class Validator(Protocol):
    """Decides about access tokens."""

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """What the token says at this time of the wall clock. Raises InvalidToken."""
        ...


class OAuthServer:
    """The server's side."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._refusal: str | None = None  # sent, and to be acknowledged

    def evaluate(self, token: bytes, now_ms: int) -> Decided:
        if self._refusal is not None and token == ACKNOWLEDGED:
            return Rejected("the client acknowledges that its access token is refused", self._refusal)

        # Any other token begins the exchange again, as in Kafka.
        self._refusal = None
        if len(token) > TOKEN_BYTES_MAX:
            return Rejected(f"a message of {len(token)} bytes")
        match = _CLIENT_FIRST.fullmatch(text_of(token))
        if match is None:
            return Rejected("malformed OAUTHBEARER message")

        # The last of two equal names counts. Extensions are accepted and have no effect.
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01")[:-1])
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            return Rejected("an OAUTHBEARER message without an access token")
        if bearer["scheme"].lower() != "bearer":
            return Broken(f"the scheme {bearer['scheme']!r:.100}")  # Kafka fails to format its error message
        try:
            valid = self._validator.validate(bearer["token"], now_ms)
        except InvalidToken as refusal:
            self._refusal = refusal.answer
            return Challenge(bytes_of(refusal.answer))

        authorization_id = match["authorization_id"]
        if authorization_id is not None and authorization_id != valid.principal_name:
            text = OTHER_AUTHORIZATION_ID.format(authorization_id, valid.principal_name)
            return Rejected(text, text)
        return Complete(b"", KafkaPrincipal(USER, valid.principal_name), valid.expires_at_ms)


class OAuthClient:
    """The client's side."""

    def __init__(self, access_token: str) -> None:
        self._access_token = access_token

    def begin(self) -> bytes:
        return bytes_of(f"n,,\x01auth=Bearer {self._access_token}\x01\x01")

    def evaluate(self, token: bytes) -> bytes | None:
        # A token here is a refusal. The server waits for the acknowledgement before it fails the
        # login, with the same text.
        return ACKNOWLEDGED if token else None


class UnsecuredValidator:
    """Kafka's default: JWTs without a signature, which anyone can make.

    `options` are those of the JAAS module; ValueError.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._principal_claim = options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope"
        self._required = options.get("unsecuredValidatorRequiredScope", "").split()
        skew_ms = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not (skew_ms.isascii() and skew_ms.isdigit() and len(skew_ms) < SKEW_DIGITS_MAX):
            raise ValueError("unsecuredValidatorAllowableClockSkewMs is no number of milliseconds")
        self._skew_ms = int(skew_ms)

    def validate(self, token: str, now_ms: int) -> ValidToken:
        header, claims, signature = parse_jwt(token)

        # This check is the first one: a signature that is not checked must not look as if it were.
        if header.get("alg") != "none" or signature:
            raise InvalidToken("a token with a signature, or whose header does not say so")
        name = principal_in(claims, self._principal_claim)
        times = times_of(claims)
        expires_at_ms = times["exp"]
        if expires_at_ms is None:
            raise InvalidToken("no expiry time")
        issued_at_ms = times["iat"]
        if issued_at_ms is not None and (issued_at_ms > now_ms + self._skew_ms or issued_at_ms >= expires_at_ms):
            raise InvalidToken("issued in the future, or not before it expires")
        if now_ms - self._skew_ms >= expires_at_ms:
            raise InvalidToken("expired")
        scopes = self._scopes(claims.get(self._scope_claim))
        missing = [scope for scope in self._required if scope not in scopes]
        if missing:
            raise InvalidToken(f"without the scope {missing[0]!r}", f"[{', '.join(self._required)}]")
        return ValidToken(name, min(round(expires_at_ms), LONG_MAX))

    def _scopes(self, value: object) -> set[str]:
        # As in Kafka's validator, a text is one scope, even if it has spaces.
        listed = value if isinstance(value, list) else [value]
        return {each.strip() for each in listed if isinstance(each, str) and each.strip()}


# -- JWTs


class Jwt(NamedTuple):
    """The parts of a JWT. Nothing of it is verified."""

    header: Mapping[str, object]
    claims: Mapping[str, object]
    signature: bytes


def parse_jwt(token: str, on_pairs: Callable[[list[tuple[str, object]]], dict[str, object]] = dict) -> Jwt:
    """The parts of a JWT in its compact form. InvalidToken, without a part of the token in its text."""
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"a token of {len(token)} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken(f"{len(parts)} parts instead of 3")
    header, claims = (_parse_object(part, on_pairs) for part in parts[:2])
    return Jwt(header, claims, from_base64(parts[2]))


def from_base64(text: str) -> bytes:
    """The bytes of base64 in either alphabet, padded or not. InvalidToken."""
    # Kafka 3.9.1 decodes unsecured tokens with the standard alphabet alone, against RFC 7515.
    unified = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(unified + "=" * (-len(unified) % 4), validate=True)
    except ValueError:
        raise InvalidToken("a part is not base64") from None


def _parse_object(part: str, on_pairs: Callable[[list[tuple[str, object]]], dict[str, object]]) -> dict[str, object]:
    try:
        value = json.loads(from_base64(part), object_pairs_hook=on_pairs, parse_constant=_refuse_constant)
    # RecursionError: thousands of nested arrays. UnicodeDecodeError is a ValueError.
    except (ValueError, RecursionError):
        raise InvalidToken("a part is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidToken("a part is not a JSON object")
    return value


def _refuse_constant(text: str) -> object:
    raise ValueError(text)  # NaN and Infinity are no JSON, but Python reads them


def principal_in(claims: Mapping[str, object], name: str) -> str:
    """The claim that names the principal. InvalidToken."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"no principal in {name}")
    # An escape can stand for a lone surrogate, which has no UTF-8 and so fits no response.
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidToken(f"{name} is no text") from None
    return value


def times_of(claims: Mapping[str, object]) -> dict[str, float | None]:
    """The claims `exp`, `iat` and `nbf` in milliseconds; None for absent ones. InvalidToken."""
    return {name: _time_of(claims, name) for name in ("exp", "iat", "nbf")}


def _time_of(claims: Mapping[str, object], name: str) -> float | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    # True and false are numbers in Python. The bound also keeps out what fits no float.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not abs(seconds) < LONG_MAX:
        raise InvalidToken(f"{name} is no time")
    return seconds * 1000


def unsecured_token(claims: Mapping[str, object]) -> str:
    """A JWT without a signature, as Kafka's default login makes one."""
    header = {"alg": "none"}
    return ".".join([*(_to_base64(json.dumps(part, separators=(",", ":"))) for part in (header, claims)), ""])


def unsecured_claims(options: Mapping[str, str], now_ms: int) -> dict[str, object]:
    """The claims that the JAAS options of a broker's own login ask for. LoginFailed.

    unsecuredLoginStringClaim_<name>, unsecuredLoginNumberClaim_<name>, unsecuredLoginListClaim_<name> (whose first
    character separates the elements), unsecuredLoginLifetimeSeconds, unsecuredLoginPrincipalClaimName.
    """
    claims: dict[str, object] = {}
    for option, text in options.items():
        kind, _, name = option.partition("_")
        if kind == "unsecuredLoginStringClaim":
            claims[name] = text
        elif kind == "unsecuredLoginNumberClaim":
            claims[name] = _number(option, text)
        elif kind == "unsecuredLoginListClaim":
            claims[name] = text[1:].split(text[:1]) if text[1:] else []

    lifetime_seconds = _number(
        "unsecuredLoginLifetimeSeconds", options.get("unsecuredLoginLifetimeSeconds", "").strip() or "3600"
    )
    principal_claim = options.get("unsecuredLoginPrincipalClaimName", "").strip() or "sub"
    if principal_claim not in claims:
        raise LoginFailed(f"unsecuredLoginStringClaim_{principal_claim} is not set")
    now_seconds = now_ms / 1000
    return {"iat": now_seconds, "exp": now_seconds + lifetime_seconds} | claims


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise LoginFailed(f"{option} is not a number") from None
    if not math.isfinite(number):
        raise LoginFailed(f"{option} is not finite")
    return number


def _to_base64(text: str) -> str:
    return base64.urlsafe_b64encode(bytes_of(text)).rstrip(b"=").decode("ascii")
