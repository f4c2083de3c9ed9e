"""Answers on their way: what clients do not read may not fill the memory (pure).

An answer is sent in pieces, and a piece that has left is freed; slices of files take no memory. Together the pieces in
memory have `ANSWER_BYTES_ALL`. Beyond that connections are closed, until what is left fits: those whose clients read
nothing first, then those that take longest for it, of either kind the largest. So a crowd that does not read costs
itself its connections, and neither delays an ordinary client's answer nor ends it.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

ANSWER_BYTES_ALL = 1 << 26
UNREAD_SECONDS = 2.0  # a client that took nothing for so long does not read
MOVED_BYTES = 1 << 14  # less is not reading
SLOW_SECONDS = 30.0  # one that has not read all of an answer after so long is slow


class Sender(Protocol):
    """A connection, as far as its answer is concerned."""

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
    """Which of them must go so that the answers of the others fit, the worst first; none while all of them fit."""
    held = [each for each in senders if each.answer_bytes and not each.is_leaving]
    excess = sum(each.answer_bytes for each in held) - ANSWER_BYTES_ALL
    for each in sorted(held, key=lambda each: (not _reads_nothing(each, now), -each.answer_bytes)):
        if excess <= 0:
            return
        if _reads_nothing(each, now) or each.answer_began_at <= now - SLOW_SECONDS:
            excess -= each.answer_bytes
            yield each


def _reads_nothing(sender: Sender, now: float) -> bool:
    return sender.moved_at <= now - UNREAD_SECONDS
