"""One pass over the records of a batch: checks their form, and collects timestamps, offsets and missing keys.

A record (reference kafka-internals.md, D.3), all numbers zigzag varints:

    length | attributes i8 | timestamp delta | offset delta | key length, key | value length, value
    | header count | per header: key length, key, value length, value        (length -1: null)

The broker needs four facts about the records of a producer: whether they fill the batch exactly, the smallest and the
largest timestamp, whether the offset deltas are 0, 1, 2 …, and whether a key is missing. So the walk makes no object
per record and skips keys and values. Records of equal shape are walked many at a time (`record_runs.py`), the others
one by one (`_walk_singly`). The compiled form has a quicker loop for all that are not unusual (`record_loop.py`).

A few uncompressed records are walked in the request's own memory. All others arrive in chunks, and a record that is cut
off at the end of a chunk is walked again together with the next chunk. A record that is longer than a chunk, or has
many headers, is read field by field (`record_cursor.py`), and its long fields are skipped in the stream. So the walk
holds at most two chunks, whatever lengths the records claim, and may pause between any two records.
"""

from collections.abc import Generator, Iterator

from barnabas.wire.compression import CHUNK_BYTES, Stream
from barnabas.wire.record_cursor import (
    HEADERS_MAX,
    RECORDS_MAX_BYTES,
    STEP_COST,
    Meter,
    RecordCursor,
    beyond_limits,
    invalid_records,
    pass_headers,
    read_long_varint,
    read_varint,
    too_many_headers,
)
from barnabas.wire.record_loop import ordinary_run
from barnabas.wire.record_runs import ROWS_MIN, Run, find_run

_VARINT_MAX_BYTES = 5
_RUN_COST = 80  # of a search for a run, in the units of a `Meter`; a record that is walked singly costs 2
_HEADERS_AT_ONCE = 1000  # a record with more headers is read by a cursor, which may pause between two headers
# Deltas have 64 bits and are kept doubled.
_BELOW_EVERY_DELTA = -(1 << 65)
_ABOVE_EVERY_DELTA = 1 << 65
# A function of machine code has no byte code. The compiled form walks by `record_loop.py`.
IS_COMPILED = not hasattr(ordinary_run, "__code__")
_LOOP_COST_SHIFT = 6  # the loop costs at most 4 ns a byte, if each byte is a field: a unit for 64 bytes
_SINGLY_MAX = 512  # records that are walked singly, at most, before the next search for a run


class Walk(Meter):
    """The result of a walk so far. Timestamp deltas are kept doubled, which saves a shift per record."""

    __slots__ = (
        "count",
        "has_many_headers",
        "highest",
        "highest_index",
        "index",
        "is_in_order",
        "key_lengths",
        "lowest",
    )

    def __init__(self, count: int) -> None:
        # The same as `super().__init__(RECORDS_MAX_BYTES)`, without the call: each produced batch makes a Walk.
        self.credit, self.bytes_left = STEP_COST, RECORDS_MAX_BYTES
        self.has_many_headers = False  # the next record has, so that a cursor has to read it
        self.count = count  # the number of records by the header
        self.index = 0  # the number of records walked
        self.highest = _BELOW_EVERY_DELTA
        self.highest_index = 0  # the first record that has the highest timestamp
        self.lowest = _ABOVE_EVERY_DELTA
        self.is_in_order = True  # offset deltas are 0, 1, 2 …
        self.key_lengths = 0  # all of them or-ed, still zigzag

    def note_run(self, run: Run) -> None:
        """Take over the facts of a run of records."""
        # The comparison is `>`: of the records with the highest timestamp the first one counts
        # (KIP-734 searches for it).
        if run.highest > self.highest:
            self.highest, self.highest_index = run.highest, self.index + run.first_highest
        self.lowest = min(self.lowest, run.lowest)
        self.key_lengths |= run.key_length
        self.index += run.count

    @property
    def has_null_key(self) -> bool:
        """Whether a record has no key."""
        # The length of null is -1, and negative numbers are odd in zigzag: one odd length makes all of them or-ed odd.
        return self.key_lengths & 1 != 0

    @property
    def highest_delta(self) -> int:
        """The largest timestamp delta."""
        return self.highest >> 1

    @property
    def lowest_delta(self) -> int:
        """The smallest timestamp delta."""
        return self.lowest >> 1


