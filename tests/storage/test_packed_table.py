"""Rows of a packed table, beside a dictionary; a snapshot stays as it was."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.storage import packed_table
from barnabas.storage.packed_table import PackedTable

ROW = struct.Struct(">qi")

steps = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "snapshot", "clear"]), st.integers(0, 12), st.integers(0, 9))
)


@pytest.fixture(autouse=True)
def few_rows_in_a_chunk(monkeypatch):
    monkeypatch.setattr(packed_table, "CHUNK_ROWS", 4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is the same for all examples
@given(steps)
def test_a_table_is_a_dictionary_and_its_snapshots_do_not_change(steps):
    table, rows, snapshots = PackedTable(ROW), {}, []
    for step, key, value in steps:
        if step == "put":
            table.put(key, value)
            rows[key] = value
        elif step == "remove" and key in rows:
            table.remove(key)
            del rows[key]
        elif step == "snapshot":
            snapshots.append((table.snapshot(), dict(rows)))
        elif step == "clear" and value == 0:
            table.clear()
            rows.clear()
        assert sorted(table.keys()) == sorted(rows)
        assert len(table) == len(rows)
        assert table.get(key) == ((key, rows[key]) if key in rows else None)
    assert dict(table.snapshot()) == rows
    for chunks, then in snapshots:
        assert dict(chunks) == dict(ROW.iter_unpack(chunks.packed())) == then
        assert len(chunks) == len(then)


def test_rows_may_change_while_they_are_iterated():
    table = PackedTable(ROW)
    for key in range(3):
        table.put(key, 0)
    seen = []
    for key, value in table.snapshot():
        seen.append((key, value))
        table.put(key, 1)
        table.put(key + 10, 1)
    assert seen == [(0, 0), (1, 0), (2, 0)]


def test_a_row_is_found_with_its_position():
    table = PackedTable(ROW)
    for key in range(packed_table.CHUNK_ROWS + 1):
        table.put(key, key)
    chunk, position = table.find(packed_table.CHUNK_ROWS)
    assert (len(chunk), position) == (ROW.size, 0)
    assert table.find(-1) is None
