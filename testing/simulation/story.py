"""The story of a run: one line an event.

    12.345  orders-0: 2 leads in epoch 3, from 57

Faults, elections, roles, truncations, ISR changes, assignments of groups, permitted losses, violations. The latest
`LINES_MAX` lines are kept. Events of single records are in the history of the clients, the steps of tasks in the trace.
"""

from collections import deque
from collections.abc import Callable, Iterator

LINES_MAX = 20_000


class Story:
    """The lines of one run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._lines: deque[tuple[float, str]] = deque(maxlen=LINES_MAX)

    @property
    def seconds(self) -> float:
        """How long the run has lasted, in virtual time."""
        return self._now() - self._began

    def tell(self, line: str) -> None:
        """Something happened."""
        self._lines.append((self.seconds, line))

    def __iter__(self) -> Iterator[str]:
        return (f"{seconds:9.3f}  {line}" for seconds, line in self._lines)
