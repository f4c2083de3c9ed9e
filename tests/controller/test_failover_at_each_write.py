"""A controller that dies at any of its writes, before or after, leaves nothing that the next one does not end.

Each story is repeated, with the controller dying at its first batch of writes, at its second, and so on, until it no
longer dies. Broker 0 is the controller and holds no replicas.
"""

from itertools import count

import pytest
import trio

from barnabas.controller.admin.create_partitions import NewPartitions, create_partitions
from barnabas.controller.events import ControlledShutdownAsked, ReassignmentsAsked
from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionList, Reassignment, TopicAssignment
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Ending:
    """Lets the controller die at one of its batches of writes."""

    def __init__(self, cluster, at, *, written):
        self.cluster = cluster
        self.left = at
        self.written = written
        self.broker = cluster.controller
        self.write, self.broker.store.batch = self.broker.store.batch, self.batch

    async def batch(self, items):
        self.left -= 1
        if self.left != 0:
            return await self.write(items)
        if self.written:
            await self.write(items)
        self.cluster.nursery.start_soon(self.cluster.kill, self.broker.broker_id)
        await trio.sleep_forever()

    @property
    def has_come(self):
        return self.left <= 0


async def insist(cluster, question):
    """Ask the controller, and its successor if it dies before it answers."""
    for _ in range(3):
        await cluster.settle()
        answer = await cluster.ask(question())
        if answer != ErrorCode.NOT_CONTROLLER:
            return answer
    raise AssertionError("no controller answers")


async def catch_up(cluster):
    """The leader asks for an ISR of all replicas until it has that, or has moved, as leaders do."""
    for _ in range(5):
        await cluster.settle()
        partition = cluster.image.partition(ORDERS)
        if not partition.assignment.is_moving:
            return
        await cluster.change_isr("orders", 0, *partition.replicas)
    raise AssertionError("the partition does not move")


async def create(cluster):
    await cluster.create("orders", [[1, 2], [2, 3]])
    yield
    for partition, leader in enumerate((1, 2)):
        assert (await cluster.state("orders", partition)).leader == leader
        assert cluster.brokers[leader].leads("orders", partition)


async def grow(cluster):
    await cluster.create("orders", [[1, 2]])
    yield
    await create_partitions(cluster.store, NewPartitions("orders", 3), {1: None, 2: None, 3: None}, cluster.rng)
    yield
    replicas, _, _ = await cluster.assignment("orders")
    assert len(replicas) == 3
    for partition, assigned in replicas.items():
        assert (await cluster.state("orders", partition)).isr == tuple(assigned)
        assert cluster.brokers[assigned[0]].leads("orders", partition)


async def delete(cluster):
    await cluster.create("orders", [[1, 2], [2, 3]])
    yield
    await cluster.delete("orders")
    yield
    await is_gone(cluster)


async def delete_with_a_dead_broker(cluster):
    await cluster.create("orders", [[1, 2], [2, 3]])
    yield
    await cluster.kill(2)
    await cluster.delete("orders")
    assert await cluster.exists(paths.topic("orders"))
    await cluster.restart(2)
    yield
    await is_gone(cluster)


async def is_gone(cluster):
    nodes = paths.topic("orders"), paths.config_entity("topics", "orders"), paths.delete_topic("orders")
    assert not any([await cluster.exists(node) for node in nodes])
    for broker in cluster.brokers.values():
        assert not broker.logs
        assert broker.is_deaf or not broker.metadata


async def lose_a_leader(cluster):
    await cluster.create("orders", [[1, 2, 3]])
    yield
    await cluster.kill(1)
    yield
    state = await cluster.state("orders")
    assert (state.leader, state.isr) == (2, (2, 3))
    assert cluster.brokers[2].leads("orders")


async def stop_a_leader(cluster):
    await cluster.create("orders", [[1, 2, 3]])
    yield
    epoch = cluster.brokers[1].epoch
    assert await insist(cluster, lambda: ControlledShutdownAsked(1, epoch)) == []
    yield
    state = await cluster.state("orders")
    assert (state.leader, state.isr) == (2, (2, 3))
    assert cluster.brokers[2].leads("orders")


async def move(cluster):
    await cluster.create("orders", [[1, 2]])
    yield
    assert await insist(cluster, lambda: ReassignmentsAsked({ORDERS: [3, 2]})) == {ORDERS: None}
    await catch_up(cluster)
    yield
    await is_on(cluster, [3, 2])


