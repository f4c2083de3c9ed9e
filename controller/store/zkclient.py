"""One session with ZooKeeper (edge), between kazoo's threads and the loop. Used by `zkstore.py`.

Theory of operation
-------------------
kazoo keeps the connection, pings, reconnects, and remembers watches, all in threads of its own. The loop puts a request
into kazoo's queue, which does not block. The outcome comes back by `TrioToken.run_sync_soon`, and so do watches and
changes of the connection's state. A session's attributes are changed on the loop only, except `_connections_lost`.

*Order.* Calls wait in one queue, and at most `zookeeper.max.in.flight.requests` of them are with kazoo. ZooKeeper
carries out the requests of one connection in the order of sending.

*A connection is lost* (SUSPENDED; the session lives). kazoo fails every request that it has no answer for. These calls
go back to the head of the queue, in their order, and are sent again over the next connection, however long that takes,
as Kafka's ZooKeeperClient does. So a write may be carried out twice; a conditional one is then refused the second time,
and its caller must read the node to see whether its own first attempt succeeded (reference A.1).

kazoo does not set watches again on the next connection: it fires all of them at the loss. That fits, as a watch means
only "read again"; the read waits for the next connection and sets the watch again.

*The session is over* (LOST: expired, closed, refused). All calls raise `SessionExpired`, and kazoo is stopped, as it
would begin another session by itself. One `Session` is one session.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVarTuple

import trio
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, SessionExpiredError
from kazoo.protocol import serialization
from kazoo.protocol.states import KeeperState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

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
    SessionTally,
    Stat,
    StoreUnavailable,
    Watch,
)
from barnabas.controller.store.zkaccess import PLAIN, ZooKeeperAccess, is_open, is_sensitive
from barnabas.controller.store.zkthreads import handler_of_threads

# ZooKeeper's codes of errors that concern one node. Any other code is raised as StoreUnavailable.
_REFUSALS: dict[int, type[NodeError]] = {
    -101: NoNode,
    -103: BadVersion,
    -108: EphemeralParent,
    -110: NodeExists,
    -111: NotEmpty,
}

# Each request wakes kazoo by one byte in a socket pair, whose buffer holds about 270 bytes. Fewer
# requests than that are in flight, so a byte may be dropped when it is full (see `zkthreads.py`).
IN_FLIGHT_MAX = 200
DIGEST_MD5 = "DIGEST-MD5"

OUTCOMES_A_STEP = 100  # of a batch, before other tasks get a turn: less than a millisecond
CLOSE_SECONDS = 5.0  # kazoo cannot be interrupted while it connects; after this its thread is left to end by itself
RECONNECT_FIRST_SECONDS = 0.1
RECONNECT_MAX_SECONDS = 1.0

EPHEMERAL, SEQUENTIAL = 1, 2  # flags of a create
# In a refused multi the operations before the refused one have the first of these codes, those
# after it the second.
ROLLED_BACK, RUNTIME_INCONSISTENCY = 0, -2

Arguments = TypeVarTuple("Arguments")
Serialize = Callable[[], bytes | bytearray]

logger = logging.getLogger(__name__)
# kazoo logs every attempt to connect; this file logs the changes of state. At DEBUG kazoo also
# logs the data of nodes, with the keys of users. So this logger is not registered, and
# IncrementalAlterConfigs cannot set its level (`config/log_levels.py`).
kazoo_logger = logging.Logger(f"{__name__}.kazoo", logging.ERROR)
kazoo_logger.parent = logger


class Request(Protocol):
    """A request that kazoo can send: one of its own, or a `Multi`."""

    type: int
    serialize: Serialize


@dataclass(frozen=True, slots=True)
class Refusal:
    """ZooKeeper's error for a request. `index` is that of the operation of a multi that failed."""

    code: int
    why: str
    index: int = 0


@dataclass(eq=False, slots=True)
class Call:
    """One request, and its answer when there is one."""

    request: Request
    serialize: Serialize  # the request's own method, which `_send` replaces on the request
    settled: trio.Event = field(default_factory=trio.Event)  # it has an answer, or the session is over
    answer: object = None
    has_answer: bool = False
    is_wanted: bool = True  # a caller still waits for the answer
    connection: int = -1  # the number of the connection that it was sent over

    def settle(self, answer: object) -> None:
        self.answer = answer
        self.has_answer = True
        self.settled.set()


