"""kafka-python's producer and consumer: every option that changes what goes over the wire."""

import contextlib
import threading
import time

import pytest
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import MessageSizeTooLargeError, NoOffsetForPartitionError
from kafka.partitioner.sticky import StickyPartitioner

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
DEADLINE_SECONDS = 60
POLL_MS = 1000  # compat_tests/delivery_worker.py tells why a member that polls for shorter times may never join


@pytest.fixture
def producer(bootstrap):
    """Make producers; all are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap, **options))
        )


@pytest.fixture
def consumer(bootstrap):
    """Make consumers that begin at the beginning; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(*topics, **options):
            options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
            made = KafkaConsumer(*topics, bootstrap_servers=bootstrap, **options)
            return stack.enter_context(contextlib.closing(made))

        yield make


def read(consumer, count):
    """The next records, or as many as come before the deadline."""
    records, deadline = [], time.monotonic() + DEADLINE_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        for polled in consumer.poll(timeout_ms=POLL_MS).values():
            records += polled
    return records


def values(records):
    return [record.value for record in records]


def numbered(count):
    return [f"{number}".encode() for number in range(count)]


def send_all(producer, topic, messages, **where):
    """Send and wait for all acknowledgements."""
    futures = [producer.send(topic, message, **where) for message in messages]
    return [future.get(DEADLINE_SECONDS) for future in futures]


# -- producer


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_in_order(producer, consumer, new_topic, codec):
    send_all(producer(compression_type=codec, linger_ms=5), new_topic, numbered(1000))
    assert values(read(consumer(new_topic), 1000)) == numbered(1000)


def test_key_headers_and_timestamp_come_back(producer, consumer, new_topic):
    headers = [("one", b"1"), ("empty", b""), ("one", b"again")]
    sent_at = int(time.time() * 1000) - 5000
    sent = producer().send(new_topic, b"value", key=b"key", headers=headers, timestamp_ms=sent_at).get(10)
    (record,) = read(consumer(new_topic), 1)
    assert (record.key, record.value, record.headers) == (b"key", b"value", headers)
    assert (record.timestamp, record.timestamp_type) == (sent_at, 0)
    assert (record.offset, record.partition) == (sent.offset, sent.partition) == (0, 0)
    assert (record.serialized_key_size, record.serialized_value_size) == (3, 5)


def test_null_is_not_empty(producer, consumer, new_topic):
    send = producer().send
    assert [send(new_topic, value, key=b"k").get(10).offset for value in (None, b"")] == [0, 1]
    assert values(read(consumer(new_topic), 2)) == [None, b""]


def test_log_append_time_is_the_brokers(producer, consumer, create_topic):
    topic = create_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    metadata = producer().send(topic, b"x", timestamp_ms=1000).get(10)
    (record,) = read(consumer(topic), 1)
    assert before <= record.timestamp <= int(time.time() * 1000)
    assert record.timestamp_type == 1
    assert metadata.timestamp == record.timestamp


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement_delivers(producer, consumer, new_topic, acks):
    made = producer(acks=acks, enable_idempotence=acks == "all")
    send_all(made, new_topic, numbered(10))
    made.flush()
    assert values(read(consumer(new_topic), 10)) == numbered(10)


@pytest.mark.parametrize("idempotent", [True, False])
def test_many_batches_in_flight_arrive_once_and_in_order(producer, consumer, new_topic, idempotent):
    made = producer(enable_idempotence=idempotent, batch_size=64, max_in_flight_requests_per_connection=5)
    send_all(made, new_topic, numbered(2000))
    assert values(read(consumer(new_topic), 2000)) == numbered(2000)


def test_equal_keys_share_a_partition(producer, consumer, create_topic):
    topic, made = create_topic(4), producer()
    where = {}
    for number in range(200):
        key = f"{number % 20}".encode()
        where.setdefault(key, set()).add(made.send(topic, b"x", key=key).get(10).partition)
    assert all(len(partitions) == 1 for partitions in where.values())
    assert len(set.union(*where.values())) == 4


def test_a_partition_may_be_named(producer, create_topic):
    topic, made = create_topic(3), producer()
    assert made.partitions_for(topic) == {0, 1, 2}
    assert [made.send(topic, b"x", partition=partition).get(10).partition for partition in (2, 0, 1)] == [2, 0, 1]


def test_a_sticky_partitioner_fills_a_batch(producer, create_topic):
    made = producer(partitioner=StickyPartitioner(), linger_ms=100)
    assert len({sent.partition for sent in send_all(made, create_topic(3), numbered(10))}) == 1


def test_a_topic_is_created_on_first_use(producer, consumer, topic):
    send_all(producer(), topic, [b"first"])
    assert values(read(consumer(topic), 1)) == [b"first"]


