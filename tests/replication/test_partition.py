"""One partition: roles, high watermark, appends and what waits for them, over a real log on a disk in memory."""

from functools import partial

import pytest
import trio

from barnabas.replication.acknowledgements import AppendedUpTo, acknowledgements
from barnabas.replication.partition import Deletion
from barnabas.storage.log import Appended
from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import TRANSACTIONAL, build_batch, stamp
from barnabas.wire.sentinels import ACKS_ALL
from barnabas.world.waiting import Waiter
from tests.replication.partition_scene import ACKS_LEADER, ME, NOW_MS, OTHER, THIRD, Scene

# -- roles


def test_no_one_appends_before_a_role_was_given():
    assert Scene().append() == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_alone_commits_at_once():
    scene = Scene().lead()
    for number in range(3):
        appended = scene.append()
        assert isinstance(appended, Appended)
        assert appended.base_offset == number
        assert scene.partition.high_watermark == scene.partition.last_stable_offset == number + 1


def test_a_follower_neither_appends_nor_has_in_sync_replicas():
    scene = Scene().lead()
    scene.append()
    scene.follow(epoch=1)
    assert scene.append() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (scene.partition.is_leader, scene.partition.leader_id, scene.partition.in_sync_replicas) == (
        False,
        OTHER,
        [],
    )
    assert scene.partition.high_watermark == 1


