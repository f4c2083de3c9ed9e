"""Failed log directories, as the controller sees them: replicas that are lost, and those that work again."""

import pytest

from barnabas.controller.events import ControlledShutdownAsked, LeaderAndIsrAnswered, ReassignmentsAsked
from barnabas.controller.image.transitions import ReplicaStatus
from barnabas.controller.store import paths
from barnabas.controller.store.paths import LogDirEvent
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)


async def test_a_replica_on_a_broken_disk_does_not_lead(cluster):
    await cluster.start(1, 2)
    cluster.brokers[2].failed_disk[ORDERS] = None
    await cluster.create("orders", [[2, 1]])
    state = await cluster.state("orders")
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1,), 1)
    assert cluster.brokers[1].leads("orders")
    assert cluster.brokers[1].metadata[ORDERS].offline_replicas == [2]
    assert cluster.brokers[2].sent(m.StopReplicaRequest)


async def test_a_broker_that_reports_a_lost_disk_is_asked_what_it_lost(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    cluster.brokers[2].failed_disk[ORDERS] = None
    await cluster.store.create(paths.LOG_DIR_EVENT_PREFIX, LogDirEvent(2).encode(), sequential=True)
    await cluster.settle()
    assert (await cluster.state("orders")).leader == 1
    assert await cluster.tree(paths.LOG_DIR_EVENTS) == []


async def test_brokers_that_know_no_topic_ids_report_disks_by_topic_name(cluster):
    await cluster.start(1, 2)
    error = m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(topic_name="orders", partition_index=0, error_code=56)
    cluster.brokers[2]._leader_and_isr = lambda request: m.LeaderAndIsrResponse(partition_errors=[error])
    await cluster.create("orders", [[2, 1]])
    assert (await cluster.state("orders")).leader == 1


async def test_a_role_that_a_broker_refuses_is_logged(cluster, caplog):
    broker = await cluster.start(1)
    broker._take_role = lambda partition, state: ErrorCode.INCONSISTENT_TOPIC_ID
    await cluster.create("orders", [[1], [1]])
    assert "broker 1 did not take its role in 2 partitions: INCONSISTENT_TOPIC_ID" in caplog.text


async def test_what_a_broker_answered_in_its_former_life_means_nothing(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    former = cluster.image.brokers[2]
    await cluster.restart_unnoticed(2)
    state = await cluster.state("orders")
    error = m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(topic_name="orders", partition_index=0, error_code=56)
    stale = LeaderAndIsrAnswered(former, m.LeaderAndIsrResponse(partition_errors=[error]))
    cluster.controller.candidate._controller.put(stale)
    await cluster.settle()
    assert cluster.image.is_online(ORDERS, 2)
    assert await cluster.state("orders") == state


def answered(cluster, broker_id, code):
    """The broker's answer about its role in `orders`."""
    error = m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(topic_name="orders", partition_index=0, error_code=code)
    return LeaderAndIsrAnswered(cluster.image.brokers[broker_id], m.LeaderAndIsrResponse(partition_errors=[error]))


@pytest.mark.parametrize("was_lost", [False, True])
async def test_a_disks_report_about_a_replica_that_was_dropped_since_does_not_end_a_term(cluster, was_lost):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[1, 2]])
    controller = cluster.controller.candidate._controller
    await cluster.ask(ReassignmentsAsked({ORDERS: [1, 3]}))
    if was_lost:
        controller.put(answered(cluster, 3, ErrorCode.KAFKA_STORAGE_ERROR))
        await cluster.settle()
    await cluster.ask(ReassignmentsAsked({ORDERS: None}))
    controller.put(answered(cluster, 3, ErrorCode.NONE if was_lost else ErrorCode.KAFKA_STORAGE_ERROR))
    await cluster.settle()
    assert cluster.controller.candidate._controller is controller
    assert cluster.image.partition(ORDERS).replica_statuses == {1: ReplicaStatus.ONLINE, 2: ReplicaStatus.ONLINE}


async def test_a_mended_disk_is_noticed_when_its_broker_returns(cluster):
    await cluster.start(1, 2)
    cluster.brokers[2].failed_disk[ORDERS] = None
    await cluster.create("orders", [[2]])
    assert (await cluster.state("orders")).leader == NO_LEADER
    await cluster.kill(2)
    await cluster.restart(2)
    assert (await cluster.state("orders")).leader == 2


async def lack_descriptors(cluster, broker_id, partition):
    """A topic whose only replica could not be made; then, after a while, it could."""
    cluster.brokers[broker_id].failed_disk[partition] = None
    await cluster.create("orders", [[broker_id]])
    assert (await cluster.state("orders")).leader == NO_LEADER
    del cluster.brokers[broker_id].failed_disk[partition]


async def notify(cluster, broker_id):
    await cluster.store.create(paths.LOG_DIR_EVENT_PREFIX, LogDirEvent(broker_id).encode(), sequential=True)
    await cluster.settle()


async def test_a_replica_that_can_be_made_after_all_leads_once_its_broker_says_so(cluster):
    await cluster.start(1, 2)
    await lack_descriptors(cluster, 2, ORDERS)
    await notify(cluster, 2)
    assert (await cluster.state("orders")).leader == 2
    assert cluster.brokers[2].leads("orders")
    assert cluster.image.partition(ORDERS).replica_statuses == {2: ReplicaStatus.ONLINE}


async def test_a_follower_that_can_be_made_after_all_is_sent_its_role(cluster):
    await cluster.start(1, 2)
    cluster.brokers[2].failed_disk[ORDERS] = None
    await cluster.create("orders", [[1, 2]])
    cluster.brokers[2].failed_disk.clear()
    await notify(cluster, 2)
    assert cluster.brokers[2].roles[ORDERS].leader == 1
    assert cluster.image.is_online(ORDERS, 2)
    assert cluster.brokers[1].metadata[ORDERS].offline_replicas == []


async def test_a_notification_of_a_disk_that_is_still_broken_changes_no_state(cluster):
    await cluster.start(1, 2)
    cluster.brokers[2].failed_disk[ORDERS] = None
    await cluster.create("orders", [[2]])
    before = await cluster.state("orders")
    await notify(cluster, 2)
    assert await cluster.state("orders") == before
    assert not cluster.image.is_online(ORDERS, 2)


async def test_a_topic_whose_log_could_not_be_made_is_deleted_once_its_broker_can(cluster):
    await cluster.start(1, 2)
    await lack_descriptors(cluster, 2, ORDERS)
    await cluster.delete("orders")
    assert await cluster.exists(paths.topic("orders"))
    await notify(cluster, 2)
    assert await cluster.tree(paths.TOPICS) == await cluster.tree(paths.DELETE_TOPICS) == []


async def test_a_broker_that_is_about_to_stop_is_sent_no_roles_for_its_notification(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    await cluster.ask(ControlledShutdownAsked(2, cluster.brokers[2].epoch))
    asked = len(cluster.brokers[2].sent(m.LeaderAndIsrRequest))
    await notify(cluster, 2)
    assert len(cluster.brokers[2].sent(m.LeaderAndIsrRequest)) == asked
