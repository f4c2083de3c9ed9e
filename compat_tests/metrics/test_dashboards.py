"""Debian's Prometheus scrapes three brokers under load each second; the dashboards' expressions find their series."""

from collections.abc import Iterator

import pytest

from compat_tests.metrics.brokers import MeteredCluster
from compat_tests.metrics.dashboards import DASHBOARDS
from compat_tests.metrics.load import Load
from compat_tests.metrics.prometheus import Prometheus

EXPRESSIONS_MIN = 100
SCRAPES = 20
TOPIC = "letters"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("dashboards")
    # Each broker flushes now and then, so that there are times of flushes.
    with (
        MeteredCluster("barnabas", directory, num_partitions=6, log_flush_interval_messages=50) as cluster,
        Prometheus(directory / "prometheus", cluster.metrics_ports.values()) as started,
        Load({"bootstrap.servers": cluster.bootstrap}, TOPIC) as load,
    ):
        started.wait_until(lambda: load.consumed > 100 and started.scrapes() >= SCRAPES, 120)
        yield started


def test_there_are_enough_expressions_and_none_twice():
    found = [each for expressions in DASHBOARDS.values() for each in expressions]
    assert len(set(found)) >= EXPRESSIONS_MIN
    assert len(set(found)) >= len(found) - 1


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_every_expression_of_a_dashboard_has_samples(prometheus, dashboard):
    empty = [each for each in DASHBOARDS[dashboard] if not prometheus.query(each)]
    assert empty == []


def test_an_expression_that_is_wrong_or_finds_nothing_is_seen(prometheus):
    assert prometheus.query("kafka_of_another_castle") == []
    with pytest.raises(AssertionError, match="parse error"):
        prometheus.query("sum(")


def test_no_scrape_fails_or_takes_longer_than_a_second(prometheus):
    assert [value for _, value in prometheus.query("min_over_time(up[1h])")] == [1.0] * 3
    assert all(value < 1.0 for _, value in prometheus.query("max_over_time(scrape_duration_seconds[1h])"))
    assert prometheus.said() == ""


def test_the_counts_add_up_over_the_brokers(prometheus):
    rate = f'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{{topic="{TOPIC}"}}[10s]))'
    offsets = f'sum(rate(kafka_topic_partition_current_offset{{topic="{TOPIC}"}}[10s]))'
    ((_, in_rate),) = prometheus.query(rate)
    ((_, offset_rate),) = prometheus.query(offsets)
    assert in_rate == pytest.approx(offset_rate, rel=0.2)
    assert in_rate > 10
