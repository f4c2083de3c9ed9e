"""From the bytes of a connection to requests, without I/O: cuts the stream into frames and reads request headers.

A frame is an int32 length and that many bytes (reference wire.md, section 4). `FrameReader` takes bytes as they arrive
and returns whole frames. Each frame has memory of its own, so that it stays valid and may be written to: a leader
stamps record batches in place. Memory grows with the bytes that arrived, never with the length that a frame claims.

A request begins with a header: API key, version, correlation id; from header version 1 on also the client id; in header
version 2 tagged fields follow (KIP-482).
"""

import mmap
import struct
from collections import deque
from typing import NamedTuple

from barnabas.wire.apis import APIS, request_header_version
from barnabas.wire.errors import ProtocolViolation

LENGTH_BYTES = 4
# A frame of at least this size moves to memory pages of its own (mmap), because the C library
# copies a growing bytearray now and then, 10 MB in 10 ms. It moves when ARRAY_BYTES_MAX bytes have
# arrived: a client that only claims a size gets no pages.
PAGES_BYTES_MIN = 1 << 21
ARRAY_BYTES_MAX = 1 << 18
# A frame gets the memory of all its bytes at once when this share of them has arrived.
ROOM_SHARE = 1 / 4
ROOM_BYTES_MAX = 1 << 20  # received by one call: it takes about a quarter of a millisecond
# How many frames are cut out of the arrived bytes at a time: each takes a microsecond, and 400
# bytes beside its content, and 50,000 frames of one byte may arrive at once.
FRAMES_AT_A_TIME = 64
HEADER_TAGS_MAX = 100  # Kafka defines none so far; each one costs time on the event loop

