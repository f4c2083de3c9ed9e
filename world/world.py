"""`World`: the broker's access to time, randomness, disk, network, store and threads, in one value (edge).

`real_world` makes the operating system's; a simulated world, with virtual time and one seed, runs the same code.
Durations and deadlines use trio's clock (`trio.current_time()`). `now_ms` is the wall clock; it goes only into records,
files and comparisons with them.
"""

import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, TypeVarTuple, cast

import trio

from barnabas.controller.store.zkaccess import PLAIN, ZooKeeperAccess
from barnabas.storage.disk import Disk, InThread
from barnabas.storage.osdisk import OsDisk
from barnabas.world.net import Net
from barnabas.world.time_spent import time_spent

if TYPE_CHECKING:
    from barnabas.controller.store.store import MetadataStore

logger = logging.getLogger(__name__)

# Wait after a failure to start a thread (a container's process limit is reached): other threads end soon.
THREAD_PAUSE_SECONDS = 0.1
NO_THREAD = "can't start new thread"  # Python raises a plain RuntimeError; only its text names this cause

# One thread would be enough to use a second core beside the event loop. A second thread lets short work overtake a long
# slice.
REQUEST_THREADS = 2

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
CONTAINER_MEMORY_FILE = "/sys/fs/cgroup/memory.max"  # of Linux's control groups, version 2

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class StoreConfig(Protocol):
    """The properties of the metadata store."""

    @property
    def zookeeper_connect(self) -> str | None: ...
    @property
    def zookeeper_session_timeout_ms(self) -> int: ...
    @property
    def zookeeper_connection_timeout_ms(self) -> int | None: ...
    @property
    def zookeeper_max_in_flight_requests(self) -> int: ...


class OpenStore(Protocol):
    """Opens the metadata store that the configuration names; `embedded_path` is the file of the embedded store."""

    def __call__(self, config: StoreConfig, embedded_path: str) -> "Awaitable[MetadataStore]": ...


class World(NamedTuple):
    """Time, randomness, disk, network, store and threads.

    `in_thread` is for the disk, the store and requests of the controller; it never waits behind work that clients
    cause. `in_request_thread` is for work whose cost a client chooses (checking, decoding, encoding, searching). It has
    few threads, first come first served, so such work waits only for work of its kind. Long work goes there in slices
    (`pacing.complete`), so that one client's work does not delay that of all others.
    `processor_seconds` is the processor time of the thread that calls it; in virtual time steps take none.
    `boot_id` identifies the current boot of the machine; None if unknown (`boot_mark.py`).
    `memory_bytes` is what the machine, or its container, has of memory; limits are shares of it (`memory.py`).
    `watches_steps`: whether `watchdog.py` times the steps of the event loop. False in virtual time.
    """

    now_ms: Callable[[], int]
    rng: random.Random
    disk: Disk
    net: Net
    open_store: OpenStore
    in_thread: InThread
    in_request_thread: InThread
    watches_steps: bool = True
    processor_seconds: Callable[[], float] = float
    boot_id: str | None = None
    memory_bytes: int = 2 << 30


async def in_worker_thread(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
    """`function(*args)` in one of trio's worker threads. A cancelled caller waits for its end: it may hold files."""
    return await _in_thread(None, function, *args)


def request_threads() -> InThread:
    """An `in_request_thread`: runs REQUEST_THREADS functions at a time, the others wait in order."""
    limiter = trio.CapacityLimiter(REQUEST_THREADS)

    async def in_request_thread(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
        return await _in_thread(limiter, function, *args)

    return in_request_thread


async def _in_thread(
    limiter: trio.CapacityLimiter | None, function: Callable[[*Arguments], Result], /, *args: *Arguments
) -> Result:
    """`function(*args)` in a worker thread. When no thread can be started, tries again until one can."""
    failures: list[Exception] = []
    while True:
        # `_tried` raises nothing, so a RuntimeError here is Trio's, and `function` has not run yet.
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
    """The result of the function; or None, with the exception as the one element of `failures`."""
    # An exception that Trio carries out of the thread refers to itself through Trio's frames. It would live until the
    # next full garbage collection, with all that the frames hold, such as the bytes of a request.
    try:
        spent = time_spent.get()
        return function(*args) if spent is None else spent.in_thread(partial(function, *args))
    except Exception as error:
        failures.append(error)
        return None


async def run_inline(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
    """`function(*args)` without a thread: for a world in memory, where nothing blocks."""
    # This is a checkpoint, as a thread would be. It is shielded, as a thread that has begun is not cancelled either.
    await trio.lowlevel.cancel_shielded_checkpoint()
    return function(*args)


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def real_world(
    net: Net,
    in_thread: InThread = in_worker_thread,
    in_request_thread: InThread | None = None,
    access: ZooKeeperAccess = PLAIN,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> World:
    """The operating system's world. The store is ZooKeeper if `zookeeper.connect` is set, or else the embedded one.

    A test may have another wall clock.
    """

    async def open_store(config: StoreConfig, embedded_path: str) -> "MetadataStore":
        if config.zookeeper_connect is not None:
            return await _open_zookeeper(config, config.zookeeper_connect, access, in_thread)

        # Each store is imported only if it is used: start-up time counts.
        from barnabas.controller.store.sqlitestore import open_sqlite_store

        return await open_sqlite_store(embedded_path, in_thread, now_ms)

    return World(
        now_ms=now_ms,
        rng=random.SystemRandom(),
        disk=OsDisk(),
        net=net,
        open_store=open_store,
        in_thread=in_thread,
        in_request_thread=in_request_thread or request_threads(),
        processor_seconds=time.thread_time,
        boot_id=machine_boot_id(),
        memory_bytes=machine_memory_bytes(),
    )


def machine_boot_id() -> str | None:
    """The random id that the Linux kernel makes at each boot; None on other systems."""
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


def machine_memory_bytes() -> int:
    """The memory of the machine, or of this process's container if that has less."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open(CONTAINER_MEMORY_FILE, encoding="ascii") as file:
            return min(machine_bytes, int(file.read()))
    # There is no container, or an older kernel, or the file says "max".
    except (OSError, ValueError):
        return machine_bytes


async def _open_zookeeper(
    config: StoreConfig, connect: str, access: ZooKeeperAccess, in_thread: InThread
) -> "MetadataStore":
    from barnabas.controller.store.zkstore import ZooKeeperConfig, open_zookeeper_store

    timeout_ms = config.zookeeper_session_timeout_ms
    zookeeper = ZooKeeperConfig(
        connect,
        timeout_ms,
        config.zookeeper_connection_timeout_ms or timeout_ms,
        config.zookeeper_max_in_flight_requests,
        access,
    )
    return await open_zookeeper_store(zookeeper, in_thread, make_chroot=True)
