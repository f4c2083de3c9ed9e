"""The codecs of record batches: compress whole, decompress as a stream in bounded memory.

*Theory of operation.* A few kilobytes may decompress to gigabytes, and Apache Kafka accepts such a batch, so nothing
here ever holds a whole decompressed batch. `open_stream` gives a `Stream`: `read(n)` returns at most n bytes and
decompresses no more than it must, `skip(n)` throws away. Input is fed in slices of `INPUT_SLICE_BYTES`, and what a
frame claims about itself (window, block length) is compared with a limit before it is believed.

What each codec looks like inside a batch, as the Java clients write and read it:

- gzip: RFC 1952, any number of members; what follows the last member and is no member itself is ignored.
- snappy: "xerial" framing, which is a header of 16 bytes and then blocks, each an int32 length and raw snappy; or one
  raw snappy block without framing (librdkafka sends it). A block decompresses in one piece, hence its limit.
- lz4: one frame with independent blocks; what follows the frame is ignored. Message format 0 has a frame whose header
  checksum covers the wrong bytes (KAFKA-3160).
- zstd: any number of frames, with or without content size, a window of at most 128 MiB (KIP-110). Memory is used as a
  window fills, so a stream with a window of more than `HELD_MAX_BYTES` may decompress to so many bytes and no more.

Garbage raises `CorruptRecords` with the code that an Apache Kafka 3.9 broker answers a producer for it: a broken or
truncated stream is UNKNOWN_SERVER_ERROR there, for the exception of the decompressor goes right through. Known
deviation: where lz4's optional content checksum or content size is wrong, we refuse and Kafka does not look.

The libraries other than zlib are imported on first use; they would cost tens of milliseconds at start.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from barnabas.wire.errors import ErrorCode

CHUNK_BYTES = 64 * 1024  # how much decompressed data is in hand at once
INPUT_SLICE_BYTES = 16 * 1024  # the libraries copy their unread input at each call: keep that small
ZSTD_WINDOW_MAX_BYTES = 128 << 20  # the limit of zstd itself and of Java's binding, reached at level 22 only
HELD_MAX_BYTES = 32 << 20  # what one stream may keep in memory: four times the window of zstd's level 19
SNAPPY_BLOCK_MAX_BYTES = HELD_MAX_BYTES  # decompressed, for a block is decompressed in one piece
SNAPPY_MAX_EXPANSION = 22  # the densest snappy element is a copy of 64 bytes in 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version; readers ignore both
_XERIAL_BLOCK_BYTES = 32 * 1024  # what Java's SnappyOutputStream cuts its input into
_INT32 = struct.Struct(">i")

_GZIP_MEMBER_START = b"\x1f\x8b\x08"
_GZIP_MEMBER_MIN_BYTES = 18

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CHECKSUM_MASK = 0xFF
_LZ4_HEADER_MAX_BYTES = 19
_LZ4_DEFAULT_LEVEL = 9  # Kafka's number for "the fast compressor"; every other level is high compression

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50  # the lowest four bits are free
_UNLIMITED = 1 << 62


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptRecords(Exception):
    """Bytes that are no records; `code` is what a producer that sent them is answered."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(message)
        self.code = code


class BeyondLimits(CorruptRecords):
    """Bytes that may well be records, but would take more memory or time than a batch may have."""


class Stream:
    """Decompressed bytes, in order, once."""

    def read(self, size_bytes: int) -> bytes:
        """Between 1 and `size_bytes` bytes; b"" only at the end. CorruptRecords where the stream is broken."""
        raise NotImplementedError

    def skip(self, size_bytes: int) -> int:
        """Throw away up to `size_bytes` bytes; returns how many there were, fewer only at the end."""
        left = size_bytes
        while left and (chunk := self.read(min(left, CHUNK_BYTES))):
            left -= len(chunk)
        return size_bytes - left


class Compressor(Protocol):
    """What zlib and zstandard call a compressobj."""

    def compress(self, data: bytes, /) -> bytes:
        """Take this, give what is ready."""

    def flush(self) -> bytes:
        """Give the rest; the compressor is used up."""


