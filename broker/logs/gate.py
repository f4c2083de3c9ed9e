"""Who may use a log at the same time: the one file that says it.

    while a log is   appends          reads     searches           flushes            compaction         retention
    compacted        go on            go on     begin again        go on              one pass at most   waits
    truncated        none: the        refused   refused; the       none begins; the   none begins; the   waits
                     fetcher waits              running step is    running one is     running pass is
                                                waited for         waited for         given up
    moved            go on            go on     as above, during   wait, from the     as above           waits
                                                the renames        last flush on
    deleted          none             of open   end by themselves  as above           as above           none
                                      files

Appends, reads and retention are steps of the event loop, so that each looks at the log's own flags (`is_being_cut`,
`is_being_cleaned`, `is_being_renamed`) and needs no more. Searches, flushes and compaction run in threads beside the
loop: who must not meet them waits for them here.

A client may ask for a search (ListOffsets by time, the retry of a forgotten batch) that reads much of a log. A search
is a generator of short steps (`pacing.py`) and opens files by their names. When retention or compaction changes the
files, `LogSegments.generation` changes, and the search begins again. A truncation and the renames of a move close the
log to searches: new searches are refused, waiting ones end before they touch the log, and the running step, about a
millisecond, is waited for. Refused is NOT_LEADER_OR_FOLLOWER, as for reads of a log that is being truncated; clients
ask again.
"""

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

import trio

from barnabas.broker.pacing import complete
from barnabas.storage.disk import StorageError
from barnabas.storage.segments import SearchDisturbed
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.logs.cleaner_schedule import LogCleaner
    from barnabas.storage.disk import InThread
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.records import Steps

Result = TypeVar("Result")
Sliced = TypeVar("Sliced")
Arguments = TypeVarTuple("Arguments")

FRUITLESS_REMEMBERED = 256  # some clients ask the same again and again: 16 MiB of log each time


class _Search:
    """One that was asked for and has not ended."""

    __slots__ = ("is_stepping",)

    def __init__(self) -> None:
        self.is_stepping = False  # set by the thread


class Searched(Protocol):
    """The partition whose log is searched."""

    @property
    def log(self) -> "PartitionLog | None": ...

    def fail_storage(self, error: StorageError) -> ErrorCode: ...


class Gate:
    """Closes logs to those who must not use them now."""

    def __init__(self, flusher: "Flusher", cleaner: "LogCleaner", in_request_thread: "InThread") -> None:
        self._flusher = flusher
        self._cleaner = cleaner
        self._in_request_thread = in_request_thread
        self._searches: dict[PartitionLog, dict[_Search, None]] = {}
        self._closed: dict[PartitionLog, int] = {}  # how many keep searches out
        self._slice_ended = trio.lowlevel.ParkingLot()
        self._fruitless: dict[Hashable, None] = {}  # oldest first

    async def search(self, partition: Searched, log: "PartitionLog", steps: "Steps[Result]") -> "Result | ErrorCode":
        """What these steps find in the partition's log. NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR."""
        if log in self._closed:
            steps.close()
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        search = _Search()
        self._searches.setdefault(log, {})[search] = None
        try:
            return await complete(self._guarded(log, search, steps), self._slice)
        except SearchDisturbed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        except StorageError as error:
            # The partition may have another log by now, whose directory works.
            return partition.fail_storage(error) if partition.log is log else ErrorCode.NOT_LEADER_OR_FOLLOWER
        finally:
            del self._searches[log][search]
            if not self._searches[log]:
                del self._searches[log]

    def was_fruitless(self, question: Hashable) -> bool:
        """Whether a search for this found nothing, and will find nothing; of old ones it is not known any more."""
        return question in self._fruitless

    def note_fruitless(self, question: Hashable) -> None:
        """A search for this found nothing, and another one would not either."""
        self._fruitless[question] = None
        if len(self._fruitless) > FRUITLESS_REMEMBERED:
            del self._fruitless[next(iter(self._fruitless))]

    # -- who has a log to himself

    @asynccontextmanager
    async def truncating(self, log: "PartitionLog") -> AsyncIterator[None]:
        """`async with gate.truncating(log):` files and what memory says of them may be changed in a thread."""
        log.is_being_cut = True
        try:
            async with self.without_searches(log), self.without_compaction(log):
                await self._flusher.forget(log)
                yield
        finally:
            log.is_being_cut = False

    async def deleted(self, log: "PartitionLog") -> None:
        """The log has left its directory's table: return when no flush and no compaction of it goes on."""
        await self._flusher.forget(log)
        await self._cleaner.leave(log)

    @asynccontextmanager
    async def without_compaction(self, *logs: "PartitionLog") -> AsyncIterator[None]:
        """`async with gate.without_compaction(log):` a pass under way is given up, and none begins."""
        async with AsyncExitStack() as stack:
            for log in logs:
                await stack.enter_async_context(self._cleaner.paused(log))
            yield

    @asynccontextmanager
    async def without_searches(self, log: "PartitionLog") -> AsyncIterator[None]:
        """`async with gate.without_searches(log):` no search touches this log; entered in a step in which none does."""
        self._closed[log] = self._closed.get(log, 0) + 1
        try:
            while any(search.is_stepping for search in self._searches.get(log, ())):
                await self._slice_ended.park()
            yield
        finally:
            self._closed[log] -= 1
            if not self._closed[log]:
                del self._closed[log]

    async def hold_flushes(self, log: "PartitionLog") -> None:
        """Return when no flush of this log goes on; none begins before `release_flushes`, who wants one waits."""
        await self._flusher.hold(log)

    def release_flushes(self, log: "PartitionLog", *, is_gone: bool) -> None:
        """The end of `hold_flushes`, if there was one. A log that `is_gone` is never flushed again."""
        self._flusher.release(log, is_gone=is_gone)

    def _guarded(self, log: "PartitionLog", search: _Search, steps: "Steps[Result]") -> "Steps[Result]":
        """The same steps, each only while the log is open to searches."""
        held_bytes = None
        try:
            while True:
                yield held_bytes  # the first step is empty: it is the event loop's, and others may wait for the disk
                search.is_stepping = True  # before the look at `_closed`: `without_searches` does it in the other order
                try:
                    if log in self._closed:
                        raise SearchDisturbed
                    held_bytes = next(steps)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]  # what `steps` returned
                finally:
                    search.is_stepping = False
        finally:
            steps.close()

    async def _slice(self, function: Callable[[*Arguments], Sliced], /, *args: *Arguments) -> Sliced:
        """Run a slice of a search in a request thread; then those who wait in `without_searches` look again."""
        try:
            return await self._in_request_thread(function, *args)
        finally:
            self._slice_ended.unpark_all()
