"""Asking a broker something: `ask(request, deadline_ms) -> response`.

The controller, the fetchers and everything else that speaks to brokers does it through this one shape and never sees a
socket. The request to oneself goes straight to dispatch, without bytes in between (`SelfPeer`): a single node is a
cluster of one, with no second code path.

`RemotePeer` is one connection to another broker. It is opened when something is asked, and carries one request at a
time: several tasks may ask, and are served in the order in which they came. An answer that does not come in time, a
connection that breaks, an answer that makes no sense, and a task that is cancelled while it asks, all have one end:
the connection is closed, for its next bytes may belong to an earlier request, and the next request opens another. The
caller gets `PeerLost`; whether the request was carried out is then not known, and asking again is the caller's
decision. Where the other broker is to be found is looked up at each connect, so that a broker which comes back
elsewhere is found.

Versions (reference section 0): the controller, fetchers and a stopping broker ask in those that
`inter.broker.protocol.version` implies; requests to the controller are negotiated, once a connection (B.15).
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

import trio

from barnabas import __version__
from barnabas.broker.config.live import BrokerConfig
from barnabas.broker.metadata import ClusterMetadata
from barnabas.broker.net import ConnectionLost, Net, Stream
from barnabas.broker.world import World, run_inline
from barnabas.controller.channels import Peer
from barnabas.controller.image.state import LiveBroker
from barnabas.controller.store.paths import Endpoint
from barnabas.storage.disk import InThread
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, inter_broker_versions
from barnabas.wire.errors import PeerLost, ProtocolViolation
from barnabas.wire.frame import FrameReader

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 1 << 16
LARGE_RECEIVE_BYTES = 1 << 18  # of a frame known to be large: fewer wake-ups
CORRELATION_IDS = 1 << 31
FAILURES_COUNTED_MAX = 10


Answer = Callable[[m.Message, int], Awaitable[m.Message | None]]  # to a request of this version


class SelfPeer:
    """The broker as its own peer: `answer(request, version)` handles the request without a connection."""

    def __init__(self, broker_id: int, config: BrokerConfig, answer: Answer) -> None:
        self._broker_id = broker_id
        self._config = config
        self._answer = answer

    async def ask(self, request: m.Message, deadline_ms: float, version_max: int | None = None) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms`."""
        key = asking.key_of(request)
        due = inter_broker_versions(self._config.inter_broker_protocol_version).get(key, APIS[key].max_version)
        with trio.move_on_after(deadline_ms / 1000):
            response = await self._answer(request, due if version_max is None else min(due, version_max))
            if response is not None:
                return response
        raise PeerLost(f"broker {self._broker_id} did not answer {type(request).__name__}")

    def close(self) -> None:
        """There is nothing to close."""


class Bounds(NamedTuple):
    """How long a connection may take to be opened and to be used again, and how large an answer may be."""

    connect_seconds: float = 10.0
    connect_seconds_max: float = 30.0  # to which the former grows with every failure
    idle_seconds: float = math.inf  # one that was not used for so long may be gone: another is opened at once
    response_bytes: int = 1 << 30


