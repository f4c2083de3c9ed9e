"""Tests of a view of Django that stores an order and writes to Kafka, over a real broker.

    make examples                      # or: pip install path/to/barnabas django confluent-kafka pytest
    .venv/bin/python -m pytest examples/test_django.py

An order without its message is not kept. Where a message without its order is no better, see test_outbox.py.
"""

import pytest
from confluent_kafka import KafkaException, Producer
from django import setup
from django.conf import settings
from django.db import IntegrityError, connection, models, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path

DATABASE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"], DATABASES={"default": DATABASE})
setup()


class Order(models.Model):
    name = models.TextField(unique=True)

    class Meta:
        app_label = "orders"


def accept(request: HttpRequest) -> HttpResponse:
    """The program: POST /orders stores an order, and sends it."""
    said = []
    try:
        with transaction.atomic():
            Order.objects.create(name=request.body.decode())
            settings.PRODUCER.produce(settings.TOPIC, request.body, on_delivery=lambda error, _: said.append(error))
            settings.PRODUCER.flush()
            if said[0] is not None:
                raise KafkaException(said[0])
    except (IntegrityError, KafkaException) as error:
        return HttpResponse(str(error), status=409 if isinstance(error, IntegrityError) else 503)
    return HttpResponse(status=201)


urlpatterns = [path("orders", accept)]


@pytest.fixture
def post(barnabas_broker, barnabas_topic):
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers, "message.timeout.ms": 5000})
    with override_settings(PRODUCER=producer, TOPIC=barnabas_topic):
        yield lambda order: Client().post("/orders", order, "text/plain").status_code


def test_an_order_is_stored_and_sent_once(post, barnabas_broker, barnabas_topic, barnabas_faults):
    barnabas_faults.fail("Produce", "INVALID_RECORD", topic=barnabas_topic, times=1)
    assert [post("3 lamps") for _ in range(3)] == [503, 201, 409]
    assert [record.value for record in barnabas_broker.records(barnabas_topic)] == [b"3 lamps"]
