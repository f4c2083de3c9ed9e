"""Searches in logs, and how a cut or a rename keeps them out.

A client may ask for a search (ListOffsets by time, the retry of a forgotten batch) that reads much of a log. A search
is a generator of short steps (`pacing.py`) and reads files by their names, in a thread beside the event loop. Retention
and compaction, which also change files, count `LogSegments.generation`, and the search begins again. A truncation and
the renames of a move have the log to themselves instead (`kept_out`):

    new searches      are refused
    waiting ones      end when their turn comes, before they touch the log
    the running step  is waited for: a millisecond, whoever asks for how many searches

Refused is NOT_LEADER_OR_FOLLOWER, as for reads of a log that is being cut; clients ask again. An error of the disk
counts against the log directory only if the partition still has the log that was searched.
"""

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio

from barnabas.broker.pacing import complete
from barnabas.storage.disk import StorageError
from barnabas.storage.segments import SearchDisturbed
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.storage.disk import InThread
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


class Searches:
    """The searches of a broker."""

    def __init__(self, in_request_thread: "InThread") -> None:
        self._in_request_thread = in_request_thread
        self._searches: dict[PartitionLog, dict[_Search, None]] = {}
        self._closed: dict[PartitionLog, int] = {}  # how many keep searches out
        self._slice_ended = trio.lowlevel.ParkingLot()
        self._fruitless: dict[Hashable, None] = {}  # oldest first

    async def search(self, partition: "Partition", log: "PartitionLog", steps: "Steps[Result]") -> "Result | ErrorCode":
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

    @asynccontextmanager
    async def kept_out(self, log: "PartitionLog") -> AsyncIterator[None]:
        """`async with searches.kept_out(log):` no search touches this log; entered in a step in which none does."""
        self._closed[log] = self._closed.get(log, 0) + 1
        try:
            while any(search.is_stepping for search in self._searches.get(log, ())):
                await self._slice_ended.park()
            yield
        finally:
            self._closed[log] -= 1
            if not self._closed[log]:
                del self._closed[log]

    def _guarded(self, log: "PartitionLog", search: _Search, steps: "Steps[Result]") -> "Steps[Result]":
        """The same steps, each only while nobody keeps searches out."""
        held_bytes = None
        try:
            while True:
                yield held_bytes  # the first step is empty: it is the event loop's, and others may wait for the disk
                search.is_stepping = True  # first, and then the look: `kept_out` does it in the other order
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
        """Run a slice of a search in a request thread; then whoever waits in `kept_out` looks again."""
        try:
            return await self._in_request_thread(function, *args)
        finally:
            self._slice_ended.unpark_all()
