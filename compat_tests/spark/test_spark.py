"""Spark's scripts against one broker and against three, beside what is recorded of them with Apache Kafka.

Brokers are started once for all scripts that were chosen: `-k batch` runs those, `-k "barnabas-3"` those with three.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.spark import report
from compat_tests.spark.environment import connector_jars, spark_python
from compat_tests.spark.run import Outcome, run_site
from compat_tests.spark.sites import SITES

OURS = [site for site in SITES.values() if not site.kafka]
LONG = "barnabas"  # of one broker: three of them have all scripts
EVERY = [
    pytest.param(site.name, script, marks=[pytest.mark.long] * (site.name == LONG))
    for site in OURS
    for script in site.scripts
]


@pytest.fixture(scope="module")
def outcomes_of(request):
    """The outcomes of the scripts that were chosen, by kind of broker. Both kinds run at once: Spark often waits."""
    spark_python()
    connector_jars()
    chosen = [item.callspec.params for item in request.session.items if "outcomes_of" in item.fixturenames]
    with ThreadPoolExecutor() as threads:
        running = {
            site.name: threads.submit(run_site, site, wanted)
            for site in OURS
            if (wanted := [script for script in site.scripts if is_chosen(site, script, chosen)])
        }
        yield lambda site: running[site].result()


@pytest.fixture(scope="module")
def seen_with_kafka():
    """By script; `make spark ARGS=--record` has written it."""
    return json.loads(report.SEEN_WITH_KAFKA.read_text())


def is_chosen(site, script, chosen):
    """Whether a test asks for this script with this kind of broker."""
    return {"site": site.name, "script": script} in chosen


@pytest.mark.parametrize(("site", "script"), EVERY)
def test_spark_finds_what_it_expects(site, script, outcomes_of):
    assert outcomes_of(site)[script].error is None


@pytest.mark.parametrize(("site", "script"), EVERY)
def test_spark_sees_what_it_sees_with_kafka(site, script, outcomes_of, seen_with_kafka):
    assert report.differences(script, {site: outcomes_of(site)}, seen_with_kafka) == []


def test_the_connector_is_four_jars():
    spark_python()
    names = [jar.name.rsplit("-", 1)[0] for jar in connector_jars()]
    assert names == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    ]


def test_every_script_is_kept_with_its_times_and_what_it_saw_with_kafka(seen_with_kafka):
    kept = json.loads(report.RESULT.read_text())
    assert kept["complaints"] == []
    every = {(site.name, script) for site in SITES.values() for script in site.scripts}
    assert {(site, script) for script, times in kept["scripts"].items() for site in times} == every
    assert seen_with_kafka.keys() == kept["scripts"].keys()
    assert kept["pyspark"] == report.pinned("pyspark")


# -- the judge


def found(**results):
    """Outcomes of one script: by kind of broker, - for _."""
    return {site.replace("_", "-"): {"reads": Outcome("reads", 2.0, 1.0, result)} for site, result in results.items()}


def test_results_that_agree_are_no_cause_for_complaint():
    assert report.complaints(found(barnabas=[1], kafka=[1], barnabas_3=[1])) == []


def test_apache_kafka_is_right_where_results_differ():
    assert report.complaints(found(barnabas=[1], kafka=[2], kafka_3=[2])) == [
        "reads differs: [1] with barnabas, [2] with kafka"
    ]


def test_a_recorded_kafka_is_right_where_none_runs():
    ours = {"barnabas": {"reads": Outcome("reads", 2.0, 1.0, [2])}}
    assert report.differences("reads", ours, {"reads": [2]}) == []
    assert report.differences("reads", ours, {"reads": [1]}) == [
        "reads differs: [2] with barnabas, [1] with a recorded Kafka"
    ]


def test_a_script_that_fails_is_named_and_not_compared():
    outcomes = {**found(kafka=[2]), "barnabas": {"reads": Outcome("reads", error="broken")}}
    assert report.complaints(outcomes) == ["reads fails on barnabas: broken"]


def test_times_stand_side_by_side_and_are_medians():
    rounds = [{"kafka": {"reads": Outcome("reads", seconds, 0.5)}} for seconds in (9.0, 1.0, 2.0)]
    kept = report.summary(rounds)
    assert kept["scripts"]["reads"]["kafka"] == {"seconds": 2.0, "broker_cpu_seconds": 0.5}
    assert report.table_text(kept).splitlines()[1:] == ["reads     2.0 (0.5)", "together  2.0 (0.5)"]
