"""What a value of inter.broker.protocol.version changes in the store, and in the requests to brokers."""

import pytest

from barnabas.controller.decide.requests import ControlBatch, Sender, deleted_partitions
from barnabas.controller.decide.steps import TellLeaderAndIsr, TellMetadata, TellStop
from barnabas.controller.events import ReassignmentsAsked
from barnabas.controller.image.state import (
    Assignment,
    AssignmentsChanged,
    DeletionMarked,
    Leadership,
    LeadershipChanged,
    replay,
)
from barnabas.controller.store import paths
from barnabas.controller.store.metadata_versions import metadata_version_of
from barnabas.controller.store.paths import PartitionList, PartitionState, TopicAssignment
from barnabas.wire import messages as m
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

ORDERS, PAGES = TopicPartition("orders", 0), TopicPartition("pages", 0)
# fmt: off
METADATA_VERSIONS = (
    "2.0-IV0", "2.0-IV1", "2.1-IV0", "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0", "2.3-IV1", "2.4-IV0",
    "2.4-IV1", "2.5-IV0", "2.6-IV0", "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1",
    "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2",
    "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0",
    "2.8", "3.9",
)
# fmt: on


def requests_at(metadata_version, image, *tells):
    """The requests that are sent to broker 1, as they arrive there."""
    versions = metadata_version_of(metadata_version).versions
    batch = ControlBatch()
    for tell in tells:
        batch.add(tell)
    requests = batch.requests(image, Sender(1, 4, "PLAINTEXT", versions))
    made = [request for broker_id, request in requests if broker_id == 1]
    return [
        (versions[each.API_KEY], m.decode(type(each), versions[each.API_KEY], m.encode(each, versions[each.API_KEY])))
        for each in made
    ]


def flat(request):
    """Topic, topic id and state of each partition of a request of either shape."""
    grouped = [
        (topic.topic_name, topic.topic_id, state) for topic in request.topic_states for state in topic.partition_states
    ]
    return grouped + [(state.topic_name, ZERO_TOPIC_ID, state) for state in request.ungrouped_partition_states]


@pytest.fixture
def image(make):
    """A partition that moves, under a leader that recovers, and a topic that is deleted."""
    image = make.image(1, 2, orders=[[1, 2]], pages=[[1], [1]])
    replay(image, AssignmentsChanged("orders", {0: Assignment((1, 2, 3), (3,), (2,))}))
    replay(image, LeadershipChanged(ORDERS, Leadership(PartitionState(1, 6, 3, (1,), paths.RECOVERING), 9)))
    replay(image, DeletionMarked("pages"))
    return image


@pytest.mark.parametrize("metadata_version", METADATA_VERSIONS)
def test_a_role_says_at_each_metadata_version_what_its_version_can(make, image, metadata_version):
    (version, request), _ = requests_at(metadata_version, image, TellLeaderAndIsr(ORDERS, (1,), is_new=True))
    ((topic, topic_id, state),) = flat(request)
    assert (topic, state.leader, state.leader_epoch, state.isr, state.partition_epoch) == ("orders", 1, 6, [1], 9)
    assert (state.replicas, state.is_new, state.controller_epoch) == ([1, 2, 3], True, 3)
    assert [(each.broker_id, each.host_name, each.port) for each in request.live_leaders] == [(1, "host1", 9001)]
    assert request.broker_epoch == (101 if version >= 2 else -1)
    moving = [*state.adding_replicas], [*state.removing_replicas]
    assert moving == (([3], [2]) if version >= 3 else ([], []))
    assert topic_id == (make.topic_id("orders") if version >= 5 else ZERO_TOPIC_ID)
    assert (request.type, state.leader_recovery_state) == (0, 1 if version >= 6 else 0)
    assert bool(request.topic_states) is (version >= 2)


