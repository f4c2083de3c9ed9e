"""One connection to one broker: requests out, responses in, in the same order.

`ask` sends one request and waits for its response; `send` and `receive` apart let several requests be in flight. A
connection that failed in any way (lost, cancelled, malformed response) is closed by its owner: a late response would be
taken for that of the next request.

Where the listener of the broker wants a login, a connection begins with it (`log_in`). It logs in again when
`must_log_in` says so, between two requests.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import trio

from barnabas import __version__
from barnabas.storage.disk import InThread
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, FIRST_RELEASES
from barnabas.wire.errors import PeerTooOld
from barnabas.wire.frame import FrameReader
from barnabas.world.net import ConnectionLost, Stream
from barnabas.world.world import run_inline

RECEIVE_BYTES = 1 << 16
LARGE_RECEIVE_BYTES = 1 << 18  # once the length of a frame says that it is large: fewer wake-ups
RESPONSE_BYTES_MAX = 1 << 30


class Login(Protocol):
    """How a client logs in at one listener (`login.OwnLogin`)."""

    async def log_in(self, ask: Callable[[m.Message], Awaitable[m.Message]], peer: str) -> float | None:
        """Log in, or again; after how many seconds to log in again. ConnectionLost, and what `ask` raises."""
        ...


class Connection:
    """One connection, from the connect to the first failure.

    `versions`: API key -> request version; `ask_versions` has the highest that both sides know. `peer` is for the log.
    """

    def __init__(
        self,
        stream: Stream,
        client_id: str | None,
        versions: Mapping[int, int] | None = None,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        in_thread: InThread = run_inline,
        login: Login | None = None,
        peer: str = "",
    ) -> None:
        self.stream = stream
        self.versions = versions or {}
        self.in_flight = asking.InFlightRequests(client_id)
        self.login = login
        self.used_at = trio.current_time()  # when it was made, or the last response came
        self._log_in_at = math.inf  # the session may end soon after
        self._peer = peer
        self._in_thread = in_thread
        self._reader = FrameReader(response_bytes_max)

    @property
    def must_log_in(self) -> bool:
        """Whether the session ends soon."""
        return self.login is not None and self._log_in_at <= trio.current_time()

    async def ask(
        self,
        request: m.Message,
        version_max: int | None = None,
        version_min: int = 0,
        body: bytes | None = None,
    ) -> m.Message:
        """The response. ConnectionLost, ProtocolViolation, and PeerTooOld, after which the connection may be used.

        The request has the version that `versions` gives, or `version_max` if that is lower. PeerTooOld when that is
        below `version_min`. `body`: the request in that version, where the caller has encoded it.
        """
        await self.send(request, self._version(request, version_max, version_min), body)
        return self.in_flight.response(await self.receive_frame())

    async def send(self, request: m.Message, version: int, body: bytes | None = None) -> None:
        """Send a request; `receive` has its response, unless it is a Produce with acks=0. ConnectionLost."""
        question = self.in_flight.number(request, version)
        arguments = request, question.version, question.correlation_id, self.in_flight.client_id
        # Encoding a large request would hold the loop for milliseconds.
        if body is None and asking.is_large(request):
            frame: bytes = await self._in_thread(asking.request_frame, *arguments)
        else:
            frame = asking.request_frame(*arguments, body)
        await self.stream.send_all(frame)

    async def receive(self) -> m.Message:
        """The response to the oldest request that has none yet. ConnectionLost, ProtocolViolation."""
        return self.in_flight.response(await self.receive_frame())

    async def receive_frame(self) -> memoryview:
        """The next frame, without its length. ConnectionLost, ProtocolViolation."""
        reader = self._reader
        while (frame := reader.next_frame()) is None:
            is_large = reader.needed_bytes > RECEIVE_BYTES
            data = await self.stream.receive_some(LARGE_RECEIVE_BYTES if is_large else RECEIVE_BYTES)
            if not data:
                raise ConnectionLost("it closed the connection")
            reader.feed(data)
        self.used_at = trio.current_time()
        return frame

    async def log_in(self) -> None:
        """Log in, or again. ConnectionLost, ProtocolViolation."""
        assert self.login is not None
        after_seconds = await self.login.log_in(self.ask, self._peer)
        self._log_in_at = math.inf if after_seconds is None else trio.current_time() + after_seconds

    async def ask_versions(self) -> dict[int, int]:
        """API key -> the highest version that both sides know. ConnectionLost, ProtocolViolation."""
        # A peer that does not know the version answers in version 0 with its own range (KIP-511).
        version: int | None = APIS[API_VERSIONS_KEY].max_version
        while version is not None:
            asked = version
            request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
            await self.send(request, asked)
            response = asking.read_versions(await self.receive_frame(), self.in_flight.take())
            version = asking.version_to_ask_again(response, asked)
        return asking.common_versions(response)

    def close(self) -> None:
        """Close the stream, at once."""
        self.stream.close()

    def _version(self, request: m.Message, version_max: int | None, version_min: int) -> int:
        key = asking.key_of(request)
        version = self.versions.get(key)

        # The peer serves no version of the API that this side knows, as a broker of another release may.
        if version is None:
            release = FIRST_RELEASES.get(key)
            since = f", which Apache Kafka has since {release}" if release else ""
            raise PeerTooOld(f"it does not serve {APIS[key].name}{since}")

        version = version if version_max is None else min(version, version_max)
        if version < version_min:
            raise PeerTooOld(f"{APIS[key].name} {version} is the highest version of the peer")
        return version
