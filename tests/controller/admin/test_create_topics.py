"""Creating topics and marking them for deletion. Codes and messages are those that a running Kafka 3.9.1 answered."""

import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.admin.create_topics import (
    CreatedTopic,
    NewTopic,
    TopicDefaults,
    TopicPlan,
    TopicRefused,
    create_topic,
    mark_for_deletion,
    new_topic_id,
    plan_topic,
    refuse_existing,
)
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ConfigEntity, TopicAssignment
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import topic_id_text

BOTH = "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time."
NOT_THERE = TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


def plan(name="orders", *, brokers=(1, 2), problems=(), **options):
    return plan_topic(
        NewTopic(name, **options),
        brokers=brokers if isinstance(brokers, dict) else dict.fromkeys(brokers),
        defaults=TopicDefaults(partition_count=3, replication_factor=2),
        check_configs=lambda configs: [problem for problem in problems if configs],
        rng=random.Random(0),
    )


async def create(store, name="orders", *, configs=None, seed=0):
    return await create_topic(store, TopicPlan(name, {0: [1, 2]}, configs or {}), random.Random(seed))


@pytest.fixture
def store(cluster):
    return cluster.store


def test_counts_that_are_not_given_are_the_brokers():
    planned = plan()
    assert (len(planned.assignment), planned.replication_factor) == (3, 2)
    assert planned.configs == {}


def test_one_count_may_be_given():
    assert len(plan(partition_count=5).assignment) == 5
    assert plan(replication_factor=1).replication_factor == 1


def test_a_manual_assignment_is_taken_as_it_is_even_with_brokers_that_do_not_exist():
    assert plan(assignment={1: [9, 1], 0: [1, 9]}).assignment == {0: [1, 9], 1: [9, 1]}


