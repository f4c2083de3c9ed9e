"""One broker, by one connection at a time: `ask(request, deadline_ms) -> response`.

A `RemotePeer` connects when `ask` is called and carries one request at a time; several tasks are served in order. Any
failure (deadline, lost connection, malformed response, cancelled caller) closes the connection, and the next request
opens another. The caller gets `PeerLost`. The request may have been carried out then; the caller decides whether to
repeat it.

A connection begins with the handshake of TLS and the login that the listener of the broker wants (`login.py`). Before
the session ends it logs in again, between two requests.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

import trio

from barnabas.client.connection import RESPONSE_BYTES_MAX, Connection, Login
from barnabas.storage.disk import InThread
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.errors import PeerLost, PeerTooOld, ProtocolViolation
from barnabas.world.net import ConnectionLost, Net, Stream
from barnabas.world.world import run_inline

logger = logging.getLogger(__name__)

FAILURES_COUNTED_MAX = 10  # bounds the exponent of the connect timeout
SASL_KEYS = (17, 36)  # SaslHandshake, SaslAuthenticate

# (raw stream, host) -> encrypted stream; ConnectionLost, and then the raw stream is closed
Handshake = Callable[[Stream, str], Awaitable[Stream]]


class Address(Protocol):
    """Where a broker listens; as text it is for the log."""

    @property
    def listener(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Bounds(NamedTuple):
    """The limits of a connection."""

    connect_seconds: float = 10.0  # of the first attempt to connect; doubles with each failure in a row
    connect_seconds_max: float = 30.0
    idle_seconds: float = math.inf  # after it the peer may have closed the connection: the next request opens another
    response_bytes: int = RESPONSE_BYTES_MAX


class RemotePeer:
    """Another broker, by one connection at a time.

    `versions`: API key -> request version; None negotiates them on each connection, at most `versions_max`. `where`
    gives the address, or None if it is unknown.
    """

    def __init__(
        self,
        net: Net,
        where: Callable[[], Address | None],
        client_id: str,
        versions: Mapping[int, int] | None = None,
        *,
        versions_max: Mapping[int, int] | None = None,
        bounds: Bounds | None = None,
        in_thread: InThread = run_inline,
        on_close: Callable[["RemotePeer"], None] = lambda peer: None,
    ) -> None:
        self._net = net
        self._where = where
        self._client_id = client_id
        self._versions = versions
        self._versions_max = versions_max or {}
        self._bounds = bounds or Bounds()
        self.logins: Mapping[str, Login] = {}  # listener -> how to log in there
        self.handshakes: Mapping[str, Handshake] = {}  # listener -> the handshake of TLS there
        self._in_thread = in_thread
        self._on_close = on_close
        self._turn = trio.StrictFIFOLock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._failures = 0  # failed attempts to connect in a row
        self._asking: dict[trio.CancelScope, None] = {}  # of each unanswered request

    async def ask(
        self,
        request: m.Message,
        deadline_ms: float,
        version_max: int | None = None,
        version_min: int = 0,
        *,
        body: bytes | None = None,
        scope: trio.CancelScope | None = None,
    ) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms`, the wait for earlier requests included.

        The request has the version that `versions` gives, or `version_max` if that is lower. PeerTooOld when that is
        below `version_min`. `body`: as in `Connection.ask`. `scope` is entered here and gets the deadline: who cancels
        it ends the request, with PeerLost.
        """
        scope = trio.CancelScope() if scope is None else scope
        scope.deadline = trio.current_time() + deadline_ms / 1000
        with scope:
            self._asking[scope] = None
            try:
                return await self._ask_in_turn(request, version_max, version_min, body)
            finally:
                del self._asking[scope]

        raise PeerLost(f"{type(request).__name__} was not answered within {deadline_ms:.0f} ms")

    def extend(self, seconds: float) -> None:
        """Give unanswered requests so much longer: the clock of a test jumps, and no broker was silent."""
        for scope in self._asking:
            scope.deadline += seconds

    @property
    def address(self) -> Address | None:
        """Where the broker listens, as known at present."""
        return self._where()

    def close(self) -> None:
        """Close the connection and open no other: unanswered and later requests raise PeerLost."""
        self._is_closed = True
        self._disconnect()
        self._on_close(self)

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open."""
        return self._connection is not None

    async def _ask_in_turn(
        self, request: m.Message, version_max: int | None, version_min: int, body: bytes | None
    ) -> m.Message:
        # `acquire` is always a checkpoint. Nearly always the lock is free, and this saves one.
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        is_answered = False
        try:
            connection = self._open_connection() or await self._connect()
            if connection.must_log_in:
                await connection.log_in()
            response = await connection.ask(request, version_max, version_min, body)
            is_answered = True
        # Nothing was sent, so the connection is as good as before.
        except PeerTooOld:
            is_answered = True
            raise
        except ConnectionLost as error:
            raise PeerLost(f"{type(request).__name__}: {error}") from error
        except ProtocolViolation as violation:
            about = {"peer": str(self._where())}
            logger.warning("closing the connection to %s: %s", about["peer"], violation, extra=about)
            raise PeerLost(f"{type(request).__name__}: {violation}") from violation
        finally:
            # The connection is closed, too, when the caller is cancelled: the late response would
            # be taken for that of the next request.
            if not is_answered:
                self._disconnect()
            self._turn.release()
        return response

    def _open_connection(self) -> Connection | None:
        """The connection, unless the peer may have closed it as idle: a request would be lost, its outcome unknown."""
        connection = self._connection
        if connection is not None and connection.used_at + self._bounds.idle_seconds < trio.current_time():
            self._disconnect()
        return self._connection

    async def _connect(self) -> Connection:
        # The address is looked up at each connect, because a restarted broker may have another one.
        endpoint = self._where()
        if endpoint is None:
            raise ConnectionLost("its address is not known")
        if self._is_closed:
            raise ConnectionLost("this peer is closed")
        stream = await self._open_stream(endpoint)
        connection = self._connection = Connection(
            stream,
            self._client_id,
            self._versions,
            response_bytes_max=self._bounds.response_bytes,
            in_thread=self._in_thread,
            login=self.logins.get(endpoint.listener),
            peer=str(endpoint),
        )

        # `close` may have been called during the connect. `_ask` then closes the new connection.
        if self._is_closed:
            raise ConnectionLost("this peer is closed")

        # The versions are asked for on each connection, as the broker at this address may have been
        # upgraded. A login has no versions but these.
        if self._versions is None or connection.login is not None:
            known = await connection.ask_versions()
            fixed = asking.at_most(known, self._versions_max) if self._versions is None else self._versions
            connection.versions = {key: known[key] for key in SASL_KEYS if key in known} | dict(fixed)

        if connection.login is not None:
            await connection.log_in()
        return connection

    async def _open_stream(self, endpoint: Address) -> Stream:
        """A new connection; ConnectionLost when it takes too long. Each failure in a row doubles the time allowed."""
        seconds = min(self._bounds.connect_seconds * 2**self._failures, self._bounds.connect_seconds_max)
        # The failure is counted in advance, so that every way to fail counts: timeout, refusal, and
        # the caller's own deadline.
        self._failures = min(self._failures + 1, FAILURES_COUNTED_MAX)
        with trio.move_on_after(seconds):
            stream = await self._net.connect(endpoint.host, endpoint.port)
            handshake = self.handshakes.get(endpoint.listener)
            if handshake is not None:
                stream = await handshake(stream, endpoint.host)
            self._failures = 0
            return stream
        raise ConnectionLost(f"{endpoint} does not take a connection within {seconds:.0f} s")

    def _disconnect(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.close()
