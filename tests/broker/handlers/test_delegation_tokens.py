"""Delegation tokens on a broker that has a secret: the four requests, the store, other brokers, and the sweep."""

import json
import time

import pytest
import trio

from barnabas.broker.call import Call
from barnabas.broker.server.dispatch import answer
from barnabas.controller.store import paths
from barnabas.controller.store.store import Create, Delete, SetData
from barnabas.wire import messages as m
from barnabas.wire.asking import key_of
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine
from tests.broker.steps import StepMeter
from tests.wire.bombs import memory_below

DAY_MS = 24 * 3_600_000
SECRET = {"delegation_token_secret_key": "the secret"}
Renewer = m.CreateDelegationTokenRequest.CreatableRenewers
Owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner


class Asking(Call):
    """A caller without ACLs but these."""

    allowed = frozenset()

    def authorize(self, operation, resource_type, resource_name=""):
        return (operation, resource_type, resource_name) in self.allowed


async def asked(machine, request, user="alice", version=None, *, allowed=(), **facts):
    """The answer to a user of a SASL listener."""
    usual = {"security_protocol": "SASL_PLAINTEXT", "client_address": "a", "listener": "SASL", "client_id": "c"}
    newest = {38: 3, 39: 2, 40: 2, 41: 3}[key_of(request)]
    version = newest if version is None else version
    call = Asking(api_key=key_of(request), version=version, principal=f"User:{user}", **(usual | facts))
    call.allowed = frozenset(allowed)
    return await answer(machine.broker, call, request)


def to_create(*renewers, lifetime_ms=-1, owner=None):
    rows = [Renewer(principal_type="User", principal_name=name) for name in renewers]
    return m.CreateDelegationTokenRequest(
        renewers=rows,
        max_lifetime_ms=lifetime_ms,
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
    )


async def described(machine, user="alice", owners=None, **facts):
    rows = None if owners is None else [Owner(principal_type="User", principal_name=name) for name in owners]
    response = await asked(machine, m.DescribeDelegationTokenRequest(owners=rows), user, **facts)
    assert response.error_code == 0
    return [token.token_id for token in response.tokens]


@pytest.mark.parametrize("version", range(4))
async def test_a_token_is_created_renewed_described_and_removed(nursery, autojump_clock, version):
    machine = await Machine(nursery, **SECRET).start()
    created = await asked(machine, to_create("bob"), version=version)
    assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", "alice")
    assert created.token_requester_principal_name == ("alice" if version == 3 else "")
    assert created.max_timestamp_ms - created.issue_timestamp_ms == 7 * DAY_MS
    assert created.expiry_timestamp_ms - created.issue_timestamp_ms == DAY_MS
    assert len(created.token_id) == 22
    assert len(created.hmac) == 64
    lower = min(version, 2)
    renewal = m.RenewDelegationTokenRequest(hmac=created.hmac, renew_period_ms=2 * DAY_MS)
    renewed = await asked(machine, renewal, "bob", lower)
    assert renewed.error_code == 0
    response = await asked(machine, m.DescribeDelegationTokenRequest(owners=None), version=version)
    (token,) = response.tokens
    assert (token.token_id, token.principal_name, bytes(token.hmac)) == (created.token_id, "alice", created.hmac)
    assert token.token_requester_principal_name == ("alice" if version == 3 else "")
    assert (token.issue_timestamp, token.max_timestamp) == (created.issue_timestamp_ms, created.max_timestamp_ms)
    assert token.expiry_timestamp == renewed.expiry_timestamp_ms
    assert [(each.principal_type, each.principal_name) for each in token.renewers] == [("User", "bob")]
    removal = m.ExpireDelegationTokenRequest(hmac=created.hmac, expiry_time_period_ms=-1)
    assert (await asked(machine, removal, version=lower)).error_code == 0
    assert await described(machine) == []
    assert (await asked(machine, renewal, "bob", lower)).error_code == 62


