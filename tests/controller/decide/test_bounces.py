"""Brokers that came back with fewer records while there was no controller are not in sync, if another one is."""

from dataclasses import replace

import pytest

from barnabas.controller.decide.bounces import bounced_members
from barnabas.controller.image.state import (
    BrokerJoined,
    ClusterImage,
    Leadership,
    LeadershipChanged,
    PartitionAppeared,
    TopicAppeared,
    replay,
)
from barnabas.controller.store.paths import PartitionState
from barnabas.wire import messages as m
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
WRITTEN = 500  # the zxid of the state; a broker of an earlier epoch has not been away since


@pytest.mark.parametrize(
    ("isr", "stayed", "bounced", "dropped"),
    [
        ((1, 2, 3), (1, 2, 3), (), ()),
        ((1, 2, 3), (1, 3), (2,), (2,)),
        ((1, 2, 3), (3,), (1, 2), (1, 2)),
        ((1, 2, 3), (1,), (2,), (2,)),  # 3 is dead
        ((1, 2, 3), (), (2,), ()),  # 1 and 3 are dead
        ((1, 2, 3), (), (1, 2, 3), ()),
        ((1, 2), (3,), (1, 2), ()),  # 3 lives, but is not in sync
        ((1,), (2, 3), (1,), ()),
        ((1, 2), (), (), ()),
    ],
    ids=lambda value: " ".join(map(str, value)) or "none",
)
def test_a_member_registered_after_the_state_is_dropped_while_another_lives(make, isr, stayed, bounced, dropped):
    image = ClusterImage()
    for broker_id in (*stayed, *bounced):
        replay(image, BrokerJoined(make.broker(broker_id, epoch=WRITTEN + (1 if broker_id in bounced else -1))))
    replay(image, TopicAppeared("orders", make.topic_id("orders")))
    replay(image, PartitionAppeared(ORDERS, (1, 2, 3)))
    replay(image, LeadershipChanged(ORDERS, Leadership(PartitionState(isr[0], 5, 1, isr), 7)))
    assert tuple(bounced_members(image, ORDERS, WRITTEN)) == dropped


def test_a_partition_that_never_had_a_leader_has_no_one_to_drop(make):
    image = ClusterImage()
    replay(image, TopicAppeared("orders", make.topic_id("orders")))
    replay(image, PartitionAppeared(ORDERS, (1,)))
    assert not bounced_members(image, ORDERS, WRITTEN)


# With a controller that dies


async def leader_and_isr(cluster, topic):
    state = await cluster.state(topic)
    return state.leader, state.isr, state.leader_epoch


async def fail_over_after(cluster, *bounced, kept=()):
    """Controller 0 dies for good; brokers bounce while there is no controller; another broker is elected."""
    cluster.brokers[0].scope.cancel()
    for broker_id in bounced:
        kept_since = cluster.brokers[broker_id].epoch if broker_id in kept else None
        await cluster.restart_unnoticed(broker_id, kept_since=kept_since)
    await cluster.kill(0)
    assert cluster.controller.broker_id != 0


async def test_a_follower_that_bounced_unseen_leaves_the_isr_and_everybody_learns_it(cluster):
    await cluster.start(0, 1, 2, 3)
    await cluster.create("orders", [[1, 2, 3]])
    await fail_over_after(cluster, 2)
    assert await leader_and_isr(cluster, "orders") == (1, (1, 3), 1)
    assert {tuple(cluster.brokers[each].roles[ORDERS].isr) for each in (1, 2, 3)} == {(1, 3)}
    assert {cluster.brokers[each].metadata[ORDERS].leader_epoch for each in (1, 2, 3)} == {1}


async def test_a_leader_that_bounced_unseen_follows_one_that_did_not(cluster):
    await cluster.start(0, 1, 2, 3)
    await cluster.create("orders", [[1, 2, 3]])
    await fail_over_after(cluster, 1, 2)
    assert await leader_and_isr(cluster, "orders") == (3, (3,), 1)
    assert cluster.brokers[3].leads("orders")
    assert not cluster.brokers[1].leads("orders")


