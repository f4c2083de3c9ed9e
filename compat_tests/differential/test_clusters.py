"""Scenarios against three brokers of Apache Kafka 3.9.1 and three of Barnabas.

The clusters start once. Scenarios that take a broker down come last, and leave all brokers up.
"""

from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

import pytest

from compat_tests.differential import cluster_scenarios, scenarios
from compat_tests.differential.cluster_side import ClusterSide
from compat_tests.differential.clusters import Cluster
from compat_tests.differential.compare import Tally, stale, take_stock
from compat_tests.differential.known import KNOWN_DIFFERENCES
from compat_tests.differential.known_of_clusters import ABOUT_ONE_BROKER, KNOWN_DIFFERENCES_OF_CLUSTERS
from compat_tests.differential.scenario import CLUSTER_SCENARIOS, DISTURBING, SCENARIOS, load, run_on
from compat_tests.small_cluster import KINDS

SHOWN_DIFFERENCES = 20

for package in (scenarios, cluster_scenarios):
    load(package)


def is_about_one_broker(name):
    return any(fnmatchcase(name, pattern) for pattern in ABOUT_ONE_BROKER)


FOR_ANY_NUMBER = [name for name in SCENARIOS if not is_about_one_broker(name)]
CALM = [name for name in CLUSTER_SCENARIOS if name not in DISTURBING]
KNOWN = [*KNOWN_DIFFERENCES_OF_CLUSTERS, *KNOWN_DIFFERENCES]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Both clusters; they start at the same time."""
    directory = tmp_path_factory.mktemp("differential-clusters")
    made = {kind: Cluster(kind, directory / kind) for kind in KINDS}
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda cluster: cluster.start(), made.values()))
        yield made
        for process in made["barnabas"].brokers.values():
            assert "Traceback" not in process.log_text(), process.log_text()[-4000:]
    finally:
        for cluster in made.values():
            cluster.close()


@pytest.fixture(scope="module")
def tally(request):
    counted = Tally()
    yield counted
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nclusters, {counted.report()}")


@pytest.mark.parametrize("name", [*FOR_ANY_NUMBER, *CALM, *DISTURBING])
def test_both_clusters_answer_alike(name, clusters, tally):
    for cluster in clusters.values():
        cluster.heal()
    found = run_on(name, {kind: ClusterSide(kind, cluster, name) for kind, cluster in clusters.items()})
    left = take_stock(name, found, KNOWN, tally)
    shown = "\n".join(map(str, left[:SHOWN_DIFFERENCES]))
    assert not left, f"{len(left)} unexplained differences of {len(found.kafka)} answers:\n{shown}"


# These come after the scenarios.


def test_every_difference_known_of_clusters_is_still_one(tally):
    assert stale(KNOWN_DIFFERENCES_OF_CLUSTERS, tally) == []


def test_every_reason_to_leave_a_scenario_out_is_about_one():
    assert [name for name in ABOUT_ONE_BROKER if not any(fnmatchcase(each, name) for each in SCENARIOS)] == []
