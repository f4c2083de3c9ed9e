"""Steps for replicas when brokers join or leave, and for the deletion of topics (pure).

Leaders are decided in `leaders.py`; a handler combines both decisions.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.controller.decide.slices import in_slices
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

PARTITIONS_LOOKED_AT = 1000  # at a time, for the progress of a deletion

Replica = tuple[TopicPartition, int]


# -- brokers


class BrokerDifferences(NamedTuple):
    """How the registered brokers differ from the image. Bounced: registered again before its death was noticed."""

    joined: tuple[LiveBroker, ...]
    bounced: tuple[LiveBroker, ...]
    left: tuple[int, ...]


def compare_brokers(known: Mapping[int, LiveBroker], found: Mapping[int, LiveBroker]) -> BrokerDifferences:
    """Compare the brokers of the image with the registered ones, by broker epoch."""
    # A lower epoch than the known one comes from a late read, and is ignored.
    return BrokerDifferences(
        joined=tuple(broker for broker_id, broker in found.items() if broker_id not in known),
        bounced=tuple(
            broker
            for broker_id, broker in found.items()
            if broker_id in known and broker.epoch > known[broker_id].epoch
        ),
        left=tuple(broker_id for broker_id in known if broker_id not in found),
    )


def decide_replicas_online(image: ClusterImage, replicas: Iterable[Replica]) -> Decision:
    """Start these replicas on their live brokers, except those on a failed disk."""
    decision = Decision()
    for topic_partition, broker_id in replicas:
        partition = image.partition(topic_partition)
        if not image.is_online(topic_partition, broker_id):
            continue
        # The replica is deleted already, while the topic's other replicas are not; or its deletion
        # was requested and not answered.
        if not is_legal(REPLICA_TRANSITIONS, partition.replica_statuses[broker_id], ReplicaMove.START):
            continue
        # A replica that is being deleted is sent no role, because a role would create its log
        # again. Kafka's controller sends one.
        tells: tuple[Tell, ...] = ()
        if partition.leadership is not None and not image.is_deleting(topic_partition.topic):
            tells = (TellLeaderAndIsr(topic_partition, (broker_id,)),)
        decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.START), tells=tells))
    return decision


def decide_replicas_lost(image: ClusterImage, replicas: Iterable[Replica]) -> Decision:
    """Stop these replicas: their brokers or disks are gone. Leaders are a separate decision."""
    decision = Decision()
    halted: dict[str, None] = {}
    for topic_partition, broker_id in replicas:
        status = image.partition(topic_partition).replica_statuses[broker_id]
        # The deletion of a replica cannot be confirmed without its broker, so the topic waits
        # until a broker with a replica joins. A replica whose deletion was confirmed stays
        # deleted, even if its broker is gone.
        if image.is_deleting(topic_partition.topic):
            if status is not ReplicaStatus.DELETION_SUCCESSFUL:
                halted[topic_partition.topic] = None
            decision.steps += _refuse_deletion(topic_partition, broker_id, status)
        else:
            # A dead broker has no channel, and misses its StopReplica; a live broker whose disk
            # failed must stop the replica.
            tells = (TellStop(topic_partition, broker_id, delete=False), TellMetadata((topic_partition,)))
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.STOP), tells=tells))
    decision.steps += [Step(DeletionHalted(topic)) for topic in halted]
    return decision


def decide_replicas_of_new_partitions(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> Decision:
    """Start or stop the replicas of partitions that have just been assigned."""
    decision = Decision()
    # Nothing is sent: the election of the first leader, in the same batch, sends the roles to the
    # live replicas' brokers.
    for topic_partition in topic_partitions:
        for broker_id in image.partition(topic_partition).replicas:
            online = image.is_online(topic_partition, broker_id)
            move = ReplicaMove.START if online else ReplicaMove.STOP
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, move)))
    return decision


# -- deletion of topics


def decide_deletions(image: ClusterImage) -> Iterator[Decision]:
    """The next step of every topic that is marked for deletion; nothing for one that waits for an answer.

    In parts of about a millisecond, of which one decision is made: the image must not change meanwhile.
    """
    for topic, deletion in image.deletions.items():
        is_deleted = True
        is_awaited = False
        for partitions in in_slices(image.topics[topic].partitions.values(), PARTITIONS_LOOKED_AT):
            for partition in partitions:
                # Replicas of a reassignment that are not assigned any more count, too: their logs
                # must go with the topic.
                statuses = partition.replica_statuses.values()
                is_deleted = is_deleted and all(each is ReplicaStatus.DELETION_SUCCESSFUL for each in statuses)
                is_awaited = is_awaited or ReplicaStatus.DELETION_STARTED in statuses
            yield Decision()
        if is_deleted:
            yield from _complete_deletion(image, topic)
        elif not deletion.halted and not is_awaited:
            yield from _delete_replicas(image, topic, begun=deletion.begun)


def decide_deletion_answers(
    image: ClusterImage, broker_id: int, deleted: Iterable[TopicPartition], failed: Iterable[TopicPartition]
) -> Decision:
    """Handle a broker's answer about replicas that it was to delete."""
    decision = Decision()
    halted: dict[str, None] = {}
    # Only replicas whose deletion has started count: an answer may be late, about a topic that was
    # removed or created again, or about a replica that a reassignment has removed.
    for topic_partition in deleted:
        if _deletion_started(image, topic_partition, broker_id):
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.CONFIRM_DELETION)))
    for topic_partition in failed:
        if _deletion_started(image, topic_partition, broker_id):
            decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.REFUSE_DELETION)))
            halted[topic_partition.topic] = None
    # The deletion waits until a broker joins, as in Kafka: to ask again at once would only repeat
    # the error.
    decision.steps += [Step(DeletionHalted(topic)) for topic in halted]
    return decision


