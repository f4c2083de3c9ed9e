"""Requests that wait: one `Waiter` a request, known to every partition it waits for.

A long-polling Fetch of a thousand partitions must not cost a task or an event each, nor be planned again whenever one
of them changes. So the request owns one `Waiter` and registers it in the `waiters` of each of its partitions. What
changes a partition (append, high watermark, role) calls `wake`: the partition goes on the waiter's dirty list and its
task is woken once. The request then looks at the dirty partitions only.

Registration is a dict key, so it costs nothing while the partition is quiet and is removed in O(1). It holds for one
change: a waiter that is touched is off the partition until its owner takes the dirty list. So the waiters of fetch
sessions whose consumers are gone cost the next append one touch, and later ones nothing.

A request that has done its work and only waits says so (`resting`). Its connection may be closed then, when the client
has gone; a request that is at work is never interrupted for that, or half of what it changes would be left.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from barnabas.storage.disk import FileSlice
    from barnabas.wire.errors import ErrorCode
    from barnabas.wire.messages import Message

Outcome = TypeVar("Outcome")
Pieces = list["bytes | bytearray | memoryview | FileSlice"]  # of an encoded response


class Watched(Protocol):
    """Something a request can wait for: a partition."""

    waiters: "dict[Waiter, None]"


class Asker(Protocol):
    """On whose behalf a task works: a connection."""

    rests: int  # how many waits of its request go on now, in which nothing is lost when they are cancelled


asker: ContextVar[Asker | None] = ContextVar("asker", default=None)  # of the task that runs; None for the broker itself


@contextmanager
def resting() -> Iterator[None]:
    """Within this block the request only waits: it may be given up there when its client has gone."""
    waiting = asker.get()
    if waiting is None:
        yield
        return
    waiting.rests += 1
    try:
        yield
    finally:
        waiting.rests -= 1


class Waiter:
    """One waiting request: the list of what changed, and a task to wake."""

    __slots__ = ("_wake", "dirty", "sleeps_through_commits")

    def __init__(self, *, sleeps_through_commits: bool = False) -> None:
        """A follower `sleeps_through_commits`: it learns a high watermark with its next response, whenever that is,
        as in Kafka; woken for each it would fetch twice as often."""
        self.sleeps_through_commits = sleeps_through_commits
        self.dirty: dict[Watched, None] = {}
        self._wake: trio.Event | None = None

    def touch(self, changed: Watched) -> None:
        """Note that this partition changed; wakes the task at the first change only."""
        self.dirty[changed] = None
        if self._wake is not None:
            self._wake.set()
            self._wake = None

    def take_dirty(self) -> list[Watched]:
        """What changed since the last call, in the order in which it changed. From now on it is watched again."""
        changed = list(self.dirty)
        self.dirty.clear()
        self.register(changed)
        return changed

    async def wait(self, deadline: float) -> bool:
        """Sleep until something is dirty (True) or `deadline`, on trio's clock, has passed (False)."""
        if self.dirty:
            return True
        wake = self._wake = trio.Event()
        with trio.move_on_at(deadline), resting():
            await wake.wait()
        if self._wake is wake:  # another request of the same session may wait with its own
            self._wake = None
        return bool(self.dirty)

    def register(self, partitions: Iterable[Watched]) -> None:
        """Note every change of these partitions from now on."""
        for partition in partitions:
            partition.waiters[self] = None

    def unregister(self, partitions: Iterable[Watched]) -> None:
        """Hear no more of these partitions."""
        for partition in partitions:
            partition.waiters.pop(self, None)
            self.dirty.pop(partition, None)


def wake(changed: Watched, *, log_grew: bool = True) -> None:
    """Touch every waiter of this partition, and take it off; if only the high watermark moved, some sleep on."""
    waiters = changed.waiters
    if not waiters:
        return
    changed.waiters = {}
    for waiter in waiters:
        if log_grew or not waiter.sleeps_through_commits:
            waiter.touch(changed)
        else:
            waiter.dirty[changed] = None
            changed.waiters[waiter] = None  # its task sleeps: the log's next growth must wake it


class Decisions(Generic[Outcome]):
    """What becomes of several things, each decided once, when `outcome_of` first says something about its index."""

    __slots__ = ("_outcome_of", "decided", "watched")

    def __init__(self, watched: Sequence[Watched], outcome_of: Callable[[int], Outcome | None]) -> None:
        self.watched = watched
        self.decided: list[Outcome | None] = [None] * len(watched)
        self._outcome_of = outcome_of

    @property
    def are_made(self) -> bool:
        """Whether none is open."""
        return None not in self.decided

    def look(self) -> bool:
        """Ask about those that are open; whether none is left."""
        self.decided = [self._outcome_of(i) if known is None else known for i, known in enumerate(self.decided)]
        return self.are_made

    async def wait(self, deadline: float) -> None:
        """Return when all are made, or at `deadline`. One waiter serves all of them."""
        if self.look():
            return
        waiter = Waiter()
        waiter.register(self.watched)
        try:
            while await waiter.wait(deadline) and not self.look():
                waiter.take_dirty()
        finally:
            waiter.unregister(self.watched)


async def await_decisions(
    watched: Sequence[Watched], outcome_of: Callable[[int], Outcome | None], deadline: float
) -> list[Outcome | None]:
    """Wait until `outcome_of` says something about each of them, by its index; None for what is open at `deadline`."""
    decisions = Decisions(watched, outcome_of)
    await decisions.wait(deadline)
    return decisions.decided


class DelayedResponse:
    """A response that waits, where everything that its request changes is done.

    So its connection may go on to the next request (`server/pipelined_responses.py`). `make` gives the response of what
    was decided, at the latest at `deadline` (trio's clock); `encode` turns it into what is sent, and is set by
    `server/dispatch.py`.
    """

    __slots__ = ("deadline", "decisions", "encode", "make")

    def __init__(self, decisions: "Decisions[ErrorCode]", deadline: float, make: "Callable[[], Message]") -> None:
        self.decisions = decisions
        self.deadline = deadline
        self.make = make
        self.encode: Callable[[], Awaitable[Pieces]]
