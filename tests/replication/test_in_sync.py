"""The in-sync replicas of one partition: whom its leader wants in and out, and what is committed meanwhile."""

import pytest

from barnabas.replication.isr import LagLimits, Pulse
from barnabas.replication.partition import RECOVERED, RECOVERING, Role
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import ACKS_ALL
from tests.replication.partition_scene import ACKS_LEADER, ME, OTHER, THIRD, Scene

LAG_MS = Scene.limits.time_ms


def fetches(scene: Scene, replica: int, offset: int, after_ms: float = 0, **fields):
    scene.time_ms += after_ms
    return scene.partition.follower_fetched(replica, offset, log_start_offset=0, **fields)


def shrinks_to(scene: Scene) -> list[int] | None:
    """The ISR that is asked for, after the timer has looked at the followers."""
    scene.partition.shrink()
    asked = scene.partition.asked_isr
    return None if asked is None else asked.in_sync_replicas


def agree(scene: Scene, recovery=RECOVERED) -> None:
    """The controller does what was asked."""
    asked = scene.partition.asked_isr
    scene.partition.isr_changed(asked, asked.in_sync_replicas, asked.partition_epoch + 1, recovery)


# -- in


def test_a_follower_that_has_what_is_committed_is_asked_for():
    scene = Scene().lead(3)
    scene.append(2)
    fetches(scene, OTHER, 1)
    assert scene.asked == []
    fetches(scene, OTHER, 2)
    assert [(each.in_sync_replicas, each.leader_epoch, each.partition_epoch) for each in scene.asked] == [
        ([ME, OTHER], 3, 3)
    ]
    agree(scene)
    assert (scene.partition.in_sync_replicas, scene.partition.partition_epoch) == ([ME, OTHER], 4)


def test_a_follower_must_come_into_the_leaders_own_epoch():
    """A new leader's high watermark may be behind the one that its predecessor has sent to consumers."""
    scene = Scene().lead(0, isr=(ME, THIRD))
    scene.append(5)
    scene.lead(1, isr=(ME, THIRD))
    fetches(scene, OTHER, 4)
    assert (scene.partition.high_watermark, scene.asked) == (0, [])
    fetches(scene, OTHER, 5)
    assert scene.asked


def test_a_broker_that_is_not_alive_is_not_asked_for():
    scene = Scene().lead()
    scene.dead = {OTHER}
    fetches(scene, OTHER, 0)
    assert scene.asked == []


def test_who_holds_no_replica_makes_no_progress():
    scene = Scene().lead()
    assert fetches(scene, 9, 0) is None
    assert fetches(scene, ME, 0) is None
    assert scene.asked == []


def test_the_high_watermark_waits_at_once_for_who_is_to_join():
    """The controller may have written the new ISR already: its members are all that an election can choose from."""
    scene = Scene().lead(isr=(ME,))
    fetches(scene, OTHER, 0)
    scene.time_ms += LAG_MS + 1
    scene.append(3)
    assert scene.partition.high_watermark == 0
    fetches(scene, OTHER, 3)
    assert scene.partition.high_watermark == 3


def test_the_high_watermark_waits_for_a_caught_up_follower_before_it_is_in():
    scene = Scene().lead(isr=(ME,))
    scene.dead = {OTHER}
    fetches(scene, OTHER, 0)
    scene.append(1)
    assert scene.partition.high_watermark == 1  # it is gone
    scene.dead = set()
    scene.append(1)
    assert scene.partition.high_watermark == 1  # it lives, and had everything a moment ago
    scene.time_ms += LAG_MS + 1
    scene.append(1)
    assert scene.partition.high_watermark == 3


def test_the_timer_frees_the_high_watermark_from_a_follower_that_was_as_good_as_in():
    scene = Scene().lead(isr=(ME,))
    scene.partition.follower_fetched(OTHER, 0, log_start_offset=0)
    scene.partition.isr_refused(scene.partition.asked_isr)
    scene.append(1)
    assert scene.partition.high_watermark == 0
    scene.time_ms += LAG_MS + 1
    scene.partition.shrink()
    assert scene.partition.high_watermark == 1


def test_one_change_is_asked_at_a_time():
    scene = Scene().lead()
    fetches(scene, OTHER, 0)
    fetches(scene, THIRD, 0)
    assert len(scene.asked) == 1
    agree(scene)
    fetches(scene, THIRD, 0)
    assert scene.asked[-1].in_sync_replicas == [ME, OTHER, THIRD]


# -- out


def test_a_stuck_follower_leaves_when_its_time_is_up():
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(1)
    scene.time_ms = LAG_MS
    assert shrinks_to(scene) is None
    scene.time_ms += 1
    assert shrinks_to(scene) == [ME]


def test_a_stuck_follower_of_a_quiet_partition_stays():
    scene = Scene().lead(isr=(ME, OTHER))
    fetches(scene, OTHER, 0)
    scene.time_ms = 100 * LAG_MS
    assert shrinks_to(scene) is None


def test_a_slow_follower_leaves_though_it_fetches():
    scene = Scene().lead(isr=(ME, OTHER))
    for fetched in range(4):
        scene.append(10)
        fetches(scene, OTHER, fetched, after_ms=LAG_MS / 3)
    assert shrinks_to(scene) == [ME]


def test_a_follower_that_keeps_up_one_fetch_behind_stays():
    scene = Scene().lead(isr=(ME, OTHER))
    for fetched in range(0, 100, 10):
        scene.append(10)
        fetches(scene, OTHER, fetched, after_ms=LAG_MS / 3)
        assert shrinks_to(scene) is None


