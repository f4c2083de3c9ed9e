"""Groups of thousands of members: what happens to all of them is done in steps that each concern a few."""

from barnabas.coordinators.groups.classic.events import JOIN_TIMER, SYNC_TIMER
from barnabas.coordinators.groups.classic.rebalance import DROPPED_AT_A_TIME, NAMED_MAX
from barnabas.coordinators.groups.classic.state import GroupState
from barnabas.wire.errors import ErrorCode

LINE_MAX = 1000  # characters


def many(count):
    """So many client ids."""
    return [f"c{number}" for number in range(count)]


def dropped_by(scene, timer):
    """The timer ends, and those that follow from it: how many members each step drops."""
    counts = []
    while (timer in scene.timers and scene.timers[timer] <= 1) or not counts:
        before = len(scene.group.members)
        scene.time_is_over(timer)
        counts.append(before - len(scene.group.members))
    return counts


def test_members_that_do_not_rejoin_are_dropped_a_few_at_a_time(scene):
    members = scene.stable(*many(2 * DROPPED_AT_A_TIME + 50))
    waiting = scene.ask_to_join(members[0])
    scene.notes.clear()
    assert dropped_by(scene, JOIN_TIMER) == [DROPPED_AT_A_TIME, DROPPED_AT_A_TIME, 49]
    assert (waiting.answer.generation, len(waiting.answer.members)) == (2, 1)
    assert scene.beat(members[-1]) is ErrorCode.UNKNOWN_MEMBER_ID
    # A line for each step, which names some members, and one for the generation.
    assert len(scene.notes) == 4
    assert all(len(note) < LINE_MAX for note in scene.notes)
    assert scene.notes[0].endswith(f" and {DROPPED_AT_A_TIME - NAMED_MAX} more, which did not rejoin")


def test_a_member_that_comes_while_others_are_dropped_is_in_the_generation(scene):
    members = scene.stable(*many(DROPPED_AT_A_TIME + 50))
    waiting = scene.ask_to_join(members[0])
    scene.time_is_over(JOIN_TIMER)
    newcomer = scene.ask_to_join(client_id="new")
    back = scene.ask_to_join(members[-1])
    assert waiting.answer is newcomer.answer is back.answer is None
    scene.time_is_over(JOIN_TIMER)
    assert [each.answer.generation for each in (waiting, newcomer, back)] == [2, 2, 2]
    assert len(scene.group.members) == 3


def test_members_that_do_not_sync_are_dropped_a_few_at_a_time(scene):
    members = scene.joined(*many(2 * DROPPED_AT_A_TIME + 51))
    waiting = scene.ask_to_sync(members[-1])
    scene.notes.clear()
    # One rebalance follows, and not one for each.
    assert dropped_by(scene, SYNC_TIMER) == [DROPPED_AT_A_TIME, DROPPED_AT_A_TIME, 50]
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert (scene.group.state, list(scene.group.members)) == (GroupState.PREPARING_REBALANCE, [members[-1]])
    assert [len(note) < LINE_MAX for note in scene.notes] == [True]
    assert scene.ask_to_join(members[-1]).answer.generation == 2


def test_a_late_member_that_joins_again_while_others_are_dropped_is_dropped_too(scene):
    members = scene.joined(*many(DROPPED_AT_A_TIME + 51))
    scene.ask_to_sync(members[-1])
    scene.time_is_over(SYNC_TIMER)
    late = scene.ask_to_join(members[-2])
    scene.time_is_over(SYNC_TIMER)
    assert late.answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.ask_to_join(members[-1]).answer.generation == 2


def test_if_none_of_many_members_syncs_the_group_becomes_empty(scene):
    scene.joined(*many(DROPPED_AT_A_TIME + 50))
    assert dropped_by(scene, SYNC_TIMER) == [DROPPED_AT_A_TIME, 50]
    assert (scene.group.state, scene.group.held_bytes) == (GroupState.EMPTY, 0)
