"""JoinGroup: who becomes, stays or comes back as a member."""

import random
import uuid

from barnabas.coordinators.groups.classic.events import JOIN_TIMER, Join, Shed, Timer, TimerKind, Waiting
from barnabas.coordinators.groups.classic.joining import NEW_MEMBER_JOIN_TIMEOUT_MS, grown_bytes, random_uuid
from barnabas.coordinators.groups.classic.state import MEMBER_BYTES, GroupState
from barnabas.wire.errors import ErrorCode
from tests.coordinators.groups.conftest import RANGE


def member_timer(member_id):
    return Timer(TimerKind.MEMBER, member_id)


def test_a_member_without_id_is_given_one_and_joins_again(scene):
    answer = scene.ask_to_join(client_id="app", requires_member_id=True).answer
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("app-")
    assert scene.group.members == {}
    assert list(scene.group.pending_members) == [answer.member_id]


def test_an_id_that_was_handed_out_is_good_for_one_join(scene):
    member_id = scene.ask_to_join(requires_member_id=True).answer.member_id
    scene.ask_to_join(member_id, requires_member_id=True)
    assert list(scene.group.members) == [member_id]
    assert scene.group.pending_members == {}


def test_an_id_that_is_not_used_is_forgotten_after_one_session(scene):
    member_id = scene.ask_to_join(requires_member_id=True, session_timeout_ms=7_000).answer.member_id
    assert scene.timers == {member_timer(member_id): 7_000}
    scene.time_is_over(member_timer(member_id))
    assert scene.ask_to_join(member_id).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_old_client_is_taken_in_at_once(scene):
    scene.ask_to_join(requires_member_id=False)
    assert len(scene.group.members) == 1


def test_a_static_member_is_taken_in_at_once_and_named_after_its_instance(scene):
    scene.ask_to_join(instance_id="left-hand", requires_member_id=False)
    assert next(iter(scene.group.members)).startswith("left-hand-")


def test_a_handed_out_id_does_not_make_a_static_member(scene):
    member_id = scene.ask_to_join(requires_member_id=True).answer.member_id
    waiting = scene.ask_to_join(member_id, instance_id="i")
    assert waiting.answer.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_id_that_was_not_handed_out_is_unknown(scene):
    assert scene.ask_to_join("stranger").answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_without_knowing_its_id_is_dropped_after_five_minutes(scene):
    scene.stable("a")
    waiting = scene.ask_to_join(client_id="b")
    member_id = list(scene.group.members)[1]
    assert scene.timers[member_timer(member_id)] == NEW_MEMBER_JOIN_TIMEOUT_MS
    scene.time_is_over(member_timer(member_id))
    assert waiting.answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert waiting.answer.member_id == ""


def test_a_group_without_members_takes_any_protocol_that_has_a_name(scene):
    assert scene.ask_to_join(protocol_type="").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.ask_to_join(protocols=()).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.ask_to_join(protocol_type="connect", protocols=(("eager", b""),)).answer is None


