"""The controller at work: brokers come and go, topics are created and grown, controllers die in between."""

from dataclasses import replace

import pytest
import trio

from barnabas.controller import events
from barnabas.controller.controller import HANDLERS
from barnabas.controller.image.transitions import PartitionStatus, ReplicaStatus
from barnabas.controller.store import paths
from barnabas.controller.store.paths import LogDirEvent, TopicAssignment
from barnabas.controller.store.store import Create, Delete, SetData
from barnabas.wire import messages as m
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition
from tests.controller.orders import ORDERS, names


async def leader_and_isr(cluster, topic, partition=0):
    state = await cluster.state(topic, partition)
    return state.leader, state.isr, state.leader_epoch


# Topics


async def test_the_only_broker_learns_that_it_is_alone_and_in_charge(cluster):
    broker = await cluster.start(1)
    assert broker.candidate.is_active
    assert broker.live_brokers.keys() == {1}
    assert [request.controller_id for request in broker.requests] == [1]


async def test_a_new_topic_gets_a_leader_that_everybody_learns(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    assert await leader_and_isr(cluster, "orders") == (2, (2, 3), 0)
    assert cluster.brokers[2].leads("orders")
    assert cluster.brokers[3].roles[ORDERS].leader == 2
    assert ORDERS not in cluster.brokers[1].roles
    assert {broker.metadata[ORDERS].leader for broker in cluster.brokers.values()} == {2}


async def test_the_state_is_that_of_the_event_that_is_handled(cluster, monkeypatch):
    assert events.STATES.keys() == HANDLERS.keys()
    broker = await cluster.start(1)
    controller = broker.candidate.controller
    assert controller.state == events.IDLE
    seen = []

    async def look(context, event):
        seen.append(controller.state)
        event.answer({})

    monkeypatch.setitem(HANDLERS, events.ElectionAsked, look)
    await broker.candidate.ask(events.ElectionAsked([ORDERS], unclean=False))
    assert seen == [7], "Kafka's ManualLeaderBalance"
    assert controller.state == events.IDLE


async def test_brokers_get_roles_before_metadata(cluster):
    broker = await cluster.start(1)
    broker.requests.clear()
    await cluster.create("orders", [[1], [1]])
    assert names(broker.requests) == ["LeaderAndIsr", "UpdateMetadata"]
    (topic,) = broker.requests[0].topic_states
    assert [state.is_new for state in topic.partition_states] == [True, True]
    assert broker.requests[0].broker_epoch == broker.epoch


async def test_the_topic_id_travels_with_every_role(cluster):
    broker = await cluster.start(1)
    created = await cluster.create("orders", [[1]])
    assert broker.requests[-2].topic_states[0].topic_id == created.topic_id
    assert broker.requests[-1].topic_states[0].topic_id == created.topic_id


async def test_a_thousand_partitions_are_one_batch_and_requests_of_a_bounded_size(cluster):
    broker = await cluster.start(1)
    broker.requests.clear()
    batches = []
    write = broker.store.batch

    async def counted(items):
        batches.append(len(items))
        return await write(items)

    broker.store.batch = counted
    await cluster.create("orders", partition_count=1000)
    assert names(broker.requests) == ["LeaderAndIsr"] * 4 + ["UpdateMetadata"]
    assert len(broker.roles) == len(broker.metadata) == 1000
    assert len(batches) == 1


async def test_topics_created_at_once_are_served_at_once(cluster):
    broker = await cluster.start(1)
    broker.requests.clear()
    nodes = [
        Create(paths.topic(name), TopicAssignment({0: [1]}, name.encode() * 16).encode()) for name in ("a", "b", "c")
    ]
    await cluster.store.batch(nodes)
    await cluster.settle()
    assert broker.roles.keys() == {TopicPartition(name, 0) for name in ("a", "b", "c")}
    assert names(broker.requests) == ["LeaderAndIsr", "UpdateMetadata"]


async def test_a_topic_whose_brokers_are_dead_waits_for_them(cluster):
    await cluster.start(1)
    await cluster.create("orders", [[2]])
    assert not await cluster.exists(paths.partition_state("orders", 0))
    await cluster.start(2)
    assert await leader_and_isr(cluster, "orders") == (2, (2,), 0)
    assert cluster.brokers[2].roles[ORDERS].is_new


async def test_replicas_on_dead_brokers_are_not_in_sync(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[3, 2, 1]])
    assert await leader_and_isr(cluster, "orders") == (2, (2, 1), 0)
    assert cluster.brokers[1].metadata[ORDERS].offline_replicas == [3]


