"""Work in steps: what is short stays on the loop, what is long goes to a thread a slice at a time."""

import pytest
import trio

from barnabas.wire.compression import HELD_FREE_BYTES
from barnabas.world.pacing import (
    FIRST_SLICE_STEPS,
    INLINE_STEPS,
    ROOMS,
    ROWS_AT_A_TIME,
    STEPS_AT_A_TIME,
    complete,
    complete_inline,
    paced,
    pause_after,
)
from tests.broker.steps import pauses_of


def steps(count, done):
    for number in range(count):
        done.append(number)
        yield
    return "result"


class Threads:
    def __init__(self):
        self.visits = 0

    async def __call__(self, function, /, *args):
        self.visits += 1
        await trio.lowlevel.checkpoint()
        return function(*args)


async def test_work_that_ends_within_the_inline_steps_needs_no_thread():
    threads, done = Threads(), []
    assert await complete(steps(INLINE_STEPS - 1, done), threads) == "result"
    assert threads.visits == 0


async def test_longer_work_visits_the_threads_once_a_slice():
    threads, done = Threads(), []
    count = INLINE_STEPS + FIRST_SLICE_STEPS + 2 * STEPS_AT_A_TIME - 1
    assert await complete(steps(count, done), threads) == "result"
    assert threads.visits == 3
    assert done == list(range(count))


async def test_short_work_does_not_wait_for_all_of_the_long_work_before_it():
    ended = []

    async def work(name, count):
        await complete(steps(count, []), in_turn)
        ended.append(name)

    turn = trio.CapacityLimiter(1)

    async def in_turn(function, /, *args):
        async with turn:
            await trio.lowlevel.checkpoint()
            return function(*args)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, "long", 100 * STEPS_AT_A_TIME)
        nursery.start_soon(work, "short", 2 * STEPS_AT_A_TIME)
    assert ended == ["short", "long"]


async def test_what_the_work_raises_is_raised_from_either_place():
    def broken(count):
        for _ in range(count):
            yield
        raise ValueError("the work is wrong")

    for count in (0, INLINE_STEPS + 1):
        with pytest.raises(ValueError, match="the work is wrong"):
            await complete(broken(count), Threads())


async def test_work_whose_caller_is_cancelled_is_closed():
    closed = []

    def endless():
        try:
            while True:
                yield
        finally:
            closed.append(True)

    with trio.move_on_after(0):
        await complete(endless(), Threads())
    assert closed == [True]


SOME, MUCH = HELD_FREE_BYTES + 1, 1 << 25


class Works:
    """Works that hold memory between their steps, and how many of them do at once."""

    def __init__(self):
        self.threads, self.now, self.most, self.ended = Threads(), {}, {}, []

    async def run(self, name, *held_bytes):
        await complete(self._steps(name, held_bytes), self.threads)
        self.ended.append(name)

    def _steps(self, name, held_bytes):
        try:
            for each in held_bytes:
                yield each
                self.now[name] = each
                for kind in (SOME, MUCH):
                    count = sum(held >= kind for held in self.now.values())
                    self.most[kind] = max(self.most.get(kind, 0), count)
            yield from [None] * 4 * STEPS_AT_A_TIME
        finally:
            self.now.pop(name, None)


async def test_work_that_asks_for_room_and_is_short_needs_no_thread():
    works = Works()

    def short():
        yield MUCH
        return "result"

    assert await complete(short(), works.threads) == "result"
    assert works.threads.visits == 0


async def test_of_works_that_hold_much_only_a_few_go_on_at_a_time():
    works = Works()
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(works.run, number, (SOME, MUCH)[number % 2])
    (_, some), (_, much) = ROOMS
    assert works.most == {MUCH: much, SOME: some + much}
    assert len(works.ended) == 100


async def test_what_holds_little_waits_for_nothing_that_holds_much():
    works = Works()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(works.run, number, MUCH)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(works.run, "small", HELD_FREE_BYTES)
        nursery.start_soon(works.run, "usual", SOME)
    assert {"small", "usual"} < set(works.ended[:8])


async def test_works_that_come_to_hold_more_all_end():
    works = Works()
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(works.run, number, SOME, MUCH)
    assert works.most[MUCH] == ROOMS[1][1]
    assert len(works.ended) == 50


async def test_who_goes_while_it_waits_for_room_or_has_it_leaves_the_room_to_others():
    works = Works()
    with trio.move_on_after(0):
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(works.run, number, MUCH)
    assert not works.now
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(works.run, number, MUCH)
    assert len(works.ended) == 5


def test_in_one_thread_the_work_is_done_at_once():
    done = []
    assert complete_inline(steps(10, done)) == "result"
    assert len(done) == 10


# -- rows on the event loop


@pytest.mark.parametrize("lengths", [(10 * ROWS_AT_A_TIME, 1), (ROWS_AT_A_TIME, 10), (1, 10 * ROWS_AT_A_TIME)])
async def test_rows_of_loops_within_loops_count_together(lengths):
    outer, inner = lengths

    async def work():
        for _ in range(outer):
            async for _ in paced(range(inner)):
                pass

    assert await pauses_of(work) == 10


async def test_rows_that_were_handled_at_once_count_as_many():
    async def work():
        for _ in range(50):
            await pause_after(ROWS_AT_A_TIME // 10)

    assert await pauses_of(work) == 5
