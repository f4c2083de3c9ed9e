"""Apache Kafka reads our disk: its own dump tool reads every file, and a Kafka that is given the directory serves it.

Before that the directory has lived: records of every codec and kind, idempotent producers, rolls, a group that commits,
DeleteRecords, retention by size, SIGKILL under load, a restart, and a clean stop. BARNABAS_EXCHANGE_RECORDS says how
many records; a million is what was meant, and takes some minutes:

    BARNABAS_EXCHANGE_RECORDS=1000000 make test ARGS="compat_tests/test_disk_exchange.py -s"
"""

import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import BrokerProcess
from compat_tests.exchange import carry
from compat_tests.kafka import BROKER_JVM, KafkaProcess, ZooKeeperProcess
from compat_tests.log_dump import complaints, dump

RECORDS = int(os.environ.get("BARNABAS_EXCHANGE_RECORDS", "20000"))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "exchange-readers"
PATIENCE_SECONDS = 60.0
HOUR_MS = 3_600_000

SEGMENT_BYTES = str(max(60_000, RECORDS * 2))
TOPICS = {
    "mixed": (3, {"index.interval.bytes": "1000"}),
    "short": (1, {"retention.bytes": SEGMENT_BYTES}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "recoded": (1, {"compression.type": "zstd"}),
}
DELETED_BEFORE = {("mixed", 0): RECORDS // 20, ("recoded", 0): RECORDS // 20}
SETTINGS = {
    "broker_id": 1,
    "offsets_topic_num_partitions": 4,
    "log_segment_bytes": SEGMENT_BYTES,
    "log_initial_task_delay_ms": 200,
    "log_retention_check_interval_ms": 200,
    "log_segment_delete_delay_ms": 500,
    "log_flush_offset_checkpoint_interval_ms": 1000,
}

Key = tuple[str, int]
Served = tuple[dict[Key, tuple[int, int]], dict[tuple[str, int, int], tuple[object, ...]], dict[Key, int]]


# -- a directory that has lived


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lived"]:
    """The directory after its life, and copies of it: as SIGKILL left it, and cleanly stopped."""
    lived = Lived(tmp_path_factory.mktemp("exchange"))
    yield lived.live()
    lived.broker.kill()


class Lived:
    """A broker, its directory, and what it served last."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.killed = directory / "killed"
        self.broker = BrokerProcess(directory, **SETTINGS)
        self.served: Served = ({}, {}, {})

    @property
    def data(self) -> Path:
        return self.broker.data_dir

    def live(self) -> "Lived":
        self.broker.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        topics = [NewTopic(name, partitions, 1, config=configs) for name, (partitions, configs) in TOPICS.items()]
        for created in admin.create_topics(topics).values():
            created.result()
        first, second = Load(self.broker.bootstrap, 1), Load(self.broker.bootstrap, 2)
        for _ in range(2):  # every producer is known when the second quarter makes segments roll
            first.send(RECORDS // 4)
            first.finish()
        self._commit()
        deleted = admin.delete_records([TopicPartition(*key, offset) for key, offset in DELETED_BEFORE.items()])
        lows = {(each.topic, each.partition): future.result().low_watermark for each, future in deleted.items()}
        assert lows == DELETED_BEFORE
        await_true(self._the_newest_snapshots_are_written)  # a thread writes them, some time after the roll
        second.send(RECORDS // 4)
        self.broker.kill()
        shutil.copytree(self.data, self.killed)
        self.broker.restart()
        second.send(RECORDS // 4)
        second.finish()
        await_true(self._nothing_is_left_to_delete)
        self.served = everything_served(self.broker.bootstrap)
        assert self.broker.stop() == 0
        return self

    def _commit(self) -> None:
        """A group reads a part of each partition, and commits."""
        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, **settings})
        consumer.subscribe(["mixed"])
        seen: Counter[int] = Counter()
        while len(seen) < 3:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None
            assert not message.error()
            seen[message.partition()] += 1
        consumer.commit(
            offsets=[TopicPartition("mixed", partition, count) for partition, count in seen.items()], asynchronous=False
        )
        consumer.close()

    def _the_newest_snapshots_are_written(self) -> bool:
        newest = [max(self.data.glob(f"mixed-{index}/*.log")) for index in range(TOPICS["mixed"][0])]
        snapshots = [log.with_suffix(".snapshot") for log in newest]
        return all(path.exists() and path.stat().st_size for path in snapshots)

    def _nothing_is_left_to_delete(self) -> bool:
        """Retention and DeleteRecords have let go of segments, and their files are removed."""
        if any((self.data / f"{name}-0" / f"{0:020d}.log").exists() for name in ("mixed", "short", "recoded")):
            return False
        sizes = [path.stat().st_size for path in sorted((self.data / "short-0").glob("*.log"))]
        return sum(sizes) - int(SEGMENT_BYTES) < sizes[0] and not list(self.data.glob("*/*.deleted"))


class Load:
    """Records of every kind, by one producer a codec; every other one is idempotent."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._sent = 0
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": codec,
                    "linger.ms": 5,
                    "batch.num.messages": 200,
                    "enable.idempotence": number % 2 == 0,
                    "queue.buffering.max.messages": 2_000_000,
                    "reconnect.backoff.max.ms": 200,
                    "log_level": 0,
                }
            )
            for number, codec in enumerate(CODECS)
        ]

    def send(self, count: int) -> None:
        now_ms = int(time.time() * 1000)
        for number in range(count):
            producer = self._producers[number % len(CODECS)]
            self._produce(producer, now_ms)
            if number % 100 == 0:
                producer.poll(0)
        for producer in self._producers:
            producer.poll(0)

    def finish(self) -> None:
        """Wait until every record is acknowledged."""
        for producer in self._producers:
            assert producer.flush(PATIENCE_SECONDS) == 0

    def _produce(self, producer: Producer, now_ms: int) -> None:
        rng, number = self._random, self._sent
        self._sent += 1
        topic = "mixed" if number % 10 < 6 else ("short", "append-time", "recoded", "short")[number % 10 - 6]
        size = rng.choice((0, 1, 20, 200, 400)) if number % 2000 else 30_000
        producer.produce(
            topic,
            value=None if number % 97 == 0 else rng.randbytes(size // 2) + b"x" * (size // 2),
            key=None if number % 3 == 0 else f"k\u00e4y-{number % 1000}".encode(),
            headers=[("h", b"%d" % number), ("empty", b""), ("h", None)] if number % 5 == 0 else None,
            timestamp=now_ms - rng.randrange(HOUR_MS),
            partition=number % TOPICS[topic][0],
        )


def await_true(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, f"{look.__name__} did not become true"
        time.sleep(0.05)  # the pace of looking


def everything_served(bootstrap: str) -> Served:
    """Where partitions begin and end, every record in between, and what the group committed."""
    settings = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True, "check.crcs": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    await_true(lambda: consumer.list_topics(timeout=10).topics.keys() >= TOPICS.keys())
    partitions = [TopicPartition(name, index) for name, (count, _) in TOPICS.items() for index in range(count)]
    marks = {(each.topic, each.partition): consumer.get_watermark_offsets(each, timeout=10) for each in partitions}
    consumer.assign([TopicPartition(*key, start) for key, (start, _) in marks.items()])
    records: dict[tuple[str, int, int], tuple[object, ...]] = {}
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < len(partitions):
        messages = consumer.consume(10_000, timeout=1)
        assert messages or time.monotonic() < deadline, "nothing came"
        for message in messages:
            if message.error() is not None:
                ended.add((message.topic(), message.partition()))
                continue
            where = message.topic(), message.partition(), message.offset()
            records[where] = message.key(), message.value(), message.headers(), message.timestamp()
    consumer.close()
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    committed = reader.committed([TopicPartition("mixed", index) for index in range(3)], timeout=30)
    reader.close()
    return marks, records, {(each.topic, each.partition): each.offset for each in committed}


# -- Kafka's dump tool

RECORD = re.compile(r"\| offset: ")


@pytest.fixture(params=["stopped", "killed"])
def data(request: pytest.FixtureRequest, lived: Lived) -> Path:
    """The directory after its clean stop, and as it was right after SIGKILL."""
    return lived.data if request.param == "stopped" else lived.killed


def test_every_record_of_every_segment_is_read(lived: Lived) -> None:
    lines = dump("--deep-iteration", files=lived.data.glob("*/*.log"))
    assert complaints(lines) == []
    logs = [path.name for path in lived.data.glob("*-[0-9]*")]
    segments = len(list(lived.data.glob("*/*.log")))
    assert segments >= 2 * len(TOPICS)
    assert len(logs) >= len(TOPICS)
    read = sum(1 for line in lines if RECORD.match(line))
    _, served, _ = lived.served
    assert read >= len(served) > RECORDS // 2
    codecs = {match[1] for line in lines if (match := re.search(r"compresscodec: (\w+)", line))}
    assert codecs == set(CODECS)
    print(f"\n{read} records in {segments} segments, {len(served)} of them served")


def test_segments_that_sigkill_left_are_read(lived: Lived) -> None:
    """What the kernel was writing when the signal came may be cut off, at the end of a segment that was growing."""
    growing = {max(directory.glob("*.log")).name for directory in lived.killed.iterdir() if directory.is_dir()}
    torn = re.compile(rf"Found \d+ invalid bytes at the end of ({'|'.join(map(re.escape, growing))})")
    said = complaints(dump("--deep-iteration", files=lived.killed.glob("*/*.log")))
    assert [line for line in said if not torn.fullmatch(line)] == []


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_every_index_is_sane_and_points_at_what_it_says(data: Path, kind: str) -> None:
    files = list(data.glob(f"*/*.{kind}"))
    sane = dump("--index-sanity-check", files=files)
    assert complaints(sane) == []
    assert sum(line.endswith(("passed sanity check.", "is empty.")) for line in sane) == len(files)
    assert complaints(dump("--verify-index-only", files=files)) == []


def test_every_snapshot_tells_its_producers(data: Path, lived: Lived) -> None:
    written = [path for path in data.glob("*/*.snapshot") if path.stat().st_size]  # one was made when the copy was
    lines = dump(files=written)
    assert complaints(lines) == []
    producers = {match[1] for line in lines if (match := re.match(r"producerId: (\d+) producerEpoch: 0 ", line))}
    # After SIGKILL a snapshot has the producers that had written before the last new segment, be it one.
    assert len(producers) >= (3 if data == lived.data else 1)


def test_groups_and_commits_are_decoded(lived: Lived) -> None:
    lines = dump("--offsets-decoder", files=lived.data.glob("__consumer_offsets-*/*.log"))
    assert complaints(lines) == []
    _, _, committed = lived.served
    text = "\n".join(lines)
    for (topic, partition), offset in committed.items():
        key = f'key: {{"type":"1","data":{{"group":"{GROUP}","topic":"{topic}","partition":{partition}}}}}'
        value = f'payload: {{"version":"3","data":{{"offset":{offset},"leaderEpoch":-1,"metadata":""'
        assert f"{key} {value}" in text
    assert f'key: {{"type":"2","data":{{"group":"{GROUP}"}}}}' in text


def test_a_damaged_index_is_complained_of(lived: Lived, tmp_path: Path) -> None:
    """That the checks above can fail."""
    index = max((lived.data / "mixed-1").glob("*.index"), key=lambda path: path.stat().st_size)
    shutil.copy(index.with_suffix(".log"), tmp_path)
    damaged = tmp_path / index.name
    entries = index.read_bytes()
    damaged.write_bytes(entries[:3] + bytes([entries[3] ^ 1]) + entries[4:])  # the first offset, which is relative
    found = complaints(dump("--verify-index-only", files=[damaged]))
    assert found[0] == f"Mismatches in :{damaged}"


# -- Apache Kafka on our directory, and back


def test_kafka_serves_what_we_served_and_gives_it_back(lived: Lived, tmp_path: Path) -> None:
    shutil.copytree(lived.data, tmp_path / "broker" / "data")
    data = tmp_path / "broker" / "data"
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper").start()
    jvm = (*BROKER_JVM, "-Dorg.slf4j.simpleLogger.log.kafka.log.LogManager=info")
    kafka = KafkaProcess(tmp_path / "kafka", zookeeper=zookeeper, jvm=jvm, log_dirs=str(data))
    try:
        carry("--data-dir", str(data), "--zookeeper", zookeeper.bootstrap)
        began = time.monotonic()
        kafka.start()
        print(f"\nKafka started in {time.monotonic() - began:.1f} s")
        assert "Skipping recovery of" in kafka.log_text()  # it believes that we stopped cleanly
        assert everything_served(kafka.bootstrap) == lived.served
        kafka.stop()
        (data / "metadata.sqlite").rename(tmp_path / "before.sqlite")
        carry("--zookeeper", zookeeper.bootstrap, "--data-dir", str(data))
    finally:
        kafka.kill()
        zookeeper.kill()
    with BrokerProcess(tmp_path / "broker", **SETTINGS) as broker:
        assert everything_served(broker.bootstrap) == lived.served
