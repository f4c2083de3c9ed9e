"""CPU time of the event loop's steps: all of them together, and the longest, with the place at which it ended.

In CPU time of the thread, so that other processes and threads on the machine do not count as part of a step.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio


class StepMeter(trio.abc.Instrument):
    """An instrument of trio; `but` is a task that does not count."""

    def __init__(self, *, but: trio.lowlevel.Task | None = None) -> None:
        self.seconds = 0.0
        self.longest_seconds = 0.0
        self.longest_at = ""
        self._but = but
        self._began = time.thread_time()  # it is added in the middle of a step
        self._aside = 0.0

    def forget(self) -> None:
        """Count from 0 again."""
        self.seconds, self.longest_seconds, self.longest_at = 0.0, 0.0, ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """For trio."""
        self._aside = 0.0
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """For trio."""
        seconds = time.thread_time() - self._began - self._aside
        if task is self._but:
            return
        self.seconds += seconds
        if seconds > self.longest_seconds:
            self.longest_seconds, self.longest_at = seconds, waiting_at(task)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done in here does not count."""
        began = time.thread_time()
        yield
        self._aside += time.thread_time() - began


def waiting_at(task: trio.lowlevel.Task) -> str:
    """The innermost lines of the controller at which a task waits after its step; the long work is before them."""
    frames = [
        f"{frame.f_code.co_filename.rpartition('/')[2]}:{number} {frame.f_code.co_name}"
        for frame, number in task.iter_await_frames()
        if "/controller/" in frame.f_code.co_filename
    ]
    return " > ".join(frames[-3:]) or "its end"
