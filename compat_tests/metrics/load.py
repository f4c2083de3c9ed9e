"""Plain load: a producer and a group of one consumer, each in a thread of its own until the end."""

import threading
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, Producer

VALUE = bytes(100)
PACE_SECONDS = 0.01  # between two records


class Load:
    """It runs inside of `with`; `consumed` is how many records the group has read."""

    def __init__(self, client: Mapping[str, object], topic: str) -> None:
        """`client` has the settings with which a client reaches the brokers."""
        self._client = dict(client)
        self._topic = topic
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]
        self.consumed = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer({**self._client, "linger.ms": 10})
        while not self._over.wait(PACE_SECONDS):
            producer.produce(self._topic, VALUE, key=b"K.")
            producer.poll(0)
        producer.flush(10)

    def _consume(self) -> None:
        settings = {"group.id": "readers", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
        consumer = Consumer({**self._client, **settings})
        consumer.subscribe([self._topic])
        while not self._over.is_set():
            self.consumed += len(consumer.consume(100, timeout=0.2))
        consumer.close()