class Session:
    """One session: it begins once and ends once. Paths are below `root`, the chroot ("": none)."""

    def __init__(  # what `zkstore.py` knows of the session
        self,
        hosts: str,
        root: str,
        session_timeout_ms: int,
        max_in_flight: int,
        on_over: Callable[["Session"], None],
        access: ZooKeeperAccess,
        tally: SessionTally,
        advice: str = "",
    ) -> None:
        """Start to connect. ValueError when `hosts` is malformed. `on_over` is called if the session ends by itself.

        `advice` is logged with the reason for which a server cannot be reached, until the session has begun.
        """
        self.id = 0  # until it has begun
        self.refusal = ""  # why the last attempt to reach a server failed
        self.root = root
        self.is_over = False
        self._hosts = hosts
        self._max_in_flight = min(max_in_flight, IN_FLIGHT_MAX)
        self._on_over = on_over
        self._access = access
        self._tally = tally
        self._advice = advice

        # The attempts have no limit. The caller limits the wait for the first connection; if a
        # later one takes too long, ZooKeeper ends the session.
        retry = KazooRetry(max_tries=-1, delay=RECONNECT_FIRST_SECONDS, max_delay=RECONNECT_MAX_SECONDS)
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=handler_of_threads(session_timeout_ms / 1000, hosts.count(",") + 1, access.tls, self._refused),
            connection_retry=retry,
            sasl_options=None if access.login is None else {"mechanism": DIGEST_MD5, **access.login._asdict()},
            logger=kazoo_logger,
        )
        self._client.add_listener(self._state_changed)
        self._token = trio.lowlevel.current_trio_token()

        # A connection's number is how many were lost before it. kazoo's thread counts them in
        # `_connections_lost`, and the loop learns of each later, in `_connection`.
        self._connections_lost = 0
        self._connection = 0
        self._is_connected = False
        self._connected_once = trio.Event()
        self._waiting: deque[Call] = deque()
        self._in_flight: dict[Call, None] = {}  # in the order of sending
        self._unanswered: list[Call] = []  # failed with the connection that was lost, in the order of sending
        self._stopped = trio.Event()
        self._client.start_async()  # starts kazoo's threads

    # -- operations of the store; `zkstore.py` has checked their arguments

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
        """Carry out the multis in order; the outcome of each."""
        answers = await self._perform([Multi(ops, self.root, self._access) for ops in multis])
        outcomes: list[list[Result] | NodeError] = []
        for ops, answer in zip(multis, answers, strict=True):
            outcome = self._outcome(ops, answer)
            if not isinstance(outcome, NodeError):
                outcome = [await self._with_stat(result) for result in outcome]
            outcomes.append(outcome)
            if len(outcomes) % OUTCOMES_A_STEP == 0:
                await trio.lowlevel.checkpoint()
        return outcomes

    async def _with_stat(self, result: Result) -> Result:
        """The result with a stat, which ZooKeeper 3.8.0 (Debian's) leaves out when a multi creates a node."""
        if not isinstance(result, Created) or result.stat is not UNKNOWN_STAT:
            return result
        # The stat costs one more read. If the node has been deleted meanwhile, the placeholder
        # stays.
        return Created(result.path, await self.exists(result.path, None) or UNKNOWN_STAT)

    def _outcome(self, ops: Sequence[Op], answer: object) -> list[Result] | NodeError:
        # The refusal of an operation is the only element of a list, as kazoo iterates over the answer of every multi.
        if isinstance(answer, list) and answer and isinstance(answer[0], Refusal):
            (answer,) = answer
        # The refusal of the request as a whole comes without a list; it counts as that of the first operation.
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
        """Wait until the session has begun or is over."""
        await self._connected_once.wait()

    def end(self) -> None:
        """End the session: give up every call, and stop kazoo."""
        if self.is_over:
            return
        self.is_over = True
        self._is_connected = False
        calls = [*self._in_flight, *self._unanswered, *self._waiting]
        self._in_flight.clear()
        self._unanswered.clear()
        self._waiting.clear()
        # These calls have no answer, so `_perform` raises SessionExpired.
        for call in calls:
            call.settled.set()
        self._connected_once.set()
        # kazoo is stopped in another thread, because `_stop` blocks until kazoo's threads have
        # ended, and they may wait for the server.
        self._client.handler.spawn(self._stop)

    async def stopped(self) -> None:
        """Wait until kazoo has closed the session at the server, but at most `CLOSE_SECONDS`."""
        with trio.move_on_after(CLOSE_SECONDS):
            await self._stopped.wait()

    # -- on the loop

    async def _perform(self, requests: Sequence[Request]) -> list[object]:
        """The answers, in order; that of a refused request is a `Refusal`. SessionExpired."""
        if self.is_over:
            raise SessionExpired(self.id)

        # All requests are queued without a checkpoint, even a thousand, so that calls of several
        # tasks are carried out in the order in which they were made.
        calls = [Call(request, request.serialize) for request in requests]
        self._waiting.extend(calls)
        self._send()
        try:
            for call in calls:
                # Answers arrive several at a time. To wait for one that is there already would
                # cost a turn of the loop.
                if not call.settled.is_set():
                    await call.settled.wait()
        finally:
            # If the caller was cancelled, its calls that were not sent yet never will be.
            for call in calls:
                call.is_wanted = False

        if not all(call.has_answer for call in calls):
            raise SessionExpired(self.id)
        return [call.answer for call in calls]

    def _watcher(self, watch: Watch | None) -> "_Watcher | None":
        """What kazoo calls instead of `watch`. Equal for equal watches: kazoo keeps them in a set, so each once."""
        return None if watch is None else _Watcher(self, watch)

    def _send(self) -> None:
        """Give kazoo as many calls as may be in flight."""
        # The calls of a lost connection are sent again before all others, but only when the last
        # of them has failed (`_settle`).
        oldest = next(iter(self._in_flight), None)
        if self._unanswered or (oldest is not None and oldest.connection != self._connection):
            return
        while self._is_connected and self._waiting and len(self._in_flight) < self._max_in_flight:
            call = self._waiting.popleft()
            if not call.is_wanted:
                continue
            call.connection = self._connection
            self._in_flight[call] = None
            call.request.serialize = partial(self._serialize, call.serialize, self._connection)
            self._client._call(call.request, _Completion(self, call))

    def _settle(self, call: Call, answer: object, failure: Exception | None) -> None:
        # `end` has settled every call.
        if self.is_over:
            return
        del self._in_flight[call]

        # The expiry may fail a call before kazoo reports it as a change of state. The call is kept
        # in `_unanswered`, so that `_finish` gives it up with the others.
        if isinstance(failure, SessionExpiredError):
            self._unanswered.append(call)
            self._finish("it expired")
            return

        if isinstance(failure, ConnectionLoss):
            # kazoo fails its requests before it reports SUSPENDED: what is sent in between would only fail again.
            self._is_connected = False
            self._unanswered.append(call)

            # The failed calls return to the head of the queue together, when the last has failed:
            # returned one by one, they would be in reverse order.
            if not self._in_flight:
                self._waiting.extendleft(reversed(self._unanswered))
                self._unanswered.clear()
        elif failure is not None:
            call.settle(Refusal(getattr(failure, "code", 0), str(failure) or type(failure).__name__))
        else:
            call.settle(answer)

        self._send()

    def _begin(self, session_id: int, connection: int) -> None:
        # kazoo may have begun another session before it was stopped.
        if self.is_over:
            return
        again = self._connected_once.is_set()
        self.id = session_id
        self._connection = connection
        self._is_connected = True
        self._tally.connects += 1
        self._connected_once.set()
        logger.info("%s ZooKeeper at %s, session %#x", "again at" if again else "at", self._hosts, session_id)
        self._send()

    def _suspend(self, connection: int) -> None:
        if not self.is_over:
            self._connection = connection
            self._is_connected = False
            self._tally.disconnects += 1
            logger.warning("lost the connection to ZooKeeper at %s, session %#x", self._hosts, self.id)

    def _finish(self, why: str) -> None:
        if not self.is_over:
            logger.warning("session %#x with ZooKeeper at %s is over: %s", self.id, self._hosts, why)
            self.end()
            self._on_over(self)

    def _fire(self, watch: Watch) -> None:
        # kazoo also fires all watches when the session ends, but the end is reported by the
        # callbacks of `on_expired`.
        if not self.is_over:
            watch()

    # -- in kazoo's threads

    def _tell(self, function: Callable[[*Arguments], object], *args: *Arguments) -> None:
        try:
            self._token.run_sync_soon(function, *args)
        # The loop has ended and all callers with it; kazoo's threads may end later.
        except trio.RunFinishedError:
            return

    def _refused(self, why: str) -> None:
        self.refusal = why
        logger.warning("%s%s", why, "" if self._connected_once.is_set() else self._advice, extra={"peer": "zookeeper"})

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._tell(self._begin, self._client.client_id[0], self._connections_lost)
        elif state == KazooState.SUSPENDED:
            # The loss is counted here and not on the loop, so that `_serialize` sees it before
            # kazoo connects again.
            self._connections_lost += 1
            self._tell(self._suspend, self._connections_lost)
        else:
            self._tell(self._finish, _ENDS.get(self._client.client_state, "the connection was closed"))

    def _serialize(self, serialize: Serialize, connection: int) -> bytes | bytearray:
        """The bytes of a request, which kazoo is about to send. ConnectionDropped if its connection was lost."""
        # The loop had not heard of the loss when it gave this request to kazoo. Sent now, the
        # request would overtake those that failed with the lost connection. The error makes kazoo
        # drop the new connection, and fail this request like them.
        if connection != self._connections_lost:
            raise ConnectionDropped("a call came after the connection was lost")
        return serialize()

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()
        self._tell(self._stopped.set)


