"""Write 100,000 records of 100 bytes in each codec, read them through a group of two, and compare every one.

    make serve                                    # in one terminal
    make examples                                 # in another: installs clients and codecs in .venv
    .venv/bin/python examples/roundtrip.py        # --client NAME, --bootstrap-server HOST:PORT, --records N

The body below is the same for every client; `CLIENTS` says how each of them creates a topic, produces and consumes.
All clients run with their default settings. Each record has a key, two headers and a timestamp of its own. The script
ends with status 1 when a record is missing, doubled, changed or out of order within its partition.
"""

import argparse
import asyncio
import collections
import importlib.util
import itertools
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
JOIN_SECONDS = 3.0
CONNECT_SECONDS = 5.0
LEAVE_SECONDS = 10.0
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000  # an hour ago: much older records would not be retained


class Sent(NamedTuple):
    """One record, as sent and as received."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def records(codec: str, count: int) -> Iterator[Sent]:
    """The records of one codec: every value is 100 bytes and tells its number."""
    for number in range(count):
        yield Sent(
            key=f"{codec}-{number % 1000}".encode(),
            value=f"{codec}:{number:012d}:".encode().ljust(100, b"."),
            headers=(("codec", codec.encode()), ("number", str(number).encode())),
            timestamp_ms=FIRST_TIMESTAMP_MS + number,
        )


# -- kafka-python


def kafka_python_create(bootstrap: str, topic: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    admin.close()


def kafka_python_produce(bootstrap: str, topic: str, codec: str, count: int) -> dict[Sent, tuple[int, int]]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec)
    futures = [
        (
            sent,
            producer.send(
                topic, key=sent.key, value=sent.value, headers=list(sent.headers), timestamp_ms=sent.timestamp_ms
            ),
        )
        for sent in records(codec, count)
    ]
    producer.flush()
    places = {sent: (future.get(30).partition, future.get(30).offset) for sent, future in futures}
    producer.close()
    return places


def kafka_python_consume(bootstrap: str, topic: str, group: str, receive: Callable[[int, int, Sent], bool]) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    going_on = True
    while going_on:
        for batch in consumer.poll(timeout_ms=200).values():
            for got in batch:
                sent = Sent(got.key, got.value, tuple(got.headers), got.timestamp)
                receive(got.partition, got.offset, sent)
        going_on = receive(-1, -1, Sent(b"", b"", (), 0))
    consumer.close()


# -- confluent-kafka


def confluent_create(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)


def confluent_produce(bootstrap: str, topic: str, codec: str, count: int) -> dict[Sent, tuple[int, int]]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    places: dict[Sent, tuple[int, int]] = {}

    def delivered(sent: Sent) -> Callable[[object, object], None]:
        def note(error: object, message: object) -> None:
            if error is not None:
                raise RuntimeError(f"{sent} was not delivered: {error}")
            places[sent] = (message.partition(), message.offset())  # type: ignore[attr-defined]

        return note

    for sent in records(codec, count):
        while True:
            try:
                producer.produce(
                    topic,
                    key=sent.key,
                    value=sent.value,
                    headers=list(sent.headers),
                    timestamp=sent.timestamp_ms,
                    on_delivery=delivered(sent),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)
    return places


def confluent_consume(bootstrap: str, topic: str, group: str, receive: Callable[[int, int, Sent], bool]) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    going_on = True
    while going_on:
        for got in consumer.consume(1000, timeout=0.2):
            if got.error():
                raise RuntimeError(got.error())
            sent = Sent(got.key(), got.value(), tuple(got.headers()), got.timestamp()[1])
            receive(got.partition(), got.offset(), sent)
        going_on = receive(-1, -1, Sent(b"", b"", (), 0))
    consumer.close()


# -- aiokafka


def aiokafka_create(bootstrap: str, topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
        await admin.close()

    asyncio.run(create())


def aiokafka_produce(bootstrap: str, topic: str, codec: str, count: int) -> dict[Sent, tuple[int, int]]:
    from aiokafka import AIOKafkaProducer

    async def produce() -> dict[Sent, tuple[int, int]]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec)
        await producer.start()
        places = {}
        source = records(codec, count)
        while chunk := list(itertools.islice(source, 5000)):
            futures = [
                await producer.send(
                    topic, key=sent.key, value=sent.value, headers=list(sent.headers), timestamp_ms=sent.timestamp_ms
                )
                for sent in chunk
            ]
            for sent, done in zip(chunk, await asyncio.gather(*futures), strict=True):
                places[sent] = (done.partition, done.offset)
        await producer.stop()
        return places

    return asyncio.run(produce())


def aiokafka_consume(bootstrap: str, topic: str, group: str, receive: Callable[[int, int, Sent], bool]) -> None:
    from aiokafka import AIOKafkaConsumer

    async def consume() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
        await consumer.start()
        going_on = True
        while going_on:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                for got in batch:
                    sent = Sent(got.key, got.value, tuple(got.headers), got.timestamp)
                    receive(got.partition, got.offset, sent)
            going_on = receive(-1, -1, Sent(b"", b"", (), 0))
        await consumer.stop()

    asyncio.run(consume())


CLIENTS = {
    "kafka-python": (kafka_python_create, kafka_python_produce, kafka_python_consume),
    "confluent-kafka": (confluent_create, confluent_produce, confluent_consume),
    "aiokafka": (aiokafka_create, aiokafka_produce, aiokafka_consume),
}
# The modules that a client imports, for itself and for its codecs, and what pip calls them.
NEEDS = {
    "kafka-python": {"kafka": "kafka-python", "snappy": "python-snappy", "lz4": "lz4", "zstandard": "zstandard"},
    "confluent-kafka": {"confluent_kafka": "confluent-kafka"},
    "aiokafka": {"aiokafka": "aiokafka", "cramjam": "cramjam"},
}


# -- the body, the same for all


def what_is_missing(client: str, bootstrap: str) -> str | None:
    """Why this client cannot work here: a module that is not installed, no broker. None if nothing is missing."""
    missing = [package for module, package in NEEDS[client].items() if importlib.util.find_spec(module) is None]
    if missing:
        there = " ".join(missing)
        return f"not installed: {there} (`make examples`, then .venv/bin/python; elsewhere: pip install {there})"
    host, _, port = bootstrap.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        return f"no broker at {bootstrap} (`make serve` starts one): {error}"
    return None


class Received:
    """What the group of two read so far: (partition, offset) -> record, and each partition's order of arrival."""

    def __init__(self, expected: int, deadline: float) -> None:
        self.expected = expected
        self.deadline = deadline
        self.by_place: dict[tuple[int, int], Sent] = {}
        self.order: dict[tuple[str, int], list[int]] = collections.defaultdict(list)

    def receiver(self, name: str) -> Callable[[int, int, Sent], bool]:
        """Notes a record; says whether there is more to wait for."""

        def receive(partition: int, offset: int, sent: Sent) -> bool:
            if partition >= 0:
                self.by_place[partition, offset] = sent
                self.order[name, partition].append(offset)
            return len(self.by_place) < self.expected and time.monotonic() < self.deadline

        return receive


