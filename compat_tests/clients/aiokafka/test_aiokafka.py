"""aiokafka's producer, consumer and admin client: every option that changes what goes over the wire."""

import asyncio
import contextlib
import time

import pytest
from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    InvalidConfigurationError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
)

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
DEADLINE_SECONDS = 60


class Clients:
    """Clients that are started when they are asked for and stopped at the end of the scenario."""

    def __init__(self, bootstrap, stack):
        self._bootstrap = bootstrap
        self._stack = stack

    async def _started(self, client):
        await client.start()
        self._stack.push_async_callback(client.stop if hasattr(client, "stop") else client.close)
        return client

    async def producer(self, **options):
        options = {"acks": "all", **options}  # with fewer acks a record may be above the high watermark for a moment
        return await self._started(AIOKafkaProducer(bootstrap_servers=self._bootstrap, **options))

    async def consumer(self, *topics, **options):
        options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
        return await self._started(AIOKafkaConsumer(*topics, bootstrap_servers=self._bootstrap, **options))

    async def admin(self):
        return await self._started(AIOKafkaAdminClient(bootstrap_servers=self._bootstrap))


@pytest.fixture
def run(bootstrap):
    """Run a scenario, a coroutine function of `Clients`, in a loop of its own."""

    async def whole(scenario):
        async with contextlib.AsyncExitStack() as stack:
            await asyncio.wait_for(scenario(Clients(bootstrap, stack)), 2 * DEADLINE_SECONDS)

    return lambda scenario: asyncio.run(whole(scenario))


async def read(consumer, count):
    """The next records, or as many as come before the deadline."""
    records, deadline = [], time.monotonic() + DEADLINE_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        for polled in (await consumer.getmany(timeout_ms=200)).values():
            records += polled
    return records


async def send_all(producer, topic, messages, **where):
    """Send, and wait for all acknowledgements."""
    return await asyncio.gather(*[await producer.send(topic, message, **where) for message in messages])


async def eventually(condition):
    """Wait until it holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert condition()


async def until(look, wanted=True):
    """Wait until what is looked for, by asking the broker, is seen."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := await look()) != wanted and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert seen == wanted


def values(records):
    return [record.value for record in records]


def numbered(count):
    return [f"{number}".encode() for number in range(count)]


# -- producer


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_in_order(run, new_topic, codec):
    async def scenario(clients):
        await send_all(await clients.producer(compression_type=codec, linger_ms=5), new_topic, numbered(1000))
        assert values(await read(await clients.consumer(new_topic), 1000)) == numbered(1000)

    run(scenario)


def test_key_headers_and_timestamp_come_back(run, new_topic):
    headers, sent_at = [("one", b"1"), ("empty", b""), ("one", b"again")], int(time.time() * 1000) - 5000

    async def scenario(clients):
        producer = await clients.producer()
        sent = await producer.send_and_wait(new_topic, b"value", b"key", headers=headers, timestamp_ms=sent_at)
        assert (sent.offset, sent.partition, sent.timestamp, sent.timestamp_type) == (0, 0, sent_at, 0)
        (record,) = await read(await clients.consumer(new_topic), 1)
        assert (record.key, record.value, record.headers) == (b"key", b"value", tuple(headers))
        assert (record.timestamp, record.timestamp_type) == (sent_at, 0)

    run(scenario)


def test_log_append_time_is_the_brokers(run, create_topic):
    topic, before = create_topic(message_timestamp_type="LogAppendTime"), int(time.time() * 1000)

    async def scenario(clients):
        sent = await (await clients.producer()).send_and_wait(topic, b"x", timestamp_ms=1000)
        (record,) = await read(await clients.consumer(topic), 1)
        assert before <= record.timestamp <= int(time.time() * 1000)
        assert (record.timestamp_type, sent.timestamp) == (1, record.timestamp)

    run(scenario)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement_delivers(run, new_topic, acks):
    async def scenario(clients):
        producer = await clients.producer(acks=acks)
        await send_all(producer, new_topic, numbered(10))
        await producer.flush()
        assert values(await read(await clients.consumer(new_topic), 10)) == numbered(10)

    run(scenario)


