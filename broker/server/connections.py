"""What all connections share: limits by number, the account of their memory, and the sweep that closes some.

`Connection` is the state of one of them, as limits and the sweep need it; `connection.py` serves it.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from barnabas.broker.call import ANONYMOUS
from barnabas.broker.now.shapes import Shapes
from barnabas.broker.server.pipelined_responses import PipelinedResponses
from barnabas.world.memory import EVICTED_BYTES_MIN, Account, request_limit_bytes
from barnabas.world.net import ConnectionLost, Stream
from barnabas.world.pacing import pause_after

if TYPE_CHECKING:
    from barnabas.broker.server.login import Login
    from barnabas.broker.tally import ApiTally
    from barnabas.config.live import BrokerConfig
    from barnabas.world.resting import GivenBack

logger = logging.getLogger(__name__)

NO_REQUEST, FETCH = -1, 1  # API keys
SWEEP_SECONDS = 1.0
STRANGERS_SHARE = 8  # connections that have not logged in hold at most an eighth of the limit for clients
SPENT_KEPT = 0.9  # each second the `spent_seconds` of a connection shrink to this share


class Connection:
    """The state of one connection, as limits and the sweep need it."""

    # There may be tens of thousands of connections, so an idle one has to be small.
    __slots__ = (
        "account",
        "address",
        "answer_bytes",
        "api_key",
        "busy",
        "decoded_bytes",
        "frame_bytes",
        "gives_way",
        "held_bytes",
        "is_handling",
        "listener",
        "login",
        "muted_until",
        "number",
        "pipelined",
        "principal",
        "progress_at",
        "protocol",
        "request_version",
        "rested_seconds",
        "rests",
        "scope",
        "sending",
        "sent_bytes",
        "shapes",
        "software",
        "spent_seconds",
        "stream",
        "tally",
        "turn",
        "unsent",
    )

    def __init__(self, stream: Stream, listener: str, number: int, account: "Account[Connection]") -> None:
        self.stream = stream
        self.account = account  # of the memory that it holds
        self.number = number  # in the order in which they are accepted
        self.listener = listener
        self.address = stream.peer_address

        # On a listener with TLS or SASL, `entry.py` sets `protocol`, `principal` and `login`. With TLS it
        # also replaces `stream` and `pipelined`.
        self.protocol = "PLAINTEXT"
        self.principal = ANONYMOUS
        self.login: Login | None = None  # with SASL
        self.scope = trio.CancelScope()
        self.progress_at = trio.current_time()
        self.held_bytes = 0  # what `account` has counted of the next three
        self.frame_bytes = 0  # of an unfinished frame, the frame that is handled, and those that wait behind it
        self.decoded_bytes = 0  # of the objects into which its request was decoded, if they are many
        self.answer_bytes = 0  # of the response that is being sent; file slices do not count
        self.shapes = Shapes()
        self.pipelined = PipelinedResponses(stream)
        self.unsent = b""  # responses that leave with those of the next requests
        self.busy = False  # a request is being handled, or a response waits to be sent
        self.is_handling = False  # a request is being handled: delayed responses alone do not count
        self.api_key = NO_REQUEST  # of the latest request
        self.tally: ApiTally | None = None  # which counts the latest request
        self.request_version = 0
        self.rested_seconds = 0.0  # how long the latest request has waited
        self.software: tuple[str, str] | None = None  # the client's, by its ApiVersions: name and version (KIP-511)
        self.rests = 0  # above 0 while the request only waits, e.g. a long poll (`resting.py`)
        self.gives_way = False  # its request woke other connections' requests, which are answered before its next one
        self.sending = False  # a response is being sent: how long that takes depends on the client
        self.sent_bytes = 0  # the stream's count at the last sweep
        self.turn: GivenBack | None = None  # the turn that its request has (`turns.py`)
        self.spent_seconds = 0.0  # how long it has had turns lately
        self.muted_until = 0.0  # a quota is exceeded: no request is read until then, on trio's clock

    def note_request(self, api_key: int, version: int) -> None:
        """A request begins to be handled."""
        self.api_key = api_key
        self.request_version = version
        self.rested_seconds = 0.0

    def note_answered(self) -> None:
        """A request of the latest shape is answered in the step that has read it, or waits."""
        shape = self.shapes.latest
        assert shape is not None
        self.api_key = shape.api_key
        self.request_version = shape.version
        self.rested_seconds = 0.0
        self.tally = shape.tally

    def send_unsent(self) -> None:
        """Send the responses that wait for others, as far as the network takes them now."""
        # This never waits: it may run in the middle of the next request, which must not depend on a
        # slow client. What the network does not take leaves with the next response.
        if self.unsent:
            try:
                sent_bytes = self.stream.send_now(self.unsent)
            except ConnectionLost:
                sent_bytes = 0  # the next receive or send reports it
            self.unsent = self.unsent[sent_bytes:]

    def note_sent(self, due: float) -> None:
        """Called by the sweep: a connection that sent bytes since the last one was not idle until this one was due."""
        if self.sent_bytes != self.stream.sent_bytes:
            self.sent_bytes = self.stream.sent_bytes
            self.progress_at = max(self.progress_at, due)

    def has_rested_long(self, now: float) -> bool:
        """Whether its request has waited for more than SWEEP_SECONDS."""
        # Most long polls end sooner; the system call that detects a hang-up is spent on the others only.
        return self.rests > 0 and self.progress_at < now - SWEEP_SECONDS

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection. A system call."""
        return self.stream.has_hung_up()

    @property
    def pipelined_count(self) -> int:
        """How many of its Produce requests wait for their acknowledgement."""
        return len(self.pipelined.responses)

    @property
    def is_at_work(self) -> bool:
        """Whether its request is being handled. That ends without the client, so the sweep does not close it."""
        return self.busy and not self.sending and not self.rests

    @property
    def is_leaving(self) -> bool:
        """Whether it is being closed."""
        return self.scope.cancel_called

    @property
    def is_evictable(self) -> bool:
        """Whether it may be closed for the memory that it holds."""
        return not (self.is_at_work or self.is_leaving)


