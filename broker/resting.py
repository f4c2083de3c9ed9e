"""Which waits of a request may be cancelled without loss.

While a request rests (`resting`), the connection's sweep may close the connection if its client has disconnected.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Asker(Protocol):
    """The connection whose request a task handles."""

    rests: int  # how many waits of its requests are under way that may be cancelled without loss


asker: ContextVar[Asker | None] = ContextVar("asker", default=None)  # of the running task; None: the broker's own task


@contextmanager
def resting() -> Iterator[None]:
    """Within this block the request only waits, so it may be cancelled when its client has disconnected."""
    # Outside such blocks a request is never cancelled for that: half of its changes could remain.
    waiting = asker.get()
    if waiting is None:
        yield
        return
    waiting.rests += 1
    try:
        yield
    finally:
        waiting.rests -= 1
