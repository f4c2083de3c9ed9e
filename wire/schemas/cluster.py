"""The cluster as a whole: ElectLeaders (key 43), UpdateFeatures (57), DescribeCluster (60).

ElectLeaders: v0 only preferred leaders (KIP-183); v1 type of the election (KIP-460), and an error for the whole
response; v2 flexible. UpdateFeatures (KIP-584): v1 how a level may change, and validate only (KIP-778). DescribeCluster
(KIP-700): v1 brokers or controllers (KIP-919).
"""

from barnabas.wire.schema import Field, Schema

SCHEMAS = (
    Schema("ElectLeadersRequest", 43, "0-2", "2+", (
        Field("election_type", "int8", "1+"),
        Field("topic_partitions", "[]TopicPartitions", nullable="0+", fields=(
            Field("topic", "string"),
            Field("partitions", "[]int32"),
        )),
        Field("timeout_ms", "int32", default=60000),
    )),
    Schema("ElectLeadersResponse", 43, "0-2", "2+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16", "1+"),
        Field("replica_election_results", "[]ReplicaElectionResult", fields=(
            Field("topic", "string"),
            Field("partition_result", "[]PartitionResult", fields=(
                Field("partition_id", "int32"),
                Field("error_code", "int16"),
                Field("error_message", "string", nullable="0+", ignorable=True),
            )),
        )),
    )),
    Schema("UpdateFeaturesRequest", 57, "0-1", "0+", (
        Field("timeout_ms", "int32", default=60000),
        Field("feature_updates", "[]FeatureUpdateKey", fields=(
            Field("feature", "string"),
            Field("max_version_level", "int16"),
            Field("allow_downgrade", "bool", "0"),
            Field("upgrade_type", "int8", "1+", default=1),
        )),
        Field("validate_only", "bool", "1+"),
    )),
    Schema("UpdateFeaturesResponse", 57, "0-1", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+"),
        Field("results", "[]UpdatableFeatureResult", ignorable=True, fields=(
            Field("feature", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable="0+"),
        )),
    )),
    Schema("DescribeClusterRequest", 60, "0-1", "0+", (
        Field("include_cluster_authorized_operations", "bool"),
        Field("endpoint_type", "int8", "1+", default=1),
    )),
    Schema("DescribeClusterResponse", 60, "0-1", "0+", (
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable="0+", default=None),
        Field("endpoint_type", "int8", "1+", default=1),
        Field("cluster_id", "string"),
        Field("controller_id", "int32", default=-1),
        Field("brokers", "[]DescribeClusterBroker", fields=(
            Field("broker_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable="0+", default=None),
        )),
        Field("cluster_authorized_operations", "int32", default=-(1 << 31)),
    )),
)  # fmt: skip
