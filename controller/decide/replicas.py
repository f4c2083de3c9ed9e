"""What follows when brokers and their replicas come and go, and when topics are deleted: pure functions to steps.

Who leads is not decided here but in `leaders.py`; a handler joins the two decisions.

Differences from Kafka, which reaches the same states by more writes:
- The state nodes of a topic that is being deleted are not rewritten, and its replicas are sent no roles.
- A replica is sent one request to stop and delete, not one to stop and one to delete.
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from barnabas.controller.decide.steps import Decision, Step, Tell, TellLeaderAndIsr, TellMetadata, TellStop
from barnabas.controller.image.state import (
    ClusterImage,
    DeletionBegun,
    DeletionHalted,
    DeletionResumed,
    LiveBroker,
    ReplicaMoved,
    TopicDeleted,
)
from barnabas.controller.image.transitions import REPLICA_TRANSITIONS, ReplicaMove, ReplicaStatus, is_legal
from barnabas.controller.store import paths
from barnabas.controller.store.store import ANY_VERSION, Check, Delete
from barnabas.wire.topics import TopicPartition

Replica = tuple[TopicPartition, int]


# Brokers ---------------------------------------------------------------------------------------------------------


class Membership(NamedTuple):
    """How the registered brokers differ from the image. Bounced: registered again before its death was noticed."""

    joined: tuple[LiveBroker, ...]
    bounced: tuple[LiveBroker, ...]
    left: tuple[int, ...]


def compare_brokers(known: Mapping[int, LiveBroker], found: Mapping[int, LiveBroker]) -> Membership:
    """An epoch lower than the known one comes from a late read and means nothing."""
    return Membership(
        joined=tuple(broker for broker_id, broker in found.items() if broker_id not in known),
        bounced=tuple(
            broker
            for broker_id, broker in found.items()
            if broker_id in known and broker.epoch > known[broker_id].epoch
        ),
        left=tuple(broker_id for broker_id in known if broker_id not in found),
    )


def decide_replicas_online(image: ClusterImage, replicas: Iterable[Replica]) -> Decision:
    """The brokers of these replicas, which are alive, start them, but for those whose disk failed."""
    decision = Decision()
    for topic_partition, broker_id in replicas:
        partition = image.partition(topic_partition)
        if not image.is_online(topic_partition, broker_id):
            continue
        if not is_legal(REPLICA_TRANSITIONS, partition.replica_statuses[broker_id], ReplicaMove.START):
            continue  # deleted, and the topic's other replicas are not
        tells: tuple[Tell, ...] = ()
        if partition.leadership is not None and not image.is_deleting(topic_partition.topic):
            tells = (TellLeaderAndIsr(topic_partition, (broker_id,)),)
        decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.START), tells=tells))
    return decision


def decide_replicas_lost(image: ClusterImage, replicas: Iterable[Replica]) -> Decision:
    """The brokers of these replicas, or the disks, are gone: stop the replicas. Leaders are another decision."""
    decision = Decision()
    halted: dict[str, None] = {}
    for topic_partition, broker_id in replicas:
        status = image.partition(topic_partition).replica_statuses[broker_id]
        if image.is_deleting(topic_partition.topic):
            if status is not ReplicaStatus.DELETION_SUCCESSFUL:
                halted[topic_partition.topic] = None
            decision.steps += _refuse_deletion(topic_partition, broker_id, status)
        else:
            tells = (TellStop(topic_partition, broker_id, delete=False), TellMetadata((topic_partition,)))
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.STOP), tells=tells))
    decision.steps += [Step(DeletionHalted(topic)) for topic in halted]
    return decision


def decide_replicas_of_new_partitions(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> Decision:
    """Replicas of partitions that have just been assigned; those that are alive learn their roles with the leader's."""
    decision = Decision()
    for topic_partition in topic_partitions:
        for broker_id in image.partition(topic_partition).replicas:
            online = image.is_online(topic_partition, broker_id)
            move = ReplicaMove.START if online else ReplicaMove.STOP
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, move)))
    return decision


# Deletion of topics ----------------------------------------------------------------------------------------------