async def test_a_topic_that_grows_gets_leaders_for_what_is_new(cluster):
    broker = await cluster.start(1)
    created = await cluster.create("orders", [[1]])
    broker.requests.clear()
    grown = TopicAssignment({0: [1], 1: [1], 2: [1]}, created.topic_id)
    await cluster.store.set(paths.topic("orders"), grown.encode())
    await cluster.settle()
    (topic,) = broker.requests[0].topic_states
    assert [state.partition_index for state in topic.partition_states] == [1, 2]
    assert await leader_and_isr(cluster, "orders", 2) == (1, (1,), 0)


async def test_a_topic_may_grow_again(cluster):
    broker = await cluster.start(1)
    created = await cluster.create("orders", [[1]])
    for count in 2, 3:
        grown = TopicAssignment({partition: [1] for partition in range(count)}, created.topic_id)
        await cluster.store.set(paths.topic("orders"), grown.encode())
        await cluster.settle()
        assert len(broker.roles) == count


async def test_a_topic_without_an_id_is_given_one(cluster):
    broker = await cluster.start(1)
    await cluster.store.create(paths.topic("orders"), b'{"version":2,"partitions":{"0":[1]}}')
    await cluster.settle()
    assignment = TopicAssignment.decode(await cluster.data(paths.topic("orders")), "")
    assert assignment.topic_id is not None
    assert broker.requests[-1].topic_states[0].topic_id == assignment.topic_id


async def test_a_topic_that_is_written_while_it_gets_an_id_is_read_again(cluster):
    broker = await cluster.start(1)
    grown = b'{"version":2,"partitions":{"0":[1],"1":[1]}}'
    cluster.before_write(broker, paths.topic("orders"), lambda: cluster.store.set(paths.topic("orders"), grown))
    await cluster.store.create(paths.topic("orders"), b'{"version":2,"partitions":{"0":[1]}}')
    await cluster.settle()
    assert len(broker.roles) == 2
    assert TopicAssignment.decode(await cluster.data(paths.topic("orders")), "").topic_id is not None


async def test_a_topic_node_that_cannot_be_read_harms_no_other(cluster, caplog):
    broker = await cluster.start(1)
    await cluster.store.create(paths.topic("broken"), b"{")
    await cluster.create("orders", [[1]])
    assert broker.leads("orders")
    assert "/brokers/topics/broken" in caplog.text


async def test_a_topic_node_that_someone_removed_is_forgotten(cluster):
    await cluster.start(1)
    await cluster.create("orders", [[9]])
    await cluster.store.delete(paths.topic("orders"))
    await cluster.settle()
    assert cluster.image.topics == {}


async def test_a_topic_node_that_someone_replaced_is_another_topic(cluster):
    broker = await cluster.start(1)
    await cluster.create("orders", [[9]])
    again = TopicAssignment({0: [1]}, b"x" * 16).encode()
    await cluster.store.multi([Delete(paths.topic("orders")), Create(paths.topic("orders"), again)])
    await cluster.settle()
    assert broker.leads("orders")
    assert cluster.image.topic_names == {b"x" * 16: "orders"}


# Brokers


