"""Messages: round trips, refusal of everything malformed, payloads that are not copied, versions and defaults."""

import random
import re
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import codegen
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.schema import Field, Schema

NAMES = sorted(m.schemas())
PAIRS = [(n, v) for n in NAMES for v in range(m.schemas()[n].min_version, m.schemas()[n].max_version + 1)]
SPECIMENS = {
    "string": "\u00e9\U0001f99c",
    "bytes": b"\x00\xff",
    "records": b"batch",
    "uuid": bytes(range(16)),
    "bool": True,
}


def specimen(schema: Schema, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """Values for all fields of the version, none of them a default, arrays of two elements."""
    values = {}
    for field in fields:
        if field.exists_in(version):
            values[field.name] = [one(schema, field, version)] * 2 if field.is_array else one(schema, field, version)
    return values


def one(schema: Schema, field: Field, version: int) -> Any:
    if field.is_struct:
        struct_class = getattr(m.message_class(schema.name), field.element)
        return struct_class(**specimen(schema, schema.fields_of(field), version))
    return SPECIMENS.get(field.element, 100)


def filled(name: str, version: int) -> m.Message:
    schema = m.schemas()[name]
    return m.message_class(name)(**specimen(schema, schema.fields, version))


def encoded(name: str, version: int) -> bytes:
    return m.encode(filled(name, version), version)


class FileSlice:
    """Stands for records on disk: a size, and no bytes in memory."""

    size_bytes = 1_000_000


# --- What is encoded is decoded ---


@pytest.mark.parametrize("name", NAMES)
def test_a_message_without_defaults_survives_the_round_trip_in_every_version(name: str) -> None:
    for version in (v for n, v in PAIRS if n == name):
        decoded, end = m.decode_from(m.message_class(name), version, encoded(name, version), 0)
        assert decoded == filled(name, version)
        assert end == len(encoded(name, version))


@pytest.mark.parametrize("name", NAMES)
def test_a_message_of_defaults_survives_the_round_trip_in_every_version(name: str) -> None:
    cls = m.message_class(name)
    for version in (v for n, v in PAIRS if n == name):
        assert m.decode(cls, version, m.encode(cls(), version)) == cls()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_decodes_at_any_position_and_what_follows_is_ignored(kind: type) -> None:
    data = kind(b"head" + encoded("HeartbeatRequest", 4) + b"tail")
    decoded, end = m.decode_from(m.HeartbeatRequest, 4, data, 4)
    assert decoded == filled("HeartbeatRequest", 4)
    assert bytes(data[end:]) == b"tail"


def test_all_topics_metadata_of_librdkafka_is_read_though_three_bytes_too_long() -> None:
    request = m.decode(m.MetadataRequest, 12, bytes.fromhex("00000000010000"))
    assert request.topics is None
    assert request.allow_auto_topic_creation is False


def test_unknown_tagged_fields_are_skipped() -> None:
    data = m.encode(m.HeartbeatResponse(error_code=27), 4)
    tagged = data[:-1] + bytes.fromhex("02" "05 03 aabbcc" "c801 00")  # fmt: skip
    decoded, end = m.decode_from(m.HeartbeatResponse, 4, tagged, 0)
    assert (decoded.error_code, end) == (27, len(tagged))


def test_unknown_tagged_fields_are_skipped_beside_known_ones() -> None:
    data = m.encode(m.ApiVersionsResponse(zk_migration_ready=True), 3)
    assert data.endswith(bytes.fromhex("01 03 01 01"))
    tagged = data[:-4] + bytes.fromhex("03" "03 01 01" "04 02 aabb" "63 00")  # fmt: skip
    decoded, end = m.decode_from(m.ApiVersionsResponse, 3, tagged, 0)
    assert (decoded.zk_migration_ready, end) == (True, len(tagged))


def test_the_client_id_keeps_its_classic_length_in_the_flexible_header() -> None:
    header = m.RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="ab")
    assert m.encode(header, 2) == bytes.fromhex("0012 0003 00000007 0002 6162 00")
    assert m.encode(header, 1) == bytes.fromhex("0012 0003 00000007 0002 6162")


