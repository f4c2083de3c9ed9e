"""Validation of produced batches: the result is a `Batch` that a log may append.

`check_produced` checks the header, computes the checksum once, walks the records once (`record_walk`) and corrects in
place what Apache Kafka corrects. Usually the log then writes the bytes that the producer sent. In two cases more is
done: a topic whose `compression.type` differs from the producer's codec has the batch rebuilt (`record_writer`), and if
the walk finds a record that may be refused, the heads of all records are read (`record_reader`) to name those at fault.
`check_small` does the same check in one step, and suffices for nearly all batches.

The rules are those of Kafka 3.9 for Produce 3 and later (reference kafka-internals.md, C.7), in Kafka's order, because
the first fault gives the error code: shape, base offset, size, checksum, header, records, keys and timestamps.

Known deviations, all for batches that no client library sends: BeyondLimits (`record_cursor`, `compression`) becomes
INVALID_RECORD; a compressed record with a false length is refused (`record_walk`); a batch that is both malformed and
cut off in its compressed stream may get the other one of the two error codes, because this broker decompresses further
ahead; a record longer than `RECORD_IN_HAND_BYTES` keeps unusual encodings when its batch is rebuilt (`record_writer`);
a response names at most `RECORD_ERRORS_MAX` records.

`__all__` also has the names of `record_batch`, `record_reader`, `record_writer`, `record_cursor` and `compression` that
most files which read records need. Other names are imported from those files.
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
from barnabas.wire.record_cursor import (
    HEADERS_MAX,
    RECORDS_MAX_BYTES,
    Steps,
    holding,
    invalid_records,
    wrap_timestamp,
)
from barnabas.wire.record_reader import (
    ABORT,
    COMMIT,
    ControlRecord,
    Record,
    RecordHead,
    control_of,
    find_largest_timestamp,
    find_time,
    read_all_records,
    read_control_record,
    read_heads,
    read_records,
    timestamp_of,
)
from barnabas.wire.record_walk import IS_COMPILED, Walk, walk_at_once, walking
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
    "control_of",
    "find_largest_timestamp",
    "find_time",
    "is_intact",
    "read_all_records",
    "read_batch_header",
    "read_control_record",
    "read_records",
    "stamp",
    "walk_entries",
]

SMALL_BYTES_MAX = 1 << 16  # the checksum, and one call of snappy, then take less than a step
# A larger compressed batch of an ordinary client decompresses to more than a step's bytes. Besides, zlib and zstd skip
# any number of empty members and blocks in one call.
SMALL_COMPRESSED_BYTES_MAX = 1 << 15
RECORD_ERRORS_MAX = 10_000  # refused records that a response names; a compressed batch may hold millions
_ZSTD_SINCE_PRODUCE_VERSION = 7  # KIP-110: the consumers of older versions cannot read zstd
# Fewer records than this, or records of more than 1024 bytes on average, are walked in place: the fast walk of runs
# would need a copy of the batch, and saves little here. (Compiled, the walk of small batches is always worth a copy.)
_FEW_RECORDS = 8
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
    """The topic settings about records; each property has the name of the Kafka property."""

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
    """A batch that is not appended, and why.

    `reason` is for this broker's log. `record_errors` are (index of the record, message) if single records are at
    fault. `before_log`: refused before the log is looked at, so the response has no log start offset.
    """

    code: ErrorCode
    reason: str
    record_errors: list[tuple[int, str]] = field(default_factory=list)
    before_log: bool = False

    @property
    def message(self) -> str | None:
        """The message for the client, in Kafka's words; None, as in Kafka, unless single records are at fault."""
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
"""The smallest and the largest timestamp of a batch, and the index of the first record with the largest one.

The largest is at least -1: as in Kafka, the search for it begins there."""


