"""Garbage collection and heap of the process (edge): full collections are rare, and freed memory is returned.

A collection of the oldest generation visits every object that is not frozen, while the event loop and all threads wait:
28 ms while one large request is in memory, 200 ms while there are many, and a request that is being decoded would start
several. So it runs only every five minutes, when clients' requests hold little. Long-lived objects are frozen
(`gc.freeze`) from time to time, so the collector skips them.

After large requests the C library keeps the freed memory. `malloc_trim` (glibc only) returns it to the system whenever
the size of the process has changed, and after each full collection.
"""

import ctypes
import gc
import os
import time
from collections.abc import Callable
from typing import Final

import trio

from barnabas.world.world import in_worker_thread

LOOK_SECONDS = 10.0
LOOKS_A_COLLECTION = 30  # five minutes
LOOKS_TO_QUIET_MAX = 330  # a further 55 minutes: a broker that is never quiet collects once an hour
HELD_BYTES_MAX = 1 << 20  # of clients' requests and responses; a decoded request has up to a million objects
FREEZE_LOAD_MIN = 500  # below it the collector has few objects to visit
FREEZE_COLLECTION_SECONDS = 0.01  # a collection that takes longer has visited many long-lived objects
YOUNG_A_MIDDLE_COLLECTION = 4  # young ones; with Python's ten, a middle one of 7,000 objects takes up to 5 ms
NO_FULL_COLLECTION = (1 << 31) - 1  # so many collections of the middle generation would start one of the oldest
TRIM_CHANGED_BYTES = 4 << 20
# Blocks from this size on get pages of their own (`freeze_heap`). A zstd window of 2 MB (level 3) is smaller: its own
# pages would cost six page faults a batch.
APART_BYTES = 3 << 20
KEPT_FREE_BYTES = (1 << 31) - 1  # at the end of the common heap: returning much of it at once is a step of 20 ms
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # mallopt(3)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def share_one_heap() -> None:
    """Limit malloc to one arena for all threads: memory that one thread frees can then be reused by the others.

    Call this before the first thread starts. Does nothing where the C library has no mallopt.
    """
    # Threads hardly compete for the arena, because most of them hold the GIL when they allocate.
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)


def freeze_heap() -> None:
    """Freeze all current objects, so that later collections skip them; set the options of collector and malloc."""
    # Blocks with pages of their own grow without being copied, leave no holes in the heap, and are returned as soon as
    # they are freed. Without an explicit threshold glibc raises it with each freed block, and puts larger and larger
    # blocks into the common heap: a hundred frames of 5 MB that arrive at once would take half as much again.
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, APART_BYTES)
        set_option(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)
    # The garbage goes first, because frozen cycles are never freed.
    gc.collect()
    gc.freeze()
    # The broker's objects are freed by their reference counts. Only few cycles (exceptions, tasks) outlive the younger
    # generations, and these wait for `keep_small`.
    young, _, _ = gc.get_threshold()
    gc.set_threshold(young, YOUNG_A_MIDDLE_COLLECTION, NO_FULL_COLLECTION)
    gc.enable()  # the command line switches it off while everything is imported


async def keep_small(load: Callable[[], int], held_bytes: Callable[[], int]) -> None:
    """Until cancelled: freeze whenever the load has doubled, collect every five minutes, and return freed memory.

    `load()` is a measure of the long-lived objects: connections, partitions and members of groups. `held_bytes()` is
    what the requests and responses of clients hold: the collection waits until it is little.
    """
    frozen_at = max(FREEZE_LOAD_MIN, load())
    trimmed_at_bytes = resident_bytes()
    while True:
        for look in range(LOOKS_A_COLLECTION + LOOKS_TO_QUIET_MAX):
            if look >= LOOKS_A_COLLECTION and held_bytes() <= HELD_BYTES_MAX:
                break
            await trio.sleep(LOOK_SECONDS)
            if load() > 2 * frozen_at:
                # There is no collection before, which would take up to 300 ms; existing garbage is
                # frozen too.
                gc.freeze()
                frozen_at = load()
            # A process that has become smaller is trimmed, too: more of the memory that it had in use may
            # be free.
            if abs(resident_bytes() - trimmed_at_bytes) > TRIM_CHANGED_BYTES:
                trimmed_at_bytes = await _trimmed()
        began = time.perf_counter()
        gc.collect()

        # The objects that are left are no garbage now. After a short collection they are not frozen, because a frozen
        # object that becomes garbage in a cycle is never freed.
        if time.perf_counter() - began > FREEZE_COLLECTION_SECONDS:
            gc.freeze()

        # The comparison above misses memory that was freed inside the heap: it does not change the size of the process.
        trimmed_at_bytes = await _trimmed()


async def _trimmed() -> int:
    """The resident memory after `trim_heap`."""
    # The trimming takes some milliseconds, without the GIL, so it runs in a thread.
    await in_worker_thread(trim_heap)
    return resident_bytes()


def trim_heap() -> None:
    """Return the pages of free memory to the system, where the C library can. Blocking: short."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """The resident memory of this process; 0 on systems without /proc. Blocking: never."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
