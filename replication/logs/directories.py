"""The log directories of this broker, each online until it fails (KIP-112).

A `StorageError` takes its directory offline until the restart: its logs are closed and `on_failed` is called. If the
process lacks descriptors or memory, only the operation fails. So after a `StorageError` the directory may be online
with the work undone, and each caller decides: retry later, retry until it succeeds (`insist`), or end the start
(`at_start`).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import trio

from barnabas.replication.logs.directory import LogDirectory, mark_failed
from barnabas.storage.disk import SHORTAGE_PAUSE_SECONDS, StorageError, join, parent_of
from barnabas.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition
    from barnabas.world.world import World

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class AllDirectoriesOffline(Exception):
    """The last log directory failed: the broker has no log left."""


class LogDirectories:
    """All log directories, in the order of the configuration."""

    def __init__(self, paths: Sequence[str], world: "World", flusher: "Flusher") -> None:
        self._world = world
        self._flusher = flusher
        self._all = [LogDirectory(path.rstrip("/") or "/", world.disk.absolute_path(path)) for path in paths]
        self.on_failed: Callable[[str, StorageError], None] | None = None
        self.last_failed = trio.Event()

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def live(self) -> list[LogDirectory]:
        """The directories that did not fail. A copy: more may fail while the caller iterates over it."""
        return [directory for directory in self._all if directory.failure is None]

    @property
    def failures(self) -> dict[str, StorageError]:
        """The failed directories by path, each with its error."""
        return {directory.path: directory.failure for directory in self._all if directory.failure is not None}

    def require_one(self) -> None:
        """Raise AllDirectoriesOffline if no directory is online."""
        if not self.live():
            reasons = "; ".join(f"{path} ({error})" for path, error in self.failures.items())
            raise AllDirectoriesOffline(f"no log directory can be used: {reasons}")

    def get(self, key: "TopicPartition") -> "PartitionLog | None":
        """The log of this partition; None if it does not exist here or its directory is offline."""
        for directory in self._all:
            log = directory.logs.get(key)
            if log is not None:
                return log
        return None

    def future_log(self, key: "TopicPartition") -> "PartitionLog | None":
        """The future log of this partition, or None."""
        found = (directory.future_logs.get(key) for directory in self._all)
        return next((log for log in found if log is not None), None)

    def copy_of(self, log: "PartitionLog") -> "PartitionLog | None":
        """The future log that copies exactly this log; None if the log does not move."""
        # A future log may outlive the log that it was made from. A later log of the same name has nothing to do with
        # it.
        future = self.future_log(log.topic_partition)
        return future if future is not None and future.copied_from is log else None

    def logs(self) -> "Iterator[PartitionLog]":
        """All logs but the future ones, as they are now."""
        # This is a copy: callers have checkpoints between two logs, and other tasks create and
        # delete logs meanwhile.
        return iter([log for directory in self._all for log in directory.logs.values()])

    def refuse_if_offline(self, key: "TopicPartition", operation: str) -> None:
        """Raise StorageError if a directory is offline, because a log of this partition may be in it."""
        for path, error in self.failures.items():
            raise StorageError(join(path, str(key)), operation, error.cause)

    def fail_directory_of(self, log: "PartitionLog", error: StorageError) -> None:
        """An operation on this log failed: its directory goes offline, unless the log was deleted meanwhile."""
        directory = self.directory_of(log)
        # A deleted log's files are removed while a reader or a pass may still use them: an error there says nothing
        # about the disk. A failed sync does, whatever file it was.
        if directory.holds(log) or directory.failure is not None or error.is_failed_sync:
            self.fail(directory, error)

    def directory_of(self, log: "PartitionLog") -> LogDirectory:
        """The directory that a log is in, or was in before it was deleted."""
        path = parent_of(log.directory)
        for directory in self._all:
            if directory.path == path:
                return directory
        raise InvariantBroken(f"{log} lies in {path}, which is no log directory")

    def fail(self, directory: LogDirectory, error: StorageError) -> None:
        """An operation in this directory failed: take it offline, unless it only lacked descriptors or memory."""
        # Such a lack says nothing about the disk. The operation failed, and nothing else.
        if error.is_shortage and directory.failure is None:
            logger.error("%s; the directory goes on: raise the limit of open files (ulimit -n)", error)
            return

        # The mark is written before the return below: a sync that was under way may fail after
        # something else has failed the directory. After a failed sync the kernel takes unsynced
        # pages for clean, so the next start has to know of it. A full disk endangers nothing: the
        # bytes were refused, and there is no room for a rewrite.
        if error.endangers_unsynced:
            mark_failed(self._world.disk, directory.path)
        if directory.failure is not None:
            return

        # No step awaits from here on: other tasks see the directory either online with its logs or
        # offline without.
        directory.failure = error
        logger.error("log directory %s is offline: %s", directory.path, error)

        # Requests that wait for a flush get the error. Then the logs leave the table, so that no request finds them,
        # then the partitions lose their roles. Only after that the files are closed.
        self._flusher.give_up(directory.path, error)
        logs = directory.take_all()
        if self.on_failed is not None:
            self.on_failed(directory.path, error)
        directory.give_up(logs)
        if not self.live():
            self.last_failed.set()

    async def run(self, directory: LogDirectory, function: Callable[..., Result], *args: object) -> Result:
        """Run this in a thread; a StorageError takes the directory offline, and is raised again."""
        # A cancelled caller still waits for the thread (`World.in_thread`), so no thread is left behind with the files.
        try:
            with directory.in_use():
                return await self._world.in_thread(function, *args)
        except StorageError as error:
            self.fail(directory, error)
            raise

    async def insist(self, directory: LogDirectory, function: Callable[..., Result], *args: object) -> Result:
        """`run`, repeated while the process lacks descriptors or memory: for work that must not stay half done."""
        while True:
            try:
                return await self.run(directory, function, *args)
            except StorageError as error:
                if not error.is_shortage:
                    raise
            # Other tasks close files meanwhile.
            await trio.sleep(SHORTAGE_PAUSE_SECONDS)

    async def at_start(self, directory: LogDirectory, function: Callable[..., Result], *args: object) -> Result | None:
        """`run`; None if the directory is offline. Raises if the process lacks descriptors or memory."""
        # The broker must not start without having read a directory that is online: it would take the partitions in it
        # for new ones.
        try:
            return await self.run(directory, function, *args)
        except StorageError:
            if directory.failure is None:
                raise
            return None

    async def attempt(self, directory: LogDirectory, function: Callable[..., object], *args: object) -> bool:
        """`run`; returns whether it succeeded."""
        try:
            await self.run(directory, function, *args)
        except StorageError:
            return False
        return True
