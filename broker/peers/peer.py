"""Requests to brokers: `ask(request, deadline_ms) -> response`.

The controller, the fetchers and all other code that sends requests to brokers use this interface. `RemotePeer` is one
connection to another broker. `SelfPeer` passes a request of this broker to itself to dispatch, without bytes: a single
node is a cluster of one, with no second code path.

A `RemotePeer` connects when `ask` is called and carries one request at a time; several tasks are served in order. Any
failure (deadline, lost connection, malformed response, cancelled caller) closes the connection, and the next request
opens another. The caller gets `PeerLost`. The request may have been carried out then; the caller decides whether to
repeat it.

Where the listener of the other broker wants a login, a connection begins with it (`peers/login.py`). Before the session
ends it logs in again, between two requests.

Versions (reference section 0): requests of the controller, fetchers and a stopping broker have the versions that
`inter.broker.protocol.version` implies. For requests to the controller, versions are negotiated on each connection
(B.15).
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

import trio

from barnabas import __version__
from barnabas.config.live import BrokerConfig
from barnabas.controller.channels import Peer
from barnabas.controller.image.state import LiveBroker
from barnabas.controller.store.paths import Endpoint
from barnabas.storage.disk import InThread
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, inter_broker_versions
from barnabas.wire.errors import PeerLost, PeerTooOld, ProtocolViolation
from barnabas.wire.frame import FrameReader
from barnabas.world.metadata import ClusterMetadata
from barnabas.world.net import ConnectionLost, Net, Stream
from barnabas.world.world import World, run_inline

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 1 << 16
LARGE_RECEIVE_BYTES = 1 << 18  # once the length of a frame says that it is large: fewer wake-ups
CORRELATION_IDS = 1 << 31  # int32, not negative
FAILURES_COUNTED_MAX = 10  # bounds the exponent of the connect timeout


SASL_KEYS = (17, 36)  # SaslHandshake, SaslAuthenticate

Answer = Callable[[m.Message, int], Awaitable[m.Message | None]]  # (request, version) -> response
# (raw stream, host) -> encrypted stream; ConnectionLost, and then the raw stream is closed
Handshake = Callable[[Stream, str], Awaitable[Stream]]


class SelfPeer:
    """The broker as its own peer: `answer(request, version)` handles the request without a connection."""

    def __init__(self, broker_id: int, config: BrokerConfig, answer: Answer) -> None:
        self._broker_id = broker_id
        self._config = config
        self._answer = answer

    async def ask(
        self, request: m.Message, deadline_ms: float, version_max: int | None = None, version_min: int = 0
    ) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms`."""
        key = asking.key_of(request)
        # The same versions as between brokers: what a version cannot express must not work on a single node alone.
        due = inter_broker_versions(self._config.inter_broker_protocol_version).get(key, APIS[key].max_version)
        with trio.move_on_after(deadline_ms / 1000):
            response = await self._answer(request, due if version_max is None else min(due, version_max))
            if response is not None:
                return response
        raise PeerLost(f"broker {self._broker_id} did not answer {type(request).__name__}")

    def close(self) -> None:
        """There is nothing to close."""


class Login(Protocol):
    """How this broker logs in at one listener of other brokers (`login.OwnLogin`)."""

    async def log_in(self, ask: Callable[[m.Message], Awaitable[m.Message]], peer: str) -> float | None:
        """Log in, or again; after how many seconds to log in again. ConnectionLost, and what `ask` raises."""
        ...


class Bounds(NamedTuple):
    """The limits of a connection."""

    connect_seconds: float = 10.0  # of the first attempt to connect; doubles with each failure in a row
    connect_seconds_max: float = 30.0
    idle_seconds: float = math.inf  # after it the peer may have closed the connection: the next request opens another
    response_bytes: int = 1 << 30


