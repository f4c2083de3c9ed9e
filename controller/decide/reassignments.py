"""Moving partitions to other brokers: validation, and the steps (pure; KIP-455; reference B.12).

Theory of operation
-------------------
An assignment has the replicas that a partition came from (`origin`) and the target replicas (`target`). During the
reassignment its replicas are the union of both. All of it is in the topic's node, so a new controller can continue.

    U  the new assignment is written, before anything else; replicas that only a former target had are deleted
    A  while the ISR lacks members of the target: all replicas are sent their roles under a new leader epoch, and the
       added ones begin to copy
    B  when the ISR has the whole target: the assignment is the target, a member of it leads, the others are deleted,
       and the topic's node is written once more

To cancel a reassignment is to reassign to the origin, which is complete at once: only B is done, and the topic's node
is written after everything else. A new target replaces the old one; the origin stays the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.controller.decide.steps import Decision, Step, Tell, TellStop
from barnabas.controller.image.state import Assignment, AssignmentsChanged, ClusterImage, ReplicaMoved
from barnabas.controller.image.transitions import REPLICA_TRANSITIONS, ReplicaMove, ReplicaStatus, is_legal
from barnabas.controller.store import paths
from barnabas.controller.store.paths import TopicAssignment
from barnabas.controller.store.store import DATA_MAX_BYTES, SetData
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

NOTHING = Assignment(())  # the assignment of a partition that does not exist


class PartitionRefused(NamedTuple):
    """The error of a partition for which nothing is done; the message is Kafka's."""

    code: ErrorCode
    message: str | None = None


NO_SUCH_PARTITION = PartitionRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
NOTHING_TO_CANCEL = PartitionRefused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")


def plan_move(
    image: ClusterImage, topic_partition: TopicPartition, target: Sequence[int] | None, *, to_dead_brokers: bool = False
) -> Assignment | PartitionRefused:
    """The assignment during a reassignment to these replicas or, with None, back to the origin.

    `to_dead_brokers`: replicas may be added on brokers that are not alive, and the reassignment waits for them.
    """
    # The order of the checks is Kafka's, so cancelling the reassignment of a partition that does
    # not exist gives NOTHING_TO_CANCEL.
    partition = image.find_partition(topic_partition)
    current = NOTHING if partition is None else partition.assignment
    if target is not None:
        refused = _why_wrong(image, current, target, to_dead_brokers=to_dead_brokers)
        if refused is not None:
            return PartitionRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, refused)
    elif not current.is_moving:
        return NOTHING_TO_CANCEL

    if partition is None or image.is_deleting(topic_partition.topic):
        return NO_SUCH_PARTITION
    planned = current.moved_to(current.origin if target is None else target)

    # If no in-sync replica is in the new assignment, deleting the in-sync ones would lose
    # acknowledged records. So this is refused, with the message of KRaft's controller; Kafka's
    # controller in ZooKeeper mode goes on and loses them.
    isr = () if partition.leadership is None else partition.leadership.state.isr
    if isr and not any(replica in planned.replicas for replica in isr):
        return PartitionRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic_partition.topic}:{topic_partition.partition}"
            " because it would require an unclean leader election.",
        )

    return planned


def _why_wrong(image: ClusterImage, current: Assignment, target: Sequence[int], *, to_dead_brokers: bool) -> str | None:
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) != len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {_scala_list('ArrayBuffer', target)}"
    if any(broker_id < 0 for broker_id in target):
        return f"Invalid broker id in replica list: {_scala_list('ArrayBuffer', target)}"
    # Only the added replicas must be alive: a dead one that is assigned already may stay in the target.
    adding = current.moved_to(target).adding
    live = sorted(broker_id for broker_id in image.brokers if broker_id not in image.shutting_down)
    if not to_dead_brokers and not set(adding) <= set(live):
        return (
            "Replica assignment has brokers that are not alive."
            f" Replica list: {_scala_list('ArrayBuffer', adding)}, live broker list: {_scala_list('Set', live)}"
        )
    return None


