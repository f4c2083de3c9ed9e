"""Reads one part of a segment file, batch by batch: the records, and what cannot be read.

Reading continues wherever Kafka's own readers can continue. A batch with a wrong checksum still has a length, so it is
skipped and the next one is read. If the bytes are not a batch at all (a torn tail, zeros after a power failure, a
damaged length), the position of the next batch is unknown, and reading of this part ends. Each of these cases becomes
one `Found` with a text in `problem`; only StorageError is raised.

Records are read a batch at a time by a fast loop for well-formed records. Other batches, and batches that are large
when decompressed, go to the reader of `wire`, which holds one record at a time and reports what is wrong.

A file that is being written may end within a batch. With `is_growing` that is the end and not a problem.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.storage.disk import File
from barnabas.storage.dump import CODECS
from barnabas.storage.entries import EntrySpan, leader_epoch_of, walk_file
from barnabas.wire.compression import CHUNK_BYTES, open_stream
from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.record_cursor import read_varint, read_varlong
from barnabas.wire.records import (
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    LOG_APPEND_TIME,
    BatchHeader,
    CorruptRecords,
    is_intact,
    read_batch_header,
    read_records,
)

NO_NUMBER = -1  # what Kafka writes where there is no producer, no epoch, no sequence
LEGACY_ATTRIBUTES_AT = 17
NUMBER_MAX = (1 << 63) - 1
OFFSET_MAX = NUMBER_MAX - (1 << 32)  # so that no delta leads out of 64 bits
AT_ONCE_BYTES_MAX = 8 << 20  # decompressed; above, records are read one by one
PIECE_RECORDS = 4096

Headers = list[tuple[str, bytes | None]]


class Facts(NamedTuple):
    """What is the same for all records of a batch; None where the bytes do not say."""

    base_offset: int | None
    last_offset: int | None
    leader_epoch: int | None
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    codec: str | None
    magic: int | None
    timestamp_type: str | None
    control: bool | None
    transactional: bool | None
    crc_ok: bool
    position: int
    batch_bytes: int


UNKNOWN = Facts(None, None, None, None, None, None, None, None, None, None, None, False, 0, 0)


class Columns(NamedTuple):
    """Records of one batch, column by column."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers | None]  # None where there are none

    @classmethod
    def empty(cls) -> "Columns":
        return cls([], [], [], [], [])


class Found(NamedTuple):
    """A batch with its bytes, or a problem with none."""

    facts: Facts
    problem: str | None
    data: memoryview

    def pieces(self) -> Iterator[Columns]:
        """Its records: all at once, or of a large batch some at a time. CorruptRecords where they contradict the
        checksum's word that all is well; what was given before then stands."""
        if self.problem is not None:
            return
        columns = _read_at_once(self.data) if self.facts.magic == BATCH_MAGIC else None
        if columns is not None:
            yield columns
        else:
            yield from _read_in_pieces(self.data)


def scan(file: File, start: int, end: int, *, is_growing: bool = False) -> Iterator[Found]:
    """Every batch from `start` on. An empty batch, which compaction leaves, has no records. Blocking: long."""
    # Offsets are compared within this part only: the part before it is another task's.
    position = start
    next_offset = None
    for span, data in walk_file(file, start, end):
        facts = _facts_of(span, data)
        if next_offset is not None and span.base_offset < next_offset and span.magic == BATCH_MAGIC:
            # The batch itself is given, too: its records can be read, and the order is a finding of
            # its own.
            yield Found(facts, f"offset {span.base_offset} after {next_offset - 1}: offsets go back", memoryview(b""))
        yield Found(facts, _problem_of(facts), data)
        position = span.position + span.size_bytes
        next_offset = span.last_offset + 1
    # A broker that is writing has perhaps written only a part of its last batch yet.
    left = end - position
    if left and not is_growing:
        yield Found(_unknown(position, left), f"no whole batch in the last {left} bytes", memoryview(b""))


def _problem_of(facts: Facts) -> str | None:
    """Why the batch is not read."""
    if not facts.crc_ok:
        return "the checksum is wrong"
    if (facts.base_offset or 0) > OFFSET_MAX:  # the base offset lies outside of what the checksum covers
        return f"no log reaches offset {facts.base_offset}"
    return None


def _unknown(position: int, size_bytes: int) -> Facts:
    return UNKNOWN._replace(position=position, batch_bytes=size_bytes)


def _facts_of(span: EntrySpan, data: memoryview) -> Facts:
    if span.magic < BATCH_MAGIC:
        return _legacy_facts(span, data)
    if span.size_bytes < BATCH_OVERHEAD_BYTES:
        return _unknown(span.position, span.size_bytes)._replace(base_offset=span.base_offset, magic=span.magic)
    # The checksum may be wrong, so each field may have any value. Facts are shown as they are, and
    # nothing is computed from them.
    header = read_batch_header(data)
    return Facts(
        base_offset=span.base_offset,
        last_offset=span.last_offset if span.last_offset <= NUMBER_MAX else None,
        leader_epoch=leader_epoch_of(span, data),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        codec=CODECS[header.codec],
        magic=span.magic,
        timestamp_type="LogAppendTime" if header.uses_log_append_time else "CreateTime",
        control=header.is_control,
        transactional=header.is_transactional,
        crc_ok=is_intact(data),
        position=span.position,
        batch_bytes=span.size_bytes,
    )


