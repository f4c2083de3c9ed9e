"""Producer ids: blocks, prefetch, and what callers get when the controller does not answer."""

import pytest
import trio

from barnabas.coordinators.transactions.producer_ids import WAIT_MS_MAX, ProducerIds
from barnabas.wire.errors import ErrorCode


class Controller:
    """Gives blocks of `count` ids, each after `delay_s`, except where an answer was planned."""

    def __init__(self, count=1000, delay_s=0.1):
        self.count, self.delay_s = count, delay_s
        self.planned = []
        self.asked_at = []
        self._next_id = 0

    async def allocate(self):
        self.asked_at.append(trio.current_time())
        await trio.sleep(self.delay_s)
        if self.planned:
            return self.planned.pop(0)
        self._next_id += self.count
        return self._next_id - self.count, self.count


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
async def producer_ids(controller, nursery):
    producer_ids = ProducerIds(controller.allocate)
    await nursery.start(producer_ids.run)
    return producer_ids


async def ids_at_once(producer_ids, count):
    """What `count` callers get who ask together."""
    answers = []

    async def ask():
        answers.append(await producer_ids.next_id())

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(ask)
    return answers


async def test_no_block_is_asked_for_before_a_producer_comes(controller, producer_ids, autojump_clock):
    await trio.sleep(10)
    assert controller.asked_at == []
    assert await producer_ids.next_id() == 0


async def test_ids_come_one_after_the_other_across_blocks(controller, producer_ids, autojump_clock):
    assert [await producer_ids.next_id() for _ in range(2500)] == list(range(2500))
    assert len(controller.asked_at) == 3


async def test_the_next_block_is_asked_for_at_nine_tenths(controller, producer_ids, autojump_clock):
    for _ in range(899):
        await producer_ids.next_id()
    await trio.sleep(1)
    assert len(controller.asked_at) == 1
    await producer_ids.next_id()
    await trio.sleep(1)
    assert len(controller.asked_at) == 2
    began = trio.current_time()
    assert [await producer_ids.next_id() for _ in range(200)][-1] == 1099
    assert (trio.current_time(), len(controller.asked_at)) == (began, 2)  # no caller waited


async def test_concurrent_callers_share_one_request(controller, producer_ids, autojump_clock):
    assert sorted(await ids_at_once(producer_ids, 500)) == list(range(500))
    assert len(controller.asked_at) == 1


async def test_more_callers_than_a_block_holds_wait_for_further_ones(controller, producer_ids, autojump_clock):
    controller.count = 10
    assert sorted(await ids_at_once(producer_ids, 35)) == list(range(35))
    assert len(controller.asked_at) in (4, 5)  # the last of four may already want the next


async def test_a_refused_request_is_answered_with_loading_to_all_who_waited(controller, producer_ids, autojump_clock):
    controller.planned = [ErrorCode.NOT_CONTROLLER]
    assert all(each is None for each in await ids_at_once(producer_ids, 20))
    assert len(controller.asked_at) == 1
    assert await producer_ids.next_id() == 0


async def test_attempts_are_apart_by_a_backoff(controller, producer_ids, autojump_clock):
    controller.planned = [ErrorCode.NOT_CONTROLLER] * 3
    for _ in range(3):
        assert await producer_ids.next_id() is None
    assert controller.asked_at == pytest.approx([0, 0.15, 0.3])  # each takes 0.1


async def test_a_failed_prefetch_costs_no_caller_an_id_and_is_tried_again(controller, producer_ids, autojump_clock):
    await producer_ids.next_id()
    controller.planned = [ErrorCode.STALE_BROKER_EPOCH]
    answers = []
    for _ in range(1500):
        answers.append(await producer_ids.next_id())
        await trio.sleep(0.01)
    assert answers == list(range(1, 1501))
    assert len(controller.asked_at) == 3


async def test_a_controller_that_does_not_answer_is_not_waited_for_long(controller, producer_ids, autojump_clock):
    controller.delay_s = 30
    assert await producer_ids.next_id() is None
    assert trio.current_time() == WAIT_MS_MAX / 1000
    await trio.sleep(30)
    assert await producer_ids.next_id() == 0  # of the same request
    assert len(controller.asked_at) == 1


async def test_a_caller_that_goes_away_takes_no_block_with_it(controller, producer_ids, autojump_clock):
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.05):
            await producer_ids.next_id()
        nursery.cancel_scope.shield = True
        assert await producer_ids.next_id() == 0
    assert len(controller.asked_at) == 1


@pytest.mark.parametrize("block", [(0, 1000), (500, 1000), (999, 1), (1000, 0), (1000, -1)])
async def test_a_block_that_overlaps_an_earlier_one_is_not_used(controller, producer_ids, autojump_clock, block):
    controller.planned = [(0, 1000), block, block, (7000, 1000)]
    answers = [await producer_ids.next_id() for _ in range(2500)]
    ids = [each for each in answers if each is not None]
    assert ids[:2000] == [*range(1000), *range(7000, 8000)]
    assert len(set(ids)) == len(ids)
