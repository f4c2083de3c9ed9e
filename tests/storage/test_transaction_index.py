"""The .txnindex: a search finds what a plain list would, wherever the rows lie, and memory does not grow with them."""

import random
import tracemalloc
from contextlib import nullcontext

import pytest

from barnabas.storage import transaction_index
from barnabas.storage.index import IndexCorrupt
from barnabas.storage.memdisk import MemDisk, MemFile
from barnabas.storage.osdisk import OsDisk
from barnabas.storage.segment import INDEX_SAVE_STEP_BYTES
from barnabas.storage.transaction_index import (
    PAGE_ROWS,
    PAGES_MAX,
    ROW,
    AbortedTransaction,
    TransactionIndex,
    format_transactions,
    parse_transactions,
)


class Rows:
    """An index, its file, and the same rows as a list."""

    def __init__(self, rows: list[AbortedTransaction], file_bytes: bytes = b"") -> None:
        self.file = MemDisk().open("/index", create=True)
        self.file.write(0, file_bytes)
        self.index = TransactionIndex(0)
        self.rows: list[AbortedTransaction] = []
        for row in rows:
            self.append(row)

    def append(self, row: AbortedTransaction) -> None:
        self.index.append(row)
        self.rows.append(row)

    def open_file(self):
        return nullcontext(self.file)

    def content(self) -> bytes:
        return self.file.read(0, self.file.size_bytes())

    def save(self) -> None:
        self.index.save(self.file)

    def cut_at(self, offset: int) -> None:
        self.index.cut_at(offset, self.open_file)
        self.rows = [row for row in self.rows if row.last_offset < offset]

    def overlapping(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        return self.index.overlapping(self.open_file, start_offset, end_offset)


def behind_a_long_one(count: int) -> list[AbortedTransaction]:
    """One that is open all the time holds the last stable offset back at 0; short ones follow each other."""
    return [AbortedTransaction(8, 1 + 2 * number, 2 + 2 * number, 0) for number in range(count)]


def one_after_another(count: int) -> list[AbortedTransaction]:
    return [AbortedTransaction(8, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(count)]


def test_the_file_has_what_was_appended():
    rows = Rows([AbortedTransaction(7, 1, 5, 6)], bytes(500))
    rows.save()
    rows.append(AbortedTransaction(8, 2, 9, 10))
    rows.save()
    assert rows.content() == format_transactions(rows.rows)


def test_rows_are_in_the_file_or_in_memory():
    rows = Rows(one_after_another(100))
    rows.save()
    assert not rows.index.unsaved
    rows.append(AbortedTransaction(7, 300, 301, 302))
    assert rows.index.saved_count == 100
    assert len(rows.index.unsaved) == ROW.size
    assert list(rows.index.rows(rows.content())) == rows.rows


@pytest.mark.parametrize("saved", [False, True], ids=["not saved", "saved"])
def test_a_cut_forgets_markers_behind_it(saved):
    rows = Rows([AbortedTransaction(7, 1, 5, 6), AbortedTransaction(8, 2, 9, 10)])
    if saved:
        rows.save()
    rows.cut_at(9)
    rows.append(AbortedTransaction(9, 6, 12, 13))
    rows.save()
    assert [row.producer_id for row in parse_transactions(rows.content())] == [7, 9]


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
def test_a_damaged_file_is_refused(data):
    with pytest.raises(IndexCorrupt):
        list(parse_transactions(data))
    with pytest.raises(IndexCorrupt):
        TransactionIndex.load(Rows([], data).file, 0)


def test_a_marker_below_the_segment_is_refused():
    file = Rows([], format_transactions([AbortedTransaction(7, 1, 5, 6)])).file
    assert TransactionIndex.load(file, 5).count == 1
    with pytest.raises(IndexCorrupt):
        TransactionIndex.load(file, 6)


def test_transactions_whose_markers_do_not_rise_are_not_taken():
    rows = Rows([AbortedTransaction(7, 1, 5, 6)])
    with pytest.raises(IndexCorrupt):
        rows.index.append(AbortedTransaction(8, 2, 5, 6))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: -ROW.size],
        lambda data: data[: -ROW.size] + format_transactions([AbortedTransaction(8, 4, 9999, 0)]),
        lambda data: b"\0\1" + data[2:],
    ],
    ids=["a row is gone", "another marker", "unknown version"],
)
def test_a_page_that_has_changed_in_the_file_is_refused(damage):
    rows = Rows(one_after_another(10))
    rows.save()
    data = damage(rows.content())
    rows.file.truncate(0)
    rows.file.write(0, data)
    with pytest.raises(IndexCorrupt):
        rows.overlapping(0, 100)
    with pytest.raises(IndexCorrupt):
        rows.index.cut_at(15, rows.open_file)
    assert rows.index.count == 10


