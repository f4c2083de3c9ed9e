"""The cluster image: each record's effect, and that contradictions are noticed."""

import pytest

from barnabas.controller.image.state import (
    BrokerChanged,
    BrokerJoined,
    BrokerLeft,
    ClusterImage,
    DeletionBegun,
    DeletionHalted,
    DeletionMarked,
    DeletionResumed,
    DirectoryReported,
    Leadership,
    LeadershipChanged,
    PartitionAppeared,
    ReplicaMoved,
    TopicAppeared,
    TopicDeleted,
    TopicGone,
    replay,
    replay_all,
)
from barnabas.controller.image.transitions import PartitionStatus, ReplicaMove, ReplicaStatus
from barnabas.controller.store.paths import PartitionState
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)


def led_by(leader, *isr):
    return LeadershipChanged(ORDERS, Leadership(PartitionState(leader, 6, 1, isr), 8))


def test_a_partition_begins_new_with_new_replicas(make):
    image = make.image(1, 2)
    replay_all(image, [TopicAppeared("orders", bytes(16)), PartitionAppeared(ORDERS, (2, 1), adding=(1,))])
    partition = image.partition(ORDERS)
    assert partition.status is PartitionStatus.NEW
    assert partition.replica_statuses == {2: ReplicaStatus.NEW, 1: ReplicaStatus.NEW}
    assert (partition.assignment, partition.leadership) == (((2, 1), (1,), ()), None)


def test_a_partition_is_online_while_its_leader_is(make):
    image = make.image(1, 2, orders=[[1, 2]])
    assert image.partition(ORDERS).status is PartitionStatus.ONLINE
    replay(image, led_by(-1, 1, 2))
    assert image.partition(ORDERS).status is PartitionStatus.OFFLINE
    replay(image, led_by(2, 2))
    assert image.partition(ORDERS).status is PartitionStatus.ONLINE


def test_a_leader_on_a_dead_broker_leaves_the_partition_offline(make):
    image = make.image(1, 2, orders=[[1, 2]])
    replay_all(image, [BrokerLeft(1), led_by(1, 1, 2)])
    assert image.partition(ORDERS).status is PartitionStatus.OFFLINE


def test_a_replica_on_a_failed_disk_is_offline_though_its_broker_lives(make):
    image = make.image(1, 2, orders=[[1, 2]])
    replay(image, DirectoryReported(ORDERS, 1, works=False))
    assert list(image.online_replicas(ORDERS)) == [2]
    assert image.is_online(TopicPartition("orders", 1), 1)
    replay(image, DirectoryReported(ORDERS, 1, works=True))
    assert list(image.online_replicas(ORDERS)) == [1, 2]


def test_a_broker_that_joins_again_has_no_failed_disks(make):
    image = make.image(1, 2, orders=[[1, 2]])
    replay_all(image, [DirectoryReported(ORDERS, 1, works=False), BrokerLeft(1), BrokerJoined(make.broker(1))])
    assert image.is_online(ORDERS, 1)


def test_a_changed_registration_keeps_what_is_known_of_disks(make):
    image = make.image(1, 2, orders=[[1, 2]])
    replay_all(image, [DirectoryReported(ORDERS, 1, works=False), BrokerChanged(make.broker(1, port=1))])
    assert image.brokers[1].registration.endpoints[0].port == 1
    assert not image.is_online(ORDERS, 1)


def test_answers_from_an_earlier_life_of_a_broker_are_distinguished(make):
    image = make.image(1)
    assert image.is_current(make.broker(1, port=99))
    assert not image.is_current(make.broker(1, epoch=5))
    assert not image.is_current(make.broker(2))


def test_deletion_takes_partitions_out_of_service(make):
    image = make.image(1, orders=[[1], [1]])
    replay_all(image, [DeletionMarked("orders"), DeletionBegun("orders", (ORDERS, TopicPartition("orders", 1)))])
    assert {partition.status for _, partition in image.partitions()} == {PartitionStatus.NON_EXISTENT}
    assert image.deletions["orders"].begun


def test_deletion_halts_and_resumes(make):
    image = make.image(1, orders=[[1]])
    replay_all(image, [DeletionMarked("orders"), DeletionHalted("orders")])
    assert image.deletions["orders"].halted
    replay(image, DeletionResumed("orders"))
    assert not image.deletions["orders"].halted


def test_a_deleted_topic_leaves_nothing(make):
    image = make.image(1, orders=[[1]])
    replay_all(
        image,
        [
            DeletionMarked("orders"),
            DeletionBegun("orders", (ORDERS,)),
            DirectoryReported(ORDERS, 1, works=False),
        ],
    )
    for move in ReplicaMove.STOP, ReplicaMove.BEGIN_DELETION, ReplicaMove.CONFIRM_DELETION:
        replay(image, ReplicaMoved(ORDERS, 1, move))
    replay(image, TopicDeleted("orders"))
    assert image == ClusterImage(brokers=make.image(1).brokers, failed_disks={1: {}})


def test_a_topic_with_a_replica_left_is_not_deleted(make):
    image = make.image(1, orders=[[1]])
    replay(image, DeletionMarked("orders"))
    with pytest.raises(InvariantBroken, match="replica 1 of orders-0 is Online: 'remove' is not possible"):
        replay(image, TopicDeleted("orders"))


def test_a_topic_that_another_removed_is_forgotten_whatever_its_state(make):
    image = make.image(1, orders=[[1]])
    replay(image, TopicGone("orders"))
    assert image.topics == {}
    assert image.topic_names == {}


def test_topics_are_found_by_id(make):
    image = make.image(1, orders=[[1]])
    assert image.topic_names == {make.topic_id("orders"): "orders"}


def test_replicas_are_found_by_broker(make):
    image = make.image(1, 2, 3, orders=[[1, 2], [2, 3]])
    assert list(image.replicas_on({2: None})) == [(ORDERS, 2), (TopicPartition("orders", 1), 2)]


@pytest.mark.parametrize(
    "record",
    [
        TopicAppeared("orders", bytes(16)),
        LeadershipChanged(TopicPartition("orders", 9), Leadership(PartitionState(1, 0, 1, (1,)), 0)),
        ReplicaMoved(TopicPartition("nothing", 0), 1, ReplicaMove.START),
        ReplicaMoved(ORDERS, 2, ReplicaMove.START),
    ],
)
def test_what_cannot_be_breaks_an_invariant(make, record):
    with pytest.raises(InvariantBroken):
        replay(make.image(1, orders=[[1]]), record)


def test_a_broker_that_is_not_there_cannot_change(make):
    with pytest.raises(InvariantBroken):
        replay(make.image(1), BrokerChanged(make.broker(2)))
