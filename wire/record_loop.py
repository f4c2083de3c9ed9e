"""Walks ordinary records in one loop over bytes: the form of `record_walk.py` that is quick in machine code.

mypyc keeps locals of type `i64` in registers, so the compiled loop takes about 15 ns a record, whatever the shapes of
the records are. In pure Python the same loop would be slower than the walk by runs (`record_runs.py`), so only the
compiled form uses it.

The loop judges nothing. It stops before the first record that is not ordinary, and the general walk then accepts or
refuses that record. Ordinary are records whose lengths have at most four bytes, whose timestamp deltas have at most
nine, whose offset deltas are 0, 1, 2 …, which have at most 63 headers, and whose fields add up to their length.
"""

from typing import TYPE_CHECKING, Final

from barnabas.wire.record_runs import Run

if TYPE_CHECKING:
    # For the compiler only: an `i64` is an int of 64 bits, and in pure Python an int.
    from mypy_extensions import i64

# The bits in a varint of four bytes, and in one of nine bytes: both fit into an i64.
_LENGTH_BITS: Final = 28
_DELTA_BITS: Final = 63
# Of the 63 bits of a zigzag delta one is the sign.
_ABOVE_EVERY_DELTA: Final = 1 << 62
_BELOW_EVERY_DELTA: Final = -(1 << 62) - 1

# The fields of a record, in their order. The loop has a branch for each, behind the one place that
# reads a varint: a function for that would be called for each field, and take most of the time.
_LENGTH: Final = 0
_TIMESTAMP: Final = 1
_OFFSET: Final = 2
_KEY: Final = 3
_VALUE: Final = 4
_HEADERS: Final = 5

_HEADERS_MAX: Final = 63  # of an ordinary record: their number is a varint of one byte


# The hot loop of the compiled form, one function as `record_walk._walk_singly` is.
def ordinary_run(buffer: bytes, position: "i64", index: "i64", stop: "i64") -> Run:  # noqa: PLR0912
    """The run of ordinary records that begins at `position` with record `index` of the batch; it may be empty.

    It ends before record `stop` at the latest. The key length of the run is all of its records' or-ed.
    """
    first: i64 = index
    lowest: i64 = _ABOVE_EVERY_DELTA
    highest: i64 = _BELOW_EVERY_DELTA
    first_highest: i64 = index
    keys: i64 = 0
    start: i64 = position
    record_end: i64 = 0
    field: i64 = _LENGTH
    try:
        while index < stop:
            value: i64 = buffer[position]
            position += 1
            if value > 127:
                value &= 127
                shift: i64 = 7
                while True:
                    byte: i64 = buffer[position]
                    position += 1
                    value |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift == (_DELTA_BITS if field == _TIMESTAMP else _LENGTH_BITS):
                        raise IndexError

            if field == _LENGTH:
                record_end = position + (value >> 1)
                if value & 1 or record_end > len(buffer):
                    break
                position += 1  # past the attributes, which have no meaning
                field = _TIMESTAMP
            elif field == _TIMESTAMP:
                value = (value >> 1) ^ -(value & 1)
                if value > highest:
                    highest = value
                    first_highest = index
                lowest = min(lowest, value)
                field = _OFFSET
            elif field == _OFFSET:
                if value != index << 1:
                    break
                field = _KEY
            elif field == _KEY:
                keys |= value
                position += (value >> 1) * (~value & 1)  # odd is null
                field = _VALUE
            elif field == _VALUE:
                position += (value >> 1) * (~value & 1)
                field = _HEADERS
            else:
                if value:
                    position = _pass_headers(buffer, position, value)
                if position != record_end:
                    break
                start = position
                index += 1
                field = _LENGTH
    except IndexError:
        pass  # a record that is cut off, a varint that is too long, or a length that leads out of the buffer

    # The facts include what was read of the record that ends the run. That does no harm: the general walk either counts
    # the same facts, or refuses the batch. A run has doubled deltas, as a `Walk` has.
    return Run(index - first, start, keys, (lowest << 1, highest << 1, first_highest - first))


def _pass_headers(buffer: bytes, position: "i64", doubled: "i64") -> "i64":
    """The position behind the headers of which `doubled` is the number in zigzag; 0 if one of them is not ordinary."""
    if doubled & 1 or doubled > _HEADERS_MAX << 1:
        return 0

    fields: i64 = doubled  # a key and a value of each header
    length: i64 = 0
    high: i64 = 0
    while fields:
        length = buffer[position]
        position += 1
        if length > 127:
            high = buffer[position]
            if high > 127:
                return 0
            length += (high << 7) - 128
            position += 1
        # Odd is null, which only a value may be.
        if not length & 1:
            position += length >> 1
        elif not fields & 1:
            return 0
        fields -= 1

    return position
