"""A client as it was set up for brokers of before Kafka 0.11: it writes messages of formats 0 and 1, and reads them."""

import time

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from compat_tests.brokers import BrokerProcess

OLD_API_VERSIONS = [(0, 8, 2), (0, 9), (0, 10, 2)]
FORMAT_1_SINCE = (0, 10)
CODECS = [None, "gzip", "snappy", "lz4"]
PYTHON_HAS_NO_XXHASH = "lz4"  # which kafka-python needs for lz4 in format 0
RECORDS = 50


def codecs_of(api_version: tuple[int, ...]) -> list[str | None]:
    return [codec for codec in CODECS if api_version >= FORMAT_1_SINCE or codec != PYTHON_HAS_NO_XXHASH]


@pytest.mark.parametrize("reader_version", [None, *OLD_API_VERSIONS], ids=str)
@pytest.mark.parametrize("writer_version", OLD_API_VERSIONS, ids=str)
def test_what_an_old_producer_writes_old_and_new_consumers_read(
    shared_broker: BrokerProcess, topic: str, writer_version: tuple[int, ...], reader_version: tuple[int, ...] | None
) -> None:
    now_ms, expected = int(time.time() * 1000), []
    for codec in codecs_of(writer_version):
        producer = KafkaProducer(
            bootstrap_servers=shared_broker.bootstrap, api_version=writer_version, compression_type=codec, linger_ms=20
        )
        pairs = [(b"k%d" % number, f"{codec} {number}".encode()) for number in range(RECORDS)]
        sent = [producer.send(topic, value, key, partition=0, timestamp_ms=now_ms) for key, value in pairs]
        producer.flush(20)
        assert [future.get(1).offset for future in sent] == list(range(len(expected), len(expected) + RECORDS))
        producer.close()
        expected += pairs
    consumer = KafkaConsumer(bootstrap_servers=shared_broker.bootstrap, api_version=reader_version)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    records = [next(consumer) for _ in expected]
    consumer.close()
    assert [(record.key, record.value) for record in records] == expected
    knows_times = writer_version >= FORMAT_1_SINCE and (reader_version is None or reader_version >= FORMAT_1_SINCE)
    assert ({record.timestamp for record in records} == {now_ms}) == knows_times
