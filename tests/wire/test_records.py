"""Record batches: what a broker accepts, corrects and refuses, how it rebuilds, and how records are read.

The codes of refusals, and what is stored of odd batches, were measured on Apache Kafka 3.9.1.
"""

import struct

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.wire.compression import CHUNK_BYTES, Codec
from barnabas.wire.compressors import compress
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    Record,
    RecordsRefused,
    build_batch,
    check_produced,
    check_small,
    checksum,
    is_intact,
    read_batch_header,
    read_records,
    stamp,
)
from barnabas.world.pacing import complete_inline
from tests.wire.bombs import memory_below
from tests.wire.raw_records import HERE, NOW_MS, raw_record, varint
from tests.wire.topic_rules import LONG_MAX, Rules

CODECS = list(Codec)
NAMES = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]


def check(data: bytes, rules: Rules | None = None, api_version: int = 9) -> Batch | RecordsRefused:
    checked = complete_inline(check_produced(memoryview(bytearray(data)), rules or Rules(), NOW_MS, api_version, HERE))
    at_once = check_small(memoryview(bytearray(data)), rules or Rules(), NOW_MS, api_version)
    assert at_once is None or said(at_once) == said(checked)
    return checked


def said(checked: Batch | RecordsRefused) -> object:
    if isinstance(checked, RecordsRefused):
        return checked.code, checked.message, checked.before_log
    return bytes(checked.data), checked.header, checked.largest_timestamp, checked.largest_timestamp_delta


def accepted(data: bytes, rules: Rules | None = None) -> Batch:
    batch = check(data, rules)
    assert isinstance(batch, Batch), batch
    assert batch.header == read_batch_header(batch.data)
    assert is_intact(batch.data)
    return batch


def code(data: bytes, rules: Rules | None = None, api_version: int = 9) -> int:
    refused = check(data, rules, api_version)
    return refused.code if isinstance(refused, RecordsRefused) else 0


ONE, TWO = raw_record(), raw_record() + raw_record(1, b"w" * 300, b"k", 7)


def raw_batch(payload=ONE, count=1, codec=0, **fields) -> bytes:
    """A batch with these header fields and the right checksum, unless that is given too."""
    of = {"base": 0, "epoch": -1, "magic": 2, "attributes": codec, "last": count - 1, "time": 1000, "newest": 1000}
    of |= {"producer": -1, "producer_epoch": -1, "sequence": -1} | fields
    names = ("attributes", "last", "time", "newest", "producer", "producer_epoch", "sequence")
    tail = struct.pack(">hiqqqhii", *(of[name] for name in names), count) + compress(Codec(codec), payload)
    body = struct.pack(">ibI", of["epoch"], of["magic"], of.get("crc", crc32c(tail))) + tail
    return struct.pack(">qi", of["base"], of.get("length", len(body))) + body


records_strategy = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**45),
        st.none() | st.binary(max_size=80),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=70)), max_size=3),
    ),
    min_size=1,
    max_size=80,
)


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


# --- round trips


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=25)
@given(records=records_strategy)
def test_what_is_built_is_accepted_unchanged_and_read_back(codec, records) -> None:
    built = build_batch(records, timestamp_ms=NOW_MS, codec=codec, producer_id=9, producer_epoch=2, base_sequence=5)
    batch = accepted(built.data)
    assert bytes(batch.data) == bytes(built.data)
    assert (batch.largest_timestamp, batch.largest_timestamp_delta) == (
        built.largest_timestamp,
        built.largest_timestamp_delta,
    )
    assert list(read_records(batch.data)) == numbered(records)
    assert batch.header[8:] == (max(record.timestamp for record in records), 9, 2, 5, len(records))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", [kafka_records, aiokafka_records], ids=["kafka-python", "aiokafka"])
@settings(max_examples=15)
@given(records=records_strategy)
def test_batches_of_other_clients_are_accepted_and_read(library, codec, records) -> None:
    builder = library.DefaultRecordBatchBuilder(2, int(codec), 1, 7, 3, 11, 1 << 20)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, record.headers)
    data = bytes(builder.build())
    batch = accepted(data)
    assert bytes(batch.data) == data
    assert list(read_records(batch.data)) == numbered(records)
    assert batch.header.is_transactional
    assert batch.header[9:12] == (7, 3, 11)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", [kafka_records, aiokafka_records], ids=["kafka-python", "aiokafka"])
