"""Connections: one task each, which reads a frame, handles the request, sends the response, and begins again.

As in Kafka, responses leave in the order of the requests, and a long poll delays its own connection only. A Produce
that waits for its acknowledgement does not delay the Produce behind it (`pipelined_responses.py`).

`Connections` holds what all connections share: the limits by number, the memory for requests and for responses, and the
sweep that closes idle and stalled connections.
"""

import logging
import math
from typing import TYPE_CHECKING

import trio

from barnabas.broker.call import ANONYMOUS, Broker, Call
from barnabas.broker.net import ConnectionLost, Stream
from barnabas.broker.pacing import TURN_SECONDS, calling_before_wait, pause_after
from barnabas.broker.replication.waiting import DelayedResponse, Pieces
from barnabas.broker.response_memory import MOVED_BYTES, ResponseMemory, laggards
from barnabas.broker.resting import asker
from barnabas.broker.server.decoding import Charged, DecodedMemory
from barnabas.broker.server.dispatch import answer_unsupported, respond
from barnabas.broker.server.pipelined_responses import PIPELINED_MAX, PipelinedResponses, is_pipelined
from barnabas.storage.disk import FileSlice, StorageError
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.frame import FrameReader, UnsupportedRequest, read_request_header

if TYPE_CHECKING:
    from barnabas.broker.config.live import BrokerConfig

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 1 << 16
LARGE_FRAME_RECEIVE_BYTES = 1 << 18  # once the length of a frame says that it is large: fewer wake-ups
NO_REQUEST, FETCH = -1, 1  # API keys
STALLED_SECONDS = 30.0  # without a byte of an unfinished frame, while memory for requests is used up
TOKEN_SECONDS = 1.0  # a connection that sends nothing keeps others from reading for at most this time
TOKEN_BYTES = 1 << 14  # received bytes that renew the token; a slow trickle does not
SWEEP_SECONDS = 1.0
HANG_UP_COST = 10  # rows (`pacing.py`) of a look for a hang-up
SENT_AT_A_TIME_BYTES = 1 << 18  # between two checkpoints
JOINED_BYTES_MAX = 4096  # of a response that waits for those of the next requests


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
        "listener",
        "moved_at",
        "moved_bytes",
        "muted_until",
        "number",
        "pipelined",
        "progress_at",
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
        self.scope = trio.CancelScope()
        self.progress_at = trio.current_time()
        self.held_bytes = 0
        self.waiting = False  # for memory in `room`: the broker delays it, so it is not stalled
        self.pipelined = PipelinedResponses(stream)
        self.unsent = b""  # responses that leave with those of the next requests
        self.busy = False  # a request is being handled, or a response waits to be sent
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
        self._accepted = 0
        self._held_bytes = 0
        self.decoded = DecodedMemory()
        self._token_holder: Connection | None = None  # may read although memory is used up
        self._token_ends_at = 0.0  # from then on the first in the queue may take the token
        self._token_bytes = 0  # what the holder held when it got the token, or when it was renewed
        self._queue: dict[Connection, trio.Event] = {}  # connections that wait for memory, in order of arrival
        self._slot = trio.Event()  # set when a connection ends, for those that wait in `admit`

    def __len__(self) -> int:
        return len(self._open)

    async def admit(self, stream: Stream, listener: str) -> Connection | None:
        """Count a new connection; None when its address has too many. Waits while `max.connections` are open."""
        is_brokers_own = self._is_brokers_own(listener)
        while not (full := self._has_too_many(stream.peer_address)) and len(self._open) >= self._config.max_connections:
            # With a listener of their own, brokers do not wait: clients could keep them from replicating (KIP-402).
            if is_brokers_own:
                self._close_quietest_client()
                break
            # One event wakes every waiter, and each checks the limits again: others may have taken the slot.
            if self._slot.is_set():
                self._slot = trio.Event()
            await self._slot.wait()
        if full:
            return None
        self._accepted += 1
        connection = Connection(stream, listener, self._accepted)
        self._open[connection] = None
        self._by_address[connection.address] = self._by_address.get(connection.address, 0) + 1
        return connection

    def _has_too_many(self, address: str) -> bool:
        allowed = self._config.connection_limits.get(address, self._config.max_connections_per_ip)
        return self._by_address.get(address, 0) >= allowed

    def _is_brokers_own(self, listener: str) -> bool:
        # With one listener alone, brokers cannot be distinguished from clients: there is no authentication.
        return listener == self._config.inter_broker_listener and len(self._config.listener_endpoints) > 1

    def _close_quietest_client(self) -> None:
        # A request that is being handled may be in the middle of several writes: it is left to end, as in the sweep.
        clients = [
            each
            for each in self._open
            if not (self._is_brokers_own(each.listener) or each.is_leaving or each.is_at_work)
        ]
        if clients:
            quietest = min(clients, key=lambda each: each.progress_at)
            logger.info("closing the connection of %s: max.connections is reached", quietest.address)
            quietest.scope.cancel()

    def leave(self, connection: Connection) -> None:
        """Remove a connection that has ended, and release all the memory that it held."""
        self.hold(connection, 0)
        self.decoded.hold(connection, 0)
        self.hold_answer(connection, 0)
        del self._open[connection]
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
        elif not is_next or (token_holder is not None and (token_holder.busy or now < self._token_ends_at)):
            return False
        self._token_holder = connection
        self._token_ends_at, self._token_bytes = now + TOKEN_SECONDS, connection.held_bytes
        return True

    async def _look_again(self, connection: Connection) -> None:
        """Sleep until this connection may have become able to read."""
        if self._queue[connection].is_set():
            self._queue[connection] = trio.Event()
        # Only the first in the queue can take the token, so only it sets a timer for the token's end. A busy holder
        # keeps the token until its request is answered; `hold` wakes the first then.
        is_first = next(iter(self._queue)) is connection
        is_timed = is_first and self._token_holder is not None and not self._token_holder.busy
        with trio.move_on_at(self._token_ends_at if is_timed else math.inf):
            await self._queue[connection].wait()

    def _wake_first(self) -> None:
        if self._queue:
            next(iter(self._queue.values())).set()

    async def sweep(self) -> None:
        """Close connections that are idle or stalled, or whose client has hung up: once a second, until cancelled."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            self._slot.set()  # `max.connections` may have been raised
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


async def serve_connection(broker: Broker, connections: Connections, listener: str, stream: Stream) -> None:
    """A connection's task: until the client closes it, breaks the protocol, or the sweep closes it."""
    try:
        throttled_ms = broker.quotas.note_connection(stream.peer_address)
        # KIP-612: a client that connects too often is not answered, and cannot try again at once.
        if throttled_ms:
            await trio.sleep(throttled_ms / 1000)
            return
        connection = await connections.admit(stream, listener)
        if connection is None:
            about = {"peer": stream.peer_address}
            logger.info("refusing a connection of %s: max.connections.per.ip is reached", about["peer"], extra=about)
            return
        # From here on `resting` counts the waits of this task's requests at this connection.
        asker.set(connection)
        try:
            with connection.scope:
                await _serve_requests(broker, connections, connection)
        except ConnectionLost:
            logger.debug("%s went away", connection.address)
        except StorageError as error:  # of a file that was being sent
            broker.replicas.file_failed(error)
        except ProtocolViolation as violation:
            about = {"peer": connection.address}
            logger.warning("closing the connection of %s: %s", connection.address, violation, extra=about)
        # A bug, or MemoryError: it ends this connection, and no other.
        except Exception:
            logger.exception("closing the connection of %s", connection.address, extra={"peer": connection.address})
        finally:
            connection.send_unsent()  # the request behind them may have broken the protocol
            connection.pipelined.abandon()
            connections.leave(connection)
    finally:
        stream.close()


