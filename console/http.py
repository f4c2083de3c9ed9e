"""HTTP/1.1 over a `Stream` (edge): the only file that knows `h11`.

`serve_http` serves one connection: it reads a request with its body, asks for the answer, and sends it. Everything is
bounded: the head, the body, the time for both, and the time in which a client must take the next bytes of an answer.
"""

import re
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import h11
import trio

from barnabas.console.exchange import Answer, HttpRequest, Write, error_answer, parsed_target
from barnabas.world.net import ConnectionLost, Stream
from barnabas.world.pacing import ROWS_AT_A_TIME, pause_after

HEAD_BYTES_MAX = 16 << 10
# To read a header takes microseconds, and 16 KiB of the shortest ones would hold the loop for 10 ms.
HEADERS_MAX = 200
BODY_BYTES_MAX = 1 << 20
RECEIVE_BYTES = HEAD_BYTES_MAX
COMPRESSED_BYTES_AT_A_TIME = 1 << 16  # in one step, about a millisecond
COMPRESSED_BYTES_MIN = 1 << 10
COMPRESSION_LEVEL = 1  # most of the gain for a fifth of the time
GZIP_WINDOW = 31  # zlib's way to say "with gzip's header"

# Whatever a record, a topic or a client id contains, the browser runs nothing of it.
SECURITY_HEADERS = (
    ("content-security-policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)

AnswerTo = Callable[[HttpRequest], Awaitable[Answer]]
NoteWait = Callable[[bool], None]  # True when a client takes no more bytes for now, False when it has taken them

END_OF_HEAD = re.compile(rb"\n\r?\n")
NO_WEIGHT = re.compile(r"q\s*=\s*0(\.0*)?")


class Bounds(NamedTuple):
    """How long a client may take."""

    request_seconds: float = 10.0  # from the first byte of a request to the last
    idle_seconds: float = 60.0  # until the next request begins
    send_seconds: float = 20.0  # to take one piece of an answer


BOUNDS = Bounds()


def ignore(waits: bool) -> None:
    """It is not asked which client is slow."""


async def serve_http(
    stream: Stream, answer_to: AnswerTo, bounds: Bounds = BOUNDS, note_wait: NoteWait = ignore
) -> None:
    """Serve one connection until its client leaves, is too slow, or has broken the protocol. Closes nothing."""
    connection = _Connection(stream, bounds, note_wait)
    with suppress(ConnectionLost):
        try:
            while (request := await connection.request()) is not None:
                if not await connection.send(request, await answer_to(request)):
                    return
        except h11.RemoteProtocolError as error:
            await connection.refuse(error_answer(error.error_status_hint, str(error)))
        except _Refused as refused:
            await connection.refuse(refused.answer)


class _Refused(Exception):
    """The request is not read to its end; the connection closes after the answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class _Connection:
    """The state of HTTP on one stream."""

    def __init__(self, stream: Stream, bounds: Bounds, note_wait: NoteWait) -> None:
        self._stream = stream
        self._bounds = bounds
        self._note_wait = note_wait
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def request(self) -> HttpRequest | None:
        """The next request; None at the end of the connection, or if the next one does not begin in time."""
        # A client that sends several requests at once has sent the beginning of the next one already.
        if self._http.trailing_data[0] == b"":
            with trio.move_on_after(self._bounds.idle_seconds) as waiting:
                self._http.receive_data(await self._stream.receive_some(RECEIVE_BYTES))
            if waiting.cancelled_caught:
                return None
        # Hundreds of requests that have come at once must not be answered in one step.
        else:
            await trio.lowlevel.checkpoint()
        with trio.move_on_after(self._bounds.request_seconds):
            head = await self._event()
            if not isinstance(head, h11.Request):
                return None
            # h11 limits a head only while it is incomplete. One that has come at once may be larger.
            if _size_bytes(head) > HEAD_BYTES_MAX:
                raise _Refused(error_answer(431, f"a head has at most {HEAD_BYTES_MAX} bytes"))
            # A chunk may be a byte, and 16 KiB of such chunks would hold the loop for 50 ms; so would their trailers.
            if any(name == b"transfer-encoding" for name, _ in head.headers):
                raise _Refused(error_answer(411, "a body has a content-length: it is not taken in chunks"))
            return await self._with_body(head)
        raise _Refused(error_answer(408, "the request did not arrive in time"))

    async def _with_body(self, head: h11.Request) -> HttpRequest:
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data

            # The length that the head names is not believed: only what has arrived takes memory.
            if len(body) > BODY_BYTES_MAX:
                raise _Refused(error_answer(413, f"a body has at most {BODY_BYTES_MAX} bytes"))

        # h11 has checked that a head consists of these characters.
        path, query = parsed_target(head.target.decode("latin-1"))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        method = head.method.decode("latin-1")
        return HttpRequest(method, path, query, headers, bytes(body), self._stream.peer_address)

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while True:
            if self._http.their_state is h11.IDLE:
                self._check_head()
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._stream.receive_some(RECEIVE_BYTES))

    def _check_head(self) -> None:
        """Refuse a head with too many lines before it is read."""
        arrived = self._http.trailing_data[0]
        end = END_OF_HEAD.search(arrived)

        # The first line is that of the request.
        if arrived.count(b"\n", 0, end.start() if end else len(arrived)) > HEADERS_MAX:
            raise _Refused(error_answer(431, f"a head has at most {HEADERS_MAX} headers"))

    async def send(self, request: HttpRequest, answer: Answer) -> bool:
        """Send an answer. Whether the connection goes on after it."""
        compresses = _takes_gzip(request.headers.get("accept-encoding", "")) and _is_worth_compressing(answer)

        # Headers are the server's business, so that no handler can forget one.
        head = [("content-type", answer.content_type), *SECURITY_HEADERS, *answer.headers]
        if not any(name == "cache-control" for name, _ in answer.headers):
            head.append(("cache-control", "no-store"))
        if compresses:
            head += [("content-encoding", "gzip"), ("vary", "accept-encoding")]

        if isinstance(answer.body, bytes):
            body = await _compressed(answer.body) if compresses else answer.body
            head.append(("content-length", str(len(body))))
            await self._send(h11.Response(status_code=answer.status, headers=head))
            if request.method != "HEAD":
                await self._send(h11.Data(data=body))
            await self._send(h11.EndOfMessage())
        else:
            # A body in pieces may be cut off in the middle, by a time limit or an error. A client could not distinguish
            # the next answer from the rest of this one, so the connection closes.
            head.append(("connection", "close"))
            await self._send(h11.Response(status_code=answer.status, headers=head))
            if request.method != "HEAD":
                await self._write(
                    answer.body, zlib.compressobj(COMPRESSION_LEVEL, wbits=GZIP_WINDOW) if compresses else None
                )
            await self._send(h11.EndOfMessage())

        # h11 knows whether one of both sides wants to close.
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _write(self, write: Write, compressor: "zlib._Compress | None") -> None:
        """Send a body in pieces, until `write` returns. ConnectionLost when the client has left at the next piece."""

        async def send(piece: bytes) -> None:
            # A client that has left is not noticed by sending alone: the network takes a piece nevertheless.
            if self._stream.has_hung_up():
                raise ConnectionLost("the client has left")
            data = piece if compressor is None else compressor.compress(piece)
            if data:
                await self._send(h11.Data(data=data))

        await write(send)
        if compressor is not None:
            await self._send(h11.Data(data=compressor.flush()))

    async def refuse(self, answer: Answer) -> None:
        """Send an answer in place of what the state of the connection asks for, if one may be sent; it closes then."""
        # If a part of another answer was sent already, the client would take this one for its rest.
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or not isinstance(answer.body, bytes):
            return
        head = [
            ("content-type", answer.content_type),
            ("content-length", str(len(answer.body))),
            ("connection", "close"),
            *SECURITY_HEADERS,
        ]
        await self._send(h11.Response(status_code=answer.status, headers=head))
        await self._send(h11.Data(data=answer.body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if not data:
            return
        sent = self._stream.send_now(data)
        if sent == len(data):
            return

        # A client that takes nothing holds one of few connections, so the server has to know of it.
        self._note_wait(True)
        with trio.move_on_after(self._bounds.send_seconds) as sending:
            await self._stream.send_all(memoryview(data)[sent:])
        if sending.cancelled_caught:
            raise ConnectionLost("the client takes no bytes")
        self._note_wait(False)


def _size_bytes(head: h11.Request) -> int:
    return len(head.target) + sum(len(name) + len(value) for name, value in head.headers)


async def _compressed(body: bytes) -> bytes:
    compressor = zlib.compressobj(COMPRESSION_LEVEL, wbits=GZIP_WINDOW)
    pieces = []
    for start in range(0, len(body), COMPRESSED_BYTES_AT_A_TIME):
        pieces.append(compressor.compress(body[start : start + COMPRESSED_BYTES_AT_A_TIME]))
        await pause_after(ROWS_AT_A_TIME)
    return b"".join([*pieces, compressor.flush()])


def _takes_gzip(accept_encoding: str) -> bool:
    """Whether the header names gzip, with a weight that is not 0: "br, gzip;q=0.5"."""
    for each in accept_encoding.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() in ("gzip", "x-gzip"):
            return NO_WEIGHT.fullmatch(weight.strip()) is None
    return False


def _is_worth_compressing(answer: Answer) -> bool:
    if answer.content_type.startswith(("text/event-stream", "image/")):
        return False
    return not isinstance(answer.body, bytes) or len(answer.body) >= COMPRESSED_BYTES_MIN
