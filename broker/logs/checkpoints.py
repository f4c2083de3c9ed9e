"""The checkpoint files of the log directories: recovery points, log starts, high watermarks, clean offsets (D.7).

Each is written from time to time, and at once where a promise depends on it: before a truncated log is appended to, and
before DeleteRecords is answered. A file is written only if it has news, so that an idle broker writes nothing.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.pacing import pause_after, portions
from barnabas.storage.checkpoint import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    write_checkpoint,
)
from barnabas.storage.disk import StorageError, join

if TYPE_CHECKING:
    from barnabas.broker.logs.directories import LogDirectories
    from barnabas.broker.logs.directory import LogDirectory
    from barnabas.broker.world import World
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition

LOGS_AT_A_TIME = 200  # whose offsets are collected in one step


class Checkpoints:
    """Writes the checkpoint files. A StorageError takes the directory offline, and is raised again."""

    def __init__(self, directories: "LogDirectories", world: "World") -> None:
        self._directories = directories
        self._world = world
        self._loaded_high_watermarks: dict[TopicPartition, int] = {}
        self.high_watermarks: Callable[[], Mapping[TopicPartition, int]] = dict  # of the hosted partitions

    def note_loaded(self, directory: "LogDirectory", high_watermarks: "Mapping[TopicPartition, int]") -> None:
        """The logs of this directory are open; the file said this of their high watermarks."""
        self._loaded_high_watermarks |= {key: high_watermarks.get(key, 0) for key in directory.logs}

    def loaded_high_watermark(self, key: "TopicPartition") -> int:
        """The high watermark that the previous run of the broker wrote; 0 if it wrote none."""
        return self._loaded_high_watermarks.get(key, 0)

    def forget(self, key: "TopicPartition") -> None:
        """The log of this partition is deleted."""
        self._loaded_high_watermarks.pop(key, None)

    async def write_all_of(self, log: "PartitionLog") -> None:
        """Write every checkpoint of the directory of this log: after a truncation, before anything is appended.

        Above all the recovery point may not stay where it was: the next start would take records that are written below
        it later, and not synced, for synced.
        """
        for name in OFFSET_CHECKPOINTS:
            await self.write(self._directories.directory_of(log), name)

    async def write_log_starts(self, directory: "LogDirectory") -> None:
        """Make the log start offsets of a directory durable, for DeleteRecords."""
        await self.write(directory, LOG_START_CHECKPOINT)

    async def write_clean_offsets(self, log: "PartitionLog") -> None:
        """Write how far the logs in the directory of this log are compacted."""
        await self.write(self._directories.directory_of(log), CLEANER_CHECKPOINT)

    async def write_everywhere(self, name: str) -> None:
        """Write this checkpoint of every directory that is online."""
        for directory in self._directories.live():
            try:
                await self.write(directory, name)
            except StorageError:
                continue  # it is offline now; the others go on

    async def write(self, directory: "LogDirectory", name: str) -> None:
        """Write this checkpoint of a directory, if it has news."""
        async with directory.writing:
            high_watermarks: dict[TopicPartition, int] = {}
            if name == HIGH_WATERMARK_CHECKPOINT:
                high_watermarks = {**self._loaded_high_watermarks, **self.high_watermarks()}
            offsets: dict[TopicPartition, int] = {}
            for some in portions([*directory.logs, *directory.future_logs], LOGS_AT_A_TIME):
                offsets |= directory.offsets(name, some, high_watermarks)
                await pause_after(len(some))
            if directory.failure is not None:
                raise directory.failure
            if directory.written.get(name) != offsets:
                path = join(directory.path, name)
                await self._directories.run(directory, write_checkpoint, self._world.disk, path, offsets)
                directory.written[name] = offsets
