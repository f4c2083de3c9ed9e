"""Metadata: topics that are created on first use, what the controller says, and all topics of a large cluster."""

from dataclasses import replace

import pytest
import trio

from barnabas.broker.call import Call
from barnabas.broker.handlers.metadata import metadata
from barnabas.broker.server.dispatch import answer
from barnabas.controller.store import paths
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.metadata import FAREWELL_SECONDS, ClusterMetadata
from tests.broker.harness import Machine
from tests.broker.steps import StepMeter

Asked = m.MetadataRequest.MetadataRequestTopic


async def with_topics(nursery, *names, **properties):
    machine = await Machine(nursery, **properties).start()
    client = await machine.connect()
    for name in names:
        await client.create_topic(name)
    return machine, client


async def with_topic_of_others(nursery):
    """A broker, and a topic t of which the store has only an empty node: the test sends UpdateMetadata for it."""
    machine, client = await with_topics(nursery)
    store = machine.session()
    await store.create(paths.topic("t"))
    await store.close()
    return machine, client


async def names_of(client, version, **fields):
    return [topic.name for topic in (await client.ask(m.MetadataRequest(**fields), version)).topics]


# -- topics that are not there


async def test_an_unknown_topic_is_an_error_when_the_broker_forbids_to_create_it(nursery, autojump_clock):
    _, client = await with_topics(nursery, auto_create_topics_enable="false")
    for version in (3, 12):
        assert (await client.metadata("new", create=True, version=version))["new"].error_code == 3


@pytest.mark.parametrize("version", [0, 3, 4, 12])
async def test_an_unknown_topic_is_created_and_the_client_tries_again(nursery, autojump_clock, version):
    _, client = await with_topics(nursery, num_partitions="3")
    first = (await client.metadata("new", create=True, version=version))["new"]
    assert (first.error_code, first.partitions) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    await trio.sleep(1)
    again = (await client.metadata("new", create=True, version=version))["new"]
    assert (again.error_code, len(again.partitions)) == (0, 3)
    assert {row.error_code for row in again.partitions} == {0}
    assert (await client.produce("new", b"v", 2)).error_code == 0


async def test_many_clients_that_ask_at_once_create_one_topic(nursery, autojump_clock):
    machine, client = await with_topics(nursery)
    codes = []

    async def ask(other):
        codes.append((await other.metadata("new", create=True))["new"].error_code)

    async with trio.open_nursery() as asking:
        for _ in range(20):
            asking.start_soon(ask, await machine.connect())
    assert set(codes) <= {0, ErrorCode.LEADER_NOT_AVAILABLE}
    await trio.sleep(1)
    assert (await client.metadata("new"))["new"].error_code == 0
    assert await names_of(client, 12, topics=None) == ["new"]


async def test_more_replicas_than_brokers_cannot_be_created(nursery, autojump_clock):
    _, client = await with_topics(nursery, default_replication_factor="3")
    found = await client.metadata("new", create=True)
    assert found["new"].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_internal_topics_are_created_with_settings_of_their_own(nursery, autojump_clock):
    _, client = await with_topics(nursery, offsets_topic_num_partitions="7")
    await client.metadata("__consumer_offsets", create=True)
    await trio.sleep(1)
    topic = (await client.metadata("__consumer_offsets"))["__consumer_offsets"]
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 7)


# -- what the controller says


def update_of(machine, *, brokers, **state):
    """UpdateMetadata in the controller's name: who lives, and the state of t-0."""
    endpoint = m.UpdateMetadataRequest.UpdateMetadataEndpoint
    return m.UpdateMetadataRequest(
        controller_id=machine.serving.broker_id,
        controller_epoch=1,
        broker_epoch=-1,
        live_brokers=[
            m.UpdateMetadataRequest.UpdateMetadataBroker(
                id=broker, endpoints=[endpoint(host=f"h{broker}", port=9092, listener="PLAINTEXT")], rack="r"
            )
            for broker in brokers
        ],
        topic_states=[
            m.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name="t",
                topic_id=b"i" * 16,
                partition_states=[m.UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=0, **state)],
            )
        ],
    )


async def test_a_dead_leader_is_not_available(nursery, autojump_clock):
    machine, client = await with_topic_of_others(nursery)
    state = {"leader": 7, "leader_epoch": 4, "isr": [7], "replicas": [7, 8], "offline_replicas": [7]}
    assert (await client.ask(update_of(machine, brokers=[8], **state))).error_code == 0
    (row,) = (await client.metadata("t"))["t"].partitions
    assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (row.isr_nodes, row.replica_nodes, row.offline_replicas) == ([7], [7, 8], [7])
    assert (await client.ask(update_of(machine, brokers=[7, 8], **state))).error_code == 0
    (row,) = (await client.metadata("t"))["t"].partitions
    assert (row.error_code, row.leader_id, row.leader_epoch) == (0, 7, 4)


async def test_the_brokers_are_those_that_the_controller_named_last(nursery, autojump_clock):
    machine, client = await with_topic_of_others(nursery)
    state = {"leader": 7, "isr": [7], "replicas": [7]}
    await client.ask(update_of(machine, brokers=[7, 9], **state))
    await trio.sleep(FAREWELL_SECONDS)  # until then responses contain the earlier brokers, too
    answer = await client.ask(m.MetadataRequest(topics=[]))
    assert [(broker.node_id, broker.host, broker.rack) for broker in answer.brokers] == [(7, "h7", "r"), (9, "h9", "r")]


