"""What one request names several times.

Where Kafka answers it as often as it is named, so do we, but a few times only: an answer about a group or a broker has
hundreds of kilobytes, and to name it again takes ten bytes.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

from barnabas.broker.pacing import paced
from barnabas.wire.errors import ErrorCode, Refuse

REPEATS_MAX = 10  # in one request; no client is known that repeats at all

Named = TypeVar("Named", bound=Hashable)


class Repeats:
    """Counts them in one request."""

    def __init__(self) -> None:
        self._named: set[Hashable] = set()
        self._left = REPEATS_MAX

    def note(self, name: Hashable) -> None:
        """Another one is going to be answered; Refuse with INVALID_REQUEST where too many were named before."""
        if name in self._named:
            self._left -= 1
            if self._left < 0:
                raise Refuse(ErrorCode.INVALID_REQUEST, f"more than {REPEATS_MAX} repeats")
        self._named.add(name)


async def counted(names: Iterable[Named]) -> Counter[Named]:
    """How often each is named."""
    times: Counter[Named] = Counter()
    async for name in paced(names):
        times[name] += 1
    return times
