"""Records at the door: what a producer sent is checked once, and is then a `Batch` that a log may append.

*Theory of operation.* `check_produced` looks at the 61-byte header, computes the checksum once, walks the records once
(`record_walk`) and corrects what Apache Kafka corrects; in the usual case the bytes it was given are the bytes that the
log writes, and only `stamp` touches them again. Two things cost more: a `compression.type` of the topic that differs
from the producer's codec rebuilds the batch (`record_writer`), and when the walk finds that some record is refused, the
heads of the records are read again one by one (`record_reader`) to say which.

How long a check takes does not show in a batch's size, so `check_produced` runs in steps and a batch has limits
(`record_cursor`). `check_small` is the same check in one step, for nearly all batches; where it gives up, at the latest
when a step's worth is done, nothing has changed, and the other begins from the start.

The rules are Kafka 3.9's for Produce 3 and later (reference kafka-internals.md, C.7), in its order, for a batch with
two faults is answered with the first: shape, base offset, size, checksum, header, records, keys and timestamps. Some
are surprising, and measured on a running 3.9.1:

- a trailing *part* of a second batch is cut off and the first one is stored;
- offset deltas in disorder are stored as they came when uncompressed, corrected where the batch is rebuilt, and
  UNKNOWN_SERVER_ERROR when compressed;
- a wrong maximum timestamp in the header is corrected, and unknown attribute bits are dropped, but only then;
- a producer that sets the LogAppendTime bit itself is refused where the topic is LogAppendTime; where it is CreateTime
  the bit is cleared and the header's maximum counts as the timestamp of all records.

Deviations, all on batches that no client library sends: a batch whose records take more than `RECORDS_MAX_BYTES`, or
one of which has more than `HEADERS_MAX` headers, is INVALID_RECORD, as are hundreds of empty members of gzip or blocks
of snappy; a compressed record with a false length is refused (see `record_walk`); a batch that is both malformed and
cut off in its compressed stream may be answered with the other of the two codes, for we decompress further ahead; a
record that is longer than `RECORD_IN_HAND_BYTES` (`record_writer`) keeps odd encodings where its batch is rebuilt; an
answer names at most `RECORD_ERRORS_MAX` records.

This file is also the front of its neighbours: everything about records is imported from here.
"""

from dataclasses import dataclass, field
from typing import Protocol

from barnabas.wire.compression import (
    CHUNK_BYTES,
    BeyondLimits,
    Codec,
    CorruptRecords,
    open_small_stream,
    opening,
)
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import (
    BATCH_MAGIC,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    KNOWN_ATTRIBUTES,
    LENGTH_OVERHEAD_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    BatchHeader,
    EntryHeader,
    checksum,
    is_intact,
    read_batch_header,
    rewrite_times,
    stamp,
    walk_entries,
)
from barnabas.wire.record_cursor import HEADERS_MAX, RECORDS_MAX_BYTES, Steps, holding, invalid_records
from barnabas.wire.record_reader import (
    ABORT,
    COMMIT,
    ControlRecord,
    Record,
    RecordHead,
    find_offset_by_timestamp,
    largest_timestamp_in,
    read_all_records,
    read_control_record,
    read_heads,
    read_records,
    read_times,
    timestamp_of,
    wrap_timestamp,
)
from barnabas.wire.record_walk import Walk, walk_at_once, walking
from barnabas.wire.record_writer import build_batch, build_control_batch, rebuilding
from barnabas.wire.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from barnabas.wire.topics import TopicPartition

__all__ = [
    "ABORT",
    "BATCH_OVERHEAD_BYTES",
    "CODEC_MASK",
    "COMMIT",
    "CONTROL",
    "DELETE_HORIZON",
    "HEADERS_MAX",
    "LOG_APPEND_TIME",
    "RECORDS_MAX_BYTES",
    "TRANSACTIONAL",
    "Batch",
    "BatchHeader",
    "BeyondLimits",
    "ControlRecord",
    "CorruptRecords",
    "EntryHeader",
    "Record",
    "RecordRules",
    "RecordsRefused",
    "Steps",
    "build_batch",
    "build_control_batch",
    "check_produced",
    "check_small",
    "checksum",
    "find_offset_by_timestamp",
    "is_intact",
    "largest_timestamp_in",
    "read_all_records",
    "read_batch_header",
    "read_control_record",
    "read_records",
    "read_times",
    "stamp",
    "walk_entries",
]

