"""confluent-kafka's producer and consumer, over librdkafka: every option that changes what goes over the wire."""

import asyncio
import collections
import contextlib
import json
import threading
import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions
from confluent_kafka.aio import AIOConsumer, AIOProducer

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
DEADLINE_SECONDS = 60  # on a machine that runs Spark and Kafka beside, too


@pytest.fixture
def producer(bootstrap):
    """Make producers."""
    return lambda **options: Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **dotted(options)})


@pytest.fixture
def consumer(bootstrap, topic):
    """Make consumers that begin at the beginning and do not commit; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(**options):
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": f"group-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                **dotted(options),
            }
            return stack.enter_context(contextlib.closing(Consumer(settings)))

        yield make


def dotted(options):
    return {name if name == "on_commit" else name.replace("_", "."): value for name, value in options.items()}


def assigned(consumer, *partitions):
    consumer.assign(list(partitions))
    return consumer


def read(consumer, count):
    """The next messages, or as many as come before the deadline; an error is raised."""
    messages, deadline = [], time.monotonic() + DEADLINE_SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        messages.append(message)
    return messages


def values(messages):
    return [message.value() for message in messages]


def numbered(count):
    return [f"{number}".encode() for number in range(count)]


def send_all(producer, topic, messages, **where):
    """Send, wait for all acknowledgements, and return them in order."""
    delivered = []

    def heard(error, message):
        delivered.append(error or message)

    for message in messages:
        producer.produce(topic, message, on_delivery=heard, **where)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return delivered


# -- producer


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_in_order(producer, consumer, new_topic, codec):
    send_all(producer(compression_type=codec), new_topic, numbered(5000))
    assert values(read(assigned(consumer(), TopicPartition(new_topic, 0)), 5000)) == numbered(5000)


def test_key_headers_and_timestamp_come_back(producer, consumer, new_topic):
    headers = [("one", b"1"), ("null", None), ("empty", b""), ("one", b"again")]
    sent_at = int(time.time() * 1000) - 5000
    (sent,) = send_all(producer(), new_topic, [b"value"], key=b"key", headers=headers, timestamp=sent_at)
    (message,) = read(assigned(consumer(), TopicPartition(new_topic, 0)), 1)
    assert (message.key(), message.value(), message.headers()) == (b"key", b"value", headers)
    assert message.timestamp() == sent.timestamp() == (TIMESTAMP_CREATE_TIME, sent_at)
    assert message.offset() == sent.offset() == 0
    assert message.leader_epoch() == 0


def test_log_append_time_is_the_brokers(producer, consumer, create_topic):
    topic = create_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    send_all(producer(), topic, [b"x"], timestamp=1000)
    (message,) = read(assigned(consumer(), TopicPartition(topic, 0)), 1)
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp <= int(time.time() * 1000)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_delivers(producer, consumer, new_topic, acks):
    send_all(producer(acks=acks), new_topic, numbered(10))
    assert values(read(assigned(consumer(), TopicPartition(new_topic, 0)), 10)) == numbered(10)


def test_an_idempotent_producer_delivers_once_and_in_order(producer, consumer, new_topic):
    made = producer(enable_idempotence=True, batch_num_messages=7)
    assert [sent.offset() for sent in send_all(made, new_topic, numbered(5000))] == list(range(5000))
    assert values(read(assigned(consumer(), TopicPartition(new_topic, 0)), 5000)) == numbered(5000)


@pytest.mark.parametrize("partitioner", ["consistent", "consistent_random", "murmur2_random", "fnv1a_random"])
def test_equal_keys_share_a_partition(producer, create_topic, partitioner):
    topic, made, where = create_topic(4), producer(partitioner=partitioner), collections.defaultdict(set)
    for key in [f"{number % 20}".encode() for number in range(200)]:
        made.produce(topic, b"x", key, on_delivery=lambda _, message: where[message.key()].add(message.partition()))
    made.flush()
    assert {len(partitions) for partitions in where.values()} == {1}
    assert len(set.union(*where.values())) == 4


def test_a_topic_is_created_on_first_use(producer, consumer, topic):
    send_all(producer(), topic, [b"first"])
    assert values(read(assigned(consumer(), TopicPartition(topic, 0)), 1)) == [b"first"]


def test_a_batch_that_is_too_large_for_the_topic_is_refused(producer, create_topic):
    (refused,) = send_all(producer(), create_topic(max_message_bytes="1000"), [b"x" * 5000])
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_partition_that_is_not_there_is_refused(producer, new_topic):
    made = producer(message_timeout_ms=3000)
    (refused,) = send_all(made, new_topic, [b"x"], partition=7)
    assert refused.code() == KafkaError._UNKNOWN_PARTITION


def test_transactions_commit_and_abort(producer, consumer, new_topic):
    made = producer(transactional_id=new_topic)
    made.init_transactions(30)
    for value, end in [(b"aborted", made.abort_transaction), (b"committed", made.commit_transaction)]:
        made.begin_transaction()
        send_all(made, new_topic, [value])
        end(5)
    made = assigned(consumer(isolation_level="read_committed"), TopicPartition(new_topic, 0))
    assert values(read(made, 1)) == [b"committed"]


def test_statistics_tell_of_the_broker(bootstrap, new_topic):
    heard = []
    made = Producer({"bootstrap.servers": bootstrap, "statistics.interval.ms": 50, "stats_cb": heard.append})
    made.produce(new_topic, b"x")
    made.flush()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not heard and time.monotonic() < deadline:
        made.poll(0.05)
    brokers = json.loads(heard[-1])["brokers"]
    assert any(broker["nodename"] in bootstrap.split(",") for broker in brokers.values())


# -- consumer without a group


@pytest.fixture
def ten(producer, new_topic):
    """The partition of a topic that holds ten messages, a second apart."""
    made, begin = producer(), int(time.time() * 1000) - 60_000
    for number, value in enumerate(numbered(10)):
        made.produce(new_topic, value, timestamp=begin + number * 1000)
    made.flush()
    return new_topic, begin


@pytest.mark.parametrize(("start", "count"), [(OFFSET_BEGINNING, 10), (7, 3), (1000, 10), (OFFSET_INVALID, 10)])
def test_an_assigned_partition_is_read_from_its_start(consumer, ten, start, count):
    """1000 is out of range, and there is no committed offset: in both cases reading begins at the first offset."""
    made = assigned(consumer(), TopicPartition(ten[0], 0, start))
    assert values(read(made, count)) == numbered(10)[-count:]
    assert made.position([TopicPartition(ten[0], 0)])[0].offset == 10


def test_an_offset_out_of_range_is_an_error_where_asked(consumer, ten):
    made = assigned(consumer(auto_offset_reset="error"), TopicPartition(ten[0], 0, 1000))
    with pytest.raises(KafkaException) as raised:
        read(made, 1)
    assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_a_consumer_seeks(consumer, ten):
    made = assigned(consumer(), TopicPartition(ten[0], 0))
    assert values(read(made, 1)) == [b"0"]
    made.seek(TopicPartition(ten[0], 0, 7))
    assert values(read(made, 3)) == [b"7", b"8", b"9"]


def test_the_end_of_a_partition_is_reported(consumer, ten):
    made = assigned(consumer(enable_partition_eof=True), TopicPartition(ten[0], 0, OFFSET_END))
    with pytest.raises(KafkaException) as raised:
        read(made, 1)
    assert raised.value.args[0].code() == KafkaError._PARTITION_EOF


def test_watermarks_and_offsets_for_times(consumer, ten):
    topic, begin = ten
    made = consumer()
    assert made.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
    asked = [(begin, 0), (begin + 2500, 3), (begin + 60_000, OFFSET_END)]
    for timestamp, offset in asked:
        (found,) = made.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=10)
        assert found.offset == offset


def test_a_paused_partition_is_silent(consumer, producer, create_topic):
    topic = create_topic(2)
    quiet, loud = TopicPartition(topic, 0), TopicPartition(topic, 1)
    made, sender = assigned(consumer(), quiet, loud), producer()
    made.pause([quiet])
    for partition in (0, 1):
        send_all(sender, topic, [f"{partition}".encode()], partition=partition)
    assert values(read(made, 1)) == [b"1"]
    assert made.poll(0.2) is None
    made.resume([quiet])
    assert values(read(made, 1)) == [b"0"]


def test_small_fetches_bring_everything(consumer, producer, new_topic):
    large = [f"{number}".encode().ljust(20_000, b".") for number in range(20)]
    send_all(producer(), new_topic, large)
    made = consumer(max_partition_fetch_bytes=30_000, fetch_max_bytes=50_000, message_max_bytes=50_000)
    assert values(read(assigned(made, TopicPartition(new_topic, 0)), 20)) == large


def test_a_batch_is_consumed_at_once(consumer, ten):
    made = assigned(consumer(), TopicPartition(ten[0], 0))
    assert values(made.consume(10, timeout=DEADLINE_SECONDS)) == numbered(10)


def test_assignments_grow_and_shrink(consumer, producer, create_topic):
    topic = create_topic(2)
    for partition in (0, 1):
        send_all(producer(), topic, [f"{partition}".encode()], partition=partition)
    made = consumer()
    made.incremental_assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert values(read(made, 1)) == [b"0"]
    made.incremental_assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
    assert values(read(made, 1)) == [b"1"]
    made.incremental_unassign([TopicPartition(topic, 0)])
    assert made.assignment() == [TopicPartition(topic, 1)]


def test_an_unknown_topic_is_reported(consumer, topic):
    made = consumer(allow_auto_create_topics=False)
    made.subscribe([topic])
    with pytest.raises(KafkaException) as raised:
        read(made, 1)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


# -- groups


def test_a_group_goes_on_where_it_stopped(consumer, ten):
    first = consumer()
    first.subscribe([ten[0]])
    assert values(read(first, 4)) == numbered(4)
    (committed,) = first.commit(offsets=[TopicPartition(ten[0], 0, 4, metadata="four")], asynchronous=False)
    assert (committed.offset, committed.error) == (4, None)
    first.close()
    second = consumer()
    second.subscribe([ten[0]])
    assert values(read(second, 6)) == numbered(10)[4:]
    (found,) = second.committed([TopicPartition(ten[0], 0)], timeout=10)
    assert (found.offset, found.metadata) == (4, "four")


def test_offsets_are_committed_asynchronously(consumer, ten):
    heard = []
    made = consumer(on_commit=lambda *result: heard.append(result))
    made.subscribe([ten[0]])
    last = read(made, 10)[-1]
    made.commit(message=last)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not heard and time.monotonic() < deadline:
        made.poll(0.05)
    ((error, (committed,)),) = heard
    assert (error, committed.offset) == (None, 10)


def test_stored_offsets_are_committed_by_themselves(bootstrap, consumer, ten):
    settings = dotted({"enable_auto_commit": True, "auto_commit_interval_ms": 100}) | {
        "enable.auto.offset.store": False
    }
    first = consumer(**settings)
    first.subscribe([ten[0]])
    first.store_offsets(read(first, 6)[-1])
    first.close()
    (found,) = consumer().committed([TopicPartition(ten[0], 0)], timeout=10)
    assert found.offset == 6


def test_a_pattern_finds_topics_also_new_ones(consumer, producer, topic):
    sender = producer()
    send_all(sender, f"{topic}-a", [b"a"])
    made = consumer(topic_metadata_refresh_interval_ms=200)
    made.subscribe([f"^{topic}-.*"])
    assert values(read(made, 1)) == [b"a"]
    send_all(sender, f"{topic}-b", [b"b"])
    assert set(values(read(made, 2))) == {b"a", b"b"}  # nothing was committed before the round that the new topic made


class Member:
    """A member of a group that a thread of its own polls; `share` is what its callbacks heard."""

    def __init__(self, consumer, topic):
        self.consumer = consumer
        self.share, self.rounds, self.lost = frozenset(), 0, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self._take(frozenset(part.partition for part in partitions)),
            on_revoke=lambda _, partitions: self._give(frozenset(part.partition for part in partitions)),
        )
        self._thread.start()

    def _take(self, partitions):
        self.share |= partitions
        self.rounds += 1

    def _give(self, partitions):
        self.share -= partitions
        self.lost += len(partitions)

    def _poll(self):
        while not self._stop.is_set():
            self.consumer.poll(0.05)

    def rest(self):
        """Poll no more: a call that waits for the poll of another thread may wait for ever."""
        self._stop.set()
        self._thread.join()

    def leave(self):
        self.rest()
        self.consumer.close()


@pytest.fixture
def join(consumer):
    """Let members join; all leave at the end."""
    members = []

    def make(topic, **options):
        made = consumer(session_timeout_ms=6000, heartbeat_interval_ms=200, **options)
        members.append(Member(made, topic))
        return members[-1]

    yield make
    for member in members:
        member.leave()


def await_shares(*expected):
    """Wait until each member has as many partitions as it should, no partition twice."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        shares = [member.share for member, _ in expected]
        if [len(share) for share in shares] == [size for _, size in expected]:
            assert len(frozenset().union(*shares)) == sum(size for _, size in expected)
            return
        time.sleep(0.02)
    pytest.fail(f"the members have {shares}")


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_shared_and_given_back(join, create_topic, strategy):
    topic, options = create_topic(4), {"partition_assignment_strategy": strategy}
    first = join(topic, **options)
    await_shares((first, 4))
    second = join(topic, **options)
    await_shares((first, 2), (second, 2))
    assert first.lost == (2 if strategy == "cooperative-sticky" else 4)
    second.leave()
    await_shares((first, 4))


