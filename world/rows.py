"""`Rows`: the rows of a response, each of which is made when it is encoded, and not kept.

A request of four bytes a partition may be answered with hundreds of thousands of rows. All rows as objects would take
ten times the memory of the request, and to free 100,000 of them would hold the event loop for 10 ms. The encoder
iterates over `Rows` in steps.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar, overload

Each = TypeVar("Each")
Row = TypeVar("Row")


class Rows(Sequence[Row]):
    """A sequence of `make(each)` for each element of `of`, which must not change any more.

    Each iteration makes the rows again. Indexing makes all of them. `of` belongs to the response: once this is encoded,
    `take_apart` (`freeing.py`) empties it if it is a list or dict.
    """

    def __init__(self, of: Collection[Each], make: Callable[[Each], Row]) -> None:
        self.of = of
        self._made: Callable[[], Iterator[Row]] = lambda: map(make, of)

    def __len__(self) -> int:
        return len(self.of)

    def __iter__(self) -> Iterator[Row]:
        return self._made()

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return list(self)[index]
