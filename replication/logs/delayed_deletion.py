"""Removes files some time after their deletion: segments named .deleted, and directories named -delete.

As in Kafka, a reader of such a file can finish, and an administrator can save what was deleted by mistake.
"""

import heapq
import logging
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from barnabas.replication.logs.directory import remove_durably
from barnabas.storage.disk import StorageError
from barnabas.world.containment import contained

if TYPE_CHECKING:
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.storage.log import PartitionLog
    from barnabas.world.world import World

logger = logging.getLogger(__name__)

RETRY_MS = 10_000  # before a retry, after the process lacked a descriptor or the clock was set back


class DeletionConfig(Protocol):
    """The broker property that this file reads. Implemented by BrokerConfig."""

    log_segment_delete_delay_ms: int


class Due(NamedTuple):
    """Files to remove, and when (trio's clock, s)."""

    at: float
    number: int  # decides between equal times: the fields behind it have no order
    directory: "LogDirectory"
    log: "PartitionLog | None"  # the deleted segments of this log; if None,
    path: str  # this directory


class DelayedDeletion:
    """Removes deleted files when they are due, except in directories that have gone offline."""

    def __init__(self, config: DeletionConfig, directories: "LogDirectories", world: "World") -> None:
        self._config = config
        self._directories = directories
        self._world = world
        self._waiting: list[Due] = []
        self._changed = trio.Event()
        self._numbers = count()

    def segments_of(self, log: "PartitionLog") -> None:
        """Segments of this log were deleted or replaced: remove their files after their delay."""
        self._wait(self._directories.directory_of(log), log.config.file_delete_delay_ms, log=log)

    def directory(self, directory: "LogDirectory", path: str) -> None:
        """Remove this directory of a deleted log, which was renamed, after `log.segment.delete.delay.ms`."""
        self._wait(directory, self._config.log_segment_delete_delay_ms, path=path)

    async def run(self) -> None:
        """Remove files as they become due, until cancelled."""
        waiting = self._waiting
        while True:
            # `_wait` ends this wait early, because its entry may be due before the first one.
            with trio.move_on_at(waiting[0].at if waiting else float("inf")):
                self._changed = trio.Event()
                await self._changed.wait()
            while waiting and waiting[0].at <= trio.current_time():
                # The entry is popped before the removal, because new entries may come first
                # meanwhile. A crash loses the table: the next start finds the files by their names.
                due = heapq.heappop(waiting)
                # The next start also finds the files in a directory that is offline now.
                if due.directory.failure is None:
                    with contained(logger, "%s is not removed before the next start", due.log or due.path):
                        await self._remove(due)

    def _wait(
        self, directory: "LogDirectory", delay_ms: int, *, log: "PartitionLog | None" = None, path: str = ""
    ) -> None:
        # The wait is by trio's clock, because the wall clock may be set back.
        at = trio.current_time() + delay_ms / 1000
        heapq.heappush(self._waiting, Due(at, next(self._numbers), directory, log, path))
        self._changed.set()

    async def _remove(self, due: Due) -> None:
        if due.log is None:
            is_done = await self._directories.attempt(due.directory, remove_durably, self._world.disk, due.path)
        # The logs are compared by identity: after a move, or a deletion and a new creation, another
        # log has this key.
        elif self._directories.get(due.log.topic_partition) is due.log:
            is_done = await self._remove_segments(due.log)
        else:
            return  # the log was deleted meanwhile, and its files are in the -delete directory now
        if not is_done:
            self._wait(due.directory, RETRY_MS, log=due.log, path=due.path)

    async def _remove_segments(self, log: "PartitionLog") -> bool:
        """Remove the segments of a log that are due. False if this has to be repeated."""
        # The thread runs beside appends and reads: it touches only files that have left the log's list of segments. If
        # the log is deleted meanwhile, the thread fails on a missing path, which takes no directory offline
        # (`fail_directory_of`).
        try:
            with self._directories.directory_of(log).in_use():
                removed = await self._world.in_thread(log.segments.remove_deleted, self._world.now_ms())
        except StorageError as error:
            self._directories.fail_directory_of(log, error)
            return False
        # Segments are due by the wall clock. If none was due, that clock was set back since the deletion.
        return removed > 0 or not log.segments.has_deleted_files
