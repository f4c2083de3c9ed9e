"""How long steps of the event loop are, in processor time of its thread.

    with StepMeter() as meter:
        await something()
    meter.check()

A step is what a task does between two times that it gives the loop back. Inside the block turns end by the clock
(`world/pacing.py`), as in a broker that serves; without a meter they end by the count of rows, so that a test is the
same in every run. Garbage that is collected during a step counts. It is collected as in `barnabas serve`: what was
there before is not looked at, and full collections are rare (`broker/process/heap.py`).
"""

import gc
import os
import time
from contextlib import contextmanager
from typing import NamedTuple

import trio

from barnabas.broker.process.heap import NO_FULL_COLLECTION, YOUNG_A_MIDDLE_COLLECTION
from barnabas.world.pacing import pace_of_run
from barnabas.world.watchdog import where

STEP_MAX_MS = 5.0  # on a quiet machine
BUSY_FACTOR = 3  # other programs take caches and half of a processor's core


def step_max_ms() -> float:
    """The longest step that is allowed now."""
    is_busy = "CI" in os.environ or os.getloadavg()[0] > (os.cpu_count() or 1)
    return STEP_MAX_MS * (BUSY_FACTOR if is_busy else 1)


class Step(NamedTuple):
    """A step: its processor time, how much of it went into the collection of garbage, its task, where it stopped."""

    ms: float
    garbage_ms: float
    task: str
    stopped: str


class StepMeter(trio.abc.Instrument):
    """Measures all tasks of the run inside its block, but the one that is named."""

    _running: "StepMeter | None" = None

    def __init__(self, but: trio.lowlevel.Task | None = None) -> None:
        self._but = but
        self.longest = Step(0.0, 0.0, "", "")
        self._pace = pace_of_run()
        self._began = self._garbage_began = self._garbage = 0.0

    def __enter__(self) -> "StepMeter":
        trio.lowlevel.add_instrument(self)
        StepMeter._running = self
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(self._thresholds[0], YOUNG_A_MIDDLE_COLLECTION, NO_FULL_COLLECTION)
        gc.callbacks.append(self._collect)
        self._pace.now = time.perf_counter
        self.before_task_step(trio.lowlevel.current_task())
        return self

    def __exit__(self, *_: object) -> None:
        self.after_task_step(trio.lowlevel.current_task())  # the step that ends the block is one, too
        self._pace.now = float
        gc.callbacks.remove(self._collect)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()
        StepMeter._running = None
        trio.lowlevel.remove_instrument(self)

    def check(self) -> None:
        """Fail if a step was too long."""
        assert self.longest.ms < step_max_ms(), self.longest

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._garbage = 0.0
        self._pace.rows = 0
        self._pace.began = time.perf_counter()
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        ms = (time.thread_time() - self._began) * 1000
        if ms > self.longest.ms and task is not self._but:
            self.longest = Step(round(ms, 2), round(self._garbage * 1000, 2), task.name, where(task))

    def leave_out(self, processor_seconds: float, seconds: float) -> None:
        """So much of the step that is under way would not run on the event loop."""
        self._began += processor_seconds
        self._pace.began += seconds

    def _collect(self, phase: str, info: dict) -> None:
        if phase == "start":
            self._garbage_began = time.thread_time()
        else:
            self._garbage += time.thread_time() - self._garbage_began


@contextmanager
def outside_steps():
    """What runs in here would run in a thread, or is no code of a broker."""
    began, processor_began = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        if StepMeter._running is not None:
            StepMeter._running.leave_out(time.thread_time() - processor_began, time.perf_counter() - began)


class _StepsOf(trio.abc.Instrument):
    """Counts the steps of one task."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task, self.count = task, 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


async def pauses_of(work):
    """How often this work gives the loop back."""
    steps = _StepsOf(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(steps)
    await work()
    trio.lowlevel.remove_instrument(steps)
    return steps.count
