"""The commands for a cluster, from outside: what they print, their status, what they leave in the cluster."""

import json
import os
import signal
import subprocess
import sys

import pytest

from barnabas.testing import LocalBroker
from barnabas.wire import messages as m
from tests.cli.running import Commands


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with LocalBroker() as broker:
        yield Commands(broker, tmp_path_factory.mktemp("commands"))


def test_topics_are_created_listed_shown_changed_and_deleted(run):
    assert run.lines("topics", "create", "a", "b", "--partitions", "2", "--set", "retention.ms=5000") == [
        "a: created",
        "b: created",
    ]
    assert [(row["topic"], row["partitions"]) for row in run.rows("topics", "ls")] == [("a", 2), ("b", 2)]
    assert run.lines("topics", "ls")[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "OUT_OF_SYNC", "LEADERLESS"]
    run("topics", "set", "a", "retention.ms=", "max.message.bytes=2000")
    run("topics", "grow", "a", "--partitions", "3")
    (shown,) = run.rows("topics", "show", "a")
    assert shown["properties"] == {"max.message.bytes": "2000"}
    assert [row["end"] for row in shown["partitions"]] == [0, 0, 0]
    assert run.lines("topics", "delete", "a", "--dry-run") == ["a: would be deleted"]
    assert run.lines("topics", "delete", "a", "b", "--yes") == ["a: deleted", "b: deleted"]


def test_one_of_several_that_fails_is_status_1_and_the_others_are_done(run):
    run("topics", "create", "there")
    ended = run("topics", "create", "there", "new", status=1)
    assert ended.stdout == b"new: created\n"
    assert ended.stderr.startswith(b"barnabas: topic 'there': TOPIC_ALREADY_EXISTS: ")
    assert run.lines("topics", "create", "there", "--if-missing") == ["there: exists already"]


def test_nothing_is_deleted_without_yes_where_no_person_can_be_asked(run):
    run("topics", "create", "kept")
    ended = run("topics", "delete", "kept", status=2)
    assert ended.stderr == b"barnabas: this would delete kept with all records: say --yes, or --dry-run to see more\n"
    assert run.rows("topics", "show", "kept")


def test_lines_are_records_and_records_are_lines(run):
    run("topics", "create", "lines", "--partitions", "1")
    assert run("produce", "lines", given=b"one\ntwo\n\xff\n").stderr == b"3 records written to lines\n"
    assert run("consume", "lines").stdout == b"one\ntwo\n\xff\n"
    assert run.lines("consume", "lines", "--from", "-2", "-n", "1") == ["two"]
    assert run.lines("consume", "lines", "--from", "1", "--until", "2", "-o", r"%o:%v\n") == ["1:two"]
    run("produce", "lines", "-k", "k", "--tombstone", "-H", "why=gone")
    (row,) = run.rows("consume", "lines", "--where", "header.why=gone")
    assert (row["key"], row["value"], row["headers"]) == ("k", None, [["why", "gone"]])


def test_records_of_random_bytes_go_from_topic_to_topic_unchanged(run):
    run("topics", "create", "from", "to", "--partitions", "1")
    content = os.urandom(60_000)
    run("produce", "from", "--codec", "lz4", given=content)
    printed = run("consume", "from", "--json").stdout
    run("produce", "to", "--json", given=printed)
    assert run("consume", "to", "--json").stdout == printed.replace(b'"topic":"from"', b'"topic":"to"')


def test_a_line_that_is_no_record_is_named_and_the_status_is_1(run):
    run("topics", "create", "strict", "--partitions", "1")
    ended = run("produce", "strict", "--json", given=b'{"value": "a"}\n{"value": }\n', status=1)
    assert ended.stderr == (b"1 records written to strict\nbarnabas: line 2: no JSON: column 11: Expecting value\n")
    ended = run("produce", "strict", "-K", ":", given=b"no separator\n", status=1)
    assert ended.stderr == b"0 records written to strict\nbarnabas: line 1 has no key separator ':'\n"


def test_keys_go_where_other_clients_put_them(run):
    run("topics", "create", "keyed", "--partitions", "3")
    run("produce", "keyed", "-K", "=", given=b"".join(b"%d=v\n" % number for number in range(30)))
    placed = {row["key"]: row["partition"] for row in run.rows("consume", "keyed")}
    assert len(placed) == 30
    assert set(placed.values()) == {0, 1, 2}


