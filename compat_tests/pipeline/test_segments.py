"""`barnabas-segments` on a data directory that Apache Kafka 3.9 wrote, record for record beside its own dump tool."""

import base64
import json
import pathlib
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, build_batch
from compat_tests.kafka import KafkaProcess
from compat_tests.log_dump import dump
from compat_tests.raw import RawClient, create_topic, produce_request
from compat_tests.spark.environment import run_with_spark
from compat_tests.test_compaction import COMPACTED, QUICK_CLEANER, await_clean, life

NOW = 1_790_000_000_000
TORN_BYTES = 30  # cut off from the last batch
BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: -?\d+ "
    r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) "
    r"isControl: (\w+) deleteHorizonMs: \S+ position: (\d+) (\w+): (-?\d+) size: (\d+) magic: (\d) "
    r"compresscodec: (\w+) crc: \d+ isvalid: (\w+)"
)
RECORD = re.compile(
    r"\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) headerKeys: \[(.*?)\]"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?(?: endTxnMarker: (?P<marker>\w+) .*)?"
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Every codec, headers, nulls, a compacted topic, transactions committed and aborted; Kafka was killed, and the
    last batch of one log is torn."""
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), **QUICK_CLEANER) as kafka:
        create_topic(kafka.port, "codecs", 2, segment_bytes="1000")
        create_topic(kafka.port, "compacted", **COMPACTED)
        create_topic(kafka.port, "append-time", message_timestamp_type="LogAppendTime")
        create_topic(kafka.port, "transactions")
        with RawClient(kafka.port) as client:
            for topic in ("codecs", "append-time"):
                for codec in list(Codec) * 4:
                    send(client, topic, codec)
            life(client, "compacted")
        write_transactions(kafka.bootstrap)
        await_clean(kafka, "compacted")
        kafka.kill()
        last = sorted((kafka.data_dir / "append-time-0").glob("*.log"))[-1]
        last.write_bytes(last.read_bytes()[:-TORN_BYTES])
        yield kafka.data_dir


def send(client: RawClient, topic: str, codec: Codec) -> None:
    """A batch with everything that a record can have, and have not."""
    records = [
        Record(0, NOW, b"key", b"value", [("h1", b"x"), ("h2", None)]),
        Record(0, NOW + 5, None, b"no key " * 9, []),
        Record(0, NOW - 7, b"tombstone", None, []),
        Record(0, NOW, b"", b"", [("", b"")]),
    ]
    batch = build_batch(records, timestamp_ms=NOW, codec=codec)
    answer = client.ask(produce_request(topic, bytes(batch.data)), 8, m.ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def write_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "letters", "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.produce("transactions", b"v%d-%d" % (number, index), key=b"k")
        producer.flush()
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(30)


@pytest.fixture(scope="module")
def rows(data_dir: pathlib.Path) -> list[dict]:
    topics = "codecs,compacted,append-time,transactions"
    ran = run_with_spark(
        "-m", "compat_tests.pipeline.segment_rows", json.dumps({"path": str(data_dir), "topics": topics})
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


def dumped(data_dir: pathlib.Path, topic: str) -> dict[tuple[str, int], dict]:
    """What Kafka's tool says of each record, by partition and offset."""
    found = {}
    for folder in sorted(data_dir.glob(f"{topic}-[0-9]")):
        segment, batch = "", None
        for line in dump("--deep-iteration", "--print-data-log", files=folder.glob("*.log")):
            if line.startswith("Dumping "):
                segment = pathlib.Path(line.removeprefix("Dumping ").strip()).name
            elif (match := BATCH.match(line)) is not None:
                batch = match.groups()
            elif (match := RECORD.fullmatch(line)) is not None and batch is not None:
                found[folder.name, int(match[1])] = as_row(segment, batch, match)
    return found


def as_row(segment: str, batch: tuple[str, ...], match: re.Match[str]) -> dict:
    base, last, _, _, producer, epoch, leader, transactional, control, position = batch[:10]
    row = {
        "segment": segment,
        "offset": int(match[1]),
        "timestamp_type": match[2],
        "timestamp_ms": int(match[3]),
        "key_size": int(match[4]),
        "value_size": int(match[5]),
        "sequence": int(match[6]),
        "header_keys": match[7],
        "base_offset": int(base),
        "last_offset": int(last),
        "producer_id": int(producer),
        "producer_epoch": int(epoch),
        "leader_epoch": int(leader),
        "transactional": transactional == "true",
        "control": control == "true",
        "position": int(position),
        "batch_bytes": int(batch[12]),
        "magic": int(batch[13]),
        "codec": batch[14],
        "crc_ok": batch[15] == "true",
    }
    if not row["control"]:
        row |= {"key": match["key"], "value": match["payload"]}
    return row


def as_dumped(row: dict) -> dict:
    """A row of ours in the tool's terms."""
    key, value = (None if row[name] is None else base64.b64decode(row[name]) for name in ("key", "value"))
    names = [header["key"] for header in row["headers"] or []]
    fields = {name: row[name] for name in row if name not in ("replica", "topic", "partition", "headers", "problem")}
    fields |= {
        "key_size": -1 if key is None else len(key),
        "value_size": -1 if value is None else len(value),
        "header_keys": ",".join(names),
        "key": None if key is None else key.decode(),
        "value": None if value is None else value.decode(),
    }
    if row["control"]:
        del fields["key"], fields["value"]
    return fields


@pytest.mark.parametrize("topic", ["codecs", "compacted", "append-time", "transactions"])
def test_every_record_is_as_kafkas_dump_tool_says(data_dir, rows, topic):
    theirs = dumped(data_dir, topic)
    ours = {
        (f"{row['topic']}-{row['partition']}", row["offset"]): as_dumped(row)
        for row in rows
        if row["topic"] == topic and row["problem"] is None
    }
    assert ours == theirs
    assert len(ours) > 20


def test_every_codec_and_kind_of_batch_was_among_them(rows):
    sound = [row for row in rows if row["problem"] is None]
    assert {row["codec"] for row in sound if row["topic"] == "codecs"} == set(CODECS)
    assert {row["timestamp_type"] for row in sound} == {"CreateTime", "LogAppendTime"}
    assert sum(row["control"] for row in sound) >= 5  # Kafka may be killed before it writes the last marker
    assert any(row["transactional"] and not row["control"] for row in sound)
    assert len({row["segment"] for row in sound if row["topic"] == "codecs"}) > 1
    offsets = [row["offset"] for row in sound if row["topic"] == "compacted"]
    assert len(offsets) < max(offsets), "nothing was compacted"


def test_headers_and_nulls_come_as_they_were_sent(rows):
    first = sorted((row for row in rows if row["topic"] == "codecs"), key=lambda row: row["offset"])[:4]
    assert first[0]["headers"] == [
        {"key": "h1", "value": base64.b64encode(b"x").decode()},
        {"key": "h2", "value": None},
    ]
    assert [row["key"] is None for row in first] == [False, True, False, False]
    assert [row["value"] is None for row in first] == [False, False, True, False]


def test_a_torn_tail_is_a_row_that_says_so(data_dir, rows):
    (torn,) = [row for row in rows if row["problem"] is not None]
    last = sorted((data_dir / "append-time-0").glob("*.log"))[-1]
    assert (torn["topic"], torn["segment"], torn["offset"], torn["crc_ok"]) == ("append-time", last.name, None, False)
    assert torn["problem"] == f"no whole batch in the last {torn['batch_bytes']} bytes"
    assert torn["position"] + torn["batch_bytes"] == last.stat().st_size
