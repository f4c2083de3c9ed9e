"""Requests that cost a receiver far more than they cost a sender. Pure: `attacks.py` sends them.

Batches of that kind are in `tests/wire/bombs.py`.
"""

import struct

from barnabas.wire.runtime import varint


def header_tags(count: int) -> bytes:
    """A Metadata request whose header has so many tagged fields."""
    return struct.pack(">hhih", 3, 9, 1, -1) + varint(count) + b"\x05\x00" * count + bytes(5)


def body_tags(count: int) -> bytes:
    """A Metadata request of no topics, with so many tagged fields behind them."""
    return _flexible(3, 9) + b"\x01" + b"\x00\x00\x00" + varint(count) + b"\x05\x00" * count


def empty_topics(count: int) -> bytes:
    """A Produce request of so many topics without partitions."""
    return (
        _flexible(0, 9) + b"\x00" + struct.pack(">hi", 1, 1000) + varint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    )


def metadata(count: int) -> bytes:
    """A Metadata request of so many topics without a name."""
    return _flexible(3, 9) + varint(count + 1) + b"\x01\x00" * count + b"\x00\x00\x00\x00"


def coordinators(count: int) -> bytes:
    """A FindCoordinator request of so many groups."""
    return _flexible(10, 4) + b"\x00" + varint(count + 1) + b"\x02g" * count + b"\x00"


def _flexible(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1) + b"\x00"
