"""One session with ZooKeeper (edge): kazoo's threads on one side, the loop on the other. `zkstore.py` is what uses it.

Theory of operation
-------------------
kazoo keeps the connection, pings, reconnects, and remembers watches, all in threads of its own. A request is handed to
it here on the loop, which takes no time; what becomes of it comes home by `TrioToken.run_sync_soon`, and so do changes
of the connection's state and watches. (kazoo's own result, with its lock and its thread for completions, would cost as
much again as the rest, so it is given ours.) Whatever a session knows, it changes on the loop alone, but for the number
of the connection, which is counted where kazoo says that one is lost.

*Order.* Calls wait in one queue, and at most as many of them are with kazoo as `zookeeper.max.in.flight.requests` says.
ZooKeeper carries out what one connection sends in the order of sending.

*A connection is lost* (SUSPENDED; the session lives). kazoo fails everything that it was given and had no answer for.
Those calls go back to the head of the queue, in their order, and are sent again over the next connection, however long
that takes: what ZooKeeper's own client for Java does for Kafka. So a write may be carried out twice; a conditional one
is then refused the second time, and its caller, who reads again and finds what it meant to write, sees that it was the
first one (reference A.1). A call that reached kazoo after the loss, because the loop had not heard of it yet, would
overtake those: it is not sent but comes back with the others, at the price of one more connection.

kazoo does not set watches again on the next connection, whatever is said of it: it fires all of them at the loss. That
is what a watch means here, "read again", and the read waits for the next connection and sets it again.

*The session is over* (LOST: expired, closed, refused). Every call ends so, and kazoo is stopped before it
begins a session by itself; one object of this file is one session.
"""

import logging
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVarTuple

import trio
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.states import KeeperState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.controller.store.store import (
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    EphemeralParent,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Result,
    SessionExpired,
    Stat,
    StoreUnavailable,
    Watch,
)

# ZooKeeper's codes for what may be wrong with a node.
_REFUSALS: dict[int, type[NodeError]] = {
    -101: NoNode,
    -103: BadVersion,
    -108: EphemeralParent,
    -110: NodeExists,
    -111: NotEmpty,
}

IN_FLIGHT_MAX = 200  # each wakes kazoo by a byte in a socket pair, whose buffer holds some 270
CLOSE_SECONDS = 5.0  # kazoo cannot be interrupted while it connects; then its thread is left to end by itself
RECONNECT_FIRST_SECONDS = 0.1
RECONNECT_MAX_SECONDS = 1.0
CONNECTIONS_TRIED_IN_A_SESSION = 3  # to each server
CONNECT_MIN_SECONDS = 0.25

EPHEMERAL, SEQUENTIAL = 1, 2  # of a create's flags
ROLLED_BACK, RUNTIME_INCONSISTENCY = 0, -2  # of a multi's operations before and after the one that was refused

Arguments = TypeVarTuple("Arguments")
Serialize = Callable[[], bytes | bytearray]

logger = logging.getLogger(__name__)
kazoo_logger = logging.getLogger(f"{__name__}.kazoo")
kazoo_logger.setLevel(logging.ERROR)  # it logs every attempt to connect; what matters is logged here


