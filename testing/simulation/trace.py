"""The events of a simulation, in their order, folded into one hash.

Two runs of one seed are the same history if and only if their traces are equal: the order of all task steps (a number
for each task's name, in the order in which names first appear) and one line for each event that the simulated world
saw (bytes that arrived, writes of the metadata store, changes of disks, faults). Steps are counted and mixed in with
integer arithmetic, lines are hashed in portions, so that a trace costs a fraction of a microsecond a step.

`keep=True` keeps the lines as well, each with the number of steps before it: to find where two runs part.
"""

from collections.abc import Callable
from hashlib import blake2b

_PORTION = 1000  # lines
_PRIME = 1_000_003
_MASK = (1 << 64) - 1


class Trace:
    """The history of one run so far."""

    def __init__(self, now: Callable[[], float], *, keep: bool = False) -> None:
        self.step_count = 0
        self.event_count = 0
        self.lines: list[str] = []  # all with `keep`, else the latest that were not hashed yet
        self._now = now
        self._keep = keep
        self._names: dict[str, int] = {}
        self._steps_hash = 0
        self._lines_hash = blake2b(digest_size=8)

    def step(self, task_name: str) -> None:
        """A task makes a step."""
        number = self._names.get(task_name)
        if number is None:
            number = self._names[task_name] = len(self._names) + 1
        self.step_count += 1
        self._steps_hash = (self._steps_hash * _PRIME + number) & _MASK

    def note(self, line: str) -> None:
        """Something happened."""
        self.event_count += 1
        line = f"{self._now():.6f} {line}"
        if self._keep:
            self._lines_hash.update(line.encode())
            line = f"[{self.step_count}] {line}"
        self.lines.append(line)
        if not self._keep and len(self.lines) >= _PORTION:
            self._fold()

    def digest(self) -> str:
        """The hash of everything so far."""
        if not self._keep:
            self._fold()
        whole = self._lines_hash.copy()
        whole.update(f"{self.step_count} {self._steps_hash} {' '.join(self._names)}".encode())
        return whole.hexdigest()

    def _fold(self) -> None:
        self._lines_hash.update("".join(self.lines).encode())
        self.lines.clear()
