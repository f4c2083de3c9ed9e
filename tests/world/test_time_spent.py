"""The processor time of a request: its own steps and its threads, and nothing of other tasks. The clock is a fake."""

import trio

from barnabas.world.time_spent import TimeSpent, time_spent
from barnabas.world.world import request_threads


class Clock:
    """Time passes only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


async def test_the_steps_of_others_do_not_count():
    clock = Clock()
    spent = TimeSpent(clock)

    async def work():
        clock.now += 2
        await trio.lowlevel.checkpoint()
        clock.now += 3
        return "done"

    async def others():
        clock.now += 100

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert await spent.of(work()) == "done"
    assert spent.take() == 5
    assert spent.take() == 0


async def test_what_is_taken_within_a_step_is_not_counted_again():
    clock = Clock()
    spent = TimeSpent(clock)

    async def work():
        clock.now += 2
        taken = spent.take()
        clock.now += 3
        return taken

    assert await spent.of(work()) == 2
    assert spent.take() == 3


async def test_a_step_that_fails_counts():
    clock = Clock()
    spent = TimeSpent(clock)

    async def work():
        clock.now += 2
        raise KeyError

    try:
        await spent.of(work())
    except KeyError:
        assert spent.take() == 2


async def test_work_in_a_thread_counts_for_the_request_that_waits_for_it():
    clock = Clock()
    spent = TimeSpent(clock)
    in_thread = request_threads()

    def compute():
        clock.now += 7
        return "computed"

    async def work():
        return await in_thread(compute)

    time_spent.set(spent)
    assert await spent.of(work()) == "computed"
    time_spent.set(None)
    assert await in_thread(compute) == "computed"  # of a request that is not measured
    assert spent.take() == 7
