"""Compaction of transactional data: of the same directory Apache Kafka's cleaner and ours leave the same batches.

Each history is written to a topic of a running Kafka, in rounds. At the end of a round the topic's directory is copied
before Kafka may clean it; then Kafka cleans the original and we clean the copy. Both must leave the same batches and
the same aborted transactions. Verification is switched off, so that the batches can be of any producer, and markers are
sent as a coordinator sends them.
"""

import pathlib
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from typing import NamedTuple

import pytest

from barnabas.config.live import BrokerConfig
from barnabas.storage.checkpoint import read_checkpoint
from barnabas.storage.cleaner import Cleaning, cleanable_part
from barnabas.storage.opening import open_log
from barnabas.storage.osdisk import OsDisk
from barnabas.storage.transaction_index import AbortedTransaction, parse_transactions
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.records import (
    DELETE_HORIZON,
    TRANSACTIONAL,
    Record,
    build_batch,
    build_control_batch,
    read_all_records,
    read_batch_header,
    read_records,
    walk_entries,
)
from barnabas.wire.topics import TopicPartition
from compat_tests.kafka import KafkaProcess
from compat_tests.raw import RawClient, create_topic, produce_request
from compat_tests.test_compaction import set_topic_config

pytestmark = pytest.mark.thorough

CLEANING_SECONDS = 60.0
SETTINGS = {
    "log_cleaner_backoff_ms": 100,
    "log_initial_task_delay_ms": 100,
    "transaction_partition_verification_enable": "false",
}
SEGMENT_BYTES = 600
NEVER, ALWAYS = "1", "0.0001"  # min.cleanable.dirty.ratio: the dirty share must exceed it
COMMIT, ABORT = True, False


