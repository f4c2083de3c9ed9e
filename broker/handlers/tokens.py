"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48, KIP-373).

Behaviour: any broker serves them. A token belongs to an authenticated user: all four requests get
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED on a PLAINTEXT listener, on an SSL listener without a client certificate, and
    on a connection that logged in with a token; then DELEGATION_TOKEN_AUTH_DISABLED without
    `delegation.token.secret.key`. A response to Create names owner and requester also with an error. The rules are in
    `security/sasl/tokens.py`.
Versions: Create and Describe 0-3, Renew and Expire 0-2. Create 3 may name another owner than the requester.
"""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.call import Broker, Call
from barnabas.controller.store.store import StoreError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.sentinels import NO_TIMESTAMP
from barnabas.world.pacing import paced

if TYPE_CHECKING:
    from barnabas.broker.cluster.token_store import TokenStore
    from barnabas.security.principals import KafkaPrincipal
    from barnabas.security.sasl.tokens import DelegationToken

Written = TypeVar("Written")

logger = logging.getLogger(__name__)

OWNER_VERSION = 3  # KIP-373

NO_ONE = "", ""  # the type and the name of a principal that is not named

# The functions import what they need of `security/`: few brokers have tokens, and start-up must be fast.


async def create_delegation_token(
    broker: Broker, call: Call, request: m.CreateDelegationTokenRequest
) -> m.CreateDelegationTokenResponse:
    """A new token, with its HMAC; or an error, with owner and requester."""
    from barnabas.security.principals import KafkaPrincipal, parse_principal
    from barnabas.security.sasl import tokens as rules

    requester = owner = parse_principal(call.principal)

    # The token belongs to its requester if the request names no owner.
    if call.version >= OWNER_VERSION and request.owner_principal_name:
        # Kafka fails on an owner with a name and no type.
        if request.owner_principal_type is None:
            return _not_created(call.version, ErrorCode.UNKNOWN_SERVER_ERROR, owner, requester)
        owner = KafkaPrincipal(request.owner_principal_type, request.owner_principal_name)

    # A refusal is answered here, not by `dispatch`: `refuse_create_delegation_token` names neither
    # owner nor requester.
    try:
        _caller(call)
        if owner != requester and not call.authorize("CreateTokens", "User", str(owner)):
            raise Refuse(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = [KafkaPrincipal(row.principal_type, row.principal_name) async for row in paced(request.renewers)]
        token_id = rules.new_token_id(broker.world.rng.randbytes(rules.TOKEN_ID_RANDOM_BYTES))
        store = broker.tokens()
        now_ms = broker.world.now_ms()
        token = rules.create_token(
            store.known.rules, owner, requester, renewers, request.max_lifetime_ms, token_id, now_ms
        )
        await _stored(store.create(token))
    except Refuse as refusal:
        return _not_created(call.version, refusal.code, owner, requester)

    logger.info("%s has created the delegation token %s of %s", requester, token_id, owner)
    response = _response(call.version, owner, requester)
    response.issue_timestamp_ms = token.issued_at_ms
    response.max_timestamp_ms = token.max_at_ms
    response.expiry_timestamp_ms = token.expires_at_ms
    response.token_id, response.hmac = token_id, store.known.hmac_of(token_id)
    return response


async def renew_delegation_token(
    broker: Broker, call: Call, request: m.RenewDelegationTokenRequest
) -> m.RenewDelegationTokenResponse:
    """Extend the lifetime of a token. Raises Refuse."""
    from barnabas.security.sasl.tokens import renew_token

    caller = _caller(call)
    store = broker.tokens()
    found = store.known.with_hmac(bytes(request.hmac))
    now_ms = broker.world.now_ms()
    token = renew_token(store.known.rules, found, caller, request.renew_period_ms, now_ms)
    await _change(store, token)
    return m.RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_at_ms)


async def expire_delegation_token(
    broker: Broker, call: Call, request: m.ExpireDelegationTokenRequest
) -> m.ExpireDelegationTokenResponse:
    """Change the expiry time of a token, or remove it. Raises Refuse."""
    from barnabas.security.sasl.tokens import expire_token

    caller = _caller(call)
    store = broker.tokens()
    found = store.known.with_hmac(bytes(request.hmac))
    now_ms = broker.world.now_ms()
    token, is_removed = expire_token(store.known.rules, found, caller, request.expiry_time_period_ms, now_ms)
    if is_removed:
        await _stored(store.remove(token.token_id))
    else:
        await _change(store, token)
    return m.ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expires_at_ms)


async def describe_delegation_token(
    broker: Broker, call: Call, request: m.DescribeDelegationTokenRequest
) -> m.DescribeDelegationTokenResponse:
    """The tokens of some owners, or of all, that the caller may see. Raises Refuse."""
    from barnabas.security.principals import KafkaPrincipal
    from barnabas.security.sasl.tokens import check_enabled, is_described

    caller = _caller(call)
    known = broker.tokens().known
    check_enabled(known.rules)
    owners = None
    if request.owners is not None:
        owners = {KafkaPrincipal(row.principal_type, row.principal_name) async for row in paced(request.owners)}

    def is_authorized(token: "DelegationToken") -> bool:
        return call.authorize("Describe", "DelegationToken", token.token_id) or call.authorize(
            "DescribeTokens", "User", str(token.owner)
        )

    # The list is a copy: tokens may change while others are described.
    rows = [
        _described(call.version, token, known.hmac_of(token.token_id))
        async for token in paced(list(known))
        if is_described(token, owners, caller, is_authorized)
    ]
    return m.DescribeDelegationTokenResponse(tokens=rows)


def _caller(call: Call) -> "KafkaPrincipal":
    """The caller's principal. Raises Refuse if it may not ask for tokens, before everything else."""
    from barnabas.security.principals import parse_principal
    from barnabas.security.sasl.tokens import check_caller

    caller = parse_principal(call.principal)
    check_caller(call.security_protocol, caller, is_token=call.is_token_authenticated)
    return caller


