"""confluent-kafka over TLS and SASL: the program of `access.py`."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

from compat_tests.clients.access import (
    PACE_SECONDS,
    REFUSED_SECONDS_MAX,
    SECONDS_MAX,
    Access,
    Done,
    Task,
    librdkafka_settings,
    run_program,
)

# librdkafka's own codes: _AUTHENTICATION, _SSL. With TLS 1.3 a broker refuses the lack of a certificate when the client
# has ended its handshake: then the alert is the text of a _TRANSPORT.
REFUSALS = (-169, -181)
ALERT = "alert certificate required"


def settings_of(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {**librdkafka_settings(access), "log_level": 0, "message.timeout.ms": 30_000}
    if access.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (access.token, time.time() + 3600)
    return settings


def reader(access: Access, task: Task, **more: object) -> Consumer:
    consumer = Consumer({**settings_of(access), "group.id": task.group, "auto.offset.reset": "earliest", **more})
    consumer.subscribe([task.topic])
    return consumer


def noted(errors: list[Any]) -> Callable[[Any, Any], None]:
    """A callback of a delivery that keeps what failed."""
    return lambda error, _: errors.append(error) if error else None


def once(access: Access, task: Task) -> Done:
    producer, failed = Producer(settings_of(access)), []
    for number in range(task.records):
        producer.produce(task.topic, b"%d" % number, on_delivery=noted(failed))
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == []
    consumer = reader(access, task)
    read, until = set(), time.monotonic() + SECONDS_MAX
    while len(read) < task.records and time.monotonic() < until:
        read |= {message.value() for message in consumer.consume(task.records, 0.5) if message.error() is None}
    consumer.commit(asynchronous=False)
    consumer.close()
    return {"read": len(read)}


def refused(access: Access, task: Task) -> Done:
    errors: list[Any] = []
    producer = Producer({**settings_of(access), "error_cb": errors.append})
    producer.produce(task.topic, b"x")
    until = time.monotonic() + REFUSED_SECONDS_MAX
    while time.monotonic() < until:
        producer.poll(0.1)
        for error in errors:
            if error.code() in REFUSALS or ALERT in error.str():
                return {"refused": error.str()}
    raise TimeoutError(f"not refused: {errors}")


def steady(access: Access, task: Task) -> Done:
    errors: list[Any] = []
    producer = Producer({**settings_of(access), "error_cb": errors.append})
    consumer = reader(access, task, error_cb=errors.append)
    written = read = 0
    until = time.monotonic() + task.seconds
    while time.monotonic() < until:
        producer.produce(task.topic, b"%d" % written, on_delivery=noted(errors))
        written += 1
        producer.poll(0)
        for message in consumer.consume(100, PACE_SECONDS):
            errors += [message.error()] if message.error() else []
            read += message.error() is None
    assert producer.flush(SECONDS_MAX) == 0
    until = time.monotonic() + SECONDS_MAX
    while read < written and time.monotonic() < until:
        read += sum(message.error() is None for message in consumer.consume(100, 0.5))
    consumer.close()
    return {"written": written, "read": read, "errors": [str(error) for error in errors]}


if __name__ == "__main__":
    run_program(once=once, refused=refused, steady=steady)
