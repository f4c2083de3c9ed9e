"""Mutual exclusion on a log: which operations may run at the same time. This file has all the rules.

    while a log is   appends          reads     searches           flushes            compaction         retention
    compacted        go on            go on     begin again        go on              one pass at most   waits
    truncated        none: the        refused   refused; the       none begins; the   none begins; the   waits
                     fetcher waits              running step is    running one is     running pass is
                                                waited for         waited for         aborted
    moved            go on            go on     as above, during   wait, from the     as above           waits
                                                the renames        last flush on
    deleted          none             of open   end by themselves  end by themselves  end by themselves  none
                                      files

Only one operation at a time gives a log's directory another name, or truncates the log (`renaming`). A deletion does
not wait for the threads that still sync or compact the log: they fail for its old name. The next log of that name waits
for them (`earlier_ended`).

Appends, reads and retention run in one step on the event loop, so checking the log's flags (`is_being_cut`,
`is_being_cleaned`, `is_being_renamed`) is enough for them. Searches, flushes and compaction run in threads beside the
loop; an operation that excludes them waits for them here.

A client request may search much of a log (ListOffsets by time; a retried batch that the producer state no longer has).
A search is a generator of short steps (`pacing.py`) and opens files by their names. When retention or compaction
changes the files, `LogSegments.generation` changes, and the search begins again. A truncation and the renames of a move
close the log to searches: new searches are refused, waiting ones end at their next step. A refused search returns
NOT_LEADER_OR_FOLLOWER, as reads do during a truncation; clients retry. A search that is one step on the event loop
(`search_now`) is like a read.
"""

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

import trio

from barnabas.storage.disk import StorageError
from barnabas.storage.segment import TakesLonger
from barnabas.storage.segments import SearchDisturbed
from barnabas.wire.errors import ErrorCode
from barnabas.world.pacing import complete

if TYPE_CHECKING:
    from barnabas.replication.logs.cleaner_schedule import LogCleaner
    from barnabas.storage.disk import InThread
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.records import Steps
    from barnabas.wire.topics import TopicPartition

Result = TypeVar("Result")
Sliced = TypeVar("Sliced")
Arguments = TypeVarTuple("Arguments")

# Searches without a result that are remembered: some clients repeat one endlessly, which reads 16 MiB of log each time.
FRUITLESS_REMEMBERED = 256


class _Search:
    """A search in progress."""

    __slots__ = ("is_stepping",)

    def __init__(self) -> None:
        self.is_stepping = False  # set by the thread


class Searched(Protocol):
    """The partition whose log is searched."""

    @property
    def log(self) -> "PartitionLog | None": ...

    def fail_storage(self, error: StorageError) -> ErrorCode: ...


