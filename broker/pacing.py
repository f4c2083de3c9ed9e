"""Splits long work into steps, so that no step holds the event loop for long and no client's work holds all threads.

`paced` paces loops on the event loop, and `pause_after` counts work that takes the time of several rows.

`complete` runs work whose cost is not known in advance, such as checking a compressed batch. The work is a generator of
the type `Steps`: it yields after each bounded step of about a millisecond. A step is bounded by bytes or fields, not by
time, so that a run is repeatable. It yields how many bytes it holds between its steps, if they are many; `ROOMS` limits
how many works that hold much memory go on at a time.
"""

import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import trio

from barnabas.broker.turns import Turn, Turns
from barnabas.storage.disk import InThread
from barnabas.wire.compression import HELD_FREE_BYTES
from barnabas.wire.records import Steps

INLINE_STEPS = 1  # run on the event loop: work that ends within them saves the hop of 100 µs to a thread
FIRST_SLICE_STEPS = 16  # of the first slice in a thread: enough for a batch of 1 MB, as each slice costs a hop
STEPS_AT_A_TIME = 4  # of later slices: the thread serves other work in between

TURN_SECONDS = 0.001  # between two checkpoints of a task, where the clock bounds its work and not a count
ROWS_AT_A_TIME = 200  # rows between two checkpoints, at 1 to 5 µs each

# (bytes that one work may hold, works at a time): 200 MB together. The first room fits a batch of 1 MB as ordinary
# clients compress it, with a window of zstd's level 3 or a block of lz4.
ROOMS = ((8 << 20, 12), (1 << 62, 3))

Each = TypeVar("Each")
Result = TypeVar("Result")


class _Pace:
    """How many rows were handled since the last checkpoint of `paced` or `pause_after`."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = 0


# One count for the whole run, not one for each loop: nested and short loops add up to one long step of the event loop.
_pace: trio.lowlevel.RunVar[_Pace] = trio.lowlevel.RunVar("pace")


async def paced(rows: Iterable[Each], cost: int = 1) -> AsyncIterator[Each]:
    """Iterate over `rows` with checkpoints; each element counts as `cost` rows.

    Other tasks run in between, so no other code may change `rows`.
    """
    pace = _pace_of_run()
    for row in rows:
        yield row
        pace.rows += cost
        if pace.rows >= ROWS_AT_A_TIME:
            pace.rows = 0
            await trio.lowlevel.checkpoint()


def portions(rows: Sequence[Each], count: int) -> Iterator[Sequence[Each]]:
    """Slices of `rows` with at most `count` elements."""
    for start in range(0, len(rows), count):
        yield rows[start : start + count]


async def pause_after(rows: int) -> None:
    """Count work that takes the time of `rows` rows; a checkpoint when ROWS_AT_A_TIME is reached."""
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


_rooms: trio.lowlevel.RunVar[tuple[Turns, ...]] = trio.lowlevel.RunVar("rooms")


class _Held:
    """The memory limit of one work, and the rooms that it has entered."""

    def __init__(self) -> None:
        self.bytes_max = HELD_FREE_BYTES
        self._turns: list[Turn] = []

    async def grow(self, size_bytes: int) -> None:
        """Enter the room for `size_bytes`; waits while it is full."""
        try:
            rooms = _rooms.get()
        except LookupError:
            rooms = tuple(Turns(places) for _, places in ROOMS)
            _rooms.set(rooms)
        number = next(number for number, (bytes_max, _) in enumerate(ROOMS) if size_bytes <= bytes_max)
        # A work that grows keeps its smaller room. All works enter rooms in ascending order, so there is no deadlock.
        self._turns.append(await rooms[number].take())
        self.bytes_max = ROOMS[number][0]

    def release(self) -> None:
        """Leave all rooms: the work has ended."""
        for turn in self._turns:
            turn.give_back()


class _Ended(NamedTuple):
    value: object


async def complete(steps: Steps[Result], in_thread: InThread, *, enters_rooms: bool = True) -> Result:
    """The result of the work: its first step runs here, the others in a thread, a few at a time.

    `enters_rooms` if it waits while too many others hold as much memory. Raises what the work raises. If the caller is
    cancelled between two slices, the work is closed.
    """
    held = _Held()
    if not enters_rooms:
        held.bytes_max = ROOMS[-1][0]
    try:
        ended, count = _advance(steps, INLINE_STEPS, held.bytes_max), FIRST_SLICE_STEPS
        # The work has only announced its memory, and done nothing yet: the first step still runs without a thread.
        if not isinstance(ended, _Ended) and ended > held.bytes_max:
            await held.grow(ended)
            ended = _advance(steps, INLINE_STEPS, held.bytes_max)
        while not isinstance(ended, _Ended):
            # Waited for outside the thread: a thread that waits for memory could not serve the works that hold it.
            if ended > held.bytes_max:
                await held.grow(ended)
            ended, count = await in_thread(_advance, steps, count, held.bytes_max), STEPS_AT_A_TIME
    finally:
        steps.close()
        held.release()
    return ended.value  # type: ignore[return-value]  # what `steps` returned: _Ended hides its type


def complete_inline(steps: Steps[Result]) -> Result:
    """The result of the work, without checkpoints: for callers in a thread, and for tests."""
    while not isinstance(ended := _advance(steps, STEPS_AT_A_TIME, ROOMS[-1][0]), _Ended):
        pass
    return ended.value  # type: ignore[return-value]  # as in `complete`


def _advance(steps: Steps[Result], count: int, bytes_max: int) -> _Ended | int:
    """Run at most `count` steps; stops when the work holds more than `bytes_max`.

    Returns the result in `_Ended`, or how many bytes the work holds now.
    """
    held_bytes = 0
    try:
        for _ in range(count):
            held_bytes = next(steps) or 0
            if held_bytes > bytes_max:
                break
    except StopIteration as stop:
        return _Ended(stop.value)
    return held_bytes


@types.coroutine
def calling_before_wait(
    work: Coroutine[object, object, Result], call: Callable[[], None]
) -> Generator[object, object, Result]:
    """Run `work` to its end, and call `call` when it first waits or gives way; not if it does neither."""
    # What a coroutine yields is for trio: the first value means that the task is suspended now. Trio answers each with
    # `send`, never with `throw`: a cancellation is a value, too, and raised by trio's code within `work`.
    sent: object = None
    has_waited = False
    while True:
        try:
            yielded = work.send(sent)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        if not has_waited:
            has_waited = True
            call()
        sent = yield yielded