async def test_where_all_in_sync_bounced_the_first_of_them_leads_under_a_new_epoch(cluster):
    await cluster.start(0, 1, 2, 3)
    await cluster.create("orders", [[1, 2, 3]])
    await fail_over_after(cluster, 1, 2, 3)
    assert await leader_and_isr(cluster, "orders") == (1, (1, 2, 3), 1)
    assert cluster.brokers[1].leads("orders")


async def test_a_leader_that_forgot_follows_one_that_was_restarted_and_did_not(cluster):
    await cluster.start(0, 1, 2)
    await cluster.create("orders", [[1, 2]])
    await fail_over_after(cluster, 1, 2, kept=[2])
    assert await leader_and_isr(cluster, "orders") == (2, (2,), 1)
    assert cluster.brokers[2].leads("orders")


async def test_restarts_in_which_nothing_was_lost_change_nothing(cluster):
    await cluster.start(0, 1, 2, 3)
    await cluster.create("orders", [[1, 2, 3]])
    await fail_over_after(cluster, 1, 2, 3, kept=[1, 2, 3])
    assert await leader_and_isr(cluster, "orders") == (1, (1, 2, 3), 0)
    assert cluster.brokers[1].leads("orders")


async def test_a_broker_that_lost_something_before_an_earlier_restart_is_not_believed(cluster):
    await cluster.start(0, 1, 2)
    await cluster.create("orders", [[1, 2]])
    cluster.brokers[0].scope.cancel()
    await cluster.restart_unnoticed(1)  # its machine has crashed
    await cluster.restart_unnoticed(1, kept_since=cluster.brokers[1].epoch)
    await cluster.kill(0)
    assert await leader_and_isr(cluster, "orders") == (2, (2,), 1)


def test_no_one_keeps_what_it_says_from_the_future(make):
    broker = make.broker(1, epoch=WRITTEN + 1)
    said = broker._replace(registration=replace(broker.registration, kept_since=WRITTEN + 7))
    assert (broker.kept_since, said.kept_since) == (WRITTEN + 1, WRITTEN + 1)


async def test_the_only_member_in_sync_leads_again_though_it_bounced(cluster):
    await cluster.start(0, 1, 2)
    await cluster.create("orders", [[1, 2]])
    await cluster.change_isr("orders", 0, 1)
    await fail_over_after(cluster, 1)
    assert await leader_and_isr(cluster, "orders") == (1, (1,), 1)


async def test_who_is_vouched_for_after_it_came_back_is_in_sync(cluster):
    await cluster.start(0, 1, 2)
    await cluster.create("orders", [[1, 2]])
    await cluster.restart_unnoticed(2)
    assert await leader_and_isr(cluster, "orders") == (1, (1,), 1)
    await cluster.change_isr("orders", 0, 1, 2)
    await fail_over_after(cluster)
    assert await leader_and_isr(cluster, "orders") == (1, (1, 2), 1)


async def test_a_rolling_restart_of_controllers_leaves_every_leader_with_its_records(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[1, 2, 3]])
    for broker_id in (1, 2, 3):
        await cluster.kill(broker_id)
        state = await cluster.state("orders")
        assert state.leader != NO_LEADER
        assert broker_id not in state.isr
        await cluster.restart(broker_id)
        await cluster.change_isr("orders", 0, *state.isr, broker_id)
    assert sorted((await cluster.state("orders")).isr) == [1, 2, 3]


async def test_brokers_that_did_not_bounce_hear_of_no_new_epoch_at_a_fail_over(cluster):
    await cluster.start(0, 1, 2)
    await cluster.create("orders", [[1, 2]])
    cluster.brokers[1].requests.clear()
    await fail_over_after(cluster)
    (request,) = cluster.brokers[1].sent(m.LeaderAndIsrRequest)
    assert request.topic_states[0].partition_states[0].leader_epoch == 0
