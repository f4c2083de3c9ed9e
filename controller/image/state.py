"""The controller's image of the cluster, and `replay`, the only function that changes it.

Theory of operation
-------------------
The image holds the content of the metadata store (brokers, topics, replicas, leaders), and what only the controller
keeps: the status of each partition and replica (transitions.py), the replicas that brokers reported as lost with their
disk, and the progress of each topic's deletion. A fail-over rebuilds the second from the first and from the brokers'
answers: the new controller reads the store, replays records of what it read, and sends every broker its roles.

A *record* is one change that is true already: read from the store, written to it, or reported by a broker. `replay`
applies it and decides nothing; an impossible record raises InvariantBroken. So an image is a function of its records:
the same records give the same image on every controller. Records are not stored anywhere; the nodes are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.controller.image.transitions import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionMove,
    PartitionStatus,
    ReplicaMove,
    ReplicaStatus,
    after,
)
from barnabas.controller.store.paths import BrokerRegistration, PartitionState
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

LEADERLESS = (PartitionStatus.NEW, PartitionStatus.OFFLINE)

# What the image is made of ---------------------------------------------------------------------------------------


class LiveBroker(NamedTuple):
    """A broker that is registered. `epoch` is the broker epoch, the czxid of the registration's node."""

    broker_id: int
    epoch: int
    registration: BrokerRegistration

    @property
    def kept_since(self) -> int:
        """The broker epoch since which it has lost no data: an earlier one that the registration names, or its own."""
        said = self.registration.kept_since
        # A number above its own epoch is wrong, and counts as absent.
        return self.epoch if said is None else min(said, self.epoch)


class Leadership(NamedTuple):
    """The content of a partition's state node, and the node's version, which is the partition epoch."""

    state: PartitionState
    partition_epoch: int


class Assignment(NamedTuple):
    """A partition's replicas in order of preference and, while it is reassigned (KIP-455), those added and removed."""

    replicas: tuple[int, ...]  # broker ids, with `adding` and `removing` among them
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether the partition is being reassigned."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment, to which a cancelled one returns."""
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    def moved_to(self, target: Iterable[int]) -> "Assignment":
        """The assignment during a reassignment to these replicas."""
        # The change starts from the origin, not from the present replicas, so a former target that
        # this one replaces leaves no replicas behind.
        target = tuple(target)
        origin = self.origin
        # The target comes first, as in Kafka: its order of preference holds from the start.
        replicas = tuple(dict.fromkeys((*target, *origin)))
        adding = tuple(each for each in replicas if each not in origin)
        return Assignment(replicas, adding, tuple(each for each in replicas if each not in target))


@dataclass(slots=True)
class PartitionImage:
    """One partition: its replicas, its leader and ISR, and the states of partition and replicas."""

    assignment: Assignment
    leadership: Leadership | None = None  # None until its first election
    status: PartitionStatus = PartitionStatus.NON_EXISTENT
    replica_statuses: dict[int, ReplicaStatus] = field(default_factory=dict)  # also of those still to be deleted

    @property
    def replicas(self) -> tuple[int, ...]:
        """The assigned replicas, in order of preference."""
        return self.assignment.replicas


@dataclass(slots=True)
class TopicImage:
    """A topic's id, ZERO_TOPIC_ID if it has none (before 2.8-IV0), and its partitions by index."""

    topic_id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


@dataclass(slots=True)
class Deletion:
    """The progress of a topic's deletion."""

    begun: bool = False  # its partitions are out of service
    halted: bool = False  # a replica cannot be deleted for now; a broker that joins resumes the deletion


# Records ---------------------------------------------------------------------------------------------------------


class BrokerJoined(NamedTuple):
    """A broker registered."""

    broker: LiveBroker


class BrokerChanged(NamedTuple):
    """A live broker changed its registration (endpoints); the broker epoch stays."""

    broker: LiveBroker


class BrokerLeaving(NamedTuple):
    """A broker has sent ControlledShutdown: it still serves, and is elected for nothing."""

    broker_id: int


class BrokerLeft(NamedTuple):
    """A broker's registration is gone."""

    broker_id: int


class TopicAppeared(NamedTuple):
    """A topic's node was found; its partitions follow as records of their own."""

    topic: str
    topic_id: bytes


