"""The loop of the compiled form, with the general walk behind it, has exactly the result of the general walk alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.compression import CorruptRecords
from barnabas.wire.record_loop import ordinary_run
from barnabas.wire.record_walk import Walk, _walk_by_loop, _walk_singly
from tests.wire.test_record_runs import built, record, said, shapes, zigzag

Headers = list[tuple[bytes, bytes | None]]


def with_headers(offset_delta: int, headers: Headers, *, timestamp_delta: int = 0) -> bytes:
    fields = [zigzag(len(key)) + key + (zigzag(-1) if value is None else zigzag(len(value)) + value)
              for key, value in headers]  # fmt: skip
    body = b"\0" + zigzag(timestamp_delta) + zigzag(offset_delta) + b"\1\2v" + zigzag(len(headers)) + b"".join(fields)
    return zigzag(len(body)) + body


def longer(encoded: bytes, width: int) -> bytes:
    """The same number as a varint of `width` bytes, more than it needs."""
    return bytes([*(byte | 128 for byte in encoded), *b"\x80" * (width - len(encoded) - 1), 0])


def by_general_walk(records: bytes, count: int) -> tuple[object, ...]:
    walk = Walk(count)
    walk.credit = 1 << 30
    try:
        end = _walk_singly(records, 0, walk, count)
    except CorruptRecords as refused:
        return refused.code, str(refused)
    return (*said(walk), walk.has_many_headers, end) if walk.index == count else (walk.index, end)


def by_loop(records: bytes, count: int) -> tuple[object, ...]:
    walk = Walk(count)
    walk.credit = 1 << 30
    try:
        end = _walk_by_loop(records, 0, walk)
    except CorruptRecords as refused:
        return refused.code, str(refused)
    return (*said(walk), walk.has_many_headers, end) if walk.index == count else (walk.index, end)


# A number as a varint of some width: mostly as short as can be, sometimes longer than needed.
varints = st.tuples(
    st.one_of(st.integers(-2, 70), st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([-1, 0, 63, 64, 1 << 27])),
    st.one_of(st.just(0), st.integers(1, 11)),
).map(lambda drawn: longer(zigzag(drawn[0]), drawn[1]) if drawn[1] > len(zigzag(drawn[0])) else zigzag(drawn[0]))
headers = st.lists(
    st.tuples(st.binary(max_size=80), st.one_of(st.none(), st.binary(max_size=80))), max_size=70
)  # fmt: skip


@given(st.lists(shapes, min_size=1, max_size=4), st.data())
def test_the_loop_says_what_the_general_walk_says_of_damaged_records(
    rows: list[tuple[int, bytes | None, bytes | None, int, int]], data: st.DataObject
) -> None:
    records, count = built(rows)
    damaged = bytearray(records)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(len(records) // 2, len(records)))])
    assert by_loop(cut, count) == by_general_walk(cut, count)


@given(st.lists(headers, min_size=1, max_size=6), st.data())
def test_the_loop_says_what_the_general_walk_says_of_headers(rows: list[Headers], data: st.DataObject) -> None:
    records = b"".join(with_headers(number, row, timestamp_delta=-number) for number, row in enumerate(rows))
    assert by_loop(records, len(rows)) == by_general_walk(records, len(rows))
    assert by_loop(records, len(rows))[0] == len(rows)
    damaged = bytearray(records)
    damaged[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    assert by_loop(bytes(damaged), len(rows)) == by_general_walk(bytes(damaged), len(rows))


@given(st.lists(st.lists(varints, min_size=5, max_size=5), min_size=1, max_size=4), st.booleans())
def test_the_loop_says_what_the_general_walk_says_of_any_numbers(fields: list[list[bytes]], is_length: bool) -> None:
    rows = []
    for number, (delta, offset, key, value, length) in enumerate(fields):
        # Half of the offset deltas are right, so that more than the first record is looked at.
        body = b"\0" + delta + (zigzag(number) if number % 2 else offset) + key + value + b"\0"
        rows.append((length if is_length else zigzag(len(body))) + body)
    records = b"".join(rows)
    assert by_loop(records, len(rows)) == by_general_walk(records, len(rows))


@given(st.binary(max_size=60), st.integers(1, 5))
def test_the_loop_says_what_the_general_walk_says_of_noise(noise: bytes, count: int) -> None:
    assert by_loop(noise, count) == by_general_walk(noise, count)


def run_of(records: bytes, count: int) -> int:
    return ordinary_run(records, 0, 0, count).count


@pytest.mark.parametrize(
    ("strange", "why"),
    [
        (record(5), "another offset delta"),
        (record(1, timestamp_delta=-(1 << 63)), "a delta of ten bytes"),
        (with_headers(1, [(b"h", b"v")] * 64), "more headers than ordinary"),
        (with_headers(1, [(b"h" * 8192, None)]), "a header key whose length has three bytes"),
        (longer(zigzag(6), 5) + b"\0\0\2\1\1\0", "a length of five bytes"),
        (record(1)[:-1] + b"\1", "a negative number of headers"),
        (record(1)[:-1], "a record that is cut off"),
    ],
)  # fmt: skip
def test_a_run_ends_before_a_record_that_is_not_ordinary(strange: bytes, why: str) -> None:
    assert run_of(record(0) + strange + record(2), 3) == 1, why


def test_a_run_has_the_facts_of_all_its_records() -> None:
    rows = [record(number, timestamp_delta=delta, key=b"k") for number, delta in enumerate([4, -7, 9, 9, 0])]
    rows.append(with_headers(5, [(b"h" * 100, None), (b"", b"v" * 100)], timestamp_delta=8))
    records = b"".join(rows)
    run = ordinary_run(records, 0, 0, 6)
    assert (run.count, run.end, run.lowest, run.highest, run.first_highest) == (6, len(records), -14, 18, 2)
    assert run.key_length & 1  # the one with headers has no key
    assert not ordinary_run(records, 0, 0, 5).key_length & 1


def test_the_loop_goes_on_after_a_record_that_the_general_walk_accepts() -> None:
    rows = [record(number) for number in range(20)]
    rows[7] = with_headers(7, [(b"h", b"v")] * 100)
    records = b"".join(rows)
    walk = Walk(20)
    assert _walk_by_loop(records, 0, walk) == len(records)
    assert walk.index == 20


def test_the_loop_stops_at_the_end_of_a_step() -> None:
    records = b"".join(record(number, value=b"x" * 1000) for number in range(600))
    walk = Walk(601)  # one more than is there
    assert _walk_by_loop(records, 0, walk) == len(records)
    assert walk.credit <= 0, "600 kB are more than a step"
    assert _walk_by_loop(record(600), 0, walk) == 0
    assert walk.is_step_over()
    assert _walk_by_loop(record(600), 0, walk) == len(record(600))
