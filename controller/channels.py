"""The controller's way to the brokers: one ordered sender a live broker (reference B.6).

Theory of operation
-------------------
Requests to one broker go out in the order in which they were decided, one at a time, and each is repeated until it is
answered: a broker that missed one would act on a state that never was. So a sender never gives up; what ends it is
that its broker's registration is gone, and then nothing that was meant for it matters any more. Senders do not wait for
each other. A request says which registration it is meant for (its broker epoch), so one that is repeated against a
restarted broker is refused there.

Bytes, connections and versions are the matter of the `Peer`, which is handed in. Answers go to a callback, which the
controller turns into events of its own queue.
"""

import logging
import math
from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from barnabas.controller.image.state import LiveBroker
from barnabas.wire import messages as m
from barnabas.wire.errors import PeerLost

RETRY_BACKOFF_MS = 100  # Kafka's own
REPEATED_WARNING_INTERVAL_MS = 10_000  # one line about one broker in this time, with a count

logger = logging.getLogger(__name__)


class Peer(Protocol):
    """Another broker, or this one."""

    async def ask(self, request: m.Message, deadline_ms: float, version_max: int | None = None) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms` milliseconds.

        It is asked in the version that is due, or in a lower one, `version_max`.
        """
        ...

    def close(self) -> None:
        """Nothing more is asked of it."""


Answered = Callable[[LiveBroker, m.Message, m.Message], None]  # broker, request, response


class ControllerChannels:
    """Senders by broker id. They live in the nursery that is handed in, and end with it."""

    def __init__(
        self,
        nursery: trio.Nursery,
        peer_for: Callable[[LiveBroker], Peer],
        answered: Answered,
        request_timeout_ms: Callable[[], float],
    ) -> None:
        self._nursery = nursery
        self._peer_for = peer_for
        self._answered = answered
        self._request_timeout_ms = request_timeout_ms
        self._senders: dict[int, _Sender] = {}

    def add(self, broker: LiveBroker) -> None:
        """Begin to send to a broker that joined."""
        sender = _Sender(broker, self._peer_for(broker), self._answered, self._request_timeout_ms)
        self._senders[broker.broker_id] = sender
        self._nursery.start_soon(sender.run, name=f"controller channel to broker {broker.broker_id}")

    def change(self, broker: LiveBroker) -> None:
        """The broker's endpoints changed: the next attempt goes there, and one that is under way begins again."""
        sender = self._senders[broker.broker_id]
        former, sender.peer = sender.peer, self._peer_for(broker)
        former.close()

    def remove(self, broker_id: int) -> None:
        """Stop sending, at once and in the middle of a request; what is queued is dropped."""
        self._senders.pop(broker_id).stop()

    def send(self, broker_id: int, requests: Iterable[m.Message]) -> None:
        """Queue requests for a broker that was added."""
        for request in requests:
            self._senders[broker_id].send(request)


class _Sender:
    """One broker's queue and the task that empties it."""

    def __init__(
        self, broker: LiveBroker, peer: Peer, answered: Answered, request_timeout_ms: Callable[[], float]
    ) -> None:
        self.peer = peer
        self._broker = broker
        self._answered = answered
        self._request_timeout_ms = request_timeout_ms
        # Without a bound: the image is bounded, and a broker that does not answer loses its registration soon.
        self._queue_in, self._queue_out = trio.open_memory_channel[m.Message](math.inf)
        self._scope = trio.CancelScope()

    def send(self, request: m.Message) -> None:
        self._queue_in.send_nowait(request)

    def stop(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                async for request in self._queue_out:
                    response = await self._ask_until_answered(request)
                    self._answered(self._broker, request, response)
        finally:
            self.peer.close()

    async def _ask_until_answered(self, request: m.Message) -> m.Message:
        failures, warned_at = 0, -math.inf
        while True:
            try:
                response = await self.peer.ask(request, self._request_timeout_ms())
            except PeerLost as error:
                failures += 1
                if trio.current_time() >= warned_at + REPEATED_WARNING_INTERVAL_MS / 1000:
                    warned_at = trio.current_time()
                    name = type(request).__name__
                    logger.warning(
                        "broker %d did not take %s (attempt %d): %s", self._broker.broker_id, name, failures, error
                    )
                await trio.sleep(RETRY_BACKOFF_MS / 1000)
            else:
                return response
