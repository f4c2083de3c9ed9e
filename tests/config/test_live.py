"""Live values: layers, views of topics that follow a change, and defaults that deviate from Kafka's."""

import gc
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.checks import LONG_MAX
from barnabas.config.live import BrokerConfig, Source, topic_warnings
from barnabas.config.parse import ConfigError, settings_of
from barnabas.config.property import InvalidValue
from barnabas.config.table import broker_defaults


def test_attributes_have_the_types_of_their_properties():
    config = BrokerConfig({"log.segment.bytes": "1000", "auto.create.topics.enable": "False", "log.cleanup.policy": ""})
    assert (config.log_segment_bytes, config.auto_create_topics_enable, config.log_cleanup_policy) == (1000, False, ())


def test_a_topic_takes_the_brokers_value_until_it_sets_its_own():
    config = BrokerConfig({"log.segment.bytes": "1000"})
    topic = config.topic({"retention.ms": "7"})
    assert (topic.segment_bytes, topic.retention_ms) == (1000, 7)
    topic.update({"segment.bytes": "2000"})
    assert (topic.segment_bytes, topic.retention_ms) == (2000, 604_800_000)


def test_a_topics_view_follows_a_change_of_the_broker():
    config = BrokerConfig({"log.segment.bytes": "1000"})
    follows, keeps = config.topic(), config.topic({"segment.bytes": "2000"})
    config.update(cluster_wide={"log.segment.bytes": "3000"}, per_broker={})
    assert (config.log_segment_bytes, follows.segment_bytes, keeps.segment_bytes) == (3000, 3000, 2000)
    config.update(cluster_wide={}, per_broker={})
    assert follows.segment_bytes == 1000


settings = st.fixed_dictionaries(
    {},
    optional={
        "log.cleanup.policy": st.sampled_from(["compact", "delete", "compact,delete"]),
        "log.message.timestamp.before.max.ms": st.sampled_from(["5", str(LONG_MAX)]),
        "log.message.timestamp.difference.max.ms": st.sampled_from(["7", str(LONG_MAX)]),
        "log.retention.ms": st.sampled_from(["-1", "9"]),
        "message.max.bytes": st.sampled_from(["100", "200"]),
    },
)
overrides = st.fixed_dictionaries(
    {},
    optional={
        "cleanup.policy": st.sampled_from(["compact", "delete"]),
        "message.timestamp.before.max.ms": st.sampled_from(["6", str(LONG_MAX)]),
        "message.timestamp.difference.max.ms": st.just("8"),
        "retention.ms": st.just("10"),
        "max.message.bytes": st.just("300"),
    },
)


@given(overrides, st.lists(st.tuples(settings, settings), max_size=4))
def test_a_view_that_followed_is_as_one_that_is_made_again(overrides, changes):
    config = BrokerConfig()
    followed = config.topic(overrides)
    for cluster_wide, per_broker in changes:
        config.update(cluster_wide=cluster_wide, per_broker=per_broker)
        made = config.topic(overrides)
        names = [*config.topic_defaults(), "compacted", "deletes", "producer_id_expiration_ms", "overrides"]
        assert [getattr(followed, name) for name in names] == [getattr(made, name) for name in names]


def test_a_value_for_one_broker_wins_over_the_clusters():
    config = BrokerConfig({"message.max.bytes": "1"})
    config.update(cluster_wide={"message.max.bytes": "2"}, per_broker={"message.max.bytes": "3"})
    sources = {entry.row.name: entry.source for entry in config.entries()}
    assert (config.message_max_bytes, sources["message.max.bytes"]) == (3, Source.PER_BROKER)
    assert sources["log.segment.bytes"] is Source.DEFAULT


def test_any_number_of_unknown_names_is_laid_over_at_once():
    config = BrokerConfig()
    unknown = {f"log.segment.byte{number}": "1" for number in range(20_000)}
    began = time.process_time()
    config.update(cluster_wide=unknown, per_broker={"log.segment.bytes": "3000"})
    assert config.log_segment_bytes == 3000
    assert time.process_time() - began < 1, "similar names are not searched for each unknown property"


def test_a_refused_change_leaves_everything_as_it_was():
    config = BrokerConfig()
    topic = config.topic()
    with pytest.raises(ConfigError):
        config.update(cluster_wide={"log.segment.bytes": "5000", "log.roll.ms": "0"}, per_broker={})
    assert (config.log_segment_bytes, topic.segment_bytes) == (1 << 30, 1 << 30)


def test_a_refused_topic_override_leaves_the_view_as_it_was():
    topic = BrokerConfig().topic({"retention.ms": "7"})
    with pytest.raises(InvalidValue):
        topic.update({"segment.bytes": "1000", "retention.ms": "x"})
    assert (topic.retention_ms, topic.segment_bytes, topic.overrides) == (7, 1 << 30, {"retention.ms": "7"})


def test_a_view_that_is_not_held_is_forgotten():
    config = BrokerConfig()
    config.topic()
    gc.collect()
    assert len(config._topics) == 0


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-5"}, -1),
    ],
)
def test_retention_is_the_finest_unit_that_is_set(broker, retention_ms):
    assert BrokerConfig(broker).topic().retention_ms == retention_ms