def test_an_idempotent_producer_delivers_once_and_in_order(run, new_topic):
    async def scenario(clients):
        producer = await clients.producer(enable_idempotence=True, max_batch_size=200)
        await send_all(producer, new_topic, numbered(1000))
        assert values(await read(await clients.consumer(new_topic), 1000)) == numbered(1000)

    run(scenario)


def test_a_batch_is_built_by_hand(run, new_topic):
    async def scenario(clients):
        producer = await clients.producer()
        batch = producer.create_batch()
        for value in numbered(3):
            batch.append(key=None, value=value, timestamp=None)
        batch.close()
        sent = await (await producer.send_batch(batch, new_topic, partition=0))
        assert sent.offset == 0
        assert values(await read(await clients.consumer(new_topic), 3)) == numbered(3)

    run(scenario)


def test_equal_keys_share_a_partition_and_one_may_be_named(run, create_topic):
    topic = create_topic(4)

    async def scenario(clients):
        producer = await clients.producer()
        assert await producer.partitions_for(topic) == {0, 1, 2, 3}
        sent = {key: await send_all(producer, topic, numbered(5), key=key) for key in numbered(20)}
        assert {len({one.partition for one in same}) for same in sent.values()} == {1}
        assert [one.partition for one in await send_all(producer, topic, [b"x"], partition=3)] == [3]

    run(scenario)


def test_a_topic_is_created_on_first_use(run, topic):
    async def scenario(clients):
        await (await clients.producer()).send_and_wait(topic, b"first")
        assert values(await read(await clients.consumer(topic), 1)) == [b"first"]

    run(scenario)


def test_a_batch_that_is_too_large_for_the_topic_is_refused(run, create_topic):
    topic = create_topic(max_message_bytes="1000")

    async def scenario(clients):
        with pytest.raises(MessageSizeTooLargeError):
            await (await clients.producer()).send_and_wait(topic, b"x" * 5000)

    run(scenario)


def test_transactions_commit_and_abort(run, new_topic):
    async def scenario(clients):
        producer = await clients.producer(transactional_id=new_topic)
        with contextlib.suppress(LookupError):
            async with producer.transaction():
                await producer.send_and_wait(new_topic, b"aborted")
                raise LookupError
        async with producer.transaction():
            await producer.send_and_wait(new_topic, b"committed")
        consumer = await clients.consumer(new_topic, isolation_level="read_committed")
        assert values(await read(consumer, 1)) == [b"committed"]

    run(scenario)


# -- consumer without a group


@pytest.fixture
def ten(run, new_topic):
    """The partition of a topic that holds ten records, a second apart, and when the first one was."""
    begin = int(time.time() * 1000) - 60_000

    async def scenario(clients):
        producer = await clients.producer()
        for number, value in enumerate(numbered(10)):
            await producer.send(new_topic, value, timestamp_ms=begin + number * 1000)
        await producer.flush()

    run(scenario)
    return TopicPartition(new_topic, 0), begin


def test_a_consumer_seeks(run, ten):
    partition, _ = ten

    async def scenario(clients):
        consumer = await clients.consumer()
        consumer.assign([partition])
        assert values(await read(consumer, 10)) == numbered(10)
        assert (await consumer.position(partition), consumer.highwater(partition)) == (10, 10)
        consumer.seek(partition, 7)
        assert values(await read(consumer, 3)) == numbered(10)[7:]
        await consumer.seek_to_beginning(partition)
        assert await consumer.position(partition) == 0
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 10

    run(scenario)


def test_offsets_are_found(run, ten):
    partition, begin = ten

    async def scenario(clients):
        consumer = await clients.consumer()
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 10}
        found = (await consumer.offsets_for_times({partition: begin + 2500}))[partition]
        assert (found.offset, found.timestamp) == (3, begin + 3000)
        assert await consumer.offsets_for_times({partition: begin + 60_000}) == {partition: None}

    run(scenario)


def test_a_paused_partition_is_silent(run, create_topic):
    topic = create_topic(2)
    quiet, loud = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario(clients):
        consumer, producer = await clients.consumer(), await clients.producer()
        consumer.assign([quiet, loud])
        consumer.pause(quiet)
        for partition in (0, 1):
            await producer.send_and_wait(topic, f"{partition}".encode(), partition=partition)
        assert values(await read(consumer, 1)) == [b"1"]
        assert consumer.paused() == {quiet}
        consumer.resume(quiet)
        assert values(await read(consumer, 1)) == [b"0"]

    run(scenario)


