"""Compaction as it is seen from outside: the same batches compacted by Apache Kafka and by us leave the same.

Both brokers are sent the same bytes, and their directories are read when their cleaner checkpoints say that all is
clean. Segments may be divided otherwise, so what is compared is the row of batches, without the clock's part in it.
"""

import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.storage.checkpoint import read_checkpoint
from barnabas.storage.osdisk import OsDisk
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.records import DELETE_HORIZON, Record, build_batch, read_batch_header, read_records, walk_entries
from barnabas.wire.topics import TopicPartition
from compat_tests.beside import Beside
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import KafkaProcess
from compat_tests.log_dump import complaints, dump
from compat_tests.raw import TOPIC, RawClient, alter_config, create_topic, produce_request

Broker = BrokerProcess | KafkaProcess

CLEANING_SECONDS = 60.0
QUICK_CLEANER = {"log_cleaner_backoff_ms": 200, "log_initial_task_delay_ms": 200}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "3000",
    "index_interval_bytes": "200",
    "min_cleanable_dirty_ratio": "0.01",
}
NOW = int(time.time()) * 1000  # of our day: producers that wrote long ago are forgotten, some moment after the start
# Of the first portion, which joins twelve segments: the files are begun, synced, renamed, the directory is synced (9),
# the old ones are renamed, the new ones take their names (57), the directory is synced, the next portion begins.
SWAP_STEPS = (0, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 30, 56, 57, 58, 59, 60, 61)


def send(client: RawClient, topic: str, *pairs: object, **fields: int) -> None:
    """One batch, acknowledged."""
    batch = build_batch(pairs, timestamp_ms=NOW, **fields)
    answer = client.ask(produce_request(topic, bytes(batch.data)), 8, m.ProduceResponse)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == 0, partition


def set_topic_config(client: RawClient, topic: str, name: str, value: str) -> None:
    """Set one property of a topic."""
    alter_config(client, TOPIC, topic, name, value)


def await_clean(broker: Broker, topic: str) -> int:
    """Wait until all sealed segments are clean; up to which offset that is."""
    deadline = time.monotonic() + CLEANING_SECONDS
    while True:
        bases = [int(path.name[:20]) for path in log_files(broker, topic)]
        path = broker.data_dir / "cleaner-offset-checkpoint"
        clean = read_checkpoint(OsDisk(), str(path)).get(TopicPartition(topic, 0), 0) if path.exists() else 0
        if clean == max(bases) > 0:
            return clean
        assert time.monotonic() < deadline, (clean, bases, broker.log_text()[-2000:])
        time.sleep(0.05)  # the pace of looking


