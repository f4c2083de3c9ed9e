"""Which waits of a request may be cancelled without loss.

While a request rests (`resting`), the connection's sweep may close the connection if its client has disconnected.
"""

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol


class Asker(Protocol):
    """The connection whose request a task handles."""

    rests: int  # how many waits of its requests are under way that may be cancelled without loss


asker: ContextVar[Asker | None] = ContextVar("asker", default=None)  # of the running task; None: the broker's own task


class _Resting:
    """A class, as a generator with `contextmanager` costs three times as much, and each long poll needs one."""

    __slots__ = ("_asker",)

    def __enter__(self) -> None:
        self._asker = asker.get()
        if self._asker is not None:
            self._asker.rests += 1

    def __exit__(self, *_: object) -> None:
        if self._asker is not None:
            self._asker.rests -= 1


def resting() -> AbstractContextManager[None]:
    """Within this block the request only waits, so it may be cancelled when its client has disconnected."""
    # Outside such blocks a request is never cancelled for that: half of its changes could remain.
    return _Resting()
