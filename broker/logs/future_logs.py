"""Logs that are to take the place of others: the files of a move between log directories (KIP-113).

`<topic>-<partition>.<32 hex>-future` lies in the directory that a log moves to, until it holds what the current log
holds (`log_dir_moves.py` sees to that). Then `swap` gives it the other's place:

    1   one step on the event loop: the last records are copied, the current log's directory is called -delete,
        and the future log is the partition's log
    2   the old log directory is synced
    3   the future log gets the name of the partition's log, and its log directory is synced
    4   the checkpoints of both say what is where

Kafka renames in the other order; a crash between the two renames leaves the partition twice there, and a broker that
does not start. Here it leaves a future log that is alone, which the next start takes for what it is. At no moment lie
two logs under the name of one partition.

Nothing that was promised is lost on the way. The future log has been flushed as far as the current one before step 1,
and from step 1 to the end of step 3 neither is flushed, so that nothing later is promised before the renames last. Who
works on files by their names (flushes, searches by time, compaction, retention) is kept away from both logs.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.broker.logs.directory import deleted_name, future_name
from barnabas.storage.checkpoint import OFFSET_CHECKPOINTS
from barnabas.storage.disk import StorageError, join
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.logs.checkpoints import Checkpoints
    from barnabas.broker.logs.delayed_deletion import DelayedDeletion
    from barnabas.broker.logs.directories import LogDirectories
    from barnabas.broker.logs.directory import LogDirectory
    from barnabas.broker.logs.gate import Gate
    from barnabas.broker.logs.opening import LogOpener
    from barnabas.broker.world import World
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog

TAIL_BYTES_MAX = 1 << 16  # copied in the step of the swap: less than a millisecond


class FutureLogs:
    """The future logs of a broker."""

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
        """The log that is to be the one of this partition."""
        for directory in self._directories:
            log = directory.future_logs.get(key)
            if log is not None:
                return log
        return None

    async def create(self, current: "PartitionLog", directory: "LogDirectory") -> "PartitionLog":
        """Make an empty future log. StorageError, also while a directory is offline: there may be another one in it."""
        key = current.topic_partition
        self._directories.refuse_if_offline(key, "move a log that may be")
        name = future_name(key, self._world.rng.randbytes(16))
        return await self._opener.create_in(directory, key, current.topic_id or ZERO_TOPIC_ID, current.config, name)

    async def delete(self, key: TopicPartition) -> None:
        """Forget the future log, if there is one, as a current one is deleted; it is not being filled. StorageError."""
        log = self.get(key)
        if log is None:
            return
        directory = self._directories.directory_of(log)
        with trio.CancelScope(shield=True):
            del directory.future_logs[key]
            await self._gate.deleted(log)
            log.abandon()
            deleted = self._deleted_path(log)
            await self._directories.insist(directory, self._world.disk.rename, log.directory, deleted)
            await self._directories.insist(directory, self._world.disk.sync_directory, directory.path)
            self._deletion.directory(directory, deleted)

    async def swap(
        self, current: "PartitionLog", future: "PartitionLog", step: Callable[[Callable[[], bool]], bool]
    ) -> bool:
        """Let the future log take the place of the current one; False if it is not the moment. Compaction is paused.

        `step(act)` is to call `act` in a step in which nothing else appends to the future log; if `act` says so, the
        future log is the partition's from then on. A StorageError takes a directory offline.
        """
        if not self._is_moment(current, future):
            return False
        has_flipped = False

        def flip() -> bool:
            nonlocal has_flipped
            has_flipped = self._flip(current, future, deleted)
            return has_flipped

        deleted = self._deleted_path(current)
        try:
            if await self._prepare(current, future, step):
                # Searches open files by their names, which change now.
                async with self._gate.without_searches(current):
                    # Time has passed since `_is_moment`: the log may have grown, or its role may have changed.
                    if self._is_moment(current, future) and step(flip):
                        with trio.CancelScope(shield=True):
                            await self._settle(current, future, deleted)
        except StorageError:
            pass  # one of the two directories is offline, and the broker knows
        finally:
            self._gate.release_flushes(current, is_gone=has_flipped)
            self._gate.release_flushes(future, is_gone=not self._directories.directory_of(future).holds(future))
        return has_flipped

    async def _prepare(
        self, current: "PartitionLog", future: "PartitionLog", step: Callable[[Callable[[], bool]], bool]
    ) -> bool:
        """Everything slow before the step: let the future log be durable as far as the current one is.

        That one is held, so that it will not be durable any further; who waits for its flushes, waits.
        """
        if future.topic_id is None and current.topic_id is not None:
            await self._opener.assign_topic_id(future, current.topic_id)
        future.raise_log_start(min(current.log_start_offset, future.log_end_offset))
        await self._checkpoints.write_all_of(future)
        await self._gate.hold_flushes(current)
        if future.log_end_offset < current.recovery_point and self._is_moment(current, future):
            step(lambda: self._copy_tail(current, future) and False)
        if future.recovery_point < current.recovery_point:
            await self._flusher.flush([future])
        await self._gate.hold_flushes(future)
        return current.recovery_point <= future.recovery_point and current.log_start_offset == future.log_start_offset

    def _is_moment(self, current: "PartitionLog", future: "PartitionLog") -> bool:
        """Whether little is missing, and no truncation works on the files."""
        directory_of = self._directories.directory_of
        return (
            all(directory_of(log).holds(log) and not log.is_being_cut for log in (current, future))
            and is_beginning_of(future, current)
            and _tail_bytes(current, future) <= TAIL_BYTES_MAX
        )

    def _deleted_path(self, log: "PartitionLog") -> str:
        unique = self._world.rng.randbytes(16)
        return join(self._directories.directory_of(log).path, deleted_name(log.topic_partition, unique))

    def _flip(self, current: "PartitionLog", future: "PartitionLog", deleted: str) -> bool:
        """Step 1."""
        key, source, target = current.topic_partition, *map(self._directories.directory_of, (current, future))
        if not self._copy_tail(current, future):
            return False
        try:
            self._world.disk.rename(current.directory, deleted)
        except StorageError as error:
            self._directories.fail_directory_of(current, error)
            return False
        future.succeed(current)
        current.abandon()
        del source.logs[key]
        target.logs[key] = target.future_logs.pop(key)
        return True

    def _copy_tail(self, current: "PartitionLog", future: "PartitionLog") -> bool:
        """Copy what is missing, which is little; whether it could be done."""
        offset, end_offset = future.log_end_offset, current.log_end_offset
        try:
            read = current.read(offset, max_bytes=TAIL_BYTES_MAX, end_offset=end_offset, at_least_one=False)
            if isinstance(read, ErrorCode) or read.slice is None:
                return offset == end_offset
            try:
                records = read.slice.read()
            finally:
                read.slice.release()
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
        """Steps 2 to 4."""
        directories = self._directories
        source, target = directories.directory_of(current), directories.directory_of(future)
        try:
            await directories.insist(source, self._world.disk.sync_directory, source.path)
        except StorageError:
            deleted = ""  # that directory is offline, and the move goes on: this log must not be taken for a future one
        try:
            async with self._gate.without_searches(future):
                future.rename_directory(join(target.path, str(future.topic_partition)))
        except StorageError as error:
            directories.fail_directory_of(future, error)
            raise
        await directories.insist(target, self._world.disk.sync_directory, target.path)
        await self._checkpoints.write_all_of(future)
        if deleted:
            self._deletion.directory(source, deleted)
            for name in OFFSET_CHECKPOINTS:
                await self._checkpoints.write(source, name)


def is_beginning_of(future: "PartitionLog", current: "PartitionLog") -> bool:
    """Whether the current log holds what the future one holds, as far as leader epochs tell (KIP-101)."""
    latest = future.epochs.latest_epoch
    if future.log_end_offset > current.log_end_offset:
        return False
    if latest is None or future.log_end_offset <= current.log_start_offset:
        return True
    epoch, end_offset = current.epochs.end_offset_for(latest, current.log_end_offset)
    return epoch == latest and end_offset >= future.log_end_offset


def _tail_bytes(current: "PartitionLog", future: "PartitionLog") -> float:
    """How much of the current log is missing in the future one, as far as it lies in one segment."""
    active, offset = current.segments.active, future.log_end_offset
    if offset >= current.log_end_offset:
        return 0
    if offset < active.base_offset:
        return math.inf
    span = active.find(offset, current.segments.store.shared)
    return math.inf if span is None else active.size_bytes - span.position
