"""Offsets that are committed in transactions: TxnOffsetCommit, the markers that end transactions, what is read back."""

import pytest
import trio
import trio.testing

from barnabas.coordinators.groups.classic.events import CommitOffsetsInTransaction, Transaction, Waiting
from barnabas.coordinators.groups.classic.state import GroupState
from barnabas.coordinators.groups.coordinator import PENDING_MAX
from barnabas.coordinators.groups.offsets import offsets_view, read_offset, rests_on
from barnabas.coordinators.groups.records import Commit, OffsetRecord
from barnabas.coordinators.groups.replay import replay
from barnabas.storage.producers import Origin
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import ABORT, COMMIT, build_batch, build_control_batch, read_batch_header
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def read(scene, *, stable_below=None):
    view = offsets_view(scene.group.recorded, [T0, T1], stable_below=stable_below)
    rows = [read_offset(view, each) for each in (T0, T1)]
    return [row.error or (row.commit.offset if row.commit else None) for row in rows]


# -- who may commit


@pytest.mark.parametrize("get_there", ["joined", "stable"])
def test_a_member_of_the_generation_commits_in_any_state(scene, get_there):
    (a,) = getattr(scene, get_there)("a")
    assert scene.commit_in_transaction(member_id=a, generation=1).error is ErrorCode.NONE


def test_a_commit_is_no_sign_of_life(scene):
    (a,) = scene.stable("a")
    timers = dict.fromkeys(scene.timers, 1)
    scene.timers.update(timers)
    scene.commit_in_transaction(member_id=a, generation=1)
    assert scene.timers == timers


def test_strangers_other_generations_and_replaced_instances_are_refused(scene):
    (a,) = scene.stable("a", instance_ids=["i"])
    before = list(scene.log)
    refused = {
        ErrorCode.ILLEGAL_GENERATION: {"member_id": a, "generation": 0},
        ErrorCode.UNKNOWN_MEMBER_ID: {"member_id": "stranger", "generation": 1},
        ErrorCode.FENCED_INSTANCE_ID: {"member_id": "earlier", "instance_id": "i", "generation": 1},
    }
    assert [scene.commit_in_transaction(**asked).error for asked in refused.values()] == list(refused)
    assert scene.commit_in_transaction(member_id=a).error is ErrorCode.ILLEGAL_GENERATION
    assert scene.commit_in_transaction(instance_id="j").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.log == before


def test_an_empty_group_takes_commits_without_a_generation_only(scene):
    assert scene.commit_in_transaction(member_id="any").error is ErrorCode.NONE
    assert scene.commit_in_transaction(generation=0).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_producer_that_does_not_know_the_group_commits_while_it_has_members(scene):
    scene.stable("a")
    assert scene.commit_in_transaction().error is ErrorCode.NONE


def test_metadata_that_are_too_large_are_refused_for_their_partition_alone(make_scene):
    scene = make_scene(offset_metadata_max_bytes=3)
    assert scene.commit_in_transaction(metadata="abcd").too_large == {T0}
    assert scene.log == []


