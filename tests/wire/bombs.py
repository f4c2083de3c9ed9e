"""Bytes that decompress to much, or take long to read: what a hostile producer sends. Also for `compat_tests`."""

import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import zstandard

from barnabas.wire.compression import Codec
from barnabas.wire.compressors import open_compressor
from barnabas.wire.downconvert import encode_message
from barnabas.wire.record_batch import BatchHeader, assemble
from barnabas.wire.record_reader import Record
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


def large_records_bomb(count: int, size_bytes: int, codec: Codec) -> bytearray:
    """So many records with a value of so many zeros each."""
    heads = (b"\0\0" + encode_varint(index) + b"\x02k" + encode_varint(size_bytes) for index in range(count))
    return bomb(chain.from_iterable(record_of(head, size_bytes + 1) for head in heads), codec, count)


def window_bomb(log: int, size_bytes: int) -> bytearray:
    """One record with a value of so many zeros, in a frame that has its reader keep the last 2**log bytes."""
    return batch_of(zstd_with_window(log, record_of_zeros(size_bytes)), Codec.ZSTD)


def tiny_records_bomb(count: int, codec: Codec = Codec.ZSTD, key: bytes | None = None) -> bytearray:
    """So many records of seven to ten bytes, one byte more with `key`; the last one alone is at TIME_MS + 1.

    A search for TIME_MS + 1 has to read all of them: the header does not tell which record has the largest timestamp.
    """
    tail = (b"\x01" if key is None else encode_varint(len(key)) + key) + b"\x01\x00"  # null value, no headers
    records = _tiny_records(count - 1, tail)
    delta = encode_varint(count - 1)
    records += encode_varint(len(delta) + 2 + len(tail)) + b"\x00\x02" + delta + tail
    section = open_compressor(codec)
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, TIME_MS, TIME_MS + 1, -1, -1, -1, count)
    return assemble(header, section.compress(records) + section.flush())


def _tiny_records(count: int, tail: bytes) -> bytearray:
    """Records at TIME_MS with the offset deltas 0, 1, 2 ... and this tail, made column by column."""
    records = bytearray()
    for width in range(1, 5):
        # Zigzag doubles a delta, so a varint of this width holds deltas of one bit less than seven a byte.
        first, end = (0 if width == 1 else 1 << 7 * width - 8), min(count, 1 << 7 * width - 1)
        if first >= end:
            break
        length = encode_varint(width + 2 + len(tail))
        rows = bytearray((length + bytes(2 + width) + tail) * (end - first))
        stride = len(rows) // (end - first)
        for place in range(width):
            more = 128 if place < width - 1 else 0
            column = _varint_column(place, more, end)[first:end]
            rows[len(length) + 2 + place :: stride] = column
        records += rows
    return records


def _varint_column(place: int, more: int, count: int) -> bytes:
    """Byte `place` of the zigzag varints of 0, 1, 2 ..., with the top bit `more`."""
    # The lowest byte changes with each delta, the others with 64 times as many for each byte more.
    if place == 0:
        cycle = bytes(delta << 1 & 127 | more for delta in range(64))
    else:
        run = 1 << 7 * place - 1
        cycle = b"".join(bytes((digit | more,)) * run for digit in range(min(128, (count - 1) // run + 1)))
    return cycle * ((count - 1) // len(cycle) + 1)


def disordered_bomb(count: int) -> bytearray:
    """So many records of seven bytes that all have offset delta 0: the broker walks a compressed batch, and refuses."""
    at_a_time = len(ZEROS) // len(TINY_RECORD)
    pieces = (TINY_RECORD * min(at_a_time, count - first) for first in range(0, count, at_a_time))
    return bomb(pieces, Codec.ZSTD, count)


# -- message sets, of producers and for consumers from before 0.11


def message_set_bomb(values: Sequence[int], magic: int, codec: Codec = Codec.GZIP) -> bytes:
    """One compressed message that holds a message for each of these values, which are so many zeros; 0 is null."""
    compressor = open_compressor(codec)
    messages = {size: encode_message(Record(0, TIME_MS, b"k", bytes(size) or None, []), magic) for size in set(values)}
    content = b"".join(compressor.compress(messages[size]) for size in values) + compressor.flush()
    return encode_message(Record(0, TIME_MS, None, content, []), magic, codec)
