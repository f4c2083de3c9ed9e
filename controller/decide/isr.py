"""What a leader may change about its in-sync replicas: AlterPartition, as a pure decision (KIP-497; reference B.10).

The leader says which state it changes, by leader epoch and partition epoch, and what the ISR shall be. Anything that
does not start from what the controller knows is refused; what is so already is a repetition, and succeeds.

Kafka's controller in ZooKeeper mode believes every request: it makes the sender the leader, takes brokers that hold no
replica into the ISR, and an empty ISR. Here such a request is INVALID_REQUEST, as with KRaft's controller. As there,
the broker epochs of the ISR's members count (KIP-903), which a Java broker in ZooKeeper mode does not send. A leader
that is about to stop may still take in others, to which it can then hand over; Kafka refuses it for being in the ISR.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.controller.decide.leaders import LeaderRules
from barnabas.controller.decide.steps import Step, TellMetadata
from barnabas.controller.image.state import ClusterImage, Leadership, LeadershipChanged, PartitionImage
from barnabas.controller.store import paths
from barnabas.controller.store.paths import RECOVERED, RECOVERING, PartitionState
from barnabas.controller.store.store import SetData
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import UNKNOWN_BROKER_EPOCH
from barnabas.wire.topics import TopicPartition


class IsrChange(NamedTuple):
    """What a leader asks for one partition. The ISR's members with their broker epochs, where they are said."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int] = {}
    leader_recovery_state: int = RECOVERED


def decide_isr_change(
    image: ClusterImage, topic_partition: TopicPartition, broker_id: int, change: IsrChange, rules: LeaderRules
) -> Step | Leadership | ErrorCode:
    """The step, or the state that is already as asked, or why not."""
    partition = image.find_partition(topic_partition)
    if partition is None or partition.leadership is None or image.is_deleting(topic_partition.topic):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    leadership = partition.leadership
    state = leadership.state
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > leadership.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows a later controller than this one
    if change.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST
    if (change.isr, change.leader_recovery_state) == (state.isr, state.leader_recovery_state):
        return leadership
    if change.partition_epoch < leadership.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    refused = _why_wrong(image, partition, state, change)
    if refused:
        return refused
    changed = state._replace(
        isr=change.isr,
        controller_epoch=rules.controller_epoch,
        leader_recovery_state=change.leader_recovery_state if rules.marks_recovery else state.leader_recovery_state,
    )
    return Step(
        LeadershipChanged(topic_partition, Leadership(changed, leadership.partition_epoch + 1)),
        (SetData(paths.partition_state(*topic_partition), changed.encode(), leadership.partition_epoch),),
        (TellMetadata((topic_partition,)),),
    )


def _why_wrong(image: ClusterImage, partition: PartitionImage, state: PartitionState, change: IsrChange) -> ErrorCode:
    """Whether the ISR is one that this leader may have."""
    recovering = change.leader_recovery_state
    if recovering not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if recovering == RECOVERING and (state.leader_recovery_state == RECOVERED or len(change.isr) > 1):
        return ErrorCode.INVALID_REQUEST
    members = dict.fromkeys(change.isr)
    if not all(_is_eligible(image, each, change.broker_epochs) for each in members if each != state.leader):
        return ErrorCode.INELIGIBLE_REPLICA
    if len(members) < len(change.isr) or state.leader not in members or not members.keys() <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _is_eligible(image: ClusterImage, broker_id: int, broker_epochs: Mapping[int, int]) -> bool:
    """Whether the broker lives, will go on to live, and is in the life that the leader means."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker_id in image.shutting_down:
        return False
    return broker_epochs.get(broker_id, UNKNOWN_BROKER_EPOCH) in (UNKNOWN_BROKER_EPOCH, broker.epoch)
