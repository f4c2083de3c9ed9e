"""Records of `__consumer_offsets`, as Kafka writes them and as it ever wrote them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinators.groups.records import (
    NO_EXPIRY,
    Commit,
    GroupMetadata,
    GroupMetadataRecord,
    MalformedRecord,
    OffsetRecord,
    RecordedMember,
    decode_record,
    encode_record,
)
from barnabas.wire import messages as m
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

KEY = OffsetRecord("g", TopicPartition("t", 3), None)
names = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
members = st.builds(
    RecordedMember,
    member_id=names,
    group_instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout=int32,
    session_timeout=int32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
metadata = st.builds(
    GroupMetadata,
    protocol_type=names,
    generation=int32,
    protocol=st.none() | names,
    leader=st.none() | names,
    current_state_timestamp=int64,
    members=st.lists(members, max_size=3),
)
partitions = st.builds(TopicPartition, names, int32)
lasting = st.builds(Commit, int64, int32, names, int64, st.just(NO_EXPIRY), st.just(ZERO_TOPIC_ID))
expiring = st.builds(Commit, int64, st.just(-1), names, int64, st.integers(0, 2**62), st.just(ZERO_TOPIC_ID))


@given(
    st.builds(OffsetRecord, names, partitions, st.none() | lasting | expiring)
    | st.builds(GroupMetadataRecord, names, st.none() | metadata)
)
def test_what_is_written_is_read_back(record):
    assert decode_record(*encode_record(record)) == record


@given(st.builds(OffsetRecord, names, partitions, lasting), st.data())
def test_a_damaged_commit_is_read_as_its_schema_has_it_or_not_at_all(record, data):
    """Usual commits are decoded by hand."""
    damaged = []
    for part in encode_record(record):
        changed = bytearray(part)
        for place in data.draw(st.lists(st.integers(0, len(part) - 1), max_size=2)):
            changed[place] = data.draw(st.sampled_from([0, 1, 2, 3, 127, 255]))
        damaged.append(bytes(changed[: len(changed) - data.draw(st.sampled_from([0, 0, 0, 1, 8]))]))
    key, value = damaged
    try:
        decoded = decode_record(key, value)
    except MalformedRecord:
        return
    if isinstance(decoded, OffsetRecord) and decoded.commit is not None:
        version, key_version = value[1], key[1]
        read_key, read = (
            m.decode(m.OffsetCommitKey, key_version, key, 2),
            m.decode(m.OffsetCommitValue, version, value, 2),
        )
        assert (decoded.group_id, *decoded.topic_partition) == (read_key.group, read_key.topic, read_key.partition)
        assert decoded.commit == Commit(
            read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp
        )


def test_an_offset_is_written_as_kafka_writes_it():
    key, value = encode_record(KEY._replace(commit=Commit(5, 7, "m", 9)))
    assert key.hex() == "000100016700017400000003"
    assert value.hex() == "000300000000000000050000000700016d0000000000000009"


def test_an_offset_with_an_expiry_time_is_written_in_the_version_that_has_one():
    _, value = encode_record(KEY._replace(commit=Commit(5, -1, "m", 9, 11)))
    assert value.hex() == "0001000000000000000500016d0000000000000009000000000000000b"


def test_a_generation_is_written_as_kafka_writes_it():
    member = RecordedMember(
        member_id="a",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=2,
        session_timeout=3,
        subscription=b"s",
        assignment=b"x",
    )
    generation = GroupMetadata(
        protocol_type="p", generation=1, protocol="r", leader="a", current_state_timestamp=4, members=[member]
    )
    key, value = encode_record(GroupMetadataRecord("g", generation))
    assert key.hex() == "0002000167"
    assert value.hex() == (
        "0003" "000170" "00000001" "000172" "000161" "0000000000000004" "00000001"
        "000161" "ffff" "000163" "00022f68" "00000002" "00000003" "0000000173" "0000000178"
    )  # fmt: skip


@pytest.mark.parametrize("key_version", [0, 1])
@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(key_version, version):
    key = m.OffsetCommitKey(group="g", topic="t", partition=3)
    value = m.OffsetCommitValue(offset=5, leader_epoch=7, metadata="m", commit_timestamp=9, expire_timestamp=11)
    record = decode_record(*(_versioned(key, key_version), _versioned(value, version)))
    epoch = 7 if version >= 3 else -1
    expiry = 11 if version == 1 else -1
    assert record == KEY._replace(commit=Commit(5, epoch, "m", 9, expiry))


@pytest.mark.parametrize("version", range(5))
def test_generations_of_every_version_are_read(version):
    member = RecordedMember(member_id="a", group_instance_id="i", rebalance_timeout=2, session_timeout=3)
    value = GroupMetadata(generation=1, current_state_timestamp=4, members=[member])
    record = decode_record(b"\x00\x02\x00\x01g", _versioned(value, version))
    (read,) = record.metadata.members
    assert read.group_instance_id == ("i" if version >= 3 else None)
    assert read.rebalance_timeout == (2 if version >= 1 else 3)
    assert record.metadata.current_state_timestamp == (4 if version >= 2 else -1)


@pytest.mark.parametrize("kind", range(3, 9))
def test_records_of_the_newer_protocol_are_passed_over(kind):
    assert decode_record(kind.to_bytes(2, "big") + b"\x00\x01g", b"?") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (b"\x00\x01\x00\x09g", b""),
        (b"\x00\x02\x00\x01g", b""),
        (b"\x00\x02\x00\x01g", b"\x00\x05"),
        (b"\x00\x02\x00\x01g", b"\xff\xff"),
        (b"\x00\x02\x00\x01g", b"\x00\x03\x00"),
    ],
)
def test_what_cannot_be_read_is_malformed(key, value):
    with pytest.raises(MalformedRecord):
        decode_record(key, value)


def _versioned(message, version):
    return version.to_bytes(2, "big") + m.encode(message, version)
