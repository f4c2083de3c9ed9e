"""What brokers are sent: the requests of a batch, their order, and that they can be encoded."""

from barnabas.controller.decide.requests import ControlBatch, Sender
from barnabas.controller.decide.steps import TellLeaderAndIsr, TellMetadata, TellStop
from barnabas.controller.image.state import (
    BrokerJoined,
    BrokerLeft,
    DeletionMarked,
    DirectoryReported,
    Leadership,
    LeadershipChanged,
    LiveBroker,
    PartitionAppeared,
    TopicAppeared,
    replay,
    replay_all,
)
from barnabas.controller.store.paths import BrokerRegistration, Endpoint, PartitionState
from barnabas.wire import messages as m
from barnabas.wire.apis import inter_broker_versions
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)
LATEST = inter_broker_versions("3.9")
SENDER = Sender(broker_id=1, controller_epoch=4, listener="PLAINTEXT", versions=LATEST)


def requests_of(image, *tells, metadata_to=None):
    batch = ControlBatch()
    for tell in tells:
        batch.add(tell)
    made = {}
    for broker_id, request in batch.requests(image, SENDER, metadata_to):
        made.setdefault(broker_id, []).append(request)
    return made


def kinds(requests):
    return {broker_id: [type(each).__name__ for each in made] for broker_id, made in requests.items()}


def test_roles_go_to_those_named_and_metadata_to_everybody(make):
    made = requests_of(make.image(1, 2, orders=[[2]]), TellLeaderAndIsr(ORDERS, (2,)))
    assert kinds(made) == {1: ["UpdateMetadataRequest"], 2: ["LeaderAndIsrRequest", "UpdateMetadataRequest"]}


def test_replicas_are_stopped_after_the_metadata(make):
    image = make.image(1, orders=[[1], [1]])
    made = requests_of(image, TellStop(SECOND, 1, True), TellLeaderAndIsr(ORDERS, (1,)))
    assert kinds(made) == {1: ["LeaderAndIsrRequest", "UpdateMetadataRequest", "StopReplicaRequest"]}


def test_a_role_says_everything_about_the_partition(make):
    image = make.image(1, 2)
    replay_all(image, [TopicAppeared("orders", b"i" * 16), PartitionAppeared(ORDERS, (2, 1), (1,), (3,))])
    replay(image, LeadershipChanged(ORDERS, Leadership(PartitionState(2, 6, 3, (2,), 1), 9)))
    request = requests_of(image, TellLeaderAndIsr(ORDERS, (1,), is_new=True))[1][0]
    state = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        topic_name="orders",
        partition_index=0,
        controller_epoch=3,
        leader=2,
        leader_epoch=6,
        isr=[2],
        partition_epoch=9,
        replicas=[2, 1],
        adding_replicas=[1],
        removing_replicas=[3],
        is_new=True,
        leader_recovery_state=1,
    )
    assert request == m.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=4,
        broker_epoch=101,
        topic_states=[
            m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name="orders", topic_id=b"i" * 16, partition_states=[state]
            )
        ],
        live_leaders=[m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=2, host_name="host2", port=9002)],
    )


def test_a_partition_mentioned_twice_is_reported_once_and_stays_new(make):
    image = make.image(1, orders=[[1]])
    made = requests_of(image, TellLeaderAndIsr(ORDERS, (1,), is_new=True), TellLeaderAndIsr(ORDERS, (1,)))
    (state,) = made[1][0].topic_states[0].partition_states
    assert state.is_new


def test_partitions_of_a_topic_are_grouped(make):
    image = make.image(1, orders=[[1], [1]])
    made = requests_of(image, TellLeaderAndIsr(ORDERS, (1,)), TellLeaderAndIsr(SECOND, (1,)))
    (topic,) = made[1][0].topic_states
    assert [state.partition_index for state in topic.partition_states] == [0, 1]


def test_dead_leaders_and_dead_receivers_are_left_out(make):
    image = make.image(1, 2, orders=[[2, 1]])
    replay(image, BrokerLeft(2))
    made = requests_of(image, TellLeaderAndIsr(ORDERS, (1, 2)))
    assert list(made) == [1]
    assert made[1][0].live_leaders == []


def test_metadata_names_every_live_broker_with_all_its_listeners(make):
    endpoints = (Endpoint("PLAINTEXT", "a", 1), Endpoint("OUTSIDE", "b", 2))
    registration = BrokerRegistration(endpoints, {"PLAINTEXT": "PLAINTEXT", "OUTSIDE": "SASL_SSL"}, 0, "r1")
    image = make.image(1)
    replay(image, BrokerJoined(LiveBroker(2, 55, registration)))
    made = requests_of(image, TellMetadata(()))
    assert [broker.id for broker in made[1][0].live_brokers] == [1, 2]
    second = made[2][0].live_brokers[1]
    assert (second.rack, made[2][0].broker_epoch) == ("r1", 55)
    assert [(each.listener, each.host, each.port, each.security_protocol) for each in second.endpoints] == [
        ("PLAINTEXT", "a", 1, 0),
        ("OUTSIDE", "b", 2, 3),
    ]


def test_metadata_says_which_replicas_are_offline(make):
    image = make.image(1, 2, 3, orders=[[1, 2, 3]])
    replay_all(image, [BrokerLeft(3), DirectoryReported(ORDERS, 2, works=False)])
    (state,) = requests_of(image, TellMetadata((ORDERS,)))[1][0].topic_states[0].partition_states
    assert (state.replicas, state.offline_replicas, state.zk_version) == ((1, 2, 3), [2, 3], 7)


def test_metadata_may_go_to_some_only(make):
    made = requests_of(make.image(1, 2, 3), TellMetadata(()), metadata_to=[2])
    assert list(made) == [2]


def test_a_partition_that_never_had_a_leader_is_not_announced(make):
    image = make.image(1)
    replay_all(image, [TopicAppeared("orders", bytes(16)), PartitionAppeared(ORDERS, (9,))])
    assert requests_of(image, TellMetadata((ORDERS,)))[1][0].topic_states == []
    assert kinds(requests_of(image, TellLeaderAndIsr(ORDERS, (1,)))) == {1: ["UpdateMetadataRequest"]}


def test_a_topic_that_is_deleted_is_announced_as_gone_and_stopped_whatever_its_epoch(make):
    image = make.image(1, orders=[[1]])
    replay(image, DeletionMarked("orders"))
    metadata, stop = requests_of(image, TellMetadata((ORDERS,)), TellStop(ORDERS, 1, True))[1]
    (state,) = metadata.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.isr) == (-2, 0, (1,))
    (state,) = stop.topic_states[0].partition_states
    assert (state.leader_epoch, state.delete_partition) == (-2, True)


def test_a_replica_is_stopped_with_the_epoch_that_its_leader_has(make):
    image = make.image(1, orders=[[1]])
    replay(image, PartitionAppeared(SECOND, (1,)))
    (stop,) = requests_of(image, TellStop(ORDERS, 1, False), TellStop(SECOND, 1, False))[1]
    assert [state.leader_epoch for state in stop.topic_states[0].partition_states] == [5, -1]


def test_to_stop_and_to_delete_is_to_delete(make):
    image = make.image(1, orders=[[1]])
    (stop,) = requests_of(image, TellStop(ORDERS, 1, True), TellStop(ORDERS, 1, False))[1]
    assert [state.delete_partition for state in stop.topic_states[0].partition_states] == [True]


def test_nothing_to_tell_is_no_request(make):
    assert requests_of(make.image(1, 2)) == {}
