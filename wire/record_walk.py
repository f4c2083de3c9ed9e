"""One pass over the records of a batch: are they well formed, and what is the broker to know about them?

A record (reference kafka-internals.md, D.3), all numbers zigzag varints:

    length | attributes i8 | timestamp delta | offset delta | key length, key | value length, value
    | header count | per header: key length, key, value length, value        (length -1: null)

*Theory of operation.* The broker needs four things from the records it is sent: that they fill the batch exactly, the
largest timestamp, whether offsets count 0, 1, 2 …, and whether a key is missing. So the walk makes no object per
record; keys and values are stepped over. Records that are alike are walked many at a time (`record_runs.py`); between
such runs, and where there are none, `_walk_singly` is the hot loop: every varint has its case for one and for two bytes
inline, reading past the end raises IndexError, and one comparison at the end of a record proves all its lengths.

Uncompressed records are walked where they lie. Compressed ones arrive in chunks: the walk stops before a record
that is cut off, which is continued with the next chunk; a record longer than a chunk is read field by field and its key
and value are skipped in the stream. So memory is bounded by two chunks whatever the records claim.

Deviation from Apache Kafka 3.9, which does not look at the length of a *compressed* record: a false one is refused
here, for no consumer could read past it.
"""

from barnabas.wire.compression import CHUNK_BYTES, CorruptRecords, Stream
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_runs import ROWS_MIN, Run, find_run

_VARINT_MAX_BYTES = 5
_BELOW_EVERY_DELTA = -(1 << 65)
_ABOVE_EVERY_DELTA = 1 << 65
_SINGLY_MAX = 512  # so many records are walked one by one, at most, before a run is looked for again


class Walk:
    """What a walk has found so far. Timestamp deltas are kept doubled, as zigzag has them, until they are asked for."""

    __slots__ = ("count", "highest", "highest_index", "index", "is_in_order", "key_lengths", "lowest")

    def __init__(self, count: int) -> None:
        self.count = count  # how many records the header promises
        self.index = 0  # how many were seen
        self.highest = _BELOW_EVERY_DELTA
        self.highest_index = 0  # the first record that has the highest timestamp
        self.lowest = _ABOVE_EVERY_DELTA
        self.is_in_order = True  # offset deltas are 0, 1, 2 …
        self.key_lengths = 0  # all of them or-ed, still zigzag

    def note_run(self, run: Run) -> None:
        """Many records at once."""
        if run.highest > self.highest:
            self.highest, self.highest_index = run.highest, self.index + run.first_highest
        self.lowest = min(self.lowest, run.lowest)
        self.key_lengths |= run.key_length
        self.index += run.count

    @property
    def has_null_key(self) -> bool:
        """Whether some record has no key; negative numbers are odd in zigzag."""
        return self.key_lengths & 1 != 0

    @property
    def highest_delta(self) -> int:
        """The largest timestamp delta."""
        return self.highest >> 1

    @property
    def lowest_delta(self) -> int:
        """The smallest timestamp delta."""
        return self.lowest >> 1


def walk_buffer(buffer: bytes | memoryview, position: int, count: int) -> Walk:
    """Walk `count` records from `position` to the end of `buffer`; CorruptRecords unless they fill it exactly."""
    walk = Walk(count)
    end = len(buffer)
    position = _walk_chunk(buffer, position, walk)
    if walk.index < count:
        raise invalid_records(f"record {walk.index} of {count} does not end within the batch")
    if position != end:
        raise invalid_records(f"{end - position} bytes follow the last of {count} records")
    return walk


def walk_stream(stream: Stream, count: int) -> Walk:
    """Walk `count` records that make up the whole stream, in bounded memory; CorruptRecords unless they do."""
    walk = Walk(count)
    buffer = stream.read(CHUNK_BYTES)
    while True:
        position = _walk_chunk(buffer, 0, walk)
        buffer = buffer[position:]
        if walk.index == count:
            break
        if len(buffer) >= _VARINT_MAX_BYTES:
            length, _ = read_varint(buffer, 0)
            if length & 1:
                raise invalid_records(f"record {walk.index} has a negative length")
            if length >> 1 > CHUNK_BYTES:
                buffer = _walk_long_record(RecordCursor(stream, buffer), walk)
                continue
        chunk = stream.read(CHUNK_BYTES)
        if not chunk:
            raise invalid_records(f"the stream ends within record {walk.index} of {count}")
        buffer += chunk
    if buffer or stream.read(1):
        raise invalid_records(f"bytes follow the last of {count} records")
    return walk


