"""Future logs: the copies that a move between log directories (KIP-113) fills, and their swap with the current logs.

`<topic>-<partition>.<32 hex>-future` lies in the target directory until it holds what the current log holds
(`log_dir_moves.py` fills it). Then `swap` makes it the current log:

    1   one step on the event loop: the last records are copied, the current log's directory is renamed to -delete,
        and the future log becomes the partition's log
    2   the source log directory is synced
    3   the future log's directory gets the partition's name, and the target log directory is synced
    4   the checkpoints of both directories are written

Kafka renames in the other order; after a crash between its two renames the partition is in two directories, and the
broker does not start. Here such a crash leaves a future log without a current one, and a deleted log with the same 32
hex digits, by which the next start knows that the swap was decided. It then renames the future log. There are never two
logs under the name of one partition.

A future log is a copy of one current log (`copied_from`), from its first record to the swap, during which that log is
not compacted. Nothing else is ever continued: a copy that was interrupted may have records that a compaction has since
removed from the current log, even tombstones behind them. So a start replaces a future log by an empty one
(`copy_again`), and one that has lost its current log is deleted when the partition gets another log.

No acknowledged record is lost in a swap: at any moment, the log that a start would find has everything that was synced.
Flushes, searches, compaction and retention open files by name, so they are kept away from both logs.
"""

import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.replication.logs.directory import deleted_name, future_name, rename_durably, stray_name, unique_of
from barnabas.storage.checkpoint import OFFSET_CHECKPOINTS, PARTITION_METADATA, read_partition_metadata
from barnabas.storage.disk import StorageError, join
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from barnabas.replication.logs.checkpoints import Checkpoints
    from barnabas.replication.logs.delayed_deletion import DelayedDeletion
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.replication.logs.directory import Contents, LogDirectory
    from barnabas.replication.logs.gate import Gate
    from barnabas.replication.logs.opening import LogOpener
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog
    from barnabas.world.world import World

logger = logging.getLogger(__name__)

TAIL_BYTES_MAX = 1 << 16  # that the step of the swap may copy: it takes less than a millisecond


