"""The metadata in JoinGroup and the assignments in SyncGroup of the protocol type "consumer".

The broker passes these bytes on unchanged; it reads the subscription only to find the topics that a group still uses.
An int16 version precedes them and is not part of the message here; a reader parses a newer version as the newest one it
has. v1 owned partitions (KIP-429), v2 generation (KIP-792), v3 rack (KIP-881).
"""

from barnabas.wire.schema import Field, Schema

_TOPIC_PARTITION = (
    Field("topic", "string"),
    Field("partitions", "[]int32"),
)

SCHEMAS = (
    Schema("ConsumerProtocolSubscription", None, "0-3", None, (
        Field("topics", "[]string"),
        Field("user_data", "bytes", nullable="0+", default=None),
        Field("owned_partitions", "[]TopicPartition", "1+", ignorable=True, fields=_TOPIC_PARTITION),
        Field("generation_id", "int32", "2+", default=-1, ignorable=True),
        Field("rack_id", "string", "3+", nullable="3+", default=None, ignorable=True),
    )),
    Schema("ConsumerProtocolAssignment", None, "0-3", None, (
        Field("assigned_partitions", "[]TopicPartition", fields=_TOPIC_PARTITION),
        Field("user_data", "bytes", nullable="0+", default=None),
    )),
)  # fmt: skip
