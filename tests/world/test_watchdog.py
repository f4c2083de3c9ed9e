"""The watchdog begins each task's turn, and reports steps that hold the event loop for too long."""

import logging
import time

import pytest
import trio

from barnabas.world.pacing import ROWS_AT_A_TIME, TURN_SECONDS, pace_of_run, paced
from barnabas.world.watchdog import STEP_LIMIT_SECONDS, Watchdog
from tests.broker.steps import pauses_of


@pytest.fixture
async def watchdog():
    watchdog = Watchdog(pace_of_run())
    trio.lowlevel.add_instrument(watchdog)
    yield watchdog
    trio.lowlevel.remove_instrument(watchdog)


def work_for(seconds):
    ends_at = time.perf_counter() + seconds
    while time.perf_counter() < ends_at:
        pass


@pytest.mark.parametrize("lengths", [(20, 1), (1, 20), (5, 4)])
async def test_a_loop_whose_rows_take_long_gives_way_by_the_clock(watchdog, lengths):
    outer, inner = lengths

    async def work():
        for _ in range(outer):
            async for _ in paced(range(inner)):
                work_for(TURN_SECONDS / 2)

    # A turn ends with the second or third row.
    assert await pauses_of(work) >= 6


async def test_a_task_that_has_waited_begins_a_new_turn(watchdog):
    async def work():
        for _ in range(10):
            async for _ in paced(range(ROWS_AT_A_TIME - 50)):
                pass
            await trio.lowlevel.checkpoint()

    # One for each checkpoint, and one where the machine was slow; in one turn there would be as many again.
    assert 10 <= await pauses_of(work) < 15


async def test_a_long_step_is_counted_and_its_task_is_named(watchdog, caplog):
    caplog.set_level(logging.DEBUG, "barnabas.world.watchdog")
    await trio.lowlevel.checkpoint()
    for _ in range(2):
        work_for(2 * STEP_LIMIT_SECONDS)
        await trio.lowlevel.checkpoint()
    assert watchdog.long_steps >= 2  # on a busy machine a short step may take as long
    assert watchdog.longest_seconds >= 2 * STEP_LIMIT_SECONDS
    (line,) = caplog.messages
    assert "test_a_long_step_is_counted" in line
