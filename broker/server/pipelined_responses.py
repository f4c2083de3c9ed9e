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

from barnabas.storage.disk import FileSlice
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ProtocolViolation
from barnabas.world.net import ConnectionLost, Stream
from barnabas.world.resting import release, resting
from barnabas.world.waiting import PendingResponse, Pieces, Waiter, Watched

PIPELINED_STARTS = {key.to_bytes(2, "big") for key, api in APIS.items() if api.is_pipelined}  # a request's API key
PIPELINED_MAX = 5  # max.in.flight.requests.per.connection of an idempotent producer


class PipelinedResponses(Waiter):
    """A connection's responses that are not sent yet, in the order of the requests.

    As a `Waiter` it is registered in every partition that one of them waits for.
    """

    __slots__ = ("_receiving", "_stream", "_watched", "responses")

    def __init__(self, stream: Stream) -> None:
        super().__init__(sleeps_through_growth=True)
        self._stream = stream
        # The connection reads the responses; only this object changes them.
        # They are a list, because they are few, and the first block of a deque would cost every
        # idle connection memory.
        self.responses: list[PendingResponse | Pieces] = []
        self._watched: dict[Watched, None] = {}
        self._receiving: trio.CancelScope | None = None

    def add(self, response: PendingResponse | Pieces) -> None:
        """Queue a response behind the others."""
        self.responses.append(response)
        # A response that is ready waits for its turn alone, not for a partition.
        if isinstance(response, PendingResponse):
            watched = response.watched
            self._watched.update(dict.fromkeys(watched))
            self.register(watched)
            # The handler looked before this waiter was registered, and a large request is freed in steps in between.
            # What was committed meanwhile woke no task, and may be the last change of its partition.
            response.look()

    def touch(self, changed: Watched) -> None:
        super().touch(changed)
        # The task may sleep in `receive`, where no wake-up of `Waiter.wait` reaches it. Nothing is lost: a cancelled
        # receive has taken no bytes.
        if self._receiving is not None:
            release(self._receiving.cancel)

    def act_on(self, changed: Watched) -> None:
        """Send what became ready, if the task only receives."""
        if self._receiving is None:
            self.touch(changed)
            return
        self.dirty[changed] = None
        if not self._send_ready(self._receiving):
            release(self._receiving.cancel)

    def _send_ready(self, receiving: trio.CancelScope) -> bool:
        """Send the responses that can be sent, in the step that made them ready; whether the task may go on receiving.

        To wake the task first would delay the acknowledgement of a commit by about 100 µs.
        """
        self._look()
        pieces: Pieces = []
        ready = 0
        is_stuck = False  # whether a response that is next has to be encoded by the task itself
        for response in self.responses:
            if not isinstance(response, PendingResponse):
                encoded: Pieces | None = response
            elif response.are_made:
                encoded = response.encode_now()
                is_stuck = encoded is None
            else:
                encoded = None
            if encoded is None:
                break
            # Encoding has counted the response, so it must not be encoded again if it cannot leave now.
            self.responses[ready] = encoded
            pieces += encoded
            ready += 1

        if not ready:
            return not is_stuck
        data = b"".join(piece for piece in pieces if not isinstance(piece, FileSlice))
        try:
            sent_bytes = self._stream.send_now(data)
        except ConnectionLost:
            return False  # the task's own send reports it

        del self.responses[:ready]
        if sent_bytes < len(data):
            self.responses.insert(0, [memoryview(data)[sent_bytes:]])
            return False
        if not self.responses:
            self.abandon()
            return False  # the connection is idle now, which its task has to know
        receiving.deadline = self._deadline
        return not is_stuck

    def _look(self) -> None:
        # All responses look, because several may wait for one partition. Without a change none needs to.
        if self.take_dirty():
            for response in self.responses:
                if isinstance(response, PendingResponse):
                    response.look()

    async def take_ready(self) -> Pieces:
        """The pieces of the responses that can be sent now, from the oldest on; empty when the oldest must wait."""
        self._look()
        pieces: Pieces = []
        # A later response that is ready stays behind the oldest: Kafka's clients match responses by their order.
        while self.responses and self._deadline <= trio.current_time():
            response = self.responses.pop(0)
            try:
                pieces += await response.encode() if isinstance(response, PendingResponse) else response
            # No later response may take the place of one that cannot be encoded.
            except ProtocolViolation:
                self.abandon()
                raise
        # The partitions of a sent response stay registered until no response is left: several responses may watch the
        # same one, so leaving it earlier would need a count.
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
        if isinstance(oldest, PendingResponse) and not oldest.are_made:
            return oldest.deadline
        return 0.0

    async def wait_for_ready(self) -> None:
        """Return when a partition changed or the oldest response timed out; `take_ready` says what can be sent."""
        await self.wait(self._deadline)

    async def receive(self, max_bytes: int) -> bytes | None:
        """What has arrived; None when `take_ready` may have something before that."""
        # `touch` cancels this scope, and so does the deadline of the oldest response.
        with trio.CancelScope(deadline=self._deadline) as receiving:
            self._receiving = receiving
            try:
                # The delayed requests have made their changes, so the connection may be closed if the client has gone.
                with resting():
                    return await self._stream.receive_some(max_bytes)
            finally:
                self._receiving = None
        return None


def is_pipelined(frame: memoryview) -> bool:
    """Whether this request may begin while earlier responses wait."""
    return bytes(frame[:2]) in PIPELINED_STARTS
