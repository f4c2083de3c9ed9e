"""Open transactions by the time at which they take too long (pure; reference transactions, T.10).

Each id has one entry at most, and a transaction that begins costs nothing while the id has one: the entry is moved when
it comes to the top. Times are the wall clock in ms.
"""

import heapq
from collections.abc import Iterator
from itertools import count

from barnabas.broker.transactions.state import Status, TransactionalId


class Overdue:
    """The heap of deadlines."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TransactionalId]] = []
        self._numbers = count()  # orders entries of the same time, as ids cannot be compared
        self._queued: set[TransactionalId] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, known: TransactionalId) -> None:
        """The id has an open transaction."""
        if known not in self._queued:
            self._queued.add(known)
            self._push(known)

    def pop(self, now_ms: int) -> Iterator[TransactionalId]:
        """The ids that had an open transaction when its time was over; look again whether they still have it."""
        while self._heap and self._heap[0][0] < now_ms:
            _, _, known = heapq.heappop(self._heap)
            recorded = known.recorded
            # The transaction of the entry has ended.
            if recorded.status is not Status.ONGOING:
                self._queued.discard(known)
            # A later one is open.
            elif recorded.start_ms + recorded.timeout_ms >= now_ms:
                self._push(known)
            else:
                self._queued.discard(known)
                yield known

    def _push(self, known: TransactionalId) -> None:
        recorded = known.recorded
        heapq.heappush(self._heap, (recorded.start_ms + recorded.timeout_ms, next(self._numbers), known))
