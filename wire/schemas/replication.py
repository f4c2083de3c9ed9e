"""Requests between brokers and the controller (reference kafka-internals, B.7).

Controller to broker: LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6). Broker to controller: ControlledShutdown
(7), AlterPartition (56), AllocateProducerIds (67). The broker epoch came with KIP-380, grouping by topic with KIP-380
and 570, topic ids with KIP-516, the recovery state of a leader with KIP-704, the KRaft flag with the migration of
KIP-866, ISR members with their broker epochs (AlterPartition v3) with KIP-903.
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("LeaderAndIsrRequest", 4, "0-7", "4+", (
        Field("controller_id", "int32"),
        Field("is_kraft_controller", "bool", "7+"),
        Field("controller_epoch", "int32"),
        Field("broker_epoch", "int64", "2+", default=-1, ignorable=True),
        Field("type", "int8", "5+"),
        Field("ungrouped_partition_states", "[]LeaderAndIsrPartitionState", "0-1"),
        Field("topic_states", "[]LeaderAndIsrTopicState", "2+", fields=(
            Field("topic_name", "string", "2+"),
            Field("topic_id", "uuid", "5+", ignorable=True),
            Field("partition_states", "[]LeaderAndIsrPartitionState", "2+"),
        )),
        Field("live_leaders", "[]LeaderAndIsrLiveLeader", fields=(
            Field("broker_id", "int32"),
            Field("host_name", "string"),
            Field("port", "int32"),
        )),
    ), structs=(
        ("LeaderAndIsrPartitionState", (
            Field("topic_name", "string", "0-1", ignorable=True),
            Field("partition_index", "int32"),
            Field("controller_epoch", "int32"),
            Field("leader", "int32"),
            Field("leader_epoch", "int32"),
            Field("isr", "[]int32"),
            Field("partition_epoch", "int32"),
            Field("replicas", "[]int32"),
            Field("adding_replicas", "[]int32", "3+", ignorable=True),
            Field("removing_replicas", "[]int32", "3+", ignorable=True),
            Field("is_new", "bool", "1+", ignorable=True),
            Field("leader_recovery_state", "int8", "6+"),
        )),
    )),
    Schema("LeaderAndIsrResponse", 4, "0-7", "4+", (
        Field("error_code", "int16"),
        Field("partition_errors", "[]LeaderAndIsrPartitionError", "0-4"),
        Field("topics", "[]LeaderAndIsrTopicError", "5+", fields=(
            Field("topic_id", "uuid", "5+"),
            Field("partition_errors", "[]LeaderAndIsrPartitionError", "5+"),
        )),
    ), structs=(
        ("LeaderAndIsrPartitionError", (
            Field("topic_name", "string", "0-4", ignorable=True),
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        )),
    )),
    Schema("StopReplicaRequest", 5, "0-4", "2+", (
        Field("controller_id", "int32"),
        Field("is_kraft_controller", "bool", "4+"),
        Field("controller_epoch", "int32"),
        Field("broker_epoch", "int64", "1+", default=-1, ignorable=True),
        Field("delete_partitions", "bool", "0-2"),
        Field("ungrouped_partitions", "[]StopReplicaPartitionV0", "0", fields=(
            Field("topic_name", "string", "0"),
            Field("partition_index", "int32", "0"),
        )),
        Field("topics", "[]StopReplicaTopicV1", "1-2", fields=(
            Field("name", "string", "1-2"),
            Field("partition_indexes", "[]int32", "1-2"),
        )),
        Field("topic_states", "[]StopReplicaTopicState", "3+", fields=(
            Field("topic_name", "string", "3+"),
            Field("partition_states", "[]StopReplicaPartitionState", "3+", fields=(
                Field("partition_index", "int32", "3+"),
                Field("leader_epoch", "int32", "3+", default=-1),
                Field("delete_partition", "bool", "3+"),
            )),
        )),
    )),
    Schema("StopReplicaResponse", 5, "0-4", "2+", (
        Field("error_code", "int16"),
        Field("partition_errors", "[]StopReplicaPartitionError", fields=(
            Field("topic_name", "string"),
            Field("partition_index", "int32"),
            Field("error_code", "int16"),
        )),
    )),
    Schema("UpdateMetadataRequest", 6, "0-8", "6+", (
        Field("controller_id", "int32"),
        Field("is_kraft_controller", "bool", "8+"),
        Field("type", "int8", "8+", tag=0),
        Field("controller_epoch", "int32"),
        Field("broker_epoch", "int64", "5+", default=-1, ignorable=True),
        Field("ungrouped_partition_states", "[]UpdateMetadataPartitionState", "0-4"),
        Field("topic_states", "[]UpdateMetadataTopicState", "5+", fields=(
            Field("topic_name", "string", "5+"),
            Field("topic_id", "uuid", "7+", ignorable=True),
            Field("partition_states", "[]UpdateMetadataPartitionState", "5+"),
        )),
        Field("live_brokers", "[]UpdateMetadataBroker", fields=(
            Field("id", "int32"),
            Field("v0_host", "string", "0", ignorable=True),
            Field("v0_port", "int32", "0", ignorable=True),
            Field("endpoints", "[]UpdateMetadataEndpoint", "1+", ignorable=True, fields=(
                Field("port", "int32", "1+"),
                Field("host", "string", "1+"),
                Field("listener", "string", "3+", ignorable=True),
                Field("security_protocol", "int16", "1+"),
            )),
            Field("rack", "string", "2+", nullable="0+", ignorable=True),
        )),
    ), structs=(
        ("UpdateMetadataPartitionState", (
            Field("topic_name", "string", "0-4", ignorable=True),
            Field("partition_index", "int32"),
            Field("controller_epoch", "int32"),
            Field("leader", "int32"),
            Field("leader_epoch", "int32"),
            Field("isr", "[]int32"),
            Field("zk_version", "int32"),
            Field("replicas", "[]int32"),
            Field("offline_replicas", "[]int32", "4+", ignorable=True),
        )),
    )),
    Schema("UpdateMetadataResponse", 6, "0-8", "6+", (
        Field("error_code", "int16"),
    )),
    Schema("ControlledShutdownRequest", 7, "0-3", "3+", (
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64", "2+", default=-1, ignorable=True),
    )),
    Schema("ControlledShutdownResponse", 7, "0-3", "3+", (
        Field("error_code", "int16"),
        Field("remaining_partitions", "[]RemainingPartition", fields=(
            Field("topic_name", "string"),
            Field("partition_index", "int32"),
        )),
    )),
    Schema("AlterPartitionRequest", 56, "0-3", "0+", (
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64", default=-1),
        Field("topics", "[]TopicData", fields=(
            Field("topic_name", "string", "0-1", ignorable=True),
            Field("topic_id", "uuid", "2+", ignorable=True),
            Field("partitions", "[]PartitionData", fields=(
                Field("partition_index", "int32"),
                Field("leader_epoch", "int32"),
                # These two are ignorable, unlike Kafka's: the sender fills both, because the
                # version is negotiated only afterwards.
                Field("new_isr", "[]int32", "0-2", ignorable=True),
                Field("new_isr_with_epochs", "[]BrokerState", "3+", ignorable=True, fields=(
                    Field("broker_id", "int32", "3+"),
                    Field("broker_epoch", "int64", "3+", default=-1),
                )),
                Field("leader_recovery_state", "int8", "1+"),
                Field("partition_epoch", "int32"),
            )),
        )),
    )),
    Schema("AlterPartitionResponse", 56, "0-3", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("topics", "[]TopicData", fields=(
            Field("topic_name", "string", "0-1", ignorable=True),
            Field("topic_id", "uuid", "2+", ignorable=True),
            Field("partitions", "[]PartitionData", fields=(
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("leader_id", "int32"),
                Field("leader_epoch", "int32"),
                Field("isr", "[]int32"),
                Field("leader_recovery_state", "int8", "1+", ignorable=True),
                Field("partition_epoch", "int32"),
            )),
        )),
    )),
    Schema("AllocateProducerIdsRequest", 67, "0", "0+", (
        Field("broker_id", "int32"),
        Field("broker_epoch", "int64", default=-1),
    )),
    Schema("AllocateProducerIdsResponse", 67, "0", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("producer_id_start", "int64"),
        Field("producer_id_len", "int32"),
    )),
)  # fmt: skip
