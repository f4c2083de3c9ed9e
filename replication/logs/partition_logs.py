"""The partition logs of this broker, in one or several log directories: reference D.6, D.7, KIP-112.

*Start.* `open` locks the directories and reads their owner; the broker settles its identity; `load` opens the logs, and
after an unclean shutdown checks each from its recovery point on (`directory.py`, `storage/recovery.py`).

*Run.* `run` has the periodic tasks: retention, compaction, `flush.ms`, checkpoints, removal of deleted files, expiry of
producers.

*Failure.* A `StorageError` takes its directory offline until the next start: its logs are closed, their partitions lose
their roles, and the other directories stay online (`directories.py`). `run` ends with `AllDirectoriesOffline` after the
last one.

*Stop.* `close` closes the logs, writes the checkpoints, and last the clean shutdown marker, so that the next start does
not check the logs. `abandon` writes nothing, as in a crash.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from barnabas.replication.logs.checkpoints import Checkpoints
from barnabas.replication.logs.cleaner_schedule import CleanerConfig, LogCleaner
from barnabas.replication.logs.delayed_deletion import DelayedDeletion, DeletionConfig
from barnabas.replication.logs.directories import AllDirectoriesOffline, LogDirectories
from barnabas.replication.logs.directory import (
    Contents,
    Loading,
    LogDirectory,
    LogDirectoryRefused,
    StoredIdentity,
    agreed_identity,
    complete_swaps,
    deleted_name,
    mark_clean,
    prepare,
    read_contents,
    refuse_duplicates,
    remove_half_made,
    stray_name,
    take,
)
from barnabas.replication.logs.duplicate_logs import TopicIds, delete_old_duplicates
from barnabas.replication.logs.flush_schedule import FlushSchedule
from barnabas.replication.logs.future_logs import FutureLogs
from barnabas.replication.logs.gate import Gate
from barnabas.replication.logs.opening import LogOpener
from barnabas.replication.logs.placement import LogPlacement
from barnabas.replication.logs.retention import Retention
from barnabas.replication.logs.truncation import Truncation
from barnabas.storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointCorrupt,
)
from barnabas.storage.disk import SHORTAGE_PAUSE_SECONDS, DirectoryLocked, StorageError, join
from barnabas.storage.log import PartitionLog
from barnabas.storage.settings import LogConfig
from barnabas.wire.sentinels import NEVER_MS
from barnabas.wire.topics import TopicPartition
from barnabas.world.containment import contained

if TYPE_CHECKING:
    from barnabas.storage.flusher import Flusher
    from barnabas.world.world import World

logger = logging.getLogger(__name__)

__all__ = ["AllDirectoriesOffline", "Logs", "LogsConfig"]

CLOSING_ROUNDS_MAX = 20  # two seconds with the pauses: other work may free descriptors or memory meanwhile

Result = TypeVar("Result")


class LogsConfig(CleanerConfig, DeletionConfig, Protocol):
    """The broker properties that this file reads. Implemented by BrokerConfig."""

    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    num_recovery_threads_per_data_dir: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    @property
    def log_directories(self) -> Sequence[str]: ...


class Logs:
    """All partition logs of this broker, and the directories they are in."""

    def __init__(self, config: LogsConfig, world: "World", flusher: "Flusher") -> None:
        self._config = config
        self._world = world
        self._flusher = flusher
        self.directories = directories = LogDirectories(config.log_directories, world, flusher)
        self.placement = LogPlacement(directories)
        self.checkpoints = checkpoints = Checkpoints(directories, world)
        # The parts are made in the order in which they need each other; nothing runs before `run`.
        self._deletion = deletion = DelayedDeletion(config, directories, world)
        self._retention = retention = Retention(directories, deletion, flusher, world)
        self.cleaner = LogCleaner(config, world, directories, checkpoints, deletion, retention)
        self.gate = gate = Gate(flusher, self.cleaner, world.in_request_thread)
        self.truncation = Truncation(directories, checkpoints, gate, world)
        self._opener = opener = LogOpener(directories, checkpoints, world)
        self.futures = FutureLogs(world, directories, checkpoints, deletion, opener, gate, flusher)
        self.loading = Loading()
        self._loaded = False

    # -- look-up

    def get(self, key: TopicPartition) -> PartitionLog | None:
        """The log of this partition; None if it does not exist here or its directory is offline."""
        return self.directories.get(key)

    def __iter__(self) -> Iterator[PartitionLog]:
        return self.directories.logs()

    @property
    def offline_directories(self) -> dict[str, StorageError]:
        """The failed directories by path, each with its error."""
        return self.directories.failures

    @property
    def online_directories(self) -> list[str]:
        """The paths of the directories that did not fail."""
        return [directory.path for directory in self.directories.live()]

    async def volume_bytes(self, directory: LogDirectory) -> tuple[int, int]:
        """(size, free space) of a directory's volume, in bytes. A StorageError takes the directory offline."""
        return await self.directories.run(directory, self._world.disk.volume_bytes, directory.path)

    # -- start

    async def open(self) -> StoredIdentity | None:
        """Create the directories that are missing and lock them all. Returns the cluster and broker id stored in them;
        None if all are new.

        Raises LogDirectoryRefused, and AllDirectoriesOffline if none can be used. Then nothing stays locked.
        """
        try:
            # One after the other, in the configured order: two brokers with the same directories then contend for the
            # first lock, and the loser holds none.
            for directory in self.directories:
                await self._open_directory(directory)
            self.directories.require_one()
            return agreed_identity({directory.path: directory.meta for directory in self.directories.live()})
        except BaseException:
            # The locks are released, too, when the start is cancelled: the next attempt, in this
            # process or another, must get the locks.
            self.abandon()
            raise

    async def load(
        self, identity: StoredIdentity, topic_config: Callable[[str], LogConfig], topic_ids: TopicIds
    ) -> None:
        """Open every log, and write `identity` into the directories that have none.

        `topic_ids` looks up the ids of topics with a partition in two directories. Errors as `open`, and StoreError.
        """
        try:
            # All directories are read before the first log is opened: a partition may lie in two of them.
            contents = {directory.path: await self._look(directory) for directory in self.directories.live()}

            # Logs of deleted topics go first. They would make `refuse_duplicates` refuse the start, and keep
            # `complete_swaps` from giving a future log the partition's name.
            await delete_old_duplicates(contents, topic_ids, self.directories, self._world)
            refuse_duplicates(contents)
            for directory in self.directories.live():
                swaps = complete_swaps, self._world.disk, contents, directory.path
                await self.directories.at_start(directory, *swaps)

            self.loading.total = sum(len(found.partitions) for found in contents.values())

            # The directories load at the same time: each one is a device, so the start takes as
            # long as the slowest of them.
            async with trio.open_nursery() as nursery:
                for directory in self.directories.live():
                    found = contents[directory.path]
                    nursery.start_soon(self._load_directory, directory, found, identity, topic_config)
            self.directories.require_one()
            await self.futures.copy_again(contents)
            self._remove_deleted(contents)

            # Only now may `close` leave the marker of a clean shutdown: an unread log could have any contents.
            self._loaded = True
        except BaseException:
            self.abandon()
            raise

    async def _open_directory(self, directory: LogDirectory) -> None:
        try:
            directory.lock, directory.meta = await self._world.in_thread(take, self._world.disk, directory.path)
        except (DirectoryLocked, CheckpointCorrupt) as error:
            raise LogDirectoryRefused(str(error)) from error
        except StorageError as error:
            self.directories.fail(directory, error)
            # A lack of file descriptors fails no directory. It ends the start instead.
            if directory.failure is None:
                raise

    async def _look(self, directory: LogDirectory) -> Contents:
        found = await self.directories.at_start(directory, read_contents, self._world.disk, directory.path)
        # None: the directory is offline by now. It counts as empty, and `refuse_if_offline` protects the partitions
        # that may be in it.
        return found or Contents([], [], {})

    async def _load_directory(
        self,
        directory: LogDirectory,
        found: Contents,
        identity: StoredIdentity,
        topic_config: Callable[[str], LogConfig],
    ) -> None:
        """Prepare the directory, then open its logs in `num.recovery.threads.per.data.dir` threads."""
        started = trio.current_time()
        missing = identity if directory.meta is None else None
        prepared = await self.directories.at_start(directory, prepare, self._world.disk, directory.path, missing)
        if prepared is None:
            return

        # From now on `written` is what the files have, so a checkpoint that has not changed is not written again.
        directory.written = prepared.checkpoints

        # All tasks share one iterator: each takes the next log when it has opened one.
        todo = iter(found.partitions)
        async with trio.open_nursery() as nursery:
            for _ in range(self._config.num_recovery_threads_per_data_dir):
                nursery.start_soon(self._load_logs, directory, todo, topic_config, prepared.clean)
        await self._lower_recovery_points(directory)
        self.checkpoints.note_loaded(directory, prepared.checkpoints[HIGH_WATERMARK_CHECKPOINT])
        seconds = trio.current_time() - started
        how = "loaded" if prepared.clean else "loaded and checked"
        logger.info("%s: %s %d logs in %.1f s", directory.path, how, len(directory.logs), seconds)

    async def _lower_recovery_points(self, directory: LogDirectory) -> None:
        """Write the recovery points if the file has one above the end of its log."""
        # A truncation may have failed between the cut and its checkpoints, and left the old recovery point in the file.
        # The next start would trust everything below that, even unsynced records that are appended from now on.
        written = directory.written[RECOVERY_POINT_CHECKPOINT]
        if all(log.recovery_point >= written.get(key, 0) for key, log in directory.logs.items()):
            return
        try:
            await self.checkpoints.write(directory, RECOVERY_POINT_CHECKPOINT)
        # If the directory has failed, the others go on. If only a descriptor was lacking, the start ends.
        except StorageError:
            if directory.failure is None:
                raise

    async def _load_logs(
        self,
        directory: LogDirectory,
        todo: Iterator[TopicPartition],
        topic_config: Callable[[str], LogConfig],
        clean: bool,
    ) -> None:
        for key in todo:
            if directory.failure is not None:
                return
            opened = self._opener.opener(directory, key, topic_config(key.topic), clean, str(key))
            log = await self.directories.at_start(directory, opened)
            # The directory went offline, with all its logs.
            if log is None:
                return
            self.loading.done += 1
            # The directory may have failed while the thread ran; the loop then ends at its next check.
            with suppress(StorageError):
                self._opener.add(directory, log)

    def _remove_deleted(self, contents: Mapping[str, Contents]) -> None:
        """Go on with the deletions that the last process began."""
        # A directory that is offline may have the future log of an interrupted swap. Only the name of the deleted log
        # shows that the swap was decided (`complete_swaps`), so no deleted log may be removed.
        if self.offline_directories:
            return
        # The delay begins again: the time of the rename is not stored.
        for directory in self.directories:
            for name in contents[directory.path].deleted:
                self._deletion.directory(directory, join(directory.path, name))

    # -- create and delete
    #
    # Control requests (LeaderAndIsr, StopReplica) are handled one after the other, so no two of these calls are about
    # the same partition at the same time.

    async def create(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> PartitionLog:
        """Create the log of a partition in a directory that `placement` chooses. StorageError if that fails in all."""
        # A partition that is not new may be in a directory that is offline. An empty log elsewhere would hide its
        # records, and be a duplicate when the directory is back.
        if not is_new:
            self.directories.refuse_if_offline(key, "create a log that may be")

        # A future log may be left of a log that was lost with its directory: it is no copy of the new log.
        await self.futures.delete(key)
        await self.gate.earlier_ended(key)
        error: StorageError | None = None
        for directory in self.placement.candidates(key):
            # This count is for `placement`: topics that are created at the same time spread over
            # the directories.
            directory.creating += 1
            try:
                log = await self._opener.create_in(directory, key, topic_id, config, str(key))
                self.placement.granted(key)
                return log
            except StorageError as refused:
                error = refused
                if not await self._unmake(directory, key):
                    raise
            finally:
                directory.creating -= 1

        raise error or StorageError(str(key), "create", "ENODEV")

    async def _unmake(self, directory: LogDirectory, key: TopicPartition) -> bool:
        """Remove the remains of a log that could not be created here. True if nothing is left.

        If something is left, the log is created in no other directory: the next start would find it twice and refuse.
        """
        # The removal is tried even if the directory is offline by now: after a failed write a
        # removal may still succeed.
        try:
            path = join(directory.path, str(key))
            return await self._world.in_thread(remove_half_made, self._world.disk, path)
        except StorageError:
            return False

    async def assign_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        """Write the topic id of a log that an older broker created. A StorageError takes its directory offline."""
        async with self.gate.renaming(log):
            await self._opener.assign_topic_id(log, topic_id)

    async def delete(self, key: TopicPartition) -> None:
        """Delete a log: its directory is renamed now, and removed after `log.segment.delete.delay.ms`.

        StorageError if the rename fails, or if the log may be in a directory that is offline.
        """
        log = self.get(key)
        if log is None:
            self.directories.refuse_if_offline(key, "delete a log that may be")
            return
        # A crash after the rename and before the removal leaves the -delete name, which the next start finds.
        self._deletion.directory(self.directory_of(log), await self._forget(log, deleted_name))

    async def put_aside(self, log: PartitionLog) -> None:
        """Stop serving the log of a deleted topic and keep its files: the directory is renamed, as Kafka's strays are.

        StorageError if that fails.
        """
        stray = await self._forget(log, stray_name)
        logger.warning("%s belonged to a deleted topic; it is put aside as %s", log, stray)

    async def _forget(self, log: PartitionLog, name: Callable[[TopicPartition, bytes], str]) -> str:
        directory = self.directory_of(log)
        # This is shielded: half done, it would leave a directory that a new topic of this name
        # would find.
        with trio.CancelScope(shield=True):
            # This is first, so that no request gets the log any more and no pass over it begins.
            del directory.logs[log.topic_partition]
            # Otherwise a topic that is created again would get the high watermark of the last start.
            self.checkpoints.forget(log.topic_partition)
            self.gate.deleted(log)
            path = join(directory.path, name(log.topic_partition, self._world.rng.randbytes(16)))
            # A swap may be renaming the log's directory to its final name; `renaming` waits for the end of that.
            async with self.gate.renaming(log):
                log.abandon()
                # This must be `insist`, because the log has left the table: nothing else would try
                # the deletion again.
                await self.directories.insist(directory, self._world.disk.rename, log.directory, path)
            # A power failure without this sync could bring the old name back, and with it the
            # deleted records.
            await self.directories.insist(directory, self._world.disk.sync_directory, directory.path)
        return path

    # -- run

    async def run(
        self,
        high_watermarks: Callable[[], Mapping[TopicPartition, int]],
        on_directory_failed: Callable[[str, StorageError], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run retention, flushes, checkpoints and the cleaner until cancelled.

        Raises AllDirectoriesOffline when the last directory failed.

        `high_watermarks` returns those of the hosted partitions. `on_directory_failed` is called with the path and the
        error of each directory that fails from now on.
        """
        # The callbacks are set before the tasks start: if a directory fails in the first task already, its partitions
        # must lose their roles.
        self.checkpoints.high_watermarks = high_watermarks
        self.directories.on_failed = on_directory_failed
        async with trio.open_nursery() as nursery:
            for interval_ms, step in self._duties():
                nursery.start_soon(self._every, interval_ms, step)
            nursery.start_soon(self._deletion.run)
            nursery.start_soon(self.cleaner.run, high_watermarks)
            task_status.started()
            # The event only wakes this task. `fail` itself must not raise: its callers are requests and background
            # tasks, which would take the error for their own.
            await self.directories.last_failed.wait()
            self.directories.require_one()

    def _duties(self) -> list[tuple[int, Callable[[], Awaitable[None]]]]:
        """The periodic tasks: (interval, ms; one run)."""
        # The cleaner's checkpoint is left out: it is written after each pass.
        config = self._config
        write = self.checkpoints.write_everywhere
        return [
            (config.log_retention_check_interval_ms, self._delete_old_segments),
            (config.log_flush_scheduler_interval_ms, FlushSchedule(self.directories.logs, self._flusher).step),
            (config.log_flush_offset_checkpoint_interval_ms, partial(write, RECOVERY_POINT_CHECKPOINT)),
            (config.log_flush_start_offset_checkpoint_interval_ms, partial(write, LOG_START_CHECKPOINT)),
            (config.replica_high_watermark_checkpoint_interval_ms, partial(write, HIGH_WATERMARK_CHECKPOINT)),
            (config.producer_id_expiration_check_interval_ms, self._expire_producers),
        ]

    async def _every(self, interval_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        # NEVER_MS is Java's Long.MAX_VALUE, the default of `log.flush.scheduler.interval.ms`.
        if interval_ms >= NEVER_MS:
            return
        # The first run comes soon after the start, whatever the interval is, as in Kafka.
        await trio.sleep(max(min(interval_ms, self._config.log_initial_task_delay_ms), 0) / 1000)
        while True:
            # A bug that one log provokes must not end the task for all logs, nor the broker.
            with contained(logger, "a task that runs every %d ms was skipped this time", interval_ms):
                await step()
            # As in Kafka, without an interval there is one run.
            if interval_ms <= 0:
                return
            await trio.sleep(interval_ms / 1000)

    async def _delete_old_segments(self) -> None:
        await self._retention.delete_old_segments(self.checkpoints.high_watermarks())

    async def _expire_producers(self) -> None:
        await self._retention.expire_producers(self._config.producer_id_expiration_ms)

    # -- failure

    def fail_directory_of(self, log: PartitionLog, error: StorageError) -> None:
        """An operation on this log failed: its directory goes offline, unless the log was deleted meanwhile."""
        self.directories.fail_directory_of(log, error)

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        """The directory that a log is in, or was in before it was deleted."""
        return self.directories.directory_of(log)

    # -- the end

    async def close(self) -> None:
        """Close all logs and write the marker of a clean shutdown. `run` has ended, and no log is in use."""
        # The tasks that would handle a failure have ended.
        self.directories.on_failed = None
        # Some logs may not have been opened, so their recovery points are unknown: no marker may be written.
        if not self._loaded:
            self.abandon()
            return
        async with trio.open_nursery() as nursery:
            for directory in self.directories.live():
                nursery.start_soon(self._close_directory, directory)

    def abandon(self) -> None:
        """Release files and locks and write nothing, as in a crash: the next start checks every log."""
        # There is no await: a start that is cancelled must release its locks as well.
        for directory in self.directories:
            directory.give_up(directory.take_all())

    async def _close_directory(self, directory: LogDirectory) -> None:
        """Close the logs of a directory and write the marker of a clean shutdown."""
        # A log may fail to close because the process lacks file descriptors. It is tried again, because the logs that
        # did close have released theirs. If one stays open, no marker is written: with it the next start would take
        # unsynced records for synced ones.
        left = [*directory.logs.values(), *directory.future_logs.values()]
        for _ in range(CLOSING_ROUNDS_MAX):
            left = await self._close_logs(directory, left)
            if await self._mark_closed(directory, left) or directory.failure is not None:
                break
            await trio.sleep(SHORTAGE_PAUSE_SECONDS)
        else:
            logger.error("%s: not closed, so that the next start checks every log: %s", directory.path, left)
        directory.give_up(directory.take_all())

    async def _close_logs(self, directory: LogDirectory, logs: Sequence[PartitionLog]) -> list[PartitionLog]:
        """Close these logs; returns those that are still open because of a shortage."""
        # All tasks share one iterator: each takes the next log when it has closed one.
        todo = iter(logs)
        left = list[PartitionLog]()

        async def close_next() -> None:
            for log in todo:
                if directory.failure is not None:
                    return
                if not await self.directories.attempt(directory, log.close, self._world.now_ms()):
                    left.append(log)

        async with trio.open_nursery() as nursery:
            for _ in range(self._config.num_recovery_threads_per_data_dir):
                nursery.start_soon(close_next)
        return left

    async def _mark_closed(self, directory: LogDirectory, left: Sequence[PartitionLog]) -> bool:
        """Write the checkpoints and, if no log is left open, the marker. True if it was written."""
        try:
            # The marker comes last: it means that the recovery points in the checkpoints are the ends of the logs. A
            # crash before it only costs the next start a check.
            for name in OFFSET_CHECKPOINTS:
                await self.checkpoints.write(directory, name)
            # The checkpoints are written even if a log is left open: they spare the next start the check of the others.
            if not left:
                await self.directories.run(directory, mark_clean, self._world.disk, directory.path)
        except StorageError:
            return False
        return not left
