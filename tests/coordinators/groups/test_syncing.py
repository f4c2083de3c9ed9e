"""SyncGroup: the leader sends the assignments of all members, each member gets its own."""

from barnabas.coordinators.groups.classic.events import SYNC_TIMER, AssignmentNotReplicated, Timer, TimerKind
from barnabas.coordinators.groups.classic.state import GroupState
from barnabas.wire.errors import ErrorCode


def test_followers_wait_until_the_leader_sends_the_assignments(scene):
    a, b = scene.joined("a", "b")
    follower = scene.ask_to_sync(b)
    assert follower.answer is None
    leader = scene.ask_to_sync(a, {a: b"left", b: b"right"})
    assert (leader.answer.assignment, follower.answer.assignment) == (b"left", b"right")
    assert (follower.answer.protocol_type, follower.answer.protocol_name) == ("consumer", "range")
    assert scene.group.state is GroupState.STABLE


def test_assignments_are_returned_once_their_record_is_committed(scene):
    a, b = scene.joined("a", "b")
    follower = scene.ask_to_sync(b)
    leader = scene.ask_to_sync(a, {a: b"left"})
    late = scene.ask_to_sync(b)
    assert leader.after_offset == follower.after_offset == late.after_offset == len(scene.log) - 1


def test_the_generation_is_stored_with_its_assignments(scene):
    a, b = scene.stable("a", "b", instance_ids=["i", None])
    stored = scene.group.recorded.metadata
    assert (stored.generation, stored.protocol_type, stored.protocol, stored.leader) == (1, "consumer", "range", a)
    assert [(row.member_id, row.group_instance_id, row.assignment) for row in stored.members] == [
        (a, "i", b"assignment of a"),
        (b, None, b"assignment of b"),
    ]


def test_a_member_that_the_leader_leaves_out_gets_an_empty_assignment(scene):
    a, b = scene.joined("a", "b")
    follower = scene.ask_to_sync(b)
    scene.ask_to_sync(a, {a: b"all of it"})
    assert (follower.answer.error, follower.answer.assignment) == (ErrorCode.NONE, b"")


def test_an_assignment_for_an_unknown_member_is_dropped(scene):
    (a,) = scene.joined("a")
    scene.ask_to_sync(a, {"stranger": b"x"})
    assert [row.member_id for row in scene.group.recorded.metadata.members] == [a]


def test_assignments_that_cannot_be_stored_are_dropped_and_all_join_again(scene):
    a, b = scene.joined("a", "b")
    follower = scene.ask_to_sync(b)
    scene.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    leader = scene.ask_to_sync(a, {a: b"left"})
    assert leader.answer.error is follower.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    assert scene.group.recorded.metadata is None


def test_a_member_without_an_assignment_has_a_whole_session_to_join_again(scene):
    a, b = scene.joined("a", "b")
    scene.ask_to_sync(b)
    scene.time_is_over(Timer(TimerKind.MEMBER, b))
    scene.ask_to_join(a, protocols=(("range", b"new"),))
    assert scene.timers[Timer(TimerKind.MEMBER, b)] == 10_000


def test_a_member_that_gets_its_assignment_has_a_whole_session(scene):
    a, b = scene.joined("a", "b")
    timer = Timer(TimerKind.MEMBER, b)
    scene.ask_to_sync(b)
    scene.time_is_over(timer)
    scene.ask_to_sync(a)
    assert scene.timers[timer] == 10_000
    scene.timers[timer] = 1
    scene.ask_to_sync(b)
    assert scene.timers[timer] == 10_000


def test_assignments_that_are_too_large_to_store_are_an_unknown_error(scene):
    (a,) = scene.joined("a")
    scene.append_error = ErrorCode.MESSAGE_TOO_LARGE
    assert scene.ask_to_sync(a, {a: b"x"}).answer.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_unreplicated_assignments_make_all_members_join_again(scene):
    scene.stable("a", "b")
    scene.happen(AssignmentNotReplicated(1))
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_unreplicated_assignments_of_an_older_generation_have_no_effect(scene):
    (a,) = scene.stable("a")
    scene.ask_to_join(a)
    scene.ask_to_sync(a, {a: b"new"})
    scene.happen(AssignmentNotReplicated(1))
    assert scene.group.state is GroupState.STABLE


def test_the_wrong_generation_is_refused(scene):
    (a,) = scene.joined("a")
    assert scene.ask_to_sync(a, generation=0).answer.error is ErrorCode.ILLEGAL_GENERATION
    assert scene.ask_to_sync("stranger").answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_wrong_protocol_is_refused(scene):
    (a,) = scene.joined("a")
    assert scene.ask_to_sync(a, names=("connect", "range")).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.ask_to_sync(a, names=("consumer", "sticky")).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.ask_to_sync(a, names=("consumer", "range")).answer.error is ErrorCode.NONE


def test_while_a_rebalance_is_prepared_there_are_no_assignments(scene):
    a, b = scene.stable("a", "b")
    scene.ask_to_join(a)
    assert scene.ask_to_sync(b).answer.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_sync_of_a_member_takes_the_place_of_the_first(scene):
    a, b = scene.joined("a", "b")
    first, second = scene.ask_to_sync(b), scene.ask_to_sync(b)
    scene.ask_to_sync(a, {b: b"right"})
    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer.assignment == b"right"


def test_a_member_that_does_not_sync_is_removed_and_the_others_join_again(scene):
    _, b = scene.joined("a", "b")
    waiting = scene.ask_to_sync(b)
    scene.time_is_over(SYNC_TIMER)
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(scene.group.members) == [b]
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_a_stable_group_also_removes_a_member_that_does_not_sync(scene):
    a, _ = scene.joined("a", "b")
    scene.ask_to_sync(a, {})
    assert scene.group.state is GroupState.STABLE
    scene.time_is_over(SYNC_TIMER)
    assert list(scene.group.members) == [a]


def test_once_all_have_asked_no_one_is_dropped(scene):
    scene.stable("a", "b")
    assert SYNC_TIMER not in scene.timers


def test_if_no_member_syncs_the_group_becomes_empty(scene):
    scene.joined("a", "b")
    scene.time_is_over(SYNC_TIMER)
    assert scene.group.state is GroupState.EMPTY
