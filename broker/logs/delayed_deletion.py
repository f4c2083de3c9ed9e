"""What was deleted and waits for its removal: segments called .deleted, directories called -delete.

They keep their bytes for `file.delete.delay.ms`, as in Kafka, so that what was deleted by mistake can be saved by hand.
"""

import heapq
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.broker.containment import contained

if TYPE_CHECKING:
    from barnabas.broker.logs.directory import LogDirectory
    from barnabas.storage.log import PartitionLog

logger = logging.getLogger(__name__)

AGAIN_MS = 10_000  # a shortage, or a clock that was set back


class Doomed(NamedTuple):
    """Files to remove, at a time of trio's clock."""

    due: float
    number: int  # orders those due together
    directory: "LogDirectory"
    log: "PartitionLog | None"  # the deleted segments of this log; if None,
    path: str  # this directory


class Removals:
    """Has everything removed when it is due, except in directories that have gone offline."""

    def __init__(self, remove: Callable[[Doomed], Awaitable[None]]) -> None:
        self._remove = remove
        self._waiting: list[Doomed] = []
        self._changed = trio.Event()
        self._numbers = count()

    def doom(
        self, directory: "LogDirectory", delay_ms: int, *, log: "PartitionLog | None" = None, path: str = ""
    ) -> None:
        """Remove the deleted segments of this log, or else this directory, after a delay."""
        due = trio.current_time() + delay_ms / 1000
        heapq.heappush(self._waiting, Doomed(due, next(self._numbers), directory, log, path))
        self._changed.set()

    def again(self, doomed: Doomed) -> None:
        """It could not be removed yet."""
        self.doom(doomed.directory, AGAIN_MS, log=doomed.log, path=doomed.path)

    async def run(self) -> None:
        """Remove for ever."""
        waiting = self._waiting
        while True:
            with trio.move_on_at(waiting[0].due if waiting else float("inf")):
                self._changed = trio.Event()
                await self._changed.wait()
            while waiting and waiting[0].due <= trio.current_time():
                doomed = heapq.heappop(waiting)
                if doomed.directory.failure is None:
                    with contained(logger, "%s is not removed before the next start", doomed.log or doomed.path):
                        await self._remove(doomed)