def test_a_search_reads_no_page_without_a_transaction_that_matters(monkeypatch):
    rows = Rows(behind_a_long_one(5000))
    rows.save()
    reads = []
    right = MemFile.read
    monkeypatch.setattr(MemFile, "read", lambda self, at, size: reads.append(size) or right(self, at, size))
    assert rows.overlapping(101, 103) == ([AbortedTransaction(8, 101, 102, 0)], False)
    assert reads == [PAGE_ROWS * ROW.size]


def test_a_copy_stays_as_it_is():
    rows = Rows(one_after_another(100))
    copy = rows.index.copied()
    rows.save()
    for row in one_after_another(300)[100:]:
        rows.append(row)
    assert copy.overlapping(rows.open_file, 0, 1000) == (one_after_another(100), False)
    assert rows.overlapping(0, 1000) == (one_after_another(300), False)


@pytest.mark.parametrize("pages_max", [4, PAGES_MAX])
@pytest.mark.parametrize("seed", range(20))
def test_a_search_finds_all_that_overlap(monkeypatch, seed, pages_max):
    monkeypatch.setattr(transaction_index, "PAGES_MAX", pages_max)
    rng = random.Random(seed)
    rows = Rows([])
    opened: dict[int, int] = {}
    for offset in range(4000):
        producer_id = rng.choices(range(9), [1, *[40] * 8])[0]  # the first one is open for long
        if producer_id not in opened:
            opened[producer_id] = offset
            continue
        first_offset = opened.pop(producer_id)
        stable_offset = min(opened.values(), default=offset + 1)
        rows.append(AbortedTransaction(producer_id, first_offset, offset, stable_offset))
        if rng.random() < 0.01:
            rows.save()
        # What is open stays so: a lower stable offset is correct, too.
        if rng.random() < 0.005:
            rows.cut_at(offset - rng.randrange(300))
    saved = Rows(rows.rows)
    saved.save()
    for index in (rows.index, rows.index.copied()):
        for _ in range(100):
            start = rng.randrange(4000)
            end = start + rng.choice((1, 10, 1000))
            found = index.overlapping(rows.open_file, start, end)[0]
            assert found == [row for row in rows.rows if row.last_offset >= start and row.first_offset < end]
            assert found == TransactionIndex.load(saved.file, 0).overlapping(saved.open_file, start, end)[0]


def test_memory_does_not_grow_with_the_rows(tmp_path):
    index = TransactionIndex(0)
    file = OsDisk().open(f"{tmp_path}/0.txnindex", create=True)
    tracemalloc.start()
    try:
        for number in range(100_000):
            index.append(AbortedTransaction(8, 1 + 2 * number, 2 + 2 * number, 0))
            if len(index.unsaved) >= INDEX_SAVE_STEP_BYTES:
                index.save(file)
        assert index.count == 100_000
        loaded = TransactionIndex.load(file, 0)
        assert loaded.count == index.saved_count
        kept_bytes, _ = tracemalloc.get_traced_memory()
        assert kept_bytes < 150_000, "two indexes, and 64 KiB of rows"
    finally:
        tracemalloc.stop()
        file.release()
