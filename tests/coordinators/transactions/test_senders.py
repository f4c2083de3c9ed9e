"""Tasks that send to brokers: they begin when something waits, and end with the broker."""

import trio
import trio.testing

from barnabas.coordinators.transactions.senders import Senders


async def test_what_waits_before_the_beginning_is_sent_at_the_beginning():
    sent: list[int] = []
    senders = Senders("markers", _note(sent))
    senders.wake(2)
    assert sent == []

    async with trio.open_nursery() as nursery:
        await nursery.start(senders.run)
        senders.wake(3)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sorted(sent) == [2, 3]


async def test_what_begins_to_wait_after_the_end_is_no_mistake():
    """A thread that loads a shard of transactions ends after the broker began to stop: its markers are not sent."""
    sent: list[int] = []
    senders = Senders("markers", _note(sent))
    async with trio.open_nursery() as nursery:
        await nursery.start(senders.run)
        nursery.cancel_scope.cancel()

    senders.wake(2)
    assert sent == []


def _note(sent: list[int]):
    """A `send` that notes the broker, and finds nothing more for it."""

    async def send(broker_id: int) -> bool:
        await trio.lowlevel.checkpoint()
        sent.append(broker_id)
        return False

    return send
