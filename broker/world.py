"""What the broker is given of the outside world, in one value.

Every part reaches time, chance, disk, network, store and threads through the `World` it was handed. The real one is
built by the command line; a simulated one, with virtual time and one seed, runs the same code. Durations and deadlines
are on trio's clock (`trio.current_time()`); `now_ms` is the broker's wall clock and goes only into records, files and
comparisons with them.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple, cast

import trio

from barnabas.broker.net import Net
from barnabas.controller.store.store import MetadataStore
from barnabas.storage.disk import Disk, InThread, OsDisk

logger = logging.getLogger(__name__)

# The operating system starts no further thread, as where a container's limit of processes is reached: others end soon.
THREAD_PAUSE_SECONDS = 0.1
NO_THREAD = "can't start new thread"  # all that Python says of it: a RuntimeError as any other

# One keeps a second core busy while the loop has the first; with two, short work need not wait for a long slice.
REQUEST_THREADS = 2

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class StoreConfig(Protocol):
    """What the configuration says of the metadata store."""

    @property
    def zookeeper_connect(self) -> str | None: ...
    @property
    def zookeeper_session_timeout_ms(self) -> int: ...
    @property
    def zookeeper_connection_timeout_ms(self) -> int | None: ...
    @property
    def zookeeper_max_in_flight_requests(self) -> int: ...


class OpenStore(Protocol):
    """Open the metadata store that the configuration names; `embedded_path` is where the embedded one lives."""

    def __call__(self, config: StoreConfig, embedded_path: str) -> Awaitable[MetadataStore]: ...


class World(NamedTuple):
    """Time, chance, disk, network, store and threads.

    `in_thread` is for the disk and the store, and never waits behind work of clients. `in_request_thread` is for work
    whose cost a client chooses (checking, decoding, encoding, searching): its threads are few, and first come first
    served, so such work waits for other work of its kind alone. Long work goes there a slice at a time
    (`pacing.complete`), or one client's would hold back everybody's.
    `boot_id` names the machine's life since it was started, as far as that is known (`boot_mark.py`).
    `watches_steps`: whether steps that hold the loop are looked for. In virtual time none takes any.
    """

    now_ms: Callable[[], int]
    rng: random.Random
    disk: Disk
    net: Net
    open_store: OpenStore
    in_thread: InThread
    in_request_thread: InThread
    watches_steps: bool = True
    boot_id: str | None = None


async def in_worker_thread(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
    """`function(*args)` in one of trio's worker threads; never abandoned, for it may hold files."""
    return await _in_thread(None, function, *args)


def request_threads() -> InThread:
    """Worker threads for what clients ask for: `REQUEST_THREADS` at a time, the others wait in the order of asking."""
    limiter = trio.CapacityLimiter(REQUEST_THREADS)

    async def in_request_thread(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
        return await _in_thread(limiter, function, *args)

    return in_request_thread


async def _in_thread(
    limiter: trio.CapacityLimiter | None, function: Callable[[*Arguments], Result], /, *args: *Arguments
) -> Result:
    """`function(*args)` in a worker thread, as soon as there is one: a shortage delays work and fails none."""
    failures: list[Exception] = []
    while True:
        try:
            value = await trio.to_thread.run_sync(_tried, failures, function, args, limiter=limiter)
            break
        except RuntimeError as error:
            if str(error) != NO_THREAD:
                raise
        logger.warning("work waits: the operating system starts no further thread", extra={"peer": "threads"})
        await trio.sleep(THREAD_PAUSE_SECONDS)
    if failures:
        raise failures.pop()
    return cast("Result", value)


def _tried(
    failures: list[Exception], function: Callable[[*Arguments], Result], args: tuple[*Arguments]
) -> Result | None:
    """What the function returns; what it raises instead is the one element of `failures`.

    An exception that Trio carried out of the thread would refer to itself, by way of Trio's frames. It would stay until
    the next full collection, and with it all that the frames hold, such as the bytes of a request.
    """
    try:
        return function(*args)
    except Exception as error:
        failures.append(error)
        return None


async def run_inline(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
    """`function(*args)` here and now: for a world in memory, where nothing blocks."""
    await trio.lowlevel.cancel_shielded_checkpoint()
    return function(*args)


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def real_world(net: Net, in_thread: InThread = in_worker_thread, in_request_thread: InThread | None = None) -> World:
    """The operating system's world: ZooKeeper where one is configured, and else the embedded store."""

    async def open_store(config: StoreConfig, embedded_path: str) -> MetadataStore:
        if config.zookeeper_connect is not None:
            return await _open_zookeeper(config, config.zookeeper_connect, in_thread)
        from barnabas.controller.store.sqlitestore import open_sqlite_store

        return await open_sqlite_store(embedded_path, in_thread, wall_clock_ms)

    return World(
        now_ms=wall_clock_ms,
        rng=random.SystemRandom(),
        disk=OsDisk(),
        net=net,
        open_store=open_store,
        in_thread=in_thread,
        in_request_thread=in_request_thread or request_threads(),
        boot_id=machine_boot_id(),
    )


def machine_boot_id() -> str | None:
    """What the kernel drew when it was started (Linux); None where there is no such thing."""
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


async def _open_zookeeper(config: StoreConfig, connect: str, in_thread: InThread) -> MetadataStore:
    from barnabas.controller.store.zkstore import ZooKeeperConfig, open_zookeeper_store

    timeout_ms = config.zookeeper_session_timeout_ms
    zookeeper = ZooKeeperConfig(
        connect,
        timeout_ms,
        config.zookeeper_connection_timeout_ms or timeout_ms,
        config.zookeeper_max_in_flight_requests,
    )
    return await open_zookeeper_store(zookeeper, in_thread, make_chroot=True)