class PartitionAppeared(NamedTuple):
    """A partition was assigned to replicas: with its topic, or added to it later."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class AssignmentsChanged(NamedTuple):
    """Partitions of a topic have other assignments, by index: a reassignment began, changed, ended or was cancelled."""

    topic: str
    assignments: Mapping[int, Assignment]


class LeadershipChanged(NamedTuple):
    """The state node of a partition was read or written."""

    topic_partition: TopicPartition
    leadership: Leadership


class ReplicaMoved(NamedTuple):
    """A replica's status changed."""

    topic_partition: TopicPartition
    broker_id: int
    move: ReplicaMove


class DirectoryReported(NamedTuple):
    """A broker's answer to LeaderAndIsr said whether the disk of a replica works."""

    topic_partition: TopicPartition
    broker_id: int
    works: bool


class DeletionMarked(NamedTuple):
    """The topic was marked for deletion."""

    topic: str


class DeletionBegun(NamedTuple):
    """These partitions of the topic went out of service: all of them, a slice in each record."""

    topic: str
    partitions: Sequence[TopicPartition]


class DeletionHalted(NamedTuple):
    """A replica of the topic cannot be deleted for now."""

    topic: str


class DeletionResumed(NamedTuple):
    """A broker that holds a replica of the topic can be reached again."""

    topic: str


class TopicDeleted(NamedTuple):
    """Every replica is deleted, and the topic's nodes and its marker are removed."""

    topic: str


class TopicGone(NamedTuple):
    """The topic's node is gone, or is another topic's. Unlike with TopicDeleted, replicas may have any status."""

    topic: str


Record = (
    BrokerJoined
    | BrokerChanged
    | BrokerLeaving
    | BrokerLeft
    | TopicAppeared
    | PartitionAppeared
    | AssignmentsChanged
    | LeadershipChanged
    | ReplicaMoved
    | DirectoryReported
    | DeletionMarked
    | DeletionBegun
    | DeletionHalted
    | DeletionResumed
    | TopicDeleted
    | TopicGone
)