# Written by Apache Kafka 3.9.1's group coordinator.
OFFSET_COMMIT = m.OffsetCommitValue(
    offset=258, leader_epoch=3, metadata="m", commit_timestamp=1000, expire_timestamp=2000
)
GROUP_METADATA = m.GroupMetadataValue(
    protocol_type="consumer", generation=5, protocol="range", leader=None, current_state_timestamp=9,
    members=[
        m.GroupMetadataValue.MemberMetadata(
            member_id="a", group_instance_id="i", client_id="c", client_host="/h", rebalance_timeout=60000,
            session_timeout=10000, subscription=b"\1\2", assignment=b"\3",
        )
    ],
)  # fmt: skip
GROUP_HEAD = "0008636f6e73756d657200000005000572616e6765ffff"


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [
        (m.OffsetCommitKey(group="g", topic="t", partition=7), 1, "00016700017400000007"),
        (m.GroupMetadataKey(group="g"), 2, "000167"),
        (OFFSET_COMMIT, 0, "000000000000010200016d00000000000003e8"),
        (OFFSET_COMMIT, 1, "000000000000010200016d00000000000003e800000000000007d0"),
        (OFFSET_COMMIT, 3, "00000000000001020000000300016d00000000000003e8"),
        (OFFSET_COMMIT, 4, "000000000000010200000003026d00000000000003e800"),
        (GROUP_METADATA, 0, GROUP_HEAD + "0000000100016100016300022f68000027100000000201020000000103"),
        (
            GROUP_METADATA,
            3,
            GROUP_HEAD + "00000000000000090000000100016100016900016300022f680000ea60000027100000000201020000000103",
        ),
        (
            GROUP_METADATA,
            4,
            "09636f6e73756d6572000000050672616e676500000000000000000902026102690263032f68"
            "0000ea600000271003010202030000",
        ),
    ],
)
def test_group_records_have_the_bytes_that_kafka_writes(message: m.Message, version: int, expected: str) -> None:
    assert m.encode(message, version).hex() == expected
    assert m.encode(m.decode(type(message), version, bytes.fromhex(expected)), version).hex() == expected


# Written by Apache Kafka 3.9.1's transaction coordinator; "ab" stands for the two times.
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (m.TransactionLogKey(transactional_id="id"), "00026964"),
        (
            m.TransactionLogValue(
                producer_id=5, producer_epoch=0, transaction_timeout_ms=60_000, transaction_status=0,
                transaction_partitions=None, transaction_last_update_timestamp_ms=0xAB,
                transaction_start_timestamp_ms=-1,
            ),
            "0000000000000005 0000 0000ea60 00 ffffffff 00000000000000ab ffffffffffffffff",
        ),
        (
            m.TransactionLogValue(
                producer_id=5, producer_epoch=0, transaction_timeout_ms=60_000, transaction_status=1,
                transaction_partitions=[m.TransactionLogValue.PartitionsSchema(topic="a", partition_ids=[0])],
                transaction_last_update_timestamp_ms=0xAB, transaction_start_timestamp_ms=0xAB,
            ),
            "0000000000000005 0000 0000ea60 01 00000001 0001 61 00000001 00000000 00000000000000ab 00000000000000ab",
        ),
    ],
)  # fmt: skip
def test_transaction_records_have_the_bytes_that_kafka_writes(message: m.Message, expected: str) -> None:
    assert m.encode(message, 0).hex() == expected.replace(" ", "")


# --- What is malformed is refused ---


@pytest.mark.parametrize("name", NAMES)
def test_every_prefix_of_a_message_is_a_protocol_violation(name: str) -> None:
    for version in (v for n, v in PAIRS if n == name):
        data = encoded(name, version)
        for size in range(len(data)):
            with pytest.raises(ProtocolViolation, match=rf"^{name} v{version}: "):
                m.decode(m.message_class(name), version, data[:size])