def test_an_offset_out_of_range_begins_again_or_fails(run, ten):
    partition, _ = ten

    async def scenario(clients):
        consumer = await clients.consumer()
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        assert values(await read(consumer, 10)) == numbered(10)
        strict = await clients.consumer(auto_offset_reset="none")
        strict.assign([partition])
        strict.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await read(strict, 1)

    run(scenario)


def test_small_fetches_bring_everything(run, new_topic):
    large = [f"{number}".encode().ljust(20_000, b".") for number in range(20)]

    async def scenario(clients):
        await send_all(await clients.producer(), new_topic, large)
        small = {"max_partition_fetch_bytes": 30_000, "fetch_max_bytes": 50_000, "fetch_min_bytes": 1000}
        assert values(await read(await clients.consumer(new_topic, **small), 20)) == large

    run(scenario)


def test_only_what_is_committed_is_read(run, ten):
    async def scenario(clients):
        consumer = await clients.consumer(ten[0].topic, isolation_level="read_committed")
        assert values(await read(consumer, 10)) == numbered(10)
        assert consumer.last_stable_offset(ten[0]) == 10

    run(scenario)


# -- groups


def test_a_group_goes_on_where_it_stopped(run, ten):
    partition, _ = ten
    options = {"group_id": partition.topic, "enable_auto_commit": False}

    async def scenario(clients):
        first = await clients.consumer(partition.topic, max_poll_records=4, **options)
        assert values(await read(first, 4)) == numbered(4)
        await first.commit({partition: OffsetAndMetadata(4, "four")})
        await first.stop()
        second = await clients.consumer(partition.topic, **options)
        assert values(await read(second, 6)) == numbered(10)[4:]
        assert await second.committed(partition) == 4
        await second.seek_to_committed(partition)
        assert await second.position(partition) == 4
        listed = await (await clients.admin()).list_consumer_group_offsets(partition.topic)
        assert listed == {partition: OffsetAndMetadata(4, "four")}

    run(scenario)


def test_offsets_are_committed_by_themselves(run, ten):
    partition, _ = ten

    async def scenario(clients):
        options = {"group_id": partition.topic, "auto_commit_interval_ms": 100}
        first = await clients.consumer(partition.topic, **options)
        assert len(await read(first, 10)) == 10
        await first.stop()
        second = await clients.consumer(partition.topic, **options)
        assert await second.committed(partition) == 10

    run(scenario)


def test_a_pattern_finds_topics_also_new_ones(run, topic):
    async def scenario(clients):
        producer = await clients.producer()
        await producer.send_and_wait(f"{topic}-a", b"a")
        consumer = await clients.consumer(group_id=topic, metadata_max_age_ms=200)
        consumer.subscribe(pattern=f"^{topic}-.*")
        assert values(await read(consumer, 1)) == [b"a"]
        await producer.send_and_wait(f"{topic}-b", b"b")
        assert b"b" in values(await read(consumer, 1))

    run(scenario)


ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
def test_partitions_are_shared_and_given_back(run, create_topic, assignor):
    topic, heard = create_topic(4), []

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            heard.append(("revoked", len(revoked)))

        async def on_partitions_assigned(self, assigned):
            heard.append(("assigned", len(assigned)))

    async def scenario(clients):
        options = {"group_id": topic, "partition_assignment_strategy": [assignor], "heartbeat_interval_ms": 100}
        first, second = await clients.consumer(**options), await clients.consumer(**options)
        first.subscribe([topic], listener=Listener())
        await eventually(lambda: len(first.assignment()) == 4)
        second.subscribe([topic])
        await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2)
        assert first.assignment().isdisjoint(second.assignment())
        await second.stop()
        await eventually(lambda: len(first.assignment()) == 4)
        assert [what for what in heard if what[1]][:3] == [("assigned", 4), ("revoked", 4), ("assigned", 2)]

    run(scenario)