@settings(max_examples=15)
@given(records=records_strategy)
def test_other_clients_read_our_batches(library, codec, records) -> None:
    batch = build_batch(records, timestamp_ms=NOW_MS, codec=codec)
    stamp(batch, 100, 4)
    theirs = library.DefaultRecordBatch(bytes(batch.data))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == numbered(records, 100)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", NAMES)
@settings(max_examples=8)
@given(records=records_strategy)
def test_a_topic_with_a_codec_of_its_own_gets_the_same_records(codec, target, records) -> None:
    sent = build_batch(records, timestamp_ms=NOW_MS, codec=codec, producer_id=9, producer_epoch=2, base_sequence=5)
    batch = accepted(sent.data, Rules(compression_type=target))
    assert batch.header.codec == NAMES.index(target)
    assert list(read_records(batch.data)) == numbered(records)
    assert batch.header[6:] == sent.header[6:]
    assert batch.largest_timestamp_delta == sent.largest_timestamp_delta


# --- what is accepted, and what is stored of it


@given(
    key=st.one_of(st.none(), st.binary(max_size=200)),
    value=st.one_of(st.none(), st.binary(max_size=20_000)),
    fields=st.fixed_dictionaries(
        {
            "producer_id": st.integers(-1, (1 << 63) - 1),
            "producer_epoch": st.integers(-1, 32_767),
            "base_offset": st.integers(0, 1 << 40),
            "leader_epoch": st.integers(-1, 1 << 20),
            "attributes": st.sampled_from([0, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL | TRANSACTIONAL]),
        }
    ),
)
def test_a_batch_of_one_pair_is_that_of_one_record(key, value, fields) -> None:
    pair = build_batch([(key, value)], timestamp_ms=NOW_MS, **fields)
    record = build_batch([Record(0, NOW_MS, key, value, [])], timestamp_ms=NOW_MS, **fields)
    assert bytes(pair.data) == bytes(record.data)
    assert pair.header == record.header
    assert pair.largest_timestamp == record.largest_timestamp
    assert pair.largest_timestamp_delta == record.largest_timestamp_delta


def test_a_well_formed_batch_is_not_copied() -> None:
    sent = memoryview(bytearray(raw_batch()))
    assert check_small(sent, Rules(), NOW_MS, 9).data.obj is sent.obj
    checked = complete_inline(check_produced(sent, Rules(), NOW_MS, 9, HERE))
    assert checked.data.obj is sent.obj


@pytest.mark.parametrize("tail", [b"\0", b"abcdefghijk", raw_batch()[:40], raw_batch()[:-1]])
def test_a_part_of_a_second_batch_is_cut_off(tail) -> None:
    assert bytes(accepted(raw_batch() + tail).data) == raw_batch()


@pytest.mark.parametrize("codec", CODECS)
def test_a_false_largest_timestamp_is_corrected(codec) -> None:
    batch = accepted(raw_batch(TWO, 2, codec, newest=9_999_999))
    assert (batch.header.max_timestamp, batch.largest_timestamp, batch.largest_timestamp_delta) == (1007, 1007, 1)
    assert bytes(batch.data)[61:] == raw_batch(TWO, 2, codec)[61:]


@pytest.mark.parametrize(
    ("fields", "newest"),
    [
        ({"time": -1, "newest": 5}, -1),
        ({"time": -50, "newest": -50}, -1),
        ({"time": LONG_MAX, "payload": raw_record(time=2**62)}, -1),
        ({"time": 1000, "payload": raw_record(time=-5) + raw_record(1, time=-7), "count": 2}, 995),
        ({"time": LONG_MAX, "payload": raw_record(time=1) + raw_record(1, time=-7), "count": 2}, LONG_MAX - 7),
    ],
)
def test_the_largest_timestamp_is_found_as_java_adds_and_is_never_below_none(fields, newest) -> None:
    batch = accepted(raw_batch(**fields))
    assert (batch.header.max_timestamp, batch.largest_timestamp) == (newest, newest)


