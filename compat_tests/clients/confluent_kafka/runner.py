"""confluent-kafka, over librdkafka: its distribution ships no tests for a broker, so these are scenarios of ours."""

import confluent_kafka

from compat_tests.clients.client import Client
from compat_tests.clients.pytest_suite import installed_version, run_scenarios, secured_program

CLIENT = Client(
    name="confluent-kafka",
    version=f"{installed_version('confluent-kafka')} / {confluent_kafka.libversion()[0]}",
    language="Python, C",
    covers="our scenarios: codecs, headers, timestamps, partitioners, idempotence, transactions, seeking, pausing,"
    " patterns, groups with every assignor, static members, asyncio, every admin call",
    run=run_scenarios,
    secured=secured_program,
)
