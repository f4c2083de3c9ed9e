"""Reads records field by field, in bounded memory and in bounded steps; has the limits of a produced batch.

A batch of a few hundred bytes may decompress to gigabytes, or to one record with a hundred million headers, and Apache
Kafka accepts it. Here a producer's batch has limits, `RECORDS_MAX_BYTES` and `HEADERS_MAX`. Stored batches, which a
Java broker may have accepted, are read whatever they hold: the long fields of a record that is longer than a chunk are
skipped in the stream.

A `Meter` counts the cost of reading. Readers ask it after each part whether the step is over, and then yield; the
generators in this file yield None there. Other requests run between two steps, so the memory that is held there adds
up: code that opens streams yields the number of bytes held (`holding`).
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

from barnabas.wire.compression import CHUNK_BYTES, BeyondLimits, CorruptRecords, Stream
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_runs import earlier_rows

# The limit is for a decompressed batch. It is above socket.request.max.bytes (100 MiB), so it
# refuses no batch that could be sent uncompressed, and it is small enough that one batch cannot
# exhaust the machine.
RECORDS_MAX_BYTES: Final = 128 << 20
HEADERS_MAX: Final = 65_536  # of one record; producers in use attach some dozens

# A step is about a millisecond: 4000 units of about 0.25 µs, the time it takes to skip a header. Cost is counted by
# bytes and fields, not by a clock, so that a simulated run can be repeated.
STEP_COST: Final = 4000
# A call of a codec costs 8 units, and one more for each 64 bytes: 256 MB/s, about the speed of gzip.
_READ_COST: Final = 8
_READ_COST_SHIFT: Final = 6
_ZEROS_BYTES: Final = 1024  # how many bytes `pass_headers` searches for empty headers at once
_UNLIMITED: Final = 1 << 62
INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

Result = TypeVar("Result")
Steps = Generator[int | None, None, Result]
"""A generator that yields after each step, and before it takes much memory: the number of bytes held from there on, or
None if they are few. Its return value is the result."""


class Meter:
    """The rest of a step, and of the bytes that a batch may decompress to."""

    __slots__ = ("bytes_left", "credit")

    def __init__(self, bytes_max: int = _UNLIMITED) -> None:
        self.credit = STEP_COST
        self.bytes_left = bytes_max

    def note(self, size_bytes: int) -> None:
        """Count bytes that came out of a codec. BeyondLimits if they are more than the batch may have."""
        self.bytes_left -= size_bytes
        # The size is checked chunk by chunk, because the header of a batch does not tell how much
        # it decompresses to.
        if self.bytes_left < 0:
            raise beyond_limits("the records of the batch take more bytes than those of a batch may")
        self.credit -= _READ_COST + (size_bytes >> _READ_COST_SHIFT)

    def read(self, stream: Stream) -> bytes:
        """The next chunk of a stream, counted; b"" at its end."""
        chunk = stream.read(CHUNK_BYTES)
        self.note(len(chunk))
        return chunk

    def is_step_over(self) -> bool:
        """Whether the step is over; if so, the next one has begun."""
        if self.credit > 0:
            return False
        self.credit = STEP_COST
        return True


class RecordCursor:
    """Reads the fields of records from a buffer and then from a stream, and counts the bytes consumed."""

    def __init__(self, stream: Stream, meter: Meter, buffer: bytes = b"") -> None:
        self._stream = stream
        self._meter = meter
        self._buffer = buffer
        self._position = 0
        self._dropped_bytes = 0  # consumed and dropped from the buffer

    @property
    def consumed_bytes(self) -> int:
        """The number of bytes that were read or skipped."""
        return self._dropped_bytes + self._position

    @property
    def unread(self) -> bytes:
        """The bytes taken from the stream and not yet consumed."""
        return self._buffer[self._position :]

    def read_number(self, bits: int = 32) -> int:
        """The next varint, as a signed number."""
        # The varint may be cut off at the end of the buffer: then it is read again, with the next chunk behind it.
        while True:
            try:
                value, last = read_long_varint(self._buffer, self._position, bits)
            except IndexError:
                self._fill()
                continue
            self._position = last + 1
            return (value >> 1) ^ -(value & 1)

    def pass_earlier_rows(self, index: int, count_max: int, base_timestamp: int, timestamp: int) -> int:
        """Pass records of one shape at the front that are earlier than `timestamp`, many at once. How many.

        `index` is that of the first record in its batch.
        """
        # Near the ends of the range Java's addition wraps: then the records are looked at one by one.
        if not INT64_MIN // 2 < base_timestamp < _INT64_MAX // 2:
            return 0
        passed = 0
        while True:
            rows, self._position = earlier_rows(
                self._buffer, self._position, index + passed, count_max - passed, timestamp - base_timestamp
            )
            if not rows:
                return passed
            passed += rows

    def pass_earlier(
        self, count_max: int, base_timestamp: int, timestamp: int, offset_delta: int
    ) -> tuple[int, tuple[int, int] | None]:
        """Pass the records at the front that lie whole in the buffer, up to one with `offset_delta` or a later offset
        and `timestamp` or a later time. How many were passed; offset delta and timestamp of that one, or None.
        """
        # The hot loop of a search by time, one function as `record_walk._walk_singly` is. It stops before a record that
        # needs `read_number` and `skip`: one that is cut off or contradicts itself.
        buffer = self._buffer
        start = self._position
        end = len(self._buffer)
        passed = 0
        try:
            while passed < count_max:
                if (length := buffer[start]) < 128:
                    position = start + 2  # and past the attributes
                elif (high := buffer[start + 1]) < 128:
                    length += (high << 7) - 128
                    position = start + 3
                else:
                    length, position = read_long_varint(buffer, start)
                    position += 2
                record_end = position - 1 + (length >> 1)
                if (delta := buffer[position]) > 127:
                    position += 1

                    # Above 16383 the second byte has its top bit set, so the varint is longer.
                    if (delta := delta - 128 + (buffer[position] << 7)) > 16383:
                        delta, position = read_long_varint(buffer, position - 1, 64)
                its_timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
                position += 1
                if (offset := buffer[position]) > 127:
                    position += 1
                    if (offset := offset - 128 + (buffer[position] << 7)) > 16383:
                        offset, position = read_long_varint(buffer, position - 1)
                if length & 1 or record_end > end or position >= record_end:
                    break
                start = record_end
                passed += 1

                # Java's addition wraps.
                if not INT64_MIN <= its_timestamp <= _INT64_MAX:
                    its_timestamp = wrap_timestamp(its_timestamp)
                if its_timestamp >= timestamp and (its_delta := (offset >> 1) ^ -(offset & 1)) >= offset_delta:
                    return passed, (its_delta, its_timestamp)
        except IndexError:
            pass
        finally:
            self._position = start

        return passed, None

    def skip(self, size_bytes: int) -> Iterator[None]:
        """Skip bytes, in steps; a negative number, the length of null, skips nothing."""
        left = size_bytes - (len(self._buffer) - self._position)
        if left <= 0:
            self._position += max(size_bytes, 0)
            return
        self._dropped_bytes += self._position + size_bytes
        self._buffer = b""
        self._position = 0

        # The rest is dropped inside the stream, a chunk at a time: a field of any length needs no memory here.
        while left:
            wanted = min(left, CHUNK_BYTES)
            if self._stream.skip(wanted) < wanted:
                raise invalid_records("the batch ends within a record")
            left -= wanted
            self._meter.note(wanted)
            if self._meter.is_step_over():
                yield

    def skip_headers(self, count: int) -> Iterator[None]:
        """Skip this many headers, in steps."""
        while count:
            # A header costs a unit, so that this call takes no longer than a step.
            passed, self._position = pass_headers(self._buffer, self._position, min(count, STEP_COST))
            # The next header is cut off at the end of the buffer, so it is read field by field.
            if not passed:
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
        """At least one, and at most `size_bytes`, of the next bytes."""
        if self._position == len(self._buffer):
            self._fill()
        piece = self._buffer[self._position : self._position + size_bytes]
        self._position += len(piece)
        return piece

    def read_bytes(self, size_bytes: int) -> bytes:
        """Exactly `size_bytes` bytes; CorruptRecords if the batch ends before."""
        piece = self._buffer[self._position : self._position + size_bytes]
        if len(piece) == size_bytes:
            self._position += size_bytes
            return piece
        # `size_bytes` is a claim of the record: memory grows with the bytes that arrive, not with the claim.
        gathered = bytearray()
        while len(gathered) < size_bytes:
            gathered += self.read_some(size_bytes - len(gathered))
        return bytes(gathered)

    def is_at_end(self) -> bool:
        """Whether nothing is left, neither in the buffer nor in the stream."""
        if self._position == len(self._buffer):
            self._dropped_bytes += self._position
            self._buffer, self._position = self._meter.read(self._stream), 0
        return not self._buffer

    def _fill(self) -> None:
        chunk = self._meter.read(self._stream)
        if not chunk:
            raise invalid_records("the batch ends within a record")
        self._dropped_bytes += self._position
        self._buffer = self.unread + chunk
        self._position = 0


def holding(held_bytes: Callable[[], int], steps: Generator[None, None, Result]) -> Steps[Result]:
    """Run these steps, and yield the number of bytes held after each; before the first one only if it is not 0."""
    # Some streams hold their memory from the first read on: the caller has to wait for room before that.
    if at_once := held_bytes():
        yield at_once
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # what `steps` returned
        yield held_bytes()


def pass_headers(buffer: bytes | memoryview, position: int, count: int) -> tuple[int, int]:
    """Skip up to `count` headers that lie whole in the buffer: their number, and the position behind them."""
    end = len(buffer)
    passed = 0
    start = position
    try:
        while passed < count:
            start = position
            if (key_length := buffer[position]) < 128:
                position += 1
            else:
                key_length, position = read_varint(buffer, position)
            if key_length & 1:  # odd is negative in zigzag: null
                raise null_header_key()
            position += key_length >> 1
            if (value_length := buffer[position]) < 128:
                position += 1
            else:
                value_length, position = read_varint(buffer, position)
            if not value_length & 1:
                position += value_length >> 1

            # The last header is cut off: `start` stays before it.
            if position > end:
                break
            passed = passed + 1
            start = position

            # A header with empty key and value is two zero bytes. A hostile batch has millions of them, which compress
            # to nothing; `lstrip` counts those that follow in C.
            if not key_length | value_length:
                ahead = bytes(buffer[position : position + min(2 * (count - passed), _ZEROS_BYTES)])
                empty = len(ahead) - len(ahead.lstrip(b"\0")) >> 1
                passed += empty
                start = position = position + 2 * empty
    except IndexError:
        pass  # a length is cut off

    return passed, start


def read_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The zigzag value of a varint of 32 bits (not yet signed), and the position behind it."""
    # Nearly all varints of records have one byte.
    value = buffer[position]
    if value < 128:
        return value, position + 1
    value, position = read_long_varint(buffer, position)
    return value, position + 1


