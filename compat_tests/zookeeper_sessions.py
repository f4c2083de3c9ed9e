"""Sessions of a running ZooKeeper for tests, each below a chroot of its own, and a way to end them from outside."""

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import trio
from kazoo.client import KazooClient
from kazoo.protocol.states import Callback

from barnabas.controller.store.zkstore import ZooKeeperConfig, ZooKeeperStore, open_zookeeper_store
from barnabas.world.world import in_worker_thread

_numbers = itertools.count()


def fresh_chroot() -> str:
    """A path that no other test uses."""
    return f"/{os.getpid()}-{next(_numbers)}"


@contextmanager
def client_of(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """A client of ZooKeeper. One that is not stopped looks for its servers as long as the process lives."""
    client = KazooClient(hosts, **options)
    try:
        client.start()
        yield client
    finally:
        client.stop()
        client.close()


@asynccontextmanager
async def opened(config: ZooKeeperConfig, *, make_chroot: bool = False) -> AsyncIterator[ZooKeeperStore]:
    """A store, which is closed however the test ends."""
    store = await open_zookeeper_store(config, in_worker_thread, make_chroot=make_chroot)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await store.close()


class ZooKeeperStores:
    """Opens sessions of one ZooKeeper, and expires them: what the conformance suite asks of a store."""

    def __init__(self, hosts: str, **config: int) -> None:
        self.config = ZooKeeperConfig(hosts + fresh_chroot(), **{"connection_timeout_ms": 30_000, **config})
        self._opened: list[ZooKeeperStore] = []

    async def open(self) -> ZooKeeperStore:
        store = await open_zookeeper_store(self.config, in_worker_thread, make_chroot=True)
        self._opened.append(store)
        return store

    async def expire(self, store: ZooKeeperStore) -> None:
        """End the session on the server's side, and wait until it is known here."""
        over = trio.Event()
        store.on_expired(over.set)
        assert store._session is not None
        await trio.to_thread.run_sync(close_session, self.config.connect, store._session._client.client_id)
        with trio.fail_after(10):
            await over.wait()

    async def settle(self) -> None:
        """Wait until every watch that will fire has fired: they come over the connection before what is asked later."""
        for store in self._opened:
            if store._session is not None:
                await store.exists("/")
                await _callbacks_ran(store._session._client)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


async def _callbacks_ran(client: KazooClient) -> None:
    """Watches are called in a thread of their own, one after the other."""
    token, ran = trio.lowlevel.current_trio_token(), trio.Event()
    client.handler.dispatch_callback(Callback("watch", partial(token.run_sync_soon, ran.set), ()))
    await ran.wait()


def close_session(connect: str, client_id: tuple[int, bytes]) -> None:
    """Take over a session by its id and password, and close it."""
    with client_of(connect.partition("/")[0], client_id=client_id):
        pass
