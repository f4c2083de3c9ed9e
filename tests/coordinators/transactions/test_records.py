"""Records of `__transaction_state` in bytes, and what they change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinators.transactions.records import decode_record, encode_record
from barnabas.coordinators.transactions.state import (
    NO_TIME,
    PREPARED,
    Producer,
    Recorded,
    Status,
    TransactionalIds,
    TransactionRecord,
    replay,
)
from barnabas.wire import messages as m
from barnabas.wire.topics import TopicPartition
from barnabas.wire.versioned_records import MalformedRecord

A0, B0, A1 = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)
EMPTY = Recorded(5, 0, 60_000, Status.EMPTY, {}, 0xAB, NO_TIME)
ONGOING = EMPTY._replace(status=Status.ONGOING, partitions={A0: None}, start_ms=0xAB)


@pytest.mark.parametrize(
    ("recorded", "value"),
    [
        (EMPTY, "0000 0000000000000005 0000 0000ea60 00 ffffffff 00000000000000ab ffffffffffffffff"),
        (
            ONGOING,
            "0000 0000000000000005 0000 0000ea60 01 00000001 0001 61 00000001 00000000"
            " 00000000000000ab 00000000000000ab",
        ),
        (
            ONGOING._replace(status=Status.COMPLETE_ABORT, partitions={}),
            "0000 0000000000000005 0000 0000ea60 05 00000000 00000000000000ab 00000000000000ab",
        ),
        (None, None),
    ],
)
def test_a_record_has_the_bytes_that_kafka_writes(recorded, value):
    record = TransactionRecord("id", recorded)
    encoded = encode_record(record)
    assert encoded[0] == bytes.fromhex("0000 0002 6964")
    assert encoded[1] == (None if value is None else bytes.fromhex(value))
    assert decode_record(*encoded) == record


partitions = st.dictionaries(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 50)), st.none())


@given(st.text(max_size=20), partitions, st.sampled_from([each for each in Status if each is not Status.EMPTY]))
def test_what_is_written_is_read(name, partitions, status):
    record = TransactionRecord(name, Recorded(1 << 40, 32767, 1, status, partitions, 2, 3))
    assert decode_record(*encode_record(record)) == record


def test_partitions_are_grouped_by_topic():
    _, value = encode_record(TransactionRecord("id", ONGOING._replace(partitions={A0: None, B0: None, A1: None})))
    assert value is not None
    topics = m.decode(m.TransactionLogValue, 0, value, 2).transaction_partitions
    assert [(each.topic, list(each.partition_ids)) for each in topics] == [("a", [0, 1]), ("b", [0])]


def test_the_value_of_a_broker_with_a_newer_transaction_version_is_read():
    partitions = [m.TransactionLogValue.PartitionsSchema(topic="a", partition_ids=[0])]
    stored = m.TransactionLogValue(
        producer_id=5, previous_producer_id=4, next_producer_id=6, producer_epoch=1, transaction_timeout_ms=9,
        transaction_status=2, transaction_partitions=partitions, transaction_last_update_timestamp_ms=7,
        transaction_start_timestamp_ms=8, client_transaction_version=2,
    )  # fmt: skip
    key, _ = encode_record(TransactionRecord("id", None))
    decoded = decode_record(key, b"\x00\x01" + m.encode(stored, 1))
    assert decoded == TransactionRecord("id", Recorded(5, 1, 9, Status.PREPARE_COMMIT, {A0: None}, 7, 8))


def test_a_record_of_another_kind_is_none_of_ours():
    assert decode_record(b"\x00\x01" + b"\x00\x02id", b"") is None


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, b"", "without key"),
        (b"\x00", b"", "too short for a version"),
        (b"\x00\x00\x00\x05id", b"", "key"),
        (b"\x00\x00\x00\x02id", b"", "too short for a version"),
        (b"\x00\x00\x00\x02id", b"\x00\x02", "no version 2"),
        (b"\x00\x00\x00\x02id", b"\x00\x00\x00", "key"),
        (b"\x00\x00\x00\x02id", b"\x00\x00" + bytes(14) + b"\x09" + bytes(20), "no transaction state 9"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(key, value, why):
    with pytest.raises(MalformedRecord, match=why):
        decode_record(key, value)


def test_an_id_that_is_too_long_for_a_record_is_refused():
    encode_record(TransactionRecord("ä" * 16_383, EMPTY))
    with pytest.raises(ValueError, match="too long"):
        encode_record(TransactionRecord("ä" * 16_384, EMPTY))


# -- replay


def test_the_last_record_of_an_id_counts():
    ids = TransactionalIds()
    replay(ids, TransactionRecord("id", EMPTY), 3)
    known = ids.by_name["id"]
    replay(ids, TransactionRecord("id", ONGOING), 5)
    assert ids.by_name["id"] is known
    assert (known.recorded, known.offset, known.producer) == (ONGOING, 5, Producer(5, 0))
    replay(ids, TransactionRecord("id", None), 6)
    assert (ids.by_name, ids.forgotten_offset) == ({}, 6)


@pytest.mark.parametrize("status", PREPARED)
def test_a_decision_owes_markers_until_the_transaction_is_complete(status):
    ids, decided = TransactionalIds(), ONGOING._replace(status=status)
    replay(ids, TransactionRecord("id", decided), 3)
    assert list(ids.by_name["id"].unmarked) == [A0]
    assert list(ids.decided) == ["id"]
    ids.by_name["id"].unmarked.clear()
    assert ids.by_name["id"].recorded.partitions == {A0: None}, "the recorded part stays as it is"
    replay(ids, TransactionRecord("id", decided._replace(status=Status.COMPLETE_COMMIT, partitions={})), 4)
    assert ids.decided == {}


def test_decisions_are_listed_in_the_order_of_their_records():
    ids = TransactionalIds()
    for offset, name in enumerate(("x", "y", "x")):
        replay(ids, TransactionRecord(name, ONGOING._replace(status=Status.PREPARE_ABORT)), offset)
    assert list(ids.decided) == ["y", "x"]