class Gate:
    """Keeps operations that exclude each other apart (see the table above)."""

    def __init__(self, flusher: "Flusher", cleaner: "LogCleaner", in_request_thread: "InThread") -> None:
        self._flusher = flusher
        self._cleaner = cleaner
        self._in_request_thread = in_request_thread
        self._searches: dict[PartitionLog, dict[_Search, None]] = {}
        self._closed: dict[PartitionLog, int] = {}  # the number of `without_searches` blocks per log
        self._renaming: dict[PartitionLog, tuple[trio.Lock, int]] = {}  # with the number of its users
        self._slice_ended = trio.lowlevel.ParkingLot()
        self._fruitless: dict[Hashable, None] = {}  # oldest first

    def search_now(
        self, partition: Searched, log: "PartitionLog", look: "Callable[[], Result]"
    ) -> "Result | ErrorCode":
        """Run a search that takes one step. Errors: as of `search`. Raises TakesLonger, as `look` does."""
        if log in self._closed or log.is_being_cut:
            raise TakesLonger
        try:
            return look()
        except StorageError as error:
            return partition.fail_storage(error)

    async def search(self, partition: Searched, log: "PartitionLog", steps: "Steps[Result]") -> "Result | ErrorCode":
        """Run a search in the partition's log and return its result.

        Errors: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        if log in self._closed:
            steps.close()
            return ErrorCode.NOT_LEADER_OR_FOLLOWER

        # The search is entered in the same step as the check of `_closed`, so `without_searches`
        # finds every search that it let pass.
        search = _Search()
        self._searches.setdefault(log, {})[search] = None
        try:
            return await complete(self._guarded(log, search, steps), self._slice)
        except SearchDisturbed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        except StorageError as error:
            # The partition may have moved to another log; its directory must not be failed for this error.
            return partition.fail_storage(error) if partition.log is log else ErrorCode.NOT_LEADER_OR_FOLLOWER
        finally:
            del self._searches[log][search]
            if not self._searches[log]:
                del self._searches[log]

    def was_fruitless(self, question: Hashable) -> bool:
        """Whether a search for this question has found nothing before. Only the last FRUITLESS_REMEMBERED are known."""
        return question in self._fruitless

    def note_fruitless(self, question: Hashable) -> None:
        """Remember that a search for this question found nothing."""
        # Appends do not change the answer, so entries do not expire. A question has the leader epoch in it, because a
        # new leader may bring other records.
        self._fruitless[question] = None
        if len(self._fruitless) > FRUITLESS_REMEMBERED:
            del self._fruitless[next(iter(self._fruitless))]

    # -- exclusive use

    @asynccontextmanager
    async def truncating(self, log: "PartitionLog") -> AsyncIterator[None]:
        """`async with gate.truncating(log):` the block may change the log, its files included, in a thread."""
        # This is set first: from now on no read, retention or flush plan begins, so only those that run are waited for.
        log.is_being_cut = True
        try:
            async with self.renaming(log), self.without_searches(log):
                await self._cleaner.leave(log)
                # The plan of a running sync may reach above the new log end; `forget` drops its result.
                await self._flusher.forget(log)
                yield
                self._cleaner.forget_damage(log)
        finally:
            log.is_being_cut = False

    def deleted(self, log: "PartitionLog") -> None:
        """Stop flushes and compaction of a log that has left its directory's table."""
        # No pass can begin from now on, because the cleaner takes its logs from the tables. Searches read through
        # handles of their own, and end at the first missing file.
        self._flusher.drop(log)
        self._cleaner.withdraw(log)

    async def earlier_ended(self, key: "TopicPartition") -> None:
        """Return when nothing uses the files of deleted logs of this partition any more."""
        await self._flusher.dropped_ended(key)
        await self._cleaner.ended(key)

    @asynccontextmanager
    async def renaming(self, log: "PartitionLog") -> AsyncIterator[None]:
        """`async with gate.renaming(log):` the block may rename the log's directory, and nothing else does."""
        lock, users = self._renaming.get(log, (trio.Lock(), 0))
        self._renaming[log] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._renaming[log][1] - 1
            if users:
                self._renaming[log] = lock, users
            else:
                del self._renaming[log]

    async def compaction_ended(self, log: "PartitionLog") -> None:
        """Return when no compaction of a log that moves is running; none begins before the move ends."""
        await self._cleaner.leave(log)

    @asynccontextmanager
    async def without_searches(self, log: "PartitionLog") -> AsyncIterator[None]:
        """`async with gate.without_searches(log):` within the block no search reads this log.

        No search step is running when the block begins.
        """
        # The log is closed before the check of the steps: see `_guarded`. The value is a count,
        # because two of these blocks may overlap.
        self._closed[log] = self._closed.get(log, 0) + 1
        try:
            # A step takes about a millisecond. The check is repeated after each slice, because another search of this
            # log may be in the middle of a step.
            while any(search.is_stepping for search in self._searches.get(log, ())):
                await self._slice_ended.park()
            yield
        finally:
            self._closed[log] -= 1
            if not self._closed[log]:
                del self._closed[log]

    async def hold_flushes(self, log: "PartitionLog") -> None:
        """Return when no flush of this log is running. None begins before `release_flushes`."""
        await self._flusher.hold(log)

    def release_flushes(self, log: "PartitionLog", *, is_gone: bool) -> None:
        """End `hold_flushes`, if the log is held. A log that `is_gone` is never flushed again."""
        self._flusher.release(log, is_gone=is_gone)

    def _guarded(self, log: "PartitionLog", search: _Search, steps: "Steps[Result]") -> "Steps[Result]":
        """The same steps, each only while the log is open to searches."""
        held_bytes = None
        try:
            while True:
                # The first step is empty: `complete` runs it on the event loop, and later steps may block on the disk.
                yield held_bytes

                # This runs in a thread, beside the event loop. The flag is set before `_closed` is read, and
                # `without_searches` writes `_closed` before it reads the flag. So at least one of the two sees the
                # other: either this step ends here, or the block waits for its end.
                search.is_stepping = True
                try:
                    if log in self._closed:
                        raise SearchDisturbed

                    # The flag is set meanwhile, so the files that this step opens by name stay in
                    # place until it ends.
                    held_bytes = next(steps)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]  # what `steps` returned
                finally:
                    search.is_stepping = False
        # The steps are closed also when the caller is cancelled or the log was closed: they may hold an open file.
        finally:
            steps.close()

    async def _slice(self, function: Callable[[*Arguments], Sliced], /, *args: *Arguments) -> Sliced:
        """Run a slice of a search in a request thread; then wake the tasks that wait in `without_searches`."""
        try:
            return await self._in_request_thread(function, *args)
        # The event loop wakes the tasks, because the thread itself must not. An error ends the
        # slice as well.
        finally:
            self._slice_ended.unpark_all()
