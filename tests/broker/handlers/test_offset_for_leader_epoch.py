"""OffsetForLeaderEpoch: the end offset of an epoch, and the response to a client with a wrong epoch."""

import pytest

from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine
from tests.broker.requests import epoch_request


async def with_two_epochs(nursery):
    """Epoch 0 has the offsets 0 to 2, epoch 1 those from 3 to 4."""
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    for value in (b"0", b"1", b"2"):
        await client.produce("t", value)
    assert await client.give_role(machine, "t") == 0
    for value in (b"3", b"4"):
        await client.produce("t", value)
    return machine, client


async def ask(client, epoch: int, topic: str = "t", partition: int = 0, *, version: int = 4, leader_epoch: int = -1):
    """The one row of the answer, as (error code, epoch, end offset)."""
    answer = await client.ask(epoch_request((topic, partition, epoch), leader_epoch=leader_epoch), version)
    ((row,),) = [topic.partitions for topic in answer.topics]
    return row.error_code, row.leader_epoch, row.end_offset


@pytest.mark.parametrize("version", range(5))
async def test_an_epoch_ended_where_the_next_began_and_the_newest_at_the_log_end(nursery, autojump_clock, version):
    _, client = await with_two_epochs(nursery)
    expected = {0: (0, 0, 3), 1: (0, 1, 5), 2: (0, -1, -1), -1: (0, -1, -1), -5: (0, -5, 0)}
    for epoch, row in expected.items():
        without_epoch = (row[0], -1, row[2])  # version 0 does not tell which epoch it is
        assert await ask(client, epoch, version=version) == (row if version else without_epoch)


@pytest.mark.parametrize("version", range(2, 5))
async def test_a_client_behind_is_fenced_and_one_ahead_is_unknown(nursery, autojump_clock, version):
    _, client = await with_two_epochs(nursery)
    for leader_epoch, code in {
        -2: ErrorCode.FENCED_LEADER_EPOCH,
        0: ErrorCode.FENCED_LEADER_EPOCH,
        1: ErrorCode.NONE,
        2: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }.items():
        row = await ask(client, 0, version=version, leader_epoch=leader_epoch)
        assert row == ((0, 0, 3) if code == 0 else (code, -1, -1))


async def test_a_follower_does_not_answer_but_tells_who_is_behind(nursery, autojump_clock):
    machine, client = await with_two_epochs(nursery)
    await client.give_role(machine, "t", leader=2, replicas=[machine.serving.broker_id, 2])
    assert await ask(client, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    assert await ask(client, 0, leader_epoch=1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert (await client.list_offset("t", -1, leader_epoch=1)).error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_new_leader_answers_for_its_empty_epoch(nursery, autojump_clock):
    machine, client = await with_two_epochs(nursery)
    await client.give_role(machine, "t")
    assert await ask(client, 2) == (0, 2, 5)
