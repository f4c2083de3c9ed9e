"""Messages that are alike but for a few fields (pure).

Nothing here writes Kafka's formats. The codec encodes a message with marks in the places that change; the bytes around
the marks are the same in all messages of the kind.
"""

import struct
from collections.abc import Sequence

from barnabas.wire.runtime import varint

# A template is kept while its connection lasts, and counts in no memory limit: so longer messages have none.
TEMPLATE_BYTES_MAX = 1024
_INT32 = struct.Struct(">i")


def count_prefix(count: int, *, is_flexible: bool) -> bytes:
    """How many elements of an array, or bytes of a field, follow: compact in flexible versions (KIP-482)."""
    return varint(count + 1) if is_flexible else _INT32.pack(count)


def parts_around(encoded: bytes, marks: Sequence[bytes]) -> list[bytes] | None:
    """The bytes before, between and behind the marks; None unless each mark is there once, in this order."""
    parts = []
    for mark in marks:
        before, found, encoded = encoded.partition(mark)
        if not found or mark in encoded:
            return None
        parts.append(before)
    return [*parts, encoded]
