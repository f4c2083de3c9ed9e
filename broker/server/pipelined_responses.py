"""Responses of a connection that wait, while the requests behind them are begun.

Kafka reads the next request of a connection when the last one is answered, so a producer that waits for all in-sync
replicas has one batch on its way to them at a time, however many it has sent. Here a Produce whose records are in the
log, and which only waits for its acknowledgement, lets the next Produce begin: followers fetch several batches at once.
What clients may rely on is the same: records are appended in the order of the requests, and responses leave in it.
Which requests may begin behind others is said in `wire/apis.py`; every other one waits until all responses have left,
for it may ask about what was written.
"""

import trio

from barnabas.broker.net import Stream
from barnabas.broker.replication.waiting import DelayedResponse, Pieces, Waiter, Watched, resting
from barnabas.wire.apis import APIS

PIPELINED_STARTS = {key.to_bytes(2, "big") for key, api in APIS.items() if api.is_pipelined}  # a request's API key
PIPELINED_MAX = 5  # as many as an idempotent producer may have on their way


class PipelinedResponses(Waiter):
    """A connection's responses that have not left yet, in the order of the requests."""

    __slots__ = ("_receiving", "_responses", "_watched")

    def __init__(self) -> None:
        super().__init__()
        self._responses: list[
            DelayedResponse | Pieces
        ] = []  # a few: a deque's first block would cost every idle connection
        self._watched: dict[Watched, None] = {}
        self._receiving: trio.CancelScope | None = None

    def __len__(self) -> int:
        return len(self._responses)

    def add(self, response: DelayedResponse | Pieces) -> None:
        """This one leaves behind the others."""
        self._responses.append(response)
        if isinstance(response, DelayedResponse):
            watched = response.decisions.watched
            self._watched.update(dict.fromkeys(watched))
            self.register(watched)

    def touch(self, changed: Watched) -> None:
        super().touch(changed)
        if self._receiving is not None:
            self._receiving.cancel()

    async def take_ready(self) -> Pieces:
        """The pieces of the responses that can leave now, from the oldest on."""
        if self.take_dirty():
            for response in self._responses:
                if isinstance(response, DelayedResponse):
                    response.decisions.look()
        pieces: Pieces = []
        while self._responses and self._deadline <= trio.current_time():
            response = self._responses.pop(0)
            pieces += await response.encode() if isinstance(response, DelayedResponse) else response
        if not self._responses:
            self.abandon()
        return pieces

    def abandon(self) -> None:
        """Nothing is sent any more."""
        self._responses.clear()
        self.unregister(self._watched)
        self._watched.clear()

    @property
    def _deadline(self) -> float:
        """When the oldest response can leave at the latest; in the past where it can now."""
        oldest = self._responses[0]
        if isinstance(oldest, DelayedResponse) and not oldest.decisions.are_made:
            return oldest.deadline
        return 0.0

    async def wait_for_ready(self) -> None:
        """Return when something can leave, or may."""
        await self.wait(self._deadline)

    async def receive(self, stream: Stream, max_bytes: int) -> bytes | None:
        """What has arrived at the stream; None when something can leave, or may, before that."""
        with trio.CancelScope(deadline=self._deadline) as receiving:
            self._receiving = receiving
            try:
                with resting():
                    return await stream.receive_some(max_bytes)
            finally:
                self._receiving = None
        return None


def is_pipelined(frame: memoryview) -> bool:
    """Whether this request may begin while earlier responses wait."""
    return bytes(frame[:2]) in PIPELINED_STARTS