async def _serve_requests(broker: Broker, connections: Connections, connection: Connection) -> None:
    reader, pipelined = FrameReader(broker.config.socket_request_max_bytes), connection.pipelined
    delayed = pipelined.responses
    charged, turn_began = Charged(connections.decoded, connection), trio.current_time()
    while not connections.finishing:
        frame = reader.next_frame()
        while frame is None:
            wanted_bytes = LARGE_FRAME_RECEIVE_BYTES if reader.needed_bytes > RECEIVE_BYTES else RECEIVE_BYTES
            connection.progress_at = trio.current_time()
            # A busy client's bytes are there already, and a wait costs more than the receive. But a client that always
            # has bytes ready must not keep the loop.
            is_my_turn = connection.progress_at - turn_began <= TURN_SECONDS and not delayed
            data = connection.stream.receive_now(wanted_bytes) if is_my_turn else None
            if data is None:
                if connection.unsent:
                    await _send(connections, connection, [])
                data = await _receive(connections, connection, wanted_bytes)
                turn_began = connection.progress_at = trio.current_time()
            if not data:
                return await _send_pipelined(connections, connection)
            reader.feed(data)
            frame = reader.next_frame()
            # A whole frame never waits for memory: handling it is what releases its bytes.
            if frame is None:
                connections.hold(connection, reader.pending_bytes)
                await connections.room(connection)
        # Requests are handled in order; only a Produce may begin while an earlier one waits for its acknowledgement.
        while delayed and (len(delayed) >= PIPELINED_MAX or not is_pipelined(frame)):
            await _send_ready(connections, connection)
        # Before the handling: a request that may change something is cancelled neither by `finish` nor by the sweep.
        connection.busy = True
        connections.hold(connection, len(frame) + reader.pending_bytes)
        handling = _answer_frame(broker, connection, charged, frame)
        answer = await (calling_before_wait(handling, connection.send_unsent) if connection.unsent else handling)
        frame = None  # its memory is free while the response is sent, which may take long
        connections.hold(connection, reader.pending_bytes)  # later frames may be in the buffer already
        # Responses leave in the order of the requests: one that is ready queues behind those that wait.
        if isinstance(answer, DelayedResponse) or (delayed and answer):
            pipelined.add(answer)
        elif answer:
            following = reader.peek()
            # A small response waits while the next Produce is handled, so that both leave by one system call.
            if following is not None and is_pipelined(following) and (small := _small(answer)) is not None:
                connection.unsent += small
            else:
                await _send(connections, connection, answer)
        if connection.muted_until:
            await _sit_out(connections, connection)
        connection.busy = bool(delayed)
        # Frames that are already in the buffer need no receive, and so no checkpoint: without this one, a client that
        # sends many small requests at once would keep the loop.
        if trio.current_time() - turn_began > TURN_SECONDS:
            connection.send_unsent()
            await trio.lowlevel.checkpoint()
            turn_began = trio.current_time()
    # `finish` has not cancelled this connection, which was busy: the Produce requests it accepted are answered.
    await _send_pipelined(connections, connection)


