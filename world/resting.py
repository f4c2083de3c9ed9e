"""Requests that may be cancelled without loss; and who ends the wait of a request lets it go first.

While a request rests (`resting`), its connection may be closed: by the sweep if its client has disconnected, or because
it holds much memory (`memory.py`). A request that only waits also gives back its turn (`turns.py`).

Code that wakes a request calls `release`. If it does so for another request, in whose task it runs, the connection of
that one gives way (`server/connection.py`): those that were waiting are answered before its next request is handled.
So of two members of a group none can sync and join again before the other has heard that the group is complete.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

import trio


class GivenBack(Protocol):
    """A turn (`turns.Turn`)."""

    def give_back(self) -> None: ...


class Asker(Protocol):
    """The connection whose request a task handles."""

    rested_seconds: float  # how long the waits of its latest request have taken (trio's clock, s)
    rests: int  # how many waits of its requests are under way that may be cancelled without loss
    turn: GivenBack | None  # which its request has, among those that take much memory
    spent_seconds: float  # how long it has had turns lately
    gives_way: bool  # its requests have woken others, which are to be answered before its next request


asker: ContextVar[Asker | None] = ContextVar("asker", default=None)  # of the running task; None: the broker's own task


class _Resting:
    """A class, as a generator with `contextmanager` costs three times as much, and each long poll needs one."""

    __slots__ = ("_asker", "_began", "_keeps_turn")

    def __init__(self, keeps_turn: bool) -> None:
        self._keeps_turn = keeps_turn

    def __enter__(self) -> None:
        self._asker = asker.get()
        if self._asker is not None:
            self._asker.rests += 1
            self._began = trio.current_time()
            # The request may wait for other clients for minutes, so it gives its turn back for others to work.
            if self._asker.turn is not None and not self._keeps_turn:
                self._asker.turn.give_back()
                self._asker.turn = None

    def __exit__(self, *_: object) -> None:
        if self._asker is not None:
            self._asker.rests -= 1
            # A request that keeps its turn does not rest: work for it goes on.
            if not self._keeps_turn:
                self._asker.rested_seconds += trio.current_time() - self._began


def release(wake: Callable[[], object]) -> None:
    """Call `wake`, which ends the wait of a request."""
    connection = asker.get()
    if connection is not None:
        connection.gives_way = True
    wake()


def resting(*, keeps_turn: bool = False) -> AbstractContextManager[None]:
    """Within this block the request may be cancelled: it only waits, has not begun, or has done all its changes.

    `keeps_turn` if the work for it goes on meanwhile.
    """
    # Outside such blocks a request is not cancelled when its client leaves: half of its changes could remain.
    return _Resting(keeps_turn)