async def test_when_a_leader_dies_a_replica_in_sync_takes_over(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3, 1]])
    await cluster.kill(2)
    assert await leader_and_isr(cluster, "orders") == (3, (3, 1), 1)
    assert cluster.brokers[3].leads("orders")
    assert cluster.brokers[1].roles[ORDERS].leader == 3
    assert cluster.brokers[1].metadata[ORDERS].offline_replicas == [2]


async def test_when_a_follower_dies_it_leaves_the_isr(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    await cluster.kill(3)
    assert await leader_and_isr(cluster, "orders") == (2, (2,), 1)
    assert cluster.brokers[2].roles[ORDERS].isr == (2,)


async def test_a_partition_without_a_live_replica_has_no_leader_until_one_returns(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2]])
    await cluster.kill(2)
    assert await leader_and_isr(cluster, "orders") == (NO_LEADER, (2,), 1)
    assert cluster.brokers[1].metadata[ORDERS].leader == NO_LEADER
    broker = await cluster.restart(2)
    assert await leader_and_isr(cluster, "orders") == (2, (2,), 2)
    assert broker.leads("orders")


async def test_a_broker_that_returns_gets_everything(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[1, 2]])
    await cluster.create("pages", [[1]])
    await cluster.kill(2)
    broker = await cluster.restart(2)
    assert names(broker.requests[:2]) == ["UpdateMetadata", "LeaderAndIsr"]
    assert broker.metadata.keys() == {ORDERS, TopicPartition("pages", 0)}
    assert broker.roles[ORDERS].leader == 1
    assert broker.live_brokers.keys() == {1, 2}


async def test_everybody_learns_of_brokers_that_hold_nothing(cluster):
    await cluster.start(1, 2, 3)
    assert cluster.brokers[1].live_brokers.keys() == {1, 2, 3}
    await cluster.kill(3)
    assert cluster.brokers[2].live_brokers.keys() == {1, 2}


async def test_a_broker_that_restarted_unnoticed_loses_its_leadership_and_gets_its_roles(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    old = cluster.brokers[2]
    old.scope.cancel()
    await old.store.delete(paths.broker(2))
    await cluster.register(old)
    old.roles.clear()
    await cluster.settle()
    assert await leader_and_isr(cluster, "orders") == (3, (3,), 1)
    assert old.roles[ORDERS].leader == 3
    assert cluster.image.brokers[2].epoch == old.epoch


async def test_a_broker_that_restarted_is_still_watched(cluster):
    await cluster.start(1, 2)
    await cluster.restart_unnoticed(2)
    await move(cluster, 2, port=1234)
    assert cluster.brokers[1].live_brokers[2].endpoints[0].port == 1234


async def move(cluster, broker_id, *, port):
    registration = cluster.image.brokers[broker_id].registration
    moved = replace(registration, endpoints=(registration.endpoints[0]._replace(port=port),))
    await cluster.store.set(paths.broker(broker_id), moved.encode())
    await cluster.settle()


async def test_everybody_learns_the_new_address_of_a_broker(cluster):
    await cluster.start(1, 2)
    epoch = cluster.brokers[2].epoch
    for port in 1234, 1235:
        await move(cluster, 2, port=port)
        assert cluster.brokers[1].live_brokers[2].endpoints[0].port == port
    assert cluster.image.brokers[2].epoch == epoch


async def test_a_broker_is_asked_at_its_new_address(cluster):
    await cluster.start(1, 2)
    await move(cluster, 2, port=1234)
    assert cluster.addresses[2] == 1234


async def test_answers_still_count_after_a_broker_moved(cluster):
    await cluster.start(1, 2)
    await move(cluster, 2, port=1234)
    cluster.brokers[2].failed_disk[ORDERS] = None
    await cluster.create("orders", [[2, 1]])
    assert (await cluster.state("orders")).leader == 1


async def test_a_broker_that_does_not_answer_is_asked_until_it_does(autojump_clock, cluster):
    await cluster.start(1, 2)
    cluster.brokers[2].is_deaf = True
    await cluster.create("orders", [[1, 2]])
    await trio.sleep(10)
    assert cluster.brokers[1].leads("orders")
    cluster.brokers[2].is_deaf = False
    await trio.sleep(1)
    assert cluster.brokers[2].roles[ORDERS].leader == 1


async def test_a_registration_that_cannot_be_read_is_no_broker(cluster, caplog):
    broker = await cluster.start(1)
    await cluster.store.create(paths.broker(5), b"{}")
    await cluster.settle()
    assert broker.live_brokers.keys() == {1}
    assert "/brokers/ids/5" in caplog.text


# Unclean elections


async def lose_all_in_sync(cluster):
    """Broker 2 lives but is out of sync; 3, alone in the ISR, is dead."""
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[3, 2]])
    await cluster.kill(2)
    await cluster.restart(2)
    await cluster.kill(3)


