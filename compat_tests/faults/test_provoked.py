"""What the clients written in Python do on Apache Kafka 3.9.1 under the same faults is what docs/faults.md says."""

import json

import pytest

from compat_tests.clients.client import WORK, Session, folder_of, load_client
from compat_tests.faults.matrix import outcomes_of
from compat_tests.faults.page import KEPT
from compat_tests.faults.provoked import HARMS, PROVOKED, ProxiedKafka, kafka_cell

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")

pytestmark = [pytest.mark.thorough, pytest.mark.long]


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory):
    with ProxiedKafka(tmp_path_factory.mktemp("kafka"), 1) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory):
    with ProxiedKafka(tmp_path_factory.mktemp("kafka"), 3) as kafka:
        yield kafka


def assert_as_the_page_says(kafka, name, fault):
    session = Session(folder_of(name), WORK / f"{name}-provoked-test", "")
    (command,) = load_client(name).secured(session).values()
    seen = kafka_cell(kafka, session, [str(word) for word in command], fault)
    assert seen.fired == 1
    assert seen.outcome in outcomes_of(json.loads(KEPT.read_text(encoding="utf-8"))[name][fault])


@pytest.mark.parametrize("fault", HARMS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_harmed_request_ends_on_kafka_as_the_page_says(one_broker, name, fault):
    assert_as_the_page_says(one_broker, name, fault)


@pytest.mark.parametrize("change", PROVOKED)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_change_of_a_kafka_cluster_ends_as_the_page_says(three_brokers, name, change):
    assert_as_the_page_says(three_brokers, name, change)
