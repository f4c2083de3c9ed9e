"""Work that may be long, in steps: no step may hold the loop for long, and no client's work all threads.

`paced` is for loops on the event loop. `complete` is for work whose cost is not known before it is done, such as
checking a compressed batch: it is written as a generator that yields after each bounded step (about a millisecond: so
many bytes or fields, not so much time, so that a run is repeatable).
"""

from collections.abc import AsyncIterator, Generator, Iterable
from typing import NamedTuple, TypeVar

import trio

from barnabas.storage.disk import InThread

INLINE_STEPS = 1  # what ends within these needs no thread, and so no hop of 100 µs to one
STEPS_AT_A_TIME = 4  # in a thread, which then serves whoever waited for longest

ROWS_AT_A_TIME = 500  # rows of an answer: half a millisecond or so

Each = TypeVar("Each")
Result = TypeVar("Result")
Steps = Generator[None, None, Result]


async def paced(rows: Iterable[Each]) -> AsyncIterator[Each]:
    """These, one after the other. Others run in between, so `rows` must be nobody else's."""
    for number, row in enumerate(rows, 1):
        yield row
        if number % ROWS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()


class _Ended(NamedTuple):
    value: object


async def complete(steps: Steps[Result], in_thread: InThread) -> Result:
    """What the work returns: its first steps run here, the others in a thread, a few at a time.

    What it raises is raised. Where the caller is cancelled between two slices, the work is closed.
    """
    try:
        ended = _advance(steps, INLINE_STEPS)
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
