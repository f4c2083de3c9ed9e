"""kafka-python over TLS and SASL: the program of `access.py`."""

import threading
import time
from typing import Any

import kafka
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from compat_tests.clients.access import (
    PACE_SECONDS,
    SECONDS_MAX,
    Access,
    Done,
    Task,
    kafka_python_settings,
    run_program,
)

REFUSED_MS_MAX = 5000


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, access: Access) -> None:
        self._access = access

    def token(self) -> str:
        return self._access.token


def settings_of(access: Access) -> dict[str, Any]:
    settings = kafka_python_settings(access, Token(access))
    if access.authority:
        settings["ssl_cafile"] = access.authority
    if access.certificate:
        settings |= {"ssl_certfile": access.certificate, "ssl_keyfile": access.key}
    return settings


def reader(access: Access, task: Task, **more: object) -> kafka.KafkaConsumer:
    start = {"group_id": task.group, "auto_offset_reset": "earliest"}
    return kafka.KafkaConsumer(task.topic, **settings_of(access), **start, **more)


def once(access: Access, task: Task) -> Done:
    producer = kafka.KafkaProducer(**settings_of(access))
    sent = [producer.send(task.topic, b"%d" % number) for number in range(task.records)]
    for each in sent:
        each.get(SECONDS_MAX)
    producer.close()
    consumer = reader(access, task, consumer_timeout_ms=int(SECONDS_MAX * 1000))
    read = set()
    for message in consumer:
        read.add(message.value)
        if len(read) == task.records:
            break
    consumer.commit()
    consumer.close()
    return {"read": len(read)}


def refused(access: Access, task: Task) -> Done:
    """The producer reports that no broker is available; why is said in the client's log alone."""
    limits = {"max_block_ms": REFUSED_MS_MAX, "bootstrap_timeout_ms": REFUSED_MS_MAX}
    try:
        kafka.KafkaProducer(**settings_of(access), **limits).send(task.topic, b"x").get(REFUSED_MS_MAX / 1000)
    except KafkaError as error:
        return {"refused": repr(error)}
    raise AssertionError("written")


def steady(access: Access, task: Task) -> Done:
    """A thread reads meanwhile."""
    errors: list[str] = []
    written, read, has_ended = 0, 0, threading.Event()

    def read_all() -> None:
        nonlocal read
        consumer = reader(access, task, consumer_timeout_ms=500)
        try:
            until = float("inf")
            while time.monotonic() < until and not (has_ended.is_set() and read >= written):
                read += sum(1 for _ in consumer)
                if has_ended.is_set() and until == float("inf"):
                    until = time.monotonic() + SECONDS_MAX
        except KafkaError as error:
            errors.append(repr(error))
        finally:
            consumer.close()

    reading = threading.Thread(target=read_all)
    reading.start()
    producer = kafka.KafkaProducer(**settings_of(access))
    until = time.monotonic() + task.seconds
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            producer.send(task.topic, b"%d" % written).get(SECONDS_MAX)
        except KafkaError as error:
            errors.append(repr(error))
        written += 1
        time.sleep(max(0.0, began + PACE_SECONDS - time.monotonic()))  # the pace
    producer.close()
    has_ended.set()
    reading.join()
    return {"written": written, "read": read, "errors": errors}


if __name__ == "__main__":
    run_program(once=once, refused=refused, steady=steady)
