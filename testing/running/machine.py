"""The data of a broker in this process (edge): a directory, or a disk and a store in memory. They outlive the broker.

Operations in memory are fast, so work that otherwise runs in threads runs inline: such a broker has only the thread of
its event loop. With a directory the worker threads belong to the broker and end with it; trio's threads would live for
ten more seconds, which a test run that counts threads reports as a leak.
"""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple

import trio

from barnabas.controller.store.sqlitestore import IN_MEMORY, SqliteDatabase, open_sqlite_database
from barnabas.controller.store.store import MetadataStore
from barnabas.storage.disk import Disk, InThread
from barnabas.storage.osdisk import OsDisk
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.running.disk import HarmedDisk
from barnabas.world.net import Net
from barnabas.world.world import REQUEST_THREADS, OpenStore, StoreConfig, World, real_world, run_inline, wall_clock_ms

WORKER_THREADS_MAX = 16  # that wait for the device at the same time

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Machine(Protocol):
    """Where a broker's data are."""

    log_directory: str

    @property
    def disk(self) -> Disk:
        """The disk of the present life, or of the next one."""

    def world(self, net: Net) -> AbstractContextManager[World]:
        """The world of one broker on this machine."""

    def crash(self) -> None:
        """The broker was killed and has ended: its files were not closed in order."""

    async def forget(self) -> None:
        """The data are not needed any more."""


class DirectoryMachine:
    """A directory of the operating system. A broker that dies there leaves what it has written, unflushed or not."""

    def __init__(
        self, log_directory: str, now_ms: Callable[[], int] = wall_clock_ms, open_store: OpenStore | None = None
    ) -> None:
        self.log_directory = log_directory
        self._now_ms = now_ms
        self._open_store = open_store  # None: a store of its own, in the directory
        self.disk = OsDisk()

    @contextmanager
    def world(self, net: Net) -> Iterator[World]:
        with (
            ThreadPoolExecutor(WORKER_THREADS_MAX, thread_name_prefix="barnabas worker") as workers,
            ThreadPoolExecutor(REQUEST_THREADS, thread_name_prefix="barnabas request") as request_workers,
        ):
            world = real_world(net, in_threads(workers), in_threads(request_workers), now_ms=self._now_ms)
            yield world if self._open_store is None else world._replace(open_store=self._open_store)

    def crash(self) -> None:
        """Nothing to do: cancelled, the broker has given up its files as they were."""

    async def forget(self) -> None:
        """The directory stays: it is the user's."""


def in_threads(threads: ThreadPoolExecutor) -> InThread:
    """Runs functions in these threads."""

    async def in_thread(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
        await trio.lowlevel.checkpoint_if_cancelled()
        token = trio.lowlevel.current_trio_token()
        ended = trio.Event()
        future = threads.submit(function, *args)
        future.add_done_callback(lambda _: token.run_sync_soon(ended.set))
        with trio.CancelScope(shield=True):  # the function may hold files
            await ended.wait()
        return future.result()

    return in_thread


class Snapshot(NamedTuple):
    """The data of a broker in memory at one moment, as a process crash leaves them."""

    disk: HarmedDisk
    store: bytes


class MemoryMachine:
    """A disk in memory that can crash, and the embedded store beside it."""

    def __init__(self, now_ms: Callable[[], int] = wall_clock_ms, open_store: OpenStore | None = None) -> None:
        self.log_directory = "/memory"
        self._now_ms = now_ms
        self._open_store = open_store or self._open_own_store
        self.disk = HarmedDisk(now_ms=now_ms)
        self._database: SqliteDatabase | None = None
        self._content: bytes | None = None  # what the next broker finds in the store; None: what is there already

    @contextmanager
    def world(self, net: Net) -> Iterator[World]:
        disk = self.disk
        disk.has_failed = False
        world = World(self._now_ms, random.SystemRandom(), disk, net, self._open_store, disk.in_thread, run_inline)
        yield world._replace(boot_id=IN_MEMORY)  # one boot of this machine lasts as long as its memory

    def crash(self) -> None:
        self.disk = self.disk.crash_process()

    def snapshot(self) -> Snapshot:
        """The data as they are now. Called on the loop of the broker, or while there is none."""
        if self._database is None:
            raise LocalBrokerError("snapshot: the broker was never started")
        return Snapshot(self.disk.crash_process(), self._database.content())

    def restore(self, snapshot: Snapshot) -> None:
        """Have these data at the next start. No broker runs."""
        # A copy, because the same snapshot may be restored again.
        self.disk = snapshot.disk.crash_process()
        self._content = snapshot.store

    async def forget(self) -> None:
        if self._database is not None:
            await self._database.close()

    async def _open_own_store(self, config: StoreConfig, embedded_path: str) -> MetadataStore:
        # The database outlives each broker, as a file would, so that the next one finds the topics.
        content = self._content
        if content is not None:
            await self.forget()
        if self._database is None or content is not None:
            self._database = await open_sqlite_database(IN_MEMORY, run_inline, self._now_ms, content=content)
            self._content = None
        return self._database.session()
