"""Compaction in the running broker: which log is cleaned when, how fast, and who may interrupt it (reference D.8).

Theory of operation. Every `log.cleaner.backoff.ms`, and at once after a pass, the compacted log with the largest dirty
share that is due is taken, up to `log.cleaner.threads` logs at a time. A pass is a generator of steps (see
`storage/cleaner.py`); each runs in a worker thread and works on one window of bytes. Between two of them this file
looks, on the event loop, whether the pass may go on, waits where `log.cleaner.io.max.bytes.per.second` wants it, and
puts clean segments in their place. So nothing here needs a lock, and a truncation or deletion waits for at
most one step: `leave` for one that is deleted, `paused` around a truncation.

Retention of compacted logs is also done here, between passes, for both remove segments: of a topic with both policies,
and of records that DeleteRecords has deleted. It follows from this, as in Kafka, that with `log.cleaner.enable=false`
nothing at all is removed from compacted topics.

A log that turns out to be damaged is left alone until the next start. A disk that fails takes its directory offline.

What runs in a thread runs beside the event loop but not at the same time: Python's interpreter takes turns. A window is
small, and between two windows the loop has its turn in any case. Measured on two cores that had other work as well: a
pass over records of 100 bytes reads 35 to 70 MB/s of log, and a synchronous produce beside it takes 0.14 ms in the
median instead of 0.10, and 2.4 ms instead of 0.3 in the worst of a hundred.
"""

import logging
import math
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from barnabas.broker.containment import contained
from barnabas.storage.cleanable import Cleanable, cleanable_part
from barnabas.storage.cleaner import Cleaning, Step, keys_within
from barnabas.storage.disk import StorageError
from barnabas.wire.compression import CorruptRecords

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from barnabas.broker.logs.checkpoints import Checkpoints
    from barnabas.broker.logs.delayed_deletion import DelayedDeletion
    from barnabas.broker.logs.directories import LogDirectories
    from barnabas.broker.logs.retention import Retention
    from barnabas.broker.world import World
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

BACK_OFF_SECONDS_MIN = 0.01  # the property may be 0, and to look at every log without a pause would leave no time
LOGS_AT_A_TIME = 50  # that are looked at between two turns of the event loop
DOUBLE_MAX = sys.float_info.max
REST_SECONDS = 1.0  # after so long the allowed rate is looked at again


class CleanerConfig(Protocol):
    """The broker properties that this file reads; BrokerConfig."""

    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_backoff_ms: int


class _Candidate(NamedTuple):
    log: "PartitionLog"
    part: Cleanable


class _Job:
    """A pass under way."""

    __slots__ = ("done", "given_up")

    def __init__(self) -> None:
        self.given_up = trio.Event()  # a truncation, a move or a deletion needs the log
        self.done = trio.Event()


