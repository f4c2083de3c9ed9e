"""Every call of confluent-kafka's admin client."""

import contextlib
import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from compat_tests.raw import eventually

SECONDS = 20


@pytest.fixture
def client(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def broker_id(client):
    return client.describe_cluster().result(SECONDS).controller.id


@pytest.fixture
def broker_ids(client):
    return {node.id for node in client.describe_cluster().result(SECONDS).nodes}


@pytest.fixture
def five(bootstrap, new_topic):
    """A topic with five messages."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce(new_topic, f"{number}")
    producer.flush()
    return new_topic


@pytest.fixture
def group(bootstrap, five):
    """A group without members that has committed offset 3."""
    with contextlib.closing(Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{five}"})) as consumer:
        consumer.commit(offsets=[TopicPartition(five, 0, 3, metadata="three")], asynchronous=False)
    return f"group-{five}"


@pytest.fixture
def live_group(bootstrap, five):
    """A group with one static member."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"live-{five}", "group.instance.id": "olga"}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.subscribe([five])
        deadline = time.monotonic() + SECONDS
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.05)
        yield f"live-{five}"


def only(futures):
    """The result of a call about one thing."""
    (future,) = futures.values()
    return future.result(SECONDS)


def refusal(futures):
    """The code with which a call about one thing was refused."""
    with pytest.raises(KafkaException) as raised:
        only(futures)
    return raised.value.args[0].code()


def topic_names(client):
    return set(client.list_topics(timeout=SECONDS).topics)


