"""Index files: searches agree with a plain list, whatever the file holds behind its entries."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetIndex,
    TimeIndex,
    count_entries,
    find_in_file,
    last_in_file,
    read_entries,
)
from barnabas.storage.memdisk import MemDisk

BASE = 1000
PREALLOCATED = bytes(48_000)

# (offset, position) and (timestamp, offset), both columns rising, as they are appended
offset_entries = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(1, 9000)), max_size=1500, unique_by=(lambda e: e[0], lambda e: e[1])
).map(lambda entries: list(zip(sorted(e[0] for e in entries), sorted(e[1] for e in entries), strict=True)))


def file_of(data: bytes):
    file = MemDisk().open("/index", create=True)
    file.write(0, data)
    return file


def packed(entries, entry=OFFSET_ENTRY) -> bytes:
    return b"".join(entry.pack(*fields) for fields in entries)


def expected(entries, target):
    return max((entry for entry in entries if entry[0] <= target), default=None)


@given(offset_entries, st.integers(0, 5001), st.sampled_from([b"", PREALLOCATED]))
def test_a_search_in_a_file_finds_the_greatest_entry_at_or_below(entries, target, padding):
    file = file_of(packed(entries) + padding)
    assert find_in_file(file, OFFSET_ENTRY, target) == expected(entries, target)


@given(offset_entries, st.sampled_from([b"", PREALLOCATED]))
def test_the_zeros_that_kafka_preallocates_are_no_entries(entries, padding):
    file = file_of(packed(entries) + padding)
    assert count_entries(file, OFFSET_ENTRY) == len(entries)
    assert last_in_file(file, OFFSET_ENTRY) == (entries[-1] if entries else None)
    assert read_entries(file, OFFSET_ENTRY) == packed(entries)


@given(offset_entries, st.integers(0, 5001))
def test_a_search_in_memory_finds_the_position_of_the_same_entry(entries, target):
    index = OffsetIndex(BASE, packed(entries))
    found = expected(entries, target)
    assert index.lookup(BASE + target) == (found[1] if found else 0)


def test_an_offset_before_the_base_starts_at_the_beginning():
    assert OffsetIndex(BASE, packed([(5, 500)])).lookup(BASE - 7) == 0


def test_a_lone_time_entry_of_all_zeros_is_a_record_of_1970():
    file = file_of(packed([(0, 0)], TIME_ENTRY))
    assert last_in_file(file, TIME_ENTRY) == (0, 0)
    assert last_in_file(file_of(bytes(24)), TIME_ENTRY) is None


def test_a_first_time_entry_of_all_zeros_does_not_hide_the_others():
    entries = [(0, 0), (10, 5), (20, 9)]
    file = file_of(packed(entries, TIME_ENTRY) + bytes(1200))
    assert last_in_file(file, TIME_ENTRY) == (20, 9)
    assert find_in_file(file, TIME_ENTRY, 15) == (10, 5)


def test_time_entries_are_added_only_for_newer_timestamps():
    index = TimeIndex(BASE)
    for timestamp, offset in [(10, BASE), (10, BASE + 1), (7, BASE + 2), (11, BASE + 3)]:
        index.append_if_newer(timestamp, offset)
    assert list(TIME_ENTRY.iter_unpack(index.entries)) == [(10, 0), (11, 3)]
    assert index.last() == (11, BASE + 3)


def test_records_without_timestamps_make_no_time_entries():
    index = TimeIndex(BASE)
    index.append_if_newer(-1, BASE + 5)
    assert index.entries == b""
    assert index.lookup(0) == BASE


@given(offset_entries, st.integers(0, 9001))
def test_cutting_the_offset_index_leaves_the_entries_before_the_position(entries, position):
    index = OffsetIndex(BASE, packed(entries))
    index.cut_at(position)
    assert index.entries == packed([entry for entry in entries if entry[1] < position])


@given(offset_entries, st.integers(0, 5001))
def test_cutting_the_time_index_leaves_the_entries_before_the_offset(entries, offset):
    times = [(position, relative) for relative, position in entries]
    index = TimeIndex(BASE, packed(times, TIME_ENTRY))
    index.cut_at(BASE + offset)
    assert index.entries == packed([entry for entry in times if entry[1] < offset], TIME_ENTRY)


@given(st.lists(st.sampled_from(["append", "save", "cut"]), max_size=40))
def test_a_saved_index_file_is_trimmed_to_what_is_in_memory(steps):
    index, file, position = OffsetIndex(BASE), file_of(PREALLOCATED), 0
    for step in steps:
        position += 100
        if step == "append":
            index.append(BASE + position, position)
        elif step == "cut":
            index.cut_at(position // 2)
        else:
            index.save(file)
            assert file.read(0, file.size_bytes()) == index.entries