@pytest.mark.parametrize(("base", "times"), [(1000, [3, 9, 1, 9, 2]), (LONG_MAX, [1, -7, -8, -7, 2])])
def test_the_first_of_several_newest_records_counts(base, times) -> None:
    payload = b"".join(raw_record(index, time=time) for index, time in enumerate(times))
    assert accepted(raw_batch(payload, 5, time=base)).largest_timestamp_delta == 1


@pytest.mark.parametrize("attributes", [DELETE_HORIZON, 0x7F80, TRANSACTIONAL])
def test_attributes_stay_as_they_came_while_nothing_else_is_wrong(attributes) -> None:
    assert accepted(raw_batch(attributes=attributes)).header.attributes == attributes


def test_unknown_attributes_are_dropped_where_the_header_is_corrected() -> None:
    batch = accepted(raw_batch(attributes=0x7F80 | DELETE_HORIZON, newest=5))
    assert batch.header.attributes == DELETE_HORIZON


def test_uncompressed_offset_deltas_are_stored_in_any_disorder() -> None:
    data = raw_batch(raw_record(5) + raw_record(-3), 2)
    assert bytes(accepted(data).data) == data


def test_disordered_offset_deltas_are_put_right_where_the_batch_is_rebuilt() -> None:
    batch = accepted(raw_batch(raw_record(5) + raw_record(2), 2, Codec.GZIP), Rules(compression_type="uncompressed"))
    assert bytes(batch.data)[61:] == raw_record(0) + raw_record(1)


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\0" + varint(-5) + varint(-7) + b"\0",
        b"\x37\0\0\x01\x01\0",
        b"\0\0\0\x01\x01" + varint(1) + b"\0" + varint(-9),
        b"\0\0\0\x01\x01\x80\x80\x80\x80\x70",
        b"\0" + b"\x80" * 9 + b"\x7e" + b"\0\x01\x01\0",
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_odd_encodings_that_kafka_reads_are_accepted_and_rebuilt_in_the_usual_form(codec, body) -> None:
    data = raw_batch(varint(len(body)) + body, 1, codec)
    assert bytes(accepted(data).data) == data
    rebuilt = accepted(raw_batch(varint(len(body)) + body, 1, Codec.GZIP), Rules(compression_type="uncompressed"))
    assert bytes(rebuilt.data)[61:] in (raw_record(value=None), raw_record(value=None, headers=b"\x02\0\x01"))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_log_append_time_is_written_into_the_header_alone(codec) -> None:
    batch = accepted(raw_batch(TWO, 2, codec), Rules(message_timestamp_type="LogAppendTime"))
    assert (batch.header.attributes, batch.header.max_timestamp) == (codec | LOG_APPEND_TIME, NOW_MS)
    assert (batch.largest_timestamp, batch.largest_timestamp_delta) == (NOW_MS, 0)
    assert bytes(batch.data)[61:] == raw_batch(TWO, 2, codec)[61:]
    assert [record.timestamp for record in read_records(batch.data)] == [NOW_MS, NOW_MS]


def test_a_rebuild_with_log_append_time_still_counts_from_the_first_record() -> None:
    rules = Rules(compression_type="gzip", message_timestamp_type="LogAppendTime")
    batch = accepted(raw_batch(raw_record(time=100) + raw_record(1, time=-40), 2), rules)
    assert batch.header[5:9] == (Codec.GZIP | LOG_APPEND_TIME, 1, 1100, NOW_MS)
    assert (batch.largest_timestamp, batch.largest_timestamp_delta) == (NOW_MS, 0)


def test_a_rebuild_counts_timestamps_from_the_first_record() -> None:
    sent = raw_batch(
        raw_record(time=100) + raw_record(1, time=-40), 2, epoch=9, sequence=4, producer=8, producer_epoch=0
    )
    batch = accepted(sent, Rules(compression_type="zstd"))
    assert batch.header[2:4] == (-1, 2)
    assert batch.header[5:] == (Codec.ZSTD, 1, 1100, 1100, 8, 0, 4, 2)
    assert [record.timestamp for record in read_records(batch.data)] == [1100, 960]


