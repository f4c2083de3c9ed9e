"""A broker's session with the simulated metadata store; behaves as `controller/store/zkclient.py` does with ZooKeeper.

Theory of operation
-------------------
Two `Wire`s connect the session to the server. It sends pings, closes a connection on which nothing arrived for two
thirds of the timeout, and connects again until it ends. When a connection is lost, every watch fires, and unanswered
requests are sent again over the next connection, in their order: so a write may be carried out twice, and a conditional
write is then refused the second time. Calls that are made without a connection wait for one. Each item of a batch is a
request of its own, so that a connection may break between two of them.

Watches may come late (`StoreServer.watch_delay_seconds`).

A session belongs to a process: while the process is paused the session sends no pings and handles no messages; they are
handled after the resume. The session needs no task: everything but the callers' waiting happens in timers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from barnabas.controller.store.store import (
    Item,
    MetadataStore,
    Outcome,
    SessionExpired,
    Stat,
    StoreUnavailable,
    Watch,
    check_op,
    check_path,
    ops_of,
)
from barnabas.testing.simulation.links import Wire
from barnabas.testing.simulation.schedule import Process
from barnabas.testing.simulation.store import CLOSE, PING, SESSION, STORE, Connection, Message, Request, StoreServer
from barnabas.testing.simulation.tree import Tree, WatchKey

TICKS_OF_TIMEOUT = 4  # how often in a session's timeout a client looks after its connection
SILENCE_SHARE = 2 / 3  # of the timeout, until a client gives a connection up
PAUSE_SECONDS_MAX = 0.3  # before it tries to connect again
CLOSE_SECONDS = 2.0  # so long a session that ends waits for the server to hear of it

Answer = TypeVar("Answer")


@dataclass(eq=False, slots=True)
class _Call:
    request: Request
    watch: Watch | None = None
    failure: SessionExpired | StoreUnavailable | None = None
    done: trio.Event = field(default_factory=trio.Event)


class StoreSession(MetadataStore):
    """One session, in one life of its process: `open` begins it, `die` is the crash."""

    def __init__(self, server: StoreServer, process: Process, timeout_seconds: float) -> None:
        self._server = server
        self._process = process
        self._timeout_seconds = timeout_seconds
        self._session_id = 0  # none yet
        self._calls: dict[_Call, None] = {}
        self._watches: dict[WatchKey, dict[Watch, None]] = {}
        self._on_expired: list[Callable[[], None]] = []
        self._connection: Connection | None = None  # that is used, or being made
        self._is_connected = False
        self._heard_at = 0.0
        self._is_expired = False
        self._is_over = False  # closed, or its process died
        self._begun = trio.Event()
        self._patience_seconds = math.inf

    async def open(self, within_seconds: float = math.inf) -> "StoreSession":
        """Begin the session; StoreUnavailable when the server is not reached in time."""
        self._patience_seconds = within_seconds
        self._connect()
        self._tick()
        try:
            await self._reached()
        except StoreUnavailable:
            self.die()
            raise
        return self

    def die(self) -> None:
        """The process crashed: nothing more goes from here or comes, and the server waits for the timeout."""
        self._is_over = True
        self._begun.set()
        if self._connection is not None:
            self._connection.close()

    # -- the store's methods

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        check_path(path)
        return await self._read(lambda tree: tree.get(path), ("data", path), watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        return await self._read(lambda tree: tree.stat(path), ("data", path), watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        return await self._read(lambda tree: tree.children(path), ("children", path), watch)

    async def batch(self, items: Sequence[Item]) -> list[Outcome]:
        written = list(items)
        for item in written:
            for op in ops_of(item):
                check_op(op)
        session_id = self._session_id

        def write(index: int, _: Tree) -> None:
            calls[index].request.outcome = self._server.write(written[index], session_id)

        calls = [_Call(Request(partial(write, index), item)) for index, item in enumerate(written)]
        await self._ask(*calls)
        return [call.request.outcome for call in calls]

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def renew(self) -> None:
        if self._is_expired and not self._is_over:
            self._is_expired, self._begun = False, trio.Event()
            self._session_id = 0
            self._connect()
        await self._reached()

    async def close(self) -> None:
        connection = self._connection
        if self._is_connected and connection is not None and not self._is_over:
            ended = trio.Event()
            connection.up.send(Message(partial(self._end_at_server, connection, ended.set), CLOSE))
            with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_SECONDS):
                await ended.wait()
        self.die()
        for call in self._calls:
            call.failure = SessionExpired(self._session_id)
            call.done.set()

    async def _reached(self) -> None:
        with trio.move_on_after(self._patience_seconds) as patience:
            await self._begun.wait()
        if self._is_over:
            raise SessionExpired(self._session_id)
        if patience.cancelled_caught:
            raise StoreUnavailable(STORE, f"no session within {self._patience_seconds} s")

    # -- asking

    async def _read(self, work: Callable[[Tree], Answer], key: WatchKey, watch: Watch | None) -> Answer:
        answers: list[Answer] = []
        request = Request(lambda tree: answers.append(work(tree)), key=key, watched=None if watch is None else key)
        await self._ask(_Call(request, watch))
        return answers[-1]

    async def _ask(self, *calls: _Call) -> None:
        if self._is_over or self._is_expired:
            await trio.lowlevel.checkpoint()
            raise SessionExpired(self._session_id)
        for call in calls:
            self._calls[call] = None
            self._transmit(call)
        try:
            for call in calls:
                await call.done.wait()
        finally:
            for call in calls:
                self._calls.pop(call, None)

        for call in calls:
            if call.failure is not None:
                raise call.failure
            if call.request.error is not None:
                raise call.request.error

    def _transmit(self, call: _Call) -> None:
        connection = self._connection
        if self._is_connected and connection is not None:
            settle = partial(self._hear, connection, self._settle, call)
            carry_out = partial(self._server.carry_out, self._session_id, call.request, settle)
            connection.up.send(Message(carry_out, call.request))

    def _settle(self, call: _Call) -> None:
        key = call.request.watched
        if call.request.error is None and key is not None and call.watch is not None:
            self._watches.setdefault(key, {})[call.watch] = None
        self._calls.pop(call, None)
        call.done.set()

    # -- the connection

    def _connect(self) -> None:
        """Try to reach the server, with a new connection."""
        net = self._server.net
        me = self._process.name
        if self._connection is not None:
            self._connection.close()

        def lost() -> None:
            self._process.call(partial(self._lose, connection))

        connection = Connection(
            Wire(net.link(me, STORE), _carry, lost),
            Wire(net.link(STORE, me), _carry, lost),
            lost,
        )
        if self._server.recorder is not None:
            self._server.recorder.store_connected(me, connection)
        self._connection = connection
        self._is_connected = False
        self._heard_at = self._server.clock.now
        connection.up.send(Message(partial(self._meet_server, connection), SESSION))

    def _meet_server(self, connection: Connection) -> None:
        """At the server: begin the session, or go on with it."""
        server = self._server
        session_id = self._session_id
        if server.is_down or self._is_over:
            return
        is_known = True
        if session_id == 0:
            session_id = server.begin(self._process.name, connection, self._timeout_seconds, self._on_watch)
        else:
            is_known = server.resume(session_id, connection)
        met = partial(self._hear, connection, self._meet_client, session_id, is_known)
        connection.down.send(Message(met, SESSION))

    def _meet_client(self, session_id: int, is_known: bool) -> None:
        """At the client: the session is there, or over."""
        if not is_known:
            self._expire()
            return
        self._session_id = session_id
        self._is_connected = True
        self._begun.set()
        for call in self._calls:
            self._transmit(call)

    def _end_at_server(self, connection: Connection, settle: Callable[[], None]) -> None:
        if not self._server.is_down:
            self._server.end(self._session_id)
            connection.down.send(Message(settle, CLOSE))

    def _hear(self, connection: Connection, function: Callable[..., None], *args: object) -> None:
        """Something came from the server: the process acts on it when it runs."""

        def act() -> None:
            if connection is self._connection and not self._is_over:
                self._heard_at = self._server.clock.now
                function(*args)

        self._process.call(act)

    def _tick(self) -> None:
        """Look after the connection: ping, or give it up when nothing is heard."""
        if self._is_over:
            return
        now = self._server.clock.now
        connection = self._connection
        self._server.clock.call_in(self._timeout_seconds / TICKS_OF_TIMEOUT, self._tick)
        if self._process.is_paused or self._is_expired or connection is None:
            return
        if now - self._heard_at > self._timeout_seconds * SILENCE_SHARE:
            self._lose(connection)
        elif self._is_connected:
            pong = partial(self._hear, connection, _nothing)
            connection.up.send(Message(partial(self._server.ping, self._session_id, pong), PING))

    def _lose(self, connection: Connection) -> None:
        """This connection is dead: every watch fires, and what had no answer is asked again on the next one."""
        if connection is not self._connection or self._is_over or self._is_expired:
            return
        connection.close()
        self._is_connected = False
        self._heard_at = self._server.clock.now
        for key in list(self._watches):
            self._on_watch(key)
        self._server.clock.call_in(self._server.rng.random() * PAUSE_SECONDS_MAX, self._connect_again, connection)

    def _connect_again(self, lost: Connection) -> None:
        if lost is self._connection and not self._is_over:
            self._process.call(self._connect)

    def _expire(self) -> None:
        self._is_expired = True
        self._is_connected = False
        self._watches.clear()
        for call in self._calls:
            call.failure = SessionExpired(self._session_id)
            call.done.set()
        for callback in list(self._on_expired):
            callback()

    def _on_watch(self, key: WatchKey) -> None:
        """At the client: something was changed that a read asked about."""
        server = self._server
        if server.watch_delay_seconds:
            server.clock.call_in(
                server.rng.random() * server.watch_delay_seconds, self._process.call, partial(self._fire, key)
            )
        else:
            self._process.call(partial(self._fire, key))

    def _fire(self, key: WatchKey) -> None:
        if self._is_over or self._is_expired:
            return
        for watch in self._watches.pop(key, {}):
            watch()


def _carry(message: Message) -> None:
    message.act()


def _nothing() -> None:
    """A pong: that it came is all."""
