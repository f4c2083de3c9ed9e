"""Kafka's own tools drive a cluster of three; with CLUSTER_KIND=kafka, one of Apache Kafka, the judge."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import uuid

import pytest

from compat_tests.cluster.live import CLIENTS, LiveCluster, await_none
from compat_tests.cluster.load import ConfluentLoad
from compat_tests.cluster.nodes import party_of
from compat_tests.cluster.run import await_first_ack
from compat_tests.cluster.view import Unanswered
from compat_tests.kafka import java_command
from compat_tests.tools import require_tool

TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
ELECT = f"{TOOLS}.LeaderElectionCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    require_tool("java")
    kind = os.environ.get("CLUSTER_KIND", "barnabas")
    with LiveCluster(kind, tmp_path_factory.mktemp("tools")) as started:
        yield started


@pytest.fixture
def topic():
    return f"topic-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def tool(cluster):
    """Run a tool where the clients are; its standard output, after it has ended well."""

    def run(main_class, *arguments):
        ran = cluster.run(java_command(main_class, "--bootstrap-server", cluster.bootstrap, *arguments))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


@pytest.fixture
def reassign(tool, tmp_path):
    """Run ReassignPartitionsCommand with an action and the wanted replicas of partition 0 of a topic."""

    def run(action, topic, replicas, *more):
        wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}
        (tmp_path / "wanted.json").write_text(json.dumps(wanted))
        return tool(REASSIGN, action, "--reassignment-json-file", str(tmp_path / "wanted.json"), *more)

    return run


def fill(cluster, topic, directory):
    """Some records, all of them acknowledged; how many."""
    directory.mkdir()
    load = ConfluentLoad(cluster, topic, 1, producers=1, rate=1000, directory=directory)
    load.start_producers()
    try:
        await_first_ack(directory)
        load.stop_producing()
    finally:
        load.kill()
    return cluster.view.latest_offset(topic, 0)


def state(cluster, topic):
    """Partition 0 as the first broker sees it that answers and knows it."""
    for broker in cluster.broker_ids:
        with contextlib.suppress(Unanswered, KeyError):
            return cluster.view.partitions(broker)[topic, 0]
    raise Unanswered(f"no broker knows {topic}")


def await_state(cluster, topic, is_there):
    """Wait until every broker sees partition 0 so."""

    def wrong():
        seen = {broker: cluster.view.partitions(broker).get((topic, 0)) for broker in cluster.broker_ids}
        return [
            f"broker {broker} sees {found}" for broker, found in seen.items() if found is None or not is_there(found)
        ]

    await_none(wrong, 60.0, cluster.what_was_said)


def test_a_partition_moves_with_its_records(cluster, tool, reassign, topic, tmp_path):
    cluster.create_topic(topic, 1, {0: [1, 2]})
    count = fill(cluster, topic, tmp_path / "load")
    assert f"Successfully started partition reassignment for {topic}-0" in reassign("--execute", topic, [3, 2])
    await_state(cluster, topic, lambda seen: seen.replicas == (3, 2) and set(seen.in_sync_replicas) == {2, 3})
    printed = reassign("--verify", topic, [3, 2])
    assert f"Reassignment of partition {topic}-0 is completed." in printed
    assert tool(REASSIGN, "--list") == "No partition reassignments found.\n"
    assert cluster.view.latest_offset(topic, 0) == count
    await_none(lambda: ["broker 1 still has it"] if has_directory(cluster, topic, 1) else [], 30.0)
    assert has_directory(cluster, topic, 3)


def has_directory(cluster, topic, broker):
    """Whether a broker has a log of partition 0 that it has not marked for deletion."""
    return (cluster.broker(broker).directory / "data" / f"{topic}-0").exists()


def test_a_reassignment_that_cannot_go_on_is_listed_and_cancelled(cluster, tool, reassign, topic, tmp_path):
    controller = cluster.view.controller()
    leader, cut_off = (broker for broker in cluster.broker_ids if broker != controller)
    before, wanted = [leader, controller], [leader, cut_off]  # one that is only added, the tool does not cancel
    cluster.create_topic(topic, 1, {0: before})
    fill(cluster, topic, tmp_path / "load")
    cluster.network.cut(party_of(cut_off), party_of(leader))  # it receives the controller's requests, but cannot fetch
    try:
        reassign("--execute", topic, wanted)
        await_none(lambda: [] if len(state(cluster, topic).replicas) == 3 else ["not begun"], 20.0)
        assert (
            f"{topic}-0: replicas: {leader},{cut_off},{controller}. adding: {cut_off}. removing: {controller}."
            in tool(REASSIGN, "--list")
        )
        assert "is still in progress" in reassign("--verify", topic, wanted, "--preserve-throttles")
        printed = reassign("--cancel", topic, wanted, "--preserve-throttles")
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in printed
    finally:
        cluster.network.heal(party_of(cut_off), party_of(leader))
    is_as_before = sorted(before)
    await_state(
        cluster,
        topic,
        lambda seen: list(seen.replicas) == before and sorted(seen.in_sync_replicas) == is_as_before,
    )
    assert tool(REASSIGN, "--list") == "No partition reassignments found.\n"
    cluster.await_whole()


def test_the_preferred_leader_is_elected_again(cluster, tool, topic):
    cluster.create_topic(topic, 1, {0: [2, 3, 1]})
    assert state(cluster, topic).leader == 2
    cluster.broker(2).hold(signal.SIGTERM)
    await_none(lambda: [] if state(cluster, topic).leader in (1, 3) else ["2 leads"], 30.0)
    cluster.broker(2).release()
    cluster.await_whole()
    assert state(cluster, topic).leader == 3, "the next replica in the order of preference"
    printed = tool(ELECT, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert printed == f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
    await_state(cluster, topic, lambda seen: seen.leader == 2)
    printed = tool(ELECT, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert printed == f"Valid replica already elected for partitions {topic}-0\n"


def test_an_unclean_leader_is_elected_only_when_asked_for(cluster, tool, topic, tmp_path):
    cluster.create_topic(topic, 1, {0: [1, 2]})
    tool("kafka.admin.ConfigCommand", "--alter", "--topic", topic, "--add-config", "min.insync.replicas=1")
    cluster.broker(2).hold(signal.SIGKILL)
    await_none(lambda: [] if state(cluster, topic).in_sync_replicas == (1,) else ["2 is in sync"], 40.0)
    fill(cluster, topic, tmp_path / "load")
    cluster.broker(1).hold(signal.SIGKILL)
    cluster.broker(2).release()
    try:
        await_none(lambda: [] if is_back(cluster, 2) and state(cluster, topic).leader == -1 else ["1 leads"], 60.0)
        printed = tool(ELECT, "--election-type", "unclean", "--topic", topic, "--partition", "0")
        assert printed == f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0\n"
        await_none(lambda: [] if state(cluster, topic).leader == 2 else ["2 does not lead"], 20.0)
    finally:
        cluster.broker(1).release()
    cluster.await_whole(90.0)


def is_back(cluster, broker):
    return broker in {node.node_id for node in cluster.view.metadata(broker).brokers}


def test_under_replicated_partitions_are_described(cluster, tool, topic):
    cluster.create_topic(topic, 1, {0: [1, 2, 3]})
    asked = TOPICS, "--describe", "--topic", topic
    assert tool(*asked, "--under-replicated-partitions").strip() == ""
    cluster.broker(3).hold(signal.SIGKILL)
    try:
        await_none(lambda: [] if set(state(cluster, topic).in_sync_replicas) == {1, 2} else ["3 is in sync"], 40.0)
        (row,) = tool(*asked, "--under-replicated-partitions").splitlines()
        assert re.search(r"Partition: 0\s+Leader: [12]\s+Replicas: 1,2,3\s+Isr: (1,2|2,1)\b", row)
        assert tool(*asked, "--unavailable-partitions").strip() == ""
        assert tool(*asked, "--under-min-isr-partitions").strip() == ""
        (row,) = tool(*asked, "--at-min-isr-partitions").splitlines()
        assert "Partition: 0" in row
    finally:
        cluster.broker(3).release()
    cluster.await_whole()
    assert tool(*asked, "--under-replicated-partitions").strip() == ""


def test_a_property_is_altered_for_every_broker_and_described_by_each(cluster, tool, topic):
    cluster.create_topic(topic, 1, {0: [1, 2, 3]})
    command = "kafka.admin.ConfigCommand"
    tool(command, "--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", "retention.ms=4711")
    described = tool(command, "--entity-type", "topics", "--entity-name", topic, "--describe")
    assert "retention.ms=4711 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=4711}" in described
    tool(command, "--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "log.cleaner.threads=2")
    try:
        for broker in map(str, cluster.broker_ids):
            printed = tool(command, "--entity-type", "brokers", "--entity-name", broker, "--all", "--describe")
            assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2" in printed
    finally:
        removed = ("--alter", "--delete-config", "log.cleaner.threads")
        tool(command, "--entity-type", "brokers", "--entity-default", *removed)


def test_replicas_are_verified_to_be_the_same(cluster, topic, tmp_path):
    cluster.create_topic(topic, 1, {0: [1, 2, 3]})
    fill(cluster, topic, tmp_path / "load")
    arguments = ("--broker-list", cluster.bootstrap, "--topics-include", topic, "--report-interval-ms", "1000")
    words = cluster.network.command(CLIENTS, java_command(f"{TOOLS}.ReplicaVerificationTool", *arguments))
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    deadline = time.monotonic() + 40
    try:
        while len([line for line in lines if "max lag is" in line]) < 3 and time.monotonic() < deadline:
            lines.append(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    said = "".join(lines)
    assert "verification process is started" in said
    assert re.findall(r"max lag is (\S+) ", said)[-1] == "0", said
    assert "mismatch" not in said, said
    assert "fail" not in said.lower(), said
