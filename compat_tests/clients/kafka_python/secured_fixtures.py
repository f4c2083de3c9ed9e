"""A plugin of pytest for kafka-python's own tests: where they would start a broker of their own to speak TLS with it or
to log in, they get one that runs."""

import json
import os
from typing import Any

from kafka import KafkaAdminClient
from test.integration.fixtures import KafkaFixture

SETTINGS = "KAFKA_PYTHON_SECURED"  # the name of a file: ports by protocol, ssl_dir, username, password


def running(cls: Any, broker_id: int, **wanted: Any) -> Any:
    """In place of `KafkaFixture.instance`."""
    with open(os.environ[SETTINGS]) as file:
        settings = json.load(file)
    transport, mechanism = wanted.get("transport", "PLAINTEXT"), wanted.get("sasl_mechanism")
    port = settings["ports"][transport]
    broker = cls("localhost", port, broker_id, external=True, transport=transport, sasl_mechanism=mechanism)
    broker.ssl_dir = settings["ssl_dir"]
    broker.broker_user, broker.broker_password = settings["username"], settings["password"]
    return broker


def topic_names(broker: Any) -> list[str]:
    """In place of a script of Kafka's."""
    admin = KafkaAdminClient(**broker._enrich_client_params({}))
    try:
        names: list[str] = admin.list_topics()
        return names
    finally:
        admin.close()


KafkaFixture.instance = classmethod(running)
KafkaFixture.get_topic_names = topic_names