def open_stream(codec: int, data: memoryview, magic: int = 2) -> Stream:
    """The decompressed content of `data`, which must stay unchanged until it is read.

    `magic` is the message format, for lz4 in format 0 differs. An unknown codec raises CorruptRecords.
    """
    if codec == Codec.LZ4 and magic == 0:
        return _Lz4Stream(_repair_lz4_header(data))
    opener = _OPENERS.get(codec)
    if opener is None:
        raise CorruptRecords(f"there is no codec {codec}", ErrorCode.UNKNOWN_SERVER_ERROR)
    return opener(data)


def open_compressor(codec: Codec, level: int | None = None) -> Compressor:
    """A compressor; `level` is the number of Kafka's `compression.<codec>.level`, None for Kafka's default."""
    match codec:
        case Codec.NONE:
            return _PlainCompressor()
        case Codec.GZIP:
            return zlib.compressobj(-1 if level is None else level, wbits=31)
        case Codec.SNAPPY:
            return _SnappyCompressor()
        case Codec.LZ4:
            return _Lz4Compressor(_LZ4_DEFAULT_LEVEL if level is None else level)
        case Codec.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor(level=3 if level is None else level).compressobj()


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """`data` compressed in one piece."""
    compressor = open_compressor(codec, level)
    return compressor.compress(data) + compressor.flush()


def _broken(message: str) -> CorruptRecords:
    return CorruptRecords(message, ErrorCode.UNKNOWN_SERVER_ERROR)


class _PlainStream(Stream):
    """No codec: the bytes themselves."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, size_bytes: int) -> bytes:
        chunk = bytes(self._data[self._position : self._position + size_bytes])
        self._position += len(chunk)
        return chunk

    def skip(self, size_bytes: int) -> int:
        skipped = min(size_bytes, len(self._data) - self._position)
        self._position += skipped
        return skipped


class _GzipStream(Stream):
    """Members one after another, each with its own checksum and length, which zlib verifies."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0
        self._inflater = zlib.decompressobj(31)

    def read(self, size_bytes: int) -> bytes:
        while not self._inflater.eof or self._next_member():
            unread: bytes | memoryview = self._inflater.unconsumed_tail
            if not unread:
                unread = self._data[self._position : self._position + INPUT_SLICE_BYTES]
                self._position += len(unread)
            try:
                chunk = self._inflater.decompress(unread, size_bytes)
            except zlib.error as error:
                raise _broken(f"gzip: {error}") from None
            if chunk:
                return chunk
            if not unread and not self._inflater.eof:
                raise _broken("gzip: the stream is truncated")
        return b""

    def _next_member(self) -> bool:
        """Go on to the next member; False when what is left is none, which Java's reader ignores too."""
        start = self._position - len(self._inflater.unused_data)
        left = len(self._data) - start
        if left <= _GZIP_MEMBER_MIN_BYTES or self._data[start : start + 3] != _GZIP_MEMBER_START:
            return False
        self._position = start
        self._inflater = zlib.decompressobj(31)
        return True


