"""Third-party clients: the quick ones without a pytest suite of their own, and the evaluation of results."""

import json

import pytest

from barnabas.testing import LocalCluster
from compat_tests.clients import report, secured
from compat_tests.clients.client import (
    FAILED,
    PASSED,
    SKIPPED,
    WORK,
    Client,
    ClientBroken,
    Outcome,
    Session,
    client_names,
    folder_of,
    load_client,
)
from compat_tests.clients.confluent_kafka import runner as confluent_kafka
from compat_tests.clients.java import runner as java
from compat_tests.clients.kafkajs import runner as kafkajs
from compat_tests.clients.parsing import go_outcomes, junit_outcomes, rust_outcomes
from compat_tests.clients.verdict import Allowed, Result, Setup, judge, read_allowed
from compat_tests.small_cluster import SmallCluster
from compat_tests.tools import give_up, require_tool

CLIENT = Client("a-client", "1.0", "Prose", "nothing", run=lambda _: [])


@pytest.fixture
def run_client(shared_broker):
    """Run a client's tests, or some of them; what is wrong with their outcomes."""

    def run(client, of=None):
        require_tool(*client.tools)
        session = Session(folder_of(client.name), WORK / f"{client.name}-quick", shared_broker.bootstrap)
        try:
            outcomes = (of or client.run)(session)
        except ClientBroken as broken:
            give_up(f"{client.name} cannot be fetched here: {broken}")
        return judge(client, outcomes, read_allowed(session.folder), complete=of is None).complaints

    return run


def test_kafkajs_does_everything(run_client):
    assert run_client(kafkajs.CLIENT) == []


def test_the_java_client_of_kafka_4_does_everything(run_client):
    assert run_client(java.CLIENT, of=lambda session: java.run_scenarios(session, ["4.1"])) == []


def test_confluent_kafka_does_much_with_three_brokers(tmp_path):
    only = "acknowledgement or idempotent or group or commit or topics or cluster or reassign"
    with SmallCluster("barnabas", tmp_path) as cluster:
        work = WORK / "confluent-kafka-cluster"
        session = Session(folder_of("confluent-kafka"), work, cluster.bootstrap, only, brokers=3)
        outcomes = confluent_kafka.CLIENT.run(session)
    allowed = read_allowed(session.folder, Setup.CLUSTER)
    assert judge(confluent_kafka.CLIENT, outcomes, allowed, complete=False).complaints == []


@pytest.mark.long
def test_confluent_kafka_does_everything_with_a_local_cluster():
    with LocalCluster(3) as cluster:
        work = WORK / "confluent-kafka-local-cluster"
        session = Session(folder_of("confluent-kafka"), work, cluster.bootstrap_servers, brokers=3)
        outcomes = confluent_kafka.CLIENT.run(session)
    allowed = read_allowed(session.folder, Setup.CLUSTER)
    assert judge(confluent_kafka.CLIENT, outcomes, allowed, complete=True).complaints == []


@pytest.mark.parametrize("client", [kafkajs.CLIENT, java.CLIENT], ids=lambda client: client.name)
def test_clients_log_in_over_tls(run_client, client):
    def some(session):
        return secured.run(client, session, secured.chosen("SASL_SSL SCRAM-SHA-512"), records=1000)

    assert run_client(client, of=some) == []


@pytest.mark.parametrize("name", client_names())
def test_every_listed_test_has_its_reason(name):
    allowed = [read_allowed(folder_of(name), setup) for setup in Setup]
    findings = (folder_of(name) / "FINDINGS.md").read_text().replace("\n  ", " ")
    listed = [test for each in allowed for test in each.never | each.sometimes]
    assert [test for test in listed if f"`{test}`" not in findings] == []


@pytest.mark.parametrize("setup", Setup)
@pytest.mark.parametrize("name", client_names())
def test_a_recorded_result_agrees_with_the_allow_list(name, setup):
    client = load_client(name)
    if {Setup.SECURED: client.secured, Setup.SECURED_SUITE: client.secured_suite}.get(setup, client) is None:
        return
    result = Result.read(folder_of(name) / setup.result_name)
    allowed = read_allowed(folder_of(name), setup)
    assert result.failed == []
    assert allowed.never <= set(result.listed) <= allowed.never | allowed.sometimes
    assert result.passed > 0


