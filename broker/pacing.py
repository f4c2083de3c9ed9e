"""Work that may be long, in steps: no step may hold the loop for long, and no client's work all threads.

`paced` is for loops on the event loop, `pause_after` for what takes the time of several rows. They count together,
whatever stands in what: it is a step of the loop that may not be long, not a request. `complete` is for work whose cost
is not known before it is done, such as checking a compressed batch: it is written as a generator that yields after each
bounded step (about a millisecond: so many bytes or fields, not so much time, so that a run is repeatable).
"""

from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import trio

from barnabas.storage.disk import InThread

INLINE_STEPS = 1  # what ends within these needs no thread, and so no hop of 100 µs to one
FIRST_SLICE_STEPS = 16  # in a thread, enough for a batch of the usual megabyte: each slice costs a hop
STEPS_AT_A_TIME = 4  # from then on: the thread serves others in between

ROWS_AT_A_TIME = 200  # rows of an answer, at one to five microseconds each

Each = TypeVar("Each")
Result = TypeVar("Result")
Steps = Generator[None, None, Result]


class _Pace:
    """How many rows were handled since `paced` last gave the loop back."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = 0


_pace: trio.lowlevel.RunVar[_Pace] = trio.lowlevel.RunVar("pace")


async def paced(rows: Iterable[Each], cost: int = 1) -> AsyncIterator[Each]:
    """These, one after the other; each takes the time of `cost` rows.

    Others run in between, so `rows` must be nobody else's.
    """
    pace = _pace_of_run()
    for row in rows:
        yield row
        pace.rows += cost
        if pace.rows >= ROWS_AT_A_TIME:
            pace.rows = 0
            await trio.lowlevel.checkpoint()


def portions(rows: Sequence[Each], count: int) -> Iterator[Sequence[Each]]:
    """So many of them at a time."""
    for start in range(0, len(rows), count):
        yield rows[start : start + count]


async def pause_after(rows: int) -> None:
    """The time of so many rows has passed: others run now, if it was enough since they last could."""
    pace = _pace_of_run()
    pace.rows += rows
    if pace.rows >= ROWS_AT_A_TIME:
        pace.rows = 0
        await trio.lowlevel.checkpoint()


def _pace_of_run() -> _Pace:
    try:
        return _pace.get()
    except LookupError:
        pace = _Pace()
        _pace.set(pace)
        return pace


class _Ended(NamedTuple):
    value: object


async def complete(steps: Steps[Result], in_thread: InThread) -> Result:
    """What the work returns: its first steps run here, the others in a thread, a few at a time.

    What it raises is raised. Where the caller is cancelled between two slices, the work is closed.
    """
    try:
        ended = _advance(steps, INLINE_STEPS) or await in_thread(_advance, steps, FIRST_SLICE_STEPS)
        while ended is None:
            ended = await in_thread(_advance, steps, STEPS_AT_A_TIME)
    finally:
        steps.close()
    return ended.value  # type: ignore[return-value]  # what `steps` returned: _Ended hides its type


def complete_inline(steps: Steps[Result]) -> Result:
    """The same here and now, for those who are in a thread already, and for tests."""
    while (ended := _advance(steps, STEPS_AT_A_TIME)) is None:
        pass
    return ended.value  # type: ignore[return-value]  # as in `complete`


def _advance(steps: Steps[Result], count: int) -> _Ended | None:
    """Run so many steps; the result where that was the end."""
    try:
        for _ in range(count):
            next(steps)
    except StopIteration as stop:
        return _Ended(stop.value)
    return None
