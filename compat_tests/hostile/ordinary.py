"""An ordinary client of one kind, which writes numbered records and reads them in a group.

python -m compat_tests.hostile.ordinary PORT KIND      ends at a line on standard input, and prints what it saw
"""

import asyncio
import json
import logging
import select
import sys
import time
from collections.abc import Callable

PACE_SECONDS = 0.05
LAST_SECONDS = 30.0  # for the last records to be read
Seen = dict[str, object]


class Record:
    """What was written, what was read, and what went wrong."""

    def __init__(self, kind: str) -> None:
        self.topic = f"ordinary-{kind}"
        self.group = f"group-{kind}"
        self.written = 0
        self.read = 0
        self.disorder = 0
        self.errors: list[str] = []
        self.longest_s = 0.0
        self._stopped_at: float | None = None

    def value(self) -> bytes:
        self.written += 1
        return b"%d" % self.written

    def saw(self, value: bytes) -> None:
        self.read += 1
        self.disorder += int(value) != self.read

    def failed(self, error: object) -> None:
        self.errors.append(str(error)[:300])

    def goes_on(self) -> bool:
        """Until a line comes, and then until everything is read."""
        if self._stopped_at is None and select.select([sys.stdin], [], [], 0)[0]:
            self._stopped_at = time.monotonic()
        if self._stopped_at is None:
            return True
        return self.read < self.written and time.monotonic() < self._stopped_at + LAST_SECONDS

    @property
    def writes(self) -> bool:
        return self._stopped_at is None

    def timed(self, seconds: float) -> None:
        self.longest_s = max(self.longest_s, seconds)

    def result(self) -> Seen:
        return {
            "written": self.written,
            "missing": self.written - self.read,
            "disorder": self.disorder,
            "errors": self.errors[:5],
            "longest_s": round(self.longest_s, 2),
        }


class Errors(logging.Handler):
    """What a client library logs as a warning or an error counts as heard."""

    def __init__(self, record: Record) -> None:
        super().__init__(logging.ERROR)
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        self._record.failed(f"{record.name}: {record.getMessage()}")


def kafka_python(bootstrap: str, record: Record) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    consumer = KafkaConsumer(
        record.topic, bootstrap_servers=bootstrap, group_id=record.group, auto_offset_reset="earliest"
    )
    print("ready", flush=True)
    while record.goes_on():
        began = time.monotonic()
        if record.writes:
            producer.send(record.topic, record.value()).get(timeout=60)
        for batch in consumer.poll(timeout_ms=int(PACE_SECONDS * 1000)).values():
            for message in batch:
                record.saw(message.value)
        record.timed(time.monotonic() - began)


def confluent_kafka(bootstrap: str, record: Record) -> None:
    from confluent_kafka import Consumer, Producer

    def failed(error: object) -> None:
        record.failed(error)

    def delivered(error: object, _: object) -> None:
        if error is not None:
            record.failed(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "error_cb": failed})
    settings = {"bootstrap.servers": bootstrap, "group.id": record.group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "error_cb": failed})
    producer.produce(record.topic, record.value(), on_delivery=delivered)
    producer.flush()
    consumer.subscribe([record.topic])
    print("ready", flush=True)
    while record.goes_on():
        began = time.monotonic()
        if record.writes:
            producer.produce(record.topic, record.value(), on_delivery=delivered)
            producer.flush()
        for message in consumer.consume(100, PACE_SECONDS):
            if message.error() is not None:
                record.failed(message.error())
            else:
                record.saw(message.value())
        record.timed(time.monotonic() - began)
    consumer.close()


def aiokafka(bootstrap: str, record: Record) -> None:
    asyncio.run(_aiokafka(bootstrap, record))


async def _aiokafka(bootstrap: str, record: Record) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    await producer.send_and_wait(record.topic, record.value())
    consumer = AIOKafkaConsumer(
        record.topic, bootstrap_servers=bootstrap, group_id=record.group, auto_offset_reset="earliest"
    )
    await consumer.start()
    print("ready", flush=True)
    while record.goes_on():
        began = time.monotonic()
        if record.writes:
            await producer.send_and_wait(record.topic, record.value())
        for batch in (await consumer.getmany(timeout_ms=int(PACE_SECONDS * 1000))).values():
            for message in batch:
                record.saw(message.value)
        record.timed(time.monotonic() - began)
    await consumer.stop()
    await producer.stop()


KINDS: dict[str, Callable[[str, Record], None]] = {
    "kafka-python": kafka_python,
    "confluent-kafka": confluent_kafka,
    "aiokafka": aiokafka,
}


def main() -> None:
    port, kind = int(sys.argv[1]), sys.argv[2]
    record = Record(kind)
    logging.getLogger().addHandler(Errors(record))
    try:
        KINDS[kind](f"127.0.0.1:{port}", record)
    except Exception as error:
        record.failed(repr(error))
    print(json.dumps(record.result()))


if __name__ == "__main__":
    main()
