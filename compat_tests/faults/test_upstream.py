"""Through the proxy, on Apache Kafka 3.9.1, the clients written in Python do what docs/faults.md says."""

import json

import pytest

from compat_tests.clients.client import WORK, Session, folder_of, load_client
from compat_tests.faults.faults import FAULTS
from compat_tests.faults.matrix import outcomes_of
from compat_tests.faults.page import KEPT
from compat_tests.faults.upstream import UpstreamKafka, upstream_cell

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")
QUICK = ("acknowledgement lost", "leader moved", "slow acknowledgement")

pytestmark = [pytest.mark.thorough]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with UpstreamKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS]
)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_fault_before_kafka_ends_as_the_page_says(kafka, name, fault):
    session = Session(folder_of(name), WORK / f"{name}-upstream-test", "")
    (command,) = load_client(name).secured(session).values()
    seen = upstream_cell(kafka, session, [str(word) for word in command], fault)
    assert seen.outcome in outcomes_of(json.loads(KEPT.read_text(encoding="utf-8"))[name][fault])
    assert seen.fired or FAULTS[fault].may_miss
