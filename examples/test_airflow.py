"""Tests of tasks of Airflow that write to Kafka and read from it, over a real broker; no scheduler is needed.

    make .venv-airflow/made              # or: pip install path/to/barnabas apache-airflow-providers-apache-kafka pytest
    .venv-airflow/bin/python -m pytest examples/test_airflow.py

The operators find the broker in the connection `kafka_default`, which an environment variable sets.
"""

import json
from collections.abc import Iterator

import pytest
from airflow.providers.apache.kafka.operators.consume import ConsumeFromTopicOperator
from airflow.providers.apache.kafka.operators.produce import ProduceToTopicOperator
from airflow.sdk import DAG


def bills(*prices: int) -> Iterator[tuple[str, str]]:
    for price in prices:
        yield "K.", json.dumps({"price": price})


def billing(topic: str, paid: list[int]) -> DAG:
    """The program: one task writes bills, the next one pays them."""
    with DAG("billing", schedule=None) as dag:
        write = ProduceToTopicOperator(
            task_id="write", topic=topic, producer_function=bills, producer_function_args=[3, 4]
        )
        pay = ConsumeFromTopicOperator(
            task_id="pay",
            topics=[topic],
            apply_function=lambda message: paid.append(json.loads(message.value())["price"]),
            max_messages=2,
            max_batch_size=2,
        )
        write >> pay
    return dag


@pytest.fixture
def run(barnabas_broker, barnabas_topic, monkeypatch):
    of_client = {"bootstrap.servers": barnabas_broker.bootstrap_servers, "enable.idempotence": True}
    of_group = {"group.id": barnabas_topic, "auto.offset.reset": "earliest"}
    connection = {"conn_type": "kafka", "extra": of_client | of_group}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    paid: list[int] = []
    dag = billing(barnabas_topic, paid)
    return lambda: [dag.task_dict[name].execute({}) for name in ("write", "pay")] and paid


def test_each_bill_is_paid_once_although_an_acknowledgement_is_lost(run, barnabas_topic, barnabas_faults):
    lost = barnabas_faults.drop("Produce", "after", topic=barnabas_topic, times=1)
    assert run() == [3, 4]
    assert lost.fired == 1
