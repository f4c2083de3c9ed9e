"""What all connections share: limits by number, memory for requests and responses, and the sweep that closes some.

`Connection` is the state of one of them, as limits and the sweep need it; `connection.py` serves it.
"""

import logging
import math
from typing import TYPE_CHECKING

import trio

from barnabas.broker.call import ANONYMOUS
from barnabas.broker.net import ConnectionLost, Stream
from barnabas.broker.pacing import pause_after
from barnabas.broker.response_memory import MOVED_BYTES, ResponseMemory, laggards
from barnabas.broker.server.decoding import DecodedMemory
from barnabas.broker.server.pipelined_responses import PipelinedResponses

if TYPE_CHECKING:
    from barnabas.broker.config.live import BrokerConfig
    from barnabas.broker.server.login import Login

logger = logging.getLogger(__name__)

NO_REQUEST, FETCH = -1, 1  # API keys
STALLED_SECONDS = 30.0  # without a byte of an unfinished frame, while memory for requests is used up
TOKEN_SECONDS = 1.0  # a connection that sends nothing keeps others from reading for at most this time
TOKEN_BYTES = 1 << 14  # received bytes that renew the token; a slow trickle does not
SWEEP_SECONDS = 1.0
LOGIN_BYTES_MAX = 1 << 26  # of unfinished frames, of all clients that have not logged in
HANG_UP_COST = 10  # rows (`pacing.py`) of a look for a hang-up


