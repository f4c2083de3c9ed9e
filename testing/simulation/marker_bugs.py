"""Planted bugs of transaction markers (`bugs.py`). Stories catch them, at any seed.

dropped_markers    a partition without a leader counts as deleted
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.coordinators.transactions.sender import MarkerSender

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.owed import Debt, Partitions

Replacement = tuple[object, str, object]


def _dropped_markers() -> list[Replacement]:
    async def drop(sender: MarkerSender, due: "Sequence[tuple[Debt, Partitions]]") -> None:
        """Where there is no leader there is nothing."""
        for debt, partitions in due:
            for each in partitions:
                if sender._leader_of(each) is None:
                    debt.known.unmarked.pop(each, None)

    return [(MarkerSender, "_drop_deleted", drop)]


MARKER_BUGS: dict[str, Callable[[], list[Replacement]]] = {"dropped_markers": _dropped_markers}