async def move_as_older_tools_do(cluster):
    await cluster.create("orders", [[1, 2]])
    yield
    await cluster.store.create(paths.REASSIGN_PARTITIONS, Reassignment({ORDERS: [3, 2]}).encode())
    await catch_up(cluster)
    yield
    await is_on(cluster, [3, 2])
    assert not await cluster.exists(paths.REASSIGN_PARTITIONS)


async def cancel_a_move(cluster):
    await cluster.create("orders", [[1, 2]])
    await cluster.ask(ReassignmentsAsked({ORDERS: [3, 2]}))
    yield
    answer = await insist(cluster, lambda: ReassignmentsAsked({ORDERS: None}))
    assert answer[ORDERS] is None or answer[ORDERS].code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    yield
    await is_on(cluster, [2, 1])  # the node said 3, 2, 1: the order before that is lost, as in Kafka
    assert set(cluster.brokers[1].roles[ORDERS].replicas) == {1, 2}


# A changed reassignment removes a replica that was being added. If the controller dies right after that write, the
# broker is never asked to delete its copy, as in Kafka: it stays on that disk, without a role.


async def move_elsewhere_in_the_middle(cluster):
    await cluster.create("orders", [[1, 2]])
    await cluster.ask(ReassignmentsAsked({ORDERS: [3, 2]}))
    yield
    assert await insist(cluster, lambda: ReassignmentsAsked({ORDERS: [1]})) == {ORDERS: None}
    yield
    await is_assigned(cluster, [1])


async def is_on(cluster, replicas):
    await is_assigned(cluster, replicas)
    assert {broker_id for broker_id, broker in cluster.brokers.items() if ORDERS in broker.logs} == set(replicas)


async def is_assigned(cluster, replicas):
    assert await cluster.assignment("orders") == ({0: replicas}, {}, {})
    state = await cluster.state("orders")
    assert set(state.isr) <= set(replicas)
    assert cluster.brokers[state.leader].leads("orders")
    assert not any(cluster.brokers[each].leads("orders") for each in cluster.brokers if each != state.leader)


async def prefer(cluster):
    await cluster.create("orders", [[1, 2]])
    await cluster.kill(1)
    await cluster.restart(1)
    await cluster.change_isr("orders", 0, 2, 1)
    yield
    await cluster.store.create(paths.PREFERRED_REPLICA_ELECTION, PartitionList((ORDERS,)).encode())
    yield
    assert (await cluster.state("orders")).leader == 1
    assert cluster.brokers[1].leads("orders")
    assert not await cluster.exists(paths.PREFERRED_REPLICA_ELECTION)


async def give_an_id(cluster):
    yield
    await cluster.store.create(paths.topic("orders"), TopicAssignment({0: [1]}).encode())
    yield
    assert TopicAssignment.decode(await cluster.data(paths.topic("orders")), "").topic_id in cluster.image.topic_names
    assert cluster.brokers[1].leads("orders")


STORIES = [
    create,
    grow,
    delete,
    delete_with_a_dead_broker,
    lose_a_leader,
    stop_a_leader,
    move,
    move_as_older_tools_do,
    cancel_a_move,
    move_elsewhere_in_the_middle,
    prefer,
    give_an_id,
]


async def tell(open_cluster, story, at, *, written):
    """One telling; whether the controller died in it. The last part of a story says how it must end."""
    async with open_cluster() as cluster:
        await cluster.start(0, 1, 2, 3)
        parts = story(cluster)
        if story is not create:
            await anext(parts)
        ending = Ending(cluster, at, written=written)
        await anext(parts)
        await cluster.settle()
        async for _ in parts:
            raise AssertionError("a story has two parts, and a last word")
        return ending.has_come


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_the_next_controller_ends_what_was_begun(open_cluster, story, written):
    deaths = 0
    for at in count(1):
        if not await tell(open_cluster, story, at, written=written):
            break
        deaths += 1
    assert deaths > 0


def lose_answers(store, first):
    """Every other batch is carried out, its answers are lost, and all of it is asked again, as zkclient.py does."""
    write, numbers = store.batch, count(first)

    async def batch(items):
        if next(numbers) % 2:
            await write(items)
        return await write(items)

    store.batch = batch


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_answers_that_are_lost_change_nothing(open_cluster, story, first):
    async with open_cluster() as cluster:
        await cluster.start(0, 1, 2, 3)
        epoch = cluster.controller.candidate.epoch
        lose_answers(cluster.controller.store, first)
        async for _ in story(cluster):
            await cluster.settle()
        assert cluster.controller.candidate.epoch == epoch
