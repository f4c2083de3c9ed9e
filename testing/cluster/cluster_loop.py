"""The thread and the loop of a `LocalCluster`, and what lives on it: the store and the brokers (edge)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import outcome
import trio

from barnabas.controller.store.sqlitestore import IN_MEMORY, open_sqlite_database
from barnabas.controller.store.store import MetadataStore, StoreError
from barnabas.replication.logs.directory import EMBEDDED_STORE_FILE
from barnabas.storage.disk import InThread
from barnabas.testing.cluster.member import ClusterBroker
from barnabas.testing.cluster.network import Links
from barnabas.testing.cluster.passing_time import spare_the_living
from barnabas.testing.cluster.sessions import ClusterStore
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.faults.faults import Faults
from barnabas.testing.faults.interceptor import Interceptor
from barnabas.testing.faults.requests import RequestLog
from barnabas.testing.running.clock import BrokerClock
from barnabas.testing.running.life import BrokerLife
from barnabas.testing.running.loop import Loop
from barnabas.testing.running.machine import DirectoryMachine, Machine, MemoryMachine, in_threads
from barnabas.testing.running.secured import Secured
from barnabas.testing.running.thread import END_SECONDS, START_SECONDS, LoopThread
from barnabas.world.world import StoreConfig, run_inline

Result = TypeVar("Result")


class ClusterLoop:
    """Begins once and ends once; brokers on it begin and end in between."""

    def __init__(self, size: int, properties: Mapping[str, str], directory: Path | None, secured: Secured) -> None:
        self.links = Links()
        self._loop = Loop()
        self.clock = BrokerClock(self._loop)
        self.clock.before_jump = self._before_jump
        self.faults = Faults()  # of all brokers
        self.log = RequestLog()
        self._directory = directory
        self.brokers = {
            each: ClusterBroker(
                each,
                properties,
                self._machine(each),
                self.links,
                secured,
                self.clock,
                Interceptor(self.faults, self.log),
                self._loop,
            )
            for each in range(1, size + 1)
        }
        self._store: ClusterStore | None = None
        self._lives: trio.Nursery | None = None
        self._closing = trio.Event()
        self._begun: Future[None] = Future()
        self._thread = LoopThread(self._loop, self.clock, self._main)

    @property
    def is_in_memory(self) -> bool:
        """Whether the data are in memory."""
        return self._directory is None

    @property
    def store(self) -> ClusterStore:
        """The store, while the loop runs."""
        if self._store is None:
            raise LocalBrokerError("the cluster does not run")
        return self._store

    def begin(self) -> None:
        """Start the thread and open the store."""
        self._thread.start()
        self._begun.result(START_SECONDS)

    def run(self, brokers: Iterable[ClusterBroker]) -> None:
        """Start these brokers together, and wait until they serve."""
        started = list(brokers)
        lives = self._lives
        assert lives is not None
        for broker in started:
            self.call(partial(lives.start_soon, broker.begin().run))
        for broker in started:
            broker.await_ready()

    def call(self, function: Callable[[], Result]) -> Result:
        """What the function returns or raises, on the loop."""
        return self._loop.call(function)

    def close(self) -> None:
        """End all brokers and the thread."""
        self.faults.close()
        self.clock.resume()
        lives = [broker.life for broker in self.brokers.values() if broker.is_running]
        for life in lives:
            # Data in memory are gone anyway; in a directory, a clean stop spares the recovery at the next start.
            self._loop.tell(life.die if self._directory is None else partial(_end_with_all, life))
        for life in lives:
            life.ended.exception(END_SECONDS)
        self._loop.tell(self._closing.set)
        if self._begun.done() and not self._thread.join(END_SECONDS):
            raise LocalBrokerError(f"the cluster has not ended within {END_SECONDS:g} s")

    # -- on the loop

    async def _main(self) -> None:
        ended = await outcome.acapture(self._live)
        if not self._begun.done():
            self._begun.set_exception(_reason(ended))

    async def _live(self) -> None:
        with self._threads() as in_thread:
            path = IN_MEMORY
            if self._directory is not None:
                self._directory.mkdir(parents=True, exist_ok=True)
                path = str(self._directory / EMBEDDED_STORE_FILE)
            database = await open_sqlite_database(path, in_thread, self.clock.now_ms)
            try:
                async with trio.open_nursery() as lives:
                    self._lives = lives
                    self._store = ClusterStore(database, self.links, lives)
                    self.links.on_change = self._store.links_changed
                    self._begun.set_result(None)
                    await self._closing.wait()
                    lives.cancel_scope.cancel()
            finally:
                await database.close()

    @contextmanager
    def _threads(self) -> Iterator[InThread]:
        """What the store runs in: nothing blocks in memory."""
        if self._directory is None:
            yield run_inline
            return
        with ThreadPoolExecutor(1, thread_name_prefix="barnabas store") as thread:
            yield in_threads(thread)

    def _machine(self, broker_id: int) -> Machine:
        async def open_store(config: StoreConfig, embedded_path: str) -> MetadataStore:  # noqa: ARG001
            return await self.store.open(broker_id, config)

        if self._directory is None:
            return MemoryMachine(self.clock.now_ms, open_store)
        return DirectoryMachine(str(self._directory / f"broker-{broker_id}"), self.clock.now_ms, open_store)

    def _before_jump(self, seconds: float) -> None:
        built = {each.id: each.life.broker for each in self.brokers.values() if each.is_running}
        spare_the_living({key: parts for key, parts in built.items() if parts is not None}, self.links, seconds)


def _end_with_all(life: BrokerLife) -> None:
    """A clean stop, for a broker whose peers end as well."""
    if life.broker is not None:
        life.broker.config.controlled_shutdown_enable = False
    life.stop()


def _reason(ended: outcome.Outcome[None]) -> BaseException:
    error = ended.error if isinstance(ended, outcome.Error) else LocalBrokerError("the cluster has ended")
    if not isinstance(error, OSError | StoreError):
        return error
    reason = LocalBrokerError(str(error))
    reason.__cause__ = error
    return reason
