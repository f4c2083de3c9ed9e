"""Timers of many groups in one heap, moved lazily (pure).

A heartbeat moves a deadline to later, which happens far more often than a deadline passes. So moving to later only
writes the new time down, and leaves the heap alone; an entry that comes to the top too early is pushed again with the
time that holds by then. Moving to earlier, which is rare, pushes a second entry, and the first is passed over.

Times are trio's clock, in seconds.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)

NEVER = float("inf")


class _Deadline(Generic[Owner, Name]):
    __slots__ = ("at", "name", "owner", "queued_at")

    def __init__(self, owner: Owner, name: Name, at: float) -> None:
        self.owner = owner
        self.name = name
        self.at = at  # NEVER: stopped
        self.queued_at = NEVER  # of its earliest entry in the heap


class Timers(Generic[Owner, Name]):
    """Named deadlines of owners; each fires once."""

    def __init__(self) -> None:
        self._owners: dict[Owner, dict[Name, _Deadline[Owner, Name]]] = {}
        self._heap: list[tuple[float, int, _Deadline[Owner, Name]]] = []
        self._pushed = 0  # decides between equal times: first come, first served

    @property
    def next_at(self) -> float:
        """When to look again: no deadline passes before, but one need not pass then."""
        return self._heap[0][0] if self._heap else NEVER

    def start(self, owner: Owner, name: Name, at: float) -> None:
        """Set, or move, one timer."""
        timers = self._owners.get(owner)
        if timers is None:
            timers = self._owners[owner] = {}
        deadline = timers.get(name)
        if deadline is None:
            deadline = timers[name] = _Deadline(owner, name, at)
        deadline.at = at
        if at < deadline.queued_at:
            self._push(deadline)

    def stop(self, owner: Owner, name: Name) -> None:
        """Stop one timer, if it runs."""
        timers = self._owners.get(owner)
        if timers is None:
            return
        deadline = timers.pop(name, None)
        if deadline is not None:
            deadline.at = NEVER
            if not timers:
                del self._owners[owner]

    def stop_all(self, owner: Owner) -> None:
        """Stop every timer of this owner."""
        for deadline in self._owners.pop(owner, {}).values():
            deadline.at = NEVER

    def pop_due(self, now: float) -> tuple[Owner, Name] | None:
        """The next timer whose time is over, which then no longer runs."""
        while self._heap and self._heap[0][0] <= now:
            queued_at, _, deadline = heapq.heappop(self._heap)
            if deadline.at == NEVER or queued_at != deadline.queued_at:
                continue  # stopped, or an earlier entry of the same timer came first
            deadline.queued_at = NEVER
            if deadline.at > now:
                self._push(deadline)
                continue
            self.stop(deadline.owner, deadline.name)
            return deadline.owner, deadline.name
        return None

    def _push(self, deadline: _Deadline[Owner, Name]) -> None:
        deadline.queued_at = deadline.at
        self._pushed += 1
        heapq.heappush(self._heap, (deadline.at, self._pushed, deadline))
