"""Batches of a few bytes that decompress to much: what a hostile producer sends."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.wire.compression import Codec, open_compressor
from barnabas.wire.record_batch import BatchHeader, assemble
from barnabas.wire.record_writer import encode_varint

ZEROS = bytes(1 << 20)


@contextmanager
def memory_below(limit_bytes: int):
    """What Python allocates meanwhile stays below the limit."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit_bytes
    finally:
        tracemalloc.stop()


def zeros(size_bytes: int) -> Iterator[bytes]:
    """So many zero bytes, in pieces."""
    for position in range(0, size_bytes, len(ZEROS)):
        yield ZEROS[: size_bytes - position]


def bomb(pieces: Iterator[bytes], codec: Codec, count: int = 1, time: int = 1000) -> bytearray:
    """A batch of these bytes, which are made while they are compressed."""
    compressor = open_compressor(codec)
    section = b"".join(map(compressor.compress, pieces)) + compressor.flush()
    return assemble(BatchHeader(0, 0, -1, 2, 0, codec, count - 1, time, time, -1, -1, -1, count), section)


def record_of(head: bytes, tail_bytes: int) -> Iterator[bytes]:
    """A record with this head, behind which there are zeros."""
    yield encode_varint(len(head) + tail_bytes) + head
    yield from zeros(tail_bytes)


def header_bomb(headers: int, codec: Codec = Codec.ZSTD, key: bytes = b"\x02k") -> bytearray:
    """One record with so many headers, all of them empty."""
    return bomb(record_of(b"\0\0\0" + key + b"\x01" + encode_varint(headers), 2 * headers), codec)


def value_bomb(size_bytes: int, codec: Codec = Codec.ZSTD, key: bytes = b"\x02k") -> bytearray:
    """One record with a value of so many zeros, and no headers."""
    return bomb(record_of(b"\0\0\0" + key + encode_varint(size_bytes), size_bytes + 1), codec)
