"""Records what Apache Kafka stores of message formats 0 and 1, for unit tests.

`python -m compat_tests.record_old_formats` writes `tests/wire/old_formats.json` again. The message sets come from
writers that are not ours: Kafka's own (`java/OldFormats.java`) and kafka-python's. Each goes to an Apache Kafka 3.9.1
in Produce 2; beside it stand the error code of the answer and the bytes in Kafka's log.
"""

import base64
import json
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from barnabas.wire import messages as m
from compat_tests.differential.asking import fetch, new_topic, produce_one
from compat_tests.kafka import JAVA_DIR, KafkaProcess, java_command
from compat_tests.raw import RawClient, eventually

RECORDED = pathlib.Path(__file__).parent.parent / "tests" / "wire" / "old_formats.json"
TOPIC = "old"
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
PYTHON_CANNOT = (0, "lz4")  # it needs xxhash for the checksum of that frame
TIME_MS = 1_700_000_000_000
NO_RECORD = -1


def written_by_java() -> Iterator[tuple[str, bytes]]:
    """What Kafka's builder writes."""
    command = java_command(str(JAVA_DIR / "OldFormats.java"))
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    for line in printed.splitlines():
        name, content = line.split("\t")
        yield name, base64.b64decode(content)


def written_by_python() -> Iterator[tuple[str, bytes]]:
    """What the builder of kafka-python writes."""
    for magic in (0, 1):
        for codec, number in CODECS.items():
            if (magic, codec) != PYTHON_CANNOT:
                builder = LegacyRecordBatchBuilder(magic, number, 1 << 20)
                for offset, (key, value) in enumerate([(b"k", b"v"), (None, b"w" * 300), (b"k", None), (b"", b"")]):
                    builder.append(offset, TIME_MS + offset % 2, key, value)
                yield f"kafka-python magic {magic} {codec}", bytes(builder.build())


def record(client: RawClient, name: str, sent: bytes) -> dict[str, str | int]:
    """One message set with Kafka's answer and, where it took it, the batch in its log."""
    answer = client.ask(fitted_to_2(produce_one(TOPIC, sent)), 2, m.ProduceResponse)
    row = answer.responses[0].partition_responses[0]
    found: dict[str, str | int] = {"name": name, "sent": text(sent), "error_code": row.error_code, "stored": ""}
    if row.base_offset != NO_RECORD:
        fetched = client.ask(fetch([(TOPIC, [(0, row.base_offset)])]), 4, m.FetchResponse)
        found["stored"] = text(bytes(fetched.responses[0].partitions[0].records or b""))
    return found


def fitted_to_2(request: m.ProduceRequest) -> m.ProduceRequest:
    return m.ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=request.topic_data)


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def create_topic(client: RawClient) -> None:
    client.ask(m.CreateTopicsRequest(topics=[new_topic(TOPIC)], timeout_ms=15_000), 2, m.CreateTopicsResponse)
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    eventually(
        lambda: client.ask(asked, 1, m.MetadataResponse).topics[0],
        lambda topic: topic.error_code == 0 and topic.partitions[0].leader_id >= 0,
    )


def main() -> None:
    written = [*written_by_java(), *written_by_python()]
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaProcess(pathlib.Path(directory)) as kafka,
        RawClient(kafka.port) as client,
    ):
        create_topic(client)
        rows = [json.dumps(record(client, name, sent)) for name, sent in written]
    RECORDED.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
