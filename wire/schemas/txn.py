"""Producers and their transactions: InitProducerId (key 22), DescribeProducers (61), DescribeTransactions (65),
ListTransactions (66).

InitProducerId: a producer id and epoch, for idempotent and for transactional producers (KIP-98); v2 flexible; v3 the
current id and epoch of the producer, to recover from an error (KIP-360); v4 the client supports PRODUCER_FENCED; v5 it
supports TRANSACTION_ABORTABLE (KIP-890). The others are for administrators (KIP-664); ListTransactions v1 filters by
duration (KIP-994).
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("InitProducerIdRequest", 22, "0-5", "2+", (
        Field("transactional_id", "string", nullable="0+"),
        Field("transaction_timeout_ms", "int32"),
        Field("producer_id", "int64", "3+", default=-1),
        Field("producer_epoch", "int16", "3+", default=-1),
    )),
    Schema("InitProducerIdResponse", 22, "0-5", "2+", (
        Field("throttle_time_ms", "int32", ignorable=True),
        Field("error_code", "int16"),
        Field("producer_id", "int64", default=-1),
        Field("producer_epoch", "int16"),
    )),
    Schema("DescribeProducersRequest", 61, "0", "0+", (
        Field("topics", "[]TopicRequest", fields=(
            Field("name", "string"),
            Field("partition_indexes", "[]int32"),
        )),
    )),
    Schema("DescribeProducersResponse", 61, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("topics", "[]TopicResponse", fields=(
            Field("name", "string"),
            Field("partitions", "[]PartitionResponse", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("error_message", "string", nullable="0+", default=None),
                Field("active_producers", "[]ProducerState", fields=(
                    Field("producer_id", "int64"),
                    Field("producer_epoch", "int32"),
                    Field("last_sequence", "int32", default=-1),
                    Field("last_timestamp", "int64", default=-1),
                    Field("coordinator_epoch", "int32"),
                    Field("current_txn_start_offset", "int64", default=-1),
                )),
            )),
        )),
    )),
    Schema("DescribeTransactionsRequest", 65, "0", "0+", (
        Field("transactional_ids", "[]string"),
    )),
    Schema("DescribeTransactionsResponse", 65, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("transaction_states", "[]TransactionState", fields=(
            Field("error_code", "int16"),
            Field("transactional_id", "string"),
            Field("transaction_state", "string"),
            Field("transaction_timeout_ms", "int32"),
            Field("transaction_start_time_ms", "int64"),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("topics", "[]TopicData", fields=(
                Field("topic", "string"),
                Field("partitions", "[]int32"),
            )),
        )),
    )),
    Schema("ListTransactionsRequest", 66, "0-1", "0+", (
        Field("state_filters", "[]string"),
        Field("producer_id_filters", "[]int64"),
        Field("duration_filter", "int64", "1+", default=-1),
    )),
    Schema("ListTransactionsResponse", 66, "0-1", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("unknown_state_filters", "[]string"),
        Field("transaction_states", "[]TransactionState", fields=(
            Field("transactional_id", "string"),
            Field("producer_id", "int64"),
            Field("transaction_state", "string"),
        )),
    )),
)  # fmt: skip
