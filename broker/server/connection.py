"""Connections: one task each, which reads a frame, handles the request, sends the response, and begins again.

As in Kafka, responses leave in the order of the requests, and a long poll delays its own connection only. A Produce
that waits for its acknowledgement does not delay the Produce behind it (`pipelined_responses.py`).

What all connections share is in `connections.py`. On a listener with TLS or SASL the handshake and the login come
before the first request (`entry.py`).
"""

import logging
from contextlib import suppress
from typing import TypeGuard

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.interception import Dropped, Seen
from barnabas.broker.now.waiting import WaitingFetch
from barnabas.broker.server.connections import Connection, Connections
from barnabas.broker.server.decoding import Charged
from barnabas.broker.server.dispatch import answer_unsupported, respond, respond_timed
from barnabas.broker.server.pipelined_responses import PIPELINED_MAX, is_pipelined
from barnabas.broker.server.sending import send, send_at_once, send_on, small_piece
from barnabas.storage.disk import StorageError
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.frame import FrameReader, UnsupportedRequest, read_request_header
from barnabas.world.net import ConnectionLost, Stream
from barnabas.world.pacing import calling_before_wait, pace_of_run
from barnabas.world.resting import asker
from barnabas.world.waiting import PendingResponse, Pieces

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 1 << 16
LARGE_FRAME_RECEIVE_BYTES = 1 << 18  # once the length of a frame says that it is large: fewer wake-ups


async def serve_connection(broker: Broker, connections: Connections, listener: str, stream: Stream) -> None:
    """A connection's task: until the client closes it, breaks the protocol, or the sweep closes it."""
    try:
        # A connection counts as refused before it costs anything, and as accepted once it may send requests.
        counted = broker.tally.listeners[listener]
        if not await broker.quotas.pace(listener):
            counted.refused += 1
            return
        throttled_ms = broker.quotas.note_connection(stream.peer_address)

        # KIP-612: a client that connects too often is not answered, and cannot try again at once.
        if throttled_ms:
            counted.refused += 1
            await trio.sleep(throttled_ms / 1000)
            return
        connection = await connections.admit(stream, listener)
        if isinstance(connection, str):
            counted.refused += 1
            about = {"peer": stream.peer_address}
            logger.info("refusing a connection of %s: %s", about["peer"], connection, extra=about)
            return

        counted.accepted += 1
        # `resting` counts the waits of this task's requests at this connection from here on.
        asker.set(connection)
        try:
            with connection.scope:
                try:
                    await _serve_requests(broker, connections, connection)
                except (ProtocolViolation, Dropped):
                    await _answer_those_before(connections, connection)
                    raise
        except ConnectionLost:
            logger.debug("%s went away", connection.address)
        except StorageError as error:  # of a file that was being sent
            broker.replicas.file_failed(error)
        except Dropped as dropped:
            with suppress(ConnectionLost):
                connection.stream.send_now(dropped.sent)
        except ProtocolViolation as violation:
            about = {"peer": connection.address}
            logger.warning("closing the connection of %s: %s", connection.address, violation, extra=about)
        # This is a bug, or MemoryError: it ends this connection, and no other.
        except Exception:
            logger.exception("closing the connection of %s", connection.address, extra={"peer": connection.address})
        finally:
            connection.send_unsent()  # responses still wait here if the request behind them broke the protocol
            connection.pipelined.abandon()
            connections.leave(connection)
            counted.closed += 1
            connection.stream.close()  # a TLS stream notifies the client
    finally:
        stream.close()


