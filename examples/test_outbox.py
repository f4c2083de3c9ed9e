"""Tests of an outbox: a row of a database is sent to Kafka, also when the acknowledgement or the program is lost.

    make examples                      # or: pip install path/to/barnabas confluent-kafka pytest
    .venv/bin/python -m pytest examples/test_outbox.py

An order and its message are written in one transaction of SQLite. `send_waiting` sends what was not sent yet. It may
send a message twice, but never loses one: readers know a message by its header `id`.
"""

import sqlite3

import pytest
from confluent_kafka import Producer


class NotSent(Exception): ...


def accept(database: sqlite3.Connection, order: str) -> None:
    """The program: store an order, and the message about it, both or neither."""
    with database:
        database.execute("INSERT INTO orders VALUES (?)", [order])
        database.execute("INSERT INTO outbox (message) VALUES (?)", [order])


def send_waiting(database: sqlite3.Connection, servers: str, topic: str) -> None:
    """Send each waiting message, and forget it when the broker has it."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "message.timeout.ms": 5000})
    for number, message in database.execute("SELECT id, message FROM outbox ORDER BY id").fetchall():
        said: list[str] = []
        producer.produce(
            topic, message, headers={"id": str(number)}, callback=lambda error, _, to=said: to.append(str(error))
        )
        if producer.flush(10) or said != ["None"]:
            raise NotSent(message, said)
        with database:
            database.execute("DELETE FROM outbox WHERE id = ?", [number])


@pytest.fixture
def database():
    database = sqlite3.connect(":memory:")
    database.executescript("CREATE TABLE orders (name); CREATE TABLE outbox (id INTEGER PRIMARY KEY, message)")
    accept(database, "3 lamps")
    return database


def test_a_lost_acknowledgement_sends_nothing_twice(database, barnabas_broker, barnabas_topic, barnabas_faults):
    lost = barnabas_faults.drop("Produce", "after", topic=barnabas_topic, times=1)
    send_waiting(database, barnabas_broker.bootstrap_servers, barnabas_topic)
    assert lost.fired == 1
    assert [record.value for record in barnabas_broker.records(barnabas_topic)] == [b"3 lamps"]


def test_what_the_broker_refuses_waits_for_the_next_time(database, barnabas_broker, barnabas_topic, barnabas_faults):
    barnabas_faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=barnabas_topic, times=1)
    with pytest.raises(NotSent):
        send_waiting(database, barnabas_broker.bootstrap_servers, barnabas_topic)
    send_waiting(database, barnabas_broker.bootstrap_servers, barnabas_topic)
    assert [record.value for record in barnabas_broker.records(barnabas_topic)] == [b"3 lamps"]
