"""The limits of a batch: bytes, headers and memory, in bounded steps whatever a producer has sent.

Apache Kafka 3.9.1 accepts all that is refused here for its size.
"""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import record_cursor
from barnabas.wire.compression import CHUNK_BYTES, Codec, open_stream
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_walk import IS_COMPILED, Walk, walking
from barnabas.wire.records import (
    HEADERS_MAX,
    RECORDS_MAX_BYTES,
    Batch,
    BeyondLimits,
    Record,
    build_batch,
    check_produced,
    check_small,
    find_time,
    read_records,
)
from barnabas.world.pacing import complete_inline
from tests.wire.bombs import bomb, header_bomb, memory_below, record_of, value_bomb
from tests.wire.raw_records import HERE, NOW_MS, raw_record, varint
from tests.wire.topic_rules import Rules

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TOPICS = [Rules(), Rules(compression_type="lz4"), Rules(compression_type="uncompressed"), Rules(compacted=True)]


def in_steps(batch, rules=None):
    """What the check says, and after how many steps; asking for room is none."""
    steps = check_produced(memoryview(batch), rules or Rules(max_message_bytes=1 << 24), NOW_MS, 9, HERE)
    count, room = 1, 0
    while True:
        try:
            held_bytes = next(steps) or 0
        except StopIteration as ended:
            return ended.value, count
        count += held_bytes <= room
        room = max(room, held_bytes)


@pytest.mark.parametrize("rules", TOPICS)
def test_a_record_with_millions_of_headers_is_refused_in_the_first_step(rules) -> None:
    batch = header_bomb(1 << 22)
    with memory_below(1_000_000):
        refused, steps = in_steps(batch, rules)
    assert (refused.code, steps) == (ErrorCode.INVALID_RECORD, 1)
    assert len(batch) < 1000


@pytest.mark.parametrize("headers", [HEADERS_MAX, HEADERS_MAX + 1])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_may_have_65536_headers_and_no_more(codec, headers) -> None:
    with memory_below(4_000_000):
        checked, _ = in_steps(header_bomb(headers, codec))
    assert isinstance(checked, Batch) == (headers == HEADERS_MAX)


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "lz4"])
def test_a_rebuild_keeps_no_list_of_headers(target) -> None:
    rules = Rules(compression_type=target)
    headers = (b"\x02h\x02v" * (HEADERS_MAX)).join((b"\0\0\0\x02k\x01" + varint(HEADERS_MAX), b""))
    batch = bomb(iter([varint(len(headers)) + headers]), Codec.ZSTD)
    with memory_below(4_000_000):
        checked, steps = in_steps(batch, rules)
    assert isinstance(checked, Batch)
    assert steps > HEADERS_MAX // record_cursor.STEP_COST
    assert len(next(read_records(checked.data)).headers) == HEADERS_MAX


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("count", [1, 64])
def test_records_that_decompress_to_more_than_128_mib_are_refused(codec, count) -> None:
    each = RECORDS_MAX_BYTES // count
    records = (record_of(b"\0\0" + varint(index) + b"\x01" + varint(each), each + 1) for index in range(count))
    batch = bomb(chain.from_iterable(records), codec, count)
    with memory_below(2_000_000):
        refused, _ = in_steps(batch)
    assert refused.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("target", ["producer", "lz4", "zstd", "uncompressed"])
def test_a_value_of_many_chunks_streams_past(target) -> None:
    batch = value_bomb(40_000_000)
    with memory_below(4_000_000):
        checked, steps = in_steps(batch, Rules(compression_type=target))
    if target == "uncompressed":
        assert checked.code == ErrorCode.MESSAGE_TOO_LARGE
    else:
        assert isinstance(checked, Batch)
        assert steps > 40_000_000 // (8 * CHUNK_BYTES)
        assert len(next(read_records(checked.data)).value) == 40_000_000


