"""Kinds of histories, and how they are combined."""

import random

import pytest

from barnabas.testing.simulation.__main__ import parser
from barnabas.testing.simulation.kinds import KINDS, PLAIN, combined, draw_kind
from barnabas.testing.simulation.plan import BRIEF, SYNCED, draw_plan


def shaped(name, seed=1):
    """The plan of a history of these kinds."""
    return combined(name).shape(draw_plan(random.Random(seed)), random.Random(seed))


def test_a_seed_draws_two_kinds_and_in_time_every_kind():
    drawn = [draw_kind(random.Random(seed)).split("+") for seed in range(200)]
    assert {len(set(each)) for each in drawn} == {2}
    assert {kind for each in drawn for kind in each} == KINDS.keys() - {PLAIN}


def test_kinds_are_combined_in_any_order():
    one, other = combined("twice+directories"), combined("directories+twice")
    assert one.faults == other.faults == (*KINDS["directories"].faults, *KINDS["twice"].faults)
    assert one.operations == other.operations == dict(KINDS["directories"].operations | KINDS["twice"].operations)
    assert shaped("twice+directories") == shaped("directories+twice")


def test_what_one_of_the_kinds_excludes_does_not_happen():
    both = combined("directories+moments")
    assert "disk-error" in both.without
    assert not set(both.faults) & set(both.without)


def test_topics_are_recreated_also_where_transactions_replace_the_topics():
    plan = shaped("twice+transactions")
    assert [each.name for each in plan.topics if each.is_volatile] == [BRIEF]
    assert "crash-unseen" in plan.never, "readers of committed records expect no loss"


def test_no_topic_is_recreated_where_topics_have_no_ids():
    plan = shaped("levels+twice")
    assert not any(each.is_volatile for each in plan.topics)
    assert [each.name for each in plan.topics if each.has_twin] == [SYNCED]


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="no kind of history is called crowd; there are plain, "):
        combined("directories+crowd")


def test_the_command_line_takes_kinds_or_leaves_them_to_the_seed(capsys):
    assert parser().parse_args([]).kind == ""
    assert parser().parse_args(["--kind", "levels+crowds"]).kind == "levels+crowds"
    with pytest.raises(SystemExit):
        parser().parse_args(["--kind", "crowd"])
    assert "no kind of history is called crowd" in capsys.readouterr().err
