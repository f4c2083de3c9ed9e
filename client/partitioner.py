"""Which partition a key belongs to (pure): the choice of the Java client, which other clients can make, too."""

from collections.abc import Iterator

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
INT32_MASK = 0xFFFFFFFF
POSITIVE_MASK = 0x7FFFFFFF


def partition_of(key: bytes, count: int) -> int:
    """The partition of this key in a topic of `count` partitions, as Java's DefaultPartitioner chooses it."""
    return (murmur2(key) & POSITIVE_MASK) % count


def murmur2(data: bytes) -> int:
    """The hash of Kafka's Java clients, as an unsigned 32-bit number (MurmurHash2 by Austin Appleby)."""
    value = (SEED ^ len(data)) & INT32_MASK
    for word in _words(data):
        mixed = (word * MULTIPLIER) & INT32_MASK
        mixed ^= mixed >> 24
        value = ((value * MULTIPLIER) ^ (mixed * MULTIPLIER)) & INT32_MASK

    # Up to three bytes are left.
    rest = data[len(data) & ~3 :]
    if rest:
        value = ((value ^ int.from_bytes(rest, "little")) * MULTIPLIER) & INT32_MASK
    value = ((value ^ (value >> 13)) * MULTIPLIER) & INT32_MASK
    return value ^ (value >> 15)


def _words(data: bytes) -> Iterator[int]:
    for position in range(0, len(data) & ~3, 4):
        yield int.from_bytes(data[position : position + 4], "little")