async def _change(store: "TokenStore", token: "DelegationToken") -> None:
    """Raises Refuse, with DELEGATION_TOKEN_NOT_FOUND if another broker has removed the token."""
    if not await _stored(store.change(token)):
        raise Refuse(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


async def _stored(write: Awaitable[Written]) -> Written:
    """Wait until the change is in the store. Raises Refuse(UNKNOWN_SERVER_ERROR)."""
    try:
        return await write
    except StoreError as error:
        logger.warning("a delegation token cannot be changed: %s", error, extra={"peer": "metadata store"})
        raise Refuse(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _described(
    version: int, token: "DelegationToken", hmac: bytes
) -> m.DescribeDelegationTokenResponse.DescribedDelegationToken:
    Response = m.DescribeDelegationTokenResponse
    requester_type, requester_name = token.requester if version >= OWNER_VERSION else NO_ONE  # no field for it
    Described = Response.DescribedDelegationToken
    Renewer = Response.DescribedDelegationTokenRenewer
    return Described(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[Renewer(principal_type=each.type, principal_name=each.name) for each in token.renewers],
    )


def _not_created(
    version: int, code: ErrorCode, owner: tuple[str, str], requester: tuple[str, str]
) -> m.CreateDelegationTokenResponse:
    response = _response(version, owner, requester)
    response.error_code = code
    return response


def _response(version: int, owner: tuple[str, str], requester: tuple[str, str]) -> m.CreateDelegationTokenResponse:
    """A response with owner and requester, and no token yet."""
    if version < OWNER_VERSION:
        requester = NO_ONE
    return m.CreateDelegationTokenResponse(
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


def refuse_create_delegation_token(
    request: m.CreateDelegationTokenRequest, version: int, code: ErrorCode
) -> m.CreateDelegationTokenResponse:
    """An error without a token."""
    return _not_created(version, code, NO_ONE, NO_ONE)


def refuse_renew_delegation_token(
    request: m.RenewDelegationTokenRequest, version: int, code: ErrorCode
) -> m.RenewDelegationTokenResponse:
    """The error, without an expiry time."""
    return m.RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)


def refuse_expire_delegation_token(
    request: m.ExpireDelegationTokenRequest, version: int, code: ErrorCode
) -> m.ExpireDelegationTokenResponse:
    """The error, without an expiry time."""
    return m.ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)
