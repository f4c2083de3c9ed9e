"""Truncates logs, together with their checkpoints (reference C.3).

A truncation removes files and changes the log's state in memory, in a worker thread. So no other operation may use the
log meanwhile (`gate.py`). Only logs of followers and future logs are truncated, by their fetcher.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.storage.disk import HalfDone, StorageError

if TYPE_CHECKING:
    from barnabas.replication.logs.checkpoints import Checkpoints
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.replication.logs.gate import Gate
    from barnabas.storage.log import PartitionLog
    from barnabas.world.world import World


class Truncation:
    """Truncates logs, each while nothing else uses it."""

    def __init__(self, directories: "LogDirectories", checkpoints: "Checkpoints", gate: "Gate", world: "World") -> None:
        self._directories = directories
        self._checkpoints = checkpoints
        self._gate = gate
        self._world = world

    async def truncate(self, log: "PartitionLog", offset: int, on_cut: Callable[[], None]) -> None:
        """Truncate the log to `offset`, or to the start of the batch that contains it; then call `on_cut`.

        A StorageError takes the directory offline. A cancellation takes effect after the truncation.
        """
        if offset < log.log_end_offset:
            await self._cut(log, log.truncate_to, offset, on_cut)
        # No record is removed, so this needs no thread, and `on_cut` is not called. `truncate_to` may still remove a
        # leader epoch without records, which only changes memory.
        else:
            log.truncate_to(offset)

    async def start_over(self, log: "PartitionLog", offset: int, on_cut: Callable[[], None]) -> None:
        """Delete all records of the log and restart it at `offset`. As `truncate` otherwise."""
        # The copy will begin at `offset`. Only the current log knows the producers of the deleted records below it, and
        # the swap takes its producer state over in memory alone. A snapshot at `offset` outlives the process.
        current = log.copied_from
        copied = None if current is None or current.is_being_cut else current.producers.entries()
        await self._cut(log, partial(log.truncate_fully_and_start_at, copied=copied), offset, on_cut)

    async def _cut(
        self, log: "PartitionLog", cut: Callable[[int], object], offset: int, on_cut: Callable[[], None]
    ) -> None:
        # This is shielded: no append may come between the cut and its checkpoints. A cancelled
        # fetcher leaves after both, and only then may the partition's role change
        # (`replication/replicas.py`).
        with trio.CancelScope(shield=True):
            # The log's fetcher is its only writer, and it waits here. So no append needs to be kept out.
            async with self._gate.truncating(log):
                await self._carry_out(log, cut, offset, on_cut)

    async def _carry_out(
        self, log: "PartitionLog", cut: Callable[[int], object], offset: int, on_cut: Callable[[], None]
    ) -> None:
        try:
            with self._directories.directory_of(log).in_use():
                await self._world.in_thread(cut, offset)
            # The high watermark must fall to the new log end before it is written to its
            # checkpoint.
            on_cut()
            await self._checkpoints.write_all_of(log)
        except StorageError as error:
            # A half truncated log must not be used, even if only a descriptor was missing: the directory goes offline,
            # and the next start recovers the log. The same holds if only the checkpoints could not be written: the old
            # recovery point would lie above records that are appended later.
            half_done = error if isinstance(error, HalfDone) else HalfDone(error, "the log half truncated")
            self._directories.fail_directory_of(log, half_done)
            # If the directory had failed before, the log was closed then, and the thread has opened a file again.
            log.abandon()
            raise half_done from error
