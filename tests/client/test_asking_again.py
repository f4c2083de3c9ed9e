"""Brokers that are silent, that load, or that hear late: the client asks again, or asks another one."""

import pytest
import trio

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import Refused
from barnabas.client.moving import elect_leaders
from barnabas.client.settings import bootstrap_of
from barnabas.client.writing import Writer
from barnabas.testing import LocalBroker, LocalCluster
from barnabas.world.net import OsNet

PREFERRED = 0


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(topics={"orders": 3}) as broker:
        yield broker


def cluster_of(bootstrap_servers, seconds=10.0):
    return Cluster(OsNet(), bootstrap_of(bootstrap_servers), timeout_seconds=seconds)


async def test_after_a_silent_broker_there_is_time_to_ask_another_one():
    with LocalCluster(2) as brokers:
        # It takes connections and answers nothing.
        await trio.to_thread.run_sync(brokers.freeze, 1)
        with cluster_of(brokers.bootstrap_servers, seconds=9) as cluster:
            began = trio.current_time()
            assert (await cluster.brokers()).brokers
            assert trio.current_time() - began < 8


async def test_a_writer_finds_the_new_leader_while_the_old_one_is_silent():
    with LocalCluster(3, topics={"orders": (1, 3)}) as brokers:
        old = brokers.leader("orders", 0)
        others = ",".join(each.bootstrap_servers for number, each in brokers.brokers.items() if number != old)
        with cluster_of(others, seconds=30) as cluster:
            writer = Writer(cluster, "orders", 1)
            await writer.add(None, b"before", [], 1)
            await writer.flush()
            await trio.to_thread.run_sync(brokers.freeze, old)
            await trio.to_thread.run_sync(lambda: brokers.clock.advance(seconds=19))
            await writer.add(None, b"after", [], 1)
            await writer.flush()
        assert writer.written == 2
        brokers.thaw(old)


@pytest.mark.parametrize("api", ["CreateTopics", "ElectLeaders"])
async def test_after_not_controller_the_controller_is_looked_for_again(broker, api):
    with cluster_of(broker.bootstrap_servers) as cluster, broker.faults.fail(api, "NOT_CONTROLLER", times=1) as fault:
        if api == "CreateTopics":
            await admin.create_topic(cluster, "moved-on", partitions=1)
            assert len((await cluster.topics(["moved-on"]))["moved-on"].partitions) == 1
        else:
            await elect_leaders(cluster, None, PREFERRED)
        assert fault.fired == 1


async def test_a_coordinator_that_loads_its_groups_is_asked_again(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        with broker.faults.fail("ListGroups", "COORDINATOR_LOAD_IN_PROGRESS", times=1) as fault:
            assert await admin.list_groups(cluster) == []
            assert fault.fired == 1
        with broker.faults.fail("DeleteGroups", "COORDINATOR_LOAD_IN_PROGRESS", times=1) as fault:
            with pytest.raises(Refused, match="GROUP_ID_NOT_FOUND"):
                await admin.delete_groups(cluster, ["missing"])
            assert fault.fired == 1


@pytest.mark.parametrize("how", ["listed", "created"])
async def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(broker, how):
    with cluster_of(broker.bootstrap_servers) as cluster:
        name = "orders"
        if how == "created":
            name = "fresh"
            await admin.create_topic(cluster, name, partitions=3)
        with broker.faults.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=name, times=1) as fault:
            assert len((await cluster.topics([name]))[name].partitions) == 3
            assert fault.fired == 1
