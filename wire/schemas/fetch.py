"""Fetch (key 1): read record batches, as a consumer or as a follower.

v3 a limit for the whole response (KIP-74); v4 isolation level and aborted transactions (KIP-98); v5 log start offset
(KIP-107); v7 fetch sessions (KIP-227); v9 leader epoch check (KIP-320); v10 zstd (KIP-110); v11 read from the closest
replica (KIP-392); v12 flexible, and truncation by the epoch last fetched (KIP-595); v13 topic ids instead of names
(KIP-516); v15 the follower's broker epoch (KIP-903); v16 the new leader's endpoint (KIP-951); v17 directory ids.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("FetchRequest", 1, "0-17", "12+", (
        Field("cluster_id", "string", "12+", nullable="12+", default=None, tag=0, ignorable=True),
        Field("replica_id", "int32", "0-14", default=-1),
        Field("replica_state", "ReplicaState", "15+", tag=1, fields=(
            Field("replica_id", "int32", "15+", default=-1),
            Field("replica_epoch", "int64", "15+", default=-1),
        )),
        Field("max_wait_ms", "int32"),
        Field("min_bytes", "int32"),
        Field("max_bytes", "int32", "3+", default=0x7FFFFFFF, ignorable=True),
        Field("isolation_level", "int8", "4+", ignorable=True),
        Field("session_id", "int32", "7+", ignorable=True),
        Field("session_epoch", "int32", "7+", default=-1, ignorable=True),
        Field("topics", "[]FetchTopic", fields=(
            Field("topic", "string", "0-12", ignorable=True),
            Field("topic_id", "uuid", "13+", ignorable=True),
            Field("partitions", "[]FetchPartition", fields=(
                Field("partition", "int32"),
                Field("current_leader_epoch", "int32", "9+", default=-1, ignorable=True),
                Field("fetch_offset", "int64"),
                Field("last_fetched_epoch", "int32", "12+", default=-1),
                Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
                Field("partition_max_bytes", "int32"),
                Field("replica_directory_id", "uuid", "17+", tag=0, ignorable=True),
            )),
        )),
        Field("forgotten_topics_data", "[]ForgottenTopic", "7+", fields=(
            Field("topic", "string", "7-12", ignorable=True),
            Field("topic_id", "uuid", "13+", ignorable=True),
            Field("partitions", "[]int32", "7+"),
        )),
        Field("rack_id", "string", "11+", ignorable=True),
    )),
    Schema("FetchResponse", 1, "0-17", "12+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16", "7+", ignorable=True),
        Field("session_id", "int32", "7+"),
        Field("responses", "[]FetchableTopicResponse", fields=(
            Field("topic", "string", "0-12", ignorable=True),
            Field("topic_id", "uuid", "13+", ignorable=True),
            Field("partitions", "[]PartitionData", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("high_watermark", "int64"),
                Field("last_stable_offset", "int64", "4+", default=-1, ignorable=True),
                Field("log_start_offset", "int64", "5+", default=-1, ignorable=True),
                Field("diverging_epoch", "EpochEndOffset", "12+", tag=0, fields=(
                    Field("epoch", "int32", "12+", default=-1),
                    Field("end_offset", "int64", "12+", default=-1),
                )),
                Field("current_leader", "LeaderIdAndEpoch", "12+", tag=1, fields=(
                    Field("leader_id", "int32", "12+", default=-1),
                    Field("leader_epoch", "int32", "12+", default=-1),
                )),
                Field("snapshot_id", "SnapshotId", "12+", tag=2, fields=(
                    Field("end_offset", "int64", default=-1),
                    Field("epoch", "int32", default=-1),
                )),
                Field("aborted_transactions", "[]AbortedTransaction", "4+", nullable="4+", ignorable=True, fields=(
                    Field("producer_id", "int64", "4+"),
                    Field("first_offset", "int64", "4+"),
                )),
                Field("preferred_read_replica", "int32", "11+", default=-1),
                Field("records", "records", nullable="0+"),
            )),
        )),
        Field("node_endpoints", "[]NodeEndpoint", "16+", tag=0, fields=(
            Field("node_id", "int32", "16+"),
            Field("host", "string", "16+"),
            Field("port", "int32", "16+"),
            Field("rack", "string", "16+", nullable="16+", default=None),
        )),
    )),
)  # fmt: skip
