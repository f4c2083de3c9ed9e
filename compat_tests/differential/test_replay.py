"""Every scenario against Barnabas in memory, beside the recorded answers of Apache Kafka 3.9.1 (`answers/`).

It is what `test_differential.py` does, without Java and processes. That one also checks the record.
"""

import logging

import pytest

from compat_tests.differential import recorded, scenarios
from compat_tests.differential.compare import Tally, stale, take_stock
from compat_tests.differential.known import KNOWN_DIFFERENCES
from compat_tests.differential.scenario import Run, answers_of, load
from compat_tests.differential.single_brokers import in_memory

SHOWN_DIFFERENCES = 20

load(scenarios)


class Mistakes(logging.Handler):
    """Keeps what the broker logs with a traceback."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.found = []

    def emit(self, record):
        if record.exc_info:
            self.found.append(self.format(record))


@pytest.fixture(scope="module")
def broker():
    mistakes = Mistakes()
    logger = logging.getLogger("barnabas")
    logger.addHandler(mistakes)
    with in_memory() as running:
        yield running
    logger.removeHandler(mistakes)
    assert not mistakes.found, "\n".join(mistakes.found)


@pytest.fixture(scope="module")
def tally():
    return Tally()


@pytest.mark.parametrize("name", recorded.recorded_scenarios())
def test_a_broker_in_memory_answers_as_kafka_did(name, broker, tally):
    kafka = recorded.recorded(name)
    assert kafka, "no answers are recorded; with Java: python -m compat_tests.differential --record"
    side = broker.side(name)
    answers = recorded.as_recorded(answers_of(name, side))
    found = Run(kafka, answers, side.requests, side.asked)
    left = take_stock(name, found, KNOWN_DIFFERENCES, tally)
    shown = "\n".join(map(str, left[:SHOWN_DIFFERENCES]))
    assert not left, f"{len(left)} unexplained differences of {len(found.kafka)} answers:\n{shown}"


def test_every_known_difference_is_seen_in_memory_too(tally):
    """An entry about a scenario that did not run is not asked for."""
    assert stale(KNOWN_DIFFERENCES, tally) == []