def test_rolling_and_flushing_fall_back_to_the_coarser_property():
    topic = BrokerConfig({"log.roll.hours": "2", "log.flush.scheduler.interval.ms": "9"}).topic()
    assert (topic.segment_ms, topic.segment_jitter_ms, topic.flush_ms) == (7_200_000, 0, 9)


def test_the_older_name_of_the_timestamp_bound_counts_while_the_newer_is_not_set():
    config = BrokerConfig({"log.message.timestamp.difference.max.ms": "5"})
    assert config.topic().message_timestamp_before_max_ms == 5
    assert config.topic({"message.timestamp.before.max.ms": "7"}).message_timestamp_before_max_ms == 7
    assert config.topic().message_timestamp_after_max_ms == LONG_MAX


def test_the_cleanup_policy_is_split_into_what_it_means():
    topic = BrokerConfig().topic({"cleanup.policy": "compact"})
    assert (topic.cleanup_policy, topic.compacted, topic.deletes) == (frozenset({"compact"}), True, False)


def test_broker_id_and_node_id_are_one():
    assert BrokerConfig({"node.id": "7"}).broker_id == 7
    assert BrokerConfig({"broker.id": "7"}).node_id == 7


def test_the_first_error_of_a_topics_properties_is_kafkas():
    config = BrokerConfig()
    assert config.validate_topic_configs({"retention.ms": "x", "zoo": "1"}) == ["Unknown topic config name: zoo"]
    assert config.validate_topic_configs({"retention.ms": "x"}) == [
        "Invalid value x for configuration retention.ms: Not a number of type LONG"
    ]
    assert config.validate_topic_configs({"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"}) == [
        "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)"
    ]
    assert config.validate_topic_configs({"remote.storage.enable": "true"})[0].startswith(
        "Tiered Storage functionality"
    )
    assert config.validate_topic_configs({"retention.ms": "-1", "cleanup.policy": "compact"}) == []


def test_a_topic_property_that_does_not_act_is_named():
    assert topic_warnings({"preallocate": "true", "retention.ms": "1", "preallocate.x": "1"}) == [
        "preallocate has no effect in this version",
        "preallocate.x is not a known topic property; did you mean preallocate?",
    ]
    assert topic_warnings({"preallocate": "false"}) == []


def test_deviations_hold_with_the_embedded_store_only():
    embedded, zookeeper = broker_defaults(embedded_store=True), broker_defaults(embedded_store=False)
    changed = {name for name in embedded if embedded[name] != zookeeper[name]}
    assert changed == {
        "listeners",
        "log.dir",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "group.initial.rebalance.delay.ms",
    }


def test_data_directories_are_those_of_log_dirs_or_the_one_of_log_dir():
    assert BrokerConfig({"log.dirs": "/a, /b"}).log_directories == ("/a", "/b")
    assert BrokerConfig({"log.dir": "/c"}).log_directories == ("/c",)


def test_a_password_among_the_arguments_is_warned_of():
    names = ("ssl.key.password", "listener.name.inside.plain.sasl.jaas.config")
    for origin, count in (("--set", 2), ("--set ${file:/a:b}", 0), ("server.properties:1", 0)):
        warnings = BrokerConfig(settings_of(dict.fromkeys(names, "sortini"), origin)).warnings()
        exposed = [line for line in warnings if "every user of this machine" in line]
        assert len(exposed) == count
        assert all(line.startswith("--set: ") and "sortini" not in line for line in exposed)


def test_a_password_has_no_text():
    config = BrokerConfig({"ssl.key.password": "secret"})
    entry = next(entry for entry in config.entries() if entry.row.name == "ssl.key.password")
    assert (entry.value, entry.text) == ("secret", None)


def test_a_limit_of_minus_one_is_out_of_reach():
    config = BrokerConfig({"connections.max.idle.ms": "-1"})
    entry = next(entry for entry in config.entries() if entry.row.name == "connections.max.idle.ms")
    assert config.connections_max_idle_ms == LONG_MAX
    assert entry.text == "-1"


def test_layers_are_made_when_the_configuration_changes_not_when_it_is_read():
    config = BrokerConfig({})
    before = config.layers()
    assert config.layers() is before
    config.update(cluster_wide={"log.segment.bytes": "4000"}, per_broker={})
    assert dict(config.layers())[Source.CLUSTER_WIDE] == {"log.segment.bytes": "4000"}


def test_a_listener_has_its_own_limits_or_the_brokers():
    config = BrokerConfig({"max.connections": "9", "listener.name.plaintext.max.connection.creation.rate": "7"})
    assert (config.connections_max("PLAINTEXT"), config.connections_per_second("PLAINTEXT")) == (9, 7)
    config.update(cluster_wide={"listener.name.plaintext.max.connections": "5"}, per_broker={})
    assert config.connections_max("PLAINTEXT") == 5


def test_a_malformed_limit_of_a_listener_ends_the_start():
    with pytest.raises(ConfigError, match="Invalid value many for configuration"):
        BrokerConfig({"listener.name.plaintext.max.connections": "many"})
