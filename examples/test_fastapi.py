"""Tests of a web service that writes to Kafka: FastAPI with aiokafka, and a real broker in the test run.

    make examples                      # or: pip install path/to/barnabas fastapi httpx2 aiokafka pytest
    .venv/bin/python -m pytest examples/test_fastapi.py

The service under test is what `service` returns. Its producer lives as long as the service (`lifespan`). It accepts an
order only when the broker has it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient

PATIENCE_SECONDS = 2.0


def service(bootstrap_servers: str, topic: str) -> FastAPI:
    """The program: POST /orders writes an order, and says where it is."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True) as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def accept(order: dict[str, str | int], request: Request) -> dict[str, int]:
        sent = request.app.state.producer.send_and_wait(topic, json.dumps(order).encode())
        try:
            written = await asyncio.wait_for(sent, PATIENCE_SECONDS)
        except (KafkaError, TimeoutError) as error:
            raise HTTPException(503, "the order was not accepted") from error
        return {"offset": written.offset}

    return app


def test_an_order_that_is_accepted_is_in_the_topic(barnabas_broker, barnabas_topic):
    with TestClient(service(barnabas_broker.bootstrap_servers, barnabas_topic)) as client:
        response = client.post("/orders", json={"customer": "K.", "pieces": 3})
    assert (response.status_code, response.json()) == (201, {"offset": 0})
    (record,) = barnabas_broker.records(barnabas_topic)
    assert json.loads(record.value) == {"customer": "K.", "pieces": 3}


def test_an_order_whose_acknowledgement_is_lost_is_written_once(barnabas_broker, barnabas_topic, barnabas_faults):
    barnabas_faults.drop("Produce", "after", topic=barnabas_topic, times=1)
    with TestClient(service(barnabas_broker.bootstrap_servers, barnabas_topic)) as client:
        assert client.post("/orders", json={"customer": "K."}).status_code == 201
    assert len(barnabas_broker.records(barnabas_topic)) == 1


def test_an_order_that_cannot_be_written_is_refused(barnabas_broker, barnabas_topic, barnabas_faults):
    barnabas_faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=barnabas_topic)
    with TestClient(service(barnabas_broker.bootstrap_servers, barnabas_topic)) as client:
        assert client.post("/orders", json={"customer": "K."}).status_code == 503
    assert barnabas_broker.records(barnabas_topic) == []