SMALL_BYTES_MAX = 1 << 16  # the checksum, and what snappy decompresses in one call, then take less than a step
SMALL_COMPRESSED_BYTES_MAX = 1 << 15  # more decompresses, from any client that means well, to more than a step's bytes;
#                                       and zlib and zstd step over empty members and blocks in one call
RECORD_ERRORS_MAX = 10_000  # how many refused records an answer names; a compressed batch may hold millions
_ZSTD_SINCE_PRODUCE_VERSION = 7
_FEW_RECORDS = 8  # up to here, and where records are large, walking in place is cheaper than copying into chunks
_LARGE_RECORD_SHIFT = 10
_TIMESTAMP_MAX = (1 << 63) - 1
CODEC_NAMES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class RecordRules(Protocol):
    """What a topic's configuration says about records; each is the property of that name."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def compacted(self) -> bool: ...


@dataclass(slots=True)
class RecordsRefused:
    """Why a producer's batch is not appended; `record_errors` names records by index where single ones are at fault.

    `reason` is for our log. The message for the client is null in Kafka unless there are `record_errors`.
    `at_the_door`: refused before the log was asked, whose first offset an answer then does not name.
    """

    code: ErrorCode
    reason: str
    record_errors: list[tuple[int, str]] = field(default_factory=list)
    at_the_door: bool = False

    @property
    def message(self) -> str | None:
        """The message for the client."""
        if not self.record_errors:
            return None
        if self.code == ErrorCode.INVALID_TIMESTAMP:
            return "One or more records have been rejected due to invalid timestamp"
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{message}')" for index, message in self.record_errors[:3]
        )
        return (
            f"One or more records have been rejected due to {len(self.record_errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )


Checked = Batch | RecordsRefused
Times = tuple[int, int, int]
"""The smallest and the largest timestamp of a batch, and the index of the first record that has the largest.

