"""A walk of many records at a time has exactly the result of a walk one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.compression import CorruptRecords
from barnabas.wire.record_runs import ROWS_MIN, find_run
from barnabas.wire.record_walk import Walk, _walk_singly, walk_at_once


def zigzag(number: int) -> bytes:
    value, encoded = (number << 1) ^ (number >> 63), bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def record(
    offset_delta: int, *, timestamp_delta: int = 0, key: bytes | None = None, value: bytes | None = b"v"
) -> bytes:
    fields = [b"\0", zigzag(timestamp_delta), zigzag(offset_delta)]
    fields += [zigzag(-1) if field is None else zigzag(len(field)) + field for field in (key, value)]
    body = b"".join([*fields, b"\0"])
    return zigzag(len(body)) + body


def said(walk: Walk) -> tuple[object, ...]:
    return walk.index, walk.highest, walk.highest_index, walk.lowest, walk.is_in_order, walk.has_null_key


def walked_singly(records: bytes, count: int) -> tuple[object, ...]:
    walk = Walk(count)
    try:
        end = _walk_singly(records, 0, walk, count)
    except CorruptRecords as refused:
        return refused.code, str(refused)
    return (*said(walk), end)


def walked_in_runs(records: bytes, count: int) -> tuple[object, ...]:
    walk, position = Walk(count), 0
    try:
        while walk.index < count:
            run = find_run(records, position, walk.index, count - walk.index)
            if run is not None:
                walk.note_run(run)
                position = run.end
                continue
            stop = walk.index + 1
            position = _walk_singly(records, position, walk, stop)
            if walk.index < stop:
                break
    except CorruptRecords as refused:
        return refused.code, str(refused)
    return (*said(walk), position)


shapes = st.tuples(
    st.integers(1, 150),  # so many records of one shape
    st.sampled_from([None, b"", b"key", b"k" * 70]),
    st.sampled_from([None, b"", b"v", b"value" * 30]),
    st.integers(-70, 9000),  # the first timestamp delta
    st.sampled_from([0, 0, 1, -1, 50]),  # how it goes on
)


def built(rows: list[tuple[int, bytes | None, bytes | None, int, int]]) -> tuple[bytes, int]:
    records: list[bytes] = []
    for count, key, value, first, step in rows:
        for number in range(count):
            records.append(record(len(records), timestamp_delta=first + number * step, key=key, value=value))
    return b"".join(records), len(records)


@given(st.lists(shapes, min_size=1, max_size=4))
def test_runs_say_what_single_records_say(rows: list[tuple[int, bytes | None, bytes | None, int, int]]) -> None:
    records, count = built(rows)
    assert walked_in_runs(records, count) == walked_singly(records, count)


@given(st.lists(shapes, min_size=1, max_size=2), st.data())
def test_damage_is_seen_where_single_records_show_it(
    rows: list[tuple[int, bytes | None, bytes | None, int, int]], data: st.DataObject
) -> None:
    records, count = built(rows)
    damaged = bytearray(records)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(len(records) // 2, len(records)))])
    assert walked_in_runs(cut, count) == walked_singly(cut, count)


def test_ten_thousand_records_of_one_shape_are_few_runs() -> None:
    records = b"".join(record(number, value=b"x" * 100) for number in range(8192))
    first = find_run(records, 0, 0, 8192)
    assert first is not None
    assert first.count == 64  # the widths of offset deltas change here
    second = find_run(records, first.end, 64, 8192 - 64)
    assert second is not None
    assert second.count == 8192 - 64
    assert second.end == len(records)


@pytest.mark.parametrize("place", [0, 9, 30])
def test_the_first_of_the_highest_timestamps_is_reported(place: int) -> None:
    deltas = [5 if number < place else 40 for number in range(40)]
    records = b"".join(record(number, timestamp_delta=delta) for number, delta in enumerate(deltas))
    assert walk_at_once(records, 0, 40).highest_index == place


def test_a_null_key_in_the_middle_of_a_run_is_reported() -> None:
    keys: list[bytes | None] = [b"k"] * 40
    with_keys = b"".join(record(number, key=key) for number, key in enumerate(keys))
    keys[20] = None
    without = b"".join(record(number, key=key, value=b"vw") for number, key in enumerate(keys))
    assert not walk_at_once(with_keys, 0, 40).has_null_key
    assert walk_at_once(without, 0, 40).has_null_key


def test_fewer_rows_than_pay_are_no_run() -> None:
    records = b"".join(record(number) for number in range(ROWS_MIN - 1))
    assert find_run(records, 0, 0, ROWS_MIN - 1) is None


def test_records_with_headers_are_walked_one_by_one() -> None:
    body = b"\0\0%b\1\1\2\2h\1"  # one header "h" with a null value
    rows = [body % zigzag(number) for number in range(20)]
    records = b"".join(zigzag(len(row)) + row for row in rows)
    assert find_run(records, 0, 0, 20) is None
    assert walk_at_once(records, 0, 20).index == 20
