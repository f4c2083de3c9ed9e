"""The response to a Produce that waits for the acknowledgement of its batch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.call import Broker
from barnabas.storage.log import Appended
from barnabas.wire.errors import ErrorCode
from barnabas.world.pacing import pace_of_run
from barnabas.world.waiting import PendingResponse, Pieces

if TYPE_CHECKING:
    from barnabas.broker.interception import Seen
    from barnabas.broker.tally import ApiTally
    from barnabas.replication.partition import Partition


class Acknowledging(Protocol):
    """What a response takes from the shape of its request. Implemented by ProduceShape."""

    version: int
    tally: "ApiTally | None"

    @property
    def acks(self) -> int:
        """-1 or 1."""
        ...

    def deadline(self) -> float:
        """When a request that begins to wait now is answered at the latest (trio's clock)."""
        ...

    def make(self, broker: Broker, appended: Appended, outcome: ErrorCode | None, first: bytes) -> Pieces:
        """The response with any other outcome than NONE; `first`: the response that it takes the place of."""
        ...


class PendingProduce(PendingResponse):
    """A response that waits for the acknowledgement of one batch."""

    __slots__ = (
        *("_appended", "_began", "_broker", "_handled_at", "_leading_since", "_outcome", "_partition"),
        *("_request_bytes", "_response", "_shape", "seen"),
    )

    def __init__(
        self,
        shape: Acknowledging,
        broker: Broker,
        partition: "Partition",
        appended: Appended,
        outcome: ErrorCode | None,
        response: bytes,
        request_bytes: int,
        began: float,
    ) -> None:
        """Made in the step of the append; `response` is the one for a success."""
        super().__init__(shape.deadline())
        self._shape = shape
        self._broker = broker
        self._partition = partition
        self._leading_since = partition.leading_since
        self._appended = appended
        self._outcome = outcome
        self._response = response
        self._request_bytes = request_bytes
        self._began = began
        self._handled_at = trio.current_time()
        self.seen: Seen | None = None  # gets the response as well

    @property
    def watched(self) -> Sequence["Partition"]:
        return (self._partition,)

    @property
    def are_made(self) -> bool:
        return self._outcome is not None

    def look(self) -> bool:
        if self._outcome is None:
            end_offset = self._appended.last_offset + 1
            self._outcome = self._partition.outcome(end_offset, self._leading_since, self._shape.acks)
        return self._outcome is not None

    def encode_now(self) -> Pieces | None:
        # `encode` builds the response with an error, in the task of its connection, where a bug ends only that one.
        if self._outcome is not ErrorCode.NONE:
            return None
        if self._shape.tally is not None:
            self._shape.tally.successes += 1
        return self._noted([self._response])

    async def encode(self) -> Pieces:
        pieces = self.encode_now()
        if pieces is not None:
            return pieces
        return self._noted(self._shape.make(self._broker, self._appended, self._outcome, self._response))

    def _noted(self, pieces: Pieces) -> Pieces:
        """The response, counted and shown."""
        shape = self._shape
        if shape.tally is not None:
            waited_seconds = trio.current_time() - self._handled_at
            total_seconds = pace_of_run().now() - self._began
            shape.tally.answered(shape.version, self._request_bytes, total_seconds, waited_seconds)
        if self.seen is not None:
            self.seen.answered(shape.version, pieces)
        return pieces