The largest is at least -1: timestamps below are not looked for, as in Kafka."""


def check_small(records: memoryview, rules: RecordRules, now_ms: int, api_version: int) -> Checked | None:
    """What `check_produced` says, at once, of a batch that it needs one step for, which nearly all are.

    None, and nothing is changed, where it may need more, or has to rebuild the batch or to name records.
    """
    if len(records) > SMALL_BYTES_MAX:
        return None
    try:
        opened = _open(records, rules, api_version)
        if isinstance(opened, RecordsRefused):
            return opened
        header, records = opened
        if _must_rebuild(header, rules) or (walk := _walk_small(header, records)) is None:
            return None
        times = _find_times(header, walk)
        if times is None or _may_be_refused(header, walk, times, rules, now_ms):
            return None
        return _corrected(header, records, walk, times, rules, now_ms)
    except CorruptRecords:
        return None  # of several faults `check_produced` names the first; here all is decompressed before the walk


def check_produced(
    records: memoryview, rules: RecordRules, now_ms: int, api_version: int, topic_partition: TopicPartition
) -> Steps[Checked]:
    """The batch in the records of one partition of a Produce request, version 3 or later, checked and corrected.

    `records` is writable and is from now on the batch's, which shares its memory unless it had to be rebuilt. What a
    batch costs shows only on the way, so this is a generator, which yields after each step of about a millisecond.
    """
    if len(records) > SMALL_BYTES_MAX:
        yield None  # the checksum, and what codecs do in one call, are in proportion to it
    try:
        opened = _open(records, rules, api_version)
        if isinstance(opened, RecordsRefused):
            return opened
        header, records = opened
        walk = None if header.codec else _walk_large(header, records)
        if walk is None:
            walk = Walk(header.record_count)
            yield from _walking(header, records, walk)
        times = _find_times(header, walk) or (yield from _find_wrapped_times(header, records))
        if _may_be_refused(header, walk, times, rules, now_ms):
            refused = yield from _find_record_errors(header, records, rules, now_ms, topic_partition)
            if refused is not None:
                return refused
        if _must_rebuild(header, rules):
            return (yield from _rebuilt(header, records, rules, now_ms))
        return _corrected(header, records, walk, times, rules, now_ms)
    except CorruptRecords as error:
        return RecordsRefused(error.code, str(error))


def _open(records: memoryview, rules: RecordRules, api_version: int) -> tuple[BatchHeader, memoryview] | RecordsRefused:
    """The one batch, and its header; or what is wrong before the records are looked at. Raises CorruptRecords, too."""
    size_bytes = len(records)
    header = read_batch_header(records) if size_bytes >= BATCH_OVERHEAD_BYTES else None
    if header is None or header.magic != BATCH_MAGIC or header.batch_length != size_bytes - LENGTH_OVERHEAD_BYTES:
        try:
            records = _only_batch(records)
        except CorruptRecords as error:
            return RecordsRefused(error.code, str(error), at_the_door=True)
        header = read_batch_header(records)
    return _check_header(header, records, rules, api_version) or (header, records)


def _only_batch(records: memoryview) -> memoryview:
    """The bytes of the one format 2 batch, without a cut-off second one; CorruptRecords when there is not one."""
    entries = walk_entries(records)
    first = next(entries, None)
    if first is None:
        raise invalid_records("there must be one whole record batch for each partition")
    entry = first[1]
    if entry.magic != 2:
        raise invalid_records(f"the records have message format {entry.magic}; only format 2 is accepted")
    if next(entries, None) is not None:
        raise invalid_records("there must be exactly one record batch for each partition")
    if entry.size_bytes < BATCH_OVERHEAD_BYTES:
        raise CorruptRecords(f"a batch of {entry.size_bytes} bytes is smaller than its header")
    return records[: entry.size_bytes]


def _check_header(
    header: BatchHeader, records: memoryview, rules: RecordRules, api_version: int
) -> RecordsRefused | None:
    """Whether something is wrong before the records are looked at; raises CorruptRecords, or returns why refused."""
    (base_offset, _, _, _, crc, attributes, last_delta, _, _, producer_id, _, base_sequence, count) = header
    if attributes & CODEC_MASK == Codec.ZSTD and api_version < _ZSTD_SINCE_PRODUCE_VERSION:
        return RecordsRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {api_version} does not allow zstd",
            at_the_door=True,
        )
    if base_offset:
        raise invalid_records(f"the base offset of a batch that is sent should be 0, not {base_offset}")
    if len(records) > rules.max_message_bytes:
        return _too_large(len(records), rules)
    if checksum(records) != crc:
        raise CorruptRecords("the checksum of the batch is wrong")
    if count <= 0 or last_delta != count - 1:
        raise invalid_records(f"the batch claims {count} records and a last offset delta of {last_delta}")
    if attributes & CONTROL:
        raise invalid_records("a client may not write control batches")
    if base_sequence < 0 and producer_id > NO_PRODUCER_ID:
        raise invalid_records(f"the batch of producer {producer_id} has the sequence number {base_sequence}")
    return None


def _walk_small(header: BatchHeader, records: memoryview) -> Walk | None:
    """Walk the records; None if that takes more than a step, or something is wrong with them."""
    count, codec = header.record_count, header.attributes & CODEC_MASK
    if not codec:
        if _has_large_records(records, count):
            return walk_at_once(records, BATCH_OVERHEAD_BYTES, count)
        return walk_at_once(bytes(records), BATCH_OVERHEAD_BYTES, count)
    if len(records) > SMALL_COMPRESSED_BYTES_MAX:
        return None
    if (stream := open_small_stream(codec, records[BATCH_OVERHEAD_BYTES:])) is None:
        return None
    buffer = stream.read(CHUNK_BYTES)
    while more := stream.read(CHUNK_BYTES):
        buffer += more
        if len(buffer) > SMALL_BYTES_MAX:
            return None
    return walk_at_once(buffer, 0, count)


def _walk_large(header: BatchHeader, records: memoryview) -> Walk | None:
    """Walk uncompressed records where they lie, if they are large and take no more than a step; as `_walk_small`."""
    if not _has_large_records(records, header.record_count):
        return None
    try:
        return walk_at_once(records, BATCH_OVERHEAD_BYTES, header.record_count)
    except CorruptRecords:
        return None


def _has_large_records(records: memoryview, count: int) -> bool:
    return count < _FEW_RECORDS or len(records) >> _LARGE_RECORD_SHIFT > count


def _walking(header: BatchHeader, records: memoryview, walk: Walk) -> Steps[None]:
    stream = yield from opening(header.codec, records[BATCH_OVERHEAD_BYTES:])
    yield from holding(lambda: stream.held_bytes, walking(stream, walk))


def _must_rebuild(header: BatchHeader, rules: RecordRules) -> bool:
    return rules.compression_type != "producer" and CODEC_NAMES[rules.compression_type] != header.codec


def _may_be_refused(header: BatchHeader, walk: Walk, times: Times, rules: RecordRules, now_ms: int) -> bool:
    """Whether single records have to be looked at: -1, no timestamp, counts as old, and differences do not wrap."""
    lowest, largest, _ = times
    if walk.key_lengths & 1 and rules.compacted:
        return True
    if rules.message_timestamp_type == "LogAppendTime":
        return header.attributes & LOG_APPEND_TIME != 0
    return (
        now_ms - lowest > rules.message_timestamp_before_max_ms
        or largest - now_ms > rules.message_timestamp_after_max_ms
        or (largest == NO_TIMESTAMP and header.attributes & LOG_APPEND_TIME != 0)
    )


def _corrected(
    header: BatchHeader, records: memoryview, walk: Walk, times: Times, rules: RecordRules, now_ms: int
) -> Checked:
    """The batch as it is, or with what is wrong in its header put right in place."""
    attributes = header.attributes
    uses_append_time = rules.message_timestamp_type == "LogAppendTime"
    _, largest, newest_index = (0, now_ms, 0) if uses_append_time else times
    if attributes & CODEC_MASK and not walk.is_in_order:  # Kafka would have to rebuild, and fails, for it has skipped
        return RecordsRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "offset deltas of a compressed batch must be 0, 1, 2 …")
    if header.max_timestamp != largest or uses_append_time is not (attributes & LOG_APPEND_TIME != 0):
        attributes &= KNOWN_ATTRIBUTES & ~LOG_APPEND_TIME
        rewrite_times(records, attributes | LOG_APPEND_TIME if uses_append_time else attributes, largest)
        header = read_batch_header(records)
    return fitting_segment(Batch(records, header, largest, newest_index), rules)


def fitting_segment(batch: Batch, rules: RecordRules) -> Checked:
    """The batch, if a segment may be as large as it is."""
    if len(batch.data) <= rules.segment_bytes:
        return batch
    return RecordsRefused(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch of {len(batch.data)} bytes is larger than a segment, {rules.segment_bytes} bytes",
    )


def _find_times(header: BatchHeader, walk: Walk) -> Times | None:
    """The times of the records, from what the walk has found; None where Java's 64 bits wrap around."""
    if header.uses_log_append_time:
        return header.max_timestamp, max(header.max_timestamp, NO_TIMESTAMP), 0
    base = header.base_timestamp
    lowest, largest = base + walk.lowest_delta, base + walk.highest_delta
    if largest > _TIMESTAMP_MAX or lowest < ~_TIMESTAMP_MAX:
        return None
    return (lowest, largest, walk.highest_index) if largest > NO_TIMESTAMP else (lowest, NO_TIMESTAMP, 0)


