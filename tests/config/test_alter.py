"""What altering refuses and makes, as asked of a running Kafka 3.9."""

import pytest

from barnabas.config.alter import (
    Change,
    ConfigRefused,
    Operation,
    apply_operations,
    broker_warnings,
    check_broker,
    check_changes,
    check_topic,
    is_stored_password,
    usable_part,
)
from barnabas.config.live import BrokerConfig
from barnabas.config.table import TOPIC_TABLE
from barnabas.wire.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = Operation
POLICY, REPLICAS = "cleanup.policy", "leader.replication.throttled.replicas"


def after(current, *changes):
    return apply_operations(current, [Change(*change) for change in changes], TOPIC_TABLE.get)


# -- operations


@pytest.mark.parametrize(
    ("current", "operation", "text", "becomes"),
    [
        ({}, SET, "compact", "compact"),
        ({POLICY: "compact"}, APPEND, "compact", "compact"),
        ({POLICY: "compact"}, APPEND, "delete,compact,delete", "compact,delete,delete"),
        ({}, APPEND, "compact", "delete,compact"),
        ({POLICY: ""}, APPEND, "delete", "delete"),
        ({POLICY: ""}, APPEND, "", ""),
        ({}, APPEND, "", "delete,"),
        ({POLICY: "delete,compact"}, APPEND, "delete , compact", "delete,compact,delete , compact"),
        ({POLICY: "compact,delete,delete"}, SUBTRACT, "delete", "compact,delete"),
        ({POLICY: "compact,delete,compact"}, SUBTRACT, "compact,compact", "delete"),
        ({POLICY: "compact, delete"}, SUBTRACT, "delete", "compact, delete"),
        ({POLICY: "compact, delete"}, SUBTRACT, " delete", "compact"),
        ({POLICY: "compact,delete"}, SUBTRACT, "zzz", "compact,delete"),
        ({}, SUBTRACT, "compact", "delete"),
        ({}, SUBTRACT, "delete", ""),
        ({POLICY: "delete,"}, SUBTRACT, "compact", "delete"),
    ],
)
def test_a_list_is_added_to_and_taken_from_as_kafka_does_it(current, operation, text, becomes):
    assert after(current, (POLICY, operation, text)) == {POLICY: becomes}


def test_what_is_deleted_is_gone_and_what_is_not_named_stays():
    current = {"retention.ms": "5", "flush.ms": "6"}
    assert after(current, ("retention.ms", DELETE, None), ("nope", DELETE, None)) == {"flush.ms": "6"}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            ("retention.ms", APPEND, "1"),
            ErrorCode.INVALID_CONFIG,
            "Config value append is not allowed for config key: retention.ms",
        ),
        (
            ("retention.ms", SUBTRACT, "1"),
            ErrorCode.INVALID_CONFIG,
            "Config value subtract is not allowed for config key: retention.ms",
        ),
        (("nope", APPEND, "1"), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (("retention.ms", 4, "1"), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (("retention.ms", -1, "1"), ErrorCode.UNKNOWN_SERVER_ERROR, None),
    ],
)
def test_an_operation_that_cannot_be_is_refused(change, code, message):
    with pytest.raises(ConfigRefused) as refused:
        after({}, change)
    assert (refused.value.code, refused.value.message) == (code, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("flush.ms", SET, "5"), ("flush.ms", DELETE, None)], "Error due to duplicate config keys"),
        (
            [("flush.ms", SET, None), ("segment.bytes", APPEND, None)],
            "Null value not supported for : flush.ms, segment.bytes",
        ),
        ([("flush.ms", 99, None)], "Null value not supported for : flush.ms"),
    ],
)
def test_doubles_and_nulls_are_refused_first(changes, message):
    with pytest.raises(ConfigRefused) as refused:
        check_changes([Change(*change) for change in changes])
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)


