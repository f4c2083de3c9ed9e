"""Builds batches: the coordinators' own records, transaction markers, and produced batches in another codec.

All are written in format 2 with the shortest varints, offset deltas 0, 1, 2 … and timestamps relative to that of the
first record, as the Java client and broker write them.

A produced batch is rebuilt if the topic's `compression.type` differs from the producer's codec: records go from a
decompressing stream into a compressor, in bounded steps. Records of up to `RECORD_IN_HAND_BYTES` are held whole and
written in the usual form; longer ones are copied in pieces, unchanged behind the offset delta. So a few chunks and the
result are in memory, and the result is abandoned as soon as it is larger than the topic allows.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence

from barnabas.wire.compression import CHUNK_BYTES, Codec, CorruptRecords, opening
from barnabas.wire.compressors import compress, compressor_bytes, open_compressor
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import (
    BATCH_OVERHEAD_BYTES,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    assemble,
    finish,
    read_batch_header,
)
from barnabas.wire.record_cursor import (
    HEADERS_MAX,
    RECORDS_MAX_BYTES,
    Meter,
    RecordCursor,
    Steps,
    holding,
    invalid_records,
    null_header_key,
    read_varlong,
    too_many_headers,
)
from barnabas.wire.record_reader import (
    CONTROL_KEY,
    CONTROL_VALUE,
    UNCHANGED,
    Record,
    read_field,
    read_signed,
    timestamp_of,
)
from barnabas.wire.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP

RECORD_IN_HAND_BYTES = 4 * CHUNK_BYTES  # a longer record is copied in pieces
# The cost of writing, in the units of a `Meter`: of a record, of a header, and one unit for 16 bytes that are
# compressed (64 MB/s, about the speed of gzip).
_RECORD_COST = 16
_HEADER_COST = 6
_COMPRESSED_COST_SHIFT = 4

_ONE_BYTE = [bytes((number,)) for number in range(128)]
_NULL = _ONE_BYTE[1]  # the length -1
_EMPTY = _ONE_BYTE[0]


def build_batch(  # noqa: PLR0913  # the header's own fields, all by keyword
    records: Sequence[tuple[bytes | None, bytes | None] | Record],
    *,
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
) -> Batch:
    """A batch of (key, value) pairs at `timestamp_ms`, or of `Record`s with their own timestamps and headers.

    Offsets count up from `base_offset`; those of `Record`s are ignored. With LOG_APPEND_TIME in `attributes` all
    records have `timestamp_ms`. ValueError without records.
    """
    if not records:
        raise ValueError("a batch needs at least one record")

    # The coordinators store a record at a time, which this does in half the time.
    if len(records) == 1 and not codec and not isinstance(records[0], Record):
        data = bytearray(BATCH_OVERHEAD_BYTES)
        data += _encode_alone(*records[0])
        times_and_producer = timestamp_ms, timestamp_ms, producer_id, producer_epoch, base_sequence
        finish(data, (base_offset, 0, leader_epoch, 2, 0, attributes, 0, *times_and_producer, 1))
        return Batch(data, read_batch_header(data), timestamp_ms, 0)

    # A `Record` is a tuple as well, so its own class is checked.
    times = [record.timestamp if isinstance(record, Record) else timestamp_ms for record in records]
    largest = max(times)
    section = b"".join(_encode_all(records, times))
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=len(records) - 1,
        base_timestamp=times[0],
        max_timestamp=timestamp_ms if attributes & LOG_APPEND_TIME else largest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    data = assemble(header, compress(codec, section, level))

    # With LogAppendTime all records have the same timestamp: the first one is the newest.
    newest = 0 if attributes & LOG_APPEND_TIME else times.index(largest)
    return Batch(data, read_batch_header(data), header.max_timestamp, newest)


def build_control_batch(
    control_type: int,
    *,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    uses_log_append_time: bool = False,
) -> Batch:
    """The marker that ends a transaction with ABORT or COMMIT (reference kafka-internals.md, D.3).

    It is never compressed, whatever the topic's compression.type; `uses_log_append_time` is the topic's setting.
    """
    return build_batch(
        [(CONTROL_KEY.pack(0, control_type), CONTROL_VALUE.pack(0, coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=CONTROL | TRANSACTIONAL | (LOG_APPEND_TIME if uses_log_append_time else 0),
    )


def rebuilding(
    header: BatchHeader,
    batch: memoryview,
    codec: Codec,
    level: int | None,
    append_time_ms: int | None,
    max_bytes: int,
) -> Steps[Batch | None]:
    """The records of the batch, written again with this codec, in steps; None if they become larger than `max_bytes`.

    `append_time_ms` is the broker's time for topics with LogAppendTime, else None. Producer id, epoch, sequence and the
    transactional bit stay. If the producer's batch has the LOG_APPEND_TIME bit, all records get that one timestamp.
    """
    stream = yield from opening(header.codec, batch[BATCH_OVERHEAD_BYTES:])
    meter = Meter(RECORDS_MAX_BYTES)
    times = Times(header)
    section = Section(codec, level, meter, max_bytes - BATCH_OVERHEAD_BYTES)
    rewriting = _rewriting(RecordCursor(stream, meter), header.record_count, times, section, meter)
    if not (yield from holding(lambda: stream.held_bytes + section.held_bytes, rewriting)):
        return None
    return finished_batch(header, section, times, codec, append_time_ms)


def _rewriting(
    cursor: RecordCursor, record_count: int, times: "Times", section: "Section", meter: Meter
) -> Generator[None, None, bool]:
    """Write every record into the section; False if it becomes too large."""
    for _ in range(record_count):
        length = cursor.read_number()
        if length > RECORD_IN_HAND_BYTES:
            yield from _copy_long_record(cursor, length, times, section, meter)
        else:
            yield from _rewrite_record(cursor.read_bytes(max(length, 0)), times, section, meter)
        # Each record can only add to the size, so the rest need not be decompressed.
        if section.is_too_large:
            return False
        meter.credit -= _RECORD_COST
        if meter.is_step_over():
            yield

    if not cursor.is_at_end():
        raise invalid_records("bytes follow the last record")
    return True


def finished_batch(
    header: BatchHeader, section: "Section", times: "Times", codec: Codec, append_time_ms: int | None
) -> Batch | None:
    """The batch with the records of this section and the producer of this header; None if it is too large."""
    compressed = section.finished()
    if section.is_too_large:
        return None
    has_append_time = append_time_ms is not None
    largest = times.largest if append_time_ms is None else append_time_ms
    data = assemble(
        header._replace(
            partition_leader_epoch=-1,  # until the leader stamps it
            attributes=(header.attributes & TRANSACTIONAL) | codec | (LOG_APPEND_TIME if has_append_time else 0),
            last_offset_delta=times.count - 1,
            base_timestamp=times.base,
            max_timestamp=largest,
            record_count=times.count,
        ),
        compressed,
    )
    return Batch(data, read_batch_header(data), largest, 0 if has_append_time else times.largest_index)


class Section:
    """The records section of a batch, compressed as it is written.

    A caller that adds at most one chunk at a time may pause between chunks.
    """

    def __init__(self, codec: Codec, level: int | None, meter: Meter, bytes_max: int) -> None:
        self._compressor = open_compressor(codec, level)
        self._compressor_bytes = compressor_bytes(codec, level)
        self._meter = meter
        self._bytes_max = bytes_max
        self._pending = bytearray()
        self._compressed = bytearray()

    @property
    def held_bytes(self) -> int:
        """The number of bytes that the compressor will hold."""
        return self._compressor_bytes

    @property
    def is_too_large(self) -> bool:
        """Whether the batch is larger than the topic allows, by the bytes compressed so far."""
        return len(self._compressed) > self._bytes_max

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes."""
        # Small pieces are gathered: a call of the compressor for each record would cost more than the compression.
        self._pending += data
        if len(self._pending) >= CHUNK_BYTES:
            self._compress()

    def finished(self) -> bytearray:
        """The whole section, compressed. The compressor is used up."""
        self._compress()
        self._compressed += self._compressor.flush()
        return self._compressed

    def _compress(self) -> None:
        self._compressed += self._compressor.compress(bytes(self._pending))
        self._meter.credit -= len(self._pending) >> _COMPRESSED_COST_SHIFT
        self._pending.clear()


