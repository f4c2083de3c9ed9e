"""ACLs, SASL, delegation tokens and SCRAM on a broker without authorizer, secret and authenticated listeners.

Codes and words are those of a running Kafka 3.9.1 so configured.
"""

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine

DISABLED, ON_BROKER, CONFIGURED = 54, "No Authorizer is configured on the broker", "No Authorizer is configured."
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
ANY = {"operation": 1, "permission_type": 1}
RULE = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}

Creation, Filter = m.CreateAclsRequest.AclCreation, m.DeleteAclsRequest.DeleteAclsFilter
Alter, Describe = m.AlterUserScramCredentialsRequest, m.DescribeUserScramCredentialsRequest


async def connected(nursery):
    return await (await Machine(nursery).start()).connect()


# -- ACLs


@pytest.mark.parametrize("version", range(4))
async def test_every_version_of_acl_requests_learns_that_there_is_no_authorizer(nursery, autojump_clock, version):
    client = await connected(nursery)
    described = await client.ask(m.DescribeAclsRequest(resource_type_filter=1, **ANY), version)
    assert (described.error_code, described.error_message, described.resources) == (DISABLED, ON_BROKER, [])
    rules = [Creation(**RULE, permission_type=3), Creation(**RULE, permission_type=2)]
    created = await client.ask(m.CreateAclsRequest(creations=rules), version)
    assert [(row.error_code, row.error_message) for row in created.results] == [(DISABLED, CONFIGURED)] * 2
    deleted = await client.ask(m.DeleteAclsRequest(filters=[Filter(resource_type_filter=1, **ANY)]), version)
    assert [(row.error_code, row.error_message) for row in deleted.filter_results] == [(DISABLED, CONFIGURED)]


@pytest.mark.parametrize(
    "request_",
    [
        m.DescribeAclsRequest(resource_type_filter=0, **ANY),
        m.DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=0, **ANY),
        m.CreateAclsRequest(creations=[Creation(**RULE, permission_type=0)]),
        m.CreateAclsRequest(creations=[Creation(**RULE, permission_type=3), Creation(**RULE, resource_pattern_type=0)]),
        m.DeleteAclsRequest(filters=[Filter(resource_type_filter=1, operation=0, permission_type=1)]),
    ],
)
async def test_a_rule_with_an_element_of_code_0_closes_the_connection(nursery, autojump_clock, request_):
    client = await connected(nursery)
    await client.send(request_)
    assert await client.is_closed()


async def test_unknown_codes_are_no_reason_to_close(nursery, autojump_clock):
    client = await connected(nursery)
    answer = await client.ask(m.DescribeAclsRequest(resource_type_filter=99, operation=99, permission_type=99))
    assert answer.error_code == DISABLED


# -- SASL and tokens


async def test_no_one_logs_in_on_a_plaintext_listener(nursery, autojump_clock):
    client = await connected(nursery)
    for version in range(2):
        shaken = await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (shaken.error_code, list(shaken.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in range(3):
        answer = await client.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"


@pytest.mark.parametrize("version", range(4))
async def test_tokens_need_someone_who_has_logged_in(nursery, autojump_clock, version):
    client = await connected(nursery)
    created = await client.ask(m.CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    assert (created.error_code, created.principal_type, created.principal_name) == (NOT_ALLOWED, "User", "ANONYMOUS")
    assert created.token_requester_principal_name == ("ANONYMOUS" if version >= 3 else "")
    assert (created.issue_timestamp_ms, created.max_timestamp_ms, created.token_id) == (-1, -1, "")
    assert (await client.ask(m.DescribeDelegationTokenRequest(owners=None), version)).error_code == NOT_ALLOWED
    for request in (m.RenewDelegationTokenRequest(hmac=b"x"), m.ExpireDelegationTokenRequest(hmac=b"x")):
        answer = await client.ask(request, min(version, 2))
        assert (answer.error_code, answer.expiry_timestamp_ms) == (NOT_ALLOWED, -1)


@pytest.mark.parametrize(
    ("kind", "name", "code", "owner"),
    [
        ("User", "bob", 64, ("User", "bob")),
        ("", "bob", 64, ("", "bob")),
        ("User", None, 64, ("User", "ANONYMOUS")),
        ("", "", 64, ("User", "ANONYMOUS")),
        (None, "bob", -1, ("User", "ANONYMOUS")),
    ],
)
async def test_a_token_for_another_user_names_that_user_as_owner(nursery, autojump_clock, kind, name, code, owner):
    client = await connected(nursery)
    asked = m.CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name=name, max_lifetime_ms=-1)
    answer = await client.ask(asked)
    assert (answer.error_code, (answer.principal_type, answer.principal_name)) == (code, owner)
    assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ("User", "ANONYMOUS")


# -- SCRAM


def to_set(user, mechanism=1, iterations=4096, salted_password=b"\x01" * 32):
    return Alter.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted_password
    )


async def alter(client, *upsertions, delete=()):
    deletions = [Alter.ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in delete]
    answer = await client.ask(Alter(deletions=deletions, upsertions=list(upsertions)))
    return {row.user: (row.error_code, row.error_message) for row in answer.results}


async def described(client, *users):
    asked = [Describe.UserName(name=user) for user in users] or None
    answer = await client.ask(Describe(users=asked))
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        row.user: row.error_message or [(one.mechanism, one.iterations) for one in row.credential_infos]
        for row in answer.results
    }


