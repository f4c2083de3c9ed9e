"""The cells of the clients written in Python are as docs/faults.md says."""

import json

import pytest

from compat_tests.clients.client import WORK, Session, folder_of, load_client
from compat_tests.faults.changes import CHANGES
from compat_tests.faults.faults import FAULTS
from compat_tests.faults.matrix import CHANCES, Cell, cell, cell_text, is_stable, outcomes_of
from compat_tests.faults.page import BEGIN, END, KEPT, PAGE, tables

QUICK = ("acknowledgement lost", "request lost", "leader moved")  # in continuous integration
CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")


def test_a_fault_and_a_change_have_different_names():
    assert not FAULTS.keys() & CHANGES.keys(), "outcomes are kept by name"


def test_a_cell_of_chance_has_all_that_may_come():
    once = Cell("once with an error", fired=1, seconds=0.3)
    assert cell_text("kcat", "acknowledgement lost", [once]) == "lost with an error / once with an error"
    assert cell_text("kcat", "request lost", [once]) == "once with an error"
    twice = once._replace(outcome="twice", fired=0)
    assert cell_text("kcat", "acknowledgement lost", [once, twice]) == "once with an error / twice (not asked)"


def test_only_the_cells_of_chance_are_kept_with_two_outcomes():
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert all(is_stable(label, fault, text) for label, cells in kept.items() for fault, text in cells.items())
    assert all(outcomes_of(kept[label][fault]) == CHANCES[label, fault] for label, fault in CHANCES)


def test_the_page_has_the_outcomes_that_are_kept():
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    assert rest.partition(END)[0].strip() == tables()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS]
)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_behaves_as_the_page_says(name, fault):
    session = Session(folder_of(name), WORK / f"{name}-faults-test", "")
    (command,) = load_client(name).secured(session).values()
    seen = cell(session, [str(word) for word in command], fault)
    assert seen.outcome in outcomes_of(json.loads(KEPT.read_text(encoding="utf-8"))[name][fault])
    assert seen.fired or FAULTS[fault].may_miss
