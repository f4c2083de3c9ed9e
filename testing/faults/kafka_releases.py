"""The versions of each API in older releases of Apache Kafka, brokers with ZooKeeper (pure).

Every API has the versions from 0 up to the one that is listed; a release that is not named has those of the release
before it.
"""

from barnabas.testing.errors import FaultError

RELEASES = ("2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9")

# API key -> (release, the newest version of the API from this release on).
NEWEST_VERSIONS: dict[int, tuple[tuple[str, int], ...]] = {
    0: (("2.8", 9), ("3.7", 10), ("3.8", 11)),  # Produce
    1: (("2.8", 12), ("3.1", 13), ("3.5", 15), ("3.7", 16), ("3.9", 17)),  # Fetch
    2: (("2.8", 6), ("3.0", 7), ("3.5", 8), ("3.9", 9)),  # ListOffsets
    3: (("2.8", 11), ("3.1", 12)),  # Metadata
    4: (("2.8", 5), ("3.2", 6), ("3.4", 7)),  # LeaderAndIsr
    5: (("2.8", 3), ("3.4", 4)),  # StopReplica
    6: (("2.8", 7), ("3.4", 8)),  # UpdateMetadata
    7: (("2.8", 3),),  # ControlledShutdown
    8: (("2.8", 8), ("3.7", 9)),  # OffsetCommit
    9: (("2.8", 7), ("3.0", 8), ("3.7", 9)),  # OffsetFetch
    10: (("2.8", 3), ("3.0", 4), ("3.8", 5), ("3.9", 6)),  # FindCoordinator
    11: (("2.8", 7), ("3.2", 9)),  # JoinGroup
    12: (("2.8", 4),),  # Heartbeat
    13: (("2.8", 4), ("3.2", 5)),  # LeaveGroup
    14: (("2.8", 5),),  # SyncGroup
    15: (("2.8", 5),),  # DescribeGroups
    16: (("2.8", 4), ("3.8", 5)),  # ListGroups
    17: (("2.8", 1),),  # SaslHandshake
    18: (("2.8", 3), ("3.9", 4)),  # ApiVersions
    19: (("2.8", 7),),  # CreateTopics
    20: (("2.8", 6),),  # DeleteTopics
    21: (("2.8", 2),),  # DeleteRecords
    22: (("2.8", 4), ("3.8", 5)),  # InitProducerId
    23: (("2.8", 4),),  # OffsetForLeaderEpoch
    24: (("2.8", 3), ("3.6", 4), ("3.8", 5)),  # AddPartitionsToTxn
    25: (("2.8", 3), ("3.8", 4)),  # AddOffsetsToTxn
    26: (("2.8", 3), ("3.8", 4)),  # EndTxn
    27: (("2.8", 1),),  # WriteTxnMarkers
    28: (("2.8", 3), ("3.8", 4)),  # TxnOffsetCommit
    29: (("2.8", 2), ("3.3", 3)),  # DescribeAcls
    30: (("2.8", 2), ("3.3", 3)),  # CreateAcls
    31: (("2.8", 2), ("3.3", 3)),  # DeleteAcls
    32: (("2.8", 4),),  # DescribeConfigs
    33: (("2.8", 2),),  # AlterConfigs
    34: (("2.8", 2),),  # AlterReplicaLogDirs
    35: (("2.8", 2), ("3.2", 3), ("3.3", 4)),  # DescribeLogDirs
    36: (("2.8", 2),),  # SaslAuthenticate
    37: (("2.8", 3),),  # CreatePartitions
    38: (("2.8", 2), ("3.3", 3)),  # CreateDelegationToken
    39: (("2.8", 2),),  # RenewDelegationToken
    40: (("2.8", 2),),  # ExpireDelegationToken
    41: (("2.8", 2), ("3.3", 3)),  # DescribeDelegationToken
    42: (("2.8", 2),),  # DeleteGroups
    43: (("2.8", 2),),  # ElectLeaders
    44: (("2.8", 1),),  # IncrementalAlterConfigs
    45: (("2.8", 0),),  # AlterPartitionReassignments
    46: (("2.8", 0),),  # ListPartitionReassignments
    47: (("2.8", 0),),  # OffsetDelete
    48: (("2.8", 1),),  # DescribeClientQuotas
    49: (("2.8", 1),),  # AlterClientQuotas
    50: (("2.8", 0),),  # DescribeUserScramCredentials
    51: (("2.8", 0),),  # AlterUserScramCredentials
    56: (("2.8", 0), ("3.2", 1), ("3.3", 2), ("3.5", 3)),  # AlterPartition
    57: (("2.8", 0), ("3.3", 1)),  # UpdateFeatures
    60: (("2.8", 0), ("3.7", 1)),  # DescribeCluster
    61: (("2.8", 0),),  # DescribeProducers
    65: (("3.0", 0),),  # DescribeTransactions
    66: (("3.0", 0), ("3.8", 1)),  # ListTransactions
    67: (("3.0", 0),),  # AllocateProducerIds
}


def newest_versions(release: str) -> dict[int, int]:
    """API key -> the newest version in this release. FaultError if the release is not known."""
    if release not in RELEASES:
        raise FaultError(f"as_kafka: one of {', '.join(RELEASES)}, not {release!r}")
    newest: dict[int, int] = {}
    for key, rises in NEWEST_VERSIONS.items():
        for since, version in rises:
            if RELEASES.index(since) <= RELEASES.index(release):
                newest[key] = version
    return newest
