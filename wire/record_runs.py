"""Walks many records of equal shape at a time: the fast half of `record_walk.py`.

Producers often send records of one shape: the same sizes, and the same width of every variable-length number. Such a
*run* lies in memory like the rows of a table, `stride` bytes each. A column, the byte at one place of every row, is a
slice with a step, which CPython takes, compares and counts in C:

    row 0   length | attributes | timestamp delta | 0 | key length | key | value length | value | 0
    row 1   length | attributes | timestamp delta | 1 | key length | key | value length | value | 0
            equal    any           one width        *   equal         any   equal          any     equal

    (*) the next offset delta: compared with a table of the varints 0, 1, 2 ...

So a run costs about a dozen slices, however many rows it has. The first row gives the places of the fields. A row
belongs to the run if its columns are as the last line above says; then it has passed the same checks as a record that
is walked singly. The run ends before the first row that differs, and the walk goes on with that record.
"""

from typing import Final

# Offset deltas below 64 are varints of one byte, those below 8192 of two bytes at most: zigzag doubles them.
_ZIGZAG_1_BYTE: Final = 64
_ZIGZAG_2_BYTES: Final = 8192
_ONE_BYTE_DELTAS: Final = bytes(delta << 1 for delta in range(_ZIGZAG_1_BYTE))
_TWO_BYTE_DELTAS_LOW: Final = bytes(delta << 1 & 127 | 128 for delta in range(_ZIGZAG_2_BYTES))
_TWO_BYTE_DELTAS_HIGH: Final = bytes(delta << 1 >> 7 for delta in range(_ZIGZAG_2_BYTES))
# The last byte of a varint has a clear top bit, all others have it set.
_LAST_BYTES: Final = bytes(range(128))
_OTHER_BYTES: Final = bytes(range(128, 256))

ROWS_MIN: Final = 8  # fewer rows cost as much as a run as they do one by one


class Run:
    """A run: the number of its rows, the position of the next record, and the facts about the rows."""

    __slots__ = ("count", "end", "first_highest", "highest", "key_length", "lowest")

    def __init__(self, count: int, end: int, key_length: int, deltas: "tuple[int, int, int]") -> None:
        self.count = count
        self.end = end
        self.key_length = key_length  # zigzag; odd is null
        # Doubled timestamp deltas, as in `Walk`, and the first row that has the highest one.
        self.lowest, self.highest, self.first_highest = deltas


def find_run(buffer: bytes, position: int, index: int, count_max: int) -> Run | None:
    """The run that begins at `position` with record `index` of the batch.

    None if it has fewer than `ROWS_MIN` rows, or if its first record has headers, a varint of more than two bytes, an
    offset delta other than `index`, or contradicts itself (the walk of single records then finds the fault).
    """
    shape = _shape(buffer, position, index, count_max)
    if shape is None:
        return None
    count, stride, delta_at, delta_width, key_length = shape
    # The timestamp deltas may differ from row to row, as long as their widths do not.
    low, high, count = _delta_columns(buffer, delta_at, delta_width, stride, count)
    deltas = _extremes(low[:count], None if high is None else high[:count])
    return Run(count, position + count * stride, key_length, deltas) if count >= ROWS_MIN else None


def earlier_rows(buffer: bytes, position: int, index: int, count_max: int, delta: int) -> tuple[int, int]:
    """How many rows at the front have timestamp deltas below `delta`; where the next record begins.

    The rows are those of a run, as `find_run` finds it. Up to 64 rows that have lower deltas may be left over.
    """
    shape = _shape(buffer, position, index, count_max) if delta > 0 else None
    if shape is None:
        return 0, position
    count, stride, delta_at, delta_width, _ = shape
    low, high, count = _delta_columns(buffer, delta_at, delta_width, stride, count)
    # Zigzag doubles a delta that is not negative. Of deltas with two bytes only the second, higher
    # one is compared: so rows whose deltas are lower only in the first byte are left over.
    column, bound = (low, delta << 1) if high is None else (high, delta >> 6)
    column = column[:count]
    count -= len(column.lstrip(_LAST_BYTES[: min(bound, 128)]))
    return count, position + count * stride


