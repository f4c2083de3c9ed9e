"""What a restore is going to do: which records, under which names, and how it knows what is done."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.manifest import Batch, Range
from barnabas.pipeline.plan import (
    PartitionPlan,
    RestoreError,
    Selection,
    make_plan,
    parse_offsets,
    plan_from_json,
    records_of,
)

PLAN = PartitionPlan("letters", 0, "copy", base=100, records=50)


@pytest.mark.parametrize(("end", "done"), [(100, 0), (101, 1), (150, 50)])
def test_the_log_end_says_how_many_records_are_there(end, done):
    assert PLAN.done(end) == done


@pytest.mark.parametrize("end", [99, 151, 0])
def test_a_log_end_outside_of_the_plan_is_another_producers_doing(end):
    with pytest.raises(RestoreError, match=f"copy-0 ends at offset {end}; the restore began at 100"):
        PLAN.done(end)


@given(records=st.integers(0, 40), kills=st.lists(st.integers(0, 40), max_size=6))
def test_however_often_it_is_killed_every_record_is_written_once(records, kills):
    plan, log = PartitionPlan("letters", 0, "copy", 0, records), []
    for most in [*kills, records]:
        log += list(range(records))[plan.done(len(log)) :][:most]
    assert log == list(range(records))


def test_topics_are_all_of_the_archive_unless_some_are_named():
    assert Selection().chosen(["b", "a"]) == ["a", "b"]
    assert Selection(topics=("b",)).chosen(["b", "a"]) == ["b"]


@pytest.mark.parametrize(
    "selection",
    [Selection(topics=("c",)), Selection(renamed={"c": "d"}), Selection(offsets={("c", 0): (0, 1)})],
)
def test_a_topic_that_the_archive_does_not_have_is_named(selection):
    with pytest.raises(RestoreError, match="the archive has no topic c"):
        selection.chosen(["a", "b"])


def test_two_topics_do_not_become_one():
    with pytest.raises(RestoreError, match="more than one topic would go to a"):
        Selection(renamed={"b": "a"}).chosen(["a", "b"])


def test_a_renamed_topic_gets_no_prefix():
    selection = Selection(prefix="old-", renamed={"b": "new"})
    assert [selection.target(topic) for topic in ("a", "b")] == ["old-a", "new"]


SELECTIONS = [
    Selection(),
    Selection(topics=("b", "a"), prefix="p-"),
    Selection(offsets={("a", 1): (5, 9)}, since_ms=7, until_ms=8, renamed={"a": "x"}),
]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_plan_that_was_kept_is_the_same(selection):
    plan = make_plan("cluster", 3, selection, {("a", 0): 5}, {(selection.target("a"), 0): 10})
    again = plan_from_json(json.dumps(plan.to_json()), "plan.json")
    assert again == plan
    again.check_same("cluster", selection, "plan.json")


def test_another_selection_needs_a_state_of_its_own():
    plan = make_plan("cluster", 3, SELECTIONS[0], {}, {})
    with pytest.raises(RestoreError, match="Another one needs a state of its own"):
        plan.check_same("cluster", SELECTIONS[1], "plan.json")


def test_another_cluster_is_distinguished_from_the_one_that_the_plan_is_for():
    plan = make_plan("cluster", 3, Selection(), {}, {})
    with pytest.raises(RestoreError, match="into cluster cluster, this is elsewhere"):
        plan.check_same("elsewhere", Selection(), "plan.json")


def test_the_manifest_counts_the_records_of_whole_partitions():
    one, two = (Range("a", 0, first, first + 9, 10, 0, 0, 1, 1) for first in (0, 10))
    other = Range("b", 0, 0, 0, 1, 0, 0, 1, 1)
    assert records_of([Batch(0, "r", {}, (one, other)), Batch(1, "r", {}, (two,))], ["a"]) == {("a", 0): 20}


def test_an_offset_range_is_read_from_the_command_line():
    assert parse_offsets("letters:3:10:20") == (("letters", 3), (10, 20))


@pytest.mark.parametrize("text", ["letters", "letters:1:2", "letters:0:a:5", "letters:0:1:2:3"])
def test_a_malformed_offset_range_is_refused(text):
    with pytest.raises(ValueError, match="is not TOPIC:PARTITION:FROM:TO"):
        parse_offsets(text)