class FutureLogs:
    """The future logs of this broker, at most one for each partition."""

    def __init__(
        self,
        world: "World",
        directories: "LogDirectories",
        checkpoints: "Checkpoints",
        deletion: "DelayedDeletion",
        opener: "LogOpener",
        gate: "Gate",
        flusher: "Flusher",
    ) -> None:
        self._world = world
        self._directories = directories
        self._checkpoints = checkpoints
        self._deletion = deletion
        self._opener = opener
        self._gate = gate
        self._flusher = flusher

    def get(self, key: TopicPartition) -> "PartitionLog | None":
        """The future log of this partition, or None."""
        return self._directories.future_log(key)

    def copy_of(self, current: "PartitionLog") -> "PartitionLog | None":
        """The future log that copies exactly this log; None if the log does not move."""
        return self._directories.copy_of(current)

    async def create(self, current: "PartitionLog", directory: "LogDirectory") -> "PartitionLog":
        """Create an empty future log. StorageError if that fails, or while a directory is offline."""
        # A directory that is offline may have another future log of this partition: a later start would find both, and
        # refuse.
        self._directories.refuse_if_offline(current.topic_partition, "move a log that may be")
        return await self._create(current, directory)

    async def _create(self, current: "PartitionLog", directory: "LogDirectory") -> "PartitionLog":
        key = current.topic_partition
        topic_id = current.topic_id or ZERO_TOPIC_ID
        name = future_name(key, self._world.rng.randbytes(16))
        future = await self._opener.create_in(directory, key, topic_id, current.config, name)
        future.copied_from = current
        return future

    async def copy_again(self, contents: "Mapping[str, Contents]") -> None:
        """Replace the future logs of the last run, as they were found at the start, by empty ones.

        A StorageError takes its directory offline, or is raised if the process lacks descriptors or memory.
        """
        for directory in self._directories.live():
            for name, key in contents[directory.path].futures.items():
                try:
                    await self._copy_again(directory, name, key)
                except StorageError:
                    if directory.failure is None:
                        raise
                    break

    async def _copy_again(self, directory: "LogDirectory", name: str, key: TopicPartition) -> None:
        current = self._directories.get(key)
        path = join(directory.path, name)

        # A directory that is offline may have the current log, or the deleted log whose name shows a decided swap
        # (`complete_swaps`). So the future log stays as it is.
        if current is None and self._directories.failures:
            return
        metadata = join(path, PARTITION_METADATA)
        topic_id = await self._directories.run(directory, read_partition_metadata, self._world.disk, metadata)
        unique = self._world.rng.randbytes(16)
        if current is None or directory.holds(current) or topic_id not in (None, current.topic_id):
            # The copy is put aside and not deleted: its current log may have been lost with a
            # directory that is not configured any more.
            stray = join(directory.path, stray_name(key, unique))
            await self._directories.run(directory, rename_durably, self._world.disk, path, stray)
            logger.warning("%s is no copy of a log that is here; it is put aside as %s", path, stray)
            return

        # The new future log is created before the old one is renamed: its name is the only record of the move.
        if self.get(key) is None:
            await self._create(current, directory)
        deleted = join(directory.path, deleted_name(key, unique))
        await self._directories.run(directory, rename_durably, self._world.disk, path, deleted)
        self._deletion.directory(directory, deleted)
        logger.info("%s is copied to %s from the beginning", current, directory.path)

    async def delete(self, key: TopicPartition) -> None:
        """Delete the future log, if there is one, as `Logs.delete` does. Its fetcher has ended. Raises StorageError."""
        log = self.get(key)
        if log is None:
            return
        directory = self._directories.directory_of(log)
        # The deletion is shielded, and in the order of `Logs.delete`: the log leaves the table, its files are closed,
        # its directory is renamed. A crash before the rename leaves the -future name, and the next start finds the
        # move again.
        with trio.CancelScope(shield=True):
            del directory.future_logs[key]
            self._gate.deleted(log)
            log.abandon()
            unique = self._world.rng.randbytes(16)
            deleted = join(directory.path, deleted_name(key, unique))
            await self._directories.insist(directory, self._world.disk.rename, log.directory, deleted)
            await self._directories.insist(directory, self._world.disk.sync_directory, directory.path)
            self._deletion.directory(directory, deleted)

    async def swap(
        self, current: "PartitionLog", future: "PartitionLog", step: Callable[[Callable[[], bool]], bool]
    ) -> bool:
        """Make the future log the current one. False if too much is missing, or a truncation is running.

        `step(act)` calls `act` in one synchronous step in which nothing else appends
        to the future log; if `act` returns True, the future log is the partition's from then on. A StorageError takes a
        directory offline.
        """
        # The swap that made `current` the current log may not be settled yet: this waits for it.
        async with self._gate.renaming(current):
            pass
        if not self._is_moment(current, future):
            return False
        has_flipped = False

        # The result is kept here and not taken from `step`: if something fails after the flip, the future log is
        # nevertheless the partition's.
        def flip() -> bool:
            nonlocal has_flipped
            has_flipped = self._flip(current, future, deleted)
            return has_flipped

        deleted = self._swapped_path(current, future)
        try:
            if await self._prepare(current, future, step):
                # Searches open files by their names, which change now. A truncation that comes from now on waits.
                async with (
                    self._gate.renaming(current),
                    self._gate.renaming(future),
                    self._gate.without_searches(current),
                ):
                    # Time has passed since the first check: the log may have grown, or a truncation may have begun.
                    # From here to the end of `flip` there is no await.
                    if self._is_moment(current, future) and step(flip):
                        # The swap has happened in memory, and the disk must follow even if the move is cancelled.
                        with trio.CancelScope(shield=True):
                            await self._settle(current, future, deleted)
        except StorageError:
            pass  # one of the two directories is offline now
        # Flushes are released after a failed or late attempt, too, or requests with `flush.messages` would wait for
        # ever. A log that left its table is closed, and a flush would open its files again: `is_gone` prevents that.
        finally:
            self._gate.release_flushes(current, is_gone=has_flipped)
            self._gate.release_flushes(future, is_gone=not self._directories.directory_of(future).holds(future))

        return has_flipped

    async def _prepare(
        self, current: "PartitionLog", future: "PartitionLog", step: Callable[[Callable[[], bool]], bool]
    ) -> bool:
        """Do everything slow before the step. True if the future log is durable as far as the current one.

        Then flushes of both logs are held, and requests that wait for one continue to wait.
        """
        # No compaction begins while the log moves, but one may have been running when the move began.
        await self._gate.compaction_ended(current)
        # The topic may have got its id after the future log was created (KIP-516). Without this line the partition
        # would lose the id in the swap.
        if future.topic_id is None and current.topic_id is not None:
            await self._opener.assign_topic_id(future, current.topic_id)
        # DeleteRecords and retention raised the log start of the current log only. It is made durable for the future
        # log before the swap, so that a crash does not bring deleted records back.
        future.raise_log_start(min(current.log_start_offset, future.log_end_offset))
        await self._checkpoints.write_all_of(future)
        # From now on the current log's recovery point stays where it is, so the future log can reach it.
        await self._gate.hold_flushes(current)
        # The fetcher may not have copied all that was flushed. `and False` makes `step` take the copy for no flip.
        if future.log_end_offset < current.recovery_point and self._is_moment(current, future):
            step(lambda: self._copy_tail(current, future) and False)
        if future.recovery_point < current.recovery_point:
            await self._flusher.flush([future])
        # From the flip to the end of step 3, neither log is flushed: a power failure may undo the renames, so no record
        # may be acknowledged as synced that is only in one of the two logs.
        await self._gate.hold_flushes(future)
        # The offsets are compared after the last await. The log start may have been raised again meanwhile: then this
        # attempt fails, and the next one writes the checkpoint.
        return current.recovery_point <= future.recovery_point and current.log_start_offset == future.log_start_offset

    def _is_moment(self, current: "PartitionLog", future: "PartitionLog") -> bool:
        """Whether both logs are in use, no truncation is running, and at most TAIL_BYTES_MAX are missing."""
        directory_of = self._directories.directory_of
        return (
            future.copied_from is current
            and all(directory_of(log).holds(log) and not log.is_being_cut for log in (current, future))
            and is_beginning_of(future, current)
            and _tail_bytes(current, future) <= TAIL_BYTES_MAX
        )

    def _swapped_path(self, current: "PartitionLog", future: "PartitionLog") -> str:
        """The name of the current log after the swap: with the unique part of the future log's name."""
        unique = unique_of(future.directory)
        if unique is None:
            raise InvariantBroken(f"{future.directory} is not named as a future log")
        return join(self._directories.directory_of(current).path, deleted_name(current.topic_partition, unique))

    def _flip(self, current: "PartitionLog", future: "PartitionLog", deleted: str) -> bool:
        """Step 1, synchronous. True if the future log is the partition's now."""
        key, source, target = current.topic_partition, *map(self._directories.directory_of, (current, future))

        # The log start or the topic id may have changed while `swap` waited for searches. The change is durable for the
        # current log alone, so the next attempt must make it durable for the future log first.
        if (current.log_start_offset, current.topic_id) != (future.log_start_offset, future.topic_id):
            return False

        # The tail is copied in one step with the rename: a record that is appended between the two
        # would be lost.
        if not self._copy_tail(current, future):
            return False

        # The rename decides: before it the current log stays in use, after it no start finds the current log any more.
        try:
            self._world.disk.rename(current.directory, deleted)
        except StorageError as error:
            self._directories.fail_directory_of(current, error)
            return False

        # Nothing below can fail, or the partition would be without a log.
        future.succeed(current)
        current.abandon()
        del source.logs[key]
        target.logs[key] = target.future_logs.pop(key)
        return True

    def _copy_tail(self, current: "PartitionLog", future: "PartitionLog") -> bool:
        """Copy the missing records, at most TAIL_BYTES_MAX. True if none is missing then."""
        offset = future.log_end_offset
        end_offset = current.log_end_offset
        try:
            read = current.read(offset, max_bytes=TAIL_BYTES_MAX, end_offset=end_offset, at_least_one=False)

            # Nothing to copy, or the offset was deleted from the current log meanwhile.
            if isinstance(read, ErrorCode) or read.slice is None:
                return offset == end_offset

            # This runs on the event loop, although the disk may have to be read: these records were
            # appended a moment ago, so they are in the page cache.
            try:
                records = read.slice.read()
            finally:
                read.slice.release()
        # Two blocks, because each error takes the directory of its own log offline.
        except StorageError as error:
            self._directories.fail_directory_of(current, error)
            return False

        try:
            future.append_as_follower(memoryview(records), self._world.now_ms())
        except StorageError as error:
            self._directories.fail_directory_of(future, error)
            return False

        return future.log_end_offset == end_offset

    async def _settle(self, current: "PartitionLog", future: "PartitionLog", deleted: str) -> None:
        """Steps 2 to 4. The future log is served already."""
        directories = self._directories
        source = directories.directory_of(current)
        target = directories.directory_of(future)

        # The old name is removed durably before the new one is given. In the other order a power failure could leave
        # two logs of the partition, and the next start would refuse.
        try:
            await directories.insist(source, self._world.disk.sync_directory, source.path)
        except StorageError:
            # The source directory is offline. The move continues: a log that is served must not keep a future log's
            # name.
            deleted = ""

        # The rename on the disk and the new path in memory are one step on the event loop: a roll
        # between the two would create its files under the old path.
        try:
            async with self._gate.without_searches(future):
                future.segments.store.rename_directory(join(target.path, str(future.topic_partition)))
        except StorageError as error:
            directories.fail_directory_of(future, error)
            raise

        await directories.insist(target, self._world.disk.sync_directory, target.path)

        # The target's checkpoints come first: those of the source only lose the entry of a log that
        # is gone.
        await self._checkpoints.write_all_of(future)
        if deleted:
            self._deletion.directory(source, deleted)
            for name in OFFSET_CHECKPOINTS:
                await self._checkpoints.write(source, name)


def is_beginning_of(future: "PartitionLog", current: "PartitionLog") -> bool:
    """Whether the future log is a prefix of the current one, as far as leader epochs show (KIP-101)."""
    # The current log may have been truncated, and the fetcher of the future log may not have noticed it yet.
    latest = future.epochs.latest_epoch
    if future.log_end_offset > current.log_end_offset:
        return False
    # Without epochs, or below the log start offset of the current log, there is nothing to compare.
    if latest is None or future.log_end_offset <= current.log_start_offset:
        return True
    epoch, end_offset = current.epochs.end_offset_for(latest, current.log_end_offset)
    return epoch == latest and end_offset >= future.log_end_offset


def _tail_bytes(current: "PartitionLog", future: "PartitionLog") -> float:
    """How many bytes of the current log the future one lacks; infinite if they begin before the active segment."""
    # A read returns records of one segment only, so a tail over two segments could not be copied in one step.
    active = current.segments.active
    offset = future.log_end_offset
    if offset >= current.log_end_offset:
        return 0
    if offset < active.base_offset:
        return math.inf
    span = active.find(offset, current.segments.store.shared)
    return math.inf if span is None else active.size_bytes - span.position
