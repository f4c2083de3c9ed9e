"""Compaction in the running broker: which log is cleaned when, how fast, and what interrupts a pass (reference D.8).

Every `log.cleaner.backoff.ms`, and at once after a pass, the compacted log with the largest dirty ratio that is due is
cleaned, up to `log.cleaner.threads` logs at a time. A pass is a generator of steps (`storage/cleaner.py`). Each step
runs in a worker thread and works on one window of bytes. Between two steps the event loop checks whether the pass may
continue, waits for `log.cleaner.io.max.bytes.per.second`, and replaces segments by cleaned ones.

A pass has a `Permit`, which it shows at each step: the log is compacted, in use, and not truncated or moved. What takes
the permit away (a new cleanup.policy, a truncation, a move, a deletion, a failed directory) only changes the log or its
directory; if it needs the end of the running step, it waits for that (`leave`).

Measured on two cores that had other work as well: a pass over records of 100 bytes reads 35 to 70 MB/s of log, and a
synchronous produce beside it takes 0.14 ms in the median instead of 0.10, and 2.4 ms instead of 0.3 in the worst of a
hundred.
"""

import logging
import math
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from barnabas.storage.cleanable import Cleanable
from barnabas.storage.cleaner import Cleaning, Step, cleanable_part, keys_within, unread_times
from barnabas.storage.disk import StorageError
from barnabas.wire.compression import CorruptRecords
from barnabas.world.containment import contained
from barnabas.world.pacing import paced, pause_after

if TYPE_CHECKING:
    from barnabas.replication.logs.checkpoints import Checkpoints
    from barnabas.replication.logs.delayed_deletion import DelayedDeletion
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.replication.logs.retention import Retention
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition
    from barnabas.world.world import World

logger = logging.getLogger(__name__)

BACK_OFF_SECONDS_MIN = 0.01  # the property may be 0, and a search without a pause would take all of the event loop
DOUBLE_MAX = sys.float_info.max
THROTTLE_SECONDS_MAX = 1.0  # the longest wait before the allowed rate is read again: it is a dynamic property


class CleanerConfig(Protocol):
    """The broker properties that this file reads. Implemented by BrokerConfig."""

    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_backoff_ms: int


class Pass(NamedTuple):
    """What one pass over a log took."""

    seconds: float
    read_bytes: int
    written_bytes: int


class _Candidate(NamedTuple):
    log: "PartitionLog"
    part: Cleanable


class Permit:
    """The right to compact a log. It is never remembered that it held: `holds` looks each time."""

    __slots__ = ("_directories", "done", "log", "withdrawn")

    def __init__(self, log: "PartitionLog", directories: "LogDirectories") -> None:
        self.log = log
        self._directories = directories
        self.withdrawn = trio.Event()  # another task waits for the end of the pass
        self.done = trio.Event()  # the pass has ended, and its unfinished files are removed

    def holds(self) -> bool:
        """Whether the log may be compacted in this step of the event loop."""
        log = self.log
        directories = self._directories
        return (
            not self.withdrawn.is_set()
            # A pass ends when `cleanup.policy` loses `compact`, as in Kafka: it would remove records without a key.
            and log.config.compacted
            # A log that was deleted, or replaced by a move to another directory, is no longer the one in the table.
            and directories.get(log.topic_partition) is log
            and not log.is_being_cut
            # As in Kafka, neither log of a move is compacted: the copy could keep a record that a pass removes from the
            # current log, and lack the later tombstone of its key, which the pass removes as well.
            and directories.copy_of(log) is None
        )