def test_a_batch_that_is_too_large_for_the_topic_is_refused(producer, create_topic):
    topic = create_topic(max_message_bytes="1000")
    with pytest.raises(MessageSizeTooLargeError):
        producer().send(topic, b"x" * 5000).get(10)


def test_transactions_commit_and_abort(producer, consumer, new_topic):
    made = producer(transactional_id=new_topic, max_block_ms=30_000)
    made.init_transactions()
    for value, end in [(b"aborted", made.abort_transaction), (b"committed", made.commit_transaction)]:
        made.begin_transaction()
        made.send(new_topic, value)
        made.flush()
        end()
    assert values(read(consumer(new_topic, isolation_level="read_committed"), 1)) == [b"committed"]


# -- consumer without a group


@pytest.fixture
def ten(producer, new_topic):
    """The partition of a topic that holds ten records, a second apart."""
    made, begin = producer(), int(time.time() * 1000) - 60_000
    for number, value in enumerate(numbered(10)):
        made.send(new_topic, value, timestamp_ms=begin + number * 1000)
    made.flush()
    return TopicPartition(new_topic, 0), begin


def test_an_assigned_partition_is_read(consumer, ten):
    made = consumer()
    made.assign([ten[0]])
    assert values(read(made, 10)) == numbered(10)
    assert made.position(ten[0]) == 10
    assert made.highwater(ten[0]) == 10


def test_a_consumer_seeks(consumer, ten):
    made = consumer()
    made.assign([ten[0]])
    made.seek(ten[0], 7)
    assert values(read(made, 3)) == [b"7", b"8", b"9"]
    made.seek_to_beginning(ten[0])
    assert values(read(made, 10)) == numbered(10)
    made.seek_to_end(ten[0])
    assert made.position(ten[0]) == 10


def test_offsets_are_found(consumer, ten):
    partition, begin = ten
    made = consumer()
    assert made.beginning_offsets([partition]) == {partition: 0}
    assert made.end_offsets([partition]) == {partition: 10}
    found = made.offsets_for_times({partition: begin + 2500})[partition]
    assert (found.offset, found.timestamp) == (3, begin + 3000)
    assert made.offsets_for_times({partition: begin + 60_000}) == {partition: None}


def test_a_paused_partition_is_silent(consumer, producer, create_topic):
    topic = create_topic(2)
    quiet, loud = TopicPartition(topic, 0), TopicPartition(topic, 1)
    made, sender = consumer(), producer()
    made.assign([quiet, loud])
    made.pause(quiet)
    for partition in (0, 1):
        send_all(sender, topic, [f"{partition}".encode()], partition=partition)
    assert values(read(made, 1)) == [b"1"]
    assert made.paused() == {quiet}
    made.resume(quiet)
    assert values(read(made, 1)) == [b"0"]


def test_an_offset_out_of_range_begins_again_or_fails(consumer, ten):
    made = consumer()
    made.assign([ten[0]])
    made.seek(ten[0], 1000)
    assert values(read(made, 10)) == numbered(10)
    strict = consumer(auto_offset_reset="none")
    strict.assign([ten[0]])
    with pytest.raises(NoOffsetForPartitionError):
        read(strict, 1)


def test_small_fetches_bring_everything(consumer, producer, new_topic):
    large = [f"{number}".encode().ljust(20_000, b".") for number in range(20)]
    send_all(producer(), new_topic, large)
    small = {"max_partition_fetch_bytes": 30_000, "fetch_max_bytes": 50_000, "max_poll_records": 2}
    assert values(read(consumer(new_topic, **small), 20)) == large


def test_a_fetch_waits_for_its_bytes(consumer, producer, new_topic):
    made = consumer(new_topic, fetch_min_bytes=10_000, fetch_max_wait_ms=1000)
    send_all(producer(), new_topic, [b"small"])
    assert values(read(made, 1)) == [b"small"]


def test_topics_and_partitions_are_known(consumer, create_topic):
    topic = create_topic(3)
    made = consumer()
    assert topic in made.topics()
    assert made.partitions_for_topic(topic) == {0, 1, 2}


# -- groups


def test_a_group_goes_on_where_it_stopped(consumer, ten):
    topic = ten[0].topic
    first = consumer(topic, group_id=topic, enable_auto_commit=False, max_poll_records=4)
    assert values(read(first, 4))[:4] == numbered(4)
    first.commit({ten[0]: OffsetAndMetadata(4, "four", -1)})
    first.close()
    second = consumer(topic, group_id=topic)
    assert values(read(second, 6)) == numbered(10)[4:]
    assert second.committed(ten[0], metadata=True).metadata == "four"


