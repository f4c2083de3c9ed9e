"""Deleted topics and groups, while the removal of their offsets takes several steps."""

import trio

from barnabas.coordinators.groups.classic.events import CommitOffsets, Waiting
from barnabas.coordinators.groups.coordinator import DELETED_AT_A_TIME
from barnabas.coordinators.groups.records import Commit
from barnabas.coordinators.groups.shards import GROUPS_AT_A_TIME, PARTITIONS_AT_A_TIME
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from tests.coordinators.groups.asking import commit, error_of, fetch, group_of, join, offsets_of


async def test_offsets_of_a_deleted_topic_are_not_read_while_they_are_removed(house, autojump_clock):
    for number in range(3 * GROUPS_AT_A_TIME):
        await house.ask(commit(5, group_id=f"g{number}"))
    await house.ask(commit(5))
    await house.ask(commit(6, partition=1))
    house.groups.runtime.on_partitions_deleted([TopicPartition("t", 0)])
    assert offsets_of(await house.ask(fetch(0, 1))) == {0: -1, 1: 6}
    assert offsets_of(await house.ask(fetch())) == {1: 6}
    assert error_of(await house.ask(commit(1))) == 0
    assert offsets_of(await house.ask(fetch(0, 1))) == {0: 1, 1: 6}
    await trio.sleep(1)
    assert offsets_of(await house.ask(fetch(0, 1))) == {0: 1, 1: 6}
    assert house.groups._groups.outdated._deleted == {}


async def test_a_commit_between_two_portions_of_a_deletion_is_not_forgotten(house, autojump_clock, monkeypatch):
    last = PARTITIONS_AT_A_TIME
    house.know_topic("t", last + 1)
    for partition in range(last + 1):
        await house.ask(commit(5, partition=partition))
    house.groups.runtime.on_partitions_deleted([TopicPartition("t", partition) for partition in range(last + 1)])
    happen, interrupted = house.groups._groups.happen_unasked, []

    def happens(shard, group, event):
        happen(shard, group, event)
        if not interrupted:
            interrupted.append(event)
            offsets = {TopicPartition("t", last): Commit(1, -1, "", house.now_ms())}
            house.groups._groups.happen(shard, group, CommitOffsets(Waiting(), "", None, -1, offsets))

    monkeypatch.setattr(house.groups._groups, "happen_unasked", happens)
    await trio.sleep(1)
    assert offsets_of(await house.ask(fetch())) == {last: 1}


async def test_no_member_joins_a_group_that_is_being_deleted(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    count, answers = 3 * DELETED_AT_A_TIME, []
    offsets = {TopicPartition("t", index): Commit(5, -1, "", house.now_ms()) for index in range(count)}
    shard = house.groups.runtime.find(0)
    house.groups._groups.happen(
        shard, house.groups._groups.create(shard, "g"), CommitOffsets(Waiting(), "", None, -1, offsets)
    )
    house.replicate()

    async def delete():
        answers.append((await house.ask(m.DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code)

    nursery.start_soon(delete)
    await trio.sleep(1)
    assert len(group_of(house).recorded.offsets) == 2 * DELETED_AT_A_TIME
    joined = await house.ask(join(group_instance_id="i"))
    assert joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    while not answers:
        house.replicate()
        await trio.sleep(1)
    assert answers == [ErrorCode.NONE]
    assert (await house.ask(join(group_instance_id="i"))).generation_id == 1
    assert offsets_of(await house.ask(fetch())) == {}