def check_small(records: memoryview, rules: RecordRules, now_ms: int, api_version: int) -> Checked | None:
    """`check_produced` in one step, for nearly all batches.

    None, without any change, if the batch may need more steps, a rebuild, or errors for single records.
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
        # `check_produced` walks while it decompresses, so it finds the first of several faults; here all is
        # decompressed before the walk.
        return None


def check_produced(
    records: memoryview, rules: RecordRules, now_ms: int, api_version: int, topic_partition: TopicPartition
) -> Steps[Checked]:
    """Check and correct the one batch of a partition in a Produce request, version 3 or later.

    `records` must be writable, and belongs to the batch from now on: the batch uses its memory, unless it is rebuilt.
    Steps of about a millisecond.
    """
    # This is a generator, because the cost of the records does not follow from the size of the
    # batch. The first step ends here for large ones: the checksum, and one call of a codec, take
    # time in proportion to the size.
    if len(records) > SMALL_BYTES_MAX:
        yield None
    try:
        opened = _open(records, rules, api_version)
        if isinstance(opened, RecordsRefused):
            return opened
        header, records = opened

        # `_walk_large` returns None after a fault, too: the walk in steps then finds and names the
        # fault.
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
    """The one batch and its header, or its refusal. CorruptRecords if the header or the checksum is wrong."""
    size_bytes = len(records)
    header = read_batch_header(records) if size_bytes >= BATCH_OVERHEAD_BYTES else None
    if header is None or header.magic != BATCH_MAGIC or header.batch_length != size_bytes - LENGTH_OVERHEAD_BYTES:
        # The shape is the first check, and in Kafka part of the request's validation
        # (`ProduceRequest.validateRecords`).
        try:
            records = _only_batch(records)
        except CorruptRecords as error:
            return RecordsRefused(error.code, str(error), before_log=True)
        header = read_batch_header(records)
    return _check_header(header, records, rules, api_version) or (header, records)


def _only_batch(records: memoryview) -> memoryview:
    """The bytes of the one format 2 batch. CorruptRecords unless there is exactly one."""
    # A part of a second batch is cut off, and the first one is stored, as Kafka 3.9.1 does.
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
    """The checks before the records: None if all pass, a refusal, or CorruptRecords."""
    # The checks go in Kafka's order, because the first fault gives the error code.
    (base_offset, _, _, _, crc, attributes, last_delta, _, _, producer_id, _, base_sequence, count) = header
    if attributes & CODEC_MASK == Codec.ZSTD and api_version < _ZSTD_SINCE_PRODUCE_VERSION:
        return RecordsRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {api_version} does not allow zstd",
            before_log=True,
        )

    if base_offset:
        raise invalid_records(f"the base offset of a batch that is sent should be 0, not {base_offset}")
    if len(records) > rules.max_message_bytes:
        return _too_large(len(records), rules)

    # The size comes first, so that a batch above max.message.bytes does not cost a checksum.
    if checksum(records) != crc:
        raise CorruptRecords("the checksum of the batch is wrong")

    # Compaction may lower the count in a log; in a producer's batch it has to be the last offset delta + 1.
    if count <= 0 or last_delta != count - 1:
        raise invalid_records(f"the batch claims {count} records and a last offset delta of {last_delta}")
    if attributes & CONTROL:
        raise invalid_records("a client may not write control batches")

    # A batch without a sequence is refused, because the broker could not recognise a retry of it.
    if base_sequence < 0 and producer_id > NO_PRODUCER_ID:
        raise invalid_records(f"the batch of producer {producer_id} has the sequence number {base_sequence}")
    return None


def _walk_small(header: BatchHeader, records: memoryview) -> Walk | None:
    """Walk the records; None if they are malformed, or one step is too short."""
    count = header.record_count
    codec = header.attributes & CODEC_MASK
    if not codec:
        if not IS_COMPILED and _has_large_records(records, count):
            return walk_at_once(records, BATCH_OVERHEAD_BYTES, count)

        # Runs of records are found in bytes only (`record_walk`); the copy is small.
        return walk_at_once(bytes(records), BATCH_OVERHEAD_BYTES, count)

    if len(records) > SMALL_COMPRESSED_BYTES_MAX:
        return None
    if (stream := open_small_stream(codec, records[BATCH_OVERHEAD_BYTES:])) is None:
        return None
    buffer = stream.read(CHUNK_BYTES)

    # Usually one read returns all. The limit is for batches that decompress to much more than their size.
    while more := stream.read(CHUNK_BYTES):
        buffer += more
        if len(buffer) > SMALL_BYTES_MAX:
            return None

    return walk_at_once(buffer, 0, count)


def _walk_large(header: BatchHeader, records: memoryview) -> Walk | None:
    """Walk uncompressed records in place, if they are few or large; None if they are not, or as in `_walk_small`."""
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
    # "producer" keeps any codec.
    return rules.compression_type != "producer" and CODEC_NAMES[rules.compression_type] != header.codec


def _may_be_refused(header: BatchHeader, walk: Walk, times: Times, rules: RecordRules, now_ms: int) -> bool:
    """Whether a record may be refused, so that each has to be looked at."""
    # The result may be True although no record is refused: -1 (no timestamp) is legal but counts as
    # old here, and the differences below do not wrap as those of `_why_bad_time` do.
    lowest, largest, _ = times
    if walk.key_lengths & 1 and rules.compacted:
        return True
    # Only the broker may set the LogAppendTime bit. In a CreateTime topic it is cleared instead (`_corrected`).
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
    """The batch, with attributes and max timestamp corrected in place if they are wrong."""
    attributes = header.attributes
    uses_log_append_time = rules.message_timestamp_type == "LogAppendTime"
    _, largest, newest_index = (0, now_ms, 0) if uses_log_append_time else times
    # Kafka stores an uncompressed batch as it is, whatever its offset deltas are. If those of a
    # compressed batch are not 0, 1, 2 …, it tries a rebuild, which fails, because its check has
    # skipped keys and values (measured on 3.9.1).
    if attributes & CODEC_MASK and not walk.is_in_order:
        return RecordsRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "offset deltas of a compressed batch must be 0, 1, 2 …")
    # Unknown attribute bits are dropped only if the header is rewritten, as in Kafka 3.9.1: for a
    # wrong max timestamp, or a LogAppendTime bit that is not as in the topic. (`times` took the max
    # timestamp for that of all records if the producer set the bit.)
    if header.max_timestamp != largest or uses_log_append_time is not (attributes & LOG_APPEND_TIME != 0):
        attributes &= KNOWN_ATTRIBUTES & ~LOG_APPEND_TIME
        rewrite_times(records, attributes | LOG_APPEND_TIME if uses_log_append_time else attributes, largest)
        header = read_batch_header(records)
    return fitting_segment(Batch(records, header, largest, newest_index), rules)


def fitting_segment(batch: Batch, rules: RecordRules) -> Checked:
    """The batch, or its refusal if it does not fit into a segment."""
    # Kafka checks this at the end, too: a rebuilt batch has another size than the one that was
    # sent.
    if len(batch.data) <= rules.segment_bytes:
        return batch
    return RecordsRefused(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch of {len(batch.data)} bytes is larger than a segment, {rules.segment_bytes} bytes",
    )


def _find_times(header: BatchHeader, walk: Walk) -> Times | None:
    """The times of the records, by the result of the walk; None if a timestamp exceeds the 64 bits of Java's long."""
    # With LogAppendTime all records have the max timestamp of the header.
    if header.uses_log_append_time:
        return header.max_timestamp, max(header.max_timestamp, NO_TIMESTAMP), 0
    base = header.base_timestamp
    lowest = base + walk.lowest_delta
    largest = base + walk.highest_delta
    # Java's addition would wrap, so the largest delta need not be the largest timestamp.
    if largest > _TIMESTAMP_MAX or lowest < ~_TIMESTAMP_MAX:
        return None
    return (lowest, largest, walk.highest_index) if largest > NO_TIMESTAMP else (lowest, NO_TIMESTAMP, 0)


