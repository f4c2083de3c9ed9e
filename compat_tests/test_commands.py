"""The commands for a cluster on both brokers, beside Apache Kafka's own tools.

What our commands write Kafka's tools read, and the other way round; and what both say about the same thing is the same.
Each task of the table in docs/commands.md is done by both (`record_tasks.py`, `admin_tasks.py`).
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from compat_tests.admin_tasks import ADMIN_TASKS, CLUSTER_TASKS
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess, run_java_tool
from compat_tests.record_tasks import RECORD_TASKS
from compat_tests.small_cluster import KINDS, SmallCluster

pytestmark = pytest.mark.thorough

TASKS = (*RECORD_TASKS, *ADMIN_TASKS)
TOOLS = "org.apache.kafka.tools"
CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
MAIN_CLASSES = {
    "kafka-acls.sh": "kafka.admin.AclCommand",
    "kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-cluster.sh": f"{TOOLS}.ClusterTool",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": CONSUMER,
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": f"{TOOLS}.GetOffsetShell",
    "kafka-leader-election.sh": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs.sh": f"{TOOLS}.LogDirsCommand",
    "kafka-reassign-partitions.sh": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": f"{TOOLS}.TopicCommand",
}
# Names in a task; each run has its own, so that no run sees what another one has left.
NAMES = re.compile(r"\b(orders|copies|dead|billing|alice|app|10\.0\.0\.1)\b")
DOCUMENT = pathlib.Path(__file__).parents[1] / "docs" / "commands.md"
AUTHORIZED = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}


class Both:
    """Our commands and Kafka's tools, against one broker."""

    def __init__(self, bootstrap):
        self._bootstrap = bootstrap

    def ours(self, *arguments, given=b""):
        ended = subprocess.run(
            [sys.executable, "-m", "barnabas", *arguments],
            input=given,
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, "BARNABAS_BOOTSTRAP": self._bootstrap},
        )
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode()

    def rows(self, *arguments):
        return [json.loads(line) for line in self.ours(*arguments, "--json").splitlines()]

    def theirs(self, main_class, *arguments, **options):
        ran = run_java_tool(main_class, *arguments, "--bootstrap-server", self._bootstrap, **options)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def our_line(self, line, names, given=""):
        """What a line of our commands prints; `|` joins two."""
        for command in line.split(" | "):
            given = self.ours(*shlex.split(names(command), posix=False), given=given.encode())
        return given

    def their_line(self, line, names, given=""):
        """What a line of Kafka's scripts prints; `&&` follows one by another."""
        printed = []
        for pipe in line.split(" && "):
            piped = given
            for command in pipe.split(" | "):
                script, *arguments = shlex.split(names(command))
                piped = self.theirs(MAIN_CLASSES[script], *arguments, stdin=piped)
            printed.append(piped)
        return "".join(printed)