async def _sit_out(connections: Connections, connection: Connection) -> None:
    """Send all responses that are owed, then wait until the connection may be read again."""
    await _send_pipelined(connections, connection)
    # `finish` need not wait for the end of the time, and neither does the check for idle connections.
    connection.busy = False
    if not connections.finishing:
        await trio.sleep_until(connection.muted_until)
    connection.muted_until = 0.0


async def _receive(connections: Connections, connection: Connection, max_bytes: int) -> bytes:
    """The next bytes of the client; b"" at the end of the stream, and when the broker stops.

    Delayed responses are sent meanwhile, as they become ready.
    """
    while connection.pipelined.responses:
        ready = await connection.pipelined.take_ready()
        if ready:
            await _send(connections, connection, ready)
        else:
            data = await connection.pipelined.receive(max_bytes)
            if data is not None:
                return data
    # `finish` cancels connections that are not busy. Between this check and `busy = False` no other task runs, so a
    # stop either is seen here or cancels the receive.
    if connections.finishing:
        return b""
    connection.busy = False
    return await connection.stream.receive_some(max_bytes)


async def _send_pipelined(connections: Connections, connection: Connection) -> None:
    if connection.unsent:
        await _send(connections, connection, [])
    while connection.pipelined.responses:
        await _send_ready(connections, connection)