def _walk_chunk(buffer: bytes | memoryview, position: int, walk: Walk) -> int:
    """Walk the records that lie whole in buffer[position:]; returns where the first other one begins.

    Runs are looked for in bytes, whose slices with a step are taken several times as fast as those of a view; a view is
    walked where it lies. Where no run is found, the next search is put off twice as long: records that are never alike
    cost a few searches.
    """
    singly = 2
    while isinstance(buffer, bytes) and walk.count - walk.index >= ROWS_MIN:
        run = find_run(buffer, position, walk.index, walk.count - walk.index)
        if run is not None:
            walk.note_run(run)
            position, singly = run.end, 2
            continue
        stop = min(walk.index + singly, walk.count)
        position = _walk_singly(buffer, position, walk, stop)
        if walk.index < stop:
            return position
        singly = min(singly * 2, _SINGLY_MAX)
    return _walk_singly(buffer, position, walk, walk.count)


# One loop on purpose: a call per field would double the cost of a record. Where two bytes of a varint add up to more
# than 16383, the second is not its last.
def _walk_singly(buffer: bytes | memoryview, position: int, walk: Walk, stop: int) -> int:  # noqa: PLR0912
    """Walk the records before number `stop` that lie whole in buffer[position:]; returns where the next one begins."""
    end = len(buffer)
    offset_end, expected_offset = stop << 1, walk.index << 1  # zigzag
    highest, lowest, last_delta, key_lengths = walk.highest, walk.lowest, -1, walk.key_lengths
    record_start = record_end = position
    try:
        while expected_offset < offset_end:
            record_start = position
            if (length := buffer[position]) < 128:
                position += 2  # the attributes as well, which say nothing
            elif (high := buffer[position + 1]) < 128:
                length += (high << 7) - 128
                position += 3
            else:
                length, position = _read_long_varint(buffer, position)
                position += 2
            if (record_end := position - 1 + (length >> 1)) > end or length & 1:
                break
            if (delta := buffer[position]) > 127:
                position += 1
                if (delta := delta - 128 + (buffer[position] << 7)) > 16383:
                    delta, position = _read_long_varint(buffer, position - 1, 64)
            if delta != last_delta:
                last_delta = delta
                if delta & 1:
                    delta = -1 - delta
                if delta > highest:
                    highest = walk.highest = delta
                    walk.highest_index = expected_offset >> 1
                if delta < lowest:
                    lowest = walk.lowest = delta
            if (offset := buffer[position + 1]) < 128:
                position += 2
            elif (high := buffer[position + 2]) < 128:
                offset += (high << 7) - 128
                position += 3
            else:
                offset, position = _read_long_varint(buffer, position + 1)
                position += 1
            if offset != expected_offset:
                walk.is_in_order = False
            if (length := buffer[position]) > 127:
                length, position = _read_long_varint(buffer, position)
            key_lengths |= length
            position += 1 if length & 1 else (length >> 1) + 1
            if (length := buffer[position]) > 127:
                position += 1
                if (length := length - 128 + (buffer[position] << 7)) > 16383:
                    length, position = _read_long_varint(buffer, position - 1)
            position += 1 if length & 1 else (length >> 1) + 1
            position = _step_over_headers(buffer, position) if buffer[position] else position + 1
            if position != record_end:
                raise invalid_records(f"the lengths within record {expected_offset >> 1} contradict each other")
            expected_offset += 2
    except IndexError:
        if record_end > record_start:
            raise invalid_records(f"a length within record {expected_offset >> 1} leads out of the batch") from None
    walk.index, walk.key_lengths = expected_offset >> 1, key_lengths
    return record_start if expected_offset < offset_end else position


def _step_over_headers(buffer: bytes | memoryview, position: int) -> int:
    """From the header count to the end of the headers; IndexError where that lies behind the buffer."""
    count, position = read_varint(buffer, position)
    if count & 1:
        raise invalid_records("a record has a negative number of headers")
    for _ in range(count >> 1):
        length, position = read_varint(buffer, position)
        if length & 1:
            raise invalid_records("the key of a record header is null")
        position += length >> 1
        length, position = read_varint(buffer, position)
        if not length & 1:
            position += length >> 1
    return position