def _legacy_facts(span: EntrySpan, data: memoryview) -> Facts:
    """A message of format 0 or 1, or a compressed one with messages inside, whose offset is that of the last."""
    attributes = data[LEGACY_ATTRIBUTES_AT]
    time = "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime"
    return Facts(
        base_offset=span.base_offset,
        last_offset=span.last_offset,
        leader_epoch=NO_NUMBER,
        producer_id=NO_NUMBER,
        producer_epoch=NO_NUMBER,
        base_sequence=NO_NUMBER,
        codec=CODECS[attributes & CODEC_MASK],
        magic=span.magic,
        timestamp_type=time if span.magic else "NoTimestampType",
        control=False,
        transactional=False,
        crc_ok=is_intact(data),
        position=span.position,
        batch_bytes=span.size_bytes,
    )


# -- records


def _read_in_pieces(data: memoryview) -> Iterator[Columns]:
    """The records of a batch, some at a time. CorruptRecords; what was read before the damage is given first."""
    columns = Columns.empty()
    size_bytes = 0
    try:
        for record in read_records(data):
            columns.offsets.append(record.offset)
            columns.timestamps.append(record.timestamp)
            columns.keys.append(record.key)
            columns.values.append(record.value)
            columns.headers.append(record.headers or None)
            size_bytes += len(record.key or b"") + len(record.value or b"")
            if len(columns.offsets) >= PIECE_RECORDS or size_bytes >= AT_ONCE_BYTES_MAX:
                yield columns
                columns = Columns.empty()
                size_bytes = 0
    # The generator gives what is complete before it raises, so that a reader loses one record and
    # not a piece.
    except CorruptRecords:
        if columns.offsets:
            yield columns
        raise

    if columns.offsets:
        yield columns


def _read_at_once(data: memoryview) -> Columns | None:
    """The records of a batch; None if they are better read one by one."""
    header = read_batch_header(data)
    try:
        section = _decompressed(header, data)
        # This way is several times as fast. Whatever it cannot read goes the other way, which says
        # exactly what is wrong.
        columns = None if section is None else _parse(section, header)
    except (CorruptRecords, IndexError):
        return None
    if columns is not None and columns.timestamps:
        # A delta may lead out of the 64 bits that a column has.
        if max(columns.timestamps) > NUMBER_MAX or min(columns.timestamps) < ~NUMBER_MAX:
            return None
        if header.uses_log_append_time:
            columns = columns._replace(timestamps=[header.max_timestamp] * len(columns.offsets))
    return columns


def _decompressed(header: BatchHeader, data: memoryview) -> bytes | None:
    """The records of a batch as bytes; None if they are too many."""
    if not header.codec:
        return bytes(data[BATCH_OVERHEAD_BYTES:]) if len(data) <= AT_ONCE_BYTES_MAX else None
    stream = open_stream(header.codec, data[BATCH_OVERHEAD_BYTES:])
    pieces: list[bytes] = []
    size_bytes = 0
    # A small batch may decompress into gigabytes, so this stops as soon as it is too much.
    while chunk := stream.read(CHUNK_BYTES):
        pieces.append(chunk)
        size_bytes += len(chunk)
        if size_bytes > AT_ONCE_BYTES_MAX:
            return None
    return b"".join(pieces)


def _parse(section: bytes, header: BatchHeader) -> Columns | None:
    """Records that fill these bytes exactly; None, or IndexError, if they do not.

    The hot loop: numbers of one byte, which most are, are read in line.
    """
    columns = Columns.empty()
    offsets = columns.offsets.append
    timestamps = columns.timestamps.append
    keys = columns.keys.append
    values = columns.values.append
    headers = columns.headers.append
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    position = 0
    for _ in range(header.record_count):
        number, position = _unsigned(section, position)
        end = position + (number >> 1)
        position += 1  # attributes, which say nothing
        if (byte := section[position]) < 128:
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
            position = position + 1
        else:
            timestamp_delta, position = read_varlong(section, position)
        if (number := section[position]) < 128:
            position += 1
        else:
            number, position = read_varint(section, position)
        offsets(base_offset + ((number >> 1) ^ -(number & 1)))
        timestamps(base_timestamp + timestamp_delta)
        for column in (keys, values):
            if (number := section[position]) < 128:
                position += 1
            else:
                number, position = read_varint(section, position)
            if number & 1:
                column(None)
            else:
                stop = position + (number >> 1)
                column(section[position:stop])
                position = stop
        if section[position]:
            found, position = _parse_headers(section, position)
            headers(found)
        else:
            headers(None)
            position += 1
        # A record whose fields do not fill its length is damaged, and this reader does not say
        # where.
        if position != end:
            return None

    return columns if position == len(section) else None


def _parse_headers(section: bytes, position: int) -> tuple[Headers, int]:
    """The headers of a record. IndexError where one has no key."""
    count, position = _unsigned(section, position)
    found = []
    for _ in range(count >> 1):
        key, position = _field(section, position)
        value, position = _field(section, position)
        if key is None:
            raise IndexError
        found.append((key.decode("utf-8", "replace"), value))
    return found, position


def _field(section: bytes, position: int) -> tuple[bytes | None, int]:
    number, position = _unsigned(section, position)
    if number & 1:
        return None, position
    end = position + (number >> 1)
    return section[position:end], end


def _unsigned(section: bytes, position: int) -> tuple[int, int]:
    """A number as it is written, doubled."""
    if (byte := section[position]) < 128:
        return byte, position + 1
    return read_varint(section, position)