@given(pair=st.sampled_from(PAIRS), seed=st.integers(0, 1 << 32), count=st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_a_mutated_message_decodes_or_is_a_protocol_violation(pair: tuple[str, int], seed: int, count: int) -> None:
    rng = random.Random(seed)
    data = bytearray(encoded(*pair))
    for _ in range(count if data else 0):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    try:
        m.decode(m.message_class(pair[0]), pair[1], data)
    except ProtocolViolation as refusal:
        assert str(refusal).startswith(f"{pair[0]} v{pair[1]}: ")


@given(pair=st.sampled_from(PAIRS), data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_random_bytes_decode_or_are_a_protocol_violation(pair: tuple[str, int], data: bytes) -> None:
    try:
        _, end = m.decode_from(m.message_class(pair[0]), pair[1], data, 0)
        assert end <= len(data)
    except ProtocolViolation as refusal:
        assert str(refusal).startswith(f"{pair[0]} v{pair[1]}: ")


def test_a_classic_count_of_two_billion_is_refused_by_the_bytes_left() -> None:
    data = bytes.fromhex("7fffffff") + bytes(400)
    with pytest.raises(ProtocolViolation, match="topics claims 2147483647 elements in the 400 bytes"):
        m.decode(m.MetadataRequest, 4, data)


def test_a_negative_count_other_than_null_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="topics claims -2 elements"):
        m.decode(m.MetadataRequest, 4, bytes.fromhex("fffffffe 00"))


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(ProtocolViolation, match="topics must not be null"):
        m.decode(m.MetadataRequest, 0, bytes.fromhex("ffffffff"))
    with pytest.raises(ProtocolViolation, match="group_id must not be null"):
        m.decode(m.HeartbeatRequest, 4, b"\0" + bytes(20))


def test_bytes_in_a_string_that_are_not_utf8_are_replaced_as_java_does() -> None:
    data = m.encode(m.HeartbeatRequest(group_id="xy", member_id="z"), 0).replace(b"xy", b"\xff\xfe")
    assert m.decode(m.HeartbeatRequest, 0, data).group_id == "\ufffd\ufffd"


def test_a_varint_that_does_not_end_or_is_too_large_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="longer than five bytes"):
        m.decode(m.HeartbeatRequest, 4, b"\xff" * 20)
    with pytest.raises(ProtocolViolation, match="larger than an int32"):
        m.decode(m.HeartbeatRequest, 4, b"\xff\xff\xff\xff\x7f" + bytes(20))


def test_a_tagged_field_that_claims_more_than_is_left_is_refused() -> None:
    data = m.encode(m.HeartbeatResponse(), 4)
    with pytest.raises(ProtocolViolation, match="tag 5 claims 100 bytes, 2 are left"):
        m.decode(m.HeartbeatResponse, 4, data[:-1] + bytes.fromhex("01 05 64 0000"))


def test_a_tagged_field_that_ends_elsewhere_than_its_size_says_is_refused() -> None:
    data = m.encode(m.ApiVersionsResponse(), 3)
    with pytest.raises(ProtocolViolation, match="zk_migration_ready does not end"):
        m.decode(m.ApiVersionsResponse, 3, data[:-1] + bytes.fromhex("01 03 02 0100"))


def test_a_version_that_the_message_does_not_have_is_refused_both_ways() -> None:
    with pytest.raises(ProtocolViolation, match="FetchRequest has versions 0-17, not 18"):
        m.decode(m.FetchRequest, 18, b"")
    with pytest.raises(ValueError, match="GroupMetadataKey has versions 2, not 0"):
        m.encode(m.GroupMetadataKey(), 0)


# --- Records stay where they are ---


def produce(records: Any) -> m.ProduceRequest:
    partition = m.ProduceRequest.PartitionProduceData(index=1, records=records)
    topic = m.ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return m.ProduceRequest(acks=-1, topic_data=[topic])


