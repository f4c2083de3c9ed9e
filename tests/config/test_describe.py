"""DescribeConfigs' rows: values, sources and synonyms as a running Kafka 3.9 shows them."""

import pytest

from barnabas.config.describe import ConfigSource, describe_broker, describe_cluster_wide, describe_topic
from barnabas.config.live import BrokerConfig
from barnabas.config.property import Update
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE

TOPIC, DYNAMIC, CLUSTER, STATIC, DEFAULT = 1, 2, 3, 4, 5


def row_of(rows, name):
    (row,) = [row for row in rows if row.name == name]
    return row.text, int(row.source), [tuple(synonym) for synonym in row.synonyms]


def configured(*, cluster_wide=None, per_broker=None, **static):
    config = BrokerConfig({name.replace("_", "."): text for name, text in static.items()})
    config.update(cluster_wide=cluster_wide or {}, per_broker=per_broker or {})
    return config


def test_every_property_of_a_topic_is_described_once():
    rows = list(describe_topic(BrokerConfig(), {}))
    assert [row.name for row in rows] == list(TOPIC_TABLE)
    assert not any(row.read_only for row in rows)


def test_internal_properties_of_a_broker_are_not_shown():
    names = {row.name for row in describe_broker(BrokerConfig())}
    assert names == {name for name, row in BROKER_TABLE.items() if not row.internal}


def test_only_what_may_change_while_brokers_run_is_not_read_only():
    rows = list(describe_broker(BrokerConfig()))
    assert {row.name for row in rows if not row.read_only} == {
        name for name, row in BROKER_TABLE.items() if row.update is not Update.READ_ONLY and not row.internal
    }


def test_the_synonyms_of_a_topics_value_go_from_the_topic_down_to_the_default():
    config = configured(
        log_segment_bytes="3000", cluster_wide={"log.segment.bytes": "4000"}, per_broker={"log.segment.bytes": "5000"}
    )
    below = [
        ("log.segment.bytes", "5000", DYNAMIC),
        ("log.segment.bytes", "4000", CLUSTER),
        ("log.segment.bytes", "3000", STATIC),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]
    assert row_of(describe_topic(config, {}), "segment.bytes") == ("5000", DYNAMIC, below)
    own = row_of(describe_topic(config, {"segment.bytes": " 2000 "}), "segment.bytes")
    assert own == ("2000", TOPIC, [("segment.bytes", "2000", TOPIC), *below])


def test_a_topics_retention_from_the_brokers_hours_has_no_synonym():
    """Kafka drops what comes before the first synonym of the property's own name."""
    config = configured(log_retention_hours="200")
    assert row_of(describe_topic(config, {}), "retention.ms") == ("720000000", DEFAULT, [])


def test_retention_set_while_the_broker_runs_displaces_the_files_hours():
    config = configured(log_retention_hours="200", per_broker={"log.retention.ms": "5000"})
    rows = list(describe_broker(config))
    synonyms = [
        ("log.retention.ms", "5000", DYNAMIC),
        ("log.retention.hours", "200", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert row_of(rows, "log.retention.ms") == ("5000", DYNAMIC, synonyms)
    assert row_of(rows, "log.retention.hours") == ("168", STATIC, synonyms[1:])
    assert row_of(describe_topic(config, {}), "retention.ms") == ("5000", DYNAMIC, synonyms)


def test_a_property_without_a_value_has_none_and_no_synonyms():
    assert row_of(describe_broker(BrokerConfig()), "log.roll.ms") == (None, DEFAULT, [])


def test_a_property_without_a_name_of_its_own_has_no_synonyms():
    assert row_of(describe_topic(BrokerConfig(), {}), "remote.storage.enable") == ("false", DEFAULT, [])


def test_broker_id_and_node_id_are_set_together():
    rows = list(describe_broker(configured(broker_id="7")))
    assert row_of(rows, "node.id") == ("7", STATIC, [("node.id", "7", STATIC), ("node.id", "-1", DEFAULT)])


@pytest.mark.parametrize("name", ["zzz", "retention.ms", "a.password"])
def test_what_is_not_known_is_shown_without_its_value(name):
    config = configured(per_broker={name: "1"})
    (row,) = [row for row in describe_broker(config) if row.name == name]
    assert (row.text, row.is_sensitive, row.read_only, row.type) == (None, True, True, 0)
    assert [tuple(each) for each in row.synonyms] == [(name, None, DYNAMIC)]


def test_a_listeners_own_value_has_the_type_of_the_general_one():
    config = configured(per_broker={"listener.name.plaintext.max.connections": "7"})
    name = "listener.name.plaintext.max.connections"
    (row,) = [row for row in describe_broker(config) if row.name == name]
    assert (row.text, row.is_sensitive, row.read_only, row.type) == ("7", False, True, 3)
    assert [tuple(each) for each in row.synonyms] == [(name, "7", DYNAMIC), ("max.connections", "2147483647", DEFAULT)]


def test_a_value_of_a_listeners_mechanism_has_the_type_of_the_general_one():
    config = configured()
    reauth = "listener.name.inside.plain.connections.max.reauth.ms"
    jaas = "listener.name.inside.plain.sasl.jaas.config"
    config.update(cluster_wide={}, per_broker={reauth: "5", jaas: "secret"})
    rows = {row.name: row for row in describe_broker(config)}
    # As a running Kafka 3.9.1 describes them.
    assert rows[reauth][:6] == (reauth, "5", ConfigSource.DYNAMIC_BROKER, True, False, 5)
    assert [tuple(each) for each in rows[reauth].synonyms] == [(reauth, "5", 2), ("connections.max.reauth.ms", "0", 5)]
    assert rows[jaas][:6] == (jaas, None, ConfigSource.DYNAMIC_BROKER, True, True, 9)
    assert [tuple(each) for each in rows[jaas].synonyms] == [(jaas, None, 2)]


def test_for_all_brokers_only_what_was_set_for_all_is_described():
    config = configured(
        message_max_bytes="9", cluster_wide={"message.max.bytes": "8"}, per_broker={"message.max.bytes": "7"}
    )
    assert [row.name for row in describe_cluster_wide(config)] == ["message.max.bytes"]
    described = row_of(describe_cluster_wide(config), "message.max.bytes")
    assert described == ("8", CLUSTER, [("message.max.bytes", "8", CLUSTER)])


def test_a_password_is_described_without_its_text():
    (row,) = [row for row in describe_broker(configured(ssl_key_password="secret")) if row.name == "ssl.key.password"]
    assert (row.text, row.is_sensitive) == (None, True)
    assert [tuple(each) for each in row.synonyms] == [("ssl.key.password", None, STATIC)]
