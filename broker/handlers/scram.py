"""DescribeUserScramCredentials and AlterUserScramCredentials: which passwords users may log in with.

Behaviour: credentials are kept in the configuration of users in the metadata store, whether or not a listener asks for
    them. Any broker describes them, never the keys; the controller alone alters them. An alteration of one user is done
    as a whole or not at all; that of one user does not hinder another's. The answer names users that are refused first,
    then those who are altered.
Versions: 0 of both.
Not done: no listener asks for credentials yet.
"""

import logging

from barnabas.broker.call import Broker, Call
from barnabas.broker.pacing import paced
from barnabas.broker.repeats import counted
from barnabas.broker.security.scram import (
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
from barnabas.controller.admin.entity_configs import USERS, change_entity, read_entity
from barnabas.controller.store import paths
from barnabas.controller.store.store import StoreError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse

logger = logging.getLogger(__name__)

NO_CREDENTIAL = "Attempt to describe a user credential that does not exist: {}"
DESCRIBED_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: {}"
UNEXPECTED = "The server experienced an unexpected error when processing the request."

USER_COST = 20  # rows that take as long as to read or write one user's credentials

DescribedUser = m.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Credential = m.DescribeUserScramCredentialsResponse.CredentialInfo
AlteredUser = m.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


# -- DescribeUserScramCredentials


async def describe_user_scram_credentials(
    broker: Broker, call: Call, request: m.DescribeUserScramCredentialsRequest
) -> m.DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of some users, or of all that have a credential."""
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.users:
        named = await counted(user.name for user in request.users)
        rows = [await _describe_named(broker, *each) async for each in paced(named.items(), USER_COST)]
    else:
        nodes = await broker.store.children(paths.config_entities(USERS))
        users = sorted([paths.desanitize(node) async for node in paced(nodes) if node != paths.DEFAULT_ENTITY])
        described = [await _describe(broker, user) async for user in paced(users, USER_COST)]
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
        credentials = [
            Credential(mechanism=number, iterations=credential_iterations(config[mechanism.name]))
            for number, mechanism in MECHANISMS.items()
            if mechanism.name in config
        ]
    except (StoreError, ValueError) as error:  # the store is away, no node can have this name, or holds something else
        logger.warning("SCRAM credentials cannot be read: %s", error, extra={"peer": "metadata store"})
        return _undescribed(user, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED))
    return DescribedUser(user=user, credential_infos=credentials)


def _undescribed(user: str, refusal: Refusal) -> DescribedUser:
    return DescribedUser(user=user, error_code=refusal.code, error_message=refusal.message)


# -- AlterUserScramCredentials


async def alter_user_scram_credentials(
    broker: Broker, call: Call, request: m.AlterUserScramCredentialsRequest
) -> m.AlterUserScramCredentialsResponse:
    """Delete and set credentials; one answer a user."""
    if not broker.candidate.is_active:
        raise Refuse(ErrorCode.NOT_CONTROLLER)
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    in_thread = broker.world.in_request_thread  # the rules look at all alterations at once, of which there may be many
    refused, left = await in_thread(_look_at, request)
    try:
        deleting = await counted(deletion.user for deletion in left.deletions)
        configs = {
            user: await read_entity(broker.store, f"{USERS}/{paths.sanitize(user)}")
            async for user in paced(deleting, USER_COST)
        }
        async for user in paced(await in_thread(left.missing, configs)):
            refused[user] = Refusal(ErrorCode.RESOURCE_NOT_FOUND, NOTHING_TO_DELETE)
        left = await in_thread(left.without, refused)
        by_user = await in_thread(left.by_user)
        if left.can_be_prepared:
            outcomes = {
                user: await _alter(broker, user, asked) async for user, asked in paced(by_user.items(), USER_COST)
            }
        else:  # what cannot be computed hinders all, as in Kafka
            outcomes = dict.fromkeys(by_user, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED))
    except (StoreError, ValueError) as error:  # the store is away, or no node can have such a name: of all users
        logger.warning("SCRAM credentials cannot be altered: %s", error, extra={"peer": "metadata store"})
        raise Refuse(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    rows = [_row(user, refusal) async for user, refusal in paced((refused | outcomes).items())]
    return m.AlterUserScramCredentialsResponse(results=rows)


def _look_at(request: m.AlterUserScramCredentialsRequest) -> tuple[dict[str, Refusal], Alterations]:
    """Which users are refused, and what is asked about the others."""
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
    """Write what is asked about a user."""
    await change_entity(broker.store, f"{USERS}/{paths.sanitize(user)}", asked.applied_to)
    return Refusal(ErrorCode.NONE, "")


def _row(user: str, outcome: Refusal) -> AlteredUser:
    return AlteredUser(user=user, error_code=outcome.code, error_message=outcome.message)


def refuse_alter_user_scram_credentials(
    request: m.AlterUserScramCredentialsRequest, version: int, code: ErrorCode
) -> m.AlterUserScramCredentialsResponse:
    """The same error for every user."""
    users = sorted(_asked(request).by_user())
    return m.AlterUserScramCredentialsResponse(
        results=[AlteredUser(user=user, error_code=code, error_message=None) for user in users]
    )