class LogCleaner:
    """Cleans the broker's logs whose `cleanup.policy` includes compact."""

    def __init__(
        self,
        config: CleanerConfig,
        world: "World",
        directories: "LogDirectories",
        checkpoints: "Checkpoints",
        deletion: "DelayedDeletion",
        retention: "Retention",
    ) -> None:
        self._config = config
        self._world = world
        self._directories = directories
        self._checkpoints = checkpoints
        self._deletion = deletion
        self._retention = retention
        self._passes: dict[PartitionLog, Permit] = {}  # those that are running
        self.last_pass = Pass(0.0, 0, 0)  # that was complete
        self._uncleanable: dict[PartitionLog, None] = {}  # damaged logs, until a truncation or the next start
        self._high_watermarks: Callable[[], Mapping[TopicPartition, int]] = dict
        self._pass_ended = trio.Event()
        self._excess_bytes = 0.0  # bytes read and written above what the rate has allowed up to `_excess_at`
        self._excess_at = 0.0  # trio's clock, s

    async def run(self, high_watermarks: "Callable[[], Mapping[TopicPartition, int]]") -> None:
        """Clean until cancelled. Does nothing if `log.cleaner.enable` is false."""
        # Retention of compacted logs is part of this task, too. So without the cleaner nothing at all is removed from
        # compacted topics, as in Kafka.
        if not self._config.log_cleaner_enable:
            return
        self._high_watermarks = high_watermarks
        async with trio.open_nursery() as nursery:
            while True:
                # The event is new before the search: a pass that ends during it must cut the
                # back-off below short.
                self._pass_ended = trio.Event()
                while len(self._passes) < self._config.log_cleaner_threads:
                    found = await self._find_filthiest()
                    if found is None:
                        break

                    # There was no await since `_find_filthiest` asked for the permit, so it still
                    # holds.
                    permit = self._passes[found.log] = Permit(found.log, self._directories)
                    found.log.is_being_cleaned = True
                    nursery.start_soon(self._clean, found, permit)

                # Old segments are deleted here, not in the retention task, for topics with both
                # policies and for records deleted by DeleteRecords: both retention and a pass
                # remove segments, and a log has only one of them at a time.
                await self._delete_old_segments()
                with trio.move_on_after(max(self._config.log_cleaner_backoff_ms / 1000, BACK_OFF_SECONDS_MIN)):
                    await self._pass_ended.wait()

    @property
    def uncleanable(self) -> "list[PartitionLog]":
        """The logs that are not cleaned any more, because they are damaged."""
        return list(self._uncleanable)

    # -- interruptions

    async def leave(self, log: "PartitionLog") -> None:
        """Abort a pass over this log, and return when none is running.

        The caller makes sure that no other begins: no permit for the log `holds` any more.
        """
        self.withdraw(log)
        await self.ended(log.topic_partition)

    def withdraw(self, log: "PartitionLog") -> None:
        """Abort a pass over this log. Its running step ends by itself, without effect."""
        permit = self._passes.get(log)
        if permit is not None:
            permit.withdrawn.set()

    async def ended(self, key: "TopicPartition") -> None:
        """Return when no aborted pass over a log of this partition is running: it writes files by their names."""
        for permit in list(self._passes.values()):
            if permit.log.topic_partition == key and permit.withdrawn.is_set():
                await permit.done.wait()

    def forget_damage(self, log: "PartitionLog") -> None:
        """A truncation may have removed the damaged part of this log. If not, the next pass finds the damage again."""
        self._uncleanable.pop(log, None)

    # -- what to clean

    async def _find_filthiest(self) -> _Candidate | None:
        """The log with the largest dirty ratio of those that are due; None if none is."""
        high_watermarks = self._high_watermarks()
        self._forget_the_gone()
        best: _Candidate | None = None
        async for log in paced(self._directories.logs()):
            await self._read_times(log)
            found = self._candidate(log, high_watermarks)
            if found is not None and (best is None or found.part.dirty_ratio > best.part.dirty_ratio):
                best = found
        # The log is looked at again: during the awaits above it may have grown, or been truncated or deleted. After a
        # truncation the earlier high watermark may lie above records that are not committed.
        return self._candidate(best.log, self._high_watermarks()) if best is not None else None

    async def _read_times(self, log: "PartitionLog") -> None:
        """Read the timestamps of its segments, so that `_candidate` finds them in memory."""
        if not self._may_be_cleaned(log):
            return
        with self._contained(log):
            generation = log.segments.generation
            for segment in unread_times(log):
                # Between two steps segments may be removed or replaced, and the log deleted.
                if generation != log.segments.generation or not self._may_be_cleaned(log):
                    return
                try:
                    segment.largest_timestamp_ms()
                    segment.first_timestamp_ms()
                except StorageError as error:
                    self._directories.fail_directory_of(log, error)
                await pause_after()

    def _candidate(self, log: "PartitionLog", high_watermarks: "Mapping[TopicPartition, int]") -> _Candidate | None:
        # Without a role the partition has no high watermark, and records above it may still be truncated.
        high_watermark = high_watermarks.get(log.topic_partition)
        if high_watermark is None or not self._may_be_cleaned(log):
            return None
        part = None
        with self._contained(log):
            try:
                part = cleanable_part(log, high_watermark, self._world.now_ms())
            except StorageError as error:
                self._directories.fail_directory_of(log, error)

        if part is None:
            return None
        if part.is_misplaced:
            # With retention by time or size the log start may overtake the checkpoint, which is no reason to warn.
            if not log.config.deletes:
                logger.warning("%s: its cleaner checkpoint %s lies outside, all is dirty", log, log.first_dirty_offset)
            log.first_dirty_offset = part.first_dirty_offset

        return _Candidate(log, part) if part.is_due(log.config) else None

    @contextmanager
    def _contained(self, log: "PartitionLog") -> Iterator[None]:
        """A bug in this block ends the cleaning of this log alone."""
        with contained(logger, "%s is not cleaned any more", log) as attempt:
            yield
        # The same bug would stop each search, and keep the other logs from being cleaned.
        if attempt.failed:
            self._uncleanable[log] = None

    def _may_be_cleaned(self, log: "PartitionLog") -> bool:
        return log not in self._passes and log not in self._uncleanable and Permit(log, self._directories).holds()

    def _forget_the_gone(self) -> None:
        # The table holds the log itself, with its segments, so a deleted log would stay in memory.
        for log in [log for log in self._uncleanable if self._directories.get(log.topic_partition) is not log]:
            del self._uncleanable[log]

    async def _delete_old_segments(self) -> None:
        high_watermarks = self._high_watermarks()
        async for log in paced(self._directories.logs()):
            high_watermark = high_watermarks.get(log.topic_partition)
            if high_watermark is not None and self._may_be_cleaned(log):
                await self._retention.delete_old_segments_of(log, high_watermark)

    # -- a pass

    async def _clean(self, found: _Candidate, permit: Permit) -> None:
        """One pass over a log."""
        log = found.log
        config = self._config

        # As in Kafka the buffers are for all passes together, and half of the I/O buffer is for reading.
        threads = max(config.log_cleaner_threads, 1)
        cleaning = Cleaning(
            log,
            found.part,
            keys_max=keys_within(
                config.log_cleaner_dedupe_buffer_size // threads, config.log_cleaner_io_buffer_load_factor
            ),
            window_bytes=config.log_cleaner_io_buffer_size // threads // 2,
            now_ms=self._world.now_ms(),
        )
        steps = cleaning.steps()
        is_clean = False
        try:
            with self._contained(log):
                is_clean = await self._try_steps(cleaning, steps, permit)
        finally:
            try:
                # The close is shielded, because a cancelled pass removes its unfinished files, too,
                # in a thread.
                with trio.CancelScope(shield=True), self._contained(log):
                    await self._close(log, steps)
            finally:
                # Whatever `_close` raises: a deletion waits for `done` in a shielded scope, so it must be set.
                log.is_being_cleaned = False
                del self._passes[log]
                permit.done.set()

            # An aborted pass does not cut the back-off short: the next search would find the same
            # log at once.
            if is_clean:
                self._pass_ended.set()

    async def _try_steps(self, cleaning: Cleaning, steps: Iterator[Step], permit: Permit) -> bool:
        """`_take_steps`, with the errors that are expected: damaged records and a failing disk."""
        log = cleaning.log
        try:
            return await self._take_steps(cleaning, steps, permit)
        except CorruptRecords as error:
            # Each later pass would end at the same damage. The log can still be read and written.
            self._uncleanable[log] = None
            logger.warning("%s is damaged and is not cleaned any more: %s", log, error)
        except StorageError as error:
            self._directories.fail_directory_of(log, error)
        return False

    async def _take_steps(self, cleaning: Cleaning, steps: Iterator[Step], permit: Permit) -> bool:
        """Run all steps of a pass. False if it was aborted."""
        log = cleaning.log
        started = trio.current_time()
        read_bytes = size_bytes = 0
        await self._checkpoints.write_recovery_points(log)
        while (step := await self._step(log, steps)) is not None:
            # While the step ran in a thread, everything may have changed.
            if not permit.holds():
                return False

            # `apply` runs on the event loop, in the step of the check above: a read finds either the old segments or
            # the new ones. `apply` returns False if other code has changed segments since this pass read them.
            if step.replacement is not None:
                if not step.replacement.apply(self._world.now_ms()):
                    return False
                self._deletion.segments_of(log)
            read_bytes += step.read_bytes
            size_bytes += step.written_bytes
            await self._throttle(step.read_bytes + step.written_bytes, permit)

        # The checkpoint moves after a whole pass only. An aborted one may have replaced segments
        # already, which does no harm: the next pass reads them again. A crash before the checkpoint
        # is written has the same effect.
        log.first_dirty_offset = cleaning.end_offset
        await self._checkpoints.write_clean_offsets(log)
        seconds = trio.current_time() - started
        # An aborted pass says nothing about how long one takes.
        self.last_pass = Pass(seconds, read_bytes, size_bytes)
        message = "%s: clean up to %d in %.1f s, %d bytes read, %d written"
        logger.info(message, log, cleaning.end_offset, seconds, read_bytes, size_bytes)
        return True

    async def _step(self, log: "PartitionLog", steps: Iterator[Step]) -> Step | None:
        with self._directories.directory_of(log).in_use():
            return await self._world.in_thread(next, steps, None)

    async def _throttle(self, work_bytes: int, permit: Permit) -> None:
        """Wait until `log.cleaner.io.max.bytes.per.second` allows what all passes together have read and written.

        As in Kafka a rate of 0 stops all passes; a negative rate, or NaN, sets no limit.
        """
        # The step has already been done: the wait comes after it, so that one step of any size is possible.
        self._allow()
        self._excess_bytes += work_bytes
        # An aborted pass does not wait: a truncation or a deletion waits for its end.
        while self._excess_bytes > 0 and permit.holds():
            rate = self._rate
            deadline = self._excess_at + min(self._excess_bytes / rate if rate else math.inf, THROTTLE_SECONDS_MAX)
            # The wait is shorter than the clock's resolution.
            if deadline <= self._excess_at:
                break
            with trio.move_on_at(deadline):
                await permit.withdrawn.wait()
            self._allow()

    def _allow(self) -> None:
        """Subtract what the rate has allowed since the last call."""
        # The excess never falls below 0: an idle cleaner saves up no allowance for a burst.
        now = trio.current_time()
        self._excess_bytes = max(self._excess_bytes - (now - self._excess_at) * self._rate, 0.0)
        self._excess_at = now

    @property
    def _rate(self) -> float:
        """The allowed rate in bytes per second."""
        rate = self._config.log_cleaner_io_max_bytes_per_second
        return rate if 0 <= rate < DOUBLE_MAX else DOUBLE_MAX

    async def _close(self, log: "PartitionLog", steps: Generator[Step, None, None]) -> None:
        """Close the generator of a pass, which removes files that it has not finished."""
        # The close runs in a thread, like the steps: it waits for the disk. No step of this
        # generator runs any more.
        try:
            with self._directories.directory_of(log).in_use():
                await self._world.in_thread(steps.close)
        except StorageError as error:
            self._directories.fail_directory_of(log, error)