def _find_wrapped_times(header: BatchHeader, records: memoryview) -> Steps[Times]:
    """The same where times wrap around, so that the order of deltas says nothing."""
    lowest, largest, newest_index, index = _TIMESTAMP_MAX, ~_TIMESTAMP_MAX, 0, 0
    for head in read_heads(header, records):
        if not isinstance(head, RecordHead):
            yield head
            continue
        timestamp = timestamp_of(header, head.timestamp_delta)
        lowest = min(lowest, timestamp)
        if timestamp > largest:
            largest, newest_index = timestamp, index
        index += 1
    return (lowest, largest, newest_index) if largest > NO_TIMESTAMP else (lowest, NO_TIMESTAMP, 0)


def _find_record_errors(
    header: BatchHeader, records: memoryview, rules: RecordRules, now_ms: int, topic_partition: TopicPartition
) -> Steps[RecordsRefused | None]:
    """Which records are refused and why, in Kafka's words; None when none is."""
    errors: list[tuple[int, str]] = []
    code = ErrorCode.NONE
    index = -1
    for head in read_heads(header, records):
        if not isinstance(head, RecordHead):
            yield head
            continue
        index += 1
        if head.key_length < 0 and rules.compacted:
            error = ErrorCode.INVALID_RECORD
            message = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
        else:
            why = _why_bad_time(head, header, rules, now_ms)
            if why is None:
                continue
            error, message = ErrorCode.INVALID_TIMESTAMP, why
        code = error if code != ErrorCode.INVALID_TIMESTAMP else code  # one bad time makes it that for all
        errors.append((index, message))
        if len(errors) == RECORD_ERRORS_MAX:
            break
    if not errors:
        return None
    return RecordsRefused(code, f"{len(errors)} records are refused; the first: {errors[0][1]}", errors)