def _copy_long_record(
    cursor: RecordCursor, length: int, times: "Times", section: Section, meter: Meter
) -> Iterator[None]:
    """Copy a record in pieces, with new timestamp and offset deltas."""
    end = cursor.consumed_bytes + length
    cursor.read_bytes(1)  # the attributes, which Kafka writes as 0
    head = _EMPTY + encode_varint(times.next_delta(cursor.read_number(64))) + encode_varint(times.count - 1)
    cursor.read_number()  # the old offset delta, which may be out of order
    left = end - cursor.consumed_bytes
    # The new head may be shorter or longer than the old one, so the length is computed again.
    section.add(encode_varint(len(head) + left) + head)
    while left and not section.is_too_large:
        piece = cursor.read_some(left)
        left -= len(piece)
        section.add(piece)
        if meter.is_step_over():
            yield


def _rewrite_record(body: bytes, times: "Times", section: Section, meter: Meter) -> Iterator[None]:
    """Write a record in the usual form: the shortest varints, header keys in UTF-8."""
    record = bytearray(_EMPTY)
    try:
        timestamp_delta, position = read_varlong(body, 1)
        record += encode_varint(times.next_delta(timestamp_delta))
        record += encode_varint(times.count - 1)
        _, position = read_signed(body, position)  # the old offset delta
        key, position = read_field(body, position)
        _append_field(record, key)
        value, position = read_field(body, position)
        _append_field(record, value)
        header_count, position = read_signed(body, position)
        if header_count > HEADERS_MAX:
            raise too_many_headers(header_count)
        record += encode_varint(header_count)
        for _ in range(header_count):
            key, position = read_field(body, position)
            if key is None:
                raise null_header_key()

            # Kafka reads header keys as text and writes them again, which replaces invalid bytes by U+FFFD.
            _append_field(record, key if key.isascii() else key.decode("utf-8", "replace").encode())
            value, position = read_field(body, position)
            _append_field(record, value)
            meter.credit -= _HEADER_COST
            if meter.is_step_over():
                yield
    except IndexError:
        raise invalid_records("a length within a record leads out of it") from None

    if position != len(body) or header_count < 0:
        raise invalid_records("the lengths within a record contradict each other")
    section.add(encode_varint(len(record)) + record)


