"""Reading records field by field, in bounded memory and in steps of bounded cost; and what a batch may cost at all.

A few hundred bytes may decompress to gigabytes, or to one record with a hundred million headers, and Apache Kafka
accepts that. Here what a producer sends has limits, `RECORDS_MAX_BYTES` and `HEADERS_MAX`: far above what clients mean,
and small enough that one batch cannot exhaust the machine. Batches that are stored already, which a broker in Java may
have accepted, are read whatever they hold: of a record that is longer than a chunk, the long part streams past.

A `Meter` counts what reading costs, by bytes and fields and not by a clock, so that a run is repeatable. Readers ask it
after each part whether a step is over, and if so yield: the generators here give None there. Between two steps others
run, so what is held there adds up; who opens streams yields how much it is (`holding`).
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

from barnabas.wire.compression import CHUNK_BYTES, BeyondLimits, CorruptRecords, Stream
from barnabas.wire.errors import ErrorCode

RECORDS_MAX_BYTES: Final = 128 << 20  # of a batch, decompressed: more than socket.request.max.bytes
HEADERS_MAX: Final = 65_536  # of one record; producers in use attach some dozens

STEP_COST: Final = 4000  # a step in units of about 0.25 µs, which is what it takes to step over a header
_READ_COST: Final = 8  # of a call to a codec, and for each ...
_READ_COST_SHIFT: Final = 6  # ... 64 bytes a unit: 256 MB/s, about what gzip does
_ZEROS_BYTES: Final = 1024  # empty headers are two zero bytes each, and zeros are counted at the speed of C
_UNLIMITED: Final = 1 << 62

Result = TypeVar("Result")
Steps = Generator[int | None, None, Result]
"""Yields after each step, or before much memory is taken: how many bytes are held from there on, if they are many."""


class Meter:
    """What is left of a step, and of what a batch may decompress to."""

    __slots__ = ("bytes_left", "credit")

    def __init__(self, bytes_max: int = _UNLIMITED) -> None:
        self.credit = STEP_COST
        self.bytes_left = bytes_max

    def note(self, size_bytes: int) -> None:
        """So many bytes came out of a codec."""
        self.bytes_left -= size_bytes
        if self.bytes_left < 0:
            raise beyond_limits("the records of the batch take more bytes than those of a batch may")
        self.credit -= _READ_COST + (size_bytes >> _READ_COST_SHIFT)

    def read(self, stream: Stream) -> bytes:
        """The next chunk of a stream; b"" at its end."""
        chunk = stream.read(CHUNK_BYTES)
        self.note(len(chunk))
        return chunk

    def is_step_over(self) -> bool:
        """Whether a step is used up; the next one begins then."""
        if self.credit > 0:
            return False
        self.credit = STEP_COST
        return True


class RecordCursor:
    """Reads a record field by field where it comes out of a stream, `buffer` first; counts what it has consumed."""

    def __init__(self, stream: Stream, meter: Meter, buffer: bytes = b"") -> None:
        self._stream = stream
        self._meter = meter
        self._buffer = buffer
        self._position = 0
        self._dropped_bytes = 0  # consumed, and no longer in the buffer

    @property
    def consumed_bytes(self) -> int:
        """How many bytes were read or skipped."""
        return self._dropped_bytes + self._position

    @property
    def unread(self) -> bytes:
        """What was taken from the stream and not yet consumed."""
        return self._buffer[self._position :]

    def read_number(self, bits: int = 32) -> int:
        """A varint, as signed number."""
        while True:  # the second time with more in the buffer
            try:
                value, last = read_long_varint(self._buffer, self._position, bits)
            except IndexError:
                self._fill()
                continue
            self._position = last + 1
            return (value >> 1) ^ -(value & 1)

    def skip(self, size_bytes: int) -> Iterator[None]:
        """Go past bytes of no interest, in steps; a negative number, the length of null, skips nothing."""
        left = size_bytes - (len(self._buffer) - self._position)
        if left <= 0:
            self._position += max(size_bytes, 0)
            return
        self._dropped_bytes += self._position + size_bytes
        self._buffer, self._position = b"", 0
        while left:
            wanted = min(left, CHUNK_BYTES)
            if self._stream.skip(wanted) < wanted:
                raise invalid_records("the batch ends within a record")
            left -= wanted
            self._meter.note(wanted)
            if self._meter.is_step_over():
                yield

    def skip_headers(self, count: int) -> Iterator[None]:
        """Go past so many headers, in steps."""
        while count:
            passed, self._position = pass_headers(self._buffer, self._position, min(count, STEP_COST))
            if not passed:  # it ends beyond the buffer
                key_length = self.read_number()
                if key_length < 0:
                    raise null_header_key()
                yield from self.skip(key_length)
                yield from self.skip(self.read_number())
                passed = 1
            count -= passed
            self._meter.credit -= passed
            if self._meter.is_step_over():
                yield

    def read_some(self, size_bytes: int) -> bytes:
        """At least one and at most so many of the next bytes."""
        if self._position == len(self._buffer):
            self._fill()
        piece = self._buffer[self._position : self._position + size_bytes]
        self._position += len(piece)
        return piece

    def read_bytes(self, size_bytes: int) -> bytes:
        """Exactly that many bytes; memory grows as they arrive, not as `size_bytes` claims."""
        piece = self._buffer[self._position : self._position + size_bytes]
        if len(piece) == size_bytes:
            self._position += size_bytes
            return piece
        gathered = bytearray()
        while len(gathered) < size_bytes:
            gathered += self.read_some(size_bytes - len(gathered))
        return bytes(gathered)

    def is_at_end(self) -> bool:
        """Whether nothing is left, neither here nor in the stream."""
        if self._position == len(self._buffer):
            self._dropped_bytes += self._position
            self._buffer, self._position = self._meter.read(self._stream), 0
        return not self._buffer

    def _fill(self) -> None:
        chunk = self._meter.read(self._stream)
        if not chunk:
            raise invalid_records("the batch ends within a record")
        self._dropped_bytes += self._position
        self._buffer, self._position = self.unread + chunk, 0


def holding(held_bytes: Callable[[], int], steps: Generator[None, None, Result]) -> Steps[Result]:
    """These steps; after each, and before the first where it is much already, they yield what is held."""
    if at_once := held_bytes():
        yield at_once
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # what `steps` returned
        yield held_bytes()


def pass_headers(buffer: bytes | memoryview, position: int, count: int) -> tuple[int, int]:
    """Step over up to `count` headers: how many lie whole in the buffer from `position` on, and what follows them."""
    end, passed, start = len(buffer), 0, position
    try:
        while passed < count:
            start = position
            if (key_length := buffer[position]) < 128:
                position += 1
            else:
                key_length, position = read_varint(buffer, position)
            if key_length & 1:
                raise null_header_key()
            position += key_length >> 1
            if (value_length := buffer[position]) < 128:
                position += 1
            else:
                value_length, position = read_varint(buffer, position)
            if not value_length & 1:
                position += value_length >> 1
            if position > end:
                break
            passed, start = passed + 1, position
            if not key_length | value_length:
                ahead = bytes(buffer[position : position + min(2 * (count - passed), _ZEROS_BYTES)])
                empty = len(ahead) - len(ahead.lstrip(b"\0")) >> 1
                passed += empty
                start = position = position + 2 * empty
    except IndexError:
        pass
    return passed, start


def read_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The zigzag value of a varint of 32 bits, not yet made signed, and the position behind it."""
    value = buffer[position]
    if value < 128:
        return value, position + 1
    value, position = read_long_varint(buffer, position)
    return value, position + 1