class Connection:
    """The state of one connection, as limits and the sweep need it."""

    # There may be tens of thousands of connections, so an idle one has to be small.
    __slots__ = (
        "address",
        "answer_began_at",
        "answer_bytes",
        "api_key",
        "busy",
        "decoded_bytes",
        "held_bytes",
        "is_handling",
        "listener",
        "login",
        "login_bytes",
        "moved_at",
        "moved_bytes",
        "muted_until",
        "number",
        "pipelined",
        "principal",
        "progress_at",
        "protocol",
        "rests",
        "scope",
        "sending",
        "sent_bytes",
        "stream",
        "unsent",
        "waiting",
    )

    def __init__(self, stream: Stream, listener: str, number: int) -> None:
        self.stream = stream
        self.number = number  # in the order in which they are accepted
        self.listener = listener
        self.address = stream.peer_address
        # Set by `entry.py` on a listener with TLS or SASL, with `stream` and `pipelined` in the case of TLS.
        self.protocol, self.principal = "PLAINTEXT", ANONYMOUS
        self.login: Login | None = None  # with SASL
        self.scope = trio.CancelScope()
        self.progress_at = trio.current_time()
        self.held_bytes = 0
        self.login_bytes = 0  # of an unfinished frame before it has logged in; no part of `held_bytes`
        self.waiting = False  # for memory in `room`: the broker delays it, so it is not stalled
        self.pipelined = PipelinedResponses(stream)
        self.unsent = b""  # responses that leave with those of the next requests
        self.busy = False  # a request is being handled, or a response waits to be sent
        self.is_handling = False  # a request is being handled: delayed responses alone do not count
        self.api_key = NO_REQUEST  # of the latest request
        self.rests = 0  # above 0 while the request only waits, e.g. a long poll (`resting.py`)
        self.sending = False  # a response is being sent: how long that takes depends on the client
        self.sent_bytes = 0  # the stream's count at the last sweep
        self.decoded_bytes = 0  # memory of the decoded request, if it is large
        self.answer_bytes = 0  # memory of the response that is being sent; file slices do not count
        self.answer_began_at = self.moved_at = 0.0  # when sending began; when MOVED_BYTES had last been sent
        self.moved_bytes = 0  # the stream's count at `moved_at`
        self.muted_until = 0.0  # a quota is exceeded: no request is read until then, on trio's clock

    def send_unsent(self) -> None:
        """Send the responses that wait for others, as far as the network takes them now."""
        # Never waits: this may run in the middle of the next request, which must not depend on a slow client. What
        # the network does not take leaves with the next response.
        if self.unsent:
            try:
                sent_bytes = self.stream.send_now(self.unsent)
            except ConnectionLost:
                sent_bytes = 0  # the next receive or send reports it
            self.unsent = self.unsent[sent_bytes:]

    def note_sent(self, now: float) -> None:
        """Called by the sweep: a connection that sent bytes since the last sweep is not idle."""
        if self.sent_bytes != self.stream.sent_bytes:
            self.sent_bytes, self.progress_at = self.stream.sent_bytes, now
        if self.sent_bytes >= self.moved_bytes + MOVED_BYTES:
            self.moved_bytes, self.moved_at = self.sent_bytes, now

    def has_rested_long(self, now: float) -> bool:
        """Whether its request has waited for more than SWEEP_SECONDS."""
        # Most long polls end sooner; the system call that detects a hang-up is spent on the others only.
        return self.rests > 0 and self.progress_at < now - SWEEP_SECONDS

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection. A system call."""
        return self.stream.has_hung_up()

    @property
    def is_at_work(self) -> bool:
        """Whether its request is being handled. That ends without the client, so the sweep does not close it."""
        return self.busy and not self.sending and not self.rests

    @property
    def is_leaving(self) -> bool:
        """Whether it is being closed."""
        return self.scope.cancel_called

    def is_hoarding(self, now: float) -> bool:
        """Whether its decoded request is large and has done nothing but wait for STALLED_SECONDS."""
        return self.decoded_bytes > 0 and self.rests > 0 and self.progress_at < now - STALLED_SECONDS

    def is_stalled(self, now: float) -> bool:
        """Whether it holds a part of a frame, and its client has sent nothing for STALLED_SECONDS."""
        return self.held_bytes > 0 and not self.waiting and self.progress_at < now - STALLED_SECONDS


class Connections:
    """All connections of a broker: limits by number and by bytes, and a sweep once a second.

    Memory for requests: bytes of unfinished frames and of frames being handled count against
    `queued.max.request.bytes`, for all connections together. At the limit connections wait in `room` in a queue. One of
    them, the holder of the token, may read on above the limit.
    """

    def __init__(self, config: "BrokerConfig", responses: ResponseMemory) -> None:
        self.finishing = False
        self._config = config
        self._responses = responses
        self._open: dict[Connection, None] = {}
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._accepted = 0
        self._held_bytes = 0
        self.decoded = DecodedMemory()
        self._token_holder: Connection | None = None  # may read although memory is used up
        self._token_ends_at = 0.0  # from then on the first in the queue may take the token
        self._token_bytes = 0  # what the holder held when it got the token, or when it was renewed
        self._queue: dict[Connection, trio.Event] = {}  # connections that wait for memory, in order of arrival
        self._slot = trio.Event()  # set when a connection ends, for those that wait in `admit`
        self._waiting: dict[str, int] = {}  # how many wait in `admit`, by listener
        self._login_bytes = 0
        self._logins: dict[Connection, None] = {}  # which hold login bytes, the longest first

    def __len__(self) -> int:
        return len(self._open)

    async def admit(self, stream: Stream, listener: str) -> Connection | str:
        """Count a new connection, or say why it is refused. Waits while `max.connections` are open."""
        while not (full := self._has_too_many(stream.peer_address)) and not self._has_slot(listener):
            # Those that wait use file descriptors, of which brokers need some too. Kafka lets the kernel keep them.
            if self._waiting.get(listener, 0) >= self._config.socket_listen_backlog_size:
                return "max.connections is reached, and socket.listen.backlog.size wait already"
            await self._wait_for_slot(listener)
            if stream.has_hung_up():
                return "its client has gone while it waited for max.connections"
        if full:
            return "max.connections.per.ip is reached"
        # Only at the listener of the brokers: clients could keep them from replicating (KIP-402).
        if len(self._open) >= self._config.max_connections:
            self._close_quietest_client()
        self._accepted += 1
        connection = Connection(stream, listener, self._accepted)
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
        self.hold(connection, 0)
        self.hold_login(connection, 0)
        self.decoded.hold(connection, 0)
        self.hold_answer(connection, 0)
        del self._open[connection]
        self._by_listener[connection.listener] -= 1
        self._by_address[connection.address] -= 1
        # An entry of zero would stay for every address that ever connected.
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        self._slot.set()

    @property
    def _is_full(self) -> bool:
        return self._held_bytes >= self._config.queued_max_request_bytes

    def hold(self, connection: Connection, held_bytes: int) -> None:
        """Set how many bytes of requests this connection holds; wakes the next connection in `room` if it may read."""
        self._held_bytes += held_bytes - connection.held_bytes
        if held_bytes < connection.held_bytes and self._token_holder is connection:
            self._token_holder = None  # its frame is handled, or it was closed: the next one may read
        connection.held_bytes = held_bytes
        # One wake-up at a time: a connection that leaves the queue wakes the next one in `room`.
        if self._queue and (self._token_holder is None or not self._is_full):
            self._wake_first()

    def hold_login(self, connection: Connection, login_bytes: int) -> None:
        """Set how many bytes of an unfinished frame this connection holds, whose client has not logged in.

        Above the limit the connection that has held such bytes longest is closed.
        """
        # Not as `hold`: strangers would use up the memory of those that have logged in, and make them wait.
        self._login_bytes += login_bytes - connection.login_bytes
        connection.login_bytes = login_bytes
        if login_bytes:
            self._logins[connection] = None
        else:
            self._logins.pop(connection, None)
        while self._login_bytes > LOGIN_BYTES_MAX:
            slowest = next(iter(self._logins))
            logger.warning(
                "closing the connection of %s: others log in, and it does not go on",
                slowest.address,
                extra={"peer": slowest.address},
            )
            slowest.scope.cancel()
            self.hold_login(slowest, 0)

    def hold_answer(self, connection: Connection, answer_bytes: int) -> None:
        """Set how many bytes of its response this connection holds; above the limit laggards are closed."""
        # Releasing memory cannot exceed the limit, so it needs no look at all connections.
        is_more = answer_bytes > connection.answer_bytes
        self._responses.hold(connection, answer_bytes)
        if is_more and self._responses.is_used_up:
            self._close_laggards()

    def _close_laggards(self) -> None:
        # A cancelled connection releases its memory when its task ends. `laggards` counts that as released, so further
        # calls before do not close more connections than necessary.
        for connection in list(laggards(self._open, trio.current_time())):
            logger.warning(
                "closing the connection of %s, which does not read %d bytes of its answer: memory for answers is used"
                " up",
                connection.address,
                connection.answer_bytes,
                extra={"peer": connection.address},
            )
            connection.scope.cancel()

    async def room(self, connection: Connection) -> None:
        """Wait until the bytes held by all connections are below the limit, or this one may go above it.

        Called with an unfinished frame. Without the token all connections could wait here for each other, each with a
        part of a frame and none with a whole one.
        """
        if self._is_full and not self._may_go_above(connection):
            connection.waiting = True
            self._queue[connection] = trio.Event()
            try:
                while self._is_full and not self._may_go_above(connection):
                    await self._look_again(connection)
            # Also on cancellation: a closed connection at the head of the queue would block those behind it.
            finally:
                connection.waiting = False
                del self._queue[connection]
                self._wake_first()  # another one is first now, and has to watch the token's time
        # The wait was the broker's doing, so it does not count towards STALLED_SECONDS.
        connection.progress_at = trio.current_time()

    def _may_go_above(self, connection: Connection) -> bool:
        """Whether this connection has the token, or gets it now: a free token goes to the first in the queue."""
        now = trio.current_time()
        token_holder = self._token_holder
        is_next = not self._queue or next(iter(self._queue)) is connection
        if token_holder is connection:
            # With less than TOKEN_BYTES arrived, the token ends at its time, unless this connection is the next one
            # anyway. With more, it is renewed below.
            if connection.held_bytes < self._token_bytes + TOKEN_BYTES:
                return now < self._token_ends_at or is_next
        # A holder whose request is being handled will free its bytes without its client, so it keeps the token.
        elif not is_next or (token_holder is not None and (token_holder.is_handling or now < self._token_ends_at)):
            return False
        self._token_holder = connection
        self._token_ends_at, self._token_bytes = now + TOKEN_SECONDS, connection.held_bytes
        return True

    async def _look_again(self, connection: Connection) -> None:
        """Sleep until this connection may have become able to read."""
        if self._queue[connection].is_set():
            self._queue[connection] = trio.Event()
        # Only the first in the queue can take the token, so only it sets a timer for the token's end. A holder whose
        # request is being handled keeps the token until then; `hold` wakes the first.
        is_first = next(iter(self._queue)) is connection
        is_timed = is_first and self._token_holder is not None and not self._token_holder.is_handling
        with trio.move_on_at(self._token_ends_at if is_timed else math.inf):
            await self._queue[connection].wait()

    def _wake_first(self) -> None:
        if self._queue:
            next(iter(self._queue.values())).set()

    async def sweep(self) -> None:
        """Close connections that are idle or stalled, or whose client has hung up: once a second, until cancelled."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            self._slot.set()  # `max.connections` may have been raised, or a client that waits has gone
            for connection in list(self._open):
                # A connection that rests costs a system call, and a cancellation if its client has gone.
                await pause_after(HANG_UP_COST if connection.has_rested_long(trio.current_time()) else 1)
                # Other tasks may have run, so a connection of the copied list may have ended.
                if connection in self._open and not connection.is_leaving and not connection.is_at_work:
                    self._look_at(connection)
            # A client becomes a laggard as time passes, also while no response is added to the memory.
            if self._responses.is_used_up:
                self._close_laggards()

    def _look_at(self, connection: Connection) -> None:
        """Close this connection if its client has gone, is idle, or holds memory that others wait for."""
        now = trio.current_time()
        connection.note_sent(now)
        max_idle_ms = self._config.connections_max_idle_ms
        # A waiting request does not read from the socket, so a hang-up stays unnoticed until the request ends.
        if connection.has_rested_long(now) and connection.stream.has_hung_up():
            logger.debug("closing the connection of %s, which has gone while its request waits", connection.address)
        elif self.decoded.is_awaited and connection.is_hoarding(now):
            logger.warning(
                "closing the connection of %s: its request waits, and takes %d bytes that others wait for",
                connection.address,
                connection.decoded_bytes,
                extra={"peer": connection.address},
            )
        elif max_idle_ms >= 0 and connection.progress_at < now - max_idle_ms / 1000:
            logger.debug("closing the idle connection of %s", connection.address)
        # A slow frame costs nothing while there is memory; then only the idle limit applies to it.
        elif self._is_full and connection.is_stalled(now):
            logger.warning(
                "closing the connection of %s: it holds %d bytes of a frame that does not go on, and memory"
                " for requests is used up",
                connection.address,
                connection.held_bytes,
                extra={"peer": connection.address},
            )
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
