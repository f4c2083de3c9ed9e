"""Makes a history a function of its seed: virtual time, a seeded scheduler, and processes that can be stopped.

Theory of operation
-------------------
Trio runs all runnable tasks in a batch, in an unspecified order. `simulate` makes that order a function of the seed.
This is the only file that uses the three private names of trio for that: the switch that sorts a batch by a number of
each task before it may be reversed, that number, and the random generator that decides whether it is reversed. If a
version of trio changes them, a test fails, and `simulate` refuses to run.

The number is drawn from the seed and from which task it is: its process, its name, and how many of that name came
before. Whether a batch is reversed is drawn from the seed and the virtual time. Nothing is drawn from a stream, so one
more checkpoint, or one more task, changes no turn but its own, and a seed keeps its history over small changes.

Time is virtual. Trio asks its clock how long to sleep only when no task can run; `VirtualClock` does not sleep, but
jumps to the next event: a deadline of trio's or one of its own timers. Timers (`call_at`) are callbacks that run
between task steps: a message of the simulated network arrives without a task of its own, which keeps a busy cluster
cheap. Timers with equal times run in the order of their creation.

A `Process` is a group of tasks that can be paused, as by SIGSTOP. A task belongs to the process in whose context it was
started. While the process is paused none of its tasks makes a step: an event that wakes a task (bytes, a timer, a lock)
is kept and takes effect after `resume`, as with a stopped process whose kernel continues to work. To do this each
task's coroutine is replaced, before its first step, by one that checks whether it may run.
"""

import contextlib
import hashlib
import heapq
import logging
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TypeVar, TypeVarTuple

import trio
from trio._core import _run as trio_run

from barnabas.testing.simulation.trace import Trace

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

SWITCH, CHANCE, NUMBER = "_ALLOW_DETERMINISTIC_SCHEDULING", "_r", "_counter"  # trio's private names
START_SECONDS = 1000.0  # not 0, so that what happened at the very beginning is not taken for "never"
POLLS_MAX = 100
STALLED = "the simulation stands still: no task can run, and nothing is due"


class SimulationStalled(Exception):
    """Every task waits for another one."""


class VirtualClock(trio.abc.Clock):
    """Trio's clock, and timers."""

    def __init__(self) -> None:
        self.now = START_SECONDS
        self._timers: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        self._polls = 0  # in a row, with nothing due
        self.stalled = trio.CancelScope()  # cancelled when nothing will ever happen any more

    def call_at(self, seconds: float, callback: Callable[[*Arguments], None], *args: *Arguments) -> None:
        """Call `callback(*args)` at this time, between two task steps. It cannot be taken back: let it look first."""
        self._count += 1
        heapq.heappush(self._timers, (seconds, self._count, callback, args))

    def call_in(self, seconds: float, callback: Callable[[*Arguments], None], *args: *Arguments) -> None:
        """The same, so many seconds from now."""
        self.call_at(self.now + seconds, callback, *args)

    def start_clock(self) -> None:
        """Nothing runs by itself."""

    def current_time(self) -> float:
        """The virtual time, in seconds."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to what comes next; trio asks when nothing can run, and never sleeps."""
        timers = self._timers
        if timers and timers[0][0] <= deadline:
            # A timer that was set for the past is due now: time never goes back.
            self.now = due = max(self.now, timers[0][0])
            # A callback may set another timer for the same moment, which then runs in this loop as
            # well.
            while timers and timers[0][0] <= due:
                _, _, callback, args = heapq.heappop(timers)
                callback(*args)
            self._polls = 0
        elif deadline == math.inf:
            self._polls += 1  # trio wakes itself by a socket now and then, and has to look
            # A single poll without an event proves nothing, but so many in a row do.
            if self._polls == POLLS_MAX:
                self.stalled.cancel()
        elif deadline > self.now:
            self.now = deadline

        return 0.0


# -- processes


class Process:
    """A group of tasks that can be stopped in the midst of whatever they do, and continued."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_dead = False  # what is left of it comes to its end, and nothing that it says counts
        self._held: list[trio.lowlevel.Task] = []
        self._later: list[Callable[[], None]] = []

    async def run(self, function: Callable[[*Arguments], Awaitable[object]], *args: *Arguments) -> None:
        """`await function(*args)` as the first task of this process."""
        # Trio copies the context of a task to the tasks that it starts, so the whole tree belongs
        # to this process.
        token = _process.set(self)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(function, *args)
        finally:
            _process.reset(token)

    def pause(self) -> None:
        """From now on no task of this process makes a step."""
        self.is_paused = True

    def resume(self) -> None:
        """Let everything happen that was held back, in its order."""
        if not self.is_paused:
            return
        self.is_paused = False
        held = self._held
        self._held = []
        later = self._later
        self._later = []
        # Callbacks change what the tasks will see at their next step, so they run first.
        for callback in later:
            callback()
        for task in held:
            trio.lowlevel.reschedule(task)

    def call(self, callback: Callable[[], None]) -> None:
        """Run a callback of this process: now, or when it goes on."""
        if self.is_paused:
            self._later.append(callback)
        else:
            callback()

    def hold(self, task: trio.lowlevel.Task) -> None:
        """For `_Stoppable`."""
        self._held.append(task)


_process: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """The process of the task that runs now."""
    return _process.get()


def in_dead_process() -> bool:
    """Whether the task that runs now belongs to a process that was killed and is at its end."""
    process = current_process()
    return process is not None and process.is_dead


class _Stoppable(Coroutine[object, object, object]):
    """A task's coroutine, which makes a step only while its process runs."""

    __slots__ = ("_coroutine", "_holding", "_kept", "_process", "_task")

    def __init__(self, task: trio.lowlevel.Task, process: Process) -> None:
        self._coroutine: Coroutine[object, object, object] = task.coro  # type: ignore[assignment]  # what trio sends it
        self._task = task
        self._process = process
        self._holding = False
        self._kept: object = None

    def send(self, value: object) -> object:
        if self._process.is_paused:
            # Only the first wake has a value. Trio wakes this task again when the process is
            # resumed, and that value means nothing.
            if not self._holding:
                self._holding = True
                self._kept = value
            self._process.hold(self._task)
            return _wait_message()
        if self._holding:
            self._holding = False
            value = self._kept
            self._kept = None
        return self._coroutine.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> object:
        return self._coroutine.throw(kind)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[object, object, object]:
        raise TypeError("only trio's run loop drives a task's coroutine")

    def __getattr__(self, name: str) -> object:
        """What trio wants to know of a coroutine (`cr_frame`, `cr_running`, …) is so of the one inside."""
        return getattr(self._coroutine, name)