def decide_resumed_deletions(image: ClusterImage, broker_ids: Container[int]) -> Decision:
    """Resume the deletions of topics with a replica on one of these brokers, which have joined."""
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


def _delete_replicas(image: ClusterImage, topic: str, *, begun: bool) -> Iterator[Decision]:
    """Send UpdateMetadata without the topic to all brokers, and StopReplica with deletion to those with replicas."""
    # The metadata is sent first, so that clients do not see a topic whose partitions have no
    # replicas. Requests go out in this order anyway (`requests.py`); a resumed deletion has sent
    # the metadata before.
    for part in in_slices(image.partitions([topic])) if not begun else ():
        affected = tuple(topic_partition for topic_partition, _ in part)
        yield Decision([Step(DeletionBegun(topic, affected), tells=(TellMetadata(affected),))])
    unreachable = False
    for part in in_slices(image.partitions([topic])):
        decision = Decision()
        for topic_partition, partition in part:
            for broker_id, status in partition.replica_statuses.items():
                if status is ReplicaStatus.DELETION_SUCCESSFUL:
                    continue
                if image.is_online(topic_partition, broker_id):
                    stop = ReplicaMoved(topic_partition, broker_id, ReplicaMove.STOP)
                    delete = ReplicaMoved(topic_partition, broker_id, ReplicaMove.BEGIN_DELETION)

                    # One request to stop and delete. Kafka's controller sends one to stop and one to delete.
                    tell = TellStop(topic_partition, broker_id, delete=True)
                    decision.steps += [Step(stop), Step(delete, tells=(tell,))]
                else:
                    unreachable = True
                    decision.steps += _refuse_deletion(topic_partition, broker_id, status)
        yield decision

    if unreachable:
        yield Decision([Step(DeletionHalted(topic))])


def _refuse_deletion(topic_partition: TopicPartition, broker_id: int, status: ReplicaStatus) -> list[Step]:
    """Move the replica to DeletionIneligible from any state, unless it is deleted already."""
    if status in (ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE):
        return []
    steps = []
    if is_legal(REPLICA_TRANSITIONS, status, ReplicaMove.STOP):
        steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.STOP)))
    steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.REFUSE_DELETION)))
    return steps


def _complete_deletion(image: ClusterImage, topic: str) -> Iterator[Decision]:
    """Remove the topic's nodes and its properties, and then, in one multi, the topic with its marker."""
    # The marker outlives everything else, so a new controller continues the deletion. Every removal checks it: the
    # store repeats a write whose answer was lost, and would remove nodes of a topic that was created again in between.
    marker = paths.delete_topic(topic)
    mark = Check(marker, ANY_VERSION)
    for part in in_slices(image.partitions([topic])):
        below = [path(*each) for each, _ in part for path in (paths.partition_state, paths.partition)]
        yield Decision(prepare=[(mark, Delete(path)) for path in below])
    for path in (paths.partitions(topic), paths.config_entity("topics", topic)):
        yield Decision(prepare=[(mark, Delete(path))])
    yield Decision([Step(TopicDeleted(topic), (Delete(paths.topic(topic)), Delete(marker)))])
