"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48).

Behaviour: a delegation token belongs to an authenticated user, and a PLAINTEXT listener has none. So all four requests
    get DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. The response to Create also names the owner of the refused token.
Versions: Create and Describe 0-3, Renew and Expire 0-2. Create 3 names an owner beside the requester.
Not done: tokens, which need authenticated listeners and `delegation.token.secret.key`.
"""

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.sentinels import NO_TIMESTAMP

OWNER_VERSION = 3  # KIP-373

# All four requests refuse the listener first, as in Kafka. On a listener with authentication Kafka then answers
# DELEGATION_TOKEN_AUTH_DISABLED while `delegation.token.secret.key` is not set.


def create_delegation_token(
    broker: Broker, call: Call, request: m.CreateDelegationTokenRequest
) -> m.CreateDelegationTokenResponse:
    """Create a token: always an error, with owner and requester."""
    # Without an owner in the request (KIP-373, version 3) the token belongs to its requester.
    requester = owner = _principal(call.principal)
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if call.version >= OWNER_VERSION and request.owner_principal_name:
        # Kafka answers this code for an owner with a name and no type.
        if request.owner_principal_type is None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            owner = request.owner_principal_type, request.owner_principal_name
    # Not `Refuse`: `refuse_create_delegation_token` names neither owner nor requester.
    return _not_created(call.version, code, owner, requester)


def renew_delegation_token(
    broker: Broker, call: Call, request: m.RenewDelegationTokenRequest
) -> m.RenewDelegationTokenResponse:
    """Extend the lifetime of a token: always Refuse."""
    raise Refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def expire_delegation_token(
    broker: Broker, call: Call, request: m.ExpireDelegationTokenRequest
) -> m.ExpireDelegationTokenResponse:
    """Change the expiry time of a token: always Refuse."""
    raise Refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def describe_delegation_token(
    broker: Broker, call: Call, request: m.DescribeDelegationTokenRequest
) -> m.DescribeDelegationTokenResponse:
    """The tokens of some owners, or of all: always Refuse."""
    raise Refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _principal(text: str) -> tuple[str, str]:
    """(type, name) of a principal such as "User:ANONYMOUS"."""
    # At the first colon: a name may have colons, too.
    kind, _, name = text.partition(":")
    return kind, name


def _not_created(
    version: int, code: ErrorCode, owner: tuple[str, str], requester: tuple[str, str]
) -> m.CreateDelegationTokenResponse:
    if version < OWNER_VERSION:
        requester = "", ""  # these versions have no field for it
    return m.CreateDelegationTokenResponse(
        error_code=code,
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
    return _not_created(version, code, ("", ""), ("", ""))


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