class Times:
    """Converts the timestamps of a batch, record by record, into deltas from the first one."""

    def __init__(self, header: BatchHeader) -> None:
        self._header = header
        self.count = 0
        self.base = NO_TIMESTAMP
        self.largest = NO_TIMESTAMP
        self.largest_index = 0

    def next_delta(self, timestamp_delta: int) -> int:
        """The delta of the next record in the new batch, from its delta in the old one."""
        timestamp = timestamp_of(self._header, timestamp_delta)
        # Kafka's builder throws here, although its broker stores such a batch if it need not rebuild it.
        if timestamp < NO_TIMESTAMP:
            raise CorruptRecords(f"record {self.count} has the timestamp {timestamp}", ErrorCode.UNKNOWN_SERVER_ERROR)
        if not self.count:
            self.base = timestamp
        # The comparison is `>`: of equal timestamps the first record counts (KIP-734).
        if timestamp > self.largest:
            self.largest = timestamp
            self.largest_index = self.count
        self.count += 1
        return timestamp - self.base


def _encode_all(records: Iterable[tuple[bytes | None, bytes | None] | Record], times: Sequence[int]) -> Iterator[bytes]:
    for index, record in enumerate(records):
        delta = times[index] - times[0]
        if isinstance(record, Record):
            headers = [(key.encode("utf-8", UNCHANGED), value) for key, value in record.headers]
            yield _encode_record(delta, index, record.key, record.value, headers)
        else:
            yield _encode_record(delta, index, *record, ())


def _encode_alone(key: bytes | None, value: bytes | None) -> bytes:
    """The only record of a batch, at its time and without headers."""
    key_head = _NULL if key is None else encode_varint(len(key))
    value_head = _NULL if value is None else encode_varint(len(value))
    # Attributes, timestamp delta and offset delta are 0, and so is the number of headers.
    body = b"".join((b"\0\0\0", key_head, key or b"", value_head, value or b"", b"\0"))
    return encode_varint(len(body)) + body


def _encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]],
) -> bytes:
    body = bytearray(_EMPTY)
    body += encode_varint(timestamp_delta)
    body += encode_varint(offset_delta)
    _append_field(body, key)
    _append_field(body, value)
    body += encode_varint(len(headers))
    for header_key, header_value in headers:
        _append_field(body, header_key)
        _append_field(body, header_value)
    return encode_varint(len(body)) + bytes(body)


def _append_field(record: bytearray, field: bytes | None) -> None:
    if field is None:
        record += _NULL
    else:
        record += encode_varint(len(field))
        record += field


def encode_varint(number: int) -> bytes:
    """A signed varint: zigzag, seven bits a byte, the lowest first; up to 64 bits."""
    # Zigzag: 0, -1, 1, -2 ... become 0, 1, 2, 3 ..., so that small negative numbers are short, too.
    value = number << 1 if number >= 0 else ~(number << 1)
    if value < 128:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
