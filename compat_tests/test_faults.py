"""Stock clients against a broker that does wrong to them on purpose: what each of them makes of it."""

import asyncio
import socket
import threading
import time

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from barnabas.testing import FaultMissed, LocalBroker, LocalBrokerError, LocalCluster
from barnabas.wire import messages as m
from compat_tests.raw import RawClient, ask

SECONDS = 20.0


def produce_with_confluent(servers, topic, *, idempotent):
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": idempotent, "retry.backoff.ms": 10})
    producer.produce(topic, b"v")
    assert producer.flush(SECONDS) == 0


def produce_with_kafka_python(servers, topic, *, idempotent):
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=idempotent, retries=5, retry_backoff_ms=10)
    producer.send(topic, b"v").get(SECONDS)
    producer.close()


def produce_with_aiokafka(servers, topic, *, idempotent):
    async def produce():
        async with AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=idempotent, retry_backoff_ms=10
        ) as producer:
            await producer.send_and_wait(topic, b"v")

    asyncio.run(produce())


PRODUCERS = {
    "confluent-kafka": produce_with_confluent,
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
}


@pytest.fixture(params=PRODUCERS.values(), ids=PRODUCERS)
def produce(request):
    return request.param


@pytest.mark.parametrize(("idempotent", "times"), [(True, 1), (False, 2)], ids=["idempotent", "plain"])
def test_a_lost_acknowledgement(barnabas_broker, barnabas_topic, barnabas_faults, produce, idempotent, times):
    lost = barnabas_faults.drop("Produce", "after", topic=barnabas_topic, times=1)
    produce(barnabas_broker.bootstrap_servers, barnabas_topic, idempotent=idempotent)
    assert lost.fired == 1
    assert [record.value for record in barnabas_broker.records(barnabas_topic)] == [b"v"] * times


@pytest.mark.parametrize(
    "set_fault",
    [
        lambda faults, topic: faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=2),
        lambda faults, topic: faults.drop("Produce", "before", topic=topic, times=1),
        lambda faults, topic: faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic=topic, times=1),
        lambda faults, topic: faults.delay("Produce", 0.3, topic=topic, times=1),
        lambda faults, topic: faults.throttle("Produce", 100, topic=topic, times=1),
        lambda faults, topic: faults.duplicate("Produce", topic=topic),
    ],
    ids=["not leader", "dropped before", "no leader yet", "delayed", "throttled", "duplicated"],
)
def test_an_idempotent_producer_writes_once(barnabas_broker, barnabas_topic, barnabas_faults, produce, set_fault):
    fault = set_fault(barnabas_faults, barnabas_topic)
    produce(barnabas_broker.bootstrap_servers, barnabas_topic, idempotent=True)
    assert fault.fired >= 1
    assert [record.value for record in barnabas_broker.records(barnabas_topic)] == [b"v"]


def test_a_damaged_batch_is_fetched_again(barnabas_broker, barnabas_topic, barnabas_faults):
    servers = barnabas_broker.bootstrap_servers
    produce_with_confluent(servers, barnabas_topic, idempotent=False)
    damaged = barnabas_faults.corrupt("Fetch", topic=barnabas_topic, times=1)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(barnabas_topic, 0, 0)])
    values = []
    deadline = time.monotonic() + SECONDS
    while not values and time.monotonic() < deadline:
        message = consumer.poll(1)
        values += [message.value()] if message is not None and message.error() is None else []
    consumer.close()
    assert damaged.fired == 1
    assert values == [b"v"]


def test_one_partition_of_several_cannot_be_fetched(barnabas_broker, barnabas_faults):
    barnabas_broker.create_topic("halves", partitions=2)
    servers = barnabas_broker.bootstrap_servers
    producer = KafkaProducer(bootstrap_servers=servers)
    for partition in range(2):
        producer.send("halves", b"v%d" % partition, partition=partition).get(SECONDS)
    producer.close()
    with barnabas_faults.fail("Fetch", "UNKNOWN_LEADER_EPOCH", topic="halves", partition=0) as fault:
        consumer = KafkaConsumer("halves", bootstrap_servers=servers, auto_offset_reset="earliest")
        first = next(consumer)
        fault.wait(times=1, seconds=SECONDS)
    assert (first.partition, first.value) == (1, b"v1")
    assert next(consumer).value == b"v0"
    consumer.close()


def test_an_older_broker_is_enough_for_stock_clients(produce):
    # Clients of earlier tests may still be there, with versions that they have from the broker as it is.
    with LocalBroker(topics=["t"]) as broker:
        old = broker.faults.as_kafka("2.8")
        produce(broker.bootstrap_servers, "t", idempotent=True)
        assert len(broker.records("t")) == 1
        assert {entry.api for entry in old.seen} == {"ApiVersions"}


def test_requests_hang_until_the_test_lets_them_go(barnabas_broker, barnabas_topic, barnabas_faults):
    held = barnabas_faults.hang("Produce", topic=barnabas_topic)
    thread = threading.Thread(
        target=produce_with_confluent,
        args=(barnabas_broker.bootstrap_servers, barnabas_topic),
        kwargs={"idempotent": True},
    )
    thread.start()
    held.wait(seconds=SECONDS)
    assert barnabas_broker.records(barnabas_topic) == []
    held.remove()
    thread.join(SECONDS)
    assert len(barnabas_broker.records(barnabas_topic)) == 1