async def test_a_replica_out_of_sync_does_not_lead(cluster):
    await lose_all_in_sync(cluster)
    assert await leader_and_isr(cluster, "orders") == (NO_LEADER, (3,), 2)


async def test_a_replica_out_of_sync_leads_where_the_brokers_allow_it(cluster):
    cluster.config.unclean_leader_election_enable = True
    await lose_all_in_sync(cluster)
    state = await cluster.state("orders")
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), 1)


@pytest.mark.parametrize(("topic", "brokers", "leader"), [("true", False, 2), ("false", True, NO_LEADER)])
async def test_the_topics_word_on_unclean_elections_counts_more(cluster, topic, brokers, leader):
    cluster.config.unclean_leader_election_enable = brokers
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[3, 2]], configs={"unclean.leader.election.enable": topic})
    await cluster.kill(2)
    await cluster.restart(2)
    await cluster.kill(3)
    assert (await cluster.state("orders")).leader == leader


@pytest.mark.parametrize("topic", ["orders", None])
async def test_an_election_is_held_when_unclean_ones_become_allowed(cluster, topic):
    await lose_all_in_sync(cluster)
    if topic is None:
        cluster.config.unclean_leader_election_enable = True
    else:
        await cluster.configure("orders", unclean_leader_election_enable="true")
    cluster.controller.candidate.unclean_election_allowed(topic)
    await cluster.settle()
    assert (await cluster.state("orders")).leader == 2


# Writes of others


async def test_a_state_that_another_wrote_is_read_before_it_is_decided_on(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3, 1]])
    await cluster.write_state("orders", isr=(2, 1))
    await cluster.kill(2)
    assert await leader_and_isr(cluster, "orders") == (1, (1,), 1)
    assert cluster.brokers[1].leads("orders")


async def test_a_write_whose_answer_was_lost_is_reported_like_any_other(cluster):
    broker = await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    write = broker.store.batch

    async def repeated(items):
        if isinstance(items[0][-1], SetData):
            await write(items)
        return await write(items)

    broker.store.batch = repeated
    await cluster.kill(2)
    assert await leader_and_isr(cluster, "orders") == (1, (1,), 1)
    assert broker.leads("orders")


