"""Every call of kafka-python's admin client."""

import time

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, TopicPartitionReplica
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    GroupState,
    KafkaAdminClient,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import (
    ElectionNotNeededError,
    GroupIdNotFoundError,
    InvalidReplicationFactorError,
    NoError,
    NonEmptyGroupError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)

from compat_tests.raw import eventually


@pytest.fixture
def client(bootstrap):
    made = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield made
    made.close()


@pytest.fixture
def broker_id(client):
    return client.describe_cluster()["brokers"][0]["broker_id"]


@pytest.fixture
def replicas(client, new_topic):
    """Where the one partition of the topic is."""
    return client.describe_topics([new_topic])[0]["partitions"][0]["replica_nodes"]


@pytest.fixture
def five(bootstrap, new_topic):
    """The partition of a topic with five records."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(5):
        producer.send(new_topic, f"{number}".encode())
    producer.close()
    return TopicPartition(new_topic, 0)


@pytest.fixture
def group(bootstrap, five):
    """A group without members that has committed offset 3."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=f"group-{five.topic}", enable_auto_commit=False)
    consumer.assign([five])
    consumer.commit({five: OffsetAndMetadata(3, "three", -1)})
    consumer.close()
    return f"group-{five.topic}"


@pytest.fixture
def member(bootstrap, five):
    """The one member, a static one, of a group."""
    consumer = KafkaConsumer(
        five.topic, bootstrap_servers=bootstrap, group_id=f"live-{five.topic}", group_instance_id="olga"
    )
    deadline = time.monotonic() + 20
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(timeout_ms=50)
    yield consumer
    consumer.close()


def test_topics_are_created_listed_described_and_deleted(client, topic):
    client.create_topics({topic: {"num_partitions": 3}})
    eventually(client.list_topics, lambda topics: topic in topics)  # each look may ask another broker
    (described,) = eventually(lambda: client.describe_topics([topic]), lambda seen: len(seen[0]["partitions"]) == 3)
    assert [partition["error_code"] for partition in described["partitions"]] == [0, 0, 0]
    with pytest.raises(TopicAlreadyExistsError):
        client.create_topics([topic])
    client.delete_topics([topic])
    eventually(client.list_topics, lambda topics: topic not in topics)
    with pytest.raises(UnknownTopicOrPartitionError):
        client.delete_topics([topic])


def test_a_topic_is_only_validated(client, topic):
    client.create_topics({topic: {"num_partitions": 1}}, validate_only=True)
    assert topic not in client.list_topics()
    with pytest.raises(InvalidReplicationFactorError):
        client.create_topics({topic: {"num_partitions": 1, "replication_factor": 7}}, validate_only=True)


def test_partitions_are_added(client, replicas, new_topic):
    client.create_partitions({new_topic: 2})
    client.create_partitions({new_topic: {"count": 3, "assignments": [replicas]}})
    eventually(lambda: client.describe_topics([new_topic]), lambda seen: len(seen[0]["partitions"]) == 3)


def test_the_cluster_is_described(client, bootstrap):
    cluster = client.describe_cluster()
    assert {f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]} == set(bootstrap.split(","))
    assert cluster["controller_id"] in {broker["broker_id"] for broker in cluster["brokers"]}
    assert cluster["cluster_id"]


def test_versions_and_features_are_described(client, broker_id):
    assert client.get_broker_version_data(broker_id).broker_version >= (3, 9)
    assert client.describe_features() == {}


def test_a_topics_configuration_is_described_and_altered(client, new_topic):
    resource = ConfigResource("topic", new_topic)
    changed = ConfigResource("topic", new_topic, {"retention.ms": "60000", "cleanup.policy": ("APPEND", "compact")})
    client.alter_configs([changed])
    described = client.describe_configs([resource])["topic"][new_topic]
    assert {name: entry["value"] for name, entry in described.items()} == {
        "retention.ms": "60000",
        "cleanup.policy": "delete,compact",
    }
    client.reset_configs([ConfigResource("topic", new_topic, ["retention.ms"])])
    assert set(client.describe_configs([resource])["topic"][new_topic]) == {"cleanup.policy"}


def test_a_configuration_is_altered_as_a_whole(client, new_topic):
    resource = ConfigResource("topic", new_topic)
    client.alter_configs([ConfigResource("topic", new_topic, {"retention.ms": "60000"})], incremental=False)
    assert client.describe_configs([resource])["topic"][new_topic]["retention.ms"]["value"] == "60000"


def test_all_of_a_configuration_is_described(client, broker_id, new_topic):
    resources = [ConfigResource("topic", new_topic), ConfigResource("broker", f"{broker_id}")]
    described = client.describe_configs(resources, include_synonyms=True, config_filter="all")
    assert described["topic"][new_topic]["segment.bytes"]["value"] == "1073741824"
    assert described["broker"][f"{broker_id}"]["log.segment.bytes"]["value"] == "1073741824"
    synonyms = described["topic"][new_topic]["segment.bytes"]["synonyms"]
    assert [synonym["name"] for synonym in synonyms] == ["log.segment.bytes"]


def test_a_brokers_configuration_changes_while_it_runs(client, broker_id):
    client.alter_configs([ConfigResource("broker", f"{broker_id}", {"log.cleaner.backoff.ms": "15001"})])
    resource = ConfigResource("broker", f"{broker_id}")
    deadline, backoff_ms = time.monotonic() + 20, None
    while backoff_ms != "15001" and time.monotonic() < deadline:  # Kafka's brokers learn of it later
        described = client.describe_configs([resource], config_filter="all")["broker"][f"{broker_id}"]
        backoff_ms = described["log.cleaner.backoff.ms"]["value"]
    assert backoff_ms == "15001"
    client.reset_configs([ConfigResource("broker", f"{broker_id}", ["log.cleaner.backoff.ms"])])


