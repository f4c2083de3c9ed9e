"""The HTTP side of one broker: its address, its names, its routes, and the line that says where the page is."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.broker.call import ANONYMOUS
from barnabas.broker.life import BrokerState, Life
from barnabas.config.checks import parse_host_port
from barnabas.config.listeners import host_port
from barnabas.console.exchange import Answer, HttpRequest, Route, error_answer
from barnabas.console.guard import is_loopback
from barnabas.console.health import health_routes
from barnabas.console.metrics import metrics_routes
from barnabas.console.pages import page_routes
from barnabas.console.server import HttpServer
from barnabas.console.static import static_routes
from barnabas.console.story import Story
from barnabas.world.containment import contained
from barnabas.world.net import Net, machine_host_name

logger = logging.getLogger(__name__)

PrintLine = Callable[[str], None]
Serve = Callable[[], Awaitable[None]]
OpenConsole = Callable[[Net, str, Life, PrintLine], Awaitable[Serve]]


class Console:
    """HTTP for one broker, from before its start to after its stop."""

    def __init__(self, net: Net, address: str, life: Life) -> None:
        parsed = parse_host_port(address)
        if parsed is None:
            raise ValueError(f"{address!r} is no host:port")
        self.host, self.port = parsed
        self._story = Story()

        # The names of the machine are read now: a request of a stranger must not make this process look up anything.
        self._server = HttpServer(net, routes_of(life, self._story), _names(self.host), admit=partial(caller_of, life))

    async def open(self) -> None:
        """Listen; then `port` is the one that was bound. OSError with the reason when that fails."""
        try:
            self.port = await self._server.open(self.host, self.port)
        except OSError as error:
            where = host_port(self.host, self.port)
            raise OSError(error.errno, f"cannot listen for HTTP on {where}: {error.strerror or error}") from error

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page."""
        return f"http://{host_port(self.host or '127.0.0.1', self.port)}/"

    def mount(self, routes: Sequence[Route]) -> None:
        """Answer these as well, before all others. A served broker has none: the laboratory mounts its own."""
        self._server.mount(routes)

    def end_answers(self) -> None:
        """End what the broker of this life was answering; what is mounted goes on."""
        self._server.end_answers()

    async def run(self) -> None:
        """Serve until cancelled."""
        # If serving ends with an error, the broker goes on without its page.
        with contained(logger, "HTTP is not served any more"), self._story.listening():
            await self._server.run()


def routes_of(life: Life, story: Story) -> Sequence[Route]:
    """All that is answered over HTTP."""
    return [*health_routes(life), *metrics_routes(life), *page_routes(life, story), *static_routes()]


async def caller_of(life: Life, request: HttpRequest) -> str | Answer:
    """The principal of a caller; an answer if it may not ask, or while there is no broker."""
    broker = life.broker
    if broker is None:
        why = "the broker does not run" if life.state is BrokerState.NOT_RUNNING else "the broker starts"
        return error_answer(503, why, [("retry-after", "1")])
    # All listeners are PLAINTEXT, so there are no logins, and their modules are not imported.
    if broker.secured is None:
        return ANONYMOUS
    from barnabas.console.login import admit

    return await admit(broker, request)


def _names(host: str) -> list[str]:
    """The host names under which what listens at `host` is reached."""
    # What listens on a loopback address is reached under no other name.
    return [host] if is_loopback(host) else [host, machine_host_name()]


async def open_console(net: Net, address: str, life: Life, print_line: PrintLine) -> Serve:
    """Listen, print where, and return what serves. OSError as `Console.open`."""
    console = Console(net, address, life)
    await console.open()
    print_line(f"page {console.url}")
    return console.run
