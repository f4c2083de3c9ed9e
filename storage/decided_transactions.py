"""Which data of a log is aborted, and which markers still have data: for the cleaner, which walks the log (pure).

Below the last stable offset every transaction is decided. The `.txnindex` files name the aborted ones; a producer has
one transaction at a time, so its data is aborted from the first offset of such an entry up to its ABORT marker, and all
its other transactional data is committed.

A marker may be discarded only when no data of its transaction is left before it: otherwise the data would belong to the
producer's next transaction, or seem to be open for ever. So the walk notes of which producers it has met data since
their last marker. A batch that an earlier pass has emptied counts as data, since replay takes it for the begin of a
transaction. To decide about markers, the walk must begin with the first segment of the log (reference T.17).
"""

import heapq
from collections.abc import Iterable

from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.records import ABORT, COMMIT, BatchHeader, ControlRecord


class DecidedTransactions:
    """The transactions around the current position of a walk over decided data."""

    __slots__ = ("_aborting", "_coming", "_committing", "_with_data")

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []  # a heap, by first offset: not reached yet
        self._aborting: dict[int, AbortedTransaction] = {}  # by producer id: begun, and not ended yet
        self._with_data: set[int] = set()  # producer ids in `_aborting` of which data was met
        self._committing: set[int] = set()  # producer ids of which committed data was met since their last marker

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """These aborted transactions reach into the segment that the walk comes to now."""
        for each in aborted:
            # A transaction that reaches into several segments is expected in each of them.
            if self._aborting.get(each.producer_id) != each:
                heapq.heappush(self._coming, (each.first_offset, each))

    def meet_data(self, header: BatchHeader) -> bool:
        """The walk has come to this data batch: whether it is aborted."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        aborted = self._aborting.get(producer_id)
        # The second condition holds unless a marker is missing. What follows is then not taken for aborted.
        if aborted is not None and header.base_offset < aborted.last_offset:
            self._with_data.add(producer_id)
            return True
        self._committing.add(producer_id)
        return False

    def meet_marker(self, header: BatchHeader, control: ControlRecord | None) -> tuple[bool, AbortedTransaction | None]:
        """The walk has come to this control batch: whether it may be discarded, and the entry that has to stay with it.

        `control` is None if an earlier pass has removed the record.
        """
        self._begin_up_to(header.last_offset)
        if control is None:
            return True, None
        producer_id = header.producer_id
        if control.type == ABORT:
            aborted = self._aborting.pop(producer_id, None)
            if producer_id not in self._with_data:
                return True, None
            self._with_data.remove(producer_id)
            return False, aborted

        if control.type == COMMIT:
            has_data = producer_id in self._committing
            self._committing.discard(producer_id)
            return not has_data, None

        # A newer format has other types, so it is unknown what this marker ends: it stays.
        return False, None

    def _begin_up_to(self, offset: int) -> None:
        """Begin the aborted transactions whose first offset is at most `offset`."""
        coming = self._coming
        while coming and coming[0][0] <= offset:
            _, aborted = heapq.heappop(coming)
            producer_id = aborted.producer_id
            if self._aborting.get(producer_id) != aborted:
                self._aborting[producer_id] = aborted
                self._with_data.discard(producer_id)
