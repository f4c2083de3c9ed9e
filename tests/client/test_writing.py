"""Where a writer puts records without a key."""

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.settings import bootstrap_of
from barnabas.client.writing import Writer
from barnabas.testing import LocalBroker, LocalCluster
from barnabas.world.net import OsNet


def cluster_of(bootstrap_servers, seconds=10.0):
    return Cluster(OsNet(), bootstrap_of(bootstrap_servers), timeout_seconds=seconds)


async def write_one(cluster, topic, partitions):
    writer = Writer(cluster, topic, partitions)
    await writer.add(None, b"v", [], 1)
    await writer.flush()
    assert writer.written == 1


async def test_records_without_a_key_begin_at_any_partition():
    with LocalBroker(topics={"spread": 3}) as broker, cluster_of(broker.bootstrap_servers) as cluster:
        # All of them begin at the same one in one of 3^29 runs.
        for _ in range(30):
            await write_one(cluster, "spread", 3)
        assert len({record.partition for record in broker.records("spread")}) > 1


async def test_records_without_a_key_go_to_partitions_that_have_a_leader():
    with LocalCluster(2, topics={"halves": (2, 1)}) as brokers:
        survivor = brokers.brokers[brokers.leader("halves", 0)]
        await trio.to_thread.run_sync(brokers.kill, brokers.leader("halves", 1))
        with cluster_of(survivor.bootstrap_servers, seconds=30) as cluster:
            while not cluster.leaderless("halves"):
                await cluster.topics(["halves"], leader_seconds=0)
                await trio.sleep(0.1)
            began = trio.current_time()
            for _ in range(10):
                await write_one(cluster, "halves", 2)
            assert trio.current_time() - began < 20