def test_offsets_are_listed_by_kind_and_time(client, five):
    for asked, offset in [(OffsetSpec.EARLIEST, 0), (OffsetSpec.LATEST, 5), (OffsetSpec.MAX_TIMESTAMP, 4), (0, 0)]:
        spec = OffsetTimestamp(asked) if asked == 0 and not isinstance(asked, OffsetSpec) else asked
        found = client.list_partition_offsets({five: spec})[five]
        assert found.offset in ({offset} if asked is not OffsetSpec.MAX_TIMESTAMP else set(range(5)))


def test_records_are_deleted(client, five):
    assert client.delete_records({five: 3})[five]["low_watermark"] == 3
    assert client.list_partition_offsets({five: OffsetSpec.EARLIEST})[five].offset == 3


def test_groups_are_listed_described_and_deleted(client, group):
    assert any(listed["group_id"] == group for listed in client.list_groups())
    assert any(listed["group_id"] == group for listed in client.list_groups(states_filter=[GroupState.EMPTY]))
    assert not any(listed["group_id"] == group for listed in client.list_groups(states_filter=[GroupState.STABLE]))
    assert client.describe_groups([group])[group]["group_state"] == "Empty"
    assert client.delete_groups([group]) == {group: "OK"}
    assert client.delete_groups([group]) == {group: GroupIdNotFoundError.__name__}


def test_a_group_with_members_is_described_and_not_deleted(client, member, five):
    live = f"live-{five.topic}"
    described = client.describe_groups([live])[live]
    assert (described["group_state"], described["protocol_type"]) == ("Stable", "consumer")
    (listed,) = described["members"]
    assert listed["group_instance_id"] == "olga"
    assert client.delete_groups([live]) == {live: NonEmptyGroupError.__name__}


def test_offsets_of_a_group_are_listed_altered_reset_and_deleted(client, group, five):
    assert client.list_group_offsets([group])[group] == {five: OffsetAndMetadata(3, "three", -1)}
    assert client.alter_group_offsets(group, {five: OffsetAndMetadata(1, "one", -1)}) == {five: NoError}
    assert client.list_group_offsets({group: [five]})[group][five].offset == 1
    client.reset_group_offsets(group, {five: OffsetSpec.LATEST})
    assert client.list_group_offsets(group)[group][five].offset == 5
    assert client.delete_group_offsets(group, [five]) == {five: NoError}
    assert client.list_group_offsets([group])[group] == {}


def test_a_member_is_removed(client, member, five):
    removed = client.remove_group_members(f"live-{five.topic}", [MemberToRemove(group_instance_id="olga")])
    assert list(removed.values()) == [NoError]
    assert client.describe_groups([f"live-{five.topic}"])[f"live-{five.topic}"]["members"] == []


def test_log_directories_are_described_and_a_replica_stays_where_it_is(client, broker_id, five):
    (broker,) = client.describe_log_dirs({five.topic: [0]}, brokers=[broker_id])
    (directory,) = broker["log_dirs"]
    ((topic,),) = [directory["topics"]]
    assert topic["partitions"][0]["partition_size"] > 0
    replica = TopicPartitionReplica(five.topic, 0, broker_id)
    assert client.alter_replica_log_dirs({replica: directory["log_dir"]}) == {replica: NoError}


def test_leaders_need_no_election(client, new_topic):
    elected = client.elect_leaders(0, {new_topic: [0]}, raise_errors=False)
    (result,) = elected.replica_election_results
    assert [tuple(partition)[:2] for partition in result[1]] == [(0, ElectionNotNeededError.errno)]


def test_reassignments_are_altered_and_listed(client, replicas, new_topic):
    partition = TopicPartition(new_topic, 0)
    assert client.alter_partition_reassignments({partition: replicas}) == {partition: None}
    assert client.list_partition_reassignments({new_topic: [0]}) == {}


def test_without_an_authorizer_acls_are_refused(client):
    pattern = ResourcePattern(ResourceType.TOPIC, "anything")
    acl = ACL("User:olga", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
    with pytest.raises(SecurityDisabledError):
        client.describe_acls(everything)
    for outcome in (client.create_acls([acl]), client.delete_acls([everything])):
        assert "SecurityDisabledError" in f"{outcome}"


def test_scram_credentials_are_kept_described_and_deleted(client, topic):
    user = f"user-{topic}"
    added = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "secret", iterations=4096)
    assert client.alter_user_scram_credentials([added]) == {user: None}
    assert client.describe_user_scram_credentials([user])[user] == {
        "error": None,
        "credential_infos": [{"mechanism": ScramMechanism.SCRAM_SHA_256, "iterations": 4096}],
    }
    deletion = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    assert client.alter_user_scram_credentials([deletion]) == {user: None}
    assert client.describe_user_scram_credentials([user])[user]["error"]


def test_producers_of_a_partition_are_described(client, five):
    described = client.describe_producers([five])[five]
    (producer,) = described.active_producers
    assert (producer.last_sequence, producer.producer_epoch) == (4, 0)


def test_a_transaction_that_never_was_is_not_found(client, topic):
    listed = [found.transactional_id for listings in client.list_transactions().values() for found in listings]
    assert topic not in listed
    with pytest.raises(TransactionalIdNotFoundError):
        client.describe_transactions([topic])
