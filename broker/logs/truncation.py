"""A log that is cut has itself to itself: who is kept away, and how (reference C.3).

A truncation removes files and rewrites what memory says of them, in a worker thread, beside the event loop. So whoever
else uses the log is kept away first:

- appends: only the fetcher appends to a follower's log, and it is the one who waits here; a leader's is never cut, for
  a role flips only after the fetcher has left (`replicas.py`), and DeleteRecords is for leaders
- reads, flush plans, retention and the expiry of producers: all of them begin on the event loop, and look at
  `is_being_cut` there; a sync that is under way is waited for
- compaction: paused, so that a pass under way is given up and none begins
- searches, which run in threads: refused, and those under way end with their next step (`gate.py`)

What the checkpoint files say of the log may be too much now. Above all the recovery point: the next records are written
where it promises that everything is synced. So they are written anew before anybody may append.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.storage.disk import HalfDone, StorageError

if TYPE_CHECKING:
    from barnabas.broker.logs.partition_logs import Logs
    from barnabas.broker.world import World
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog


class Truncation:
    """Cuts logs, each while nobody else uses it."""

    def __init__(self, world: "World", logs: "Logs", flusher: "Flusher") -> None:
        self._world = world
        self._logs = logs
        self._flusher = flusher

    async def truncate(self, log: "PartitionLog", offset: int, on_cut: Callable[[], None]) -> None:
        """Let the log end at `offset`, or before the batch that holds it; `on_cut` is called when it does.

        StorageError takes its directory offline. Cancellation waits for the end.
        """
        if offset < log.log_end_offset:
            await self._cut(log, log.truncate_to, offset, on_cut)
        else:
            log.truncate_to(offset)

    async def start_over(self, log: "PartitionLog", offset: int, on_cut: Callable[[], None]) -> None:
        """Forget all that the log holds, and let it begin anew at `offset`. As `truncate` otherwise."""
        await self._cut(log, log.truncate_fully_and_start_at, offset, on_cut)

    async def _cut(
        self, log: "PartitionLog", cut: Callable[[int], object], offset: int, on_cut: Callable[[], None]
    ) -> None:
        with trio.CancelScope(shield=True):
            log.is_being_cut = True
            try:
                async with self._logs.searches.kept_out(log), self._logs.cleaner.paused(log):
                    await self._flusher.forget(log)
                    await self._carry_out(log, cut, offset, on_cut)
            finally:
                log.is_being_cut = False

    async def _carry_out(
        self, log: "PartitionLog", cut: Callable[[int], object], offset: int, on_cut: Callable[[], None]
    ) -> None:
        """The cut and what belongs to it. What is done half must not go on, not even if only a descriptor was lacking:
        the next start finds out how far it came."""
        try:
            with self._logs.directory_of(log).in_use():
                await self._world.in_thread(cut, offset)
            on_cut()
            await self._logs.checkpoint_cut(log)
        except StorageError as error:
            half_done = error if isinstance(error, HalfDone) else HalfDone(error, "the log half cut")
            self._logs.fail_directory_of(log, half_done)
            raise half_done from error
