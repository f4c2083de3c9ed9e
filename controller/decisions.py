"""What the controller decides: pure functions from the image to what shall be written, become true, and be told.

Theory of operation
-------------------
A decision is a list of steps. A *step* is one record (state.py) with the store operations that must succeed before the
record is true, and with what brokers are to be told once it is. The shell writes all operations of a decision in one
batch, each step's as one multi fenced by the controller epoch, replays the records whose operations succeeded, and
sends what they tell. A step without operations concerns only what the controller alone knows.

Leadership of a partition is decided in one place, `decide_leaders`, whatever happened: a new partition, a dead leader,
a dead follower, a broker that returned. It compares the state node with the replicas that are online and writes one new
state where they differ; so a broker's death costs one write a partition, and deciding twice changes nothing.

Differences from Kafka, which reaches the same states by more writes:
- A dead broker leaves the ISR in the same write that elects another leader. When every member of an ISR dies at once,
  the ISR stays as it is, for each of them holds all acknowledged records; Kafka removes all but one.
- The state nodes of a topic that is being deleted are not rewritten, and its replicas are told no roles.
- A replica is told once to stop and delete, not first to stop and then to delete.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.controller import paths
from barnabas.controller.elections import ELECTIONS, Candidates, Strategy
from barnabas.controller.paths import NO_LEADER, RECOVERING, PartitionState
from barnabas.controller.state import (
    ClusterImage,
    DeletionBegun,
    DeletionHalted,
    DeletionResumed,
    Leadership,
    LeadershipChanged,
    LiveBroker,
    PartitionImage,
    Record,
    ReplicaMoved,
    TopicDeleted,
)
from barnabas.controller.store import Create, Delete, Op, SetData
from barnabas.controller.transitions import (
    REPLICA_TRANSITIONS,
    PartitionStatus,
    ReplicaMove,
    ReplicaStatus,
    is_legal,
)
from barnabas.wire.topics import TopicPartition

Replica = tuple[TopicPartition, int]


class TellLeaderAndIsr(NamedTuple):
    """These brokers learn the partition's leader, and every broker its metadata."""

    topic_partition: TopicPartition
    broker_ids: tuple[int, ...]
    is_new: bool = False


class TellMetadata(NamedTuple):
    """Every broker learns the metadata of these partitions."""

    topic_partitions: tuple[TopicPartition, ...]


class TellStop(NamedTuple):
    """The broker stops hosting the partition, and deletes its log if told so."""

    topic_partition: TopicPartition
    broker_id: int
    delete: bool


Tell = TellLeaderAndIsr | TellMetadata | TellStop


class Step(NamedTuple):
    """A record, what must be written for it to be true, and what is told when it is."""

    record: Record
    ops: tuple[Op, ...] = ()
    tells: tuple[Tell, ...] = ()


@dataclass(slots=True)
class Decision:
    """Steps, and before them `prepare`: parents to create and children to delete, where "already done" is no error."""

    steps: list[Step] = field(default_factory=list)
    prepare: list[Op] = field(default_factory=list)

    def extend(self, other: "Decision") -> None:
        """Append another decision that was made on the same image and concerns other records."""
        self.steps += other.steps
        self.prepare += other.prepare


# Brokers ---------------------------------------------------------------------------------------------------------


class Membership(NamedTuple):
    """How the registered brokers differ from the image. Bounced: registered anew before its death was noticed."""

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


def decide_replicas_online(image: ClusterImage, broker_ids: Mapping[int, object]) -> Decision:
    """These brokers, which are alive, start their replicas, but for those whose disk failed."""
    decision = Decision()
    for topic_partition, broker_id in image.replicas_on(broker_ids):
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


# Leaders ---------------------------------------------------------------------------------------------------------


class LeaderRules(NamedTuple):
    """What an election depends on besides the image."""

    controller_epoch: int
    unclean_topics: Container[str] = ()
    marks_recovery: bool = True  # an unclean leader is RECOVERING: the level of inter-broker requests knows of it