def read_varlong(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A varint of 64 bits, as a signed number, and the position behind it."""
    value, position = read_long_varint(buffer, position, 64)
    return (value >> 1) ^ -(value & 1), position + 1


def read_long_varint(buffer: bytes | bytearray | memoryview, position: int, bits: int = 32) -> tuple[int, int]:
    """The zigzag value of a varint of any length, and the position of its last byte, not the one behind it.

    IndexError if the buffer ends first; CorruptRecords if it is longer than a number of `bits` bits may be.
    """
    value = shift = 0
    while (byte := buffer[position]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
        # A varint has five bytes for 32 bits, ten for 64: Java's reader stops there, too.
        if shift >= bits:
            raise invalid_records(f"a variable-length number has more than {bits} bits")
    # The last byte may have bits above the width, which Java drops.
    return (value | byte << shift) & ((1 << bits) - 1), position


def wrap_timestamp(timestamp: int) -> int:
    """The timestamp wrapped to 64 bits, as Java's addition wraps: the deltas of a hostile batch may overflow."""
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def invalid_records(message: str) -> CorruptRecords:
    """The error for malformed records whose checksum is right."""
    # The code is not CORRUPT_MESSAGE, which clients retry, because the client itself wrote these
    # bytes.
    return CorruptRecords(message, ErrorCode.INVALID_RECORD)


def beyond_limits(message: str) -> BeyondLimits:
    """The error for records that may be well formed, but exceed the limits of a batch."""
    return BeyondLimits(message, ErrorCode.INVALID_RECORD)


def too_many_headers(count: int) -> BeyondLimits:
    """The error for a record with more than `HEADERS_MAX` headers."""
    return beyond_limits(f"a record has {count} headers; at most {HEADERS_MAX} are accepted")


def null_header_key() -> CorruptRecords:
    """The error for a header without a key."""
    # Java's reader refuses it, too.
    return invalid_records("the key of a record header is null")