async def test_a_topic_without_a_leader_during_its_deletion_is_gone(nursery, autojump_clock):
    machine, client = await with_topic_of_others(nursery)
    await client.ask(update_of(machine, brokers=[7], leader=7, isr=[7], replicas=[7]))
    await client.ask(update_of(machine, brokers=[7], leader=-2, isr=[], replicas=[7]))
    assert (await client.metadata("t"))["t"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await client.ask(m.MetadataRequest(topics=[Asked(topic_id=b"i" * 16, name=None)]), 12)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def back_under_a_silent_controller(nursery):
    """A broker that returns to a cluster with a topic, and whose controller sends nothing; the controller's session,
    whose end makes the broker the controller."""
    machine, _ = await with_topics(nursery, "t")
    await machine.crash()
    controller_session = machine.session()
    await controller_session.create(paths.CONTROLLER, paths.ControllerNode(9, 0).encode(), ephemeral=True)
    nursery.start_soon(machine.start)
    return machine, controller_session


async def test_a_broker_that_has_no_metadata_yet_waits_rather_than_to_deny_a_topic(nursery, autojump_clock):
    machine, controller_session = await back_under_a_silent_controller(nursery)
    await trio.sleep(0.1)
    client = await machine.connect()
    await client.send(m.MetadataRequest(topics=None), 9)
    assert await client.is_quiet(2.0)
    await controller_session.close()  # now it becomes the controller
    assert [topic.name for topic in (await client.receive()).topics] == ["t"]


async def test_a_broker_that_gets_no_metadata_for_long_sends_clients_away(nursery, autojump_clock):
    machine, controller_session = await back_under_a_silent_controller(nursery)
    await trio.sleep(15)
    client = await machine.connect()
    await client.send(m.MetadataRequest(topics=None), 9)
    assert await client.is_closed()
    await controller_session.close()
    await trio.sleep(1)
    client = await machine.connect()
    assert (await client.metadata("t"))["t"].error_code == 0
    assert (await client.metadata("u"))["u"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- all topics of a large cluster


def updated(broker, **counts):
    """This broker after an UpdateMetadata of topics with so many partitions: every other one has no leader."""
    me = broker.broker_id
    endpoint = m.UpdateMetadataRequest.UpdateMetadataEndpoint(port=9092, host="127.0.0.1", listener="PLAINTEXT")
    state = m.UpdateMetadataRequest.UpdateMetadataPartitionState
    topics = [
        m.UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name,
            topic_id=number.to_bytes(16, "big"),
            partition_states=[
                state(partition_index=index, leader=-1 if index % 2 else me, isr=[me], replicas=[me, 9])
                for index in range(count)
            ],
        )
        for number, (name, count) in enumerate(counts.items(), 1)
    ]
    live = [m.UpdateMetadataRequest.UpdateMetadataBroker(id=me, endpoints=[endpoint])]
    broker.metadata.apply(m.UpdateMetadataRequest(controller_id=me, live_brokers=live, topic_states=topics))
    broker.metadata.is_complete.set()
    return broker


async def isolated(nursery):
    """A broker whose metadata cache has only what a test puts into it."""
    machine, _ = await with_topics(nursery)
    return replace(machine.broker, metadata=ClusterMetadata())


def call_of(version):
    return Call(3, version, "test", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")


@pytest.mark.parametrize("version", range(13))
async def test_all_topics_are_reported_as_if_each_were_named(nursery, autojump_clock, version):
    counts = {f"t{number}": number % 4 + 1 for number in range(150)} | {"large": 1500}
    broker = updated(await isolated(nursery), **counts)
    flags = {"include_topic_authorized_operations": True} if version >= 8 else {}
    named = m.MetadataRequest(topics=[Asked(name=name) for name in counts], **flags)
    everything = m.MetadataRequest(topics=None if version else [], **flags)
    expected = await answer(broker, call_of(version), named)
    assert m.encode(await answer(broker, call_of(version), everything), version) == m.encode(expected, version)


async def test_all_topics_are_encoded_once_until_they_change(nursery, autojump_clock):
    broker = updated(await isolated(nursery), a=1, b=2)
    request = m.MetadataRequest(topics=None)
    first, again = [await metadata(broker, call_of(12), request) for _ in range(2)]
    assert again.pieces[1] is first.pieces[1]
    updated(broker, c=1)
    response = await answer(broker, call_of(12), request)
    assert [topic.name for topic in response.topics] == ["a", "b", "c"]


async def test_all_topics_of_a_large_cluster_are_reported_in_many_steps(nursery, autojump_clock):
    broker = updated(await isolated(nursery), **{f"t{number}": 3 for number in range(2000)}, large=3000)
    with StepMeter() as meter:
        encoded = await metadata(broker, call_of(12), m.MetadataRequest(topics=None))
    response = m.decode(m.MetadataResponse, 12, b"".join(encoded.pieces))
    assert sum(len(topic.partitions) for topic in response.topics) == 9000
    meter.check()
