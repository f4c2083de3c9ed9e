"""What a restoring task writes, through the stock client into a running broker; no Spark is needed for it."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.pipeline.plan import PartitionPlan
from barnabas.pipeline.writing import PRODUCER, PartitionWriter, Row
from compat_tests.raw import create_topic


@pytest.fixture
def target(shared_broker, topic):
    create_topic(shared_broker.port, topic)
    return topic


@pytest.fixture
def options(shared_broker):
    return {**PRODUCER, "compression.type": "lz4", "bootstrap.servers": shared_broker.bootstrap}


def read(shared_broker, topic, count):
    """The first records of partition 0."""
    settings = {"bootstrap.servers": shared_broker.bootstrap, "group.id": "reader"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(count, timeout=20)
    consumer.close()
    assert len(records) == count
    return records


def rows(plan, count):
    return [Row(plan, 1_000 + index, b"k", b"%d" % index, None) for index in range(count)]


RECORDS = [
    (5, None, b"no key", None),
    (4, b"", b"an empty key", None),
    (3, b"a tombstone", None, None),
    (3, b"an empty value", b"", None),
    (1_700_000_000_000, b"headers", b"v", [("a", b"1"), ("b", b""), ("a", None)]),
    (-1, b"no timestamp", b"v", None),
    (1, b"large", b"x" * 900_000, None),
]


def test_every_kind_of_record_arrives_as_it_was(shared_broker, target, options):
    plan = PartitionPlan("source", 0, target, 0, len(RECORDS))
    outcome = PartitionWriter(plan, options).write(iter([Row(plan, *record) for record in RECORDS]))
    assert (outcome.written, outcome.skipped, outcome.problem) == (len(RECORDS), 0, None)
    found = read(shared_broker, target, len(RECORDS))
    assert [(one.timestamp()[1], one.key(), one.value(), one.headers()) for one in found] == RECORDS


def test_a_second_task_goes_on_where_the_first_was_cut_off(shared_broker, target, options):
    short = PartitionPlan("source", 0, target, 0, 30)
    assert PartitionWriter(short, options).write(iter(rows(short, 30))).written == 30
    whole = PartitionPlan("source", 0, target, 0, 100)
    outcome = PartitionWriter(whole, options).write(iter(rows(whole, 100)))
    assert (outcome.skipped, outcome.written, outcome.problem) == (30, 70, None)
    assert [int(one.value()) for one in read(shared_broker, target, 100)] == list(range(100))


def test_a_task_that_comes_after_the_work_is_done_writes_nothing(shared_broker, target, options):
    plan = PartitionPlan("source", 0, target, 0, 10)
    PartitionWriter(plan, options).write(iter(rows(plan, 10)))
    outcome = PartitionWriter(plan, options).write(iter(rows(plan, 10)))
    assert (outcome.skipped, outcome.written, outcome.problem) == (10, 0, None)


def test_another_producer_costs_one_misplaced_record(shared_broker, target, options):
    plan = PartitionPlan("source", 0, target, 0, 10)
    stranger = Producer({"bootstrap.servers": shared_broker.bootstrap})

    def disturbed():
        made = rows(plan, 10)
        stranger.produce(target, b"a stranger's", partition=0)
        assert stranger.flush(20) == 0
        yield from made

    outcome = PartitionWriter(plan, options).write(disturbed())
    assert "the record for offset 0 came to be at 1: another producer writes" in outcome.problem
    assert [one.value() for one in read(shared_broker, target, 2)] == [b"a stranger's", b"0"]


def test_a_log_that_is_longer_than_planned_is_left_alone(shared_broker, target, options):
    longer = PartitionPlan("source", 0, target, 0, 20)
    PartitionWriter(longer, options).write(iter(rows(longer, 20)))
    plan = PartitionPlan("source", 0, target, 0, 10)
    outcome = PartitionWriter(plan, options).write(iter(rows(plan, 10)))
    assert "ends at offset 20; the restore began at 0 and has 10 records" in outcome.problem
    assert outcome.written == 0


def test_fewer_records_than_planned_are_a_problem(target, options):
    plan = PartitionPlan("source", 0, target, 0, 10)
    outcome = PartitionWriter(plan, options).write(iter(rows(plan, 9)))
    assert "the plan has 10 records, the archive gave 9" in outcome.problem


def test_a_record_that_the_topic_refuses_is_reported_in_the_brokers_words(target, options):
    plan = PartitionPlan("source", 0, target, 0, 2)
    large = Row(plan, 1, None, b"x" * 2_000_000, None)
    outcome = PartitionWriter(plan, {**options, "compression.type": "none"}).write(iter([large, large]))
    assert "Message size too large" in outcome.problem
    assert outcome.written == 0
