"""The codecs of record batches: decompression as a stream in bounded memory (`compressors.py` compresses).

A few kilobytes may decompress to gigabytes, and Apache Kafka accepts such a batch, so no function here holds a whole
decompressed batch. `open_stream` returns a `Stream`: `read(n)` returns at most n bytes and decompresses no more than it
must, `skip(n)` drops bytes.

The formats inside a batch, as the Java clients write and read them:

- gzip: RFC 1952, any number of members; bytes after the last member that begin no member are ignored.
- snappy: "xerial" framing, which is a header of 16 bytes and then blocks, each an int32 length and raw snappy; or one
  raw snappy block without framing (librdkafka sends it). A block decompresses in one piece, so its size is limited.
- lz4: one frame with independent blocks; bytes after the frame are ignored, and so are its optional content size and
  content checksum. Message format 0 has a frame whose header checksum covers the wrong bytes (KAFKA-3160).
- zstd: any number of frames, with or without content size, and windows of at most 128 MiB (KIP-110).

A stream that is read in steps keeps its memory between them, and many streams may be open: `Stream.held_bytes` is the
number of bytes that it may come to hold, so that the caller can limit the streams that hold much at a time. It depends
on the windows of zstd and the blocks of snappy, so `opening` looks at the heads of all frames first, in steps: a
megabyte may have 100,000 of them.

Malformed data raises `CorruptRecords` with the error code that an Apache Kafka 3.9 broker returns for it. The libraries
read some frames that Java's readers refuse, or read differently, so the structure of frames is looked at here, before
or between the calls of a library. Known deviations: at most `EMPTY_MAX` empty parts may follow each other, and refused
here, not by Kafka, are the beginning of a further frame behind the last of zstd, gzip's reserved flags and a broken
header of a later member, and most damaged headers of later streams of snappy.

The libraries other than zlib are imported on first use: at the start they would cost tens of milliseconds.
"""

import struct
import zlib
from collections.abc import Generator
from enum import IntEnum

from barnabas.wire.errors import ErrorCode

CHUNK_BYTES = 64 * 1024  # the most that is decompressed by one call
INPUT_SLICE_BYTES = 16 * 1024  # of input at a time: the libraries copy their unread input at each call
ZSTD_WINDOW_MAX_BYTES = 128 << 20  # the limit of zstd itself and of Java's binding; only level 22 reaches it
HELD_MAX_BYTES = 32 << 20  # that one stream may hold: four times the window of zstd's level 19
HELD_FREE_BYTES = 512 << 10  # that every stream may hold uncounted: more than gzip and small blocks take
SNAPPY_BLOCK_MAX_BYTES = HELD_MAX_BYTES  # decompressed
SNAPPY_MAX_EXPANSION = 22  # the densest snappy element copies 64 bytes and takes 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_VERSION_MIN = 1
INT32 = struct.Struct(">i")
_LITTLE_UINT32 = struct.Struct("<I")

