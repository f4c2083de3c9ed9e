"""The controller's channels to the brokers: one ordered sender for each live broker (reference B.6).

Theory of operation
-------------------
The requests to one broker are sent in the order in which they were decided, one at a time, and each is repeated until
it is answered. Senders do not wait for each other. This is Kafka's ControllerChannelManager with its RequestSendThread.

A sender ends only when its broker's registration is gone; what is queued then is dropped. Each request carries the
broker epoch of the registration that it is meant for, so a restarted broker refuses a repeated one
(STALE_BROKER_EPOCH).

Bytes, connections and versions belong to the `Peer` that is passed in. Responses go to a callback, which the controller
turns into events of its own queue.
"""

import logging
import math
from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from barnabas.controller.image.state import LiveBroker
from barnabas.wire import messages as m
from barnabas.wire.errors import PeerLost

RETRY_BACKOFF_MS = 100  # as in Kafka's RequestSendThread
REPEATED_WARNING_INTERVAL_MS = 10_000  # at most one warning about one request in this time, with the attempts so far

logger = logging.getLogger(__name__)


class Peer(Protocol):
    """Another broker, or this one."""

    async def ask(
        self, request: m.Message, deadline_ms: float, version_max: int | None = None, version_min: int = 0
    ) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms` milliseconds.

        The request is sent in the version that the peer's configuration implies, or in `version_max` if that is lower.
        PeerTooOld when that is below `version_min`.
        """
        ...

    def close(self) -> None:
        """Close the connection, if there is one; later requests, and one that waits for its response, raise PeerLost.

        A peer without a connection (this broker itself) ignores it.
        """


Answered = Callable[[LiveBroker, m.Message, m.Message], None]  # broker, request, response


class ControllerChannels:
    """Senders by broker id. Their tasks run in the nursery that is passed in, and end with it."""

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
        """Start a sender for a broker that joined."""
        sender = _Sender(broker, self._peer_for(broker), self._answered, self._request_timeout_ms)
        self._senders[broker.broker_id] = sender
        self._nursery.start_soon(sender.run, name=f"controller channel to broker {broker.broker_id}")

    def change(self, broker: LiveBroker) -> None:
        """The broker's endpoints changed: send what is unanswered, and all that follows, to the new ones."""
        sender = self._senders[broker.broker_id]
        # Closing the former peer fails a request under way (PeerLost); its retry reads `sender.peer`.
        former, sender.peer = sender.peer, self._peer_for(broker)
        former.close()

    def remove(self, broker_id: int) -> None:
        """Stop the sender at once, even in the middle of a request; what is queued is dropped."""
        # If the broker registers again it gets a new sender: nothing reaches it that was queued for the earlier
        # registration.
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
        # The queue is unbounded, as in Kafka: dropping a request would leave the broker with a
        # state that was never decided. One event queues at most the state of every partition, and
        # a broker that does not answer soon loses its registration, and its queue with it.
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
        failures = 0
        warned_at = -math.inf

        # The attempts have no limit: a broker that missed one request would act on a state that was
        # never decided. Requests say what the state is, not what has changed, so one that is
        # carried out twice does no harm.
        while True:
            try:
                # The peer is read at each attempt, because `change` may have replaced it.
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
