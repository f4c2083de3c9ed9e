"""Splits long work into steps, so that no step holds the event loop for long and no client's work holds all threads.

A task gives way when its turn has taken TURN_SECONDS, or ROWS_AT_A_TIME rows: `paced` asks at each row of a loop,
`pause_after` after some rows. What a row costs is not guessed, since a client chooses it: by the length of a name, say.

`complete` runs work whose cost is not known in advance, such as checking a compressed batch. The work is a generator of
the type `Steps`: it yields after each bounded step of about a millisecond. A step is bounded by bytes or fields, not by
time, so that a run is repeatable. It yields how many bytes it holds between its steps, if they are many; `ROOMS` limits
how many works that hold much memory go on at a time.
"""

import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import trio

from barnabas.storage.disk import InThread
from barnabas.wire.compression import HELD_FREE_BYTES
from barnabas.wire.records import Steps
from barnabas.world.turns import Turn, Turns

INLINE_STEPS = 1  # run on the event loop: work that ends within them saves the hop of 100 µs to a thread
FIRST_SLICE_STEPS = 16  # of the first slice in a thread: enough for a batch of 1 MB, as each slice costs a hop
STEPS_AT_A_TIME = 4  # of later slices: the thread serves other work in between

TURN_SECONDS = 0.001  # of a task between two checkpoints; the rest of the step that is under way comes on top
ROWS_AT_A_TIME = 200  # rows between two checkpoints, at 1 to 5 µs each

# (bytes that one work may hold, works at a time): 200 MB together, as one stream holds 32 MiB at most. The first room
# fits a batch of 1 MB as ordinary clients compress it, with a window of zstd's level 3 or a block of lz4.
ROOMS = ((8 << 20, 12), (1 << 62, 3))

Each = TypeVar("Each")
Result = TypeVar("Result")


class Pace:
    """What the running task has done since it got the event loop: one for the whole run.

    Loops that are nested or follow each other add up, because it is the step of the event loop that must be short.
    """

    __slots__ = ("began", "now", "rows")

    def __init__(self) -> None:
        self.rows = 0
        # `watchdog.py` sets the clock. In virtual time there is no watchdog, and no time passes: the rows alone count,
        # and a run is repeatable.
        self.began = 0.0
        self.now: Callable[[], float] = float

    def is_over(self, rows: int = 1) -> bool:
        """Count `rows` rows; whether the task should give way now."""
        self.rows += rows
        return self.rows >= ROWS_AT_A_TIME or self.now() - self.began > TURN_SECONDS

    def is_over_at(self, now: float) -> bool:
        """As `is_over` after a row, at a time that `now` has just given."""
        self.rows += 1
        return self.rows >= ROWS_AT_A_TIME or now - self.began > TURN_SECONDS

    async def give_way(self) -> None:
        """A checkpoint, after which the task's next turn begins."""
        self.rows = 0
        await trio.lowlevel.checkpoint()


_pace: trio.lowlevel.RunVar[Pace] = trio.lowlevel.RunVar("pace")


def pace_of_run() -> Pace:
    """The pace of the task that is running."""
    try:
        return _pace.get()
    except LookupError:
        pace = Pace()
        _pace.set(pace)
        return pace


async def paced(rows: Iterable[Each]) -> AsyncIterator[Each]:
    """Iterate over `rows`; gives way between two of them when the turn is over.

    Other tasks run in between, so no other code may change `rows`.
    """
    pace = pace_of_run()
    for row in rows:
        yield row
        # These lines are `is_over` without the call, because most rows take a microsecond.
        pace.rows += 1
        if pace.rows >= ROWS_AT_A_TIME or pace.now() - pace.began > TURN_SECONDS:
            await pace.give_way()


def portions(rows: Sequence[Each], count: int) -> Iterator[Sequence[Each]]:
    """Slices of `rows` with at most `count` elements."""
    for start in range(0, len(rows), count):
        yield rows[start : start + count]


async def pause_after(rows: int = 1) -> None:
    """Count `rows` rows that were handled, and give way when the turn is over."""
    pace = pace_of_run()
    if pace.is_over(rows):
        await pace.give_way()


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
        ended = _advance(steps, INLINE_STEPS, held.bytes_max)
        count = FIRST_SLICE_STEPS

        # The work has only announced its memory, and done nothing yet: the first step still runs without a thread.
        if not isinstance(ended, _Ended) and ended > held.bytes_max:
            await held.grow(ended)
            ended = _advance(steps, INLINE_STEPS, held.bytes_max)
        while not isinstance(ended, _Ended):
            # The memory is waited for outside the thread: a thread that waits for it could not
            # serve the works that hold it.
            if ended > held.bytes_max:
                await held.grow(ended)
            ended = await in_thread(_advance, steps, count, held.bytes_max)
            count = STEPS_AT_A_TIME
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
