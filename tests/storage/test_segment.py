"""Entries, open files, and segments: walking, looking up, rolling."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.entries import find_entry, span_at, walk_buffer, walk_file
from barnabas.storage.files import OpenFiles, offset_of_name
from barnabas.storage.index import MAX_RELATIVE_OFFSET
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.segment import INDEX_SAVE_STEP_BYTES
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.records import CorruptRecords, build_batch


def message(offset: int, magic: int = 1, value: bytes = b"") -> bytes:
    """An uncompressed message of an older format."""
    timestamp = struct.pack(">q", 5000 + offset) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def batch(offset: int, count: int = 1, size: int = 10) -> bytes:
    return bytes(build_batch([(b"k", bytes(size))] * count, timestamp_ms=1000, base_offset=offset).data)


def file_of(data: bytes):
    file = MemDisk().open("/0.log", create=True)
    file.write(0, data)
    return file


# entries of mixed formats in rising offsets, as (first offset, last offset, bytes)
@st.composite
def rows(draw):
    row, offset = [], 0
    for magic in draw(st.lists(st.sampled_from([0, 1, 2]), max_size=30)):
        offset += draw(st.integers(0, 3))
        size = draw(st.sampled_from([0, 1, 50, 3000]))
        count = draw(st.integers(1, 4)) if magic == 2 else 1
        data = batch(offset, count, size) if magic == 2 else message(offset, magic, bytes(size))
        row.append((offset, offset + count - 1, data))
        offset += count
    return row


@given(rows(), st.sampled_from([64, 4096, 1 << 20]), st.integers(0, 25))
def test_walking_a_file_finds_every_entry_and_stops_at_the_torn_tail(row, window_bytes, tail):
    whole = b"".join(data for _, _, data in row)
    file = file_of(whole + batch(10**6)[:tail])
    walked = list(walk_file(file, 0, file.size_bytes(), window_bytes))
    assert [(span.last_offset, bytes(data)) for span, data in walked] == [(last, data) for _, last, data in row]
    assert sum(span.size_bytes for span, _ in walked) == len(whole)


@given(rows(), st.integers(0, 60))
def test_walking_received_bytes_leaves_out_a_partial_entry(row, tail):
    data = b"".join(data for _, _, data in row) + batch(10**6)[:tail]
    assert [span.last_offset for span, _ in walk_buffer(memoryview(data))] == [last for _, last, _ in row]


@given(rows(), st.integers(0, 100))
def test_an_offset_is_found_in_the_first_entry_that_reaches_it(row, offset):
    file = file_of(b"".join(data for _, _, data in row))
    found = find_entry(file, 0, file.size_bytes(), offset)
    expected = next((last for _, last, _ in row if last >= offset), None)
    assert (found.last_offset if found else None) == expected


def test_nonsense_in_received_bytes_is_corrupt():
    with pytest.raises(CorruptRecords):
        list(walk_buffer(memoryview(batch(0) + struct.pack(">qi", 1, 5) + bytes(60))))


def test_nonsense_in_a_trusted_file_does_not_loop_for_ever():
    with pytest.raises(CorruptRecords):
        find_entry(file_of(batch(0) + bytes(100)), 0, 200, 5)


@pytest.mark.parametrize("head", [bytes(27), struct.pack(">qi4xb", -1, 60, 2) + bytes(60), b"\x7f" * 61])
def test_bytes_that_cannot_be_an_entry_are_none(head):
    assert span_at(head, 0, 0) is None


def test_a_batch_longer_than_its_file_is_not_read():
    data = bytearray(batch(0))
    struct.pack_into(">i", data, 8, 2**31 - 1)
    file = file_of(bytes(data))
    assert list(walk_file(file, 0, file.size_bytes())) == []


@pytest.mark.parametrize(
    ("name", "offset"),
    [("00000000000000000042.log", 42), ("00000000000000000042.timeindex.deleted", 42), ("42.log", None), ("x", None)],
)
def test_files_are_named_by_their_offset(name, offset):
    assert offset_of_name(name) == offset


# -- open files


@pytest.fixture
def disk():
    disk = MemDisk()
    for name in "abcd":
        disk.open(f"/{name}", create=True).release()
    return disk


def test_only_the_last_used_files_stay_open(disk):
    files = OpenFiles(disk, limit=2)
    first = files.get("/a")
    files.get("/b")
    assert files.get("/a") is first
    files.get("/c")
    assert len(files) == 2
    assert files.get("/a") is first


def test_a_file_that_is_retained_outlives_its_place(disk):
    files = OpenFiles(disk, limit=1)
    file = files.get("/a")
    file.retain()
    files.get("/b")
    assert file.read(0, 1) == b""
    file.release()
    with pytest.raises(InvariantBroken):
        file.retain()


def test_pinned_files_do_not_count_until_they_are_unpinned(disk):
    files = OpenFiles(disk, limit=1)
    pinned = disk.open("/a")
    files.pin("/a", pinned)
    files.get("/b")
    files.get("/c")
    assert files.get("/a") is pinned
    files.unpin("/a")
    files.get("/b")
    with pytest.raises(InvariantBroken):
        pinned.retain()


def test_a_directorys_files_are_dropped_together():
    disk = MemDisk()
    for name in ("/t-0", "/t-01"):
        disk.make_directory(name)
        disk.open(f"{name}/a", create=True).release()
    files = OpenFiles(disk)
    files.get("/t-0/a")
    files.get("/t-01/a")
    files.drop_directory("/t-0")
    assert len(files) == 1


# -- rolling


def test_an_empty_segment_takes_a_batch_larger_than_segment_bytes(new_world):
    world = new_world(segment_bytes=100)
    log = world.open()
    world.append(log, size=500)
    world.append(log, size=500)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_segment_is_rolled_when_the_next_batch_would_not_fit(new_world):
    size = len(new_world().batch().data)
    world = new_world(segment_bytes=3 * size)
    log = world.open()
    for _ in range(7):
        world.append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_a_segment_is_rolled_by_the_age_of_its_first_batch_in_record_time(new_world):
    world = new_world(segment_ms=1000)
    log = world.open()
    for timestamp in (5000, 6000, 6001, 3000, 7002):
        world.append(log, timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_without_timestamps_the_wall_clock_since_creation_counts(new_world):
    world = new_world(segment_ms=1000)
    log = world.open()
    world.append(log, timestamp=-1)
    world.now_ms += 1001
    world.append(log, timestamp=-1)
    assert len(log.segments) == 2


def test_jitter_makes_segments_roll_earlier(new_world):
    world = new_world(segment_ms=100_000, segment_jitter_ms=90_000)
    log = world.open()
    active = log.segments.active
    active.size_bytes, active.first_timestamp = 1, 0
    due = [ms for ms in range(0, 100_001, 100) if active.roll_due(world.config, 1, 1, ms, 0)]
    assert 10_000 <= due[0] < 100_000


def test_a_full_index_rolls(new_world):
    world = new_world(segment_index_bytes=28, index_interval_bytes=0)
    log = world.open()
    for _ in range(6):
        world.append(log, timestamp=-1)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    assert len(world.content("00000000000000000000.index")) == 24


def test_a_full_time_index_rolls_and_keeps_its_last_slot(new_world):
    world = new_world(segment_index_bytes=36, index_interval_bytes=0)
    log = world.open()
    for number in range(5):
        world.append(log, timestamp=1000 + number)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert len(world.content("00000000000000000000.timeindex")) == 24


def test_offsets_too_far_from_the_base_roll(world):
    log = world.open()
    world.append(log)
    assert log.segments.active.roll_due(world.config, 1, MAX_RELATIVE_OFFSET + 1, 0, 0)
    assert not log.segments.active.roll_due(world.config, 1, MAX_RELATIVE_OFFSET, 0, 0)


def test_the_first_batch_has_no_index_entry_and_others_point_to_their_chunk(new_world):
    world = new_world(index_interval_bytes=200)
    log = world.open()
    size = len(world.batch(2).data)  # 122: the third chunk comes after 244 bytes
    for _ in range(5):
        world.append(log, 2)
    log.roll(world.now_ms)
    entries = struct.iter_unpack(">ii", world.content("00000000000000000000.index"))
    assert list(entries) == [(5, 2 * size), (9, 4 * size)]


def test_the_time_index_ends_with_the_largest_timestamp(new_world):
    world = new_world(index_interval_bytes=10**6)
    log = world.open()
    for timestamp in (1000, 3000, 2000):
        world.append(log, timestamp=timestamp)
    log.roll(world.now_ms)
    assert list(struct.iter_unpack(">qi", world.content("00000000000000000000.timeindex"))) == [(3000, 1)]


def test_a_long_index_is_saved_step_by_step(new_world):
    world = new_world(index_interval_bytes=0)
    log = world.open()
    active = log.segments.active
    active.offsets.entries += bytes(INDEX_SAVE_STEP_BYTES - 8)
    world.append(log)
    world.append(log)
    assert world.names(".index") == []
    world.append(log)
    assert active.offsets.saved_bytes == len(world.content("00000000000000000000.index")) == INDEX_SAVE_STEP_BYTES


def test_an_existing_log_with_records_is_never_taken_for_a_new_segment(world):
    log = world.open()
    world.append(log)
    world.put("00000000000000000001.log", b"something")
    with pytest.raises(InvariantBroken):
        log.roll(world.now_ms)
