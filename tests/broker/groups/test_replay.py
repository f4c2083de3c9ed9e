"""Replay: what the log says is what is known."""

import pytest

from barnabas.broker.groups.loading import finish_loading, replay_batches
from barnabas.broker.groups.records import Commit, GroupMetadata, GroupMetadataRecord, OffsetRecord, encode_record
from barnabas.broker.groups.replay import Groups, replay, replay_marker
from barnabas.wire.records import ABORT, COMMIT, TRANSACTIONAL, build_batch, build_control_batch
from barnabas.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
PRODUCER = 42


@pytest.fixture
def groups():
    return Groups(limits=None)


def offset_record(offset, group_id="g"):
    return OffsetRecord(group_id, T0, None if offset is None else Commit(offset, -1, "", 0))


def known(groups, group_id="g"):
    stored = groups.by_id[group_id].recorded.offsets.get(T0)
    return stored and stored.commit.offset


def batch(*records, base_offset=0, **header):
    return bytes(
        build_batch(
            [encode_record(record) for record in records], timestamp_ms=0, base_offset=base_offset, **header
        ).data
    )


def marker(kind, base_offset):
    header = {"coordinator_epoch": 0, "producer_id": PRODUCER, "producer_epoch": 0, "timestamp_ms": 0}
    return bytes(build_control_batch(kind, base_offset=base_offset, **header).data)


def test_the_last_record_about_an_offset_counts(groups):
    for offset, record in enumerate([offset_record(5), offset_record(6)]):
        replay(groups, record, offset)
    assert known(groups) == 6


def test_a_tombstone_takes_an_offset_away(groups):
    for offset, record in enumerate([offset_record(5), offset_record(None)]):
        replay(groups, record, offset)
    assert known(groups) is None


def test_a_group_that_the_log_forgot_is_not_there_after_loading(groups):
    records = [
        GroupMetadataRecord("g", GroupMetadata(generation=3)),
        offset_record(5, "g"),
        offset_record(7, "other"),
        offset_record(None, "g"),
        GroupMetadataRecord("g", None),
    ]
    assert replay_batches(groups, batch(*records)) == 5
    finish_loading(groups)
    assert list(groups.by_id) == ["other"]


def test_offsets_of_a_transaction_count_when_it_is_committed(groups):
    replay_batches(groups, batch(offset_record(5), producer_id=PRODUCER, producer_epoch=0, attributes=TRANSACTIONAL))
    assert known(groups) is None
    replay_batches(groups, marker(COMMIT, 1))
    assert known(groups) == 5


def test_offsets_of_an_aborted_transaction_never_happened(groups):
    replay_batches(groups, batch(offset_record(5), producer_id=PRODUCER, producer_epoch=0, attributes=TRANSACTIONAL))
    assert replay_batches(groups, marker(ABORT, 1)) == 2
    replay_batches(groups, marker(COMMIT, 2))
    assert known(groups) is None


def test_an_offset_that_was_committed_after_that_of_the_transaction_stays(groups):
    replay(groups, offset_record(5), 0, PRODUCER)
    replay(groups, offset_record(6), 1)
    replay_marker(groups, PRODUCER, committed=True)
    assert known(groups) == 6


def test_idempotent_batches_are_not_transactions(groups):
    replay_batches(groups, batch(offset_record(5), producer_id=PRODUCER, producer_epoch=0, base_sequence=0))
    assert known(groups) == 5


def test_a_cut_off_batch_is_left_for_the_next_slice(groups):
    data = batch(offset_record(5)) + batch(offset_record(6), base_offset=1)
    assert replay_batches(groups, data[:-1]) == 1
    assert known(groups) == 5
    assert replay_batches(groups, data[:9]) is None


def test_kinds_of_records_that_are_not_served_are_passed_over(groups):
    data = bytes(build_batch([(b"\x00\x05\x00\x01g", b"?"), encode_record(offset_record(5))], timestamp_ms=0).data)
    assert replay_batches(groups, data) == 2
    assert known(groups) == 5