def _shape(buffer: bytes, position: int, index: int, count_max: int) -> tuple[int, int, int, int, int] | None:
    """How many rows agree with the first one in all but their timestamp deltas; stride, place and width of the
    timestamp delta, key length. None as of `find_run`.
    """
    try:
        columns = _columns(buffer, position, index) if _sizes_agree(buffer, position) else None
    except IndexError:
        return None

    if columns is None:
        return None
    stride, delta_at, delta_width, offset_at, equal, key_length = columns
    count = min(count_max, (len(buffer) - position) // stride)

    # All offset deltas of a run must be varints of the same width, or the columns behind them would shift.
    if index < _ZIGZAG_1_BYTE:
        count = min(count, _ZIGZAG_1_BYTE - index)
    elif index < _ZIGZAG_2_BYTES:
        count = min(count, _ZIGZAG_2_BYTES - index)
    else:
        return None

    for place in equal:
        if count < ROWS_MIN:
            return None
        column = buffer[place : place + count * stride : stride]

        # `lstrip` leaves the rows from the first different byte on: the run ends there.
        if column.count(column[0]) != count:
            count -= len(column.lstrip(column[:1]))

    stop = count * stride
    if count < ROWS_MIN or not _offsets_count_up(buffer, offset_at, stop, stride, index, count):
        return None
    return count, stride, delta_at, delta_width, key_length


def _delta_columns(
    buffer: bytes, delta_at: int, delta_width: int, stride: int, count: int
) -> tuple[bytes, bytes | None, int]:
    """The columns of the timestamp deltas, and how many rows have deltas of this width."""
    stop = count * stride
    low = buffer[delta_at : delta_at + stop : stride]
    if delta_width == 1:
        return low, None, count - (0 if low.isascii() else len(low.lstrip(_LAST_BYTES)))
    high = buffer[delta_at + 1 : delta_at + 1 + stop : stride]
    return low, high, count - max(len(low.lstrip(_OTHER_BYTES)), len(high.lstrip(_LAST_BYTES)))


def _sizes_agree(buffer: bytes, start: int) -> bool:
    """Whether the next record has the same size, by its length. IndexError if there is no next record."""
    # This is a cheap test before `_columns`: batches of records of different sizes fail here.
    length, width = _short_varint(buffer, start)
    following = start + width + (length >> 1)
    return buffer[following] == buffer[start] and buffer[following + width - 1] == buffer[start + width - 1]


def _columns(buffer: bytes, start: int, index: int) -> tuple[int, int, int, int, list[int], int] | None:
    """The shape of the record at `start`: stride, place and width of the timestamp delta, place of the offset delta,
    the places that must be equal in all rows, and the key length.

    None if the record is of an unusual shape. IndexError if it leads out of the buffer.
    """
    length, length_width = _short_varint(buffer, start)
    delta_at = start + length_width + 1
    _, delta_width = _short_varint(buffer, delta_at)
    offset_at = delta_at + delta_width
    key_at = offset_at + (1 if index < _ZIGZAG_1_BYTE else 2)
    key_length, key_width = _short_varint(buffer, key_at)
    value_at = key_at + key_width + (0 if key_length & 1 else key_length >> 1)
    value_length, value_width = _short_varint(buffer, value_at)
    headers_at = value_at + value_width + (0 if value_length & 1 else value_length >> 1)
    stride = length_width + (length >> 1)

    # Width 0 is a varint of more than two bytes. Records with headers are walked singly.
    if not (length_width and delta_width and key_width and value_width) or length & 1 or buffer[headers_at]:
        return None

    # The lengths of the fields must add up to the length of the record. The equal columns then prove it for every row.
    if headers_at + 1 != start + stride:
        return None
    equal = [
        *range(start, start + length_width),
        *range(key_at, key_at + key_width),
        *range(value_at, value_at + value_width),
        headers_at,
    ]
    return stride, delta_at, delta_width, offset_at, equal, key_length


def _short_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """The zigzag value of a varint of one or two bytes, and its width; width 0 for a longer one."""
    if (low := buffer[position]) < 128:
        return low, 1
    if (high := buffer[position + 1]) < 128:
        return low - 128 + (high << 7), 2
    return 0, 0


def _offsets_count_up(buffer: bytes, place: int, stop: int, stride: int, index: int, count: int) -> bool:
    """Whether the rows' offset deltas are index, index + 1, index + 2 ..."""
    low = buffer[place : place + stop : stride]
    if index < _ZIGZAG_1_BYTE:
        return low == _ONE_BYTE_DELTAS[index : index + count]
    high = buffer[place + 1 : place + 1 + stop : stride]
    return low == _TWO_BYTE_DELTAS_LOW[index : index + count] and high == _TWO_BYTE_DELTAS_HIGH[index : index + count]


def _extremes(low: bytes, high: bytes | None) -> tuple[int, int, int]:
    """The lowest and the highest timestamp delta, both doubled, and the first row with the highest one."""
    if not low:
        return 0, 0, 0
    if high is None:
        rows: list[int] | bytes = low
    else:
        rows = [first - 128 + (second << 7) for first, second in zip(low, high, strict=True)]
    # `set` comes first, because the rows of a run usually have few different timestamps. Odd is
    # negative in zigzag.
    doubled = {delta: -1 - delta if delta & 1 else delta for delta in set(rows)}
    highest = max(doubled, key=doubled.__getitem__)
    return min(doubled.values()), doubled[highest], rows.index(highest)
