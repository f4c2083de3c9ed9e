"""The rules about what brokers answer to clients (I3, I7, I12, I20): each event of their history is compared with the
truth of its partition.
"""

from barnabas.testing.simulation.group_rules import GroupRules
from barnabas.testing.simulation.history import (
    ACKED,
    COMMITTED,
    OUT_OF_ORDER,
    READ,
    REFUSED,
    RESUMED,
    UNANSWERED,
    Event,
)
from barnabas.testing.simulation.in_sync_rules import InSyncRules
from barnabas.testing.simulation.rules import Findings
from barnabas.testing.simulation.truth import Truth, Truths
from barnabas.wire.records import BatchHeader


class AnswerRules:
    """I3, I7, I12, I20."""

    def __init__(self, findings: Findings, truths: Truths, in_sync: InSyncRules, groups: GroupRules) -> None:
        self._violate = findings.violate
        self._truths = truths
        self._in_sync = in_sync
        self._groups = groups
        self._refused: dict[tuple[str, int, int], None] = {}  # topic, partition, checksum

    def was_refused(self, truth: Truth, batch: BatchHeader) -> bool:
        """Whether the client that sent this batch was refused for good."""
        return (truth.topic, truth.partition, batch.crc) in self._refused

    def answered(self, event: Event) -> None:
        """An event of the clients' history."""
        if event.kind == ACKED:
            self._check_acked(event)
        elif event.kind == READ:
            self._check_read(event)
        elif event.kind == REFUSED:
            self._refused[event.topic, event.partition, event.digest] = None
            for truth in self._truths.named(event.topic, event.partition):
                if any(batch.crc == event.digest for batch in truth.committed):
                    self._violate("I7", f"{truth}: a batch of {event.producer} is there and was refused")
        elif event.kind == OUT_OF_ORDER:
            self._check_out_of_order(event)
        elif event.kind == COMMITTED:
            self._groups.committed(event)
        elif event.kind == UNANSWERED:
            self._groups.unanswered(event)
        elif event.kind == RESUMED:
            self._groups.resumed(event)

    def _check_out_of_order(self, event: Event) -> None:
        """I7: the oldest unacknowledged sequence was refused as out of order, so a record before it is lost.

        Without acks=all, not a violation if the broker is not the newest leader: it may lack records of the newest one.
        Nor for the first sequence, unless it is committed: a leader that lacks it does not know the producer, and
        accepts any sequence as the producer's first one.
        """
        truths = self._truths.named(event.topic, event.partition)
        if len(truths) != 1 or truths[0].cuts:
            return
        if event.acks != -1 and event.leader_epoch != max(truths[0].leaders, default=-1):
            return
        if event.sequence == 0 and all(batch.crc != event.digest for batch in truths[0].committed):
            return
        where = f"{truths[0]}: sequence {event.sequence} of {event.producer}"
        self._violate("I7", f"{where} is refused, and everything before it was acknowledged")

    def _check_acked(self, event: Event) -> None:
        if event.acks != -1 or event.offset < 0:
            return
        truths = self._truths.named(event.topic, event.partition)
        for truth in truths:
            batch = truth.committed_at(event.offset)
            if batch is not None and batch.crc == event.digest:
                truth.acked[event.offset] = None
                self._in_sync.acked(truth, batch)
                return
            if truth.is_lost(event.offset, event.digest):
                return
        where = f"{event.topic}-{event.partition} offset {event.offset}"
        self._violate("I12", f"{where} of {event.producer}, sequence {event.sequence}, is acknowledged, not committed")

    def _check_read(self, event: Event) -> None:
        truth = self._truths.find(event.topic, event.topic_id, event.partition)
        batch = None if truth is None else truth.committed_at(event.offset)
        if truth is not None and batch is not None and batch.crc == event.digest:
            truth.served[event.offset] = None
            if (skipped := truth.skipped(event.position, event.offset)) is not None:
                self._violate(
                    "I20", f"{event.producer} was at {event.position} of {truth}, and was not served {skipped}"
                )
        elif truth is None or not truth.is_lost(event.offset, event.digest):
            where = f"{event.topic}-{event.partition} offset {event.offset}"
            self._violate("I3", f"{event.producer} was served {event.digest:x} at {where}, where {batch} is committed")