class LogCleaner:
    """Cleans the compacted ones of the broker's logs."""

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
        self._jobs: dict[PartitionLog, _Job] = {}
        self._paused: dict[PartitionLog, int] = {}  # by how many
        self._uncleanable: dict[PartitionLog, None] = {}
        self._high_watermarks: Callable[[], Mapping[TopicPartition, int]] = dict
        self._job_ended = trio.Event()
        self._excess_bytes = 0.0  # read and written, and not yet allowed
        self._excess_at = 0.0  # of trio's clock: when it was so much

    async def run(self, high_watermarks: "Callable[[], Mapping[TopicPartition, int]]") -> None:
        """Clean for ever; does nothing if the configuration says so."""
        if not self._config.log_cleaner_enable:
            return
        self._high_watermarks = high_watermarks
        async with trio.open_nursery() as nursery:
            while True:
                self._job_ended = trio.Event()
                while len(self._jobs) < self._config.log_cleaner_threads:
                    found = await self._find_filthiest()
                    if found is None:
                        break
                    job = self._jobs[found.log] = _Job()
                    found.log.is_being_cleaned = True
                    nursery.start_soon(self._clean, found, job)
                await self._delete_old_segments()
                with trio.move_on_after(max(self._config.log_cleaner_backoff_ms / 1000, BACK_OFF_SECONDS_MIN)):
                    await self._job_ended.wait()

    # -- who interrupts

    async def leave(self, log: "PartitionLog") -> None:
        """Give up a pass over this log, and return when none is under way. Who calls it sees to it that no other
        begins: the log is deleted, or `paused`."""
        job = self._jobs.get(log)
        if job is not None:
            job.given_up.set()
            await job.done.wait()

    @asynccontextmanager
    async def paused(self, log: "PartitionLog") -> "AsyncIterator[None]":
        """`async with cleaner.paused(log):` its segments are neither read nor replaced by a pass."""
        self._paused[log] = self._paused.get(log, 0) + 1
        try:
            await self.leave(log)
            yield
            self._uncleanable.pop(log, None)  # the damage may be cut off
        finally:
            self._paused[log] -= 1
            if not self._paused[log]:
                del self._paused[log]

    # -- what to clean

    async def _find_filthiest(self) -> _Candidate | None:
        """The log that most needs to be cleaned, of those that may be."""
        high_watermarks = self._high_watermarks()
        self._forget_the_gone()
        best: _Candidate | None = None
        for number, log in enumerate(self._directories.logs()):
            if number % LOGS_AT_A_TIME == LOGS_AT_A_TIME - 1:
                await trio.lowlevel.checkpoint()
            found = self._candidate(log, high_watermarks)
            if found is not None and (best is None or found.part.dirty_ratio > best.part.dirty_ratio):
                best = found
        return self._candidate(best.log, high_watermarks) if best is not None else None  # as it is now

    def _candidate(self, log: "PartitionLog", high_watermarks: "Mapping[TopicPartition, int]") -> _Candidate | None:
        high_watermark = high_watermarks.get(log.topic_partition)  # None: the partition has no role yet
        if high_watermark is None or not self._may_be_cleaned(log):
            return None
        try:
            part = cleanable_part(log, high_watermark, self._world.now_ms())
        except StorageError as error:
            self._directories.fail_directory_of(log, error)
            return None
        if part.is_misplaced:
            if not log.config.deletes:
                logger.warning("%s: its cleaner checkpoint %s lies outside, all is dirty", log, log.first_dirty_offset)
            log.first_dirty_offset = part.first_dirty_offset
        return _Candidate(log, part) if part.is_due(log.config) else None

    def _may_be_cleaned(self, log: "PartitionLog") -> bool:
        is_wanted = log.config.compacted and self._directories.get(log.topic_partition) is log
        return is_wanted and not (log in self._jobs or log in self._paused or log in self._uncleanable)

    def _forget_the_gone(self) -> None:
        for log in [log for log in self._uncleanable if self._directories.get(log.topic_partition) is not log]:
            del self._uncleanable[log]

    async def _delete_old_segments(self) -> None:
        high_watermarks = self._high_watermarks()
        for number, log in enumerate(self._directories.logs()):
            if number % LOGS_AT_A_TIME == LOGS_AT_A_TIME - 1:
                await trio.lowlevel.checkpoint()
            high_watermark = high_watermarks.get(log.topic_partition)
            if high_watermark is not None and self._may_be_cleaned(log):
                await self._retention.delete_old_segments_of(log, high_watermark)

    # -- a pass

    async def _clean(self, found: _Candidate, job: _Job) -> None:
        """Clean a log as far as it goes."""
        log, config = found.log, self._config
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
            with contained(logger, "%s is not cleaned any more", log) as attempt:
                is_clean = await self._try_steps(cleaning, steps, job)
            if attempt.failed:
                self._uncleanable[log] = None
        finally:
            try:
                with trio.CancelScope(shield=True):
                    await self._close(log, steps)
            finally:  # whatever that ends with: who wants the log waits for it, shielded
                log.is_being_cleaned = False
                del self._jobs[log]
                job.done.set()
            if is_clean:  # otherwise the next look comes after the back-off, or it would find the same at once
                self._job_ended.set()

    async def _try_steps(self, cleaning: Cleaning, steps: Iterator[Step], job: _Job) -> bool:
        """The same as `_take_steps`, where damage and a failing disk are no surprise."""
        log = cleaning.log
        try:
            return await self._take_steps(cleaning, steps, job)
        except CorruptRecords as error:
            self._uncleanable[log] = None
            logger.warning("%s is damaged and is not cleaned any more: %s", log, error)
        except StorageError as error:
            self._directories.fail_directory_of(log, error)
        return False

    async def _take_steps(self, cleaning: Cleaning, steps: Iterator[Step], job: _Job) -> bool:
        """Take all steps of a pass; False if it was given up."""
        log, started = cleaning.log, trio.current_time()
        read_bytes = size_bytes = 0
        while (step := await self._step(log, steps)) is not None:
            if job.given_up.is_set() or self._directories.get(log.topic_partition) is not log:
                return False
            if step.replacement is not None:
                if not step.replacement.apply(self._world.now_ms()):
                    return False
                self._deletion.segments_of(log)
            read_bytes += step.read_bytes
            size_bytes += step.written_bytes
            await self._rest(step.read_bytes + step.written_bytes, job)
        log.first_dirty_offset = cleaning.end_offset
        await self._checkpoints.write_clean_offsets(log)
        seconds = trio.current_time() - started
        message = "%s: clean up to %d in %.1f s, %d bytes read, %d written"
        logger.info(message, log, cleaning.end_offset, seconds, read_bytes, size_bytes)
        return True

    async def _step(self, log: "PartitionLog", steps: Iterator[Step]) -> Step | None:
        with self._directories.directory_of(log).in_use():
            return await self._world.in_thread(next, steps, None)

    async def _rest(self, work_bytes: int, job: _Job) -> None:
        """Wait as long as the allowed rate takes for what was read and written, by all passes together.

        A little at a time, for the rate may change. At a rate of 0 nothing goes on; one below it, or not a number, does
        not limit: as in Kafka.
        """
        self._allow()
        self._excess_bytes += work_bytes
        while self._excess_bytes > 0 and not job.given_up.is_set():
            rate = self._rate
            deadline = self._excess_at + min(self._excess_bytes / rate if rate else math.inf, REST_SECONDS)
            if deadline <= self._excess_at:  # less than the clock can tell
                break
            with trio.move_on_at(deadline):
                await job.given_up.wait()
            self._allow()

    def _allow(self) -> None:
        """Take off what the time since the last call allows."""
        now = trio.current_time()
        self._excess_bytes = max(self._excess_bytes - (now - self._excess_at) * self._rate, 0.0)
        self._excess_at = now

    @property
    def _rate(self) -> float:
        """Bytes a second."""
        rate = self._config.log_cleaner_io_max_bytes_per_second
        return rate if 0 <= rate < DOUBLE_MAX else DOUBLE_MAX

    async def _close(self, log: "PartitionLog", steps: Generator[Step, None, None]) -> None:
        """End a pass, wherever it stands."""
        try:
            with self._directories.directory_of(log).in_use():
                await self._world.in_thread(steps.close)
        except StorageError as error:
            self._directories.fail_directory_of(log, error)
