"""Limits the memory of responses: of those that are made, and of those that clients do not read.

A response is sent in pieces, and each piece is freed when it is sent; file slices take no memory. All pieces in memory
together may take ANSWER_BYTES_ALL. Above that no large response is begun (`ResponseMemory.room`), and `laggards` names
the connections to close: first those whose clients read nothing, then slow ones.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import trio

from barnabas.broker.resting import resting

ANSWER_BYTES_ALL = 1 << 26
MAKING_MAX = 3  # large responses that are made at a time: they count only when they are sent
UNREAD_SECONDS = 2.0  # a client that took less than MOVED_BYTES in this time does not read
MOVED_BYTES = 1 << 14
SLOW_SECONDS = 30.0  # a client that has not read a whole response in this time is slow


class Holder(Protocol):
    """A connection."""

    answer_bytes: int  # memory of the response that is being sent; 0 if it is not large


class ResponseMemory:
    """The memory of the responses that are being sent, all connections together."""

    def __init__(self) -> None:
        self._held_bytes = 0
        self._making = trio.Semaphore(MAKING_MAX)
        self._released = trio.Event()

    @property
    def is_used_up(self) -> bool:
        """Whether laggards are to be closed."""
        return self._held_bytes > ANSWER_BYTES_ALL

    def hold(self, holder: Holder, answer_bytes: int) -> None:
        """Set how many bytes of its response this connection holds."""
        self._held_bytes += answer_bytes - holder.answer_bytes
        holder.answer_bytes = answer_bytes
        if not self.is_used_up:
            self._released.set()

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """Within this block a large response is made. Waits for its turn, and while the memory is used up."""
        # The wait ends without this client: while the memory is used up, laggards are closed.
        with resting():
            await self._making.acquire()
        try:
            while self.is_used_up:
                self._released = trio.Event()
                with resting():
                    await self._released.wait()
            yield
        finally:
            self._making.release()


class Sender(Protocol):
    """A connection, as far as the memory of its response is concerned."""

    @property
    def is_leaving(self) -> bool: ...
    @property
    def answer_bytes(self) -> int: ...
    @property
    def answer_began_at(self) -> float: ...
    @property
    def moved_at(self) -> float: ...


Each = TypeVar("Each", bound=Sender)


def laggards(senders: Iterable[Each], now: float) -> Iterator[Each]:
    """The connections to close so that the responses of the others fit, the worst first; none while all fit.

    Connections that neither stopped reading nor are slow are never named, even if the rest does not fit.
    """
    # The memory of a connection that is being closed is about to be free.
    held = [each for each in senders if each.answer_bytes and not each.is_leaving]
    excess = sum(each.answer_bytes for each in held) - ANSWER_BYTES_ALL
    # False sorts first: the clients that read nothing. However many they are, they lose their own connections, and end
    # no response of a client that reads. The largest responses come first, to close few.
    for each in sorted(held, key=lambda each: (not _reads_nothing(each, now), -each.answer_bytes)):
        if excess <= 0:
            return
        if _reads_nothing(each, now) or each.answer_began_at <= now - SLOW_SECONDS:
            excess -= each.answer_bytes
            yield each


def _reads_nothing(sender: Sender, now: float) -> bool:
    # MOVED_BYTES at least: a client that reads a byte now and then frees no memory.
    return sender.moved_at <= now - UNREAD_SECONDS
