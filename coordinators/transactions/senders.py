"""One task for each broker to which something has to be sent, for as long as there is something.

    senders = Senders("markers of transactions", send)
    senders.wake(broker_id)      # something waits for this broker

`send(broker_id)` sends what waits, and returns whether it found anything. So one request at a time is under way to a
broker, and the next one takes along what gathered meanwhile.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from barnabas.world.containment import PAUSE_SECONDS, contained

logger = logging.getLogger(__name__)

Send = Callable[[int], Awaitable[bool]]


class Senders:
    """The tasks. While `run` does not run, nothing is sent; what waits is sent when it begins."""

    def __init__(self, what: str, send: Send) -> None:
        self._what = what
        self._send = send
        self._nursery: trio.Nursery | None = None
        self._woken: dict[int, None] = {}  # brokers with a task, or without while `run` does not run

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send, until cancelled."""
        async with trio.open_nursery() as nursery:
            for broker_id in list(self._woken):
                nursery.start_soon(self._send_all, broker_id)
            self._nursery = nursery
            task_status.started()
            # A thread that loads a shard may end after the cancellation, and the shard then owes
            # markers: `wake` must not use the closed nursery.
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def wake(self, broker_id: int) -> None:
        """Something waits for this broker."""
        if broker_id in self._woken:
            return
        self._woken[broker_id] = None
        if self._nursery is not None:
            self._nursery.start_soon(self._send_all, broker_id)

    async def _send_all(self, broker_id: int) -> None:
        found = True
        while found:
            # A bug costs at most what this request carried; all the rest waits for the next
            # request.
            with contained(logger, "%s for broker %d", self._what, broker_id) as attempt:
                found = await self._send(broker_id)
            if attempt.failed:
                await trio.sleep(PAUSE_SECONDS)
        # There was no await since `send` found nothing: what is added from now on wakes another
        # task.
        del self._woken[broker_id]
