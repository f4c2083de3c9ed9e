"""DescribeUserScramCredentials and AlterUserScramCredentials: SCRAM credentials of users (KIP-554).

Behaviour: credentials are stored in the configuration of users in the metadata store, whether or not a listener uses
    SASL. Any broker describes them, without the keys; only the active controller alters them. All alterations of one
    user are applied or none. A refused user does not affect the others. The response lists refused users first, then
    altered ones.
Versions: 0 of both.
"""

import logging

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import counted
from barnabas.controller.admin.entity_configs import USERS, change_entity, read_entity
from barnabas.controller.store import paths
from barnabas.controller.store.store import StoreError
from barnabas.security.sasl.scram import (
    MECHANISMS,
    NAME_EMPTY,
    NOTHING_TO_DELETE,
    Alterations,
    Deletion,
    Refusal,
    Upsertion,
    credential_iterations,
    refuse_alterations,
)
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse, shortened
from barnabas.world.pacing import paced

logger = logging.getLogger(__name__)

NO_CREDENTIAL = "Attempt to describe a user credential that does not exist: {}"
DESCRIBED_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: {}"
UNEXPECTED = "The server experienced an unexpected error when processing the request."


DescribedUser = m.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Credential = m.DescribeUserScramCredentialsResponse.CredentialInfo
AlteredUser = m.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


# -- DescribeUserScramCredentials


