"""Conditions that must hold again some time after the last fault: rules I10 and I11.

`why_not_converged` checks the whole cluster and returns what is still missing, in one line. None means that

  - every partition has a leader, all its replicas are in sync, and no reassignment is in progress,
  - every producer got an acknowledgement and every consumer a record since the faults ended,
  - in every group all partitions of the topic are assigned to members.

After the clients have stopped, `why_not_equal` checks that all replicas of a partition are equal, and that their high
watermarks are at the log end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionState, TopicAssignment
from barnabas.testing.simulation.bookkeepers import Bookkeeper
from barnabas.testing.simulation.cluster import Cluster
from barnabas.testing.simulation.consumers import Reader
from barnabas.testing.simulation.groups import Member
from barnabas.testing.simulation.hostile import Hostile
from barnabas.testing.simulation.invariants import Checks
from barnabas.testing.simulation.party import Party
from barnabas.testing.simulation.producers import Twin, Writer
from barnabas.testing.simulation.secured import Keeper, Stranger, why_rights_differ
from barnabas.testing.simulation.transactional import TransactionalWriter
from barnabas.wire.sentinels import ACKS_ALL, NO_LEADER
from barnabas.wire.topics import TopicPartition


class Client(Protocol):
    """A client that runs until it is stopped."""

    party: Party

    async def run(self) -> None:
        """Work until stopped."""

    def stop(self) -> None:
        """Come to an end."""


@dataclass
class Clients:
    """Everybody who talks to the cluster."""

    writers: list[Writer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    twins: list[Twin] = field(default_factory=list)
    transactional: list[TransactionalWriter] = field(default_factory=list)
    bookkeepers: list[Bookkeeper] = field(default_factory=list)
    keepers: list[Keeper] = field(default_factory=list)
    strangers: list[Stranger] = field(default_factory=list)
    hostile: list[Hostile] = field(default_factory=list)

    def everybody(self) -> list[Client]:
        """All of them."""
        return [
            *self.writers,
            *self.readers,
            *self.members,
            *self.twins,
            *self.transactional,
            *self.bookkeepers,
            *self.keepers,
            *self.strangers,
            *self.hostile,
        ]

    def calm(self) -> None:
        """The faults are over: none is caused on purpose any more."""
        for writer in self.transactional:
            writer.calm()
        for member in self.members:
            member.calm()

    def striving(self) -> "list[Writer | Reader | TransactionalWriter]":
        """Those that must make progress."""
        writers = [each for each in self.writers if each.plan.acks == ACKS_ALL]
        return [*writers, *self.readers, *(each for each in self.transactional if not each.plan.rival_seconds)]

    def progress(self) -> list[int]:
        """How far each of those has come that must make progress."""
        return [each.progress for each in self.striving()]


def why_not_converged(cluster: Cluster, clients: Clients, progress_before: Sequence[int]) -> str | None:
    """What is still missing, or None."""
    for node in cluster.nodes.values():
        if not node.is_ready:
            return f"{node.name} does not serve"
    return _why_not_in_sync(cluster) or _why_not_stable(cluster, clients) or _why_no_progress(clients, progress_before)


def why_not_settled(cluster: Cluster, clients: Clients, checks: Checks) -> tuple[str, str] | None:
    """What is still missing when no client writes, with the rule that demands it; or None."""
    if (why := why_not_equal(cluster, checks)) is not None:
        return "I10", why
    if clients.keepers:
        return why_rights_differ(cluster.nodes, cluster.store.tree, clients.keepers)
    return None if checks.transactions is None else checks.transactions.why_not_ended(checks.truths)


def why_not_equal(cluster: Cluster, checks: Checks) -> str | None:
    """Which replicas differ, or None. No client may write meanwhile."""
    for topic in cluster.store.tree.children(paths.TOPICS):
        assignment = _assignment_of(cluster, topic)
        for partition, replicas in assignment.partitions.items():
            truth = checks.truths.find(topic, assignment.topic_id, partition)
            if truth is None:
                return f"{topic}-{partition} is nowhere"
            willing = _without_strays(cluster, TopicPartition(topic, partition), replicas, assignment.topic_id)
            shadows = [truth.shadows.get(each) for each in willing]
            for shadow in shadows:
                if shadow is None or shadow.end_offset != truth.committed_end:
                    end = None if shadow is None else shadow.end_offset
                    return f"{truth}: {shadow and shadow.broker_id} ends at {end}, committed is {truth.committed_end}"
                if shadow.high_watermark != shadow.end_offset:
                    return f"{truth}: {shadow.broker_id} has the high watermark {shadow.high_watermark}"
                first = shadow.index_of(shadow.start_offset)
                held = shadow.batches[first:]
                if held != truth.committed[len(truth.committed) - len(held) :]:
                    return f"{truth}: what {shadow.broker_id} holds is not what was committed"

    return None


def _without_strays(
    cluster: Cluster, key: TopicPartition, replicas: Sequence[int], topic_id: bytes | None
) -> list[int]:
    """The replicas without those whose broker holds a log of an earlier topic of this name.

    A broker that was away when a partition was moved off it keeps the log. When the topic is deleted after that, and
    another one of its name is assigned to the broker, it asks the store, and refuses (INCONSISTENT_TOPIC_ID) if the
    store does not answer; Apache Kafka 3.9 always does.
    """
    logs = {node.broker_id: node.broker.replicas.logs.get(key) for node in cluster.nodes.values() if node.broker}
    found = {broker_id: log.topic_id for broker_id, log in logs.items() if log is not None}
    return [each for each in replicas if found.get(each) in (None, topic_id)]


def _assignment_of(cluster: Cluster, topic: str) -> TopicAssignment:
    path = paths.topic(topic)
    return TopicAssignment.decode(cluster.store.tree.get(path)[0], path)


def _why_not_in_sync(cluster: Cluster) -> str | None:
    tree = cluster.store.tree
    for topic in tree.children(paths.TOPICS):
        assignment = _assignment_of(cluster, topic)
        for partition, replicas in assignment.partitions.items():
            path = paths.partition_state(topic, partition)
            if tree.stat(path) is None:
                return f"{topic}-{partition} has no state"
            state = PartitionState.decode(tree.get(path)[0], path)
            if state.leader == NO_LEADER:
                return f"{topic}-{partition} has no leader"
            willing = _without_strays(cluster, TopicPartition(topic, partition), replicas, assignment.topic_id)
            if sorted(state.isr) != sorted(willing):
                return f"{topic}-{partition}: {list(state.isr)} of {list(replicas)} are in sync"
        if any(assignment.adding.values()) or any(assignment.removing.values()):
            return f"{topic} is being reassigned"

    for topic in tree.children(paths.DELETE_TOPICS):
        return f"{topic} is being deleted"
    return None


def _why_not_stable(cluster: Cluster, clients: Clients) -> str | None:
    owned: dict[tuple[str, str], list[int]] = {}
    generations: dict[str, set[int]] = {}
    for member in clients.members:
        if not member.is_stable:
            return f"{member.party.name} is in no generation of {member.group}"
        owned.setdefault((member.group, member.topic), []).extend(member.owned)
        generations.setdefault(member.group, set()).add(member.generation)

    for group, found in generations.items():
        if len(found) > 1:
            return f"members of {group} are in generations {sorted(found)}"
    for (group, topic), partitions in owned.items():
        every = sorted(_assignment_of(cluster, topic).partitions)
        if sorted(partitions) != every:
            return f"{group} owns {sorted(partitions)} of {topic}, not {every}"

    return None


def _why_no_progress(clients: Clients, before: Sequence[int]) -> str | None:
    now = clients.progress()
    standing = [number for number, (then, later) in enumerate(zip(before, now, strict=True)) if later <= then]
    if not standing:
        return None
    names = [each.party.name for each in clients.striving()]
    return f"no progress of {', '.join(names[number] for number in standing)}"
