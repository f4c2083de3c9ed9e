"""Work that may be long, in steps: no step may hold the loop for long, and no client's work all threads.

`paced` is for loops on the event loop, `pause_after` for what takes the time of several rows. They count together,
whatever stands in what: it is a step of the loop that may not be long, not a request. `complete` is for work whose cost
is not known before it is done, such as checking a compressed batch: it is written as a generator that yields after each
bounded step (about a millisecond: so many bytes or fields, not so much time, so that a run is repeatable).

What such work holds between its steps adds up, for as many works are begun as there are clients that ask. So steps
yield how many bytes are held from there on, where they are many (`Steps`), and of works that hold much `ROOMS` says how
many go on at a time; the others wait in order. A work may need a larger room later, and keeps the smaller one: rooms
are entered in the order of their sizes, so there is no deadlock.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import trio

from barnabas.storage.disk import InThread
from barnabas.wire.compression import HELD_FREE_BYTES
from barnabas.wire.records import Steps

INLINE_STEPS = 1  # what ends within these needs no thread, and so no hop of 100 µs to one
FIRST_SLICE_STEPS = 16  # in a thread, enough for a batch of the usual megabyte: each slice costs a hop
STEPS_AT_A_TIME = 4  # from then on: the thread serves others in between

ROWS_AT_A_TIME = 200  # rows of an answer, at one to five microseconds each

# Works that hold up to so many bytes, and how many of them go on at a time: 200 MB together. The first is that of a
# megabyte as clients mean it, with a window of zstd's level 3 or a block of lz4.
ROOMS = ((8 << 20, 12), (1 << 62, 3))

Each = TypeVar("Each")
Result = TypeVar("Result")


class _Pace:
    """How many rows were handled since `paced` last gave the loop back."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = 0


_pace: trio.lowlevel.RunVar[_Pace] = trio.lowlevel.RunVar("pace")


async def paced(rows: Iterable[Each], cost: int = 1) -> AsyncIterator[Each]:
    """These, one after the other; each takes the time of `cost` rows.

    Others run in between, so no other code may change `rows`.
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


_rooms: trio.lowlevel.RunVar[tuple[trio.Semaphore, ...]] = trio.lowlevel.RunVar("rooms")


class _Held:
    """What a work may hold, and the rooms that it is in."""

    def __init__(self) -> None:
        self.bytes_max = HELD_FREE_BYTES
        self._rooms: list[trio.Semaphore] = []

    async def grow(self, size_bytes: int) -> None:
        """Wait until it may hold so much."""
        try:
            rooms = _rooms.get()
        except LookupError:
            rooms = tuple(trio.Semaphore(places) for _, places in ROOMS)
            _rooms.set(rooms)
        number = next(number for number, (bytes_max, _) in enumerate(ROOMS) if size_bytes <= bytes_max)
        await rooms[number].acquire()
        self._rooms.append(rooms[number])
        self.bytes_max = ROOMS[number][0]

    def release(self) -> None:
        """It holds nothing any more."""
        for room in self._rooms:
            room.release()


class _Ended(NamedTuple):
    value: object


async def complete(steps: Steps[Result], in_thread: InThread) -> Result:
    """What the work returns: its first steps run here, the others in a thread, a few at a time.

    What it raises is raised. Where the caller is cancelled between two slices, the work is closed.
    """
    held = _Held()
    try:
        ended, count = _advance(steps, INLINE_STEPS, held.bytes_max), FIRST_SLICE_STEPS
        if not isinstance(ended, _Ended) and ended > held.bytes_max:  # it has only asked, so far
            await held.grow(ended)
            ended = _advance(steps, INLINE_STEPS, held.bytes_max)
        while not isinstance(ended, _Ended):
            if ended > held.bytes_max:
                await held.grow(ended)
            ended, count = await in_thread(_advance, steps, count, held.bytes_max), STEPS_AT_A_TIME
    finally:
        steps.close()
        held.release()
    return ended.value  # type: ignore[return-value]  # what `steps` returned: _Ended hides its type


def complete_inline(steps: Steps[Result]) -> Result:
    """The same here and now, for those who are in a thread already, and for tests."""
    while not isinstance(ended := _advance(steps, STEPS_AT_A_TIME, ROOMS[-1][0]), _Ended):
        pass
    return ended.value  # type: ignore[return-value]  # as in `complete`


def _advance(steps: Steps[Result], count: int, bytes_max: int) -> _Ended | int:
    """Run so many steps, or until more is held than may be; the result where that was the end, else what is held."""
    held_bytes = 0
    try:
        for _ in range(count):
            held_bytes = next(steps) or 0
            if held_bytes > bytes_max:
                break
    except StopIteration as stop:
        return _Ended(stop.value)
    return held_bytes