def _scala_list(kind: str, broker_ids: Iterable[int]) -> str:
    """As Kafka's messages show collections."""
    return f"{kind}({', '.join(map(str, broker_ids))})"


def is_complete(image: ClusterImage, topic_partition: TopicPartition) -> bool:
    """Whether the ISR has the whole target, and a member of it can lead."""
    partition = image.partition(topic_partition)
    if partition.leadership is None:
        return False
    # Kafka has only the first condition. But all targets in the ISR may be dead: to complete then
    # would delete the other replicas while the partition has no leader.
    target = partition.assignment.target
    isr = partition.leadership.state.isr
    return set(target) <= set(isr) and any(image.is_online(topic_partition, broker_id) for broker_id in target)


# -- steps


def decide_assignments(
    topic: str, found: TopicAssignment, version: int, changes: Mapping[int, Assignment]
) -> Step | PartitionRefused:
    """Write these assignments into the topic's node, which has this version; an error if it would become too large."""
    # The other partitions stay as they were found: the image may lack some that another broker has
    # just added.
    written = TopicAssignment(
        {**found.partitions, **{index: list(each.replicas) for index, each in changes.items()}},
        found.topic_id,
        _with_changes(found.adding, {index: each.adding for index, each in changes.items()}),
        _with_changes(found.removing, {index: each.removing for index, each in changes.items()}),
    )
    # The size is checked here, because a refusal by the store would look like that of a changed
    # node, and the write would be repeated without end.
    data = written.encode()
    if len(data) > DATA_MAX_BYTES:
        return PartitionRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return Step(AssignmentsChanged(topic, changes), (SetData(paths.topic(topic), data, version),))


def _with_changes(found: Mapping[int, Sequence[int]], changes: Mapping[int, Sequence[int]]) -> dict[int, Sequence[int]]:
    """The replicas that are added, or removed, after the changes; only of partitions that have any, as in Kafka."""
    return {index: each for index, each in {**found, **changes}.items() if each}


def decide_dropped_replicas(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> Decision:
    """Stop and delete the replicas that are not assigned any more, without waiting for the brokers' answers."""
    decision = Decision()
    for topic_partition in topic_partitions:
        partition = image.partition(topic_partition)
        # Nothing is deleted while no assigned replica is in sync: another broker may have written
        # such a state meanwhile, and the replicas to delete may then have the only copy of
        # acknowledged records.
        isr = () if partition.leadership is None else partition.leadership.state.isr
        if isr and not any(replica in partition.replicas for replica in isr):
            continue
        # The statuses also have the replicas that are not assigned any more.
        for broker_id, status in partition.replica_statuses.items():
            if broker_id not in partition.replicas:
                decision.steps += _drop(topic_partition, broker_id, status)
    return decision


def _drop(topic_partition: TopicPartition, broker_id: int, status: ReplicaStatus) -> list[Step]:
    # All moves are made at once, because the reassignment must not wait for a broker that may
    # never return: as in Kafka, the deletion counts as confirmed when it is sent. If the broker is
    # dead, the log stays on its disk, without a role.
    tells: tuple[Tell, ...] = (TellStop(topic_partition, broker_id, delete=True),)
    moves = [
        *([ReplicaMove.STOP] if is_legal(REPLICA_TRANSITIONS, status, ReplicaMove.STOP) else []),
        ReplicaMove.BEGIN_DELETION,
        ReplicaMove.CONFIRM_DELETION,
        ReplicaMove.REMOVE,
    ]
    return [
        Step(ReplicaMoved(topic_partition, broker_id, move), tells=tells if move is ReplicaMove.BEGIN_DELETION else ())
        for move in moves
    ]


def decide_added_replicas_online(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> Decision:
    """Replicas that were added are in sync now, and are started like the others. No broker is sent anything."""
    decision = Decision()
    for topic_partition in topic_partitions:
        for broker_id, status in image.partition(topic_partition).replica_statuses.items():
            if status is ReplicaStatus.NEW:
                decision.steps.append(Step(ReplicaMoved(topic_partition, broker_id, ReplicaMove.START)))
    return decision
