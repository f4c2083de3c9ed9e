"""The metadata cache has exactly what UpdateMetadata requests contained."""

import pytest
import trio
import trio.testing

from barnabas.controller.store.paths import Endpoint
from barnabas.wire import messages as m
from barnabas.wire.sentinels import LEADER_DURING_DELETE
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import FAREWELL_SECONDS, ClusterMetadata

TOPIC_ID = bytes(range(16))


def update(
    leader: int = 1, topic_id: bytes = TOPIC_ID, brokers: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,)
) -> m.UpdateMetadataRequest:
    state = m.UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=0, leader=leader, leader_epoch=4, isr=[1], replicas=list(replicas)
    )
    return m.UpdateMetadataRequest(
        controller_id=1,
        topic_states=[
            m.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name="orders", topic_id=topic_id, partition_states=[state]
            )
        ],
        live_brokers=[
            m.UpdateMetadataRequest.UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    m.UpdateMetadataRequest.UpdateMetadataEndpoint(host="here", port=9092, listener="PLAINTEXT")
                ],
            )
            for broker in brokers
        ],
    )


def test_brokers_topics_and_leaders_are_known_after_an_update() -> None:
    metadata = ClusterMetadata()
    metadata.apply(update())
    assert metadata.leader_of("orders", 0) == 1
    assert metadata.endpoint(1, "PLAINTEXT") == Endpoint("PLAINTEXT", "here", 9092)
    assert metadata.topic_name(TOPIC_ID) == "orders"
    assert metadata.endpoint(1, "OTHER") is None
    assert metadata.leader_of("orders", 1) is None


def test_a_leader_that_is_not_alive_is_no_leader() -> None:
    metadata = ClusterMetadata()
    metadata.apply(update(brokers=()))
    assert metadata.leader_of("orders", 0) is None


def test_a_topic_under_deletion_leaves_the_picture() -> None:
    metadata = ClusterMetadata()
    metadata.apply(update())
    assert metadata.apply(update(leader=LEADER_DURING_DELETE)) == [TopicPartition("orders", 0)]
    assert metadata.topics == {}
    assert metadata.topic_name(TOPIC_ID) is None


def test_a_topic_is_gone_when_a_later_one_of_its_name_is_deleted() -> None:
    metadata = ClusterMetadata()
    earlier = update()
    (state,) = earlier.topic_states[0].partition_states
    second = m.UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=1, leader=1, isr=[1], replicas=[1])
    earlier.topic_states[0].partition_states = [state, second]
    metadata.apply(earlier)
    # What was between did not arrive: the deletion of the topic, and a topic of the same name with one partition.
    gone = metadata.apply(update(leader=LEADER_DURING_DELETE, topic_id=bytes(16 * [7])))
    assert {*gone} == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert (metadata.topics, metadata.partition_count, metadata.topic_name(TOPIC_ID)) == ({}, 0, None)


def test_partitions_are_counted_however_they_come_and_go() -> None:
    metadata, counts = ClusterMetadata(), []
    other_id = bytes(16)[:15] + b"1"
    for request in (
        update(),
        update(leader=2),
        update(topic_id=other_id),
        update(LEADER_DURING_DELETE),
        update(LEADER_DURING_DELETE),
    ):
        metadata.apply(request)
        counts.append(metadata.partition_count)
    assert counts == [1, 1, 1, 0, 0]


def test_a_topic_made_again_has_its_new_id_only() -> None:
    metadata = ClusterMetadata()
    metadata.apply(update())
    metadata.apply(update(topic_id=bytes(15) + b"\x01"))
    assert metadata.topic_name(TOPIC_ID) is None
    assert metadata.topic_name(bytes(15) + b"\x01") == "orders"
    assert metadata.replaced == 1


async def test_a_task_that_waits_for_a_change_is_woken(autojump_clock: object) -> None:
    metadata = ClusterMetadata()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.changed)
        await trio.testing.wait_all_tasks_blocked()
        metadata.apply(update())
    assert metadata.controller_id == 1


async def test_a_leader_that_has_just_died_is_named_for_a_short_while(autojump_clock: object) -> None:
    """If Metadata lacks a broker, librdkafka first drops it, then moves its partitions, and waits for a second."""
    metadata = ClusterMetadata()
    metadata.apply(update(leader=2, brokers=(1, 2), replicas=(1, 2)))
    metadata.apply(update(brokers=(1,), replicas=(1, 2)))
    assert list(metadata.brokers) == [1]
    assert metadata.leader_of("orders", 0) == 1
    assert [info.broker_id for info in metadata.brokers_to_tell()] == [1, 2]
    await trio.sleep(FAREWELL_SECONDS)
    assert [info.broker_id for info in metadata.brokers_to_tell()] == [1]


@pytest.mark.parametrize("moved", [{"leader": 1}, {"topic_id": bytes(16)}, {"leader": LEADER_DURING_DELETE}])
async def test_who_leads_nothing_any_more_is_named_no_longer(autojump_clock: object, moved: dict) -> None:
    """A broker that shuts down gives its partitions away before it goes."""
    metadata = ClusterMetadata()
    metadata.apply(update(leader=2, brokers=(1, 2), replicas=(1, 2)))
    metadata.apply(update(**{"leader": 1, "brokers": (1, 2), "replicas": (1, 2)} | moved))
    metadata.apply(update(brokers=(1,), replicas=(1, 2)))
    assert [info.broker_id for info in metadata.brokers_to_tell()] == [1]


async def test_who_leads_what_no_other_can_lead_is_named_no_longer(autojump_clock: object) -> None:
    metadata = ClusterMetadata()
    metadata.apply(update(leader=2, brokers=(1, 2), replicas=(2,)))
    metadata.apply(update(leader=-1, brokers=(1,), replicas=(2,)))
    assert [info.broker_id for info in metadata.brokers_to_tell()] == [1]


async def test_who_comes_back_at_once_is_named_once(autojump_clock: object) -> None:
    metadata = ClusterMetadata()
    for brokers in ((1, 2), (1,), (1, 2)):
        metadata.apply(update(leader=2, brokers=brokers, replicas=(1, 2)))
    assert [info.broker_id for info in metadata.brokers_to_tell()] == [1, 2]
