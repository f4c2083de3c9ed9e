"""Compaction's look into a batch: the keys it holds, and what is left of it when some of its records go (KIP-58, 534).

Compaction keeps, of all records with one key, the one with the highest offset. `note_keys` collects key -> offset;
`sift` says of each record whether it stays; `rebuild_sifted` writes what stays as a batch again. Rules of a rebuilt
batch, which are Apache Kafka's (reference kafka-internals.md, D.8):

- offsets never change: base offset, last offset delta and the deltas of the records that stay are as they were, though
  records between them, or at either end, are gone. So are producer, epoch, sequence, leader epoch and codec;
- the base timestamp is that of the first record that stays, and the maximum that of the newest one;
- a batch with tombstones (records without value) is given a *delete horizon* when it is first cleaned: the time from
  which on they may go too. It stands in the place of the base timestamp, and bit 6 of the attributes says so;
- a batch of which nothing stays vanishes, or is left as a header alone (`empty_batch`) where its offsets and sequence
  are still needed.

*Theory of operation.* As in `record_walk` there is no object per record: a loop steps from field to field and copies
only the key. What stays is a list of runs (start, end), so that neighbours are copied together. Compressed batches are
read as a stream in pieces of whole records, and a second time, with the same verdict, if they must be rebuilt. A record
longer than `LONG_RECORD_BYTES` is a piece of its own, of which only the head is in hand: its value and its headers, of
any length, are skipped or copied as they stream past. So memory is that of two pieces and the result. A key longer than
that is not for a map of keys: BeyondLimits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.wire.compression import CHUNK_BYTES, Codec, CorruptRecords, open_compressor, open_stream
from barnabas.wire.record_batch import (
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
)
from barnabas.wire.record_cursor import (
    Meter,
    RecordCursor,
    beyond_limits,
    invalid_records,
    read_varint,
    read_varlong,
)
from barnabas.wire.record_reader import RECORD_MAX_BYTES, wrap_timestamp
from barnabas.wire.record_writer import encode_varint
from barnabas.wire.sentinels import NO_OFFSET, NO_TIMESTAMP

KEY_BYTES_MAX = 48  # a longer key is represented by its hash, so that keys of any length take bounded memory
LONG_RECORD_BYTES = 1 << 20  # what of a compressed batch is held whole
_HASH_BYTES = KEY_BYTES_MAX + 1  # which no key that represents itself is as long as
_ZIGZAG_KEY_MAX = KEY_BYTES_MAX << 1
_NO_ATTRIBUTES = b"\0"
_KEPT_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON

Runs = list[tuple[int, int]]  # where bytes that stay begin and end


class Piece(NamedTuple):
    """Records of a batch, decompressed: `record_count` of them fill buffer[start:end].

    Of a long record the buffer holds the head alone, up to the value's length; `rest` is what follows, once.
    """

    buffer: bytes
    start: int
    end: int
    record_count: int
    rest: Iterable[bytes] = ()


class Sifted(NamedTuple):
    """What stays of a batch."""

    record_count: int
    has_tombstones: bool  # one of them has no value
    runs: Runs | None  # where they are; of a compressed batch that is found out again, for they may be millions


def read_pieces(header: BatchHeader, window: bytes, position: int) -> Iterator[Piece]:
    """The records of the format 2 batch at `position`. CorruptRecords unless they fill it exactly."""
    start, end = position + BATCH_OVERHEAD_BYTES, position + header.size_bytes
    codec = header.codec
    if codec == Codec.NONE:
        yield Piece(window, start, end, header.record_count)
        return
    stream = open_stream(codec, memoryview(window)[start:end])
    left, buffer = header.record_count, b""
    while left:
        whole, count, missing = _whole_records(buffer, left)
        if count:
            yield Piece(buffer, 0, whole, count)
            left -= count
            buffer = buffer[whole:]
        elif missing > LONG_RECORD_BYTES:
            cursor = RecordCursor(stream, Meter(), buffer)
            piece = _long_record(cursor)
            yield piece
            for _ in piece.rest:
                pass  # it was not needed
            left -= 1
            buffer = cursor.unread
        else:
            arrived = _read_up_to(stream.read, max(missing, CHUNK_BYTES))
            if not arrived:
                raise invalid_records(f"the stream ends {left} records before the end of the batch")
            buffer += arrived
    if buffer or stream.read(1):
        raise invalid_records("bytes follow the last record")


def _long_record(cursor: RecordCursor) -> Piece:
    """The record that comes next, its head with numbers as short as they can be."""
    end = cursor.read_number()
    end += cursor.consumed_bytes
    cursor.read_bytes(1)
    deltas = encode_varint(cursor.read_number(64)) + encode_varint(cursor.read_number())
    key_length = cursor.read_number()
    if key_length > LONG_RECORD_BYTES:
        raise beyond_limits(f"a key of {key_length} bytes is too long to be compared with others")
    key = encode_varint(key_length) + cursor.read_bytes(max(key_length, 0))
    head = _NO_ATTRIBUTES + deltas + key + encode_varint(cursor.read_number())
    left = end - cursor.consumed_bytes
    if left < 0:
        raise invalid_records("the lengths within a record contradict each other")
    head = encode_varint(len(head) + left) + head
    return Piece(head, 0, len(head) + left, 1, _rest(cursor, left))


def _rest(cursor: RecordCursor, left: int) -> Iterator[bytes]:
    while left:
        piece = cursor.read_some(left)
        left -= len(piece)
        yield piece


def note_keys(header: BatchHeader, window: bytes, position: int, newest: dict[bytes, int]) -> None:
    """Let `newest` name, for each key in the batch at `position`, the offset of its last record there.

    The batch must be later than all that `newest` knows. CorruptRecords if the records do not fill it.
    """
    try:
        if header.attributes & CODEC_MASK:
            for piece in read_pieces(header, window, position):
                _note_piece(*piece[:4], header.base_offset, newest)
        else:
            start, end = position + BATCH_OVERHEAD_BYTES, position + LENGTH_OVERHEAD_BYTES + header.batch_length
            _note_piece(window, start, end, header.record_count, header.base_offset, newest)
    except IndexError:
        raise _leads_out(header) from None


def note_values(
    header: BatchHeader, window: bytes, position: int, newest: dict[bytes, tuple[int, bytes | None]]
) -> None:
    """The same with the offset and the value of the record, whose key must not be null: for who reads a compacted log.

    Keys are not shortened here. CorruptRecords if the records do not fill the batch, or one has no key.
    """
    try:
        for piece in read_pieces(header, window, position):
            _note_values_of_piece(_whole(piece), header.base_offset, newest)
    except IndexError:
        raise _leads_out(header) from None


def sift(
    header: BatchHeader, window: bytes, position: int, newest: Mapping[bytes, int], drop_tombstones: bool
) -> Sifted:
    """Which records of the batch at `position` stay: those with a key of which no newer record is known, and a value,
    or the right to have none. CorruptRecords as `note_keys`."""
    try:
        if not header.attributes & CODEC_MASK:
            start, end = position + BATCH_OVERHEAD_BYTES, position + LENGTH_OVERHEAD_BYTES + header.batch_length
            return _sift_piece(window, start, end, header.record_count, header.base_offset, newest, drop_tombstones)
        record_count, has_tombstones = 0, False
        for piece in read_pieces(header, window, position):
            sifted = _sift_piece(*piece[:4], header.base_offset, newest, drop_tombstones)
            record_count += sifted.record_count
            has_tombstones |= sifted.has_tombstones
    except IndexError:
        raise _leads_out(header) from None
    return Sifted(record_count, has_tombstones, None)


def rebuild_sifted(
    header: BatchHeader,
    window: bytes,
    position: int,
    sifted: Sifted,
    newest: Mapping[bytes, int],
    drop_tombstones: bool,
    horizon_ms: int | None,
) -> bytearray:
    """The batch of what stays, at least one record; with this delete horizon unless it has one already.

    `sifted` is what `sift` has made of these arguments.
    """
    times = _Times(header, horizon_ms)
    compressor = open_compressor(Codec(header.codec))
    section = bytearray()
    for piece in read_pieces(header, window, position):
        runs = sifted.runs
        if runs is None:
            runs = _sift_piece(*piece[:4], header.base_offset, newest, drop_tombstones).runs or []
        stays = b"".join([piece.buffer[start:end] for start, end in runs])
        if stays:
            section += compressor.compress(times.rebased(stays))
            for more in piece.rest:
                section += compressor.compress(more)
    section += compressor.flush()
    has_horizon = horizon_ms is not None or header.attributes & DELETE_HORIZON
    return assemble(
        header._replace(
            attributes=header.attributes & _KEPT_ATTRIBUTES | (DELETE_HORIZON if has_horizon else 0),
            base_timestamp=times.base,
            max_timestamp=times.largest,
            record_count=sifted.record_count,
        ),
        section,
    )


def empty_batch(header: BatchHeader) -> bytearray:
    """The batch without records: it says that these offsets and this producer's sequence numbers were used."""
    kept = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return assemble(header._replace(attributes=kept, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _whole_records(buffer: bytes, count_max: int) -> tuple[int, int, int]:
    """How many bytes, and records, of the buffer are whole; and how many bytes the next one lacks at least."""
    position = count = 0
    missing, end = 1, len(buffer)
    try:
        while count < count_max:
            length, body = read_varint(buffer, position)
            if length & 1:
                raise invalid_records("a record has a negative length")
            if body + (length >> 1) > end:
                missing = body + (length >> 1) - end
                break
            position = body + (length >> 1)
            count += 1
    except IndexError:
        pass  # even the length of the next one is cut off
    return position, count, missing


def _read_up_to(read: Callable[[int], bytes], size_bytes: int) -> bytes:
    pieces = []
    while size_bytes and (piece := read(min(size_bytes, CHUNK_BYTES))):
        pieces.append(piece)
        size_bytes -= len(piece)
    return b"".join(pieces)


# One loop on purpose, three times: a call per field would double the cost of a record.
def _note_piece(buffer: bytes, position: int, end: int, count: int, base_offset: int, newest: dict[bytes, int]) -> None:
    for _ in range(count):
        if (length := buffer[position]) < 128:
            position += 1
        elif (high := buffer[position + 1]) < 128:
            length += (high << 7) - 128
            position += 2
        else:
            length, position = read_varint(buffer, position)
        record_end = position + (length >> 1)
        position += 1  # the attributes, which say nothing
        while buffer[position] > 127:
            position += 1  # the timestamp delta
        if (offset := buffer[position + 1]) < 128:
            position += 2
        elif (high := buffer[position + 2]) < 128:
            offset += (high << 7) - 128
            position += 3
        else:
            offset, position = read_varint(buffer, position + 1)
        if (length := buffer[position]) < 128:
            position += 1
        else:
            length, position = read_varint(buffer, position)
        if not length & 1:
            key = buffer[position : position + (length >> 1)]
            newest[key if length <= _ZIGZAG_KEY_MAX else hash_key(key)] = base_offset + (offset >> 1)
        position = record_end
    if position != end:
        raise invalid_records(f"the records of the batch at offset {base_offset} are not {count}, or do not fill it")


def _whole(piece: Piece) -> Piece:
    """The same with the whole record in the buffer, where it is a long one."""
    if piece.end > len(piece.buffer):
        if piece.end > RECORD_MAX_BYTES:
            raise beyond_limits(f"a record of {piece.end} bytes is too large to be read")
        piece = piece._replace(buffer=b"".join((piece.buffer, *piece.rest)))
    return piece


def _note_values_of_piece(piece: Piece, base_offset: int, newest: dict[bytes, tuple[int, bytes | None]]) -> None:
    buffer, position, end, count, _ = piece
    for _ in range(count):
        if (length := buffer[position]) < 128:
            position += 1
        elif (high := buffer[position + 1]) < 128:
            length += (high << 7) - 128
            position += 2
        else:
            length, position = read_varint(buffer, position)
        record_end = position + (length >> 1)
        position += 1
        while buffer[position] > 127:
            position += 1
        if (offset := buffer[position + 1]) < 128:
            position += 2
        elif (high := buffer[position + 2]) < 128:
            offset += (high << 7) - 128
            position += 3
        else:
            offset, position = read_varint(buffer, position + 1)
        if (length := buffer[position]) < 128:
            position += 1
        else:
            length, position = read_varint(buffer, position)
        if length & 1:
            raise invalid_records(f"a record of the batch at offset {base_offset} has no key")
        key = buffer[position : (position := position + (length >> 1))]
        if (length := buffer[position]) < 128:
            position += 1
        else:
            length, position = read_varint(buffer, position)
        value = None if length & 1 else buffer[position : position + (length >> 1)]
        newest[key] = base_offset + (offset >> 1), value
        position = record_end
    if position != end:
        raise invalid_records(f"the records of the batch at offset {base_offset} are not {count}, or do not fill it")


def _sift_piece(  # noqa: PLR0912
    buffer: bytes,
    position: int,
    end: int,
    count: int,
    base_offset: int,
    newest: Mapping[bytes, int],
    drop_tombstones: bool,
) -> Sifted:
    runs: Runs = []
    kept, has_tombstones, run_start = 0, False, position
    find = newest.get
    for _ in range(count):
        # length, attributes, timestamp delta, offset delta, key length, key, value length ...: varints of one and two
        # bytes are read in place, for a call costs more than all else here.
        record_start = position
        if (length := buffer[position]) < 128:
            position += 1
        elif (high := buffer[position + 1]) < 128:
            length += (high << 7) - 128
            position += 2
        else:
            length, position = read_varint(buffer, position)
        record_end = position + (length >> 1)
        position += 1
        while buffer[position] > 127:
            position += 1
        if (offset := buffer[position + 1]) < 128:
            position += 2
        elif (high := buffer[position + 2]) < 128:
            offset += (high << 7) - 128
            position += 3
        else:
            offset, position = read_varint(buffer, position + 1)
        if (length := buffer[position]) < 128:
            position += 1
        else:
            length, position = read_varint(buffer, position)
        stays = False
        if not length & 1:  # a record with a key; one without goes
            key = buffer[position : (position := position + (length >> 1))]
            key = key if length <= _ZIGZAG_KEY_MAX else hash_key(key)
            if find(key, NO_OFFSET) <= base_offset + (offset >> 1):
                stays = True
                if buffer[position] & 1:  # the length of the value is negative: null
                    stays = not drop_tombstones
                    has_tombstones |= stays
        if stays:
            kept += 1
        else:
            if run_start < record_start:
                runs.append((run_start, record_start))
            run_start = record_end
        position = record_end
    if position != end:
        raise invalid_records(f"the records of the batch at offset {base_offset} are not {count}, or do not fill it")
    if run_start < position:
        runs.append((run_start, position))
    return Sifted(kept, has_tombstones, runs)


def hash_key(key: bytes) -> bytes:
    """What stands for a key longer than `KEY_BYTES_MAX`."""
    from hashlib import blake2b  # slow to import, and few keys are so long

    return blake2b(key, digest_size=_HASH_BYTES).digest()


class _Times:
    """The timestamps of a batch that is rebuilt, piece by piece."""

    def __init__(self, header: BatchHeader, horizon_ms: int | None) -> None:
        self._old_base = header.base_timestamp
        self._append_time = header.max_timestamp if header.uses_log_append_time else None
        self._base = header.base_timestamp if header.attributes & DELETE_HORIZON else horizon_ms
        self.largest = NO_TIMESTAMP if self._append_time is None else self._append_time

    @property
    def base(self) -> int:
        """What the records' deltas refer to."""
        return NO_TIMESTAMP if self._base is None else self._base

    def rebased(self, records: bytes) -> bytes:
        """These records with the deltas that belong to the new base."""
        base = self._base
        if base is None:
            base = self._base = self._first_timestamp(records) if self._append_time is None else self._append_time
        if self._append_time is not None:
            return _with_deltas(records, 0, self._append_time - base)
        self.largest = max(self.largest, wrap_timestamp(self._old_base + _largest_delta(records)))
        return _with_deltas(records, 1, self._old_base - base) if base != self._old_base else records

    def _first_timestamp(self, records: bytes) -> int:
        """The timestamp of the first of these records."""
        _, position = read_varint(records, 0)
        return wrap_timestamp(self._old_base + read_varlong(records, position + 1)[0])


def _largest_delta(records: bytes) -> int:
    largest, position, end = -(1 << 63), 0, len(records)
    while position < end:
        length, position = read_varint(records, position)
        if (delta := records[position + 1]) < 128:
            delta = (delta >> 1) ^ -(delta & 1)
        else:
            delta, _ = read_varlong(records, position + 1)
        largest = max(largest, delta)
        position += length >> 1
    return largest


def _with_deltas(records: bytes, factor: int, shift: int) -> bytes:
    """The records with timestamp deltas of `factor` x the old one + `shift`."""
    rewritten: list[bytes] = []
    position, end = 0, len(records)
    while position < end:
        length, position = read_varint(records, position)
        record_end = position + (length >> 1)
        delta, position = read_varlong(records, position + 1)
        new_delta = encode_varint(wrap_timestamp(delta * factor + shift))
        rest = records[position:record_end]
        length = 1 + len(new_delta) + record_end - position  # `rest` is shorter where only the head is here
        rewritten += encode_varint(length), _NO_ATTRIBUTES, new_delta, rest
        position = record_end
    return b"".join(rewritten)


def _leads_out(header: BatchHeader) -> CorruptRecords:
    return invalid_records(f"a record of the batch at offset {header.base_offset} leads out of it")
