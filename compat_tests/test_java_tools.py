"""Kafka's own command-line tools, of 3.9 and of 4, against a running broker."""

import json
import time

import pytest

from barnabas.wire.records import build_batch
from compat_tests.kafka import run_java_tool
from compat_tests.raw import RawClient, ask, create_topic, produce_request

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(params=["3.9", "4.1"])
def tool(request, shared_broker):
    """Run a tool against the broker; its standard output, after it has ended well."""

    def run(main_class, *arguments, **options):
        bootstrap = "--bootstrap-server", shared_broker.bootstrap
        ran = run_java_tool(main_class, *bootstrap, *arguments, version=request.param, **options)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def test_topics_are_created_listed_and_deleted(tool, topic):
    command = f"{TOOLS}.TopicCommand"
    assert tool(command, "--create", "--topic", topic, "--partitions", "3") == f"Created topic {topic}.\n"
    assert topic in tool(command, "--list").split()
    assert tool(command, "--delete", "--topic", topic) == ""
    assert topic not in tool(command, "--list").split()


def test_records_are_deleted_and_log_directories_described(tool, topic, tmp_path, shared_broker):
    create_topic(shared_broker.port, topic)
    with RawClient(shared_broker.port) as client:
        records = bytes(build_batch([(None, b"v")] * 10, timestamp_ms=int(time.time() * 1000)).data)
        ask(client, produce_request(topic, records), 9)
    asked = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    told = tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "asked.json"))
    assert f"partition: {topic}-0\tlow_watermark: 4" in told
    told = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    ((broker,),) = [json.loads(line)["brokers"] for line in told.splitlines() if line.startswith("{")]
    (directory,) = broker["logDirs"]
    assert (directory["error"], directory["logDir"]) == (None, str(shared_broker.data_dir))
    (partition,) = directory["partitions"]
    assert (partition["partition"], partition["offsetLag"], partition["isFuture"]) == (f"{topic}-0", 0, False)
    assert partition["size"] == len(records)


def test_producers_are_described(tool, topic, shared_broker):
    create_topic(shared_broker.port, topic)
    with RawClient(shared_broker.port) as client:
        producer = {"producer_id": 77, "producer_epoch": 2, "base_sequence": 0}
        batch = build_batch([(None, b"v")], timestamp_ms=int(time.time() * 1000), **producer)
        ask(client, produce_request(topic, bytes(batch.data)), 9)
    told = tool(f"{TOOLS}.TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    heading, row = (line.split() for line in told.splitlines())
    described = dict(zip(heading, row, strict=True))
    assert described["ProducerId"] == "77" and described["ProducerEpoch"] == "2"
    assert (described["LastSequence"], described["CurrentTransactionStartOffset"]) == ("0", "None")
