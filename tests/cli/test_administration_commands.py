"""`brokers`, `acls`, `quotas`, `elect` and `move`, from outside, against clusters of three."""

import json
import time

import pytest

from barnabas.testing import LocalBroker, LocalCluster
from barnabas.testing.looking.live import wait_until
from barnabas.wire.errors import ErrorCode
from tests.cli.running import Commands

AUTHORIZED = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(3, topics={"orders": (3, 3)}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def run(cluster, tmp_path_factory):
    return Commands(cluster, tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def run_authorized(tmp_path_factory):
    with LocalBroker(config=AUTHORIZED) as broker:
        yield Commands(broker, tmp_path_factory.mktemp("authorized"))


# -- brokers


def test_brokers_are_listed_and_one_of_them_controls(run):
    rows = run.rows("brokers", "ls")
    assert [row["broker"] for row in rows] == [1, 2, 3]
    assert [row["controller"] for row in rows].count(True) == 1
    assert run.lines("brokers", "ls")[0].split() == ["BROKER", "HOST", "PORT", "RACK", "CONTROLLER"]


def test_a_broker_is_shown_with_its_disks_properties_and_apis(run):
    run("produce", "orders", given=b"x" * 5000)
    (shown,) = run.rows("brokers", "show", "2")
    (directory,) = shown["log_dirs"]
    assert directory["replicas"] >= 3
    assert directory["bytes"] >= 5000
    assert {"key": 3, "api": "Metadata", "min": 0, "max": 12} in shown["apis"]
    (row,) = [row for row in shown["properties"] if row["property"] == "default.replication.factor"]
    assert (row["value"], row["source"], row["default"]) == ("3", "file", False)
    readable = run("brokers", "show", "2").stdout.decode()
    assert "default.replication.factor" in readable
    assert "background.threads" not in readable
    assert "background.threads" in run("brokers", "show", "2", "--all").stdout.decode()
    assert "Metadata" in run("brokers", "show", "2", "--apis").stdout.decode()


def test_a_broker_that_is_not_up_is_named_with_those_that_are(run):
    ended = run("brokers", "show", "9", status=1)
    assert ended.stderr == b"barnabas: broker 9 is not up; those that are: 1, 2, 3\n"


# -- ACLs


def results_of(rows, result):
    return [{**row, "result": result} for row in rows]


def results(ended):
    return [json.loads(line)["result"] for line in ended.stdout.splitlines()]


def test_acls_are_added_listed_and_deleted(run_authorized):
    run = run_authorized
    added = run.rows("acls", "add", "--allow", "User:K.", "--topic", "letters", "--operation", "describe,READ")
    assert added == results_of(run.rows("acls", "ls", "--topic", "letters"), "added")
    assert [(row["principal"], row["operation"], row["permission"]) for row in added] == [
        ("User:K.", "Describe", "Allow"),
        ("User:K.", "Read", "Allow"),
    ]
    run("acls", "add", "--deny", "User:Klamm", "--topic", "let", "--prefixed", "--host", "10.0.0.1")
    concerned = run.rows("acls", "ls", "--topic", "letters", "--principal", "User:Klamm")
    assert [(row["pattern"], row["host"], row["operation"]) for row in concerned] == [("Prefixed", "10.0.0.1", "All")]
    planned = run.rows("acls", "delete", "--topic", "letters", "--dry-run")
    assert planned == results_of(added, "would be deleted")
    assert run.rows("acls", "delete", "--topic", "letters", "--yes") == results_of(added, "deleted")
    assert run.rows("acls", "ls", "--topic", "letters") == concerned


def test_a_producer_and_a_consumer_get_what_they_need(run_authorized):
    run = run_authorized
    run("acls", "add", "--allow", "User:p", "--topic", "t", "--transactional-id", "x", "--producer")
    run("acls", "add", "--allow", "User:c", "--topic", "t", "--group", "g", "--consumer")
    found = {(row["principal"], row["resource"], row["operation"]) for row in run.rows("acls", "ls")}
    of_p = {("Topic", "Write"), ("Topic", "Describe"), ("Topic", "Create")} | {
        ("TransactionalId", "Write"),
        ("TransactionalId", "Describe"),
    }
    assert {row[1:] for row in found if row[0] == "User:p"} == of_p
    of_c = {("Topic", "Read"), ("Topic", "Describe"), ("Group", "Read")}
    assert {row[1:] for row in found if row[0] == "User:c"} == of_c


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("ls",), 1, "SECURITY_DISABLED"),
        (("add", "--allow", "alice", "--topic", "t"), 2, "'alice' has no type: say User:alice"),
        (("add", "--allow", "User:a"), 2, "what is it about?"),
        (("add", "--topic", "t"), 2, "who is it about?"),
        (("add", "--allow", "User:a", "--topic", "t", "--operation", "reed"), 2, "'reed' is none of all, read"),
        (("add", "--allow", "User:a", "--cluster", "--consumer"), 2, "a consumer needs nothing of a Cluster"),
        (("delete",), 2, "which ones?"),
    ],
)
def test_a_mistake_about_acls_is_said(run, arguments, status, said):
    ended = run("acls", *arguments, status=status)
    assert said in ended.stderr.decode()
    assert ended.stdout == b""