def test_a_group_is_reset_shown_and_deleted(run):
    run("topics", "create", "read", "--partitions", "1")
    run("produce", "read", given=b"x\n" * 10)
    planned = run.rows("groups", "reset", "readers", "--topic", "read", "--to", "-3", "--dry-run")
    row = {"topic": "read", "partition": 0, "committed": None, "new": 7, "result": "would be set"}
    assert planned == [row]
    ended = run("groups", "reset", "readers", "--topic", "read", "--to", "-3", "--json", status=2)
    assert (ended.stdout, ended.stderr.count(b"read ")) == (b"", 1)
    run("groups", "show", "readers", status=1)
    run("groups", "reset", "readers", "--topic", "read", "--to", "-3", "--yes")
    (row,) = run.rows("groups", "show", "readers")
    assert (row["state"], row["committed"], row["end"], row["lag"]) == ("Empty", 7, 10, 3)
    assert run.rows("groups", "show", "readers", "--lag", ">3") == []
    assert run.rows("groups", "show", "readers", "--by", "topic")[0]["lag"] == 3
    assert "readers" in [row["group"] for row in run.rows("groups", "ls")]
    assert run.lines("groups", "delete", "readers", "--yes") == ["readers: deleted"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "lin3s"), "the nearest name is 'lines'"),
        (("consume", "lines", "-p", "7"), "no partition 7"),
        (("consume", "lines", "--from", "yesterday"), "'yesterday' is no place in a topic"),
        (("topics", "ls", "-b", "127.0.0.1:1", "--timeout", "0.5"), "no Kafka broker at 127.0.0.1:1"),
        (("topics", "ls", "-b", "a:b"), "'a:b' is no host:port"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_wrong(run, arguments, said):
    run("topics", "create", "lines", "--if-missing")
    ended = run(*arguments, status=1)
    assert ended.stdout == b""
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("barnabas: ")
    assert said in line


def test_a_reader_of_the_pipe_that_leaves_ends_the_command_quietly(run):
    run("topics", "create", "long", "--partitions", "1")
    run("produce", "long", given=b"y\n" * 200_000)
    command = [sys.executable, "-m", "barnabas", "consume", "long", "-b", run.broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_ctrl_c_ends_a_command_quietly(run):
    command = [sys.executable, "-m", "barnabas", "consume", "lines", "-f", "-b", run.broker.bootstrap_servers]
    run("topics", "create", "lines", "--if-missing")
    run("produce", "lines", given=b"seen\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == 130


@pytest.mark.parametrize(("security", "mechanism"), [("SASL_SSL", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "PLAIN")])
def test_a_secured_cluster_is_reached_with_the_properties_of_kafkas_tools(tmp_path, security, mechanism):
    with LocalBroker(security=security, mechanism=mechanism, topics=["secret"]) as broker:
        properties = tmp_path / "client.properties"
        config = broker.client_config("java")
        properties.write_text("".join(f"{name}={value}\n" for name, value in config.items()), encoding="latin-1")
        run = Commands(broker, tmp_path)
        run("produce", "secret", "--command-config", str(properties), given=b"letter\n")
        assert run("consume", "secret", "--command-config", str(properties)).stdout == b"letter\n"
        ended = run("topics", "ls", "--timeout", "1", status=1)
        assert b"no Kafka broker at" in ended.stderr


def test_the_results_of_changes_are_rows_of_json(run):
    ended = run("topics", "create", "one", "two", "one", "--json", status=1)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert rows == [
        {"topic": "one", "result": "created"},
        {"topic": "two", "result": "created"},
        {"topic": "one", "result": "failed"},
    ]
    assert b"topic 'one': TOPIC_ALREADY_EXISTS" in ended.stderr
    assert run.rows("topics", "grow", "one", "--partitions", "9") == [{"topic": "one", "result": "has 9 partitions"}]
    assert run.rows("topics", "set", "one", "retention.ms=1000") == [{"topic": "one", "result": "changed"}]
    assert run.rows("topics", "delete", "one", "two", "--yes") == [
        {"topic": "one", "result": "deleted"},
        {"topic": "two", "result": "deleted"},
    ]
    assert run.rows("quotas", "set", "--user", "k", "producer_byte_rate=1024", "consumer_byte_rate=") == [
        {
            "user": "k",
            "client_id": None,
            "ip": None,
            "defaults": [],
            "quota": name,
            "value": value,
            "result": "changed",
        }
        for name, value in (("producer_byte_rate", 1024.0), ("consumer_byte_rate", None))
    ]


def test_an_unknown_group_is_an_error_with_the_nearest_name(run):
    run("topics", "create", "billed", "--partitions", "1")
    run("groups", "reset", "billing", "--topic", "billed", "--to", "earliest", "--yes")
    for arguments in (("show", "biling"), ("delete", "biling", "--yes"), ("delete", "biling", "--dry-run")):
        ended = run("groups", *arguments, status=1)
        assert ended.stderr == b"barnabas: there is no group 'biling'; the nearest name is 'billing'\n"
    assert run.rows("groups", "delete", "billing", "--yes") == [{"group": "billing", "result": "deleted"}]


def test_a_mistyped_command_of_a_group_is_an_error_with_the_nearest_name(run):
    assert b"'create'" in run("topics", "creat", "t", status=2).stderr
    assert b"'topics'" in run("topic", "ls", status=2).stderr


def test_where_nothing_listens_it_is_said_once_with_the_next_step(run):
    ended = run("topics", "ls", "-b", "127.0.0.1:1", "--timeout", "0.5", status=1)
    step = "start one with `barnabas serve`, or name another with -b HOST:PORT"
    assert ended.stderr.decode() == f"barnabas: no Kafka broker at 127.0.0.1:1: connection refused: {step}\n"


def test_an_offset_that_is_refused_does_not_hide_those_that_are_set(run):
    run("topics", "create", "partly", "--partitions", "2")
    arguments = ("groups", "reset", "part", "--topic", "partly", "--to", "earliest", "--yes", "--json")
    with run.broker.faults.fail("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", topic="partly", partition=1):
        ended = run(*arguments, status=1)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["partition"], row["result"]) for row in rows] == [(0, "set"), (1, "failed")]
    assert b"partition partly-1: TOPIC_AUTHORIZATION_FAILED" in ended.stderr


# -- an answer that is lost: the request is sent again


def test_what_was_done_before_its_answer_was_lost_is_done(run):
    faults = run.broker.faults
    with faults.drop("CreateTopics", "after", times=1):
        ended = run("topics", "create", "lost", "--partitions", "2", "--set", "retention.ms=5000")
    assert ended.stdout == b"lost: created\n"
    assert b"the answer to its creation was lost; it is there, and may have been there before" in ended.stderr
    with faults.drop("CreatePartitions", "after", times=1):
        assert run.lines("topics", "grow", "lost", "--partitions", "4") == ["lost: has 4 partitions"]
    run("groups", "reset", "losers", "--topic", "lost", "--to", "earliest", "--yes")
    with faults.drop("DeleteGroups", "after", times=1):
        assert run.rows("groups", "delete", "losers", "--yes") == [{"group": "losers", "result": "deleted"}]
    with faults.drop("DeleteTopics", "after", times=1):
        assert run.rows("topics", "delete", "lost", "--yes") == [{"topic": "lost", "result": "deleted"}]


@pytest.mark.parametrize("options", [("--partitions", "3"), ("--replicas", "2"), ("--set", "retention.ms=7")])
def test_a_topic_that_is_not_as_it_was_wanted_was_there_before(run, options):
    run("topics", "create", "other", "--partitions", "2", "--set", "retention.ms=5", "--if-missing")
    with run.broker.faults.drop("CreateTopics", "after", times=1):
        ended = run("topics", "create", "other", *options, status=1)
    assert ended.stdout == b""
    assert b"TOPIC_ALREADY_EXISTS" in ended.stderr or b"INVALID_REPLICATION_FACTOR" in ended.stderr


@pytest.mark.parametrize("command", [("bench", "--records", "10"), ("check", "--write")])
@pytest.mark.parametrize("api", ["CreateTopics", "DeleteTopics"])
def test_a_topic_of_a_commands_own_goes_although_an_answer_is_lost(run, command, api):
    with run.broker.faults.drop(api, "after", times=1):
        run(*command)
    assert not [row for row in run.rows("topics", "ls") if row["topic"].startswith("barnabas-")]


def test_a_topic_whose_creation_is_never_answered_is_deleted(run):
    with run.broker.faults.drop("CreateTopics", "after"):
        ended = run("bench", "--records", "10", "--timeout", "2", status=1)
    assert ended.stderr.startswith(b"barnabas: broker 1001 at ")
    assert not [row for row in run.rows("topics", "ls") if row["topic"].startswith("barnabas-")]


# -- groups as they may be


def members_of(*assignments):
    """What makes of any group one with such members."""

    def answer(_call, _request, response):
        (group,) = response.groups
        group.group_state, group.protocol_type = "Stable", "consumer"
        group.members = [
            m.DescribeGroupsResponse.DescribedGroupMember(
                member_id=f"m{number}", client_id="c", client_host="/1.1.1.1", member_assignment=each
            )
            for number, each in enumerate(assignments)
        ]
        return response

    return answer


def assignment(topic, *partitions, version=0):
    rows = [m.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))]
    return version.to_bytes(2) + m.encode(m.ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None), 0)