def fetched(*payloads: Any) -> m.FetchResponse:
    partitions = [m.FetchResponse.PartitionData(partition_index=i, records=r) for i, r in enumerate(payloads)]
    return m.FetchResponse(responses=[m.FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [3, 9, 11])
def test_produced_records_are_a_writable_view_of_the_frame(version: int) -> None:
    frame = bytearray(m.encode(produce(b"batch"), version))
    records = m.decode(m.ProduceRequest, version, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:] = b"BATCH"
    assert frame == m.encode(produce(b"BATCH"), version)


def test_null_records_decode_to_none() -> None:
    frame = m.encode(produce(None), 9)
    assert m.decode(m.ProduceRequest, 9, frame).topic_data[0].partition_data[0].records is None


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_payload_that_is_not_in_memory_stays_a_piece_of_its_own(version: int) -> None:
    first, second, out = FileSlice(), FileSlice(), []
    size_bytes = m.encode_into(fetched(first, b"small", second), version, out)
    assert [piece for piece in out if not isinstance(piece, bytes)] == [first, second]
    assert size_bytes == sum(len(piece) if isinstance(piece, bytes) else piece.size_bytes for piece in out)


def test_pieces_around_a_payload_are_the_bytes_of_the_message() -> None:
    out: list[Any] = [b"prefix"]
    m.encode_into(fetched(FileSlice()), 12, out)
    joined = b"".join(bytes(1_000_000) if isinstance(piece, FileSlice) else piece for piece in out)
    assert joined == b"prefix" + m.encode(fetched(bytes(1_000_000)), 12)


def test_large_bytes_are_not_copied_and_small_ones_are_joined() -> None:
    large, out = memoryview(bytearray(100_000)), []
    m.encode_into(fetched(b"small", large), 12, out)
    assert out[1] is large
    assert len(out) == 3


def test_encode_of_a_payload_that_is_not_in_memory_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="FileSlice"):
        m.encode(fetched(FileSlice()), 12)


def test_a_message_without_payload_is_one_piece() -> None:
    out: list[Any] = []
    assert m.encode_into(m.HeartbeatResponse(), 4, out) == 7
    assert out == [bytes(7)]


def test_a_message_without_bytes_adds_no_piece() -> None:
    out: list[Any] = []
    assert m.encode_into(m.ApiVersionsRequest(), 0, out) == 0
    assert out == []


def test_a_compact_string_is_no_longer_than_any_other_may_be() -> None:
    longest = m.encode(m.ListTransactionsRequest(state_filters=["s" * 0x7FFF]), 0)
    assert m.decode(m.ListTransactionsRequest, 0, longest).state_filters == ["s" * 0x7FFF]
    longer = m.encode(m.ListTransactionsRequest(state_filters=["s" * 0x8000]), 0)
    with pytest.raises(ProtocolViolation, match="a string of 32768 bytes is longer than 32767"):
        m.decode(m.ListTransactionsRequest, 0, longer)


def test_compact_bytes_may_be_longer_than_a_string() -> None:
    message = m.SyncGroupResponse(assignment=bytes(0x8000))
    assert m.decode(m.SyncGroupResponse, 4, m.encode(message, 4)) == message


# --- Versions and defaults ---


def test_an_ignorable_field_outside_the_version_is_dropped() -> None:
    message = m.HeartbeatResponse(throttle_time_ms=5, error_code=1)
    assert m.encode(message, 0) == b"\0\1"


def test_a_field_outside_its_versions_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest v2 has no field group_instance_id"):
        m.encode(m.HeartbeatRequest(group_instance_id="i"), 2)


def test_null_is_refused_by_name_in_a_version_that_cannot_say_it() -> None:
    with pytest.raises(ValueError, match="MetadataRequest v0: topics must not be null"):
        m.encode(m.MetadataRequest(topics=None), 0)


def test_a_value_that_does_not_fit_its_field_is_a_value_error_naming_the_message() -> None:
    with pytest.raises(ValueError, match="HeartbeatResponse v1"):
        m.encode(m.HeartbeatResponse(error_code=1 << 15), 1)
    with pytest.raises(ValueError, match="topic_id must be 16 bytes"):
        m.encode(m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(topic_id=b"short")]), 6)


def test_fields_have_kafkas_defaults() -> None:
    request = m.FetchRequest()
    assert (request.replica_id, request.max_bytes, request.topics, request.cluster_id) == (-1, 0x7FFFFFFF, (), None)
    assert m.MetadataRequest().allow_auto_topic_creation is True
    assert m.MetadataResponse.MetadataResponseTopic().topic_authorized_operations == -(1 << 31)
    assert m.FetchResponse.PartitionData().records is None