def test_an_acl_that_is_not_there_cannot_be_deleted(run_authorized):
    ended = run_authorized("acls", "delete", "--topic", "nothing", "--yes", status=1)
    assert ended.stderr == b"barnabas: there is no such ACL; `acls ls` lists those that there are\n"


def test_an_acl_that_was_deleted_before_the_answer_was_lost_is_shown(run_authorized):
    added = run_authorized.rows("acls", "add", "--allow", "User:Gone", "--topic", "gone")
    with run_authorized.broker.faults.drop("DeleteAcls", "after", times=1):
        gone = run_authorized.rows("acls", "delete", "--topic", "gone", "--yes")
    assert gone == results_of(added, "deleted")
    assert run_authorized.rows("acls", "ls", "--topic", "gone") == []


def test_an_acl_that_is_refused_does_not_hide_the_others(run_authorized):
    arguments = ("acls", "add", "--allow", "User:Half", "--group", "half", "--group", "", "--json")
    ended = run_authorized(*arguments, status=1)
    assert results(ended) == ["added", "failed"]
    assert ended.stderr.startswith(b"barnabas: the ACL of User:Half for Group '': ")
    run_authorized("acls", "delete", "--group", "half", "--yes")


def test_what_a_yes_is_wanted_for_is_shown_beside_the_rows_for_programs(run_authorized):
    run_authorized("acls", "add", "--allow", "User:Kept", "--topic", "kept")
    ended = run_authorized("acls", "delete", "--topic", "kept", "--json", status=2)
    assert ended.stdout == b""
    assert b"User:Kept" in ended.stderr
    run_authorized("acls", "delete", "--topic", "kept", "--yes")


# -- quotas


def test_quotas_are_set_listed_and_deleted(run):
    run("quotas", "set", "--user", "K.", "--client-id", "app", "producer_byte_rate=1024", "request_percentage=50.5")
    run("quotas", "set", "--user-defaults", "producer_byte_rate=2048")
    run("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    rows = [(row["user"], row["client_id"], row["ip"], row["quota"], row["value"]) for row in run.rows("quotas", "ls")]
    assert sorted(rows, key=str) == [
        ("K.", "app", None, "producer_byte_rate", 1024.0),
        ("K.", "app", None, "request_percentage", 50.5),
        (None, None, "10.0.0.1", "connection_creation_rate", 5.0),
        (None, None, None, "producer_byte_rate", 2048.0),
    ]
    assert ["<default>", "-", "-", "producer_byte_rate", "2048"] in map(str.split, run.lines("quotas", "ls"))
    run("quotas", "set", "--user", "K.", "--client-id", "app", "producer_byte_rate=")
    entity = ("--user", "K.", "--client-id", "app")
    assert [row["quota"] for row in run.rows("quotas", "ls", *entity)] == ["request_percentage"]
    assert run("quotas", "delete", *entity, status=2).stderr.startswith(b"barnabas: this would remove request_perc")
    assert run.rows("quotas", "delete", *entity, "--dry-run")[0]["result"] == "would be deleted"
    run("quotas", "delete", *entity, "--yes")
    assert run.rows("quotas", "ls", *entity) == []
    run("quotas", "delete", "--user-defaults", "producer_byte_rate", "--yes")
    run("quotas", "delete", "--ip", "10.0.0.1", "--yes")
    assert run.rows("quotas", "ls") == []


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("set", "producer_byte_rate=1"), 2, "whose quotas?"),
        (("set", "--user", "a", "--user-defaults", "producer_byte_rate=1"), 2, "are two entities"),
        (("set", "--user", "a", "producer_byte_rate=much"), 2, "producer_byte_rate: 'much' is no number"),
        (("set", "--user", "a", "producer_byte_rate=nan"), 2, "producer_byte_rate: 'nan' is no rate"),
        (("set", "--user", "a", "request_percentage=-inf"), 2, "request_percentage: '-inf' is no rate"),
        (("set", "--ip", "10.0.0.9", "producer_byte_rate=1"), 1, "producer_byte_rate"),
        (("delete", "--user", "stranger", "--yes"), 1, "user stranger has no quota"),
    ],
)
def test_a_mistake_about_quotas_is_said(run, arguments, status, said):
    ended = run("quotas", *arguments, status=status)
    assert said in ended.stderr.decode()
    assert ended.stdout == b""


