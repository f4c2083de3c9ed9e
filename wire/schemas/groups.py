"""Consumer groups of the classic protocol: offsets committed, coordinator lookup, membership, listing, deletion.

Versions that change more than a throttle time: OffsetCommit v1 generation and member, v2-4 retention time, v6 leader
epoch (KIP-320), v7 static members (KIP-345), v8 flexible, v9 member epoch in the place of the generation (KIP-848).
OffsetFetch v2 null = all topics, v6 flexible, v7 require stable (KIP-447), v8 several groups (KIP-709).
FindCoordinator v1 transactions, v3 flexible, v4 several keys (KIP-699). JoinGroup v1 rebalance timeout, v4 the member
id comes first (KIP-394), v5 static members, v6 flexible, v7 protocol type, v8 reason (KIP-800), v9 skip assignment.
LeaveGroup v3 several members. SyncGroup v5 protocol type and name (KIP-559). ListGroups v4 states, v5 types.
DeleteGroups v2 flexible (KIP-229). OffsetDelete is never flexible (KIP-496).
"""

from barnabas.wire.schema import Field, Schema

_NOT_ASKED = -(1 << 31)  # the value of authorized operations if the request does not include them

SCHEMAS = (
    Schema("OffsetCommitRequest", 8, "0-9", "8+", (
        Field("group_id", "string"),
        Field("generation_id_or_member_epoch", "int32", "1+", default=-1, ignorable=True),
        Field("member_id", "string", "1+", ignorable=True),
        Field("group_instance_id", "string", "7+", nullable="7+", default=None),
        Field("retention_time_ms", "int64", "2-4", default=-1, ignorable=True),
        Field("topics", "[]OffsetCommitRequestTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]OffsetCommitRequestPartition", fields=(
                Field("partition_index", "int32"),
                Field("committed_offset", "int64"),
                Field("committed_leader_epoch", "int32", "6+", default=-1, ignorable=True),
                Field("commit_timestamp", "int64", "1", default=-1),
                Field("committed_metadata", "string", nullable="0+"),
            )),
        )),
    )),
    Schema("OffsetCommitResponse", 8, "0-9", "8+", (
        Field("throttle_time_ms", "int32", "3+", ignorable=True),
        Field("topics", "[]OffsetCommitResponseTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]OffsetCommitResponsePartition", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
            )),
        )),
    )),
    Schema("OffsetFetchRequest", 9, "0-9", "6+", (
        Field("group_id", "string", "0-7"),
        Field("topics", "[]OffsetFetchRequestTopic", "0-7", nullable="2-7", fields=(
            Field("name", "string", "0-7"),
            Field("partition_indexes", "[]int32", "0-7"),
        )),
        Field("groups", "[]OffsetFetchRequestGroup", "8+", fields=(
            Field("group_id", "string", "8+"),
            Field("member_id", "string", "9+", nullable="9+", default=None, ignorable=True),
            Field("member_epoch", "int32", "9+", default=-1, ignorable=True),
            Field("topics", "[]OffsetFetchRequestTopics", "8+", nullable="8+", fields=(
                Field("name", "string", "8+"),
                Field("partition_indexes", "[]int32", "8+"),
            )),
        )),
        Field("require_stable", "bool", "7+"),
    )),
    Schema("OffsetFetchResponse", 9, "0-9", "6+", (
        Field("throttle_time_ms", "int32", "3+", ignorable=True),
        Field("topics", "[]OffsetFetchResponseTopic", "0-7", fields=(
            Field("name", "string", "0-7"),
            Field("partitions", "[]OffsetFetchResponsePartition", "0-7", fields=(
                Field("partition_index", "int32", "0-7"),
                Field("committed_offset", "int64", "0-7"),
                Field("committed_leader_epoch", "int32", "5-7", default=-1, ignorable=True),
                Field("metadata", "string", "0-7", nullable="0-7"),
                Field("error_code", "int16", "0-7"),
            )),
        )),
        Field("error_code", "int16", "2-7", ignorable=True),
        Field("groups", "[]OffsetFetchResponseGroup", "8+", fields=(
            Field("group_id", "string", "8+"),
            Field("topics", "[]OffsetFetchResponseTopics", "8+", fields=(
                Field("name", "string", "8+"),
                Field("partitions", "[]OffsetFetchResponsePartitions", "8+", fields=(
                    Field("partition_index", "int32", "8+"),
                    Field("committed_offset", "int64", "8+"),
                    Field("committed_leader_epoch", "int32", "8+", default=-1, ignorable=True),
                    Field("metadata", "string", "8+", nullable="8+"),
                    Field("error_code", "int16", "8+"),
                )),
            )),
            Field("error_code", "int16", "8+"),
        )),
    )),
    Schema("FindCoordinatorRequest", 10, "0-6", "3+", (
        Field("key", "string", "0-3"),
        Field("key_type", "int8", "1+"),
        Field("coordinator_keys", "[]string", "4+"),
    )),
    Schema("FindCoordinatorResponse", 10, "0-6", "3+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16", "0-3"),
        Field("error_message", "string", "1-3", nullable="1-3", ignorable=True),
        Field("node_id", "int32", "0-3"),
        Field("host", "string", "0-3"),
        Field("port", "int32", "0-3"),
        Field("coordinators", "[]Coordinator", "4+", fields=(
            Field("key", "string", "4+"),
            Field("node_id", "int32", "4+"),
            Field("host", "string", "4+"),
            Field("port", "int32", "4+"),
            Field("error_code", "int16", "4+"),
            Field("error_message", "string", "4+", nullable="4+", ignorable=True),
        )),
    )),
    Schema("JoinGroupRequest", 11, "0-9", "6+", (
        Field("group_id", "string"),
        Field("session_timeout_ms", "int32"),
        Field("rebalance_timeout_ms", "int32", "1+", default=-1, ignorable=True),
        Field("member_id", "string"),
        Field("group_instance_id", "string", "5+", nullable="5+", default=None),
        Field("protocol_type", "string"),
        Field("protocols", "[]JoinGroupRequestProtocol", fields=(
            Field("name", "string"),
            Field("metadata", "bytes"),
        )),
        Field("reason", "string", "8+", nullable="8+", default=None, ignorable=True),
    )),
    Schema("JoinGroupResponse", 11, "0-9", "6+", (
        Field("throttle_time_ms", "int32", "2+", ignorable=True),
        Field("error_code", "int16"),
        Field("generation_id", "int32", default=-1),
        Field("protocol_type", "string", "7+", nullable="7+", default=None, ignorable=True),
        Field("protocol_name", "string", nullable="7+"),
        Field("leader", "string"),
        Field("skip_assignment", "bool", "9+"),
        Field("member_id", "string"),
        Field("members", "[]JoinGroupResponseMember", fields=(
            Field("member_id", "string"),
            Field("group_instance_id", "string", "5+", nullable="5+", default=None, ignorable=True),
            Field("metadata", "bytes"),
        )),
    )),
    Schema("HeartbeatRequest", 12, "0-4", "4+", (
        Field("group_id", "string"),
        Field("generation_id", "int32"),
        Field("member_id", "string"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None),
    )),
    Schema("HeartbeatResponse", 12, "0-4", "4+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16"),
    )),
    Schema("LeaveGroupRequest", 13, "0-5", "4+", (
        Field("group_id", "string"),
        Field("member_id", "string", "0-2"),
        Field("members", "[]MemberIdentity", "3+", fields=(
            Field("member_id", "string", "3+"),
            Field("group_instance_id", "string", "3+", nullable="3+", default=None),
            Field("reason", "string", "5+", nullable="5+", default=None, ignorable=True),
        )),
    )),
    Schema("LeaveGroupResponse", 13, "0-5", "4+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16"),
        Field("members", "[]MemberResponse", "3+", fields=(
            Field("member_id", "string", "3+"),
            Field("group_instance_id", "string", "3+", nullable="3+"),
            Field("error_code", "int16", "3+"),
        )),
    )),
    Schema("SyncGroupRequest", 14, "0-5", "4+", (
        Field("group_id", "string"),
        Field("generation_id", "int32"),
        Field("member_id", "string"),
        Field("group_instance_id", "string", "3+", nullable="3+", default=None),
        Field("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("assignments", "[]SyncGroupRequestAssignment", fields=(
            Field("member_id", "string"),
            Field("assignment", "bytes"),
        )),
    )),
    Schema("SyncGroupResponse", 14, "0-5", "4+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16"),
        Field("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
        Field("assignment", "bytes"),
    )),
    Schema("DescribeGroupsRequest", 15, "0-5", "5+", (
        Field("groups", "[]string"),
        Field("include_authorized_operations", "bool", "3+"),
    )),
    Schema("DescribeGroupsResponse", 15, "0-5", "5+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("groups", "[]DescribedGroup", fields=(
            Field("error_code", "int16"),
            Field("group_id", "string"),
            Field("group_state", "string"),
            Field("protocol_type", "string"),
            Field("protocol_data", "string"),
            Field("members", "[]DescribedGroupMember", fields=(
                Field("member_id", "string"),
                Field("group_instance_id", "string", "4+", nullable="4+", default=None, ignorable=True),
                Field("client_id", "string"),
                Field("client_host", "string"),
                Field("member_metadata", "bytes"),
                Field("member_assignment", "bytes"),
            )),
            Field("authorized_operations", "int32", "3+", default=_NOT_ASKED),
        )),
    )),
    Schema("ListGroupsRequest", 16, "0-5", "3+", (
        Field("states_filter", "[]string", "4+"),
        Field("types_filter", "[]string", "5+"),
    )),
    Schema("ListGroupsResponse", 16, "0-5", "3+", (
        Field("throttle_time_ms", "int32", "1+", ignorable=True),
        Field("error_code", "int16"),
        Field("groups", "[]ListedGroup", fields=(
            Field("group_id", "string"),
            Field("protocol_type", "string"),
            Field("group_state", "string", "4+", ignorable=True),
            Field("group_type", "string", "5+", ignorable=True),
        )),
    )),
    Schema("DeleteGroupsRequest", 42, "0-2", "2+", (
        Field("groups_names", "[]string"),
    )),
    Schema("DeleteGroupsResponse", 42, "0-2", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("results", "[]DeletableGroupResult", fields=(
            Field("group_id", "string"),
            Field("error_code", "int16"),
        )),
    )),
    Schema("OffsetDeleteRequest", 47, "0", None, (
        Field("group_id", "string"),
        Field("topics", "[]OffsetDeleteRequestTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]OffsetDeleteRequestPartition", fields=(
                Field("partition_index", "int32"),
            )),
        )),
    )),
    Schema("OffsetDeleteResponse", 47, "0", None, (
        Field("error_code", "int16"),
        Field("throttle_time_ms", "int32", ignorable=True),
        Field("topics", "[]OffsetDeleteResponseTopic", fields=(
            Field("name", "string"),
            Field("partitions", "[]OffsetDeleteResponsePartition", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
            )),
        )),
    )),
)  # fmt: skip
