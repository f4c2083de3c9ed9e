"""Moving partitions to other brokers (KIP-455): AlterPartitionReassignments (key 45), ListPartitionReassignments (46).

Null replicas cancel a reassignment; a null list of topics lists every partition that is being reassigned.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("AlterPartitionReassignmentsRequest", 45, "0", "0+", (
        Field("timeout_ms", "int32", default=60000),
        Field("topics", "[]ReassignableTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]ReassignablePartition", fields=(
                Field("partition_index", "int32"),
                Field("replicas", "[]int32", nullable="0+", default=None),
            )),
        )),
    )),
    Schema("AlterPartitionReassignmentsResponse", 45, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("responses", "[]ReassignableTopicResponse", fields=(
            Field("name", "string"),
            Field("partitions", "[]ReassignablePartitionResponse", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("error_message", "string", nullable="0+"),
            )),
        )),
    )),
    Schema("ListPartitionReassignmentsRequest", 46, "0", "0+", (
        Field("timeout_ms", "int32", default=60000),
        Field("topics", "[]ListPartitionReassignmentsTopics", nullable="0+", default=None, fields=(
            Field("name", "string"),
            Field("partition_indexes", "[]int32"),
        )),
    )),
    Schema("ListPartitionReassignmentsResponse", 46, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("topics", "[]OngoingTopicReassignment", fields=(
            Field("name", "string"),
            Field("partitions", "[]OngoingPartitionReassignment", fields=(
                Field("partition_index", "int32"),
                Field("replicas", "[]int32"),
                Field("adding_replicas", "[]int32"),
                Field("removing_replicas", "[]int32"),
            )),
        )),
    )),
)  # fmt: skip
