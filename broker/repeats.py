"""Names that one request repeats.

Kafka answers a repeated group or broker as often as the request names it. Barnabas does so REPEATS_MAX times only: a
repeat takes ten bytes in the request, and hundreds of kilobytes in the response.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.world.pacing import paced

REPEATS_MAX = 10  # in one request; no known client repeats a name at all
SET_SIZE_MAX = 1 << 15  # elements of one set in `Seen`

Named = TypeVar("Named", bound=Hashable)


class Seen:
    """A set that can grow without a long step on the event loop."""

    def __init__(self) -> None:
        # Several sets of bounded size: a single set of 200,000 elements takes 10 ms when it grows.
        self._sets: list[set[Hashable]] = [set()]

    def add(self, element: Hashable) -> bool:
        """Add this element; False if it was there."""
        if any(element in known for known in self._sets):
            return False
        if len(self._sets[-1]) == SET_SIZE_MAX:
            self._sets.append(set())
        self._sets[-1].add(element)
        return True

    def take_new(self, numbers: Iterable[int]) -> Iterator[int]:
        """Add these numbers, and yield those that are new, each once."""
        return (number for number in numbers if self.add(number))


class Repeats:
    """Counts the repeated names of one request."""

    def __init__(self) -> None:
        self._named: dict[Hashable, Seen] = {}
        self._left = REPEATS_MAX

    def note(self, name: Hashable, of: Hashable = None) -> None:
        """Count a name before it is answered, of a topic if it is a partition.

        Raises Refuse(INVALID_REQUEST) above REPEATS_MAX repeats in all.
        """
        # A set of pairs would be simpler, but freeing 64,000 of them would take several
        # milliseconds in one step.
        seen = self._named.get(of)
        if seen is None:
            seen = self._named[of] = Seen()
        if not seen.add(name):
            self._left -= 1
            if self._left < 0:
                raise Refuse(ErrorCode.INVALID_REQUEST, f"more than {REPEATS_MAX} repeats")


async def counted(names: Iterable[Named]) -> Counter[Named]:
    """How often each name occurs; with checkpoints."""
    times: Counter[Named] = Counter()
    async for name in paced(names):
        times[name] += 1
    return times