@pytest.mark.parametrize(
    ("append_error", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_commit_that_cannot_be_stored_is_refused_and_changes_nothing(scene, append_error, expected):
    scene.append_error = append_error
    assert scene.commit_in_transaction(6).error is expected
    assert (scene.group.recorded.pending, scene.groups.open) == ({}, {})


# -- what takes effect


def test_offsets_take_effect_with_the_end_of_the_transaction(scene):
    scene.commit(5)
    scene.commit_in_transaction(8)
    scene.commit_in_transaction(9)  # replaces the first
    assert read(scene) == [5, None]
    scene.end_transaction(committed=True)
    assert read(scene) == [9, None]
    scene.end_transaction(committed=True)
    assert read(scene) == [9, None]


def test_an_aborted_transaction_changes_nothing(scene):
    scene.commit(5)
    scene.commit_in_transaction(9)
    scene.commit_in_transaction(9, partition=1)
    scene.end_transaction(committed=False)
    assert read(scene, stable_below=99) == [5, None]
    assert (scene.group.recorded.pending, scene.groups.open) == ({}, {})


def test_transactions_end_each_for_itself(scene):
    for producer_id in (1, 2, 3):
        scene.commit_in_transaction(producer_id, producer_id=producer_id)
    scene.end_transaction(committed=True, producer_id=3)
    assert read(scene) == [3, None]
    scene.end_transaction(committed=True, producer_id=1)
    assert read(scene) == [3, None]  # its record is older
    assert read(scene, stable_below=99) == [UNSTABLE, None]
    scene.end_transaction(committed=False, producer_id=2)
    assert read(scene, stable_below=99) == [3, None]


def test_of_two_transactions_the_newer_record_counts_and_not_the_newer_marker(scene):
    scene.commit_in_transaction(1, producer_id=1)
    scene.commit_in_transaction(2, producer_id=2)
    scene.end_transaction(committed=True, producer_id=1)
    scene.end_transaction(committed=True, producer_id=2)
    assert read(scene) == [2, None]


def test_a_commit_outside_that_is_newer_stays(scene):
    scene.commit_in_transaction(9)
    scene.commit(5)
    scene.end_transaction(committed=True)
    assert read(scene) == [5, None]


# -- what is read back


def test_while_a_transaction_is_open_its_offsets_are_unstable(scene):
    scene.commit(5)
    scene.commit_in_transaction(9)
    scene.commit_in_transaction(9, partition=1)
    assert read(scene) == [5, None]
    assert read(scene, stable_below=99) == [UNSTABLE, UNSTABLE]
    everything = offsets_view(scene.group.recorded, stable_below=99)
    assert list(everything.offsets) == [T0]
    assert read_offset(everything, T0).error is UNSTABLE


def test_an_answer_rests_on_the_marker_that_made_the_offset_visible(scene):
    scene.commit(5)
    scene.commit_in_transaction(9)
    scene.end_transaction(committed=True)
    marker = len(scene.log) - 1
    assert rests_on(offsets_view(scene.group.recorded, stable_below=None), [T0]) == marker
    assert read(scene, stable_below=marker) == [UNSTABLE, None]
    assert read(scene, stable_below=marker + 1) == [9, None]


def test_an_answer_that_hides_an_offset_does_not_wait_for_it(scene):
    scene.commit(5, partition=1)
    scene.commit_in_transaction(9)
    scene.end_transaction(committed=True)
    assert rests_on(offsets_view(scene.group.recorded, stable_below=1), [T0, T1]) == 0


def test_a_tombstone_within_a_transaction_deletes_nothing(scene):
    scene.commit(5)
    replay(scene.groups, OffsetRecord("g", T0, None), 7, 42)
    assert read(scene) == [5, None]


# -- over a real log


def marker(producer_id=42, *, committed, epoch=0, coordinator_epoch=0):
    return build_control_batch(
        COMMIT if committed else ABORT,
        coordinator_epoch=coordinator_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=0,
    )


def end(house, producer_id=42, *, committed, **header):
    batch = marker(producer_id, committed=committed, **header)
    return house.groups.end_transaction(0, batch, producer_id, committed=committed)


async def commit(house, *offsets, group_id="g", producer_id=42, generation=-1, topic="t", **proof):
    """TxnOffsetCommit of these offsets, for partitions 0, 1 …: its error."""
    commits = {TopicPartition(topic, index): Commit(offset, -1, "", 0) for index, offset in enumerate(offsets)}
    transaction = Transaction(producer_id, proof.pop("epoch", 0), **proof)
    event = CommitOffsetsInTransaction(Waiting(), transaction, "", None, generation, commits)
    return (await house.groups.commit_in_transaction(group_id, event, 1, lambda: False)).error


async def fetch(house, *, require_stable=False, group_id="g"):
    """The group's error, or offset or error by partition."""
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[m.OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])],
    )
    (group,) = (await house.ask(m.OffsetFetchRequest(groups=[asked], require_stable=require_stable))).groups
    rows = [row for topic in group.topics for row in topic.partitions]
    return group.error_code or [row.error_code or row.committed_offset for row in rows]


async def after_a_restart(open_house, house):
    """Another house, which has loaded the log."""
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    return again


async def groups_of(house):
    return [group.group_id for group in (await house.ask(m.ListGroupsRequest())).groups]


def state_of(house):
    """What the coordinator knows of offsets, and of groups that have any; without topic ids, which no record has."""
    (shard,) = house.groups.runtime.serving()
    groups = {name: each.recorded for name, each in shard.state.by_id.items() if not each.recorded.is_blank}
    offsets = {name: (without_ids(each.offsets), each.pending) for name, each in groups.items()}
    return offsets, shard.state.open


def without_ids(offsets):
    return {key: each._replace(commit=each.commit._replace(topic_id=ZERO_TOPIC_ID)) for key, each in offsets.items()}


async def test_a_transaction_is_committed(open_house, autojump_clock):
    house = await open_house()
    assert await commit(house, 5, 6) is ErrorCode.NONE
    assert await fetch(house) == [-1, -1]
    assert await fetch(house, require_stable=True) == [UNSTABLE, UNSTABLE]
    assert end(house, committed=True) == (ErrorCode.NONE, 2)
    assert await fetch(house, require_stable=True) == [5, 6]
    assert await fetch(await after_a_restart(open_house, house), require_stable=True) == [5, 6]


