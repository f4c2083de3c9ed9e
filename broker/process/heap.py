"""The interpreter's heap while a broker serves (edge): full collections are rare, and free memory goes back.

A collection of the oldest generation looks through everything that is not frozen, with the loop and all threads at a
stand: 28 ms while one large request is in memory, and a request that is being decoded would set off several. The
broker's objects die by their reference counts; the few cycles (exceptions, tasks) that outlive the younger generations
wait for a collection every five minutes. What lives long is frozen as it grows, which takes it out of the collector's
sight.

What large requests and answers took is free afterwards, but the C library keeps it for the next one. It is asked to
give it back (glibc only) when the process has grown, or has become smaller: of what it had in use then, more may be
free now. Blocks from `APART_BYTES` on have pages of their own: they grow
without being copied, leave no holes, and go back as soon as they are free. Left alone, the C library would put larger
and larger blocks into the common heap, and a hundred frames of 5 MB that arrive at once would take half as much again.
"""

import ctypes
import gc
import os
from collections.abc import Callable
from typing import Final

import trio

LOOK_SECONDS = 10.0
LOOKS_A_COLLECTION = 30  # five minutes
FREEZE_LOAD_MIN = 500  # below, the collector has little to look through
YOUNG_A_MIDDLE_COLLECTION = 4  # with the usual ten, one of 7,000 objects takes up to 5 ms
NO_FULL_COLLECTION = (1 << 31) - 1  # how many collections of the middle generation set off one of the oldest
TRIM_CHANGED_BYTES = 4 << 20
APART_BYTES = 3 << 20  # above a zstd window of 2 MB (level 3): pages of its own would cost six page faults a batch
KEPT_FREE_BYTES = (1 << 31) - 1  # at the end of the common heap: to give much back at once is a step of 20 ms
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # mallopt(3)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def share_one_heap() -> None:
    """Let all threads allocate from one heap of the C library: with one heap each, what one has freed no other reuses.

    Before the first thread begins. Threads wait for each other little, for the interpreter's lock comes first.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)


def freeze_heap() -> None:
    """Take what lives now out of the collector's sight: it stays, and looking through it again and again stalls."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, APART_BYTES)
        set_option(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)
    gc.collect()
    gc.freeze()
    young, _, _ = gc.get_threshold()
    gc.set_threshold(young, YOUNG_A_MIDDLE_COLLECTION, NO_FULL_COLLECTION)
    gc.enable()  # the command line switches it off while everything is imported


async def keep_small(load: Callable[[], int]) -> None:
    """Freeze again whenever the load (what lives long: connections, partitions) has doubled; collect now and then; give
    free memory back."""
    frozen_at, trimmed_at_bytes = max(FREEZE_LOAD_MIN, load()), resident_bytes()
    while True:
        for _ in range(LOOKS_A_COLLECTION):
            await trio.sleep(LOOK_SECONDS)
            if load() > 2 * frozen_at:
                gc.freeze()  # with what garbage there is: to look for it first would be a step of up to 300 ms
                frozen_at = load()
            if abs(resident_bytes() - trimmed_at_bytes) > TRIM_CHANGED_BYTES:
                await trio.to_thread.run_sync(trim_heap)  # some milliseconds, without the interpreter's lock
                trimmed_at_bytes = resident_bytes()
        gc.collect()


def trim_heap() -> None:
    """Give the pages of free memory back to the system, where the C library can. Blocking: short."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """The memory that this process takes; 0 where the system does not say. Blocking: never."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