def test_what_a_client_sends_is_seen(barnabas_broker, barnabas_topic, barnabas_requests):
    produce_with_confluent(barnabas_broker.bootstrap_servers, barnabas_topic, idempotent=True)
    (entry,) = barnabas_requests("Produce").wait(count=1, seconds=SECONDS)
    assert (entry.acks, entry.software_name) == (-1, "confluent-kafka-python")
    assert entry.producer_id >= 0
    assert barnabas_requests("InitProducerId")[0].connection == entry.connection


def test_records_are_shown_with_what_became_of_their_transaction(barnabas_broker, barnabas_topic):
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers, "transactional.id": "payments"})
    producer.init_transactions(SECONDS)
    for value, end in (
        (b"paid", producer.commit_transaction),
        (b"failed", producer.abort_transaction),
        (b"open", None),
    ):
        producer.begin_transaction()
        producer.produce(barnabas_topic, value, key=b"k", headers=[("h", b"1")], timestamp=1_700_000_000_000)
        producer.flush(SECONDS)
        if end is not None:
            end(SECONDS)
    records = barnabas_broker.records(barnabas_topic)
    producer.abort_transaction(SECONDS)
    produce_with_confluent(barnabas_broker.bootstrap_servers, barnabas_topic, idempotent=False)
    assert [(record.value, record.transaction) for record in records] == [
        (b"paid", "committed"),
        (b"failed", "aborted"),
        (b"open", "open"),
    ]
    assert (records[0].key, records[0].headers, records[0].timestamp_ms) == (b"k", (("h", b"1"),), 1_700_000_000_000)
    assert barnabas_broker.records(barnabas_topic)[-1].transaction is None


def test_requests_of_the_package_itself_are_neither_hit_nor_seen(barnabas_broker, barnabas_faults, barnabas_requests):
    barnabas_faults.fail("CreateTopics", "POLICY_VIOLATION", may_miss=True)
    barnabas_broker.create_topic("made-by-the-test")
    assert barnabas_broker.records("made-by-the-test") == []
    assert len(barnabas_requests) == 0


def test_an_administrator_is_refused(barnabas_broker, barnabas_faults):
    barnabas_faults.fail("CreateTopics", "POLICY_VIOLATION", topic="forbidden")
    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
    with pytest.raises(Exception, match=r"POLICY_VIOLATION|PolicyViolation"):
        admin.create_topics([NewTopic("forbidden", 1, 1)])
    admin.close()
    with pytest.raises(LocalBrokerError, match="there is no topic 'forbidden'"):
        barnabas_broker.records("forbidden")


def test_replicas_follow_while_clients_cannot_fetch():
    with LocalCluster(3, topics={"orders": (1, 3)}) as cluster:
        refused = cluster.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        producer.produce("orders", b"v")
        assert producer.flush(SECONDS) == 0
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        consumer.poll(0.1)
        refused.wait(seconds=SECONDS)
        refused.remove()
        assert consumer.poll(SECONDS).value() == b"v"
        consumer.close()
        assert cluster.isr("orders", 0) == {1, 2, 3}
        assert {entry.broker_id for entry in refused.seen} == {cluster.leader("orders", 0)}


# -- the broker's life


def test_faults_and_log_outlive_a_restart_and_end_with_the_broker():
    with LocalBroker(topics=["t"]) as broker:
        faults = broker.faults
        faults.fail("FindCoordinator", "NOT_COORDINATOR", group="g")
        broker.kill()
        broker.restart()
        with RawClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            answered = ask(client, m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert answered.coordinators[0].error_code == 16
    with pytest.raises(LocalBrokerError, match="the broker was closed"):
        faults.fail("FindCoordinator", "NOT_COORDINATOR")
    with pytest.raises(LocalBrokerError, match="the broker was closed: its `with` block is over"):
        print(broker.faults)


def test_a_broker_that_is_closed_while_requests_hang_ends_at_once():
    with LocalBroker(topics=["t"]) as broker:
        held = broker.faults.hang("FindCoordinator")
        client = RawClient(int(broker.bootstrap_servers.rpartition(":")[2]))
        client.request(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        held.wait(seconds=SECONDS)
        started = time.monotonic()
    assert time.monotonic() - started < 3
    client.close()


def test_a_client_that_hangs_up_is_let_go():
    with LocalBroker(topics=["t"]) as broker:
        held = broker.faults.hang("FindCoordinator")
        with RawClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            client.request(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            held.wait(seconds=SECONDS)
            client.socket.shutdown(socket.SHUT_RDWR)
        (entry,) = held.seen
        assert broker.faults.until(lambda: entry.outcome == "dropped", 0) or broker.requests.until(
            lambda: entry.outcome == "dropped", SECONDS
        )


def test_a_broker_in_a_process_has_records_and_no_faults():
    with LocalBroker(process=True, topics=["t"]) as broker:
        produce_with_confluent(broker.bootstrap_servers, "t", idempotent=False)
        assert [record.value for record in broker.records("t")] == [b"v"]
        for ask_for in (lambda: broker.faults, lambda: broker.requests):
            with pytest.raises(LocalBrokerError, match="in a process of its own has no faults and no request log"):
                ask_for()


def test_a_wait_for_what_does_not_come_fails_with_what_came(barnabas_broker, barnabas_topic, barnabas_faults):
    fault = barnabas_faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS", may_miss=True)
    produce_with_confluent(barnabas_broker.bootstrap_servers, barnabas_topic, idempotent=False)
    with pytest.raises(FaultMissed, match=r"fired 0 of 1 times within 0 s; requests that came[^$]*Produce"):
        fault.wait(seconds=0)
