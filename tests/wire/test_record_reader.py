"""Records as objects: every codec and format, searches by timestamp, control records."""

import gzip
import struct
from zlib import crc32

import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from barnabas.wire.compression import CHUNK_BYTES, Codec
from barnabas.wire.compressors import compress
from barnabas.wire.record_reader import UNCHANGED
from barnabas.wire.records import (
    ABORT,
    COMMIT,
    LOG_APPEND_TIME,
    ControlRecord,
    CorruptRecords,
    Record,
    build_batch,
    build_control_batch,
    checksum,
    find_time,
    read_all_records,
    read_control_record,
    read_records,
)
from barnabas.world.pacing import complete_inline
from tests.wire.raw_records import varint

NOW_MS = 1_700_000_000_000
CODECS = list(Codec)


def legacy(magic: int, codec: int, *values: bytes, offset: int = 0) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for index, value in enumerate(values):
        builder.append(offset + index, 1000 + index, b"k", value)
    return bytes(builder.build())


def at_offset(entry: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + entry[8:]


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_old_formats_are_read_with_their_offsets_and_timestamps(magic, codec) -> None:
    entry = legacy(magic, codec, b"a", b"b", b"c")
    if codec and magic == 1:
        entry = at_offset(entry, 42)
    first = 40 if codec and magic == 1 else 0
    times = [1000, 1001, 1002] if magic else [-1, -1, -1]
    found = [(r.offset, r.timestamp, r.key, r.value) for _, r in read_all_records(entry)]
    assert found == [(first + i, times[i], b"k", value) for i, value in enumerate([b"a", b"b", b"c"])]


def wrapper(magic: int, attributes: int, content: bytes) -> bytes:
    body = bytes((magic, attributes)) + bytes(8 * magic) + struct.pack(">ii", -1, len(content)) + content
    return struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body


def test_lz4_in_format_0_is_read_in_spite_of_its_header_checksum() -> None:
    frame = bytearray(compress(Codec.LZ4, legacy(0, 0, b"a", b"b")))
    frame[6] ^= 0x5A
    assert [record.value for record in read_records(wrapper(0, Codec.LZ4, bytes(frame)))] == [b"a", b"b"]


def test_the_log_append_time_of_a_wrapper_is_that_of_its_messages() -> None:
    content = gzip.compress(legacy(1, 0, b"a", b"b"))
    assert [record.timestamp for record in read_records(wrapper(1, Codec.GZIP, content))] == [1000, 1001]
    assert [record.timestamp for record in read_records(wrapper(1, Codec.GZIP | LOG_APPEND_TIME, content))] == [0, 0]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_with_a_false_count_is_corrupt(codec, count) -> None:
    data = build_batch([(None, b"a"), (None, b"b")], timestamp_ms=0, codec=codec).data
    data[57:61] = struct.pack(">i", count)
    data[17:21] = struct.pack(">I", checksum(data))
    with pytest.raises(CorruptRecords):
        list(read_records(data))


def test_a_compressed_message_within_a_compressed_one_is_corrupt() -> None:
    nested = wrapper(1, Codec.GZIP, gzip.compress(wrapper(1, Codec.GZIP, gzip.compress(b""))))
    with pytest.raises(CorruptRecords, match="within"):
        list(read_records(nested))


@settings(max_examples=100)
@given(
    st.integers(0, 2),
    st.sampled_from([0, 1, 2]),
    st.lists(st.tuples(st.integers(16, 300), st.integers(0, 255)), max_size=3),
)
def test_damage_under_a_right_checksum_raises_nothing_but_corrupt_records(magic, codec, changes) -> None:
    built = build_batch([(b"k", b"v"), (None, b"w")], timestamp_ms=5, codec=Codec(codec)).data
    entry = bytearray(built if magic == 2 else legacy(magic, codec, b"a", b"bcd"))
    for position, byte in changes:
        entry[max(position % len(entry), 17)] = byte
    if magic == 2:
        entry[17:21] = struct.pack(">I", checksum(entry))
    else:
        entry[12:16] = struct.pack(">I", crc32(entry[16:]))
    try:
        assert all(isinstance(record, Record) for record in read_records(entry))
    except CorruptRecords as error:
        assert str(error)


def test_all_records_come_with_the_header_of_their_batch() -> None:
    batch = build_batch([(b"a", b"1"), (b"b", None)], timestamp_ms=5, base_offset=7)
    found = list(read_all_records(legacy(1, 0, b"old") + bytes(batch.data) + b"partial"))
    assert [header for header, _ in found] == [None, batch.header, batch.header]
    assert [record.offset for _, record in found] == [0, 7, 8]


def test_a_name_of_a_header_that_is_not_utf_8_is_read_as_by_java_or_unchanged() -> None:
    record = Record(0, 5, None, b"v", [("a\udcff", b"1")])
    batch = build_batch([record], timestamp_ms=5)
    assert b"a\xff" in batch.data
    assert [each.headers for each in read_records(batch.data)] == [[("a\ufffd", b"1")]]
    assert [each for _, each in read_all_records(batch.data, name_errors=UNCHANGED)] == [record]


def first_at(data: bytes, timestamp: int, start_offset: int = 0) -> tuple[int, int] | None:
    return complete_inline(find_time(memoryview(data), timestamp, start_offset))


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_are_found_by_timestamp(codec) -> None:
    records = [Record(0, time, None, b"", []) for time in (10, 30, 20, 30)]
    data = build_batch(records, timestamp_ms=0, codec=codec, base_offset=100).data
    assert first_at(data, 5) == (100, 10)
    assert first_at(data, 11) == (101, 30)
    assert first_at(data, 11, start_offset=102) == (102, 20)
    assert first_at(data, 31) is None


def test_with_log_append_time_every_record_has_the_time_of_the_batch() -> None:
    data = build_batch([(None, b"")] * 3, timestamp_ms=50, base_offset=9, attributes=LOG_APPEND_TIME).data
    assert first_at(data, 50) == (9, 50)
    assert first_at(data, 50, start_offset=11) == (11, 50)
    assert first_at(data, 51) is None


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_searched_by_time_too(magic) -> None:
    data = legacy(magic, 1, b"a", b"b")
    # The offset of a compressed message of format 1 is that of its last message.
    assert first_at(at_offset(data, 1) if magic else data, 1001) == ((1, 1001) if magic else None)


SIZES = st.sampled_from([0, 1, 60, 63, 64, 200, 8192, CHUNK_BYTES, 3 * CHUNK_BYTES])
TIMES = st.one_of(st.integers(0, 40), st.integers(0, 1 << 50))


@given(st.lists(st.tuples(TIMES, SIZES), min_size=1, max_size=40), st.sampled_from(CODECS), TIMES, st.integers(0, 50))
@settings(max_examples=100, deadline=None)
def test_a_search_by_time_finds_what_reading_every_record_finds(shapes, codec, timestamp, start_offset) -> None:
    records = [Record(0, time, b"k" * (size % 7), bytes(size), [("h", b"v")] * (size % 3)) for time, size in shapes]
    data = build_batch(records, timestamp_ms=0, codec=codec, base_offset=5).data
    found = ((each.offset, each.timestamp) for each in read_records(data))
    expected = next((each for each in found if each[0] >= start_offset and each[1] >= timestamp), None)
    assert first_at(data, timestamp, start_offset) == expected


STEPS_MS = st.lists(st.tuples(st.integers(1, 200), st.sampled_from([-70, -1, 0, 1, 3, 63, 64, 5000])), max_size=6)


@given(st.integers(0, 20), STEPS_MS, st.sampled_from([Codec.NONE, Codec.GZIP]), st.integers(-20_000, 40_000), st.data())
@settings(max_examples=200, deadline=None)
def test_a_search_by_time_among_records_of_one_shape(size, steps, codec, asked, draw) -> None:
    times = [1_000_000]
    for count, step in steps:
        times += [times[-1] + step * number for number in range(1, count + 1)]
    data = build_batch([Record(0, time, None, bytes(size), []) for time in times], timestamp_ms=0, codec=codec).data
    wanted = draw.draw(st.sampled_from([*times, times[0] + asked])) + draw.draw(st.sampled_from([-1, 0, 1]))
    start_offset = draw.draw(st.integers(0, len(times)))
    each = ((offset, time) for offset, time in enumerate(times) if offset >= start_offset and time >= wanted)
    assert first_at(data, wanted, start_offset) == next(each, None)


def test_a_search_by_time_wraps_timestamps_as_java_does() -> None:
    data = bytearray(build_batch([Record(0, 7, None, b"", [])], timestamp_ms=0).data)
    record = b"\x00" + varint(1 << 62) + varint(0) + varint(-1) + varint(-1) + varint(0)
    data[27:35] = struct.pack(">q", (1 << 63) - 1)  # the base timestamp
    data[61:] = varint(len(record)) + record
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[17:21] = struct.pack(">I", checksum(data))
    assert first_at(data, 0) is None
    assert first_at(data, -(1 << 63)) == (0, (1 << 62) - 1 - (1 << 63))


@given(st.integers(61, 2000), st.binary(min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_search_by_time_ends_or_refuses_whatever_the_bytes_are(position, replaced) -> None:
    data = bytearray(build_batch([(b"k", b"v" * 60)] * 20, timestamp_ms=9).data)
    position = 61 + (position - 61) % (len(data) - 64)
    data[position : position + len(replaced)] = replaced
    data[17:21] = struct.pack(">I", checksum(data))
    try:
        found = first_at(data, 1 << 40)
    except CorruptRecords:
        return
    assert found is None or found[1] >= 1 << 40


@pytest.mark.parametrize("control_type", [ABORT, COMMIT])
def test_a_control_batch_says_how_the_transaction_ended(control_type) -> None:
    batch = build_control_batch(
        control_type, coordinator_epoch=6, producer_id=5, producer_epoch=2, timestamp_ms=NOW_MS, base_offset=3
    )
    assert (batch.header.is_control, batch.header.is_transactional, batch.header.base_sequence) == (True, True, -1)
    assert [read_control_record(record) for record in read_records(batch.data)] == [ControlRecord(control_type, 6)]
    theirs = next(kafka_records.DefaultRecordBatch(bytes(batch.data)))
    assert (theirs.abort, theirs.commit) == (control_type == ABORT, control_type == COMMIT)


# Written by Apache Kafka 3.9.1 for WriteTxnMarkers, to a topic with compression.type=gzip.
MARKERS_OF_KAFKA = (
    "0000000000000000000000420000000002a4d78213003000000000000001a210763a98000001a210763a98"
    "00000000000010920003ffffffff000000012000000008000000010c00000000001100",
    "0000000000000001000000420000000002"
    "2273bc93003000000000000001a210763aaa000001a210763aaa"
    "00000100000000057fffffffffff000000012000000008000000000c00000000000100",
)


def test_a_marker_is_what_kafka_writes() -> None:
    commit = {"control_type": COMMIT, "coordinator_epoch": 17, "producer_id": 4242, "producer_epoch": 3}
    abort = {"control_type": ABORT, "coordinator_epoch": 1, "producer_id": (1 << 40) + 5, "producer_epoch": 32767}
    for offset, (fields, recorded) in enumerate(zip((commit, abort), MARKERS_OF_KAFKA, strict=True)):
        time = int.from_bytes(bytes.fromhex(recorded)[27:35], "big")
        built = build_control_batch(**fields, timestamp_ms=time, base_offset=offset, leader_epoch=0)
        assert built.data.hex() == recorded
        assert len(built.data) == 78


@pytest.mark.parametrize(("key", "value"), [(None, bytes(6)), (b"\0\0\0", bytes(6)), (bytes(4), None), (bytes(4), b"")])
def test_a_control_record_that_says_nothing_is_corrupt(key, value) -> None:
    with pytest.raises(CorruptRecords, match="control record"):
        read_control_record(Record(0, 0, key, value, []))


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([], timestamp_ms=0)
