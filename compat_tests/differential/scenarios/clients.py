"""Whole clients instead of single requests: what an application sees, from kafka-python and from confluent-kafka."""

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
from kafka.errors import KafkaError

from compat_tests.differential.asking import PAST_MS
from compat_tests.differential.scenario import scenario

SECONDS = 20


def _kafka_python(side, kind, **settings):
    return kind(bootstrap_servers=f"127.0.0.1:{side.port}", request_timeout_ms=20_000, **settings)


def _failed(action, *arguments, **options):
    """The name of the error that an action ends with."""
    try:
        return action(*arguments, **options)
    except (KafkaError, confluent_kafka.KafkaException) as error:
        return type(error).__name__ if isinstance(error, KafkaError) else error.args[0].name()


@scenario
def kafka_python_produces_and_consumes(side):
    topic = side.create_topic("one", 2, max_message_bytes="10000")
    producer = _kafka_python(side, kafka.KafkaProducer, retries=0)
    for number in range(6):
        sent = producer.send(
            topic, b"v%d" % number, key=b"k%d" % number, partition=number % 2, timestamp_ms=PAST_MS + number,
            headers=[("h", b"%d" % number), ("empty", b"")],
        ).get(SECONDS)  # fmt: skip
        yield f"sent {number}", sent._asdict()
    yield "too large", _failed(producer.send(topic, bytes(20_000), partition=0).get, SECONDS)
    producer.close()
    consumer = _kafka_python(side, kafka.KafkaConsumer, enable_auto_commit=False, consumer_timeout_ms=20_000)
    partitions = [kafka.TopicPartition(topic, index) for index in range(2)]
    consumer.assign(partitions)
    yield "beginnings", _by_index(consumer.beginning_offsets(partitions))
    yield "ends", _by_index(consumer.end_offsets(partitions))
    for name, after in {"first": 0, "third": 2, "later": 60_000}.items():
        found = consumer.offsets_for_times(dict.fromkeys(partitions, PAST_MS + after))
        yield f"at the {name} time", _by_index(found)
    consumer.seek_to_beginning()
    records = sorted((next(consumer) for _ in range(6)), key=lambda record: (record.partition, record.offset))
    shown = ("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
    yield "consumed", [{name: repr(getattr(record, name, None)) for name in shown} for record in records]
    consumer.seek(partitions[0], 77)
    yield "behind the end", sorted(consumer.poll(500))
    consumer.close()


def _by_index(found):
    return {partition.partition: repr(value) for partition, value in found.items()}


@scenario
def kafka_python_in_a_group(side):
    side.await_coordinator()
    topic, group = side.create_topic("one"), side.name("group")
    producer = _kafka_python(side, kafka.KafkaProducer)
    for number in range(3):
        producer.send(topic, b"%d" % number, timestamp_ms=PAST_MS).get(SECONDS)
    producer.close()
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = _kafka_python(side, kafka.KafkaConsumer, consumer_timeout_ms=20_000, **settings)
    consumer.subscribe([topic])
    yield "read", [next(consumer).value.decode() for _ in range(3)]
    partition = kafka.TopicPartition(topic, 0)
    consumer.commit({partition: kafka.OffsetAndMetadata(2, "two", 0)})
    yield "committed", [consumer.committed(partition), repr(consumer.committed(partition, metadata=True))]
    admin = _kafka_python(side, kafka.admin.KafkaAdminClient)
    yield "offsets", {repr(key): repr(value) for key, value in admin.list_group_offsets(group)[group].items()}
    consumer.close()
    admin.close()


@scenario
def confluent_produces_and_consumes(side):
    topic = side.create_topic("one", 2, max_message_bytes="10000")
    reports = []

    def report(error, message):
        reports.append([error.name() if error else None, message.partition(), message.offset(), message.timestamp()])

    settings = {"bootstrap.servers": f"127.0.0.1:{side.port}", "enable.idempotence": True, "linger.ms": 0}
    producer = confluent_kafka.Producer({**settings, "message.max.bytes": 100_000, "retries": 1})
    for number in range(4):
        producer.produce(topic, b"v%d" % number, b"k", number % 2, on_delivery=report, timestamp=PAST_MS + number)
        producer.flush(SECONDS)
    producer.produce(topic, bytes(20_000), partition=0, on_delivery=report)
    producer.flush(SECONDS)
    yield "reports", [[*row[:3], row[3] if row[0] is None else None] for row in reports]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": f"127.0.0.1:{side.port}", "group.id": side.name("group"), "auto.offset.reset": "earliest"}
    )
    partitions = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(2)]
    yield "watermarks", [consumer.get_watermark_offsets(partition, SECONDS) for partition in partitions]
    at = [confluent_kafka.TopicPartition(topic, index, PAST_MS + 2) for index in range(2)]
    yield "offsets at a time", [found.offset for found in consumer.offsets_for_times(at, SECONDS)]
    consumer.assign(partitions)
    messages = sorted((consumer.poll(SECONDS) for _ in range(4)), key=lambda each: (each.partition(), each.offset()))
    yield "consumed", [[each.partition(), each.offset(), each.value(), each.timestamp()] for each in messages]
    consumer.close()


@scenario
def confluent_looks_after_the_cluster(side):
    topic = side.create_topic("one", 2)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{side.port}"})
    described = admin.list_topics(topic, SECONDS).topics[topic]
    yield "metadata", [described.error, {i: [p.leader, p.replicas, p.isrs] for i, p in described.partitions.items()}]
    New, More = confluent_kafka.admin.NewTopic, confluent_kafka.admin.NewPartitions
    asked = {
        "created": admin.create_topics([New(side.name("two"), 1, 1)]),
        "there already": admin.create_topics([New(topic, 1, 1)]),
        "three replicas": admin.create_topics([New(side.name("three"), 1, 3)]),
        "bad name": admin.create_topics([New("a/b", 1, 1)]),
        "bad config": admin.create_topics([New(side.name("bad"), 1, 1, config={"retention.ms": "x"})]),
        "more partitions": admin.create_partitions([More(topic, 4)]),
        "fewer partitions": admin.create_partitions([More(topic, 1)]),
        "deleted": admin.delete_topics([side.name("unknown")]),
    }
    for name, futures in asked.items():
        (future,) = futures.values()
        yield name, _failed(future.result, SECONDS)
    resource = confluent_kafka.admin.ConfigResource("topic", topic)
    (future,) = admin.describe_configs([resource]).values()
    yield "configs", {key: entry.value for key, entry in future.result(SECONDS).items()}
    cluster = admin.describe_cluster().result(SECONDS)
    yield "cluster", [cluster.controller.id, sorted(node.id for node in cluster.nodes)]
    (future,) = admin.describe_consumer_groups([side.name("none")]).values()
    group = future.result(SECONDS)
    yield "unknown group", [group.state.name, group.protocol_type if hasattr(group, "protocol_type") else None]
