"""Retention in the running broker: deletion of old segments, and expiry of producers (reference D.6)."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from barnabas.storage.disk import StorageError
from barnabas.world.containment import contained
from barnabas.world.pacing import portions

if TYPE_CHECKING:
    from barnabas.replication.logs.delayed_deletion import DelayedDeletion
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition
    from barnabas.world.world import World

logger = logging.getLogger(__name__)

PRODUCERS_AT_A_TIME = 1000  # checked in one step
FLUSH_SECONDS_MAX = 10  # that a deletion waits for a flush; the next run continues it


class Retention:
    """Deletes segments by `retention.ms` and `retention.bytes`, and those below the log start offset."""

    def __init__(
        self, directories: "LogDirectories", deletion: "DelayedDeletion", flusher: "Flusher", world: "World"
    ) -> None:
        self._directories = directories
        self._deletion = deletion
        self._flusher = flusher
        self._world = world

    async def delete_old_segments(self, high_watermarks: "Mapping[TopicPartition, int]") -> None:
        """Delete old segments of all logs but the compacted ones."""
        # The cleaner does that for compacted logs, between two passes: a pass and retention both remove segments.
        for log in self._directories.logs():
            await trio.lowlevel.checkpoint()
            # Without a role the partition has no high watermark, and only committed records may be deleted.
            high_watermark = high_watermarks.get(log.topic_partition)
            if high_watermark is not None and not log.config.compacted:
                await self.delete_old_segments_of(log, high_watermark)

    async def delete_old_segments_of(self, log: "PartitionLog", high_watermark: int) -> None:
        """Delete the old segments of one log, a few in each step."""
        await self._delete_all_of(log, high_watermark)
        # Other segments can be deleted only after a flush has written a snapshot of the producers, and a quiet log gets
        # no other flush. There is one more attempt only, with a time limit: in a shortage the flusher repeats the
        # flush, and the other logs must not wait for that.
        if log.has_unsaved_snapshots and self._directories.get(log.topic_partition) is log:
            with suppress(StorageError), trio.move_on_after(FLUSH_SECONDS_MAX):
                await self._flusher.flush([log])
                await self._delete_all_of(log, high_watermark)

    async def _delete_all_of(self, log: "PartitionLog", high_watermark: int) -> None:
        # The log may be deleted, or replaced by a move to another directory, at each checkpoint.
        while self._directories.get(log.topic_partition) is log and self._delete_some_of(log, high_watermark):
            await trio.lowlevel.checkpoint()

    def _delete_some_of(self, log: "PartitionLog", high_watermark: int) -> bool:
        """Delete some segments. False if there are none to delete, or if that failed."""
        # This is one synchronous step: the flags that `delete_old_segments` checks cannot change
        # before the renames.
        deleted = 0
        with contained(logger, "%s: its old segments stay for now", log):
            try:
                deleted = log.delete_old_segments(self._world.now_ms(), high_watermark)
            except StorageError as error:
                self._directories.fail_directory_of(log, error)
        if deleted:
            logger.info("%s: deleted %d segments, starts at %d", log, deleted, log.log_start_offset)
            self._deletion.segments_of(log)
        return deleted > 0

    async def expire_producers(self, expiration_ms: int) -> None:
        """Remove the state of producers that have written nothing for `expiration_ms`."""
        for log in self._directories.logs():
            ids = log.producers.ids()
            # Verifications of transactions expire even in a log without producers.
            if not ids and not log.is_being_cut:
                log.producers.expire(self._world.now_ms(), expiration_ms, ids)
            for some in portions(ids, PRODUCERS_AT_A_TIME):
                # A truncation loads the producers again in a thread, so nothing may change them meanwhile. What is
                # skipped here expires in the next run.
                if not log.is_being_cut:
                    log.producers.expire(self._world.now_ms(), expiration_ms, some)
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
