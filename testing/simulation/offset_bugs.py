"""Planted bugs of committed offsets whose topic is deleted (`bugs.py`). Stories catch them, at any seed.

ids_not_compared   offsets of a deleted topic are those of the next topic of its name, if its deletion was missed
deaf_while_loading a deletion counts only for groups that are loaded at that moment
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.coordinators.groups.outdated import Outdated

if TYPE_CHECKING:
    from barnabas.wire.topics import TopicPartition

Replacement = tuple[object, str, object]


def _ids_not_compared() -> list[Replacement]:
    def is_outdated(*_: object) -> bool:
        """The name is the same."""
        return False

    return [(Outdated, "_is_outdated", is_outdated)]


def _deaf_while_loading() -> list[Replacement]:
    def note_deleted(self: Outdated, deleted: "Sequence[TopicPartition]") -> None:
        """What is not loaded cannot be removed."""
        logs = {shard: shard.partition.log for shard in self._shards.serving()}
        ends = {shard: log.log_end_offset for shard, log in logs.items() if log is not None}
        self._deleted |= dict.fromkeys(deleted, ends)
        self._deletion.set()

    return [(Outdated, "note_deleted", note_deleted)]


OFFSET_BUGS: dict[str, Callable[[], list[Replacement]]] = {
    "ids_not_compared": _ids_not_compared,
    "deaf_while_loading": _deaf_while_loading,
}
