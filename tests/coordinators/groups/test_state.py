"""The table of states, and the two parts of a group: what is recorded and what a fail-over loses."""

import itertools

import pytest

from barnabas.coordinators.groups.classic.state import (
    VALID_PREVIOUS_STATES,
    Group,
    GroupState,
    Member,
    apply_member_added,
    apply_transition,
    choose_protocol,
    forget,
    keeps_protocol,
)
from barnabas.wire.errors import InvariantBroken


def group_of(*members):
    """A group whose members have these protocols each."""
    group = Group("g", limits=None)
    for number, protocols in enumerate(members):
        named = tuple((name, b"") for name in protocols)
        apply_member_added(group, Member(f"m{number}", None, "c", "/h", 10_000, 60_000, named))
    return group


@pytest.mark.parametrize(("before", "after"), list(itertools.product(GroupState, GroupState)))
def test_a_group_moves_as_the_table_says_and_in_no_other_way(before, after):
    group = Group("g", limits=None)
    group.state = before
    if before in VALID_PREVIOUS_STATES[after]:
        apply_transition(group, after, 77)
        assert (group.state, group.state_timestamp_ms) == (after, 77)
    else:
        with pytest.raises(InvariantBroken):
            apply_transition(group, after, 77)
        assert group.state is before


def test_every_state_can_be_reached_and_all_but_dead_can_be_left():
    assert all(VALID_PREVIOUS_STATES[state] for state in GroupState)
    assert set.union(*VALID_PREVIOUS_STATES.values()) == set(GroupState) - {GroupState.DEAD}


STAGES = {
    "the group is new": lambda scene: None,
    "an id was handed out": lambda scene: scene.ask_to_join(requires_member_id=True),
    "a member joins": lambda scene: scene.ask_to_join(),
    "a generation begins": lambda scene: scene.joined("a", "b"),
    "all have their assignments": lambda scene: scene.stable("a", "b", instance_ids=["i", None]),
    "offsets were committed": lambda scene: scene.commit(5),
    "they join again": lambda scene: scene.ask_to_join(scene.stable("a", "b")[0]),
    "a static member came back": lambda scene: (
        scene.stable("a", instance_ids=["i"]),
        scene.ask_to_join(instance_id="i"),
    ),
    "all have left": lambda scene: scene.leave(*scene.stable("a", "b")),
}


@pytest.mark.parametrize("stage", STAGES)
def test_forgetting_the_volatile_part_equals_a_fail_over(scene, stage):
    STAGES[stage](scene)
    forget(scene.group)
    loaded = scene.reloaded() or Group("g", scene.limits)
    assert facts_of(scene.group) == facts_of(loaded)


def facts_of(group):
    values = {name: getattr(group, name) for name in Group.__slots__ if name not in ("limits", "members", "recorded")}
    members = {member_id: [getattr(one, name) for name in Member.__slots__] for member_id, one in group.members.items()}
    return values, members, group.recorded.metadata, group.recorded.offsets


def test_what_is_forgotten_is_the_round_and_not_the_generation(scene):
    scene.ask_to_join(scene.stable("a", "b")[0])
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    forget(scene.group)
    assert (scene.group.state, scene.group.generation, len(scene.group.members)) == (GroupState.STABLE, 1, 2)
    assert scene.group.joins == {}


def test_a_fail_over_keeps_who_leads_and_since_when_a_group_is_empty(scene):
    a, b = scene.stable("a", "b")
    assert scene.reloaded().leader_id == a
    scene.now_ms += 77
    scene.leave(a, b)
    assert scene.reloaded().state_timestamp_ms == scene.now_ms


def test_of_protocols_with_equal_votes_the_first_named_is_chosen():
    assert choose_protocol(group_of("xy", "yx")) == "x"
    assert choose_protocol(group_of("yx", "xy")) == "y"


def test_members_without_a_protocol_in_common_are_a_contradiction():
    with pytest.raises(InvariantBroken):
        choose_protocol(group_of("x", "y"))


@pytest.mark.parametrize(
    ("others", "before", "after", "keeps"),
    [
        (["xy", "xy"], "xy", "xy", True),
        (["xy", "xy"], "xy", "yx", True),
        (["xy", "yx"], "xy", "yx", False),
        (["xy", "xy"], "xy", "y", False),
        (["xy", "xy"], "xy", "xz", True),
        (["xyz", "xyz"], "xy", "zxy", True),
        ([], "xy", "yx", False),
    ],
)
def test_a_member_may_change_its_protocols_as_long_as_the_same_one_is_chosen(others, before, after, keeps):
    group = group_of(*others, before)
    group.protocol_name = choose_protocol(group)
    changed = tuple((name, b"") for name in after)
    assert keeps_protocol(group, list(group.members.values())[-1], changed) is keeps
    assert (choose_protocol(group_of(*others, after)) == group.protocol_name) is keeps