def read_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The zigzag value of a varint of 32 bits, not yet made signed, and the position behind it."""
    value = buffer[position]
    if value < 128:
        return value, position + 1
    value, position = _read_long_varint(buffer, position)
    return value, position + 1


def read_varlong(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A varint of 64 bits, as signed number, and the position behind it."""
    value, position = _read_long_varint(buffer, position, 64)
    return (value >> 1) ^ -(value & 1), position + 1


def _read_long_varint(buffer: bytes | bytearray | memoryview, position: int, bits: int = 32) -> tuple[int, int]:
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


class RecordCursor:
    """Reads a record field by field where it comes out of a stream, `buffer` first; counts what it has consumed."""

    def __init__(self, stream: Stream, buffer: bytes = b"") -> None:
        self._stream = stream
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
                value, last = _read_long_varint(self._buffer, self._position, bits)
            except IndexError:
                self._fill()
                continue
            self._position = last + 1
            return (value >> 1) ^ -(value & 1)

    def skip(self, size_bytes: int) -> None:
        """Go past bytes of no interest; a negative number, the length of null, skips nothing."""
        in_buffer = len(self._buffer) - self._position
        if size_bytes <= in_buffer:
            self._position += max(size_bytes, 0)
            return
        if self._stream.skip(size_bytes - in_buffer) < size_bytes - in_buffer:
            raise invalid_records("the batch ends within a record")
        self._dropped_bytes += self._position + size_bytes
        self._buffer, self._position = b"", 0

    def read_bytes(self, size_bytes: int) -> bytes:
        """Exactly that many bytes; memory grows as they arrive, not as `size_bytes` claims."""
        pieces = [self._buffer[self._position : self._position + size_bytes]]
        left = size_bytes - len(pieces[0])
        if not left:
            self._position += size_bytes
            return pieces[0]
        while left:
            piece = self._stream.read(min(left, CHUNK_BYTES))
            if not piece:
                raise invalid_records("the batch ends within a record")
            pieces.append(piece)
            left -= len(piece)
        self._dropped_bytes += self._position + size_bytes
        self._buffer, self._position = b"", 0
        return b"".join(pieces)

    def is_at_end(self) -> bool:
        """Whether nothing is left, neither here nor in the stream."""
        if self._position == len(self._buffer):
            self._dropped_bytes += self._position
            self._buffer, self._position = self._stream.read(CHUNK_BYTES), 0
        return not self._buffer

    def _fill(self) -> None:
        chunk = self._stream.read(CHUNK_BYTES)
        if not chunk:
            raise invalid_records("the batch ends within a record")
        self._dropped_bytes += self._position
        self._buffer, self._position = self.unread + chunk, 0


def _walk_long_record(cursor: RecordCursor, walk: Walk) -> bytes:
    """Walk one record that is longer than a chunk; returns what the cursor has read beyond it."""
    length = cursor.read_number()
    start = cursor.consumed_bytes
    cursor.skip(1)
    doubled_delta = cursor.read_number(64) << 1
    if doubled_delta > walk.highest:
        walk.highest, walk.highest_index = doubled_delta, walk.index
    walk.lowest = min(walk.lowest, doubled_delta)
    walk.is_in_order &= cursor.read_number() == walk.index
    key_length = cursor.read_number()
    walk.key_lengths |= key_length < 0
    cursor.skip(key_length)
    cursor.skip(cursor.read_number())
    header_count = cursor.read_number()
    if header_count < 0:
        raise invalid_records("a record has a negative number of headers")
    for _ in range(header_count):
        key_length = cursor.read_number()
        if key_length < 0:
            raise invalid_records("the key of a record header is null")
        cursor.skip(key_length)
        cursor.skip(cursor.read_number())
    if cursor.consumed_bytes - start != length:
        raise invalid_records(f"the lengths within record {walk.index} contradict each other")
    walk.index += 1
    return cursor.unread


def invalid_records(message: str) -> CorruptRecords:
    """The checksum was right, so somebody wrote this."""
    return CorruptRecords(message, ErrorCode.INVALID_RECORD)
