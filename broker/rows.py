"""Rows of an answer that are made when they are encoded, and not kept.

A request of four bytes a partition may be answered with hundreds of thousands of rows. As objects they would take ten
times the memory of the request, and to free them would be one step of the event loop, ten milliseconds for 100,000. The
encoder goes over them in steps.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar, overload

Each = TypeVar("Each")
Row = TypeVar("Row")


class Rows(Sequence[Row]):
    """What `make` makes of each of these, which must not change any more."""

    def __init__(self, of: Collection[Each], make: Callable[[Each], Row]) -> None:
        self._count = len(of)
        self._made: Callable[[], Iterator[Row]] = lambda: map(make, of)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return self._made()

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return list(self)[index]