async def describe_user_scram_credentials(
    broker: Broker, call: Call, request: m.DescribeUserScramCredentialsRequest
) -> m.DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of the named users, or of all users that have a credential.

    Raises Refuse(CLUSTER_AUTHORIZATION_FAILED). Each user has its own error.
    """
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # Null and an empty list both mean all users (KIP-554).
    if request.users:
        named = await counted(user.name for user in request.users)
        rows = [await _describe_named(broker, *each) async for each in paced(named.items())]
    else:
        nodes = await broker.store.children(paths.config_entities(USERS))
        users = sorted([paths.desanitize(node) async for node in paced(nodes) if node != paths.DEFAULT_ENTITY])
        described = [await _describe(broker, user) async for user in paced(users)]
        # A user may have quotas alone. That is an error only for a user that was named (`_describe_named`).
        rows = [row for row in described if row.error_code or row.credential_infos]
    return m.DescribeUserScramCredentialsResponse(results=rows)


async def _describe_named(broker: Broker, user: str, times: int) -> DescribedUser:
    if user == "":
        return _undescribed(user, Refusal(ErrorCode.RESOURCE_NOT_FOUND, NAME_EMPTY))
    if times > 1:
        return _undescribed(user, Refusal(ErrorCode.DUPLICATE_RESOURCE, DESCRIBED_TWICE.format(user)))
    row = await _describe(broker, user)
    if not row.error_code and not row.credential_infos:
        return _undescribed(user, Refusal(ErrorCode.RESOURCE_NOT_FOUND, NO_CREDENTIAL.format(user)))
    return row


async def _describe(broker: Broker, user: str) -> DescribedUser:
    try:
        config = await read_entity(broker.store, f"{USERS}/{paths.sanitize(user)}")
        # Neither salt nor keys are shown: with them a caller could search for the password.
        credentials = [
            Credential(mechanism=number, iterations=credential_iterations(config[mechanism.name]))
            for number, mechanism in MECHANISMS.items()
            if mechanism.name in config
        ]
    # A ValueError says that the name makes no valid node path, or that the node holds no valid
    # credential.
    except (StoreError, ValueError) as error:
        logger.warning("SCRAM credentials cannot be read: %s", error, extra={"peer": "metadata store"})
        return _undescribed(user, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED))
    return DescribedUser(user=user, credential_infos=credentials)


def _undescribed(user: str, refusal: Refusal) -> DescribedUser:
    return DescribedUser(user=user, error_code=refusal.code, error_message=shortened(refusal.message))


def refuse_describe_user_scram_credentials(
    request: m.DescribeUserScramCredentialsRequest, version: int, code: ErrorCode
) -> m.DescribeUserScramCredentialsResponse:
    """The error of the request, and a row with it for every user that was named."""
    # The rows have no names, as in Kafka.
    rows = [DescribedUser(error_code=code, error_message=None) for _ in request.users or ()]
    return m.DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=rows)


# -- AlterUserScramCredentials


async def alter_user_scram_credentials(
    broker: Broker, call: Call, request: m.AlterUserScramCredentialsRequest
) -> m.AlterUserScramCredentialsResponse:
    """Delete and set credentials; one result per user.

    Raises Refuse: NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR (the store failed for a user).
    """
    # The role is checked before the authorization, as in Kafka.
    if not broker.candidate.is_active:
        raise Refuse(ErrorCode.NOT_CONTROLLER)
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # The rules compare all alterations of the request with each other, so this work cannot be split into steps.
    in_thread = broker.world.in_request_thread
    refused, left = await in_thread(_look_at, request)
    try:
        deleting = await counted(deletion.user for deletion in left.deletions)
        configs = {
            user: await read_entity(broker.store, f"{USERS}/{paths.sanitize(user)}") async for user in paced(deleting)
        }
        async for user in paced(await in_thread(left.missing, configs)):
            refused[user] = Refusal(ErrorCode.RESOURCE_NOT_FOUND, NOTHING_TO_DELETE)

        # A deletion of a missing credential refuses all alterations of its user.
        left = await in_thread(left.without, refused)
        by_user = await in_thread(left.by_user)
        if left.can_be_prepared:
            outcomes = {user: await _alter(broker, user, asked) async for user, asked in paced(by_user.items())}
        else:  # an empty password: Kafka's exception fails all users that are not refused yet
            outcomes = dict.fromkeys(by_user, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED))
    # A ValueError says that a user's name makes no valid node path. Nothing is written yet.
    except (StoreError, ValueError) as error:
        logger.warning("SCRAM credentials cannot be altered: %s", error, extra={"peer": "metadata store"})
        raise Refuse(ErrorCode.UNKNOWN_SERVER_ERROR) from None

    rows = [_row(user, refusal) async for user, refusal in paced((refused | outcomes).items())]
    return m.AlterUserScramCredentialsResponse(results=rows)


def _look_at(request: m.AlterUserScramCredentialsRequest) -> tuple[dict[str, Refusal], Alterations]:
    """The refused users, and the alterations of all others."""
    asked = _asked(request)
    refused = refuse_alterations(asked)
    return refused, asked.without(refused)


def _asked(request: m.AlterUserScramCredentialsRequest) -> Alterations:
    return Alterations(
        tuple(Deletion(row.name, row.mechanism) for row in request.deletions),
        tuple(
            Upsertion(row.name, row.mechanism, row.iterations, bytes(row.salt), bytes(row.salted_password))
            for row in request.upsertions
        ),
    )


async def _alter(broker: Broker, user: str, asked: Alterations) -> Refusal:
    """Write all alterations of one user; an error is this user's alone."""
    try:
        # One write of the user's node applies all of them together. It changes the node as it is now, because a tool
        # may have written it since `alter_user_scram_credentials` read it.
        await change_entity(broker.store, f"{USERS}/{paths.sanitize(user)}", asked.applied_to)
    except (StoreError, ValueError) as error:
        logger.warning("SCRAM credentials cannot be altered: %s", error, extra={"peer": "metadata store"})
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    return Refusal(ErrorCode.NONE, "")


def _row(user: str, outcome: Refusal) -> AlteredUser:
    return AlteredUser(user=user, error_code=outcome.code, error_message=outcome.message)


def refuse_alter_user_scram_credentials(
    request: m.AlterUserScramCredentialsRequest, version: int, code: ErrorCode
) -> m.AlterUserScramCredentialsResponse:
    """The same error for every user."""
    # Each user once, however many alterations the request has for it.
    users = sorted(_asked(request).by_user())
    return m.AlterUserScramCredentialsResponse(
        results=[AlteredUser(user=user, error_code=code, error_message=None) for user in users]
    )
