"""One segment after another, sound and broken: what is read, what is said to be wrong, and where reading goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.scan import Columns, scan
from barnabas.storage.memdisk import MemDisk
from barnabas.wire.compression import Codec
from barnabas.wire.records import (
    BATCH_OVERHEAD_BYTES,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptRecords,
    Record,
    build_batch,
    build_control_batch,
    checksum,
    read_records,
)

NOW = 1_790_000_000_000


def batch_at(offset, *values, **fields):
    records = [(b"k", value) for value in values or (b"v",)]
    return bytes(build_batch(records, timestamp_ms=NOW, base_offset=offset, **fields).data)


def scanned(*pieces, start=0, is_growing=False):
    """What a segment of these bytes holds."""
    disk = MemDisk()
    disk.make_directory("/log")
    file = disk.open("/log/0.log", create=True)
    file.write(0, b"".join(pieces))
    return list(scan(file, start, file.size_bytes(), is_growing=is_growing))


def offsets(found):
    return [offset for each in found for piece in each.pieces() for offset in piece.offsets]


def problems(found):
    return [each.problem for each in found if each.problem is not None]


@pytest.mark.parametrize("codec", Codec)
def test_the_facts_of_a_batch_are_those_of_its_header(codec):
    batch = batch_at(
        7, b"a", b"b", codec=codec, producer_id=4000, producer_epoch=3, base_sequence=11, leader_epoch=5,
        attributes=TRANSACTIONAL | LOG_APPEND_TIME,
    )  # fmt: skip
    (found,) = scanned(batch)
    facts = found.facts
    assert (facts.base_offset, facts.last_offset, facts.position, facts.batch_bytes) == (7, 8, 0, len(batch))
    assert (facts.producer_id, facts.producer_epoch, facts.base_sequence, facts.leader_epoch) == (4000, 3, 11, 5)
    assert (facts.codec, facts.magic, facts.timestamp_type) == (codec.name.lower(), 2, "LogAppendTime")
    assert facts.transactional
    assert not facts.control
    assert facts.crc_ok
    (piece,) = found.pieces()
    assert piece.values == [b"a", b"b"]
    assert piece.timestamps == [NOW, NOW]


def test_a_marker_is_a_control_batch():
    marker = build_control_batch(1, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)
    (found,) = scanned(bytes(marker.data))
    assert found.facts.control
    assert found.facts.transactional
    assert [len(piece.offsets) for piece in found.pieces()] == [1]


def test_a_batch_with_a_flipped_bit_is_passed_over():
    broken = bytearray(batch_at(1, b"b"))
    broken[-3] ^= 1
    found = scanned(batch_at(0), broken, batch_at(2))
    assert offsets(found) == [0, 2]
    assert problems(found) == ["the checksum is wrong"]
    assert (found[1].facts.base_offset, found[1].facts.last_offset, found[1].facts.crc_ok) == (1, 1, False)


def test_a_torn_tail_is_reported_with_its_place_and_size():
    whole, torn = batch_at(0), batch_at(1)[:-4]
    found = scanned(whole, torn)
    assert offsets(found) == [0]
    assert problems(found) == [f"no whole batch in the last {len(torn)} bytes"]
    assert (found[1].facts.position, found[1].facts.batch_bytes) == (len(whole), len(torn))


def test_a_batch_half_written_at_the_end_of_a_growing_log_is_no_problem():
    found = scanned(batch_at(0), batch_at(1)[:-4], is_growing=True)
    assert (offsets(found), problems(found)) == ([0], [])


@pytest.mark.parametrize("tail", [bytes(100), bytes(5), b"\xff" * 100])
def test_what_is_no_batch_ends_the_reading(tail):
    found = scanned(batch_at(0), tail, batch_at(1))
    assert offsets(found) == [0]
    assert problems(found) == [f"no whole batch in the last {len(tail) + len(batch_at(1))} bytes"]


def test_offsets_that_go_back_are_reported_and_the_records_are_read():
    found = scanned(batch_at(5), batch_at(3))
    assert offsets(found) == [5, 3]
    assert problems(found) == ["offset 3 after 5: offsets go back"]


def test_reading_begins_where_it_is_asked_to():
    first = batch_at(0)
    assert offsets(scanned(first, batch_at(1), start=len(first))) == [1]


def test_an_empty_file_holds_nothing():
    assert scanned(b"") == []


def test_records_of_formats_0_and_1_have_no_producer():
    import struct
    import zlib

    body = struct.pack(">bbq", 1, 0, NOW) + struct.pack(">i", -1) + struct.pack(">i", 3) + b"old"
    message = struct.pack(">qi", 9, len(body) + 4) + struct.pack(">I", zlib.crc32(body)) + body
    (found,) = scanned(message)
    assert list(found.pieces()) == [Columns([9], [NOW], [None], [b"old"], [None])]
    assert (found.facts.magic, found.facts.producer_id, found.facts.timestamp_type) == (1, -1, "CreateTime")


def test_control_and_transactional_are_two_bits():
    (found,) = scanned(batch_at(0, attributes=CONTROL))
    assert (found.facts.control, found.facts.transactional) == (True, False)


RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(-(1 << 62), 1 << 62),
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=20_000),
        headers=st.lists(st.tuples(st.text(max_size=99), st.none() | st.binary(max_size=99)), max_size=3),
    ),
    min_size=1,
    max_size=9,
)


@given(RECORDS, st.sampled_from(Codec), st.integers(0, 1 << 40))
def test_records_are_read_at_once_as_they_are_one_by_one(records, codec, offset):
    batch = bytes(build_batch(records, timestamp_ms=NOW, codec=codec, base_offset=offset).data)
    (found,) = scanned(batch)
    (piece,) = found.pieces()
    assert rows_of(piece) == [(*record[:4], record.headers or None) for record in read_records(batch)]


@given(st.data())
def test_no_bytes_with_a_right_checksum_raise_anything_but_corrupt_records(data):
    section = data.draw(st.binary(max_size=60))
    batch = bytearray(batch_at(0, b"v" * 9))[:BATCH_OVERHEAD_BYTES] + section
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = checksum(batch).to_bytes(4, "big")
    (found,) = scanned(batch)
    try:
        read = [row for piece in found.pieces() for row in rows_of(piece)]
    except CorruptRecords:
        return
    assert len(read) == 1


def test_a_large_batch_is_read_in_pieces():
    (found,) = scanned(batch_at(0, *[bytes(1 << 20)] * 20, codec=Codec.ZSTD))
    pieces = list(found.pieces())
    assert [len(piece.offsets) for piece in pieces] == [8, 8, 4]


def test_records_before_the_damage_are_given():
    batch = bytearray(batch_at(0, b"a", b"b"))
    batch[-3] = 99  # a length
    batch[17:21] = checksum(batch).to_bytes(4, "big")
    (found,) = scanned(batch)
    pieces = found.pieces()
    assert next(pieces).values == [b"a"]
    with pytest.raises(CorruptRecords):
        next(pieces)


def test_an_offset_that_no_log_reaches_is_a_problem():
    batch = bytearray(batch_at(0, b"a", b"b"))
    batch[0:8] = ((1 << 63) - 1).to_bytes(8, "big")
    (found,) = scanned(batch)
    assert (found.problem, found.facts.last_offset) == ("no log reaches offset 9223372036854775807", None)


def rows_of(piece):
    return list(zip(*piece, strict=True))
