"""Kafka's znodes: their paths and their JSON.

The literal texts were read from the znodes of a running Apache Kafka 3.9.1 or printed by its own encoders.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.controller.store import paths
from barnabas.controller.store.paths import (
    BrokerRegistration,
    ClusterId,
    ConfigChange,
    ConfigEntity,
    ControllerEpoch,
    ControllerNode,
    Endpoint,
    FeatureNode,
    LogDirEvent,
    PartitionList,
    PartitionState,
    ProducerIdBlock,
    Reassignment,
    TopicAssignment,
)
from barnabas.controller.store.store import check_path, with_ancestors
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition, topic_id_from_text

ONE_LISTENER = BrokerRegistration(
    endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 55121),),
    security_protocols={"PLAINTEXT": "PLAINTEXT"},
    timestamp_ms=1795269074086,
    rack="r1",
)
THREE_LISTENERS = BrokerRegistration(
    endpoints=(Endpoint("SSL", "::1", 9093), Endpoint("IN", "h", 9092), Endpoint("PLAINTEXT", "", 9094)),
    security_protocols={"SSL": "SSL", "IN": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT"},
    timestamp_ms=1795269601498,
    version=4,
)
ONLY_SSL = BrokerRegistration(
    endpoints=(Endpoint("SSL", "s", 9093),),
    security_protocols={"SSL": "SSL"},
    timestamp_ms=1795269601501,
    features={"f": {"min_version": 1, "max_version": 2}},
    jmx_port=9999,
)

# What Kafka writes, and its value. Some nodes are written byte for byte; maps keyed by data have Scala's order.
AS_KAFKA_WRITES = [
    (ClusterId("QX9FBtyBQYGGGg16zK41Sg"), '{"version":"1","id":"QX9FBtyBQYGGGg16zK41Sg"}'),
    (
        ONE_LISTENER,
        '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        '"endpoints":["PLAINTEXT://127.0.0.1:55121"],"rack":"r1","jmx_port":-1,"port":55121,"host":"127.0.0.1",'
        '"version":5,"timestamp":"1795269074086"}',
    ),
    (
        THREE_LISTENERS,
        '{"listener_security_protocol_map":{"SSL":"SSL","IN":"PLAINTEXT","PLAINTEXT":"PLAINTEXT"},'
        '"endpoints":["SSL://[::1]:9093","IN://h:9092","PLAINTEXT://:9094"],"jmx_port":-1,"port":9092,"host":"h",'
        '"version":4,"timestamp":"1795269601498"}',
    ),
    (
        ONLY_SSL,
        '{"features":{"f":{"min_version":1,"max_version":2}},"listener_security_protocol_map":{"SSL":"SSL"},'
        '"endpoints":["SSL://s:9093"],"jmx_port":9999,"port":-1,"host":null,"version":5,"timestamp":"1795269601501"}',
    ),
    (
        TopicAssignment({0: [1]}, topic_id_from_text("vj4xne7SRnW2CHyPlKLOBw")),
        '{"partitions":{"0":[1]},"topic_id":"vj4xne7SRnW2CHyPlKLOBw","adding_replicas":{},"removing_replicas":{},'
        '"version":3}',
    ),
    (
        TopicAssignment({0: [1, 2, 3], 1: [1, 2, 3]}, bytes(15) + b"\x01", adding={1: [3]}, removing={1: [1]}),
        '{"partitions":{"0":[1,2,3],"1":[1,2,3]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","adding_replicas":{"1":[3]},'
        '"removing_replicas":{"1":[1]},"version":3}',
    ),
    (TopicAssignment({0: [1]}), '{"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"version":3}'),
    (
        PartitionState(leader=1, leader_epoch=0, controller_epoch=1, isr=(1, 2)),
        '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
    ),
    (
        PartitionState(1, 5, 1, (1,), leader_recovery_state=paths.RECOVERING),
        '{"controller_epoch":1,"leader":1,"version":1,"leader_recovery_state":1,"leader_epoch":5,"isr":[1]}',
    ),
    (
        PartitionState(NO_LEADER, 5, 1, (1,)),
        '{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":5,"isr":[1]}',
    ),
    (
        ControllerNode(1, 1795269074154),
        '{"version":2,"brokerid":1,"timestamp":"1795269074154","kraftControllerEpoch":-1}',
    ),
    (ControllerEpoch(1), "1"),
    (
        ConfigEntity({"cleanup.policy": "compact,delete", "retention.ms": "1000"}),
        '{"version":1,"config":{"cleanup.policy":"compact,delete","retention.ms":"1000"}}',
    ),
    (ConfigEntity({}), '{"version":1,"config":{}}'),
    (ConfigChange("users/a%20b%2A%2B%7E%C3%A9"), '{"version":2,"entity_path":"users/a%20b%2A%2B%7E%C3%A9"}'),
    (PartitionList((TopicPartition("t", 0),)), '{"version":1,"partitions":[{"topic":"t","partition":0}]}'),
    (
        Reassignment({TopicPartition("t", 0): [1, 2]}),
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
    ),
    (LogDirEvent(3), '{"version":1,"broker":3,"event":1}'),
    (ProducerIdBlock(1, 0, 999), '{"version":1,"broker":1,"block_start":"0","block_end":"999"}'),
    (FeatureNode(enabled=True), '{"features":{},"version":2,"status":1}'),
    (FeatureNode(enabled=False, version=1), '{"features":{},"version":1,"status":0}'),
    (FeatureNode(True, {"f": 3}), '{"features":{"f":{"max_version_level":3}},"version":2,"status":1}'),
]
KINDS = {type(value): None for value, _ in AS_KAFKA_WRITES}


@pytest.mark.parametrize(("value", "text"), AS_KAFKA_WRITES, ids=lambda each: type(each).__name__)
def test_a_value_is_written_and_read_as_kafka_does(value, text):
    assert value.encode() == text.encode()
    assert type(value).decode(text.encode(), "/its/path") == value


def test_text_beyond_ascii_stays_utf8_as_in_kafka():
    entity = ConfigEntity({"weird": '"\\/é\n'})
    assert entity.encode() == '{"version":1,"config":{"weird":"\\"\\\\/é\\n"}}'.encode()
    assert ConfigEntity.decode(entity.encode(), "/x") == entity


# Older and foreign texts that Kafka 3.9 reads as well.
ALSO_READ = [
    (
        '{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"5"}',
        BrokerRegistration(
            (Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, 5, jmx_port=9999, version=1
        ),
    ),
    (
        '{"version":3,"host":"h","port":-1,"timestamp":"5","endpoints":["SSL://h:1"],"rack":"r"}',
        BrokerRegistration((Endpoint("SSL", "h", 1),), {"SSL": "SSL"}, 5, rack="r", version=3),
    ),
    ('{"version":1,"partitions":{"1":[2],"0":[1]},"unknown":{}}', TopicAssignment({0: [1], 1: [2]})),
    (
        '{"partitions":{"0":[1]},"version":2,"adding_replicas":{"0":[1]},"removing_replicas":null}',
        TopicAssignment({0: [1]}, adding={0: [1]}),
    ),
    ('{"version":1,"brokerid":7,"timestamp":"9"}', ControllerNode(7, 9)),
    ('{"version":1,"entity_type":"clients","entity_name":"c"}', ConfigChange("clients/c")),
    ('{"version":1,"broker":1,"block_start":1000,"block_end":1999}', ProducerIdBlock(1, 1000, 1999)),
    (
        '{"features":{"f":{"max_version_level":3,"min_version_level":1}},"version":1,"status":0}',
        FeatureNode(False, {"f": 3}, 1),
    ),
    (None, ConfigEntity({})),
]


@pytest.mark.parametrize(("text", "value"), ALSO_READ)
def test_other_versions_are_read(text, value):
    assert type(value).decode(text and text.encode(), "/its/path") == value


def test_unknown_keys_are_ignored_everywhere():
    for value, text in AS_KAFKA_WRITES:
        if isinstance(value, ControllerEpoch):
            continue
        extended = json.dumps(json.loads(text) | {"of_the_future": [1, {}]})
        assert type(value).decode(extended.encode(), "/x") == value


MALFORMED = [
    (ClusterId, '{"version":"1"}'),
    (ClusterId, '{"version":"1","id":5}'),
    (BrokerRegistration, '{"version":5,"endpoints":["nonsense"]}'),
    (BrokerRegistration, '{"version":5,"endpoints":"PLAINTEXT://h:1"}'),
    (BrokerRegistration, '{"version":5,"endpoints":[],"features":{"f":1}}'),
    (BrokerRegistration, '{"version":5,"endpoints":[],"timestamp":"soon"}'),
    (BrokerRegistration, '{"version":1}'),
    (BrokerRegistration, "{}"),
    (TopicAssignment, '{"version":3}'),
    (TopicAssignment, '{"partitions":[[1]]}'),
    (TopicAssignment, '{"partitions":{"x":[1]}}'),
    (TopicAssignment, '{"partitions":{"-1":[1]}}'),
    (TopicAssignment, '{"partitions":{"0":["1"]}}'),
    (TopicAssignment, '{"partitions":{"0":[true]}}'),
    (TopicAssignment, '{"partitions":{},"topic_id":"short"}'),
    (TopicAssignment, '{"partitions":{},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}'),
    (PartitionState, '{"leader":1,"leader_epoch":0,"controller_epoch":1}'),
    (PartitionState, '{"leader":1.5,"leader_epoch":0,"controller_epoch":1,"isr":[]}'),
    (ControllerNode, '{"timestamp":"1"}'),
    (ControllerEpoch, ""),
    (ControllerEpoch, "-1"),
    (ControllerEpoch, "one"),
    (ConfigEntity, '{"version":2,"config":{}}'),
    (ConfigEntity, '{"version":1}'),
    (ConfigEntity, '{"version":1,"config":{"a":1}}'),
    (ConfigChange, '{"version":3,"entity_path":"topics/t"}'),
    (ConfigChange, '{"version":2}'),
    (PartitionList, '{"version":1,"partitions":[1]}'),
    (Reassignment, '{"version":1,"partitions":[{"topic":"t","partition":0}]}'),
    (LogDirEvent, '{"version":1}'),
    (ProducerIdBlock, '{"version":1,"broker":1,"block_start":"x","block_end":"y"}'),
    (FeatureNode, '{"version":2,"status":1,"features":{"f":{}}}'),
    *((kind, text) for kind in KINDS for text in ("no json", "[]", '{"a":', "\udcff", "[" * 100_000)),
]


@pytest.mark.parametrize(
    ("kind", "text"), MALFORMED, ids=lambda each: str(each)[:40].encode("ascii", "replace").decode()
)
def test_malformed_data_are_refused_naming_the_node(kind, text):
    with pytest.raises(ValueError, match=r"^/its/path: "):
        kind.decode(text.encode("utf-8", "surrogateescape"), "/its/path")


@pytest.mark.parametrize("kind", [each for each in KINDS if each is not ConfigEntity])
def test_null_data_are_refused_where_kafka_writes_a_value(kind):
    with pytest.raises(ValueError, match=r"^/its/path: "):
        kind.decode(None, "/its/path")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=8,
)
KEYS = sorted({key for _, text in AS_KAFKA_WRITES if text[0] == "{" for key in json.loads(text)})


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8), st.sampled_from(list(KINDS)))
def test_any_json_is_a_value_or_a_value_error_that_names_the_node(content, kind):
    try:
        kind.decode(json.dumps(content).encode(), "/its/path")
    except ValueError as error:
        assert str(error).startswith("/its/path: ")


@given(
    st.dictionaries(st.integers(0, 1 << 20), st.lists(st.integers(0, (1 << 31) - 1), max_size=4), max_size=8),
    st.none() | st.binary(min_size=16, max_size=16).filter(any),
)
def test_any_assignment_is_read_back(partitions, topic_id):
    assignment = TopicAssignment(partitions, topic_id)
    assert TopicAssignment.decode(assignment.encode(), "/x") == assignment


def test_an_endpoint_is_found_by_its_listener():
    assert THREE_LISTENERS.endpoint("IN") == Endpoint("IN", "h", 9092)
    assert THREE_LISTENERS.endpoint("OUT") is None


def test_a_configuration_change_tells_type_and_name():
    change = ConfigChange("users/u/clients/c")
    assert (change.entity_type, change.entity_name) == ("users", "u/clients/c")


def test_paths_are_those_of_kafka():
    assert [
        paths.broker(1),
        paths.topic("orders"),
        paths.partitions("orders"),
        paths.partition("orders", 11),
        paths.partition_state("orders", 11),
        paths.delete_topic("orders"),
        paths.config_entities("topics"),
        paths.config_entity("brokers", paths.DEFAULT_ENTITY),
        paths.config_entity("users", paths.sanitize("a b*+~é")),
        paths.user_client_config("u", "c"),
        paths.consumer_offset("g", "t", 3),
        paths.acl("Topic", "t"),
        paths.acl("Group", "g", prefixed=True),
        paths.delegation_token("id"),
    ] == [
        "/brokers/ids/1",
        "/brokers/topics/orders",
        "/brokers/topics/orders/partitions",
        "/brokers/topics/orders/partitions/11",
        "/brokers/topics/orders/partitions/11/state",
        "/admin/delete_topics/orders",
        "/config/topics",
        "/config/brokers/<default>",
        "/config/users/a%20b%2A%2B%7E%C3%A9",
        "/config/users/u/clients/c",
        "/consumers/g/offsets/t/3",
        "/kafka-acl/Topic/t",
        "/kafka-acl-extended/prefixed/Group/g",
        "/delegation_token/tokens/id",
    ]


def test_the_parents_are_those_that_kafka_makes_and_their_ancestors():
    made_by_kafka = [
        "/consumers", "/brokers/ids", "/brokers/topics", "/config/changes", "/admin/delete_topics", "/brokers/seqid",
        "/isr_change_notification", "/latest_producer_id_block", "/log_dir_event_notification", "/config/topics",
        "/config/clients", "/config/users", "/config/brokers", "/config/ips",
    ]  # fmt: skip
    assert set(paths.PERSISTENT_PARENTS) == set(with_ancestors([*made_by_kafka, "/cluster"]))
    assert with_ancestors(paths.PERSISTENT_PARENTS) == list(paths.PERSISTENT_PARENTS)


def test_sequential_nodes_are_read_by_their_number():
    assert paths.sequence_number("config_change_0000000012") == 12
    assert paths.sequence_number(f"{paths.CONFIG_CHANGE_PREFIX}0000000000") == 0
    for name in ("config_change_", "12", "config_change_00000x0012", ""):
        with pytest.raises(ValueError, match="sequential"):
            paths.sequence_number(name)


def test_names_are_sanitized_as_kafka_does():
    assert paths.sanitize("a b*+~é/😀_.-<default>:") == "a%20b%2A%2B%7E%C3%A9%2F%F0%9F%98%80_.-%3Cdefault%3E%3A"
    assert paths.sanitize("\ud83d") == "%3F"
    assert paths.desanitize("a+b%20c%2B") == "a b c+"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name.strip(".")))
def test_a_sanitized_name_is_one_part_of_a_path_and_reads_back(name):
    assert paths.sanitized_bytes(name) == len(paths.sanitize(name))
    sanitized = paths.sanitize(name)
    check_path(f"/config/users/{sanitized}")
    assert "/" not in sanitized
    assert paths.desanitize(sanitized) == name


def test_a_cluster_id_is_22_characters_of_16_bytes():
    assert paths.new_cluster_id(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    assert paths.new_cluster_id(b"\xfb" * 16) == "-_v7-_v7-_v7-_v7-_v7-w"
    with pytest.raises(ValueError, match="16"):
        paths.new_cluster_id(bytes(15))