# The image -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ClusterImage:
    """The whole image. Any function may read it; only `replay` changes it."""

    brokers: dict[int, LiveBroker] = field(default_factory=dict)  # live ones, by id
    shutting_down: dict[int, None] = field(default_factory=dict)  # of the live brokers: those that are about to stop
    topics: dict[str, TopicImage] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)  # by topic id
    failed_disks: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)  # broker -> replicas that it lost
    deletions: dict[str, Deletion] = field(default_factory=dict)  # topics marked for deletion
    # Indexes of the partitions above, so that no event looks through all of them.
    moving: dict[TopicPartition, None] = field(default_factory=dict)  # partitions that are being reassigned
    held: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)  # broker -> partitions assigned to it
    leaderless: dict[TopicPartition, None] = field(default_factory=dict)  # partitions that are New or Offline

    def is_current(self, broker: LiveBroker) -> bool:
        """Whether this is the broker's present registration; answers to requests for an earlier one are ignored."""
        known = self.brokers.get(broker.broker_id)
        return known is not None and known.epoch == broker.epoch

    def partition(self, topic_partition: TopicPartition) -> PartitionImage:
        """A partition that must be in the image. InvariantBroken."""
        found = self.find_partition(topic_partition)
        if found is None:
            raise InvariantBroken(f"{topic_partition} is not in the cluster image")
        return found

    def find_partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        """A partition, or None if it is not in the image."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def is_reachable(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Whether this replica serves: its broker is alive and has not reported its disk as failed."""
        # NO_LEADER is not in `brokers`, so this is False for it.
        return broker_id in self.brokers and topic_partition not in self.failed_disks.get(broker_id, ())

    def is_online(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Whether this replica may be elected: it is reachable, and its broker is not about to stop."""
        return broker_id not in self.shutting_down and self.is_reachable(topic_partition, broker_id)

    def reachable_replicas(self, topic_partition: TopicPartition) -> dict[int, None]:
        """The assigned replicas that are reachable, in order of preference."""
        replicas = self.partition(topic_partition).replicas
        return {broker_id: None for broker_id in replicas if self.is_reachable(topic_partition, broker_id)}

    def online_replicas(self, topic_partition: TopicPartition) -> dict[int, None]:
        """The assigned replicas that are online, in order of preference."""
        replicas = self.partition(topic_partition).replicas
        return {broker_id: None for broker_id in replicas if self.is_online(topic_partition, broker_id)}

    def partitions(self, topics: Iterable[str] | None = None) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """Every partition of these topics, or of all (None)."""
        for name in list(self.topics) if topics is None else topics:
            for index, partition in self.topics[name].partitions.items():
                yield TopicPartition(name, index), partition

    def replicas_on(self, broker_ids: Mapping[int, object]) -> Iterator[tuple[TopicPartition, int]]:
        """Every replica that is assigned to these brokers, as (partition, broker id)."""
        for broker_id in broker_ids:
            for topic_partition in self.held.get(broker_id, ()):
                yield topic_partition, broker_id

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic is marked for deletion; for clients it no longer exists then."""
        return topic in self.deletions


# Replay ----------------------------------------------------------------------------------------------------------


def replay(image: ClusterImage, record: Record) -> None:
    """Apply one record. InvariantBroken if it contradicts the image."""
    _REPLAY[type(record)](image, record)


def replay_all(image: ClusterImage, records: Sequence[Record]) -> None:
    """Apply several records, in order."""
    for record in records:
        _REPLAY[type(record)](image, record)


def _broker_joined(image: ClusterImage, record: BrokerJoined) -> None:
    image.brokers[record.broker.broker_id] = record.broker


def _broker_changed(image: ClusterImage, record: BrokerChanged) -> None:
    if record.broker.broker_id not in image.brokers:
        raise InvariantBroken(f"broker {record.broker.broker_id} changed but is not in the cluster image")
    image.brokers[record.broker.broker_id] = record.broker


def _broker_leaving(image: ClusterImage, record: BrokerLeaving) -> None:
    if record.broker_id not in image.brokers:
        raise InvariantBroken(f"broker {record.broker_id} is leaving but is not in the cluster image")
    image.shutting_down[record.broker_id] = None


def _broker_left(image: ClusterImage, record: BrokerLeft) -> None:
    # Partitions that the broker led stay Online until another state is written for them.
    del image.brokers[record.broker_id]
    # These two belong to this registration: a broker that returns is not stopping, and reports its
    # disks again.
    image.shutting_down.pop(record.broker_id, None)
    image.failed_disks.pop(record.broker_id, None)


def _topic_appeared(image: ClusterImage, record: TopicAppeared) -> None:
    if record.topic in image.topics:
        raise InvariantBroken(f"topic {record.topic} appeared twice")
    image.topics[record.topic] = TopicImage(record.topic_id)
    # ZERO_TOPIC_ID stands for "no id": many topics may have it, so it names none of them.
    if record.topic_id != ZERO_TOPIC_ID:
        image.topic_names[record.topic_id] = record.topic


def _partition_appeared(image: ClusterImage, record: PartitionAppeared) -> None:
    # The partition is New even if it has a state node: that is replayed next, as LeadershipChanged.
    topic_partition = record.topic_partition
    partition = PartitionImage(Assignment(record.replicas, record.adding, record.removing))
    _move_partition(image, topic_partition, partition, PartitionMove.ASSIGN)
    for broker_id in record.replicas:
        _move_replica(topic_partition, partition, broker_id, ReplicaMove.ASSIGN)
        image.held.setdefault(broker_id, {})[topic_partition] = None
    image.topics[topic_partition.topic].partitions[topic_partition.partition] = partition
    _note_move(image, topic_partition, partition.assignment)


def _assignments_changed(image: ClusterImage, record: AssignmentsChanged) -> None:
    """A replica that is added gets a status; one that is dropped keeps its status until it is deleted."""
    for index, assignment in record.assignments.items():
        topic_partition = TopicPartition(record.topic, index)
        partition = image.partition(topic_partition)
        for broker_id in assignment.replicas:
            # A replica that an earlier target added, or that returns when a move is cancelled,
            # still has a status.
            if broker_id not in partition.replica_statuses:
                _move_replica(topic_partition, partition, broker_id, ReplicaMove.ASSIGN)
        _release(image, topic_partition, partition.replicas)
        for broker_id in assignment.replicas:
            image.held.setdefault(broker_id, {})[topic_partition] = None
        partition.assignment = assignment
        _note_move(image, topic_partition, assignment)


def _release(image: ClusterImage, topic_partition: TopicPartition, replicas: Iterable[int]) -> None:
    """Remove the partition from what these brokers hold."""
    for broker_id in replicas:
        held = image.held[broker_id]
        del held[topic_partition]
        # A broker that holds nothing has no entry: it may never come back.
        if not held:
            del image.held[broker_id]


def _note_move(image: ClusterImage, topic_partition: TopicPartition, assignment: Assignment) -> None:
    if assignment.is_moving:
        image.moving[topic_partition] = None
    else:
        image.moving.pop(topic_partition, None)


def _leadership_changed(image: ClusterImage, record: LeadershipChanged) -> None:
    partition = image.partition(record.topic_partition)
    partition.leadership = record.leadership
    # A leader that is about to stop is reachable, though not online, and leads until another is
    # elected. If only the ISR changes, this is ELECT once more, which is legal.
    led = image.is_reachable(record.topic_partition, record.leadership.state.leader)
    _move_partition(image, record.topic_partition, partition, PartitionMove.ELECT if led else PartitionMove.LOSE_LEADER)


def _replica_moved(image: ClusterImage, record: ReplicaMoved) -> None:
    partition = image.partition(record.topic_partition)
    _move_replica(record.topic_partition, partition, record.broker_id, record.move)
    # The replica was dropped by a reassignment, and is deleted now.
    if partition.replica_statuses[record.broker_id] is ReplicaStatus.NON_EXISTENT:
        del partition.replica_statuses[record.broker_id]


def _directory_reported(image: ClusterImage, record: DirectoryReported) -> None:
    failed = image.failed_disks.setdefault(record.broker_id, {})
    if record.works:
        failed.pop(record.topic_partition, None)
    else:
        failed[record.topic_partition] = None


def _deletion_marked(image: ClusterImage, record: DeletionMarked) -> None:
    image.deletions[record.topic] = Deletion()


def _deletion_begun(image: ClusterImage, record: DeletionBegun) -> None:
    image.deletions[record.topic].begun = True
    for topic_partition in record.partitions:
        partition = image.partition(topic_partition)
        # In two moves, because REMOVE is legal only when Offline.
        _move_partition(image, topic_partition, partition, PartitionMove.LOSE_LEADER)
        _move_partition(image, topic_partition, partition, PartitionMove.REMOVE)


def _deletion_halted(image: ClusterImage, record: DeletionHalted) -> None:
    image.deletions[record.topic].halted = True


def _deletion_resumed(image: ClusterImage, record: DeletionResumed) -> None:
    image.deletions[record.topic].halted = False


def _topic_deleted(image: ClusterImage, record: TopicDeleted) -> None:
    for topic_partition, partition in image.partitions([record.topic]):
        # REMOVE is legal only in DeletionSuccessful, so this checks that every replica was deleted.
        for broker_id in partition.replicas:
            _move_replica(topic_partition, partition, broker_id, ReplicaMove.REMOVE)
    _forget_topic(image, record.topic)


def _topic_gone(image: ClusterImage, record: TopicGone) -> None:
    _forget_topic(image, record.topic)


def _forget_topic(image: ClusterImage, topic: str) -> None:
    # A topic that is created again under this name must find nothing of the former one.
    for failed in image.failed_disks.values():
        for index in image.topics[topic].partitions:
            failed.pop(TopicPartition(topic, index), None)
    for topic_partition, partition in image.partitions([topic]):
        image.moving.pop(topic_partition, None)
        image.leaderless.pop(topic_partition, None)
        _release(image, topic_partition, partition.replicas)
    forgotten = image.topics.pop(topic)
    image.topic_names.pop(forgotten.topic_id, None)
    image.deletions.pop(topic, None)


def _move_partition(
    image: ClusterImage, topic_partition: TopicPartition, partition: PartitionImage, move: PartitionMove
) -> None:
    partition.status = after(PARTITION_TRANSITIONS, partition.status, move, topic_partition)
    # Every change of a partition's status is made here, so the index misses none.
    if partition.status in LEADERLESS:
        image.leaderless[topic_partition] = None
    else:
        image.leaderless.pop(topic_partition, None)


def _move_replica(
    topic_partition: TopicPartition, partition: PartitionImage, broker_id: int, move: ReplicaMove
) -> None:
    status = partition.replica_statuses.get(broker_id, ReplicaStatus.NON_EXISTENT)
    moved = after(REPLICA_TRANSITIONS, status, move, "replica", broker_id, "of", topic_partition)
    partition.replica_statuses[broker_id] = moved


_REPLAY: dict[type[Record], Callable[..., None]] = {
    BrokerJoined: _broker_joined,
    BrokerChanged: _broker_changed,
    BrokerLeaving: _broker_leaving,
    BrokerLeft: _broker_left,
    TopicAppeared: _topic_appeared,
    PartitionAppeared: _partition_appeared,
    AssignmentsChanged: _assignments_changed,
    LeadershipChanged: _leadership_changed,
    ReplicaMoved: _replica_moved,
    DirectoryReported: _directory_reported,
    DeletionMarked: _deletion_marked,
    DeletionBegun: _deletion_begun,
    DeletionHalted: _deletion_halted,
    DeletionResumed: _deletion_resumed,
    TopicDeleted: _topic_deleted,
    TopicGone: _topic_gone,
}
