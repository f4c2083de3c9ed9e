"""`UpstreamProxy`: faults and the request log in front of any Kafka (edge).

    with UpstreamProxy("kafka.example:9092") as proxy:
        proxy.faults.drop("Produce", "after", topic="orders", times=1)
        run_my_program(proxy.bootstrap_servers)

Each broker of the upstream gets a port of its own on 127.0.0.1. Responses that have addresses of brokers are rewritten,
so that clients find only these. The faults are pretended ones: they change messages, and the brokers behind are well.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Self

import trio

from barnabas.client.cluster import PLAIN_ACCESS
from barnabas.client.connection import Connection
from barnabas.client.settings import SettingsError, access_of, security_of
from barnabas.config.checks import parse_host_port
from barnabas.config.listeners import host_port
from barnabas.testing.arguments import HOST
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.faults.faults import Faults
from barnabas.testing.faults.requests import RequestLog
from barnabas.testing.lab.relay import Engine, Relay
from barnabas.wire import messages as m
from barnabas.wire.errors import PeerTooOld, ProtocolViolation
from barnabas.world.containment import contained
from barnabas.world.net import ConnectionLost, Listener, OsNet, Stream
from barnabas.world.world import real_world, wall_clock_ms

logger = logging.getLogger(__name__)

CLIENT_ID = "barnabas-lab"
START_SECONDS = 10.0
BACKLOG = 128
METADATA_VERSION_MAX = 8  # of the proxy's own question; clients may ask in newer versions


class UpstreamProxy:
    """A local port for each broker of a Kafka, with faults and a request log between clients and brokers."""

    def __init__(self, upstream: str, properties: Mapping[str, str] | None = None) -> None:
        """`upstream` is the host:port of one broker. LocalBrokerError if it is no such text.

        `properties` are those of a Java client that reaches it: TLS, a login. The proxy logs in for its clients, which
        reach it in plain text.
        """
        parsed = parse_host_port(upstream)
        if parsed is None or not parsed[0] or not parsed[1]:
            raise LocalBrokerError(f"upstream: a host with a port, such as kafka.example:9092, not {upstream!r}")
        self._upstream = parsed
        self._properties = properties or {}
        self._access = PLAIN_ACCESS
        self._net = OsNet()
        self._engine = Engine(self._local_address, wall_clock_ms)
        self._listeners: dict[int, Listener] = {}
        self._addresses: dict[int, tuple[str, int]] = {}  # of the brokers themselves, which may change
        self._is_opening: dict[int, trio.Event] = {}
        self._connections: trio.Nursery | None = None
        self._failure: str | None = "its proxy has ended, and the traceback says why"
        self._ready = threading.Event()
        self._end: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=trio.run, args=(self._main,), name="barnabas proxy", daemon=True)

    @property
    def faults(self) -> Faults:
        """What clients get wrong answers by."""
        return self._engine.faults

    @property
    def requests(self) -> RequestLog:
        """What clients send, from the first use of this on."""
        self._engine.log.is_on = True
        return self._engine.log

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each broker, for clients."""
        return ",".join(host_port(HOST, listener.port) for listener in self._listeners.values())

    def start(self) -> Self:
        """Find the brokers and listen (`with` does this). LocalBrokerError if the upstream is away or no Kafka."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise LocalBrokerError(f"upstream {host_port(*self._upstream)}: {self._failure}")
        return self

    def close(self) -> None:
        """End all connections (the end of `with` does this)."""
        # Requests that a fault holds back go on, and threads that wait for it end.
        self.faults.close()
        self._end()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- on the thread of the proxy

    async def _main(self) -> None:
        token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._connections = nursery
            self._end = lambda: token.run_sync_soon(nursery.cancel_scope.cancel)
            try:
                # Stores and passwords are decrypted in a thread.
                self._access = await access_of(security_of(self._properties), real_world(self._net))
                self._failure = await self._open()
            except SettingsError as error:
                self._failure = str(error)
            # The caller waits for this in any case.
            finally:
                self._ready.set()
            if self._failure is not None:
                nursery.cancel_scope.cancel()
            await trio.sleep_forever()

    async def _open(self) -> str | None:
        """Listen for each broker; the reason if that is not possible."""
        with trio.move_on_after(START_SECONDS):
            try:
                with closing(await self._connect(*self._upstream)) as stream:
                    connection = Connection(stream, CLIENT_ID)
                    connection.versions = await connection.ask_versions()
                    # No topics: the brokers are all that is asked for.
                    asked = m.MetadataRequest(topics=[], allow_auto_topic_creation=False)
                    answered = await connection.ask(asked, METADATA_VERSION_MAX, 1)
            except ConnectionLost as error:
                return f"it cannot be reached, or closes the connection: {error}"
            except (ProtocolViolation, PeerTooOld) as error:
                return f"it speaks no Kafka: {error}"

            assert isinstance(answered, m.MetadataResponse)
            try:
                for broker in answered.brokers:
                    await self._local_address(broker.node_id, broker.host, broker.port)
            except ConnectionLost as error:
                return str(error)
            return None if answered.brokers else "it names no broker"
        return f"it has not answered within {START_SECONDS:g} s"

    async def _connect(self, host: str, port: int) -> Stream:
        """A connection to a broker, after TLS and the login. ConnectionLost, ProtocolViolation."""
        stream: Stream = await self._net.connect(host, port)
        try:
            if self._access.handshake is not None:
                stream = await self._access.handshake(stream, host)
            if self._access.login is not None:
                connection = Connection(stream, CLIENT_ID, login=self._access.login, peer=host_port(host, port))
                connection.versions = await connection.ask_versions()
                await connection.log_in()
        except BaseException:
            stream.close()
            raise
        return stream

    async def _local_address(self, broker_id: int, host: str, port: int) -> tuple[str, int]:
        """Where clients find this broker; it gets a listener when it is first heard of."""
        self._addresses[broker_id] = host, port
        while broker_id not in self._listeners:
            # Two clients may hear of a new broker at the same time.
            if (opening := self._is_opening.get(broker_id)) is not None:
                await opening.wait()
            else:
                await self._open_listener(broker_id)
        return HOST, self._listeners[broker_id].port

    async def _open_listener(self, broker_id: int) -> None:
        opening = self._is_opening[broker_id] = trio.Event()
        try:
            listener = await self._net.listen(HOST, 0, backlog=BACKLOG)
        # The client that has heard of the broker loses its connection; the next one tries again.
        except OSError as error:
            raise ConnectionLost(f"there is no port for broker {broker_id}: {error}") from error
        finally:
            del self._is_opening[broker_id]
            opening.set()
        self._listeners[broker_id] = listener
        assert self._connections is not None
        self._connections.start_soon(listener.serve, partial(self._serve, broker_id), self._connections)

    async def _serve(self, broker_id: int, client: Stream) -> None:
        where = host_port(*self._addresses[broker_id])
        with contained(logger, "closing the connection of %s", client.peer_address), closing(client):
            try:
                with closing(await self._connect(*self._addresses[broker_id])) as upstream:
                    await Relay(self._engine, broker_id, client, upstream).run()
            except ConnectionLost as error:
                # Either side may have closed it; a client sees a closed connection, as it would without the proxy.
                logger.info("broker %d at %s, client %s: %s", broker_id, where, client.peer_address, error)
            except ProtocolViolation as error:
                logger.warning("client %s: %s", client.peer_address, error)
