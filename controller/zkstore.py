"""ZooKeeper as a metadata store (edge): as much of it as `barnabas store export | import` needs.

kazoo has threads of its own, and its calls wait for them: so every call here runs in a worker thread. A batch is a
pipeline: all its requests are on their way before the first answer is waited for, and ZooKeeper carries out what one
session asks in the order of asking. When the connection is lost, a write may or may not have been carried out;
StoreUnavailable says no more than that.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.controller.store import (
    BadVersion,
    Create,
    EphemeralParent,
    InThread,
    NodeError,
    NodeExists,
    NoNode,
    SetData,
    Stat,
    StoreUnavailable,
    check_op,
    refuse_large,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.interfaces import IAsyncResult

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0


async def open_zookeeper_store(connect: str, in_thread: InThread, *, make_chroot: bool = False) -> "ZooKeeperStore":
    """One session with the servers of `connect`, written as in `zookeeper.connect`: host:port,host:port/chroot.

    StoreUnavailable when they cannot be reached, or when there is no such chroot and none is to be made.
    """
    return ZooKeeperStore(connect, await in_thread(_connect, connect, make_chroot), in_thread)


class ZooKeeperStore:
    """One session."""

    def __init__(self, connect: str, client: "KazooClient", in_thread: InThread) -> None:
        self._connect = connect
        self._client = client
        self._in_thread = in_thread

    async def get(self, path: str) -> tuple[bytes | None, Stat]:
        """A node's data. NoNode."""
        return await self._in_thread(self._get, path)

    async def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted. NoNode."""
        return await self._in_thread(self._children, path)

    async def batch(self, items: Sequence[Create | SetData]) -> list[NodeError | None]:
        """Carry out every item, in order; the outcome of a refused one is its `NodeError`, and the next goes on."""
        for item in items:
            check_op(item)
        return await self._in_thread(self._write, items)

    async def close(self) -> None:
        """End the session."""
        await self._in_thread(_disconnect, self._client)

    # -- in a worker thread

    def _get(self, path: str) -> tuple[bytes | None, Stat]:
        with _mapped(self._connect, path):
            data, stat = self._client.get_async(path).get(timeout=ANSWER_SECONDS)
        return data, Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.ctime)

    def _children(self, path: str) -> list[str]:
        with _mapped(self._connect, path):
            return sorted(self._client.get_children_async(path).get(timeout=ANSWER_SECONDS))

    def _write(self, items: Sequence[Create | SetData]) -> list[NodeError | None]:
        asked = [refuse_large([item]) or self._ask(item) for item in items]
        return [self._outcome(item.path, result) for item, result in zip(items, asked, strict=True)]

    def _ask(self, item: Create | SetData) -> "IAsyncResult":
        if isinstance(item, Create):
            return self._client.create_async(item.path, item.data, ephemeral=item.ephemeral, sequence=item.sequential)
        return self._client.set_async(item.path, item.data, item.version)

    def _outcome(self, path: str, result: "IAsyncResult | NodeError") -> NodeError | None:
        if isinstance(result, NodeError):
            return result
        try:
            with _mapped(self._connect, path):
                result.get(timeout=ANSWER_SECONDS)
        except NodeError as refused:
            return refused
        return None


def _connect(connect: str, make_chroot: bool) -> "KazooClient":
    """A client whose session has begun. kazoo takes a missing chroot for granted, so we look first."""
    servers, _, chroot = connect.partition("/")
    if chroot:
        client = _start(servers)
        try:
            with _mapped(connect, f"/{chroot}"):
                if make_chroot:
                    client.ensure_path(f"/{chroot}")
                elif not client.exists(f"/{chroot}"):
                    raise StoreUnavailable(connect, "there is no such chroot")
        finally:
            _disconnect(client)
    return _start(connect)


def _start(connect: str) -> "KazooClient":
    with _mapped(connect, "/"):
        from kazoo.client import KazooClient

        client = KazooClient(connect)
        client.start(CONNECT_SECONDS)  # gives up its threads when it fails
    return client


def _disconnect(client: "KazooClient") -> None:
    client.stop()
    client.close()


@contextmanager
def _mapped(connect: str, path: str) -> Iterator[None]:
    """Turn kazoo's exceptions into ours."""
    try:
        from kazoo import exceptions
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise StoreUnavailable(connect, "kazoo is not installed: pip install 'barnabas[zookeeper]'") from None
    try:
        yield
    except exceptions.NoNodeError as error:
        raise NoNode(path) from error
    except exceptions.NodeExistsError as error:
        raise NodeExists(path) from error
    except exceptions.BadVersionError as error:
        raise BadVersion(path) from error
    except exceptions.NoChildrenForEphemeralsError as error:
        raise EphemeralParent(path) from error
    except (exceptions.KazooException, KazooTimeoutError, ValueError) as error:  # ValueError: host:port makes no sense
        raise StoreUnavailable(connect, str(error) or type(error).__name__) from error
