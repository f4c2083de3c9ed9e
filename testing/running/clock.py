"""The time of the brokers of a test: real time that jumps when a test says so, or that stands still (edge).

    broker.clock.advance(days=7)  # what is due until then happens within milliseconds

One offset moves both of a broker's clocks together: trio's, by which timers run, and the wall clock, which is in
records. The clock outlives the brokers, so time does not go back when one is restarted.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.running.loop import Loop, NoLoop

NS = 1_000_000_000
MS_NS = 1_000_000
AHEAD_DAYS_MAX = 36_500  # keeps timestamps in the range that clients and Python's dates can show


class _Now(NamedTuple):
    """The operating system's clocks at one moment."""

    elapsed_ns: int  # the monotonic clock
    wall_ns: int  # since the epoch

    @classmethod
    def read(cls) -> "_Now":
        return cls(time.perf_counter_ns(), time.time_ns())


class BrokerClock(trio.abc.Clock):
    """The clock of the brokers on one loop. `advance`, `stop` and `resume` may be called from any thread."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ahead_ns = 0
        self._held: _Now | None = None  # set while time stands still
        self.before_jump: Callable[[float], None] = lambda seconds: None  # called on the loop

    # -- for tests

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the time on, and begin what is due then; only what takes long is still under way at the return.

        LocalBrokerError for a time that is no positive number, or beyond a hundred years.
        """
        given = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        for name, value in given.items():
            # An int may be larger than any float: it is compared, and not converted.
            is_amount = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
            if not is_amount:
                raise LocalBrokerError(f"{name}: time goes forward only, by a number of {name}, not {value!r}")
            if value > 86_400 * AHEAD_DAYS_MAX:
                raise LocalBrokerError(f"advance: more than {AHEAD_DAYS_MAX} days in all")
        total = seconds + 60 * minutes + 3600 * hours + 86_400 * days
        if self._ahead_ns / NS + total > 86_400 * AHEAD_DAYS_MAX:
            raise LocalBrokerError(f"advance: more than {AHEAD_DAYS_MAX} days in all")

        def jump() -> None:
            self.before_jump(total)
            self._ahead_ns += round(total * NS)

        self._change(jump)

    def stop(self) -> None:
        """Hold the time: from now on only `advance` moves it, until `resume`."""
        self._change(self._hold)

    def resume(self) -> None:
        """Let the time run on, from where it stands."""
        self._change(self._let_go)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` holds the time."""
        return self._held is not None

    def now_ms(self) -> int:
        """The wall clock of the brokers, in milliseconds since the epoch."""
        wall_ns = time.time_ns() if self._held is None else self._held.wall_ns
        return (wall_ns + self._ahead_ns) // MS_NS

    # -- for brokers

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the time run within this block: the start and the stop of a broker have deadlines, too."""
        was_stopped = self.is_stopped
        if was_stopped:
            self.resume()
        try:
            yield
        finally:
            if was_stopped:
                self.stop()

    def start_clock(self) -> None:
        """For trio: nothing to do, as this clock runs before and after a loop."""

    def current_time(self) -> float:
        """For trio: seconds of an unspecified beginning."""
        elapsed_ns = time.perf_counter_ns() if self._held is None else self._held.elapsed_ns
        return (elapsed_ns + self._ahead_ns) / NS

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """For trio: how many real seconds until this deadline, unless a change of the clock wakes the loop."""
        left = deadline - self.current_time()
        return left if self._held is None or left <= 0 else math.inf

    def _hold(self) -> None:
        if self._held is None:
            self._held = _Now.read()

    def _let_go(self) -> None:
        if self._held is not None:
            self._ahead_ns -= time.perf_counter_ns() - self._held.elapsed_ns
            self._held = None

    def _change(self, change: Callable[[], None]) -> None:
        # The change is made on the loop, which so wakes up, and looks at its deadlines again.
        try:
            self._loop.call(change)
        except NoLoop:
            change()