def log_files(broker: Broker, topic: str) -> list[pathlib.Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def batches(broker: Broker, topic: str) -> Iterator[tuple[dict[str, object], list[Record]]]:
    """What the log holds: of each batch the header, without times of cleaning and the codec's bytes, and its records.

    Where the broker's clock gave the times they are counted from the batch's.
    """
    for path in log_files(broker, topic):
        data = path.read_bytes()
        for position, _ in walk_entries(data):
            header = read_batch_header(data, position)
            start = header.max_timestamp if header.uses_log_append_time else 0
            fields = header._asdict() | {"crc": 0, "batch_length": 0, "max_timestamp": header.max_timestamp - start}
            if header.attributes & DELETE_HORIZON:
                fields["base_timestamp"] = "horizon"
            elif header.base_timestamp == start:
                fields["base_timestamp"] = "append time"
            records = [record._replace(timestamp=record.timestamp - start) for record in read_records(data, position)]
            yield fields, records


def life(client: RawClient, topic: str) -> None:
    """Batches of every kind, and at last one that begins a new segment."""
    for number in range(120):
        codec = list(Codec)[number % 5]
        keys = [b"key-%d" % (number * index % 17) for index in range(1 + number % 4)]
        pairs = [(key, b"value-%d-%d" % (number, index)) for index, key in enumerate(keys)]
        send(client, topic, *pairs, codec=codec)
        if number % 10 == 3:
            send(client, topic, (b"key-%d" % (number % 17), None), (b"dead-%d" % number, None), codec=codec)
        if number % 10 == 5:
            times = enumerate(range(NOW + 1000, NOW + 400, -100))
            send(client, topic, *(Record(0, at, b"late-%d" % (index % 3), b"v", [("h", b"x")]) for index, at in times))
        if number % 10 == 7:
            producer = {"producer_id": 4000 + number // 50, "producer_epoch": 0}
            send(client, topic, (b"p", b"1"), (b"p", b"2"), base_sequence=2 * (number // 10 % 5), **producer)
    send(client, topic, (b"large", bytes(2900)))
    send(client, topic, (b"large", bytes(2900)))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), **QUICK_CLEANER) as broker:
        yield broker


@pytest.fixture(scope="module")
def barnabas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("barnabas"), **QUICK_CLEANER).start()
    yield broker
    broker.kill()


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_kafka_and_we_leave_the_same_of_the_same(kafka, barnabas, topic, timestamp_type):
    for broker in (kafka, barnabas):
        create_topic(broker.port, topic, message_timestamp_type=timestamp_type, **COMPACTED)
        with RawClient(broker.port) as client:
            life(client, topic)
        await_clean(broker, topic)
    ours, theirs = list(batches(barnabas, topic)), list(batches(kafka, topic))
    assert ours == theirs
    assert any(fields["record_count"] == 0 for fields, _ in ours), "no producer's last batch was emptied"
    assert any(fields["base_timestamp"] == "horizon" for fields, _ in ours), "no tombstone was left"
    assert len(ours) < 60, "little was compacted"


def test_kafkas_dump_tool_reads_cleaned_segments_and_their_indexes(barnabas, topic):
    create_topic(barnabas.port, topic, **COMPACTED | {"segment_bytes": "20000"})
    with RawClient(barnabas.port) as client:
        for _ in range(3):
            life(client, topic)
    await_clean(barnabas, topic)
    directory = barnabas.data_dir / f"{topic}-0"
    lines = dump("--deep-iteration", "--print-data-log", files=directory.glob("*.log"))
    assert complaints(lines, of_compacted=True) == []
    assert any("deleteHorizonMs: OptionalLong[" in line for line in lines)
    assert any(" count: 0 " in line for line in lines)
    for kind in ("index", "timeindex"):
        files = list(directory.glob(f"*.{kind}"))
        assert max(path.stat().st_size for path in files) > 12
        assert complaints(dump("--index-sanity-check", files=files)) == []
        assert complaints(dump("--verify-index-only", files=files)) == []
    assert complaints(dump(files=directory.glob("*.snapshot"))) == []


# -- under load, and killed


class Upserts(Beside):
    """Writes the same few keys over and over, each value larger than the last; remembers what was acknowledged."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__()
        self.acknowledged: dict[bytes, int] = {}
        self.slowest_seconds = 0.0
        self._client = RawClient(port)
        self._topic = topic

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._client.socket.close()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            keys = [b"key-%d" % (number * 7 % 50), b"key-%d" % (number % 13)]
            began = time.monotonic()
            send(self._client, self._topic, *((key, b"%d" % number) for key in keys))
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            self.acknowledged |= dict.fromkeys(keys, number)
            number += 1


def read_all(port: int, topic: str) -> dict[bytes, Any]:
    """The last value of each key, as a consumer sees it; offsets must rise."""
    known: dict[bytes, Any] = {}
    offset = 0
    with RawClient(port) as client:
        while True:
            partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
            request = m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 25, topics=topics)
            ((data,),) = (each.partitions for each in client.ask(request, 4, m.FetchResponse).responses)
            assert data.error_code == 0
            records = bytes(data.records or b"")
            before = offset
            for position, _ in walk_entries(records):
                for record in read_records(records, position):
                    assert record.offset >= before
                    known[record.key] = record.value
                offset = read_batch_header(records, position).last_offset + 1
            if offset >= data.high_watermark:
                return known
            if offset == before:
                offset += 1  # what was here was compacted


def test_a_topic_is_compacted_while_it_is_written_and_read(start_broker, topic):
    broker = start_broker(**QUICK_CLEANER, log_segment_delete_delay_ms=100)
    create_topic(broker.port, topic, **COMPACTED)
    with Upserts(broker.port, topic) as load:
        clean = 0
        for _ in range(10):
            deadline = time.monotonic() + CLEANING_SECONDS
            path, before = broker.data_dir / "cleaner-offset-checkpoint", clean
            while clean == before and time.monotonic() < deadline:
                known = read_checkpoint(OsDisk(), str(path)) if path.exists() else {}
                clean = known.get(TopicPartition(topic, 0), 0)
                read_all(broker.port, topic)
            assert clean > before
    written = {key: b"%d" % number for key, number in load.acknowledged.items()}
    assert read_all(broker.port, topic) == written
    assert broker.stop() == 0
    broker.start()
    assert read_all(broker.port, topic) == written
    assert " WARNING " not in broker.log_text()


@pytest.fixture(scope="module")
def uncleaned(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, dict[bytes, bytes]]:
    """A stopped broker's directory with a topic `t` to be compacted, and what its keys mean."""
    with BrokerProcess(tmp_path_factory.mktemp("uncleaned"), log_cleaner_enable="false") as broker:
        create_topic(broker.port, "t", **COMPACTED | {"segment_bytes": "300", "delete_retention_ms": "0"})
        written = {}
        with RawClient(broker.port) as client:
            for number in range(100):
                key = b"key-%d" % (number % 7)
                value = None if number % 10 == 3 else b"value-%d" % number
                send(client, "t", (key, value))
                written[key] = value
            set_topic_config(client, "t", "segment.bytes", "3000")  # now they may be joined
        assert broker.stop() == 0
    return broker.data_dir, written


@pytest.mark.parametrize("step", SWAP_STEPS)
def test_a_cleaner_that_is_killed_at_any_step_of_its_swap_loses_nothing(uncleaned, tmp_path, step):
    data_dir, written = uncleaned
    shutil.copytree(data_dir, tmp_path / "data")
    ran = subprocess.run(
        [sys.executable, "-m", "compat_tests.killed_cleaner", str(tmp_path / "data"), str(step)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=pathlib.Path(__file__).parent.parent,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    (tmp_path / "data" / ".lock").unlink(missing_ok=True)
    with BrokerProcess(tmp_path, log_cleaner_enable="false") as broker:
        names = [path.name for path in (broker.data_dir / "t-0").iterdir()]
        assert [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))] == []
        assert read_all(broker.port, "t") == written
        assert broker.stop() == 0
