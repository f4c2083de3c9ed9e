"""Python clients under measurement, each run in a process of its own: `python -m bench.clients WHAT BOOTSTRAP TOPIC …`.

confluent-kafka takes more settings at the end, as `name=value`.

Prints one line of JSON. The client's import and the making of its threads are not measured; connecting is.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from itertools import cycle, islice, repeat

TIMEOUT_SECONDS = 60.0
RETRY_MS = 20


def confluent_produce(bootstrap: str, topic: str, count: int, size: int, *settings: str) -> float:
    return send_all({"bootstrap.servers": bootstrap, **parsed(settings)}, topic, repeat(None, count), size)


def confluent_keys(bootstrap: str, topic: str, count: int, size: int) -> float:
    """Random keys, so each batch goes to another partition than the one before."""
    rng = random.Random(1)
    keys = [rng.randbytes(8) for _ in range(10_000)]
    return send_all({"bootstrap.servers": bootstrap, "linger.ms": 5}, topic, islice(cycle(keys), count), size)


def send_all(settings: dict[str, str | int], topic: str, keys: Iterable[bytes | None], size: int) -> float:
    """Produce a record with each of these keys; the seconds until all are delivered."""
    from confluent_kafka import Producer

    producer = Producer(settings)
    value = b"x" * size
    began = time.monotonic()
    for key in keys:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:  # its queue is full: serve it
                producer.poll(0.01)
    if producer.flush(TIMEOUT_SECONDS):
        raise RuntimeError("not everything was delivered")
    return time.monotonic() - began


def confluent_consume(bootstrap: str, topic: str, count: int, size: int, *settings: str) -> float:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            # When its queue is full, as it often is with a fast broker, the client would sleep for a whole second.
            "fetch.queue.backoff.ms": 10,
            **parsed(settings),
        }
    )
    consumer.subscribe([topic])
    seen, began = len(consumer.consume(1, TIMEOUT_SECONDS)), time.monotonic()
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), 1.0)
        if not messages and time.monotonic() - began > TIMEOUT_SECONDS:
            raise RuntimeError(f"{seen} of {count} records came")
        seen += len(messages)
    elapsed = time.monotonic() - began
    consumer.close()
    return elapsed


def parsed(settings: Iterable[str]) -> dict[str, str]:
    """`name=value`, as more arguments."""
    return dict(each.split("=", 1) for each in settings)


def python_produce(bootstrap: str, topic: str, count: int, size: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    value = b"x" * size
    began = time.monotonic()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush(TIMEOUT_SECONDS)
    elapsed = time.monotonic() - began
    producer.close()
    return elapsed


def python_consume(bootstrap: str, topic: str, count: int, size: int) -> float:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"bench-{time.time_ns()}", auto_offset_reset="earliest"
    )
    next(consumer)
    seen, began = 1, time.monotonic()
    for _ in consumer:
        seen += 1
        if seen == count:
            break
    elapsed = time.monotonic() - began
    consumer.close()
    return elapsed


def first_group_record(bootstrap: str, topic: str, count: int, size: int) -> float:
    """When (on the system's monotonic clock) the first record came that was produced and consumed through a group.

    Runs before the broker does, and tries again and again: every 20 ms, for the default (which doubles up to 30 s)
    would measure how long the client happened to sleep.
    """
    from kafka import KafkaConsumer, KafkaProducer

    often = {"bootstrap_servers": bootstrap, "reconnect_backoff_ms": RETRY_MS, "reconnect_backoff_max_ms": RETRY_MS}
    often["bootstrap_timeout_ms"] = TIMEOUT_SECONDS * 1000
    print("running", flush=True)
    producer = KafkaProducer(**often)
    producer.send(topic, b"x" * size).get(TIMEOUT_SECONDS)
    consumer = KafkaConsumer(topic, **often, group_id="first", auto_offset_reset="earliest")
    next(consumer)
    came = time.monotonic()
    consumer.close()
    producer.close()
    return came


PROGRAMS: dict[str, Callable[..., float]] = {
    "confluent-produce": confluent_produce,
    "confluent-keys": confluent_keys,
    "confluent-consume": confluent_consume,
    "kafka-python-produce": python_produce,
    "kafka-python-consume": python_consume,
    "first-group-record": first_group_record,
}


def main() -> None:
    what, bootstrap, topic, count, size, *settings = sys.argv[1:]
    print(json.dumps({"seconds": PROGRAMS[what](bootstrap, topic, int(count), int(size), *settings)}), flush=True)


if __name__ == "__main__":
    main()
