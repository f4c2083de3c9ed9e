"""The pipelines' requests to a cluster outside Spark, with a running broker."""

import pytest

from barnabas.pipeline.topics import Cluster, ClusterError, Topic
from compat_tests.kafka import free_port
from compat_tests.raw import create_topic


@pytest.fixture
def cluster(shared_broker):
    return Cluster(shared_broker.bootstrap)


def test_a_topic_is_described_by_what_was_set_on_it(cluster, shared_broker, topic):
    create_topic(shared_broker.port, topic, 3, cleanup_policy="compact")
    assert cluster.describe([topic, "absent"]) == {topic: Topic(3, 1, {"cleanup.policy": "compact"})}
    assert cluster.configs(topic)["compression.type"] == "producer"


def test_a_created_topic_is_described_as_it_was_asked_for_and_has_log_ends(cluster, topic):
    wanted = Topic(2, 1, {"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
    cluster.create({topic: wanted})
    assert cluster.describe([topic]) == {topic: wanted}
    assert cluster.end_offsets([(topic, 0), (topic, 1)]) == {(topic, 0): 0, (topic, 1): 0}
    assert cluster.partition_counts()[topic] == 2


def test_a_refusal_has_the_words_of_the_cluster(cluster, topic):
    with pytest.raises(ClusterError, match="INVALID_CONFIG"):
        cluster.create({topic: Topic(1, 1, {"retention.ms": "soon"})})


def test_a_cluster_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("barnabas.pipeline.topics.TIMEOUT_SECONDS", 0.5)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ClusterError, match=address):
        Cluster(address).cluster_id()
