"""Readers of committed records: `Reader`s with isolation.level=read_committed, which filter as Kafka's consumer does.

A response has all batches below the last stable offset, and a list of aborted transactions. The consumer walks the
batches: it takes up the producer ids of those transactions that begin at or before a batch, leaves their batches out,
and drops an id at its ABORT marker.
"""

from collections.abc import Callable, Sequence

from barnabas.storage.entries import walk_buffer
from barnabas.testing.simulation.consumers import Reader, ReaderPlan
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.party import Party
from barnabas.wire import messages as m
from barnabas.wire.records import ABORT, BatchHeader, control_of, read_batch_header

# The reader, its topic, id and partition, what it was served, and the base offsets of what it gives to its user.
TellRead = Callable[[str, tuple[str, bytes, int], Sequence[BatchHeader], set[int]], None]


def filter_batches(row: m.FetchResponse.PartitionData) -> tuple[list[BatchHeader], set[int]]:
    """The batches that were served, and the base offsets of those that are given to the user."""
    aborted = sorted(row.aborted_transactions or (), key=lambda each: each.first_offset, reverse=True)
    served: list[BatchHeader] = []
    delivered: set[int] = set()
    skipped: set[int] = set()
    if not isinstance(row.records, memoryview):
        raise TypeError(f"records are decoded as a view of the frame, not as {type(row.records).__name__}")
    for span, data in walk_buffer(row.records):
        header = read_batch_header(data)
        served.append(header)
        while aborted and aborted[-1].first_offset <= span.last_offset:
            skipped.add(aborted.pop().producer_id)
        if header.is_control:
            control = control_of(data)
            if control is not None and control.type == ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            delivered.add(header.base_offset)

    return served, delivered


class CommittedReader(Reader):
    """One consumer of one topic, which is given committed records only."""

    isolation_level = 1

    def __init__(self, party: Party, history: History, plan: ReaderPlan, tell_read: TellRead) -> None:
        super().__init__(party, history, plan)
        self._tell_read = tell_read

    async def _take(self, row: m.FetchResponse.PartitionData) -> None:
        if row.records and not row.error_code:
            where = (self.plan.topic, self._topic_id, row.partition_index)
            self._tell_read(self.party.name, where, *filter_batches(row))
        await super()._take(row)