# -- topics


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"nope": "1", "retention.ms": "x"}, "Unknown topic config name: nope"),
        ({" retention.ms": "1"}, "Unknown topic config name:  retention.ms"),
        (
            {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "10"},
            "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (10)",
        ),
        (
            {"retention.ms": "x", "segment.bytes": "y"},
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
            "Invalid value y for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"remote.storage.enable": "true"},
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        (
            {REPLICAS: "0:1,zz"},
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
            f"Invalid value [0:1, zz] for configuration {REPLICAS}: {REPLICAS} must be the literal '*' or a list of "
            "replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_a_topic_is_refused_in_kafkas_words(texts, message):
    with pytest.raises(ConfigRefused) as refused:
        check_topic(BrokerConfig(), "t", texts)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize("text", ["", "*", " * ", "0:1", "0:1,1:2,", ",0:1,,", "*,zz"])
def test_lists_of_throttled_replicas_that_kafka_takes_are_taken(text):
    check_topic(BrokerConfig(), "t", {REPLICAS: text})


# -- brokers

CANNOT_FOLLOW = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
REFUSED_FOR_ONE = [
    ({"broker.id": "5"}, "Cannot update these configs dynamically: Set(broker.id)"),
    ({"log.retention.hours": "5"}, "Cannot update these configs dynamically: Set(log.retention.hours)"),
    ({"broker.id": "x", "ssl.key.password": "y"}, "Cannot update these configs dynamically: Set(broker.id)"),
    (
        {"ssl.keystore.location": "/k", "log.segment.bytes": "x"},
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "HashSet(ssl.keystore.location)",
    ),
    ({"log.segment.bytes": "13"}, "Invalid value 13 for configuration log.segment.bytes: Value must be at least 14"),
    (
        {"listener.name.plaintext.max.connections": "x"},
        "Invalid value x for configuration max.connections: Not a number of type INT",
    ),
    (
        {"leader.replication.throttled.rate": "-1"},
        "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0",
    ),
    ({"log.roll.ms": "0"}, "requirement failed: log.roll.ms must be greater than or equal to 1"),
    (
        {"log.retention.ms": "0"},
        "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ),
    (
        {"num.io.threads": "17"},
        CANNOT_FOLLOW.format(
            "Dynamic thread count update validation failed for num.io.threads=17, "
            "value should not be greater than double the current value 8"
        ),
    ),
    (
        {"background.threads": "4"},
        CANNOT_FOLLOW.format(
            "Dynamic thread count update validation failed for background.threads=4, "
            "value should be at least half the current value 10"
        ),
    ),
    (
        {"num.replica.fetchers": "0"},
        CANNOT_FOLLOW.format(
            "Dynamic thread count update validation failed for num.replica.fetchers=0, value should be at least 1"
        ),
    ),
    (
        {"log.cleaner.threads": "3"},
        CANNOT_FOLLOW.format("Log cleaner threads cannot be increased to more than double the current value 1"),
    ),
    ({"max.connections": "0"}, CANNOT_FOLLOW.format("Invalid max.connections 0")),
    ({"listener.name.x.max.connections": "0"}, CANNOT_FOLLOW.format("Invalid max.connections 0")),
    ({"max.connection.creation.rate": "0"}, CANNOT_FOLLOW.format("Invalid max.connection.creation.rate 0")),
    (
        {"log.local.retention.ms": "999999999"},
        CANNOT_FOLLOW.format(
            "Invalid value 999999999 for configuration log.local.retention.ms: "
            "Value must not be more than log.retention.ms property value: 604800000"
        ),
    ),
    (
        {"log.local.retention.bytes": "-1", "log.retention.bytes": "100"},
        CANNOT_FOLLOW.format(
            "Invalid value -1 for configuration log.local.retention.bytes: "
            "Value must not be -1 as log.retention.bytes value is set as 100."
        ),
    ),
    (
        {"ssl.engine.factory.class": "x.Y"},
        "Invalid value x.Y for configuration ssl.engine.factory.class: Class x.Y could not be found.",
    ),
    (
        {"metric.reporters": "a"},
        CANNOT_FOLLOW.format(
            "Validation of dynamic config update of Set(metric.reporters) failed with class class "
            "kafka.server.DynamicMetricsReporters"
        ),
    ),
    ({"listener.security.protocol.map": "A:B"}, "Invalid security protocol `B` defined in listener.security.protocol"),
    ({"listeners": "foo"}, "Error creating broker listeners from 'foo': Unable to parse foo to a broker endpoint"),
    (
        {"listeners": "PLAINTEXT://127.0.0.1:1"},
        CANNOT_FOLLOW.partition("{}")[0] + "listeners cannot change while this broker runs",
    ),
    (
        {"listener.security.protocol.map": "PLAINTEXT:SSL"},
        CANNOT_FOLLOW.format("Security protocol cannot be updated for existing listener ListenerName(PLAINTEXT)"),
    ),
]
REFUSED_FOR_ALL = [
    (
        {name: text},
        f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})",
    )
    for name, text in (
        ("listeners", "PLAINTEXT://h:1"),
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.zzz", "5"),
        ("listener.name.plaintext.ssl.keystore.location", "/k"),
        ("plain.connections.max.reauth.ms", "x"),
        ("scram-sha-256.sasl.server.callback.handler.class", "x.Y"),
    )
]


@pytest.mark.parametrize(
    ("texts", "message", "broker_name"),
    [(*case, "1") for case in REFUSED_FOR_ONE] + [(*case, "") for case in REFUSED_FOR_ALL],
)
def test_a_broker_is_refused_in_kafkas_words(texts, message, broker_name):
    with pytest.raises(ConfigRefused) as refused:
        check_broker(BrokerConfig(), texts, broker_name=broker_name)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    "texts",
    [
        {"log.retention.ms": "-5"},
        {"zzz": "1"},
        {"num.io.threads": "16"},
        {"num.io.threads": "4"},
        {"listener.name.plaintext.zzz": "5"},
        {"sasl.enabled.mechanisms": "PLAIN"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
        {"log.cleaner.min.compaction.lag.ms": "100", "log.cleaner.max.compaction.lag.ms": "10"},
    ],
)
def test_what_kafka_takes_of_a_broker_is_taken(texts):
    check_broker(BrokerConfig(), texts, broker_name="1")


def test_a_change_is_checked_together_with_the_other_layers():
    config = BrokerConfig()
    config.update(cluster_wide={}, per_broker={"max.connections.per.ip.overrides": "127.0.0.1:5"})
    check_broker(config, {"max.connections.per.ip": "0"}, broker_name="")
    with pytest.raises(ConfigRefused):
        check_broker(config, {"max.connections.per.ip": "0"}, broker_name="1")


@pytest.mark.parametrize(
    ("name", "is_stored"),
    [
        ("sasl.jaas.config", True),
        ("ssl.keystore.key", True),
        ("listener.name.inside.ssl.truststore.password", True),
        ("listener.name.inside.scram-sha-512.sasl.jaas.config", True),
        ("anything.ssl.key.password", True),
        ("delegation.token.secret.key", False),  # only in the broker's own file
        ("ssl.keystore.location", False),
        ("my.password", False),
    ],
)
def test_which_properties_are_passwords_in_the_store(name, is_stored):
    assert is_stored_password(name) == is_stored


def test_a_secret_of_the_whole_broker_is_not_taken_with_the_prefix_of_a_listener():
    name = "listener.name.inside.delegation.token.secret.key"
    with pytest.raises(ConfigRefused) as refused:
        check_broker(BrokerConfig(), {name: "x"}, broker_name="1")
    assert refused.value.message == f"Cannot update these configs dynamically: Set({name})"


def test_a_value_of_a_listeners_mechanism_is_checked():
    name = "listener.name.inside.plain.connections.max.reauth.ms"
    check_broker(BrokerConfig(), {name: "5"}, broker_name="1")
    with pytest.raises(ConfigRefused, match="Not a number of type LONG"):
        check_broker(BrokerConfig(), {name: "x"}, broker_name="1")


def test_of_what_the_store_holds_the_usable_part_is_used():
    texts = {
        "log.segment.bytes": "x",
        "broker.id": "5",
        "message.max.bytes": "9",
        "zzz": "1",
        "ssl.client.auth": "none",
    }
    assert usable_part(texts, per_broker=True) == {"message.max.bytes": "9", "zzz": "1", "ssl.client.auth": "none"}
    assert usable_part(texts, per_broker=False) == {"message.max.bytes": "9", "zzz": "1"}


def test_of_many_names_without_effect_a_few_are_named():
    warnings = broker_warnings({f"name{number}": "1" for number in range(1000)})
    assert len(warnings) == 11
    assert warnings[-1] == "990 more properties have no effect"


def test_what_is_altered_and_does_not_act_is_named():
    texts = {"num.io.threads": "16", "num.network.threads": "3", "log.segment.byte": "1", "log.segment.bytes": "99"}
    assert broker_warnings(texts | {"leader.replication.throttled.rate": "5"}) == [
        "num.io.threads has no effect in this version",
        "log.segment.byte is not a known property",
    ]


@pytest.mark.parametrize(
    "properties",
    [{"metric.reporters": "io.castle.Reporter"}, {"log.cleaner.enable": "false", "log.cleaner.threads": "0"}],
)
def test_what_the_file_sets_without_effect_prevents_no_change_of_others(properties):
    check_broker(BrokerConfig(properties), {"log.retention.ms": "1"}, broker_name="1")
