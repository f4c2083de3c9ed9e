"""Timers of many groups in one heap (pure). Times are trio's clock, in seconds.

Each heartbeat moves a deadline to later, which is far more frequent than a deadline that passes. So a move to later
only changes the deadline and leaves the heap as it is. An entry that comes to the top before its deadline is pushed
again. So does an entry of a stopped timer, unless half of the heap is of those.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)

NEVER = float("inf")
STOPPED_MIN = 1000  # so many entries of stopped timers, at least, make it worth while to rebuild the heap


class _Deadline(Generic[Owner, Name]):
    # One timer. The heap may hold several entries of it, of which one at most is current.
    __slots__ = ("at", "queued_at", "timer")

    def __init__(self, owner: Owner, name: Name, at: float) -> None:
        # None once it is stopped: its entry in the heap must not keep a group, or a name of many kilobytes.
        self.timer: tuple[Owner, Name] | None = (owner, name)
        self.at = at
        self.queued_at = NEVER  # the time of its earliest entry in the heap; other entries are obsolete


class Timers(Generic[Owner, Name]):
    """Named timers of owners. Each fires once, unless it is started again."""

    def __init__(self) -> None:
        self._owners: dict[Owner, dict[Name, _Deadline[Owner, Name]]] = {}
        self._heap: list[tuple[float, int, _Deadline[Owner, Name]]] = []
        self._stopped = 0  # timers that were stopped since the heap was rebuilt
        self._pushed = 0  # orders entries of the same time by their push, as deadlines cannot be compared

    @property
    def next_at(self) -> float:
        """When to call `pop_due` next: no timer fires earlier. NEVER if the heap is empty."""
        # May be too early: the top entry may be of a timer that was moved or stopped.
        return self._heap[0][0] if self._heap else NEVER

    def start(self, owner: Owner, name: Name, at: float) -> None:
        """Start a timer, or move it if it runs."""
        timers = self._owners.get(owner)
        if timers is None:
            timers = self._owners[owner] = {}
        deadline = timers.get(name)
        if deadline is None:
            deadline = timers[name] = _Deadline(owner, name, at)
        deadline.at = at
        # A move to earlier needs an entry of its own, and `pop_due` skips the old one. An entry that is earlier than
        # the deadline needs nothing: it is pushed again when it comes to the top.
        if at < deadline.queued_at:
            self._push(deadline)

    def stop(self, owner: Owner, name: Name) -> None:
        """Stop a timer, if it runs."""
        timers = self._owners.get(owner)
        if timers is None:
            return
        deadline = timers.pop(name, None)
        if deadline is not None:
            self._strike(deadline)
            if not timers:
                del self._owners[owner]

    def stop_all(self, owner: Owner) -> None:
        """Stop all timers of this owner."""
        for deadline in self._owners.pop(owner, {}).values():
            self._strike(deadline)

    def _strike(self, deadline: _Deadline[Owner, Name]) -> None:
        # Its entry stays in the heap until it comes to the top, which may take half an hour: to find it there would
        # cost a pass over the heap. One pass for many costs little.
        deadline.timer = None
        self._stopped += 1
        if self._stopped >= STOPPED_MIN and 2 * self._stopped >= len(self._heap):
            self._stopped = 0
            self._heap = [
                entry for entry in self._heap if entry[2].timer is not None and entry[0] == entry[2].queued_at
            ]
            heapq.heapify(self._heap)

    def pop_due(self, now: float) -> tuple[Owner, Name] | None:
        """Stop and return one timer whose deadline has passed, the earliest first; None if there is none."""
        while self._heap and self._heap[0][0] <= now:
            queued_at, _, deadline = heapq.heappop(self._heap)
            timer = deadline.timer
            # The timer was stopped, or the entry is obsolete because an earlier one of the same
            # timer came first.
            if timer is None or queued_at != deadline.queued_at:
                continue
            deadline.queued_at = NEVER
            # The timer was moved to later since the push.
            if deadline.at > now:
                self._push(deadline)
                continue
            self.stop(*timer)
            return timer
        return None

    def _push(self, deadline: _Deadline[Owner, Name]) -> None:
        deadline.queued_at = deadline.at
        self._pushed += 1
        heapq.heappush(self._heap, (deadline.at, self._pushed, deadline))
