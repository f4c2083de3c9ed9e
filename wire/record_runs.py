"""Many records at a time, where they are alike: the quick half of `record_walk.py`.

*Theory of operation.* Producers often send records of one shape: the same sizes, the same widths of every
variable-length number. Such a run lies in memory like the rows of a table whose rows have `stride` bytes, and the byte
at one place of every row is a slice with a step, which the interpreter takes, compares and counts at the speed of C:

    row 0   length | attributes | timestamp delta | 0 | key length | key | value length | value | 0
    row 1   length | attributes | timestamp delta | 1 | key length | key | value length | value | 0
            equal    any           one width        *   equal         any   equal          any     equal

    (*) the next offset delta, found in a table of what the varints 0, 1, 2 ... look like

So a run costs about a dozen slices however many rows it has. The first row says where its fields are; a row is in the
run when every column agrees with it, and what a row's columns prove is what the walk of a single record proves. Nothing
is concluded from a row that does not agree: the run ends before it, and the walk goes on with that record by itself.
"""

from typing import Final

_ZIGZAG_1_BYTE: Final = 64  # offset deltas below it are varints of one byte,
_ZIGZAG_2_BYTES: Final = 8192  # and those below this one of two
_ONE_BYTE_DELTAS: Final = bytes(delta << 1 for delta in range(_ZIGZAG_1_BYTE))
_TWO_BYTE_DELTAS_LOW: Final = bytes(delta << 1 & 127 | 128 for delta in range(_ZIGZAG_2_BYTES))
_TWO_BYTE_DELTAS_HIGH: Final = bytes(delta << 1 >> 7 for delta in range(_ZIGZAG_2_BYTES))
_LAST_BYTES: Final = bytes(range(128))  # a byte of a varint that another one follows has its highest bit set
_OTHER_BYTES: Final = bytes(range(128, 256))

ROWS_MIN: Final = 8  # fewer are walked one by one in the same time


class Run:
    """Rows that are alike: how many, where the next record begins, and what they say."""

    __slots__ = ("count", "end", "first_highest", "highest", "key_length", "lowest")

    def __init__(self, count: int, end: int, key_length: int, deltas: "tuple[int, int, int]") -> None:
        self.count = count
        self.end = end
        self.key_length = key_length  # zigzag; odd is null
        self.lowest, self.highest, self.first_highest = deltas  # doubled deltas, and the row that has the highest first


def find_run(buffer: bytes, position: int, index: int, count_max: int) -> Run | None:
    """The records from `position` on that are alike, the first of them being record `index` of its batch.

    None where fewer than `ROWS_MIN` are, or the first one is not of the common kind: headers, a number of an unusual
    width, offsets that do not count up, or nonsense (which the walk of single records then names).
    """
    try:
        columns = _columns(buffer, position, index) if _sizes_agree(buffer, position) else None
    except IndexError:
        return None
    if columns is None:
        return None
    stride, delta_at, delta_width, offset_at, equal, key_length = columns
    count = min(count_max, (len(buffer) - position) // stride)
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
        if column.count(column[0]) != count:
            count -= len(column.lstrip(column[:1]))
    stop = count * stride
    if count < ROWS_MIN or not _offsets_count_up(buffer, offset_at, stop, stride, index, count):
        return None
    low = buffer[delta_at : delta_at + stop : stride]
    if delta_width == 1:
        count -= len(low.lstrip(_LAST_BYTES)) if not low.isascii() else 0
        deltas = _extremes(low[:count], None)
    else:
        high = buffer[delta_at + 1 : delta_at + 1 + stop : stride]
        count -= max(len(low.lstrip(_OTHER_BYTES)), len(high.lstrip(_LAST_BYTES)))
        deltas = _extremes(low[:count], high[:count])
    return Run(count, position + count * stride, key_length, deltas) if count >= ROWS_MIN else None


def _sizes_agree(buffer: bytes, start: int) -> bool:
    """Whether the next record has the size of this one: a quick no where sizes differ. IndexError behind the end."""
    length, width = _short_varint(buffer, start)
    following = start + width + (length >> 1)
    return buffer[following] == buffer[start] and buffer[following + width - 1] == buffer[start + width - 1]


def _columns(buffer: bytes, start: int, index: int) -> tuple[int, int, int, int, list[int], int] | None:
    """Where the fields of the record at `start` are: its size, its timestamp and offset deltas, and what must be equal.

    IndexError when it leads out of the buffer.
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
    if not (length_width and delta_width and key_width and value_width) or length & 1 or buffer[headers_at]:
        return None
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
    """The value, still zigzag, of a varint of one or two bytes, and its width; width 0 for a longer one."""
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
    """The lowest and the highest timestamp delta, both doubled, and the first row that has the highest one."""
    if not low:
        return 0, 0, 0
    if high is None:
        rows: list[int] | bytes = low
    else:
        rows = [first - 128 + (second << 7) for first, second in zip(low, high, strict=True)]
    doubled = {delta: -1 - delta if delta & 1 else delta for delta in set(rows)}  # odd is negative
    highest = max(doubled, key=doubled.__getitem__)
    return min(doubled.values()), doubled[highest], rows.index(highest)