_GZIP_MEMBER_START = b"\x1f\x8b\x08"
_GZIP_MEMBER_MIN_BYTES = 18

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CHECKSUM_MASK = 0xFF
_LZ4_HEADER_MAX_BYTES = 19
_LZ4_WITH_LITERALS = 16  # the lowest token in front of literals
_LZ4_IS_UNCOMPRESSED = 1 << 31  # in the word before a block; the other bits are its size
_LZ4_BLOCK_BYTES = (0, 0, 0, 0, 64 << 10, 256 << 10, 1 << 20, 4 << 20)  # by bits 4-6 of the second flags

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_REPEATED_BYTE = 2  # bits 1-2 of a block that repeats one byte, whatever size it decompresses to
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50  # the lowest four bits are free
_ZSTD_WHOLE_FRAME_BYTES = 16 << 10  # Java's reader decompresses a frame of at most this content size in one piece
# How many empty parts (members of gzip, blocks and headers of snappy) may follow each other. One
# read skips them all, at some microseconds each, and a hostile batch may have hundreds of thousands.
EMPTY_MAX = 500
# A step of `opening` looks at this many blocks of zstd, at about 0.3 µs each; the parts below cost
# as much as several blocks.
_MEASURED_AT_A_TIME = 2000
_ZSTD_FRAME_COST = 4
_ZSTD_CHECKED_FRAME_COST = 60  # a frame that is decompressed: up to 16 KiB
_SNAPPY_BLOCK_COST = 4
_LZ4_BLOCK_COST = 2
_UNLIMITED = 1 << 62


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptRecords(Exception):
    """Bytes that are no records; `code` is the error code for the producer that sent them."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(message)
        self.code = code


class BeyondLimits(CorruptRecords):
    """Bytes that may be valid records, but exceed the memory or the time that a batch may take."""


class Stream:
    """Decompressed bytes, in order, once."""

    @property
    def held_bytes(self) -> int:
        """The bytes that it may come to hold between reads; 0 for at most `HELD_FREE_BYTES`."""
        return 0

    def read(self, size_bytes: int) -> bytes:
        """Between 1 and `size_bytes` bytes; b"" only at the end. CorruptRecords if the stream is broken."""
        raise NotImplementedError

    def skip(self, size_bytes: int) -> int:
        """Drop up to `size_bytes` bytes; returns how many, fewer only at the end."""
        left = size_bytes
        while left and (chunk := self.read(min(left, CHUNK_BYTES))):
            left -= len(chunk)
        return size_bytes - left


def open_stream(codec: int, data: memoryview, magic: int = 2) -> Stream:
    """The decompressed content of `data`, which must stay unchanged until it is read.

    `magic` is the message format: lz4 differs in format 0. CorruptRecords for an unknown codec.
    """
    steps = opening(codec, data, magic)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the generator's result, which mypy takes for Any


def open_small_stream(codec: int, data: memoryview) -> Stream | None:
    """`open_stream` in one step; None if it takes more, as for thousands of frames."""
    try:
        next(opening(codec, data))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # as above
    return None


def opening(codec: int, data: memoryview, magic: int = 2) -> Generator[None, None, Stream]:
    """`open_stream` in bounded steps."""
    match codec:
        case Codec.NONE:
            return _PlainStream(data)
        case Codec.GZIP:
            return _GzipStream(data)
        case Codec.SNAPPY:
            # So little data holds no large block, whatever the blocks claim, and no look at their
            # heads is needed.
            small = len(data) * SNAPPY_MAX_EXPANSION <= HELD_FREE_BYTES
            return _SnappyStream(data, 0 if small else (yield from _largest_snappy_block(data)))
        case Codec.LZ4:
            data = data if magic else _repair_lz4_header(data)
            return _Lz4Stream(data, (yield from _lz4_blocks_end(data)))
        case Codec.ZSTD:
            return _ZstdStream(data, (yield from _largest_zstd_window(data)))
    # For codecs 5 to 7 Kafka's lookup throws, and the exception reaches the producer as this error.
    raise CorruptRecords(f"there is no codec {codec}", ErrorCode.UNKNOWN_SERVER_ERROR)


def _broken(message: str) -> CorruptRecords:
    # Kafka answers a broken or truncated stream with this code: the exception of its decompressor has no code
    # of its own.
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


def _count_empty(parts: int) -> int:
    """Count a part that begins, after `parts` empty ones in a row. BeyondLimits above `EMPTY_MAX`."""
    if parts > EMPTY_MAX:
        raise BeyondLimits(f"{EMPTY_MAX} parts of the compressed records are empty", ErrorCode.INVALID_RECORD)
    return parts + 1


class _GzipStream(Stream):
    """Members one after another, each with a checksum and a length, which zlib verifies."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0
        self._members = 0  # how many empty members have followed each other
        self._inflater = zlib.decompressobj(31)

    def read(self, size_bytes: int) -> bytes:
        while not self._inflater.eof or self._next_member():
            # When the output limit ends a call, zlib gives back the input that it has not read.
            unread: bytes | memoryview = self._inflater.unconsumed_tail
            if not unread:
                unread = self._data[self._position : self._position + INPUT_SLICE_BYTES]
                self._position += len(unread)
            try:
                chunk = self._inflater.decompress(unread, size_bytes)
            except zlib.error as error:
                raise _broken(f"gzip: {error}") from None
            if chunk:
                self._members = 0
                return chunk

            # Without output and without further input the loop would never end.
            if not unread and not self._inflater.eof:
                raise _broken("gzip: the stream is truncated")

        return b""

    def _next_member(self) -> bool:
        """Go on to the next member; False if the rest of the data is none."""
        # The slice that ended the member may hold the beginning of the next one.
        start = self._position - len(self._inflater.unused_data)
        left = len(self._data) - start
        # Java's reader, too, ignores bytes behind a member that cannot begin another one.
        if left <= _GZIP_MEMBER_MIN_BYTES or self._data[start : start + 3] != _GZIP_MEMBER_START:
            return False
        self._position = start
        self._members = _count_empty(self._members)
        self._inflater = zlib.decompressobj(31)
        return True


