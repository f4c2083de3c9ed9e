"""Up-conversion of messages of formats 0 and 1, from producers from before Kafka 0.11, to a batch of format 2.

Produce 0 to 2 have a message set for each partition: messages one after another, or one compressed message with a
message set as its value (`record_reader` has the layout). The log gets format 2 only.

Kafka checks a message set in passes, and the fault of the earliest pass gives the error code:

1. the outer messages, in order: size, checksum, codec. A part of a message at the end is no fault; it is cut off.
2. the set: all messages of one format, and a compressed message alone.
3. the inner messages of a compressed one, to the end of the stream: sizes, then the offset of the last one.
4. each message: compressed twice, checksum (of inner ones), format; then its key and its timestamp. In a compressed
   message, faults of keys and timestamps and a wrong inner format do not end the pass; all other faults do.
5. the batch: lengths that lead out of a message, timestamps below -1, and a batch that becomes too large.

Here 3, 4 and 5 are one pass, so that no message set is held decompressed: messages go from the decompressing stream
through a compressor into the new batch. The first fault of each pass is remembered, and that of the earliest pass
counts. At most one message, a few chunks and the batch are in memory. All functions are generators that yield after
each step (`record_cursor.Meter`); a small message set needs one step.

Known deviations, all for message sets that no producer sends: one may decompress to at most `RECORDS_MAX_BYTES`, and an
inner message may have at most `INNER_MESSAGE_MAX_BYTES`; messages behind the point at which the batch is too large are
not checked; in a set of uncompressed messages all faults of pass 4 count before those of pass 5, as in a compressed
one.
"""

import struct
import zlib
from collections.abc import Generator
from typing import NamedTuple

from barnabas.wire.compression import CHUNK_BYTES, HELD_FREE_BYTES, Codec, CorruptRecords, Stream, opening
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import (
    BATCH_MAGIC,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    LEGACY_ENTRY_MIN_LENGTH,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME,
    MAGIC_POSITION,
    Batch,
    BatchHeader,
    is_intact,
    walk_entries,
)
from barnabas.wire.record_cursor import (
    RECORDS_MAX_BYTES,
    Meter,
    Steps,
    beyond_limits,
    invalid_records,
    wrap_timestamp,
)
from barnabas.wire.record_writer import Section, Times, encode_varint, finished_batch
from barnabas.wire.records import (
    CODEC_NAMES,
    SMALL_BYTES_MAX,
    RecordRules,
    RecordsRefused,
    check_produced,
    fitting_segment,
    level_of,
)
from barnabas.wire.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from barnabas.wire.topics import TopicPartition

# An inner message is held whole, for a moment twice. Those of ordinary clients fit into
# max.message.bytes (1 MiB by default).
INNER_MESSAGE_MAX_BYTES = 16 << 20