class Request(Protocol):
    """What kazoo sends: its own requests, and `Multi`."""

    type: int
    serialize: Serialize


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why ZooKeeper did not carry out a request. `index` is the operation of a multi that is to blame."""

    code: int
    why: str
    index: int = 0


@dataclass(eq=False, slots=True)
class Call:
    """One request and what became of it."""

    request: Request
    serialize: Serialize  # as the request itself does it
    settled: trio.Event = field(default_factory=trio.Event)
    answer: object = None
    has_answer: bool = False
    is_wanted: bool = True  # a caller waits for it
    connection: int = -1  # over which it was sent

    def settle(self, answer: object) -> None:
        self.answer, self.has_answer = answer, True
        self.settled.set()


class Session:
    """One session: begun once, and over once. Paths are below `root`, the chroot."""

    def __init__(
        self, hosts: str, root: str, session_timeout_ms: int, max_in_flight: int, on_over: Callable[["Session"], None]
    ) -> None:
        """Begin to connect. ValueError when `hosts` makes no sense."""
        self.id = 0
        self.root = root
        self.is_over = False
        self._hosts = hosts
        self._max_in_flight = min(max_in_flight, IN_FLIGHT_MAX)
        self._on_over = on_over
        retry = KazooRetry(max_tries=-1, delay=RECONNECT_FIRST_SECONDS, max_delay=RECONNECT_MAX_SECONDS)
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=_handler(session_timeout_ms / 1000, hosts.count(",") + 1),
            connection_retry=retry,
            logger=kazoo_logger,
        )
        self._client.add_listener(self._state_changed)
        self._token = trio.lowlevel.current_trio_token()
        self._connections_lost = 0  # counted by kazoo's thread
        self._connection = 0  # the one that the loop believes in
        self._is_connected = False
        self._connected_once = trio.Event()
        self._waiting: deque[Call] = deque()
        self._in_flight: dict[Call, None] = {}
        self._unanswered: list[Call] = []  # of the connection that was lost, in their order
        self._stopped = trio.Event()
        self._client.start_async()  # its threads

    # -- what a store asks; nothing is checked here

    async def get(self, path: str, watch: Watch | None) -> tuple[bytes | None, Stat]:
        """A node's data."""
        answer = await self._read(path, serialization.GetData(below(self.root, path), self._watcher(watch)))
        assert isinstance(answer, tuple), answer
        data, found = answer
        return data, stat_of(found)

    async def exists(self, path: str, watch: Watch | None) -> Stat | None:
        """A node's stat, or None."""
        found = await self._read(path, serialization.Exists(below(self.root, path), self._watcher(watch)))
        return None if found is None else stat_of(found)

    async def children(self, path: str, watch: Watch | None) -> list[str]:
        """The names of a node's children, in any order."""
        names = await self._read(path, serialization.GetChildren(below(self.root, path), self._watcher(watch)))
        assert isinstance(names, list), names
        return names

    async def write(self, multis: Sequence[Sequence[Op]]) -> list[list[Result] | NodeError]:
        """Carry out each of them, in order; what becomes of each."""
        answers = await self._perform([Multi(ops, self.root) for ops in multis])
        outcomes = [self._outcome(ops, answer) for ops, answer in zip(multis, answers, strict=True)]
        for outcome in outcomes:
            if not isinstance(outcome, NodeError):
                outcome[:] = [await self._told(result) for result in outcome]
        return outcomes

    async def _told(self, result: Result) -> Result:
        """A result with its stat, which ZooKeeper 3.8.0 (Debian's) leaves out where a multi creates a node."""
        if not isinstance(result, Created) or result.stat is not UNTOLD:
            return result
        return Created(result.path, await self.exists(result.path, None) or UNTOLD)

    def _outcome(self, ops: Sequence[Op], answer: object) -> list[Result] | NodeError:
        if isinstance(answer, list) and answer and isinstance(answer[0], Refusal):
            (answer,) = answer  # kazoo wants a list from every multi
        if isinstance(answer, Refusal):
            error = self._error(ops[answer.index].path if ops else "/", answer)
            if isinstance(error, NodeError):
                return error
            raise error
        assert isinstance(answer, list), answer
        return answer

    async def _read(self, path: str, request: Request) -> object:
        (answer,) = await self._perform([request])
        if isinstance(answer, Refusal):
            raise self._error(path, answer)
        return answer

    def _error(self, path: str, refusal: Refusal) -> NodeError | StoreUnavailable:
        kind = _REFUSALS.get(refusal.code)
        return StoreUnavailable(self._hosts, f"{path}: {refusal.why}") if kind is None else kind(path)

    async def connected(self) -> None:
        """Wait until the session has begun, or is over."""
        await self._connected_once.wait()

    def end(self) -> None:
        """Give up every call, and stop kazoo in a thread: that waits for its threads."""
        if self.is_over:
            return
        self.is_over = True
        self._is_connected = False
        calls = [*self._in_flight, *self._unanswered, *self._waiting]
        self._in_flight.clear()
        self._unanswered.clear()
        self._waiting.clear()
        for call in calls:
            call.settled.set()
        self._connected_once.set()
        self._client.handler.spawn(self._stop)

    async def stopped(self) -> None:
        """Wait until ZooKeeper knows that the session ended, or cannot be reached."""
        with trio.move_on_after(CLOSE_SECONDS):
            await self._stopped.wait()

    # -- on the loop

    async def _perform(self, requests: Sequence[Request]) -> list[object]:
        """The answers, in order; what was refused is a `Refusal`. SessionExpired."""
        if self.is_over:
            raise SessionExpired(self.id)
        calls = [Call(request, request.serialize) for request in requests]
        self._waiting.extend(calls)
        self._send()
        try:
            for call in calls:
                await call.settled.wait()
        finally:
            for call in calls:
                call.is_wanted = False
        if not all(call.has_answer for call in calls):
            raise SessionExpired(self.id)
        return [call.answer for call in calls]

    def _watcher(self, watch: Watch | None) -> "_Watcher | None":
        """What kazoo calls instead of `watch`; equal for equal watches, which it then keeps once."""
        return None if watch is None else _Watcher(self, watch)

    def _send(self) -> None:
        """Hand as much to kazoo as may be on its way."""
        oldest = next(iter(self._in_flight), None)
        if self._unanswered or (oldest is not None and oldest.connection != self._connection):
            return  # they come first, and are still on their way home
        while self._is_connected and self._waiting and len(self._in_flight) < self._max_in_flight:
            call = self._waiting.popleft()
            if not call.is_wanted:
                continue
            call.connection = self._connection
            self._in_flight[call] = None
            call.request.serialize = partial(self._serialize, call.serialize, self._connection)
            self._client._call(call.request, _Completion(self, call))

    def _settle(self, call: Call, answer: object, failure: Exception | None) -> None:
        if self.is_over:
            return
        del self._in_flight[call]
        if isinstance(failure, SessionExpiredError):  # before kazoo says it of the session
            self._unanswered.append(call)
            self._finish("it expired")
            return
        if isinstance(failure, ConnectionLoss):
            self._is_connected = False  # what is sent now would be failed at once, again and again, until kazoo says so
            self._unanswered.append(call)
            if not self._in_flight:
                self._waiting.extendleft(reversed(self._unanswered))
                self._unanswered.clear()
        elif failure is not None:
            call.settle(Refusal(getattr(failure, "code", 0), str(failure) or type(failure).__name__))
        else:
            call.settle(answer)
        self._send()

    def _begin(self, session_id: int, connection: int) -> None:
        if self.is_over:
            return
        again = self._connected_once.is_set()
        self.id, self._connection, self._is_connected = session_id, connection, True
        self._connected_once.set()
        logger.info("%s ZooKeeper at %s, session %#x", "again at" if again else "at", self._hosts, session_id)
        self._send()

    def _suspend(self, connection: int) -> None:
        if not self.is_over:
            self._connection, self._is_connected = connection, False
            logger.warning("lost the connection to ZooKeeper at %s, session %#x", self._hosts, self.id)

    def _finish(self, why: str) -> None:
        if not self.is_over:
            logger.warning("session %#x with ZooKeeper at %s is over: %s", self.id, self._hosts, why)
            self.end()
            self._on_over(self)

    def _fire(self, watch: Watch) -> None:
        if not self.is_over:
            watch()

    # -- in kazoo's threads

    def _tell(self, function: Callable[[*Arguments], object], *args: *Arguments) -> None:
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            return  # no caller is left

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._tell(self._begin, self._client.client_id[0], self._connections_lost)
        elif state == KazooState.SUSPENDED:
            self._connections_lost += 1
            self._tell(self._suspend, self._connections_lost)
        else:
            self._tell(self._finish, _ENDS.get(self._client.client_state, "the connection was closed"))

    def _serialize(self, serialize: Serialize, connection: int) -> bytes | bytearray:
        """kazoo is about to send a request: over the connection that it was meant for, or not at all."""
        if connection != self._connections_lost:
            raise ConnectionDropped("a call came after the connection was lost")
        return serialize()

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()
        self._tell(self._stopped.set)


