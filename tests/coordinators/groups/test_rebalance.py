"""The first round of a rebalance: when it begins, how long it lasts, whom it leaves."""

from barnabas.coordinators.groups.classic.events import JOIN_TIMER, SYNC_TIMER, Forgotten, Timer, TimerKind
from barnabas.coordinators.groups.classic.rebalance import EXTENSION_MS_MIN
from barnabas.coordinators.groups.classic.state import GroupState
from barnabas.wire.errors import ErrorCode


def test_two_members_join_and_a_generation_begins(scene):
    first, second = scene.ask_to_join(client_id="a"), scene.ask_to_join(client_id="b")
    assert first.answer is second.answer is None
    scene.begin()
    assert [first.answer.generation, second.answer.generation] == [1, 1]
    assert first.answer.leader_id == first.answer.member_id == second.answer.leader_id
    assert [member.member_id for member in first.answer.members] == list(scene.group.members)
    assert second.answer.members == ()
    assert scene.group.state is GroupState.COMPLETING_REBALANCE


def test_an_empty_group_waits_for_the_initial_delay(scene):
    scene.ask_to_join()
    assert scene.timers[JOIN_TIMER] == 3_000


def test_an_empty_group_waits_longer_while_newcomers_come_but_not_for_ever(scene):
    scene.ask_to_join(rebalance_timeout_ms=8_000)
    delays = []
    while scene.group.state is GroupState.PREPARING_REBALANCE:
        scene.ask_to_join(rebalance_timeout_ms=8_000)
        delays.append(scene.timers[JOIN_TIMER])
        scene.time_is_over(JOIN_TIMER)
    assert delays == [3_000, 3_000, 2_000]


def test_an_empty_group_does_not_wait_longer_when_no_other_has_come(scene):
    scene.ask_to_join()
    newcomer = scene.ask_to_join()
    scene.time_is_over(JOIN_TIMER)
    assert newcomer.answer is None
    scene.time_is_over(JOIN_TIMER)
    assert newcomer.answer.generation == 1


def test_a_group_that_had_members_before_waits_for_the_initial_delay_only(scene):
    scene.leave(*scene.stable("a"))
    first = scene.ask_to_join()
    scene.ask_to_join()
    scene.time_is_over(JOIN_TIMER)
    assert (first.answer.generation, len(first.answer.members)) == (3, 2)


def test_without_initial_delay_no_one_waits_for_an_id_that_was_handed_out(make_scene):
    scene = make_scene(group_initial_rebalance_delay_ms=0)
    scene.ask_to_join(requires_member_id=True)
    assert scene.ask_to_join().answer.generation == 1


def test_without_initial_delay_the_first_member_begins_at_once(make_scene):
    scene = make_scene(group_initial_rebalance_delay_ms=0)
    assert scene.ask_to_join().answer.generation == 1
    assert JOIN_TIMER not in scene.timers


def test_a_newcomer_to_a_stable_group_waits_until_all_have_rejoined(scene):
    a, b = scene.stable("a", "b")
    newcomer = scene.ask_to_join(client_id="c")
    assert scene.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    scene.ask_to_join(a)
    assert newcomer.answer is None
    scene.ask_to_join(b)
    assert newcomer.answer.generation == 2


def test_a_rebalance_waits_for_ids_that_were_handed_out(scene):
    (a,) = scene.stable("a")
    pending = scene.ask_to_join(client_id="b", requires_member_id=True).answer.member_id
    scene.ask_to_join(a)
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    scene.ask_to_join(pending)
    assert scene.group.state is GroupState.COMPLETING_REBALANCE


def test_who_does_not_rejoin_in_time_is_dropped(scene):
    a, b = scene.stable("a", "b")
    waiting = scene.ask_to_join(a)
    assert scene.timers[JOIN_TIMER] == 60_000
    scene.time_is_over(JOIN_TIMER)
    assert waiting.answer.generation == 2
    assert list(scene.group.members) == [a]
    assert scene.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_most_patient_member_decides_how_long_a_rebalance_may_take(scene):
    scene.ask_to_join(rebalance_timeout_ms=70_000)
    scene.ask_to_join(rebalance_timeout_ms=20_000)
    scene.begin()
    assert scene.timers[SYNC_TIMER] == 70_000