@pytest.mark.parametrize("metadata_version", METADATA_VERSIONS)
def test_metadata_say_at_each_metadata_version_what_their_version_can(make, image, metadata_version):
    ((version, request),) = requests_at(metadata_version, image, TellMetadata((ORDERS, PAGES)))
    (topic, topic_id, state), (gone, _, deleted) = flat(request)
    assert (topic, state.leader, state.isr, state.zk_version) == ("orders", 1, [1], 9)
    assert (gone, deleted.leader) == ("pages", -2)
    assert (state.replicas, state.offline_replicas) == ([1, 2, 3], [3])
    assert topic_id == (make.topic_id("orders") if version >= 7 else ZERO_TOPIC_ID)
    assert request.broker_epoch == (101 if version >= 5 else -1)
    assert [(each.id, each.endpoints[0].listener) for each in request.live_brokers] == [
        (1, "PLAINTEXT"),
        (2, "PLAINTEXT"),
    ]


@pytest.mark.parametrize("metadata_version", METADATA_VERSIONS)
def test_replicas_are_stopped_and_deleted_at_each_metadata_version(image, metadata_version):
    second = TopicPartition("pages", 1)
    tells = TellStop(PAGES, 1, True), TellStop(second, 1, True), TellStop(ORDERS, 1, False)
    requests = requests_at(metadata_version, image, *tells)
    version = requests[0][0]
    assert [each for _, request in requests for each in deleted_partitions(request)] == [PAGES, second]
    if version >= 3:
        (request,) = [request for _, request in requests]
        epochs = {each.topic_name: each.partition_states[0].leader_epoch for each in request.topic_states}
        assert epochs == {"orders": 6, "pages": -2}
    else:
        stopped, deleted = (request for _, request in requests)
        assert (stopped.delete_partitions, deleted.delete_partitions) == (False, True)
        assert [len(stopped.ungrouped_partitions), len(stopped.topics)] == ([1, 0] if version == 0 else [0, 1])
    assert {request.broker_epoch for _, request in requests} == {101 if version >= 1 else -1}


# What is written


@pytest.mark.parametrize(
    ("metadata_version", "node"),
    [
        ("2.6", b'{"features":{},"version":1,"status":0}'),
        ("2.7-IV0", b'{"features":{},"version":1,"status":1}'),
        ("3.2", b'{"features":{},"version":1,"status":1}'),
        ("3.3-IV0", b'{"features":{},"version":2,"status":1}'),
        ("3.9-IV0", b'{"features":{},"version":2,"status":1}'),
    ],
)
async def test_a_new_controller_sets_features_up_as_its_version_wants_them(cluster, metadata_version, node):
    cluster.config.inter_broker_protocol_version = metadata_version
    await cluster.start(1)
    assert await cluster.data(paths.FEATURE) == node


async def test_features_follow_the_version_up_and_down_and_are_not_written_for_nothing(cluster):
    versions = []
    for metadata_version in ("2.6", "2.7", "3.9", "3.9", "2.7"):
        cluster.config.inter_broker_protocol_version = metadata_version
        await cluster.start(1)
        versions.append((await cluster.store.exists(paths.FEATURE)).version)
        await cluster.kill(1)
    assert versions == [0, 1, 2, 2, 3]  # as Kafka 3.9.1 leaves it


async def test_levels_that_were_finalized_stay_until_features_are_disabled(cluster):
    finalized = b'{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":1}'
    await cluster.store.create(paths.FEATURE, finalized)
    await cluster.start(1)
    assert await cluster.data(paths.FEATURE) == b'{"features":{"f":{"max_version_level":3}},"version":2,"status":1}'
    await cluster.kill(1)
    cluster.config.inter_broker_protocol_version = "2.6"
    await cluster.start(1)
    assert await cluster.data(paths.FEATURE) == b'{"features":{},"version":1,"status":0}'


