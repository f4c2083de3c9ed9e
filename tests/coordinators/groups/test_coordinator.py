"""The coordinator over a real log: requests that wait, replicas that lag, leaders that change."""

import random
from itertools import pairwise

import pytest
import trio
import trio.testing

from barnabas.coordinators.groups.classic.events import Join, LeavingMember, Sync, Waiting
from barnabas.coordinators.groups.classic.state import GroupState
from barnabas.coordinators.groups.shards import GROUPS_AT_A_TIME
from barnabas.storage.producers import Origin
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from barnabas.wire.topics import TopicPartition
from tests.coordinators.groups.asking import (
    all_of,
    beat,
    commit,
    described,
    error_of,
    fetch,
    group_of,
    join,
    leave,
    member_of,
    offsets_of,
    sync,
)


async def alone_in_group(house, assignment=b"all of it"):
    joined = await member_of(house)
    await house.ask(sync(joined, [(joined.member_id, assignment)]))
    return joined


async def _note(answers, ask, request):
    answers.append(await ask(request))


async def test_two_members_join_sync_beat_and_leave(house, autojump_clock):
    a, b = await all_of(member_of(house), member_of(house))
    leader, follower = (a, b) if a.members else (b, a)
    assignments = [(leader.member_id, b"left"), (follower.member_id, b"right")]
    right, left = await all_of(house.ask(sync(follower)), house.ask(sync(leader, assignments)))
    assert (left.assignment, right.assignment) == (b"left", b"right")
    assert (await house.ask(beat(follower))).error_code == 0
    gone = await house.ask(leave(leader.member_id))
    assert [row.error_code for row in gone.members] == [0]
    assert (await house.ask(beat(follower))).error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_an_empty_group_waits_for_the_initial_delay_in_virtual_time(house, autojump_clock):
    begun = trio.current_time()
    await member_of(house)
    assert trio.current_time() - begun == pytest.approx(3, abs=0.01)


async def test_a_member_that_dies_is_found_out_after_its_session(house, autojump_clock):
    a, b = await all_of(member_of(house), member_of(house))
    leader, follower = (a, b) if a.members else (b, a)
    await all_of(house.ask(sync(leader)), house.ask(sync(follower)))
    await trio.sleep(9)
    assert (await house.ask(beat(leader))).error_code == 0
    await trio.sleep(1.5)
    assert (await house.ask(beat(leader))).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = await house.ask(join(leader.member_id))
    assert (again.generation_id, len(again.members)) == (2, 1)


async def test_heartbeats_keep_a_member_for_ever(house, autojump_clock):
    joined = await alone_in_group(house)
    for _ in range(10):
        await trio.sleep(9.9)
        assert (await house.ask(beat(joined))).error_code == 0


async def test_a_connection_that_goes_away_leaves_a_member_that_times_out(house, autojump_clock):
    await alone_in_group(house)
    with trio.move_on_after(1) as gone:
        await member_of(house)
    assert gone.cancelled_caught
    assert len((await described(house)).members) == 2
    await trio.sleep(10.1)
    assert (await described(house)).members == []


