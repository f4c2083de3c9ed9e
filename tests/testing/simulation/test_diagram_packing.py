"""A run becomes the data of a page, and the page one file: nothing is lost on the way, and nothing runs in it."""

import json
import re

import pytest

from barnabas.testing.simulation.affected import AFFECTED
from barnabas.testing.simulation.diagram.frames import Row, Summary
from barnabas.testing.simulation.diagram.packing import history, page
from barnabas.testing.simulation.diagram.recording import NO_REQUEST, Cut, Held, InSync, Recording, Sent, Trouble
from barnabas.testing.simulation.faults import KINDS
from barnabas.testing.simulation.harm import Fault
from barnabas.testing.simulation.rules import Violation
from barnabas.testing.simulation.run import Report
from tests.testing.simulation.diagram_pages import SOURCES, unpacked

REPLAY = "python -m barnabas.testing.simulation --seed 7"


def report(timed_story=(), broken=()):
    parties = ["broker-1", "broker-2", "store", "writer-orders-0"]
    return Report(7, "plain", parties=parties, timed_story=list(timed_story), broken=list(broken), trace="0123")


def sent(number, began, source, target, **more):
    return Sent(number, began, source, target, **{"ended": began + 0.001, "lost": "", **more})


def recording_of(*messages, **more):
    held = {("orders", 0): {"broker-1": [Held(0.5, 0, True, 3, 1), Held(1.0, 0, True, 5, 5), Held(2.0, None)]}}
    states = {"broker-1": [(0.0, "up")], "broker-2": [(0.0, "down")]}
    return Recording(messages=list(messages), replicas=held, states=states, end=9.0, **more)


def packed(shown):
    return json.loads(json.dumps(shown))


def test_each_message_is_one_row_of_the_columns():
    words = Summary("Fetch", 12, "", (Row("orders", 0, "", "from 3"), Row("orders", 1, "FENCED_LEADER_EPOCH", "")))
    asked = sent(0, 1.0, "broker-2", "broker-1", size_bytes=60, summary=words)
    answered = sent(1, 1.5, "broker-1", "broker-2", answers=0, ended=1.5, lost="no acknowledgement")
    columns = packed(history(report(), recording_of(asked, answered), REPLAY))["messages"]
    assert columns["began"] == [1_000_000, 500_000], "differences, in microseconds"
    assert columns["took"] == [1000, 0]
    assert (columns["from"], columns["to"]) == ([1, 0], [0, 1])
    assert columns["answers"] == [0, 1], "one before this one"
    assert [columns["losses"][each] for each in columns["lost"]] == ["", "no acknowledgement"]
    rows = columns["rowLists"][columns["rows"][0]]
    assert [[columns["texts"][words], columns["texts"][error]] for _, words, error in rows] == [
        ["from 3", ""],
        ["", "FENCED_LEADER_EPOCH"],
    ]


def test_what_is_under_way_at_the_end_has_taken_until_then():
    columns = history(report(), recording_of(Sent(0, 4.0, "store", "broker-1")), REPLAY)["messages"]
    assert columns["took"] == [5_000_000]


def test_a_topic_that_was_named_by_its_id_gets_its_name_if_any_message_taught_it():
    rows = (Row(b"known", 0, "", ""), Row(b"\x01", 0, "", ""))
    recording = recording_of(sent(0, 0, "store", "broker-1", summary=Summary("Fetch", 13, "", rows)))
    recording.topic_names[b"known"] = "orders"
    assert packed(history(report(), recording, REPLAY))["partitions"] == [["orders", 0], ["topic id 01", 0]]


def test_what_a_broker_holds_stands_in_columns():
    assert history(report(), recording_of(), REPLAY)["replicas"][0][0] == {
        "at": [500_000, 500_000, 1_000_000],
        "epoch": [0, 0, -2],
        "leads": [1, 1, 0],
        "end": [3, 2, -6],
        "highWatermark": [1, 4, -6],
    }


def test_states_in_sync_replicas_controllers_and_cuts_are_there():
    more = {
        "in_sync": {("orders", 0): [InSync(0.25, 1, (1, 2))]},
        "controllers": [(0.1, 1)],
        "cuts": [Cut("broker-1", "store", 1.0, 2.0)],
    }
    shown = packed(history(report(), recording_of(**more), REPLAY))
    assert shown["inSync"] == {"0": [[250_000, 1, [1, 2]]]}
    assert shown["controllers"] == [[100_000, 1]]
    assert shown["cuts"] == [[0, 2, 1_000_000, 2_000_000]]
    assert shown["states"] == {"0": [[0, "up"]], "1": [[0, "down"]]}


