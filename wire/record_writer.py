"""Making batches: the coordinators' own records, transaction markers, and the rebuild of what a producer sent.

Everything is written in format 2, with the shortest varints, offsets 0, 1, 2 … and timestamps relative to the first
record's, which is what the Java client and broker write.

A rebuild (`compression.type` of the topic differs from the producer's codec) runs record by record from a decompressing
stream into a compressor, so its memory is that of one record, two chunks and the result; the result is given up as soon
as it is larger than the topic allows.
"""

from collections.abc import Iterable, Iterator, Sequence

from barnabas.wire.compression import CHUNK_BYTES, Codec, CorruptRecords, compress, open_compressor
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import (
    BATCH_OVERHEAD_BYTES,
    CONTROL,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    assemble,
    read_batch_header,
)
from barnabas.wire.record_reader import CONTROL_KEY, CONTROL_VALUE, Record, read_raw_records, wrap_timestamp

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

    Offsets count up from `base_offset`; those of `Record`s are ignored. With LOG_APPEND_TIME among the `attributes`
    all records are of `timestamp_ms`. A batch without records cannot be built: ValueError.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
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
) -> Batch:
    """The marker that ends a transaction with ABORT or COMMIT (reference kafka-internals.md, D.3)."""
    return build_batch(
        [(CONTROL_KEY.pack(0, control_type), CONTROL_VALUE.pack(0, coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=CONTROL | TRANSACTIONAL,
    )


def rebuild(
    header: BatchHeader,
    batch: memoryview,
    codec: Codec,
    level: int | None,
    append_time_ms: int | None,
    max_bytes: int,
) -> Batch | None:
    """The batch's records written anew with this codec; None when that is larger than `max_bytes`.

    `append_time_ms` is the broker's time where the topic wants it, else None. Producer id, epoch, sequence and the
    transactional bit stay. A batch that came with a LOG_APPEND_TIME of its own has that one timestamp on all records.
    """
    compressor = open_compressor(codec, level)
    times = _Times(header)
    section = bytearray()
    pending = bytearray()
    for raw in read_raw_records(header, batch):
        delta = times.next_delta(raw.timestamp_delta)
        headers = [(key.decode("utf-8", "replace").encode(), value) for key, value in raw.headers]  # text, to Kafka
        pending += _encode_record(delta, times.count - 1, raw.key, raw.value, headers)
        if len(pending) >= CHUNK_BYTES:
            section += compressor.compress(bytes(pending))
            pending.clear()
            if len(section) + BATCH_OVERHEAD_BYTES > max_bytes:
                return None
    section += compressor.compress(bytes(pending)) + compressor.flush()
    if len(section) + BATCH_OVERHEAD_BYTES > max_bytes:
        return None
    has_append_time = append_time_ms is not None
    largest = times.largest if append_time_ms is None else append_time_ms
    data = assemble(
        header._replace(
            partition_leader_epoch=-1,
            attributes=(header.attributes & TRANSACTIONAL) | codec | (LOG_APPEND_TIME if has_append_time else 0),
            last_offset_delta=times.count - 1,
            base_timestamp=times.base,
            max_timestamp=largest,
        ),
        section,
    )
    return Batch(data, read_batch_header(data), largest, 0 if has_append_time else times.largest_index)


class _Times:
    """Turns the timestamps of a batch, record by record, into deltas from the first one."""

    def __init__(self, header: BatchHeader) -> None:
        self._header = header
        self.count = 0
        self.base = NO_TIMESTAMP
        self.largest = NO_TIMESTAMP
        self.largest_index = 0

    def next_delta(self, timestamp_delta: int) -> int:
        """The next record's delta in the new batch, from its delta in the old one."""
        header = self._header
        timestamp = wrap_timestamp(header.base_timestamp + timestamp_delta)
        if header.uses_log_append_time:
            timestamp = header.max_timestamp
        if timestamp < NO_TIMESTAMP:  # Kafka's builder fails on it, though its broker stores such a batch unchanged
            raise CorruptRecords(f"record {self.count} has the timestamp {timestamp}", ErrorCode.UNKNOWN_SERVER_ERROR)
        if not self.count:
            self.base = timestamp
        if timestamp > self.largest:
            self.largest, self.largest_index = timestamp, self.count
        self.count += 1
        return timestamp - self.base


def _encode_all(records: Iterable[tuple[bytes | None, bytes | None] | Record], times: Sequence[int]) -> Iterator[bytes]:
    for index, record in enumerate(records):
        delta = times[index] - times[0]
        if isinstance(record, Record):
            headers = [(key.encode(), value) for key, value in record.headers]
            yield _encode_record(delta, index, record.key, record.value, headers)
        else:
            yield _encode_record(delta, index, *record, ())


def _encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]],
) -> bytes:
    pieces = [_EMPTY, encode_varint(timestamp_delta), encode_varint(offset_delta)]
    _append_field(pieces, key)
    _append_field(pieces, value)
    pieces.append(encode_varint(len(headers)))
    for header_key, header_value in headers:
        _append_field(pieces, header_key)
        _append_field(pieces, header_value)
    body = b"".join(pieces)
    return encode_varint(len(body)) + body


def _append_field(pieces: list[bytes], field: bytes | None) -> None:
    if field is None:
        pieces.append(_NULL)
    else:
        pieces.append(encode_varint(len(field)))
        pieces.append(field)


def encode_varint(number: int) -> bytes:
    """Zigzag, seven bits a byte, lowest first; any width up to 64 bits."""
    value = number << 1 if number >= 0 else ~(number << 1)
    if value < 128:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
