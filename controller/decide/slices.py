"""Splits long work into slices, so that the event loop serves clients in between (pure).

A handler of an event owns the image while it works, so it may let other tasks run at any point
(`ControllerContext.decide`, `commit`, `tell`). Pure functions get a slice of their subjects at a time.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

SUBJECTS_A_SLICE = 100  # decided on, or replayed, before other tasks get a turn: about a millisecond

Item = TypeVar("Item")


def in_slices(items: Iterable[Item], size: int = SUBJECTS_A_SLICE) -> Iterator[list[Item]]:
    """Lists of at most `size` items; `items` is read one list at a time."""
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part
