"""Requests that wait for changes of partitions, as in Kafka's purgatories: one `Waiter` for each request.

A waiting request registers its `Waiter` in the `waiters` of each of its partitions. Code that changes a partition
(append, high watermark, role) calls `wake`, which puts the partition on the waiter's dirty list and wakes the request's
task once. The request then checks the dirty partitions only. So a long-polling Fetch of a thousand partitions needs
neither a task or event for each, nor a new plan of all of them after each change.

A registration holds for one change: `wake` removes it, and `take_dirty` renews it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from barnabas.world.outstanding import Outstanding
from barnabas.world.resting import release, resting

if TYPE_CHECKING:
    from barnabas.storage.disk import FileSlice
    from barnabas.wire.errors import ErrorCode
    from barnabas.wire.messages import Message

HOLD_SECONDS = 0.0005  # that a follower's Fetch is held back for more batches
ACTING_MAX = 8  # waiters that act in the step of a change: each may send a response, in 40 µs

Outcome = TypeVar("Outcome")
Pieces = list["bytes | bytearray | memoryview | FileSlice"]  # of an encoded response


class Watched(Protocol):
    """A thing that a request can wait for: a Partition, or the FutureReplica of one."""

    waiters: "dict[Waiter, None]"


class Waiter:
    """One waiting request: the list of what changed, and a task to wake."""

    __slots__ = ("_held", "_scope", "_wake", "dirty", "sleeps_through_commits", "sleeps_through_growth")

    def __init__(self, *, sleeps_through_commits: bool = False, sleeps_through_growth: bool = False) -> None:
        """With `sleeps_through_commits` a higher high watermark alone does not wake the task, with
        `sleeps_through_growth` an append alone."""
        # `sleeps_through_commits` is for followers, as in Kafka: the next response brings the high watermark anyway,
        # and a follower that is woken by each commit would fetch twice as often. `sleeps_through_growth` is for Produce
        # responses, which wait for a commit.
        self.sleeps_through_commits = sleeps_through_commits
        self.sleeps_through_growth = sleeps_through_growth
        self.dirty: dict[Watched, None] = {}
        self._held: dict[Outstanding, None] = {}
        self._wake: trio.Event | None = None
        self._scope: trio.CancelScope | None = None

    def act_on(self, changed: Watched) -> None:
        """As `touch`; a subclass may do at once what its task would do."""
        self.touch(changed)

    def touch(self, changed: Watched) -> None:
        """Note that this partition changed, and wake the task if it waits."""
        self.dirty[changed] = None
        # The first change wakes the task. Further ones, until the task runs, only join the list.
        if self._wake is not None:
            release(self._wake.set)
            self._wake = None

    def hold(self, changed: Watched, expected: Outstanding) -> None:
        """Note that this partition changed. A waiting task sleeps on for HOLD_SECONDS, or until it is touched."""
        self.dirty[changed] = None
        if self._scope is not None:
            if not self._held:
                self._scope.deadline = min(self._scope.deadline, trio.current_time() + HOLD_SECONDS)
            self._held[expected] = None

    def take_dirty(self) -> list[Watched]:
        """The partitions that changed since the last call, in that order. The waiter is registered with them again."""
        # A registration ends with its first change if this is not called. So the waiter of an abandoned fetch session
        # is touched once per partition at most, and later appends cost nothing.
        changed = list(self.dirty)
        self.dirty.clear()
        self.register(changed)
        return changed

    async def wait(self, deadline: float) -> bool:
        """Sleep until something is dirty (True) or `deadline`, on trio's clock, has passed (False)."""
        # A change since `take_dirty`, during another await of the caller, found no event to set.
        if self.dirty:
            return True
        wake = self._wake = trio.Event()
        with trio.move_on_at(deadline) as scope, resting():
            self._scope = scope
            await wake.wait()

        # Another request of the same fetch session may wait now, with an event of its own.
        if self._wake is wake:
            self._wake = None
        if self._scope is scope:
            self._scope = None
            if not wake.is_set():
                for each in self._held:
                    each.too_few_came()
            self._held.clear()

        return bool(self.dirty)

    def register(self, partitions: Iterable[Watched]) -> None:
        """Note the next change of each of these partitions."""
        # A dict key costs nothing while the partition is quiet, and is removed in O(1).
        for partition in partitions:
            partition.waiters[self] = None

    def unregister(self, partitions: Iterable[Watched]) -> None:
        """Ignore these partitions from now on, also their changes on the dirty list."""
        for partition in partitions:
            partition.waiters.pop(self, None)
            self.dirty.pop(partition, None)