_ENDS = {KeeperState.EXPIRED_SESSION: "it expired", KeeperState.AUTH_FAILED: "ZooKeeper does not let us in"}


@dataclass(frozen=True, slots=True)
class _Completion:
    """What kazoo takes for one of its results; called in the thread that keeps the connection."""

    session: Session
    call: Call

    def set(self, value: object = None) -> None:
        self.session._tell(self.session._settle, self.call, value, None)

    def set_exception(self, failure: Exception) -> None:
        self.session._tell(self.session._settle, self.call, None, failure)


@dataclass(frozen=True, slots=True)
class _Watcher:
    session: Session
    watch: Watch

    def __call__(self, _: object) -> None:
        self.session._tell(self.session._fire, self.watch)


def _handler(session_seconds: float, host_count: int) -> SequentialThreadingHandler:
    """kazoo's handler of threads, but for three things.

    Its `select` makes and closes a selector each time, a third of what a request costs. It lets one server that does
    not answer have as long to take a connection, and again to greet, as the session lasts, which then is over before
    another is tried: ZooKeeper never greets whom it takes while it is starting. And the byte that wakes its thread
    would stop the loop when that thread, busy connecting, has left too many unread.
    """
    handler = SequentialThreadingHandler()
    handler.create_socket_pair = _socket_pair
    connect_seconds = max(session_seconds / CONNECTIONS_TRIED_IN_A_SESSION / host_count, CONNECT_MIN_SECONDS)
    create_connection = handler.create_connection
    silent: list[socket.socket] = []  # the connection that nothing has come from yet

    def create_connection_in_time(*args: object, timeout: float, **options: object) -> socket.socket:
        connection: socket.socket = create_connection(*args, timeout=min(timeout, connect_seconds), **options)
        silent[:] = [connection]
        return connection

    def select_in_time(
        readers: Sequence[socket.socket],
        writers: Sequence[socket.socket],
        others: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> Ready:
        if not silent or silent != list(readers):
            return _select(readers, writers, others, timeout)
        ready = _select(readers, writers, others, connect_seconds if timeout is None else min(timeout, connect_seconds))
        if ready[0]:
            silent.clear()
        return ready

    handler.create_connection = create_connection_in_time
    handler.select = select_in_time
    return handler


class _Bell:
    """The writing end of kazoo's socket pair; what is full rings already."""

    def __init__(self, writer: socket.socket) -> None:
        writer.setblocking(False)
        self._writer = writer
        self.close = writer.close

    def send(self, data: bytes) -> int:
        try:
            return self._writer.send(data)
        except BlockingIOError:
            return len(data)


def _socket_pair() -> tuple[socket.socket, _Bell]:
    reader, writer = socket.socketpair()
    return reader, _Bell(writer)


Ready = tuple[list[socket.socket], list[socket.socket], list[socket.socket]]


def _select(
    readers: Sequence[socket.socket],
    writers: Sequence[socket.socket],
    _: Sequence[socket.socket],
    timeout: float | None = None,
) -> Ready:
    """As select.select, for any number of descriptors."""
    poll = select.poll()
    for each in readers:
        poll.register(each, select.POLLIN)
    for each in writers:
        poll.register(each, select.POLLOUT)
    ready = {descriptor for descriptor, _ in poll.poll(None if timeout is None else max(timeout, 0) * 1000)}
    return (
        [each for each in readers if each.fileno() in ready],
        [each for each in writers if each.fileno() in ready],
        [],
    )


# -- requests


class Multi:
    """A transaction, answered by the results of its operations, or by a `Refusal` of one.

    kazoo's own takes no null data, and its creates tell no stat: here they are requests of the kind "create2". Some
    servers (3.8.0) answer those inside a multi as if they were of the old kind: without a stat.
    """

    type = serialization.Transaction.type

    def __init__(self, ops: Sequence[Op], root: str) -> None:
        requests = [_request_of(op, root) for op in ops]
        self.serialize: Serialize = lambda: _serialize_multi(requests)
        self._root_length = len(root)

    def deserialize(self, data: bytes, offset: int) -> "list[Result | Refusal]":
        """What ZooKeeper answered: a result for each operation, or nothing but the refusal of one."""
        results: list[Result | Refusal] = []
        header, offset = serialization.MultiHeader.deserialize(data, offset)
        while not header.done:
            result: Result = None
            if header.type == serialization.Create2.type:
                path, offset = serialization.read_string(data, offset)
                found, offset = _read_stat(data, offset)
                result = Created(path[self._root_length :], found)
            elif header.type == serialization.Create.type:
                path, offset = serialization.read_string(data, offset)
                result = Created(path[self._root_length :], UNTOLD)
            elif header.type == serialization.SetData.type:
                result, offset = _read_stat(data, offset)
            elif header.type == _ERROR:
                (code,) = serialization.int_struct.unpack_from(data, offset)
                offset += serialization.int_struct.size
                if code not in (ROLLED_BACK, RUNTIME_INCONSISTENCY):
                    return [Refusal(code, f"ZooKeeper's code {code}", len(results))]
            results.append(result)
            header, offset = serialization.MultiHeader.deserialize(data, offset)
        return results


UNTOLD = Stat(version=0, czxid=0, mzxid=0, owner=0, ctime_ms=0)  # of a node that is gone before it could be read
_ERROR = -1  # the kind of a result that is an error's code


def _serialize_multi(requests: Sequence[Request]) -> bytes:
    parts = [
        serialization.MultiHeader(request.type, False, -1).serialize() + request.serialize() for request in requests
    ]
    return b"".join([*parts, serialization.MultiHeader(-1, True, -1).serialize()])


def _request_of(op: Op, root: str) -> Request:
    path = below(root, op.path)
    request: Request
    if isinstance(op, Create):
        flags = EPHEMERAL * op.ephemeral | SEQUENTIAL * op.sequential
        request = serialization.Create2(path, op.data, OPEN_ACL_UNSAFE, flags)
    elif isinstance(op, Delete):
        request = serialization.Delete(path, op.version)
    elif isinstance(op, Check):
        request = serialization.CheckVersion(path, op.version)
    else:
        request = serialization.SetData(path, op.data, op.version)
    return request


def below(root: str, path: str) -> str:
    """This path as ZooKeeper knows it, below the chroot ("": there is none)."""
    return root + path if path != "/" else root or path


def stat_of(found: ZnodeStat) -> Stat:
    """kazoo's stat as ours."""
    return Stat(found.version, found.czxid, found.mzxid, found.ephemeralOwner, found.ctime)


def _read_stat(data: bytes, offset: int) -> tuple[Stat, int]:
    found = ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset))
    return stat_of(found), offset + serialization.stat_struct.size