def _find_wrapped_times(header: BatchHeader, records: memoryview) -> Steps[Times]:
    """`_find_times` for timestamps that wrap: reads the head of each record."""
    lowest = _TIMESTAMP_MAX
    largest = ~_TIMESTAMP_MAX
    newest_index = 0
    index = 0
    for head in read_heads(header, records):
        if not isinstance(head, RecordHead):
            yield head
            continue
        timestamp = timestamp_of(header, head.timestamp_delta)
        lowest = min(lowest, timestamp)
        if timestamp > largest:
            largest = timestamp
            newest_index = index
        index += 1

    return (lowest, largest, newest_index) if largest > NO_TIMESTAMP else (lowest, NO_TIMESTAMP, 0)


def _find_record_errors(
    header: BatchHeader, records: memoryview, rules: RecordRules, now_ms: int, topic_partition: TopicPartition
) -> Steps[RecordsRefused | None]:
    """The refusal that names each record at fault, in Kafka's words; None if there is none."""
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
            error = ErrorCode.INVALID_TIMESTAMP
            message = why

        # One bad timestamp decides the code of the batch, as in Kafka; else it is that of a missing key.
        code = error if code != ErrorCode.INVALID_TIMESTAMP else code
        errors.append((index, message))
        if len(errors) == RECORD_ERRORS_MAX:
            break

    if not errors:
        return None
    return RecordsRefused(code, f"{len(errors)} records are refused; the first: {errors[0][1]}", errors)


