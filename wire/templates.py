"""Messages that are alike but for a few fields (pure).

Nothing here writes Kafka's formats. The codec encodes a message with marks in the places that change; the bytes around
the marks are the same in all messages of the kind.
"""

from collections.abc import Sequence


def parts_around(encoded: bytes, marks: Sequence[bytes]) -> list[bytes] | None:
    """The bytes before, between and behind the marks; None unless each mark is there once, in this order."""
    parts = []
    for mark in marks:
        before, found, encoded = encoded.partition(mark)
        if not found or mark in encoded:
            return None
        parts.append(before)
    return [*parts, encoded]