def test_of_a_partition_without_a_commit_everything_is_left(run):
    run("topics", "create", "lagging", "--partitions", "2", "--if-missing")
    run("produce", "lagging", "-p", "1", given=b"a\nb\nc\n")
    answer = members_of(assignment("lagging", 0, 1, version=4), b"")
    with run.broker.faults.answer("DescribeGroups", answer):
        rows = run.rows("groups", "show", "laggards")
        assert [(row["committed"], row["lag"], row["member"]) for row in rows] == [(None, 0, "m0"), (None, 3, "m0")]
        assert [row["partition"] for row in run.rows("groups", "show", "laggards", "--lag", ">0")] == [1]
        by_member = run.rows("groups", "show", "laggards", "--by", "member")
    assert [(row["member"], row["partitions"], row["lag"]) for row in by_member] == [("m0", 2, 3), ("m1", 0, 0)]


@pytest.mark.parametrize("malformed", [b"\x00", b"\x00\x00\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x09zz"])
def test_a_member_whose_assignment_cannot_be_read_is_shown(run, malformed):
    with run.broker.faults.answer("DescribeGroups", members_of(malformed)):
        (row,) = run.rows("groups", "show", "odd", "--by", "member")
        assert (row["state"], row["member"], row["partitions"]) == ("Stable", "m0", 0)
        (row,) = run.rows("groups", "show", "odd", "--by", "group")
    assert (row["state"], row["partitions"], row["lag"]) == ("Stable", 0, 0)


