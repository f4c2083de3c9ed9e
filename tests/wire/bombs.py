"""Bytes that decompress to much, or take long to read: what a hostile producer sends. Also for `compat_tests`."""

import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import zstandard

from barnabas.wire.compression import Codec, open_compressor
from barnabas.wire.record_batch import BatchHeader, assemble
from barnabas.wire.record_writer import encode_varint

ZEROS = bytes(1 << 20)
TIME_MS = 1000  # of all records
TINY_RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"  # length 6, at the first offset, no key, no value, no headers
XERIAL = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"  # what the Java library writes before its blocks of snappy


@contextmanager
def memory_below(limit_bytes: int) -> Iterator[None]:
    """What Python allocates meanwhile stays below the limit."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit_bytes
    finally:
        tracemalloc.stop()


# -- compressed sections


def zstd_with_window(log: int, pieces: Iterable[bytes]) -> bytes:
    """A frame that has its reader keep the last 2**log bytes."""
    options = zstandard.ZstdCompressionParameters(window_log=log, strategy=1, chain_log=10, hash_log=10)
    compressor = zstandard.ZstdCompressor(compression_params=options).compressobj()
    return b"".join(map(compressor.compress, pieces)) + compressor.flush()


def empty_zstd_blocks(count: int) -> bytes:
    """So many blocks that hold nothing, three bytes each."""
    return b"\x28\xb5\x2f\xfd\x00\x50" + bytes(3 * count) + b"\x01\x00\x00"


def empty_snappy_blocks(count: int) -> bytes:
    """So many blocks that hold nothing, five bytes each."""
    return XERIAL + b"\0\0\0\1\0" * count


# -- batches


def batch_of(section: bytes, codec: int, count: int = 1, time: int = TIME_MS) -> bytearray:
    """A batch with this compressed section."""
    return assemble(BatchHeader(0, 0, -1, 2, 0, codec, count - 1, time, time, -1, -1, -1, count), section)


def bomb(pieces: Iterable[bytes], codec: Codec, count: int = 1, time: int = TIME_MS) -> bytearray:
    """A batch of these bytes, which are made while they are compressed."""
    compressor = open_compressor(codec)
    return batch_of(b"".join(map(compressor.compress, pieces)) + compressor.flush(), codec, count, time)


def zeros(size_bytes: int) -> Iterator[bytes]:
    """So many zero bytes, in pieces."""
    for position in range(0, size_bytes, len(ZEROS)):
        yield ZEROS[: size_bytes - position]


def record_of(head: bytes, tail_bytes: int) -> Iterator[bytes]:
    """A record with this head, behind which there are zeros."""
    yield encode_varint(len(head) + tail_bytes) + head
    yield from zeros(tail_bytes)


def record_of_zeros(size_bytes: int, key: bytes = b"\x02k") -> Iterator[bytes]:
    """A record with a value of so many zeros, and no headers."""
    return record_of(b"\0\0\0" + key + encode_varint(size_bytes), size_bytes + 1)


def header_bomb(headers: int, codec: Codec = Codec.ZSTD, key: bytes = b"\x02k") -> bytearray:
    """One record with so many headers, all of them empty: some hundred bytes for millions."""
    return bomb(record_of(b"\0\0\0" + key + b"\x01" + encode_varint(headers), 2 * headers), codec)


def value_bomb(size_bytes: int, codec: Codec = Codec.ZSTD, key: bytes = b"\x02k") -> bytearray:
    """One record with a value of so many zeros, and no headers."""
    return bomb(record_of_zeros(size_bytes, key), codec)


def window_bomb(log: int, size_bytes: int) -> bytearray:
    """One record with a value of so many zeros, in a frame that has its reader keep the last 2**log bytes."""
    return batch_of(zstd_with_window(log, record_of_zeros(size_bytes)), Codec.ZSTD)


def tiny_records_bomb(count: int) -> bytearray:
    """So many records of seven bytes."""
    at_a_time = len(ZEROS) // len(TINY_RECORD)
    pieces = (TINY_RECORD * min(at_a_time, count - first) for first in range(0, count, at_a_time))
    return bomb(pieces, Codec.ZSTD, count)
