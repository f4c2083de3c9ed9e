"""`barnabas topics`, `produce`, `consume` and `groups` on both brokers, beside Apache Kafka's own tools.

What our commands write Kafka's tools read, and the other way round; and what both say about the same thing is the same.
"""

import json
import os
import subprocess
import sys

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess, run_java_tool

pytestmark = pytest.mark.thorough

TOOLS = "org.apache.kafka.tools"
CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"


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
        ran = run_java_tool(main_class, "--bootstrap-server", self._bootstrap, *arguments, **options)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def both(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    process = BrokerProcess(directory) if request.param == "barnabas" else KafkaProcess(directory)
    with process as broker:
        yield Both(f"127.0.0.1:{broker.port}")


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
