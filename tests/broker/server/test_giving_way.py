"""A request that ends the wait of others: those are answered before the next request of its connection is handled."""

import pytest
import trio

from barnabas.wire import messages as m
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, produce_request

ROUNDS = 40  # tasks that are ready at the same time run in any order


def join(group, member_id=""):
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync(group, joined, *shares):
    assignments = [m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=b"a") for each in shares]
    return m.SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=assignments
    )


async def joined_alone(group, client):
    """A member of a stable group of its own, in which it is the leader."""
    joined = await client.ask(join(group), 3)
    await client.ask(sync(group, joined, joined.member_id), 3)
    return joined


async def one_that_joins(group, waiting, client):
    """What ends the wait of a member that joins, and what that wait is."""
    joined = await joined_alone(group, client)
    await waiting.send(join(group), 3)
    return join(group, joined.member_id), 3


async def one_that_syncs(group, waiting, client):
    """The same of a member that waits for its share."""
    request, version = await one_that_joins(group, waiting, client)
    joined = await client.ask(request, version)
    other = await waiting.receive()
    await waiting.send(sync(group, other), 3)
    return sync(group, joined, joined.member_id, other.member_id), 3


async def one_that_fetches(topic, waiting, client):
    """The same of a consumer that waits for records."""
    await waiting.send(fetch_request([(topic, 0, 0)], max_wait_ms=60_000), 12)
    return produce_request(topic, b"v", acks=1), 9


async def until_there_is_a_coordinator(client):
    find = m.FindCoordinatorRequest(coordinator_keys=["g"])
    while (await client.ask(find, 4)).coordinators[0].error_code:
        await trio.sleep(0.1)


@pytest.mark.parametrize("begin_to_wait", [one_that_joins, one_that_syncs, one_that_fetches])
async def test_who_waited_is_answered_before_the_next_request_of_who_ended_the_wait(
    nursery, autojump_clock, begin_to_wait
):
    machine = await Machine(nursery).start()
    await until_there_is_a_coordinator(await machine.connect())
    for number in range(ROUNDS):
        waiting, client = await machine.connect(), await machine.connect()
        await client.create_topic(f"t{number}")
        request, version = await begin_to_wait(f"t{number}", waiting, client)
        await trio.testing.wait_all_tasks_blocked()
        assert not waiting.has_received()
        # The next request is there when the first is answered.
        await client.send_at_once((request, version), (m.MetadataRequest(topics=[]), 9))
        await client.receive()
        await client.receive()
        assert waiting.has_received()
