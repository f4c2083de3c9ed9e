"""A waiter is woken once for many changes, also for changes that came before it waited."""

from collections.abc import Awaitable, Callable

import trio

from barnabas.world.outstanding import OUTSTANDING_MAX, Outstanding
from barnabas.world.waiting import HOLD_SECONDS, Waiter, wake, wake_followers


class Place:
    """Something to wait for."""

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}


async def test_a_change_wakes_the_waiting_task_and_says_what_changed(autojump_clock: object) -> None:
    one, other, waiter = Place(), Place(), Waiter()
    waiter.register([one, other])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 5)
        nursery.start_soon(wake_after, 1, other)
        assert await waiter.wait(trio.current_time() + 10)
        assert trio.current_time() == 1
        assert waiter.take_dirty() == [other]


async def test_changes_before_the_wait_are_not_lost(autojump_clock: object) -> None:
    place, waiter = Place(), Waiter()
    waiter.register([place])
    wake(place)
    wake(place)
    assert await waiter.wait(trio.current_time() + 10)
    assert trio.current_time() == 0
    assert waiter.take_dirty() == [place]
    assert waiter.take_dirty() == []


async def test_the_deadline_ends_a_wait_without_change(autojump_clock: object) -> None:
    place, waiter = Place(), Waiter()
    waiter.register([place])
    assert not await waiter.wait(trio.current_time() + 3)
    assert trio.current_time() == 3


async def test_after_unregistering_nothing_is_heard(autojump_clock: object) -> None:
    place, waiter = Place(), Waiter()
    waiter.register([place])
    waiter.unregister([place])
    wake(place)
    assert place.waiters == {}
    assert not await waiter.wait(trio.current_time() + 1)


def test_a_waiter_that_takes_nothing_is_touched_once() -> None:
    place, waiter = Place(), Waiter()
    waiter.register([place])
    wake(place)
    assert place.waiters == {}, "later changes cost nothing"
    assert waiter.take_dirty() == [place]
    wake(place)
    assert waiter.take_dirty() == [place], "who looked is watching again"


def test_what_is_unregistered_while_it_is_dirty_is_not_watched_again() -> None:
    place, waiter = Place(), Waiter()
    waiter.register([place])
    wake(place)
    waiter.unregister([place])
    assert waiter.take_dirty() == []
    assert place.waiters == {}


def test_a_commit_leaves_a_follower_registered_for_the_next_records() -> None:
    place, follower, consumer = Place(), Waiter(sleeps_through_commits=True), Waiter()
    for waiter in (follower, consumer):
        waiter.register([place])
    wake(place, log_grew=False)
    assert place.waiters == {follower: None}
    wake(place)
    assert place.waiters == {}


def test_followers_are_woken_alone() -> None:
    place, follower, consumer = Place(), Waiter(sleeps_through_commits=True), Waiter()
    for waiter in (consumer, follower):
        waiter.register([place])
    wake_followers(place)
    assert (list(follower.dirty), list(consumer.dirty)) == ([place], [])
    assert place.waiters == {consumer: None}


async def waits_beside(story: Callable[[], Awaitable[None]], waiter: Waiter) -> bool:
    """Whether something is dirty after a wait of at most three seconds, while the story runs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(story)
        return await waiter.wait(trio.current_time() + 3)


async def wake_after(seconds: float, place: Place) -> None:
    await trio.sleep(seconds)
    wake(place)


async def test_a_follower_sleeps_through_commits_and_finds_them_when_it_wakes(autojump_clock: object) -> None:
    place, waiter = Place(), Waiter(sleeps_through_commits=True)
    waiter.register([place])

    async def story() -> None:
        await trio.sleep(1)
        wake(place, log_grew=False)

    assert await waits_beside(story, waiter)
    assert trio.current_time() == 3
    assert waiter.take_dirty() == [place]


async def test_a_held_back_fetch_waits_for_more_but_not_long(autojump_clock: object) -> None:
    place, waiter, expected = Place(), Waiter(sleeps_through_commits=True), expecting(2)
    waiter.register([place])

    async def story() -> None:
        await trio.sleep(1)
        assert expected.appended(3)
        wake(place, committed=False, expected=expected)

    assert await waits_beside(story, waiter)
    assert trio.current_time() == 1 + HOLD_SECONDS
    assert waiter.take_dirty() == [place]


async def test_a_held_back_fetch_leaves_when_the_expected_batch_comes(autojump_clock: object) -> None:
    place, waiter, expected = Place(), Waiter(sleeps_through_commits=True), expecting(2)
    waiter.register([place])

    async def story() -> None:
        await trio.sleep(1)
        assert expected.appended(3)
        wake(place, committed=False, expected=expected)
        await trio.sleep(HOLD_SECONDS / 2)
        assert not expected.appended(4)
        wake(place, committed=False)

    assert await waits_beside(story, waiter)
    assert trio.current_time() == 1 + HOLD_SECONDS / 2


async def test_a_hold_ends_with_any_other_change(autojump_clock: object) -> None:
    place, other, waiter, expected = Place(), Place(), Waiter(sleeps_through_commits=True), expecting(2)
    waiter.register([place, other])

    async def story() -> None:
        await trio.sleep(1)
        wake(place, committed=False, expected=expected)
        wake(other)

    assert await waits_beside(story, waiter)
    assert trio.current_time() == 1
    assert waiter.take_dirty() == [place, other]


def expecting(count: int) -> Outstanding:
    """So many batches were outstanding lately, and are committed."""
    expected = Outstanding()
    for end_offset in range(1, count + 1):
        expected.appended(end_offset)
    expected.committed(count)
    return expected


def test_the_batches_of_a_producer_that_waits_for_each_are_never_held_back() -> None:
    outstanding = Outstanding()
    for end_offset in range(1, 100):
        assert not outstanding.appended(end_offset)
        outstanding.committed(end_offset)


def test_more_are_expected_until_as_many_are_outstanding_as_lately() -> None:
    outstanding = expecting(5)
    assert [outstanding.appended(end_offset) for end_offset in range(6, 12)] == [True] * 4 + [False] * 2
    outstanding.committed(11)
    assert [outstanding.appended(end_offset) for end_offset in range(12, 18)] == [True] * 5 + [False]


def test_fewer_are_expected_after_too_few_came() -> None:
    outstanding = expecting(5)
    for _ in range(10):
        outstanding.too_few_came()
    assert not outstanding.appended(6)


def test_without_any_commit_the_count_stays_small() -> None:
    outstanding = Outstanding()
    assert not any(outstanding.appended(end_offset) for end_offset in range(10_000))
    outstanding.committed(10_000)
    assert [outstanding.appended(10_001 + n) for n in range(OUTSTANDING_MAX)][-2:] == [True, False]
