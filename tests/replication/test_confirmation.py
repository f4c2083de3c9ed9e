"""How a leader becomes certain that it has no successor: two fetches of each follower that may be elected."""

from functools import partial

import pytest
import trio

from barnabas.replication.confirmation import is_fetch_awaited
from barnabas.wire.errors import ErrorCode
from tests.broker.steps import StepMeter
from tests.replication.partition_scene import ME, OTHER, THIRD, Scene


async def confirmed(scene: Scene, *steps) -> ErrorCode:
    """The outcome of `confirm` within 10 s, with a step taken after each second of it."""
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _():
            for step in steps:
                await trio.sleep(1)
                step()

        return await scene.partition.confirm(trio.current_time() + 10)


async def test_a_leader_that_is_alone_in_the_isr_has_no_successor(autojump_clock):
    assert await confirmed(Scene().lead()) == ErrorCode.NONE
    assert trio.current_time() == pytest.approx(0)


async def test_each_in_sync_follower_must_have_fetched_after_the_question(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER, THIRD))
    fetched = [partial(scene.caught_up, replica, 0) for replica in (OTHER, OTHER, THIRD, THIRD)]
    assert await confirmed(scene, *fetched) == ErrorCode.NONE
    assert trio.current_time() == pytest.approx(4)


async def test_a_fetch_that_was_under_way_proves_nothing(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    scene.caught_up(OTHER, 0)
    # It arrives after the question, and may have been sent before it.
    assert await confirmed(scene, partial(scene.caught_up, OTHER, 0)) == ErrorCode.REQUEST_TIMED_OUT
    assert is_fetch_awaited(scene.partition, OTHER)
    # The next one is sent after the response to that one.
    scene.caught_up(OTHER, 0)
    assert not is_fetch_awaited(scene.partition, OTHER)


async def test_fetches_that_were_under_way_on_two_connections_prove_nothing(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    fetched = [partial(scene.caught_up, OTHER, 0, connection) for connection in (1, 2)]
    assert await confirmed(scene, *fetched) == ErrorCode.REQUEST_TIMED_OUT


async def test_a_silent_follower_that_a_question_waited_for_leaves_the_isr(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    scene.caught_up(OTHER, 0)
    scene.time_ms += 2 * Scene.limits.time_ms
    scene.partition.shrink()
    assert scene.asked == []
    assert await confirmed(scene) == ErrorCode.REQUEST_TIMED_OUT
    scene.partition.shrink()
    assert [each.in_sync_replicas for each in scene.asked] == [[ME]]


async def test_thousands_of_questions_do_not_wake_each_other(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    async with trio.open_nursery() as nursery:
        with StepMeter() as meter:
            for _ in range(2000):
                nursery.start_soon(scene.partition.confirm, trio.current_time() + 10)
                await trio.testing.wait_all_tasks_blocked()
            meter.check()
            scene.caught_up(OTHER, 0)
            scene.caught_up(OTHER, 0)
    assert trio.current_time() == pytest.approx(0)


async def test_a_follower_outside_the_isr_is_not_awaited(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    fetched = partial(scene.caught_up, OTHER, 0)
    assert await confirmed(scene, fetched, fetched) == ErrorCode.NONE
    assert not is_fetch_awaited(scene.partition, THIRD)


async def test_a_smaller_isr_is_an_answer_because_the_controller_has_agreed(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    assert await confirmed(scene, partial(scene.lead, 0, (ME,))) == ErrorCode.NONE


async def test_the_end_of_the_leadership_is_an_answer(autojump_clock):
    scene = Scene().lead(isr=(ME, OTHER))
    assert await confirmed(scene, partial(scene.follow, 1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert trio.current_time() == pytest.approx(1)
