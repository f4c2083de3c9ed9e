"""Logins at a broker of Apache Kafka 3.9.1 and at one of Barnabas: each state, each mechanism, each failure.

Answers that come after the delay of failed logins count as others than those that come at once. Scenarios are in
`sasl_scenarios/`.
"""

import pytest

from compat_tests.differential import sasl_scenarios
from compat_tests.differential.compare import Tally, stale, take_stock
from compat_tests.differential.known_of_sasl import KNOWN_DIFFERENCES_OF_SASL
from compat_tests.differential.sasl_brokers import SaslBrokers
from compat_tests.differential.scenario import SASL_SCENARIOS, load, run_on

CASES_MIN = 200
SHOWN_DIFFERENCES = 20

pytestmark = pytest.mark.thorough

load(sasl_scenarios)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    both = SaslBrokers(tmp_path_factory.mktemp("differential-sasl"))
    try:
        both.start()
        yield both
        said = both.barnabas.log_path.read_text()
        assert "Traceback" not in said, said[-4000:]
    finally:
        both.close()


@pytest.fixture(scope="module")
def tally(request):
    counted = Tally()
    yield counted
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nlogins, {counted.report()}")


@pytest.mark.parametrize("name", SASL_SCENARIOS)
def test_both_brokers_take_logins_alike(name, brokers, tally):
    found = run_on(name, brokers.sides(name))
    left = take_stock(name, found, KNOWN_DIFFERENCES_OF_SASL, tally)
    shown = "\n".join(map(str, left[:SHOWN_DIFFERENCES]))
    assert not left, f"{len(left)} unexplained differences of {len(found.kafka)} answers:\n{shown}"


# These come after the scenarios.


def test_every_difference_known_of_logins_is_still_one(tally):
    assert stale(KNOWN_DIFFERENCES_OF_SASL, tally) == []


def test_enough_cases_were_compared(tally):
    if tally.scenarios != set(SASL_SCENARIOS):
        pytest.skip("not all scenarios ran")
    assert tally.comparisons >= CASES_MIN
