"""Every scenario against Apache Kafka 3.9.1 and against Barnabas: a difference is explained in `known.py`, or fails."""

import importlib
import pkgutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.wire.apis import APIS
from compat_tests.brokers import BrokerProcess
from compat_tests.differential import scenarios
from compat_tests.differential.compare import Tally, stale, take_stock
from compat_tests.differential.known import KNOWN_DIFFERENCES
from compat_tests.differential.scenario import SCENARIOS, run
from compat_tests.kafka import SINGLE_BROKER, KafkaProcess, free_port

SHOWN_DIFFERENCES = 20

for found in pkgutil.iter_modules(scenarios.__path__):
    importlib.import_module(f"{scenarios.__name__}.{found.name}")

# The same for both. Short sessions make group scenarios short; few internal partitions are soon there.
SETTINGS = {
    **{name.replace(".", "_"): value for name, value in SINGLE_BROKER.items()},
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
    "group_min_session_timeout_ms": 1000,
}

LOG_DIRS = ("data", "data-2")


def prepare(directory):
    """Kafka and Barnabas, not yet started, with two log directories each."""
    made = []
    for Process, name in ((KafkaProcess, "kafka"), (BrokerProcess, "barnabas")):
        own = directory / name
        own.mkdir()
        made.append(Process(own, **SETTINGS, log_dirs=",".join(str(own / folder) for folder in LOG_DIRS)))
    made[1].port = free_port()  # so that both are configured with a port
    return made


@pytest.fixture(scope="session")
def brokers(tmp_path_factory):
    """Both brokers; they start at the same time."""
    kafka, barnabas = prepare(tmp_path_factory.mktemp("differential"))
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: broker.start(), (kafka, barnabas)))
        yield {"kafka": kafka, "barnabas": barnabas}
        assert "Traceback" not in barnabas.log_text(), barnabas.log_text()[-4000:]
    finally:
        kafka.close()
        barnabas.kill()


@pytest.fixture(scope="session")
def tally(request):
    """What has been compared so far; the counts are shown at the end, also where output is captured."""
    counted = Tally()
    yield counted
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{counted.report()}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_brokers_answer_alike(name, brokers, tally):
    found = run(name, brokers)
    left = take_stock(name, found, KNOWN_DIFFERENCES, tally)
    shown = "\n".join(map(str, left[:SHOWN_DIFFERENCES]))
    assert not left, f"{len(left)} unexplained differences of {len(found.kafka)} answers:\n{shown}"


# These come after the scenarios.


def test_every_known_difference_is_still_one(tally):
    """An entry about a scenario that did not run is not asked for."""
    assert stale(KNOWN_DIFFERENCES, tally) == []


def test_every_version_of_every_api_that_is_served_is_compared(tally):
    if tally.scenarios != set(SCENARIOS):
        pytest.skip("not all scenarios ran")
    versions = {key: range(api.min_version, api.max_version + 1) for key, api in APIS.items() if api.served}
    missing = {
        APIS[key].name: sorted(set(of) - {v for k, v in tally.asked if k == key}) for key, of in versions.items()
    }
    left = {name: versions for name, versions in missing.items() if versions}
    assert left == {}, "no scenario asks these versions: add one to compat_tests/differential/scenarios/"