async def _send_ready(connections: Connections, connection: Connection) -> None:
    """Wait until the first delayed response is ready, and send it with those behind it that are ready too."""
    ready = await connection.pipelined.take_ready()
    if ready:
        await _send(connections, connection, ready)
    # The wait may be long, so earlier responses that were to leave with the next one leave now.
    else:
        connection.send_unsent()
        await connection.pipelined.wait_for_ready()


async def _answer_frame(
    broker: Broker, connection: Connection, charged: Charged, frame: memoryview
) -> Pieces | DelayedResponse:
    """The pieces of the response; none for acks=0. ProtocolViolation when the frame is no request."""
    try:
        header = read_request_header(frame)
    # Raised again unless it is an ApiVersions, with which a client of any version begins.
    except UnsupportedRequest as unsupported:
        return answer_unsupported(unsupported)
    # For `finish`: a Fetch that waits is not answered.
    connection.api_key = header.api_key
    call = Call(
        api_key=header.api_key,
        version=header.api_version,
        client_id=header.client_id,
        principal=ANONYMOUS,
        client_address=connection.address,
        listener=connection.listener,
        connection=connection,
        authorizer=None if broker.authorization is None else broker.authorization.authorizer,
    )
    return await respond(broker, call, header, frame, charged)


async def _send(connections: Connections, connection: Connection, pieces: Pieces) -> None:
    """Send what is unsent, then the pieces. They are freed, and file slices released, also after an error."""
    connection.progress_at = trio.current_time()
    if connection.unsent:
        small = _small(pieces)
        if small is None:
            pieces.insert(0, connection.unsent)
        else:
            pieces = [connection.unsent + small]
        connection.unsent = b""
    # Not empty: callers pass no pieces only if there is `unsent`.
    first = pieces[0]
    # The usual response fits into the socket's buffer: one system call, no checkpoint, no accounting.
    if len(pieces) == 1 and not isinstance(first, FileSlice):
        sent_bytes = connection.stream.send_now(first)
        if sent_bytes == len(first):
            return
        pieces[0] = memoryview(first)[sent_bytes:]
    # From here on the time depends on the client. `sending` lets the sweep close the connection as idle; the memory
    # counts against ANSWER_BYTES_ALL, unless it is as little as that of a Fetch response beside its file slices.
    connection.sending = True
    connection.answer_began_at = connection.moved_at = connection.progress_at
    held_bytes = 0
    for piece in pieces:
        if not isinstance(piece, FileSlice):
            held_bytes += len(piece)
    if held_bytes > JOINED_BYTES_MAX:
        connections.hold_answer(connection, held_bytes)
    await _send_pieces(connections, connection, pieces)
    # Not after an error: the connection ends, and until then the sweep may close it.
    connection.sending = False


async def _send_pieces(connections: Connections, connection: Connection, pieces: Pieces) -> None:
    """Send each piece and free it; those that are not sent are freed, too."""
    stream, pause_at_bytes = connection.stream, connection.stream.sent_bytes + SENT_AT_A_TIME_BYTES
    pieces.reverse()  # so that `del pieces[-1]` frees each piece once it is sent
    try:
        while pieces:
            # A fast client takes many slices without a wait.
            if stream.sent_bytes >= pause_at_bytes:
                await trio.lowlevel.checkpoint()
                pause_at_bytes = stream.sent_bytes + SENT_AT_A_TIME_BYTES
            piece = pieces[-1]
            if isinstance(piece, FileSlice):
                await stream.send_slice(piece)
                piece.release()
            else:
                await stream.send_all(piece)
                if connection.answer_bytes:
                    connections.hold_answer(connection, connection.answer_bytes - len(piece))
            del piece, pieces[-1]
    finally:
        # A slice that is never sent would keep the descriptor of its segment open.
        for left in pieces:
            if isinstance(left, FileSlice):
                left.release()


def _small(pieces: Pieces) -> bytes | bytearray | memoryview | None:
    """The one piece of a response that is small enough to be copied; None of others."""
    piece = pieces[0] if len(pieces) == 1 else None
    return None if piece is None or isinstance(piece, FileSlice) or len(piece) > JOINED_BYTES_MAX else piece