async def test_a_state_of_a_later_controller_is_left_alone(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    await cluster.write_state("orders", controller_epoch=99)
    await cluster.kill(2)
    assert await leader_and_isr(cluster, "orders") == (2, (2, 1), 0)


async def test_partition_nodes_that_an_earlier_controller_left_are_used(cluster):
    await cluster.store.create(paths.topic("orders"), TopicAssignment({0: [1]}, b"x" * 16).encode())
    await cluster.store.create(paths.partitions("orders"))
    await cluster.store.create(paths.partition("orders", 0))
    broker = await cluster.start(1)
    assert broker.leads("orders")


# Fail-over


async def test_a_new_controller_sends_every_broker_everything_again(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    cluster.brokers[3].requests.clear()
    await cluster.kill(1)
    sent = [request for request in cluster.brokers[3].requests if request.controller_epoch == 2]
    assert names(sent)[0] == "UpdateMetadata"
    assert sent[0].topic_states == []
    assert sent[1].topic_states[0].partition_states[0].leader_epoch == 0


async def test_a_controller_that_dies_with_the_leader_leaves_both_offices_to_others(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[1, 2, 3]])
    await cluster.kill(1)
    assert await leader_and_isr(cluster, "orders") == (2, (2, 3), 1)
    assert cluster.brokers[2].leads("orders")


async def test_what_happened_without_a_controller_is_found_by_the_next_one(cluster):
    await cluster.start(1, 2)
    await cluster.create("orders", [[2, 1]])
    await cluster.kill(1, 2)
    await cluster.create("pages", [[1]])
    broker = await cluster.restart(1)
    assert await leader_and_isr(cluster, "pages") == (1, (1,), 0)
    assert broker.leads("pages")
    assert await leader_and_isr(cluster, "orders") == (1, (1,), 1)
    assert broker.leads("orders")


async def test_a_single_node_that_restarts_leads_what_it_led(cluster):
    await cluster.start(1)
    await cluster.create("orders", [[1], [1]])
    await cluster.kill(1)
    broker = await cluster.restart(1)
    assert broker.candidate.epoch == 2
    assert broker.leads("orders", 0)
    assert broker.leads("orders", 1)
    assert {partition.status for _, partition in cluster.image.partitions()} == {PartitionStatus.ONLINE}


async def test_a_new_controller_knows_which_replicas_are_on_dead_brokers(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[2, 3]])
    await cluster.kill(3)
    await cluster.kill(1)
    statuses = cluster.image.partition(ORDERS).replica_statuses
    assert statuses == {2: ReplicaStatus.ONLINE, 3: ReplicaStatus.OFFLINE}
    assert cluster.brokers[2].metadata[ORDERS].offline_replicas == [3]


async def test_notifications_to_the_last_controller_are_dropped(cluster):
    await cluster.store.create(paths.LOG_DIR_EVENT_PREFIX, LogDirEvent(1).encode(), sequential=True)
    await cluster.store.create(paths.ISR_CHANGE_PREFIX, b"{}", sequential=True)
    await cluster.start(1)
    assert await cluster.tree(paths.LOG_DIR_EVENTS) == await cluster.tree(paths.ISR_CHANGES) == []


async def test_a_request_of_an_old_controller_is_refused_and_nothing_else_happens(cluster):
    await cluster.start(1, 2)
    cluster.brokers[2].controller_epoch = 50
    await cluster.create("orders", [[2, 1]])
    assert ORDERS not in cluster.brokers[2].roles
    assert cluster.controller.broker_id == 1
    assert cluster.brokers[2].sent(m.LeaderAndIsrRequest) != []


async def test_an_error_that_is_unknown_harms_nothing(cluster, caplog):
    broker = await cluster.start(1)
    broker._leader_and_isr = lambda request: m.LeaderAndIsrResponse(error_code=31000)
    await cluster.create("orders", [[1]])
    assert "broker 1 refused LeaderAndIsr: 31000" in caplog.text
    assert broker.candidate.is_active


async def test_a_state_that_was_written_before_a_deletion_does_not_end_the_term(cluster):
    """Below 2.7-IV2 leaders write their ISR themselves; the controller reads it when another broker goes."""
    cluster.config.inter_broker_protocol_version = "2.7-IV1"
    await cluster.start(1, 2, 3)
    await cluster.create("orders", [[1, 2]])
    epochs = [broker.candidate.epoch for broker in (cluster.brokers[1], cluster.brokers[3])]
    cluster.brokers[2].is_deaf = True  # the deletion waits for it
    await cluster.write_state("orders", isr=(1,))
    await cluster.delete("orders")
    await cluster.kill(2)
    await trio.sleep(5)
    assert [broker.candidate.epoch for broker in (cluster.brokers[1], cluster.brokers[3])] == epochs
