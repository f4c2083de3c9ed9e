"""The life of a partition and of a replica, as the controller sees it (reference B.3, B.4).

Theory of operation
-------------------
Everything about which state may follow which lives in the two literal tables below; no other file compares states to
find out whether a move is legal. A table maps a state to the moves that are legal in it, and each move to the state it
leads to. A move that is not in the table is a contradiction in the controller's own state: `InvariantBroken`, which
costs this broker the controller role, and the next controller rebuilds its image from the metadata store.

A move says *why* a state changes, not which state is wanted. What must have been written, and what brokers must be sent
on each move, is not here but in `replicas.py`; this file knows no broker, no store and no leader.

A *partition* is New once its replicas are assigned, Online while its leader is alive, Offline while it has none.
Its first election, and every later one, is the same move ELECT. Deletion takes a partition out of service before any
replica is touched: Online -> Offline -> NonExistent.

A *replica* is one partition on one broker. New, Online and Offline follow the assignment and the broker's life. The
deletion of a topic runs through DeletionStarted to DeletionSuccessful when the broker confirms, or to
DeletionIneligible when it cannot for now: its broker is dead or its disk failed. Retrying is the move STOP, back to
Offline, whence deletion may begin again.

The diagrams in README.md are printed from these tables, and a test compares them.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from barnabas.wire.errors import InvariantBroken


class PartitionStatus(Enum):
    """Where a partition stands."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


class PartitionMove(Enum):
    """Why a partition's status changes."""

    ASSIGN = "assign"  # its topic was created or grew
    ELECT = "elect"  # a live replica leads it
    LOSE_LEADER = "lose leader"  # no replica leads it
    REMOVE = "remove"  # its topic is being deleted


class ReplicaStatus(Enum):
    """Where one replica of a partition stands."""

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
    REMOVE = "remove"  # nothing is left of it


PARTITION_TRANSITIONS: dict[PartitionStatus, dict[PartitionMove, PartitionStatus]] = {
    PartitionStatus.NON_EXISTENT: {
        PartitionMove.ASSIGN: PartitionStatus.NEW,
    },
    PartitionStatus.NEW: {
        PartitionMove.ELECT: PartitionStatus.ONLINE,
        PartitionMove.LOSE_LEADER: PartitionStatus.OFFLINE,
    },
    PartitionStatus.ONLINE: {
        PartitionMove.ELECT: PartitionStatus.ONLINE,
        PartitionMove.LOSE_LEADER: PartitionStatus.OFFLINE,
    },
    PartitionStatus.OFFLINE: {
        PartitionMove.ELECT: PartitionStatus.ONLINE,
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
        ReplicaMove.START: ReplicaStatus.ONLINE,
        ReplicaMove.STOP: ReplicaStatus.OFFLINE,
    },
    ReplicaStatus.OFFLINE: {
        ReplicaMove.START: ReplicaStatus.ONLINE,
        ReplicaMove.STOP: ReplicaStatus.OFFLINE,
        ReplicaMove.BEGIN_DELETION: ReplicaStatus.DELETION_STARTED,
        ReplicaMove.REFUSE_DELETION: ReplicaStatus.DELETION_INELIGIBLE,
    },
    ReplicaStatus.DELETION_STARTED: {
        ReplicaMove.CONFIRM_DELETION: ReplicaStatus.DELETION_SUCCESSFUL,
        ReplicaMove.REFUSE_DELETION: ReplicaStatus.DELETION_INELIGIBLE,
    },
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
    """The status that `move` leads to; InvariantBroken when the table does not know the move.

    `subject` are the words that name what moves, joined only for the error.
    """
    try:
        return table[status][move]
    except KeyError:
        name = " ".join(map(str, subject))
        raise InvariantBroken(f"{name} is {status.value}: {move.value!r} is not possible") from None


def is_legal(table: Mapping[Status, Mapping[Move, Status]], status: Status, move: Move) -> bool:
    """Whether the table knows this move: for decisions that concern only those who can make it."""
    return move in table[status]