_ENDS = {KeeperState.EXPIRED_SESSION: "it expired", KeeperState.AUTH_FAILED: "ZooKeeper refuses the login"}


@dataclass(frozen=True, slots=True)
class _Completion:
    """Stands in for kazoo's result object; called in the thread that keeps the connection.

    kazoo's own, with its lock and its thread for completions, would double the cost of a request.
    """

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


# -- requests


class Multi:
    """A multi, answered by the results of its operations, or by the `Refusal` of one.

    kazoo's own Transaction takes no null data, and its creates return no stat. Here they are "create2" requests, which
    some servers (3.8.0) answer inside a multi as if they were "create": without a stat.
    """

    type = serialization.Transaction.type

    def __init__(self, ops: Sequence[Op], root: str, access: ZooKeeperAccess = PLAIN) -> None:
        # kazoo's thread makes the bytes when it sends the multi, because a controller queues a
        # thousand multis in one step of the loop.
        self.serialize: Serialize = lambda: _serialize_multi([_request_of(op, root, access) for op in ops])
        self._root_length = len(root)

    def deserialize(self, data: bytes, offset: int) -> "list[Result | Refusal]":
        """ZooKeeper's answer: a result for each operation, or a list with the refusal of one as its only element."""
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
                result = Created(path[self._root_length :], UNKNOWN_STAT)
            elif header.type == serialization.SetData.type:
                result, offset = _read_stat(data, offset)
            elif header.type == _ERROR:
                (code,) = serialization.int_struct.unpack_from(data, offset)
                offset += serialization.int_struct.size

                # A refused multi has an error for each operation; only one of them is the reason.
                if code not in (ROLLED_BACK, RUNTIME_INCONSISTENCY):
                    return [Refusal(code, f"ZooKeeper's code {code}", len(results))]
            results.append(result)
            header, offset = serialization.MultiHeader.deserialize(data, offset)

        return results


