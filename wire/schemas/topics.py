"""CreateTopics (key 19), DeleteTopics (key 20), and CreatePartitions (key 37).

CreateTopics: v1 validate only; v4 -1 for the broker's defaults (KIP-464); v5 flexible, and the topic's configuration in
the response (KIP-525); v6 may be refused by quota (KIP-599); v7 the new topic id (KIP-516). DeleteTopics: v4 flexible;
v5 error messages; v6 by name or by topic id. CreatePartitions (KIP-195): v1 as 0; v2 flexible; v3 may be refused by
quota (KIP-599). `count` is the new number of partitions; with null assignments the controller places them.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("CreateTopicsRequest", 19, "0-7", "5+", (
        Field("topics", "[]CreatableTopic", fields=(
            Field("name", "string"),
            Field("num_partitions", "int32"),
            Field("replication_factor", "int16"),
            Field("assignments", "[]CreatableReplicaAssignment", fields=(
                Field("partition_index", "int32"),
                Field("broker_ids", "[]int32"),
            )),
            Field("configs", "[]CreatableTopicConfig", fields=(
                Field("name", "string"),
                Field("value", "string", nullable="0+"),
            )),
        )),
        Field("timeout_ms", "int32", default=60000),
        Field("validate_only", "bool", "1+"),
    )),
    Schema("CreateTopicsResponse", 19, "0-7", "5+", (
        Field("throttle_time_ms", "int32", "2+", ignorable=True),
        Field("topics", "[]CreatableTopicResult", fields=(
            Field("name", "string"),
            Field("topic_id", "uuid", "7+", ignorable=True),
            Field("error_code", "int16"),
            Field("error_message", "string", "1+", nullable="0+", ignorable=True),
            Field("topic_config_error_code", "int16", "5+", tag=0, ignorable=True),
            Field("num_partitions", "int32", "5+", default=-1, ignorable=True),
            Field("replication_factor", "int16", "5+", default=-1, ignorable=True),
            Field("configs", "[]CreatableTopicConfigs", "5+", nullable="5+", ignorable=True, fields=(
                Field("name", "string", "5+"),
                Field("value", "string", "5+", nullable="5+"),
                Field("read_only", "bool", "5+"),
                Field("config_source", "int8", "5+", default=-1, ignorable=True),
                Field("is_sensitive", "bool", "5+"),
            )),
        )),
    )),
    Schema("DeleteTopicsRequest", 20, "0-6", "4+", (
        Field("topics", "[]DeleteTopicState", "6+", fields=(
            Field("name", "string", "6+", nullable="6+", default=None),
            Field("topic_id", "uuid", "6+"),
        )),
        Field("topic_names", "[]string", "0-5", ignorable=True),
        Field("timeout_ms", "int32"),
    )),
    Schema("DeleteTopicsResponse", 20, "0-6", "4+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("responses", "[]DeletableTopicResult", fields=(
            Field("name", "string", nullable="6+"),
            Field("topic_id", "uuid", "6+", ignorable=True),
            Field("error_code", "int16"),
            Field("error_message", "string", "5+", nullable="5+", default=None, ignorable=True),
        )),
    )),
    Schema("CreatePartitionsRequest", 37, "0-3", "2+", (
        Field("topics", "[]CreatePartitionsTopic", fields=(
            Field("name", "string"),
            Field("count", "int32"),
            Field("assignments", "[]CreatePartitionsAssignment", nullable="0+", fields=(
                Field("broker_ids", "[]int32"),
            )),
        )),
        Field("timeout_ms", "int32"),
        Field("validate_only", "bool"),
    )),
    Schema("CreatePartitionsResponse", 37, "0-3", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("results", "[]CreatePartitionsTopicResult", fields=(
            Field("name", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+", default=None, ignorable=True),
        )),
    )),
)  # fmt: skip
