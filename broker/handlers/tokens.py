"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken.

Behaviour: a token stands for an authenticated user, and a PLAINTEXT listener has none. So all four are
    answered with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, whatever they ask; Create says whose token it would have been.
Versions: Create and Describe 0-3, Renew and Expire 0-2. Create 3 names an owner beside the requester; an owner with a
    name and no type is UNKNOWN_SERVER_ERROR, as in Kafka.
Not done: tokens, which need authenticated listeners and `delegation.token.secret.key`.
"""

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.sentinels import NO_TIMESTAMP

OWNER_VERSION = 3


def create_delegation_token(
    broker: Broker, call: Call, request: m.CreateDelegationTokenRequest
) -> m.CreateDelegationTokenResponse:
    """A new token."""
    requester = owner = _principal(call.principal)
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if call.version >= OWNER_VERSION and request.owner_principal_name:
        if request.owner_principal_type is None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            owner = request.owner_principal_type, request.owner_principal_name
    return _not_created(call.version, code, owner, requester)


def renew_delegation_token(
    broker: Broker, call: Call, request: m.RenewDelegationTokenRequest
) -> m.RenewDelegationTokenResponse:
    """A token is to be valid for longer."""
    raise Refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def expire_delegation_token(
    broker: Broker, call: Call, request: m.ExpireDelegationTokenRequest
) -> m.ExpireDelegationTokenResponse:
    """A token is to end sooner."""
    raise Refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def describe_delegation_token(
    broker: Broker, call: Call, request: m.DescribeDelegationTokenRequest
) -> m.DescribeDelegationTokenResponse:
    """The tokens of some owners, or of all."""
    raise Refuse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _principal(text: str) -> tuple[str, str]:
    """Type and name of "User:ANONYMOUS"."""
    kind, _, name = text.partition(":")
    return kind, name


def _not_created(
    version: int, code: ErrorCode, owner: tuple[str, str], requester: tuple[str, str]
) -> m.CreateDelegationTokenResponse:
    if version < OWNER_VERSION:
        requester = "", ""  # these versions have no place for it
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
    """One error and no token."""
    return _not_created(version, code, ("", ""), ("", ""))


def refuse_renew_delegation_token(
    request: m.RenewDelegationTokenRequest, version: int, code: ErrorCode
) -> m.RenewDelegationTokenResponse:
    """One error."""
    return m.RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)


def refuse_expire_delegation_token(
    request: m.ExpireDelegationTokenRequest, version: int, code: ErrorCode
) -> m.ExpireDelegationTokenResponse:
    """One error."""
    return m.ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIMESTAMP)
