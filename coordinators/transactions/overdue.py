"""Open transactions by the time at which they take too long (pure; reference transactions, T.10).

Usually an id has one entry, and a transaction that begins costs nothing while the id has one: the entry is moved when
it comes to the top. It gets an earlier one if its next transaction has a shorter timeout. Times are the wall clock in
ms.
"""

import heapq
from collections.abc import Iterator
from itertools import count

from barnabas.coordinators.transactions.state import Status, TransactionalId


class Overdue:
    """The heap of deadlines."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TransactionalId]] = []
        self._numbers = count()  # orders entries of the same time, as ids cannot be compared
        self._queued: dict[TransactionalId, int] = {}  # the time of its earliest entry; later ones do not count

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, known: TransactionalId) -> None:
        """The id has an open transaction."""
        at_ms = _deadline_of(known)
        if at_ms < self._queued.get(known, at_ms + 1):
            self._push(known, at_ms)

    def pop(self, now_ms: int) -> Iterator[TransactionalId]:
        """The ids that had an open transaction when its time was over; look again whether they still have it."""
        while self._heap and self._heap[0][0] < now_ms:
            at_ms, _, known = heapq.heappop(self._heap)
            # An earlier entry has taken its place.
            if self._queued.get(known) != at_ms:
                continue
            del self._queued[known]
            # The transaction of the entry has ended.
            if known.recorded.status is not Status.ONGOING:
                continue
            # A later one is open.
            if (deadline_ms := _deadline_of(known)) >= now_ms:
                self._push(known, deadline_ms)
            else:
                yield known

    def _push(self, known: TransactionalId, at_ms: int) -> None:
        self._queued[known] = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), known))


def _deadline_of(known: TransactionalId) -> int:
    return known.recorded.start_ms + known.recorded.timeout_ms
