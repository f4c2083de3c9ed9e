"""What a test sees and does inside a running broker: groups, records, producers, the disk."""

import pytest

from barnabas.testing import LocalBroker, LocalBrokerError, LocalCluster
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from tests.testing.client import TRANSACTION, Client, eventually


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


def test_the_records_behind_a_compacted_batch_are_read_as_well():
    config = {"log.cleaner.backoff.ms": "10", "log.roll.jitter.ms": "0"}
    small = {"cleanup.policy": "compact", "segment.bytes": "120", "min.cleanable.dirty.ratio": "0.01"}
    with LocalBroker(config=config) as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("table", config=small)
        for batch in ([(b"a", b"1"), (b"b", b"old")], [(b"b", b"new")], [(b"c", b"2")], [(b"d", b"3")]):
            client.produce_batch("table", bytes(build_batch(batch, timestamp_ms=broker.clock.now_ms()).data))
        # The first segment ends with a batch whose last record is gone.
        eventually(lambda: b"old" not in [each.value for each in broker.records("table")])
        assert [(each.offset, each.value) for each in broker.records("table")] == [
            (0, b"1"),
            (2, b"new"),
            (3, b"2"),
            (4, b"3"),
        ]


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


def test_a_full_disk_ends_the_broker_and_loses_nothing_that_was_acknowledged(broker, client):
    client.produce("t", b"a")
    broker.disk.fill()
    client.send_off(client.produce_request("t", b"b"))
    eventually(lambda: not broker.is_running)
    broker.disk.heal()
    broker.restart()
    with Client(broker.bootstrap_servers) as another:
        assert another.values("t") == [b"a"]


def test_a_broken_disk_stays_broken_until_it_is_healed(broker, client):
    client.produce("t", b"a")
    broker.disk.fail()
    client.send_off(client.produce_request("t", b"b"))
    eventually(lambda: not broker.is_running)
    with pytest.raises(LocalBrokerError):
        broker.restart()
    broker.disk.heal()
    broker.start()
    with Client(broker.bootstrap_servers) as another:
        assert another.values("t") == [b"a"]


def test_with_a_slow_disk_an_acknowledgement_waits_for_the_sync():
    with (
        LocalBroker(topics=["t"], config={"log.flush.interval.messages": "1"}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        broker.disk.slow(60)
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.produce("t", b"a")
        broker.clock.advance(seconds=61)
        client.socket.settimeout(5)
        assert client.response().responses[0].partition_responses[0].error_code == 0
        broker.disk.heal()


def test_a_disk_that_loses_the_end_of_a_log(broker, client):
    for value in (b"a", b"b", b"c", b"d"):
        client.produce("t", value)
    assert broker.lose("t", records=2) == 2
    with Client(broker.bootstrap_servers) as another:
        assert another.values("t") == [b"a", b"b"]
        assert another.produce("t", b"e").base_offset == 2
    with pytest.raises(LocalBrokerError, match="t-0 has 3 records, so it cannot lose 4"):
        broker.lose("t", records=4)
    with pytest.raises(LocalBrokerError, match="no log of u-0"):
        broker.lose("u", records=1)
    with pytest.raises(LocalBrokerError, match="records: a number from 1, not -1"):
        broker.lose("t", records=-1)
    with Client(broker.bootstrap_servers) as another:
        assert another.values("t") == [b"a", b"b", b"e"]


def test_segments_are_lost_as_a_whole(tmp_path):
    with LocalBroker(topics=["t"], config={"log.segment.bytes": "1000"}, data_dir=tmp_path) as broker:
        values = [b"%d" % number * 700 for number in range(6)]
        with Client(broker.bootstrap_servers) as client:
            for value in values:
                client.produce("t", value)
        assert broker.lose("t", records=4) == 4
        with Client(broker.bootstrap_servers) as client:
            assert client.values("t") == values[:2]
        with pytest.raises(LocalBrokerError, match="the data are in a directory"):
            broker.disk.fill()


def test_what_a_follower_lost_it_gets_back_from_the_leader():
    with LocalCluster(3, topics={"t": (1, 3)}) as cluster:
        leader = cluster.leader("t")
        with Client(cluster.brokers[leader].bootstrap_servers) as client:
            for value in (b"a", b"b", b"c"):
                client.produce("t", value)
        assert cluster.lose(leader, "t", records=2) == 2
        cluster.wait_for(isr={("t", 0): {1, 2, 3}})
        cluster.move_leader("t", to=leader)
        with Client(cluster.brokers[leader].bootstrap_servers) as client:
            assert client.values("t") == [b"a", b"b", b"c"]


def test_a_broker_of_a_cluster_whose_disk_breaks_is_replaced():
    with LocalCluster(3, topics={"t": (1, 3)}) as cluster:
        leader = cluster.leader("t")
        cluster.brokers[leader].disk.fail()
        with Client(cluster.brokers[leader].bootstrap_servers) as client:
            client.send_off(client.produce_request("t", b"a"))
        eventually(lambda: not cluster.brokers[leader].is_running)
        assert cluster.leader("t") != leader
        cluster.recover()
        assert cluster.isr("t") == {1, 2, 3}


def idempotent(sequence: int, producer_id: int = 7) -> bytes:
    batch = build_batch(
        [(None, b"v")], timestamp_ms=1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return bytes(batch.data)


def test_a_producer_that_is_forgotten_is_unknown(broker, client):
    client.produce_batch("t", idempotent(0))
    assert broker.producers.ids("t") == [7]
    broker.producers.forget(7)
    assert broker.producers.ids() == []
    assert client.produce_batch("t", idempotent(5)).error_code == 0
    with pytest.raises(LocalBrokerError, match=r"no producer 8 is known, only \[7\]"):
        broker.producers.forget(8)


@pytest.mark.parametrize("by", ["transactional id", "producer id"])
def test_a_transactional_producer_is_fenced(broker, client, by):
    client.find_coordinator("x", TRANSACTION)
    init = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    producer = eventually(lambda: (found := client(init)).error_code == 0 and found)
    broker.producers.fence("x" if by == "transactional id" else producer.producer_id)
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    request = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[topic],
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
    )
    (row,) = client(request).results_by_topic_v3_and_below
    assert ErrorCode(row.results_by_partition[0].partition_error_code) in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    )
    with pytest.raises(LocalBrokerError, match="transactional id 'y': TRANSACTIONAL_ID_NOT_FOUND"):
        broker.producers.fence("y")
    with pytest.raises(LocalBrokerError, match="producer 4711 has no transactional id here"):
        broker.producers.fence(4711)


def test_a_producer_is_fenced_where_timeouts_are_short():
    with (
        LocalBroker(config={"transaction.max.timeout.ms": "5000"}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        client.find_coordinator("x", TRANSACTION)
        init = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=5000)
        producer = eventually(lambda: (found := client(init)).error_code == 0 and found)
        broker.producers.fence("x")
        assert client(init).producer_epoch == producer.producer_epoch + 2


@pytest.mark.parametrize(
    "harm", [lambda disk: disk.fill(-1), lambda disk: disk.slow(-0.1), lambda disk: disk.slow("1")]
)
def test_a_disk_is_not_harmed_by_less_than_nothing(broker, harm):
    with pytest.raises(LocalBrokerError, match="a number from 0"):
        harm(broker.disk)