def test_a_step_reads_a_bounded_number_of_bytes(monkeypatch) -> None:
    batch = bytes(value_bomb(20_000_000))
    stream, read = open_stream(Codec.ZSTD, memoryview(batch)[61:]), []
    monkeypatch.setattr(stream, "read", lambda size, read_it=stream.read: read.append(size) or read_it(size))
    sizes = []
    for _ in walking(stream, Walk(1)):
        sizes.append(sum(read))
        read.clear()
    assert len(sizes) > 10
    assert max(sizes) <= 5 * CHUNK_BYTES


def test_records_of_one_shape_and_records_of_none_come_to_steps() -> None:
    alike = b"".join(raw_record(index, b"") for index in range(30_000))
    different = b"".join(raw_record(index, bytes(index % 7)) for index in range(30_000))
    for records in (alike, different):
        checked, steps = in_steps(bomb(iter([records]), Codec.ZSTD, 30_000))
        assert isinstance(checked, Batch)
        assert steps > 30_000 * 2 // record_cursor.STEP_COST // 10

    # The loop of the compiled form pays by the byte: a record of some bytes takes it 15 ns.
    if not IS_COMPILED:
        assert steps > 30_000 * 2 // record_cursor.STEP_COST


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=30)
@given(
    sizes=st.lists(st.sampled_from([0, 3, 500, 999, 1001, 5000, 70_000]), min_size=1, max_size=6),
    step=st.sampled_from([1, 100, 4000]),
)
def test_where_steps_end_changes_nothing(codec, sizes, step) -> None:
    headers = [("h", b"v"), ("", b""), ("", None)] * 1000
    records = [Record(0, NOW_MS + size, b"k", bytes(size), headers[: size % 3000]) for size in sizes]
    batch = build_batch(records, timestamp_ms=0, codec=codec)
    walk, other = Walk(len(sizes)), Walk(len(sizes))
    other.credit = step
    for each in (walk, other):
        complete_inline(walking(open_stream(codec, memoryview(batch.data)[61:]), each))
    # A compiled class has no __slots__.
    found = [name for name in dir(Walk) if name not in dir(record_cursor.Meter) and not callable(getattr(Walk, name))]
    assert {"count", "highest"} < {*found}
    assert [getattr(walk, name) for name in found] == [getattr(other, name) for name in found]


def test_what_takes_one_step_is_checked_at_once_and_what_takes_more_is_left_alone() -> None:
    short, long = build_batch([(b"k", b"v" * 100)], timestamp_ms=NOW_MS), header_bomb(HEADERS_MAX)
    assert isinstance(check_small(memoryview(short.data), Rules(), NOW_MS, 9), Batch)
    assert check_small(memoryview(long), Rules(message_timestamp_type="LogAppendTime"), NOW_MS, 9) is None
    assert long == header_bomb(HEADERS_MAX)


# -- batches that are stored already


def test_a_record_with_millions_of_headers_is_found_by_time_in_little_memory() -> None:
    with memory_below(1_000_000):
        assert complete_inline(find_time(memoryview(header_bomb(1 << 22)), 1000)) == (0, 1000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_record_of_any_length_is_found_by_time_in_little_memory(codec) -> None:
    bomb_of_value, steps = memoryview(value_bomb(RECORDS_MAX_BYTES + 1, codec)), 0
    with memory_below(1_000_000):
        search = find_time(bomb_of_value, 1000)
        with pytest.raises(StopIteration) as ended:
            while True:
                next(search)
                steps += 1
    assert ended.value.value == (0, 1000)
    assert steps > RECORDS_MAX_BYTES // (8 * CHUNK_BYTES)


@pytest.mark.parametrize("batch", [header_bomb(HEADERS_MAX + 1), value_bomb(RECORDS_MAX_BYTES + 1)])
def test_a_record_beyond_the_limits_is_not_read_into_memory(batch) -> None:
    with memory_below(1_000_000), pytest.raises(BeyondLimits):
        list(read_records(batch))