async def _serve_requests(broker: Broker, connections: Connections, connection: Connection) -> None:
    reader = await _enter(broker, connections, connection)
    delayed = connection.pipelined.responses
    charged = Charged(connections, connection, broker.turns.of_clients)
    pace = pace_of_run()
    while not connections.finishing:
        frame = reader.next_frame()
        while frame is None:
            connection.progress_at = trio.current_time()

            # A busy client's bytes are there already, and a wait costs more than the receive. But a client that always
            # has bytes ready must not keep the loop.
            is_my_turn = not pace.is_over(rows=0) and not delayed
            received_bytes = _take_arrived(connection.stream, reader) if is_my_turn else None
            if received_bytes is None:
                if connection.unsent:
                    await send(connections, connection, [])
                received_bytes = await _receive(connections, connection, reader)
                connection.progress_at = trio.current_time()
            if not received_bytes:
                return await _send_pipelined(connections, connection)
            frame = reader.next_frame()

        # Requests are handled in order; only a Produce may begin while an earlier one waits for its acknowledgement.
        while delayed and (len(delayed) >= PIPELINED_MAX or not is_pipelined(frame)):
            await _send_ready(connections, connection)
        if connection.login is not None and await _logs_in_again(broker, connections, connection, reader, frame):
            continue

        # This is set before the handling: a request that may change something is cancelled neither
        # by `finish` nor by the sweep.
        connection.busy = connection.is_handling = True
        request_bytes = len(frame)
        began = pace.now()
        answer = connection.shapes.answer(broker, frame, began)
        if isinstance(answer, (list, PendingResponse)):
            connection.note_answered()
        else:
            # The memory is counted only here: a request that is answered in one step holds it in this step alone.
            connections.hold_frame(connection, request_bytes + reader.pending_bytes)
            handling = _go_on(broker, connection, charged, frame, began, answer)
            answer = await (calling_before_wait(handling, connection.send_unsent) if connection.unsent else handling)
        frame = None  # its memory is free while the response is sent, which may take long
        connections.hold_frame(connection, reader.pending_bytes)  # later frames may be in the buffer already

        if answer and _is_to_be_sent(answer, connection, reader) and not send_at_once(connection, answer):
            await send_on(connections, connection, answer)
        ended = pace.now()
        if connection.tally is not None and not isinstance(answer, PendingResponse):
            connection.tally.answered(
                connection.request_version, request_bytes, ended - began, connection.rested_seconds
            )
        if connection.muted_until:
            await _sit_out(connections, connection)
        connection.busy, connection.is_handling = bool(delayed), False

        # Frames that are already in the buffer need no receive, and so no checkpoint: without this one, a client that
        # sends many small requests at once would keep the loop.
        if connection.gives_way or pace.is_over_at(ended):
            connection.send_unsent()
            await _give_way(connection)

    # `finish` has not cancelled this connection, which was busy: the Produce requests it accepted are answered.
    await _send_pipelined(connections, connection)


def _is_to_be_sent(answer: Pieces | PendingResponse, connection: Connection, reader: FrameReader) -> TypeGuard[Pieces]:
    """Whether a response is to be sent now; otherwise it is queued, or leaves with the next one."""
    # Responses leave in the order of the requests: one that is ready queues behind those that wait.
    if isinstance(answer, PendingResponse) or connection.pipelined.responses:
        connection.pipelined.add(answer)
        return False
    following = reader.peek()
    if following is None or not is_pipelined(following):
        return True

    # A small response waits while the next Produce is handled, so that both leave by one system call.
    small = small_piece(answer)
    if small is not None:
        connection.unsent += small
    return small is None


async def _give_way(connection: Connection) -> None:
    """Let other tasks run; those that were woken since the last call have run when it returns."""
    await pace_of_run().give_way()
    # Trio runs the tasks that are ready in any order: after one checkpoint, those that were woken may not have run yet.
    if connection.gives_way:
        connection.gives_way = False
        await trio.lowlevel.checkpoint()


async def _enter(broker: Broker, connections: Connections, connection: Connection) -> FrameReader:
    """What a client must do before its first request; what reads its frames."""
    secured = None if broker.secured is None else broker.secured.get(connection.listener)
    if secured is None:
        return FrameReader(broker.config.socket_request_max_bytes)
    # The import is here, because most brokers have neither TLS nor SASL, and start-up must be fast.
    from barnabas.broker.server.entry import enter

    return await enter(broker, secured, connections, connection)


async def _logs_in_again(
    broker: Broker, connections: Connections, connection: Connection, reader: FrameReader, frame: memoryview
) -> bool:
    """Whether the frame began another login, which is complete now. ConnectionLost if the session has ended."""
    from barnabas.broker.server.entry import log_in_again, must_be_answered_first

    if must_be_answered_first(connection, frame):
        await _send_pipelined(connections, connection)
        # From here on the connection waits for its client, and may be closed as any other that does.
        connection.busy = False
        if connections.finishing:
            connection.scope.cancel()  # `finish` has skipped it
    return await log_in_again(broker, connections, connection, reader, frame)


async def _sit_out(connections: Connections, connection: Connection) -> None:
    """Send all responses that wait, then wait until the connection may be read again."""
    await _send_pipelined(connections, connection)
    if connection.tally is not None:
        connection.tally.throttled(max(0.0, connection.muted_until - trio.current_time()))
    # `finish` need not wait for the end of the time, and neither does the check for idle connections.
    connection.busy = False
    if not connections.finishing:
        await trio.sleep_until(connection.muted_until)
    connection.muted_until = 0.0


def _take_arrived(stream: Stream, reader: FrameReader) -> int | None:
    """Give the reader bytes that have arrived: how many; None if there are none, 0 at the end of the stream."""
    is_large = reader.needed_bytes > RECEIVE_BYTES
    room = reader.room() if is_large else None
    if room is None:
        data = stream.receive_now(LARGE_FRAME_RECEIVE_BYTES if is_large else RECEIVE_BYTES)
        if data is None:
            return None
        reader.feed(data)
        return len(data)

    with room:
        received_bytes = stream.receive_into(room)
    if received_bytes:
        reader.filled(received_bytes)
    return received_bytes