# -- leaders and replicas


def test_the_preferred_leader_is_elected_after_another_one(run, cluster):
    preferred = run.rows("topics", "show", "orders")[0]["partitions"][0]["replicas"][0]
    cluster.kill(preferred)
    other = cluster.leader("orders", 0)
    cluster.restart(preferred)
    cluster.wait_for(isr={("orders", index): {1, 2, 3} for index in range(3)})
    (planned,) = run.rows("elect", "orders", "-p", "0", "--dry-run")
    assert (planned["before"], planned["leader"], planned["result"]) == (other, preferred, "would be elected")
    (elected,) = run.rows("elect", "orders")
    assert (elected["partition"], elected["leader"], elected["result"]) == (0, preferred, "elected")
    assert cluster.leader("orders", 0) == preferred
    run("elect", "--all")
    assert run.rows("elect", "--all") == []


def leader_of(run, topic):
    return run.rows("topics", "show", topic)[0]["partitions"][0]["leader"]


def test_an_election_that_may_lose_records_wants_a_yes(run, cluster):
    run("topics", "create", "single", "--partitions", "1", "--replicas", "1")
    (owner,) = run.rows("topics", "show", "single")[0]["partitions"][0]["replicas"]
    cluster.kill(owner)
    try:
        wait_until(lambda: leader_of(run, "single") is None, 30, "it has a leader")
        ended = run("elect", "single", "--unclean", status=2)
        assert b"this would elect leaders that may lack acknowledged records" in ended.stderr
        ended = run("elect", "single", "--unclean", "--yes", status=1)
        assert b"partition single-0: ELIGIBLE_LEADERS_NOT_AVAILABLE" in ended.stderr
    finally:
        cluster.recover()


def replicas_of(run, topic):
    return [row["replicas"] for row in run.rows("topics", "show", topic)[0]["partitions"]]


def test_partitions_are_moved_to_brokers_and_away_from_one(run):
    run("topics", "create", "moved", "--partitions", "3", "--replicas", "1")
    run("produce", "moved", "-K", ":", given=b"".join(b"%d:value\n" % n for n in range(100)))
    planned = run.rows("move", "moved", "--to", "1,2", "--dry-run")
    assert [row["after"] for row in planned] == [[1, 2], [2, 1], [1, 2]]
    run("move", "moved", "--to", "1,2", "--yes", "--wait")
    assert replicas_of(run, "moved") == [[1, 2], [2, 1], [1, 2]]
    run("move", "moved", "--away-from", "1", "--yes", "--wait")
    assert replicas_of(run, "moved") == [[3, 2], [2, 3], [3, 2]]
    assert run("move", "moved", "--away-from", "1", "--verify").stderr == b"barnabas: everything is moved\n"
    run("move", "moved", "--to", "1,3", "--yes")
    assert run("move", "moved", "--verify", "--wait").stderr == b"barnabas: everything is moved\n"
    assert run("move", "moved", "-p", "0", "--to", "1,2", "--verify", status=1).stdout.split()[-1] == b"elsewhere"
    assert len(run.rows("consume", "moved")) == 100


def test_a_throttled_move_is_watched_cancelled_and_unthrottled(run, cluster):
    run("topics", "create", "heavy", "--partitions", "1", "--replicas", "1")
    (owner,) = replicas_of(run, "heavy")[0]
    other = next(broker for broker in (1, 2, 3) if broker != owner)
    run("produce", "heavy", given=b"x" * 100_000 + b"\n" + (b"y" * 100_000 + b"\n") * 40)
    begun = run("move", "heavy", "--to", str(other), "--throttle", "1000", "--yes")
    assert b"the throttle stays until" in begun.stderr
    (row,) = run.rows("move")
    assert (row["topic"], row["adding"], row["removing"]) == ("heavy", [other], [owner])
    assert 0 < row["bytes_left"] <= row["bytes"]
    ended = run("move", "heavy", "--cancel", "--json", status=2)
    assert (ended.stdout, ended.stderr.count(b"heavy")) == (b"", 1)
    assert run.rows("move", "heavy", "--verify", status=1)[0]["state"] == "moving"
    assert "throttled" in str(run.rows("topics", "show", "heavy")[0]["properties"])
    with cluster.faults.drop("AlterPartitionReassignments", "after", times=1):
        run("move", "heavy", "--cancel", "--yes")
    assert replicas_of(run, "heavy") == [[owner]]
    run("move", "--verify", "--dry-run")
    assert "throttled" in str(run.rows("topics", "show", "heavy")[0]["properties"])
    run("move", "--verify")
    assert run.rows("topics", "show", "heavy")[0]["properties"] == {}
    rates = [row for row in run.rows("brokers", "show", str(owner))[0]["properties"] if "throttled.rate" in str(row)]
    assert all(row["default"] for row in rates)