@pytest.mark.parametrize("target", ["producer", "lz4"])
def test_a_producers_own_log_append_time_becomes_the_create_time_of_all_records(target) -> None:
    batch = accepted(raw_batch(TWO, 2, attributes=LOG_APPEND_TIME, newest=777), Rules(compression_type=target))
    assert batch.header.uses_log_append_time is False
    assert (batch.header.max_timestamp, batch.largest_timestamp, batch.largest_timestamp_delta) == (777, 777, 0)


def test_a_producer_may_not_set_log_append_time_where_the_broker_sets_it() -> None:
    rules = Rules(message_timestamp_type="LogAppendTime")
    refused = check(raw_batch(TWO, 2, attributes=LOG_APPEND_TIME), rules)
    assert (refused.code, [index for index, _ in refused.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])
    assert code(raw_batch(attributes=LOG_APPEND_TIME, newest=-1)) == ErrorCode.INVALID_TIMESTAMP


# --- what is refused


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 87),
        (bytes(10), 87),
        (bytes(17), 2),
        (raw_batch(length=500), 87),
        (raw_batch(length=13), 2),
        (raw_batch(length=-1), 2),
        (raw_batch()[:8] + struct.pack(">i", 48) + raw_batch()[12:60], 2),
        (raw_batch(magic=3), 2),
        (raw_batch(magic=-1), 2),
        (raw_batch(magic=1), 87),
        (raw_batch(magic=0), 87),
        (raw_batch() + raw_batch(), 87),
        (raw_batch() + bytes(12), 2),
        (raw_batch() + bytes(61), 2),
        (raw_batch(crc=1), 2),
        (raw_batch(base=5, crc=1), 87),
        (raw_batch(base=-1), 87),
        (raw_batch(b"", 0), 87),
        (raw_batch(b"", -1), 87),
        (raw_batch(count=2, last=0), 87),
        (raw_batch(count=2), 87),
        (raw_batch(last=-1), 87),
        (raw_batch(TWO), 87),
        (raw_batch(count=2**31 - 1), 87),
        (raw_batch(ONE + b"\0"), 87),
        (raw_batch(b""), 87),
        (raw_batch(attributes=CONTROL), 87),
        (raw_batch(producer=5, producer_epoch=0), 87),
        (raw_batch(attributes=5), -1),
        (raw_batch(attributes=7), -1),
        (raw_batch(b"garbage", attributes=Codec.GZIP), -1),
        (raw_batch(raw_record(5), codec=Codec.GZIP), -1),
        (raw_batch(b"", codec=Codec.GZIP), 87),
        (raw_batch(TWO, 1, Codec.GZIP), 87),
        (raw_batch(TWO, 3, Codec.GZIP), 87),
    ],
)
def test_a_bad_batch_is_refused_with_kafkas_code(data, expected) -> None:
    assert code(data) == expected


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "payload",
    [
        raw_record(length=5),
        raw_record(length=50),
        raw_record(length=-5),
        raw_record(length=-8),  # zigzag 15, half of which is the true length
        raw_record(length=0),
        raw_record(headers=varint(-1)),
        raw_record(headers=varint(1) + varint(-1) + varint(-1)),
        raw_record(headers=varint(2**31 - 1)),
        raw_record(headers=b"\x80\x80\x80\x80\x80\0"),
        varint(8) + b"\0\0\0\x01" + varint(2**31 - 1),
        varint(2**31 - 1) + bytes(20),
        varint(17) + b"\0" + b"\x80" * 10 + b"\0\0\x01\x01\0",
        b"\x80\x80\x80\x80\x80\0" + ONE,
    ],
)
def test_a_malformed_record_is_refused(codec, payload) -> None:
    assert code(raw_batch(payload, 1, codec)) == ErrorCode.INVALID_RECORD