async def _receive(connections: Connections, connection: Connection, reader: FrameReader) -> int:
    """Wait for bytes of the client, and give them to the reader: how many; 0 at the end, and when the broker stops.

    Delayed responses are sent meanwhile, as they become ready.
    """
    # What `_take_arrived` received without a wait is counted here.
    pending_bytes = reader.pending_bytes
    if pending_bytes != connection.frame_bytes:
        connections.hold_frame(connection, pending_bytes)

    while connection.pipelined.responses:
        ready = await connection.pipelined.take_ready()
        if ready:
            await send(connections, connection, ready)
        else:
            data = await connection.pipelined.receive(RECEIVE_BYTES)
            if data is not None:
                reader.feed(data)
                return len(data)
    # `finish` cancels connections that are not busy. Between this check and `busy = False` no other task runs, so a
    # stop either is seen here or cancels the receive.
    if connections.finishing:
        return 0
    connection.busy = False
    data = await connection.stream.receive_some(RECEIVE_BYTES)
    reader.feed(data)
    return len(data)


async def _send_pipelined(connections: Connections, connection: Connection) -> None:
    if connection.unsent:
        await send(connections, connection, [])
    while connection.pipelined.responses:
        await _send_ready(connections, connection)


async def _answer_those_before(connections: Connections, connection: Connection) -> None:
    """The last frame breaks the protocol: send the responses to the requests before it."""
    # Kafka reads a request only when the last response is sent: there a bad one costs earlier requests nothing.
    connection.is_handling = False
    connections.hold_frame(connection, 0)
    await _send_pipelined(connections, connection)


async def _send_ready(connections: Connections, connection: Connection) -> None:
    """Wait until the first delayed response is ready, and send it with those behind it that are ready too."""
    ready = await connection.pipelined.take_ready()
    if ready:
        await send(connections, connection, ready)
    # The wait may be long, so earlier responses that were to leave with the next one leave now.
    else:
        connection.send_unsent()
        await connection.pipelined.wait_for_ready()


async def _go_on(
    broker: Broker, connection: Connection, charged: Charged, frame: memoryview, began: float, begun: object
) -> Pieces | PendingResponse:
    """The response to a request that is not answered in one step. `begun`: what `Shapes.answer` has begun with it."""
    seen = None if begun is None else connection.shapes.take_seen()
    if not isinstance(begun, WaitingFetch):
        return await _answer_frame(broker, connection, charged, frame, began, begun, seen)
    connection.note_answered()
    finished: object
    try:
        finished = await begun.finish()
    except Exception as failure:
        finished = failure
    if isinstance(finished, list):
        if seen is not None:
            seen.answered(connection.request_version, finished)
        return finished
    rested_seconds = connection.rested_seconds
    answer = await _answer_frame(broker, connection, charged, frame, began, finished, seen)
    connection.rested_seconds += rested_seconds
    return answer


async def _answer_frame(
    broker: Broker,
    connection: Connection,
    charged: Charged,
    frame: memoryview,
    began: float,
    begun: object,
    seen: Seen | None,
) -> Pieces | PendingResponse:
    """The pieces of the response; none for acks=0. ProtocolViolation when the frame is no request.

    `began`: when the connection had the frame, by the pace's clock. `begun`: what `Shapes.answer` has begun with it;
    `seen` gets the response to that as well.
    """
    try:
        header = read_request_header(frame)
    # `answer_unsupported` raises it again unless the request is an ApiVersions, with which clients begin.
    except UnsupportedRequest as unsupported:
        connection.tally = None
        return answer_unsupported(unsupported)

    # `finish` reads the key, because it does not wait for a Fetch that waits for records.
    connection.note_request(header.api_key, header.api_version)
    call = Call(
        api_key=header.api_key,
        version=header.api_version,
        client_id=header.client_id,
        principal=connection.principal,
        client_address=connection.address,
        listener=connection.listener,
        connection=connection,
        security_protocol=connection.protocol,
        is_token_authenticated=connection.login is not None and connection.login.is_token,
        authorizer=None if broker.authorization is None else broker.authorization.authorizer,
        tally=broker.tally.apis[header.api_key],
        began=began,
        seen=seen,
        begun=begun,
    )
    respond_so = respond_timed if broker.quotas.limits_request_time else respond
    answer = await respond_so(broker, call, header, frame, charged)
    connection.tally = call.tally  # which is another one if a Fetch turned out to be a follower's
    return answer
