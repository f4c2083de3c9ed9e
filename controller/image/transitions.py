"""The controller's state machines of partitions and of replicas (reference B.3, B.4).

Theory of operation
-------------------
The two literal tables below are the state machines; no other file compares states to find out whether a move is legal.
A table maps a state to the moves that are legal in it, and each move to the state that it leads to. A move that is not
in the table is a contradiction in the image: `InvariantBroken` ends the term, and the next controller builds a new
image from the metadata store.

A move says *why* a state changes, not which state is wanted. What must be written and sent along with it is decided in
`decide/`; this file has no broker, no store and no leader.

A *partition* is New once its replicas are assigned, Online while its leader is alive, Offline while it has none. The
first election, and every later one, is the same move ELECT. When its topic is deleted, a partition goes out of service
before any replica is deleted: Online -> Offline -> NonExistent.

A *replica* is one partition on one broker. New, Online and Offline follow the assignment and the broker's registration.
When its topic is deleted, a replica goes to DeletionStarted, and to DeletionSuccessful when the broker confirms; or to
DeletionIneligible when it cannot be deleted for now, because its broker is dead or its disk failed. A retry is the move
STOP back to Offline, where deletion may begin again.

A test compares the diagrams in README.md with these tables.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from barnabas.wire.errors import InvariantBroken


class PartitionStatus(Enum):
    """The state of a partition (Kafka's PartitionState)."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


class PartitionMove(Enum):
    """Why a partition's status changes."""

    ASSIGN = "assign"  # its topic was created, or got more partitions
    ELECT = "elect"  # a live replica leads it
    LOSE_LEADER = "lose leader"  # no replica leads it
    REMOVE = "remove"  # its topic is being deleted


class ReplicaStatus(Enum):
    """The state of one replica of a partition (Kafka's ReplicaState)."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"


class ReplicaMove(Enum):
    """Why a replica's status changes."""

    ASSIGN = "assign"  # the broker is to hold it
    START = "start"  # the broker is alive and was sent its role
    STOP = "stop"  # the broker or its disk is gone, or it was asked to stop
    BEGIN_DELETION = "begin deletion"  # the broker was asked to delete the log
    CONFIRM_DELETION = "confirm deletion"  # the broker has deleted the log
    REFUSE_DELETION = "refuse deletion"  # the broker cannot delete the log for now
    REMOVE = "remove"  # its log is deleted, and the image drops it


PARTITION_TRANSITIONS: dict[PartitionStatus, dict[PartitionMove, PartitionStatus]] = {
    PartitionStatus.NON_EXISTENT: {
        PartitionMove.ASSIGN: PartitionStatus.NEW,
    },
    PartitionStatus.NEW: {
        PartitionMove.ELECT: PartitionStatus.ONLINE,
        # A state node is read that names a dead leader, or the topic is deleted before its first election.
        PartitionMove.LOSE_LEADER: PartitionStatus.OFFLINE,
    },
    PartitionStatus.ONLINE: {
        # The partition has another leader, or another ISR under the same leader.
        PartitionMove.ELECT: PartitionStatus.ONLINE,
        PartitionMove.LOSE_LEADER: PartitionStatus.OFFLINE,
    },
    PartitionStatus.OFFLINE: {
        PartitionMove.ELECT: PartitionStatus.ONLINE,
        # The state node changes while the partition has no leader; and a deletion makes this move in any state.
        PartitionMove.LOSE_LEADER: PartitionStatus.OFFLINE,
        PartitionMove.REMOVE: PartitionStatus.NON_EXISTENT,
    },
}

REPLICA_TRANSITIONS: dict[ReplicaStatus, dict[ReplicaMove, ReplicaStatus]] = {
    ReplicaStatus.NON_EXISTENT: {
        ReplicaMove.ASSIGN: ReplicaStatus.NEW,
    },
    ReplicaStatus.NEW: {
        ReplicaMove.START: ReplicaStatus.ONLINE,
        ReplicaMove.STOP: ReplicaStatus.OFFLINE,
    },
    ReplicaStatus.ONLINE: {
        # Nothing makes this move now: roles that are sent again change no status.
        ReplicaMove.START: ReplicaStatus.ONLINE,
        ReplicaMove.STOP: ReplicaStatus.OFFLINE,
    },
    ReplicaStatus.OFFLINE: {
        ReplicaMove.START: ReplicaStatus.ONLINE,
        ReplicaMove.STOP: ReplicaStatus.OFFLINE,
        ReplicaMove.BEGIN_DELETION: ReplicaStatus.DELETION_STARTED,
        ReplicaMove.REFUSE_DELETION: ReplicaStatus.DELETION_INELIGIBLE,
    },
    # This state is ended only by an answer, or by the death of the broker: a role must not reach a
    # log that is being deleted.
    ReplicaStatus.DELETION_STARTED: {
        ReplicaMove.CONFIRM_DELETION: ReplicaStatus.DELETION_SUCCESSFUL,
        ReplicaMove.REFUSE_DELETION: ReplicaStatus.DELETION_INELIGIBLE,
    },
    # The replica's log is gone, so it is not started again, even while the topic's other replicas
    # wait for their deletion.
    ReplicaStatus.DELETION_SUCCESSFUL: {
        ReplicaMove.REMOVE: ReplicaStatus.NON_EXISTENT,
    },
    ReplicaStatus.DELETION_INELIGIBLE: {
        ReplicaMove.START: ReplicaStatus.ONLINE,
        ReplicaMove.STOP: ReplicaStatus.OFFLINE,
    },
}

Status = TypeVar("Status", bound=Enum)
Move = TypeVar("Move", bound=Enum)


def after(table: Mapping[Status, Mapping[Move, Status]], status: Status, move: Move, *subject: object) -> Status:
    """The status that `move` leads to; InvariantBroken if the table does not have the move.

    `subject` names the partition or replica in the error.
    """
    # The words of the subject are joined only on failure, because this runs for every partition and replica.
    try:
        return table[status][move]
    except KeyError:
        name = " ".join(map(str, subject))
        raise InvariantBroken(f"{name} is {status.value}: {move.value!r} is not possible") from None


def is_legal(table: Mapping[Status, Mapping[Move, Status]], status: Status, move: Move) -> bool:
    """Whether the table has this move: for decisions about those replicas only that can make it."""
    return move in table[status]
