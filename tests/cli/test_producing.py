"""`produce` with options that contradict each other, topics that grow, and partitions without a leader."""

import subprocess
import sys
import time

import pytest
import trio

from barnabas.cli import writing
from barnabas.cli.writing import Given, Topics
from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.settings import bootstrap_of
from barnabas.testing import LocalBroker, LocalCluster
from barnabas.testing.looking.live import wait_until
from barnabas.world.net import OsNet
from tests.cli.running import Commands


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with LocalBroker() as broker:
        yield Commands(broker, tmp_path_factory.mktemp("producing"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-k", "k", "-K", ":"), "--key-separator says where the key is in a line"),
        (("--json", "-K", ":"), "--key-separator says where the key is in a line"),
        (("--to-header", "h", "-K", ":"), "--key-separator says where the key is in a line"),
        (("-k", "k", "--tombstone", "--json"), "--tombstone writes one record, and no lines are read"),
    ],
)
def test_options_of_produce_that_contradict_each_other_are_refused(run, options, said):
    assert said in run("produce", "t", *options, status=2).stderr.decode()


def test_a_running_command_writes_to_a_partition_that_was_added(run):
    run("topics", "create", "growing", "--partitions", "1")
    command = [sys.executable, "-m", "barnabas", "produce", "growing", "--json", "-b", run.broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b'{"value":"a","partition":0}\n')
        process.stdin.flush()
        wait_until(lambda: run.broker.records("growing"), 30, "nothing is written")
        run("topics", "grow", "growing", "--partitions", "4")
        process.stdin.write(b'{"value":"b","partition":3}\n')
        process.stdin.close()
        assert process.stderr.read() == b"2 records written to growing\n"
    assert [record.partition for record in run.broker.records("growing")] == [0, 3]


async def test_new_partitions_are_looked_for_from_time_to_time(run, monkeypatch):
    monkeypatch.setattr(writing, "METADATA_SECONDS", 0.0)
    given = Given("grown", None, None, [], None, None, is_json=False, is_tombstone=False, acks=-1, codec="none")
    with Cluster(OsNet(), bootstrap_of(run.broker.bootstrap_servers)) as cluster:
        await admin.create_topic(cluster, "grown", partitions=1)
        topics = Topics(cluster, given)
        writer = await topics.writer("grown")
        await admin.grow_topic(cluster, "grown", 3)
        await topics.refresh_in_time()
        assert writer.partition_count == 3


async def test_a_partition_without_a_leader_does_not_delay_others(tmp_path):
    with LocalCluster(2, topics={"halves": (2, 1)}) as brokers:
        survivor = brokers.brokers[brokers.leader("halves", 0)]
        await trio.to_thread.run_sync(brokers.kill, brokers.leader("halves", 1))
        with Cluster(OsNet(), bootstrap_of(survivor.bootstrap_servers)) as cluster:
            while not cluster.leaderless("halves"):
                await cluster.topics(["halves"], leader_seconds=0)
                await trio.sleep(0.1)
        run = Commands(survivor, tmp_path)
        began = time.monotonic()
        run("produce", "halves", "-p", "0", "--timeout", "50", given=b"a\n")
        run("produce", "halves", "--timeout", "50", given=b"b\n")
        assert time.monotonic() - began < 40
