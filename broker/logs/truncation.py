"""Truncation of a log, and what belongs to it (reference C.3).

A truncation removes files and rewrites what memory says of them, in a worker thread beside the event loop, so the log
is closed to all others (`gate.py`). Only followers' logs are truncated, by their fetcher, which is also the only one
that appends to them; a role changes only after the fetcher has left (`replication/replicas.py`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.storage.disk import HalfDone, StorageError

if TYPE_CHECKING:
    from barnabas.broker.logs.checkpoints import Checkpoints
    from barnabas.broker.logs.directories import LogDirectories
    from barnabas.broker.logs.gate import Gate
    from barnabas.broker.world import World
    from barnabas.storage.log import PartitionLog


class Truncation:
    """Truncates logs, each while nothing else uses it."""

    def __init__(self, directories: "LogDirectories", checkpoints: "Checkpoints", gate: "Gate", world: "World") -> None:
        self._directories = directories
        self._checkpoints = checkpoints
        self._gate = gate
        self._world = world

    async def truncate(self, log: "PartitionLog", offset: int, on_cut: Callable[[], None]) -> None:
        """Let the log end at `offset`, or before the batch that holds it; `on_cut` is called when it does.

        StorageError takes its directory offline. Cancellation waits for the end.
        """
        if offset < log.log_end_offset:
            await self._cut(log, log.truncate_to, offset, on_cut)
        else:
            log.truncate_to(offset)

    async def start_over(self, log: "PartitionLog", offset: int, on_cut: Callable[[], None]) -> None:
        """Delete all records of the log, and let it begin again at `offset`. As `truncate` otherwise."""
        await self._cut(log, log.truncate_fully_and_start_at, offset, on_cut)

    async def _cut(
        self, log: "PartitionLog", cut: Callable[[int], object], offset: int, on_cut: Callable[[], None]
    ) -> None:
        with trio.CancelScope(shield=True):
            async with self._gate.truncating(log):
                await self._carry_out(log, cut, offset, on_cut)

    async def _carry_out(
        self, log: "PartitionLog", cut: Callable[[int], object], offset: int, on_cut: Callable[[], None]
    ) -> None:
        try:
            with self._directories.directory_of(log).in_use():
                await self._world.in_thread(cut, offset)
            on_cut()
            await self._checkpoints.write_all_of(log)
        except StorageError as error:
            # A log that is truncated by half may not be used, not even if only a descriptor was lacking: the directory
            # goes offline, and the next start finds out how far the truncation came.
            half_done = error if isinstance(error, HalfDone) else HalfDone(error, "the log half truncated")
            self._directories.fail_directory_of(log, half_done)
            raise half_done from error
