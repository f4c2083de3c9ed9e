"""The metadata store of the simulated world: a ZooKeeper server, as a party of the simulated network.

Theory of operation
-------------------
`StoreServer` has the tree and the sessions. It carries out requests in the order of arrival, and responds a little
later. A session without a message for its timeout is over: its ephemeral nodes are deleted, and its broker finds out
when it next connects to the server. While the server is down (`stop`) session timeouts do not run, as in a ZooKeeper
without a quorum.

A broker uses a `StoreSession` (`session.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from barnabas.controller.store.store import Check, Create, Delete, Item, NodeError, Outcome, SetData, ops_of
from barnabas.testing.simulation.links import Wire
from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.schedule import Simulation
from barnabas.testing.simulation.tree import Tree, WatchKey

STORE = "store"  # the server's name as a party
START_MS = 1_700_000_000_000
SYNC_SECONDS_MIN, SYNC_SECONDS_MAX = 0.000_3, 0.002  # until a write is on the server's disk
MARKS = {Create: "+", SetData: "=", Delete: "-", Check: "?"}  # in the trace

# What a message is, beside a request or its answer, and a watch that fires.
SESSION, PING, CLOSE = "session", "ping", "close"


class Message(NamedTuple):
    """What travels between a session and the server: `act` is called at the far end. `what` is for who looks on."""

    act: Callable[[], None]
    what: "Request | WatchKey | str"


class StoreRecorder(Protocol):
    """Hears of connections to the store (`diagram/recorder.py`), and changes nothing."""

    def store_connected(self, party: str, connection: "Connection") -> None:
        """A party tries to reach the store, over this connection."""


@dataclass(eq=False, slots=True)
class Connection:
    """Two wires between a session's client and the server; `on_lost` is called at the client when they break."""

    up: Wire[Message]
    down: Wire[Message]
    on_lost: Callable[[], None]

    def close(self) -> None:
        """Nothing travels any more, without notice."""
        self.up.close()
        self.down.close()


@dataclass(eq=False, slots=True)
class Request:
    """What a client asks: `work` is done by the server and may raise NodeError, which becomes `error`.

    The same as data is `item`, what a write writes, or `key`, what a read reads.
    """

    work: Callable[[Tree], None]
    item: Item | None = None
    key: WatchKey | None = None
    watched: WatchKey | None = None  # armed when the work succeeds
    error: NodeError | None = None
    outcome: Outcome = None  # of a write, when it was carried out


@dataclass(eq=False, slots=True)
class _Session:
    session_id: int
    party: str
    timeout_seconds: float
    on_watch: Callable[[WatchKey], None]  # called at the client
    connection: Connection
    heard_at: float
    ready_at: float = 0.0  # when the latest answer leaves
    watches: dict[WatchKey, None] = field(default_factory=dict)