class _SnappyStream(Stream):
    """Blocks one after another, each decompressed in one piece."""

    def __init__(self, data: memoryview, largest_block: int) -> None:
        self._data = data
        self._largest_block = largest_block
        self._block = memoryview(b"")
        self._is_framed = _is_xerial(data)
        self._position = len(XERIAL_HEADER) if self._is_framed else 0
        # Kafka's reader fails on empty data, while a header without blocks is a valid empty stream.
        if not data:
            raise _broken("snappy: no data at all")

    @property
    def held_bytes(self) -> int:
        return _held(self._largest_block)

    def read(self, size_bytes: int) -> bytes:
        blocks = 0
        while not self._block:
            blocks = _count_empty(blocks)
            compressed = self.next_block()
            if compressed is None:
                return b""
            self._block = memoryview(_uncompress_snappy(compressed)) if compressed else compressed
        chunk = bytes(self._block[:size_bytes])
        self._block = self._block[size_bytes:]
        return chunk

    def next_block(self) -> memoryview | None:
        """The next block, compressed; empty for a header between two streams; None at the end."""
        start = self._position
        end = len(self._data)

        # Without framing all of the data is one block.
        if not self._is_framed:
            self._position = end
            return self._data[start:] if start < end else None

        # Streams may follow each other: then a header stands where the length of a block would. A hostile batch has
        # nothing but headers, so each counts as a block.
        if self._data[start : start + 4] == XERIAL_HEADER[:4]:
            _check_later_header(self._data[start : start + len(XERIAL_HEADER)])
            self._position = start + len(XERIAL_HEADER)
            return self._data[start:start]

        # Java's reader takes a part of a length for the end of the stream.
        if end - start < 4:
            return None
        (length,) = INT32.unpack_from(self._data, start)
        start += 4
        if not 0 < length <= end - start:
            raise _broken(f"snappy: a block of {length} bytes where {max(end - start, 0)} are left")
        self._position = start + length
        return self._data[start : start + length]


def _check_later_header(header: memoryview) -> None:
    """CorruptRecords for the header of a later stream that Java's reader refuses; it does not look at the first's."""
    if not _is_xerial(header):
        raise _broken("snappy: the header of a later stream is damaged")
    (version,) = INT32.unpack_from(header, len(_XERIAL_MAGIC))
    if version < _XERIAL_VERSION_MIN:
        raise _broken(f"snappy: a later stream has the version {version}")


def _is_xerial(data: memoryview) -> bool:
    return len(data) >= len(XERIAL_HEADER) and data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC


def _largest_snappy_block(data: memoryview) -> Generator[None, None, int]:
    """The largest size that a block claims to decompress to, in steps."""
    if not _is_xerial(data):
        return _snappy_claim(data)
    stream = _SnappyStream(data, 0)
    largest = 0
    looked_at = 0
    try:
        while (block := stream.next_block()) is not None:
            largest = max(largest, _snappy_claim(block))
            looked_at += _SNAPPY_BLOCK_COST
            if looked_at >= _MEASURED_AT_A_TIME:
                looked_at = 0
                yield
    except CorruptRecords:
        pass  # the reader of the stream will come to the broken block, and fail there

    return largest


def _snappy_claim(block: memoryview) -> int:
    """The size that a block claims to decompress to: a varint at its start."""
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return claimed


