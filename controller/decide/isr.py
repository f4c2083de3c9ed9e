"""The decision about an AlterPartition request (pure; KIP-497; reference B.10).

The leader names the state that it changes, by leader epoch and partition epoch, and the requested ISR. A request with
another leader or partition epoch than the controller's is refused. A request for the current state is a repetition and
succeeds.

Kafka's controller in ZooKeeper mode accepts every request: it makes the sender the leader, and accepts an ISR that is
empty or has brokers without a replica. Here such a request is INVALID_REQUEST, as with KRaft's controller. As there,
the broker epochs of the ISR's members are compared (KIP-903); a Java broker in ZooKeeper mode does not send them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.controller.decide.leaders import LeaderRules
from barnabas.controller.decide.steps import Step, TellMetadata
from barnabas.controller.image.state import ClusterImage, Leadership, LeadershipChanged
from barnabas.controller.store import paths
from barnabas.controller.store.paths import RECOVERED, RECOVERING, PartitionState
from barnabas.controller.store.store import SetData
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import UNKNOWN_BROKER_EPOCH
from barnabas.wire.topics import TopicPartition


class IsrChange(NamedTuple):
    """A leader's requested ISR for one partition, with the members' broker epochs if the request version has them."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: Mapping[int, int] = {}
    leader_recovery_state: int = RECOVERED


def decide_isr_change(
    image: ClusterImage, topic_partition: TopicPartition, broker_id: int, change: IsrChange, rules: LeaderRules
) -> Step | Leadership | ErrorCode:
    """The step; the current state if it already is as requested; or the error.

    The order of the checks is Kafka's: a request may be wrong in several ways, and the code decides what a leader does.
    """
    partition = image.find_partition(topic_partition)
    if partition is None or partition.leadership is None or image.is_deleting(topic_partition.topic):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    leadership = partition.leadership
    state = leadership.state
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > leadership.partition_epoch:
        # The leader has its epochs from a later controller. With this code it looks for that one.
        return ErrorCode.NOT_CONTROLLER

    # The request is from before the current LeaderAndIsr, which the sender has not received yet.
    if change.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != state.leader:
        return ErrorCode.INVALID_REQUEST

    # This comes before the partition epoch is compared: a leader repeats a request whose response
    # was lost, and the first attempt has raised that epoch.
    if (change.isr, change.leader_recovery_state) == (state.isr, state.leader_recovery_state):
        return leadership

    # The leader does not have the last change of the ISR yet; its proposal could add a replica that was just removed.
    if change.partition_epoch < leadership.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    refused = _why_wrong(image, topic_partition, state, change)
    if refused:
        return refused

    # The leader epoch stays, so the followers go on fetching. The write is conditional on the partition epoch.
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


def _why_wrong(
    image: ClusterImage, topic_partition: TopicPartition, state: PartitionState, change: IsrChange
) -> ErrorCode:
    """The error of an ISR that this leader may not have; NONE if it may."""
    recovering = change.leader_recovery_state
    if recovering not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    # A leader that was elected uncleanly recovers alone, and only once.
    if recovering == RECOVERING and (state.leader_recovery_state == RECOVERED or len(change.isr) > 1):
        return ErrorCode.INVALID_REQUEST
    members = dict.fromkeys(change.isr)
    replicas = set(image.partition(topic_partition).replicas)
    # The leader itself is not checked: in controlled shutdown it may still add other replicas,
    # which can then take over. Kafka checks it like the other members, and so refuses such a
    # request.
    if not all(_is_eligible(image, topic_partition, each, change) for each in members if each != state.leader):
        return ErrorCode.INELIGIBLE_REPLICA
    if len(members) < len(change.isr) or state.leader not in members or not members.keys() <= replicas:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _is_eligible(image: ClusterImage, topic_partition: TopicPartition, broker_id: int, change: IsrChange) -> bool:
    """Whether this replica may be elected, and its broker has the broker epoch that the leader names."""
    # A replica may have fetched before its disk failed. Kafka's controller checks only that its
    # broker is alive: the ISR would then have a member without its log, until the leader notices
    # that it fetches no more.
    if not image.is_online(topic_partition, broker_id):
        return False
    # The leader counts the fetches of one registration. If the broker has registered again since, it may have lost what
    # it had fetched (KIP-903).
    known = change.broker_epochs.get(broker_id, UNKNOWN_BROKER_EPOCH)
    return known in (UNKNOWN_BROKER_EPOCH, image.brokers[broker_id].epoch)
