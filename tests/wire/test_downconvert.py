"""Records for consumers from before 0.11, read by an independent reader of the old formats."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from barnabas.wire import downconvert
from barnabas.wire.compression import BeyondLimits, Codec, CorruptRecords
from barnabas.wire.downconvert import MESSAGE_MAX_BYTES, Unconvertible
from barnabas.wire.record_batch import LOG_APPEND_TIME, rewrite_times
from barnabas.wire.record_reader import read_all_records
from barnabas.wire.record_writer import build_batch, build_control_batch
from barnabas.world.pacing import complete_inline
from tests.wire.bombs import header_bomb, memory_below, value_bomb

NOW = 1_700_000_000_000
PLENTY = 1 << 20
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def down_convert(records, magic, **limits):
    return complete_inline(downconvert.down_convert(records, magic, **limits))


def batch(*values, base_offset=0, codec=Codec.NONE, key=b"k", timestamp_ms=NOW):
    made = build_batch([(key, value) for value in values], timestamp_ms=timestamp_ms, codec=codec)
    made.data[:8] = base_offset.to_bytes(8, "big")
    return bytes(made.data)


def seen_by_kafka_python(data):
    """The records as kafka-python reads them, which supports all formats."""
    records = MemoryRecords(data)
    found = []
    while records.has_next():
        found += [(record.offset, record.timestamp, record.key, record.value) for record in records.next_batch()]
    return found


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_reader_sees_every_record(codec, magic):
    converted = down_convert(
        batch(b"a", None, b"c" * 300, base_offset=7, codec=codec), magic, first_offset=0, max_bytes=PLENTY
    )
    timestamp = NOW if magic else None
    assert seen_by_kafka_python(converted) == [
        (7, timestamp, b"k", b"a"),
        (8, timestamp, b"k", None),
        (9, timestamp, b"k", b"c" * 300),
    ]


def test_what_lies_before_the_wanted_offset_is_left_out():
    converted = down_convert(batch(b"a", b"b", b"c"), 1, first_offset=1, max_bytes=PLENTY)
    assert [record.value for _, record in read_all_records(converted)] == [b"b", b"c"]


def test_the_time_of_the_append_stays_marked_as_such():
    data = bytearray(batch(b"a", timestamp_ms=5))
    rewrite_times(data, LOG_APPEND_TIME, NOW)
    converted = down_convert(bytes(data), 1, first_offset=0, max_bytes=PLENTY)
    assert converted[17] == LOG_APPEND_TIME
    assert [record.timestamp for _, record in read_all_records(converted)] == [NOW]


def test_markers_of_transactions_are_left_out():
    marker = build_control_batch(producer_id=1, producer_epoch=0, control_type=1, coordinator_epoch=0, timestamp_ms=NOW)
    converted = down_convert(bytes(marker.data) + batch(b"a", base_offset=1), 1, first_offset=0, max_bytes=PLENTY)
    assert [record.value for _, record in read_all_records(converted)] == [b"a"]


def test_what_is_old_enough_stays_as_it_is():
    old = down_convert(batch(b"a"), 0, first_offset=0, max_bytes=PLENTY)
    assert down_convert(old + batch(b"b", base_offset=1), 1, first_offset=0, max_bytes=PLENTY).startswith(old)
    newer = down_convert(batch(b"a"), 1, first_offset=0, max_bytes=PLENTY)
    assert down_convert(newer, 0, first_offset=0, max_bytes=PLENTY) == old


@given(limit=st.integers(min_value=0, max_value=2000))
def test_what_fits_is_converted_and_always_one(limit):
    whole = down_convert(batch(*[b"x" * 50] * 10), 1, first_offset=0, max_bytes=PLENTY)
    size = len(whole) // 10
    converted = down_convert(batch(*[b"x" * 50] * 10), 1, first_offset=0, max_bytes=limit)
    assert len(converted) == min(10, max(1, limit // size)) * size
    assert whole.startswith(converted)


def test_zstd_ends_what_can_be_converted():
    newer = batch(b"z" * 100, base_offset=1, codec=Codec.ZSTD)
    converted = down_convert(batch(b"a") + newer + batch(b"c", base_offset=2), 1, first_offset=0, max_bytes=PLENTY)
    assert [record.value for _, record in read_all_records(converted)] == [b"a"]
    with pytest.raises(Unconvertible):
        down_convert(newer, 1, first_offset=1, max_bytes=PLENTY)


def test_a_damaged_batch_is_not_converted():
    data = bytearray(batch(b"a"))
    data[-1] ^= 1
    with pytest.raises(CorruptRecords):
        down_convert(bytes(data), 1, first_offset=0, max_bytes=PLENTY)


def test_a_record_with_millions_of_headers_is_converted_without_them():
    data = bytes(header_bomb(1 << 20, Codec.GZIP))
    with memory_below(20 << 20):
        converted = down_convert(data, 1, first_offset=0, max_bytes=PLENTY)
    assert seen_by_kafka_python(converted) == [(0, 1000, b"k", None)]


def test_a_message_that_is_far_larger_than_its_batch_ends_what_is_converted():
    huge = bytes(value_bomb(MESSAGE_MAX_BYTES + 1, Codec.GZIP))
    with memory_below(MESSAGE_MAX_BYTES // 8), pytest.raises(BeyondLimits):
        down_convert(huge, 1, first_offset=0, max_bytes=PLENTY)
    converted = down_convert(batch(b"a") + huge, 1, first_offset=0, max_bytes=PLENTY)
    assert [record.value for _, record in read_all_records(converted)] == [b"a"]


def test_many_records_are_converted_and_passed_over_in_many_steps():
    data = batch(*[b"v"] * 10_000, codec=Codec.GZIP)
    for first_offset in (0, 9_999):
        assert sum(1 for _ in downconvert.down_convert(data, 1, first_offset=first_offset, max_bytes=PLENTY)) > 50


@pytest.mark.parametrize(("codec", "held_bytes"), [(Codec.SNAPPY, 22 << 20), (Codec.LZ4, 8 << 20)])
def test_a_large_block_is_announced_before_its_batch_is_opened(codec, held_bytes):
    steps = downconvert.down_convert(batch(os.urandom(1 << 20), codec=codec), 1, first_offset=0, max_bytes=PLENTY)
    assert next(steps) is None
    with memory_below(1 << 18):
        assert next(steps) >= held_bytes


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_needs_little_memory_waits_for_no_room(codec):
    data = batch(*[b"v" * 100] * 10_000, codec=codec)
    assert not any(downconvert.down_convert(data, 1, first_offset=0, max_bytes=PLENTY))
