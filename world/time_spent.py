"""How much processor time one request takes (pure): its steps on the event loop, and its work in threads.

Kafka measures the time of its request and network threads (KIP-124). Here all requests share the thread of the event
loop, so the time of a request is that of its own steps. It is measured only while a quota of request time is set:
two readings of a clock for each step.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import TypeVar

Result = TypeVar("Result")


class TimeSpent:
    """The time of one request. `clock` gives the processor time of the thread that calls it, in seconds."""

    __slots__ = ("_clock", "_seconds", "_step_began", "is_never_exempt")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._step_began: float | None = None  # on the event loop; None between two steps
        self.is_never_exempt = False  # it counts even if the quota exempts its API

    def take(self) -> float:
        """The seconds since the last `take`, the step that runs included."""
        if self._step_began is not None:
            now = self._clock()
            self._seconds += now - self._step_began
            self._step_began = now
        taken = self._seconds
        self._seconds = 0.0
        return taken

    @types.coroutine
    def of(self, work: Coroutine[object, object, Result]) -> Generator[object, object, Result]:
        """Run `work` to its end, and add the time of its steps."""
        # What a coroutine yields is for trio, which answers with `send` alone, as in
        # `pacing.calling_before_wait`.
        sent: object = None
        while True:
            self._step_began = self._clock()
            try:
                yielded = work.send(sent)
            except StopIteration as ended:
                result: Result = ended.value
                return result
            finally:
                self._seconds += self._clock() - self._step_began
                self._step_began = None
            sent = yield yielded

    def in_thread(self, work: Callable[[], Result]) -> Result:
        """`work()`, in a thread for which the request waits; its time is added."""
        began = self._clock()
        try:
            return work()
        finally:
            self._seconds += self._clock() - began


# This belongs to the request that the running task handles. Trio's worker threads run in a copy of
# the task's context.
time_spent: ContextVar[TimeSpent | None] = ContextVar("time_spent", default=None)