def test_members_must_have_type_and_a_protocol_in_common(scene):
    scene.ask_to_join()
    other_type = scene.ask_to_join(protocol_type="connect")
    other_protocol = scene.ask_to_join(protocols=(("sticky", b""),))
    assert other_type.answer.error is other_protocol.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_protocol_that_one_member_gave_up_is_common_no_more(scene):
    both = (("range", b""), ("sticky", b""))
    scene.ask_to_join(protocols=both)
    scene.ask_to_join(protocols=both)
    first, second = scene.group.members
    scene.ask_to_join(first, protocols=both[:1])
    assert scene.ask_to_join(second, protocols=both[1:]).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_turns_newcomers_away(make_scene):
    scene = make_scene(group_max_size=1)
    scene.stable("a")
    answer = scene.ask_to_join(client_id="b").answer
    assert (answer.error, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def join_of(member_id="", *, instance_id=None, protocols=RANGE):
    return Join(
        Waiting(), member_id, instance_id, "c", "/127.0.0.1", 10_000, 60_000, "consumer", protocols, False, True
    )


def test_a_group_grows_by_what_its_members_do_not_take_already(scene):
    (a,) = scene.stable("a")
    scene.ask_to_join(instance_id="i")
    wide = (("range", RANGE[0][1] + bytes(50)),)
    assert grown_bytes(None, join_of()) == MEMBER_BYTES + 2 + len("range") + len(RANGE[0][1])
    assert grown_bytes(scene.group, join_of()) == grown_bytes(None, join_of())
    assert grown_bytes(scene.group, join_of(a)) <= 0
    assert grown_bytes(scene.group, join_of(a, protocols=wide)) == 50
    assert grown_bytes(scene.group, join_of(instance_id="i")) <= 0


# -- members that are dropped because others need memory


def test_the_oldest_pending_ids_are_dropped_first(scene):
    (a,) = scene.stable("a")
    for _ in range(3):
        scene.ask_to_join(requires_member_id=True)
    first, second, third = scene.group.pending_members
    scene.happen(Shed(MEMBER_BYTES + 1 + len(first)))
    assert list(scene.group.pending_members) == [third]
    assert list(scene.group.members) == [a]
    assert set(scene.timers) & {member_timer(each) for each in (first, second, third)} == {member_timer(third)}
    assert scene.notes[-1:] == [
        "2 member ids that have not joined are dropped: the members of all groups take group.members.max.bytes"
    ]


def test_a_round_that_waits_for_a_dropped_pending_id_ends(scene):
    (a,) = scene.stable("a")
    scene.ask_to_join(requires_member_id=True)
    wide = (("range", RANGE[0][1] + bytes(50)),)
    waiting = scene.ask_to_join(a, client_id="a", protocols=wide)
    assert waiting.answer is None
    scene.happen(Shed(1))
    assert waiting.answer.error is ErrorCode.NONE


def test_without_pending_ids_the_newest_member_is_dropped_and_the_others_rebalance(scene):
    a, b, c = scene.stable("a", "b", "c")
    scene.happen(Shed(1))
    assert list(scene.group.members) == [a, b]
    assert scene.beat(c) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_without_members_has_nothing_to_lose(scene):
    scene.happen(Shed(1))
    assert (scene.notes, scene.group.state) == ([], GroupState.EMPTY)


def test_when_the_limit_is_lowered_the_last_to_rejoin_is_turned_away(scene):
    a, b = scene.stable("a", "b")
    scene.limits.group_max_size = 1
    first = scene.ask_to_join(a)
    second = scene.ask_to_join(b)
    assert second.answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.answer.error is ErrorCode.NONE
    assert list(scene.group.members) == [a]


def test_who_waits_already_may_ask_again_even_in_a_full_group(make_scene):
    scene = make_scene(group_max_size=1)
    scene.ask_to_join()
    (member_id,) = scene.group.members
    again = scene.ask_to_join(member_id)
    scene.begin()
    assert again.answer.error is ErrorCode.NONE


def test_a_follower_that_joins_again_unchanged_gets_the_generation_it_is_in(scene):
    a, b = scene.stable("a", "b")
    answer = scene.ask_to_join(b).answer
    assert (answer.error, answer.generation, answer.leader_id) == (ErrorCode.NONE, 1, a)
    assert answer.members == ()
    assert scene.group.state is GroupState.STABLE


def test_a_follower_that_says_something_new_makes_everybody_join_again(scene):
    _, b = scene.stable("a", "b")
    waiting = scene.ask_to_join(b, protocols=(("range", b"other topics"),))
    assert waiting.answer is None
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_joins_again_makes_everybody_join_again(scene):
    a, _ = scene.stable("a", "b")
    scene.ask_to_join(a)
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_is_alone_and_joins_again_begins_the_next_generation_at_once(scene):
    (a,) = scene.stable("a")
    answer = scene.ask_to_join(a).answer
    assert (answer.generation, answer.leader_id, len(answer.members)) == (2, a, 1)


def test_between_the_rounds_an_unchanged_member_is_sent_again(scene):
    a, b = scene.joined("a", "b")
    assert len(scene.ask_to_join(a).answer.members) == 2
    assert scene.ask_to_join(b).answer.members == ()
    assert scene.group.state is GroupState.COMPLETING_REBALANCE


def test_between_the_rounds_a_changed_member_makes_everybody_join_again(scene):
    a, b = scene.joined("a", "b")
    syncing = scene.ask_to_sync(b)
    scene.ask_to_join(a, protocols=(("range", b"more"),))
    assert syncing.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_a_second_join_of_a_member_takes_the_place_of_the_first(scene):
    a, _ = scene.stable("a", "b")
    first = scene.ask_to_join(a)
    second = scene.ask_to_join(a)
    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer is None


# -- static members


def test_a_static_member_that_comes_back_to_a_stable_group_costs_no_rebalance(scene):
    a, b = scene.stable("a", "b", instance_ids=["i", "j"])
    answer = scene.ask_to_join(instance_id="j").answer
    assert (answer.error, answer.generation, answer.leader_id) == (ErrorCode.NONE, 1, a)
    assert answer.member_id != b
    assert scene.group.state is GroupState.STABLE
    assert set(scene.timers) == {member_timer(a), member_timer(answer.member_id)}
    assert scene.ask_to_sync(answer.member_id).answer.assignment == b"assignment of b"


def test_the_return_of_a_static_member_is_stored(scene):
    a, _ = scene.stable("a", "b", instance_ids=["i", "j"])
    waiting = scene.ask_to_join(instance_id="j")
    stored = scene.reloaded()
    assert stored.static_members["j"] == waiting.answer.member_id
    assert stored.members[waiting.answer.member_id].assignment == b"assignment of b"
    assert stored.leader_id == a
    assert waiting.after_offset == len(scene.log) - 1


def test_a_static_leader_that_comes_back_need_not_compute_assignments(scene):
    scene.stable("a", "b", instance_ids=["i", "j"])
    answer = scene.ask_to_join(instance_id="i", skips_assignment=True).answer
    assert answer.skip_assignment
    assert answer.leader_id == answer.member_id == scene.reloaded().leader_id
    assert len(answer.members) == 2


def test_an_older_static_leader_that_comes_back_learns_that_its_old_self_leads(scene):
    a, _ = scene.stable("a", "b", instance_ids=["i", "j"])
    answer = scene.ask_to_join(instance_id="i", skips_assignment=False).answer
    assert answer.leader_id == a != answer.member_id
    assert (answer.members, answer.skip_assignment) == ((), False)
    assert scene.group.leader_id == answer.member_id


def test_a_return_that_cannot_be_stored_changes_nothing(scene):
    _, b = scene.stable("a", "b", instance_ids=["i", "j"])
    scene.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = scene.ask_to_join(instance_id="j").answer
    assert (answer.error, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert b in scene.group.members


def test_a_static_member_that_returns_with_other_protocols_causes_a_rebalance(scene):
    both = (("range", b""), ("sticky", b""))
    scene.ask_to_join(instance_id="i", protocols=both)
    scene.time_is_over(JOIN_TIMER)
    scene.ask_to_sync(scene.group.leader_id)
    scene.ask_to_join(instance_id="i", protocols=both[::-1])
    assert (scene.group.generation, scene.group.protocol_name) == (2, "sticky")


def test_a_static_member_that_comes_back_between_the_rounds_causes_a_rebalance(scene):
    _, b = scene.joined("a", "b", instance_ids=["i", "j"])
    syncing = scene.ask_to_sync(b)
    scene.ask_to_join(instance_id="j")
    assert syncing.answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.group.state is GroupState.PREPARING_REBALANCE


def test_one_that_still_waits_under_the_old_id_of_a_static_member_is_fenced(scene):
    first = scene.ask_to_join(instance_id="i")
    second = scene.ask_to_join(instance_id="i")
    assert first.answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert second.answer is None
    assert len(scene.group.members) == 1


def test_the_old_id_of_a_static_member_is_fenced_in_every_request(scene):
    (a,) = scene.stable("a", instance_ids=["i"])
    scene.ask_to_join(instance_id="i")
    answers = [
        scene.ask_to_join(a, instance_id="i").answer.error,
        scene.ask_to_sync(a, instance_id="i").answer.error,
        scene.beat(a, instance_id="i"),
        scene.commit(member_id=a, generation=1, instance_id="i").error,
        *scene.leave((a, "i")),
    ]
    assert answers == [ErrorCode.FENCED_INSTANCE_ID] * 5


def test_a_made_up_uuid_is_one_of_version_4():
    made = uuid.UUID(random_uuid(random.Random(1)))
    assert (made.version, made.variant) == (4, uuid.RFC_4122)