class _SnappyStream(Stream):
    """Blocks one after another, each decompressed whole once its own claim of its length is found possible."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0
        self._block = memoryview(b"")
        self._is_framed = len(data) >= len(_XERIAL_HEADER) and data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
        if self._is_framed:
            self._position = len(_XERIAL_HEADER)
        elif not data:
            raise _broken("snappy: no data at all")

    def read(self, size_bytes: int) -> bytes:
        while not self._block:
            compressed = self._next_block()
            if compressed is None:
                return b""
            self._block = memoryview(_uncompress_snappy(compressed))
        chunk = bytes(self._block[:size_bytes])
        self._block = self._block[size_bytes:]
        return chunk

    def _next_block(self) -> memoryview | None:
        start, end = self._position, len(self._data)
        if not self._is_framed:
            self._position = end
            return self._data[start:] if start < end else None
        while self._data[start : start + 4] == _XERIAL_HEADER[:4]:  # streams one after another: a header, no length
            start += len(_XERIAL_HEADER)
        if end - start < 4:  # Java's reader takes part of a length for the end
            return None
        (length,) = _INT32.unpack_from(self._data, start)
        start += 4
        if not 0 < length <= end - start:
            raise _broken(f"snappy: a block of {length} bytes where {max(end - start, 0)} are left")
        self._position = start + length
        return self._data[start : start + length]


def _uncompress_snappy(block: memoryview) -> bytes:
    import snappy  # type: ignore[import-untyped]  # the package has no annotations

    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if claimed > SNAPPY_MAX_EXPANSION * len(block):
        raise _broken(f"snappy: a block of {len(block)} bytes claims to hold {claimed}")
    if claimed > SNAPPY_BLOCK_MAX_BYTES:
        raise BeyondLimits(f"snappy: a block of {claimed} bytes has to be held whole", ErrorCode.INVALID_RECORD)
    try:
        data: bytes = snappy.uncompress(block)
    except snappy.UncompressError:
        raise _broken("snappy: a block is damaged") from None
    return data


class _Lz4Stream(Stream):
    """One frame. Blocks that refer to earlier ones are refused, for Java's reader, so every Java consumer, does."""

    def __init__(self, data: memoryview) -> None:
        import lz4.frame  # type: ignore[import-untyped]  # the package has no annotations

        if len(data) < 7 or data[:4] != _LZ4_MAGIC:
            raise _broken("lz4: the frame header is missing")
        if data[4] & 0xE3 != 0x60:  # version 1, independent blocks, neither dictionary nor the reserved bit
            raise _broken(f"lz4: frame flags {data[4]:#x} are not supported; blocks must be independent")
        self._data = data
        self._position = 0
        self._decompressor = lz4.frame.LZ4FrameDecompressor()

    def read(self, size_bytes: int) -> bytes:
        decompressor = self._decompressor
        while not decompressor.eof:
            unread = b""
            if had_none := decompressor.needs_input:
                unread = bytes(self._data[self._position : self._position + INPUT_SLICE_BYTES])
                self._position += len(unread)
            try:
                chunk: bytes = decompressor.decompress(unread, size_bytes)
            except RuntimeError as error:
                raise _broken(f"lz4: {error}") from None
            if chunk:
                return chunk
            # No output is normal once: the rest of a slice may hold no whole block.
            if not decompressor.eof and not unread and had_none == decompressor.needs_input:
                raise _broken("lz4: the stream is truncated")
        return b""


def _repair_lz4_header(data: memoryview) -> memoryview:
    """A copy whose header checksum is right: format 0 computes it over the magic number as well.

    lz4's bindings offer no xxHash, so the one right value out of 256 is searched for. Cold: only old segments have it.
    """
    import lz4.frame

    if len(data) < 7:
        raise _broken("lz4: the frame header is missing")
    position = 14 if data[4] & 0x08 else 6  # behind the optional content size
    repaired = bytearray(data)
    for checksum in range(_LZ4_CHECKSUM_MASK + 1):
        repaired[position] = checksum
        try:
            lz4.frame.get_frame_info(bytes(repaired[:_LZ4_HEADER_MAX_BYTES]))
        except RuntimeError:
            continue
        return memoryview(repaired)
    raise _broken("lz4: the frame header is damaged")


class _ZstdStream(Stream):
    """Frames one after another. The library does not notice a cut-off frame, so the frames are measured first."""

    def __init__(self, data: memoryview) -> None:
        import zstandard

        window_bytes = _measure_zstd_frames(data)
        self._bytes_left = HELD_MAX_BYTES if window_bytes > HELD_MAX_BYTES else _UNLIMITED
        self._error = zstandard.ZstdError
        # A context of its own: contexts are not safe to share between threads.
        decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX_BYTES)
        self._reader = decompressor.stream_reader(data, read_size=INPUT_SLICE_BYTES, read_across_frames=True)

    def read(self, size_bytes: int) -> bytes:
        try:
            chunk = self._reader.read(size_bytes)
        except self._error as error:
            raise _broken(f"zstd: {error}") from None
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise BeyondLimits("zstd: so large a window has to be held whole", ErrorCode.INVALID_RECORD)
        return chunk


