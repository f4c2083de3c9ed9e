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


# -- configuration


def test_topics_are_created_with_properties_which_are_described(tool, topic):
    command = f"{TOOLS}.TopicCommand"
    tool(command, "--create", "--topic", topic, "--config", "retention.ms=1000", "--config", "cleanup.policy=compact")
    assert "Configs: cleanup.policy=compact,retention.ms=1000" in tool(command, "--describe", "--topic", topic)


@pytest.fixture
def config_command(start_broker):
    """Run ConfigCommand, of 3.9, against a broker of the test's own, whose id is 1; its standard output."""
    broker = start_broker(broker_id=1)
    create_topic(broker.port, "letters")

    def run(*arguments):
        ran = run_java_tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def test_properties_of_a_topic_and_of_brokers_are_altered_and_described(config_command):
    of_topic = "--entity-type", "topics", "--entity-name", "letters"
    of_broker, of_all = (
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "brokers", "--entity-default"),
    )
    config_command(*of_all, "--alter", "--add-config", "log.segment.bytes=200000")
    config_command(*of_broker, "--alter", "--add-config", "log.segment.bytes=300000")
    config_command(*of_topic, "--alter", "--add-config", "segment.bytes=100000,cleanup.policy=[compact,delete]")
    described = config_command(*of_topic, "--describe")
    assert "cleanup.policy=compact,delete sensitive=false" in described
    assert (
        "synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=100000, DYNAMIC_BROKER_CONFIG:log.segment.bytes=300000, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=200000, DEFAULT_CONFIG:log.segment.bytes=1073741824}"
    ) in described
    config_command(*of_topic, "--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes" not in config_command(*of_topic, "--describe")
    assert "log.segment.bytes=200000" in config_command(*of_all, "--describe")


def test_levels_of_loggers_and_quotas_are_altered_and_described(config_command):
    loggers = "--entity-type", "broker-loggers", "--entity-name", "1"
    config_command(*loggers, "--alter", "--add-config", "barnabas.broker.dispatch=DEBUG")
    assert "barnabas.broker.dispatch=DEBUG" in config_command(*loggers, "--describe")
    user = "--entity-type", "users", "--entity-name", "K."
    client = *user, "--entity-type", "clients", "--entity-name", "land survey"
    config_command(*user, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50")
    config_command(*client, "--alter", "--add-config", "consumer_byte_rate=99")
    described = config_command(*user, "--describe")
    assert "producer_byte_rate=1024.0" in described and "request_percentage=50.0" in described
    assert config_command(*client, "--describe") == (
        "Quota configs for user-principal 'K.', client-id 'land survey' are consumer_byte_rate=99.0\n"
    )
