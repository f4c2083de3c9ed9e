"""Limits the memory of responses that clients do not read (pure).

A response is sent in pieces, and each piece is freed when it is sent; file slices take no memory. All pieces in memory
together may take ANSWER_BYTES_ALL. Above that, `laggards` names the connections to close: first those whose clients
read nothing, then slow ones.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

ANSWER_BYTES_ALL = 1 << 26
UNREAD_SECONDS = 2.0  # a client that took less than MOVED_BYTES in this time does not read
MOVED_BYTES = 1 << 14
SLOW_SECONDS = 30.0  # a client that has not read a whole response in this time is slow


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
