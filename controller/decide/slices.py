"""Long work in short turns: a cluster has many partitions, and the loop serves clients in between.

A handler of an event owns the image while it works, so it may let other tasks run at any point (`Office.decide`,
`commit`, `tell`). What is pure takes a slice of its subjects at a time.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

SUBJECTS_IN_A_TURN = 100  # decided on, or replayed, before other tasks get a turn: about a millisecond

Item = TypeVar("Item")


def in_slices(items: Iterable[Item], size: int = SUBJECTS_IN_A_TURN) -> Iterator[list[Item]]:
    """Lists of at most `size` items, taken from `items` when they are wanted."""
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part
