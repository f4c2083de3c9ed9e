"""Time that jumps, and leaders that die, under three stock clients: they notice, and go on."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from barnabas.testing import LocalBroker, LocalCluster

SECONDS = 20.0
HEARTBEAT_MS = 100  # so that a client soon hears that it is no member any more
SESSION_MS = 45_000
# Otherwise a record after a jump has the time of the client, and is as old as those before.
SHORT_SEGMENTS = {"log.segment.bytes": "1000", "log.message.timestamp.type": "LogAppendTime"}

Read = Callable[[bytes], None]
IsOver = Callable[[], bool]


def with_confluent_kafka(servers: str, topic: str, read: Read, is_over: IsOver) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    )
    consumer.subscribe([topic])
    while not is_over():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read(message.value())
    consumer.close()


def with_kafka_python(servers: str, topic: str, read: Read, is_over: IsOver) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id="g",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while not is_over():
        for messages in consumer.poll(100).values():
            for message in messages:
                read(message.value)
    consumer.close()


def with_aiokafka(servers: str, topic: str, read: Read, is_over: IsOver) -> None:
    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id="g",
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        while not is_over():
            for messages in (await consumer.getmany(timeout_ms=100)).values():
                for message in messages:
                    read(message.value)

        # While aiokafka looks for its coordinator, `stop` never ends. Reading a committed offset waits
        # until it is found.
        for partition in consumer.assignment():
            await consumer.committed(partition)
        await consumer.stop()

    asyncio.run(run())


CLIENTS = {"confluent-kafka": with_confluent_kafka, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}


@contextmanager
def reading(client: str, servers: str, topic: str) -> Iterator[list[bytes]]:
    """A member of the group "g" that reads on a thread; the values that it has read."""
    values: list[bytes] = []
    over = threading.Event()
    thread = threading.Thread(target=CLIENTS[client], args=(servers, topic, values.append, over.is_set))
    thread.start()
    try:
        yield values
    finally:
        over.set()
        # A consumer that ends says so to its coordinator, which is new on a busy machine.
        thread.join(3 * SECONDS)
        assert not thread.is_alive()


def produce(servers: str, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=servers.split(","), acks="all")
    for value in values:
        producer.send(topic, value).get(SECONDS)
    producer.close()


def eventually(look: Callable[[], object], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_whose_session_is_over_joins_again_and_reads_on(client):
    with LocalBroker(topics=["t"]) as broker, reading(client, broker.bootstrap_servers, "t") as values:
        group = broker.groups["g"]
        (first,) = group.wait(state="Stable", members=1, seconds=SECONDS).members
        produce(broker.bootstrap_servers, "t", b"a")
        eventually(lambda: values == [b"a"])
        broker.clock.advance(seconds=46)
        eventually(lambda: first not in group.members, 2)
        (second,) = group.wait(state="Stable", members=1, seconds=SECONDS).members
        assert second.member_id != first.member_id
        produce(broker.bootstrap_servers, "t", b"b")
        eventually(lambda: values[-1] == b"b")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_reader_goes_on_after_a_week_of_silence(client):
    with (
        LocalBroker(topics=["t"], config=SHORT_SEGMENTS) as broker,
        reading(client, broker.bootstrap_servers, "t") as values,
    ):
        old = [b"%d" % number * 500 for number in range(3)]
        produce(broker.bootstrap_servers, "t", *old)
        eventually(lambda: values == old)
        broker.clock.advance(days=8)
        produce(broker.bootstrap_servers, "t", b"new")
        eventually(lambda: values[-1] == b"new")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_reader_and_a_producer_go_on_when_the_leader_and_the_coordinator_die(client):
    with LocalCluster(3, topics={"t": (1, 3)}) as cluster, reading(client, cluster.bootstrap_servers, "t") as values:
        produce(cluster.bootstrap_servers, "t", b"a")
        eventually(lambda: values == [b"a"])
        cluster.move_leader("t", to=cluster.coordinator("g"))
        cluster.kill(cluster.leader("t"))
        produce(cluster.bootstrap_servers, "t", b"b")
        eventually(lambda: values[-1] == b"b")
        assert set(values) == {b"a", b"b"}


def exchange_with_confluent_kafka(settings: dict, topic: str) -> bytes:
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"secret")
    assert producer.flush(SECONDS) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    message = consumer.poll(SECONDS)
    consumer.close()
    return message.value()


def exchange_with_kafka_python(settings: dict, topic: str) -> bytes:
    producer = KafkaProducer(**settings)
    producer.send(topic, b"secret").get(SECONDS)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    message = next(consumer)
    consumer.close()
    return message.value


def exchange_with_aiokafka(settings: dict, topic: str) -> bytes:
    async def run() -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"secret")
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            return (await consumer.getone()).value

    return asyncio.run(run())


EXCHANGES = {
    "confluent-kafka": exchange_with_confluent_kafka,
    "kafka-python": exchange_with_kafka_python,
    "aiokafka": exchange_with_aiokafka,
}


@pytest.mark.parametrize(
    ("security", "mechanism"),
    [
        ("PLAINTEXT", "PLAIN"),
        ("SSL", "PLAIN"),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
def test_each_client_reaches_a_secured_broker_with_the_settings_that_it_is_given(security, mechanism):
    with LocalBroker(topics=[*EXCHANGES], security=security, mechanism=mechanism) as broker:
        for client, exchange in EXCHANGES.items():
            assert exchange(broker.client_config(client), client) == b"secret"
        broker.restart()
        broker.wait_for_records("aiokafka", 1)
        assert exchange_with_confluent_kafka(broker.client_config("confluent-kafka"), "aiokafka") == b"secret"


def test_each_client_shows_the_certificate_that_it_is_given():
    principal = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:CN=billing",  # the first one: for the requests of this package
    }
    with LocalBroker(topics=[*EXCHANGES], security="SSL", client_certificate="billing", config=principal) as broker:
        for client, exchange in EXCHANGES.items():
            assert exchange(broker.client_config(client), client) == b"secret"


def test_each_client_reaches_a_secured_cluster():
    topics = dict.fromkeys(EXCHANGES, (1, 3))
    with LocalCluster(3, topics=topics, security="SASL_SSL", mechanism="SCRAM-SHA-256") as cluster:
        for number, (client, exchange) in enumerate(EXCHANGES.items(), 1):
            cluster.move_leader(client, 0, to=number)
            assert exchange(cluster.client_config(client), client) == b"secret"


# -- what is due happens at once, beside the connected clients

DUE_SECONDS = 0.1
ATTEMPTS = 3  # on a busy machine the fastest one says what the broker needs
QUIET_SECONDS = 1.0
QUIET_PROCESSOR_SECONDS = 0.25  # of the broker, beside three clients with ten heartbeats a second each


@contextmanager
def three_clients(**config: str) -> Iterator[LocalBroker]:
    """A broker and a group that has a member of each client."""
    with LocalBroker(topics=["t"], config=config) as broker, ExitStack() as stack:
        for client in CLIENTS:
            stack.enter_context(reading(client, broker.bootstrap_servers, "t"))
        await_members(broker)
        yield broker


def await_members(broker: LocalBroker) -> None:
    # librdkafka may open another connection while its member id is on the way. Then it asks for a second id, and the
    # group waits for the first one until its session is over, as in Kafka.
    seconds = SESSION_MS / 1000 + SECONDS
    broker.groups["g"].wait(state="Stable", members=len(CLIENTS), seconds=seconds)


def seconds_until(happens: Callable[[], object], broker: LocalBroker, **advance: float) -> float:
    """How long it takes until this happens, once the time has moved on."""
    assert not happens()
    began = time.monotonic()
    broker.clock.advance(**advance)
    eventually(happens)
    return time.monotonic() - began


def assert_quiet(broker: LocalBroker) -> None:
    """The members are back, and then the broker has nothing to do but to answer them."""
    await_members(broker)
    # The broker of the fixture may run in this process, too; it began before.
    *_, thread = [each for each in threading.enumerate() if each.name == "barnabas broker"]
    clock = time.pthread_getcpuclockid(thread.ident)
    before = time.clock_gettime(clock)
    threading.Event().wait(QUIET_SECONDS)
    assert time.clock_gettime(clock) - before < QUIET_PROCESSOR_SECONDS


def test_members_whose_sessions_are_over_leave_at_once():
    with three_clients() as broker:
        group = broker.groups["g"]
        took = []
        for _ in range(ATTEMPTS):
            before = {member.member_id for member in group.members}
            left = partial(lacks_some_of, group, before)
            took.append(seconds_until(left, broker, seconds=46))
            await_members(broker)
        assert min(took) < DUE_SECONDS
        assert_quiet(broker)


def lacks_some_of(group, member_ids) -> bool:
    """Not all of them: the heartbeat of a member may arrive at the same moment as the new time."""
    return not member_ids <= {member.member_id for member in group.members}


def test_old_segments_are_deleted_at_once():
    with three_clients(**SHORT_SEGMENTS) as broker:
        took = []
        for _ in range(ATTEMPTS):
            produce(broker.bootstrap_servers, "t", *[b"x" * 900] * 3)
            first = broker.records("t")[0].offset
            took.append(seconds_until(partial(begins_after, broker, first), broker, days=8))
            await_members(broker)
        assert min(took) < DUE_SECONDS
        assert_quiet(broker)


def begins_after(broker: LocalBroker, offset: int) -> bool:
    return broker._live("logs").look(lambda parts: parts.replicas.get("t", 0).log.log_start_offset > offset)


def test_offsets_of_an_empty_group_expire_at_once():
    with three_clients(**{"offsets.retention.minutes": "60"}) as broker:
        took = []
        for number in range(ATTEMPTS):
            group = broker.groups[f"gone-{number}"]
            commit(broker.bootstrap_servers, f"gone-{number}")
            assert group.state == "Empty"
            took.append(seconds_until(lambda group=group: group.state == "Dead", broker, minutes=71))
            await_members(broker)
        assert min(took) < DUE_SECONDS
        assert_quiet(broker)


def commit(servers: str, group: str) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 7)], asynchronous=False)
    consumer.close()


def test_a_transaction_that_takes_too_long_is_aborted_at_once():
    with three_clients() as broker:
        took = []
        for number in range(ATTEMPTS):
            topic = f"x-{number}"
            broker.create_topic(topic)
            producer = confluent_kafka.Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
            )
            producer.init_transactions(SECONDS)
            producer.begin_transaction()
            producer.produce(topic, b"v")
            assert producer.flush(SECONDS) == 0
            took.append(seconds_until(partial(is_aborted, broker, topic), broker, seconds=71))
        assert min(took) < DUE_SECONDS
        assert_quiet(broker)


def is_aborted(broker: LocalBroker, topic: str) -> bool:
    return [record.transaction for record in broker.records(topic)] == ["aborted"]


def test_idle_connections_are_closed_at_once():
    with three_clients() as broker, ExitStack() as stack:
        requests = broker.requests(client_id=SILENT)
        senders = [stack.enter_context(silent(broker.bootstrap_servers)) for silent in SILENT_PRODUCERS]
        took = []
        for _ in range(ATTEMPTS):
            for send in senders:
                send()
            idle = open_connections(broker) & {entry.connection for entry in requests}
            assert len(idle) >= len(senders)
            took.append(seconds_until(partial(are_closed, broker, idle), broker, minutes=11))
            await_members(broker)
        assert min(took) < DUE_SECONDS
        for send in senders:
            send()
        assert_quiet(broker)


SILENT = "silent"


@contextmanager
def silent_kafka_python(servers: str) -> Iterator[Callable[[], object]]:
    producer = KafkaProducer(bootstrap_servers=servers, client_id=SILENT)
    yield lambda: producer.send("t", b"v").get(SECONDS)
    producer.close()


@contextmanager
def silent_confluent_kafka(servers: str) -> Iterator[Callable[[], object]]:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "client.id": SILENT})

    def send() -> None:
        producer.produce("t", b"v")
        assert producer.flush(SECONDS) == 0

    yield send


@contextmanager
def silent_aiokafka(servers: str) -> Iterator[Callable[[], object]]:
    async def begin() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=servers, client_id=SILENT)
        await producer.start()
        return producer

    with asyncio.Runner() as runner:
        producer = runner.run(begin())
        yield lambda: runner.run(producer.send_and_wait("t", b"v"))
        runner.run(producer.stop())


SILENT_PRODUCERS = [silent_kafka_python, silent_confluent_kafka, silent_aiokafka]


def are_closed(broker: LocalBroker, connections: set[int]) -> bool:
    return connections.isdisjoint(open_connections(broker))


def open_connections(broker: LocalBroker) -> set[int]:
    """Their numbers, which are never used again."""
    return broker._live("connections").look(lambda parts: {each.number for each in parts.tally.connections})
