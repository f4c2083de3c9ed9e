"""What tests share with `test_authorization.py`."""

from barnabas.security.acls.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern
from barnabas.wire import messages as m
from barnabas.wire.records import build_batch
from barnabas.wire.runtime import Message
from tests.broker.clock import START_MS
from tests.broker.requests import produce_request

EVERYTHING = AclFilter("Any", None, "Any", None, None, "Any", "Any")


TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 29, 30, 31, 53


def make(name, **fields):
    """A request from plain dicts and lists."""
    request, schema = getattr(m, f"{name}Request"), m.schemas()[f"{name}Request"]

    def filled(all_fields, values):
        return {key: value_of(next(each for each in all_fields if each.name == key), values[key]) for key in values}

    def value_of(field, value):
        if not field.is_struct or value is None:
            return value
        if not field.is_array:
            return getattr(request, field.type)(**filled(schema.fields_of(field), value))
        return [getattr(request, field.element)(**filled(schema.fields_of(field), each)) for each in value]

    return request(**filled(schema.fields, fields))


def codes_in(value):
    """Every error code of an answer that is not 0."""
    if isinstance(value, list | tuple):
        return {code for each in value for code in codes_in(each)}
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    found = set()
    for name in names:
        inner = getattr(value, name)
        if name.endswith("error_code"):
            found |= {int(inner)} - {0}
        elif isinstance(inner, list | tuple | Message) or hasattr(type(inner), "__slots__"):
            found |= codes_in(inner)
    return found


def grant(text):
    """`Read Topic t` as an ACL of the only client; the cluster needs no name."""
    operation, kind, *name = text.split()
    pattern = ResourcePattern(kind, name[0] if name else "kafka-cluster")
    return AclBinding(pattern, AccessControlEntry("User:ANONYMOUS", "127.0.0.1", operation, "Allow"))


BATCH = bytearray(build_batch([(None, b"x")], timestamp_ms=START_MS).data)


PARTITION_0 = [{"name": "t", "partitions": [0]}]


CONFIGS = [{"resource_type": 2, "resource_name": "t", "configs": []}]


OF_BROKER = [{"resource_type": 4, "resource_name": "", "configs": []}]


RULE = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


ANY_RULE = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


COMMIT = {"partition_index": 0, "committed_offset": 1}


COMMITS = [{"name": "t", "partitions": [COMMIT]}]


QUOTA = {"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": []}


LIST_OFFSETS = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]


OFFSETS_DELETED = [{"name": "t", "partitions": [{"partition_index": 0}]}]


FETCHED = [{"topic": "t", "partitions": [{"partition": 0, "partition_max_bytes": 100}]}]


FOR_EPOCH = [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]


RECORDS = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]


GROWN = [{"name": "t", "count": 2, "assignments": None}]


MARKER = {"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [0]}]}


MOVED = [{"path": "/data", "topics": PARTITION_0}]


REASSIGNED = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}]