@pytest.mark.parametrize(
    ("kind", "lanes"),
    [
        ("pause", ["broker-1"]),
        ("partition", ["broker-1", "writer-orders-0"]),
        ("stop-store", ["store"]),
        ("crash-all", ["broker-1", "broker-2"]),
        ("kill-controller", ["broker-2"]),
        ("late-markers", []),
    ],
)
def test_a_fault_marks_the_lanes_of_those_that_it_is_about(kind, lanes):
    fault = Fault(1.0, kind, "broker-1", "writer-orders-0", 3.0, 0.5)
    recording = recording_of(troubles=[Trouble(1.0, fault, ("broker-2",))], troubles_end=8.0)
    shown = packed(history(report(), recording, REPLAY))
    began, ended, named, marked = shown["faults"][0]
    assert (began, ended, named) == (1_000_000, 4_000_000, kind)
    assert [shown["parties"][each][0] for each in marked] == lanes


@pytest.mark.parametrize(("over", "ended"), [(2.0, 2_000_000), (-1.0, 4_000_000)])
def test_a_fault_ends_with_all_faults_or_with_the_run(over, ended):
    fault = Fault(1.0, "pause", "broker-1", "store", 3.0, 0.5)
    shown = history(report(), recording_of(troubles=[Trouble(1.0, fault, ())], troubles_end=over), REPLAY)
    assert shown["faults"][0][1] == ended


def test_every_kind_of_fault_has_its_lanes():
    assert AFFECTED.keys() == KINDS.keys()


def test_a_line_of_the_story_knows_the_partition_that_it_names():
    timed_story = [
        (1.0, "orders-0: 1 leads in epoch 2, from 5"),
        (2.0, "orders-07 is no partition"),
        (3.0, "orders-0 at 2"),
    ]
    assert [each[2] for each in history(report(timed_story), recording_of(), REPLAY)["story"]] == [0, -1, 0]


def test_a_violation_knows_its_partition_and_its_line_of_the_story():
    broken = [Violation("I7", 2.0, "orders-0: twice")]
    timed_story = [(1.0, broken[0].line), (2.0, broken[0].line), (3.0, "quiet")]
    assert history(report(timed_story, broken), recording_of(), REPLAY)["violations"] == [
        [2_000_000, "I7", "orders-0: twice", 0, 1]
    ]


def test_a_violation_that_ended_the_run_is_added_to_the_story():
    shown = history(report([(1.0, "quiet")], [Violation("I16", 1.5, "Traceback …")]), recording_of(), REPLAY)
    assert shown["story"][-1] == [1_500_000, "VIOLATION I16 (no broker fails because of a bug): Traceback …", -1]
    assert shown["violations"][0][-1] == 1


def test_the_page_has_the_history_in_it_and_is_the_same_each_time():
    shown = history(report([(0.0, "begins")]), recording_of(sent(0, 1.0, "store", "broker-1")), REPLAY)
    assert unpacked(page(shown, SOURCES)) == packed(shown)
    assert page(shown, SOURCES) == page(shown, SOURCES)


def test_a_text_of_the_history_is_no_part_of_the_markup():
    evil = "</script><script>alert(1)</script>"
    shown = history(report([(0.0, evil)]), recording_of(), f"--seed 7 {evil}")
    assert "alert" not in page(shown, SOURCES)
    assert unpacked(page(shown, SOURCES))["story"][0][1] == evil


def test_the_page_loads_nothing_and_writes_no_markup():
    html = page(history(report(), recording_of(), REPLAY), SOURCES)
    assert not re.findall(r"https?://|\bsrc=|\bhref=|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", html)
    assert "default-src 'none'" in html
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", SOURCES["page.js"])


def test_a_page_without_a_place_for_its_history_is_refused():
    with pytest.raises(ValueError, match=r"no place for <!-- history -->"):
        page({}, SOURCES | {"page.html": SOURCES["page.html"].replace("<!-- history -->", "")})


def test_a_request_has_no_number_of_a_request():
    assert history(report(), recording_of(sent(0, 0, "store", "broker-1", answers=NO_REQUEST)), REPLAY)["messages"][
        "answers"
    ] == [0]