def walk_at_once(buffer: bytes | memoryview, position: int, count: int) -> Walk | None:
    """Walk `count` records that fill `buffer` from `position` on; None if they do not, or one step is too short."""
    walk = Walk(count)
    position = _walk_chunk(buffer, position, walk)
    return walk if walk.index == count and position == len(buffer) else None


def walk_stream(stream: Stream, count: int) -> Walk:
    """Walk `count` records in bounded memory; CorruptRecords unless they fill the whole stream."""
    walk = Walk(count)
    for _ in walking(stream, walk):
        pass
    return walk


def walking(stream: Stream, walk: Walk) -> Generator[None, None, None]:
    """`walk_stream` in steps, into `walk`. BeyondLimits if the records decompress to more than `RECORDS_MAX_BYTES`."""
    count = walk.count
    buffer = walk.read(stream)
    while True:
        position = _walk_chunk(buffer, 0, walk)
        buffer = buffer[position:]
        if walk.index == count:
            break
        # `_walk_chunk` may have stopped only because the step is over, before whole records: these
        # are walked before more is read, or the buffer would grow.
        if walk.is_step_over():
            yield
            continue
        # With fewer bytes than the longest varint of 32 bits has, the length itself may be cut off.
        if len(buffer) >= _VARINT_MAX_BYTES:
            length, _ = read_varint(buffer, 0)
            if length & 1:
                raise invalid_records(f"record {walk.index} has a negative length")
            if length >> 1 > CHUNK_BYTES or walk.has_many_headers:
                # The claimed length is enough to refuse the record, before the work of skipping it.
                if length >> 1 > walk.bytes_left + len(buffer):
                    raise beyond_limits(
                        f"record {walk.index} has {length >> 1} bytes, more than the batch may have left"
                    )
                cursor = RecordCursor(stream, walk, buffer)
                yield from _walk_long_record(cursor, walk)
                buffer = cursor.unread
                continue
        # The unfinished record fits into one chunk: a longer one went to the cursor.
        chunk = walk.read(stream)
        if not chunk:
            raise invalid_records(f"record {walk.index} of {count} does not end within the batch")
        buffer += chunk
    # Kafka refuses this, too: the record count of the header must account for all bytes.
    if buffer or walk.read(stream):
        raise invalid_records(f"bytes follow the last of {count} records")


def _walk_chunk(buffer: bytes | memoryview, position: int, walk: Walk) -> int:
    """Walk the records that lie whole in buffer[position:]; returns the position of the first one that was not walked.

    It stops at a record that is cut off or needs a cursor, and at the end of the step.
    """
    if IS_COMPILED and isinstance(buffer, bytes):
        return _walk_by_loop(buffer, position, walk)
    singly = 2
    # Runs are searched in bytes only: a slice with a step is several times as slow in a memoryview.
    while isinstance(buffer, bytes) and walk.count - walk.index >= ROWS_MIN:
        run = find_run(buffer, position, walk.index, walk.count - walk.index)
        walk.credit -= _RUN_COST
        if run is not None:
            walk.note_run(run)
            position, singly = run.end, 2
        else:
            # The wait until the next search doubles, so a batch without runs costs only a few searches.
            stop = min(walk.index + singly, walk.count)
            position = _walk_singly(buffer, position, walk, stop)
            if walk.index < stop:
                return position
            singly = min(singly * 2, _SINGLY_MAX)
        if walk.credit <= 0:
            return position
    # A record costs 2 units, so this many records use up the credit of the step.
    return _walk_singly(buffer, position, walk, min(walk.count, walk.index + (walk.credit + 1 >> 1)))


def _walk_by_loop(buffer: bytes, position: int, walk: Walk) -> int:
    """`_walk_chunk` by the loop of ordinary records; the general walk judges what lies between them."""
    while walk.index < walk.count and walk.credit > 0:
        run = ordinary_run(buffer, position, walk.index, walk.count)
        walk.credit -= run.end - position >> _LOOP_COST_SHIFT
        if run.count:
            walk.note_run(run)
            position = run.end
            continue
        stop = walk.index + 1
        position = _walk_singly(buffer, position, walk, stop)
        if walk.index < stop:
            break
    return position


