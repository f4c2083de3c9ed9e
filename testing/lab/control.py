"""The laboratory's HTTP: each action of the table as a route, with the errors in words (edge).

An action waits for brokers, so it runs in a thread of its own. 400: the request is wrong; 404: what it names is not
there; 409: it cannot be done now, or what it waits for has not come in time. The text is that of the exception that the
same call raises in Python.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar, TypeVarTuple

import outcome
import trio

from barnabas.config.checks import parse_host_port
from barnabas.config.listeners import host_port
from barnabas.console.exchange import Answer, BadRequest, HttpRequest, Route, json_answer, parsed_json
from barnabas.console.guard import is_loopback
from barnabas.console.server import HttpServer
from barnabas.storage.disk import InThread
from barnabas.testing.cluster.cluster import LocalCluster
from barnabas.testing.errors import FaultError, FaultMissed, LocalBrokerError, NotThere
from barnabas.testing.lab.actions import Intercepted, Lab
from barnabas.testing.lab.mounted import mounted_routes
from barnabas.testing.lab.schema import schema
from barnabas.testing.lab.table import ACTIONS, Action
from barnabas.testing.lab.values import Json
from barnabas.testing.lab.words import check_words, from_text
from barnabas.world.net import OsNet, SocketBuffers

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

START_SECONDS = 10.0
ANY_PORT = "127.0.0.1:0"


def control_routes(lab: Lab, in_thread: InThread) -> Sequence[Route]:
    """A route for each action, and one for the schema."""
    # The table is the only place that knows paths.
    routes = [Route(each.method, each.path, partial(_act, lab, in_thread, each)) for each in ACTIONS]

    async def give_schema(request: HttpRequest) -> Answer:
        return json_answer(schema())

    return [*routes, Route("GET", "/v1/schema", give_schema)]


async def _act(lab: Lab, in_thread: InThread, action: Action, request: HttpRequest) -> Answer:
    try:
        # The check takes no time, so it is done here. What the action does may wait for seconds, and the JSON of a
        # thousand requests would hold the loop, which on the page of a broker is that of the broker.
        given = _given(action, request)
        return await in_thread(lambda: json_answer(action.run(lab, given), action.status))
    # Any other exception is a bug, which the server logs and answers with 500.
    except LocalBrokerError as error:
        raise BadRequest(str(error), _status_of(error)) from error


def _status_of(error: LocalBrokerError) -> int:
    # FaultMissed is a FaultError, too: the words were right, and what they ask for has not happened.
    if isinstance(error, FaultMissed):
        return 409
    if isinstance(error, FaultError):
        return 400
    return 404 if isinstance(error, NotThere) else 409


def _given(action: Action, request: HttpRequest) -> dict[str, Json]:
    """The words of the path, and of the body or the query. FaultError or BadRequest with what is wrong."""
    # A GET has no body: its words are in the address, so that a browser and a plain curl can ask.
    if action.method == "GET":
        # A name that is unknown keeps its text, and is refused below.
        texts = {word.name: word for word in action.words}
        given: dict[str, Json] = {
            name: from_text(texts[name], text) if name in texts else text for name, text in request.query.items()
        }
    else:
        # Without a body there are no words: `curl -X POST` sends none.
        given = parsed_json(request.body) if request.body.strip() else {}
    if action.checks_words:
        check_words(action.words, given)

    # The words of the path come after the check, because a body may not contain them.
    for word in action.path_words:
        given[word.name] = from_text(word, request.params[word.name])
    return given


async def in_own_thread(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
    """What the function returns or raises, in a thread that it has to itself.

    Who waits for it may be cancelled, and the function goes on: a laboratory that is closed, or a loop of brokers that
    ends, must not wait for an action which waits for one of them.
    """
    token = trio.lowlevel.current_trio_token()
    ended = trio.Event()
    results: list[outcome.Outcome[Result]] = []

    def run() -> None:
        results.append(outcome.capture(function, *args))
        # The loop may have ended.
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(ended.set)

    threading.Thread(target=run, name="barnabas laboratory, action", daemon=True).start()
    await ended.wait()
    return results[0].unwrap()


class Laboratory:
    """Faults, the request log and the brokers of a `LocalCluster` over HTTP, for programs in every language.

        with LocalCluster(3, topics={"orders": (1, 3)}) as cluster, Laboratory(cluster) as lab:
            run_my_program(cluster.bootstrap_servers, lab.url)

    It listens on a loopback address only, on a thread of its own: it answers while brokers are killed, frozen, or have
    their time stopped. Of a `LocalBroker` only the faults and the request log are there.
    """

    def __init__(self, kafka: Intercepted, address: str = ANY_PORT, *, more_routes: Sequence[Route] = ()) -> None:
        """LocalBrokerError if `address` is no host:port, or none of this machine alone."""
        parsed = parse_host_port(address)
        if parsed is None:
            raise LocalBrokerError(f"{address!r} is no host:port")
        self._host, self._port = parsed
        # A client of the laboratory may kill every broker.
        if not is_loopback(self._host):
            raise LocalBrokerError(f"{address}: the laboratory listens on loopback only, such as {ANY_PORT}")
        # The names of faults live as long as the laboratory, and not as long as a broker.
        self._lab = Lab(kafka)
        self._kafka = kafka
        self._more_routes = more_routes
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._end: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="barnabas laboratory", daemon=True)

    def start(self) -> "Laboratory":
        """Listen (`with` does this). LocalBrokerError with the reason if that fails."""
        # From now on requests are written down, and metadata kept for stale responses.
        _ = self._kafka.faults, self._kafka.requests
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise LocalBrokerError(f"the laboratory does not listen after {START_SECONDS:g} s")
        if self._failure is not None:
            where = host_port(self._host, self._port)
            why = self._failure.strerror or str(self._failure)
            raise LocalBrokerError(f"the laboratory cannot listen on {where}: {why}")
        self._mount(mounted_routes(control_routes(self._lab, in_own_thread)))
        return self

    def close(self) -> None:
        """End it, and what still waits for it (the end of `with` does this)."""
        # Actions that wait for requests look at `is_closing`. Other actions wait until what they
        # wait for has come, or their time is over.
        self._lab.is_closing = True
        self._mount(())
        self._end()
        self._thread.join()

    def _mount(self, routes: Sequence[Route]) -> None:
        """Have the pages of all brokers answer this as well, and show the buttons for it."""
        if isinstance(self._kafka, LocalCluster):
            for broker in self._kafka.brokers.values():
                if broker.page is not None:
                    broker.page.mount(routes)

    @property
    def url(self) -> str:
        """Where it is: http://127.0.0.1:PORT/."""
        return f"http://{host_port(self._host, self._port)}/"

    def __enter__(self) -> "Laboratory":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        trio.run(self._serve)

    async def _serve(self) -> None:
        routes = [*control_routes(self._lab, in_own_thread), *self._more_routes]
        server = HttpServer(OsNet(SocketBuffers(-1, -1)), routes, [self._host])
        # The error is raised in the thread that has started the laboratory.
        try:
            self._port = await server.open(self._host, self._port)
        except OSError as error:
            self._failure = error
            self._ready.set()
            return
        # The thread that closes the laboratory is another one.
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            self._end = lambda: token.run_sync_soon(scope.cancel)
            self._ready.set()
            await server.run()
