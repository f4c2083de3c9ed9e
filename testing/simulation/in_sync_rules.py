"""The rule about in-sync replicas (I19), and the states of partitions that it is checked with (pure).

What a leader's high watermark has passed is committed: `truth.py` takes the leader's word for it. By the other rules a
high watermark that rises too early is found only if a replica that lacks the records is elected before it gets them. So
this rule looks at the replicas at the moment when the high watermark passes a batch:

    each member of the ISR that the metadata store has for the leader's epoch has, or had, the batch;
    a batch that is acknowledged with acks=all is, or was, on `min.insync.replicas` replicas, or on all of them if a
    reassignment has left fewer.

The store never has a member that the leader does not wait for: a leader waits for a new member before it asks for it,
and for a removed one until it hears that the store has the change. A replica that had the batch once and lost it is
for the rules about losses.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.controller.store.paths import PartitionState
from barnabas.testing.simulation.observe import WatchedNode
from barnabas.testing.simulation.truth import Truth
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import BatchHeader

Violate = Callable[[str, str], None]  # rule, what has happened


class Election(NamedTuple):
    """A state of a partition as it was written to the store, when, and who could be relied on to be a leader of it."""

    state: PartitionState
    written: float
    reliable: frozenset[int]


class InSyncRules:
    """I19."""

    def __init__(self, violate: Violate) -> None:
        self.nodes: Sequence[WatchedNode] = ()
        self.replicas_min: dict[str, int] = {}  # topic -> the smallest min.insync.replicas that it has had
        self._violate = violate

    def may_be(self, topic: str, replicas: int) -> None:
        """From now on `min.insync.replicas` of this topic may be this."""
        self.replicas_min[topic] = min(replicas, self.replicas_min.get(topic, replicas))

    def committed(self, truth: Truth, batch: BatchHeader, epoch: int, states: Sequence[Election]) -> None:
        """The high watermark of the leader of this epoch passed this batch."""
        if truth.is_deleted:
            return  # the store has the states of the next topic of this name, if any
        for state in (each.state for each in reversed(states) if each.state.leader_epoch == epoch):
            lacking = [each for each in state.isr if not self._has_had(truth, each, batch)]
            if lacking:
                self._violate(
                    "I19", f"{truth}: {batch} is committed in epoch {epoch}, and {lacking} of the ISR lack it"
                )
            return

    def acked(self, truth: Truth, batch: BatchHeader) -> None:
        """This batch was acknowledged with acks=all."""
        holders = truth.holders_of(batch)
        counts = [n for epoch, n in truth.replica_counts.items() if epoch >= batch.partition_leader_epoch]
        wanted = min([self.replicas_min.get(truth.topic, 1), *counts])
        if len(holders) < wanted:
            found = sorted(holders)
            self._violate("I19", f"{truth}: {batch} is acknowledged, and on {found} only: {wanted} replicas are wanted")

    def _has_had(self, truth: Truth, broker_id: int, batch: BatchHeader) -> bool:
        if broker_id in truth.holders_of(batch):
            return True
        # A replica that came a moment ago may not have been looked at.
        brokers = [each.broker for each in self.nodes if each.broker_id == broker_id]
        found = brokers[0].replicas.get(truth.topic, truth.partition) if brokers and brokers[0] else None
        log = None if found is None or isinstance(found, ErrorCode) else found.log
        return log is not None and log.log_end_offset > batch.last_offset
