"""Topics that are deleted: what goes, who is asked again, and what a deletion waits for."""

import pytest
import trio

from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionList, TopicAssignment
from barnabas.controller.store.store import Create
from barnabas.wire.topics import TopicPartition
from tests.controller.orders import ORDERS, names


async def test_a_topic_that_is_deleted_leaves_nothing_behind(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[1, 2], [2, 1]])
    await cluster.delete("orders")
    assert [await cluster.tree(path) for path in (paths.TOPICS, paths.DELETE_TOPICS, "/config/topics")] == [[], [], []]
    assert [broker.logs for broker in cluster.brokers.values()] == [{}, {}]
    assert [broker.metadata for broker in cluster.brokers.values()] == [{}, {}]
    assert cluster.image.topics == {}
    assert cluster.image.deletions == {}


async def test_clients_lose_sight_of_a_topic_before_its_logs_are_deleted(cluster):
    broker = await cluster.start(1)
    await cluster.create("orders", [[1]])
    broker.requests.clear()
    await cluster.delete("orders")
    assert names(broker.requests) == ["UpdateMetadata", "StopReplica"]
    assert broker.requests[0].topic_states[0].partition_states[0].leader == -2


async def test_a_deleted_topic_may_be_created_again(cluster):
    broker = await cluster.start(1)
    first = await cluster.create("orders", [[1]])
    await cluster.delete("orders")
    second = await cluster.create("orders", [[1]])
    assert first.topic_id != second.topic_id
    assert broker.leads("orders")


async def test_a_topic_that_returned_is_still_watched(cluster):
    broker = await cluster.start(1)
    await cluster.create("orders", [[1]])
    await cluster.delete("orders")
    created = await cluster.create("orders", [[1]])
    await cluster.store.set(paths.topic("orders"), TopicAssignment({0: [1], 1: [1]}, created.topic_id).encode())
    await cluster.settle()
    assert len(broker.roles) == 2


async def test_deletion_waits_for_a_dead_broker(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[1, 2]])
    await cluster.kill(2)
    await cluster.delete("orders")
    assert cluster.brokers[1].logs == {}
    assert await cluster.tree(paths.DELETE_TOPICS) == ["/admin/delete_topics/orders"]
    broker = await cluster.restart(2)
    assert broker.logs == {}
    assert await cluster.tree(paths.DELETE_TOPICS) == await cluster.tree(paths.TOPICS) == []