def _uncompress_snappy(block: memoryview) -> bytes:
    import snappy  # type: ignore[import-untyped]  # the package has no annotations

    # The library allocates the claimed size before it decompresses: so an impossible or too large claim is refused
    # first.
    claimed = _snappy_claim(block)
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
    """One frame with independent blocks; `end` is where its blocks end, None if they are truncated."""

    def __init__(self, data: memoryview, end: int | None) -> None:
        import lz4.frame  # type: ignore[import-untyped]  # the package has no annotations

        # The end mark is cut off: the library takes fewer words for an end mark than Java's reader, and it would verify
        # content size and content checksum there, which Java's reader does not.
        self._data = data[:end]
        self._is_whole = end is not None
        self._position = 0
        self._has_more = True  # whether the library may give more without more input
        self._decompressor = lz4.frame.LZ4FrameDecompressor()

    @property
    def held_bytes(self) -> int:
        return _held(2 * _lz4_block_bytes(self._data))  # a block compressed and decompressed

    def read(self, size_bytes: int) -> bytes:
        decompressor = self._decompressor
        while self._has_more or self._position < len(self._data):
            unread = b""
            if had_none := decompressor.needs_input:
                unread = bytes(self._data[self._position : self._position + INPUT_SLICE_BYTES])
                self._position += len(unread)
            try:
                chunk: bytes = decompressor.decompress(unread, size_bytes)
            except RuntimeError as error:
                raise _broken(f"lz4: {error}") from None
            self._has_more = len(chunk) == size_bytes or not decompressor.needs_input
            if chunk:
                return chunk

            # A call without output is normal, for a slice may hold no whole block. But if the call
            # had no input either, and `needs_input` has not changed, no more output will come.
            if not unread and had_none == decompressor.needs_input:
                break

        if not self._is_whole:
            raise _broken("lz4: the stream is truncated")
        return b""


def _lz4_blocks_end(data: memoryview) -> Generator[None, None, int | None]:
    """Where Java's reader finds the end, in steps; None if the data are cut off. CorruptRecords for a wrong header."""
    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        raise _broken("lz4: the frame header is missing")

    # Version 1, independent blocks, neither a dictionary nor the reserved bit. Java's reader, and so every Java
    # consumer, refuses blocks that refer to earlier ones.
    flags = data[4]
    if flags & 0xE3 != 0x60:
        raise _broken(f"lz4: frame flags {flags:#x} are not supported; blocks must be independent")
    checksum_bytes = 4 if flags & 0x10 else 0  # behind each block
    mark_bytes = 8 if flags & 0x04 else 4  # with the content checksum
    position = 15 if flags & 0x08 else 7  # behind the optional content size
    looked_at = 0
    while position + 4 <= len(data):
        word: int = _LITTLE_UINT32.unpack_from(data, position)[0]
        size_bytes = word & ~_LZ4_IS_UNCOMPRESSED

        # An empty block, too, is an end mark to Java's reader if it is uncompressed.
        if not size_bytes:
            return position if position + mark_bytes <= len(data) else None
        position += 4 + size_bytes + checksum_bytes

        # Java's reader also takes a block that decompresses to nothing for the end.
        if word == 1 and position <= len(data) and data[position - checksum_bytes - 1] < _LZ4_WITH_LITERALS:
            return position
        looked_at += _LZ4_BLOCK_COST
        if looked_at >= _MEASURED_AT_A_TIME:
            looked_at = 0
            yield

    return None


def _lz4_block_bytes(data: memoryview) -> int:
    """The largest size of a block, decompressed, that this frame allows."""
    return _LZ4_BLOCK_BYTES[data[5] >> 4 & 7]


def _repair_lz4_header(data: memoryview) -> memoryview:
    """A copy with a correct header checksum: in message format 0 it was computed over the magic number as well."""
    # lz4's bindings have no xxHash, so the right one of 256 values is found by trying. Only old segments need it.
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
    """Frames one after another; `window_bytes` is the largest window of them."""

    # `_largest_zstd_window` has measured the frames: the library does not notice that the last one is cut off.

    def __init__(self, data: memoryview, window_bytes: int) -> None:
        import zstandard

        self._window_bytes = window_bytes
        # A window takes memory only as it fills. So a stream with a window above `HELD_MAX_BYTES`
        # is not refused, but may not decompress to more than that.
        self._bytes_left = HELD_MAX_BYTES if window_bytes > HELD_MAX_BYTES else _UNLIMITED
        self._error = zstandard.ZstdError
        # Each stream has a context of its own: contexts may not be shared between threads.
        decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX_BYTES)
        self._reader = decompressor.stream_reader(data, read_size=INPUT_SLICE_BYTES, read_across_frames=True)

    @property
    def held_bytes(self) -> int:
        return _held(min(self._window_bytes, HELD_MAX_BYTES))

    def read(self, size_bytes: int) -> bytes:
        try:
            chunk = self._reader.read(size_bytes)
        except self._error as error:
            raise _broken(f"zstd: {error}") from None
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise BeyondLimits("zstd: so large a window has to be held whole", ErrorCode.INVALID_RECORD)
        return chunk


