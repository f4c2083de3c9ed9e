"""Tests of a program that bills each order exactly once, whatever crashes: transactions against a real broker.

    make examples                                       # or: pip install path/to/barnabas confluent-kafka pytest
    .venv/bin/python -m pytest examples/test_exactly_once.py

The program under test is `bill_orders`. Its bills and its position in the orders are committed in one transaction. Each
test lets something go wrong right before the commit, the worst moment.
"""

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas.testing import LocalBroker


def bill_orders(
    servers: str, orders: str, bills: str, count: int, before_commit: Callable[[], object] = lambda: None
) -> None:
    """The program: read orders through a group and write a bill for each, in one transaction."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"billing-of-{orders}"})
    producer.init_transactions()  # aborts what an earlier run has left open, and shuts it out
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"billing-of-{orders}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # the transaction does it
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([orders])
    try:
        producer.begin_transaction()
        for message in consumer.consume(count, timeout=20):
            order = json.loads(message.value())
            producer.produce(bills, key=message.key(), value=json.dumps({"total": order["pieces"] * order["price"]}))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        producer.flush()  # the commit would do it; so what goes wrong in the tests comes after all records
        before_commit()
        producer.commit_transaction()
    finally:
        consumer.close()


def order(servers: str, topic: str, customer: str, pieces: int, price: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, key=customer, value=json.dumps({"pieces": pieces, "price": price}))
    producer.flush()


def read_all(servers: str, topic: str, isolation: str = "read_committed") -> list[tuple[bytes, int]]:
    """The customers and totals of all bills that such a reader gets."""
    settings = {"group.id": "test", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    bills = []
    while not (message := consumer.poll(20)).error():
        bills.append((message.key(), json.loads(message.value())["total"]))
    assert message.error().code() == KafkaError._PARTITION_EOF
    consumer.close()
    return bills


class Crash(Exception):
    """The program ends without another word."""


def crash() -> None:
    raise Crash


def test_an_order_is_billed_once_although_the_program_crashed(barnabas_broker, barnabas_topic):
    servers, bills = barnabas_broker.bootstrap_servers, f"{barnabas_topic}-bills"
    barnabas_broker.create_topic(bills)
    order(servers, barnabas_topic, "K.", pieces=3, price=5)
    with pytest.raises(Crash):
        bill_orders(servers, barnabas_topic, bills, 1, before_commit=crash)
    assert read_all(servers, bills) == []
    bill_orders(servers, barnabas_topic, bills, 1)
    assert read_all(servers, bills) == [(b"K.", 15)]
    assert read_all(servers, bills, "read_uncommitted") == [(b"K.", 15), (b"K.", 15)]


def test_a_program_that_was_replaced_cannot_commit(barnabas_broker, barnabas_topic):
    servers, bills = barnabas_broker.bootstrap_servers, f"{barnabas_topic}-bills"
    barnabas_broker.create_topic(bills)
    order(servers, barnabas_topic, "K.", pieces=3, price=5)
    successor = Producer({"bootstrap.servers": servers, "transactional.id": f"billing-of-{barnabas_topic}"})
    with pytest.raises(KafkaException) as refused:
        bill_orders(servers, barnabas_topic, bills, 1, before_commit=successor.init_transactions)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert read_all(servers, bills) == []
    bill_orders(servers, barnabas_topic, bills, 1)
    assert read_all(servers, bills) == [(b"K.", 15)]


def test_a_transaction_survives_a_crash_of_the_broker():
    with LocalBroker(topics=["orders", "bills"]) as broker:

        def crash_of_the_broker() -> None:
            broker.kill()
            broker.restart()

        order(broker.bootstrap_servers, "orders", "K.", pieces=3, price=5)
        bill_orders(broker.bootstrap_servers, "orders", "bills", 1, before_commit=crash_of_the_broker)
        order(broker.bootstrap_servers, "orders", "Olga", pieces=1, price=7)
        bill_orders(broker.bootstrap_servers, "orders", "bills", 1)
        assert read_all(broker.bootstrap_servers, "bills") == [(b"K.", 15), (b"Olga", 7)]
