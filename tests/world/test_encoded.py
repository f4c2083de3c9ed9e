"""Kept answers: made once for all who ask at once, given up when the state changes, and not too many."""

import pytest
import trio

from barnabas.world.encoded import FORMS_MAX, KEPT_BYTES_MAX, Kept


class Maker:
    """Makes another value each time, once it may."""

    def __init__(self, kept):
        self.kept, self.count, self.may = kept, 0, trio.Event()

    async def make(self):
        self.count += 1
        made = f"made {self.count}".encode()
        await self.may.wait()
        return made

    async def ask(self, answers, key="key"):
        answers.append(await self.kept.get(key, self.make))


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def maker(kept):
    return Maker(kept)


async def test_all_who_ask_at_once_share_what_is_made(maker, nursery):
    answers = []
    for _ in range(3):
        nursery.start_soon(maker.ask, answers)
    await trio.testing.wait_all_tasks_blocked()
    maker.may.set()
    await trio.testing.wait_all_tasks_blocked()
    await maker.ask(answers)
    assert answers == [b"made 1"] * 4
    assert all(answer is answers[0] for answer in answers)


async def test_what_is_being_made_when_the_state_changes_is_for_those_who_asked_before(kept, maker, nursery):
    before, after = [], []
    nursery.start_soon(maker.ask, before)
    await trio.testing.wait_all_tasks_blocked()
    kept.clear()
    maker.may.set()
    await maker.ask(after)
    await trio.testing.wait_all_tasks_blocked()
    await maker.ask(after)
    assert (before, after) == ([b"made 1"], [b"made 2", b"made 2"])


async def test_another_makes_it_when_the_maker_is_given_up(maker, nursery):
    answers, scope = [], trio.CancelScope()

    async def given_up():
        with scope:
            await maker.ask(answers)

    nursery.start_soon(given_up)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(maker.ask, answers)
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()
    maker.may.set()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [b"made 2"]


@pytest.mark.parametrize(("size", "left"), [(1, FORMS_MAX), (KEPT_BYTES_MAX // 4, 4), (KEPT_BYTES_MAX + 1, 0)])
async def test_so_many_are_kept_as_their_number_and_bytes_allow(kept, size, left):
    made = []

    async def make():
        made.append(1)
        return bytes(size)

    keys = list(range(FORMS_MAX + 2))
    for key in keys + keys[::-1]:
        await kept.get(key, make)
    assert 2 * len(keys) - len(made) == left