def _largest_zstd_window(data: memoryview) -> Generator[None, None, int]:
    """The largest window of these frames, in steps. CorruptRecords unless `data` is a sequence of whole frames."""
    # Only the headers of frames and blocks are read (RFC 8878, section 3.1).
    position = 0
    end = len(data)
    window_bytes = 0
    looked_at = 0
    while position < end:
        magic = int.from_bytes(data[position : position + 4], "little")
        looked_at += _ZSTD_FRAME_COST
        if magic == _ZSTD_MAGIC and end - position >= 6:
            start = position
            descriptor = data[position + 4]
            window_bytes = max(window_bytes, _zstd_window_bytes(data, position + 4))
            position += _zstd_header_bytes(descriptor)
            is_last = False
            while not is_last:
                if position + 3 > end:
                    raise _broken("zstd: the stream is truncated")

                # The head of a block has three bytes, the lowest first: one bit says whether it is
                # the last block, two bits are its type, the others its size.
                flags = data[position]
                size_bytes = flags >> 3 | data[position + 1] << 5 | data[position + 2] << 13
                position += 4 if flags & 6 == _ZSTD_REPEATED_BYTE else 3 + size_bytes
                is_last = flags & 1 == 1
                looked_at += 1
                if looked_at >= _MEASURED_AT_A_TIME:
                    looked_at = 0
                    yield
            position += 4 if descriptor & 4 else 0  # the checksum

            # If the last block has no content, the library ends the frame without a check of its content size.
            if flags & 6 != _ZSTD_REPEATED_BYTE and not size_bytes and position <= end:
                looked_at += _ZSTD_CHECKED_FRAME_COST
                _check_zstd_content_size(data[start:position])
        elif magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC and end - position >= 8:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            if looked_at >= _MEASURED_AT_A_TIME:
                looked_at = 0
                yield
        else:
            raise _broken("zstd: the frame header is missing")

    # The last frame claims more bytes than there are; the library would end there without an error.
    if position > end:
        raise _broken("zstd: the stream is truncated")
    return window_bytes


def _zstd_window_bytes(data: memoryview, position: int) -> int:
    """The window of the frame whose descriptor is at `position`: how far its blocks may refer back."""
    descriptor = data[position]
    # If the single segment flag is clear, a byte follows: five bits of exponent, three of mantissa.
    if not descriptor & 0x20:
        window = data[position + 1]
        return (8 + (window & 7)) << (window >> 3) + 7
    # If it is set, the window is the whole content, whose size follows the id of the dictionary.
    start = position + 1 + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(data[start : start + (1, 2, 4, 8)[descriptor >> 6]], "little")


def _check_zstd_content_size(frame: memoryview) -> None:
    """CorruptRecords if the frame decompresses to another size than it claims and Java's reader verifies that."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX_BYTES)
    try:
        claimed = zstandard.frame_content_size(frame)  # -1 if it claims none
        if not 0 <= claimed <= _ZSTD_WHOLE_FRAME_BYTES:
            return
        content = decompressor.stream_reader(frame).read(claimed + 1)
    except zstandard.ZstdError as error:
        raise _broken(f"zstd: {error}") from None
    if len(content) != claimed:
        raise _broken(f"zstd: the content of a frame is not the {claimed} bytes that it claims")


def _zstd_header_bytes(descriptor: int) -> int:
    """The size of a frame's header, magic number included."""
    # Magic and descriptor are followed by window, dictionary id and content size, of which each may
    # be missing.
    is_single_segment = descriptor & 0x20
    content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    return 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes


def _held(size_bytes: int) -> int:
    return size_bytes if size_bytes > HELD_FREE_BYTES else 0
