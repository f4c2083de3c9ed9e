"""The metrics of three brokers beside those of Apache Kafka 3.9.1 with the JMX exporter, after the same requests."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from barnabas.console.metric_table import METRICS
from barnabas.console.samples import labels_of
from compat_tests.metrics import script
from compat_tests.metrics.brokers import Labels, MeteredCluster, Scrape, total
from compat_tests.metrics.differences import (
    LABELS,
    LATER,
    NOT_COMPARED,
    NOT_KAFKAS,
    NOT_OURS,
    TYPES,
    VALUES,
    compared,
)
from compat_tests.raw import eventually
from compat_tests.small_cluster import KINDS

KILLED = 3
REQUESTS = "kafka_network_requestmetrics_"
# The requests that the script alone sends, and their versions; others come from brokers, or again until something is
# there. Barnabas itself sends ListOffsets, for the lags of groups.
SCRIPTED = {
    "Produce": script.PRODUCE,
    "FetchConsumer": script.FETCH,
    "ListOffsets": script.LIST_OFFSETS,
    "CreateTopics": script.CREATE,
}
STATES = (
    "kafka_cluster_partition_",
    "kafka_server_replicamanager_",
    "kafka_controller_kafkacontroller_",
    "kafka_coordinator_group_groupmetadatamanager_numoffsets",
    "kafka_log_logmanager_offline",
)
WITH_ERRORS = {"Produce", "CreateTopics"}
OF_SUMMARIES = "_count"


class Pair(NamedTuple):
    """The sums over the brokers of each kind."""

    kafka: Scrape
    ours: Scrape


class Scrapes(NamedTuple):
    whole: Pair
    killed: Pair  # after the death of one broker


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory) -> Scrapes:
    seen = {}
    for kind in KINDS:
        with MeteredCluster(
            kind, tmp_path_factory.mktemp(kind), tick_ms=1000, zookeeper_session_timeout_ms=6000
        ) as cluster:
            script.run(cluster)
            whole = settled(cluster, [1, 2, 3])
            cluster.kill(KILLED)
            seen[kind] = whole, settled(cluster, [1, 2])
    return Scrapes(*(Pair(seen["kafka"][when], seen["barnabas"][when]) for when in (0, 1)))


def settled(cluster: MeteredCluster, brokers: list[int]) -> Scrape:
    """The sums, as soon as each partition has a leader and as many replicas in sync as there are brokers."""

    def is_settled(scrape: Scrape) -> bool:
        sizes = values_of(scrape, "kafka_cluster_partition_insyncreplicascount")
        offline = values_of(scrape, "kafka_controller_kafkacontroller_offlinepartitionscount")
        active = values_of(scrape, "kafka_controller_kafkacontroller_activecontrollercount")
        wanted = {float(len(brokers))}
        return set(sizes.values()) == wanted and set(offline.values()) == {0.0} and set(active.values()) == {1.0}

    return eventually(lambda: total([cluster.scrape(each) for each in brokers]), is_settled)


def values_of(scrape: Scrape, name: str) -> dict[Labels, float]:
    return {labels: value for (each, labels), value in scrape.samples.items() if each == name}


def errors_of(scrape: Scrape, requests: set[str]) -> dict[Labels, float]:
    found = values_of(scrape, f"{REQUESTS}errors_total")
    return {labels: value for labels, value in found.items() if dict(labels)["request"] in requests}


def family(name: str, types: Mapping[str, str]) -> str:
    """The type of a sample's family, by the name of the sample."""
    return types.get(name) or types.get(name + "_total") or types[name.rpartition("_")[0]]


def test_a_name_that_both_have_has_the_same_labels(scrapes):
    kafka, ours = (each.label_sets() for each in scrapes.whole)
    different = [
        f"{name} {{{','.join(sorted(labels))}}}"
        for name in kafka.keys() & ours.keys()
        for labels in kafka[name] ^ ours[name]
    ]
    compared(different, LABELS)


def test_a_name_that_both_have_has_the_same_type(scrapes):
    kafka, ours = scrapes.whole
    common = common_names(scrapes.whole)
    pairs = {name: (family(name, kafka.types), family(name, ours.types)) for name in common}
    # A count of a summary is a counter by itself.
    different = [
        f"{name}: {theirs}, {own}"
        for name, (theirs, own) in pairs.items()
        if theirs != own and not (name.endswith(OF_SUMMARIES) and (theirs, own) == ("counter", "summary"))
    ]
    compared(different, TYPES)


def test_every_name_of_one_alone_is_known(scrapes):
    kafka, ours = ({name for name, _ in each.samples} for each in scrapes.whole)
    compared(kafka - ours, NOT_OURS)
    of_mbeans = tuple(metric.name for metric in METRICS if metric.mbean.startswith("kafka."))
    compared((name for name in ours - kafka if name.startswith(of_mbeans)), LATER, NOT_KAFKAS)


def different_values(pair: Pair, names: set[str]) -> list[str]:
    """The samples of these names that differ, with both values: Kafka's and ours."""
    kafka, ours = (each.samples for each in pair)
    # What was never counted is 0, or not there.
    return [
        f"{name}{labels_of(**dict(sorted(labels)))}: {theirs:g}, {own:g}"
        for name, labels in kafka.keys() | ours.keys()
        if name in names and (theirs := kafka.get((name, labels), 0.0)) != (own := ours.get((name, labels), 0.0))
    ]


def common_names(pair: Pair) -> set[str]:
    kafka, ours = ({name for name, _ in each.samples} for each in pair)
    return kafka & ours


def compared_names(pair: Pair) -> set[str]:
    skipped = [re.compile(pattern) for pattern, _ in NOT_COMPARED]
    return {
        name
        for name in common_names(pair)
        if name.startswith("kafka_") and not any(each.fullmatch(name) for each in skipped)
    }


def test_counters_and_gauges_of_state_are_equal(scrapes):
    names = {name for name in compared_names(scrapes.whole) if not name.startswith(REQUESTS)}
    assert len(names) > 50
    compared(different_values(scrapes.whole, names), VALUES)


def test_gauges_of_state_are_equal_after_the_death_of_a_broker(scrapes):
    names = {name for name in compared_names(scrapes.killed) if name.startswith(STATES)}
    assert len(names) > 20
    assert different_values(scrapes.killed, names) == []
    key = "kafka_server_replicamanager_underreplicatedpartitions", frozenset()
    assert scrapes.killed.ours.samples[key] >= 5


def test_requests_and_their_errors_are_counted_alike(scrapes):
    for request, version in SCRIPTED.items():
        key = f"{REQUESTS}requests_total", frozenset({("request", request), ("version", str(version))})
        kafka, ours = (each.samples[key] for each in scrapes.whole)
        assert ours == kafka >= 1, request
    kafka, ours = (errors_of(each, WITH_ERRORS) for each in scrapes.whole)
    assert ours == kafka
    assert len(ours) > 6


def test_what_is_not_compared_is_there(scrapes):
    compared(common_names(scrapes.whole), [(".*", "")], NOT_COMPARED)
