"""The metrics of a broker beside Prometheus' own tools: `promtool`, of Debian's package `prometheus`."""

import re
import subprocess
import urllib.request

import pytest

from barnabas.console.metric_table import METRICS, Kind
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import free_port
from compat_tests.tools import require_tool

confluent_kafka = pytest.importorskip("confluent_kafka")

RECORDS = 500
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# What promtool dislikes in the names that Kafka, its exporters and so the dashboards have: labels such as `clientId`,
# and gauges whose names end like the parts of a summary.
LABELS_OF_KAFKA = {metric.name for metric in METRICS if any(not each.islower() for each in metric.labels)}
GAUGES_OF_KAFKA = {
    metric.name for metric in METRICS if metric.kind is Kind.GAUGE and metric.name.endswith(("_count", "_sum"))
}


@pytest.fixture
def served(tmp_path):
    """A broker that clients have used, and the URL of its metrics."""
    port = free_port()
    with BrokerProcess(tmp_path, barnabas_http_listener=f"127.0.0.1:{port}") as broker:
        use(broker.bootstrap)
        yield f"http://127.0.0.1:{port}/metrics"


def use(bootstrap: str) -> None:
    """Produce and consume with a group, whose offsets are committed."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce("letters", str(number).encode())
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "clerks", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["letters"])
    assert len(consumer.consume(RECORDS, timeout=60)) == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def scraped(url: str, accept: str = "") -> str:
    """One scrape."""
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()


def test_promtool_dislikes_nothing_but_names_that_are_kafkas(served):
    require_tool("promtool")
    text = scraped(served)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    complaints = {tuple(line.split(" ", 1)) for line in (checked.stdout + checked.stderr).splitlines() if line}
    assert complaints, "it checks names, and some of Kafka's are not as it wants them"
    strange = [
        f"{name}: {why}"
        for name, why in complaints
        if not ("camelCase" in why and name in LABELS_OF_KAFKA)
        and not (re.search('"_(count|sum)" suffix', why) and name in GAUGES_OF_KAFKA)
    ]
    assert strange == []


def test_a_scrape_shows_what_the_clients_did(served):
    text = scraped(served)
    assert f'kafka_server_brokertopicmetrics_messagesin_total{{topic="letters"}} {RECORDS}\n' in text
    assert (
        f'kafka_consumergroup_current_offset{{consumergroup="clerks",topic="letters",partition="0"}} {RECORDS}\n'
        in text
    )
    assert 'kafka_consumergroup_lag{consumergroup="clerks",topic="letters",partition="0"} 0\n' in text
    assert 'clientSoftwareName="confluent-kafka-python"' in text
    assert "kafka_server_kafkaserver_brokerstate 3\n" in text
    assert scraped(served, OPENMETRICS).endswith("# EOF\n")
