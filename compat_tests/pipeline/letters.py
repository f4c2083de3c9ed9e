"""Topics to archive: every codec, every kind of key, tombstones, headers, timestamps over three days.

Theory of operation. Record `i` of a topic is a function of `i` and the length of the history. One topic a codec, two
partitions each; `i % 2` is the partition.
"""

import random
from dataclasses import dataclass

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 2
FIRST_TIMESTAMP_MS = 1_700_000_000_000
SPAN_MS = 3 * 86_400_000
VALUE_BYTES = 100
TEXT = bytes(random.Random(1883).choices(b"abcdefghijklmnop    ", k=64 * 1024))  # compresses as text does


@dataclass(frozen=True)
class Letter:
    """What a client is given for one record."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def topics(prefix: str = "") -> dict[str, str]:
    """The topics, and the codec that each is written with."""
    return {f"{prefix}letters-{codec}": codec for codec in CODECS}


def letter(index: int, count: int) -> Letter:
    """Record `index` of `count`."""
    start = index * 37 % (len(TEXT) - VALUE_BYTES)
    value = b"%d " % index + TEXT[start : start + VALUE_BYTES - 10]
    keys = (None, b"", b"k%d" % (index % 1000), None, b"K" * (index % 40))
    headers: tuple[list[tuple[str, bytes | None]] | None, ...] = (
        None,
        [("trace", b"%d" % index), ("trace", b""), ("flag", None)],
        None,
    )
    return Letter(
        index % PARTITIONS,
        FIRST_TIMESTAMP_MS + index * SPAN_MS // count,
        keys[index % 5],
        {0: None, 1: b""}.get(index % 97, value),
        headers[index % 3],
    )


def create(bootstrap: str, names: list[str], **configs: str) -> None:
    """Topics with as many partitions as histories have, which keep records of any age."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in configs.items()}}
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=settings) for name in names]).values():
        future.result()


def write(bootstrap: str, topic: str, codec: str, first: int, end: int, count: int) -> None:
    """Records `first` to `end` of the `count` of a topic, each acknowledged."""
    failures: list[str] = []
    options = {"enable.idempotence": True, "linger.ms": 50, "compression.type": codec}
    producer = Producer({"bootstrap.servers": bootstrap, **options, "delivery.report.only.error": True})
    for index in range(first, end):
        made = letter(index, count)
        while True:
            try:
                producer.produce(
                    topic,
                    made.value,
                    made.key,
                    made.partition,
                    on_delivery=lambda error, _: failures.append(str(error)),
                    timestamp=made.timestamp_ms,
                    headers=made.headers,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if index % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0, failures[:3]
    assert not failures, failures[:3]
