"""The content of the replicas of a cluster: read from their log directories, and by a consumer from the leaders.

The directories are read with the pure readers of `barnabas.storage`, those of Apache Kafka as well: the files are the
same. Nothing may write there any more, so the brokers have ended before.
"""

import pathlib
import re
import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, TopicPartition

from barnabas.storage.disk import OsDisk
from barnabas.storage.entries import walk_file
from barnabas.wire.records import read_batch_header, read_records
from compat_tests.cluster.checker import Place, Records
from compat_tests.cluster.ledger import read_stamp

READ_SECONDS = 60
SEGMENT = re.compile(r"\d{20}\.log")


def read_replica(partition_directory: pathlib.Path) -> Records:
    """Every record in this directory, by offset; what lies twice at one offset is a ValueError."""
    records: Records = {}
    disk = OsDisk()
    for segment in sorted(path for path in partition_directory.iterdir() if SEGMENT.fullmatch(path.name)):
        file = disk.open(str(segment), read_only=True)
        try:
            for span, data in walk_file(file, 0, file.size_bytes()):
                if span.magic >= 2 and read_batch_header(data).is_control:
                    continue
                for record in read_records(data):
                    if record.offset in records:
                        raise ValueError(f"{segment} holds offset {record.offset} a second time")
                    records[record.offset] = read_stamp(record.value or b"")
        finally:
            file.release()
    return records


def read_replicas(data_dirs: Mapping[int, pathlib.Path], topics: Iterable[str]) -> dict[Place, dict[int, Records]]:
    """What each broker has of these topics, by partition and broker."""
    found: dict[Place, dict[int, Records]] = {}
    wanted = set(topics)
    for broker, directory in data_dirs.items():
        for path in sorted(directory.iterdir()):
            topic, _, number = path.name.rpartition("-")
            if path.is_dir() and topic in wanted and number.isdigit():
                found.setdefault((topic, int(number)), {})[broker] = read_replica(path)
    return found


def read_from_leaders(bootstrap: str, topic: str, ends: Mapping[int, int]) -> dict[Place, Records]:
    """What a consumer is handed from the beginning to these ends (by partition)."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "audit", "enable.auto.commit": False, "log_level": 2}
    )
    found: dict[Place, Records] = {(topic, partition): {} for partition in ends}
    left = {partition: end for partition, end in ends.items() if end > 0}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
    deadline = time.monotonic() + READ_SECONDS
    while left and time.monotonic() < deadline:
        for message in consumer.consume(5000, timeout=0.5):
            if message.error() is not None:
                continue
            found[topic, message.partition()][message.offset()] = read_stamp(message.value())
            if message.offset() + 1 >= left.get(message.partition(), 1 << 62):
                del left[message.partition()]
    consumer.close()
    if left:
        raise TimeoutError(f"{topic}: not read to the end within {READ_SECONDS} s: {left}")
    return found
