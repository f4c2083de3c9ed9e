"""The two state tables: what they allow, and that the README draws exactly them."""

from pathlib import Path

import pytest

from barnabas.controller.image import transitions
from barnabas.controller.image.transitions import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionMove,
    PartitionStatus,
    ReplicaMove,
    ReplicaStatus,
    after,
    is_legal,
)
from barnabas.wire.errors import InvariantBroken

README = Path(transitions.__file__).parents[1] / "README.md"
TABLES = {"partition": PARTITION_TRANSITIONS, "replica": REPLICA_TRANSITIONS}

# The states from which each state may be entered, as the reference lists them (B.3, B.4).
PREVIOUS_PARTITION_STATES = {
    "New": {"NonExistent"},
    "Online": {"New", "Online", "Offline"},
    "Offline": {"New", "Online", "Offline"},
    "NonExistent": {"Offline"},
}
PREVIOUS_REPLICA_STATES = {
    "New": {"NonExistent"},
    "Online": {"New", "Online", "Offline", "DeletionIneligible"},
    "Offline": {"New", "Online", "Offline", "DeletionIneligible"},
    "DeletionStarted": {"Offline"},
    "DeletionSuccessful": {"DeletionStarted"},
    "DeletionIneligible": {"Offline", "DeletionStarted"},
    "NonExistent": {"DeletionSuccessful"},
}


def previous_states(table):
    found = {}
    for status, moves in table.items():
        for reached in moves.values():
            found.setdefault(reached.value, set()).add(status.value)
    return found


def diagram(table):
    """The table as a Mermaid state diagram."""
    start = next(iter(table))
    lines = ["stateDiagram-v2", f"    [*] --> {start.value}"]
    for status, moves in table.items():
        lines += [f"    {status.value} --> {reached.value}: {move.value}" for move, reached in moves.items()]
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def test_partitions_enter_states_from_where_kafka_allows_it():
    assert previous_states(PARTITION_TRANSITIONS) == PREVIOUS_PARTITION_STATES


def test_replicas_enter_states_from_where_kafka_allows_it():
    assert previous_states(REPLICA_TRANSITIONS) == PREVIOUS_REPLICA_STATES


def test_every_state_has_a_row():
    assert list(PARTITION_TRANSITIONS) == list(PartitionStatus)
    assert list(REPLICA_TRANSITIONS) == list(ReplicaStatus)


def test_every_move_is_used():
    assert {move for moves in PARTITION_TRANSITIONS.values() for move in moves} == set(PartitionMove)
    assert {move for moves in REPLICA_TRANSITIONS.values() for move in moves} == set(ReplicaMove)


def statuses_along(status, *moves):
    passed = []
    for move in moves:
        status = after(REPLICA_TRANSITIONS, status, move)
        passed.append(status.value)
    return passed


def test_a_replica_lives_and_its_deletion_is_refused():
    moves = ReplicaMove.ASSIGN, ReplicaMove.START, ReplicaMove.STOP, ReplicaMove.BEGIN_DELETION
    passed = statuses_along(ReplicaStatus.NON_EXISTENT, *moves, ReplicaMove.REFUSE_DELETION)
    assert passed == ["New", "Online", "Offline", "DeletionStarted", "DeletionIneligible"]


def test_a_refused_deletion_is_tried_again_until_nothing_is_left():
    moves = ReplicaMove.STOP, ReplicaMove.BEGIN_DELETION, ReplicaMove.CONFIRM_DELETION, ReplicaMove.REMOVE
    passed = statuses_along(ReplicaStatus.DELETION_INELIGIBLE, *moves)
    assert passed == ["Offline", "DeletionStarted", "DeletionSuccessful", "NonExistent"]


def test_a_move_outside_the_table_breaks_an_invariant_and_says_whose():
    with pytest.raises(InvariantBroken, match="replica 3 of orders-0 is Online: 'begin deletion' is not possible"):
        after(REPLICA_TRANSITIONS, ReplicaStatus.ONLINE, ReplicaMove.BEGIN_DELETION, "replica", 3, "of", "orders-0")


def test_only_moves_in_the_table_are_legal():
    assert is_legal(PARTITION_TRANSITIONS, PartitionStatus.OFFLINE, PartitionMove.REMOVE)
    assert not is_legal(PARTITION_TRANSITIONS, PartitionStatus.ONLINE, PartitionMove.REMOVE)


@pytest.mark.parametrize("name", TABLES)
def test_the_readme_draws_the_table(name):
    drawn = diagram(TABLES[name])
    assert drawn in README.read_text(encoding="utf-8"), f"the diagram should be:\n{drawn}"
