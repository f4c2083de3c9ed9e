"""One seed, one history: trio's private names, virtual time, processes that are stopped."""

import os
import random
import subprocess
import sys
from functools import partial

import pytest
import trio
from trio._core import _run as trio_run

from barnabas.testing.simulation import schedule
from barnabas.testing.simulation.schedule import Process, simulate

TASKS = 20


def test_trio_still_schedules_by_the_names_that_the_simulator_sets():
    """When this fails, look at trio's run loop for what sorts and shuffles a batch now."""
    assert isinstance(getattr(trio_run, schedule.SWITCH), bool)
    assert isinstance(getattr(trio_run, schedule.CHANCE), random.Random)
    orders = [order_of_tasks(seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != sorted(orders[0])


def order_of_tasks(seed):
    """In which order tasks run that are all runnable."""
    order = []

    async def main(_):
        async def note(number):
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(TASKS):
                nursery.start_soon(note, number)

    simulate(seed, main)
    return order


def turns_of_tasks(seed, *, checkpoints_of_one=0):
    """In which order tasks run at some times; one has so many checkpoints more, and starts as many tasks."""
    turns = []

    async def main(_):
        async def work(number):
            for _ in range(10):
                await trio.sleep(1)
                turns.append((trio.current_time(), number))

        async def more(nursery):
            for _ in range(10):
                await trio.sleep(1)
                for _ in range(checkpoints_of_one):
                    nursery.start_soon(trio.lowlevel.checkpoint)
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(more, nursery)
            for number in range(TASKS):
                nursery.start_soon(work, number)

    simulate(seed, main)
    return turns


def test_one_checkpoint_more_changes_no_turn_of_another_task():
    before = turns_of_tasks(1)
    assert turns_of_tasks(1, checkpoints_of_one=3) == before
    orders = [[number for at, number in before if at == then] for then in sorted({at for at, _ in before})]
    assert any(order != orders[0] for order in orders), "the turns change with time"


def test_trios_own_settings_are_back_after_a_run_even_one_that_failed():
    before = getattr(trio_run, schedule.SWITCH), getattr(trio_run, schedule.CHANCE)

    async def fail(_):
        raise KeyError("planned")

    with pytest.raises(KeyError):
        simulate(1, fail)
    assert (getattr(trio_run, schedule.SWITCH), getattr(trio_run, schedule.CHANCE)) == before


def test_an_hour_passes_at_once_and_timers_fire_between_at_their_times():
    seen = []

    async def main(simulation):
        clock, begin = simulation.clock, trio.current_time()
        for seconds in (30.0, 10.0, 10.0):
            clock.call_in(seconds, lambda seconds=seconds: seen.append((seconds, clock.now - begin)))
        await trio.sleep(3600)
        return trio.current_time() - begin

    assert simulate(1, main)[0] == 3600
    assert seen == [(10.0, 10.0), (10.0, 10.0), (30.0, 30.0)]


def test_a_run_in_which_everybody_waits_ends_with_an_error():
    async def main(_):
        await trio.sleep_forever()

    with pytest.raises(schedule.SimulationStalled):
        simulate(1, main)


def test_a_paused_process_makes_no_step_and_then_finds_its_timers_expired():
    steps = []

    async def work():
        for _ in range(5):
            await trio.sleep(1)
            steps.append(trio.current_time() - schedule.START_SECONDS)
        with trio.move_on_after(1) as patience:
            await trio.sleep_forever()
        steps.append(patience.cancelled_caught)

    async def main(_):
        process = Process("p")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.run, work)
            await trio.sleep(2.5)
            process.pause()
            process.call(partial(steps.append, "called"))
            await trio.sleep(10)
            process.resume()

    simulate(1, main)
    assert steps == [1, 2, "called", 12.5, 13.5, 14.5, True]


def test_a_process_that_is_cancelled_while_paused_ends_when_it_goes_on():
    async def main(_):
        process, scope = Process("p"), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            with scope:
                nursery.start_soon(process.run, trio.sleep_forever)
                await trio.sleep(1)
                process.pause()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            process.resume()
        return trio.current_time() - schedule.START_SECONDS

    assert simulate(1, main)[0] == 6


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_one_seed_is_one_history_in_every_process(seed):
    code = (
        "import sys; from barnabas.testing.simulation.schedule import simulate;"
        "from tests.testing.simulation.histories import busy_cluster;"
        f"print(simulate({seed}, busy_cluster)[1].trace.digest())"
    )
    digests = [digest_of(code, hash_seed) for hash_seed in ("0", "1", "12345")]
    assert len(set(digests)) == 1


def test_another_seed_is_another_history():
    from tests.testing.simulation.histories import busy_cluster

    assert len({simulate(seed, busy_cluster)[1].trace.digest() for seed in (1, 2, 3)}) == 3


def digest_of(code, hash_seed):
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return ran.stdout
