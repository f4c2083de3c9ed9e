"""What a test sees and does inside a running broker: groups, records."""

import pytest

from barnabas.testing import LocalBroker, LocalBrokerError, LocalCluster
from tests.testing.client import Client


@pytest.fixture
def broker():
    with LocalBroker(topics=["t"]) as broker:
        yield broker


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap_servers) as client:
        yield client


def test_a_group_is_waited_for(broker, client):
    assert broker.groups["g"].state == "Dead"
    member_id = client.join("g")
    group = broker.groups["g"].wait(state="Stable", members=1)
    assert [each.member_id for each in group.members] == [member_id]
    with pytest.raises(LocalBrokerError, match=r"not within 0\.05 s: group 'g' is Stable with 1 members"):
        group.wait(members=2, seconds=0.05)


def test_a_member_that_is_evicted_is_unknown(broker, client):
    member_id = client.join("g")
    group = broker.groups["g"]
    group.evict(member_id)
    group.wait(state="Empty", members=0)
    with pytest.raises(LocalBrokerError, match=f"has no member '{member_id}'"):
        group.evict(member_id)


def test_in_a_rebalance_all_members_join_again(broker, client):
    client.join("g")
    group = broker.groups["g"]
    group.rebalance()
    group.wait(state="PreparingRebalance", members=1)


def test_a_group_without_members_cannot_rebalance(broker, client):
    client.find_coordinator("g")
    with pytest.raises(LocalBrokerError, match="group 'g': GROUP_ID_NOT_FOUND"):
        broker.groups["g"].rebalance()


def test_an_unknown_state_is_refused(broker):
    with pytest.raises(LocalBrokerError, match="state: one of Empty, PreparingRebalance"):
        broker.groups["g"].wait(state="stable")


def test_records_are_waited_for(broker, client):
    client.produce("t", b"a", b"b")
    broker.wait_for_records("t", 2)
    with pytest.raises(LocalBrokerError, match=r"not within 0\.05 s: topic 't' has 2 of 3 records"):
        broker.wait_for_records("t", 3, seconds=0.05)


def test_each_broker_of_a_cluster_shows_what_it_has():
    with LocalCluster(2, topics={"t": (1, 2)}) as cluster:
        coordinator = cluster.coordinator("g")
        with Client(cluster.brokers[coordinator].bootstrap_servers) as client:
            client.join("g")
        cluster.brokers[coordinator].groups["g"].wait(state="Stable", members=1)
        with pytest.raises(LocalBrokerError, match="group 'g': NOT_COORDINATOR"):
            _ = cluster.brokers[3 - coordinator].groups["g"].state
        with Client(cluster.brokers[cluster.leader("t")].bootstrap_servers) as client:
            client.produce("t", b"a")
        for each in cluster.brokers.values():
            each.wait_for_records("t", 1)
        cluster.kill(1)
        with pytest.raises(LocalBrokerError, match="broker 1 does not run"):
            cluster.brokers[1].wait_for_records("t", 1)


def test_a_broker_that_does_not_run_shows_nothing(broker):
    broker.stop()
    with pytest.raises(LocalBrokerError, match="the broker is stopped"):
        _ = broker.groups
    with pytest.raises(LocalBrokerError, match="reached by its clients only"):
        LocalBroker(process=True).wait_for_records("t", 1)