def test_a_pause_that_ends_within_the_lag_time_costs_nothing():
    scene = Scene().lead(isr=(ME, OTHER))
    fetches(scene, OTHER, 0)
    scene.append(100)
    scene.time_ms += 100
    assert shrinks_to(scene) is None
    fetches(scene, OTHER, 100)
    assert (scene.partition.high_watermark, scene.asked) == (100, [])


def test_who_was_not_alive_when_it_fetched_joins_at_another_fetch_and_not_before():
    """It may have come back without what it had."""
    scene, pulse = Scene().lead(), Pulse()
    scene.dead = {OTHER}
    fetches(scene, OTHER, 0, pulse=pulse)
    scene.dead = set()
    pulse.last_fetch_ms = scene.time_ms = LAG_MS / 2
    assert shrinks_to(scene) is None
    fetches(scene, OTHER, 0, pulse=pulse)
    assert scene.partition.asked_isr.in_sync_replicas == [ME, OTHER]


def test_who_came_while_another_change_was_on_its_way_joins_at_another_fetch():
    scene = Scene().lead()
    fetches(scene, OTHER, 0)
    fetches(scene, THIRD, 0)
    agree(scene)
    assert scene.partition.asked_isr is None
    fetches(scene, THIRD, 0)
    assert scene.partition.asked_isr.in_sync_replicas == [ME, OTHER, THIRD]


def test_a_follower_is_in_sync_in_partitions_that_its_session_does_not_name():
    scene, pulse = Scene().lead(isr=(ME, OTHER)), Pulse()
    fetches(scene, OTHER, 0, pulse=pulse)
    scene.time_ms = pulse.last_fetch_ms = 10 * LAG_MS
    scene.append(1)
    assert shrinks_to(scene) is None
    scene.time_ms += LAG_MS + 1
    assert shrinks_to(scene) == [ME]


def test_who_is_asked_to_leave_still_counts_until_it_is_agreed():
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(1)
    scene.time_ms = LAG_MS + 1
    assert shrinks_to(scene) == [ME]
    scene.append(1)
    assert scene.partition.high_watermark == 0
    agree(scene)
    assert scene.partition.high_watermark == 2


def test_the_rule_by_messages_shrinks_at_a_burst_and_the_rule_by_time_does_not():
    for messages, expected in ((50, [ME]), (0, None)):
        scene = Scene().lead(isr=(ME, OTHER))
        scene.limits = LagLimits(LAG_MS, messages)
        fetches(scene, OTHER, 0)
        scene.append(100)
        assert shrinks_to(scene) == expected


# -- answers


def test_a_change_that_is_refused_leaves_the_isr_as_it_was():
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(1)
    scene.time_ms = LAG_MS + 1
    shrinks_to(scene)
    scene.partition.isr_refused(scene.partition.asked_isr)
    assert scene.partition.in_sync_replicas == [ME, OTHER]
    assert shrinks_to(scene) == [ME]  # there is still reason to


def test_a_refused_addition_no_longer_holds_the_high_watermark():
    scene = Scene().lead()
    fetches(scene, OTHER, 0)
    scene.time_ms += LAG_MS + 1
    scene.append(1)
    assert scene.partition.high_watermark == 0
    scene.partition.isr_refused(scene.partition.asked_isr)
    assert scene.partition.high_watermark == 1


@pytest.mark.parametrize("answer", ["agreed", "refused"])
def test_an_answer_that_comes_after_another_role_changes_nothing(answer):
    scene = Scene().lead()
    fetches(scene, OTHER, 0)
    asked = scene.partition.asked_isr
    scene.lead(1, isr=(ME, THIRD))
    if answer == "agreed":
        scene.partition.isr_changed(asked, [ME, OTHER], 9, RECOVERED)
    else:
        scene.partition.isr_refused(asked)
    assert (scene.partition.in_sync_replicas, scene.partition.partition_epoch) == ([ME, THIRD], 1)


def test_a_leader_that_was_elected_out_of_sync_says_that_it_has_recovered():
    scene = Scene()
    scene.partition.become(scene.log, Role(ME, 1, 7, 1, [ME, OTHER], [ME], RECOVERING, False))
    assert [(each.in_sync_replicas, each.partition_epoch) for each in scene.asked] == [([ME], 7)]
    agree(scene)
    assert scene.partition.leader_recovery_state == RECOVERED


@pytest.mark.parametrize("lose", [lambda s: s.follow(1), lambda s: s.partition.resign()])
def test_who_leads_no_more_asks_for_nothing(lose):
    scene = Scene().lead(isr=(ME, OTHER))
    scene.append(1)
    lose(scene)
    scene.time_ms = LAG_MS + 1
    assert shrinks_to(scene) is None
    assert fetches(scene, OTHER, 1) is None


# -- min.insync.replicas


def test_an_addition_that_is_asked_for_is_enough_after_the_append_and_not_before():
    scene = Scene(min_insync_replicas="2").lead(isr=(ME,), replicas=(ME, OTHER))
    fetches(scene, OTHER, 0)
    assert scene.append() == ErrorCode.NOT_ENOUGH_REPLICAS
    scene.append(acks=ACKS_LEADER)
    scene.partition.high_watermark = 1  # as if the ISR had been larger then
    assert scene.partition.outcome(1, 0, ACKS_ALL) == ErrorCode.NONE
    scene.partition.isr_refused(scene.partition.asked_isr)
    assert scene.partition.outcome(1, 0, ACKS_ALL) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