# The hot loop of every produced batch that is not made of runs. One function on purpose: a call per field would double
# the cost of a record. Varints of one and of two bytes are read inline. A read past the end raises IndexError, which
# costs nothing as long as it does not happen, and the one comparison at the end of a record proves all of its lengths.
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
                position += 2  # and past the attributes, which have no meaning
            elif (high := buffer[position + 1]) < 128:
                length += (high << 7) - 128
                position += 3
            else:
                length, position = read_long_varint(buffer, position)
                position += 2
            # A record that is cut off, or has a negative length: the caller reads on, or refuses it.
            if (record_end := position - 1 + (length >> 1)) > end or length & 1:
                break
            if (delta := buffer[position]) > 127:
                position += 1
                # Above 16383 the second byte has its top bit set, so the varint is longer.
                if (delta := delta - 128 + (buffer[position] << 7)) > 16383:
                    delta, position = read_long_varint(buffer, position - 1, 64)
            # Neighbours often have the same timestamp: then nothing is compared. The deltas are still zigzag here.
            if delta != last_delta:
                last_delta = delta
                # Odd is negative in zigzag; this is the delta doubled, as in `Walk`.
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
                offset, position = read_long_varint(buffer, position + 1)
                position += 1
            # The record is not refused here: whether Kafka accepts it depends on the codec
            # (`records._corrected`).
            if offset != expected_offset:
                walk.is_in_order = False
            if (length := buffer[position]) > 127:
                length, position = read_long_varint(buffer, position)
            key_lengths |= length  # one odd length, a null key, makes it odd
            position += 1 if length & 1 else (length >> 1) + 1
            if (length := buffer[position]) > 127:
                position += 1
                if (length := length - 128 + (buffer[position] << 7)) > 16383:
                    length, position = read_long_varint(buffer, position - 1)
            position += 1 if length & 1 else (length >> 1) + 1
            position = _step_over_headers(buffer, position, walk) if buffer[position] else position + 1
            # A false length of a field has led to a wrong place by now. (Kafka does not compare the length of a
            # compressed record; it is refused here, because no consumer could read past such a record.)
            if position != record_end:
                raise invalid_records(f"the lengths within record {expected_offset >> 1} contradict each other")
            expected_offset += 2
    except IndexError:
        # The record is whole (`record_end` was set for it), so a length in it is false: unless `_step_over_headers` has
        # raised to end the step, or to leave the record to a cursor.
        if record_end > record_start and walk.credit > 0 and not walk.has_many_headers:
            raise invalid_records(f"a length within record {expected_offset >> 1} leads out of the batch") from None
    walk.credit -= expected_offset - (walk.index << 1)
    walk.index, walk.key_lengths = expected_offset >> 1, key_lengths
    return record_start if expected_offset < offset_end else position


def _step_over_headers(buffer: bytes | memoryview, position: int, walk: Walk) -> int:
    """The position after the headers, from that of the header count.

    IndexError if the buffer ends before, or if the record has to wait for the next step, or for a cursor.
    """
    doubled, position = read_varint(buffer, position)
    if doubled & 1:
        raise invalid_records("a record has a negative number of headers")
    count = doubled >> 1
    walk.has_many_headers = count > _HEADERS_AT_ONCE
    # The headers of earlier records count at once (below), so they may have used up the step by now.
    if walk.has_many_headers or walk.credit <= 0:
        raise IndexError
    walk.credit -= count
    passed, position = pass_headers(buffer, position, count)
    if passed < count:
        raise IndexError
    return position


def _walk_long_record(cursor: RecordCursor, walk: Walk) -> Iterator[None]:
    """Walk one record that is longer than a chunk, or has many headers."""
    length = cursor.read_number()
    start = cursor.consumed_bytes
    cursor.read_bytes(1)  # the attributes
    doubled_delta = cursor.read_number(64) << 1
    if doubled_delta > walk.highest:
        walk.highest, walk.highest_index = doubled_delta, walk.index
    walk.lowest = min(walk.lowest, doubled_delta)
    walk.is_in_order &= cursor.read_number() == walk.index
    key_length = cursor.read_number()
    walk.key_lengths |= key_length < 0  # sets the lowest bit, as an odd zigzag length would
    yield from cursor.skip(key_length)
    yield from cursor.skip(cursor.read_number())
    header_count = cursor.read_number()
    if header_count < 0:
        raise invalid_records("a record has a negative number of headers")
    if header_count > HEADERS_MAX:
        raise too_many_headers(header_count)
    yield from cursor.skip_headers(header_count)
    # The skips trusted the length of each field; this proves that they stayed inside the record.
    if cursor.consumed_bytes - start != length:
        raise invalid_records(f"the lengths within record {walk.index} contradict each other")
    walk.index += 1
    walk.has_many_headers = False
