"""Record batches as bytes: headers, stamps, and walks over entries of all message formats."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from barnabas.wire.records import (
    BatchHeader,
    CorruptRecords,
    EntryHeader,
    build_batch,
    is_intact,
    read_batch_header,
    read_records,
    stamp,
    walk_entries,
)

LONG_MAX = 2**63 - 1


def legacy(magic: int, codec: int, *values: bytes, offset: int = 0) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for index, value in enumerate(values):
        builder.append(offset + index, 1000 + index, b"k", value)
    return bytes(builder.build())


def at_offset(entry: bytes | bytearray, offset: int) -> bytes:
    return struct.pack(">q", offset) + entry[8:]


BATCH = bytes(build_batch([(b"k", b"v")], timestamp_ms=1000).data)


def with_byte(data: bytes, position: int, byte: int) -> bytes:
    return data[:position] + bytes((byte,)) + data[position + 1 :]


def test_a_stamp_changes_only_base_offset_and_leader_epoch() -> None:
    batch = build_batch([(b"k", b"v"), (None, None)], timestamp_ms=5)
    before = bytes(batch.data)
    stamp(batch, 2**40, 7)
    assert bytes(batch.data) == struct.pack(">q", 2**40) + before[8:12] + struct.pack(">i", 7) + before[16:]
    assert batch.header == read_batch_header(batch.data)
    assert (batch.header.last_offset, batch.header.size_bytes) == (2**40 + 1, len(before))


@pytest.mark.parametrize(
    ("sequence", "count", "last"), [(5, 3, 7), (2**31 - 2, 2, 2**31 - 1), (2**31 - 1, 3, 1), (-1, 4, -1)]
)
def test_the_last_sequence_wraps_to_zero(sequence, count, last) -> None:
    records = [(None, b"")] * count
    assert build_batch(records, timestamp_ms=0, base_sequence=sequence).header.last_sequence == last


def test_a_header_needs_61_bytes() -> None:
    with pytest.raises(CorruptRecords, match="61 bytes"):
        read_batch_header(BATCH[:60])
    assert read_batch_header(b"ab" + BATCH, 2) == read_batch_header(BATCH)


def test_a_header_is_read_field_by_field() -> None:
    fields = (2**40, 49, 7, 2, 0xFFFFFFFF, -1, 2**31 - 1, -1, LONG_MAX, 2**50, -(2**15), 2**31 - 1, -(2**31))
    assert read_batch_header(struct.pack(">qiibIhiqqqhii", *fields)) == BatchHeader(*fields)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=30)), max_size=6), st.data())
def test_entries_of_all_formats_are_walked_over_and_a_partial_tail_ends_the_walk(formats, data) -> None:
    entries = [
        at_offset(build_batch([(None, value)], timestamp_ms=0).data if magic == 2 else legacy(magic, 0, value), index)
        for index, (magic, value) in enumerate(formats)
    ]
    cut = data.draw(st.integers(0, len(BATCH) - 1))
    walked = list(walk_entries(b"xy" + b"".join(entries) + BATCH[:cut], 2))
    assert [entry for _, entry in walked] == [
        EntryHeader(index, len(entry), formats[index][0]) for index, entry in enumerate(entries)
    ]
    ends = [position + entry.size_bytes for position, entry in walked]
    assert all(end == following for end, (following, _) in zip(ends, walked[1:], strict=False))
    assert all(is_intact(entry) for entry in entries)


@pytest.mark.parametrize("nonsense", [bytes(17), bytes(12), with_byte(BATCH, 16, 3)[:17], with_byte(BATCH, 11, 13)])
def test_nonsense_where_an_entry_should_begin_is_corrupt(nonsense) -> None:
    walk = walk_entries(BATCH + nonsense)
    assert next(walk)[1].size_bytes == len(BATCH)
    with pytest.raises(CorruptRecords):
        next(walk)


@pytest.mark.parametrize("entry", [BATCH, legacy(0, 0, b"v"), legacy(1, 0, b"v"), legacy(1, 1, b"v")])
def test_a_damaged_entry_is_not_intact_and_not_read(entry) -> None:
    damaged = entry[:-1] + bytes((entry[-1] ^ 1,))
    assert is_intact(entry)
    assert not is_intact(damaged)
    with pytest.raises(CorruptRecords, match="checksum"):
        list(read_records(damaged))
