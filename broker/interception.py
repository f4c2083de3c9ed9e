"""What a test may do to the requests and responses of clients: `Interception`, asked by `server/dispatch.py`.

A broker that `barnabas serve` runs has none. `barnabas.testing` hands one in; here are only the two questions and what
may be answered to them.
"""

from typing import NamedTuple, Protocol

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


class Answered(NamedTuple):
    """The request is not handled: this is its response; None if nothing is to be sent."""

    response: Message | None


class Dropped(Exception):
    """The connection is closed in place of the response; of `response`, if there is one, the first half leaves."""

    def __init__(self, response: Message | None = None) -> None:
        super().__init__()
        self.response = response
        self.sent = b""  # what leaves, encoded by `dispatch.py`


class Interception(Protocol):
    """Asked about each request of a client, in the task of its connection. Both may wait."""

    async def before(self, call: Caller, request: Message) -> Message | Answered:
        """The request to handle in place of this one, usually the same; or its answer. Raises Dropped."""

    async def after(self, call: Caller, request: Message, response: Message | None) -> Message | None:
        """The response to send in place of this one, usually the same. Raises Dropped.

        `request` is what the client sent. `response` is None if none is to be sent (acks=0). The records of a
        FetchResponse may be slices of files (`storage.disk.FileSlice`).
        """