def _measure_zstd_frames(data: memoryview) -> int:
    """The largest window of these frames; looks only at headers (RFC 8878, section 3.1).

    CorruptRecords unless `data` is a sequence of whole frames.
    """
    position, end, window_bytes = 0, len(data), 0
    while position < end:
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC and end - position >= 8:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        elif magic == _ZSTD_MAGIC and end - position >= 6:
            window_bytes = max(window_bytes, _zstd_window_bytes(data, position + 4))
            position = _zstd_frame_end(data, position + 4)
        else:
            raise _broken("zstd: the frame header is missing")
    if position > end:
        raise _broken("zstd: the stream is truncated")
    return window_bytes


def _zstd_window_bytes(data: memoryview, position: int) -> int:
    """The window of the frame whose descriptor is at `position`: what its blocks may refer back to."""
    descriptor = data[position]
    if not descriptor & 0x20:
        window = data[position + 1]
        return (8 + (window & 7)) << (window >> 3) + 7
    start = position + 1 + (0, 1, 2, 4)[descriptor & 3]  # the window is all of the content
    return int.from_bytes(data[start : start + (1, 2, 4, 8)[descriptor >> 6]], "little")


def _zstd_frame_end(data: memoryview, position: int) -> int:
    """Where the frame ends whose descriptor is at `position`; behind the end of `data` when it is cut off."""
    descriptor = data[position]
    is_single_segment = descriptor & 0x20
    content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
    position += 1 + (0 if is_single_segment else 1) + dictionary_id_bytes + content_size_bytes
    end = len(data)
    while position + 3 <= end:
        block = int.from_bytes(data[position : position + 3], "little")
        is_repeated_byte = (block >> 1) & 3 == 1
        position += 3 + (1 if is_repeated_byte else block >> 3)
        if block & 1:
            return position + (4 if descriptor & 4 else 0)
    return end + 1


class _PlainCompressor:
    def compress(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _SnappyCompressor:
    """xerial framing: each full block as soon as it is full."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._header = _XERIAL_HEADER

    def compress(self, data: bytes) -> bytes:
        self._block += data
        pieces = []
        while len(self._block) >= _XERIAL_BLOCK_BYTES:
            pieces.append(self._take(_XERIAL_BLOCK_BYTES))
        return b"".join(pieces)

    def flush(self) -> bytes:
        return self._take(len(self._block)) if self._block else self._take_header()

    def _take(self, size_bytes: int) -> bytes:
        import snappy

        compressed: bytes = snappy.compress(bytes(self._block[:size_bytes]))
        del self._block[:size_bytes]
        return self._take_header() + _INT32.pack(len(compressed)) + compressed

    def _take_header(self) -> bytes:
        header, self._header = self._header, b""
        return header


class _Lz4Compressor:
    """A frame as the Java client writes it: independent blocks of 64 KiB, no checksums, no content size."""

    def __init__(self, level: int) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            compression_level=0 if level == _LZ4_DEFAULT_LEVEL else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC),
        )
        self._header: bytes = self._frame.begin()

    def compress(self, data: bytes) -> bytes:
        header, self._header = self._header, b""
        compressed: bytes = self._frame.compress(data)
        return header + compressed

    def flush(self) -> bytes:
        header, self._header = self._header, b""
        end: bytes = self._frame.flush()
        return header + end


_OPENERS: dict[int, Callable[[memoryview], Stream]] = {
    Codec.NONE: _PlainStream,
    Codec.GZIP: _GzipStream,
    Codec.SNAPPY: _SnappyStream,
    Codec.LZ4: _Lz4Stream,
    Codec.ZSTD: _ZstdStream,
}
