"""InitProducerId (key 22): a producer id and epoch, for idempotent and for transactional producers (KIP-98).

v2 flexible; v3 the id and epoch that the producer has, to recover from an error (KIP-360); v4 the client knows
PRODUCER_FENCED; v5 it knows TRANSACTION_ABORTABLE (KIP-890).
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
)  # fmt: skip