def _wait_message() -> object:
    """What a coroutine yields to wait for `reschedule`, and for nothing else."""
    waiting = trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
    # Trio's own message for this is private. The first step of the public function yields one.
    message: object = waiting.send(None)
    waiting.close()
    return message


# -- the run


class TurnsByTime(random.Random):
    """What trio asks whether to reverse a batch: the same answer at the same virtual time."""

    def __init__(self, seed: int, clock: VirtualClock) -> None:
        super().__init__(seed)
        self._seed = seed
        self._clock = clock
        self._at = -1.0
        self._drawn = 0.0

    def random(self) -> float:
        """From 0 to below 1."""
        # Many batches run at the same virtual time, so the number is kept: a hash takes longer than
        # a task's step.
        if self._at != self._clock.now:
            self._at = self._clock.now
            self._drawn = _drawn(f"{self._seed} {self._at!r}") / (1 << 64)
        return self._drawn


def _drawn(text: str) -> int:
    """64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class _AfterSteps(trio.abc.Instrument):
    """Calls a function after each task step. A class of its own, since a run without one need not pay for it."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """For trio."""
        self._callback()


class Simulation(trio.abc.Instrument):
    """One run: its seed, clock and trace.

    Chance comes in streams, one for each name, so that drawing more in one part changes nothing in another.
    """

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self._spawned: Counter[tuple[str, str]] = Counter()  # tasks, by process and name
        self.trace = Trace(self.clock.current_time, keep=keep_trace)

    def rng(self, name: str) -> random.Random:
        """A source of chance of its own for each name; the same for the same seed."""
        return random.Random(f"{self.seed} {name}")

    def on_step(self, callback: Callable[[], None]) -> None:
        """Call `callback()` after every task step from now on. It must be quick where nothing changed."""
        trio.lowlevel.add_instrument(_AfterSteps(callback))

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """For trio."""
        process = task.context.get(_process)
        where = "" if process is None else process.name
        # The count tells tasks of one name apart, in the order in which they began.
        self._spawned[where, task.name] += 1
        setattr(task, NUMBER, _drawn(f"{self.seed} {where} {task.name} {self._spawned[where, task.name]}"))
        if process is not None:
            task.coro = _Stoppable(task, process)  # type: ignore[assignment]  # not of the built-in type

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """For trio."""
        self.trace.step(task.name)


def simulate(
    seed: int, main: Callable[[Simulation], Awaitable[Result]], *, keep_trace: bool = False
) -> tuple[Result, Simulation]:
    """Run `main(simulation)` in virtual time; its result and the run, whose trace is the history of this seed."""
    simulation = Simulation(seed, keep_trace=keep_trace)
    results: list[Result] = []

    async def run() -> None:
        with simulation.clock.stalled:
            results.append(await main(simulation))

    with seeded_scheduler(TurnsByTime(seed, simulation.clock)), quiet():
        trio.run(run, clock=simulation.clock, instruments=[simulation])
    if not results:
        raise SimulationStalled(STALLED)
    return results[0], simulation


@contextlib.contextmanager
def seeded_scheduler(rng: random.Random) -> Iterator[None]:
    """Let trio sort each batch of tasks by their numbers, and reverse it by this source of chance."""
    before = getattr(trio_run, SWITCH), getattr(trio_run, CHANCE)
    # These checks refuse a version of trio that works in another way, before a seed means something
    # else.
    has_number = NUMBER in trio.lowlevel.Task.__slots__
    if not isinstance(before[0], bool) or not isinstance(before[1], random.Random) or not has_number:
        raise TypeError(
            f"this version of trio schedules in another way: {SWITCH} and {CHANCE} are {before}, {NUMBER}: {has_number}"
        )
    setattr(trio_run, SWITCH, True)
    setattr(trio_run, CHANCE, rng)
    try:
        yield
    finally:
        setattr(trio_run, SWITCH, before[0])
        setattr(trio_run, CHANCE, before[1])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Brokers in trouble have much to say, and a line costs more than a request."""
    logger = logging.getLogger("barnabas")
    before = logger.level
    if logger.getEffectiveLevel() < logging.WARNING or before == logging.NOTSET:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
