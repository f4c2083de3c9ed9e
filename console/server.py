"""The HTTP listener: connections within a limit, the checks of every request, and containment of what fails.

A bug in an answer ends that answer. What the listener holds is bounded, and none of it is Kafka's: at the limit of
connections the one that has waited longest for its next request is closed, else the one whose client has taken no bytes
for the longest time, and if there is neither the new one hears 503. Clients of Kafka notice nothing.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial

import trio

from barnabas.console.exchange import Answer, BadRequest, HttpRequest, Route, error_answer, routed
from barnabas.console.guard import refusal
from barnabas.console.http import BOUNDS, Bounds, serve_http
from barnabas.world.containment import contained
from barnabas.world.net import Listener, Net, Stream

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
LOGINS_MAX = 32  # that are checked at a time: a wrong one waits for a second, and must not keep health from answering
BACKLOG = 64
BUSY_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n"
    b"connection: close\r\n\r\ntoo many connections\n"
)

Admit = Callable[[HttpRequest], Awaitable[str | Answer]]  # the principal of a caller, or why there is no answer


async def admit_all(request: HttpRequest) -> str:
    """No login is asked for."""
    return ""


class HttpServer:
    """Answers HTTP at one address. `names` are host names under which it is reached, beside localhost and addresses.

    `admit` is asked before each route that is not open.
    """

    def __init__(
        self,
        net: Net,
        routes: Sequence[Route],
        names: Sequence[str] = (),
        bounds: Bounds = BOUNDS,
        admit: Admit = admit_all,
    ) -> None:
        self._net = net
        self._admit = admit
        self._routes = tuple(routes)
        self._mounted: tuple[Route, ...] = ()
        self._names = frozenset(name.lower() for name in names)
        self._bounds = bounds
        self._listener: Listener | None = None
        self._waiting: dict[Stream, None] = {}  # for the next request; the one that has waited longest is first
        self._answering: dict[Stream, Route | None] = {}  # None: its route is not known yet
        self._slow: dict[Stream, None] = {}  # their clients take no bytes; the one that has not for longest is first
        self._scopes: dict[Stream, trio.CancelScope] = {}
        self._logins = 0  # that are being checked

    async def open(self, host: str, port: int) -> int:
        """Listen; the port that was bound. OSError when the address is taken or is not this machine's."""
        self._listener = await self._net.listen(host, port, backlog=BACKLOG)
        return self._listener.port

    async def run(self) -> None:
        """Serve until cancelled, and close the listener then."""
        listener = self._listener
        assert listener is not None, "open() comes first"
        with closing(listener):
            # The connections end with the listener: no answer here is worth a delay of the broker's stop.
            async with trio.open_nursery() as nursery:
                await listener.serve(self._serve, nursery)

    def mount(self, routes: Sequence[Route]) -> None:
        """Answer these as well, before all others, in place of what was mounted earlier. From any thread."""
        # One assignment: a request finds either all of them or none.
        self._mounted = tuple(routes)

    def end_answers(self) -> None:
        """End the answers that are under way, but those of mounted routes: the broker that gives them is gone."""
        for stream, route in list(self._answering.items()):
            if not any(route is each for each in self._mounted):
                self._scopes[stream].cancel()

    @property
    def connection_count(self) -> int:
        """The connections that are open."""
        return len(self._waiting) + len(self._answering)

    async def _serve(self, stream: Stream) -> None:
        with contained(logger, "closing the HTTP connection of %s", stream.peer_address), closing(stream):
            # The whole answer fits into the buffer of a new connection, so this does not wait.
            if self.connection_count >= CONNECTIONS_MAX and not self._close_one():
                stream.send_now(BUSY_ANSWER)
                return
            self._waiting[stream] = None
            self._scopes[stream] = trio.CancelScope()
            try:
                with self._scopes[stream]:
                    note_wait = partial(self._note_wait, stream)
                    await serve_http(stream, lambda request: self._answer(stream, request), self._bounds, note_wait)
            finally:
                self._forget(stream)
                del self._scopes[stream]

    def _note_wait(self, stream: Stream, waits: bool) -> None:
        if waits:
            self._slow[stream] = None
        else:
            self._slow.pop(stream, None)

    def _close_one(self) -> bool:
        """Close the connection that is missed least; False if all are at work."""
        # A reader that takes a byte now and then would otherwise hold its place for ever.
        chosen = next(iter(self._waiting), None) or next(iter(self._slow), None)
        if chosen is None:
            return False
        # The connection counts no more from now on. Its task gets ConnectionLost at its next turn.
        self._forget(chosen)
        chosen.close()
        return True

    def _forget(self, stream: Stream) -> None:
        for each in (self._waiting, self._answering, self._slow):
            each.pop(stream, None)

    async def _answer(self, stream: Stream, request: HttpRequest) -> Answer:
        # From now on the connection is not closed for another one's sake: its answer is on the way.
        self._waiting.pop(stream, None)
        self._answering[stream] = None

        # This is the answer if the one below cannot be made.
        answer = error_answer(500, "the broker could not answer; its log says why")
        try:
            with contained(logger, "%s %s", request.method, request.path):
                answer = await self._answer_within_rules(stream, request)
        finally:
            # A body in pieces is sent after this, and the connection closes then. So it stays in `_answering`.
            if isinstance(answer.body, bytes):
                self._answering.pop(stream, None)
                self._waiting[stream] = None
        return answer

    async def _answer_within_rules(self, stream: Stream, request: HttpRequest) -> Answer:
        # This comes first, so that a page of another site does not even learn what is here.
        refused = refusal(request, self._names)
        if refused is not None:
            return refused
        found = routed(self._mounted + self._routes, request.method, request.path)
        if isinstance(found, Answer):
            return found
        route, params = found
        self._answering[stream] = route
        principal = "" if route.is_open else await self._admitted(request)
        if isinstance(principal, Answer):
            return principal
        try:
            return await route.handle(request._replace(params=params, principal=principal))
        except BadRequest as error:
            return error_answer(error.status, str(error))

    async def _admitted(self, request: HttpRequest) -> str | Answer:
        if self._logins >= LOGINS_MAX:
            return error_answer(503, f"{LOGINS_MAX} logins are being checked already", [("retry-after", "1")])
        self._logins += 1
        try:
            return await self._admit(request)
        finally:
            self._logins -= 1