def test_properties_are_kept_when_they_are_valid():
    assert plan(configs={"retention.ms": "5"}).configs == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        ({"name": ""}, 17, "Topic name is invalid: the empty string is not allowed"),
        (
            {"name": "a b"},
            17,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
        (
            {"name": "x" * 250},
            17,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        ({"partition_count": 0}, 37, "Number of partitions must be larger than 0."),
        ({"partition_count": -2}, 37, "Number of partitions must be larger than 0."),
        ({"partition_count": 1 << 31}, 37, "Number of partitions must be at most 50000."),
        ({"replication_factor": 0}, 38, "Replication factor must be larger than 0."),
        ({"replication_factor": -2}, 38, "Replication factor must be larger than 0."),
        ({"replication_factor": 3}, 38, "Replication factor: 3 larger than available brokers: 2."),
        ({"partition_count": 1, "assignment": {0: [1]}}, 42, BOTH),
        ({"replication_factor": 1, "assignment": {0: [1]}}, 42, BOTH),
        ({"assignment": {0: [1], 1: [1, 2]}}, 39, "All partitions should have the same number of replicas"),
        ({"assignment": {0: [], 1: []}}, 39, "The manual partition assignment includes an empty replica list."),
        ({"assignment": {0: [1, 1]}}, 39, "Duplicate replica assignment found: HashMap(0 -> ArrayBuffer(1, 1))"),
        ({"assignment": {1: [1]}}, 39, "partitions should be a consecutive 0-based integer sequence"),
        ({"assignment": {0: [1], 2: [1]}}, 39, "partitions should be a consecutive 0-based integer sequence"),
        ({"assignment": {-1: [1], 0: [1]}}, 39, "partitions should be a consecutive 0-based integer sequence"),
        (
            {"configs": {"retention.ms": None, "x": "1", "segment.bytes": None}},
            40,
            "Null value not supported for topic configs: retention.ms,segment.bytes",
        ),
        (
            {"configs": {"x": "y"}, "problems": ["Unknown topic config name: x", "and more"]},
            40,
            "Unknown topic config name: x",
        ),
    ],
)
def test_a_topic_is_refused_in_kafkas_words(asked, code, message):
    assert plan(**asked) == TopicRefused(ErrorCode(code), message)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"partition_count": 0, "replication_factor": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "bad name", "partition_count": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partition_count": 0, "configs": {"x": None}}, ErrorCode.INVALID_CONFIG),
        ({"name": "bad name", "configs": {"x": "y"}, "problems": ["unknown"]}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            {"assignment": {0: [1, 1], 1: [1]}, "configs": {"x": "y"}, "problems": ["unknown"]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_the_first_of_several_mistakes_is_the_one_that_kafka_names(asked, code):
    assert plan(**asked).code is code


def test_brokers_of_which_some_have_racks_are_an_error_without_a_text():
    assert plan(brokers={1: "a", 2: None}) == TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)


async def test_a_topic_is_its_configuration_and_its_replicas(store):
    created = await create(store, configs={"retention.ms": "5"})
    config, _ = await store.get("/config/topics/orders")
    topic, stat = await store.get("/brokers/topics/orders")
    assert config == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert TopicAssignment.decode(topic, "") == TopicAssignment({0: [1, 2]}, created.topic_id)
    assert stat.version == 0


async def test_a_topic_without_properties_has_an_empty_configuration_node(store):
    await create(store)
    assert (await store.get("/config/topics/orders"))[0] == b'{"version":1,"config":{}}'


async def test_a_configuration_that_was_left_over_is_replaced(store):
    await store.create(paths.config_entity("topics", "orders"), ConfigEntity({"x": "y"}).encode())
    assert isinstance(await create(store, configs={"retention.ms": "5"}), CreatedTopic)
    data, _ = await store.get("/config/topics/orders")
    assert ConfigEntity.decode(data, "").config == {"retention.ms": "5"}


async def test_a_topic_that_exists_is_refused_and_keeps_its_configuration(store):
    await create(store, configs={"retention.ms": "5"})
    refused = await create(store, configs={"retention.ms": "6"})
    assert refused == TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")
    data, _ = await store.get("/config/topics/orders")
    assert ConfigEntity.decode(data, "").config == {"retention.ms": "5"}


async def test_a_topic_that_is_being_deleted_is_refused(store):
    await create(store)
    await mark_for_deletion(store, "orders")
    refused = TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' is marked for deletion.")
    assert await create(store) == await refuse_existing(store, "orders") == refused


@pytest.mark.parametrize("taken", [["a.b"], ["a_b"], ["a.b_c", "a_b.c"]])
async def test_names_that_differ_in_dot_and_underscore_collide(store, taken):
    for name in taken:
        await store.create(paths.topic(name))
    name = taken[0].translate(str.maketrans("._", "_."))
    name = "a_b_c" if len(taken) > 1 else name
    refused = await create(store, name)
    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.message == f"Topic '{name}' collides with existing topics: {', '.join(sorted(taken))}"


async def test_a_dash_collides_with_nothing(store):
    await create(store, "a.b")
    assert isinstance(await create(store, "a-b"), CreatedTopic)


async def test_a_free_name_is_not_refused(store):
    assert await refuse_existing(store, "orders") is None


class LosesAnswers:
    """A session whose writes are applied, and repeated because the first answer was lost."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def multi(self, ops):
        await self.store.multi(ops)
        return await self.store.multi(ops)


async def test_a_topic_whose_creation_was_answered_late_is_created(store):
    created = await create(LosesAnswers(store))
    assert isinstance(created, CreatedTopic)
    data, _ = await store.get("/brokers/topics/orders")
    assert TopicAssignment.decode(data, "").topic_id == created.topic_id


async def test_a_topic_too_large_for_the_store_is_refused(store):
    plan = TopicPlan("orders", {partition: list(range(30)) for partition in range(40_000)}, {})
    assert (await create_topic(store, plan, random.Random(0))).code is ErrorCode.INVALID_REQUEST


async def test_of_two_brokers_that_create_a_topic_one_is_refused(store):
    outcomes = []

    async def create_it(seed):
        outcomes.append(await create(store, seed=seed))

    async with trio.open_nursery() as both:
        both.start_soon(create_it, 1)
        both.start_soon(create_it, 2)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["CreatedTopic", "TopicRefused"]


async def test_deletion_is_a_mark(store):
    await create(store)
    assert await mark_for_deletion(store, "orders") is None
    assert await store.get("/admin/delete_topics/orders") is not None
    assert await mark_for_deletion(store, "orders") is None


@pytest.mark.parametrize("name", ["nothing", "", "a/b", ".."])
async def test_what_does_not_exist_cannot_be_deleted(store, name):
    assert await mark_for_deletion(store, name) == NOT_THERE
    assert await store.children("/admin/delete_topics") == []


@given(st.integers())
def test_a_topic_id_is_a_random_uuid_that_does_not_look_like_an_option(seed):
    topic_id = new_topic_id(random.Random(seed))
    assert len(topic_id) == 16
    assert any(topic_id)
    assert topic_id[6] >> 4 == 4
    assert topic_id[8] >> 6 == 2
    assert not topic_id_text(topic_id).startswith("-")