def test_an_offset_beyond_the_end_is_marked(run):
    run("topics", "create", "cut", "--partitions", "1")
    run("produce", "cut", given=b"a\nb\nc\n")
    run("groups", "reset", "ahead", "--topic", "cut", "--to", "latest", "--yes")

    def end_earlier(_call, _request, response):
        response.topics[0].partitions[0].offset = 1
        return response

    with run.broker.faults.answer("ListOffsets", end_earlier):
        ended = run("groups", "show", "ahead", "--json")
    row = json.loads(ended.stdout)
    assert (row["committed"], row["end"], row["lag"], row["beyond_end"]) == (3, 1, 0, True)
    assert ended.stderr == b"barnabas: partition cut-0: 3 is committed, which is beyond its end, 1\n"


def test_a_group_with_members_would_not_be_deleted(run):
    run("topics", "create", "lines", "--if-missing")
    run("produce", "lines", given=b"seen\n")
    command = [sys.executable, "-m", "barnabas", "consume", "lines", "-f", "-g", "live"]
    with subprocess.Popen([*command, "-b", run.broker.bootstrap_servers], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            ended = run("groups", "delete", "live", "--dry-run", status=1)
        finally:
            process.send_signal(signal.SIGINT)
    assert ended.stderr == b"barnabas: group 'live' is Stable: stop its members first\n"
    assert run.lines("groups", "delete", "live", "--dry-run") == ["live: would be deleted"]


# -- what comes from outside


def test_a_message_of_a_broker_writes_one_line_and_no_control_characters(run):
    def forge(_call, _request, response):
        (topic,) = response.topics
        topic.error_code, topic.error_message = 42, "\x1b[2J\u202eno\nbarnabas: x: created"
        return response

    with run.broker.faults.answer("CreateTopics", forge):
        ended = run("topics", "create", "forged", status=1)
    message = rb"\x1b[2J\u202eno\nbarnabas: x: created"
    assert ended.stderr == b"barnabas: topic 'forged': INVALID_REQUEST: " + message + b"\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_one_message(run):
    run("topics", "create", "lines", "--if-missing")
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "barnabas", "topics", "ls", "-b", run.broker.bootstrap_servers]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, b"barnabas: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *((("topics", "ls", "--timeout", text), b"--timeout") for text in ("nan", "inf", "1e10", "0", "-1")),
        (("topics", "create", "big", "--partitions", "99999999999"), b"--partitions"),
        (("topics", "create", "big", "--replicas", "100000"), b"--replicas"),
        (("topics", "grow", "big", "--partitions", "3000000000"), b"--partitions"),
        (("topics", "delete", b"\xff", "--yes"), b"is no UTF-8"),
        (("topics", "create", "big", "--set", b"a=\xff"), b"is no UTF-8"),
        (("topics", "ls", "-b", b"\xff:9092"), b"is no UTF-8"),
        (("acls", "add", "--topic", b"\xff", "--allow", "User:a"), b"is no UTF-8"),
    ],
)
def test_what_no_request_can_say_is_refused_at_once(run, arguments, said):
    ended = run(*arguments, status=2)
    assert ended.stdout == b""
    assert said in ended.stderr