def test_a_static_member_comes_back_without_a_rebalance(join, create_topic):
    topic = create_topic(2)
    anna, olga = (join(topic, group_instance_id=name) for name in ("anna", "olga"))
    await_shares((anna, 1), (olga, 1))
    rounds, share = anna.rounds, olga.share
    olga.leave()
    olga = join(topic, group_instance_id="olga")
    await_shares((anna, 1), (olga, 1))
    assert (anna.rounds, olga.share) == (rounds, share)


def test_the_older_of_two_with_one_name_is_fenced(consumer, new_topic):
    older = consumer(group_instance_id="olga", heartbeat_interval_ms=200)
    older.subscribe([new_topic])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not older.assignment() and time.monotonic() < deadline:
        older.poll(0.05)
    newer = consumer(group_instance_id="olga")
    newer.subscribe([new_topic])
    with pytest.raises(KafkaException) as raised:
        while time.monotonic() < deadline:
            newer.poll(0.05)
            message = older.poll(0.05)
            if message is not None and message.error():
                raise KafkaException(message.error())
    assert raised.value.args[0].code() in {KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID}


def test_added_partitions_are_consumed(join, admin, new_topic):
    only = join(new_topic, topic_metadata_refresh_interval_ms=200)
    await_shares((only, 1))
    admin.create_partitions([NewPartitions(new_topic, 3)])[new_topic].result(10)
    await_shares((only, 3))


def test_a_group_tells_who_it_is(join, new_topic):
    member = join(new_topic)
    await_shares((member, 1))
    member.rest()
    assert member.consumer.memberid()
    assert member.consumer.consumer_group_metadata() is not None
    assert member.consumer.list_topics(new_topic, timeout=10).topics[new_topic].error is None


def test_the_asyncio_clients_produce_and_consume(bootstrap, new_topic):
    async def there_and_back():
        producer = AIOProducer({"bootstrap.servers": bootstrap})
        sent = [await producer.produce(new_topic, value) for value in numbered(5)]
        await producer.flush()
        await asyncio.gather(*sent)
        await producer.close()
        consumer = AIOConsumer({"bootstrap.servers": bootstrap, "group.id": new_topic, "auto.offset.reset": "earliest"})
        await consumer.subscribe([new_topic])
        messages = [await consumer.poll(timeout=DEADLINE_SECONDS) for _ in range(5)]
        await consumer.close()
        return values(messages)

    assert asyncio.run(there_and_back()) == numbered(5)
