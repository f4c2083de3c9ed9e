"""Delegation tokens (pure): KIP-48 and KIP-373 (reference security.md, S.15).

A token lets a program log in as the token's owner, by SCRAM with `tokenauth=true`: its username is the token's id, its
password the token's HMAC in base64. The HMAC is made of the id and `delegation.token.secret.key`, which all brokers
have, so it is never stored.

Tokens are nodes below /delegation_token/tokens; every broker keeps all of them in memory (`DelegationTokens`) and takes
each change from /delegation_token/token_changes. The functions about the four requests decide; the handlers write.
"""

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from barnabas.controller.store.node_json import Fields, to_json
from barnabas.controller.store.paths import desanitize, sanitize, sanitized_bytes
from barnabas.security.principals import ANONYMOUS, USER, KafkaPrincipal, parse_principal
from barnabas.security.sasl.scram import MECHANISMS, Mechanism, ScramCredential
from barnabas.security.sasl.scram_exchange import TokenLogin
from barnabas.wire.errors import ErrorCode, Refuse

TOKEN_ID_RANDOM_BYTES = 16
NODE_VERSION = 3
# Limits of one token, because it is written, read and described in one step each: the number of
# its renewers, and the bytes of its node.
RENEWERS_MAX = 1000
TOKEN_BYTES_MAX = 32 << 10
NODE_BYTES = 300  # of a node without principals
RENEWER_BYTES = 6  # the quotes, the comma and the escaped colon of a renewer


class DelegationToken(NamedTuple):
    """/delegation_token/tokens/<id>. All times are of the wall clock."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_at_ms: int
    max_at_ms: int  # it cannot be renewed beyond
    expires_at_ms: int

    def encode(self) -> bytes:
        return to_json(
            {
                "version": NODE_VERSION,
                "owner": sanitize(str(self.owner)),
                "tokenRequester": sanitize(str(self.requester)),
                "renewers": [sanitize(str(each)) for each in self.renewers],
                "issueTimestamp": self.issued_at_ms,
                "maxTimestamp": self.max_at_ms,
                "expiryTimestamp": self.expires_at_ms,
                "tokenId": self.token_id,
            }
        )

    @classmethod
    def decode(cls, data: bytes | None, path: str) -> "DelegationToken":
        fields = Fields.parse(data, path)
        if not 1 <= fields.integer("version") <= NODE_VERSION:
            fields.wrong("version", f"a version from 1 to {NODE_VERSION}")
        owner = fields.text("owner")
        try:
            return cls(
                token_id=fields.text("tokenId"),
                owner=_principal(owner),
                # Every token belonged to its requester before version 3.
                requester=_principal(fields.optional_text("tokenRequester") or owner),
                renewers=tuple(map(_principal, fields.array("renewers", str, "an array of principals"))),
                issued_at_ms=fields.long("issueTimestamp"),
                max_at_ms=fields.long("maxTimestamp"),
                expires_at_ms=fields.long("expiryTimestamp"),
            )
        # The error of a principal without a colon does not name the node, so the path is added.
        except ValueError as error:
            raise ValueError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None

    @property
    def size_bytes(self) -> int:
        """About what its node takes; of one that is clearly larger than TOKEN_BYTES_MAX, at least its names."""
        names = "".join(map("".join, (self.owner, self.requester, *self.renewers)))
        fixed_bytes = NODE_BYTES + RENEWER_BYTES * len(self.renewers)
        return fixed_bytes + (len(names) if len(names) > TOKEN_BYTES_MAX else sanitized_bytes(names))

    def concerns(self, principal: KafkaPrincipal) -> bool:
        """Whether this is its owner, its requester or a renewer, who may see it."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def has_expired(self, now_ms: int) -> bool:
        return min(self.max_at_ms, self.expires_at_ms) < now_ms


def _principal(text: str) -> KafkaPrincipal:
    # A token may have a thousand principals, and in most of them only the colon is escaped.
    kind, colon, name = text.partition("%3A")
    if not colon or ":" in desanitize(kind):
        return parse_principal(desanitize(text))
    return KafkaPrincipal(desanitize(kind), desanitize(name))


