"""Messages of formats 0 and 1 as producers of before 0.11 send them, against what Apache Kafka 3.9.1 stored of them.

`old_formats.json` was recorded by `compat_tests/record_old_formats.py`. The codes of refusals were measured on the same
Kafka; `compat_tests/differential/scenarios/old_formats.py` has all of them.
"""

import base64
import json
import pathlib
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.compression import Codec
from barnabas.wire.compressors import compress
from barnabas.wire.downconvert import encode_message
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import (
    LOG_APPEND_TIME,
    Batch,
    Record,
    RecordsRefused,
    build_batch,
    is_intact,
    read_batch_header,
    read_records,
    stamp,
)
from barnabas.wire.topics import TopicPartition
from barnabas.wire.upconvert import INNER_MESSAGE_MAX_BYTES, check_old_produced
from tests.wire.topic_rules import Rules

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDED = json.loads((pathlib.Path(__file__).parent / "old_formats.json").read_text())


def steps_of(data: bytes, rules: Rules | None = None):
    """How many steps the work has, and what comes out."""
    work, count = check_old_produced(memoryview(bytearray(data)), rules or Rules(), NOW_MS, TopicPartition("t", 0)), 1
    try:
        while True:
            next(work)
            count += 1
    except StopIteration as end:
        return count, end.value


def check(data: bytes, rules: Rules | None = None):
    return steps_of(data, rules)[1]


def accepted(data: bytes, rules: Rules | None = None) -> Batch:
    batch = check(data, rules)
    assert isinstance(batch, Batch), batch
    assert batch.header == read_batch_header(batch.data)
    assert is_intact(batch.data)
    return batch


def code(data: bytes, rules: Rules | None = None) -> int:
    refused = check(data, rules)
    assert isinstance(refused, RecordsRefused), refused
    return refused.code


def message(magic: int, value=b"v", key=b"k", *, at=NOW_MS, offset=0, attributes=0) -> bytes:
    return encode_message(Record(offset, at, key, value, []), magic, attributes)


def wrapped(magic: int, content: bytes, codec=Codec.GZIP, *, attributes=0, **fields) -> bytes:
    return message(magic, compress(codec, content), None, attributes=attributes | codec, **fields)


def damaged(entry: bytes) -> bytes:
    return entry[:-1] + bytes((entry[-1] ^ 1,))


def with_size(entry: bytes, size: int) -> bytes:
    return entry[:8] + size.to_bytes(4, "big", signed=True) + entry[12:]


def sealed(entry: bytes) -> bytes:
    """The same with the checksum that it should have."""
    return entry[:12] + zlib.crc32(entry[16:]).to_bytes(4, "big") + entry[16:]


def contents(batch: Batch):
    return [(record.timestamp, record.key, record.value) for record in read_records(batch.data)]


# -- what Kafka stored


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["name"])
def test_what_is_stored_is_what_kafka_stores(row):
    sent, kafkas = (base64.b64decode(row[name]) for name in ("sent", "stored"))
    if row["error_code"]:
        assert code(sent) == row["error_code"]
        return
    batch, theirs = accepted(sent), read_batch_header(kafkas)
    stamp(batch, theirs.base_offset, theirs.partition_leader_epoch)
    if not theirs.codec:
        assert bytes(batch.data) == kafkas
    assert batch.header[5:] == theirs[5:]  # from the attributes on; length and checksum depend on the compressor
    assert list(read_records(batch.data)) == list(read_records(kafkas))


def test_the_recording_has_every_codec_of_both_formats():
    names = [row["name"] for row in RECORDED if row["stored"]]
    for magic in (0, 1):
        for codec in ("none", "gzip", "snappy", "lz4"):
            assert f"java magic {magic} {codec}" in names