async def test_deletion_goes_on_under_the_next_controller(autojump_clock, cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    cluster.brokers[3].is_deaf = True
    await cluster.delete("orders")
    assert cluster.brokers[2].logs == {}
    assert cluster.brokers[3].logs != {}
    await cluster.kill(1)
    cluster.brokers[3].is_deaf = False
    await trio.sleep(1)
    assert await cluster.tree(paths.TOPICS) == await cluster.tree(paths.DELETE_TOPICS) == []
    assert cluster.brokers[3].logs == {}


async def test_deletion_survives_a_restart_of_everything(cluster):
    broker = await cluster.start(1)
    await cluster.create("orders", [[1]])
    broker.is_deaf = True
    await cluster.delete("orders")
    await cluster.kill(1)
    broker = await cluster.restart(1)
    assert ORDERS not in broker.roles
    assert await cluster.tree(paths.TOPICS) == await cluster.tree(paths.DELETE_TOPICS) == []


async def test_a_deletion_that_a_dead_broker_halts_hides_the_topic_all_the_same(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    cluster.brokers[1].scope.cancel()  # still elected, but it does nothing
    await cluster.kill(2)
    await cluster.delete("orders")
    assert ORDERS in cluster.brokers[3].metadata
    await cluster.kill(1)
    assert ORDERS not in cluster.brokers[3].metadata
    assert ORDERS in cluster.brokers[3].logs


async def test_a_broker_that_cannot_delete_is_asked_again_after_its_restart(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[1, 2]])
    cluster.brokers[2].failed_disk[ORDERS] = None
    await cluster.delete("orders")
    assert await cluster.exists(paths.topic("orders"))
    await cluster.kill(2)
    await cluster.restart(2)
    assert await cluster.tree(paths.TOPICS) == []


async def test_a_topic_that_is_deleted_does_not_grow(cluster):
    await cluster.start(1, 2)
    created = await cluster.create("orders", [[2]])
    await cluster.kill(2)
    await cluster.delete("orders")
    await cluster.store.set(paths.topic("orders"), TopicAssignment({0: [2], 1: [1]}, created.topic_id).encode())
    await cluster.settle()
    assert TopicPartition("orders", 1) not in cluster.brokers[1].roles


async def test_what_others_left_below_a_deleted_topic_goes_too(cluster):
    await cluster.start(1)
    await cluster.create("orders", [[1]])
    await cluster.store.create(f"{paths.partitions('orders')}/7")
    await cluster.store.create(f"{paths.partitions('orders')}/7/state")
    await cluster.delete("orders")
    assert await cluster.tree(paths.TOPICS) == await cluster.tree(paths.DELETE_TOPICS) == []


async def test_a_mark_that_vanishes_in_the_middle_stops_nothing(cluster):
    broker = await cluster.start(1)
    await cluster.create("orders", [[1]])
    mark = paths.delete_topic("orders")
    cluster.before_write(broker, paths.topic("orders"), lambda: cluster.store.delete(mark))
    await cluster.delete("orders")
    assert await cluster.tree(paths.TOPICS) == []


async def test_the_mark_of_a_topic_that_does_not_exist_is_removed(cluster):
    await cluster.start(1)
    await cluster.store.create(paths.delete_topic("nothing"))
    await cluster.settle()
    assert await cluster.tree(paths.DELETE_TOPICS) == []


async def test_a_topic_that_is_created_and_marked_at_once_is_deleted(cluster):
    broker = await cluster.start(1)
    topic = Create(paths.topic("orders"), TopicAssignment({0: [1]}, b"x" * 16).encode())
    await cluster.store.multi([Create(paths.delete_topic("orders")), topic])
    await cluster.settle()
    assert await cluster.tree(paths.TOPICS) == await cluster.tree(paths.DELETE_TOPICS) == []
    assert broker.logs == {}


@pytest.mark.parametrize("marked_before_start", [True, False])
async def test_marks_are_removed_where_deletion_is_disabled(cluster, marked_before_start):
    cluster.config.delete_topic_enable = False
    broker = await cluster.start(1)
    await cluster.create("orders", [[1]])
    if marked_before_start:
        await cluster.kill(1)
    await cluster.delete("orders")
    if marked_before_start:
        broker = await cluster.restart(1)
    assert await cluster.tree(paths.DELETE_TOPICS) == []
    assert broker.leads("orders")


def repeat_after(cluster, path, action):
    """Once, the controller's write of that node is carried out, its answer lost, and all of it sent again.

    `action` happens in between, in another session.
    """
    broker = cluster.controller
    write = broker.store.batch

    async def batch(items):
        outcomes = await write(items)
        if not any(op.path == path for item in items for op in item):
            return outcomes
        broker.store.batch = write
        await action()
        return await write(items)

    broker.store.batch = batch


async def test_a_topic_made_again_outlives_the_repeated_deletion_of_its_predecessor(cluster):
    broker = await cluster.start(1)
    await cluster.create("orders", [[1]])
    again = TopicAssignment({0: [1]}, b"another topic id").encode()
    config = paths.config_entity("topics", "orders")

    async def create_again():
        await cluster.store.multi([Create(config, b'{"version":1,"config":{}}'), Create(paths.topic("orders"), again)])

    repeat_after(cluster, paths.delete_topic("orders"), create_again)
    await cluster.delete("orders")
    assert await cluster.exists(paths.topic("orders"))
    assert await cluster.exists(config)
    assert broker.leads("orders")
    assert cluster.image.topics["orders"].topic_id == b"another topic id"
    assert await cluster.tree(paths.DELETE_TOPICS) == []


async def test_an_isr_written_while_its_topic_was_deleted_does_not_end_the_term(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    cluster.brokers[2].is_deaf = True
    await cluster.delete("orders")
    epoch = cluster.controller.candidate.epoch
    await cluster.write_state("orders", isr=(2,))
    note = PartitionList((TopicPartition("orders", 0),)).encode()
    await cluster.store.create(paths.ISR_CHANGE_PREFIX, note, sequential=True)
    await cluster.settle()
    assert cluster.controller.candidate.epoch == epoch
    assert await cluster.tree(paths.ISR_CHANGES) == []
