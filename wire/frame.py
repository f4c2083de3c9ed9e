"""Bytes of a connection to requests, without any I/O: feed what arrived, take whole frames, read their headers.

*Theory of operation.* A frame is an int32 length and that many bytes (reference wire.md, section 4). `FrameReader`
copies what it is fed exactly once, into a bytearray that belongs to the frame alone: a frame is writable, for a record
batch in it is stamped in place, and stays valid whatever arrives later. Memory grows with the bytes that came, never
with the length that a frame claims. The beginning of a large frame is copied once more, to pages that are reserved for
all of it: an array that grows is copied by the C library now and then, 10 MB in 10 ms. A length that is not positive or
exceeds the limit ends the stream, for the next boundary cannot be found; whole frames before it are still handed out.

A request begins with a header: API key, version, correlation id, and from header version 1 on the client id, which
stays an int16 string in version 2, where tagged fields follow (KIP-482). The versions served decide which header it is.
An unknown key or version is `UnsupportedRequest`: the connection closes, except for ApiVersions, which is answered in
version 0 with error 35, so that a newer client learns what to speak (KIP-511).
"""

import mmap
import struct
from collections import deque
from typing import NamedTuple

from barnabas.wire.apis import APIS, request_header_version
from barnabas.wire.errors import ProtocolViolation

LENGTH_BYTES = 4
PAGES_BYTES_MIN = 1 << 21  # a frame of so much gets pages of its own
ARRAY_BYTES_MAX = 1 << 18  # but not before so much of it arrived
HEADER_TAGS_MAX = 100  # Kafka knows none; each costs us time on the event loop

_LENGTH = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_RESPONSE_START = struct.Struct(">ii")


class UnsupportedRequest(ProtocolViolation):
    """A request whose API key or version is not served; what is known of it lets ApiVersions be answered."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} version {api_version} is not served")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class FrameReader:
    """Cuts a stream of bytes into frames of at most `max_bytes`."""

    __slots__ = (
        "_arrived_bytes",
        "_frames",
        "_frames_bytes",
        "_max_bytes",
        "_partial",
        "_target_bytes",
        "_violation",
    )

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._frames: deque[memoryview] = deque()
        self._frames_bytes = 0
        self._partial: bytearray | mmap.mmap = bytearray()  # the frame that is arriving, its length included
        self._arrived_bytes = 0  # of it
        self._target_bytes = LENGTH_BYTES  # how large it will be as far as is known
        self._violation: str | None = None

    @property
    def pending_bytes(self) -> int:
        """How many bytes are held: frames not yet taken, and the beginning of the next."""
        return self._frames_bytes + self._arrived_bytes

    @property
    def needed_bytes(self) -> int:
        """How many bytes are certainly missing before `next_frame` can give one; 0 when it can, or never will."""
        if self._frames or self._violation is not None:
            return 0
        return self._target_bytes - self._arrived_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take what arrived; the caller may reuse the memory. Bytes behind a bad length are dropped."""
        size_bytes = len(data)
        if not self._arrived_bytes and size_bytes > LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(data)
            if length == size_bytes - LENGTH_BYTES and length <= self._max_bytes and self._violation is None:
                self._frames.append(memoryview(bytearray(data))[LENGTH_BYTES:])  # the usual case: one whole frame
                self._frames_bytes += length
                return
        view = memoryview(data)
        position = 0
        while position < size_bytes and self._violation is None:
            missing = self._target_bytes - self._arrived_bytes
            self._store(view[position : position + missing])
            position += missing
            if self._arrived_bytes == self._target_bytes:
                self._advance()

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, writable; None until more is fed.

        ProtocolViolation once all frames before a bad length are taken.
        """
        if self._frames:
            frame = self._frames.popleft()
            self._frames_bytes -= len(frame)
            return frame
        if self._violation is not None:
            raise ProtocolViolation(self._violation)
        return None

    def _store(self, piece: memoryview) -> None:
        arrived_bytes = self._arrived_bytes + len(piece)
        if isinstance(self._partial, bytearray):
            self._partial += piece
            if arrived_bytes > ARRAY_BYTES_MAX and self._target_bytes >= PAGES_BYTES_MIN:
                # Pages take memory as they are written to, not now.
                pages = mmap.mmap(-1, self._target_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                pages[:arrived_bytes] = self._partial
                self._partial = pages
        else:
            self._partial[self._arrived_bytes : arrived_bytes] = piece
        self._arrived_bytes = arrived_bytes

    def _advance(self) -> None:
        """The length or the whole frame is there: go on to the next."""
        partial = self._partial
        if self._target_bytes > LENGTH_BYTES:
            self._frames.append(memoryview(partial)[LENGTH_BYTES:])
            self._frames_bytes += len(partial) - LENGTH_BYTES
            self._partial, self._arrived_bytes, self._target_bytes = bytearray(), 0, LENGTH_BYTES
            return
        (length,) = _LENGTH.unpack_from(partial)
        if length <= 0:
            self._violation = f"a frame claims a length of {length} bytes"
        elif length > self._max_bytes:
            self._violation = f"a frame claims {length} bytes; the limit is {self._max_bytes}"
        else:
            self._target_bytes = LENGTH_BYTES + length
            return
        self._partial, self._arrived_bytes = bytearray(), 0


class RequestHeader(NamedTuple):
    """The header of a request; its body begins at `position` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    position: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of the request in this frame.

    UnsupportedRequest when its key or version is not served, ProtocolViolation when it is malformed.
    """
    try:
        api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)
        header_version = _HEADER_VERSIONS.get((api_key, api_version))
        if header_version is None:
            raise UnsupportedRequest(api_key, api_version, correlation_id)
        if header_version == 0:
            return RequestHeader(api_key, api_version, correlation_id, None, _REQUEST_START.size)
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _REQUEST_START.size)
        position = _REQUEST_START.size + _CLIENT_ID_LENGTH.size
        client_id = None
        if length >= 0:
            client_id = str(frame[position : position + length], "utf-8", "replace")
            position += length
        if header_version == 2:
            position = _skip_tags(frame, position) if frame[position] else position + 1
    except (struct.error, IndexError) as error:
        raise ProtocolViolation(f"the header of a request is malformed: {error}") from None
    if position > len(frame) or length < -1:
        raise ProtocolViolation(f"the header of a request claims a client id of {length} bytes")
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def response_prefix(body_size_bytes: int, correlation_id: int, header_version: int) -> bytes:
    """What precedes a response's body: the frame's length and the response header."""
    if header_version == 0:
        return _RESPONSE_START.pack(body_size_bytes + LENGTH_BYTES, correlation_id)
    return _RESPONSE_START.pack(body_size_bytes + LENGTH_BYTES + 1, correlation_id) + b"\0"


def _skip_tags(frame: memoryview, position: int) -> int:
    """Past the tagged fields of a header, none of which is known; IndexError where the frame ends first."""
    count, position = _read_unsigned(frame, position)
    if count > HEADER_TAGS_MAX:
        raise ProtocolViolation(f"the header of a request has {count} tagged fields; the limit is {HEADER_TAGS_MAX}")
    for _ in range(count):
        _, position = _read_unsigned(frame, position)
        size_bytes, position = _read_unsigned(frame, position)
        position += size_bytes
    return position


def _read_unsigned(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := frame[position]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
        if shift > 28:
            raise ProtocolViolation("a number in the header of a request has more than five bytes")
    return value | byte << shift, position + 1


_HEADER_VERSIONS = {
    (api.key, version): request_header_version(api.key, version)
    for api in APIS.values()
    if api.served
    for version in range(api.min_version, api.max_version + 1)
}
