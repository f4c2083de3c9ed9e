"""The batches of a partition that are not committed yet: whether a follower's Fetch waits for more of them (pure).

A producer has several batches under way, and each would wake the followers' waiting Fetches: many small responses, each
with its cost at the leader and the follower. So a waiting Fetch is held back while fewer batches are outstanding than
lately at most, but for HOLD_SECONDS only (`waiting.py`). A producer that waits for each acknowledgement has one
batch outstanding at a time, and its batches are never held back.
"""

from collections import deque

OUTSTANDING_MAX = 16  # more are not counted: a response with so many is large enough
DECAY = 0.5  # of `_most`, each time that a Fetch was held back and too few batches came


class Outstanding:
    """Counts the outstanding batches of one leader."""

    __slots__ = ("_ends", "_most")

    def __init__(self) -> None:
        self._ends: deque[int] = deque(maxlen=OUTSTANDING_MAX)  # their end offsets
        self._most = 0.0  # batches that were outstanding lately

    def appended(self, end_offset: int) -> bool:
        """Note a batch. Whether more are to be expected before the followers fetch."""
        self._ends.append(end_offset)
        if len(self._ends) < self._most:
            return True
        self._most = float(len(self._ends))
        return False

    def committed(self, high_watermark: int) -> None:
        """Everything below this offset is committed."""
        while self._ends and self._ends[0] <= high_watermark:
            self._ends.popleft()

    def too_few_came(self) -> None:
        """A Fetch was held back, and too few batches came: expect fewer."""
        self._most = max(self._most - DECAY, 0.0)

    def clear(self) -> None:
        """Another leadership begins."""
        self._ends.clear()