# The placeholder for a stat that ZooKeeper did not send; compared by identity. It stays in the result only if the node
# was deleted before its stat could be read.
UNKNOWN_STAT = Stat(version=0, czxid=0, mzxid=0, owner=0, ctime_ms=0)
_ERROR = -1  # the type of a result that is an error code


def _serialize_multi(requests: Sequence[Request]) -> bytes:
    parts = [
        serialization.MultiHeader(request.type, False, -1).serialize() + request.serialize() for request in requests
    ]
    return b"".join([*parts, serialization.MultiHeader(-1, True, -1).serialize()])


def _acl_of(path: str, access: ZooKeeperAccess) -> list[ACL]:
    """Kafka's ACL of a new node, below the chroot."""
    if not access.restricts or is_open(path):
        return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]  # kazoo has no types
    return CREATOR_ALL_ACL if is_sensitive(path) else CREATOR_ALL_ACL + READ_ACL_UNSAFE  # type: ignore[no-any-return]  # as above


def _request_of(op: Op, root: str, access: ZooKeeperAccess) -> Request:
    path = below(root, op.path)
    request: Request
    if isinstance(op, Create):
        flags = EPHEMERAL * op.ephemeral | SEQUENTIAL * op.sequential
        request = serialization.Create2(path, op.data, _acl_of(op.path, access), flags)
    elif isinstance(op, Delete):
        request = serialization.Delete(path, op.version)
    elif isinstance(op, Check):
        request = serialization.CheckVersion(path, op.version)
    else:
        request = serialization.SetData(path, op.data, op.version)
    return request


def below(root: str, path: str) -> str:
    """The path in ZooKeeper, with the chroot `root` ("": none) before it."""
    return root + path if path != "/" else root or path


def stat_of(found: ZnodeStat) -> Stat:
    """Our stat from kazoo's."""
    return Stat(found.version, found.czxid, found.mzxid, found.ephemeralOwner, found.ctime)


def _read_stat(data: bytes, offset: int) -> tuple[Stat, int]:
    found = ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset))
    return stat_of(found), offset + serialization.stat_struct.size
