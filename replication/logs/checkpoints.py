"""The checkpoint files of the log directories: recovery points, log starts, high watermarks, clean offsets (D.7).

Each file is written periodically, and at once where correctness needs it: before the first append after a truncation,
and before the response to DeleteRecords.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.storage.checkpoint import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    write_checkpoint,
)
from barnabas.storage.disk import StorageError, join
from barnabas.world.pacing import pause_after, portions

if TYPE_CHECKING:
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition
    from barnabas.world.world import World

LOGS_AT_A_TIME = 200  # whose offsets are collected in one step


class Checkpoints:
    """Writes the checkpoint files. A StorageError takes the directory offline, and is raised again."""

    def __init__(self, directories: "LogDirectories", world: "World") -> None:
        self._directories = directories
        self._world = world
        self._loaded_high_watermarks: dict[TopicPartition, int] = {}
        self.high_watermarks: Callable[[], Mapping[TopicPartition, int]] = dict  # of the hosted partitions

    def note_loaded(self, directory: "LogDirectory", high_watermarks: "Mapping[TopicPartition, int]") -> None:
        """Take over the high watermarks that this directory's checkpoint file had at the start."""
        # Logs in other directories are left out: after a move the old directory's file may still
        # have the partition, with an older high watermark.
        self._loaded_high_watermarks |= {key: high_watermarks.get(key, 0) for key in directory.logs}

    def loaded_high_watermark(self, key: "TopicPartition") -> int:
        """The high watermark that the previous run of the broker wrote; 0 if it wrote none."""
        return self._loaded_high_watermarks.get(key, 0)

    def forget(self, key: "TopicPartition") -> None:
        """The log of this partition is deleted."""
        self._loaded_high_watermarks.pop(key, None)

    async def write_all_of(self, log: "PartitionLog") -> None:
        """Write every checkpoint of the directory of this log: after a truncation, before anything is appended."""
        # The recovery point must fall with the log. With the old one, a start after a crash would skip the check of
        # records that were appended below it after the truncation and never synced.
        for name in OFFSET_CHECKPOINTS:
            await self.write(self._directories.directory_of(log), name)

    async def write_recovery_points(self, log: "PartitionLog") -> None:
        """Write how far the logs in the directory of this log are synced: before a compaction of it."""
        # After a crash, recovery takes a gap between segments for the work of a compaction only below the recovery
        # point in the file.
        await self.write(self._directories.directory_of(log), RECOVERY_POINT_CHECKPOINT)

    async def write_log_starts(self, directory: "LogDirectory") -> None:
        """Make the log start offsets of a directory durable, for DeleteRecords."""
        # Once a client has the response, a crash must not bring the records back: they may be deleted for a legal
        # reason.
        await self.write(directory, LOG_START_CHECKPOINT)

    async def write_clean_offsets(self, log: "PartitionLog") -> None:
        """Write how far the logs in the directory of this log are compacted."""
        # No correctness depends on this one: an old offset only makes the next pass read more.
        await self.write(self._directories.directory_of(log), CLEANER_CHECKPOINT)

    async def write_everywhere(self, name: str) -> None:
        """Write this checkpoint of every directory that is online."""
        for directory in self._directories.live():
            try:
                await self.write(directory, name)
            except StorageError:
                continue  # it is offline now, or lacked a descriptor; the other directories are written

    async def write(self, directory: "LogDirectory", name: str) -> None:
        """Write this checkpoint of a directory, if its content has changed."""
        # The lock keeps an older content from replacing a newer one. A caller that needs its offset on disk waits for
        # the previous writer, and collects the offsets after that.
        async with directory.writing:
            # A partition without a role has no high watermark in memory, and the file must not lose its entry.
            high_watermarks: dict[TopicPartition, int] = {}
            if name == HIGH_WATERMARK_CHECKPOINT:
                high_watermarks = {**self._loaded_high_watermarks, **self.high_watermarks()}
            # The offsets of two logs may be from different steps, for logs do not depend on each other. A recovery
            # point may have risen since: an older one only makes recovery read more. It falls only in a truncation,
            # which writes this file itself before the next append.
            offsets: dict[TopicPartition, int] = {}
            for some in portions([*directory.logs, *directory.future_logs], LOGS_AT_A_TIME):
                offsets |= directory.offsets(name, some, high_watermarks)
                await pause_after(len(some))
            # The directory may have failed at a checkpoint above, which emptied its tables: `offsets` lacks logs that
            # are still on the disk, and without their entries the next start would read them from the beginning.
            if directory.failure is not None:
                raise directory.failure
            # An idle broker writes nothing. `written` is set after the write: after a failed one the file is old.
            if directory.written.get(name) != offsets:
                path = join(directory.path, name)
                await self._directories.run(directory, write_checkpoint, self._world.disk, path, offsets)
                directory.written[name] = offsets
