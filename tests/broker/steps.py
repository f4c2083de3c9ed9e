"""How long steps of the event loop are, counted in lines of Python: the same in every run, on any machine.

    with StepMeter() as meter:
        await something()
    assert meter.longest.lines < 10_000

A step is what a task does between two times that it gives the loop back. A line takes a twentieth of a microsecond to a
few; what C code does with a whole list (copying it, say) counts as one line.
"""

import sys
from contextlib import contextmanager
from typing import NamedTuple

import trio


class Step(NamedTuple):
    """A step: its lines, its task, and the lines that ran most often in it."""

    lines: int
    task: str
    where: tuple[str, ...]


class StepMeter(trio.abc.Instrument):
    """Measures all tasks of the run inside its block."""

    def __init__(self) -> None:
        self.longest = Step(0, "", ())
        self._lines: dict[tuple[str, int], int] = {}

    def __enter__(self) -> "StepMeter":
        trio.lowlevel.add_instrument(self)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        trio.lowlevel.remove_instrument(self)
        self.after_task_step(trio.lowlevel.current_task())  # the step that ends the block is one, too

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._lines.clear()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        count = sum(self._lines.values())
        if count > self.longest.lines:
            often = sorted(self._lines, key=self._lines.get, reverse=True)[:5]
            where = tuple(
                f"{file.rpartition('barnabas/')[2]}:{line} x {self._lines[file, line]}" for file, line in often
            )
            self.longest = Step(count, task.name, where)

    def _enter(self, frame, event, argument):
        return self._line if "/barnabas/" in frame.f_code.co_filename else None

    def _line(self, frame, event, argument):
        if event == "line":
            place = (frame.f_code.co_filename, frame.f_lineno)
            self._lines[place] = self._lines.get(place, 0) + 1
        return self._line


@contextmanager
def outside_steps():
    """What runs in here would run in a thread."""
    tracing = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracing)