# The cost in units of a `Meter`: of a message, and one unit for 256 bytes of its checksum (about 1 GB/s).
_MESSAGE_COST = 32
_CHECKSUM_COST_SHIFT = 8
_ANY_CODEC_VERSION = 7  # Kafka forbids zstd in Produce 3 to 6 only
_CRC_POSITION = LENGTH_OVERHEAD_BYTES
_ATTRIBUTES_POSITION = 17
_CODEC_POSITION = (17, 17, 22)  # by format: the (low) byte of the attributes
_FIELDS_POSITION = (18, 26)  # by format: where the key's length begins; format 1 has the timestamp before it
_ENTRY_START = struct.Struct(">qi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_RECORD_ATTRIBUTES = b"\x00"  # which have no meaning
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_NO_PRODUCER = BatchHeader(0, 0, -1, BATCH_MAGIC, 0, 0, 0, 0, NO_TIMESTAMP, NO_PRODUCER_ID, -1, -1, 0)

Field = memoryview | None


def check_old_produced(
    records: memoryview, rules: RecordRules, now_ms: int, topic_partition: TopicPartition
) -> Steps[Batch | RecordsRefused | None]:
    """Check the records of one partition in Produce 0 to 2 and convert them to a batch; None without a whole message.

    A batch of format 2 is stored as it is, like in Produce 3.
    """
    # One call of a codec takes time in proportion to the size, as in `check_produced`.
    if len(records) > SMALL_BYTES_MAX:
        yield None
    meter = Meter(RECORDS_MAX_BYTES)
    try:
        outer = yield from _look_over(records, rules, meter)
        if outer is None:
            return None
        if outer.magic == BATCH_MAGIC:
            return (yield from check_produced(records[: outer.end], rules, now_ms, _ANY_CODEC_VERSION, topic_partition))
        conversion = _Conversion(outer, rules, now_ms, meter)
        if outer.codec:
            yield from _take_wrapped(conversion, records[: outer.end], outer, meter)
        else:
            yield from _take_all(conversion, records[: outer.end], meter)
        batch = conversion.finish()
    except CorruptRecords as error:
        return RecordsRefused(error.code, str(error))

    return fitting_segment(batch, rules) if isinstance(batch, Batch) else batch


class _Outer(NamedTuple):
    """The common facts of the outer messages."""

    magic: int  # of the first one
    codec: int
    end: int  # of the last whole message


def _look_over(records: memoryview, rules: RecordRules, meter: Meter) -> Steps[_Outer | None]:
    """Passes 1 and 2: check the outer messages; None if there is none."""
    first_magic = 0
    codec = 0
    count = 0
    end = 0
    for position, entry in walk_entries(records):
        view = records[position : position + entry.size_bytes]
        if entry.magic == BATCH_MAGIC and entry.offset:
            raise invalid_records(f"the base offset of a batch that is sent should be 0, not {entry.offset}")
        if entry.size_bytes > rules.max_message_bytes:
            raise CorruptRecords(
                f"a message of {entry.size_bytes} bytes is larger than {rules.max_message_bytes}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        if not ((yield from _is_intact_message(view, meter)) if entry.magic < BATCH_MAGIC else is_intact(view)):
            raise CorruptRecords(f"the checksum of message {count} is wrong")

        # `codec` is that of the last compressed message so far: pass 2 only needs to know whether there is one.
        codec = view[_CODEC_POSITION[entry.magic]] & CODEC_MASK or codec
        if codec > Codec.ZSTD:
            raise CorruptRecords(f"there is no codec {codec}", ErrorCode.UNKNOWN_SERVER_ERROR)
        first_magic = first_magic if count else entry.magic
        count = count + 1
        end = position + entry.size_bytes

    if count > 1 and (codec or first_magic == BATCH_MAGIC):
        raise invalid_records("a compressed message, or a batch of format 2, does not stand alone")

    # zstd exists in format 2 only (KIP-110).
    if codec == Codec.ZSTD and first_magic < BATCH_MAGIC:
        raise invalid_records(f"message format {first_magic} knows no zstd")
    return _Outer(first_magic, codec, end) if count else None


def _is_intact_message(message: memoryview, meter: Meter) -> Generator[None, None, bool]:
    """Whether the CRC-32 of a message of format 0 or 1 is right, in steps; counts the cost of the message."""
    # `is_intact` would compute the checksum of a large message in one step.
    crc = 0
    for position in range(MAGIC_POSITION, len(message), CHUNK_BYTES):
        crc = zlib.crc32(message[position : position + CHUNK_BYTES], crc)
        meter.credit -= CHUNK_BYTES >> _CHECKSUM_COST_SHIFT if position > MAGIC_POSITION else _MESSAGE_COST
        if meter.is_step_over():
            yield
    (stored,) = _UINT32.unpack_from(message, _CRC_POSITION)
    return bool(stored == crc)


def _take_all(conversion: "_Conversion", records: memoryview, meter: Meter) -> Steps[None]:
    """Convert messages that are not compressed."""
    if conversion.held_bytes:
        yield conversion.held_bytes
    for position, entry in walk_entries(records):
        if entry.magic != conversion.magic:
            raise invalid_records(f"a message of format {entry.magic} follows one of format {conversion.magic}")
        message = records[position : position + entry.size_bytes]
        yield from conversion.take(message, message[_ATTRIBUTES_POSITION] & LOG_APPEND_TIME != 0)
        # Unlike inner messages, each is a batch of its own to Kafka: the first one that is refused ends the pass.
        if conversion.refused is not None or conversion.is_too_large:
            return
        meter.credit -= _MESSAGE_COST
        if meter.is_step_over():
            yield conversion.held_bytes


def _take_wrapped(conversion: "_Conversion", wrapper: memoryview, outer: _Outer, meter: Meter) -> Steps[None]:
    """Convert the messages in the one compressed message."""
    timestamp, _, content = _parse(wrapper, outer.magic)
    if content is None:
        raise invalid_records("the compressed message is empty")

    # With the LogAppendTime bit the timestamp of the outer message counts for all inner ones (KIP-32).
    if wrapper[_ATTRIBUTES_POSITION] & LOG_APPEND_TIME:
        conversion.append_time_of_wrapper = timestamp
    stream = yield from opening(outer.codec, content, outer.magic)
    inner = _InnerMessages(stream, meter)

    # The caller has to wait for room before the first read, which allocates the memory.
    if held_bytes := inner.held_bytes + conversion.held_bytes:
        yield held_bytes
    last_offset = None
    while (message := (yield from inner.read_next())) is not None:
        (last_offset,) = _INT64.unpack_from(message)
        yield from conversion.take_inner(message)
        if conversion.is_too_large:
            return
        meter.credit -= _MESSAGE_COST
        if meter.is_step_over():
            yield inner.held_bytes + conversion.held_bytes

    if last_offset is None:
        raise invalid_records("the compressed message holds no message")

    # The batch counts from 0 on, whatever offsets the messages have. But Kafka refuses an outer offset below the last
    # inner one, except 0, which early librdkafka sends.
    (offset,) = _INT64.unpack_from(wrapper)
    if outer.magic and offset and offset < last_offset:
        raise invalid_records(f"the compressed message at offset {offset} holds one at {last_offset}")


class _InnerMessages:
    """Reads whole messages from a decompressing stream."""

    def __init__(self, stream: Stream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter
        self._buffer = memoryview(b"")
        self._longest = 0  # bytes of the longest message, or of the part of it that has arrived

    @property
    def held_bytes(self) -> int:
        """The bytes that the stream holds, and those of a long message."""
        # A long message counts twice, because `_fill` joins its pieces into a copy.
        return self._stream.held_bytes + (2 * self._longest if self._longest > HELD_FREE_BYTES // 2 else 0)

    def read_next(self) -> Steps[memoryview | None]:
        """The next whole message; None at the end of the stream."""
        # As in Kafka, a part of a message at the end is no fault.
        if not (yield from self._fill(LENGTH_OVERHEAD_BYTES)):
            return None
        offset, length = _ENTRY_START.unpack_from(self._buffer)
        if length < LEGACY_ENTRY_MIN_LENGTH:
            raise CorruptRecords(f"an inner message of {length} bytes at offset {offset} is shorter than any")
        size_bytes = LENGTH_OVERHEAD_BYTES + length
        if not (yield from self._fill(size_bytes)):
            return None
        message = self._buffer[:size_bytes]
        self._buffer = self._buffer[size_bytes:]
        return message

    def _fill(self, size_bytes: int) -> Steps[bool]:
        """Whether the buffer has this many bytes, after reading more if needed."""
        # The size is a claim of the message: memory grows with the bytes that arrive, not with the claim.
        have = len(self._buffer)
        if have >= size_bytes:
            return True
        pieces: list[bytes | memoryview] = [self._buffer]
        while have < size_bytes and (piece := self._meter.read(self._stream)):
            pieces.append(piece)
            have += len(piece)
            self._longest = max(self._longest, have)
            if have > INNER_MESSAGE_MAX_BYTES:
                raise beyond_limits(f"an inner message has more than {INNER_MESSAGE_MAX_BYTES} bytes")
            if self._meter.is_step_over():
                yield self.held_bytes

        self._buffer = memoryview(b"".join(pieces))
        return have >= size_bytes


class _Conversion:
    """Checks messages one by one, and writes them into a batch as long as there is no fault."""

    def __init__(self, outer: _Outer, rules: RecordRules, now_ms: int, meter: Meter) -> None:
        self.magic = outer.magic
        # The first fault of each kind; `finish` chooses among them.
        self.refused: ErrorCode | None = None  # pass 4: keys, timestamps and inner formats
        self._stopped: CorruptRecords | None = None  # pass 4: all other faults
        self._unfit: CorruptRecords | None = None  # pass 5
        self.append_time_of_wrapper: int | None = None  # of a compressed message with the LogAppendTime bit
        self._rules = rules
        self._now_ms = now_ms
        self._wants_append_time = rules.message_timestamp_type == "LogAppendTime"
        keeps_codec = rules.compression_type == "producer"
        self._codec = Codec(outer.codec) if keeps_codec else CODEC_NAMES[rules.compression_type]
        level = None if keeps_codec else level_of(self._codec, rules)
        self._meter = meter
        self._section = Section(self._codec, level, meter, rules.max_message_bytes - BATCH_OVERHEAD_BYTES)
        self._times = Times(_NO_PRODUCER)

    @property
    def held_bytes(self) -> int:
        """The bytes held by the compressor."""
        return self._section.held_bytes

    @property
    def is_too_large(self) -> bool:
        """Whether the batch is already larger than the topic allows."""
        # More messages can only add to it, so the caller stops.
        return self._section.is_too_large

    def take_inner(self, message: memoryview) -> Steps[None]:
        """Check an inner message and write it."""
        # The fault has ended pass 4. But the stream is read on: pass 3 checks the sizes to its end.
        if self._stopped is not None:
            return
        magic = message[MAGIC_POSITION]
        codec = message[_ATTRIBUTES_POSITION] & CODEC_MASK
        try:
            if codec:
                code = ErrorCode.INVALID_RECORD if codec <= Codec.ZSTD else ErrorCode.UNKNOWN_SERVER_ERROR
                raise CorruptRecords(f"a compressed message has an inner one of codec {codec}", code)
            if magic != self.magic:
                # Kafka's error message names key and value: if Kafka cannot parse them, that is the fault that counts.
                _parse(message, min(magic, 1))
                self._refuse(ErrorCode.INVALID_RECORD)
            elif not (yield from _is_intact_message(message, self._meter)):
                raise CorruptRecords("the checksum of an inner message is wrong")
            else:
                yield from self.take(message, self.append_time_of_wrapper is not None)
        except CorruptRecords as fault:
            self._stopped = fault

    def take(self, message: memoryview, has_append_time: bool) -> Steps[None]:
        """Check key and timestamp of a message and write it."""
        try:
            timestamp, key, value = _parse(message, self.magic)
            if self.magic and self.append_time_of_wrapper is not None:
                timestamp = self.append_time_of_wrapper
            if key is None and self._rules.compacted:
                self._refuse(ErrorCode.INVALID_RECORD)
            elif self._is_bad_time(timestamp, has_append_time and self.magic > 0):
                self._refuse(ErrorCode.INVALID_TIMESTAMP)
            # After a fault nothing is written: there will be no batch.
            elif not (self._unfit or self.refused):
                yield from self._write(timestamp, key, value)
        except CorruptRecords as fault:
            self._unfit = self._unfit or fault

    def finish(self) -> Batch | RecordsRefused:
        """The batch, or the fault of the earliest pass."""
        if self._stopped is not None:
            raise self._stopped
        if self.refused is not None:
            return RecordsRefused(self.refused, "the key, the time or the format of a message is refused")
        if self._unfit is not None:
            raise self._unfit
        append_time_ms = self._now_ms if self._wants_append_time else None
        batch = finished_batch(_NO_PRODUCER, self._section, self._times, self._codec, append_time_ms)
        limit = self._rules.max_message_bytes
        return batch or RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, f"the batch is larger than {limit} bytes")

    def _is_bad_time(self, timestamp: int, has_append_time: bool) -> bool:
        # A producer may not set the LogAppendTime bit (`records._why_bad_time`).
        if timestamp == NO_TIMESTAMP or self._wants_append_time:
            return has_append_time
        # The difference wraps to 64 bits, as in Java.
        age_ms = wrap_timestamp(self._now_ms - timestamp)
        rules = self._rules
        return age_ms > rules.message_timestamp_before_max_ms or -age_ms > rules.message_timestamp_after_max_ms

    def _refuse(self, code: ErrorCode) -> None:
        """Remember a fault of key, timestamp or format."""
        # One bad timestamp decides the code of the set, as in Kafka.
        if self.refused != ErrorCode.INVALID_TIMESTAMP:
            self.refused = code

    def _write(self, timestamp: int, key: Field, value: Field) -> Generator[None, None, None]:
        """Write a record of format 2."""
        number = encode_varint(self._times.count)
        delta = encode_varint(self._times.next_delta(timestamp))
        pieces = (
            *(_RECORD_ATTRIBUTES, delta, number),
            *(_length_of(key), key or b"", _length_of(value), value or b"", _NO_HEADERS),
        )
        size_bytes = sum(map(len, pieces))
        if size_bytes <= CHUNK_BYTES:
            self._section.add(b"".join((encode_varint(size_bytes), *pieces)))
            return

        # A record longer than a chunk is added chunk by chunk, with a pause where the step is over.
        self._section.add(encode_varint(size_bytes))
        for piece in pieces:
            for position in range(0, len(piece), CHUNK_BYTES):
                self._section.add(piece[position : position + CHUNK_BYTES])
                if self.is_too_large:
                    return
                if self._meter.is_step_over():
                    yield


def _length_of(field: Field) -> bytes:
    return _NULL if field is None else encode_varint(len(field))


def _parse(message: memoryview, magic: int) -> tuple[int, Field, Field]:
    """Timestamp, key and value of a message of format 0 or 1."""
    # Bytes behind the value are ignored, as in Kafka.
    position = _FIELDS_POSITION[magic]
    try:
        timestamp = _INT64.unpack_from(message, position - _INT64.size)[0] if magic else NO_TIMESTAMP
        key, position = _read_field(message, position)
        value, _ = _read_field(message, position)
    except (IndexError, struct.error):
        raise CorruptRecords("a length leads out of a message", ErrorCode.UNKNOWN_SERVER_ERROR) from None
    return timestamp, key, value


def _read_field(message: memoryview, position: int) -> tuple[Field, int]:
    (length,) = _INT32.unpack_from(message, position)
    position += _INT32.size
    if length < 0:
        return None, position
    end = position + length
    # A slice would be cut silently.
    if end > len(message):
        raise IndexError
    return message[position:end], end
