"""The content of the replicas of a cluster: read from their log directories, and by a consumer from the leaders.

The directories are read with the pure readers of `barnabas.storage`, those of Apache Kafka as well: the files are the
same. Nothing may write there any more, so the brokers have ended before.
"""

import pathlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.storage.entries import walk_file
from barnabas.storage.osdisk import OsDisk
from barnabas.wire.records import COMMIT, BatchHeader, control_of, read_batch_header, read_records
from compat_tests.cluster.checker import Place, Records
from compat_tests.cluster.ledger import read_stamp

READ_SECONDS = 60
SEGMENT = re.compile(r"\d{20}\.log")


def read_replica(partition_directory: pathlib.Path, *, committed: bool = False) -> Records:
    """Every record in this directory, or every committed one, by offset; ValueError if an offset is there twice."""
    records: Records = {}
    open_: dict[int, Records] = {}  # by producer id: what no marker has decided yet
    for header, data in _batches(partition_directory):
        if header is not None and header.is_control:
            decided = open_.pop(header.producer_id, {})
            marker = control_of(data)
            if marker is not None and marker.type == COMMIT:
                records.update(decided)
            continue
        is_undecided = committed and header is not None and header.is_transactional
        into = open_.setdefault(header.producer_id, {}) if is_undecided else records
        for record in read_records(data):
            if record.offset in into:
                raise ValueError(f"{partition_directory} holds offset {record.offset} a second time")
            into[record.offset] = read_stamp(record.value or b"")
    return records


def _batches(partition_directory: pathlib.Path) -> Iterator[tuple[BatchHeader | None, memoryview]]:
    """The entries of all segments, with the header of those that have format 2."""
    disk = OsDisk()
    for segment in sorted(path for path in partition_directory.iterdir() if SEGMENT.fullmatch(path.name)):
        file = disk.open(str(segment), read_only=True)
        try:
            for span, data in walk_file(file, 0, file.size_bytes()):
                yield (read_batch_header(data) if span.magic >= 2 else None), data
        finally:
            file.release()


def read_replicas(
    data_dirs: Mapping[int, pathlib.Path], topics: Iterable[str], *, committed: bool = False
) -> dict[Place, dict[int, Records]]:
    """What each broker has of these topics, by partition and broker."""
    found: dict[Place, dict[int, Records]] = {}
    wanted = set(topics)
    for broker, directory in data_dirs.items():
        for path in sorted(directory.iterdir()):
            topic, _, number = path.name.rpartition("-")
            if path.is_dir() and topic in wanted and number.isdigit():
                found.setdefault((topic, int(number)), {})[broker] = read_replica(path, committed=committed)
    return found


def read_from_leaders(
    bootstrap: str, ends: Mapping[Place, int], isolation: str = "read_uncommitted"
) -> dict[Place, Records]:
    """What a consumer is handed from the beginning to these ends (by partition)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "audit",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,  # the last offsets may be those of markers
            "log_level": 2,
        }
    )
    found: dict[Place, Records] = {place: {} for place in ends}
    left = {place: end for place, end in ends.items() if end > 0}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in left])
    deadline = time.monotonic() + READ_SECONDS
    while left and time.monotonic() < deadline:
        for message in consumer.consume(5000, timeout=0.5):
            place = message.topic(), message.partition()
            if message.error() is None:
                found[place][message.offset()] = read_stamp(message.value())
                reached = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reached = message.offset()
            else:
                continue
            if reached >= left.get(place, 1 << 62):
                del left[place]
    consumer.close()
    if left:
        raise TimeoutError(f"not read to the end within {READ_SECONDS} s: {left}")
    return found
