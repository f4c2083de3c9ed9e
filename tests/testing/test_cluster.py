"""Several brokers in one process: leaders move, brokers die, freeze or are cut off, and records stay."""

import os
import threading
import time

import pytest

from barnabas.testing import LocalBrokerError, LocalCluster
from barnabas.wire import messages as m
from tests.testing.client import Client, eventually

ALL = {1, 2, 3}
ORDERS = ("orders", 0)


@pytest.fixture
def cluster():
    with LocalCluster(3, topics={"orders": (1, 3)}) as cluster:
        yield cluster


def at_leader(cluster: LocalCluster, topic: str = "orders") -> Client:
    return Client(cluster.brokers[cluster.leader(topic)].bootstrap_servers)


def produce(cluster: LocalCluster, *values: bytes) -> None:
    with at_leader(cluster) as client:
        assert client.produce("orders", *values).error_code == 0


def values(cluster: LocalCluster) -> list[bytes]:
    with at_leader(cluster) as client:
        return client.values("orders")


def test_all_brokers_have_every_record(cluster):
    assert cluster.isr("orders") == ALL
    produce(cluster, b"a", b"b")
    for broker_id in sorted(ALL - {cluster.leader("orders")}):
        cluster.move_leader("orders", to=broker_id)
        assert cluster.leader("orders") == broker_id
        assert values(cluster) == [b"a", b"b"]


def test_after_a_kill_another_broker_leads_and_nothing_is_lost(cluster):
    produce(cluster, b"a")
    first = cluster.leader("orders")
    cluster.kill(first)
    assert not cluster.brokers[first].is_running
    second = cluster.leader("orders")
    assert second != first
    produce(cluster, b"b")
    cluster.start(first)
    cluster.wait_for(isr={ORDERS: ALL})
    assert values(cluster) == [b"a", b"b"]


def test_a_broker_keeps_its_address(cluster):
    before = cluster.bootstrap_servers
    cluster.kill(2)
    cluster.start(2)
    cluster.restart(3)
    assert cluster.bootstrap_servers == before
    assert len(before.split(",")) == 3


def test_a_broker_whose_session_lasts_is_missed_only_after_the_timeout(cluster):
    leader = cluster.leader("orders")
    cluster.kill(leader, failover="session")
    with pytest.raises(LocalBrokerError, match="no broker leads partition 0 of 'orders'"):
        cluster.leader("orders", seconds=0.2)
    cluster.clock.advance(seconds=19)
    assert cluster.leader("orders") != leader
    cluster.start(leader)
    cluster.wait_for(isr={ORDERS: ALL})


def test_a_broker_that_starts_again_does_not_wait_for_its_earlier_session(cluster):
    leader = cluster.leader("orders")
    cluster.kill(leader, failover="session")
    cluster.start(leader)
    cluster.wait_for(isr={ORDERS: ALL})


def test_a_broker_that_stops_hands_over_first(cluster):
    leader = cluster.leader("orders")
    cluster.stop(leader)
    assert cluster.leader("orders") != leader
    produce(cluster, b"a")


def test_a_frozen_follower_delays_acknowledgements_until_it_leaves_the_isr(cluster):
    cluster.move_leader("orders", to=1)
    cluster.freeze(3)
    with at_leader(cluster) as client:
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.produce("orders", b"a")
        cluster.clock.advance(seconds=46)
        cluster.wait_for(isr={ORDERS: {1, 2}})
        client.socket.settimeout(5)
        assert client.response().responses[0].partition_responses[0].error_code == 0
    cluster.thaw(3)
    cluster.wait_for(isr={ORDERS: ALL})


def test_a_frozen_leader_is_replaced_when_its_session_is_over(cluster):
    produce(cluster, b"a")
    leader = cluster.leader("orders")
    cluster.freeze(leader)
    assert cluster.brokers[leader].is_frozen
    assert cluster.brokers[leader].is_running
    with Client(cluster.brokers[leader].bootstrap_servers) as client:
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.offset("orders")
    cluster.clock.advance(seconds=19)
    eventually(lambda: cluster.leader("orders") != leader)
    produce(cluster, b"b")
    cluster.thaw(leader)
    cluster.wait_for(isr={ORDERS: ALL})
    assert values(cluster) == [b"a", b"b"]


def test_what_was_sent_to_a_frozen_broker_arrives_when_it_thaws(cluster):
    leader = cluster.leader("orders")
    with Client(cluster.brokers[leader].bootstrap_servers) as client:
        cluster.freeze(leader)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.produce("orders", b"a")
        cluster.thaw(leader)
        client.socket.settimeout(5)
        assert client.response().responses[0].partition_responses[0].error_code == 0
    assert values(cluster) == [b"a"]


