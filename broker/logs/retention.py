"""Retention in the running broker: which logs lose old segments, and producers that have been silent for long (D.6)."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.broker.containment import contained
from barnabas.broker.pacing import portions
from barnabas.storage.disk import StorageError

if TYPE_CHECKING:
    from barnabas.broker.logs.delayed_deletion import DelayedDeletion
    from barnabas.broker.logs.directories import LogDirectories
    from barnabas.broker.world import World
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

PRODUCERS_AT_A_TIME = 1000  # that one step looks at


class Retention:
    """Deletes what the topics' configuration wants deleted."""

    def __init__(self, directories: "LogDirectories", deletion: "DelayedDeletion", world: "World") -> None:
        self._directories = directories
        self._deletion = deletion
        self._world = world

    async def delete_old_segments(self, high_watermarks: "Mapping[TopicPartition, int]") -> None:
        """Delete old segments of all logs but the compacted ones, which the cleaner sees to between its passes."""
        for log in self._directories.logs():
            await trio.lowlevel.checkpoint()
            high_watermark = high_watermarks.get(log.topic_partition)  # None: the partition has no role yet
            if high_watermark is not None and not log.config.compacted:
                await self.delete_old_segments_of(log, high_watermark)

    async def delete_old_segments_of(self, log: "PartitionLog", high_watermark: int) -> None:
        """Delete the segments of one log that retention wants deleted."""
        key = log.topic_partition
        while self._directories.get(key) is log and self._delete_some_of(log, high_watermark):
            await trio.lowlevel.checkpoint()

    def _delete_some_of(self, log: "PartitionLog", high_watermark: int) -> bool:
        """One step of it; False when nothing was to do."""
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
        """Forget the producers that have written nothing for so long."""
        for log in self._directories.logs():
            for some in portions(log.producers.ids(), PRODUCERS_AT_A_TIME):
                if not log.is_being_cut:
                    log.producers.expire(self._world.now_ms(), expiration_ms, some)
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
