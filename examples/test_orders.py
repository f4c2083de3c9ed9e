"""Tests of a program that uses Kafka, with a real broker in the test run: no container, nothing to start beforehand.

    make examples                                       # or: pip install path/to/barnabas confluent-kafka pytest
    .venv/bin/python -m pytest examples/test_orders.py

The program under test is `bill_orders`. The first test shows the fixtures, the second one what they cannot do: a broker
of its own that dies in the middle.
"""

import json

from confluent_kafka import Consumer, Producer

from barnabas.testing import LocalBroker


def bill_orders(bootstrap_servers: str, orders: str, bills: str, count: int) -> None:
    """The program: read orders through a group, write a bill for each, and commit what was billed."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([orders])
    for message in consumer.consume(count, timeout=20):
        order = json.loads(message.value())
        producer.produce(bills, key=message.key(), value=json.dumps({"total": order["pieces"] * order["price"]}))
    producer.flush()
    consumer.commit(asynchronous=False)
    consumer.close()


def order(bootstrap_servers: str, topic: str, customer: str, pieces: int, price: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, key=customer, value=json.dumps({"pieces": pieces, "price": price}))
    producer.flush()


def read_all(bootstrap_servers: str, topic: str, count: int) -> list[tuple[bytes, dict[str, int]]]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    messages = consumer.consume(count, timeout=20)
    consumer.close()
    return [(message.key(), json.loads(message.value())) for message in messages]


def test_an_order_becomes_a_bill(barnabas_broker, barnabas_topic):
    servers, bills = barnabas_broker.bootstrap_servers, f"{barnabas_topic}-bills"
    barnabas_broker.create_topic(bills)
    order(servers, barnabas_topic, "K.", pieces=3, price=5)
    bill_orders(servers, barnabas_topic, bills, 1)
    assert read_all(servers, bills, 1) == [(b"K.", {"total": 15})]


def test_orders_survive_a_crash_of_the_broker():
    with LocalBroker(topics={"orders": 1, "bills": 3}) as broker:
        order(broker.bootstrap_servers, "orders", "K.", pieces=3, price=5)
        broker.kill()
        broker.restart()
        order(broker.bootstrap_servers, "orders", "Olga", pieces=1, price=7)
        bill_orders(broker.bootstrap_servers, "orders", "bills", 2)
        bills = read_all(broker.bootstrap_servers, "bills", 2)
    assert sorted(bills) == [(b"K.", {"total": 15}), (b"Olga", {"total": 7})]
