"""Keys and values of the records in `__transaction_state` (reference transactions, T.2).

An int16 version precedes each key and value and is not part of the message here. Value version 1 is written where the
feature transaction.version is 1 or higher, which needs KRaft.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("TransactionLogKey", None, "0", None, (
        Field("transactional_id", "string"),
    )),
    Schema("TransactionLogValue", None, "0-1", "1+", (
        Field("producer_id", "int64"),
        Field("previous_producer_id", "int64", "1+", default=-1, tag=0),
        Field("next_producer_id", "int64", "1+", default=-1, tag=1),
        Field("producer_epoch", "int16"),
        Field("transaction_timeout_ms", "int32"),
        Field("transaction_status", "int8"),
        Field("transaction_partitions", "[]PartitionsSchema", nullable="0+", fields=(
            Field("topic", "string"),
            Field("partition_ids", "[]int32"),
        )),
        Field("transaction_last_update_timestamp_ms", "int64"),
        Field("transaction_start_timestamp_ms", "int64"),
        Field("client_transaction_version", "int16", "1+", default=0, tag=2),
    )),
)  # fmt: skip
