"""Leader election (pure): one function for each strategy, in a table (reference B.5).

Every election answers the same question, given the assigned replicas in order of preference and which of them are alive
and in sync: which replica leads, and what the ISR is afterwards. None means that no replica may lead; then the caller
leaves the partition as it is, or without a leader. The caller writes the result, with a leader epoch one higher.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum
from typing import NamedTuple


class Strategy(Enum):
    """Why an election is held."""

    OFFLINE = "offline"  # the leader died, or there never was one
    REASSIGN = "reassign"  # the leader is not among the target replicas of a reassignment, or dead
    PREFERRED = "preferred"  # the first assigned replica should lead, for balance
    CONTROLLED_SHUTDOWN = "controlled shutdown"  # the leader is about to stop


class Candidates(NamedTuple):
    """One partition before an election."""

    replicas: Sequence[int]  # the assigned replicas, the preferred one first; for REASSIGN the target replicas
    isr: Sequence[int]
    live: Container[int]  # brokers that are alive, not shutting down, and whose disk of this partition works
    shutting_down: Container[int] = ()
    unclean_allowed: bool = False


class Elected(NamedTuple):
    """The outcome."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect_offline(partition: Candidates) -> Elected | None:
    """The first live replica in sync; if there is none and an unclean election is allowed, the first live replica."""
    live = tuple(replica for replica in partition.replicas if replica in partition.live)
    for replica in live:
        # The dead members leave the ISR in the same write: until then no record would be committed.
        if replica in partition.isr:
            return Elected(replica, tuple(each for each in partition.isr if each in partition.live))
    # The new leader may lack acknowledged records, so its topic must allow that. The ISR is this leader alone, because
    # the other logs may hold records that the leader's log lacks, and are truncated first.
    if live and partition.unclean_allowed:
        return Elected(live[0], (live[0],), unclean=True)
    return None


def elect_for_reassignment(partition: Candidates) -> Elected | None:
    """The first of the target replicas that is live and in sync."""
    # The ISR stays: the caller removes the replicas that are no longer assigned.
    for replica in partition.replicas:
        if replica in partition.live and replica in partition.isr:
            return Elected(replica, tuple(partition.isr))
    return None


def elect_preferred(partition: Candidates) -> Elected | None:
    """The first assigned replica, or none: an election for balance must not cost a record."""
    preferred = partition.replicas[0] if partition.replicas else None
    if preferred is None or preferred not in partition.live or preferred not in partition.isr:
        return None
    return Elected(preferred, tuple(partition.isr))


def elect_for_controlled_shutdown(partition: Candidates) -> Elected | None:
    """The first live replica in sync that is not shutting down; those that are leave the ISR."""
    # All that are shutting down are left out, not only the leader: several brokers may be stopped
    # at once, and leadership must not move from one of them to another.
    for replica in partition.replicas:
        if replica in partition.live and replica in partition.isr and replica not in partition.shutting_down:
            staying = tuple(each for each in partition.isr if each not in partition.shutting_down)
            return Elected(replica, staying)
    return None


ELECTIONS: Mapping[Strategy, Callable[[Candidates], Elected | None]] = {
    Strategy.OFFLINE: elect_offline,
    Strategy.REASSIGN: elect_for_reassignment,
    Strategy.PREFERRED: elect_preferred,
    Strategy.CONTROLLED_SHUTDOWN: elect_for_controlled_shutdown,
}
