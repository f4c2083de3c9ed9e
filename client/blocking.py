"""A connection for synchronous code (edge): one socket, our own codec.

Requests may be in flight together; their responses come in the same order. A caller with frames of its own sends them
with `send_frame`, and reads what comes with `receive_frame`.
"""

import socket
import struct
from typing import Self, TypeVar

from barnabas.wire import messages as m
from barnabas.wire.asking import InFlightRequests
from barnabas.wire.frame import LENGTH_BYTES

Response = TypeVar("Response", bound=m.Message)

_LENGTH = struct.Struct(">i")


class BlockingConnection:
    """A connected socket. What the socket raises is raised, and ConnectionError when the broker closes it.

    With `read_ahead_bytes` fewer system calls read more at once: for many small responses.
    """

    def __init__(self, connected: socket.socket, client_id: str | None, *, read_ahead_bytes: int = 0) -> None:
        self.socket = connected
        self.in_flight = InFlightRequests(client_id)
        self._read_ahead_bytes = read_ahead_bytes
        self._arrived = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Send these bytes behind their length."""
        self.send(_LENGTH.pack(len(body)) + body)

    def request(self, request: m.Message, version: int) -> None:
        """Send one request."""
        self.send(self.in_flight.frame(request, version))

    def ask(self, request: m.Message, version: int, answer_type: type[Response]) -> Response:
        """Send one request and read its response."""
        self.request(request, version)
        response = self.response()
        assert isinstance(response, answer_type)
        return response

    def response(self) -> m.Message:
        """The response to the oldest request that has none yet."""
        return self.in_flight.response(self.receive_frame())

    def receive_frame(self) -> bytes:
        """The next frame, without its length."""
        (size,) = _LENGTH.unpack(self._read(LENGTH_BYTES))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        arrived = self._arrived
        while len(arrived) < size:
            more = self.socket.recv(max(size - len(arrived), self._read_ahead_bytes))
            if not more:
                raise ConnectionError(f"the broker closed the connection after {len(arrived)} of {size} bytes")
            arrived += more

        taken = bytes(arrived[:size])
        del arrived[:size]
        return taken
