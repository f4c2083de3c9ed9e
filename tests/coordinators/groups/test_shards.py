"""What is large: commits of many partitions, groups of many members and offsets, a step at a time."""

from functools import partial

import pytest
import trio

from barnabas.coordinators.groups.classic.events import CommitOffsets, Waiting
from barnabas.coordinators.groups.records import Commit
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from tests.coordinators.groups.houses import house_with_partitions, while_in_thread


def commit_of(count, topic="t"):
    """OffsetCommit for so many partitions; of each the offset is its number."""
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition
    rows = [row(partition_index=index, committed_offset=index, committed_metadata="so far") for index in range(count)]
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)]
    return m.OffsetCommitRequest(group_id="g", topics=topics)


def join():
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"mine")
    return m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


async def state_of(house):
    return (await house.ask(m.DescribeGroupsRequest(groups=["g"]))).groups[0].group_state


async def everything(house):
    """What the group has committed."""
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = await house.ask(m.OffsetFetchRequest(groups=[asked]))
    return {row.partition_index: row.committed_offset for topic in answer.groups[0].topics for row in topic.partitions}


async def after_a_restart(open_house, house):
    """What a coordinator knows that has just loaded the log."""
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    return await everything(again)


@pytest.mark.parametrize(("count", "threads"), [(100, 0), (1500, 1)])
async def test_a_large_commit_is_written_in_a_thread_and_is_the_same(open_house, autojump_clock, count, threads):
    house, in_threads = await house_with_partitions(open_house, count)
    answer = await house.ask(commit_of(count))
    assert [row.error_code for row in answer.topics[0].partitions] == [0] * count
    assert len(in_threads) == threads
    committed = {index: index for index in range(count)}
    assert await everything(house) == committed
    assert await after_a_restart(open_house, house) == committed


async def test_a_large_commit_is_decided_on_after_it_is_written(open_house, autojump_clock):
    house, _ = await house_with_partitions(open_house, 200)
    while_in_thread(house, partial(house.ask, join(), 3))
    answer = await house.ask(commit_of(200))
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert await after_a_restart(open_house, house) == {}


async def test_a_large_group_is_deleted_with_what_is_committed_meanwhile(open_house, autojump_clock):
    house, threads = await house_with_partitions(open_house, 300)
    house.know_topic("other", 1)
    await house.ask(commit_of(300))
    threads.clear()
    while_in_thread(house, partial(house.ask, commit_of(1, topic="other")))
    (row,) = (await house.ask(m.DeleteGroupsRequest(groups_names=["g"]))).results
    assert (row.error_code, len(threads)) == (0, 1)
    assert await everything(house) == await after_a_restart(open_house, house) == {}


async def test_many_offsets_expire_step_by_step_and_then_their_group(open_house, autojump_clock):
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    house = await open_house(settings=settings)
    house.know_topic("t", 1000)
    await house.ask(commit_of(1000))
    await trio.sleep(59)
    assert len(await everything(house)) == 1000
    await trio.sleep(3)
    assert await state_of(house) == "Dead"
    assert await after_a_restart(open_house, house) == {}


async def test_many_members_are_woken_and_may_leave_at_once(open_house, nursery, autojump_clock):
    house, answers = await open_house(), []

    async def come():
        answers.append(await house.ask(join(), 3))

    for _ in range(500):
        nursery.start_soon(come)
    await trio.sleep(30)
    assert [(answer.error_code, answer.generation_id) for answer in answers] == [(0, 1)] * 500
    everybody = [answer.member_id for answer in answers]
    leaving = [m.LeaveGroupRequest.MemberIdentity(member_id=who) for who in ("stranger", *everybody, everybody[0])]
    rows = (await house.ask(m.LeaveGroupRequest(group_id="g", members=leaving))).members
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [row.error_code for row in rows] == [unknown, *[0] * 500, unknown]
    assert await state_of(house) == "Empty"


async def joined(house):
    """Make the group Stable with one member, which then sends nothing."""
    member_id = (await house.ask(join(), 3)).member_id
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    await house.ask(m.SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[assignment]), 3)


async def test_a_shard_that_is_lost_while_its_groups_are_loaded_starts_no_sessions(open_house, autojump_clock):
    house = await open_house()
    await joined(house)
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    in_thread = again.world.in_thread

    async def lost_and_led_again(function, *args):
        if function.__name__ == "finish":
            again.world.in_thread = in_thread
            again.resign()
            again.partition.log = again.open_partition().log
            again.lead(leader_epoch=4)
        return await in_thread(function, *args)

    again.world.in_thread = lost_and_led_again
    await trio.sleep(1)
    assert again.world.in_thread is in_thread
    before = again.partition.log.log_end_offset
    await trio.sleep(120)
    # The session ends once, and the group becomes Empty by one record.
    assert again.partition.log.log_end_offset == before + 1


async def test_offsets_committed_after_a_move_to_another_directory_go_with_their_topic(open_house, autojump_clock):
    house = await open_house()
    await house.ask(commit_of(1))
    house.partition.log.close(house.now_ms())
    house.partition.log_moved(house.open_partition().log)
    await house.ask(commit_of(2))
    house.groups.runtime.on_partitions_deleted([TopicPartition("t", 0)])
    await trio.sleep(1)
    assert await everything(house) == {1: 1}


async def test_a_group_with_more_offsets_than_fit_into_a_batch_is_deleted(open_house, autojump_clock):
    house = await open_house(settings={"max.message.bytes": "30000"})
    for start in range(0, 1000, 100):
        offsets = {TopicPartition("t", index): Commit(5, -1, "", house.now_ms()) for index in range(start, start + 100)}
        answer = await house.groups.commit("g", CommitOffsets(Waiting(), "", None, -1, offsets))
        assert not answer.error
    (row,) = (await house.ask(m.DeleteGroupsRequest(groups_names=["g"]))).results
    assert row.error_code == 0
    assert house.groups.runtime.find(0).state.by_id == {}
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    assert again.groups.runtime.find(0).state.by_id == {}