async def test_topics_have_no_ids_below_28_and_are_given_one_by_the_first_controller_above(cluster):
    cluster.config.inter_broker_protocol_version = "2.7"
    await cluster.start(1)
    await cluster.store.create(paths.topic("orders"), TopicAssignment({0: [1]}).encode())
    await cluster.store.create(paths.topic("pages"), TopicAssignment({0: [1]}).encode())
    await cluster.settle()
    assert cluster.brokers[1].leads("orders")
    assert cluster.brokers[1].leads("pages")
    await cluster.kill(1)
    cluster.config.inter_broker_protocol_version = "2.8"
    await cluster.restart(1)
    ids = {TopicAssignment.decode(await cluster.data(paths.topic(each)), "").topic_id for each in ("orders", "pages")}
    assert len(ids - {None}) == 2
    assert ids == set(cluster.image.topic_names)


async def test_a_topic_without_an_id_can_grow_move_and_be_deleted(cluster):
    cluster.config.inter_broker_protocol_version = "2.7"
    await cluster.start(1, 2)
    await cluster.store.create(paths.topic("orders"), TopicAssignment({0: [1]}).encode())
    await cluster.settle()
    await cluster.store.set(paths.topic("orders"), TopicAssignment({0: [1], 1: [2]}).encode())
    await cluster.settle()
    assert cluster.brokers[2].leads("orders", 1)
    assert await cluster.ask(ReassignmentsAsked({ORDERS: [2, 1]})) == {ORDERS: None}
    assert (await cluster.assignment("orders"))[0] == {0: [2, 1], 1: [2]}
    assert TopicAssignment.decode(await cluster.data(paths.topic("orders")), "").topic_id is None
    await cluster.delete("orders")
    assert not await cluster.exists(paths.topic("orders"))


# Leaders that write their ISRs themselves


async def notify(cluster, *topic_partitions):
    notification = PartitionList(topic_partitions).encode()
    await cluster.store.create(paths.ISR_CHANGE_PREFIX, notification, sequential=True)
    await cluster.settle()


async def test_an_isr_that_its_leader_wrote_is_read_and_sent_to_all_brokers(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[1, 2]])
    await cluster.write_state("orders", isr=(1,))
    assert cluster.brokers[3].metadata[ORDERS].isr == (1, 2)
    await notify(cluster, ORDERS)
    assert cluster.brokers[3].metadata[ORDERS].isr == (1,)
    assert cluster.brokers[3].metadata[ORDERS].zk_version == 1
    assert await cluster.tree(paths.ISR_CHANGES) == []


async def test_the_next_notification_is_read_and_one_without_a_change_is_removed(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[1, 2]])
    for isr in (1,), (1, 2), (1, 2):
        await cluster.write_state("orders", isr=isr)
        await notify(cluster, ORDERS, TopicPartition("unknown", 0))
        assert cluster.image.partition(ORDERS).leadership.state.isr == isr
    assert await cluster.tree(paths.ISR_CHANGES) == []


async def test_a_notification_completes_a_reassignment(cluster):
    cluster.config.inter_broker_protocol_version = "2.7-IV1"
    await cluster.start(1, 2)
    await cluster.create("orders", [[1]])
    await cluster.ask(ReassignmentsAsked({ORDERS: [2]}))
    await cluster.write_state("orders", isr=(1, 2))
    await notify(cluster, ORDERS)
    assert await cluster.assignment("orders") == ({0: [2]}, {}, {})
    assert cluster.brokers[2].leads("orders")


async def test_a_member_without_a_notification_yet_leaves_the_isr_when_it_restarts(cluster):
    cluster.config.inter_broker_protocol_version = "2.7-IV1"
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[1, 2, 3]])
    await cluster.write_state("orders", isr=(1, 2))
    await notify(cluster, ORDERS)
    await cluster.write_state("orders", isr=(1, 2, 3))
    await cluster.restart_unnoticed(3)  # perhaps with less than it had
    assert (await cluster.state("orders")).isr == (1, 2)


async def test_notifications_of_a_former_term_are_removed_as_all_states_are_read(cluster):
    await cluster.store.create(paths.ISR_CHANGE_PREFIX, PartitionList((ORDERS,)).encode(), sequential=True)
    await cluster.start(1)
    assert await cluster.tree(paths.ISR_CHANGES) == []
