"""Every API of the protocol that a ZooKeeper-mode broker may see, in one literal table.

A row has the API's key, its name, its family (the file of its schema), the versions that an Apache Kafka 3.9 broker in
ZooKeeper mode supports, the first flexible version, and whether Barnabas serves it (reference wire.md, sections 1 and
2). Flexible versions (KIP-482) have compact lengths and tagged fields, request header v2 and response header v1.

Requests between brokers have the versions that `inter.broker.protocol.version` implies (reference kafka-internals.md,
section 0): `inter_broker_versions`.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

API_VERSIONS_KEY = 18
CONTROLLED_SHUTDOWN_KEY = 7


class Api(NamedTuple):
    """One API: its family is a file of `schemas/`; its versions are those of Kafka 3.9."""

    key: int
    name: str
    family: str
    min_version: int
    max_version: int
    flexible_from: int | None
    served: bool

    @property
    def is_pipelined(self) -> bool:
        """Whether a request of this API may begin while earlier responses of its connection wait: only Produce."""
        # The records of pipelined batches are appended in order, and wait for replication together.
        return self.key == 0

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


# The last column, `served`, alone decides what ApiVersions lists: a client picks the highest version that both sides
# have, and relies on it. Never listed, although a 3.9 broker in ZooKeeper mode lists them: 58 (that broker closes the
# connection if forwarding is off), 68 and 69 (it responds with UNSUPPORTED_VERSION). KRaft-only keys and telemetry (71,
# 72) have no row: a client that sees telemetry listed starts to push metrics.
APIS: dict[int, Api] = {
    # key: key, name, family, lowest and highest version, flexible from, served
    0: Api(0, "Produce", "produce", 0, 11, 9, True),
    1: Api(1, "Fetch", "fetch", 0, 17, 12, True),
    2: Api(2, "ListOffsets", "offsets", 0, 9, 6, True),
    3: Api(3, "Metadata", "metadata", 0, 12, 9, True),
    4: Api(4, "LeaderAndIsr", "replication", 0, 7, 4, True),
    5: Api(5, "StopReplica", "replication", 0, 4, 2, True),
    6: Api(6, "UpdateMetadata", "replication", 0, 8, 6, True),
    7: Api(7, "ControlledShutdown", "replication", 0, 3, 3, True),
    8: Api(8, "OffsetCommit", "groups", 0, 9, 8, True),
    9: Api(9, "OffsetFetch", "groups", 0, 9, 6, True),
    10: Api(10, "FindCoordinator", "groups", 0, 6, 3, True),
    11: Api(11, "JoinGroup", "groups", 0, 9, 6, True),
    12: Api(12, "Heartbeat", "groups", 0, 4, 4, True),
    13: Api(13, "LeaveGroup", "groups", 0, 5, 4, True),
    14: Api(14, "SyncGroup", "groups", 0, 5, 4, True),
    15: Api(15, "DescribeGroups", "groups", 0, 5, 5, True),
    16: Api(16, "ListGroups", "groups", 0, 5, 3, True),
    17: Api(17, "SaslHandshake", "sasl", 0, 1, None, True),
    18: Api(18, "ApiVersions", "versions", 0, 4, 3, True),
    19: Api(19, "CreateTopics", "topics", 0, 7, 5, True),
    20: Api(20, "DeleteTopics", "topics", 0, 6, 4, True),
    21: Api(21, "DeleteRecords", "offsets", 0, 2, 2, True),
    22: Api(22, "InitProducerId", "txn", 0, 5, 2, True),
    23: Api(23, "OffsetForLeaderEpoch", "offsets", 0, 4, 4, True),
    24: Api(24, "AddPartitionsToTxn", "txn", 0, 5, 3, True),
    25: Api(25, "AddOffsetsToTxn", "txn", 0, 4, 3, True),
    26: Api(26, "EndTxn", "txn", 0, 4, 3, True),
    27: Api(27, "WriteTxnMarkers", "txn", 0, 1, 1, True),
    28: Api(28, "TxnOffsetCommit", "txn", 0, 4, 3, True),
    29: Api(29, "DescribeAcls", "acls", 0, 3, 2, True),
    30: Api(30, "CreateAcls", "acls", 0, 3, 2, True),
    31: Api(31, "DeleteAcls", "acls", 0, 3, 2, True),
    32: Api(32, "DescribeConfigs", "configs", 0, 4, 4, True),
    33: Api(33, "AlterConfigs", "configs", 0, 2, 2, True),
    34: Api(34, "AlterReplicaLogDirs", "logdirs", 0, 2, 2, True),
    35: Api(35, "DescribeLogDirs", "logdirs", 0, 4, 2, True),
    36: Api(36, "SaslAuthenticate", "sasl", 0, 2, 2, True),
    37: Api(37, "CreatePartitions", "topics", 0, 3, 2, True),
    38: Api(38, "CreateDelegationToken", "tokens", 0, 3, 2, True),
    39: Api(39, "RenewDelegationToken", "tokens", 0, 2, 2, True),
    40: Api(40, "ExpireDelegationToken", "tokens", 0, 2, 2, True),
    41: Api(41, "DescribeDelegationToken", "tokens", 0, 3, 2, True),
    42: Api(42, "DeleteGroups", "groups", 0, 2, 2, True),
    43: Api(43, "ElectLeaders", "cluster", 0, 2, 2, True),
    44: Api(44, "IncrementalAlterConfigs", "configs", 0, 1, 1, True),
    45: Api(45, "AlterPartitionReassignments", "reassignments", 0, 0, 0, True),
    46: Api(46, "ListPartitionReassignments", "reassignments", 0, 0, 0, True),
    47: Api(47, "OffsetDelete", "groups", 0, 0, None, True),
    48: Api(48, "DescribeClientQuotas", "quotas", 0, 1, 1, True),
    49: Api(49, "AlterClientQuotas", "quotas", 0, 1, 1, True),
    50: Api(50, "DescribeUserScramCredentials", "scram", 0, 0, 0, True),
    51: Api(51, "AlterUserScramCredentials", "scram", 0, 0, 0, True),
    56: Api(56, "AlterPartition", "replication", 0, 3, 0, True),
    57: Api(57, "UpdateFeatures", "cluster", 0, 1, 0, True),
    58: Api(58, "Envelope", "cluster", 0, 0, 0, False),
    60: Api(60, "DescribeCluster", "cluster", 0, 1, 0, True),
    61: Api(61, "DescribeProducers", "txn", 0, 0, 0, True),
    65: Api(65, "DescribeTransactions", "txn", 0, 0, 0, True),
    66: Api(66, "ListTransactions", "txn", 0, 1, 0, True),
    67: Api(67, "AllocateProducerIds", "replication", 0, 0, 0, True),
    68: Api(68, "ConsumerGroupHeartbeat", "groups", 0, 0, 0, False),
    69: Api(69, "ConsumerGroupDescribe", "groups", 0, 0, 0, False),
}

# API key -> (level of inter.broker.protocol.version, version that a broker sends from this level on), newest first. The
# levels before 2.0 are left out: brokers that old lack APIs that a 3.9 cluster needs.
_INTER_BROKER_VERSIONS: dict[int, tuple[tuple[str, int], ...]] = {
    1: (
        ("3.9-IV0", 17),
        ("3.7-IV4", 16),
        ("3.5-IV1", 15),
        ("3.5-IV0", 14),
        ("3.1-IV0", 13),
        ("2.7-IV1", 12),
        ("2.3-IV1", 11),
        ("2.1-IV2", 10),
        ("2.0-IV1", 8),
        ("2.0-IV0", 7),
    ),
    2: (
        ("3.9-IV0", 9),
        ("3.5-IV0", 8),
        ("3.0-IV1", 7),
        ("2.8-IV0", 6),
        ("2.2-IV1", 5),
        ("2.1-IV1", 4),
        ("2.0-IV1", 3),
        ("2.0-IV0", 2),
    ),
    4: (("3.4-IV0", 7), ("3.2-IV0", 6), ("2.8-IV1", 5), ("2.4-IV1", 4), ("2.4-IV0", 3), ("2.2-IV0", 2), ("2.0-IV0", 1)),
    5: (("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1), ("2.0-IV0", 0)),
    6: (("3.4-IV0", 8), ("2.8-IV1", 7), ("2.4-IV1", 6), ("2.2-IV0", 5), ("2.0-IV0", 4)),
    7: (("2.4-IV1", 3), ("2.2-IV0", 2), ("2.0-IV0", 1)),
    23: (("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1)),
    27: (("2.8-IV0", 1), ("2.0-IV0", 0)),
    # Kafka negotiates the versions of the APIs below by ApiVersions; two 3.9 brokers arrive at
    # these. At levels older than those of 56 and 67 a broker writes to ZooKeeper instead; 24 does
    # not depend on the level.
    24: (("2.0-IV0", 5),),
    56: (("2.8-IV0", 3), ("2.7-IV2", 1)),
    67: (("3.0-IV0", 0),),
}


# API key -> the release of Apache Kafka that first served it. Older APIs have no row: every broker that
# `barnabas.client` can use serves them.
FIRST_RELEASES: Mapping[int, str] = {
    **dict.fromkeys((21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33), "0.11"),
    **dict.fromkeys((34, 35, 36, 37), "1.0"),
    **dict.fromkeys((38, 39, 40, 41, 42), "1.1"),
    43: "2.2",
    44: "2.3",
    **dict.fromkeys((45, 46, 47), "2.4"),
    **dict.fromkeys((48, 49), "2.6"),
    **dict.fromkeys((50, 51, 56, 57), "2.7"),
    **dict.fromkeys((60, 61), "2.8"),
    **dict.fromkeys((65, 66, 67), "3.0"),
}


def request_header_version(key: int, version: int) -> int:
    """The version of the request header: 2 in flexible versions, else 1; 0 only for ControlledShutdown v0."""
    # That header has no client id.
    if key == CONTROLLED_SHUTDOWN_KEY and version == 0:
        return 0
    return 2 if APIS[key].is_flexible(version) else 1


def response_header_version(key: int, version: int) -> int:
    """The version of the response header: 1 in flexible versions, else 0; always 0 for ApiVersions."""
    # A client reads the ApiVersions response before it knows which versions the broker supports (KIP-511).
    return 1 if key != API_VERSIONS_KEY and APIS[key].is_flexible(version) else 0


def served_apis() -> list[Api]:
    """The APIs that ApiVersions lists, by key: exactly those that are served."""
    return [api for api in APIS.values() if api.served]


@functools.cache  # asked for each request between brokers, for few levels
def inter_broker_versions(level: str) -> Mapping[int, int]:
    """API key -> version of the requests that a broker with this `inter.broker.protocol.version` sends to brokers.

    `level` is Kafka's notation: "3.9-IV0", or "3.9" for the newest level of that release. ValueError if it is malformed
    or older than 2.0.
    """
    wanted = _parse_level(level)
    if wanted < (2, 0, 0):
        raise ValueError(f"inter.broker.protocol.version {level!r} is older than 2.0")
    versions: dict[int, int] = {}
    for key, steps in _INTER_BROKER_VERSIONS.items():
        for since, version in steps:
            if wanted >= _parse_level(since):
                versions[key] = version
                break
    return versions


def metadata_version_is_at_least(level: str, since: str) -> bool:
    """Whether this `inter.broker.protocol.version` is the level `since` or a newer one."""
    return _parse_level(level) >= _parse_level(since)


def _parse_level(level: str) -> tuple[int, int, int]:
    """ "3.7-IV4" as (3, 7, 4); a release alone, "3.7" or "3.7.1", counts as newer than all of its levels."""
    release, _, step = level.partition("-IV")
    try:
        major, minor = (int(part) for part in release.split(".")[:2])
        return major, minor, int(step) if step else 99
    except ValueError:
        raise ValueError(f"inter.broker.protocol.version {level!r} is not of the form 3.9 or 3.9-IV0") from None