class Writer:
    """Writes to one topic as producers, and as their coordinator."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self._next: dict[tuple[int, int], int] = {}

    def put(self, *pairs: tuple[bytes, bytes | None], pid: int = -1, epoch: int = 0, codec: Codec = Codec.NONE) -> None:
        """One batch: of a transaction if `pid` is given."""
        fields = {}
        if pid >= 0:
            sequence = self._next.get((pid, epoch), 0)
            self._next[pid, epoch] = sequence + len(pairs)
            fields = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
            fields["attributes"] = TRANSACTIONAL
        batch = build_batch(pairs, timestamp_ms=int(time.time() * 1000), codec=codec, **fields)
        request = produce_request(self.topic, bytes(batch.data))
        request.transactional_id = "any" if pid >= 0 else None
        (partition,) = self.client.ask(request, 8, m.ProduceResponse).responses[0].partition_responses
        assert partition.error_code == 0, partition

    def mark(self, result: bool, pid: int, *, epoch: int = 0, coordinator_epoch: int = 0) -> None:
        """WriteTxnMarkers, version 0, which our codec need not know."""
        topic = self.topic.encode()
        body = struct.pack(">hhih3s", 27, 0, 0, 3, b"raw")
        body += struct.pack(">i", 1) + struct.pack(">qhb", pid, epoch, result)
        body += struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iii", 1, 0, coordinator_epoch)
        self.client.send_frame(body)
        (code,) = struct.unpack(">h", self.client.receive_frame()[-2:])
        assert code == 0, code

    def seal(self) -> None:
        """Fill the active segment, so that everything before is in sealed ones."""
        for _ in range(2):
            self.put((b"filler", bytes(SEGMENT_BYTES - 100)))


class History(NamedTuple):
    """What is written in each round, and for how long markers and tombstones stay."""

    rounds: list[Callable[[Writer], None]]
    delete_retention_ms: int = 0


def nothing(writer: Writer) -> None:
    """Only what `seal` writes: another pass over the same."""


def overwritten(writer: Writer) -> None:
    writer.put((b"a", b"1"), (b"b", b"1"), pid=1)
    writer.put((b"c", b"1"), pid=1)
    writer.mark(COMMIT, 1)
    writer.put((b"a", b"2"), (b"b", b"2"), (b"c", b"2"), pid=2)
    writer.mark(COMMIT, 2)
    writer.put((b"d", b"1"), pid=1)
    writer.mark(COMMIT, 1)


def aborted_over_committed(writer: Writer) -> None:
    writer.put((b"a", b"good"), (b"b", b"good"))
    writer.put((b"a", b"bad"), (b"b", None), pid=1)
    writer.mark(ABORT, 1)
    writer.put((b"x", b"bad"), (b"y", b"bad"), pid=1)
    writer.put((b"z", b"good"), pid=2)
    writer.mark(ABORT, 1)
    writer.mark(COMMIT, 2)


def long_transaction(writer: Writer) -> None:
    writer.put((b"a", b"long"), pid=1)
    for number in range(12):
        writer.put((b"k%d" % (number % 3), b"v%d" % number), pid=2)
        writer.mark(number % 3 != 0, 2)
        if number % 4 == 0:
            writer.put((b"l%d" % number, b"long"), pid=1)
    writer.mark(ABORT, 1)


def interleaved(writer: Writer) -> None:
    for number in range(10):
        for pid in (1, 2, 3):
            writer.put((b"k%d" % (number * pid % 5), b"%d-%d" % (pid, number)), pid=pid)
        writer.put((b"k%d" % (number % 4), b"plain %d" % number))
        for pid in (3, 1, 2):
            writer.mark((number + pid) % 3 != 0, pid)


def fenced(writer: Writer) -> None:
    writer.put((b"a", b"1"), pid=1)
    writer.mark(ABORT, 1, epoch=1)  # the coordinator raised the epoch before it aborted
    writer.put((b"b", b"1"), pid=2)
    writer.mark(COMMIT, 2)
    writer.mark(ABORT, 2, epoch=5)
    writer.put((b"c", b"1"), pid=3)
    writer.mark(COMMIT, 3, epoch=0)


def fenced_again(writer: Writer) -> None:
    writer.put((b"a", b"2"), pid=1, epoch=1)
    writer.mark(COMMIT, 1, epoch=1)
    writer.mark(ABORT, 2, epoch=6)


def only_markers(writer: Writer) -> None:
    for number in range(3):
        writer.mark(COMMIT, 1, coordinator_epoch=number)
        writer.mark(ABORT, 2, coordinator_epoch=number)
    writer.put((b"a", b"1"))


def tombstones(writer: Writer) -> None:
    writer.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), pid=1)
    writer.mark(COMMIT, 1)
    writer.put((b"a", None), (b"never", None), pid=1)
    writer.mark(COMMIT, 1)
    writer.put((b"b", None), pid=2)
    writer.mark(ABORT, 2)
    writer.put((b"c", None), (b"d", b"1"), pid=2)
    writer.mark(COMMIT, 2)


def opened(writer: Writer) -> None:
    writer.put((b"a", b"1"), (b"a", b"2"), pid=2)
    writer.mark(COMMIT, 2)
    writer.put((b"b", b"old"))
    writer.put((b"b", b"open"), pid=1)
    for number in range(4):
        writer.put((b"a", b"behind %d" % number), pid=2)
        writer.mark(number % 2 == 0, 2)


def continued(writer: Writer) -> None:
    writer.put((b"c", b"open"), pid=1)
    writer.put((b"a", b"3"))


def ended(writer: Writer) -> None:
    writer.put((b"d", b"open"), pid=1)
    writer.mark(ABORT, 1)


def compressed(writer: Writer) -> None:
    for number in range(12):
        pairs = [(b"k%d" % (number * index % 7), b"value %d" % number * 5) for index in range(1 + number % 4)]
        writer.put(*pairs, pid=number % 2, codec=list(Codec)[number % 5])
        if number % 3 == 2:
            writer.mark(number % 2 == 0, 0)
            writer.mark(number % 4 != 1, 1)
    writer.mark(COMMIT, 0)
    writer.mark(COMMIT, 1)


def same_producer(writer: Writer) -> None:
    for number in range(12):
        writer.put((b"k", b"%d" % number), (b"l%d" % (number % 3), b"%d" % number), pid=1)
        if number % 4 == 1:
            writer.put((b"m", b"%d" % number), pid=1)
        writer.mark(number % 2 == 0, 1)


DAY_MS = 86_400_000
HISTORIES = {
    "overwritten": History([overwritten, overwritten, nothing, nothing, nothing]),
    "overwritten-and-held": History([overwritten, overwritten, nothing, nothing], DAY_MS),
    "aborted-over-committed": History([aborted_over_committed, nothing, aborted_over_committed, nothing, nothing]),
    "long-transaction": History([long_transaction, nothing, long_transaction, nothing, nothing]),
    "interleaved": History([interleaved, interleaved, nothing, nothing]),
    "fenced": History([fenced, nothing, fenced_again, nothing, nothing]),
    "only-markers": History([only_markers, nothing, nothing, nothing]),
    "tombstones": History([tombstones, tombstones, nothing, nothing]),
    "opened": History([opened, continued, ended, nothing, nothing]),
    "compressed": History([compressed, compressed, nothing, nothing]),
    "same-producer": History([same_producer, nothing, same_producer, nothing, nothing], DAY_MS),
}
ROUNDS = max(len(history.rounds) for history in HISTORIES.values())


class Left(NamedTuple):
    """What a pass left: the batches without what depends on its time, and the aborted transactions."""

    batches: list[tuple[dict[str, int | str], list[Record]]]
    aborted: list[AbortedTransaction]


def left_in(directory: pathlib.Path) -> Left:
    batches = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, _ in walk_entries(data):
            header = read_batch_header(data, position)
            fields: dict[str, int | str] = header._asdict() | {"crc": 0, "batch_length": 0}
            if header.codec == Codec.NONE:
                fields["batch_length"] = header.batch_length
            if header.attributes & DELETE_HORIZON:
                fields |= {"base_timestamp": "horizon", "batch_length": 0}
            batches.append((fields, list(read_records(data, position))))
    entries = [list(parse_transactions(path.read_bytes())) for path in sorted(directory.glob("*.txnindex"))]
    return Left(batches, list(chain.from_iterable(entries)))


def clean_offset(broker: KafkaProcess, topic: str) -> int:
    path = broker.data_dir / "cleaner-offset-checkpoint"
    return read_checkpoint(OsDisk(), str(path)).get(TopicPartition(topic, 0), 0) if path.exists() else 0


def clean_ours(directory: pathlib.Path, first_dirty_offset: int, delete_retention_ms: int) -> int:
    """One pass of our cleaner over a copied directory; up to which offset it came."""
    config = BrokerConfig({}).topic(
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_BYTES),
            "index.interval.bytes": "200",
            "delete.retention.ms": str(delete_retention_ms),
            "file.delete.delay.ms": "0",
        }
    )
    now_ms = int(time.time() * 1000)
    log = open_log(
        OsDisk(),
        str(directory),
        TopicPartition("t", 0),
        config,
        recovery_point=1 << 40,
        log_start_offset=0,
        first_dirty_offset=first_dirty_offset,
        clean=False,
        now_ms=now_ms,
    )
    part = cleanable_part(log, log.log_end_offset, now_ms)
    if part.dirty_bytes:
        cleaning = Cleaning(log, part, keys_max=1000, window_bytes=4096, now_ms=now_ms)
        with closing(cleaning.steps()) as steps:
            for step in steps:
                if step.replacement is not None:
                    assert step.replacement.apply(now_ms)
        log.first_dirty_offset = cleaning.end_offset
    log.close(now_ms)
    return part.end_offset


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), **SETTINGS) as broker:
        yield broker


def await_clean(broker: KafkaProcess, topic: str, offset: int) -> None:
    deadline = time.monotonic() + CLEANING_SECONDS
    while clean_offset(broker, topic) != offset:
        assert time.monotonic() < deadline, (topic, clean_offset(broker, topic), offset, broker.log_text()[-2000:])
        time.sleep(0.05)  # the pace of looking


def test_of_ten_histories_kafka_and_we_leave_the_same_pass_by_pass(kafka, tmp_path):
    with RawClient(kafka.port) as client:
        writers = {}
        for name, history in HISTORIES.items():
            create_topic(
                kafka.port,
                name,
                cleanup_policy="compact",
                segment_bytes=str(SEGMENT_BYTES),
                index_interval_bytes="200",
                min_cleanable_dirty_ratio=NEVER,
                delete_retention_ms=str(history.delete_retention_ms),
                file_delete_delay_ms="0",
            )
            writers[name] = Writer(client, name)
        for number in range(ROUNDS):
            for name, history in HISTORIES.items():
                if number < len(history.rounds):
                    history.rounds[number](writers[name])
                    writers[name].seal()
                    compare_a_pass(kafka, client, name, tmp_path / f"{name}-{number}", history.delete_retention_ms)


def compare_a_pass(kafka: KafkaProcess, client: RawClient, name: str, copy: pathlib.Path, retention_ms: int) -> None:
    shutil.copytree(kafka.data_dir / f"{name}-0", copy)
    before = left_in(copy)
    first_dirty_offset = clean_offset(kafka, name)
    end_offset = clean_ours(copy, first_dirty_offset, retention_ms)
    if end_offset > first_dirty_offset:
        set_topic_config(client, name, "min.cleanable.dirty.ratio", ALWAYS)
        await_clean(kafka, name, end_offset)
        set_topic_config(client, name, "min.cleanable.dirty.ratio", NEVER)
    ours, theirs = left_in(copy), left_in(kafka.data_dir / f"{name}-0")
    counts = [(len(left.batches), len(left.aborted)) for left in (before, theirs)]
    print(copy.name, "batches and aborted transactions before and after:", *counts)
    assert ours.batches == theirs.batches, copy.name
    assert ours.aborted == theirs.aborted, copy.name


def test_a_marker_of_kafka_is_ours_byte_by_byte(kafka, topic):
    create_topic(kafka.port, topic, compression_type="gzip")
    with RawClient(kafka.port) as client:
        writer = Writer(client, topic)
        writer.mark(COMMIT, 4242, epoch=3, coordinator_epoch=17)
        writer.mark(ABORT, (1 << 40) + 5, epoch=32767, coordinator_epoch=1)
    data = (kafka.data_dir / f"{topic}-0" / f"{0:020d}.log").read_bytes()
    built = b""
    for header, record in read_all_records(data):
        assert header is not None
        assert record.key is not None
        assert record.value is not None
        built += build_control_batch(
            int.from_bytes(record.key[2:], "big"),
            coordinator_epoch=int.from_bytes(record.value[2:], "big"),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp_ms=record.timestamp,
            base_offset=record.offset,
            leader_epoch=0,
        ).data
    assert built == data
    assert len(data) == 2 * 78


def test_a_marker_says_that_its_time_is_the_brokers_where_the_topic_says_so(kafka, topic):
    create_topic(kafka.port, topic, message_timestamp_type="LogAppendTime")
    with RawClient(kafka.port) as client:
        Writer(client, topic).mark(COMMIT, 4242)
    data = (kafka.data_dir / f"{topic}-0" / f"{0:020d}.log").read_bytes()
    theirs = read_batch_header(data)
    built = build_control_batch(
        COMMIT,
        coordinator_epoch=0,
        producer_id=4242,
        producer_epoch=0,
        timestamp_ms=theirs.max_timestamp,
        leader_epoch=0,
        uses_log_append_time=True,
    )
    # Kafka takes the time twice, a moment apart.
    assert built.header._replace(base_timestamp=theirs.base_timestamp, crc=theirs.crc) == theirs