async def test_a_commit_is_answered_once_it_is_replicated(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    answers = []
    nursery.start_soon(_note, answers, house.ask, commit(5))
    await trio.sleep(1)
    assert answers == []
    house.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert error_of(answers[0]) == 0


async def test_an_offset_is_read_once_it_is_replicated(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    nursery.start_soon(house.ask, commit(5))
    await trio.testing.wait_all_tasks_blocked()
    answers = []
    nursery.start_soon(_note, answers, house.ask, fetch(0))
    await trio.sleep(1)
    assert answers == []
    house.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert offsets_of(answers[0]) == {0: 5}


async def test_a_commit_that_is_not_replicated_in_time_times_out(open_house, autojump_clock):
    house = await open_house(replicas=(0, 1))
    assert error_of(await house.ask(commit(5))) == ErrorCode.REQUEST_TIMED_OUT
    answer = await house.ask(fetch(0))
    assert answer.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    house.replicate()
    assert offsets_of(await house.ask(fetch(0))) == {0: 5}


async def test_assignments_that_are_not_replicated_in_time_cause_a_new_rebalance(open_house, autojump_clock):
    house = await open_house(replicas=(0, 1))
    joined = await member_of(house)
    answer = await house.ask(sync(joined, [(joined.member_id, b"x")]))
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await described(house)).group_state == "PreparingRebalance"


async def test_a_session_does_not_run_while_the_answer_is_held(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    joined = await member_of(house, session_timeout_ms=6_000)
    nursery.start_soon(house.ask, sync(joined))
    await trio.sleep(4)
    house.replicate()
    await trio.sleep(5)
    assert (await house.ask(beat(joined))).error_code == 0


async def test_a_new_leader_epoch_of_the_same_leader_disturbs_no_one(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    answers = []
    nursery.start_soon(_note, answers, house.ask, commit(5))
    await trio.sleep(1)
    house.lead(2, (0, 1))
    house.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert error_of(answers[0]) == 0


async def test_one_that_waits_is_answered_when_leadership_is_lost(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    answers = []
    for request in (commit(5), join(group_instance_id="i")):
        nursery.start_soon(_note, answers, house.ask, request)
        await trio.testing.wait_all_tasks_blocked()
    house.resign()
    await trio.testing.wait_all_tasks_blocked()
    codes = sorted(answer.error_code if hasattr(answer, "leader") else error_of(answer) for answer in answers)
    assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
    assert error_of(await house.ask(commit(5))) == ErrorCode.NOT_COORDINATOR


async def test_assignments_that_wait_for_replicas_are_lost_with_leadership(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    joined = await member_of(house)
    answers = []
    nursery.start_soon(_note, answers, house.ask, sync(joined))
    await trio.sleep(1)
    house.resign()
    await trio.testing.wait_all_tasks_blocked()
    assert answers[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_offsets_and_members_survive_a_fail_over(open_house, autojump_clock):
    house = await open_house()
    joined = await alone_in_group(house)
    await house.ask(commit(5, generation=1, member_id=joined.member_id, metadata="so far"))
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    fetched = await after.ask(fetch(0))
    assert fetched.groups[0].topics[0].partitions[0].metadata == "so far"
    assert offsets_of(fetched) == {0: 5}
    assert (await after.ask(beat(joined))).error_code == 0
    assert (await after.ask(sync(joined))).assignment == b"all of it"


async def test_a_generation_without_stored_assignments_does_not_survive_a_fail_over(open_house, autojump_clock):
    house = await open_house()
    joined = await member_of(house)
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    assert (await after.ask(beat(joined))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_large_log_is_loaded_slice_by_slice(open_house, autojump_clock):
    house = await open_house()
    for offset in range(200):
        await house.ask(commit(offset, partition=offset % 2, metadata="m" * 100))
    after = await open_house(house.disk.crash_process(), settings={"offsets.load.buffer.size": "1000"}, leader_epoch=2)
    assert (await after.ask(fetch(0))).groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.sleep(1)
    assert offsets_of(await after.ask(fetch())) == {0: 198, 1: 199}


async def test_while_groups_are_loaded_no_one_is_thrown_out(open_house, autojump_clock):
    house = await open_house()
    joined = await alone_in_group(house)
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    assert (await after.ask(beat(joined))).error_code == 0
    assert (await after.ask(sync(joined))).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert error_of(await after.ask(commit(5))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await after.ask(join())).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await after.ask(leave("x"))).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await after.ask(m.ListGroupsRequest())).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_log_that_cannot_be_understood_is_not_served(open_house, autojump_clock):
    house = await open_house()
    await house.ask(commit(5))
    house.partition.append_as_leader(build_batch([(b"?", b"")], timestamp_ms=0), Origin.COORDINATOR)
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    assert (await after.ask(fetch(0))).groups[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_disk_that_cannot_be_read_takes_the_groups_away(open_house, autojump_clock):
    house = await open_house()
    await house.ask(commit(5))
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    after.disk.fail_next("read", "EIO")
    await trio.sleep(1)
    assert (await after.ask(fetch(0))).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert len(after.failures) == 1


async def test_leadership_that_goes_while_groups_are_loaded_leaves_nothing_behind(open_house, autojump_clock):
    house = await open_house()
    await house.ask(commit(5))
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    after.resign()
    await trio.sleep(1)
    assert (await after.ask(fetch(0))).groups[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_a_partition_whose_log_was_replaced_is_loaded_again(house, nursery, autojump_clock):
    await house.ask(commit(5))
    answers = []
    nursery.start_soon(_note, answers, house.ask, join(group_instance_id="i"))
    await trio.testing.wait_all_tasks_blocked()
    house.partition = house.open_partition()
    house.lead(2)
    await trio.sleep(1)
    assert answers[0].error_code == ErrorCode.NOT_COORDINATOR
    assert offsets_of(await house.ask(fetch(0))) == {0: 5}


async def test_groups_that_could_not_be_loaded_are_tried_again_at_the_next_election(open_house, autojump_clock):
    house = await open_house()
    house.partition.append_as_leader(build_batch([(b"?", b"")], timestamp_ms=0), Origin.COORDINATOR)
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    assert error_of(await after.ask(commit(5))) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    after.lead(3)
    assert error_of(await after.ask(commit(5))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("asked", [m.ListGroupsRequest(), m.DescribeGroupsRequest(groups=["g"])])
async def test_a_generation_is_shown_once_it_is_replicated(open_house, nursery, asked, autojump_clock):
    house = await open_house(replicas=(0, 1))
    nursery.start_soon(house.ask, sync(await member_of(house)))
    await trio.testing.wait_all_tasks_blocked()
    answers = []
    nursery.start_soon(_note, answers, house.ask, asked)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == []
    house.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert answers[0].groups[0].group_state == "Stable"


async def test_news_of_an_older_epoch_is_ignored(house, autojump_clock):
    house.groups.runtime.on_resigned(0, 0)
    assert error_of(await house.ask(commit(5))) == 0
    house.groups.runtime.on_resigned(0, 5)
    house.groups.runtime.on_elected(house.partition)
    assert error_of(await house.ask(commit(5))) == ErrorCode.NOT_COORDINATOR


async def test_a_group_topic_that_was_deleted_and_made_again_is_served(house, autojump_clock):
    house.lead(5)
    house.resign()
    house.groups.runtime.on_deleted(0)
    house.partition = house.open_partition()
    house.lead(0)
    assert error_of(await house.ask(commit(5))) == 0


async def test_a_group_is_not_looked_for_by_the_part_of_the_metadata_that_has_come(house, autojump_clock):
    house.groups.placement.expect_partitions(50)
    assert error_of(await house.ask(commit(5))) == ErrorCode.NOT_COORDINATOR
    house.groups.runtime.on_partitions_deleted([TopicPartition("__consumer_offsets", 0)])
    assert error_of(await house.ask(commit(5))) == 0


async def test_commits_for_a_topic_that_was_created_again_are_not_forgotten(house, autojump_clock):
    assert error_of(await house.ask(commit(5, partition=0))) == 0
    assert error_of(await house.ask(commit(6, partition=1))) == 0
    house.groups.runtime.on_partitions_deleted([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert error_of(await house.ask(commit(1, partition=0))) == 0
    await trio.sleep(1)
    assert offsets_of(await house.ask(fetch(0, 1))) == {0: 1, 1: -1}


async def test_news_of_the_same_epoch_counts(house, autojump_clock):
    house.groups.runtime.on_resigned(0, 1)
    assert error_of(await house.ask(commit(5))) == ErrorCode.NOT_COORDINATOR
    house.groups.runtime.on_elected(house.partition)
    assert error_of(await house.ask(commit(5))) == 0


async def test_one_that_waits_is_answered_even_when_leadership_comes_back_at_once(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    answers = []
    nursery.start_soon(_note, answers, house.ask, commit(5))
    await trio.testing.wait_all_tasks_blocked()
    log = house.partition.log
    house.resign()
    house.partition.log = log
    house.lead(2, (0, 1))
    await trio.testing.wait_all_tasks_blocked()
    assert error_of(answers[0]) == ErrorCode.NOT_COORDINATOR


async def test_groups_that_are_gone_leave_no_timers_behind(open_house, autojump_clock):
    house = await open_house(settings={"offsets.retention.check.interval.ms": "20000"})
    joined = await alone_in_group(house)
    timers = house.groups._groups._timers
    assert len(timers._owners) == 1
    await house.ask(leave(joined.member_id))
    await trio.sleep(20)
    assert len(timers._owners) == len(house.groups._groups._shard_of) == 0
    await alone_in_group(house)
    house.resign()
    await trio.testing.wait_all_tasks_blocked()
    assert len(timers._owners) == len(house.groups._groups._shard_of) == 0


async def test_the_groups_of_a_lost_shard_are_removed_in_steps(open_house, autojump_clock):
    """There may be tens of thousands, and a broker loses many shards at once."""
    house = await open_house()
    count = 8 * GROUPS_AT_A_TIME
    for number in range(count):
        assert error_of(await house.ask(commit(5, group_id=f"g{number}"))) == 0
    groups = house.groups.runtime.find(0).state.by_id
    house.resign()
    assert error_of(await house.ask(commit(5, group_id="g0"))) == ErrorCode.NOT_COORDINATOR
    left = []
    while groups:
        left.append(len(groups))
        await trio.lowlevel.checkpoint()
    # In each turn of the event loop its tasks run in any order: between two looks there may be two steps.
    assert max(before - after for before, after in pairwise([*left, 0])) <= 2 * GROUPS_AT_A_TIME
    assert house.groups._groups._memory.held_bytes == 0


async def test_a_disk_that_fails_takes_the_groups_away(open_house, autojump_clock):
    house = await open_house()
    house.disk.fail_next("write", "EIO")
    assert error_of(await house.ask(commit(5))) == ErrorCode.NOT_COORDINATOR
    assert len(house.failures) == 1
    assert error_of(await house.ask(commit(5))) == ErrorCode.NOT_COORDINATOR


async def test_a_disk_that_fails_under_the_leaders_sync_takes_the_groups_away(open_house, autojump_clock):
    house = await open_house()
    joined = await member_of(house)
    house.disk.fail_next("write", "EIO")
    assert (await house.ask(sync(joined))).error_code == ErrorCode.NOT_COORDINATOR


async def test_below_the_smallest_in_sync_set_nothing_is_committed(open_house, autojump_clock):
    house = await open_house(settings={"min.insync.replicas": "2"})
    house.lead(2, replicas=(0, 1), in_sync=(0,))
    assert error_of(await house.ask(commit(5))) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert offsets_of(await house.ask(fetch(0))) == {0: -1}


async def test_offsets_of_an_empty_group_expire_with_the_group(open_house, autojump_clock):
    house = await open_house(settings={"offsets.retention.minutes": "60"})
    joined = await alone_in_group(house)
    await house.ask(commit(5, generation=1, member_id=joined.member_id))
    await house.ask(leave(joined.member_id))
    await trio.sleep(59 * 60)
    assert offsets_of(await house.ask(fetch(0))) == {0: 5}
    await trio.sleep(12 * 60)
    assert offsets_of(await house.ask(fetch())) == {}
    assert (await house.ask(m.ListGroupsRequest())).groups == []
    after = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    assert (await after.ask(m.ListGroupsRequest())).groups == []


async def test_a_deletion_is_answered_once_it_is_replicated(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    answers = []

    async def delete(name):
        answers.append((await house.ask(m.DeleteGroupsRequest(groups_names=[name]))).results[0].error_code)

    nursery.start_soon(house.ask, commit(5))
    await trio.testing.wait_all_tasks_blocked()
    house.replicate()
    nursery.start_soon(delete, "g")
    await trio.sleep(1)
    assert answers == []
    house.replicate()
    await trio.sleep(1)
    assert answers == [0]
    nursery.start_soon(house.ask, commit(5))
    await trio.sleep(1)
    await delete("g")
    assert answers == [0, ErrorCode.REQUEST_TIMED_OUT]


async def test_offsets_of_deleted_partitions_are_forgotten(house, autojump_clock):
    await house.ask(commit(5, partition=0))
    await house.ask(commit(6, partition=1))
    house.groups.runtime.on_partitions_deleted([TopicPartition("t", 0)])
    await trio.testing.wait_all_tasks_blocked()
    assert offsets_of(await house.ask(fetch())) == {1: 6}


async def test_any_crash_of_the_machine_leaves_a_log_that_loads(open_house, autojump_clock):
    house = await open_house()
    for offset in range(20):
        await house.ask(commit(offset))
    for seed in range(5):
        after = await open_house(house.disk.crash_machine(random.Random(seed)), leader_epoch=2)
        await trio.sleep(1)
        assert offsets_of(await after.ask(fetch(0)))[0] in range(-1, 20)


@pytest.mark.provokes_mistakes
async def test_a_state_that_contradicts_itself_is_loaded_again(house, autojump_clock):
    await house.ask(commit(5))
    joined = await member_of(house)
    group_of(house).state = GroupState.EMPTY
    answer = await house.ask(sync(joined, [(joined.member_id, b"mine")]))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert error_of(await house.ask(commit(6))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.sleep(1)
    assert offsets_of(await house.ask(fetch(0))) == {0: 5}
    assert (await house.ask(sync(joined))).assignment == b"mine"  # its record had reached the log


@pytest.mark.provokes_mistakes
async def test_a_contradiction_that_a_timer_finds_ends_nothing_but_the_state(house, nursery, autojump_clock):
    answers = []
    for instance_id in ("i", "j"):
        nursery.start_soon(_note, answers, house.ask, join(group_instance_id=instance_id))
        await trio.testing.wait_all_tasks_blocked()
    group_of(house).protocol_counts.clear()
    await trio.sleep(10)
    assert [answer.error_code for answer in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert (await house.ask(join(group_instance_id="i"))).generation_id == 1


async def test_with_one_acknowledgement_nothing_waits_for_replicas(open_house, autojump_clock):
    house = await open_house(replicas=(0, 1), settings={"offsets.commit.required.acks": "1"})
    assert error_of(await house.ask(commit(5))) == 0
    assert offsets_of(await house.ask(fetch(0))) == {0: 5}


async def test_many_sessions_may_end_at_the_same_time(open_house, autojump_clock):
    house = await open_house(settings={"group.initial.rebalance.delay.ms": "0"})
    for number in range(250):
        await house.ask(join(group_id=f"g{number}", group_instance_id="i"))
    await trio.sleep(11)
    listed = await house.ask(m.ListGroupsRequest(states_filter=["Empty"]))
    assert len(listed.groups) == 250


async def test_what_clients_call_themselves_cannot_forge_a_line_of_the_log(house, caplog, autojump_clock):
    caplog.set_level("INFO")
    await house.ask(join(group_id="g\nERROR all is lost", group_instance_id="i" * 1000))
    assert all("\n" not in line.message and len(line.message) < 700 for line in caplog.records)
    assert any("all is lost" in line.message for line in caplog.records)


async def test_a_name_too_long_for_its_record_is_refused_and_the_group_goes_on(open_house, autojump_clock):
    house = await open_house(settings={"group.initial.rebalance.delay.ms": "0"})
    name = "r" * 40_000
    who = ("c", "/h", 10_000, 60_000, "consumer", ((name, b""),), False, True)
    member_id = (await house.groups.join("g", Join(Waiting(), "", None, *who))).member_id
    answer = await house.groups.sync("g", Sync(Waiting(), member_id, None, 1, "consumer", name, {}))
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await house.groups.leave("g", [LeavingMember(member_id, None)])).member_errors == (0,)
    assert (await described(house)).group_state == "Empty"