def decide_deletions(image: ClusterImage) -> Decision:
    """The next step of every topic that is marked for deletion; nothing for one that waits for an answer."""
    decision = Decision()
    for topic, deletion in image.deletions.items():
        statuses = [
            status
            for partition in image.topics[topic].partitions.values()
            for status in partition.replica_statuses.values()
        ]
        if all(status is ReplicaStatus.DELETION_SUCCESSFUL for status in statuses):
            decision.extend(_complete_deletion(image, topic))
        elif not deletion.halted and ReplicaStatus.DELETION_STARTED not in statuses:
            decision.extend(_delete_replicas(image, topic, begun=deletion.begun))
    return decision


def decide_deletion_answers(
    image: ClusterImage, broker_id: int, deleted: Iterable[TopicPartition], failed: Iterable[TopicPartition]
) -> Decision:
    """A broker's answer about replicas that it was to delete."""
    decision = Decision()
    halted: dict[str, None] = {}
    for topic_partition in deleted:
        if _deletion_started(image, topic_partition, broker_id):
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.CONFIRM_DELETION)))
    for topic_partition in failed:
        if _deletion_started(image, topic_partition, broker_id):
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.REFUSE_DELETION)))
            halted[topic_partition.topic] = None
    decision.steps += [Step(DeletionHalted(topic)) for topic in halted]
    return decision


def decide_resumed_deletions(image: ClusterImage, broker_ids: Container[int]) -> Decision:
    """Deletions that have a replica on one of these brokers, which can be reached again."""
    resumed = [
        topic
        for topic in image.deletions
        if any(
            broker_id in broker_ids
            for partition in image.topics[topic].partitions.values()
            for broker_id in partition.replica_statuses  # also one that is not assigned any more
        )
    ]
    return Decision([Step(DeletionResumed(topic)) for topic in resumed])


def _deletion_started(image: ClusterImage, topic_partition: TopicPartition, broker_id: int) -> bool:
    partition = image.find_partition(topic_partition)
    return (
        image.is_deleting(topic_partition.topic)
        and partition is not None
        and partition.replica_statuses.get(broker_id) is ReplicaStatus.DELETION_STARTED
    )


def _delete_replicas(image: ClusterImage, topic: str, *, begun: bool) -> Decision:
    """Tell all brokers that the topic is gone, and those that hold replicas to delete them."""
    decision = Decision()
    affected = tuple(topic_partition for topic_partition, _ in image.partitions([topic]))
    if not begun:
        decision.steps.append(Step(DeletionBegun(topic), tells=(TellMetadata(affected),)))
    unreachable = False
    for topic_partition in affected:
        for broker_id, status in image.partition(topic_partition).replica_statuses.items():
            if status is ReplicaStatus.DELETION_SUCCESSFUL:
                continue
            if image.is_online(topic_partition, broker_id):
                stop = ReplicaMoved(topic_partition, broker_id, ReplicaMove.STOP)
                delete = ReplicaMoved(topic_partition, broker_id, ReplicaMove.BEGIN_DELETION)
                tell = TellStop(topic_partition, broker_id, delete=True)
                decision.steps += [Step(stop), Step(delete, tells=(tell,))]
            else:
                unreachable = True
                decision.steps += _refuse_deletion(topic_partition, broker_id, status)
    if unreachable:
        decision.steps.append(Step(DeletionHalted(topic)))
    return decision


def _refuse_deletion(topic_partition: TopicPartition, broker_id: int, status: ReplicaStatus) -> list[Step]:
    """To DeletionIneligible, from wherever the replica stands; one that is deleted stays so."""
    if status in (ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE):
        return []
    steps = []
    if is_legal(REPLICA_TRANSITIONS, status, ReplicaMove.STOP):
        steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.STOP)))
    steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.REFUSE_DELETION)))
    return steps


def _complete_deletion(image: ClusterImage, topic: str) -> Decision:
    """Remove the topic's nodes, its config, and in one multi the topic with its marker.

    So the marker outlives everything else, and a fail-over in between goes on with the deletion. Each deletion checks
    the marker: asked again after lost answers, it would remove nodes of a topic that was created again in between.
    """
    marker = paths.delete_topic(topic)
    below: list[str] = []
    for topic_partition, _ in image.partitions([topic]):
        below += paths.partition_state(*topic_partition), paths.partition(*topic_partition)
    below += paths.partitions(topic), paths.config_entity("topics", topic)
    decision = Decision(prepare=[(Check(marker, ANY_VERSION), Delete(path)) for path in below])
    ops = (Delete(paths.topic(topic)), Delete(marker))
    decision.steps.append(Step(TopicDeleted(topic), ops))
    return decision