def test_zstd_is_refused_before_produce_version_7() -> None:
    data = raw_batch(codec=Codec.ZSTD)
    assert code(data, api_version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code(data, api_version=7) == 0


def test_a_batch_is_as_large_as_the_topic_allows_and_no_larger() -> None:
    size = len(raw_batch())
    assert code(raw_batch(), Rules(max_message_bytes=size)) == 0
    assert code(raw_batch(crc=1), Rules(max_message_bytes=size - 1)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code(raw_batch(), Rules(segment_bytes=size)) == 0
    assert code(raw_batch(), Rules(segment_bytes=size - 1)) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert code(raw_batch(raw_record(length=3)), Rules(segment_bytes=9)) == ErrorCode.INVALID_RECORD


def test_a_rebuild_may_shrink_a_batch_below_the_limit_but_not_grow_above_it() -> None:
    zeros = raw_batch(raw_record(value=bytes(400_000)), codec=Codec.GZIP)
    assert code(zeros, Rules(compression_type="uncompressed", max_message_bytes=9000)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code(zeros, Rules(compression_type="zstd", max_message_bytes=9000)) == 0
    tight = Rules(compression_type="gzip", max_message_bytes=len(raw_batch()))
    assert code(raw_batch(), tight) == ErrorCode.MESSAGE_TOO_LARGE


def test_no_timestamp_can_be_rebuilt_but_no_negative_one() -> None:
    assert accepted(raw_batch(time=-1), Rules(compression_type="gzip")).header[7:9] == (-1, -1)
    assert code(raw_batch(time=-5)) == 0
    assert code(raw_batch(time=-5), Rules(compression_type="gzip")) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_rebuilt_batch_stays_transactional_and_loses_other_attributes() -> None:
    sent = raw_batch(attributes=TRANSACTIONAL | DELETE_HORIZON | 0x80, producer=8, producer_epoch=0, sequence=0)
    assert accepted(sent, Rules(compression_type="lz4")).header.attributes == TRANSACTIONAL | Codec.LZ4


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_records_without_a_key_are_named_on_a_compacted_topic(codec) -> None:
    payload = b"".join(raw_record(index, key=key) for index, key in enumerate([None, b"", None, b"k"]))
    refused = check(raw_batch(payload, 4, codec), Rules(compacted=True))
    assert (refused.code, [index for index, _ in refused.record_errors]) == (ErrorCode.INVALID_RECORD, [0, 2])
    assert code(raw_batch(raw_record(key=b"k"), 1, codec), Rules(compacted=True)) == 0


@pytest.mark.parametrize(("age", "expected"), [(0, 0), (1000, 0), (1001, 32), (-500, 0), (-501, 32)])
def test_timestamps_out_of_range_are_refused_from_the_first_millisecond(age, expected) -> None:
    rules = Rules(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    assert code(raw_batch(time=NOW_MS - age, newest=0), rules) == expected


def test_only_records_out_of_range_are_named_and_no_timestamp_is_in_range() -> None:
    payload = b"".join(raw_record(index, time=time) for index, time in enumerate([0, -5000, NOW_MS]))
    rules = Rules(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    refused = check(raw_batch(payload, 3, time=NOW_MS), rules)
    assert [index for index, _ in refused.record_errors] == [1, 2]
    assert code(raw_batch(time=-1), rules) == 0
    assert code(raw_batch(time=-2), rules) == ErrorCode.INVALID_TIMESTAMP


def test_the_first_refused_record_decides_the_code() -> None:
    rules = Rules(message_timestamp_before_max_ms=1000, compacted=True)
    old_then_keyless = raw_record(key=b"k", time=-5000) + raw_record(1)
    refused = check(raw_batch(old_then_keyless, 2, time=NOW_MS), rules)
    assert (refused.code, len(refused.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 2)


# --- bounded memory, arbitrary damage


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("count", [1, 3])
def test_a_bomb_is_accepted_in_little_memory(codec, count) -> None:
    batch = build_batch([(None, bytes(30_000_000 // count))] * count, timestamp_ms=NOW_MS, codec=codec)
    with memory_below(500_000):
        checked = complete_inline(check_produced(memoryview(batch.data), Rules(), NOW_MS, 9, HERE))
    assert isinstance(checked, Batch)


@pytest.mark.parametrize("start", [varint(-3), varint(8) + b"\0\0\0\x01" + varint(2**31 - 1)])
def test_an_impossible_length_is_noticed_before_more_of_the_stream_is_collected(start) -> None:
    data = raw_batch(start + bytes(5_000_000), 1, Codec.GZIP)
    with memory_below(500_000):
        assert code(data) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=40)
@given(sizes=st.lists(st.sampled_from([0, 50, 200, 65_000, 65_531, 65_536, 70_000, 140_000]), min_size=1, max_size=12))
def test_records_are_found_wherever_chunks_cut_them(codec, sizes) -> None:
    rules = Rules(max_message_bytes=1 << 24)
    records = [Record(0, NOW_MS + size, bytes(size), bytes(size), [("h", bytes(size // 2))]) for size in sizes]
    batch = build_batch(records, timestamp_ms=0, codec=codec)
    assert bytes(accepted(batch.data, rules).data) == bytes(batch.data)
    assert check(batch.data, rules).largest_timestamp_delta == sizes.index(max(sizes))
    assert list(read_records(batch.data)) == numbered(records)


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_behind_a_record_that_ends_with_a_chunk_are_noticed(codec) -> None:
    chunk = raw_record(value=bytes(CHUNK_BYTES - 11))
    assert len(chunk) == CHUNK_BYTES
    assert code(raw_batch(chunk, 1, codec)) == 0
    assert code(raw_batch(chunk + b"\0", 1, codec)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("record", "rules", "expected"),
    [
        ({"key": b"k"}, Rules(compacted=True), 0),
        ({"key": None}, Rules(compacted=True), ErrorCode.INVALID_RECORD),
        ({"time": -600}, Rules(message_timestamp_before_max_ms=500), ErrorCode.INVALID_TIMESTAMP),
        ({"time": 600}, Rules(message_timestamp_after_max_ms=500), ErrorCode.INVALID_TIMESTAMP),
        ({"index": 3}, Rules(), ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"length": 100_011}, Rules(), ErrorCode.INVALID_RECORD),
        ({"headers": varint(-1)}, Rules(), ErrorCode.INVALID_RECORD),
        ({"headers": varint(1) + varint(-1) + varint(-1)}, Rules(), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_record_longer_than_a_chunk_is_judged_like_any_other(record, rules, expected) -> None:
    payload = raw_record(0, key=b"k") + raw_record(**{"index": 1, "value": bytes(100_000), "key": b"k"} | record)
    assert code(raw_batch(payload + raw_record(2, key=b"k"), 3, Codec.ZSTD, time=NOW_MS), rules) == expected


@settings(max_examples=100)
@given(codec=st.sampled_from(CODECS), position=st.integers(0, 10_000), bits=st.integers(1, 255))
def test_any_damaged_byte_behind_the_leader_epoch_is_refused(codec, position, bits) -> None:
    data = bytearray(raw_batch(TWO, 2, codec))
    data[12 + 4 + position % (len(data) - 16)] ^= bits
    assert code(data) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip"])
@settings(max_examples=100)
@given(
    codec=st.sampled_from(CODECS), changes=st.lists(st.tuples(st.integers(21, 10_000), st.integers(0, 255)), max_size=3)
)
@example(codec=Codec.GZIP, changes=[(9776, 2)])  # damages a record, and the codec's end
def test_damage_under_a_right_checksum_is_accepted_whole_or_refused_with_a_code(target, codec, changes) -> None:
    data = bytearray(raw_batch(TWO, 2, codec))
    for position, byte in changes:
        data[position % len(data) if position % len(data) > 20 else 21] = byte
    data[17:21] = struct.pack(">I", checksum(data))
    batch = check(data, Rules(compression_type=target))
    if isinstance(batch, Batch):
        assert len(list(read_records(batch.data))) == batch.header.record_count == 2
    else:
        assert batch.code in (-1, 2, 10, 32, 87)
