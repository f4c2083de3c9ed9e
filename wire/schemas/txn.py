"""Producers and their transactions: InitProducerId (key 22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn
(26), WriteTxnMarkers (27), TxnOffsetCommit (28), DescribeProducers (61), DescribeTransactions (65), ListTransactions
(66).

InitProducerId: a producer id and epoch, for idempotent and for transactional producers (KIP-98); v2 flexible; v3 the
current id and epoch of the producer, to recover from an error (KIP-360); v4 the client supports PRODUCER_FENCED; v5 it
supports TRANSACTION_ABORTABLE (KIP-890). AddPartitionsToTxn: v4 and v5 are for brokers, with several transactions, and
can ask instead of add (KIP-890). WriteTxnMarkers: from the transaction coordinator to the leaders of partitions.
TxnOffsetCommit: v3 the member of the group (KIP-447). The last three are for administrators (KIP-664);
ListTransactions v1 filters by duration (KIP-994).
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
    Schema("AddPartitionsToTxnRequest", 24, "0-5", "3+", (
        Field("transactions", "[]AddPartitionsToTxnTransaction", "4+", fields=(
            Field("transactional_id", "string", "4+"),
            Field("producer_id", "int64", "4+"),
            Field("producer_epoch", "int16", "4+"),
            Field("verify_only", "bool", "4+", default=False),
            Field("topics", "[]AddPartitionsToTxnTopic", "4+"),
        )),
        Field("v3_and_below_transactional_id", "string", "0-3"),
        Field("v3_and_below_producer_id", "int64", "0-3"),
        Field("v3_and_below_producer_epoch", "int16", "0-3"),
        Field("v3_and_below_topics", "[]AddPartitionsToTxnTopic", "0-3"),
    ), (
        ("AddPartitionsToTxnTopic", (
            Field("name", "string"),
            Field("partitions", "[]int32"),
        )),
    )),
    Schema("AddPartitionsToTxnResponse", 24, "0-5", "3+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16", "4+", ignorable=True),
        Field("results_by_transaction", "[]AddPartitionsToTxnResult", "4+", fields=(
            Field("transactional_id", "string", "4+"),
            Field("topic_results", "[]AddPartitionsToTxnTopicResult", "4+"),
        )),
        Field("results_by_topic_v3_and_below", "[]AddPartitionsToTxnTopicResult", "0-3"),
    ), (
        ("AddPartitionsToTxnTopicResult", (
            Field("name", "string"),
            Field("results_by_partition", "[]AddPartitionsToTxnPartitionResult"),
        )),
        ("AddPartitionsToTxnPartitionResult", (
            Field("partition_index", "int32"),
            Field("partition_error_code", "int16"),
        )),
    )),
    Schema("AddOffsetsToTxnRequest", 25, "0-4", "3+", (
        Field("transactional_id", "string"),
        Field("producer_id", "int64"),
        Field("producer_epoch", "int16"),
        Field("group_id", "string"),
    )),
    Schema("AddOffsetsToTxnResponse", 25, "0-4", "3+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
    )),
    Schema("EndTxnRequest", 26, "0-4", "3+", (
        Field("transactional_id", "string"),
        Field("producer_id", "int64"),
        Field("producer_epoch", "int16"),
        Field("committed", "bool"),
    )),
    Schema("EndTxnResponse", 26, "0-4", "3+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
    )),
    Schema("WriteTxnMarkersRequest", 27, "0-1", "1+", (
        Field("markers", "[]WritableTxnMarker", fields=(
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("transaction_result", "bool"),
            Field("topics", "[]WritableTxnMarkerTopic", fields=(
                Field("name", "string"),
                Field("partition_indexes", "[]int32"),
            )),
            Field("coordinator_epoch", "int32"),
        )),
    )),
    Schema("WriteTxnMarkersResponse", 27, "0-1", "1+", (
        Field("markers", "[]WritableTxnMarkerResult", fields=(
            Field("producer_id", "int64"),
            Field("topics", "[]WritableTxnMarkerTopicResult", fields=(
                Field("name", "string"),
                Field("partitions", "[]WritableTxnMarkerPartitionResult", fields=(
                    Field("partition_index", "int32"),
                    Field("error_code", "int16"),
                )),
            )),
        )),
    )),
    Schema("TxnOffsetCommitRequest", 28, "0-4", "3+", (
        Field("transactional_id", "string"),
        Field("group_id", "string"),
        Field("producer_id", "int64"),
        Field("producer_epoch", "int16"),
        Field("generation_id", "int32", "3+", default=-1),
        Field("member_id", "string", "3+"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None),
        Field("topics", "[]TxnOffsetCommitRequestTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]TxnOffsetCommitRequestPartition", fields=(
                Field("partition_index", "int32"),
                Field("committed_offset", "int64"),
                Field("committed_leader_epoch", "int32", "2+", default=-1, ignorable=True),
                Field("committed_metadata", "string", nullable="0+"),
            )),
        )),
    )),
    Schema("TxnOffsetCommitResponse", 28, "0-4", "3+", (
        Field("throttle_time_ms", "int32"),
        Field("topics", "[]TxnOffsetCommitResponseTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]TxnOffsetCommitResponsePartition", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
            )),
        )),
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