REQUESTS = [
    to_create(),
    m.RenewDelegationTokenRequest(hmac=b"x"),
    m.ExpireDelegationTokenRequest(hmac=b"x"),
    m.DescribeDelegationTokenRequest(owners=None),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
async def test_who_may_not_ask_for_tokens(nursery, autojump_clock, request_):
    for properties, code in [(SECRET, None), ({}, 61)]:
        machine = await Machine(nursery, **properties).start()
        for facts in (
            {"security_protocol": "PLAINTEXT"},
            {"security_protocol": "SSL", "user": "ANONYMOUS"},
            {"is_token_authenticated": True},
        ):
            assert (await asked(machine, request_, **facts)).error_code == 64
        if code is not None:
            assert (await asked(machine, request_)).error_code == code


async def test_the_older_name_of_the_secret(nursery, autojump_clock):
    machine = await Machine(nursery, delegation_token_master_key="the secret").start()
    assert (await asked(machine, to_create())).error_code == 0


async def test_a_token_of_another_owner_needs_an_acl(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    refused = await asked(machine, to_create(owner="bob"))
    assert (refused.error_code, refused.principal_name, refused.token_requester_principal_name) == (65, "bob", "alice")
    assert (refused.issue_timestamp_ms, refused.token_id, refused.hmac) == (-1, "", b"")
    created = await asked(machine, to_create(owner="bob"), allowed=[("CreateTokens", "User", "User:bob")])
    assert (created.error_code, created.principal_name, created.token_requester_principal_name) == (0, "bob", "alice")
    # Before version 3 there is no owner in a request.
    assert (await asked(machine, to_create(), version=2)).principal_name == "alice"
    # The requester sees the token, and may not renew it.
    assert created.token_id in await described(machine)
    renewal = m.RenewDelegationTokenRequest(hmac=created.hmac, renew_period_ms=-1)
    assert (await asked(machine, renewal)).error_code == 63
    assert (await asked(machine, renewal, "bob")).error_code == 0


async def test_other_renewers_than_users_are_refused(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    request = m.CreateDelegationTokenRequest(
        renewers=[Renewer(principal_type="Group", principal_name="g")], max_lifetime_ms=-1
    )
    assert (await asked(machine, request)).error_code == 67


async def test_a_token_has_no_more_renewers_than_one_step_can_write(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    names = [f"renewer {number}" for number in range(10_000)]
    too_many, most = to_create(*names), to_create(*names[:1000])
    with StepMeter() as meter:
        refused = await asked(machine, too_many)
        created = await asked(machine, most)
    meter.check()
    assert (refused.error_code, created.error_code) == (ErrorCode.INVALID_REQUEST, 0)


async def test_a_token_of_long_names_is_refused_before_it_is_encoded(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    began = time.thread_time()
    for name in ("/" * 15_000, "a" * 15_000, "/" * 300):
        request = to_create(*[f"{name}{number}" for number in range(250)])
        with memory_below(8 << 20):
            refused = await asked(machine, request)
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert time.thread_time() - began < 0.3
    assert await machine.session().children(paths.DELEGATION_TOKENS) == []


async def test_tokens_of_one_owner_have_a_limit(nursery, autojump_clock):
    machine = await Machine(nursery, delegation_token_owner_max_bytes="60000", **SECRET).start()
    large = to_create(*[f"renewer {number}" for number in range(1000)])
    created = await asked(machine, large)
    assert created.error_code == ErrorCode.NONE
    assert (await asked(machine, large)).error_code == ErrorCode.NONE
    assert (await asked(machine, large)).error_code == ErrorCode.POLICY_VIOLATION
    assert len(await described(machine)) == 2
    assert (await asked(machine, large, "bob")).error_code == ErrorCode.NONE
    # A renewal takes nothing more, and what is removed is free again.
    renewal = m.RenewDelegationTokenRequest(hmac=created.hmac, renew_period_ms=DAY_MS)
    assert (await asked(machine, renewal)).error_code == ErrorCode.NONE
    removal = m.ExpireDelegationTokenRequest(hmac=created.hmac, expiry_time_period_ms=-1)
    assert (await asked(machine, removal)).error_code == ErrorCode.NONE
    assert (await asked(machine, large)).error_code == ErrorCode.NONE


async def test_tokens_that_are_being_written_count_for_the_limit_too(nursery, autojump_clock):
    machine = await Machine(nursery, delegation_token_owner_max_bytes="1000", **SECRET).start()
    answers = []

    async def create():
        answers.append((await asked(machine, to_create())).error_code)

    async with trio.open_nursery() as many:
        for _ in range(10):
            many.start_soon(create)
    assert sorted(answers) == [ErrorCode.NONE] * 3 + [ErrorCode.POLICY_VIOLATION] * 7


async def test_which_tokens_a_caller_sees(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    one = (await asked(machine, to_create("carol"))).token_id
    two = (await asked(machine, to_create(), "bob")).token_id
    assert await described(machine) == [one]
    assert await described(machine, "carol") == [one]
    assert await described(machine, "dave") == []
    assert await described(machine, "alice", []) == []
    assert await described(machine, "alice", ["bob"]) == []
    assert await described(machine, "dave", allowed=[("Describe", "DelegationToken", two)]) == [two]
    assert await described(machine, "dave", allowed=[("DescribeTokens", "User", "User:alice")]) == [one]
    assert await described(machine, "alice", ["bob"], allowed=[("Describe", "DelegationToken", two)]) == [two]


async def test_the_store_has_kafkas_nodes_and_another_brokers_changes_are_followed(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    created = await asked(machine, to_create())
    store = machine.session()
    path = paths.delegation_token(created.token_id)
    data, _ = await store.get(path)
    node = json.loads(data)
    assert (node["version"], node["owner"], node["issueTimestamp"]) == (3, "User%3Aalice", created.issue_timestamp_ms)
    (change,) = await store.children(paths.DELEGATION_TOKEN_CHANGES)
    assert change == "token_change_0000000000"
    data, _ = await store.get(f"{paths.DELEGATION_TOKEN_CHANGES}/{change}")
    assert data == created.token_id.encode()
    # Another broker creates, changes and removes tokens.
    prefix = paths.DELEGATION_TOKEN_CHANGE_PREFIX
    other = json.dumps(node | {"tokenId": "other"}).encode()
    await store.multi([Create(paths.delegation_token("other"), other), Create(prefix, b"other", sequential=True)])
    await store.multi([SetData(path, json.dumps(node | {"owner": "User%3Abob"}).encode())])
    await store.multi([Create(prefix, created.token_id.encode(), sequential=True)])
    await trio.sleep(1)
    assert await described(machine) == sorted(["other", created.token_id], key=lambda name: name == "other")
    assert await described(machine, "bob") == [created.token_id]
    await store.multi([Delete(paths.delegation_token("other")), Create(prefix, b"other", sequential=True)])
    # What is no token's name is ignored.
    for strange in (b"", b"a/b", b"\xff", None):
        await store.create(prefix, strange, sequential=True)
    await trio.sleep(1)
    assert await described(machine, "bob") == [created.token_id]
    await store.close()


@pytest.mark.parametrize(
    "request_", [m.RenewDelegationTokenRequest(), m.ExpireDelegationTokenRequest(expiry_time_period_ms=DAY_MS)]
)
async def test_a_token_that_another_broker_has_removed_does_not_come_back(nursery, autojump_clock, request_):
    machine = await Machine(nursery, **SECRET).start()
    created = await asked(machine, to_create())
    store = machine.session()
    # This broker does not hear of it before it is asked.
    await store.delete(paths.delegation_token(created.token_id))
    request_.hmac = created.hmac
    assert (await asked(machine, request_)).error_code == 62
    assert await store.exists(paths.delegation_token(created.token_id)) is None
    assert await described(machine) == []
    await store.close()


async def test_tokens_outlive_the_broker_and_malformed_nodes_are_left_out(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    created = await asked(machine, to_create())
    await machine.stop()
    store = machine.session()
    await store.create(paths.delegation_token("broken"), b"{}")
    await store.close()
    await machine.start()
    assert await described(machine) == [created.token_id]


async def test_expired_tokens_are_swept_and_old_notifications_too(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET, delegation_token_expiry_check_interval_ms="60000").start()
    short = await asked(machine, to_create(lifetime_ms=1000))
    long = await asked(machine, to_create(lifetime_ms=DAY_MS))
    await trio.sleep(2)
    # Until the sweep it is still there, and can only be removed.
    assert sorted(await described(machine)) == sorted([short.token_id, long.token_id])
    renewal = m.RenewDelegationTokenRequest(hmac=short.hmac, renew_period_ms=-1)
    assert (await asked(machine, renewal)).error_code == 66
    await trio.sleep(61)
    assert await described(machine) == [long.token_id]
    store = machine.session()
    assert await store.exists(paths.delegation_token(short.token_id)) is None
    await trio.sleep(16 * 60)
    await asked(machine, to_create())
    await trio.sleep(1)
    assert len(await store.children(paths.DELEGATION_TOKEN_CHANGES)) == 1
    await store.close()


async def test_everything_is_read_again_after_a_lost_session(nursery, autojump_clock):
    machine = await Machine(nursery, **SECRET).start()
    created = await asked(machine, to_create())
    known = machine.broker.tokens().known
    # As if the session's watches had been lost with changes that were not seen.
    known.remove(created.token_id)
    machine.broker.tokens()._lost()
    await trio.sleep(1)
    assert await described(machine) == [created.token_id]
