"""The page of one broker in a test, and its metrics, over all lives of the broker.

The port stays the same, as that of the broker. Nothing of HTTP is imported before a broker has a page.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from barnabas.broker.life import Life
from barnabas.testing.arguments import HOST
from barnabas.testing.errors import LocalBrokerError
from barnabas.world.net import OsNet


class BrokerPage:
    """Where the page of a broker is."""

    def __init__(self) -> None:
        self._port = 0

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT/. LocalBrokerError before the first start."""
        if self._port == 0:
            raise LocalBrokerError("page_url: the broker was not started: use `with`")
        return f"http://{HOST}:{self._port}/"

    @asynccontextmanager
    async def served(self, life: Life) -> AsyncIterator[None]:
        """Serve it in this block, on the loop of the broker. OSError if another program has taken the port."""
        from barnabas.console.console import Console

        console = Console(OsNet(), f"{HOST}:{self._port}", life)
        await console.open()
        self._port = console.port
        scope = trio.CancelScope()
        ended = trio.Event()

        async def run() -> None:
            with scope:
                await console.run()
            ended.set()

        # No nursery around the broker: it would wrap the exceptions that say why the broker has ended.
        trio.lowlevel.spawn_system_task(run)
        try:
            yield
        finally:
            # The port must be free before the next life, also when this one is killed.
            scope.cancel()
            with trio.CancelScope(shield=True):
                await ended.wait()