def test_a_move_that_is_refused_is_seen_beside_those_that_begin(run, cluster):
    run("topics", "create", "half", "--partitions", "2", "--replicas", "1")

    def refuse(_call, _request, response):
        (topic,) = response.responses
        topic.partitions[1].error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return response

    with cluster.faults.answer("AlterPartitionReassignments", refuse):
        ended = run("move", "half", "--to", "1,2", "--yes", "--json", status=1)
    assert results(ended) == ["moving", "failed"]
    assert b"partition half-1: INVALID_REPLICA_ASSIGNMENT" in ended.stderr
    assert run("move", "half", "--to", "2,3", "--json", status=2).stdout == b""
    assert [row["result"] for row in run.rows("move", "half", "--to", "2,3", "--dry-run")] == ["would be moved"] * 2


def test_a_move_is_awaited_while_the_controller_is_away(run, cluster):
    run("topics", "create", "patient", "--partitions", "1", "--replicas", "1")
    (owner,) = replicas_of(run, "patient")[0]
    other = next(broker for broker in (1, 2, 3) if broker != owner)
    with cluster.faults.drop("ListPartitionReassignments", "before", nth=2, times=6) as away:
        run("move", "patient", "--to", str(other), "--throttle", "1", "--wait", "--timeout", "1", "--yes")
        away.wait(6)
    assert run.rows("topics", "show", "patient")[0]["properties"] == {}
    with cluster.faults.fail("ListPartitionReassignments", "CLUSTER_AUTHORIZATION_FAILED", nth=2):
        arguments = ("move", "patient", "--to", str(owner), "--throttle", "1000", "--wait", "--yes")
        assert b"the throttle stays until" in run(*arguments, status=1).stderr
    run("move", "--verify", "--wait")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("move", "--throttle", "5"), 2, "--throttle has no effect on the list"),
        (("move", "orders", "--wait"), 2, "--wait has no effect on the list"),
        (("move", "orders", "--dry-run"), 2, "--dry-run has no effect on the list"),
        (("move", "orders", "--cancel", "--wait"), 2, "--wait has no effect on --cancel"),
        (("move", "orders", "--verify", "--throttle", "5"), 2, "--throttle has no effect on --verify"),
        (("move", "ordrs"), 1, "the nearest name is 'orders'"),
        (("move", "ordrs", "--cancel", "--yes"), 1, "the nearest name is 'orders'"),
        (("move", "ordrs", "--verify"), 1, "the nearest name is 'orders'"),
        (("move", "orders", "-p", "7"), 1, "there is no partition orders-7"),
        (("move", "orders", "--to", "\N{SUPERSCRIPT TWO}"), 2, "is no list of brokers"),
        (("move", "--to", "1"), 2, "--to is for topics: name them"),
        (("move", "orders", "--to", "1", "--away-from", "2"), 2, "exclude each other"),
        (("move", "orders", "--to", "1,one"), 2, "'1,one' is no list of brokers"),
        (("move", "orders", "--to", "1,1"), 2, "names a broker twice"),
        (("move", "orders", "--to", "9", "--yes"), 1, "broker 9 is not up; those that are: 1, 2, 3"),
        (("move", "orders", "-p", "7", "--to", "1", "--yes"), 1, "there is no partition orders-7"),
        (("move", "ordrs", "--to", "1", "--yes"), 1, "the nearest name is 'orders'"),
        (("move", "orders", "--away-from", "3", "--yes"), 1, "every broker that stays has a replica already"),
        (("move", "orders", "--to", "1,2"), 2, "this would move these 3 partitions"),
        (("elect",), 2, "of which topics?"),
        (("elect", "orders", "-p", "7"), 1, "no partition 7"),
        (("elect", "a", "b", "-p", "0"), 2, "--partition is for one topic"),
    ],
)
def test_a_mistake_about_leaders_and_replicas_is_said(run, arguments, status, said):
    assert said in run(*arguments, status=status).stderr.decode()


def test_a_topic_without_a_leader_is_shown_at_once(run, cluster):
    run("topics", "create", "away", "--partitions", "1", "--replicas", "1")
    owner = leader_of(run, "away")
    run("groups", "reset", "awayers", "--topic", "away", "--to", "earliest", "--yes")
    cluster.kill(owner)
    try:
        wait_until(lambda: leader_of(run, "away") is None, 30, "it has a leader")
        began = time.monotonic()
        assert run.rows("topics", "show", "away")[0]["partitions"][0]["end"] is None
        assert time.monotonic() - began < 15, "it waits for a leader until its timeout of 30 s"
        (row,) = run.rows("groups", "show", "awayers")
        assert (row["committed"], row["end"], row["lag"]) == (0, None, None)
    finally:
        cluster.recover()
