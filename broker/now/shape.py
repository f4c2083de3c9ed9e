"""Places in frames: what a shape compares, and how it fills in a response (pure).

Nothing here writes Kafka's formats. The codec encodes a response with marks in the places that change; the bytes around
the marks are the same in all responses of the shape.
"""

from collections.abc import Sequence

LENGTH_BYTES_MAX = 3  # of a varint: frames of two megabytes


def parts_around(encoded: bytes, marks: Sequence[bytes]) -> list[bytes] | None:
    """The bytes before, between and behind the marks; None unless each mark is there once, in this order."""
    parts = []
    for mark in marks:
        before, found, encoded = encoded.partition(mark)
        if not found or mark in encoded:
            return None
        parts.append(before)
    return [*parts, encoded]


def read_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint and the position behind it; -1 if it has more than LENGTH_BYTES_MAX bytes.

    IndexError if the frame ends first.
    """
    value = frame[position]
    position += 1
    if value < 0x80:
        return value, position
    byte = frame[position]
    position += 1
    value += (byte << 7) - 0x80
    if byte < 0x80:
        return value, position
    byte = frame[position]
    value += (byte << 14) - (0x80 << 7)
    return (value if byte < 0x80 else -1), position + 1
