"""Offsets of a log: ListOffsets (key 2) by time, OffsetForLeaderEpoch (key 23) by leader epoch, and DeleteRecords
(key 21), which raises the log start offset.

ListOffsets: v1 one offset and its timestamp instead of a list (KIP-79); v2 isolation level (KIP-98); v4 leader epochs
(KIP-320); v6 flexible; v7, v8 and v9 add the special timestamps -3 (KIP-734), -4 (KIP-405) and -5 (KIP-1005).
OffsetForLeaderEpoch: v1 the epoch that was found (KIP-279); v2 current leader epoch (KIP-320); v3 replica id, for
requests of consumers (KIP-320); v4 flexible.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("ListOffsetsRequest", 2, "0-9", "6+", (
        Field("replica_id", "int32"),
        Field("isolation_level", "int8", "2+"),
        Field("topics", "[]ListOffsetsTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]ListOffsetsPartition", fields=(
                Field("partition_index", "int32"),
                Field("current_leader_epoch", "int32", "4+", default=-1, ignorable=True),
                Field("timestamp", "int64"),
                Field("max_num_offsets", "int32", "0", default=1),
            )),
        )),
    )),
    Schema("ListOffsetsResponse", 2, "0-9", "6+", (
        Field("throttle_time_ms", "int32", "2+", ignorable=True),
        Field("topics", "[]ListOffsetsTopicResponse", fields=(
            Field("name", "string"),
            Field("partitions", "[]ListOffsetsPartitionResponse", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("old_style_offsets", "[]int64", "0"),
                Field("timestamp", "int64", "1+", default=-1),
                Field("offset", "int64", "1+", default=-1),
                Field("leader_epoch", "int32", "4+", default=-1),
            )),
        )),
    )),
    Schema("OffsetForLeaderEpochRequest", 23, "0-4", "4+", (
        Field("replica_id", "int32", "3+", default=-2, ignorable=True),
        Field("topics", "[]OffsetForLeaderTopic", fields=(
            Field("topic", "string"),
            Field("partitions", "[]OffsetForLeaderPartition", fields=(
                Field("partition", "int32"),
                Field("current_leader_epoch", "int32", "2+", default=-1, ignorable=True),
                Field("leader_epoch", "int32"),
            )),
        )),
    )),
    Schema("OffsetForLeaderEpochResponse", 23, "0-4", "4+", (
        Field("throttle_time_ms", "int32", "2+", ignorable=True),
        Field("topics", "[]OffsetForLeaderTopicResult", fields=(
            Field("topic", "string"),
            Field("partitions", "[]EpochEndOffset", fields=(
                Field("error_code", "int16"),
                Field("partition", "int32"),
                Field("leader_epoch", "int32", "1+", default=-1, ignorable=True),
                Field("end_offset", "int64", default=-1),
            )),
        )),
    )),
    Schema("DeleteRecordsRequest", 21, "0-2", "2+", (
        Field("topics", "[]DeleteRecordsTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]DeleteRecordsPartition", fields=(
                Field("partition_index", "int32"),
                Field("offset", "int64"),
            )),
        )),
        Field("timeout_ms", "int32"),
    )),
    Schema("DeleteRecordsResponse", 21, "0-2", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("topics", "[]DeleteRecordsTopicResult", fields=(
            Field("name", "string"),
            Field("partitions", "[]DeleteRecordsPartitionResult", fields=(
                Field("partition_index", "int32"),
                Field("low_watermark", "int64"),
                Field("error_code", "int16"),
            )),
        )),
    )),
)  # fmt: skip