class RemotePeer:
    """Another broker. `versions`: that of each request, or None to negotiate them, none above its `versions_max`."""

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
        self._in_thread = in_thread
        self._on_close = on_close
        self._turn = trio.StrictFIFOLock()
        self._connection: _Connection | None = None
        self._is_closed = False
        self._failures = 0  # to connect, one after the other

    async def ask(self, request: m.Message, deadline_ms: float, version_max: int | None = None) -> m.Message:
        """The response; PeerLost when it does not come within `deadline_ms`, waiting for one's turn included.

        It is asked in the version that is due, or in a lower one, `version_max`.
        """
        with trio.move_on_after(deadline_ms / 1000):
            try:
                self._turn.acquire_nowait()  # nearly always: it saves a round of the scheduler
            except trio.WouldBlock:
                await self._turn.acquire()
            try:
                return await self._ask(request, version_max)
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
        """Close the connection, and open no other: requests under way and later ones raise PeerLost."""
        self._is_closed = True
        self._disconnect()
        self._on_close(self)

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open."""
        return self._connection is not None

    async def _ask(self, request: m.Message, version_max: int | None) -> m.Message:
        is_answered = False
        connection = self._connection
        if connection is not None and connection.used_at + self._bounds.idle_seconds < trio.current_time():
            self._disconnect()
        try:
            connection = self._connection or await self._connect()
            response = await connection.ask(request, version_max)
            is_answered = True
        finally:
            if not is_answered:
                self._disconnect()
        return response

    async def _connect(self) -> "_Connection":
        endpoint = self._where()
        if endpoint is None:
            raise ConnectionLost("its address is not known")
        if self._is_closed:
            raise ConnectionLost("nothing more is asked of it")
        stream = await self._open_stream(endpoint)
        connection = self._connection = _Connection(
            stream, self._client_id, self._versions, self._bounds.response_bytes, self._in_thread
        )
        if self._is_closed:  # meanwhile
            raise ConnectionLost("nothing more is asked of it")
        if self._versions is None:
            connection.versions = asking.at_most(await connection.ask_versions(), self._versions_max)
        return connection

    async def _open_stream(self, endpoint: Endpoint) -> Stream:
        """A connection; ConnectionLost when there is none in time, which is longer after each failure."""
        seconds = min(self._bounds.connect_seconds * 2**self._failures, self._bounds.connect_seconds_max)
        self._failures = min(self._failures + 1, FAILURES_COUNTED_MAX)
        with trio.move_on_after(seconds):
            stream = await self._net.connect(endpoint.host, endpoint.port)
            self._failures = 0
            return stream
        raise ConnectionLost(f"{endpoint} does not take a connection within {seconds:.0f} s")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.stream.close()


class _Connection:
    """One connection, from the connect to the first thing that goes wrong."""

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
        self._in_thread = in_thread
        self._client_id = client_id
        self._reader = FrameReader(response_bytes_max)
        self._correlation_id = -1

    async def ask(self, request: m.Message, version_max: int | None) -> m.Message:
        key = asking.key_of(request)
        version = self.versions.get(key)
        if version is None:
            raise ProtocolViolation(f"there is no version of {APIS[key].name} that both sides know")
        version = version if version_max is None else min(version, version_max)
        frame, question = await self._exchange(request, version)
        return asking.read_response(frame, question)

    async def ask_versions(self) -> dict[int, int]:
        """What both sides know."""
        version: int | None = APIS[API_VERSIONS_KEY].max_version
        while version is not None:
            request = m.ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
            asked = version
            frame, question = await self._exchange(request, asked)
            response = asking.read_versions(frame, question)
            version = asking.version_to_ask_again(response, asked)
        return asking.common_versions(response)

    async def _exchange(self, request: m.Message, version: int) -> tuple[memoryview, asking.Question]:
        """Send one request; the next frame, which is to be its answer."""
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
        if asking.is_large(request):  # it would hold the loop for milliseconds
            frame: bytes = await self._in_thread(
                asking.request_frame, request, version, self._correlation_id, self._client_id
            )
            return frame
        return asking.request_frame(request, version, self._correlation_id, self._client_id)


class Peers:
    """The other brokers as this one asks them, over the listener that brokers use among themselves."""

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

    def open(self, broker_id: int, client_id: str) -> RemotePeer:
        """A broker by its id, wherever it is then: for replication and whatever else asks it again and again."""
        where = partial(self._metadata.endpoint, broker_id, self._config.inter_broker_listener)
        return self._remote(where, client_id, self._versions)

    def of(self, broker: LiveBroker) -> Peer:
        """A broker as its registration describes it, or oneself: for the controller, which knows more than metadata."""
        if broker.broker_id == self._broker_id:
            return self.myself
        where = partial(broker.registration.endpoint, self._config.control_plane_listener)
        return self._remote(where, str(self._broker_id), self._versions)

    def controller(self, broker_id: int, client_id: str) -> Peer:
        """A broker that is asked in its role as the controller, in versions that are negotiated; or oneself."""
        if broker_id == self._broker_id:
            return self.myself
        where = partial(self._metadata.endpoint, broker_id, self._config.control_plane_listener)
        return self._remote(where, client_id, None)

    def close(self) -> None:
        """Close whatever is open, when the broker stops."""
        for peer in list(self._open):
            peer.close()

    def _remote(
        self, where: Callable[[], Endpoint | None], client_id: str, versions: Mapping[int, int] | None
    ) -> RemotePeer:
        config = self._config
        bounds = Bounds(
            config.socket_connection_setup_timeout_ms / 1000,
            config.socket_connection_setup_timeout_max_ms / 1000,
            # The other side's limit, which is most likely ours; below 0 there is none.
            config.connections_max_idle_ms / 2000 if config.connections_max_idle_ms >= 0 else math.inf,
            # What a broker answers at most: so many bytes of records as a follower asks for or, if that is larger, the
            # one batch that comes first, which once was in a request; with everything around them.
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
        self._open[peer] = None
        return peer

    def _forget(self, peer: RemotePeer) -> None:
        self._open.pop(peer, None)
