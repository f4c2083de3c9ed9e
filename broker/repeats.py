"""What one request names several times.

Where Kafka answers it as often as it is named, so do we, but a few times only: an answer about a group or a broker has
hundreds of kilobytes, and to name it again takes ten bytes.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from barnabas.broker.pacing import paced
from barnabas.wire.errors import ErrorCode, Refuse

REPEATS_MAX = 10  # in one request; no client is known that repeats at all
SET_SIZE_MAX = 1 << 15

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


class Seen:
    """Integers, in sets that stay small: one of 200,000 takes 10 ms when it grows."""

    def __init__(self) -> None:
        self._sets: list[set[int]] = [set()]

    def take_new(self, numbers: Iterable[int]) -> Iterator[int]:
        """Those that were not there, each once; now they are."""
        for number in numbers:
            if not any(number in known for known in self._sets):
                if len(self._sets[-1]) == SET_SIZE_MAX:
                    self._sets.append(set())
                self._sets[-1].add(number)
                yield number


async def counted(names: Iterable[Named]) -> Counter[Named]:
    """How often each is named."""
    times: Counter[Named] = Counter()
    async for name in paced(names):
        times[name] += 1
    return times
