"""The controller at work: brokers come and go, topics are created and deleted, controllers die."""

from barnabas.controller import paths
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)


async def test_the_only_broker_is_the_controller(cluster):
    broker = await cluster.start(1)
    assert broker.candidate.is_active
    assert broker.candidate.epoch == 1
    assert broker.live_brokers.keys() == {1}


async def test_a_new_topic_gets_a_leader_that_everybody_learns(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    state = await cluster.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2, 3), 0)
    assert cluster.brokers[2].leads("orders")
    assert cluster.brokers[3].roles[ORDERS].leader == 2
    assert ORDERS not in cluster.brokers[1].roles
    assert {broker.metadata[ORDERS].leader for broker in cluster.brokers.values()} == {2}


async def test_a_topic_that_is_deleted_leaves_nothing_behind(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[1, 2], [2, 1]])
    await cluster.delete("orders")
    assert await cluster.tree(paths.TOPICS) == []
    assert await cluster.tree(paths.DELETE_TOPICS) == []
    assert await cluster.tree("/config/topics") == []
    assert [broker.logs for broker in cluster.brokers.values()] == [{}, {}]
    assert [broker.metadata for broker in cluster.brokers.values()] == [{}, {}]
    assert cluster.image.topics == {}
