"""Batches in compaction: collects their keys, and rebuilds a batch without the dropped records (KIP-58, KIP-534).

Compaction keeps, of all records with the same key, the one with the highest offset. `note_keys` collects key -> offset;
`sift` decides which records of a batch stay; `rebuild_sifted` writes these as a batch again. The rules for a rebuilt
batch are Apache Kafka's (reference kafka-internals.md, D.8):

- offsets never change: base offset, last offset delta and the deltas of the remaining records stay as they were, even
  if the first or the last record is dropped. Producer, epoch, sequence, leader epoch and codec stay as well;
- the base timestamp becomes that of the first remaining record, and the max timestamp that of the newest one;
- a batch with tombstones (records without value) gets a *delete horizon* in its first cleaning: the time from which on
  the tombstones may be dropped. It takes the place of the base timestamp, and bit 6 of the attributes marks it;
- a batch without remaining records is dropped, or kept as a header (`empty_batch`) if its offsets and its sequence are
  still needed.

As in `record_walk` there is no object per record: a loop goes from field to field and copies only the key. Compressed
batches are read as a stream, in pieces of whole records. A record longer than `LONG_RECORD_BYTES` is a piece of its
own: only its head is held, while value and headers are skipped or copied in the stream. So at most two pieces and the
result are in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.wire.compression import CHUNK_BYTES, Codec, CorruptRecords, open_stream
from barnabas.wire.compressors import open_compressor
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
    wrap_timestamp,
)
from barnabas.wire.record_reader import RECORD_MAX_BYTES
from barnabas.wire.record_writer import encode_varint
from barnabas.wire.sentinels import NO_OFFSET, NO_TIMESTAMP

KEY_BYTES_MAX = 48  # a longer key is replaced by its hash, so that keys of any length take bounded memory
LONG_RECORD_BYTES = 1 << 20  # the longest record of a compressed batch that is held whole
_HASH_BYTES = KEY_BYTES_MAX + 1  # longer than any key that is stored as it is, so that a hash never equals a key
_ZIGZAG_KEY_MAX = KEY_BYTES_MAX << 1
_NO_ATTRIBUTES = b"\0"
_KEPT_ATTRIBUTES = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON

# Begin and end of the bytes that stay; neighbouring records are one run, so that they are copied together.
Runs = list[tuple[int, int]]


class Piece(NamedTuple):
    """Decompressed records of a batch: `record_count` of them fill buffer[start:end].

    If it is one long record, the buffer ends after the value's length, before `end`; `rest` yields the bytes that
    follow, and can be iterated once.
    """

    buffer: bytes
    start: int
    end: int
    record_count: int
    rest: Iterable[bytes] = ()


class Sifted(NamedTuple):
    """The records of a batch that stay."""

    record_count: int
    has_tombstones: bool  # a remaining record has no value
    # Where the records are. None for a compressed batch: there may be millions of runs, so
    # `rebuild_sifted` finds them again, piece by piece.
    runs: Runs | None


def read_pieces(header: BatchHeader, window: bytes, position: int) -> Iterator[Piece]:
    """The records of the format 2 batch at `position`, in pieces. CorruptRecords unless they fill it exactly."""
    start = position + BATCH_OVERHEAD_BYTES
    end = position + header.size_bytes
    codec = header.codec

    # Uncompressed records are in memory already: one piece, without a copy.
    if codec == Codec.NONE:
        yield Piece(window, start, end, header.record_count)
        return
    stream = open_stream(codec, memoryview(window)[start:end])
    left = header.record_count
    buffer = b""
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

            # The caller may not have read the rest; the next record begins behind it.
            for _ in piece.rest:
                pass
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
    """The next record as a piece. Its head is encoded again, with the shortest varints."""
    # The head is encoded again, because the cursor has consumed the bytes of the head.
    end = cursor.read_number()
    end += cursor.consumed_bytes
    cursor.read_bytes(1)  # the attributes, which have no meaning
    deltas = encode_varint(cursor.read_number(64)) + encode_varint(cursor.read_number())
    key_length = cursor.read_number()
    # Unlike the value, the key has to be held to be looked up.
    if key_length > LONG_RECORD_BYTES:
        raise beyond_limits(f"a key of {key_length} bytes is too long to be compared with others")
    key = encode_varint(key_length) + cursor.read_bytes(max(key_length, 0))
    head = _NO_ATTRIBUTES + deltas + key + encode_varint(cursor.read_number())
    left = end - cursor.consumed_bytes
    if left < 0:
        raise invalid_records("the lengths within a record contradict each other")
    # The record gets a new length, because the old one counted the old varints.
    head = encode_varint(len(head) + left) + head
    return Piece(head, 0, len(head) + left, 1, _rest(cursor, left))


def _rest(cursor: RecordCursor, left: int) -> Iterator[bytes]:
    while left:
        piece = cursor.read_some(left)
        left -= len(piece)
        yield piece


def note_keys(header: BatchHeader, window: bytes, position: int, newest: dict[bytes, int]) -> None:
    """Put the keys of the batch at `position` into `newest`, each with the offset of its last record.

    The batch must follow all batches noted before. CorruptRecords if the records do not fill it; BeyondLimits for a key
    longer than `LONG_RECORD_BYTES`.
    """
    # The piece functions index the buffer without checks: a length that leads out of it raises IndexError.
    try:
        if header.attributes & CODEC_MASK:
            for piece in read_pieces(header, window, position):
                _note_piece(*piece[:4], header.base_offset, newest)
        else:
            start = position + BATCH_OVERHEAD_BYTES
            end = position + LENGTH_OVERHEAD_BYTES + header.batch_length
            _note_piece(window, start, end, header.record_count, header.base_offset, newest)
    except IndexError:
        raise _leads_out(header) from None


def note_values(
    header: BatchHeader, window: bytes, position: int, newest: dict[bytes, tuple[int, bytes | None]]
) -> None:
    """Put the keys of the batch at `position` into `newest`, each with the offset and the value of its last record.

    For readers of a compacted topic: keys are not hashed. CorruptRecords if the records do not fill the batch, or if a
    record has no key.
    """
    try:
        for piece in read_pieces(header, window, position):
            _note_values_of_piece(_whole(piece), header.base_offset, newest)
    except IndexError:
        raise _leads_out(header) from None


def sift(
    header: BatchHeader, window: bytes, position: int, newest: Mapping[bytes, int], drop_tombstones: bool
) -> Sifted:
    """Decide which records of the batch at `position` stay: those whose key has no newer record in `newest`.

    With `drop_tombstones` records without value are dropped, too; records without key always are. Errors: those of
    `note_keys`.
    """
    try:
        if not header.attributes & CODEC_MASK:
            start = position + BATCH_OVERHEAD_BYTES
            end = position + LENGTH_OVERHEAD_BYTES + header.batch_length
            return _sift_piece(window, start, end, header.record_count, header.base_offset, newest, drop_tombstones)
        record_count = 0
        has_tombstones = False
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
    """The batch with only the remaining records, of which there must be at least one.

    `sifted` is the result of `sift` for the same arguments. `horizon_ms` is the delete horizon to set, None if the
    batch has one already or needs none.
    """
    times = _Times(header, horizon_ms)
    compressor = open_compressor(Codec(header.codec))
    section = bytearray()
    for piece in read_pieces(header, window, position):
        runs = sifted.runs

        # Neither `newest` nor the batch has changed since `sift`, so the decisions are the same.
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
    """The batch without records: it keeps its offset range and the sequence of its producer."""
    # Without records the codec bits are cleared, as in Kafka, and so is the delete horizon of the tombstones.
    kept = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return assemble(header._replace(attributes=kept, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _whole_records(buffer: bytes, count_max: int) -> tuple[int, int, int]:
    """The size and the number of the whole records in the buffer, and how many bytes the next one lacks at least."""
    position = count = 0
    missing = 1
    end = len(buffer)
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
        pass  # the length of the next record is cut off itself

    return position, count, missing


def _read_up_to(read: Callable[[int], bytes], size_bytes: int) -> bytes:
    pieces = []
    while size_bytes and (piece := read(min(size_bytes, CHUNK_BYTES))):
        pieces.append(piece)
        size_bytes -= len(piece)
    return b"".join(pieces)


# The three loops below repeat each other on purpose: a call per field would double the cost of a record. They index the
# buffer without checks of lengths. A false length raises IndexError, or shows in the position after the last record.
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
        position += 1  # the attributes, which have no meaning

        # The timestamp delta is skipped without decoding; the last of its bytes is below 128.
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

        # Odd is negative in zigzag: null. A record without key hides no other record.
        if not length & 1:
            key = buffer[position : position + (length >> 1)]

            # Offsets rise, so a later record of the same key replaces the entry of an earlier one.
            newest[key if length <= _ZIGZAG_KEY_MAX else hash_key(key)] = base_offset + (offset >> 1)
        position = record_end

    if position != end:
        raise invalid_records(f"the records of the batch at offset {base_offset} are not {count}, or do not fill it")


def _whole(piece: Piece) -> Piece:
    """The piece, with the whole record in its buffer if it is a long one. BeyondLimits above `RECORD_MAX_BYTES`."""
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
    kept = 0
    has_tombstones = False
    run_start = position
    find = newest.get
    for _ in range(count):
        # Length, attributes, timestamp delta, offset delta, key length, key, value length; what follows is not parsed.
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

        # A record without key cannot be compacted, and is dropped, as in Kafka.
        stays = False
        if not length & 1:
            key = buffer[position : (position := position + (length >> 1))]
            key = key if length <= _ZIGZAG_KEY_MAX else hash_key(key)

            # The comparison is `<=`, because the newest record of a key finds itself. A key that is
            # not in the map has no newer record.
            if find(key, NO_OFFSET) <= base_offset + (offset >> 1):
                stays = True

                # An odd first byte means a negative length of the value: a tombstone.
                if buffer[position] & 1:
                    stays = not drop_tombstones
                    has_tombstones |= stays
        if stays:
            kept += 1
        else:
            # A dropped record ends the run before it.
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
    """The hash that replaces a key longer than `KEY_BYTES_MAX`."""
    from hashlib import blake2b  # slow to import, and few keys are so long

    # 49 bytes of a cryptographic hash: two keys with the same one, of which compaction would lose a record, are not to
    # be expected, not even from a client that looks for them. (Kafka's map uses MD5.)
    return blake2b(key, digest_size=_HASH_BYTES).digest()


class _Times:
    """Converts the timestamp deltas of a batch, piece by piece, while it is rebuilt."""

    def __init__(self, header: BatchHeader, horizon_ms: int | None) -> None:
        self._old_base = header.base_timestamp
        self._append_time = header.max_timestamp if header.uses_log_append_time else None
        # A batch with a delete horizon holds it in the base timestamp field, and the deltas refer
        # to it (KIP-534).
        self._base = header.base_timestamp if header.attributes & DELETE_HORIZON else horizon_ms
        self.largest = NO_TIMESTAMP if self._append_time is None else self._append_time

    @property
    def base(self) -> int:
        """The value of the base timestamp field."""
        return NO_TIMESTAMP if self._base is None else self._base

    def rebased(self, records: bytes) -> bytes:
        """These records, with timestamp deltas from the new base."""
        base = self._base
        # If there is no horizon, the first remaining record gives the base, as in Kafka.
        if base is None:
            base = self._base = self._first_timestamp(records) if self._append_time is None else self._append_time
        # The factor is 0 with LogAppendTime: all records have one timestamp, whatever their old
        # deltas were.
        if self._append_time is not None:
            return _with_deltas(records, 0, self._append_time - base)
        self.largest = max(self.largest, wrap_timestamp(self._old_base + _largest_delta(records)))
        return _with_deltas(records, 1, self._old_base - base) if base != self._old_base else records

    def _first_timestamp(self, records: bytes) -> int:
        """The timestamp of the first of these records."""
        _, position = read_varint(records, 0)
        return wrap_timestamp(self._old_base + read_varlong(records, position + 1)[0])


def _largest_delta(records: bytes) -> int:
    largest = -(1 << 63)
    position = 0
    end = len(records)
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
    """The records, each timestamp delta replaced by `factor` * delta + `shift`."""
    rewritten: list[bytes] = []
    position = 0
    end = len(records)
    while position < end:
        length, position = read_varint(records, position)
        record_end = position + (length >> 1)
        delta, position = read_varlong(records, position + 1)
        new_delta = encode_varint(wrap_timestamp(delta * factor + shift))
        rest = records[position:record_end]
        # The length is not `len(rest)`, because of a long record only the head is in `records`.
        length = 1 + len(new_delta) + record_end - position
        rewritten += encode_varint(length), _NO_ATTRIBUTES, new_delta, rest
        position = record_end
    return b"".join(rewritten)


def _leads_out(header: BatchHeader) -> CorruptRecords:
    return invalid_records(f"a record of the batch at offset {header.base_offset} leads out of it")
