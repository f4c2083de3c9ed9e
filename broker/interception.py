"""What a test may do to the requests and responses of clients: `Interception`, asked by `server/dispatch.py`.

A broker that `barnabas serve` runs has none. `barnabas.testing` hands one in; here is only what the two say to each
other.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from barnabas.wire.messages import Message


class Caller(Protocol):
    """Who sent a request, and in which API and version (`call.Call`)."""

    api_key: int
    version: int
    client_id: str | None
    principal: str
    client_address: str
    listener: str

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

    @property
    def is_active(self) -> bool:
        """Whether it wants to be asked about the next request."""

    async def intercept(self, call: Caller, request: Message, handle: Handle) -> Message | None:
        """The response to send; None if none is to be sent. It may wait. Raises Dropped.

        `handle` may be called with this request, with another one of the same API and version, several times, or never.
        The records of a FetchResponse may be slices of files (`storage.disk.FileSlice`).
        """