def wake(
    changed: Watched, *, log_grew: bool = True, committed: bool = True, expected: Outstanding | None = None
) -> None:
    """Touch and unregister all waiters of this partition; those that the change does not concern stay.

    `log_grew=False`: only the high watermark rose. `committed=False`: the log grew and nothing else changed; then
    followers' Fetches are held back for more batches, if those are `expected`.
    """
    waiters = changed.waiters
    if not waiters:
        return

    # The dict is a new one, because the loop puts some waiters back while it iterates over the old
    # one.
    changed.waiters = {}
    for number, waiter in enumerate(waiters):
        if not committed and waiter.sleeps_through_growth:
            changed.waiters[waiter] = None
        elif not log_grew and waiter.sleeps_through_commits:
            waiter.dirty[changed] = None

            # The next append must wake the task.
            changed.waiters[waiter] = None
        elif expected is not None and waiter.sleeps_through_commits:
            waiter.hold(changed, expected)
            changed.waiters[waiter] = None
        elif number < ACTING_MAX:
            waiter.act_on(changed)
        else:
            waiter.touch(changed)


def wake_followers(of: Watched) -> None:
    """Touch and unregister the waiting Fetches of followers. Nothing changed for the others: there may be thousands."""
    for waiter in [each for each in of.waiters if each.sleeps_through_commits]:
        del of.waiters[waiter]
        waiter.touch(of)


class Decisions(Generic[Outcome]):
    """The outcomes of several operations. `outcome_of(index)` returns None while one is open; a result is final.

    `watched[index]` is the partition whose changes may decide it. `decided` holds the outcomes so far.
    """

    __slots__ = ("_outcome_of", "decided", "watched")

    def __init__(self, watched: Sequence[Watched], outcome_of: Callable[[int], Outcome | None]) -> None:
        self.watched = watched
        self.decided: list[Outcome | None] = [None] * len(watched)
        self._outcome_of = outcome_of

    @property
    def are_made(self) -> bool:
        """Whether no outcome is open."""
        return None not in self.decided

    def look(self) -> bool:
        """Ask for the open outcomes. True if none is left open."""
        # A decided outcome stays: records that were committed are acknowledged even if the role ends while other
        # outcomes are still open.
        self.decided = [self._outcome_of(i) if known is None else known for i, known in enumerate(self.decided)]
        return self.are_made

    async def wait(self, deadline: float) -> None:
        """Return when all outcomes are decided, or at `deadline` (trio's clock)."""
        if self.look():
            return
        # No await between `look` and `register`, so no change is missed.
        waiter = Waiter()
        waiter.register(self.watched)
        # `take_dirty` registers again after `look`, but without an await in between, so no change is missed.
        try:
            while await waiter.wait(deadline) and not self.look():
                waiter.take_dirty()
        finally:
            waiter.unregister(self.watched)


async def await_decisions(
    watched: Sequence[Watched], outcome_of: Callable[[int], Outcome | None], deadline: float
) -> list[Outcome | None]:
    """The outcomes as in `Decisions`, when all are decided or at `deadline`; None for those that are still open."""
    decisions = Decisions(watched, outcome_of)
    await decisions.wait(deadline)
    return decisions.decided


async def await_decision(
    watched: Watched, outcome_of: Callable[[int], Outcome | None], deadline: float, timed_out: Outcome
) -> Outcome:
    """The outcome of one, when it is decided; `timed_out` at `deadline`."""
    (outcome,) = await await_decisions([watched], outcome_of, deadline)
    return timed_out if outcome is None else outcome


class DelayedResponse:
    """A handler's response that waits for outcomes after its request has made all its changes.

    So its connection may begin the next request (`server/pipelined_responses.py`). `make` builds the response from
    `decisions`, at the latest at `deadline` (trio's clock).
    """

    __slots__ = ("deadline", "decisions", "make")

    def __init__(self, decisions: "Decisions[ErrorCode]", deadline: float, make: "Callable[[], Message]") -> None:
        self.decisions = decisions
        self.deadline = deadline
        self.make = make


class PendingResponse:
    """The same with its encoding, as a connection keeps it until it is sent: at the latest at `deadline`."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline  # trio's clock

    @property
    def watched(self) -> Sequence[Watched]:
        """What may decide it by a change."""
        raise NotImplementedError

    @property
    def are_made(self) -> bool:
        """Whether all decisions are made that it depends on."""
        raise NotImplementedError

    def look(self) -> bool:
        """Ask for the open decisions; True if none is left open."""
        raise NotImplementedError

    def encode_now(self) -> Pieces | None:
        """The response, once it is decided, in one short step that cannot fail; None if that takes more."""
        raise NotImplementedError

    async def encode(self) -> Pieces:
        """The response with what is decided now. ProtocolViolation if it cannot be encoded."""
        raise NotImplementedError
