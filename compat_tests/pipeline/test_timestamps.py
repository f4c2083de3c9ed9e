"""A record whose timestamp Spark cannot represent: the error of an archive, and how to continue."""

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.pipeline.archiving import SPARK_TIMESTAMP_MAX_MS, Source, unreadable_times
from barnabas.pipeline.topics import Cluster
from compat_tests.brokers import BrokerProcess
from compat_tests.pipeline import letters
from compat_tests.pipeline.jobs import SHORT_LIVED_JVM, Commands, archive_arguments
from compat_tests.pipeline.scenes import archived_records

BEFORE, AFTER = 100, 40  # letters of both partitions, before and after the record in partition 1
BEYOND_MS = SPARK_TIMESTAMP_MAX_MS + 1
OFFSET = BEFORE // letters.PARTITIONS
NAMED = f"letters-1 at offset {OFFSET} has the timestamp {BEYOND_MS}"


def write_one(bootstrap: str, topic: str, timestamp_ms: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"from the future", partition=1, timestamp=timestamp_ms)
    assert producer.flush(20) == 0


@pytest.fixture
def broker(tmp_path):
    """A broker with letters, one record beyond Spark's times, and one in its last millisecond."""
    (tmp_path / "broker").mkdir()
    with BrokerProcess(tmp_path / "broker") as broker:
        letters.create(broker.bootstrap, ["letters", "fine"])
        letters.write(broker.bootstrap, "letters", "none", 0, BEFORE, BEFORE + AFTER)
        write_one(broker.bootstrap, "letters", BEYOND_MS)
        letters.write(broker.bootstrap, "letters", "none", BEFORE, BEFORE + AFTER, BEFORE + AFTER)
        write_one(broker.bootstrap, "fine", SPARK_TIMESTAMP_MAX_MS)
        yield broker


def test_the_first_record_that_spark_cannot_read_is_named(broker):
    cluster = Cluster(broker.bootstrap)
    said = unreadable_times(cluster, Source(broker.bootstrap, topics=["letters", "fine"]))
    assert [line for line in said.splitlines() if "at offset" in line] == [NAMED]
    assert NAMED in unreadable_times(cluster, Source(broker.bootstrap, pattern="l.*"))
    assert NAMED not in unreadable_times(cluster, Source(broker.bootstrap, pattern="f.*"))


def test_an_archive_names_the_record_and_goes_on_when_it_is_deleted(broker, tmp_path):
    commands = Commands(tmp_path, **SHORT_LIVED_JVM)
    place = tmp_path / "archive"
    arguments = archive_arguments(place, broker.bootstrap, ["letters"])
    for _ in range(2):
        refused = commands.run(*arguments)
        assert (refused.status, archived_records(place)) == (1, 0)
        assert NAMED in refused.stderr
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition("letters", 1, OFFSET + 1)]).values():
        future.result()
    commands.events(*arguments, "--kafka-option", "failOnDataLoss=false")
    assert archived_records(place) == BEFORE + AFTER - OFFSET
    commands.close()
