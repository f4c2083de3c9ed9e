"""Long work in short slices: a cluster has many partitions, and the loop serves clients in between.

A handler of an event owns the image while it works, so it may let other tasks run at any point
(`ControllerContext.decide`, `commit`, `tell`). Pure functions get a slice of their subjects at a time.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

SUBJECTS_A_SLICE = 100  # decided on, or replayed, before other tasks get a turn: about a millisecond

Item = TypeVar("Item")


def in_slices(items: Iterable[Item], size: int = SUBJECTS_A_SLICE) -> Iterator[list[Item]]:
    """Lists of at most `size` items, taken from `items` when they are wanted."""
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part
