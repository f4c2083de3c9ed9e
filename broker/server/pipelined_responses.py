"""The delayed responses of one connection, while it begins the requests behind them.

Kafka reads the next request of a connection after the last response, so with acks=all a connection replicates one batch
at a time, however many the producer has sent. Here a Produce whose records are in the log, and which only waits for its
acknowledgement, lets the next Produce begin, so followers fetch several batches at once. The guarantees are the same:
records are appended, and responses leave, in the order of the requests. `Api.is_pipelined` in `wire/apis.py`
names the requests that may begin early.

A connection calls `add` for each delayed response, `take_ready` for what can be sent, and waits in `wait_for_ready` or,
if it may read on, in `receive`.
"""

import trio

from barnabas.broker.net import Stream
from barnabas.broker.replication.waiting import DelayedResponse, Pieces, Waiter, Watched
from barnabas.broker.resting import resting
from barnabas.wire.apis import APIS

PIPELINED_STARTS = {key.to_bytes(2, "big") for key, api in APIS.items() if api.is_pipelined}  # a request's API key
PIPELINED_MAX = 5  # max.in.flight.requests.per.connection of an idempotent producer


class PipelinedResponses(Waiter):
    """A connection's responses that are not sent yet, in the order of the requests.

    As a `Waiter` it is registered in every partition that one of them waits for.
    """

    __slots__ = ("_receiving", "_watched", "responses")

    def __init__(self) -> None:
        super().__init__()
        # For the connection to look at; only this object changes it.
        # A list, as it has few entries, and the first block of a deque would cost every idle connection memory.
        self.responses: list[DelayedResponse | Pieces] = []
        self._watched: dict[Watched, None] = {}
        self._receiving: trio.CancelScope | None = None

    def add(self, response: DelayedResponse | Pieces) -> None:
        """Queue a response behind the others."""
        self.responses.append(response)
        # A response that is ready waits for its turn alone, not for a partition.
        if isinstance(response, DelayedResponse):
            watched = response.decisions.watched
            self._watched.update(dict.fromkeys(watched))
            self.register(watched)
            # The handler looked before this waiter was registered. A large request is freed in between, in steps: what
            # was committed meanwhile woke no task, and may be the last change of its partition.
            response.decisions.look()

    def touch(self, changed: Watched) -> None:
        super().touch(changed)
        # The task may sleep in `receive`, where no wake-up of `Waiter.wait` reaches it. Nothing is lost: a cancelled
        # receive has taken no bytes.
        if self._receiving is not None:
            self._receiving.cancel()

    async def take_ready(self) -> Pieces:
        """The pieces of the responses that can be sent now, from the oldest on; empty when the oldest must wait."""
        # All responses look, as their partitions overlap. Without a change there is nothing to look at.
        if self.take_dirty():
            for response in self.responses:
                if isinstance(response, DelayedResponse):
                    response.decisions.look()
        pieces: Pieces = []
        # A later response that is ready stays behind the oldest: Kafka's clients match responses by their order.
        while self.responses and self._deadline <= trio.current_time():
            response = self.responses.pop(0)
            pieces += await response.encode() if isinstance(response, DelayedResponse) else response
        # The partitions of a sent response stay registered until none is left: they would have to be counted, for
        # several responses may watch the same one.
        if not self.responses:
            self.abandon()
        return pieces

    def abandon(self) -> None:
        """Drop the responses and leave the partitions' waiters; also after the connection ended."""
        self.responses.clear()
        self.unregister(self._watched)
        self._watched.clear()

    @property
    def _deadline(self) -> float:
        """When the oldest response is sent at the latest, on trio's clock; in the past when it can be sent now."""
        oldest = self.responses[0]
        if isinstance(oldest, DelayedResponse) and not oldest.decisions.are_made:
            return oldest.deadline
        return 0.0

    async def wait_for_ready(self) -> None:
        """Return when a partition changed or the oldest response timed out; `take_ready` says what can be sent."""
        await self.wait(self._deadline)

    async def receive(self, stream: Stream, max_bytes: int) -> bytes | None:
        """What has arrived at the stream; None when `take_ready` may have something before that."""
        # Cancelled by `touch`, and at the deadline of the oldest response.
        with trio.CancelScope(deadline=self._deadline) as receiving:
            self._receiving = receiving
            try:
                # The delayed requests have made their changes, so the connection may be closed if the client has gone.
                with resting():
                    return await stream.receive_some(max_bytes)
            finally:
                self._receiving = None
        return None


def is_pipelined(frame: memoryview) -> bool:
    """Whether this request may begin while earlier responses wait."""
    return bytes(frame[:2]) in PIPELINED_STARTS
