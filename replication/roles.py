"""Which roles of a LeaderAndIsr a partition takes (reference B.8, KIP-516)."""

from enum import Enum
from typing import TYPE_CHECKING

from barnabas.replication.partition import Partition, Role
from barnabas.storage.log import PartitionLog
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    PartitionState = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState

AskedState = tuple[TopicPartition, bytes, "PartitionState"]
StoppedReplica = tuple[TopicPartition, int, bool]  # partition, leader epoch (-1: not checked), delete the log


class Verdict(Enum):
    """What to do with a role that is not refused. The values are explanations only."""

    TAKE = "the partition takes it"
    KEEP = "the partition has it already; only its topic id may be new"


def judge(
    partition: Partition | None,
    log: PartitionLog | None,
    asked: AskedState,
    broker_id: int,
    *,
    is_any_offline: bool,
) -> Verdict | ErrorCode:
    """Decide about one role. Errors: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    STALE_CONTROLLER_EPOCH."""
    _, topic_id, state = asked

    # A hosted replica without a log lost it with its directory. An empty log must not replace it, not even if the
    # role has `is_new`: as a leader it would make the other replicas truncate their logs to nothing.
    if partition is not None and log is None and is_any_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR

    # The topic id is compared before the epoch: leader epochs of two topics are not comparable. An unused log of
    # another topic is no conflict; `_prepare_log` puts it aside.
    known_id = None if log is None else log.topic_id
    is_wanted = partition is None and broker_id in state.replicas
    if log is not None and is_of_another(log, topic_id) and not is_wanted:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    is_repeated = partition is not None and state.leader_epoch == partition.leader_epoch

    # A partition without a log takes a repeated role too: its log could not be created the last time, for want of
    # a file descriptor.
    if partition is None or state.leader_epoch > partition.leader_epoch or (is_repeated and partition.log is None):
        # An AlterPartition response may have brought a later state than a LeaderAndIsr that was sent before it.
        if partition is not None and partition.log and state.partition_epoch < partition.partition_epoch:
            return Verdict.KEEP
        return Verdict.TAKE if broker_id in state.replicas else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # A controller that was upgraded to topic ids may repeat a role with the id (KIP-516).
    if is_repeated and topic_id != ZERO_TOPIC_ID and known_id is None:
        return Verdict.KEEP

    # A controller of an older version repeats a role without the id: followers then fetch by name.
    if is_repeated and topic_id == ZERO_TOPIC_ID and known_id is not None and not partition.is_leader:
        return Verdict.KEEP
    return ErrorCode.STALE_CONTROLLER_EPOCH


def is_of_another(log: PartitionLog, topic_id: bytes) -> bool:
    """Whether the log belongs to a topic with another id. Topics from before 2.8 have no id (KIP-516)."""
    return topic_id != ZERO_TOPIC_ID and log.topic_id not in (None, topic_id)


def role_of(state: "PartitionState") -> Role:
    return Role(
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        controller_epoch=state.controller_epoch,
        replicas=list(state.replicas),
        in_sync_replicas=list(state.isr),
        leader_recovery_state=state.leader_recovery_state,
        is_new=state.is_new,
    )