def test_a_member_may_change_its_patience_and_its_session(scene):
    (a,) = scene.stable("a")
    scene.ask_to_join(a, rebalance_timeout_ms=30_000, session_timeout_ms=7_000)
    assert scene.timers == {SYNC_TIMER: 30_000, Timer(TimerKind.MEMBER, a): 7_000}


def test_a_static_member_that_does_not_rejoin_keeps_its_place_but_not_the_lead(scene):
    a, b = scene.stable("a", "b", instance_ids=["i", None])
    scene.ask_to_join(b, protocols=(("range", b"new"),))
    scene.time_is_over(JOIN_TIMER)
    assert list(scene.group.members) == [a, b]
    assert scene.group.leader_id == b


def test_a_group_of_static_members_that_do_not_rejoin_waits_for_their_sessions(scene):
    a, b = scene.stable("a", "b", instance_ids=["i", None])
    scene.leave(b)
    scene.time_is_over(JOIN_TIMER)
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    assert scene.timers[JOIN_TIMER] == 60_000
    scene.time_is_over(Timer(TimerKind.MEMBER, a))
    assert scene.group.state is GroupState.EMPTY


def test_an_extended_round_lasts_a_second_at_least(scene):
    static = scene.ask_to_join(client_id="s", instance_id="i", rebalance_timeout_ms=0, session_timeout_ms=1_800_000)
    dynamic = scene.ask_to_join(client_id="d")
    scene.begin()
    first, second = static.answer.member_id, dynamic.answer.member_id
    for member_id, instance_id in ((first, "i"), (second, None)):
        scene.ask_to_sync(member_id, {first: b"", second: b""}, instance_id=instance_id)
    scene.leave(second)
    scene.time_is_over(JOIN_TIMER)
    assert scene.timers[JOIN_TIMER] == EXTENSION_MS_MIN


def test_a_static_member_that_was_waited_for_begins_at_once_when_it_is_back(scene):
    given_up = scene.ask_to_join(instance_id="i")
    scene.happen(Forgotten(given_up))
    scene.time_is_over(JOIN_TIMER)
    assert scene.ask_to_join(instance_id="i").answer.generation == 1


def test_a_timer_runs_no_longer_than_what_it_bounds(scene):
    a, _ = scene.joined("a", "b")
    assert JOIN_TIMER not in scene.timers
    scene.ask_to_join(a, protocols=(("range", b"new"),))
    assert SYNC_TIMER not in scene.timers


def test_a_lost_leader_is_replaced(scene):
    a, b = scene.stable("a", "b")
    scene.time_is_over(Timer(TimerKind.MEMBER, a))
    answer = scene.ask_to_join(b).answer
    assert (answer.generation, answer.leader_id) == (2, b)
    assert len(answer.members) == 1


def test_when_the_last_member_leaves_the_group_is_empty_and_that_is_stored(scene):
    (a,) = scene.stable("a")
    scene.now_ms += 77
    assert scene.leave(a) == (ErrorCode.NONE,)
    assert scene.group.state is GroupState.EMPTY
    stored = scene.group.recorded.metadata
    assert (stored.generation, stored.protocol_type, stored.protocol, stored.leader) == (2, "consumer", None, None)
    assert (stored.members, stored.current_state_timestamp) == ([], scene.now_ms)


def test_a_group_is_empty_even_when_that_cannot_be_stored(scene):
    (a,) = scene.stable("a")
    scene.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    scene.leave(a)
    assert scene.group.state is GroupState.EMPTY
    assert list(scene.reloaded().members) == [a]


def test_the_protocol_is_the_one_that_most_members_prefer_among_those_all_have(scene):
    scene.ask_to_join(protocols=(("x", b""), ("y", b""), ("z", b"")))
    scene.ask_to_join(protocols=(("z", b""), ("y", b"")))
    scene.ask_to_join(protocols=(("y", b""), ("z", b"")))
    scene.begin()
    assert scene.group.protocol_name == "y"


def test_the_leader_gets_the_metadata_of_the_chosen_protocol_untouched(scene):
    first = scene.ask_to_join(protocols=(("x", b"\xff\x00"), ("y", b"mine")))
    scene.ask_to_join(protocols=(("y", b"yours"),), instance_id="i")
    scene.begin()
    assert [(member.metadata, member.instance_id) for member in first.answer.members] == [
        (b"mine", None),
        (b"yours", "i"),
    ]
