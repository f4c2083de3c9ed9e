"""Every scenario against Apache Kafka 3.9.1 and against Barnabas: a difference is explained in `known.py`, or fails."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.wire.apis import APIS
from compat_tests.differential import recorded, scenarios
from compat_tests.differential.compare import Tally, differences, stale, take_stock
from compat_tests.differential.known import KNOWN_DIFFERENCES
from compat_tests.differential.scenario import SCENARIOS, load, run
from compat_tests.differential.single_brokers import barnabas_in, kafka_in, make_ready

SHOWN_DIFFERENCES = 20

load(scenarios)


@pytest.fixture(scope="session")
def brokers(tmp_path_factory):
    """Both brokers; they start at the same time."""
    directory = tmp_path_factory.mktemp("differential")
    for name in ("kafka", "barnabas"):
        (directory / name).mkdir()
    kafka = kafka_in(directory / "kafka")
    barnabas = barnabas_in(directory / "barnabas")
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda broker: broker.start(), (kafka, barnabas)))
        started = {"kafka": kafka, "barnabas": barnabas}
        for name, broker in started.items():
            make_ready(name, broker.port, broker.directory)
        yield started
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
    if name in recorded.NOT_RECORDED:
        return
    outdated = list(differences(name, recorded.recorded(name), recorded.as_recorded(found.kafka)))
    shown = "\n".join(map(str, outdated[:SHOWN_DIFFERENCES]))
    assert not outdated, f"Kafka answers otherwise than is recorded; the first of each pair is the record:\n{shown}"


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
