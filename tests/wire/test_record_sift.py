"""Which records of a batch survive compaction, and what the batch is then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.compression import CHUNK_BYTES, Codec, CorruptRecords
from barnabas.wire.record_sift import (
    KEY_BYTES_MAX,
    LONG_RECORD_BYTES,
    empty_batch,
    note_keys,
    note_values,
    rebuild_sifted,
    sift,
)
from barnabas.wire.records import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    BeyondLimits,
    Record,
    build_batch,
    is_intact,
    read_batch_header,
    read_records,
)
from tests.wire.bombs import bomb, header_bomb, memory_below
from tests.wire.raw_records import raw_record

NOW = 1_700_000_000_000
HORIZON = NOW + 86_400_000
CODECS = list(Codec)
keys = st.binary(max_size=3) | st.none() | st.binary(min_size=KEY_BYTES_MAX - 1, max_size=KEY_BYTES_MAX + 2)
records = st.builds(
    lambda key, value, time, headers: Record(0, NOW + time, key, value, headers),
    keys,
    st.none() | st.binary(max_size=40),
    st.integers(-200, 40_000),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
)


def batch_of(*pairs, codec=Codec.NONE, base_offset=0, **fields) -> bytes:
    return bytes(build_batch(pairs, timestamp_ms=NOW, codec=codec, base_offset=base_offset, **fields).data)


def newest_in(data: bytes) -> dict[bytes, int]:
    newest = {}
    note_keys(read_batch_header(data), data, 0, newest)
    return newest


def sifted(data: bytes, newest: dict[bytes, int], *, drop_tombstones: bool):
    return sift(read_batch_header(data), data, 0, newest, drop_tombstones)


def compacted(data: bytes, newest: dict[bytes, int], *, drop_tombstones=False, horizon_ms=None) -> bytes:
    stays = sifted(data, newest, drop_tombstones=drop_tombstones)
    rebuilt = bytes(rebuild_sifted(read_batch_header(data), data, 0, stays, newest, drop_tombstones, horizon_ms))
    assert is_intact(rebuilt)
    return rebuilt


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_offset_of_each_key_is_noted(codec):
    data = batch_of((b"a", b"1"), (b"b", b"2"), (b"a", None), (None, b"4"), codec=codec, base_offset=100)
    assert newest_in(data) == {b"a": 102, b"b": 101}


@pytest.mark.parametrize("codec", CODECS)
def test_of_each_key_the_newest_record_stays_with_its_offset(codec):
    data = batch_of((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), codec=codec, base_offset=100)
    rebuilt = compacted(data, {b"a": 102, b"b": 200})
    assert [(record.offset, record.key, record.value) for record in read_records(rebuilt)] == [
        (102, b"a", b"3"),
        (103, b"c", b"4"),
    ]


def test_a_record_without_key_does_not_stay():
    data = batch_of((None, b"1"), (b"a", b"2"))
    assert [record.value for record in read_records(compacted(data, {}))] == [b"2"]


def test_header_fields_that_identify_the_batch_stay():
    data = batch_of(
        (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), producer_id=7, producer_epoch=2, base_sequence=40, leader_epoch=5
    )
    before, after = read_batch_header(data), read_batch_header(compacted(data, {b"a": 9, b"c": 9}))
    changed = {"batch_length", "crc", "record_count"}
    assert {name for name in before._fields if getattr(before, name) != getattr(after, name)} == changed
    assert (after.last_offset_delta, after.record_count) == (2, 1)


def test_base_and_largest_timestamp_are_those_of_what_stays():
    times = [NOW + 50, NOW + 20, NOW + 90, NOW + 10]
    data = batch_of(*(Record(0, time, b"%d" % number, b"v", []) for number, time in enumerate(times)))
    rebuilt = compacted(data, {b"0": 9, b"2": 9})
    assert [record.timestamp for record in read_records(rebuilt)] == [NOW + 20, NOW + 10]
    header = read_batch_header(rebuilt)
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 20, NOW + 20)


def test_a_delete_horizon_replaces_the_base_timestamp_and_no_records_time():
    data = batch_of(Record(0, NOW, b"a", None, []), Record(0, NOW + 7, b"b", b"v", []))
    rebuilt = compacted(data, {}, horizon_ms=HORIZON)
    header = read_batch_header(rebuilt)
    assert (header.base_timestamp, header.attributes, header.max_timestamp) == (HORIZON, DELETE_HORIZON, NOW + 7)
    assert [record.timestamp for record in read_records(rebuilt)] == [NOW, NOW + 7]


def test_a_delete_horizon_stays_when_the_batch_is_rebuilt_again():
    data = compacted(batch_of((b"a", None), (b"b", b"1"), (b"c", b"2")), {}, horizon_ms=HORIZON)
    rebuilt = compacted(data, {b"b": 9}, drop_tombstones=True)
    header = read_batch_header(rebuilt)
    assert (header.base_timestamp, header.attributes) == (HORIZON, DELETE_HORIZON)
    assert [(record.key, record.timestamp) for record in read_records(rebuilt)] == [(b"c", NOW)]


def test_tombstones_stay_until_they_may_be_dropped():
    data = batch_of((b"a", None), (b"b", b"1"))
    assert sifted(data, {}, drop_tombstones=False)[:2] == (2, True)
    assert sifted(data, {}, drop_tombstones=True)[:2] == (1, False)


def test_records_of_log_append_time_have_one_time():
    data = batch_of((b"a", b"1"), (b"b", b"2"), attributes=LOG_APPEND_TIME)
    for horizon_ms in (None, HORIZON):
        rebuilt = compacted(data, {b"a": 9}, horizon_ms=horizon_ms)
        header = read_batch_header(rebuilt)
        assert (header.max_timestamp, header.base_timestamp) == (NOW, horizon_ms or NOW)
        assert [record.timestamp for record in read_records(rebuilt)] == [NOW]


def test_an_emptied_batch_keeps_offsets_and_sequence():
    data = batch_of((b"a", b"1"), (b"b", b"2"), producer_id=7, producer_epoch=2, base_sequence=40, codec=Codec.GZIP)
    emptied = bytes(empty_batch(read_batch_header(data)))
    header = read_batch_header(emptied)
    assert is_intact(emptied)
    assert len(emptied) == 61
    assert (header.last_offset, header.last_sequence, header.record_count, header.codec) == (1, 41, 0, Codec.NONE)
    assert (header.base_timestamp, header.max_timestamp) == (-1, NOW)
    assert list(read_records(emptied)) == []
    assert newest_in(emptied) == {}


def test_long_keys_are_distinguished_and_take_bounded_memory():
    long = [bytes([number]) * 5_000 for number in range(3)]
    newest = newest_in(batch_of(*((key, b"v") for key in [*long, long[0]])))
    assert sorted(newest.values()) == [1, 2, 3]
    assert {len(key) for key in newest} == {KEY_BYTES_MAX + 1}


@pytest.mark.parametrize("codec", CODECS)
def test_records_larger_than_a_piece_are_read_whole(codec):
    large = bytes(range(256)) * (CHUNK_BYTES // 100)
    pairs = [(b"a", b"1"), (b"large", large), (b"b", b"2"), (b"c", large), (b"d", b"3")]
    rebuilt = compacted(batch_of(*pairs, codec=codec), {b"b": 99})
    assert [(record.key, record.value) for record in read_records(rebuilt)] == [pairs[0], pairs[1], pairs[3], pairs[4]]


@pytest.mark.parametrize("codec", CODECS)
def test_many_pieces_are_one_batch(codec):
    pairs = [(b"key-%d" % number, bytes(50)) for number in range(5_000)]
    data = batch_of(*pairs, codec=codec, base_offset=10)
    newest = newest_in(data)
    assert newest == {key: 10 + number for number, (key, _) in enumerate(pairs)}
    gone = {key: 99_999 for key, _ in pairs[::2]}
    assert [record.key for record in read_records(compacted(data, gone))] == [key for key, _ in pairs[1::2]]


def test_a_batch_within_a_window_is_read_where_it_lies():
    first, second = batch_of((b"a", b"1")), batch_of((b"b", b"2"), base_offset=1)
    newest = {}
    note_keys(read_batch_header(second), first + second, len(first), newest)
    assert newest == {b"b": 1}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("claimed", [1, 3])
def test_a_wrong_number_of_records_is_corrupt(codec, claimed):
    data = batch_of((b"a", b"1"), (b"b", b"2"), codec=codec)
    header = read_batch_header(data)._replace(record_count=claimed)
    with pytest.raises(CorruptRecords):
        note_keys(header, data, 0, {})


# -- records beyond what is held in memory


def long_pairs(length: int) -> list[tuple[bytes, bytes | None]]:
    """Records of which some are longer than a piece, and one key has been replaced."""
    return [(b"a", b"1"), (b"k" * 500, bytes(length)), (b"b", b"2"), (b"old", bytes(length)), (b"none", None)]


@pytest.mark.thorough
@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("horizon_ms", [None, HORIZON])
def test_long_records_stay_or_go_without_being_held(codec, horizon_ms):
    pairs = long_pairs(20 * LONG_RECORD_BYTES)
    data = batch_of(*pairs, codec=codec)
    with memory_below(8 * LONG_RECORD_BYTES):
        newest = newest_in(data)
        rebuilt = compacted(data, {**newest, b"old": 99}, horizon_ms=horizon_ms)
    kept = [(record.key, record.value, record.timestamp) for record in read_records(rebuilt)]
    assert kept == [(*pair, NOW) for pair in pairs if pair[0] != b"old"]


def test_a_record_with_millions_of_headers_is_compacted_in_little_memory():
    data = bytes(header_bomb(1 << 24))
    with memory_below(4 * LONG_RECORD_BYTES):
        assert newest_in(data) == {b"k": 0}
        assert sifted(data, {b"k": 0}, drop_tombstones=False).record_count == 1
        assert sifted(data, {b"k": 1}, drop_tombstones=False).record_count == 0


@pytest.mark.thorough
def test_millions_of_records_that_go_by_turns_are_not_listed():
    records = b"".join(raw_record(index, b"", b"ab"[index % 2 : index % 2 + 1]) for index in range(40_000))
    data = bytes(bomb(iter([records]), Codec.ZSTD, 40_000))
    with memory_below(2_000_000):
        assert len(compacted(data, {b"a": 90_000})) < len(data)
        assert sifted(data, {b"a": 90_000}, drop_tombstones=False).record_count == 20_000


def test_a_key_that_is_too_long_to_be_held_is_beyond_the_limits():
    data = batch_of((b"a", b"1"), (bytes(2 * LONG_RECORD_BYTES), b"2"), codec=Codec.ZSTD)
    for look in (newest_in, lambda data: sifted(data, {}, drop_tombstones=False)):
        with memory_below(2 * LONG_RECORD_BYTES), pytest.raises(BeyondLimits):
            look(data)


def test_a_long_value_is_read_whole_if_values_are_wanted():
    data, newest = batch_of((b"a", bytes(2 * LONG_RECORD_BYTES)), codec=Codec.GZIP), {}
    note_values(read_batch_header(data), data, 0, newest)
    assert newest == {b"a": (0, bytes(2 * LONG_RECORD_BYTES))}


@given(st.lists(records, min_size=1, max_size=30), st.sampled_from(CODECS), st.booleans(), st.booleans(), st.data())
def test_what_stays_is_what_a_reader_of_single_records_would_keep(batch, codec, drop, appended, data):
    """The model: records as values, filtered one by one."""
    attributes = LOG_APPEND_TIME if appended else 0
    encoded = batch_of(*batch, codec=codec, base_offset=50, attributes=attributes)
    read = list(read_records(encoded))
    offsets = st.integers(45, 85)
    newest = data.draw(st.dictionaries(st.sampled_from([r.key for r in batch if r.key is not None] or [b"?"]), offsets))
    noted = {}
    for key, offset in newest.items():
        noted |= newest_in(batch_of((key, b""), base_offset=offset))
    expected = [
        record
        for record in read
        if record.key is not None
        and newest.get(record.key, -1) <= record.offset
        and not (drop and record.value is None)
    ]
    stays = sifted(encoded, noted, drop_tombstones=drop)
    assert stays.record_count == len(expected)
    assert stays.has_tombstones == any(record.value is None for record in expected)
    if expected:
        horizon = data.draw(st.none() | st.integers(NOW, NOW + 2**40))
        rebuilt = bytes(rebuild_sifted(read_batch_header(encoded), encoded, 0, stays, noted, drop, horizon))
        assert list(read_records(rebuilt)) == expected
        assert read_batch_header(rebuilt).max_timestamp == max(record.timestamp for record in expected)