def decide_leaders(image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules) -> Decision:
    """Bring leader and ISR in line with the replicas that are online. What cannot have a leader stays without."""
    decision = Decision()
    parents: dict[str, None] = {}
    for topic_partition in topic_partitions:
        if image.is_deleting(topic_partition.topic):
            continue
        partition = image.partition(topic_partition)
        online = image.online_replicas(topic_partition)
        if partition.leadership is None:
            if online:
                parents[paths.partitions(topic_partition.topic)] = None
                parents[paths.partition(*topic_partition)] = None
                decision.steps.append(_first_leader(topic_partition, online, rules))
        else:
            step = _next_leader(topic_partition, partition, partition.leadership, online, rules)
            if step is not None:
                decision.steps.append(step)
    decision.prepare += [Create(path) for path in parents]
    return decision


def topics_without_clean_leader(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> dict[str, None]:
    """Topics for which it matters now whether they allow unclean elections."""
    return {
        topic_partition.topic: None
        for topic_partition in topic_partitions
        if not image.is_deleting(topic_partition.topic) and _needs_unclean_leader(image, topic_partition)
    }


def partitions_without_leader(image: ClusterImage) -> list[TopicPartition]:
    """Partitions for which an election may succeed when something changed for the better."""
    waiting = PartitionStatus.NEW, PartitionStatus.OFFLINE
    return [topic_partition for topic_partition, partition in image.partitions() if partition.status in waiting]


def _needs_unclean_leader(image: ClusterImage, topic_partition: TopicPartition) -> bool:
    leadership = image.partition(topic_partition).leadership
    online = image.online_replicas(topic_partition)
    if leadership is None or not online or leadership.state.leader in online:
        return False
    return not any(replica in online for replica in leadership.state.isr)


def _first_leader(topic_partition: TopicPartition, online: Mapping[int, None], rules: LeaderRules) -> Step:
    isr = tuple(online)
    state = PartitionState(leader=isr[0], leader_epoch=0, controller_epoch=rules.controller_epoch, isr=isr)
    return Step(
        LeadershipChanged(topic_partition, Leadership(state, 0)),
        (Create(paths.partition_state(*topic_partition), state.encode()),),
        (TellLeaderAndIsr(topic_partition, isr, is_new=True),),
    )


def _next_leader(
    topic_partition: TopicPartition,
    partition: PartitionImage,
    leadership: Leadership,
    online: Mapping[int, None],
    rules: LeaderRules,
) -> Step | None:
    """The step to a state that fits the online replicas; None when the present one does."""
    state = leadership.state
    leader, recovery = state.leader, state.leader_recovery_state
    isr = tuple(replica for replica in state.isr if replica in online)
    if leader not in online:
        unclean = topic_partition.topic in rules.unclean_topics
        elected = ELECTIONS[Strategy.OFFLINE](Candidates(partition.replicas, state.isr, online, (), unclean))
        if elected is None:
            leader, isr = NO_LEADER, state.isr  # its members are dead, and each holds all acknowledged records
        else:
            leader, isr = elected.leader, elected.isr
            recovery = RECOVERING if elected.unclean and rules.marks_recovery else recovery
    if (leader, isr) == (state.leader, state.isr):
        return None
    changed = PartitionState(leader, state.leader_epoch + 1, rules.controller_epoch, isr, recovery)
    return Step(
        LeadershipChanged(topic_partition, Leadership(changed, leadership.partition_epoch + 1)),
        (SetData(paths.partition_state(*topic_partition), changed.encode(), leadership.partition_epoch),),
        (TellLeaderAndIsr(topic_partition, tuple(online)),),
    )


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
    """What a broker said about replicas that it was told to delete."""
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
            for broker_id in partition.replicas
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
                told = TellStop(topic_partition, broker_id, delete=True)
                decision.steps += [Step(stop), Step(delete, tells=(told,))]
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

    So the marker outlives everything else, and a fail-over in between goes on with the deletion.
    """
    decision = Decision()
    for topic_partition, _ in image.partitions([topic]):
        decision.prepare.append(Delete(paths.partition_state(*topic_partition)))
        decision.prepare.append(Delete(paths.partition(*topic_partition)))
    decision.prepare.append(Delete(paths.partitions(topic)))
    decision.prepare.append(Delete(paths.config_entity("topics", topic)))
    ops = (Delete(paths.topic(topic)), Delete(paths.delete_topic(topic)))
    decision.steps.append(Step(TopicDeleted(topic), ops))
    return decision
