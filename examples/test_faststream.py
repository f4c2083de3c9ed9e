"""Tests of a FastStream application with a real broker in the test run.

    make examples                                       # or: pip install path/to/barnabas "faststream[kafka]" pytest
    .venv/bin/python -m pytest examples/test_faststream.py

FastStream's TestKafkaBroker alone replaces Kafka by calls of functions. With `with_real=True` the application uses a
broker, so groups, offsets and retries are tested as well. The application under test is what `billing` returns.
"""

import asyncio
import json
from collections.abc import Callable

from faststream import AckPolicy
from faststream.kafka import KafkaBroker, TestKafkaBroker
from pydantic import BaseModel

PATIENCE_SECONDS = 20.0


class Order(BaseModel):
    customer: str
    pieces: int


class Bill(BaseModel):
    customer: str
    total: int


def billing(bootstrap_servers: str, topic: str, price_of: Callable[[Order], int]) -> KafkaBroker:
    """The program: read orders, write a bill for each. An order that fails is read again."""
    kafka = KafkaBroker(bootstrap_servers)

    @kafka.subscriber(
        topic, group_id=f"{topic}-billing", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
    )
    @kafka.publisher(f"{topic}-bills")
    async def bill(order: Order) -> Bill:
        return Bill(customer=order.customer, total=order.pieces * price_of(order))

    return kafka


async def run_until(kafka: KafkaBroker, orders: str, sent: list[Order], is_done: Callable[[], bool]) -> None:
    """Run the program, send it orders, and stop it when this holds."""
    async with TestKafkaBroker(kafka, with_real=True), asyncio.timeout(PATIENCE_SECONDS):
        for order in sent:
            await kafka.publish(order, topic=orders)
        while not is_done():
            await asyncio.sleep(0.01)


def test_an_order_becomes_a_bill(barnabas_broker, barnabas_topic):
    bills = f"{barnabas_topic}-bills"
    barnabas_broker.create_topic(bills)
    kafka = billing(barnabas_broker.bootstrap_servers, barnabas_topic, lambda order: 5)
    order = Order(customer="K.", pieces=3)
    asyncio.run(run_until(kafka, barnabas_topic, [order], lambda: len(barnabas_broker.records(bills)) == 1))
    (record,) = barnabas_broker.records(bills)
    assert json.loads(record.value) == {"customer": "K.", "total": 15}


def test_an_order_without_a_price_is_read_again(barnabas_broker, barnabas_topic):
    bills = f"{barnabas_topic}-bills"
    barnabas_broker.create_topic(bills)
    asked = []

    def price_of(order: Order) -> int:
        asked.append(order.customer)
        if len(asked) == 1:
            raise ConnectionError("the prices cannot be read")
        return 7

    kafka = billing(barnabas_broker.bootstrap_servers, barnabas_topic, price_of)
    orders = [Order(customer=name, pieces=1) for name in ("K.", "Olga")]
    asyncio.run(run_until(kafka, barnabas_topic, orders, lambda: len(barnabas_broker.records(bills)) == 2))
    assert asked == ["K.", "K.", "Olga"]
    assert [json.loads(record.value)["customer"] for record in barnabas_broker.records(bills)] == ["K.", "Olga"]


def test_a_program_that_starts_again_goes_on_where_it_was(barnabas_broker, barnabas_topic):
    bills = f"{barnabas_topic}-bills"
    barnabas_broker.create_topic(bills)
    for number, name in enumerate(("K.", "Olga"), 1):
        kafka = billing(barnabas_broker.bootstrap_servers, barnabas_topic, lambda order: 5)
        order = Order(customer=name, pieces=1)
        done = number
        asyncio.run(
            run_until(kafka, barnabas_topic, [order], lambda done=done: len(barnabas_broker.records(bills)) == done)
        )
    assert [json.loads(record.value)["customer"] for record in barnabas_broker.records(bills)] == ["K.", "Olga"]
