"""Metadata (key 3): brokers, topics, partitions and their leaders.

v1 null for all topics and empty for none, controller id, racks; v4 whether to create missing topics (KIP-4); v5 offline
replicas (KIP-112); v7 leader epochs (KIP-320); v8 authorized operations (KIP-430), those of the cluster only up to v10;
v9 flexible; v10 topic ids (KIP-516), also in requests from v12 on.
"""

from barnabas.wire.schema import Field, Schema

_NOT_ASKED = -(1 << 31)  # the value of authorized operations if the request does not include them

SCHEMAS = (
    Schema("MetadataRequest", 3, "0-12", "9+", (
        Field("topics", "[]MetadataRequestTopic", nullable="1+", fields=(
            Field("topic_id", "uuid", "10+", ignorable=True),
            Field("name", "string", nullable="10+"),
        )),
        Field("allow_auto_topic_creation", "bool", "4+", default=True),
        Field("include_cluster_authorized_operations", "bool", "8-10"),
        Field("include_topic_authorized_operations", "bool", "8+"),
    )),
    Schema("MetadataResponse", 3, "0-12", "9+", (
        Field("throttle_time_ms", "int32", "3+", ignorable=True),
        Field("brokers", "[]MetadataResponseBroker", fields=(
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", "1+", nullable="1+", default=None, ignorable=True),
        )),
        Field("cluster_id", "string", "2+", nullable="2+", default=None, ignorable=True),
        Field("controller_id", "int32", "1+", default=-1, ignorable=True),
        Field("topics", "[]MetadataResponseTopic", fields=(
            Field("error_code", "int16"),
            Field("name", "string", nullable="12+"),
            Field("topic_id", "uuid", "10+", ignorable=True),
            Field("is_internal", "bool", "1+", ignorable=True),
            Field("partitions", "[]MetadataResponsePartition", fields=(
                Field("error_code", "int16"),
                Field("partition_index", "int32"),
                Field("leader_id", "int32"),
                Field("leader_epoch", "int32", "7+", default=-1, ignorable=True),
                Field("replica_nodes", "[]int32"),
                Field("isr_nodes", "[]int32"),
                Field("offline_replicas", "[]int32", "5+", ignorable=True),
            )),
            Field("topic_authorized_operations", "int32", "8+", default=_NOT_ASKED),
        )),
        Field("cluster_authorized_operations", "int32", "8-10", default=_NOT_ASKED),
    )),
)  # fmt: skip