def test_fields_that_the_version_lacks_decode_to_their_defaults() -> None:
    partition = m.FetchRequest.FetchPartition(partition=1, fetch_offset=5, log_start_offset=3)
    request = m.FetchRequest(topics=[m.FetchRequest.FetchTopic(topic="t", partitions=[partition])])
    decoded = m.decode(m.FetchRequest, 4, m.encode(request, 4)).topics[0].partitions[0]
    assert (decoded.fetch_offset, decoded.log_start_offset) == (5, -1)


def test_messages_compare_by_value_and_tuples_equal_lists() -> None:
    assert m.DescribeGroupsRequest(groups=("a", "b")) == m.DescribeGroupsRequest(groups=["a", "b"])
    assert m.DescribeGroupsRequest(groups=["a"]) != m.DescribeGroupsRequest(groups=["b"])
    assert m.HeartbeatResponse() != m.LeaveGroupResponse()


def test_a_class_has_its_key_and_versions_and_nests_its_structs() -> None:
    cls = m.FetchRequest
    assert (cls.API_KEY, cls.MIN_VERSION, cls.MAX_VERSION, cls.FLEXIBLE_FROM) == (1, 0, 17, 12)
    assert repr(cls.ForgottenTopic(topic="t")).startswith("FetchRequest.ForgottenTopic(topic='t', ")


def test_a_message_prints_its_fields_but_not_long_payloads() -> None:
    text = repr(produce(memoryview(bytes(1000))))
    assert text.startswith("ProduceRequest(transactional_id=None, acks=-1, ")
    assert "PartitionProduceData(index=1, records=<1000 bytes>)" in text


def test_a_struct_takes_no_attribute_that_its_table_lacks() -> None:
    with pytest.raises(AttributeError):
        m.HeartbeatResponse().error = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        m.HeartbeatResponse(error=1)  # type: ignore[call-arg]


def test_the_module_has_no_message_that_has_no_table() -> None:
    with pytest.raises(AttributeError, match="no message 'VoteRequest'"):
        _ = m.VoteRequest  # type: ignore[attr-defined]


# --- The examples of the protocol's documentation ---


def example(title: str) -> bytes:
    """The bytes of the example under this title in wire/README.md: hex at the start of lines, prose behind it."""
    text = Path(m.__file__).with_name("README.md").read_text()
    block = re.search(rf"{re.escape(title)}.*?```hex\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return bytes.fromhex("".join(line.split("  ")[0] for line in block[1].splitlines()))


def test_the_readmes_request_is_the_produce_request_that_it_says() -> None:
    frame = example("Example: a request")
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, position = m.decode_from(m.RequestHeader, 2, frame, 4)
    request, end = m.decode_from(m.ProduceRequest, header.request_api_version, frame, position)
    assert (header.request_api_key, header.correlation_id, header.client_id, end) == (0, 5, "land", len(frame))
    assert request.topic_data[0].name == "castle"
    assert request.topic_data[0].partition_data[0].records == example("Example: a batch")


def test_the_readmes_batch_has_the_checksum_and_the_record_that_it_says() -> None:
    batch = example("Example: a batch")
    base_offset, length, epoch, magic, crc = struct.unpack_from(">qiibI", batch)
    assert (base_offset, length, epoch, magic) == (0, len(batch) - 12, -1, 2)
    assert crc == crc32c.crc32c(batch[21:])
    assert batch[61:] == bytes.fromhex("10 00 00 00 01 04 4b2e 00")


def test_threads_that_use_a_message_first_at_once_get_one_class(monkeypatch):
    name, right, asked = "DescribeUserScramCredentialsResponse", codegen.make_class, []
    monkeypatch.delitem(m._classes, name, raising=False)
    monkeypatch.delitem(vars(m), name, raising=False)

    def make_class(schema):
        asked.append(schema.name)
        threading.Event().wait(0.05)  # the others get that far meanwhile
        return right(schema)

    monkeypatch.setattr(codegen, "make_class", make_class)
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(m.message_class, [name] * 4))
    assert (asked, len(found)) == ([name] * 4, 1)  # each has made it, and all have the same
