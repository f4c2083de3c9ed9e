"""The controller through any history: brokers do what the store says, and the next controller knows it."""

import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.controller.admin.create_partitions import NewPartitions, create_partitions
from barnabas.controller.events import (
    ControlledShutdownAsked,
    ElectionAsked,
    ReassignmentsAsked,
    RebalanceDue,
)
from barnabas.controller.image.state import Assignment
from barnabas.controller.store import paths
from barnabas.controller.store.paths import LogDirEvent
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition


def known(cluster):
    """What a controller that starts now knows too.

    Of failed disks it learns by trying: a partition that may have one ends with the same leader, by more elections.
    """
    image = cluster.image
    broken = {partition for broker in cluster.brokers.values() for partition in broker.failed_disk}
    partitions = {}
    for partition, each in image.partitions():
        if partition in image.moving:
            # It is sent again, or completed if it could not be before.
            partitions[partition] = each.assignment
        elif not image.is_deleting(partition.topic):
            led_by = each.leadership and each.leadership.state.leader
            partitions[partition] = each.assignment, each.status, led_by, partition in broken or each.leadership
    return image.brokers, partitions


async def ask(cluster, rng, action, topic):
    """Ask the controller something about a partition of the topic, which answers in any case."""
    partition = TopicPartition(topic, rng.randrange(3))
    if action == "move":
        await cluster.ask(ReassignmentsAsked({partition: rng.sample(range(4), rng.randint(1, 3))}))
    elif action == "cancel":
        await cluster.ask(ReassignmentsAsked({partition: None}))
    elif action == "elect":
        await cluster.ask(ElectionAsked([partition], unclean=rng.random() < 0.5))
    elif action == "balance":
        cluster.controller.candidate._controller.put(RebalanceDue())
        await cluster.settle()
    elif action == "isr":
        found = cluster.image.find_partition(partition)
        if found is not None and found.leadership is not None and found.leadership.state.leader != NO_LEADER:
            leader = found.leadership.state.leader
            others = [each for each in found.replicas if each != leader and rng.random() < 0.7]
            await cluster.change_isr(topic, partition.partition, leader, *others)


async def grow(cluster, topic):
    await create_partitions(cluster.store, NewPartitions(topic, 4), dict.fromkeys(cluster.image.brokers), cluster.rng)
    await cluster.settle()


async def act(cluster, rng, action, broker_id, topic):
    """Do one thing, if it is possible now."""
    broker = cluster.brokers[broker_id]
    dead = not await cluster.exists(paths.broker(broker_id))
    if action == "create":
        await cluster.create(topic, [rng.sample(range(4), 3) for _ in range(rng.randint(1, 3))])
    elif action == "delete":
        await cluster.delete(topic)
    elif action == "grow":
        await grow(cluster, topic)
    elif action in ASKED:
        await ask(cluster, rng, action, topic)
    elif broker_id == 0:
        return  # the controller, which is replaced at the end
    elif action == "kill":
        await cluster.kill(broker_id)
    elif action == "stop" and not dead:
        await cluster.ask(ControlledShutdownAsked(broker_id, broker.epoch))
    elif action == "restart" and dead:
        await cluster.restart(broker_id)
    elif action == "bounce" and not dead:
        await cluster.restart_unnoticed(broker_id)
    elif action == "break" and not dead:
        broker.failed_disk.update(dict.fromkeys(broker.logs))
        await cluster.store.create(paths.LOG_DIR_EVENT_PREFIX, LogDirEvent(broker_id).encode(), sequential=True)
        await cluster.settle()


def check(cluster):
    """What holds whenever every request has been answered."""
    image = cluster.image
    for partition, each in image.partitions():
        if image.is_deleting(partition.topic) or each.leadership is None:
            continue
        state = each.leadership.state
        assert state.isr
        assert set(state.isr) <= set(each.replicas)
        assert state.leader == NO_LEADER or (state.leader in state.isr and image.is_reachable(partition, state.leader))
        assert state.leader != NO_LEADER or not any(image.is_online(partition, member) for member in state.isr)
        for broker_id in image.brokers:
            broker = cluster.brokers[broker_id]
            assert broker.metadata[partition].leader == state.leader
            if image.is_online(partition, broker_id) and broker_id in each.replicas:
                assert broker.roles[partition].leader_epoch == state.leader_epoch


async def check_nodes(cluster):
    """The topics' nodes say what the image says."""
    for topic, known_topic in cluster.image.topics.items():
        replicas, adding, removing = await cluster.assignment(topic)
        for index, each in known_topic.partitions.items():
            found = Assignment(tuple(replicas[index]), tuple(adding.get(index, ())), tuple(removing.get(index, ())))
            assert found == each.assignment
            assert set(each.replica_statuses) == set(each.replicas)


ASKED = ("move", "cancel", "elect", "balance", "isr")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "create", "grow", "delete", "kill", "restart", "bounce", "break", "stop", "move", *ASKED, "isr"]
        ),
        st.integers(0, 3),
        st.sampled_from(["orders", "pages"]),
    ),
    max_size=30,
)


@pytest.mark.thorough
@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 1000), steps=STEPS)
def test_brokers_do_what_the_store_says_and_the_next_controller_knows_it(open_cluster, seed, steps):
    async def history():
        rng = random.Random(seed)
        async with open_cluster() as cluster:
            await cluster.start(0, 1, 2, 3)
            for action, broker_id, topic in steps:
                await act(cluster, rng, action, broker_id, topic)
                check(cluster)
            for broker_id in list(cluster.image.shutting_down):  # of which the next controller would know nothing
                await cluster.kill(broker_id)
            await check_nodes(cluster)
            before = known(cluster)
            await cluster.store.delete(paths.CONTROLLER)
            await cluster.settle()
            assert known(cluster) == before
            check(cluster)
            await check_nodes(cluster)

    trio.run(history)
