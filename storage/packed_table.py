"""A table of packed rows, whose snapshot costs little however many rows there are (pure)."""

import struct
from collections.abc import Collection, Iterator, Sequence

CHUNK_ROWS = 1024


class PackedRows(Collection[tuple[int, ...]]):
    """The rows of a table as they were at one moment; later changes do not touch them."""

    def __init__(self, row: struct.Struct, chunks: Sequence[bytearray]) -> None:
        self._row = row
        self._chunks = chunks

    def __len__(self) -> int:
        return sum(map(len, self._chunks)) // self._row.size

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        for chunk in self._chunks:
            yield from self._row.iter_unpack(chunk)

    def __contains__(self, row: object) -> bool:
        return any(row == each for each in self)

    def packed(self) -> bytes:
        """The rows in packed form, one behind the other. Blocking: short (1 ms for 100,000 rows)."""
        return b"".join(self._chunks)


class PackedTable:
    """Rows of one struct, each known by its first field, in no order.

    A partition may have hundreds of thousands of rows. Packed, one takes a third of the memory of a tuple.
    """

    # The rows are in chunks. `snapshot` shares them: from then on a chunk is copied before its first change. A copy of
    # 100,000 rows of 46 bytes would take 5 ms, most of it for fresh memory.

    __slots__ = ("_chunks", "_own", "_places", "_row")

    def __init__(self, row: struct.Struct) -> None:
        self._row = row
        self._places: dict[int, int] = {}  # key -> number of its row
        self._chunks: list[bytearray] = []
        self._own: set[int] = set()  # numbers of the chunks that no snapshot shares

    def __len__(self) -> int:
        return len(self._places)

    def keys(self) -> list[int]:
        """The first fields of all rows."""
        return list(self._places)

    def find(self, key: int) -> tuple[bytearray, int] | None:
        """The chunk with this row and its position there, to read it at once; None if there is no such row."""
        place = self._places.get(key)
        return None if place is None else (self._chunks[place // CHUNK_ROWS], place % CHUNK_ROWS * self._row.size)

    def get(self, key: int) -> tuple[int, ...] | None:
        """The fields of this row; None if there is no such row."""
        found = self.find(key)
        return None if found is None else self._row.unpack_from(*found)

    def put(self, key: int, *others: int) -> None:
        """Set the fields of a row."""
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._places)
            if place % CHUNK_ROWS == 0:
                self._own.add(len(self._chunks))
                self._chunks.append(bytearray())
            self._own_chunk(place // CHUNK_ROWS).extend(self._row.pack(key, *others))
            return
        number = place // CHUNK_ROWS
        chunk = self._chunks[number] if number in self._own else self._own_chunk(number)
        self._row.pack_into(chunk, place % CHUNK_ROWS * self._row.size, key, *others)

    def remove(self, key: int) -> None:
        """Remove a row, which must be there."""
        place = self._places.pop(key)
        number = len(self._places)
        last = self._own_chunk(number // CHUNK_ROWS)
        moved = self._row.unpack_from(last, number % CHUNK_ROWS * self._row.size)
        del last[-self._row.size :]
        if not last:
            self._own.discard(len(self._chunks) - 1)
            self._chunks.pop()
        # The last row takes the place of the removed one, so the table has no holes.
        if place != number:
            self._places[moved[0]] = place
            self.put(*moved)

    def clear(self) -> None:
        """Remove all rows."""
        self._places.clear()
        self._chunks.clear()
        self._own.clear()

    def snapshot(self) -> PackedRows:
        """All rows as they are now."""
        self._own.clear()
        return PackedRows(self._row, tuple(self._chunks))

    def _own_chunk(self, number: int) -> bytearray:
        if number not in self._own:
            self._own.add(number)
            self._chunks[number] = self._chunks[number].copy()
        return self._chunks[number]
