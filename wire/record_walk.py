"""One pass over the records of a batch: are they well formed, and what is the broker to know about them?

A record (reference kafka-internals.md, D.3), all numbers zigzag varints:

    length | attributes i8 | timestamp delta | offset delta | key length, key | value length, value
    | header count | per header: key length, key, value length, value        (length -1: null)

*Theory of operation.* The broker needs four things from the records it is sent: that they fill the batch exactly, the
largest timestamp, whether offsets count 0, 1, 2 …, and whether a key is missing. So the walk makes no object per
record; keys and values are stepped over. Records that are alike are walked many at a time (`record_runs.py`); between
such runs, and where there are none, `_walk_singly` is the hot loop: every varint has its case for one and for two bytes
inline, reading past the end raises IndexError, and one comparison at the end of a record proves all its lengths.

Few uncompressed records are walked where they lie. All others arrive in chunks: the walk stops before a record that is
cut off, which is continued with the next chunk; a record that is longer than a chunk, or has many headers, is read
field by field (`record_cursor.py`) and its long fields are skipped in the stream. So memory is bounded by two chunks
whatever the records claim, and the walk may pause anywhere: it does when a step's worth is done.

Deviation from Apache Kafka 3.9, which does not look at the length of a *compressed* record: a false one is refused
here, for no consumer could read past it.
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
from barnabas.wire.record_runs import ROWS_MIN, Run, find_run

_VARINT_MAX_BYTES = 5
_RUN_COST = 80  # of looking for a run, in the units of a `Meter`; a record that is walked by itself costs 2
_HEADERS_AT_ONCE = 1000  # a record with more is left to the cursor, which may stop between two of them
_BELOW_EVERY_DELTA = -(1 << 65)
_ABOVE_EVERY_DELTA = 1 << 65
_SINGLY_MAX = 512  # so many records are walked one by one, at most, before a run is looked for again


class Walk(Meter):
    """What a walk has found so far. Timestamp deltas are kept doubled, as zigzag has them, until they are asked for."""

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
        self.credit, self.bytes_left = STEP_COST, RECORDS_MAX_BYTES  # as the meter does, without another call
        self.has_many_headers = False  # the next record, which is to be read with a cursor
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


def walk_at_once(buffer: bytes | memoryview, position: int, count: int) -> Walk | None:
    """Walk `count` records that fill `buffer` from `position` on; None if they do not, or it takes more than a step."""
    walk = Walk(count)
    position = _walk_chunk(buffer, position, walk)
    return walk if walk.index == count and position == len(buffer) else None


def walk_stream(stream: Stream, count: int) -> Walk:
    """Walk `count` records that make up the whole stream, in bounded memory; CorruptRecords unless they do."""
    walk = Walk(count)
    for _ in walking(stream, walk):
        pass
    return walk


def walking(stream: Stream, walk: Walk) -> Generator[None, None, None]:
    """The same in steps. `BeyondLimits` where the records cost more than those of a batch may."""
    count = walk.count
    buffer = walk.read(stream)
    while True:
        position = _walk_chunk(buffer, 0, walk)
        buffer = buffer[position:]
        if walk.index == count:
            break
        if walk.is_step_over():
            yield
            continue
        if len(buffer) >= _VARINT_MAX_BYTES:
            length, _ = read_varint(buffer, 0)
            if length & 1:
                raise invalid_records(f"record {walk.index} has a negative length")
            if length >> 1 > CHUNK_BYTES or walk.has_many_headers:
                if length >> 1 > walk.bytes_left + len(buffer):
                    raise beyond_limits(
                        f"record {walk.index} has {length >> 1} bytes, more than the batch may have left"
                    )
                cursor = RecordCursor(stream, walk, buffer)
                yield from _walk_long_record(cursor, walk)
                buffer = cursor.unread
                continue
        chunk = walk.read(stream)
        if not chunk:
            raise invalid_records(f"record {walk.index} of {count} does not end within the batch")
        buffer += chunk
    if buffer or walk.read(stream):
        raise invalid_records(f"bytes follow the last of {count} records")


def _walk_chunk(buffer: bytes | memoryview, position: int, walk: Walk) -> int:
    """Walk the records that lie whole in buffer[position:]; returns where the first other one begins, or where the step
    is over.

    Runs are looked for in bytes, whose slices with a step are taken several times as fast as those of a view; a view is
    walked where it lies. Where no run is found, the next search is put off twice as long: records that are never alike
    cost a few searches.
    """
    singly = 2
    while isinstance(buffer, bytes) and walk.count - walk.index >= ROWS_MIN:
        run = find_run(buffer, position, walk.index, walk.count - walk.index)
        walk.credit -= _RUN_COST
        if run is not None:
            walk.note_run(run)
            position, singly = run.end, 2
        else:
            stop = min(walk.index + singly, walk.count)
            position = _walk_singly(buffer, position, walk, stop)
            if walk.index < stop:
                return position
            singly = min(singly * 2, _SINGLY_MAX)
        if walk.credit <= 0:
            return position
    return _walk_singly(buffer, position, walk, min(walk.count, walk.index + (walk.credit + 1 >> 1)))


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
                length, position = read_long_varint(buffer, position)
                position += 2
            if (record_end := position - 1 + (length >> 1)) > end or length & 1:
                break
            if (delta := buffer[position]) > 127:
                position += 1
                if (delta := delta - 128 + (buffer[position] << 7)) > 16383:
                    delta, position = read_long_varint(buffer, position - 1, 64)
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
                offset, position = read_long_varint(buffer, position + 1)
                position += 1
            if offset != expected_offset:
                walk.is_in_order = False
            if (length := buffer[position]) > 127:
                length, position = read_long_varint(buffer, position)
            key_lengths |= length
            position += 1 if length & 1 else (length >> 1) + 1
            if (length := buffer[position]) > 127:
                position += 1
                if (length := length - 128 + (buffer[position] << 7)) > 16383:
                    length, position = read_long_varint(buffer, position - 1)
            position += 1 if length & 1 else (length >> 1) + 1
            position = _step_over_headers(buffer, position, walk) if buffer[position] else position + 1
            if position != record_end:
                raise invalid_records(f"the lengths within record {expected_offset >> 1} contradict each other")
            expected_offset += 2
    except IndexError:
        if record_end > record_start and walk.credit > 0 and not walk.has_many_headers:
            raise invalid_records(f"a length within record {expected_offset >> 1} leads out of the batch") from None
    walk.credit -= expected_offset - (walk.index << 1)
    walk.index, walk.key_lengths = expected_offset >> 1, key_lengths
    return record_start if expected_offset < offset_end else position


def _step_over_headers(buffer: bytes | memoryview, position: int, walk: Walk) -> int:
    """From the header count to the end of the headers.

    IndexError where that lies behind the buffer, or the record is to be walked in the next step, or with a cursor.
    """
    doubled, position = read_varint(buffer, position)
    if doubled & 1:
        raise invalid_records("a record has a negative number of headers")
    count = doubled >> 1
    walk.has_many_headers = count > _HEADERS_AT_ONCE
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
    cursor.read_bytes(1)
    doubled_delta = cursor.read_number(64) << 1
    if doubled_delta > walk.highest:
        walk.highest, walk.highest_index = doubled_delta, walk.index
    walk.lowest = min(walk.lowest, doubled_delta)
    walk.is_in_order &= cursor.read_number() == walk.index
    key_length = cursor.read_number()
    walk.key_lengths |= key_length < 0
    yield from cursor.skip(key_length)
    yield from cursor.skip(cursor.read_number())
    header_count = cursor.read_number()
    if header_count < 0:
        raise invalid_records("a record has a negative number of headers")
    if header_count > HEADERS_MAX:
        raise too_many_headers(header_count)
    yield from cursor.skip_headers(header_count)
    if cursor.consumed_bytes - start != length:
        raise invalid_records(f"the lengths within record {walk.index} contradict each other")
    walk.index += 1
    walk.has_many_headers = False
