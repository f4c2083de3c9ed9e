"""The partition logs of this broker, in one or several log directories: reference D.6, D.7, KIP-112.

*Start.* `open` locks the directories and reads whose they are; the broker settles its identity; `load` opens the logs,
after an unclean shutdown checking each from its recovery point on (`directory.py`, `storage/recovery.py`).

*Run.* Retention, compaction, `flush.ms`, checkpoints, removal of what was deleted and expiry of producers are loops of
`run`. A checkpoint is written only when it has news: an idle broker writes nothing.

*Failure.* A `StorageError` takes its directory offline, for good: its logs are given up, the rest of the broker is
told, and the other directories go on. `run` ends with `AllDirectoriesOffline` after the last one. Two are nobody's
failure: that of a log which was deleted meanwhile, whose files are no more, and a shortage of descriptors or memory,
which fails only what needed them.

*Stop.* `close` closes the logs, writes the checkpoints, and last the marker that saves the next start from checking.
`abandon` does nothing of this: it is a crash.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from barnabas.broker.containment import contained
from barnabas.broker.logs.cleaner_schedule import CleanerConfig, LogCleaner
from barnabas.broker.logs.delayed_deletion import Doomed, Removals
from barnabas.broker.logs.directories import AllDirectoriesOffline, LogDirectories
from barnabas.broker.logs.directory import (
    Contents,
    LogDirectory,
    LogDirectoryRefused,
    StoredIdentity,
    agreed_identity,
    doomed_name,
    mark_clean,
    prepare,
    promote_orphans,
    read_contents,
    refuse_duplicates,
    remove_durably,
    remove_half_made,
    stray_name,
    take,
)
from barnabas.broker.logs.duplicate_logs import TopicIds, doom_old_twins
from barnabas.broker.logs.flush_schedule import FlushSchedule
from barnabas.broker.logs.future_logs import FutureLogs
from barnabas.broker.logs.gate import Searches
from barnabas.broker.logs.placement import LogPlacement
from barnabas.broker.logs.truncation import Truncation
from barnabas.broker.pacing import pause_after, portions
from barnabas.storage.checkpoint import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointCorrupt,
    write_checkpoint,
)
from barnabas.storage.disk import SHORTAGE_PAUSE_SECONDS, DirectoryLocked, StorageError, join
from barnabas.storage.files import OpenFiles
from barnabas.storage.log import LogConfig, PartitionLog, open_log
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.world import World
    from barnabas.storage.flusher import Flusher

logger = logging.getLogger(__name__)

__all__ = ["AllDirectoriesOffline", "Logs", "LogsConfig"]

NEVER_MS = 2**63 - 1
LOGS_AT_A_TIME = 200  # whose offsets are collected in one step for a checkpoint
PRODUCERS_AT_A_TIME = 1000  # of which it is seen in one step whether they have expired
CLOSING_ROUNDS_MAX = 20  # with pauses: two seconds, in which other threads and processes may end

Result = TypeVar("Result")


class LogsConfig(CleanerConfig, Protocol):
    """The broker properties that this file reads; BrokerConfig."""

    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    log_segment_delete_delay_ms: int
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
        self.directories = LogDirectories(config.log_directories, world, flusher)
        self.placement = LogPlacement(self.directories)
        self._open_files = OpenFiles(world.disk)
        self._checkpointed_high_watermarks: dict[TopicPartition, int] = {}
        self._high_watermarks: Callable[[], Mapping[TopicPartition, int]] = dict
        self._removals = Removals(self._remove)
        self.cleaner = LogCleaner(config, world, self)
        self.searches = Searches(world.in_request_thread)
        self.truncation = Truncation(world, self, flusher)
        self.futures = FutureLogs(world, self, flusher)
        self._loaded = False

    # -- what there is

    def get(self, key: TopicPartition) -> PartitionLog | None:
        """The log of this partition, unless it does not exist here or its directory is offline."""
        for directory in self.directories:
            log = directory.logs.get(key)
            if log is not None:
                return log
        return None

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter([log for directory in self.directories for log in directory.logs.values()])

    @property
    def offline_directories(self) -> dict[str, StorageError]:
        """The directories that failed, and why."""
        return self.directories.failures

    @property
    def online_directories(self) -> list[str]:
        """The directories that are served."""
        return [directory.path for directory in self.directories.live()]

    async def volume_bytes(self, directory: LogDirectory) -> tuple[int, int]:
        """How large the volume of a directory is, and how much is free; StorageError takes the directory offline."""
        return await self.in_directory(directory, self._world.disk.volume_bytes, directory.path)

    def checkpointed_high_watermark(self, key: TopicPartition) -> int:
        """What the high watermark was when the broker before this one wrote it down; 0 if it did not."""
        return self._checkpointed_high_watermarks.get(key, 0)

    # -- start

    async def open(self) -> StoredIdentity | None:
        """Lock the directories, made where missing, and say whom they belong to; None if they are all new.

        LogDirectoryRefused; AllDirectoriesOffline if none can be used. Then nothing stays locked.
        """
        try:
            for directory in self.directories:
                await self._open_directory(directory)
            self.directories.require_one()
            return agreed_identity({directory.path: directory.meta for directory in self.directories.live()})
        except BaseException:
            self.abandon()
            raise

    async def load(
        self, identity: StoredIdentity, topic_config: Callable[[str], LogConfig], topic_ids: TopicIds
    ) -> None:
        """Open every log; a directory without an owner is given this identity. `topic_ids` is asked about topics with a
        partition in two places. Errors as `open`, and StoreError."""
        try:
            contents = {directory.path: await self._look(directory) for directory in self.directories.live()}
            await doom_old_twins(contents, topic_ids, self.directories, self._world)
            refuse_duplicates(contents)
            await self._promote_orphans(contents)
            async with trio.open_nursery() as nursery:
                for directory in self.directories.live():
                    found = contents[directory.path]
                    nursery.start_soon(self._load_directory, directory, found, identity, topic_config)
            self.directories.require_one()
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
            if directory.failure is None:
                raise

    async def _look(self, directory: LogDirectory) -> Contents:
        found = await self.directories.at_start(directory, read_contents, self._world.disk, directory.path)
        return found or Contents([], [], {})

    async def _load_directory(
        self,
        directory: LogDirectory,
        found: Contents,
        identity: StoredIdentity,
        topic_config: Callable[[str], LogConfig],
    ) -> None:
        """Prepare the directory, then open its logs in as many threads as the configuration allows it."""
        started = trio.current_time()
        missing = identity if directory.meta is None else None
        prepared = await self.directories.at_start(directory, prepare, self._world.disk, directory.path, missing)
        if prepared is None:
            return
        directory.written = prepared.checkpoints
        todo = iter([*((key, str(key)) for key in found.partitions), *found.futures.items()])
        async with trio.open_nursery() as nursery:
            for _ in range(self._config.num_recovery_threads_per_data_dir):
                nursery.start_soon(self._load_logs, directory, todo, topic_config, prepared.clean)
        high_watermarks = prepared.checkpoints[HIGH_WATERMARK_CHECKPOINT]
        self._checkpointed_high_watermarks |= {key: high_watermarks.get(key, 0) for key in directory.logs}
        for name in found.doomed:
            self.doom_directory(directory, join(directory.path, name))
        seconds = trio.current_time() - started
        how = "loaded" if prepared.clean else "loaded and checked"
        logger.info("%s: %s %d logs in %.1f s", directory.path, how, len(directory.logs), seconds)

    async def _load_logs(
        self,
        directory: LogDirectory,
        todo: Iterator[tuple[TopicPartition, str]],
        topic_config: Callable[[str], LogConfig],
        clean: bool,
    ) -> None:
        for key, name in todo:
            if directory.failure is not None:
                return
            opened = self._opener(directory, key, topic_config(key.topic), clean, name)
            log = await self.directories.at_start(directory, opened)
            if log is None:
                return
            with suppress(StorageError):  # the directory may have failed meanwhile
                self._add(directory, log)

    async def _promote_orphans(self, contents: Mapping[str, Contents]) -> None:
        """Future logs that are alone; one whose log may be in a directory that is offline, is not."""
        for directory in () if self.offline_directories else self.directories:
            await self.directories.at_start(directory, promote_orphans, self._world.disk, contents, directory.path)
            if directory.failure is not None:
                contents[directory.path].partitions.clear()

    def _opener(
        self, directory: LogDirectory, key: TopicPartition, config: LogConfig, clean: bool, name: str
    ) -> Callable[[], PartitionLog]:
        recovery_point, log_start_offset, first_dirty_offset = (
            directory.written.get(name, {}).get(key)
            for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT)
        )
        return partial(
            open_log,
            self._world.disk,
            join(directory.path, name),
            key,
            config,
            recovery_point=recovery_point or 0,
            log_start_offset=log_start_offset,
            first_dirty_offset=first_dirty_offset,
            clean=clean,
            now_ms=self._world.now_ms(),
            open_files=self._open_files,
        )

    def _add(self, directory: LogDirectory, log: PartitionLog) -> PartitionLog:
        """Take in a log that a thread opened; StorageError if the directory has failed meanwhile."""
        if directory.failure is not None:
            log.abandon()
            raise directory.failure
        is_future = log.directory != join(directory.path, str(log.topic_partition))
        (directory.future_logs if is_future else directory.logs)[log.topic_partition] = log
        return log

    # -- create and delete; control requests take turns, so no two of these concern the same partition

    async def create(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> PartitionLog:
        """Make the log of a partition, where `placement` says; StorageError if no directory will have it.

        A partition that is not new may lie in a directory that is offline, so it is not made again elsewhere.
        """
        if not is_new:
            self.refuse_if_offline(key, "create a log that may be")
        error: StorageError | None = None
        for directory in self.placement.candidates(key):
            directory.creating += 1
            try:
                log = await self.create_in(directory, key, topic_id, config, str(key))
                self.placement.granted(key)
                return log
            except StorageError as refused:
                error = refused
                if not await self._unmake(directory, key):
                    raise
            finally:
                directory.creating -= 1
        raise error or StorageError(str(key), "create", "ENODEV")

    async def create_in(
        self, directory: LogDirectory, key: TopicPartition, topic_id: bytes, config: LogConfig, name: str
    ) -> PartitionLog:
        """Make a log in this directory, called so: a current or a future one."""
        for checkpoint in OFFSET_CHECKPOINTS:
            if key in directory.written.get(checkpoint, {}):  # of an earlier log of this name
                await self.checkpoint(directory, checkpoint)
        opened = self._opener(directory, key, config, clean=True, name=name)

        def make() -> PartitionLog:
            log = opened()
            try:
                if topic_id != ZERO_TOPIC_ID:
                    log.assign_topic_id(topic_id)
            except StorageError:
                log.abandon()
                raise
            return log

        return self._add(directory, await self.in_directory(directory, make))

    async def _unmake(self, directory: LogDirectory, key: TopicPartition) -> bool:
        """Remove what is left of a log that could not be made here, the directory offline or not; whether nothing is.

        Otherwise it is made nowhere else: the next start would find it twice, and refuse.
        """
        try:
            path = join(directory.path, str(key))
            return await self._world.in_thread(remove_half_made, self._world.disk, path)
        except StorageError:
            return False

    async def assign_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        """Note the topic id of a log that an older broker made; StorageError takes its directory offline."""
        await self.in_directory(self.directory_of(log), log.assign_topic_id, topic_id)

    async def delete(self, key: TopicPartition) -> None:
        """Forget a log: its directory is renamed now, and removed after `log.segment.delete.delay.ms`.

        StorageError if that fails, or if the log may be in a directory that is offline.
        """
        log = self.get(key)
        if log is None:
            self.refuse_if_offline(key, "delete a log that may be")
            return
        self.doom_directory(self.directory_of(log), await self._forget(log, doomed_name))

    async def put_aside(self, log: PartitionLog) -> None:
        """Forget a log without deleting it: its directory is renamed, as Kafka does with strays. StorageError."""
        stray = await self._forget(log, stray_name)
        logger.warning("%s was of a topic that is no more; it is put aside as %s", log, stray)

    async def _forget(self, log: PartitionLog, name: Callable[[TopicPartition, bytes], str]) -> str:
        directory = self.directory_of(log)
        with trio.CancelScope(shield=True):  # half of it would leave a directory that a new topic would find
            del directory.logs[log.topic_partition]
            self._checkpointed_high_watermarks.pop(log.topic_partition, None)
            await self._flusher.forget(log)
            await self.cleaner.leave(log)
            log.abandon()
            path = join(directory.path, name(log.topic_partition, self._world.rng.randbytes(16)))
            await self.directories.insist(directory, self._world.disk.rename, log.directory, path)
            await self.directories.insist(directory, self._world.disk.sync_directory, directory.path)
        return path

    def doom_directory(self, directory: LogDirectory, path: str) -> None:
        """Remove this directory of a log, which was renamed, after `log.segment.delete.delay.ms`."""
        self._removals.doom(directory, self._config.log_segment_delete_delay_ms, path=path)

    def refuse_if_offline(self, key: TopicPartition, operation: str) -> None:
        """StorageError if a directory is offline, for a log of this partition may be in it."""
        for path, error in self.offline_directories.items():
            raise StorageError(join(path, str(key)), operation, error.cause)

    # -- run

    async def run(
        self,
        high_watermarks: Callable[[], Mapping[TopicPartition, int]],
        on_directory_failed: Callable[[str, StorageError], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Look after the logs for ever; AllDirectoriesOffline when the last directory failed.

        `high_watermarks` is asked for those of the hosted partitions. `on_directory_failed` is told of failures from
        now on, with the directory's path.
        """
        self._high_watermarks = high_watermarks
        self.directories.on_failed = on_directory_failed
        async with trio.open_nursery() as nursery:
            for interval_ms, step in self._duties():
                nursery.start_soon(self._every, interval_ms, step)
            nursery.start_soon(self._removals.run)
            nursery.start_soon(self.cleaner.run, high_watermarks)
            task_status.started()
            await self.directories.last_failed.wait()
            self.directories.require_one()

    def _duties(self) -> list[tuple[int, Callable[[], Awaitable[None]]]]:
        """What is done every so many milliseconds."""
        config, checkpoint = self._config, self._checkpoint_all
        return [
            (config.log_retention_check_interval_ms, self._retain),
            (config.log_flush_scheduler_interval_ms, FlushSchedule(self, self._flusher).step),
            (config.log_flush_offset_checkpoint_interval_ms, partial(checkpoint, RECOVERY_POINT_CHECKPOINT)),
            (config.log_flush_start_offset_checkpoint_interval_ms, partial(checkpoint, LOG_START_CHECKPOINT)),
            (config.replica_high_watermark_checkpoint_interval_ms, partial(checkpoint, HIGH_WATERMARK_CHECKPOINT)),
            (config.producer_id_expiration_check_interval_ms, self._expire_producers),
        ]

    async def _every(self, interval_ms: int, step: Callable[[], Awaitable[None]]) -> None:
        if interval_ms >= NEVER_MS:
            return
        await trio.sleep(min(interval_ms, self._config.log_initial_task_delay_ms) / 1000)
        while True:
            with contained(logger, "what is done every %d ms was left out this time", interval_ms):
                await step()
            await trio.sleep(interval_ms / 1000)

    async def _retain(self) -> None:
        high_watermarks = self._high_watermarks()
        for log in self:
            await trio.lowlevel.checkpoint()
            high_watermark = high_watermarks.get(log.topic_partition)  # None: hosted by nobody yet
            if high_watermark is not None and not log.config.compacted:  # those are the cleaner's
                await self.delete_old_segments(log, high_watermark)

    async def delete_old_segments(self, log: PartitionLog, high_watermark: int) -> None:
        """Let go of the segments of one log that retention wants to go."""
        while self.get(log.topic_partition) is log and self._delete_old_segments_of(log, high_watermark):
            await trio.lowlevel.checkpoint()

    def _delete_old_segments_of(self, log: PartitionLog, high_watermark: int) -> bool:
        """One step of it; False when nothing was to do."""
        deleted = 0
        with contained(logger, "%s: its old segments stay for now", log):
            try:
                deleted = log.delete_old_segments(self._world.now_ms(), high_watermark)
            except StorageError as error:
                self.fail_directory_of(log, error)
        if deleted:
            logger.info("%s: deleted %d segments, starts at %d", log, deleted, log.log_start_offset)
            self.doom_deleted(log)
        return deleted > 0

    async def _expire_producers(self) -> None:
        for log in self:
            for some in portions(log.producers.ids(), PRODUCERS_AT_A_TIME):
                if not log.is_being_cut:
                    log.producers.expire(self._world.now_ms(), self._config.producer_id_expiration_ms, some)
                await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()

    # -- removal of what was deleted

    def doom_deleted(self, log: PartitionLog) -> None:
        """Segments of this log were deleted or replaced: remove their files after their delay."""
        self._removals.doom(self.directory_of(log), log.config.file_delete_delay_ms, log=log)

    async def _remove(self, doomed: Doomed) -> None:
        directory, log = doomed.directory, doomed.log
        if log is None:
            is_done = await self.directories.attempt(directory, remove_durably, self._world.disk, doomed.path)
        elif self.get(log.topic_partition) is log:
            is_done = await self._remove_deleted(log)
        else:
            return
        if not is_done:
            self._removals.again(doomed)

    async def _remove_deleted(self, log: PartitionLog) -> bool:
        """Remove the files of a log that are due; False if it must be done again."""
        try:
            with self.directory_of(log).in_use():
                removed = await self._world.in_thread(log.remove_deleted, self._world.now_ms())
        except StorageError as error:
            self.fail_directory_of(log, error)
            return False
        return removed > 0 or not log.has_deleted_files  # otherwise the wall clock was set back

    # -- checkpoints

    async def checkpoint_cut(self, log: PartitionLog) -> None:
        """Write all that the checkpoints say of this log: before it is appended to after a truncation. StorageError."""
        for name in OFFSET_CHECKPOINTS:
            await self.checkpoint(self.directory_of(log), name)

    async def checkpoint_log_starts(self, directory: LogDirectory) -> None:
        """Write where the logs of a directory start, so that those that were raised last. StorageError."""
        await self.checkpoint(directory, LOG_START_CHECKPOINT)

    async def checkpoint_cleaned(self, log: PartitionLog) -> None:
        """Write up to where the logs beside this one are clean. StorageError."""
        await self.checkpoint(self.directory_of(log), CLEANER_CHECKPOINT)

    async def _checkpoint_all(self, name: str) -> None:
        for directory in self.directories.live():
            try:
                await self.checkpoint(directory, name)
            except StorageError:
                continue  # it is offline now; the others go on

    async def checkpoint(self, directory: LogDirectory, name: str) -> None:
        """Write this checkpoint of a directory, if it has news. StorageError."""
        async with directory.writing:
            high_watermarks: dict[TopicPartition, int] = {}
            if name == HIGH_WATERMARK_CHECKPOINT:
                high_watermarks = {**self._checkpointed_high_watermarks, **self._high_watermarks()}
            offsets: dict[TopicPartition, int] = {}
            for some in portions([*directory.logs, *directory.future_logs], LOGS_AT_A_TIME):
                offsets |= directory.offsets(name, some, high_watermarks)
                await pause_after(len(some))
            if directory.failure is not None:
                raise directory.failure
            if directory.written.get(name) != offsets:
                path = join(directory.path, name)
                await self.in_directory(directory, write_checkpoint, self._world.disk, path, offsets)
                directory.written[name] = offsets

    # -- failure

    def fail_directory_of(self, log: PartitionLog, error: StorageError) -> None:
        """An operation on this log failed: its directory goes offline, unless the log was deleted meanwhile."""
        directory = self.directory_of(log)
        if directory.holds(log) or directory.failure is not None or error.is_failed_sync:
            self.directories.fail(directory, error)

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        """The directory that a log is in, or was in before it was deleted."""
        return self.directories.holder_of(log)

    async def in_directory(self, directory: LogDirectory, function: Callable[..., Result], *args: object) -> Result:
        """Run this in a thread; a StorageError takes the directory offline, and is raised again."""
        return await self.directories.run(directory, function, *args)

    # -- the end

    async def close(self) -> None:
        """Close all logs and leave the marker; `run` has ended, and nobody uses a log any more, or wants to be told."""
        self.directories.on_failed = None
        if not self._loaded:
            self.abandon()  # of logs that were not opened nothing can be said
            return
        async with trio.open_nursery() as nursery:
            for directory in self.directories.live():
                nursery.start_soon(self._close_directory, directory)

    def abandon(self) -> None:
        """Give up files and locks and write nothing, as in a crash: the next start checks every log."""
        for directory in self.directories:
            directory.give_up(directory.take_all())

    async def _close_directory(self, directory: LogDirectory) -> None:
        """Close the logs of a directory and leave the marker. Logs for which the process was short of something are
        tried again, for the others give back what they held; if one stays open, there is no marker."""
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
        todo, left = iter(logs), list[PartitionLog]()

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
        """Write the checkpoints, and if no log is left open the marker; False if there is no marker."""
        try:
            for name in OFFSET_CHECKPOINTS:
                await self.checkpoint(directory, name)
            if not left:
                await self.in_directory(directory, mark_clean, self._world.disk, directory.path)
        except StorageError:
            return False
        return not left
