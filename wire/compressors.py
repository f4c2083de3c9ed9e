"""The codecs of record batches: compression into the formats that `compression.py` reads.

The libraries other than zlib are imported on first use: at the start they would cost tens of milliseconds.
"""

import zlib
from typing import Protocol

from barnabas.wire.compression import INT32, XERIAL_HEADER, Codec

_XERIAL_BLOCK_BYTES = 32 * 1024  # what Java's SnappyOutputStream cuts its input into
_LZ4_DEFAULT_LEVEL = 9  # Kafka's number for the fast compressor; all other levels are high compression


class Compressor(Protocol):
    """The interface that the compression objects of zlib and zstandard have."""

    def compress(self, data: bytes, /) -> bytes:
        """Take these bytes; returns the output that is ready."""

    def flush(self) -> bytes:
        """The rest of the output; the compressor is used up."""


def open_compressor(codec: Codec, level: int | None = None) -> Compressor:
    """A compressor; `level` is the value of Kafka's `compression.<codec>.level`, None for Kafka's default."""
    match codec:
        case Codec.NONE:
            return _PlainCompressor()
        case Codec.GZIP:
            # 31 is 15 bits of window, plus 16 for the gzip format.
            return zlib.compressobj(-1 if level is None else level, wbits=31)
        case Codec.SNAPPY:
            return _SnappyCompressor()
        case Codec.LZ4:
            return _Lz4Compressor(_LZ4_DEFAULT_LEVEL if level is None else level)
        case Codec.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor(level=3 if level is None else level).compressobj()


def compressor_bytes(codec: Codec, level: int | None) -> int:
    """The number of bytes that a compressor will hold."""
    # The high levels of zstd take tens of megabytes. The other codecs take less than `HELD_FREE_BYTES`.
    if codec != Codec.ZSTD:
        return 0
    import zstandard

    size: int = zstandard.ZstdCompressionParameters.from_level(
        3 if level is None else level
    ).estimated_compression_context_size()
    return size


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """`data` compressed in one piece."""
    compressor = open_compressor(codec, level)
    return compressor.compress(data) + compressor.flush()


class _PlainCompressor:
    def compress(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _SnappyCompressor:
    """xerial framing; a block is compressed as soon as it is full."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._header = XERIAL_HEADER

    def compress(self, data: bytes) -> bytes:
        self._block += data
        pieces = []
        while len(self._block) >= _XERIAL_BLOCK_BYTES:
            pieces.append(self._take(_XERIAL_BLOCK_BYTES))
        return b"".join(pieces)

    def flush(self) -> bytes:
        # An empty stream is the header alone.
        return self._take(len(self._block)) if self._block else self._take_header()

    def _take(self, size_bytes: int) -> bytes:
        import snappy  # type: ignore[import-untyped]  # the package has no annotations

        compressed: bytes = snappy.compress(bytes(self._block[:size_bytes]))
        del self._block[:size_bytes]
        return self._take_header() + INT32.pack(len(compressed)) + compressed

    def _take_header(self) -> bytes:
        header = self._header
        self._header = b""
        return header


class _Lz4Compressor:
    """A frame as the Java client writes it: independent blocks of 64 KiB, no checksums, no content size."""

    def __init__(self, level: int) -> None:
        import lz4.frame  # type: ignore[import-untyped]  # the package has no annotations

        self._frame = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            compression_level=0 if level == _LZ4_DEFAULT_LEVEL else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC),
        )
        self._header: bytes = self._frame.begin()

    def compress(self, data: bytes) -> bytes:
        header = self._header
        self._header = b""
        compressed: bytes = self._frame.compress(data)
        return header + compressed

    def flush(self) -> bytes:
        header = self._header
        self._header = b""
        end: bytes = self._frame.flush()
        return header + end