class RemotePeer:
    """Another broker, by one connection at a time.

    `versions`: API key -> request version; None negotiates them on each connection, at most `versions_max`. `where`
    gives the address, or None if it is unknown.
    """

    def __init__(
        self,
        net: Net,
        where: Callable[[], Endpoint | None],
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
        self._connection: _Connection | None = None
        self._is_closed = False
        self._failures = 0  # failed attempts to connect in a row

    async def ask(
        self, request: m.Message, deadline_ms: float, version_max: int | None = None, version_min: int = 0
    ) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms`, the wait for earlier requests included.

        The request has the version that `versions` gives, or `version_max` if that is lower. PeerTooOld when that is
        below `version_min`.
        """
        with trio.move_on_after(deadline_ms / 1000):
            # `acquire` is always a checkpoint. Nearly always the lock is free, and this saves one.
            try:
                self._turn.acquire_nowait()
            except trio.WouldBlock:
                await self._turn.acquire()
            try:
                return await self._ask(request, version_max, version_min)
            except ConnectionLost as error:
                raise PeerLost(f"{type(request).__name__}: {error}") from error
            except ProtocolViolation as violation:
                about = {"peer": str(self._where())}
                logger.warning("closing the connection to %s: %s", about["peer"], violation, extra=about)
                raise PeerLost(f"{type(request).__name__}: {violation}") from violation
            finally:
                self._turn.release()
        raise PeerLost(f"{type(request).__name__} was not answered within {deadline_ms:.0f} ms")

    def close(self) -> None:
        """Close the connection and open no other: unanswered and later requests raise PeerLost."""
        self._is_closed = True
        self._disconnect()
        self._on_close(self)

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open."""
        return self._connection is not None

    async def _ask(self, request: m.Message, version_max: int | None, version_min: int) -> m.Message:
        is_answered = False
        connection = self._connection
        # A request on a connection that the peer has closed as idle would be lost, and its outcome unknown.
        if connection is not None and connection.used_at + self._bounds.idle_seconds < trio.current_time():
            self._disconnect()
        try:
            connection = self._connection or await self._connect()
            if connection.login is not None and connection.log_in_at <= trio.current_time():
                await connection.log_in()
            response = await connection.ask(request, version_max, version_min)
            is_answered = True
        # Nothing was sent, so the connection is as good as before.
        except PeerTooOld:
            is_answered = True
            raise
        finally:
            # Also when the caller is cancelled: the late response would be taken for that of the next request.
            if not is_answered:
                self._disconnect()
        return response

    async def _connect(self) -> "_Connection":
        # Looked up at each connect: a restarted broker may have another address.
        endpoint = self._where()
        if endpoint is None:
            raise ConnectionLost("its address is not known")
        if self._is_closed:
            raise ConnectionLost("this peer is closed")
        stream = await self._open_stream(endpoint)
        connection = self._connection = _Connection(
            stream, self._client_id, self._versions, self._bounds.response_bytes, self._in_thread
        )
        connection.peer, connection.login = str(endpoint), self.logins.get(endpoint.listener)
        # `close` may have been called during the connect. `_ask` then closes the new connection.
        if self._is_closed:
            raise ConnectionLost("this peer is closed")
        # On each connection, as the broker at this address may have been upgraded. A login has no versions but these.
        if self._versions is None or connection.login is not None:
            known = await connection.ask_versions()
            fixed = asking.at_most(known, self._versions_max) if self._versions is None else self._versions
            connection.versions = {key: known[key] for key in SASL_KEYS if key in known} | dict(fixed)
        if connection.login is not None:
            await connection.log_in()
        return connection

    async def _open_stream(self, endpoint: Endpoint) -> Stream:
        """A new connection; ConnectionLost when it takes too long. Each failure in a row doubles the time allowed."""
        seconds = min(self._bounds.connect_seconds * 2**self._failures, self._bounds.connect_seconds_max)
        # Counted in advance, so that every way to fail counts: timeout, refusal, and the caller's own deadline.
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
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.stream.close()


class _Connection:
    """One connection, from the connect to the first failure."""

    def __init__(
        self,
        stream: Stream,
        client_id: str,
        versions: Mapping[int, int] | None,
        response_bytes_max: int,
        in_thread: InThread,
    ) -> None:
        self.stream = stream
        self.versions = versions or {}
        self.used_at = trio.current_time()
        self.peer = ""  # its address, for the log
        self.login: Login | None = None
        self.log_in_at = math.inf  # the session may end soon after
        self._in_thread = in_thread
        self._client_id = client_id
        self._reader = FrameReader(response_bytes_max)
        self._correlation_id = -1

    async def ask(self, request: m.Message, version_max: int | None, version_min: int) -> m.Message:
        key = asking.key_of(request)
        version = self.versions.get(key)
        # The peer serves no version of the API that this broker knows, as a broker of another release may.
        if version is None:
            raise ProtocolViolation(f"there is no version of {APIS[key].name} that both sides know")
        version = version if version_max is None else min(version, version_max)
        if version < version_min:
            raise PeerTooOld(f"{APIS[key].name} {version} is the highest version of the peer")
        frame, question = await self._exchange(request, version)
        return asking.read_response(frame, question)

    async def log_in(self) -> None:
        """Log in, or again."""
        assert self.login is not None
        after_seconds = await self.login.log_in(partial(self.ask, version_max=None, version_min=0), self.peer)
        self.log_in_at = math.inf if after_seconds is None else trio.current_time() + after_seconds

    async def ask_versions(self) -> dict[int, int]:
        """API key -> the highest version that both sides know."""
        # A peer that does not know the version answers in version 0 with its own range (KIP-511).
        version: int | None = APIS[API_VERSIONS_KEY].max_version
        while version is not None:
            request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
            asked = version
            frame, question = await self._exchange(request, asked)
            response = asking.read_versions(frame, question)
            version = asking.version_to_ask_again(response, asked)
        return asking.common_versions(response)

    async def _exchange(self, request: m.Message, version: int) -> tuple[memoryview, asking.Question]:
        """Send one request; returns the next frame, and what is needed to check that it is the response."""
        self._correlation_id = (self._correlation_id + 1) % CORRELATION_IDS
        question = asking.Question(asking.key_of(request), version, self._correlation_id)
        await self.stream.send_all(await self._encode(request, version))
        reader = self._reader
        while (frame := reader.next_frame()) is None:
            is_large = reader.needed_bytes > RECEIVE_BYTES
            data = await self.stream.receive_some(LARGE_RECEIVE_BYTES if is_large else RECEIVE_BYTES)
            if not data:
                raise ConnectionLost("it closed the connection")
            reader.feed(data)
        self.used_at = trio.current_time()
        return frame, question

    async def _encode(self, request: m.Message, version: int) -> bytes:
        # Encoding a large request would hold the loop for milliseconds.
        if asking.is_large(request):
            frame: bytes = await self._in_thread(
                asking.request_frame, request, version, self._correlation_id, self._client_id
            )
            return frame
        return asking.request_frame(request, version, self._correlation_id, self._client_id)


class Peers:
    """Makes the peers of this broker, with its configuration, and closes them all at the end."""

    def __init__(
        self, world: World, config: BrokerConfig, metadata: ClusterMetadata, broker_id: int, myself: SelfPeer
    ) -> None:
        self.myself = myself
        self._world = world
        self._config = config
        self._metadata = metadata
        self._broker_id = broker_id
        self._versions = inter_broker_versions(config.inter_broker_protocol_version)
        self._open: dict[RemotePeer, None] = {}
        self.logins: Mapping[str, Login] = {}  # listener -> how to log in there, at every broker
        self.handshakes: Mapping[str, Handshake] = {}  # listener -> the handshake of TLS there

    def open(self, broker_id: int, client_id: str) -> RemotePeer:
        """A broker by its id, at the address that the metadata cache has at each connect: for replication."""
        where = partial(self._metadata.endpoint, broker_id, self._config.inter_broker_listener)
        return self._remote(where, client_id, self._versions)

    def of(self, broker: LiveBroker) -> Peer:
        """A broker at the address of its registration, or this broker itself: for the controller."""
        # The controller has read the registration; its own UpdateMetadata may still be on the way.
        if broker.broker_id == self._broker_id:
            return self.myself
        where = partial(broker.registration.endpoint, self._config.control_plane_listener)
        return self._remote(where, str(self._broker_id), self._versions)

    def controller(self, broker_id: int, client_id: str) -> Peer:
        """The broker that is the controller, with negotiated versions; or this broker itself."""
        if broker_id == self._broker_id:
            return self.myself
        where = partial(self._metadata.endpoint, broker_id, self._config.control_plane_listener)
        return self._remote(where, client_id, None)

    def broker(self, broker_id: int, client_id: str, *, negotiates: bool = False) -> "RemotePeer | SelfPeer":
        """A broker at its address for brokers, or this broker itself: for what coordinators and leaders ask each other.

        With `negotiates` the versions are not those of `inter.broker.protocol.version`.
        """
        if broker_id == self._broker_id:
            return self.myself
        where = partial(self._metadata.endpoint, broker_id, self._config.inter_broker_listener)
        return self._remote(where, client_id, None if negotiates else self._versions)

    def close(self) -> None:
        """Close all peers, when the broker stops."""
        # A copy: each `close` removes its peer through `on_close`.
        for peer in list(self._open):
            peer.close()

    def _remote(
        self, where: Callable[[], Endpoint | None], client_id: str, versions: Mapping[int, int] | None
    ) -> RemotePeer:
        config = self._config
        bounds = Bounds(
            config.socket_connection_setup_timeout_ms / 1000,
            config.socket_connection_setup_timeout_max_ms / 1000,
            # Half of connections.max.idle.ms, which is most likely the peer's, too; below 0 there is no limit.
            config.connections_max_idle_ms / 2000 if config.connections_max_idle_ms >= 0 else math.inf,
            # The largest response is a Fetch: replica.fetch.response.max.bytes of records or, if larger, the first
            # batch, which was in a request once, and the fields around them.
            config.socket_request_max_bytes + config.replica_fetch_response_max_bytes,
        )
        peer = RemotePeer(
            self._world.net,
            where,
            client_id,
            versions,
            versions_max=self._versions,
            bounds=bounds,
            in_thread=self._world.in_thread,
            on_close=self._forget,
        )
        peer.logins, peer.handshakes = self.logins, self.handshakes
        self._open[peer] = None
        return peer

    def _forget(self, peer: RemotePeer) -> None:
        self._open.pop(peer, None)
