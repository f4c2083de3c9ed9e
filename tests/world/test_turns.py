"""Turns: who is next, and when a turn ends."""

from types import SimpleNamespace

import pytest
import trio

from barnabas.world.resting import asker, resting
from barnabas.world.turns import Turns


def connection():
    return SimpleNamespace(rests=0, rested_seconds=0.0, turn=None, spent_seconds=0.0)


class Scene:
    """Tasks that each take a turn of a second, and the order in which they get it."""

    def __init__(self, nursery, places=1):
        self.turns = Turns(places)
        self.order = []
        self._nursery = nursery

    async def begin(self, name, owner, work=None):
        """Start a task that wants a turn; returns when it has it, or waits."""
        self._nursery.start_soon(self._take, name, owner, work)
        await trio.testing.wait_all_tasks_blocked()

    async def _take(self, name, owner, work):
        asker.set(owner)
        async with self.turns.turn():
            self.order.append(name)
            await (trio.sleep(1) if work is None else work())


@pytest.fixture
def scene(nursery, autojump_clock):
    return Scene(nursery)


async def test_so_many_go_on_at_a_time_and_equals_in_the_order_in_which_they_came(nursery, autojump_clock):
    scene = Scene(nursery, places=2)
    for name in "abcde":
        await scene.begin(name, connection())
    assert scene.order == ["a", "b"]
    await trio.sleep(1.5)
    assert sorted(scene.order) == ["a", "b", "c", "d"]


async def test_the_connection_that_has_spent_least_is_next(scene, autojump_clock):
    busy = connection()
    await scene.begin("busy", busy)
    await trio.sleep(1.5)
    await scene.begin("first", connection())
    await scene.begin("busy again", busy)
    await scene.begin("other", connection())
    await trio.sleep(1.5)
    assert scene.order == ["busy", "first", "other"]
    assert busy.spent_seconds == pytest.approx(1.0, abs=0.1)


async def test_connections_that_are_always_new_do_not_keep_another_one_waiting(scene, autojump_clock):
    waits = connection()
    waits.spent_seconds = 2.0
    await scene.begin("first", connection())
    await scene.begin("waits", waits)
    for number in range(6):
        await scene.begin(f"new {number}", connection())
        await trio.sleep(0.9)
    assert "waits" in scene.order
    assert scene.order.index("waits") <= 4


async def test_the_work_of_the_broker_itself_is_next(scene, autojump_clock):
    for name in "abc":
        await scene.begin(name, connection())
    await scene.begin("own", None)
    await trio.sleep(1.5)
    assert scene.order == ["a", "own"]


async def test_a_request_that_begins_to_wait_gives_its_turn_back(scene, autojump_clock):
    waiting = connection()

    async def rest():
        with resting():
            await trio.sleep(1000)

    await scene.begin("waits", waiting, rest)
    await scene.begin("other", connection())
    assert scene.order == ["waits", "other"]
    assert waiting.turn is None


async def test_a_request_that_has_a_turn_needs_no_second_one(scene, autojump_clock):
    async def again():
        async with scene.turns.turn():
            scene.order.append("again")

    await scene.begin("first", connection(), again)
    await scene.begin("other", connection())
    assert scene.order == ["first", "again", "other"]


async def test_one_that_is_cancelled_leaves_its_place_to_others(scene, autojump_clock):
    given_up = trio.CancelScope()

    async def give_up():
        with given_up:
            asker.set(connection())
            async with scene.turns.turn():
                pass

    await scene.begin("first", connection())
    scene._nursery.start_soon(give_up)
    await trio.testing.wait_all_tasks_blocked()
    await scene.begin("other", connection())
    given_up.cancel()
    await trio.sleep(1.5)
    assert scene.order == ["first", "other"]
    await trio.sleep(1)
    await scene.begin("last", connection())
    assert scene.order == ["first", "other", "last"]


async def test_one_that_is_cancelled_as_it_gets_the_place_hands_it_on(scene, autojump_clock):
    scope = trio.CancelScope()

    async def first():
        await trio.sleep(1)
        scope.cancel()

    async def cancelled():
        with scope:
            asker.set(connection())
            async with scene.turns.turn():
                await trio.sleep(1000)

    await scene.begin("first", connection(), first)
    scene._nursery.start_soon(cancelled)
    await trio.testing.wait_all_tasks_blocked()
    await scene.begin("other", connection())
    await trio.sleep(1.5)
    assert scene.order == ["first", "other"]
