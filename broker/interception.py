"""What a test may do to the requests and responses of clients: `Interception`, asked by `server/dispatch.py`.

A broker that `barnabas serve` runs has none. `barnabas.testing` hands one in; here is only what the two say to each
other.
"""

from collections.abc import Awaitable, Callable, Container
from typing import Protocol

from barnabas.wire.messages import Message
from barnabas.world.waiting import Pieces


class Seen(Protocol):
    """A request that a test looks at later."""

    def answered(self, version: int, pieces: Pieces) -> None:
        """Its response is about to be sent: the pieces of the frame, in this version of the API."""

    def ended(self, outcome: str) -> None:
        """It has no response: "no response" (acks=0), "dropped" or "refused" (the connection is closed)."""


class Caller(Protocol):
    """Who sent a request, and in which API and version (`call.Call`)."""

    api_key: int
    version: int
    client_id: str | None
    principal: str
    client_address: str
    listener: str
    seen: Seen | None

    @property
    def connection_number(self) -> int:
        """Rises with each connection that the broker accepts."""

    def throttle(self, throttled_ms: int) -> None:
        """Let the connection read no further request for this time, once the response is sent."""

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection. A system call."""


# Has the broker handle a request of this API and version: its response, or None if nothing is to be sent (acks=0).
Handle = Callable[[Message], Awaitable[Message | None]]


class Dropped(Exception):
    """The connection is closed in place of the response; of `response`, if there is one, the first half leaves."""

    def __init__(self, response: Message | None = None) -> None:
        super().__init__()
        self.response = response
        self.sent = b""  # what leaves, encoded by `dispatch.py`


class Interception(Protocol):
    """Asked about each request of a connection, in the task of that connection."""

    is_active: bool  # whether the next request is to be seen, or may be changed

    @property
    def armed_keys(self) -> Container[int]:
        """The APIs of which a request, or its response, may be changed."""

    def see(
        self, call: Caller, request: Message | None, frame: bytes | memoryview, body_start: int, size_bytes: int, /
    ) -> Seen | None:
        """A request that is about to be handled, or was a moment ago; None if it is not looked at.

        `frame` has `size_bytes`, and may change afterwards, if it is a memoryview. Of a request that is not decoded
        (`now/`) `request` is another one of its sender, or None if its sender is no broker; and `frame` may end in the
        records, behind the header of their first batch.
        """

    async def intercept(self, call: Caller, request: Message, handle: Handle) -> Message | None:
        """The response to send; None if none is to be sent. It may wait. Raises Dropped.

        `handle` may be called with this request, with another one of the same API and version, several times, or never.
        The records of a FetchResponse may be slices of files (`storage.disk.FileSlice`).
        """
