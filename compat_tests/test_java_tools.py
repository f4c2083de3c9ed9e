"""Kafka's own command-line tools, of 3.9 and of 4, against a running broker."""

import json
import pathlib
import time

import pytest

from barnabas.wire.records import build_batch, read_all_records
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import run_java_tool
from compat_tests.raw import RawClient, ask, create_topic, eventually, produce_request

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


def test_topics_are_created_described_altered_listed_and_deleted(tool, topic, shared_broker):
    command = f"{TOOLS}.TopicCommand"
    created = tool(command, "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=1000")
    assert created == f"Created topic {topic}.\n"
    tool(command, "--alter", "--topic", topic, "--partitions", "4")
    heading, *rows = tool(command, "--describe", "--topic", topic).splitlines()
    assert "PartitionCount: 4\tReplicationFactor: 1\tConfigs: retention.ms=1000" in heading
    assert [row.split("\t")[2] for row in rows] == [f"Partition: {number}" for number in range(4)]
    assert {row.split("\t")[3] for row in rows} == {f"Leader: {broker_id(shared_broker)}"}
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
    printed = tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "asked.json"))
    assert f"partition: {topic}-0\tlow_watermark: 4" in printed
    printed = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    ((broker,),) = [json.loads(line)["brokers"] for line in printed.splitlines() if line.startswith("{")]
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
    printed = tool(f"{TOOLS}.TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    heading, row = (line.split() for line in printed.splitlines())
    described = dict(zip(heading, row, strict=True))
    assert described["ProducerId"] == "77"
    assert described["ProducerEpoch"] == "2"
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
    config_command(*loggers, "--alter", "--add-config", "barnabas.broker.server.dispatch=DEBUG")
    assert "barnabas.broker.server.dispatch=DEBUG" in config_command(*loggers, "--describe")
    user = "--entity-type", "users", "--entity-name", "K."
    client = *user, "--entity-type", "clients", "--entity-name", "land survey"
    config_command(*user, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50")
    config_command(*client, "--alter", "--add-config", "consumer_byte_rate=99")
    described = config_command(*user, "--describe")
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=50.0" in described
    assert config_command(*client, "--describe") == (
        "Quota configs for user-principal 'K.', client-id 'land survey' are consumer_byte_rate=99.0\n"
    )


# -- the others


def fill(broker, topic, count=10, partitions=1):
    """A topic with this many records in its first partition."""
    create_topic(broker.port, topic, partitions)
    with RawClient(broker.port) as client:
        records = build_batch(
            [(None, b"v%d" % number) for number in range(count)], timestamp_ms=int(time.time() * 1000)
        )
        ask(client, produce_request(topic, bytes(records.data)), 9)


def test_offsets_are_reported(tool, topic, shared_broker):
    fill(shared_broker, topic, partitions=2)
    shell = f"{TOOLS}.GetOffsetShell"
    for time_asked, offsets in {"-1": (10, 0), "-2": (0, 0), "-3": (0, "")}.items():
        printed = tool(shell, "--topic", topic, "--time", time_asked).splitlines()
        assert printed == [f"{topic}:{index}:{offset}" for index, offset in enumerate(offsets) if offset != ""]


def test_groups_are_described_reset_and_deleted(tool, topic, shared_broker, tmp_path):
    fill(shared_broker, topic)
    group, command = f"group-of-{topic}", f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--execute")
    assert "10" in tool(command, *reset, "--to-latest").split()
    assert tool(command, *reset, "--shift-by", "-4").split()[-1] == "6"
    assert group in tool(command, "--list").split()
    (row,) = (line.split() for line in tool(command, "--describe", "--group", group).splitlines() if topic in line)
    assert row[:6] == [group, topic, "0", "6", "10", "4"]
    state = tool(command, "--describe", "--group", group, "--state").split()
    assert "Empty" in state
    assert f"({broker_id(shared_broker)})" in state
    printed = tool(command, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in printed
    assert group not in tool(command, "--list").split()
    tool(command, *reset, "--to-earliest")
    assert "Successful" in tool(command, "--delete-offsets", "--group", group, "--topic", topic)
    assert group not in tool(command, "--list").split()  # it had nothing else


def broker_id(broker):
    return broker.ready_line.split(" ready: broker ")[1].split()[0]


def test_leaders_are_elected(tool, topic, shared_broker):
    create_topic(shared_broker.port, topic)
    elect = f"{TOOLS}.LeaderElectionCommand"
    printed = tool(elect, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert printed == f"Valid replica already elected for partitions {topic}-0\n"


def test_partitions_are_reassigned(tool, topic, shared_broker, tmp_path):
    create_topic(shared_broker.port, topic)
    broker = int(broker_id(shared_broker))
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [broker]}]}
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    command, file = f"{TOOLS}.reassign.ReassignPartitionsCommand", str(tmp_path / "wanted.json")
    assert "Successfully started partition reassignment" in tool(command, "--execute", "--reassignment-json-file", file)
    printed = tool(command, "--verify", "--reassignment-json-file", file)
    assert f"Reassignment of partition {topic}-0 is completed." in printed
    assert tool(command, "--list") == "No partition reassignments found.\n"


@pytest.fixture
def two_directories(tmp_path):
    """A broker with two log directories, and their paths."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    broker = BrokerProcess(tmp_path, log_dirs=",".join(paths)).start()
    yield broker, paths
    broker.kill()


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_a_partition_is_moved_to_another_log_directory(version, topic, two_directories, tmp_path):
    broker, paths = two_directories
    create_topic(broker.port, topic)
    batches = [bytes(build_batch([(None, b"%d" % number)], timestamp_ms=0).data) for number in range(100)]
    with RawClient(broker.port) as client:
        for records in batches:
            ask(client, produce_request(topic, records), 9)
    (source,) = [path for path in paths if pathlib.Path(path, f"{topic}-0").exists()]
    (target,) = [path for path in paths if path != source]
    moved = {"topic": topic, "partition": 0, "replicas": [int(broker_id(broker))], "log_dirs": [target]}
    (tmp_path / "wanted.json").write_text(json.dumps({"version": 1, "partitions": [moved]}))

    def reassign(*arguments):
        command, file = f"{TOOLS}.reassign.ReassignPartitionsCommand", str(tmp_path / "wanted.json")
        bootstrap = "--bootstrap-server", broker.bootstrap
        return run_bare(version, command, *bootstrap, "--reassignment-json-file", file, *arguments)

    printed = reassign("--execute", "--replica-alter-log-dirs-throttle", "100000000")
    assert f"Successfully started moving log directory to {target} for replica {topic}-0 with broker" in printed
    eventually(lambda: pathlib.Path(target, f"{topic}-0").exists(), bool)
    printed = reassign("--verify")
    replica = f"{topic}-0-{broker_id(broker)}"
    assert f"Reassignment of replica {replica} completed successfully." in printed
    held = pathlib.Path(target, f"{topic}-0", f"{0:020}.log").read_bytes()
    assert [record.value for _, record in read_all_records(held)] == [b"%d" % number for number in range(100)]


def run_bare(version, main_class, *arguments, **options):
    """A tool that takes its broker in another way; its standard output, after it has ended well."""
    ran = run_java_tool(main_class, *arguments, version=version, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_performance_is_measured(version, topic, shared_broker):
    create_topic(shared_broker.port, topic, 2)
    bootstrap = shared_broker.bootstrap
    produced = run_bare(
        version,
        f"{TOOLS}.ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        "5000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--producer-props",
        f"bootstrap.servers={bootstrap}",
        "acks=all",
    )
    assert produced.splitlines()[-1].startswith("5000 records sent")
    consumed = run_bare(
        version,
        f"{TOOLS}.ConsumerPerformance",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--messages",
        "5000",
        "--timeout",
        "20000",
    )
    heading, row = (line.split(", ") for line in consumed.splitlines()[-2:])
    assert int(dict(zip(heading, row, strict=True))["data.consumed.in.nMsg"]) >= 5000
    latency = run_bare(version, f"{TOOLS}.EndToEndLatency", bootstrap, topic, "200", "all", "50")
    assert "Avg latency" in latency
    assert "Percentiles" in latency


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_what_the_verifiable_producer_sends_the_verifiable_consumer_reads(version, topic, shared_broker):
    create_topic(shared_broker.port, topic)
    bootstrap = "--bootstrap-server", shared_broker.bootstrap
    sent = _events(
        run_bare(version, f"{TOOLS}.VerifiableProducer", *bootstrap, "--topic", topic, "--max-messages", "50")
    )
    assert sum(event["name"] == "producer_send_success" for event in sent) == 50
    assert sent[-1]["sent"] == sent[-1]["acked"] == 50
    read = _events(
        run_bare(
            version,
            f"{TOOLS}.VerifiableConsumer",
            *bootstrap,
            "--topic",
            topic,
            "--group-id",
            f"group-of-{topic}",
            "--max-messages",
            "50",
            "--reset-policy",
            "earliest",
        )
    )
    assert sum(event["count"] for event in read if event["name"] == "records_consumed") == 50
    committed = [event for event in read if event["name"] == "offsets_committed"]
    assert committed[-1]["success"]
    assert committed[-1]["offsets"][0]["offset"] == 50


def _events(printed):
    """The lines of JSON that the verifiable clients print."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    ("version", "main_class"),
    [("3.9", "kafka.admin.BrokerApiVersionsCommand"), ("4.1", f"{TOOLS}.BrokerApiVersionsCommand")],
)
def test_the_versions_of_all_apis_are_reported(version, main_class, shared_broker):
    printed = run_bare(version, main_class, "--bootstrap-server", shared_broker.bootstrap)
    assert printed.startswith(f"{shared_broker.bootstrap} (id: {broker_id(shared_broker)} rack: null")
    assert "Fetch(1): " in printed
    assert "Metadata(3): 0 to 12 [usable: 12]" in printed
    assert "IncrementalAlterConfigs(44): 0 to 1 [usable: 1]" in printed
