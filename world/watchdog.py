"""Times the steps of the event loop: begins each task's turn, and detects steps that are too long (edge).

While one task's step runs, no other client is served. The Trio instrument sees every step. It gives the task its turn
(`pacing.py`), so that a task with much to do gives way in time. A step above STEP_LIMIT_SECONDS is counted all the
same, and logged with the task's name and the innermost line at which the step ended, at most once in
LOG_INTERVAL_SECONDS.
"""

import logging
import time
from collections import deque

import trio

from barnabas.world.pacing import Pace

logger = logging.getLogger(__name__)

STEP_LIMIT_SECONDS = 0.002
LOG_INTERVAL_SECONDS = 10.0
RECENT_MAX = 1000  # long steps that are remembered: of a loop that has more in a minute, the last ones


class Watchdog(trio.abc.Instrument):
    """Counts the steps above STEP_LIMIT_SECONDS; `longest_seconds` is the longest step of these."""

    def __init__(self, pace: Pace) -> None:
        self.long_steps = 0
        self.longest_seconds = 0.0
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_MAX)  # end and length of long steps
        self._pace = pace
        pace.now = time.perf_counter
        # The instrument is added in the middle of a step: it sees the end of that step without its beginning.
        pace.began = time.perf_counter()
        self._logged_at = float("-inf")

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        pace = self._pace
        pace.rows = 0
        pace.began = time.perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        now = time.perf_counter()
        # This is called tens of thousands of times a second, so everything else is in `_note`.
        if now - self._pace.began > STEP_LIMIT_SECONDS:
            self._note(task, now, now - self._pace.began)

    def _note(self, task: trio.lowlevel.Task, now: float, seconds: float) -> None:
        self.long_steps += 1
        self.longest_seconds = max(self.longest_seconds, seconds)
        self._recent.append((now, seconds))
        if now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            logger.debug(
                "a step of %s held the loop for %.1f ms (%d long steps so far); it stopped in %s",
                task.name,
                seconds * 1000,
                self.long_steps,
                where(task),
            )

    def longest_within(self, seconds: float) -> float:
        """The length of the longest step above STEP_LIMIT_SECONDS that ended in the last `seconds`; 0 if none did."""
        # The steps are in the order of their ends, but a search for the first one in the window would save nothing.
        since = time.perf_counter() - seconds
        return max((length for ended, length in self._recent if ended >= since), default=0.0)


def where(task: trio.lowlevel.Task) -> str:
    """The innermost line of Barnabas at which the task waits after the step; the long work is somewhere before it."""
    # A task that has ended has no frames.
    line = "its end"
    for frame, number in task.iter_await_frames():
        if "barnabas" in frame.f_code.co_filename:
            line = f"{frame.f_code.co_filename}:{number}"
    return line
