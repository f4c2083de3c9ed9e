"""Log directories (KIP-113): AlterReplicaLogDirs (key 34) moves replicas to other log directories, DescribeLogDirs (key
35) lists the replicas in each directory.

AlterReplicaLogDirs: v2 flexible. DescribeLogDirs: v2 flexible; v3 an error for the whole response; v4 the size of the
volume (KIP-827).
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("AlterReplicaLogDirsRequest", 34, "0-2", "2+", (
        Field("dirs", "[]AlterReplicaLogDir", fields=(
            Field("path", "string"),
            Field("topics", "[]AlterReplicaLogDirTopic", fields=(
                Field("name", "string"),
                Field("partitions", "[]int32"),
            )),
        )),
    )),
    Schema("AlterReplicaLogDirsResponse", 34, "0-2", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("results", "[]AlterReplicaLogDirTopicResult", fields=(
            Field("topic_name", "string"),
            Field("partitions", "[]AlterReplicaLogDirPartitionResult", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
            )),
        )),
    )),
    Schema("DescribeLogDirsRequest", 35, "0-4", "2+", (
        Field("topics", "[]DescribableLogDirTopic", nullable="0+", fields=(
            Field("topic", "string"),
            Field("partitions", "[]int32"),
        )),
    )),
    Schema("DescribeLogDirsResponse", 35, "0-4", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16", "3+", ignorable=True),
        Field("results", "[]DescribeLogDirsResult", fields=(
            Field("error_code", "int16"),
            Field("log_dir", "string"),
            Field("topics", "[]DescribeLogDirsTopic", fields=(
                Field("name", "string"),
                Field("partitions", "[]DescribeLogDirsPartition", fields=(
                    Field("partition_index", "int32"),
                    Field("partition_size", "int64"),
                    Field("offset_lag", "int64"),
                    Field("is_future_key", "bool"),
                )),
            )),
            Field("total_bytes", "int64", "4+", default=-1, ignorable=True),
            Field("usable_bytes", "int64", "4+", default=-1, ignorable=True),
        )),
    )),
)  # fmt: skip