def test_the_page_of_results_is_what_the_results_say():
    assert report.PAGE.read_text() == report.page(), "run python -m compat_tests.clients --report"


# -- the judge


def complaints(outcomes, never=(), sometimes=(), complete=True):
    allowed = Allowed(frozenset(never), frozenset(sometimes))
    return judge(CLIENT, [Outcome(*outcome) for outcome in outcomes], allowed, complete).complaints


def test_a_failure_must_be_listed():
    outcomes = [("good", PASSED), ("bad", FAILED), ("left out", SKIPPED)]
    assert complaints(outcomes) == ["failed: bad"]
    assert complaints(outcomes, never=["bad"]) == []
    assert complaints(outcomes, sometimes=["bad"]) == []


def test_what_is_listed_must_fail():
    assert complaints([("good", PASSED)], never=["good"]) == ["passes, and is on the allow-list: good"]
    assert complaints([("good", PASSED)], sometimes=["good"]) == []


def test_what_is_listed_must_run():
    assert complaints([("good", PASSED)], never=["gone"]) == ["is on the allow-list and did not run: gone"]
    assert complaints([("good", PASSED)], never=["gone"], complete=False) == []


def test_a_run_without_a_pass_is_no_success():
    assert complaints([("left out", SKIPPED)]) == ["no test passed"]
    assert complaints([]) == ["no test passed"]


def test_an_allow_list_has_comments_and_moods(tmp_path):
    (tmp_path / "allowed.txt").write_text("# why\n\nalways bad\nsometimes now and then\n")
    assert read_allowed(tmp_path) == Allowed(frozenset({"always bad"}), frozenset({"now and then"}))


# -- what test programs print


def test_a_go_test_that_never_ended_has_failed():
    events = [
        {"Action": "run", "Test": "TestA"},
        {"Action": "run", "Test": "TestB"},
        {"Action": "run", "Test": "TestB/sub"},
        {"Action": "pass", "Test": "TestA"},
        {"Action": "skip", "Test": "TestB/sub"},
        {"Action": "fail", "Package": "p"},
    ]
    printed = "\n".join(["go: downloading", *map(json.dumps, events), "panic: test timed out"])
    assert go_outcomes(printed) == [("TestA", PASSED), ("TestB", FAILED), ("TestB/sub", SKIPPED)]


def test_a_rust_test_that_was_never_reported_has_failed():
    listed = "one: test\ntwo: test\nthree: test\nfour: test\n\n4 tests, 0 benchmarks\n"
    printed = "running 4 tests\ntest one ... ok\ntest two ... FAILED\ntest three ... ignored\n*** assert ***\n"
    statuses = [PASSED, FAILED, SKIPPED, FAILED]
    names = ["t::one", "t::two", "t::three", "t::four"]
    assert rust_outcomes("t", listed, printed) == list(zip(names, statuses, strict=True))


def test_a_junit_file_tells_of_every_kind_of_end(tmp_path):
    report_path = tmp_path / "junit.xml"
    report_path.write_text(
        '<testsuites><testsuite name="pytest">'
        '<testcase classname="a.b.test_c" name="test_one"/>'
        '<testcase classname="a.b.test_c" name="test_two"><failure/></testcase>'
        '<testcase classname="a.b.test_c" name="test_three"><skipped/></testcase>'
        '<testcase classname="a.b.test_c" name="test_one"><error/></testcase>'
        '</testsuite><testcase classname="test" name="of node\'s own"/></testsuites>'
    )
    assert junit_outcomes(report_path) == [
        ("test_c.test_one", FAILED),
        ("test_c.test_two", FAILED),
        ("test_c.test_three", SKIPPED),
        ("of node's own", PASSED),
    ]
    assert junit_outcomes(tmp_path / "never written") == []