# Request, version (None: the highest), what it needs, and the error without that. Where two rights are needed, each
# alone is not enough; the error without both is the first.
NEEDS = [
    (produce_request("t", BATCH), None, ["Write Topic t"], TOPIC),
    (make("Fetch", max_wait_ms=0, topics=FETCHED), 12, ["Read Topic t"], TOPIC),
    (make("Fetch", max_wait_ms=0, replica_id=7, topics=FETCHED), 12, ["ClusterAction Cluster"], TOPIC),
    (make("ListOffsets", topics=LIST_OFFSETS), None, ["Describe Topic t"], TOPIC),
    (make("Metadata", topics=[{"name": "t"}]), None, ["Describe Topic t"], TOPIC),
    (make("LeaderAndIsr"), None, ["ClusterAction Cluster"], CLUSTER),
    (make("StopReplica"), None, ["ClusterAction Cluster"], CLUSTER),
    (make("UpdateMetadata"), None, ["ClusterAction Cluster"], CLUSTER),
    (make("ControlledShutdown"), None, ["ClusterAction Cluster"], CLUSTER),
    (make("OffsetCommit", group_id="g", topics=COMMITS), None, ["Read Group g", "Read Topic t"], GROUP),
    (make("OffsetFetch", groups=[{"group_id": "g", "topics": None}]), None, ["Describe Group g"], GROUP),
    (make("OffsetFetch", group_id="g", topics=None), 7, ["Describe Group g"], GROUP),
    (make("FindCoordinator", coordinator_keys=["g"]), None, ["Describe Group g"], GROUP),
    (make("FindCoordinator", key="g"), 3, ["Describe Group g"], GROUP),
    (
        make("FindCoordinator", key_type=1, coordinator_keys=["x"]),
        None,
        ["Describe TransactionalId x"],
        TRANSACTIONAL_ID,
    ),
    (make("JoinGroup", group_id="g", session_timeout_ms=10_000), None, ["Read Group g"], GROUP),
    (make("Heartbeat", group_id="g"), None, ["Read Group g"], GROUP),
    (make("LeaveGroup", group_id="g", members=[{"member_id": "m"}]), None, ["Read Group g"], GROUP),
    (make("SyncGroup", group_id="g", protocol_type="p", protocol_name="n"), None, ["Read Group g"], GROUP),
    (make("DescribeGroups", groups=["g"]), None, ["Describe Group g"], GROUP),
    (
        make("CreateTopics", topics=[{"name": "u", "num_partitions": 1, "replication_factor": 1}]),
        4,
        ["Create Topic u"],
        TOPIC,
    ),
    (
        make("CreateTopics", topics=[{"name": "u", "num_partitions": 1, "replication_factor": 1}]),
        4,
        ["Create Cluster"],
        TOPIC,
    ),
    (make("DeleteTopics", topics=[{"name": "t"}]), None, ["Delete Topic t"], TOPIC),
    (make("DeleteRecords", topics=RECORDS), None, ["Delete Topic t"], TOPIC),
    (make("InitProducerId", transactional_id=None), None, ["IdempotentWrite Cluster"], CLUSTER),
    (make("InitProducerId", transactional_id=None), None, ["Write Topic whatever"], CLUSTER),
    (
        make("InitProducerId", transactional_id="x", transaction_timeout_ms=1),
        None,
        ["Write TransactionalId x"],
        TRANSACTIONAL_ID,
    ),
    (make("OffsetForLeaderEpoch", replica_id=-2, topics=FOR_EPOCH), None, ["Describe Topic t"], TOPIC),
    (make("OffsetForLeaderEpoch", replica_id=-2, topics=FOR_EPOCH), None, ["ClusterAction Cluster"], TOPIC),
    (
        make("AddPartitionsToTxn", v3_and_below_transactional_id="x", v3_and_below_topics=PARTITION_0),
        3,
        ["Write TransactionalId x", "Write Topic t"],
        TRANSACTIONAL_ID,
    ),
    (
        make(
            "AddPartitionsToTxn", transactions=[{"transactional_id": "x", "verify_only": True, "topics": PARTITION_0}]
        ),
        None,
        ["ClusterAction Cluster"],
        CLUSTER,
    ),
    (
        make("AddOffsetsToTxn", transactional_id="x", group_id="g"),
        None,
        ["Write TransactionalId x", "Read Group g"],
        TRANSACTIONAL_ID,
    ),
    (make("EndTxn", transactional_id="x"), None, ["Write TransactionalId x"], TRANSACTIONAL_ID),
    (make("WriteTxnMarkers", markers=[MARKER]), None, ["ClusterAction Cluster"], CLUSTER),
    (make("WriteTxnMarkers", markers=[MARKER]), None, ["Alter Cluster"], CLUSTER),
    (
        make("TxnOffsetCommit", transactional_id="x", group_id="g", topics=COMMITS),
        None,
        ["Write TransactionalId x", "Read Group g", "Read Topic t"],
        TRANSACTIONAL_ID,
    ),
    (make("DescribeAcls", **ANY_RULE), None, ["Describe Cluster"], CLUSTER),
    (make("CreateAcls", creations=[RULE]), None, ["Alter Cluster"], CLUSTER),
    (make("DeleteAcls", filters=[{**ANY_RULE, "resource_name_filter": "none"}]), None, ["Alter Cluster"], CLUSTER),
    (
        make("DescribeConfigs", resources=[{"resource_type": 2, "resource_name": "t"}]),
        None,
        ["DescribeConfigs Topic t"],
        TOPIC,
    ),
    (
        make("DescribeConfigs", resources=[{"resource_type": 4, "resource_name": ""}]),
        None,
        ["DescribeConfigs Cluster"],
        CLUSTER,
    ),
    (make("AlterConfigs", resources=CONFIGS), None, ["AlterConfigs Topic t"], TOPIC),
    (make("AlterConfigs", resources=OF_BROKER), None, ["AlterConfigs Cluster"], CLUSTER),
    (make("IncrementalAlterConfigs", resources=CONFIGS), None, ["AlterConfigs Topic t"], TOPIC),
    (make("IncrementalAlterConfigs", resources=OF_BROKER), None, ["AlterConfigs Cluster"], CLUSTER),
    (make("AlterReplicaLogDirs", dirs=MOVED), None, ["Alter Cluster"], CLUSTER),
    (make("DescribeLogDirs", topics=None), None, ["Describe Cluster"], CLUSTER),
    (make("CreatePartitions", topics=GROWN), None, ["Alter Topic t"], TOPIC),
    (make("DeleteGroups", groups_names=["g"]), None, ["Delete Group g"], GROUP),
    (make("ElectLeaders", topic_partitions=[{"topic": "t", "partitions": [0]}]), None, ["Alter Cluster"], CLUSTER),
    (make("AlterPartitionReassignments", topics=REASSIGNED), None, ["Alter Cluster"], CLUSTER),
    (make("ListPartitionReassignments", topics=None), None, ["Describe Cluster"], CLUSTER),
    (make("OffsetDelete", group_id="g", topics=OFFSETS_DELETED), None, ["Delete Group g", "Read Topic t"], GROUP),
    (make("DescribeClientQuotas"), None, ["DescribeConfigs Cluster"], CLUSTER),
    (make("AlterClientQuotas", entries=[QUOTA]), None, ["AlterConfigs Cluster"], CLUSTER),
    (make("DescribeUserScramCredentials", users=None), None, ["Describe Cluster"], CLUSTER),
    (make("AlterUserScramCredentials", deletions=[{"name": "a", "mechanism": 1}]), None, ["Alter Cluster"], CLUSTER),
    (make("AlterPartition"), None, ["ClusterAction Cluster"], CLUSTER),
    (make("UpdateFeatures"), None, ["Alter Cluster"], CLUSTER),
    (make("DescribeProducers", topics=[{"name": "t", "partition_indexes": [0]}]), None, ["Read Topic t"], TOPIC),
    (make("DescribeTransactions", transactional_ids=["x"]), None, ["Describe TransactionalId x"], TRANSACTIONAL_ID),
    (make("AllocateProducerIds"), None, ["ClusterAction Cluster"], CLUSTER),
]