def read_varlong(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A varint of 64 bits, as signed number, and the position behind it."""
    value, position = read_long_varint(buffer, position, 64)
    return (value >> 1) ^ -(value & 1), position + 1


def read_long_varint(buffer: bytes | bytearray | memoryview, position: int, bits: int = 32) -> tuple[int, int]:
    """Like `read_varint`, for any length and width, but with the position of the last byte, not the one behind it.

    Bits above the width are dropped, as Java does; IndexError when the buffer ends first.
    """
    value = shift = 0
    while (byte := buffer[position]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
        if shift >= bits:
            raise invalid_records(f"a variable-length number has more than {bits} bits")
    return (value | byte << shift) & ((1 << bits) - 1), position


def invalid_records(message: str) -> CorruptRecords:
    """The checksum was right, so a client wrote this."""
    return CorruptRecords(message, ErrorCode.INVALID_RECORD)


def beyond_limits(message: str) -> BeyondLimits:
    """Records that may be well formed, and cost more than a batch may."""
    return BeyondLimits(message, ErrorCode.INVALID_RECORD)


def too_many_headers(count: int) -> BeyondLimits:
    """More than `HEADERS_MAX`."""
    return beyond_limits(f"a record has {count} headers; at most {HEADERS_MAX} are accepted")


def null_header_key() -> CorruptRecords:
    """Java's reader refuses it too."""
    return invalid_records("the key of a record header is null")