def token_hmac(token_id: str, secret: str) -> bytes:
    """What a token's holder knows; all brokers compute the same."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def new_token_id(random_bytes: bytes) -> str:
    """22 characters, of TOKEN_ID_RANDOM_BYTES."""
    assert len(random_bytes) == TOKEN_ID_RANDOM_BYTES, len(random_bytes)
    return base64.urlsafe_b64encode(random_bytes).rstrip(b"=").decode("ascii")


# -- the four requests


class TokenRules(NamedTuple):
    """The properties `delegation.token.*`."""

    secret: str | None  # secret.key, or its older name master.key; None: there are no tokens
    max_lifetime_ms: int = 7 * 24 * 3_600_000  # max.lifetime.ms
    renewal_ms: int = 24 * 3_600_000  # expiry.time.ms
    owner_bytes_max: int = 1 << 20  # owner.max.bytes

    # The secret is left out, because a traceback may show this value.
    def __repr__(self) -> str:
        return f"TokenRules(enabled={self.secret is not None})"


def check_caller(protocol: str, principal: KafkaPrincipal, *, is_token: bool) -> None:
    """Before everything else, of all four requests. Raises Refuse(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)."""
    # A login by a token must not get another token: such access would never end. Without
    # encryption or a login everybody could get one; as in Kafka, SASL_PLAINTEXT is allowed all the
    # same.
    if is_token or protocol == "PLAINTEXT" or (protocol == "SSL" and principal == ANONYMOUS):
        raise Refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def create_token(
    rules: TokenRules,
    owner: KafkaPrincipal,
    requester: KafkaPrincipal,
    renewers: Sequence[KafkaPrincipal],
    lifetime_ms: int,
    token_id: str,
    now_ms: int,
) -> DelegationToken:
    """A new token. Raises Refuse: INVALID_REQUEST, INVALID_PRINCIPAL_TYPE, DELEGATION_TOKEN_AUTH_DISABLED.

    UNKNOWN_SERVER_ERROR if it is too large, as by Kafka, whose store refuses it.
    That the requester may create tokens of this owner is the caller's to check, before.
    """
    if len(renewers) > RENEWERS_MAX:
        raise Refuse(ErrorCode.INVALID_REQUEST)
    if any(renewer.type != USER for renewer in renewers):
        raise Refuse(ErrorCode.INVALID_PRINCIPAL_TYPE)
    check_enabled(rules)
    lifetime_ms = rules.max_lifetime_ms if lifetime_ms <= 0 else min(lifetime_ms, rules.max_lifetime_ms)
    max_at_ms = now_ms + lifetime_ms
    expires_at_ms = min(max_at_ms, now_ms + rules.renewal_ms)
    token = DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, max_at_ms, expires_at_ms)
    if token.size_bytes > TOKEN_BYTES_MAX:
        raise Refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    return token


def renew_token(
    rules: TokenRules, found: DelegationToken | None, caller: KafkaPrincipal, period_ms: int, now_ms: int
) -> DelegationToken:
    """The token with a later end; of period 0 it ends now.

    Raises Refuse: DELEGATION_TOKEN_AUTH_DISABLED, …_NOT_FOUND, …_OWNER_MISMATCH, …_EXPIRED.
    """
    token = _owned(rules, found, caller)
    _check_alive(token, now_ms)
    period_ms = rules.renewal_ms if period_ms < 0 else period_ms
    return token._replace(expires_at_ms=min(token.max_at_ms, now_ms + period_ms))


def expire_token(
    rules: TokenRules, found: DelegationToken | None, caller: KafkaPrincipal, period_ms: int, now_ms: int
) -> tuple[DelegationToken, bool]:
    """The token with another end, and whether it is to be removed: of a negative period, at once. As `renew_token`."""
    token = _owned(rules, found, caller)
    # This comes before the check that the token is alive: an expired token can be removed.
    if period_ms < 0:
        return token._replace(expires_at_ms=now_ms), True
    _check_alive(token, now_ms)
    return token._replace(expires_at_ms=min(token.max_at_ms, now_ms + period_ms)), False


def is_described(
    token: DelegationToken,
    owners: Set[KafkaPrincipal] | None,
    caller: KafkaPrincipal,
    is_authorized: Callable[[DelegationToken], bool],
) -> bool:
    """Whether a token concerns one of `owners` (None: all), and this caller may see it.

    `is_authorized`: whether an ACL lets the caller see a token that does not concern it.
    """
    is_wanted = owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))
    return is_wanted and (token.concerns(caller) or is_authorized(token))


def check_enabled(rules: TokenRules) -> None:
    """Raises Refuse(DELEGATION_TOKEN_AUTH_DISABLED) without a secret."""
    if rules.secret is None:
        raise Refuse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _owned(rules: TokenRules, found: DelegationToken | None, caller: KafkaPrincipal) -> DelegationToken:
    check_enabled(rules)
    if found is None:
        raise Refuse(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    # Only the owner and the renewers may do this: not the requester of a token for another owner,
    # and not a super user.
    if caller != found.owner and caller not in found.renewers:
        raise Refuse(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return found


def _check_alive(token: DelegationToken, now_ms: int) -> None:
    if token.has_expired(now_ms):
        raise Refuse(ErrorCode.DELEGATION_TOKEN_EXPIRED)


# -- what a broker knows


class DelegationTokens:
    """All tokens of the cluster, as far as this broker has read them; none without a secret."""

    def __init__(self, rules: TokenRules) -> None:
        self.rules = rules
        self._by_id: dict[str, DelegationToken] = {}
        # The keys are hashes of the HMACs: the time of a look-up tells nothing about the HMAC
        # itself.
        self._by_hash: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, Mechanism], ScramCredential] = {}  # each from its first login on
        self._owned_bytes: Counter[KafkaPrincipal] = Counter()  # of all tokens of an owner

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, token: DelegationToken) -> None:
        """A token is new or has changed."""
        if self.rules.secret is not None:
            known = self._by_id.get(token.token_id)
            if known is not None:
                self._discharge(known)
            self._owned_bytes[token.owner] += token.size_bytes
            self._by_id[token.token_id] = token
            self._by_hash[_hashed(self.hmac_of(token.token_id))] = token.token_id

    def remove(self, token_id: str) -> None:
        """The node of a token is gone; nothing happens if it is not known."""
        token = self._by_id.pop(token_id, None)
        if token is not None:
            self._discharge(token)
            del self._by_hash[_hashed(self.hmac_of(token_id))]
            for mechanism in MECHANISMS.values():
                self._credentials.pop((token_id, mechanism), None)

    @contextmanager
    def being_written(self, token: DelegationToken) -> Iterator[None]:
        """Count a new token as one of its owner's. Raises Refuse(POLICY_VIOLATION) if they have too many bytes."""
        # The limit exists because all brokers keep all tokens in memory, and creating one needs no
        # rights. Tokens that are still being written count, too.
        if self._owned_bytes[token.owner] + token.size_bytes > self.rules.owner_bytes_max:
            raise Refuse(ErrorCode.POLICY_VIOLATION)
        self._owned_bytes[token.owner] += token.size_bytes
        try:
            yield
        finally:
            self._discharge(token)

    def _discharge(self, token: DelegationToken) -> None:
        self._owned_bytes[token.owner] -= token.size_bytes
        if not self._owned_bytes[token.owner]:
            del self._owned_bytes[token.owner]

    def replace(self, tokens: Iterable[DelegationToken]) -> None:
        """All tokens, as they are read after a session with the store was lost."""
        read = {token.token_id: token for token in tokens}
        for token_id in self._by_id.keys() - read.keys():
            self.remove(token_id)
        for token in read.values():
            self.put(token)

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token, for answers to its owner. Refuse(DELEGATION_TOKEN_AUTH_DISABLED) without a secret."""
        if self.rules.secret is None:
            raise Refuse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return token_hmac(token_id, self.rules.secret)

    def with_hmac(self, hmac_bytes: bytes) -> DelegationToken | None:
        """The token with this HMAC."""
        token_id = self._by_hash.get(_hashed(hmac_bytes))
        return None if token_id is None else self._by_id[token_id]

    def expired(self, now_ms: int) -> list[DelegationToken]:
        """Tokens that are to be removed, every `delegation.token.expiry.check.interval.ms`."""
        return [token for token in self if token.has_expired(now_ms)]

    def login(self, mechanism: Mechanism, token_id: str) -> TokenLogin | None:
        """What `ScramServer` needs to log a token in. One that has expired and is not removed yet still does."""
        token = self._by_id.get(token_id)
        if token is None:
            return None
        password = base64.b64encode(self.hmac_of(token_id))
        credential = self._credentials.get((token_id, mechanism))
        return TokenLogin(
            token.owner, token.expires_at_ms, password, credential, partial(self._keep, token_id, mechanism)
        )

    def _keep(self, token_id: str, mechanism: Mechanism, credential: ScramCredential) -> None:
        # The credential was computed in a thread, and the token may have been removed meanwhile.
        if token_id in self._by_id:
            self._credentials[token_id, mechanism] = credential


def _hashed(hmac_bytes: bytes) -> bytes:
    return hashlib.sha256(hmac_bytes).digest()