def _why_bad_time(head: RecordHead, header: BatchHeader, rules: RecordRules, now_ms: int) -> str | None:
    """Kafka's message if it refuses the timestamp of this record, else None."""
    timestamp = timestamp_of(header, head.timestamp_delta)
    if timestamp == NO_TIMESTAMP or rules.message_timestamp_type == "LogAppendTime":
        if not header.uses_log_append_time:
            return None
        key = max(head.key_length, -1)
        value = max(head.value_length, -1)
        return (
            f"Invalid timestamp type in message DefaultRecord(offset={head.offset_delta}, timestamp={timestamp}, "
            f"key={key} bytes, value={value} bytes). Producer should not set timestamp type to LogAppendTime."
        )

    # The difference wraps as in Java: the age of an absurd timestamp may be negative, and pass as
    # if it were young.
    age_ms = wrap_timestamp(now_ms - timestamp)
    if age_ms <= rules.message_timestamp_before_max_ms and -age_ms <= rules.message_timestamp_after_max_ms:
        return None
    earliest = now_ms - rules.message_timestamp_before_max_ms
    latest = now_ms + rules.message_timestamp_after_max_ms
    return (
        f"Timestamp {timestamp} of message with offset {head.offset_delta} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def _rebuilt(header: BatchHeader, records: memoryview, rules: RecordRules, now_ms: int) -> Steps[Checked]:
    # Kafka's builder throws here, although its broker stores such a batch if it need not rebuild it.
    if header.producer_id > NO_PRODUCER_ID and header.producer_epoch == -1:
        return RecordsRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"producer {header.producer_id} has no epoch")
    codec = CODEC_NAMES[rules.compression_type]
    append_time_ms = now_ms if rules.message_timestamp_type == "LogAppendTime" else None
    max_bytes = rules.max_message_bytes
    batch = yield from rebuilding(header, records, codec, level_of(codec, rules), append_time_ms, max_bytes)
    if batch is None:
        return _too_large(None, rules)
    return fitting_segment(batch, rules)


def level_of(codec: Codec, rules: RecordRules) -> int | None:
    """The topic's compression level for this codec; None if the codec has no levels."""
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
