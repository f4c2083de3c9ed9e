"""A `LocalCluster` with the page of each broker, on real sockets, for tests in a browser and for screenshots."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from barnabas.broker.life import BrokerState, Life
from barnabas.console.console import Console
from barnabas.testing.cluster.cluster import LocalCluster
from barnabas.world.net import OsNet, SocketBuffers


class PagedCluster(LocalCluster):
    """The cluster; `pages` has the address of each broker's page."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.pages: dict[int, str] = {}

    def open_page(self, broker_id: int) -> str:
        """Serve the page of a broker until the cluster closes; its address."""
        life = Life(BrokerState.RUNNING, self.brokers[broker_id].parts)
        console = Console(OsNet(SocketBuffers(-1, -1)), "127.0.0.1:0", life)
        self._loop.call(lambda: trio.lowlevel.spawn_system_task(self._serve, console))
        # The port is 0 until it is bound.
        wait_for(lambda: console.port)
        self.pages[broker_id] = console.url
        return console.url

    async def _serve(self, console: Console) -> None:
        await console.open()
        await console.run()


def wait_for(is_so, seconds: float = 30.0) -> None:
    """Wait, on a thread of its own, until something is so."""
    trio.run(_until, is_so, seconds)


async def _until(is_so, seconds: float) -> None:
    with trio.fail_after(seconds):
        while not is_so():
            await trio.sleep(0.01)


@contextmanager
def paged_cluster(*args, **kwargs) -> Iterator[PagedCluster]:
    """A cluster with the page of broker 1."""
    with PagedCluster(*args, **kwargs) as cluster:
        cluster.open_page(1)
        yield cluster