# The first bytes of clients that speak another protocol by mistake. Read as lengths they are above 350 million.
TLS_BEGIN = b"\x16\x03"  # a handshake record, of any version since SSL 3
HTTP_BEGINS = {b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "}

_LENGTH = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_RESPONSE_START = struct.Struct(">ii")


class UnsupportedRequest(ProtocolViolation):
    """A request whose API key or version is not served."""

    # The connection closes, except after ApiVersions: that is answered in version 0 with error 35, so that a newer
    # client can find a version that both sides support (KIP-511). The fields are what this answer needs.

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API key {api_key} version {api_version} is not served")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class FrameReader:
    """Cuts a stream of bytes into frames of at most `max_bytes`.

    With `takes_empty` a frame may be empty, as the tokens of a login may be.
    """

    __slots__ = (
        "_arrived_bytes",
        "_frames",
        "_frames_bytes",
        "_max_bytes",
        "_partial",
        "_partial_bytes",
        "_rest",
        "_takes_empty",
        "_target_bytes",
        "_violation",
    )

    def __init__(self, max_bytes: int, *, takes_empty: bool = False) -> None:
        self._max_bytes = max_bytes
        self._takes_empty = takes_empty
        self._frames: deque[memoryview] = deque()
        self._frames_bytes = 0
        self._rest = b""  # what arrived behind `_frames`; empty if no frame waits there
        self._partial: bytearray | mmap.mmap = bytearray()  # the frame that is arriving, its length included
        self._arrived_bytes = 0  # of the partial frame
        self._partial_bytes = 0  # the memory that it takes
        self._target_bytes = LENGTH_BYTES  # of the partial frame: LENGTH_BYTES until its length has arrived
        self._violation: str | None = None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes held: frames not yet taken, what arrived behind them, and the partial frame."""
        return self._frames_bytes + len(self._rest) + self._partial_bytes

    @property
    def needed_bytes(self) -> int:
        """The number of bytes that `next_frame` needs at least; 0 if it has a frame or will raise."""
        if self._frames or self._violation is not None:
            return 0
        return self._target_bytes - self._arrived_bytes

    def become_ordinary(self, max_bytes: int) -> None:
        """After a login: frames whose lengths arrive from now on have 1 to `max_bytes` bytes."""
        self._max_bytes = max_bytes
        self._takes_empty = False

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes that arrived; they are copied, so the caller may reuse the memory."""
        if self._rest:
            self._rest += data
            return
        view = memoryview(data)
        position = 0
        size_bytes = len(data)
        frames = self._frames

        # Whole frames are the usual case. They are copied once, without a detour through
        # `_partial`.
        if not self._arrived_bytes and self._violation is None:
            while size_bytes - position > LENGTH_BYTES and len(frames) < FRAMES_AT_A_TIME:
                (length,) = _LENGTH.unpack_from(data, position)
                end = position + LENGTH_BYTES + length
                if not 0 < length <= self._max_bytes or end > size_bytes:
                    break
                frames.append(memoryview(bytearray(view[position + LENGTH_BYTES : end])))
                self._frames_bytes += length
                position = end

        # The next frame boundary cannot be found after a bad length, so the rest of the stream is
        # dropped.
        while position < size_bytes and self._violation is None:
            if len(frames) >= FRAMES_AT_A_TIME:
                self._rest = bytes(view[position:])
                return
            missing = self._target_bytes - self._arrived_bytes
            self._store(view[position : position + missing])
            position += missing
            if self._arrived_bytes == self._target_bytes:
                self._advance()

    def room(self) -> memoryview | None:
        """The memory of the next bytes of a frame of which a share has arrived; None if there is none such.

        Bytes that are received there are not copied. The caller says how many came (`filled`), and releases it first.
        """
        arrived_bytes = self._arrived_bytes
        target_bytes = self._target_bytes
        partial = self._partial
        if isinstance(partial, bytearray):
            if self._frames or not LENGTH_BYTES < target_bytes < PAGES_BYTES_MIN:
                return None
            if arrived_bytes < target_bytes * ROOM_SHARE:
                return None
            if len(partial) < target_bytes:
                whole = bytearray(target_bytes)
                whole[:arrived_bytes] = partial
                self._partial = partial = whole
                self._partial_bytes = target_bytes
        return memoryview(partial)[arrived_bytes : min(target_bytes, arrived_bytes + ROOM_BYTES_MAX)]

    def filled(self, size_bytes: int) -> None:
        """So many bytes were received into `room`."""
        self._arrived_bytes += size_bytes
        self._partial_bytes = max(self._partial_bytes, self._arrived_bytes)
        if self._arrived_bytes == self._target_bytes:
            self._advance()

    def peek(self) -> memoryview | None:
        """The frame that `next_frame` would return, left in place; None also where that would raise."""
        return self._frames[0] if self._frames else None

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, writable; None if more bytes are needed.

        ProtocolViolation after a bad length, once the frames before it are taken.
        """
        # The frames before a bad length are valid requests, and are answered before the connection closes.
        if self._frames:
            frame = self._frames.popleft()
            self._frames_bytes -= len(frame)
            if self._rest and not self._frames:
                rest = self._rest
                self._rest = b""
                self.feed(rest)
            return frame
        if self._violation is not None:
            raise ProtocolViolation(self._violation)
        return None

    def _store(self, piece: memoryview) -> None:
        before_bytes = self._arrived_bytes
        arrived_bytes = before_bytes + len(piece)
        partial = self._partial
        if len(partial) == before_bytes and isinstance(partial, bytearray):
            partial += piece
            if arrived_bytes > ARRAY_BYTES_MAX and self._target_bytes >= PAGES_BYTES_MIN:
                # Anonymous pages take memory when they are written to: the reservation itself costs nothing.
                pages = mmap.mmap(-1, self._target_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                pages[:arrived_bytes] = partial
                self._partial = pages
        # `partial` has the memory of the whole frame already.
        else:
            partial[before_bytes:arrived_bytes] = piece
        self._arrived_bytes = arrived_bytes
        self._partial_bytes = max(self._partial_bytes, arrived_bytes)

    def _advance(self) -> None:
        """The target has arrived, which is the length of a frame or the whole frame: set the next target."""
        partial = self._partial

        # The frame is whole. The view owns the memory from now on, so the next frame gets a new
        # bytearray.
        if self._target_bytes > LENGTH_BYTES:
            self._frames.append(memoryview(partial)[LENGTH_BYTES:])
            self._frames_bytes += len(partial) - LENGTH_BYTES
            self._target_bytes = LENGTH_BYTES
            self._begin()
            return

        (length,) = _LENGTH.unpack_from(partial)
        if length == 0 and self._takes_empty:
            self._frames.append(memoryview(bytearray()))
            self._begin()
            return

        # No request is empty, and Kafka, too, closes the connection after a length below 0 or above the limit
        # (socket.request.max.bytes). Both are checked before memory is taken for the frame.
        if length <= 0:
            self._violation = f"a frame claims a length of {length} bytes"
        elif length > self._max_bytes:
            self._violation = f"a frame claims {length} bytes; the limit is {self._max_bytes}{_looks_like(length)}"
        else:
            self._target_bytes = LENGTH_BYTES + length
            return

        self._begin()

    def _begin(self) -> None:
        """Nothing of the next frame has arrived."""
        self._partial = bytearray()
        self._arrived_bytes = 0
        self._partial_bytes = 0


def _looks_like(length: int) -> str:
    """What else the four bytes of a length can be, for the log; an empty text if nothing is likely."""
    begin = _LENGTH.pack(length)
    if begin.startswith(TLS_BEGIN):
        return ". The client speaks TLS (SSL or SASL_SSL), and this listener does not"
    if begin in HTTP_BEGINS:
        return ". The client speaks HTTP: this port is for Kafka's protocol"
    return ""


class RequestHeader(NamedTuple):
    """The header of a request; its body begins at `position` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    position: int


def read_request_header(frame: memoryview) -> RequestHeader:
    """The header of the request in this frame.

    UnsupportedRequest if its key or version is not served, ProtocolViolation if it is malformed.
    """
    # `struct` and an index raise when the frame ends before the header does; both are caught below.
    try:
        api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)

        # The first eight bytes are the same in all header versions; the rest depends on the API's version.
        header_version = _HEADER_VERSIONS.get((api_key, api_version))
        if header_version is None:
            raise UnsupportedRequest(api_key, api_version, correlation_id)
        if header_version == 0:  # ControlledShutdown v0 has no client id
            return RequestHeader(api_key, api_version, correlation_id, None, _REQUEST_START.size)
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _REQUEST_START.size)
        position = _REQUEST_START.size + _CLIENT_ID_LENGTH.size
        client_id = None

        # -1 is null. The length is an int16 in flexible versions as well, so that a broker can read the client id of a
        # version that it does not support. Some clients send text that is not UTF-8.
        if length >= 0:
            client_id = str(frame[position : position + length], "utf-8", "replace")
            position += length
        if header_version == 2:
            # Nearly all headers have no tagged fields: one zero byte.
            position = _skip_tags(frame, position) if frame[position] else position + 1
    except (struct.error, IndexError) as error:
        raise ProtocolViolation(f"the header of a request is malformed: {error}") from None

    # A slice of the client id does not raise at the end of the frame.
    if position > len(frame) or length < -1:
        raise ProtocolViolation(f"the header of a request claims a client id of {length} bytes")
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def response_prefix(body_size_bytes: int, correlation_id: int, header_version: int) -> bytes:
    """The bytes before a response's body: the frame's length and the response header."""
    # The header is the correlation id (4 bytes, as many as LENGTH_BYTES), in version 1 with an empty tag section
    # behind.
    if header_version == 0:
        return _RESPONSE_START.pack(body_size_bytes + LENGTH_BYTES, correlation_id)
    return _RESPONSE_START.pack(body_size_bytes + LENGTH_BYTES + 1, correlation_id) + b"\0"


def _skip_tags(frame: memoryview, position: int) -> int:
    """The position behind the tagged fields of a header. IndexError if the frame ends first."""
    count, position = _read_unsigned(frame, position)
    # A frame of 100 MiB could hold 50 million empty tags, and this loop runs on the event loop.
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
        # Five bytes hold 32 bits. Without the limit a frame full of 0xff would build a number of 100 MB.
        if shift > 28:
            raise ProtocolViolation("a number in the header of a request has more than five bytes")
    return value | byte << shift, position + 1


# (API key, version) -> request header version, for all requests that are served: one look-up per request.
_HEADER_VERSIONS = {
    (api.key, version): request_header_version(api.key, version)
    for api in APIS.values()
    if api.served
    for version in range(api.min_version, api.max_version + 1)
}
