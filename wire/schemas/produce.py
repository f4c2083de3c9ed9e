"""Produce (key 0): append record batches to partitions.

v3 transactional id and magic 2 only (KIP-98); v7 zstd (KIP-110); v8 errors for single records (KIP-467); v9 flexible;
v10 the new leader in the response (KIP-951); v11 the client supports TRANSACTION_ABORTABLE (KIP-890).
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("ProduceRequest", 0, "0-11", "9+", (
        Field("transactional_id", "string", "3+", nullable="3+", default=None),
        Field("acks", "int16"),
        Field("timeout_ms", "int32"),
        Field("topic_data", "[]TopicProduceData", fields=(
            Field("name", "string"),
            Field("partition_data", "[]PartitionProduceData", fields=(
                Field("index", "int32"),
                Field("records", "records", nullable="0+"),
            )),
        )),
    )),
    Schema("ProduceResponse", 0, "0-11", "9+", (
        Field("responses", "[]TopicProduceResponse", fields=(
            Field("name", "string"),
            Field("partition_responses", "[]PartitionProduceResponse", fields=(
                Field("index", "int32"),
                Field("error_code", "int16"),
                Field("base_offset", "int64"),
                Field("log_append_time_ms", "int64", "2+", default=-1, ignorable=True),
                Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
                Field("record_errors", "[]BatchIndexAndErrorMessage", "8+", ignorable=True, fields=(
                    Field("batch_index", "int32", "8+"),
                    Field("batch_index_error_message", "string", "8+", nullable="8+", default=None),
                )),
                Field("error_message", "string", "8+", nullable="8+", default=None, ignorable=True),
                Field("current_leader", "LeaderIdAndEpoch", "10+", tag=0, fields=(
                    Field("leader_id", "int32", "10+", default=-1),
                    Field("leader_epoch", "int32", "10+", default=-1),
                )),
            )),
        )),
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("node_endpoints", "[]NodeEndpoint", "10+", tag=0, fields=(
            Field("node_id", "int32", "10+"),
            Field("host", "string", "10+"),
            Field("port", "int32", "10+"),
            Field("rack", "string", "10+", nullable="10+", default=None),
        )),
    )),
)  # fmt: skip