@pytest.mark.parametrize("committed", [True, False])
async def test_pending_offsets_survive_a_fail_over(open_house, autojump_clock, committed):
    house = await open_house()
    await commit(house, 5)
    again = await after_a_restart(open_house, house)
    assert await fetch(again, require_stable=True) == [UNSTABLE, -1]
    assert state_of(again) == state_of(house)
    end(again, committed=committed)
    assert await fetch(again, require_stable=True) == [5 if committed else -1, -1]
    assert state_of(again) == state_of(await after_a_restart(open_house, again))


async def test_a_commit_is_one_transactional_batch(house, autojump_clock):
    await commit(house, 5, 6, epoch=3)
    log = house.partition.log
    header = read_batch_header(log.read(0, max_bytes=1000, end_offset=2, at_least_one=True).slice.read())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (42, 3, 0)
    assert (header.is_transactional, header.is_control, header.record_count) == (True, False, 2)
    assert log.producers.get(42).transaction_first_offset == 0


async def test_a_producer_with_an_older_epoch_is_refused(house, autojump_clock):
    await commit(house, 5, epoch=3)
    end(house, committed=True, epoch=3)
    assert await commit(house, 6, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(house, committed=True, epoch=2).error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = end(house, committed=True, epoch=3, coordinator_epoch=-1)
    assert fenced.error_code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await fetch(house, require_stable=True) == [5, -1]


async def test_a_transaction_begins_with_the_guard_of_its_verification(house, autojump_clock):
    guard = house.partition.begin_verification(42, 0, -1)
    assert await commit(house, 5, is_verifying=True) is ErrorCode.INVALID_TXN_STATE
    assert await commit(house, 5, is_verifying=True, guard=guard) is ErrorCode.NONE
    assert await commit(house, 6, is_verifying=True) is ErrorCode.NONE  # the transaction is open
    end(house, committed=True)
    assert await fetch(house) == [6, -1]
    # The answer to the verification came after the end of the transaction.
    assert await commit(house, 7, is_verifying=True, guard=guard) is ErrorCode.INVALID_TXN_STATE


async def test_a_commit_is_answered_once_it_is_replicated(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    answers = []

    async def ask():
        answers.append(await commit(house, 5))

    nursery.start_soon(ask)
    await trio.sleep(1)
    assert answers == []
    house.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [ErrorCode.NONE]
    assert await commit(house, 6) is ErrorCode.REQUEST_TIMED_OUT


async def test_an_offset_is_shown_once_the_marker_is_replicated(open_house, nursery, autojump_clock):
    house = await open_house(replicas=(0, 1))
    nursery.start_soon(commit, house, 5)
    await trio.testing.wait_all_tasks_blocked()
    house.replicate()
    assert end(house, committed=True) == (ErrorCode.NONE, 1)
    assert await fetch(house, require_stable=True) == [UNSTABLE, -1]
    answers = []

    async def ask():
        answers.append(await fetch(house))

    nursery.start_soon(ask)
    await trio.sleep(1)
    assert answers == []
    house.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [[5, -1]]
    assert await fetch(house, require_stable=True) == [5, -1]


async def test_a_missing_group_is_created_and_stays(house, autojump_clock):
    assert await commit(house, 5, group_id="") is ErrorCode.INVALID_GROUP_ID
    assert await commit(house, 5, generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await groups_of(house) == ["g"]


async def test_a_new_group_takes_the_memory_of_one_that_has_more(open_house, autojump_clock):
    house = await open_house(settings={"group.members.max.bytes": "5000"})
    assert await commit(house, 5, group_id="g" * 2000, generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(house, 5, group_id="h") is ErrorCode.NONE
    assert await groups_of(house) == ["h"]


async def test_a_group_that_an_aborted_transaction_leaves_blank_is_removed(open_house, autojump_clock):
    house = await open_house(settings={"offsets.retention.check.interval.ms": "1000"})
    await commit(house, 5)
    await trio.sleep(2)
    assert await groups_of(house) == ["g"]
    end(house, committed=False)
    await trio.sleep(2)
    assert await groups_of(house) == []


async def test_a_marker_waits_for_the_load_of_its_shard(open_house, autojump_clock):
    house = await open_house()
    await commit(house, 5)
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    assert end(again, committed=True).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await trio.sleep(1)
    assert end(again, committed=True) == (ErrorCode.NONE, 1)
    again.resign()
    assert end(again, committed=True).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_marker_is_not_appended_to_a_log_that_cannot_be_loaded(open_house, autojump_clock):
    house = await open_house()
    house.partition.append_as_leader(build_batch([(b"?", b"")], timestamp_ms=0), Origin.COORDINATOR)
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    end_offset = again.partition.log.log_end_offset
    assert end(again, committed=True).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert again.partition.log.log_end_offset == end_offset


async def test_a_marker_that_is_refused_ends_nothing(open_house, autojump_clock):
    house = await open_house(settings={"min.insync.replicas": "2"}, replicas=(0, 1))
    async with trio.open_nursery() as committing:
        committing.start_soon(commit, house, 5)
        await trio.testing.wait_all_tasks_blocked()
        house.replicate()
    house.lead(2, replicas=(0, 1), in_sync=(0,))
    assert end(house, committed=True).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert await fetch(house, require_stable=True) == [UNSTABLE, -1]


async def test_a_marker_is_not_too_large_for_any_topic(open_house, autojump_clock):
    house = await open_house()
    await commit(house, 5)
    house.partition.config = house.config.topic({"max.message.bytes": "10"})
    assert await commit(house, 6) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert end(house, committed=True).error_code is ErrorCode.NONE


@pytest.mark.provokes_mistakes
async def test_a_marker_that_meets_a_contradiction_is_sent_again(house, autojump_clock):
    await commit(house, 5)
    (shard,) = house.groups.runtime
    shard.state.by_id["g"].recorded.pending.clear()
    assert end(house, committed=True).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await trio.sleep(1)
    assert await fetch(house, require_stable=True) == [5, -1]
    assert end(house, committed=True).error_code is ErrorCode.NONE


async def test_one_marker_ends_the_transaction_in_all_groups_of_its_partition(open_house, autojump_clock):
    house = await open_house()
    await commit(house, 5)
    await commit(house, 6, group_id="h")
    end(house, committed=True)
    assert (await fetch(house), await fetch(house, group_id="h")) == ([5, -1], [6, -1])
    assert state_of(house) == state_of(await after_a_restart(open_house, house))


async def test_a_tombstone_that_a_later_commit_hides_still_drops_what_was_pending(open_house, autojump_clock):
    house = await open_house()
    plain = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = m.OffsetCommitRequest(
        group_id="g", topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[plain])]
    )
    await commit(house, 5)
    asked = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name="t", partitions=[m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
    )
    assert (await house.ask(m.OffsetDeleteRequest(group_id="g", topics=[asked]))).error_code == 0
    await house.ask(request)
    assert await fetch(house, require_stable=True) == [1, -1]
    assert state_of(house) == state_of(await after_a_restart(open_house, house))


async def test_offsets_for_a_topic_that_was_created_again_are_not_dropped(house, autojump_clock):
    await commit(house, 5, 6)
    house.groups.runtime.on_partitions_deleted([T0, T1])
    await commit(house, 1, producer_id=43)
    await trio.sleep(1)
    end(house, committed=False)
    end(house, committed=True, producer_id=43)
    assert await fetch(house) == [1, -1]
    assert state_of(house)[0].keys() == {"g"}


async def test_a_large_transaction_is_the_same_in_portions(open_house, autojump_clock):
    house = await open_house()
    await commit(house, *range(1000))
    assert house.groups.runtime.find(0).state.open[42].keys() == {("g", TopicPartition("t", i)) for i in range(1000)}
    end(house, committed=True)
    assert state_of(house) == state_of(await after_a_restart(open_house, house))


async def test_a_transaction_has_a_limit_of_pending_offsets(house, autojump_clock):
    for number in range(PENDING_MAX // 1000):
        assert await commit(house, *range(1000), topic=f"t{number}") is ErrorCode.NONE
    assert await commit(house, *range(1000), topic="t0") is ErrorCode.NONE  # again
    assert await commit(house, 1, topic="one more") is ErrorCode.INVALID_REQUEST
    assert await commit(house, 1, group_id="h") is ErrorCode.INVALID_REQUEST
    assert await commit(house, 1, producer_id=43) is ErrorCode.NONE
    end(house, committed=False)
    assert await commit(house, 1, topic="one more") is ErrorCode.NONE


async def test_a_group_with_an_open_transaction_can_be_deleted(open_house, autojump_clock):
    house = await open_house()
    await commit(house, 5)
    (deleted,) = (await house.ask(m.DeleteGroupsRequest(groups_names=["g"]))).results
    assert (deleted.error_code, await groups_of(house)) == (0, [])
    end(house, committed=True)
    assert await fetch(house) == [-1, -1]
    assert state_of(house) == state_of(await after_a_restart(open_house, house)) == ({}, {})


def test_a_group_with_members_keeps_them_through_a_transaction(scene):
    (a,) = scene.stable("a")
    scene.commit_in_transaction(9, member_id=a, generation=1)
    scene.end_transaction(committed=True)
    assert (scene.group.state, list(scene.reloaded().members)) == (GroupState.STABLE, [a])
