"""Planted bugs of logs, and of moves between log directories (`bugs.py`). Stories catch them, at any seed.

lasting_permit     a pass goes on after cleanup.policy was set back to `delete`
continued_copy     continue the copy of an interrupted move, although the log was compacted since
copy_by_name       take the copy of a deleted topic's log for the one of the next topic of its name
forgotten_siblings a log directory does not know that the broker had others
lock_over_swaps    nothing else happens while the log of a move takes its place
forgotten_batches  refuse the retry of a batch that the producer state does not have any more (as Apache Kafka does)
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.broker.cluster import boot_mark
from barnabas.config.live import BrokerConfig, TopicConfig
from barnabas.replication import turns
from barnabas.replication.logs.cleaner_schedule import Permit
from barnabas.replication.logs.directories import LogDirectories
from barnabas.replication.logs.future_logs import FutureLogs
from barnabas.storage.producers import ProducerStates

if TYPE_CHECKING:
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.topics import TopicPartition

Replacement = tuple[object, str, object]


def _lasting_permit() -> list[Replacement]:
    right = Permit.holds
    begun: set[Permit] = set()

    def holds(self: Permit) -> bool:
        """What was permitted once is permitted, unless a task waits for the log."""
        if self in begun:
            return not self.withdrawn.is_set()
        if right(self):
            begun.add(self)
        return self in begun

    return [(Permit, "holds", holds)]


async def _open_copy(self: FutureLogs, directory: "LogDirectory", name: str, key: "TopicPartition") -> None:
    """A copy is continued where it ended."""
    current = self._directories.get(key)
    config = TopicConfig(BrokerConfig(), {}) if current is None else current.config
    opened = self._opener.opener(directory, key, config, clean=False, name=name)
    future = await self._directories.at_start(directory, opened)
    if future is not None:
        self._opener.add(directory, future).copied_from = current


def _continued_copy() -> list[Replacement]:
    return [(FutureLogs, "_copy_again", _open_copy)]


def _copy_by_name() -> list[Replacement]:
    right = FutureLogs.delete

    def copy_of(self: LogDirectories, log: "PartitionLog") -> "PartitionLog | None":
        """Of the same partition."""
        future = self.future_log(log.topic_partition)
        if future is not None:
            future.copied_from, future.topic_id = log, log.topic_id  # which is not what its directory says
        return future

    async def delete(self: FutureLogs, key: "TopicPartition") -> None:
        """A copy without a log gets one."""
        future = self.get(key)
        if future is not None and future.copied_from is not None:
            await right(self, key)

    return [
        (FutureLogs, "_copy_again", _open_copy),
        (LogDirectories, "copy_of", copy_of),
        (FutureLogs, "delete", delete),
    ]


def _lock_over_swaps() -> list[Replacement]:
    right_swap = FutureLogs.swap
    right_wait = turns.Turn.__anext__
    swapping: list[object] = []

    async def swap(
        self: FutureLogs, current: "PartitionLog", future: "PartitionLog", step: "Callable[[Callable[[], bool]], bool]"
    ) -> bool:
        """Nothing else happens meanwhile."""
        swapping.append(future)
        try:
            return await right_swap(self, current, future, step)
        finally:
            swapping.remove(future)

    async def wait(self: "turns.Turn[TopicPartition]") -> "list[TopicPartition]":
        """Until no log is swapped."""
        while swapping:
            await trio.sleep(0.01)
        return await right_wait(self)

    return [(FutureLogs, "swap", swap), (turns.Turn, "__anext__", wait)]


def _forgotten_siblings() -> list[Replacement]:
    right = boot_mark.kept_since

    def kept_since(
        marks: "Mapping[str, boot_mark.BootMark | boot_mark.Mark]", offline: "Collection[str]"
    ) -> int | None:
        """A directory knows only itself."""
        alone = {
            path: mark._replace(siblings=()) if isinstance(mark, boot_mark.BootMark) else mark
            for path, mark in marks.items()
        }
        return right(alone, offline)

    return [(boot_mark, "kept_since", kept_since)]


def _forgotten_batches() -> list[Replacement]:
    def is_behind(*_: object) -> bool:
        """What is not remembered was never written."""
        return False

    return [(ProducerStates, "is_behind", is_behind)]


LOG_BUGS: dict[str, Callable[[], list[Replacement]]] = {
    "lasting_permit": _lasting_permit,
    "continued_copy": _continued_copy,
    "copy_by_name": _copy_by_name,
    "forgotten_siblings": _forgotten_siblings,
    "lock_over_swaps": _lock_over_swaps,
    "forgotten_batches": _forgotten_batches,
}