def test_offsets_are_committed_asynchronously(consumer, ten):
    heard = threading.Event()
    made = consumer(ten[0].topic, group_id=ten[0].topic, enable_auto_commit=False)
    read(made, 10)
    made.commit_async({ten[0]: OffsetAndMetadata(10, "", -1)}, callback=lambda *_: heard.set())
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not heard.is_set() and time.monotonic() < deadline:
        made.poll(timeout_ms=50)
    assert made.committed(ten[0]) == 10


def test_offsets_are_committed_by_themselves(consumer, ten):
    first = consumer(ten[0].topic, group_id=ten[0].topic, auto_commit_interval_ms=100)
    assert len(read(first, 10)) == 10
    first.close()
    assert consumer(group_id=ten[0].topic).committed(ten[0]) == 10


def test_a_group_without_a_subscription_keeps_offsets(consumer, ten):
    made = consumer(group_id=ten[0].topic, enable_auto_commit=False)
    made.assign([ten[0]])
    read(made, 10)
    made.commit({ten[0]: OffsetAndMetadata(5, "", -1)})
    assert consumer(group_id=ten[0].topic).committed(ten[0]) == 5


def test_a_pattern_finds_topics_also_new_ones(consumer, producer, topic):
    sender = producer()
    send_all(sender, f"{topic}-a", [b"a"])
    made = consumer(group_id=topic, metadata_max_age_ms=200)
    made.subscribe(pattern=f"^{topic}-.*")
    assert values(read(made, 1)) == [b"a"]
    send_all(sender, f"{topic}-b", [b"b"])
    assert values(read(made, 1)) == [b"b"]
    assert made.subscription() == {f"{topic}-a", f"{topic}-b"}


class Members:
    """Members of a group, each polled by a thread of its own until the end of the test."""

    def __init__(self, make):
        self._make = make
        self._stop = {}

    def join(self, *topics, **options):
        member = self._make(*topics, heartbeat_interval_ms=200, enable_auto_commit=False, **options)
        stop = threading.Event()

        def poll():
            while not stop.is_set():
                member.poll(timeout_ms=POLL_MS)

        thread = threading.Thread(target=poll)
        thread.start()
        self._stop[member] = stop, thread
        return member

    def leave(self, member):
        stop, thread = self._stop.pop(member)
        stop.set()
        thread.join()
        member.close()

    def leave_all(self):
        for member in list(self._stop):
            self.leave(member)


@pytest.fixture
def members(consumer):
    made = Members(consumer)
    yield made
    made.leave_all()


def await_shares(*expected):
    """Wait until each member has as many partitions as it should, no partition twice."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        shares = [member.assignment() for member, _ in expected]
        if [len(share) for share in shares] == [size for _, size in expected]:
            assert len(set.union(*map(set, shares))) == sum(size for _, size in expected)
            return
        time.sleep(0.02)
    pytest.fail(f"the members have {shares}")


ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
def test_partitions_are_shared_and_given_back(members, create_topic, assignor):
    topic = create_topic(4)
    options = {"group_id": topic, "partition_assignment_strategy": [assignor]}
    first = members.join(topic, **options)
    await_shares((first, 4))
    second = members.join(topic, **options)
    await_shares((first, 2), (second, 2))
    members.leave(second)
    await_shares((first, 4))


def test_a_cooperative_member_keeps_what_it_need_not_give(members, create_topic):
    topic, lost = create_topic(4), []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            lost.extend(revoked)

        def on_partitions_assigned(self, assigned):
            pass

    options = {"group_id": topic, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    first = members.join(**options)
    first.subscribe([topic], listener=Listener())
    await_shares((first, 4))
    second = members.join(topic, **options)
    await_shares((first, 2), (second, 2))
    assert len(lost) == 2


def test_a_static_member_comes_back_without_a_rebalance(members, create_topic):
    topic = create_topic(2)
    anna = members.join(topic, group_id=topic, group_instance_id="anna")
    olga = members.join(topic, group_id=topic, group_instance_id="olga")
    await_shares((anna, 1), (olga, 1))
    generation, share = anna.group_metadata().generation_id, olga.assignment()
    members.leave(olga)
    olga = members.join(topic, group_id=topic, group_instance_id="olga")
    await_shares((anna, 1), (olga, 1))
    assert (anna.group_metadata().generation_id, olga.assignment()) == (generation, share)


def test_added_partitions_are_consumed(members, producer, admin, new_topic):
    from confluent_kafka.admin import NewPartitions

    only = members.join(new_topic, group_id=new_topic, metadata_max_age_ms=200)
    await_shares((only, 1))
    admin.create_partitions([NewPartitions(new_topic, 3)])[new_topic].result(10)
    await_shares((only, 3))
