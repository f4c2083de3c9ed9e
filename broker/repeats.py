"""Names that one request repeats.

Kafka answers a repeated group or broker as often as the request names it. Barnabas does so REPEATS_MAX times only: a
repeat takes ten bytes in the request, and hundreds of kilobytes in the response.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from barnabas.broker.pacing import paced
from barnabas.wire.errors import ErrorCode, Refuse

REPEATS_MAX = 10  # in one request; no known client repeats a name at all
SET_SIZE_MAX = 1 << 15  # elements of one set in `Seen`

Named = TypeVar("Named", bound=Hashable)


class Repeats:
    """Counts the repeated names of one request."""

    def __init__(self) -> None:
        self._named: set[Hashable] = set()
        self._left = REPEATS_MAX

    def note(self, name: Hashable) -> None:
        """Count a name before it is answered; Refuse with INVALID_REQUEST above REPEATS_MAX repeats in all."""
        if name in self._named:
            self._left -= 1
            if self._left < 0:
                raise Refuse(ErrorCode.INVALID_REQUEST, f"more than {REPEATS_MAX} repeats")
        self._named.add(name)


class Seen:
    """A set of integers that can grow without a long step on the event loop."""

    def __init__(self) -> None:
        # Several sets of bounded size: a single set of 200,000 elements takes 10 ms when it grows.
        self._sets: list[set[int]] = [set()]

    def take_new(self, numbers: Iterable[int]) -> Iterator[int]:
        """Add these numbers, and yield those that are new, each once."""
        for number in numbers:
            if not any(number in known for known in self._sets):
                if len(self._sets[-1]) == SET_SIZE_MAX:
                    self._sets.append(set())
                self._sets[-1].add(number)
                yield number


async def counted(names: Iterable[Named]) -> Counter[Named]:
    """How often each name occurs; with checkpoints."""
    times: Counter[Named] = Counter()
    async for name in paced(names):
        times[name] += 1
    return times