async def test_credentials_are_set_described_and_deleted(nursery, autojump_clock):
    client = await connected(nursery)
    assert await described(client) == {}
    assert await alter(client, to_set("b"), to_set("ä b/<default>", 2, 5000)) == {
        "b": (0, ""),
        "ä b/<default>": (0, ""),
    }
    assert await alter(client, to_set("b", 2, 6000), to_set("b", 1, 7000), to_set("a")) == {"b": (0, ""), "a": (0, "")}
    assert await described(client) == {
        "a": [(1, 4096)],
        "b": [(1, 7000), (2, 6000)],
        "ä b/<default>": [(2, 5000)],
    }
    assert await alter(client, delete=[("b", 1), ("a", 1)]) == {"b": (0, ""), "a": (0, "")}
    assert await described(client, "b") == {"b": [(2, 6000)]}


async def test_credentials_survive_a_restart(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    await alter(await machine.connect(), to_set("a"))
    await machine.crash()
    await machine.start()
    assert await described(await machine.connect()) == {"a": [(1, 4096)]}


async def test_what_cannot_be_described_is_reported_user_by_user(nursery, autojump_clock):
    client = await connected(nursery)
    await alter(client, to_set("a"))
    assert await described(client, "unknown", "a", "b", "b", "", "", "..") == {
        "unknown": "Attempt to describe a user credential that does not exist: unknown",
        "a": [(1, 4096)],
        "b": "Cannot describe SCRAM credentials for the same user twice in a single request: b",
        "": "Username must not be empty",
        "..": "The server experienced an unexpected error when processing the request.",
    }


async def test_one_users_refusal_hinders_no_other(nursery, autojump_clock):
    client = await connected(nursery)
    results = await alter(client, to_set("a", iterations=1), to_set("a", 2), to_set("b"), delete=[("c", 1)])
    missing = "Attempt to delete a user credential that does not exist"
    assert results == {"a": (93, "Too few iterations"), "c": (91, missing), "b": (0, "")}
    assert await described(client) == {"b": [(1, 4096)]}


async def test_an_empty_password_hinders_all_who_are_left(nursery, autojump_clock):
    client = await connected(nursery)
    results = await alter(client, to_set("a"), to_set("b", salted_password=b""), to_set("c", 9))
    assert {user: code for user, (code, _) in results.items()} == {"a": -1, "b": -1, "c": 33}
    assert await described(client) == {}


async def test_an_error_in_writing_one_user_is_no_error_of_those_written(nursery, autojump_clock):
    client = await connected(nursery)
    results = await alter(client, to_set("a"), to_set(".."), to_set("b"))
    assert {user: code for user, (code, _) in results.items()} == {"a": 0, "..": -1, "b": 0}
    assert await described(client) == {"a": [(1, 4096)], "b": [(1, 4096)]}


async def test_a_name_that_no_node_can_have_hinders_all(nursery, autojump_clock):
    client = await connected(nursery)
    assert await alter(client, to_set("a"), delete=[("..", 1)]) == {"a": (-1, None), "..": (-1, None)}
    assert await described(client) == {}