def test_a_follower_that_is_cut_off_from_its_leader_leaves_the_isr_and_comes_back(cluster):
    cluster.move_leader("orders", to=1)
    cluster.cut(1, 3)
    with at_leader(cluster) as client:
        assert client.produce("orders", b"a", acks=1).error_code == 0
    cluster.clock.advance(seconds=46)
    cluster.wait_for(isr={ORDERS: {1, 2}})
    cluster.heal()
    cluster.wait_for(isr={ORDERS: ALL}, seconds=20)


def test_clients_that_are_cut_off_do_not_hear_of_a_broker_whose_followers_do(cluster):
    cluster.move_leader("orders", to=1)
    with at_leader(cluster) as client:
        cluster.cut(1, "clients", both=False)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.produce("orders", b"a")
        cluster.heal()
        client.socket.settimeout(5)
        assert client.response().responses[0].partition_responses[0].base_offset == 0
    assert values(cluster) == [b"a"]


def test_a_leader_that_does_not_reach_the_store_is_replaced_after_its_session(cluster):
    leader = cluster.leader("orders")
    cluster.cut(leader, "store")
    cluster.clock.advance(seconds=19)
    eventually(lambda: cluster.leader("orders") != leader)
    cluster.heal()
    cluster.wait_for(isr={ORDERS: ALL})


def test_a_jump_of_days_leaves_all_in_the_isr_and_costs_no_connection(cluster, caplog):
    produce(cluster, b"a")
    caplog.clear()
    for _ in range(5):
        with at_leader(cluster) as client:
            client.send_off(client.fetch("orders", 1))
            cluster.clock.advance(days=3)
            assert cluster.isr("orders") == ALL
    produce(cluster, b"b")
    assert cluster.isr("orders") == ALL
    assert [record.message for record in caplog.records if "not answered" in record.message] == []


def test_while_time_stands_still_records_are_replicated(cluster):
    cluster.clock.stop()
    for number in range(5):
        produce(cluster, b"%d" % number)
    cluster.kill(cluster.leader("orders"))
    assert values(cluster) == [b"%d" % number for number in range(5)]


def test_a_coordinator_moves(cluster):
    before = cluster.coordinator("g")
    with Client(cluster.brokers[before].bootstrap_servers) as client:
        client.join("g")
    to = min(ALL - {before})
    cluster.move_coordinator("g", to=to)
    assert cluster.coordinator("g") == to
    with Client(cluster.brokers[to].bootstrap_servers) as client:
        assert len(eventually(lambda: client.members("g"))) == 1
    cluster.move_coordinator(transactional_id="x", to=to)
    assert cluster.coordinator(transactional_id="x") == to


def test_a_group_that_first_appears_after_a_kill_has_a_coordinator(cluster):
    cluster.kill(cluster.leader("orders"))
    with Client(cluster.brokers[cluster.coordinator("g")].bootstrap_servers) as client:
        client.join("g")


def test_recover_undoes_everything(cluster):
    cluster.kill(1)
    cluster.freeze(2)
    cluster.clock.stop()
    cluster.recover()
    assert all(each.is_running and not each.is_frozen for each in cluster.brokers.values())
    assert not cluster.clock.is_stopped
    assert cluster.isr("orders") == ALL
    produce(cluster, b"a")


def test_the_data_of_a_directory_are_there_for_the_next_cluster(tmp_path):
    sizes = {"orders": (2, 3)}
    with LocalCluster(3, topics=sizes, data_dir=tmp_path) as cluster:
        produce(cluster, b"a")
        cluster.kill(cluster.leader("orders"))
        produce(cluster, b"b")
    with LocalCluster(3, topics=sizes, data_dir=tmp_path) as cluster:
        assert values(cluster) == [b"a", b"b"]
        cluster.wait_for(isr={ORDERS: ALL, ("orders", 1): ALL})


def test_faults_and_the_request_log_are_those_of_all_brokers(cluster):
    requests = cluster.requests("ListOffsets")
    fault = cluster.faults.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=0, times=1)
    for broker in cluster.brokers.values():
        with Client(broker.bootstrap_servers) as client:
            client.send_off(offsets_request())
            client.response()
    assert fault.fired == 1
    assert len(requests) == 3


def offsets_request() -> m.ListOffsetsRequest:
    asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[asked])]
    return m.ListOffsetsRequest(replica_id=-1, topics=topics)