class Connections:
    """All connections of a broker: limits by number and by memory, and a sweep once a second.

    Memory: frames, decoded requests and unsent responses count against `queued.max.request.bytes`. Above it the
    connections that hold most and free least are closed (`memory.py`); no connection waits for memory. Clients take
    no memory from brokers that have a listener to themselves, nor those that have yet to log in from others: these
    three classes have an account each.
    """

    def __init__(self, config: "BrokerConfig", machine_bytes: int) -> None:
        limit_bytes = request_limit_bytes(
            config.queued_max_request_bytes, config.socket_request_max_bytes, machine_bytes
        )
        self.finishing = False
        self._config = config
        self._open: dict[Connection, None] = {}
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._accepted = 0
        self._clients = Account[Connection](limit_bytes)
        self._strangers = Account[Connection](limit_bytes // STRANGERS_SHARE)
        self._brokers = Account[Connection](limit_bytes)
        self._slot = trio.Event()  # set when a connection ends, for those that wait in `admit`
        self._waiting: dict[str, int] = {}  # how many wait in `admit`, by listener

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def held_bytes(self) -> int:
        """What the requests and responses of clients hold."""
        return self._clients.held_bytes

    def limit_bytes(self) -> int:
        """The limit for `held_bytes`."""
        return self._clients.limit_bytes

    async def admit(self, stream: Stream, listener: str) -> Connection | str:
        """Count a new connection, or say why it is refused. Waits while `max.connections` are open."""
        while not (full := self._has_too_many(stream.peer_address)) and not self._has_slot(listener):
            # Each waiting connection takes a file descriptor, of which brokers need some, too. Kafka keeps them in the
            # backlog of the kernel.
            if self._waiting.get(listener, 0) >= self._config.socket_listen_backlog_size:
                return "max.connections is reached, and socket.listen.backlog.size wait already"
            await self._wait_for_slot(listener)
            if stream.has_hung_up():
                return "its client has gone while it waited for max.connections"

        if full:
            return "max.connections.per.ip is reached"

        # Only a connection at the brokers' own listener gets here above the limit: otherwise clients could
        # keep brokers from replicating (KIP-402).
        if len(self._open) >= self._config.max_connections:
            self._close_quietest_client()
        self._accepted += 1
        connection = Connection(stream, listener, self._accepted, self._account_of(listener))
        self._open[connection] = None
        self._by_address[connection.address] = self._by_address.get(connection.address, 0) + 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        return connection

    async def _wait_for_slot(self, listener: str) -> None:
        """Sleep until a connection has ended, or for SWEEP_SECONDS."""
        # One event wakes every waiter, and each checks the limits again: others may have taken the slot.
        if self._slot.is_set():
            self._slot = trio.Event()
        self._waiting[listener] = self._waiting.get(listener, 0) + 1
        try:
            await self._slot.wait()
        finally:
            self._waiting[listener] -= 1

    def _has_slot(self, listener: str) -> bool:
        if self._by_listener.get(listener, 0) >= self._config.connections_max(listener):
            return False
        return len(self._open) < self._config.max_connections or self._config.is_brokers_own(listener)

    def _has_too_many(self, address: str) -> bool:
        allowed = self._config.connection_limits.get(address, self._config.max_connections_per_ip)
        return self._by_address.get(address, 0) >= allowed

    def _close_quietest_client(self) -> None:
        # A request that is being handled may be in the middle of several writes: it is left to end, as in the sweep.
        clients = [
            each
            for each in self._open
            if not (self._config.is_brokers_own(each.listener) or each.is_leaving or each.is_at_work)
        ]
        if clients:
            quietest = min(clients, key=lambda each: each.progress_at)
            logger.info("closing the connection of %s: max.connections is reached", quietest.address)
            quietest.scope.cancel()

    def leave(self, connection: Connection) -> None:
        """Remove a connection that has ended, and release all the memory that it held."""
        connection.account.hold(connection, 0, trio.current_time())
        connection.shapes.forget()
        del self._open[connection]
        self._by_listener[connection.listener] -= 1
        self._by_address[connection.address] -= 1
        # An entry of zero would stay for every address that ever connected.
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        self._slot.set()

    # -- memory

    def hold_frame(self, connection: Connection, frame_bytes: int) -> None:
        """Set how many bytes of requests this connection holds."""
        if frame_bytes == connection.frame_bytes:
            return
        connection.frame_bytes = frame_bytes

        # A small request of a connection that holds nothing else is not counted: it would not be
        # evicted, and counting it takes longer than reading it.
        if frame_bytes >= EVICTED_BYTES_MIN or connection.held_bytes:
            self._hold(connection)

    def hold_decoded(self, connection: Connection, decoded_bytes: int) -> None:
        """Set what the request takes that this connection decodes or handles; 0 when it is answered."""
        connection.decoded_bytes = decoded_bytes
        self._hold(connection)

    def hold_answer(self, connection: Connection, answer_bytes: int) -> None:
        """Set how many bytes of its response this connection holds."""
        connection.answer_bytes = answer_bytes
        self._hold(connection)

    def note_login(self, connection: Connection, *, is_over: bool) -> None:
        """A client that has yet to log in holds memory in the account of its kind."""
        account = connection.account
        account.hold(connection, 0, trio.current_time())
        connection.account = self._account_of(connection.listener) if is_over else self._strangers
        self._hold(connection)

    def _account_of(self, listener: str) -> Account[Connection]:
        return self._brokers if self._config.is_brokers_own(listener) else self._clients

    def _hold(self, connection: Connection) -> None:
        # A connection that is being closed will release what it holds.
        if connection.is_leaving:
            return
        held_bytes = connection.frame_bytes + connection.decoded_bytes + connection.answer_bytes
        connection.account.hold(connection, held_bytes, trio.current_time())
        if connection.account.is_above_limit:
            self._evict(connection.account)

    def _evict(self, account: Account[Connection]) -> None:
        for worst in account.to_evict(trio.current_time()):
            logger.warning(
                "closing the connection of %s: memory for requests and responses is used up, and of all connections it"
                " has held most for longest: %d bytes of requests, %d of a decoded request, %d of a response",
                worst.address,
                worst.frame_bytes,
                worst.decoded_bytes,
                worst.answer_bytes,
                extra={"peer": worst.address},
            )
            worst.scope.cancel()

    async def sweep(self) -> None:
        """Close connections that are idle, or whose client has hung up: once a second, until cancelled."""
        while True:
            # `due` is computed before the sleep, in which a test clock may jump: the bytes were sent before that.
            due = trio.current_time() + SWEEP_SECONDS
            await trio.sleep(SWEEP_SECONDS)
            self._slot.set()  # `max.connections` may have been raised, or a client that waits has gone
            looked_at = list(self._open)
            while looked_at:
                # Each one leaves the list here: thousands that ended meanwhile would be freed at once with the list.
                connection = looked_at.pop()
                await pause_after()
                connection.spent_seconds *= SPENT_KEPT
                # Other tasks may have run, so a connection of the copied list may have ended.
                if connection in self._open and not connection.is_leaving and not connection.is_at_work:
                    self._look_at(connection, due)
            # A connection that was being served when memory was used up may wait for its client now.
            for account in (self._clients, self._strangers, self._brokers):
                self._evict(account)

    def _look_at(self, connection: Connection, due: float) -> None:
        """Close this connection if its client has gone or is idle."""
        now = trio.current_time()
        connection.note_sent(due)
        max_idle_ms = self._config.connections_max_idle_ms
        # A waiting request does not read from the socket, so a hang-up stays unnoticed until the request ends.
        if connection.has_rested_long(now) and connection.stream.has_hung_up():
            logger.debug("closing the connection of %s, which has gone while its request waits", connection.address)
        elif max_idle_ms >= 0 and connection.progress_at < now - max_idle_ms / 1000:
            logger.debug("closing the idle connection of %s", connection.address)
        else:
            return
        connection.scope.cancel()

    def finish(self) -> None:
        """Close every connection, as the broker stops. A request that is being handled is answered first."""
        self.finishing = True
        for connection in list(self._open):
            # A Fetch that waits for records changes nothing; waiting for it would only delay the stop.
            if not connection.busy or (connection.api_key == FETCH and not connection.sending):
                connection.scope.cancel()
