"""Adding partitions to a topic. Codes and messages are those that a running Kafka 3.9.1 answered."""

import random

import pytest

from barnabas.controller.admin.create_partitions import (
    CreatedPartitions,
    NewPartitions,
    create_partitions,
    plan_new_partitions,
)
from barnabas.controller.admin.create_topics import PARTITIONS_MAX, TopicRefused
from barnabas.controller.store import paths
from barnabas.controller.store.paths import TopicAssignment
from barnabas.wire.errors import ErrorCode

TOPIC_ID = b"i" * 16
TWO = TopicAssignment({0: [1, 2], 1: [2, 3], 2: [3, 1]}, TOPIC_ID)


def plan(count, assignments=None, *, existing=TWO, brokers=(1, 2, 3)):
    racks = brokers if isinstance(brokers, dict) else dict.fromkeys(brokers)
    return plan_new_partitions(NewPartitions("t", count, assignments), existing, racks, random.Random(0))


def test_new_partitions_continue_the_pattern_of_the_first():
    assert plan(6) == {3: [1, 3], 4: [2, 1], 5: [3, 2]}  # so did Kafka, for the same three partitions


def test_replicas_may_be_assigned_by_hand():
    assert plan(5, [[3, 1], [1, 2]]) == {3: [3, 1], 4: [1, 2]}


REFUSED = {
    "as many": (3, None, 37, "Topic already has 3 partitions."),
    "fewer": (2, None, 37, "Topic currently has 3 partitions, which is higher than the requested 2."),
    "none": (0, None, 37, "Topic currently has 3 partitions, which is higher than the requested 0."),
    "less than none": (-1, None, 37, "Topic currently has 3 partitions, which is higher than the requested -1."),
    "more than a node holds": (
        PARTITIONS_MAX + 1, None, 37, f"Number of partitions must be at most {PARTITIONS_MAX}.",
    ),
    "too few assigned": (5, [[1, 2]], 39, "Increasing the number of partitions by 2 but 1 assignments provided."),
    "nothing assigned": (4, [], 39, "Increasing the number of partitions by 1 but 0 assignments provided."),
    "unknown brokers": (5, [[1, 7], [8, 9]], 39, "Unknown broker(s) in replica assignment: 7, 8, 9."),
    "a broker below zero": (4, [[-1, 2]], 39, "Unknown broker(s) in replica assignment: -1."),
    "a broker twice": (
        4, [[1, 1]], 39, "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 3.",
    ),
    "no replicas": (4, [[]], 39, "Cannot have replication factor of 0 for partition id 3."),
    "other factors": (
        6, [[1], [1, 2], [1, 2, 3]], 39,
        "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [3, 5]"
        " have replication factors [1, 3], respectively.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_kafkas_words(case):
    count, assignments, code, message = REFUSED[case]
    assert plan(count, assignments) == TopicRefused(ErrorCode(code), message)


def test_a_topic_does_not_grow_while_its_partitions_move():
    moving = TopicAssignment({0: [1, 2]}, TOPIC_ID, adding={0: [2]})
    message = "A partition reassignment is in progress for the topic 't'."
    assert plan(2, existing=moving) == TopicRefused(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)


def test_more_replicas_than_brokers_are_refused():
    refused = plan(4, brokers=[1])
    assert refused.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.message == "Replication factor: 2 larger than available brokers: 1."


def test_a_mixture_of_brokers_with_and_without_rack_is_refused():
    assert plan(4, brokers={1: "a", 2: None}) == TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)


def test_a_topic_without_its_first_partition_gets_no_more():
    assert plan(4, existing=TopicAssignment({1: [1]}, TOPIC_ID)) == TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)


# The store


async def add(cluster, count, *, store=None, name="t", **options):
    new = NewPartitions(name, count)
    return await create_partitions(store or cluster.store, new, {1: None}, random.Random(0), **options)


async def assigned(cluster, name="t"):
    return TopicAssignment.decode(await cluster.data(paths.topic(name)), name)


@pytest.fixture
async def with_topic(cluster):
    await cluster.store.create(paths.topic("t"), TopicAssignment({0: [1]}, TOPIC_ID).encode())
    return cluster


async def test_the_topics_id_and_its_partitions_are_kept(with_topic):
    assert await add(with_topic, 3) == CreatedPartitions(3)
    assert await assigned(with_topic) == TopicAssignment({0: [1], 1: [1], 2: [1]}, TOPIC_ID)


async def test_a_request_that_is_only_validated_writes_nothing(with_topic):
    assert await add(with_topic, 3, validate_only=True) == CreatedPartitions(3)
    assert (await add(with_topic, 1, validate_only=True)).code == ErrorCode.INVALID_PARTITIONS
    assert len((await assigned(with_topic)).partitions) == 1


@pytest.mark.parametrize("name", ["nope", "a b", ""])
async def test_a_topic_that_does_not_exist_gets_no_partitions(cluster, name):
    refused = TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    assert await add(cluster, 3, name=name) == refused


async def test_a_topic_that_is_being_deleted_gets_no_partitions(with_topic):
    await with_topic.store.create(paths.delete_topic("t"))
    refused = TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    assert await add(with_topic, 3) == refused


async def test_a_topic_that_is_written_meanwhile_is_read_again(with_topic):
    broker = with_topic.add(1)
    moved = TopicAssignment({0: [1], 1: [2]}, TOPIC_ID)
    with_topic.before_write(broker, paths.topic("t"), lambda: with_topic.store.set(paths.topic("t"), moved.encode()))
    assert await add(with_topic, 3, store=broker.store) == CreatedPartitions(3)
    assert (await assigned(with_topic)).partitions == {0: [1], 1: [2], 2: [1]}


async def test_a_topic_that_is_deleted_meanwhile_does_not_come_back(with_topic):
    broker = with_topic.add(1)
    with_topic.before_write(broker, paths.topic("t"), lambda: with_topic.store.delete(paths.topic("t")))
    assert (await add(with_topic, 3, store=broker.store)).code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not await with_topic.exists(paths.topic("t"))


async def test_an_answer_of_the_store_that_was_lost_is_recognised(with_topic):
    """As after a lost connection: the write was applied, and its repetition meets another version."""
    store = with_topic.database.session()
    write = store.batch

    async def twice(items):
        await write(items)
        return await write(items)

    store.batch = twice
    assert await add(with_topic, 2, store=store) == CreatedPartitions(2)


async def test_partitions_that_do_not_fit_in_the_node_are_refused(cluster):
    wide = TopicAssignment({index: list(range(1000, 1100)) for index in range(1900)}, TOPIC_ID)
    await cluster.store.create(paths.topic("t"), wide.encode())
    brokers = dict.fromkeys(range(1000, 1100))
    refused = await create_partitions(cluster.store, NewPartitions("t", 4000), brokers, random.Random(0))
    assert refused.code == ErrorCode.INVALID_REQUEST


async def test_the_controller_gives_new_partitions_their_leaders(cluster):
    await cluster.start(1, 2)
    await cluster.create("t", [[1, 2]])
    await create_partitions(cluster.store, NewPartitions("t", 3), dict.fromkeys((1, 2)), random.Random(0))
    await cluster.settle()
    assert [(await cluster.state("t", index)).leader for index in range(3)] == [1, 2, 1]