def names_of(side, number):
    """What puts the names of one run in place of those of the table."""

    def rename(match):
        return f"10.{number}.{ord(side[0])}.1" if match[0].startswith("10.") else f"{match[0]}-{number}-{side}"

    return lambda text: NAMES.sub(rename, text)


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def both(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    kind = BrokerProcess if request.param == "barnabas" else KafkaProcess
    process = kind(directory, broker_id=1, **AUTHORIZED)
    with process as broker:
        yield Both(f"127.0.0.1:{broker.port}")


@pytest.mark.parametrize(("number", "task"), list(enumerate(TASKS)), ids=[task.title for task in TASKS])
def test_a_task_has_the_same_result_by_kafkas_script_and_by_our_command(both, number, task):
    compare(both, number, task)


def compare(both, number, task):
    """Do a task by both, and compare what they leave behind or print."""
    found = {}
    for side in ("theirs", "ours"):
        names = names_of(side, number)
        # A question is asked about one state; a change is made to a state of its own.
        if task.look is not None or side == "theirs" or "--group" in task.ours:
            for line, given in task.setup:
                both.our_line(line, names, names(given))
        else:
            names = names_of("theirs", number)
        if side == "theirs":
            printed = both.their_line(task.theirs, names, task.given)
            found[side] = task.look(both, names) if task.look else task.parse_theirs(printed)
        else:
            given = task.given if task.ours_given is None else task.ours_given
            printed = both.our_line(task.ours, names, given)
            found[side] = task.look(both, names) if task.look else task.parse_ours(printed)
    assert found["ours"] == found["theirs"]
    assert found["ours"] is None or found["ours"] != [], "there is nothing to compare"


def test_topics_are_the_same_for_both(both):
    both.ours("topics", "create", "orders", "--partitions", "3", "--set", "retention.ms=1000")
    both.ours("topics", "grow", "orders", "--partitions", "4")
    heading, *rows = both.theirs(f"{TOOLS}.TopicCommand", "--describe", "--topic", "orders").splitlines()
    (shown,) = both.rows("topics", "show", "orders")
    assert "PartitionCount: 4" in heading
    assert "retention.ms=1000" in heading
    assert shown["properties"]["retention.ms"] == "1000"
    assert len(rows) == len(shown["partitions"]) == 4
    both.ours("topics", "set", "orders", "retention.ms=")
    described = both.theirs(f"{TOOLS}.TopicCommand", "--describe", "--topic", "orders")
    assert "retention.ms" not in described
    both.ours("topics", "delete", "orders", "--yes")
    assert "orders" not in both.theirs(f"{TOOLS}.TopicCommand", "--list").split()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafkas_consumer_reads_what_produce_writes(both, codec):
    topic = f"written-{codec}"
    both.ours("topics", "create", topic, "--partitions", "1")
    lines = [f"{number}:value-{number}" for number in range(1000)]
    both.ours("produce", topic, "-K", ":", "--codec", codec, given="\n".join(lines).encode() + b"\n")
    read = both.theirs(
        CONSUMER,
        *("--topic", topic, "--from-beginning", "--max-messages", "1000"),
        *("--property", "print.key=true", "--property", "key.separator=:"),
    )
    assert read.splitlines() == lines


def test_consume_reads_what_kafkas_producer_writes_where_keys_belong(both):
    for topic in ("theirs", "ours"):
        both.ours("topics", "create", topic, "--partitions", "5")
    lines = "".join(f"key-{number}:{number}\n" for number in range(200))
    options = ("--property", "parse.key=true", "--property", "key.separator=:")
    both.theirs("kafka.tools.ConsoleProducer", "--topic", "theirs", *options, stdin=lines)
    both.ours("produce", "ours", "-K", ":", given=lines.encode())

    def placed(topic):
        return {row["key"]: (row["partition"], row["value"]) for row in both.rows("consume", topic)}

    assert len(placed("ours")) == 200
    assert placed("ours") == placed("theirs")


def test_a_group_that_was_reset_is_where_both_say_and_lags_as_both_say(both):
    both.ours("topics", "create", "read", "--partitions", "2")
    both.ours("produce", "read", "-K", ":", given="".join(f"{n}:v\n" for n in range(100)).encode())
    both.ours("groups", "reset", "billing", "--topic", "read", "--to", "-7", "--yes")
    described = both.theirs(f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--describe", "--group", "billing")
    theirs = [line.split()[:6] for line in described.splitlines() if line.startswith("billing")]
    ours = both.rows("groups", "show", "billing")
    assert sorted(theirs) == sorted(
        ["billing", row["topic"], str(row["partition"]), str(row["committed"]), str(row["end"]), str(row["lag"])]
        for row in ours
    )
    both.ours("groups", "delete", "billing", "--yes")
    assert "billing" not in both.theirs(f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--list").split()


# -- several brokers


@pytest.fixture(scope="module", params=KINDS)
def several(request, tmp_path_factory):
    with SmallCluster(request.param, tmp_path_factory.mktemp(request.param)) as cluster:
        yield Both(cluster.bootstrap)


@pytest.mark.parametrize(("number", "task"), list(enumerate(CLUSTER_TASKS)), ids=[task.title for task in CLUSTER_TASKS])
def test_a_task_of_several_brokers_has_the_same_result_by_both(several, number, task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for side in ("theirs", "ours"):
        for file_name, content in task.files.items():
            (tmp_path / names_of(side, number)(file_name)).write_text(names_of(side, number)(content))
    compare(several, number, task)


# -- the document


def test_the_table_of_the_document_has_these_tasks():
    rows = re.findall(r"^\| ([^|]+) \| `([^`]+)` \| `barnabas ([^`]+)` \|$", DOCUMENT.read_text(), re.MULTILINE)
    unescaped = [(title, theirs.replace("\\|", "|"), ours.replace("\\|", "|")) for title, theirs, ours in rows]
    expected = [(task.title, task.theirs, task.ours.replace("| ", "| barnabas ")) for task in (*TASKS, *CLUSTER_TASKS)]
    assert unescaped == expected