def test_a_transaction_begins_with_a_guard_that_only_a_leader_gives():
    scene = Scene().lead()
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    append = partial(scene.partition.append_as_leader, origin=Origin.CLIENT, is_verifying=True)
    batch = build_batch([(None, b"v")], timestamp_ms=NOW_MS, **fields)
    assert append(batch) == ErrorCode.INVALID_TXN_STATE
    guard = scene.partition.begin_verification(7, 0, 0)
    assert append(batch, guard=guard).base_offset == 0
    assert scene.partition.begin_verification(7, 0, 1) is None, "its transaction is open"
    scene.follow(epoch=1)
    assert scene.partition.begin_verification(7, 0, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_each_leadership_begins_a_leader_epoch_where_the_log_ends():
    scene = Scene().lead(0)
    scene.append(3)
    scene.lead(4)
    scene.append(2)
    scene.lead(4, isr=(ME, OTHER))  # the same epoch again: only the replicas changed
    scene.lead(6)
    assert scene.log.epochs.entries == [(0, 0), (4, 3), (6, 5)]


def test_records_carry_the_epoch_of_their_leader():
    scene = Scene().lead(7)
    scene.append()
    read = scene.partition.read(0, max_bytes=1000, end_offset=1, at_least_one=True)
    assert int.from_bytes(read.slice.read()[12:16], "big") == 7


@pytest.mark.parametrize(("asked", "code"), [(-1, 0), (3, ErrorCode.NONE), (2, 74), (4, 75)])
def test_epochs_of_clients_are_compared_with_ours(asked, code):
    assert Scene().lead(3).partition.check_leader_epoch(asked) == code


# -- the high watermark


def test_the_high_watermark_is_the_smallest_end_of_the_in_sync_replicas():
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(5)
    assert scene.partition.high_watermark == 0
    scene.caught_up(THIRD, 5)  # not in sync: without influence
    assert scene.partition.high_watermark == 0
    scene.caught_up(OTHER, 3)
    assert scene.partition.high_watermark == 3
    scene.caught_up(OTHER, 5)
    assert scene.partition.high_watermark == 5


def test_the_high_watermark_never_falls():
    scene = Scene().lead()
    scene.append(5)
    scene.lead(1, isr=(ME, OTHER))
    assert scene.partition.high_watermark == 5
    scene.caught_up(OTHER, 2)
    assert scene.partition.high_watermark == 5


def test_what_followers_had_under_another_leadership_is_forgotten():
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(3)
    scene.caught_up(OTHER, 3)
    scene.lead(1, isr=(ME, OTHER))
    scene.append(1)
    assert scene.partition.high_watermark == 3
    assert scene.partition.followers[OTHER].log_end_offset == -1


def test_a_follower_that_leaves_the_isr_no_longer_holds_the_high_watermark():
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(3)
    scene.lead(1, isr=(ME,))
    assert scene.partition.high_watermark == 3


def test_too_few_in_sync_replicas_hold_the_high_watermark():
    scene = Scene(min_insync_replicas="2").lead(isr=(ME,))
    scene.append(acks=ACKS_LEADER)
    assert scene.partition.high_watermark == 0
    scene.lead(1, isr=(ME, OTHER))
    scene.caught_up(OTHER, 1)
    assert scene.partition.high_watermark == 1


def test_a_checkpointed_high_watermark_is_brought_between_the_ends_of_the_log():
    scene = Scene()
    scene.partition.high_watermark = 100
    scene.lead(isr=(ME, OTHER))
    assert scene.partition.high_watermark == 0
    scene.append(5)
    scene.log.raise_log_start(2)
    scene.lead(1, isr=(ME, OTHER))
    assert scene.partition.high_watermark == 2


def append_as_follower(scene, count) -> None:
    batch = build_batch([(None, b"v")] * count, timestamp_ms=NOW_MS)
    stamp(batch, scene.log.log_end_offset, 0)
    assert isinstance(scene.log.append_as_follower(memoryview(batch.data), NOW_MS), Appended)


def test_a_followers_high_watermark_is_its_leaders_as_far_as_it_has_the_records():
    scene = Scene()
    scene.follow(0)
    append_as_follower(scene, 5)
    for of_leader, reached in ((3, 3), (9, 5)):
        scene.partition.follow_to(of_leader)
        assert scene.partition.high_watermark == reached


def test_a_new_leader_that_is_behind_does_not_take_a_followers_high_watermark_back():
    scene = Scene()
    scene.follow(0)
    append_as_follower(scene, 5)
    scene.partition.follow_to(5)
    scene.partition.follow_to(2)
    assert scene.partition.high_watermark == 5


def test_only_a_truncation_lowers_a_followers_high_watermark():
    scene = Scene()
    waiter = Waiter()
    waiter.register([scene.partition])
    scene.follow(0)
    append_as_follower(scene, 1)
    append_as_follower(scene, 4)
    scene.partition.follow_to(5)
    waiter.take_dirty()
    scene.log.truncate_to(3)
    scene.partition.truncated()
    assert scene.partition.high_watermark == scene.log.log_end_offset == 1
    assert waiter.take_dirty() == [scene.partition]


def test_a_leader_takes_its_high_watermark_from_no_one():
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(3)
    scene.partition.follow_to(3)
    assert scene.partition.high_watermark == 0


def test_with_flush_messages_the_leaders_own_share_waits_for_the_flush():
    scene = Scene(flush_messages="3").lead()
    scene.append(2)
    assert (scene.partition.high_watermark, scene.wanted) == (2, [])
    scene.append(1)
    assert (scene.partition.high_watermark, scene.wanted) == (2, [scene.log])
    scene.flush()
    assert scene.partition.high_watermark == 3


# -- appends


@pytest.mark.parametrize(
    ("replicas", "isr", "code"),
    [
        ((ME, OTHER, THIRD), (ME,), ErrorCode.NOT_ENOUGH_REPLICAS),
        ((ME, OTHER, THIRD), (ME, OTHER), None),
        ((ME,), (ME,), None),  # a partition with fewer replicas than are demanded needs those it has
    ],
)
def test_acks_all_needs_min_insync_replicas_or_all_there_are(replicas, isr, code):
    scene = Scene(min_insync_replicas="2").lead(replicas=replicas, isr=isr)
    appended = scene.append()
    assert appended == code if code else isinstance(appended, Appended)
    assert isinstance(scene.append(acks=ACKS_LEADER), Appended)


def test_a_refused_batch_leaves_no_trace():
    scene = Scene().lead()
    waiter = Waiter()
    waiter.register([scene.partition])
    assert scene.append(producer_id=7, producer_epoch=0, base_sequence=0).base_offset == 0
    waiter.take_dirty()
    assert scene.append(producer_id=7, producer_epoch=0, base_sequence=9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = scene.append(producer_id=7, producer_epoch=0, base_sequence=0)
    assert (again.duplicate, again.base_offset) == (True, 0)
    assert waiter.take_dirty() == []
    assert scene.log.log_end_offset == 1


def test_a_disk_that_refuses_a_write_is_reported_and_ends_the_leadership():
    scene = Scene().lead()
    scene.disk.fail_next("write", "ENOSPC")
    assert scene.append() == ErrorCode.KAFKA_STORAGE_ERROR
    assert [error.cause for error in scene.failures] == ["ENOSPC"]
    assert scene.append() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scene.partition.high_watermark == 0


@pytest.mark.provokes_mistakes
def test_a_log_that_contradicts_itself_is_given_up():
    scene = Scene().lead()
    scene.log.abandon()
    assert scene.append() == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(scene.failures) == 1


def test_a_disk_that_refuses_a_read_is_reported():
    scene = Scene().lead()
    scene.append()
    scene.disk.fail_next("read")
    read = scene.partition.read(0, max_bytes=10, end_offset=1, at_least_one=True)
    assert read == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(scene.failures) == 1
    read = scene.partition.read(0, max_bytes=10, end_offset=1, at_least_one=True)
    assert read == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- deletion of records


def test_a_deletion_is_over_when_the_live_followers_have_followed():
    scene = Scene().lead()
    scene.append()
    live, partition = {ME: None, OTHER: None}, scene.partition
    assert partition.delete_records(1) == Deletion(ErrorCode.NONE, 1)
    assert partition.deletion_outcome(1, live) is None
    partition.follower_fetched(OTHER, 1, log_start_offset=0)
    assert partition.deletion_outcome(1, live) is None
    partition.follower_fetched(OTHER, 1, log_start_offset=1)
    assert partition.deletion_outcome(1, live) == Deletion(ErrorCode.NONE, 1)


def test_a_new_leader_epoch_forgets_what_followers_deleted():
    scene = Scene().lead()
    scene.partition.follower_fetched(OTHER, 0, log_start_offset=0)
    scene.lead(epoch=1)
    assert scene.partition.low_watermark({OTHER: None}) == -1


def test_a_partition_without_a_log_deletes_nothing():
    scene = Scene().lead()
    scene.partition.resign()
    assert scene.partition.delete_records(0) == Deletion(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert scene.partition.deletion_outcome(0, {}) == Deletion(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert scene.partition.low_watermark({}) == -1


# -- what waits


async def outcomes_of(appends, acks, deadline):
    """None for what is not decided at the deadline."""
    decisions = acknowledgements(appends, acks)
    await decisions.wait(deadline)
    return decisions.decided


async def outcome_of(scene, acts, acks=ACKS_ALL, seconds=10):
    """Append, wait for the acknowledgement, and act meanwhile, one act a second; the outcome and when it came."""
    began, outcomes = trio.current_time(), []

    async def wait():
        appended = AppendedUpTo(scene.partition, scene.log.log_end_offset, scene.partition.leading_since)
        outcomes.extend(await outcomes_of([appended], acks, trio.current_time() + seconds))
        outcomes.append(round(trio.current_time() - began))

    async with trio.open_nursery() as nursery:
        scene.append(acks=acks)
        nursery.start_soon(wait)
        for act in acts:
            await trio.sleep(1)
            act()
    assert scene.partition.waiters == {}
    return outcomes


async def test_a_committed_append_is_answered_at_once(autojump_clock):
    assert await outcome_of(Scene().lead(), []) == [ErrorCode.NONE, 0]


async def test_acks_all_waits_for_the_followers(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    acts = [lambda: scene.caught_up(OTHER, 0), scene.append, lambda: scene.caught_up(OTHER, 1)]
    assert await outcome_of(scene, acts) == [ErrorCode.NONE, 3]


async def test_acks_1_waits_for_no_one_but_a_demanded_flush(autojump_clock):
    assert await outcome_of(Scene().lead(isr=(ME, OTHER)), [], ACKS_LEADER) == [ErrorCode.NONE, 0]
    scene = Scene(flush_messages="1").lead(isr=(ME, OTHER))
    assert await outcome_of(scene, [lambda: None, scene.flush], ACKS_LEADER) == [ErrorCode.NONE, 2]


async def test_what_is_not_committed_in_time_times_out(autojump_clock):
    assert await outcome_of(Scene().lead(isr=(ME, OTHER)), [], seconds=4) == [None, 4]


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
@pytest.mark.parametrize("lose", [lambda s: s.follow(1), lambda s: s.partition.resign()])
async def test_who_waits_is_answered_when_the_leadership_ends(autojump_clock, acks, lose):
    scene = Scene(flush_messages="1").lead(isr=(ME, OTHER))
    assert await outcome_of(scene, [lambda: lose(scene)], acks) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 1]


async def test_who_waits_goes_on_waiting_when_the_same_leader_gets_a_new_epoch(autojump_clock):
    """As it does when one of its followers dies: the record is still on its way to the others."""
    scene = Scene().lead(isr=(ME, OTHER, THIRD))
    acts = [lambda: scene.lead(1, isr=(ME, OTHER)), lambda: scene.caught_up(OTHER, 1)]
    assert await outcome_of(scene, acts) == [ErrorCode.NONE, 2]


async def test_an_append_that_is_committed_when_too_few_replicas_are_left_says_so(autojump_clock):
    scene = Scene(min_insync_replicas="2").lead(isr=(ME, OTHER))

    def catch_up_and_shrink():
        scene.caught_up(OTHER, 1)
        scene.lead(0, isr=(ME,))

    assert await outcome_of(scene, [catch_up_and_shrink]) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 1]


async def test_several_appends_wait_together_and_have_their_own_outcomes(autojump_clock):
    scenes = [Scene().lead(isr=isr) for isr in ((ME,), (ME, OTHER), (ME, OTHER), (ME, OTHER))]
    for scene in scenes:
        scene.append()
    waiting = [AppendedUpTo(scene.partition, 1, 0) for scene in scenes]
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _():
            await trio.sleep(1)
            scenes[1].caught_up(OTHER, 1)
            await trio.sleep(1)
            scenes[2].follow(1)

        outcomes = await outcomes_of(waiting, ACKS_ALL, trio.current_time() + 5)
    assert outcomes == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, None]
    assert trio.current_time() == pytest.approx(5)


async def test_a_leader_again_does_not_acknowledge_what_was_appended_before(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))

    def lose_and_win():
        scene.follow(1)
        scene.lead(2)

    assert await outcome_of(scene, [lose_and_win]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 1]


async def test_await_high_watermark_returns_when_everything_below_is_committed(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(3)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _():
            await trio.sleep(2)
            scene.caught_up(OTHER, 3)

        assert await scene.partition.await_high_watermark(3, trio.current_time() + 10) == ErrorCode.NONE
    assert trio.current_time() == pytest.approx(2)


async def test_a_cancelled_wait_leaves_no_waiter_behind(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append()
    with trio.move_on_after(1):
        await scene.partition.await_high_watermark(1, trio.current_time() + 10)
    assert scene.partition.waiters == {}