class StoreServer:
    """The metadata store itself."""

    def __init__(self, simulation: Simulation, net: SimNet) -> None:
        self.clock = simulation.clock
        self.net = net
        self.rng = simulation.rng("store")
        self.watch_delay_seconds = 0.0  # a fault: a watch comes up to so much later
        self.is_down = False
        self.expired_count = 0
        self.tree = Tree(lambda: START_MS + round(self.clock.now * 1000))
        self._trace = simulation.trace
        self._sessions: dict[int, _Session] = {}
        self._next_session_id = 0x1000
        self._loses_answer_of: dict[str, None] = {}
        self.recorder: StoreRecorder | None = None
        net.party(STORE)

    # -- faults

    def stop(self) -> None:
        """The server goes down: connections break, nothing is answered, no session expires."""
        self.is_down = True
        for session in self._sessions.values():
            self._disconnect(session)

    def restart(self) -> None:
        """It is there again, with everything; each session has its whole timeout to come back."""
        self.is_down = False
        for session in self._sessions.values():
            session.heard_at = self.clock.now

    def expire(self, session_id: int) -> None:
        """End a session as if nothing had been heard of it for too long."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.expired_count += 1
            self._trace.note(f"store session {session_id:x} of {session.party} is over")
            self._changed(self.tree.end_session(session_id))
            self._disconnect(session)

    def sessions_of(self, party: str) -> list[int]:
        """The sessions that this party holds, also those of a life that ended without saying so."""
        return [each.session_id for each in self._sessions.values() if each.party == party]

    def lose_next_answer(self, party: str) -> None:
        """The next write of this party is carried out, and its connection breaks before the answer is there."""
        self._loses_answer_of[party] = None

    # -- what arrives

    def begin(
        self, party: str, connection: Connection, timeout_seconds: float, on_watch: Callable[[WatchKey], None]
    ) -> int:
        """The id of a new session."""
        self._next_session_id += 1
        session_id = self._next_session_id
        session = _Session(session_id, party, timeout_seconds, on_watch, connection, self.clock.now)
        self._sessions[session_id] = session
        self.clock.call_in(timeout_seconds, self._check_expiry, session)
        return session_id

    def resume(self, session_id: int, connection: Connection) -> bool:
        """A session's client is here again, with no watch armed; False when the session is over."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.connection.close()
        session.connection = connection
        session.heard_at = self.clock.now
        session.watches.clear()
        return True

    def end(self, session_id: int) -> None:
        """The client wants no more."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._changed(self.tree.end_session(session_id))

    def ping(self, session_id: int, settle: Callable[[], None]) -> None:
        """Answer a sign of life."""
        session = self._hear(session_id)
        if session is not None:
            self._answer(session, Message(settle, PING))

    def carry_out(self, session_id: int, request: Request, settle: Callable[[], None]) -> None:
        """Do what is asked; `settle()` is called at the client."""
        session = self._hear(session_id)
        if session is None:
            return  # over: the client learns it when it connects
        request.error = None
        try:
            request.work(self.tree)
        except NodeError as refusal:
            request.error = refusal
        else:
            if request.watched is not None:
                session.watches[request.watched] = None

        if request.item is not None and session.party in self._loses_answer_of:
            del self._loses_answer_of[session.party]
            self._trace.note(f"store answer to {session.party} is lost")
            self._disconnect(session)
            return

        seconds = self.rng.uniform(SYNC_SECONDS_MIN, SYNC_SECONDS_MAX) if request.item is not None else 0.0
        self._answer(session, Message(settle, request), seconds)

    def write(self, item: Item, session_id: int) -> Outcome:
        """Carry out one operation or a multi, and tell those whose watches it met."""
        outcome, changed = self.tree.write(item, session_id)
        refusal = f" {type(outcome).__name__}" if isinstance(outcome, NodeError) else ""
        self._trace.note(f"store {session_id:x} {self.tree.zxid} {_describe(item)}{refusal}")
        self._changed(changed)
        return outcome

    # -- parts

    def _hear(self, session_id: int) -> _Session | None:
        session = None if self.is_down else self._sessions.get(session_id)
        if session is not None:
            session.heard_at = self.clock.now
        return session

    def _changed(self, keys: Sequence[WatchKey]) -> None:
        for key in keys:
            for session in self._sessions.values():
                if key in session.watches:
                    del session.watches[key]
                    self._answer(session, Message(partial(session.on_watch, key), key))

    def _answer(self, session: _Session, message: Message, seconds: float = 0.0) -> None:
        """Send something to a session's client, after everything that was sent before."""
        now = self.clock.now
        before = session.ready_at
        session.ready_at = max(before, now + seconds)
        if before < now and seconds == 0.0:
            session.connection.down.send(message)
        else:
            self.clock.call_at(session.ready_at, session.connection.down.send, message)

    def _disconnect(self, session: _Session) -> None:
        """Break the connection; the client notices when word of it comes, or when it hears nothing more."""
        connection = session.connection
        connection.close()
        if not connection.down.link.is_cut:
            self.clock.call_in(connection.down.link.latency(), connection.on_lost)

    def _check_expiry(self, session: _Session) -> None:
        if self._sessions.get(session.session_id) is not session:
            return
        due = session.heard_at + session.timeout_seconds
        if self.is_down:
            due = self.clock.now + session.timeout_seconds
        if due <= self.clock.now:
            self.expire(session.session_id)
        else:
            self.clock.call_at(due, self._check_expiry, session)


def _describe(item: Item) -> str:
    return " ".join(f"{MARKS[type(op)]}{op.path}" for op in ops_of(item))