def test_topics_are_created_listed_described_and_deleted(client, topic, broker_ids):
    only(client.create_topics([NewTopic(topic, 3, config={"retention.ms": "60000"})]))
    eventually(lambda: topic_names(client), lambda names: topic in names)  # each look may ask another broker
    described = only(client.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert {partition.leader.id for partition in described.partitions} == broker_ids  # one alone leads them all
    assert (described.is_internal, len(str(described.topic_id))) == (False, 22)
    assert AclOperation.READ in described.authorized_operations
    assert refusal(client.create_topics([NewTopic(topic, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    only(client.delete_topics([topic], operation_timeout=SECONDS))
    eventually(lambda: topic_names(client), lambda names: topic not in names)
    assert refusal(client.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refusal(client.describe_topics(TopicCollection([topic]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_is_only_validated(client, topic):
    only(client.create_topics([NewTopic(topic, 1)], validate_only=True))
    assert topic not in topic_names(client)
    too_many = client.create_topics([NewTopic(topic, 1, 7)], validate_only=True)
    assert refusal(too_many) == KafkaError.INVALID_REPLICATION_FACTOR


def test_replicas_of_a_new_topic_are_named(client, topic, broker_id):
    only(client.create_topics([NewTopic(topic, 2, replica_assignment=[[broker_id], [broker_id]])]))
    eventually(
        lambda: client.list_topics(topic, timeout=SECONDS).topics[topic].partitions, lambda found: len(found) == 2
    )


def test_partitions_are_added(client, broker_ids, new_topic):
    only(client.create_partitions([NewPartitions(new_topic, 2)]))
    only(client.create_partitions([NewPartitions(new_topic, 3, replica_assignment=[list(broker_ids)])]))
    eventually(
        lambda: only(client.describe_topics(TopicCollection([new_topic]))).partitions, lambda found: len(found) == 3
    )
    assert refusal(client.create_partitions([NewPartitions(new_topic, 1)])) == KafkaError.INVALID_PARTITIONS


def test_the_cluster_is_described(client, bootstrap):
    cluster = client.describe_cluster(include_authorized_operations=True).result(SECONDS)
    assert {f"{node.host}:{node.port}" for node in cluster.nodes} == set(bootstrap.split(","))
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    assert cluster.cluster_id == client.list_topics(timeout=SECONDS).cluster_id
    assert AclOperation.CLUSTER_ACTION in cluster.authorized_operations


def configuration(client, kind, name):
    return only(client.describe_configs([ConfigResource(kind, name)]))


def test_a_topics_configuration_is_described_and_altered(client, new_topic):
    change = [
        ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    resource = ConfigResource(ResourceType.TOPIC, new_topic, incremental_configs=change)
    only(client.incremental_alter_configs([resource]))
    described = configuration(client, ResourceType.TOPIC, new_topic)
    assert described["cleanup.policy"].value == "delete,compact"
    retention = described["retention.ms"]
    assert (retention.value, retention.source) == ("60000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert "log.retention.ms" not in retention.synonyms
    assert described["segment.bytes"].is_default
    only(client.alter_configs([ConfigResource(ResourceType.TOPIC, new_topic, set_config={"segment.ms": "7777777"})]))
    described = configuration(client, ResourceType.TOPIC, new_topic)
    assert described["segment.ms"].value == "7777777"
    assert described["retention.ms"].is_default  # the older call replaces the whole


def test_a_malformed_configuration_is_refused(client, new_topic):
    bad = [ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.TOPIC, new_topic, incremental_configs=bad)
    assert refusal(client.incremental_alter_configs([resource], validate_only=True)) == KafkaError.INVALID_CONFIG


def test_a_brokers_configuration_is_described_and_altered(client, broker_id):
    def alter(value, operation):
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, f"{broker_id}", incremental_configs=[entry])
        only(client.incremental_alter_configs([resource]))

    alter("15002", AlterConfigOpType.SET)
    deadline, backoff_ms = time.monotonic() + SECONDS, None
    while backoff_ms != "15002" and time.monotonic() < deadline:  # Kafka's brokers learn of it later
        backoff_ms = configuration(client, ResourceType.BROKER, f"{broker_id}")["log.cleaner.backoff.ms"].value
    assert backoff_ms == "15002"
    alter(None, AlterConfigOpType.DELETE)


def test_offsets_are_listed_by_kind_and_time(client, five):
    partition = TopicPartition(five, 0)
    for spec, offset in [(OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 5), (OffsetSpec.for_timestamp(0), 0)]:
        found = only(client.list_offsets({partition: spec}, isolation_level=IsolationLevel.READ_COMMITTED))
        assert found.offset == offset
    assert only(client.list_offsets({partition: OffsetSpec.max_timestamp()})).timestamp > 0


def test_records_are_deleted(client, five):
    assert only(client.delete_records([TopicPartition(five, 0, 3)])).low_watermark == 3
    assert only(client.list_offsets({TopicPartition(five, 0): OffsetSpec.earliest()})).offset == 3
    assert refusal(client.delete_records([TopicPartition(five, 0, 30)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_groups_are_listed_described_and_deleted(client, group):
    listed = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}, types={ConsumerGroupType.CLASSIC})
    found = {listing.group_id: listing for listing in listed.result(SECONDS).valid}[group]
    assert (found.state, found.type) == (ConsumerGroupState.EMPTY, ConsumerGroupType.CLASSIC)
    described = only(client.describe_consumer_groups([group], include_authorized_operations=True))
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    assert AclOperation.READ in described.authorized_operations
    only(client.delete_consumer_groups([group]))
    assert refusal(client.delete_consumer_groups([group])) == KafkaError.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_described_and_not_deleted(client, live_group, five):
    described = only(client.describe_consumer_groups([live_group]))
    (member,) = described.members
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    assert (member.group_instance_id, member.assignment.topic_partitions) == ("olga", [TopicPartition(five, 0)])
    assert any(listed.id == live_group for listed in client.list_groups(timeout=SECONDS))
    assert refusal(client.delete_consumer_groups([live_group])) == KafkaError.NON_EMPTY_GROUP


def test_offsets_of_a_group_are_listed_and_altered(client, group, five):
    def listed():
        asked = ConsumerGroupTopicPartitions(group)
        return only(client.list_consumer_group_offsets([asked], require_stable=True)).topic_partitions

    (before,) = listed()
    assert (before.offset, before.metadata) == (3, "three")
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(five, 0, 1)])
    only(client.alter_consumer_group_offsets([change]))
    assert [partition.offset for partition in listed()] == [1]


def test_leaders_need_no_election(client, new_topic):
    partition = TopicPartition(new_topic, 0)
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        elected = client.elect_leaders(kind, [partition]).result(SECONDS)
        assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED


def test_without_an_authorizer_acls_are_refused(client):
    topic = ResourceType.TOPIC, "anything", ResourcePatternType.LITERAL, "User:olga", "*"
    binding = AclBinding(*topic, AclOperation.READ, AclPermissionType.ALLOW)
    chosen = AclBindingFilter(*topic, AclOperation.ANY, AclPermissionType.ANY)
    assert refusal(client.create_acls([binding])) == KafkaError.SECURITY_DISABLED
    assert refusal(client.delete_acls([chosen])) == KafkaError.SECURITY_DISABLED
    assert client.describe_acls(chosen).result(SECONDS) == []  # the client does not pass the broker's error on


def credentials(client, user):
    """What a broker tells of the user; nothing if it knows none."""
    try:
        return only(client.describe_user_scram_credentials([user])).scram_credential_infos
    except KafkaException as refused:
        assert refused.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
        return []


def test_scram_credentials_are_kept_described_and_deleted(client, topic):
    user, info = f"user-{topic}", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)
    only(client.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, b"secret")]))
    # Each look may ask another broker, and not all hear of a change at once.
    eventually(lambda: client.describe_user_scram_credentials().result(SECONDS), lambda users: user in users)
    (kept,) = eventually(lambda: credentials(client, user), bool)
    assert (kept.mechanism, kept.iterations) == (ScramMechanism.SCRAM_SHA_512, 5000)
    only(client.alter_user_scram_credentials([UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)]))
    eventually(lambda: credentials(client, user), lambda found: not found)
    assert refusal(client.describe_user_scram_credentials([user])) == KafkaError.RESOURCE_NOT_FOUND
