"""The cells of the clients written in Python are as docs/faults.md says."""

import json

import pytest

from compat_tests.clients.client import WORK, Session, folder_of, load_client
from compat_tests.faults.changes import CHANGES
from compat_tests.faults.faults import FAULTS
from compat_tests.faults.matrix import cell
from compat_tests.faults.page import BEGIN, END, KEPT, PAGE, tables

QUICK = ("acknowledgement lost", "request lost", "leader moved")  # in continuous integration
CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")


def test_a_fault_and_a_change_have_different_names():
    assert not FAULTS.keys() & CHANGES.keys(), "outcomes are kept by name"


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
    assert seen.outcome == json.loads(KEPT.read_text(encoding="utf-8"))[name][fault]
    assert seen.fired or FAULTS[fault].may_miss