@given(
    st.lists(
        st.tuples(st.integers(-1, 2**45), st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([0, 1]),
    st.sampled_from([Codec.NONE, *CODECS]),
)
def test_every_field_of_every_message_is_in_the_batch(fields, magic, codec):
    data = b"".join(message(magic, value, key, at=at, offset=index) for index, (at, key, value) in enumerate(fields))
    batch = accepted(wrapped(magic, data, codec, offset=len(fields) - 1) if codec else data)
    assert contents(batch) == [(at if magic else -1, key, value) for at, key, value in fields]
    assert (batch.header.codec, batch.header.record_count) == (codec, len(fields))
    assert [record.offset for record in read_records(batch.data)] == list(range(len(fields)))
    newest = max(record.timestamp for record in read_records(batch.data))
    assert (batch.header.max_timestamp, batch.largest_timestamp) == (newest, newest)
    assert contents(batch)[batch.largest_timestamp_delta][0] == newest


# -- what a topic wants


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", [Codec.NONE, *CODECS])
def test_the_topics_codec_is_used(source, target):
    two = message(1, b"a") + message(1, b"b", offset=1)
    batch = accepted(wrapped(1, two, source, offset=1) if source else two, Rules(compression_type=target))
    names = {"uncompressed": Codec.NONE, "zstd": Codec.ZSTD} | {codec.name.lower(): codec for codec in CODECS}
    assert batch.header.codec == names[target]
    assert [value for _, _, value in contents(batch)] == [b"a", b"b"]


@pytest.mark.parametrize("magic", [0, 1])
def test_the_time_of_the_append_counts_where_the_topic_wants_it(magic):
    batch = accepted(message(magic, at=5), Rules(message_timestamp_type="LogAppendTime"))
    assert (batch.header.uses_log_append_time, batch.header.max_timestamp) == (True, NOW_MS)
    assert batch.header.base_timestamp == (5 if magic else -1)


def test_a_wrapper_with_the_time_of_an_append_has_the_time_of_all_its_messages():
    inner = message(1, at=1) + message(1, at=2, offset=1)
    batch = accepted(wrapped(1, inner, at=NOW_MS - 7, offset=1, attributes=LOG_APPEND_TIME))
    assert [at for at, _, _ in contents(batch)] == [NOW_MS - 7] * 2
    assert not batch.header.uses_log_append_time


KEYLESS, OLD, FUTURE = (message(1, key=None), message(1, at=5), message(1, at=NOW_MS + 5000))


@pytest.mark.parametrize(
    ("rules", "data", "expected"),
    [
        (Rules(compacted=True), KEYLESS, ErrorCode.INVALID_RECORD),
        (Rules(compacted=True), wrapped(1, KEYLESS), ErrorCode.INVALID_RECORD),
        (Rules(message_timestamp_before_max_ms=1000), OLD, ErrorCode.INVALID_TIMESTAMP),
        (Rules(message_timestamp_before_max_ms=1000), wrapped(1, OLD), ErrorCode.INVALID_TIMESTAMP),
        (Rules(message_timestamp_after_max_ms=1000), FUTURE, ErrorCode.INVALID_TIMESTAMP),
        (Rules(compacted=True, message_timestamp_before_max_ms=1000), KEYLESS + OLD, ErrorCode.INVALID_RECORD),
        (Rules(compacted=True, message_timestamp_before_max_ms=1000), OLD + KEYLESS, ErrorCode.INVALID_TIMESTAMP),
        (
            Rules(compacted=True, message_timestamp_before_max_ms=1000),
            wrapped(1, KEYLESS + OLD),
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (
            Rules(message_timestamp_type="LogAppendTime"),
            message(1, attributes=LOG_APPEND_TIME),
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (Rules(max_message_bytes=100), message(1, bytes(100)), ErrorCode.MESSAGE_TOO_LARGE),
        (Rules(max_message_bytes=100), message(1) * 20, ErrorCode.MESSAGE_TOO_LARGE),
        (Rules(max_message_bytes=100), message(0) * 20, ErrorCode.MESSAGE_TOO_LARGE),
        (Rules(max_message_bytes=100, compression_type="uncompressed"), wrapped(1, message(1) * 20), 10),
        (Rules(segment_bytes=100), message(1) * 20, ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_what_a_topic_does_not_want_is_refused(rules, data, expected):
    assert code(data, rules) == expected
    assert isinstance(check(data), Batch)


@pytest.mark.parametrize("rules", [Rules(message_timestamp_before_max_ms=0, message_timestamp_after_max_ms=0)])
def test_a_message_without_time_has_no_bad_one(rules):
    assert contents(accepted(message(0) + message(0), rules))[0][0] == -1
    assert contents(accepted(message(1, at=-1), rules))[0][0] == -1


# -- what is refused


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("damaged", 2),
        ("damaged second", 2),
        ("size 5 of the second", 2),
        ("magic 3 of the second", 2),
        ("another format behind it", 87),
        ("codec zstd", 87),
        ("codec 5", -1),
        ("two wrappers", 87),
        ("a wrapper and one", 87),
        ("wrapper without value", 87),
        ("wrapper of nothing", 87),
        ("garbage in a wrapper", -1),
        ("key too long", -1),
        ("damaged inner", 2),
        ("nested", 87),
        ("inner size 5", 2),
        ("inner of another format", 87),
        ("inner key too long", -1),
        ("inner damaged behind one that is refused", 2),
        ("inner cut off behind a damaged one", -1),
    ],
)
def test_faults_have_kafkas_codes(magic, name, expected):
    one, position = message(magic), (18, 26)[magic]
    long_key = sealed(one[:position] + (1000).to_bytes(4, "big") + one[position + 4 :])
    faulty = {
        "damaged": damaged(one),
        "damaged second": one + damaged(one),
        "size 5 of the second": one + with_size(one, 5),
        "magic 3 of the second": one + one[:16] + b"\x03" + one[17:],
        "another format behind it": one + message(1 - magic),
        "codec zstd": wrapped(magic, one, Codec.ZSTD),
        "codec 5": message(magic, attributes=5),
        "two wrappers": wrapped(magic, one) * 2,
        "a wrapper and one": wrapped(magic, one) + one,
        "wrapper without value": message(magic, None, attributes=Codec.GZIP),
        "wrapper of nothing": wrapped(magic, b""),
        "garbage in a wrapper": message(magic, b"garbage", attributes=Codec.SNAPPY),
        "key too long": long_key,
        "damaged inner": wrapped(magic, damaged(one)),
        "nested": wrapped(magic, wrapped(magic, one)),
        "inner size 5": wrapped(magic, one + with_size(one, 5)),
        "inner of another format": wrapped(magic, one + message(1 - magic)),
        "inner key too long": wrapped(magic, long_key),
        "inner damaged behind one that is refused": wrapped(magic, message(1 - magic) + damaged(one)),
        "inner cut off behind a damaged one": message(
            magic, compress(Codec.GZIP, damaged(one))[:-9], attributes=Codec.GZIP
        ),
    }
    assert code(faulty[name]) == expected


def test_a_time_before_minus_one_cannot_be_stored():
    assert code(message(1, at=-2)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert code(wrapped(1, message(1, at=-2))) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert contents(accepted(message(0, at=-2)))[0][0] == -1


@pytest.mark.parametrize(("offset", "is_taken"), [(0, True), (1, False), (4, True), (1000, True), (-5, False)])
def test_a_wrapper_stands_at_zero_or_not_before_its_last_message(offset, is_taken):
    inner = b"".join(message(1, offset=index) for index in range(5))
    assert isinstance(check(wrapped(1, inner, offset=offset)), Batch if is_taken else RecordsRefused)
    old_inner = b"".join(message(0, offset=index) for index in range(5))
    assert isinstance(check(wrapped(0, old_inner, offset=offset)), Batch)


@pytest.mark.parametrize("nothing", [b"", b"12 bytes", message(1)[:-1], message(1)[:15]])
def test_no_whole_message_is_nothing_to_store(nothing):
    assert check(nothing) is None


def test_a_part_of_a_message_at_the_end_is_cut_off():
    assert len(contents(accepted(message(1) + message(1)[:-1]))) == 1
    assert len(contents(accepted(wrapped(1, message(1) + message(1)[:-1])))) == 1


def test_a_batch_of_format_2_is_taken_as_it_is():
    for codec in Codec:
        data = bytes(build_batch([(b"k", b"v")], timestamp_ms=5, codec=codec).data)
        assert bytes(accepted(data).data) == data
    assert code(data * 2) == ErrorCode.INVALID_RECORD
    assert code(data + message(1)) == ErrorCode.INVALID_RECORD
    assert code(damaged(data) + data) == ErrorCode.CORRUPT_MESSAGE


# -- what it costs


def test_a_small_message_set_takes_one_step():
    assert steps_of(message(1) * 20)[0] == 1
    assert steps_of(wrapped(1, message(1) * 20))[0] == 1


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@pytest.mark.parametrize(("value", "count", "steps_min"), [(b"v", 20_000, 200), (b"v" * 300_000, 10, 40)])
def test_a_large_message_set_takes_many_steps(codec, value, count, steps_min):
    data = message(1, value) * count
    steps, batch = steps_of(wrapped(1, data, codec) if codec else data, Rules(max_message_bytes=4 * MIB))
    assert isinstance(batch, Batch)
    assert steps >= steps_min


def test_what_is_large_is_not_looked_at_in_the_first_step():
    work = check_old_produced(memoryview(b"\xff" * 100_000), Rules(), NOW_MS, TopicPartition("t", 0))
    assert next(work) is None
    assert code(b"\xff" * 100_000) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("refused", [wrapped(1, message(1)), message(0), damaged(message(1)), message(1, at=-2)])
def test_messages_that_are_refused_take_steps_too(refused):
    steps, outcome = steps_of(wrapped(1, refused * 10_000))
    assert isinstance(outcome, RecordsRefused)
    assert steps >= 50


@pytest.mark.parametrize(
    ("inner", "rules", "expected"),
    [
        (message(1, bytes(INNER_MESSAGE_MAX_BYTES)), Rules(), ErrorCode.INVALID_RECORD),
        (with_size(message(1), (1 << 31) - 1), Rules(), ErrorCode.INVALID_RECORD),
        (message(1, bytes(8 * MIB)), Rules(compression_type="uncompressed"), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["large", "claims to be large", "becomes large"],
)
def test_memory_is_bounded_whatever_is_compressed(inner, rules, expected):
    data = wrapped(1, inner)
    tracemalloc.start()
    try:
        assert code(data, rules) == expected
        assert tracemalloc.get_traced_memory()[1] < 48 * MIB
    finally:
        tracemalloc.stop()
