"""Planted bugs, which show that the histories find bugs: wrong assumptions about what survives a crash.

early_marker     write the clean shutdown marker although a log could not be closed
forgotten_name   do not sync a directory if the flush that should have done it was dropped
eager_compaction compact segments that are not synced yet
trusted_sync     trust a sync that succeeds after a failed one
blind_start      serve a directory that could not be read for lack of a descriptor
late_checkpoint  do not write the lower recovery point after a truncation
unsynced_marker  compact data of transactions whose markers are not synced yet
forgotten_open   load a snapshot without its open transactions
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.replication.logs import directories, partition_logs
from barnabas.replication.logs.checkpoints import Checkpoints
from barnabas.storage import cleanable, cleaner, disk, producers
from barnabas.storage import log as storage_log

if TYPE_CHECKING:
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.storage.flush_plan import FlushPlan
    from barnabas.storage.log import PartitionLog

Replacement = tuple[object, str, object]  # whose attribute, its name, what to put there


def _early_marker() -> list[Replacement]:
    right = partition_logs.Logs._mark_closed

    async def mark_closed(self: partition_logs.Logs, directory: "LogDirectory", left: "Sequence[PartitionLog]") -> bool:
        """Bug: writes the marker although some logs could not be closed."""
        return await right(self, directory, [])

    return [(partition_logs.Logs, "_mark_closed", mark_closed)]


def _forgotten_name() -> list[Replacement]:
    right = storage_log.PartitionLog.flush_plan

    def flush_plan(self: "PartitionLog") -> "FlushPlan | None":
        """Bug: notes the names as synced when the flush is planned, before the sync."""
        plan = right(self)
        if plan is not None and plan.names_version is not None:
            self._names_saved = plan.names_version
        return plan

    return [(storage_log.PartitionLog, "flush_plan", flush_plan)]


def _eager_compaction() -> list[Replacement]:
    right = cleanable.find_cleanable

    def find_cleanable(
        segments: Sequence[cleanable.SegmentFacts], rules: cleanable.CompactionRules, **facts: int
    ) -> cleanable.Cleanable:
        """Bug: compacts sealed segments, synced or not."""
        return right(segments, rules, **{**facts, "recovery_point": facts["log_end_offset"]})

    return [(cleaner, "find_cleanable", find_cleanable)]


def _trusted_sync() -> list[Replacement]:
    return [(disk.StorageError, "endangers_unsynced", False)]


def _blind_start() -> list[Replacement]:
    async def at_start(
        self: directories.LogDirectories, directory: "LogDirectory", function: Callable[..., object], *args: object
    ) -> object:
        """Bug: treats an unreadable directory as an empty one."""
        try:
            return await self.run(directory, function, *args)
        except disk.StorageError:
            return None

    return [(directories.LogDirectories, "at_start", at_start)]


def _late_checkpoint() -> list[Replacement]:
    async def write_all_of(*_: object) -> None:
        """Bug: leaves the recovery point to the next periodic checkpoint."""

    return [(Checkpoints, "write_all_of", write_all_of)]


def _unsynced_marker() -> list[Replacement]:
    return [(storage_log.PartitionLog, "decided_offset", property(lambda self: self.log_end_offset))]


def _forgotten_open() -> list[Replacement]:
    right = producers.ProducerStates.load_snapshot

    def load_snapshot(self: producers.ProducerStates, data: bytes, now_ms: int, expiration_ms: int) -> None:
        """Bug: the LSO does not know the transactions that were open."""
        right(self, data, now_ms, expiration_ms)
        self._open_transactions.clear()

    return [(producers.ProducerStates, "load_snapshot", load_snapshot)]


BUGS: dict[str, Callable[[], list[Replacement]]] = {
    "early_marker": _early_marker,
    "forgotten_name": _forgotten_name,
    "eager_compaction": _eager_compaction,
    "trusted_sync": _trusted_sync,
    "blind_start": _blind_start,
    "late_checkpoint": _late_checkpoint,
    "unsynced_marker": _unsynced_marker,
    "forgotten_open": _forgotten_open,
}