def complaints(places: dict[Sent, tuple[int, int]], received: Received, expected: int) -> Iterator[str]:
    """What is not as it should be, in words."""
    if len(places) != expected:
        yield f"{expected} records were sent, {len(places)} acknowledged"
    wrong = [place for sent, place in places.items() if received.by_place.get(place) != sent]
    if wrong:
        yield f"{len(wrong)} records came back changed or not at all, the first at {wrong[0]}"
    if len(received.by_place) > len(places):
        yield f"{len(received.by_place) - len(places)} records were received that were not sent"
    for (name, partition), offsets in received.order.items():
        if offsets != sorted(offsets):
            yield f"{name} read partition {partition} out of order"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=CLIENTS, default="kafka-python")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, default=100_000, help="for each codec")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for everything")
    options = parser.parse_args()
    bootstrap = options.bootstrap_server
    if missing := what_is_missing(options.client, bootstrap):
        sys.exit(missing)
    create, produce, consume = CLIENTS[options.client]
    topic = f"roundtrip-{uuid.uuid4().hex[:8]}"

    def give_up() -> None:
        print(
            f"not done after {options.timeout:.0f} s: does the broker at {bootstrap} run?", file=sys.stderr, flush=True
        )
        os._exit(1)  # no client's own retries, which may take longer, are waited for

    watchdog = threading.Timer(options.timeout + LEAVE_SECONDS, give_up)
    watchdog.daemon = True
    watchdog.start()
    create(bootstrap, topic)
    expected = options.records * len(CODECS)
    received = Received(expected, time.monotonic() + options.timeout)
    members = [  # daemons: when a producer fails they do not keep the script from ending
        threading.Thread(
            target=consume, args=(bootstrap, topic, f"{topic}-group", received.receiver(name)), daemon=True
        )
        for name in ("first", "second")
    ]
    for member in members:
        member.start()
    time.sleep(JOIN_SECONDS)  # a member that comes late would find everything read by the other

    places: dict[Sent, tuple[int, int]] = {}
    for codec in CODECS:
        began = time.monotonic()
        places |= produce(bootstrap, topic, codec, options.records)
        print(f"{codec}: {options.records} records produced in {time.monotonic() - began:.1f} s", flush=True)
    began = time.monotonic()
    for member in members:
        member.join()
    shares = collections.Counter(name for (name, _), offsets in received.order.items() for _ in offsets)
    waited = time.monotonic() - began
    print(f"{len(received.by_place)} records read, the last {waited:.1f} s after they were sent, shares {dict(shares)}")

    found = list(complaints(places, received, expected))
    print("\n".join(found) or f"all {expected} records came back identical, in order per partition")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
