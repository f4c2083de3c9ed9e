"""What this broker knows of a partition at this moment, for the page.

A leader knows the log end offsets of all replicas, and how long each is behind. A follower knows its own replica. A
broker without a replica knows what the controller has sent to all: the leader, its epoch, the replicas and the ISR.
"""

import math

from barnabas.broker.call import Broker
from barnabas.console.offsets import UNKNOWN, Ends
from barnabas.replication.isr import Follower
from barnabas.replication.partition import Partition
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import PartitionInfo

Row = dict[str, object]
BEHIND_STEP_MS = 100  # finer steps would change each row in each event

LEADER, FOLLOWER, ELSEWHERE = "leader", "follower", "elsewhere"


def replica_row(broker: Broker, key: TopicPartition, info: PartitionInfo, ends: Ends = UNKNOWN) -> Row:
    """A partition as JSON. `ends` are the leader's, for a partition that is led elsewhere."""
    # The row begins with what the controller has sent to all brokers (`info`).
    hosted = broker.replicas.get(*key)
    row: Row = {
        "topic": key.topic,
        "partition": key.partition,
        "leader": info.leader_id,
        "leader_epoch": info.leader_epoch,
        "replicas": info.replicas,
        "isr": info.in_sync_replicas,
        "offline": info.offline_replicas,
        "role": ELSEWHERE,
        "log_start_offset": ends.log_start_offset,
        "high_watermark": ends.high_watermark,
        "log_end_offset": None,
        "last_stable_offset": None,
        "size_bytes": None,
        "followers": [],
    }
    if not isinstance(hosted, Partition) or hosted.log is None:
        return row
    log = hosted.log
    if hosted.is_leader:
        # The leader's own state is newer: LeaderAndIsr arrives before UpdateMetadata, and the leader changes the ISR.
        row |= {
            "leader": hosted.leader_id,
            "leader_epoch": hosted.leader_epoch,
            "replicas": hosted.replicas,
            "isr": hosted.in_sync_replicas,
            "role": LEADER,
            "followers": [_follower(hosted, follower, broker) for follower in hosted.followers.values()],
        }
    else:
        row["role"] = FOLLOWER
    return row | {
        "log_start_offset": log.log_start_offset,
        "high_watermark": hosted.high_watermark,
        "log_end_offset": log.log_end_offset,
        "last_stable_offset": hosted.last_stable_offset,
        "size_bytes": log.size_bytes,
    }


def _follower(partition: Partition, follower: Follower, broker: Broker) -> Row:
    assert partition.log is not None
    end = follower.log_end_offset

    # A follower with all records is not behind, however long ago it has fetched: nothing was produced since.
    is_behind = end < partition.log.log_end_offset or not partition.is_in_sync(follower)
    behind_ms = broker.alter_partition.now_ms() - follower.caught_up_ms if is_behind else 0.0
    return {
        "broker": follower.broker_id,
        "log_end_offset": None if end < 0 else end,  # it has not fetched in this leader epoch
        # None: never in this leader epoch.
        "behind_ms": None if math.isinf(behind_ms) else round(behind_ms / BEHIND_STEP_MS) * BEHIND_STEP_MS,
    }


def is_settled(row: Row) -> bool:
    """Whether a row changes only if its partition says so: of a follower's progress it does not."""
    # The offsets of a follower and its lag in time move without a change that wakes a waiter.
    followers = row["followers"]
    assert isinstance(followers, list)
    return all(each["behind_ms"] == 0 for each in followers)
