"""aiokafka over TLS and SASL: the program of `access.py`."""

import asyncio
import ssl
from typing import Any

import aiokafka
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from compat_tests.clients.access import (
    REFUSED_SECONDS_MAX,
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

    async def token(self) -> str:
        return self._access.token


def settings_of(access: Access) -> dict[str, Any]:
    settings = kafka_python_settings(access, Token(access))
    if access.authority:
        context = ssl.create_default_context(cafile=access.authority)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key)
        settings["ssl_context"] = context
    return settings


def once(access: Access, task: Task) -> Done:
    async def write_and_read() -> int:
        producer = aiokafka.AIOKafkaProducer(**settings_of(access))
        await producer.start()
        try:
            sent = [await producer.send(task.topic, b"%d" % number) for number in range(task.records)]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()
        start = {"group_id": task.group, "auto_offset_reset": "earliest"}
        consumer = aiokafka.AIOKafkaConsumer(task.topic, **settings_of(access), **start)
        await consumer.start()
        try:
            read: set[bytes] = set()
            while len(read) < task.records:
                read.add((await consumer.getone()).value)
            await consumer.commit()
        finally:
            await consumer.stop()
        return len(read)

    return {"read": asyncio.run(asyncio.wait_for(write_and_read(), 2 * SECONDS_MAX))}


def refused(access: Access, task: Task) -> Done:
    async def write() -> str:
        producer = aiokafka.AIOKafkaProducer(**settings_of(access), request_timeout_ms=REFUSED_MS_MAX)
        try:
            # It takes the broker's refusal of a token for a success, and fails when it asks for the topic.
            await producer.start()
            await producer.send_and_wait(task.topic, b"x")
        except KafkaError as error:
            return repr(error)
        finally:
            await producer.stop()
        raise AssertionError("written")

    return {"refused": asyncio.run(asyncio.wait_for(write(), REFUSED_SECONDS_MAX))}


if __name__ == "__main__":
    kafka_python_settings, run_program(once=once, refused=refused)
