"""Requests to brokers: `ask(request, deadline_ms) -> response`.

The controller, the fetchers and all other code that sends requests to brokers use this interface. `RemotePeer` is one
connection to another broker (`client/remote.py`). `SelfPeer` passes a request of this broker to itself to dispatch,
without bytes: a single node is a cluster of one, with no second code path.

Versions (reference section 0): requests of the controller, fetchers and a stopping broker have the versions that
`inter.broker.protocol.version` implies. For requests to the controller, versions are negotiated on each connection
(B.15).
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial

import trio

from barnabas.client.connection import Login
from barnabas.client.remote import Address, Bounds, Handshake, RemotePeer
from barnabas.config.live import BrokerConfig
from barnabas.controller.channels import Peer
from barnabas.controller.image.state import LiveBroker
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, inter_broker_versions
from barnabas.wire.errors import PeerLost
from barnabas.world.metadata import ClusterMetadata
from barnabas.world.world import World

Answer = Callable[[m.Message, int], Awaitable[m.Message | None]]  # (request, version) -> response


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
        # The versions are the same as between brokers: otherwise a single node could do what a version
        # cannot express.
        due = inter_broker_versions(self._config.inter_broker_protocol_version).get(key, APIS[key].max_version)
        with trio.move_on_after(deadline_ms / 1000):
            response = await self._answer(request, due if version_max is None else min(due, version_max))
            if response is not None:
                return response
        raise PeerLost(f"broker {self._broker_id} did not answer {type(request).__name__}")

    def close(self) -> None:
        """There is nothing to close."""


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

    def broker(self, broker_id: int, client_id: str, *, negotiates: bool = False) -> RemotePeer | SelfPeer:
        """A broker at its address for brokers, or this broker itself: for what coordinators and leaders ask each other.

        With `negotiates` the versions are not those of `inter.broker.protocol.version`.
        """
        if broker_id == self._broker_id:
            return self.myself
        where = partial(self._metadata.endpoint, broker_id, self._config.inter_broker_listener)
        return self._remote(where, client_id, None if negotiates else self._versions)

    def __iter__(self) -> Iterator[RemotePeer]:
        """The peers that are open."""
        return iter(list(self._open))

    def close(self) -> None:
        """Close all peers, when the broker stops."""
        # The list is a copy: each `close` removes its peer through `on_close`.
        for peer in list(self._open):
            peer.close()

    def _remote(
        self, where: Callable[[], Address | None], client_id: str, versions: Mapping[int, int] | None
    ) -> RemotePeer:
        config = self._config
        bounds = Bounds(
            config.socket_connection_setup_timeout_ms / 1000,
            config.socket_connection_setup_timeout_max_ms / 1000,
            # This is half of connections.max.idle.ms, which is most likely the peer's, too; below 0
            # there is no limit.
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
        peer.logins = self.logins
        peer.handshakes = self.handshakes
        self._open[peer] = None
        return peer

    def _forget(self, peer: RemotePeer) -> None:
        self._open.pop(peer, None)
