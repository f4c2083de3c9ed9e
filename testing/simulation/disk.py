"""The disk of one simulated machine: `storage/memdisk.py`, with faults.

    slow      work in threads (syncs, cold reads, recovery) takes longer; the node's `in_thread` asks `thread_seconds`
    busy      only the rounds of syncs of the flusher take longer, as on a device with much to write
    errors    the next operation of a kind fails with EIO (`fail_next`)
    full      writes fail until it is `healed`

Every change goes into the trace. A crash returns a new disk, as in `memdisk.py`: that of the broker's next start.
"""

import random
from collections.abc import Callable

from barnabas.storage.memdisk import UNLIMITED_BYTES, DiskFault, MemDisk
from barnabas.testing.simulation.trace import Trace

THREAD_SECONDS_MIN, THREAD_SECONDS_MAX = 0.000_1, 0.001  # of work that waits for a healthy device
TRACED = frozenset({"write", "sync", "truncate", "rename", "remove", "remove_tree", "replace_file"})


class SimDisk(MemDisk):
    """A disk that tells the trace what is done to it."""

    def __init__(self, name: str, trace: Trace, rng: random.Random, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms=now_ms)
        self.name = name
        self.slow_seconds = 0.0  # a fault: work in a thread takes up to so much longer
        self.slow_sync_seconds = 0.0  # a fault: so do the flusher's rounds of syncs, and nothing else
        self._trace = trace
        self._rng = rng

    def thread_seconds(self, *, is_sync: bool) -> float:
        """How long the next piece of work in a thread takes."""
        seconds = self._rng.uniform(THREAD_SECONDS_MIN, THREAD_SECONDS_MAX)
        seconds += self.slow_sync_seconds if is_sync else 0.0
        return seconds + self._rng.random() * self.slow_seconds if self.slow_seconds else seconds

    def fill(self, left_bytes: int) -> None:
        """From now on only so much can be written."""
        self.capacity_bytes = self.used_bytes + left_bytes

    def heal(self) -> None:
        """No fault any more; what failed stays failed."""
        self.capacity_bytes = UNLIMITED_BYTES
        self.slow_seconds = self.slow_sync_seconds = 0.0
        self.forget_faults()

    def take_fault(self, operation: str, path: str) -> DiskFault | None:
        """As in `MemDisk`; every change passes here. The bytes in use tell the sizes of the writes before."""
        if operation in TRACED:
            self._trace.note(f"disk {self.name} {operation} {path} {self.used_bytes}")
        return super().take_fault(operation, path)

    def another(self) -> "SimDisk":
        """As in `MemDisk`: the same machine's."""
        after = SimDisk(self.name, self._trace, self._rng, self.now_ms)
        after.slow_seconds = self.slow_seconds
        after.slow_sync_seconds = self.slow_sync_seconds
        after.capacity_bytes = self.capacity_bytes
        return after
