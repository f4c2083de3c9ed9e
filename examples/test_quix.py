"""Tests of an application of Quix Streams over a real broker: its state outlives the machine that it was on.

    pip install path/to/barnabas quixstreams pytest      # in the clone: make .venv-quix/made
    .venv-quix/bin/python -m pytest examples/test_quix.py

Quix Streams wants an older confluent-kafka than the other examples, so it has an environment of its own.
"""

import json
from pathlib import Path

from confluent_kafka import Producer
from quixstreams import Application, State


def totals(servers: str, orders: str, bills: str, state_dir: Path) -> Application:
    """The program: for each order, the total of its customer until now, exactly once."""
    app = Application(
        broker_address=servers,
        consumer_group=f"{bills}-totals",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state_dir,
        use_changelog_topics=True,
    )

    def add(order: dict[str, int], state: State) -> dict[str, int]:
        total = state.get("total", 0) + order["price"]
        state.set("total", total)
        return {"total": total}

    written = app.topic(bills, value_serializer="json")
    app.dataframe(app.topic(orders, value_deserializer="json")).apply(add, stateful=True).to_topic(written)
    return app


def order(servers: str, topic: str, *prices: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for price in prices:
        producer.produce(topic, json.dumps({"price": price}), key="K.")
    assert producer.flush(10) == 0


def test_a_total_goes_on_where_another_machine_has_stopped(barnabas_broker, barnabas_topic, tmp_path):
    servers, bills = barnabas_broker.bootstrap_servers, f"{barnabas_topic}-bills"
    order(servers, barnabas_topic, 3, 4)
    totals(servers, barnabas_topic, bills, tmp_path / "first").run(count=2, timeout=60)
    order(servers, barnabas_topic, 5)
    totals(servers, barnabas_topic, bills, tmp_path / "second").run(count=1, timeout=60)

    found = barnabas_broker.records(bills)
    assert [json.loads(record.value)["total"] for record in found if record.transaction == "committed"] == [3, 7, 12]
