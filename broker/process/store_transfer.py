"""`barnabas store export | import`: opens a metadata store and transfers its nodes (controller/store/transfer.py).

A data directory names the embedded store in it; an address names ZooKeeper; the properties of a broker name its store,
and how it connects to ZooKeeper. Only one process can open an embedded store, so its broker must be stopped.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import NamedTuple

import trio

from barnabas.broker.logins import zookeeper_access
from barnabas.config.live import BrokerConfig
from barnabas.controller.store.sqlitestore import open_sqlite_store
from barnabas.controller.store.store import MetadataStore, StoreUnavailable
from barnabas.controller.store.transfer import format_nodes, parse_nodes, read_nodes, write_nodes
from barnabas.controller.store.zkaccess import PLAIN, ZooKeeperAccess
from barnabas.controller.store.zkstore import ZooKeeperConfig, open_zookeeper_store
from barnabas.replication.logs.directory import EMBEDDED_STORE_FILE
from barnabas.storage.disk import Disk, join, make_durable_directory
from barnabas.wire.errors import InvariantBroken
from barnabas.world.world import in_worker_thread, wall_clock_ms

CONNECTION_TIMEOUT_MS = 10_000  # interactive command: fail soon
ANSWER_SECONDS = 30.0


# (number of nodes, None if unknown) -> the context of a progress display. Within it, the function is called with the
# number of nodes that were transferred since its last call.
ShowNodes = Callable[[int | None], AbstractContextManager[Callable[[int], object]]]


class Place(NamedTuple):
    """Where the store is: embedded in a directory, or in ZooKeeper."""

    disk: Disk
    data_dir: str | None
    zookeeper: str | None  # host:port,host:port/chroot
    access: ZooKeeperAccess = PLAIN


async def place_of_broker(disk: Disk, config: BrokerConfig) -> Place:
    """Where the store of the broker with these properties is. Raises ConfigError."""
    connect = config.zookeeper_connect
    directory = config.log_directories[0] if connect is None else None
    return Place(disk, directory, connect, await zookeeper_access(config, in_worker_thread))


async def export_store(place: Place, show: ShowNodes) -> str:
    """The text of an export. Raises StoreError."""
    async with open_store(place, to_fill=False) as store:
        with show(None) as advance:
            return format_nodes(await read_nodes(store, advance))


async def import_store(place: Place, text: str, show: ShowNodes) -> int:
    """Fill an empty store, and return the number of nodes. Raises ExportMalformed and StoreError."""
    # The whole text is checked before the store is opened: a malformed export must not leave half a store.
    nodes = parse_nodes(text)
    async with open_store(place, to_fill=True) as store:
        with show(len(nodes)) as advance:
            await write_nodes(store, nodes, advance)
    return len(nodes)


@asynccontextmanager
async def open_store(place: Place, *, to_fill: bool) -> AsyncIterator[MetadataStore]:
    """The store that is there; with `to_fill` it may be new. Raises StoreError, StorageError."""
    store: MetadataStore
    disk, data_dir, zookeeper, access = place
    if zookeeper is not None:
        config = ZooKeeperConfig(zookeeper, connection_timeout_ms=CONNECTION_TIMEOUT_MS, access=access)
        store = await open_zookeeper_store(config, in_worker_thread, make_chroot=to_fill, answer_seconds=ANSWER_SECONDS)
    elif data_dir is None:
        raise InvariantBroken("no store is named")
    else:
        path = join(data_dir, EMBEDDED_STORE_FILE)
        if to_fill:
            await in_worker_thread(make_durable_directory, disk, data_dir)
        # SQLite would create the file, and a mistyped directory would give an empty export.
        elif not disk.exists(path):
            raise StoreUnavailable(path, "there is no such file")
        store = await open_sqlite_store(path, in_worker_thread, wall_clock_ms)

    try:
        yield store
    # The close is shielded: an interrupted command must still end its ZooKeeper session, and
    # release the lock of the embedded store.
    finally:
        with trio.CancelScope(shield=True):
            await store.close()
