"""The page of one broker in a test, and its metrics, over all lives of the broker.

The port stays the same, as that of the broker. Nothing of HTTP is imported before a broker has a page.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.broker.life import BrokerState, Life
from barnabas.testing.arguments import HOST
from barnabas.testing.errors import LocalBrokerError
from barnabas.world.net import OsNet

if TYPE_CHECKING:
    from barnabas.console.console import Console
    from barnabas.console.exchange import Route


class BrokerPage:
    """Where the page of a broker is. With routes of the laboratory it is there while the broker is down as well."""

    def __init__(self) -> None:
        self.life = Life()  # of the broker; the same object in all its lives
        self._port = 0
        self._routes: Sequence[Route] = ()
        self._served: _Served | None = None

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT/. LocalBrokerError before the first start."""
        if self._port == 0:
            raise LocalBrokerError("page_url: the broker was not started: use `with`")
        return f"http://{HOST}:{self._port}/"

    def mount(self, routes: "Sequence[Route]") -> None:
        """Answer these as well, now and in later lives, and while the broker of a cluster is down. From any thread."""
        self._routes = routes
        served = self._served
        if served is not None:
            served.console.mount(routes)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve it in this block, on the loop of the broker. OSError if another program has taken the port."""
        if self._served is None:
            await self._open()
        try:
            yield
        finally:
            self.life.broker = None
            self.life.state = BrokerState.NOT_RUNNING
            # On the page of the laboratory a user who has killed the broker sees the result, and
            # can start it again.
            if self._routes and self._served is not None:
                self._served.console.end_answers()
            else:
                # The port must be free before the next life, also when this one is killed.
                with trio.CancelScope(shield=True):
                    await self._close()

    async def _open(self) -> None:
        from barnabas.console.console import Console

        console = Console(OsNet(), f"{HOST}:{self._port}", self.life)
        await console.open()
        self._port = console.port
        self._served = _Served(console)
        # This comes after the assignment, so that another thread that mounts now finds this
        # console.
        console.mount(self._routes)
        # There is no nursery around the broker: it would wrap the exceptions that say why the
        # broker has ended.
        trio.lowlevel.spawn_system_task(self._served.run)

    async def _close(self) -> None:
        served = self._served
        if served is not None:
            self._served = None
            served.scope.cancel()
            await served.ended.wait()


class _Served:
    """A console that runs, and how it ends."""

    def __init__(self, console: "Console") -> None:
        self.console = console
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    async def run(self) -> None:
        with self.scope:
            await self.console.run()
        self.ended.set()
