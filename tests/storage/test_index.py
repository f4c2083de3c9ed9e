"""Index files: searches agree with a plain list, whatever the file holds behind its entries."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.index import (
    OFFSET_ENTRY,
    PAGE_TRANSACTIONS,
    TIME_ENTRY,
    AbortedTransaction,
    IndexCorrupt,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    count_entries,
    find_in_file,
    format_transactions,
    last_in_file,
    oldest_by_page,
    overlapping,
    pages,
    parse_transactions,
    read_entries,
    transactions_from,
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


def test_a_saved_transaction_index_says_what_was_appended():
    index, file = TransactionIndex(), file_of(bytes(500))
    index.append(AbortedTransaction(7, 1, 5, 6))
    index.save(file)
    index.append(AbortedTransaction(8, 2, 9, 10))
    index.save(file)
    assert list(parse_transactions(file.read(0, file.size_bytes()))) == index.entries


def test_cutting_the_transaction_index_forgets_markers_behind():
    before = [AbortedTransaction(7, 1, 5, 6), AbortedTransaction(8, 2, 9, 10)]
    index, file = TransactionIndex(before), file_of(format_transactions(before))
    index.cut_at(9)
    index.append(AbortedTransaction(9, 6, 12, 13))
    index.save(file)
    assert [entry.producer_id for entry in parse_transactions(file.read(0, 500))] == [7, 9]


@pytest.mark.parametrize(
    "data",
    [
        bytes(33),
        format_transactions([AbortedTransaction(7, 1, 5, 6), AbortedTransaction(7, 1, 5, 6)]),
        format_transactions([AbortedTransaction(7, 6, 5, 6)]),
        b"\0\1" + bytes(32),
    ],
    ids=["half an entry", "no rising offset", "ends before it begins", "unknown version"],
)
def test_a_damaged_transaction_index_is_refused(data):
    with pytest.raises(IndexCorrupt):
        list(parse_transactions(data))


def test_transactions_whose_markers_do_not_rise_are_not_taken():
    index = TransactionIndex([AbortedTransaction(7, 1, 5, 6)])
    with pytest.raises(IndexCorrupt):
        index.append(AbortedTransaction(8, 2, 5, 6))


def aborted_behind_a_long_one(count: int) -> list[AbortedTransaction]:
    """One that is open all the time holds the last stable offset back at 0; short ones follow each other."""
    return [AbortedTransaction(8, 1 + 2 * number, 2 + 2 * number, 0) for number in range(count)]


def test_a_search_parses_no_page_without_a_transaction_that_matters():
    entries = aborted_behind_a_long_one(5000)
    oldest = oldest_by_page(entries)
    assert list(pages(oldest, 50, 103)) == [0]
    parsed = list(transactions_from(file_of(format_transactions(entries)), oldest, 101, 103))
    assert len(parsed) <= PAGE_TRANSACTIONS
    assert TransactionIndex(entries).overlapping(101, 103) == overlapping(parsed, 101, 103)
    assert overlapping(parsed, 101, 103) == ([AbortedTransaction(8, 101, 102, 0)], False)


@pytest.mark.parametrize("seed", range(20))
def test_pages_that_are_passed_over_change_no_answer(seed):
    rng = random.Random(seed)
    entries, index, marker = [], TransactionIndex(), 0
    for _ in range(400):
        marker += rng.randrange(1, 5)
        entries.append(AbortedTransaction(rng.randrange(9), rng.choice((0, marker // 2, marker - 1)), marker, 0))
        index.append(entries[-1])
    kept = rng.randrange(300, 400)
    index.cut_at(entries[kept].last_offset)
    del entries[kept:]
    file = file_of(format_transactions(entries))
    for _ in range(50):
        start = rng.randrange(marker)
        end = start + rng.randrange(marker)
        expected = overlapping(entries, start, end)
        assert index.overlapping(start, end) == expected
        read = transactions_from(file, oldest_by_page(entries), start, end)
        assert overlapping(read, start, end) == expected
