"""Heartbeat, LeaveGroup, and sessions that end."""

from barnabas.coordinators.groups.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answered,
    Forgotten,
    Loaded,
    Timer,
    TimerKind,
)
from barnabas.coordinators.groups.classic.sessions import apply_unloaded
from barnabas.coordinators.groups.classic.state import GroupState, forget
from barnabas.wire.errors import ErrorCode


def member_timer(member_id):
    return Timer(TimerKind.MEMBER, member_id)


def test_a_heartbeat_restarts_the_session(scene):
    (a,) = scene.stable("a")
    scene.timers[member_timer(a)] = 1
    assert scene.beat(a) is ErrorCode.NONE
    assert scene.timers[member_timer(a)] == 10_000


def test_a_heartbeat_between_the_rounds_is_as_good(scene):
    (a,) = scene.joined("a")
    assert scene.beat(a) is ErrorCode.NONE


def test_a_heartbeat_during_a_rebalance_tells_to_join_again_and_still_counts(scene):
    a, b = scene.stable("a", "b")
    scene.ask_to_join(a)
    scene.timers[member_timer(b)] = 1
    assert scene.beat(b) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.timers[member_timer(b)] == 10_000


def test_a_heartbeat_of_a_stranger_or_of_another_generation_is_refused(scene):
    (a,) = scene.stable("a")
    assert scene.beat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat("stranger", generation=7) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat(a, generation=7) is ErrorCode.ILLEGAL_GENERATION
    assert scene.beat(a, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_and_the_others_rebalance(scene):
    a, b = scene.stable("a", "b")
    scene.time_is_over(member_timer(b))
    assert list(scene.group.members) == [a]
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_waits_for_us_is_not_lost(scene):
    a, b = scene.stable("a", "b")
    scene.ask_to_join(a)
    scene.time_is_over(member_timer(a))
    assert a in scene.group.members
    scene.ask_to_join(b)
    scene.ask_to_sync(b)
    scene.time_is_over(member_timer(b))
    assert b in scene.group.members


def test_an_answer_restarts_the_session_of_the_member_that_waited(scene):
    a, b = scene.stable("a", "b")
    scene.ask_to_join(a)
    scene.time_is_over(member_timer(a))
    scene.ask_to_join(b)
    assert scene.timers[member_timer(a)] == 10_000


def test_an_answer_that_was_held_restarts_the_session(scene):
    (a,) = scene.stable("a")
    scene.timers[member_timer(a)] = 1
    scene.happen(Answered(a))
    scene.happen(Answered("gone meanwhile"))
    assert scene.timers == {member_timer(a): 10_000}


def test_a_member_that_leaves_makes_the_others_join_again_at_once(scene):
    a, b = scene.stable("a", "b")
    assert scene.leave(a) == (ErrorCode.NONE,)
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    assert scene.beat(b) is ErrorCode.REBALANCE_IN_PROGRESS
    assert member_timer(a) not in scene.timers


def test_members_leave_together_each_with_its_own_code(scene):
    _, b = scene.stable("a", "b", instance_ids=["i", None])
    assert scene.leave(b, ("", "i"), "stranger", ("", "unknown"), ("", None)) == (
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    assert scene.group.state is GroupState.EMPTY


def test_no_one_waits_for_an_id_that_was_not_used_in_time(scene):
    (a,) = scene.stable("a")
    pending = scene.ask_to_join(requires_member_id=True).answer.member_id
    waiting = scene.ask_to_join(a)
    scene.time_is_over(member_timer(pending))
    assert waiting.answer.generation == 2


def test_an_id_that_was_handed_out_can_be_given_back(scene):
    (a,) = scene.stable("a")
    pending = scene.ask_to_join(requires_member_id=True).answer.member_id
    waiting = scene.ask_to_join(a)
    assert scene.leave(pending) == (ErrorCode.NONE,)
    assert waiting.answer.generation == 2


def test_a_leaving_member_that_waits_is_answered(scene):
    _, b = scene.joined("a", "b")
    syncing = scene.ask_to_sync(b)
    scene.leave(b)
    assert syncing.answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_timer_of_a_member_that_is_gone_does_nothing(scene):
    scene.stable("a")
    for timer in (member_timer("gone"), JOIN_TIMER):
        scene.timers[timer] = 0
        scene.time_is_over(timer)
    assert scene.group.state is GroupState.STABLE


def test_a_timer_of_a_round_that_is_over_does_nothing(scene):
    for timer in (JOIN_TIMER, SYNC_TIMER):
        scene.timers[timer] = 0
        scene.time_is_over(timer)
    assert (scene.group.state, scene.group.generation) == (GroupState.EMPTY, 0)


# -- connections that are gone


def test_a_join_that_no_client_waits_for_any_more_has_not_joined(scene):
    a, b = scene.stable("a", "b")
    given_up = scene.ask_to_join(a)
    scene.happen(Forgotten(given_up))
    scene.ask_to_join(b)
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    assert scene.timers[member_timer(a)] == 10_000
    scene.time_is_over(member_timer(a))
    assert list(scene.group.members) == [b]


def test_a_new_member_that_is_back_waits_as_long_as_one_that_was_never_gone(scene):
    scene.stable("a")
    b = scene.ask_to_join(requires_member_id=True).answer.member_id
    scene.happen(Forgotten(scene.ask_to_join(b)))
    assert scene.timers[member_timer(b)] == 10_000
    scene.ask_to_join(b)
    assert scene.timers[member_timer(b)] == 300_000


def test_a_new_static_member_that_is_back_waits_as_long_as_one_that_was_never_gone(scene):
    scene.stable("a")
    scene.happen(Forgotten(scene.ask_to_join(instance_id="i")))
    scene.ask_to_join(instance_id="i")
    assert scene.timers[member_timer(scene.group.static_members["i"])] == 300_000


def test_a_sync_without_a_waiting_client_keeps_the_members_assignment(scene):
    a, b = scene.joined("a", "b")
    given_up = scene.ask_to_sync(b)
    scene.time_is_over(member_timer(b))
    scene.happen(Forgotten(given_up))
    assert scene.timers[member_timer(b)] == 10_000
    scene.ask_to_sync(a, {b: b"right"})
    assert given_up.answer is None
    assert scene.ask_to_sync(b).answer.assignment == b"right"


def test_giving_up_after_the_answer_changes_nothing(scene):
    (a,) = scene.stable("a")
    waiting = scene.ask_to_join(a)
    before = dict(scene.timers)
    scene.happen(Forgotten(waiting))
    assert scene.timers == before


# -- beginning and end


def test_members_of_a_loaded_group_have_a_whole_session(scene):
    a, b = scene.stable("a", "b")
    forget(scene.group)
    scene.timers.clear()
    scene.happen(Loaded())
    assert scene.timers == {member_timer(a): 10_000, member_timer(b): 10_000}


def test_a_group_that_is_loaded_with_too_many_members_rebalances(scene):
    scene.stable("a", "b")
    forget(scene.group)
    scene.limits.group_max_size = 2
    scene.happen(Loaded())
    assert scene.group.state is GroupState.STABLE
    scene.limits.group_max_size = 1
    scene.happen(Loaded())
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_one_that_waits_is_answered_when_the_group_goes_elsewhere(scene):
    a, _ = scene.stable("a", "b")
    waiting = scene.ask_to_join(a)
    scene.follow(apply_unloaded(scene.group, ErrorCode.NOT_COORDINATOR, scene.now_ms))
    assert (waiting.answer.error, waiting.answer.member_id) == (ErrorCode.NOT_COORDINATOR, a)
    assert scene.group.state is GroupState.DEAD
    assert scene.group.joins == {}


def test_a_member_that_waits_for_its_assignment_is_answered_too(scene):
    _, b = scene.joined("a", "b")
    waiting = scene.ask_to_sync(b)
    scene.follow(apply_unloaded(scene.group, ErrorCode.NOT_COORDINATOR, scene.now_ms))
    assert waiting.answer.error is ErrorCode.NOT_COORDINATOR
    assert scene.group.syncs == {}
