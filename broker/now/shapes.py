"""The shapes of one connection: which requests it answers in the step that has read them.

`Shapes.answer` is asked about each frame, `Shapes.learn` is shown each request that was handled otherwise.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from barnabas.broker.call import Broker, Call, audit
from barnabas.broker.fetching.in_session import Planned
from barnabas.broker.interception import Interception, Seen
from barnabas.broker.now.fetch import FETCH, fetch_shape_of
from barnabas.broker.now.pending import PendingProduce
from barnabas.broker.now.produce import ACKS, PRODUCE, VERSION_MIN, produce_shape_of
from barnabas.broker.now.produce_rows import produce_rows_shape_of
from barnabas.broker.now.waiting import WaitingFetch
from barnabas.broker.tally import ApiTally
from barnabas.replication.appending import BegunRows
from barnabas.wire import messages as m
from barnabas.wire.messages import Message
from barnabas.wire.templates import TEMPLATE_BYTES_MAX
from barnabas.world.waiting import PendingResponse, Pieces

SHAPES_MAX = 4  # of a connection; each takes a few kilobytes
# Learning a shape takes a quarter of the time of a request. So a connection with more than SHAPES_MAX shapes learns
# only one in so many requests of unknown shape.
UNKNOWN_BETWEEN = 16

Answer = Pieces | PendingResponse | WaitingFetch | BegunRows | Planned | Exception | None


class Shape(Protocol):
    """What many requests of one connection have in common."""

    @property
    def api_key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def tally(self) -> ApiTally | None:
        """Which counts its requests."""

    @property
    def call(self) -> Call:
        """The call of the first request. Later requests of the same shape differ in nothing that it says."""

    @property
    def body_at(self) -> int:
        """Where the body begins in a frame."""

    @property
    def request(self) -> Message | None:
        """The first request; None if no broker sends such ones."""

    @property
    def shown_bytes(self) -> int:
        """So many bytes of a frame have all but its records; 0 if these are not at its end."""

    def answer(self, broker: Broker, frame: memoryview, began: float) -> Answer:
        """As `Shapes.answer`."""


def _produce_shape_of(
    broker: Broker, call: Call, request: m.ProduceRequest, frame: memoryview, body_at: int
) -> Shape | None:
    is_plain = request.acks in ACKS and request.transactional_id is None and len(request.topic_data) == 1
    if call.version < VERSION_MIN or not is_plain:
        return None
    is_one = len(request.topic_data[0].partition_data) == 1
    return (produce_shape_of if is_one else produce_rows_shape_of)(broker, call, request, frame, body_at)


# API key -> the shape of a request of this call, with its frame and the position of its body; None if it has none.
LEARNERS: dict[int, Callable[..., Shape | None]] = {PRODUCE: _produce_shape_of, FETCH: fetch_shape_of}


class Shapes:
    """The shapes of one connection, the latest first."""

    __slots__ = ("_seen", "_shapes", "_unknown", "latest")

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._unknown = 0  # requests in a row that had none of these shapes, and might be learnt
        self.latest: Shape | None = None  # of the request that was answered last
        self._seen: Seen | None = None  # of a request that waits, or whose handler goes on with it

    def answer(self, broker: Broker, frame: memoryview, began: float) -> Answer:
        """The response to this request, or what waits for it. None, before anything has changed, if it is of no known
        shape or something unusual is to see it.

        `BegunRows` and `Planned` are for its handler, which goes on from there. So is the exception of a bug.

        `began`: as in `Call`.
        """
        interception = broker.interception
        is_shown = interception is not None and interception.is_active
        for shape in self._shapes:
            if not is_usual(broker, shape.api_key) or (is_shown and not shape.shown_bytes):
                return None
            # The leader writes into the records, so what is shown of a frame is copied before.
            copied = bytes(frame[: shape.shown_bytes]) if is_shown else b""
            try:
                answer = shape.answer(broker, frame, began)
            except Exception as failure:
                answer = failure
            if answer is not None:
                self.latest = shape
                if copied and interception is not None:
                    self._show(interception, shape, copied, len(frame), answer)
                return answer
        return None

    def _show(self, interception: Interception, shape: Shape, copied: bytes, frame_bytes: int, answer: Answer) -> None:
        """A test looks at each request."""
        seen = interception.see(shape.call, shape.request, copied, shape.body_at, frame_bytes)
        if seen is None:
            return
        if isinstance(answer, list):
            seen.answered(shape.version, answer)
        elif isinstance(answer, PendingProduce):
            answer.seen = seen
        else:
            self._seen = seen

    def take_seen(self) -> Seen | None:
        """What gets the response as well: that to the request that `answer` has begun last."""
        seen = self._seen
        self._seen = None
        return seen

    def learn(self, broker: Broker, call: Call, request: Message, frame: memoryview, body_at: int) -> None:
        """A request was handled in the general way: its shape may be known from now on. `body_at`: behind its header,
        in the frame."""
        learner = LEARNERS.get(call.api_key)
        if learner is None or call.begun is not None or not is_usual(broker, call.api_key):
            return
        # A header may have tags of any size, which the shape would keep.
        if body_at > TEMPLATE_BYTES_MAX:
            return
        self._unknown += 1
        if len(self._shapes) >= SHAPES_MAX and self._unknown < UNKNOWN_BETWEEN:
            return
        shape = learner(broker, call, request, frame, body_at)
        if shape is not None:
            self._unknown = 0
            self._shapes = [shape, *self._shapes[: SHAPES_MAX - 1]]

    def forget(self) -> None:
        """The connection has ended: shapes hold a call, and so the connection itself."""
        self._shapes.clear()
        self.latest = None
        self._seen = None


def is_usual(broker: Broker, api_key: int) -> bool:
    """Whether nothing is to count, to change or to log requests of this API, for which they have to be decoded."""
    quotas = broker.quotas
    interception = broker.interception
    return (
        not quotas.is_active
        and not quotas.limits_request_time
        and (broker.authorization is None or not audit.isEnabledFor(logging.DEBUG))
        and (interception is None or not interception.is_active or api_key not in interception.armed_keys)
    )
