"""Opens and creates the log of a partition in a log directory."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.storage.checkpoint import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.disk import StorageError, join
from barnabas.storage.files import OpenFiles
from barnabas.storage.log import PartitionLog
from barnabas.storage.opening import open_log
from barnabas.storage.settings import LogConfig
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from barnabas.replication.logs.checkpoints import Checkpoints
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.world.world import World


class LogOpener:
    """Opens logs. All of them share one limit of open files."""

    def __init__(self, directories: "LogDirectories", checkpoints: "Checkpoints", world: "World") -> None:
        self._directories = directories
        self._checkpoints = checkpoints
        self._world = world
        self._open_files = OpenFiles(world.disk)

    def opener(
        self, directory: "LogDirectory", key: TopicPartition, config: LogConfig, clean: bool, name: str
    ) -> Callable[[], PartitionLog]:
        """A function for a worker thread that opens the log called `name`, with its offsets from the checkpoints."""
        # The offsets are read here, on the event loop: a writer of checkpoints may replace the
        # tables while the thread runs.
        recovery_point, log_start_offset, first_dirty_offset = (
            directory.written.get(file, {}).get(key)
            for file in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT)
        )
        return partial(
            open_log,
            self._world.disk,
            join(directory.path, name),
            key,
            config,
            # Without an entry nothing is known to be synced: after a crash all of the log is checked.
            recovery_point=recovery_point or 0,
            # Without an entry the log starts at its first segment, and all of it is dirty.
            log_start_offset=log_start_offset,
            first_dirty_offset=first_dirty_offset,
            clean=clean,
            now_ms=self._world.now_ms(),
            open_files=self._open_files,
        )

    def add(self, directory: "LogDirectory", log: PartitionLog) -> PartitionLog:
        """Add a log that a thread opened to its directory's table. StorageError if the directory failed meanwhile."""
        # The failure has closed the logs in the tables, and this one was in none. Its files would stay open, and it
        # would be served from a directory that is offline.
        if directory.failure is not None:
            log.abandon()
            raise directory.failure
        is_future = log.directory != join(directory.path, str(log.topic_partition))
        (directory.future_logs if is_future else directory.logs)[log.topic_partition] = log
        return log

    async def create_in(
        self, directory: "LogDirectory", key: TopicPartition, topic_id: bytes, config: LogConfig, name: str
    ) -> PartitionLog:
        """Create a log called `name` in this directory, a current or a future one. StorageError if that fails."""
        # A checkpoint on disk may still have the entry of a deleted log of this name. After a crash the new log would
        # get its recovery point, or its log start offset.
        for checkpoint in OFFSET_CHECKPOINTS:
            if key in directory.written.get(checkpoint, {}):
                await self._checkpoints.write(directory, checkpoint)
        # The directory counts as clean, because there is nothing to recover in an empty one.
        opened = self.opener(directory, key, config, clean=True, name=name)

        # The topic id is durable before the log is in the table and gets records. After a crash it must be known to
        # which topic the records belong: the topic may be deleted and created again.
        def make() -> PartitionLog:
            log = opened()
            try:
                if topic_id != ZERO_TOPIC_ID:
                    log.assign_topic_id(topic_id)
            # The log is in no table yet, so nothing else would close its files.
            except StorageError:
                log.abandon()
                raise
            return log

        return self.add(directory, await self._directories.run(directory, make))

    async def assign_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        """Write the topic id of a log that an older broker created. A StorageError takes its directory offline."""
        await self._directories.run(self._directories.directory_of(log), log.assign_topic_id, topic_id)