def _why_bad_time(head: RecordHead, header: BatchHeader, rules: RecordRules, now_ms: int) -> str | None:
    timestamp = timestamp_of(header, head.timestamp_delta)
    if timestamp == NO_TIMESTAMP or rules.message_timestamp_type == "LogAppendTime":
        if not header.uses_log_append_time:
            return None
        key, value = max(head.key_length, -1), max(head.value_length, -1)
        return (
            f"Invalid timestamp type in message DefaultRecord(offset={head.offset_delta}, timestamp={timestamp}, "
            f"key={key} bytes, value={value} bytes). Producer should not set timestamp type to LogAppendTime."
        )
    age_ms = wrap_timestamp(now_ms - timestamp)  # in 64 bits, so absurd timestamps pass unless there is a limit
    if age_ms <= rules.message_timestamp_before_max_ms and -age_ms <= rules.message_timestamp_after_max_ms:
        return None
    earliest = now_ms - rules.message_timestamp_before_max_ms
    latest = now_ms + rules.message_timestamp_after_max_ms
    return (
        f"Timestamp {timestamp} of message with offset {head.offset_delta} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def _rebuilt(header: BatchHeader, records: memoryview, rules: RecordRules, now_ms: int) -> Steps[Checked]:
    if header.producer_id > NO_PRODUCER_ID and header.producer_epoch == -1:  # Kafka's builder of batches throws
        return RecordsRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"producer {header.producer_id} has no epoch")
    codec = CODEC_NAMES[rules.compression_type]
    append_time_ms = now_ms if rules.message_timestamp_type == "LogAppendTime" else None
    max_bytes = rules.max_message_bytes
    batch = yield from rebuilding(header, records, codec, level_of(codec, rules), append_time_ms, max_bytes)
    if batch is None:
        return _too_large(None, rules)
    return fitting_segment(batch, rules)


def level_of(codec: Codec, rules: RecordRules) -> int | None:
    """The level at which a topic wants what this codec compresses; None where a codec has no levels."""
    levels = {
        Codec.GZIP: rules.compression_gzip_level,
        Codec.LZ4: rules.compression_lz4_level,
        Codec.ZSTD: rules.compression_zstd_level,
    }
    return levels.get(codec)


def _too_large(size_bytes: int | None, rules: RecordRules) -> RecordsRefused:
    size = "as rebuilt" if size_bytes is None else f"of {size_bytes} bytes"
    return RecordsRefused(
        ErrorCode.MESSAGE_TOO_LARGE, f"the batch {size} is larger than {rules.max_message_bytes} bytes"
    )
