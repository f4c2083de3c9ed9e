"""Keys and values of the records in `__consumer_offsets` (reference kafka-internals, E.2).

An int16 version precedes each key and value and is not part of the message here. Key versions 0 and 1 are offset
commits, 2 is the metadata of a group.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("OffsetCommitKey", None, "0-1", None, (
        Field("group", "string"),
        Field("topic", "string"),
        Field("partition", "int32"),
    )),
    Schema("OffsetCommitValue", None, "0-4", "4+", (
        Field("offset", "int64"),
        Field("leader_epoch", "int32", "3+", default=-1, ignorable=True),
        Field("metadata", "string"),
        Field("commit_timestamp", "int64"),
        Field("expire_timestamp", "int64", "1", default=-1, ignorable=True),
    )),
    Schema("GroupMetadataKey", None, "2", None, (
        Field("group", "string", "2"),
    )),
    Schema("GroupMetadataValue", None, "0-4", "4+", (
        Field("protocol_type", "string"),
        Field("generation", "int32"),
        Field("protocol", "string", nullable="0+"),
        Field("leader", "string", nullable="0+"),
        Field("current_state_timestamp", "int64", "2+", default=-1, ignorable=True),
        Field("members", "[]MemberMetadata", fields=(
            Field("member_id", "string"),
            Field("group_instance_id", "string", "3+", nullable="3+", default=None, ignorable=True),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("rebalance_timeout", "int32", "1+", default=-1, ignorable=True),
            Field("session_timeout", "int32"),
            Field("subscription", "bytes"),
            Field("assignment", "bytes"),
        )),
    )),
)  # fmt: skip