def test_a_static_member_comes_back_with_its_share(run, create_topic):
    topic = create_topic(2)

    async def scenario(clients):
        options = {"group_id": topic, "heartbeat_interval_ms": 100}
        anna = await clients.consumer(topic, group_instance_id="anna", **options)
        olga = await clients.consumer(topic, group_instance_id="olga", **options)
        await eventually(lambda: len(anna.assignment()) == len(olga.assignment()) == 1)
        share = olga.assignment()
        await olga.stop()
        olga = await clients.consumer(topic, group_instance_id="olga", **options)
        await eventually(lambda: olga.assignment() == share)
        assert len(anna.assignment()) == 1

    run(scenario)


# -- admin client


def test_topics_are_created_listed_described_and_deleted(run, topic, bootstrap):
    async def scenario(clients):
        admin = await clients.admin()
        created = await admin.create_topics(
            [NewTopic(topic, 3, len(bootstrap.split(",")), topic_configs={"retention.ms": "60000"})]
        )
        assert [error[:2] for error in created.topic_errors] == [(topic, 0)]
        again = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert [error[:2] for error in again.topic_errors] == [(topic, TopicAlreadyExistsError.errno)]

        async def has_partitions(*numbers):  # each look may ask another broker, and not all hear of it at once
            (described,) = await admin.describe_topics([topic])
            return sorted(partition["partition"] for partition in described["partitions"]) == list(numbers)

        async def is_listed():
            return topic in await admin.list_topics()

        await until(is_listed)
        await until(lambda: has_partitions(0, 1, 2))
        await admin.create_partitions({topic: NewPartitions(4)})
        await until(lambda: has_partitions(0, 1, 2, 3))
        deleted = await admin.delete_topics([topic])
        assert [tuple(error)[:2] for error in deleted.topic_error_codes] == [(topic, 0)]
        await until(is_listed, False)

    run(scenario)


def test_the_cluster_is_described(run, bootstrap):
    async def scenario(clients):
        cluster = await (await clients.admin()).describe_cluster()
        assert {f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]} == set(bootstrap.split(","))
        assert cluster["controller_id"] in {broker["node_id"] for broker in cluster["brokers"]}

    run(scenario)


def test_configurations_are_described_and_altered(run, new_topic):
    async def scenario(clients):
        admin = await clients.admin()
        resource = ConfigResource(ConfigResourceType.TOPIC, new_topic, {"retention.ms": "60000"})
        (altered,) = await admin.alter_configs([resource])
        assert [outcome[0] for outcome in altered.resources] == [0]
        (described,) = await admin.describe_configs([resource], include_synonyms=True)
        (((*_, entries),),) = [described.resources]
        assert [entry[:2] for entry in entries] == [("retention.ms", "60000")]
        bad = ConfigResource(ConfigResourceType.TOPIC, new_topic, {"retention.ms": "soon"})
        (refused,) = await admin.alter_configs([bad])
        assert [outcome[0] for outcome in refused.resources] == [InvalidConfigurationError.errno]
        broker_id = (await admin.describe_cluster())["brokers"][0]["node_id"]
        (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, f"{broker_id}")])
        assert "log.segment.bytes" in {entry[0] for entry in described.resources[0][4]}

    run(scenario)


def test_groups_are_listed_and_described(run, ten):
    partition, _ = ten

    async def scenario(clients):
        consumer = await clients.consumer(partition.topic, group_id=partition.topic)
        await read(consumer, 10)
        admin = await clients.admin()
        assert (partition.topic, "consumer") in await admin.list_consumer_groups()
        (described,) = await admin.describe_consumer_groups([partition.topic])
        ((_, group_id, state, protocol_type, protocol, members, *_),) = described.groups
        assert (group_id, state, protocol_type, len(members)) == (partition.topic, "Stable", "consumer", 1)
        assert protocol
        broker_ids = {broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]}
        assert await admin.find_coordinator(partition.topic) in broker_ids

    run(scenario)


def test_records_are_deleted(run, ten):
    partition, _ = ten

    async def scenario(clients):
        admin = await clients.admin()
        assert await admin.delete_records({partition: RecordsToDelete(6)}) == {partition: 6}
        consumer = await clients.consumer(partition.topic)
        assert values(await read(consumer, 4)) == numbered(10)[6:]

    run(scenario)