def test_one_broker_is_a_cluster_too():
    with LocalCluster(1, topics={"orders": (1, 1)}) as cluster:
        produce(cluster, b"a")
        cluster.kill(1)
        cluster.start(1)
        assert values(cluster) == [b"a"]


def test_nothing_is_left_of_brokers_that_are_killed_and_started(cluster):
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    cluster.kill(2)
    cluster.start(2)
    cluster.wait_for(isr={ORDERS: ALL})
    before = descriptors(), threading.active_count()
    for _ in range(5):
        cluster.kill(2)
        cluster.start(2)
    cluster.wait_for(isr={ORDERS: ALL})
    eventually(lambda: descriptors() <= before[0] + 2)
    assert threading.active_count() == before[1]


def test_a_cluster_that_was_closed_leaves_no_thread():
    before = threading.active_count()
    with LocalCluster(2):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda each: each.cut(1, 7), "there is no broker 7"),
        (lambda each: each.cut("clients", "store"), "there is no link"),
        (lambda each: each.cut(1, 1), "there is no link"),
        (lambda each: each.cut("anyone", 1), "there is no broker 'anyone'"),
        (lambda each: each.kill(0), "there is no broker 0"),
        (lambda each: each.kill(True), "there is no broker True"),
        (lambda each: each.kill(1, failover="soon"), "failover: 'now' or 'session'"),
        (lambda each: each.start(1), "broker 1 runs already"),
        (lambda each: each.start(), "runs already"),
        (lambda each: each.thaw(1), "broker 1 is not frozen"),
        (lambda each: each.leader("bills"), "there is no partition 0 of a topic 'bills'"),
        (lambda each: each.leader("orders", 1), "there is no partition 1 of a topic 'orders'"),
        (lambda each: each.wait_for(isr={("bills", 0): {1}}), "there is no partition 0 of a topic 'bills'"),
        (lambda each: each.wait_for(leader={ORDERS: 9}, seconds=0.05), "not within 0.05 s: orders-0: leader"),
        (lambda each: each.coordinator(), "either a group or a transactional_id"),
        (lambda each: each.create_topic("orders"), "TOPIC_ALREADY_EXISTS"),
        (lambda each: each.clock.advance(seconds=-1), "time goes forward only"),
        (lambda each: each.move_leader("orders", to=4), "there is no broker 4"),
    ],
)
def test_bad_input_is_refused_at_the_call(shared, act, reason):
    with pytest.raises(LocalBrokerError, match=reason):
        act(shared)


@pytest.fixture(scope="module")
def shared():
    with LocalCluster(2, topics={"orders": (1, 2)}) as cluster:
        yield cluster


def test_a_broker_that_has_no_replica_cannot_lead():
    with LocalCluster(2, topics={"orders": (1, 1)}) as cluster:
        other = 3 - cluster.leader("orders")
        with pytest.raises(LocalBrokerError, match=f"broker {other} has no replica of orders-0"):
            cluster.move_leader("orders", to=other)
        cluster.kill(other)
        with pytest.raises(LocalBrokerError, match=f"broker {other} does not run"):
            cluster.kill(other)
        with pytest.raises(LocalBrokerError, match=f"broker {other} does not run"):
            cluster.move_leader("orders", to=other)


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": 0},
        {"size": "3"},
        {"topics": {"orders": 3}},
        {"topics": ["orders"]},
        {"topics": {"orders": (1, 4)}},
        {"config": {"broker.id": "5"}},
        {"config": {"num.partition": "5"}},
        {"config": {"num.partitions": 5}},
    ],
)
def test_arguments_that_make_no_cluster_are_refused(arguments):
    with pytest.raises(LocalBrokerError):
        LocalCluster(**arguments)


def test_a_cluster_that_is_closed_or_was_not_started_says_so():
    cluster = LocalCluster(2)
    with pytest.raises(LocalBrokerError, match="was not started"):
        cluster.kill(1)
    cluster.close()
    with pytest.raises(LocalBrokerError, match="was closed"):
        cluster.start()


def test_the_time_until_another_broker_leads_is_short(cluster):
    leader = cluster.leader("orders")
    began = time.monotonic()
    cluster.kill(leader)
    cluster.leader("orders")
    assert time.monotonic() - began < 2


def test_a_topic_is_created_right_after_the_controller_has_died():
    with LocalCluster(3) as cluster:
        live = cluster.brokers[1]._live
        cluster.kill(live.look(lambda parts: parts.metadata.controller_id))
        cluster.create_topic("t", 1, 2)
        assert cluster.leader("t") in cluster.brokers
