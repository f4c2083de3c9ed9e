"""Replay: what the log says is what is known."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinators.groups.loader import GroupLoader
from barnabas.coordinators.groups.records import Commit, GroupMetadata, GroupMetadataRecord, OffsetRecord, encode_record
from barnabas.coordinators.groups.replay import Groups, replay, replay_marker
from barnabas.coordinators.runtime.loading import Loading
from barnabas.wire.records import ABORT, COMMIT, TRANSACTIONAL, CorruptRecords, build_batch, build_control_batch
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


def load(groups, *slices):
    """Load these slices of a log; what each of them says of where to go on."""
    loading = Loading(GroupLoader(groups))
    ends = [loading.load_batches(data) for data in slices]
    loading.finish()
    return ends


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
    assert load(groups, batch(*records)) == [5]
    assert list(groups.by_id) == ["other"]


def test_offsets_of_a_transaction_count_when_it_is_committed(groups):
    opened = batch(offset_record(5), producer_id=PRODUCER, producer_epoch=0, attributes=TRANSACTIONAL)
    load(groups, opened)
    assert known(groups) is None
    load(groups, opened, marker(COMMIT, 1))
    assert known(groups) == 5


def test_offsets_of_an_aborted_transaction_never_happened(groups):
    opened = batch(offset_record(5), producer_id=PRODUCER, producer_epoch=0, attributes=TRANSACTIONAL)
    assert load(groups, opened, marker(ABORT, 1), marker(COMMIT, 2)) == [1, 2, 3]
    assert "g" not in groups.by_id


def test_an_offset_that_was_committed_after_that_of_the_transaction_stays(groups):
    replay(groups, offset_record(5), 0, PRODUCER)
    replay(groups, offset_record(6), 1)
    replay_marker(groups, PRODUCER, 2, committed=True)
    assert known(groups) == 6


def test_idempotent_batches_are_not_transactions(groups):
    load(groups, batch(offset_record(5), producer_id=PRODUCER, producer_epoch=0, base_sequence=0))
    assert known(groups) == 5


def test_a_cut_off_batch_is_left_for_the_next_slice(groups):
    data = batch(offset_record(5)) + batch(offset_record(6), base_offset=1)
    assert load(groups, data[:-1]) == [1]
    assert known(groups) == 5
    assert load(groups, data[:9]) == [None]


def test_kinds_of_records_that_are_not_served_are_passed_over(groups):
    data = bytes(build_batch([(b"\x00\x05\x00\x01g", b"?"), encode_record(offset_record(5))], timestamp_ms=0).data)
    assert load(groups, data) == [2]
    assert known(groups) == 5


def test_a_damaged_batch_cannot_be_loaded(groups):
    data = bytearray(batch(offset_record(5)))
    data[-1] ^= 1
    with pytest.raises(CorruptRecords):
        load(groups, bytes(data))


events = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "forget", "metadata", "end", "transactional", "committed", "aborted"]),
        st.sampled_from("gh"),
        st.integers(0, 2),
    ),
    max_size=30,
)


@given(events, st.lists(st.integers(0, 29), max_size=3))
def test_loading_leaves_what_replaying_every_record_leaves(events, cuts):
    """Whatever the slices; all but the offset of a tombstone that a later commit hides."""
    one_by_one, loaded = Groups(limits=None), Groups(limits=None)
    log = []
    for offset, (kind, group_id, partition) in enumerate(events):
        record = OffsetRecord(group_id, TopicPartition("t", partition), Commit(offset, 3, "m\u00e4", 1000 + offset))
        match kind:
            case "commit" | "transactional":
                pass
            case "forget":
                record = record._replace(commit=None)
            case "metadata":
                record = GroupMetadataRecord(group_id, GroupMetadata(generation=offset))
            case "end":
                record = GroupMetadataRecord(group_id, None)
        if kind in ("committed", "aborted"):
            log.append(marker(COMMIT if kind == "committed" else ABORT, offset))
            replay_marker(one_by_one, PRODUCER, offset, committed=kind == "committed")
        elif kind == "transactional":
            header = {"producer_id": PRODUCER, "producer_epoch": 0, "attributes": TRANSACTIONAL}
            log.append(batch(record, base_offset=offset, **header))
            replay(one_by_one, record, offset, PRODUCER)
        else:
            log.append(batch(record, base_offset=offset))
            replay(one_by_one, record, offset)
    places = [0, *sorted(cuts), len(log)]
    load(loaded, *(b"".join(log[start:end]) for start, end in pairwise(places)))
    expected = {group_id: group for group_id, group in one_by_one.by_id.items() if not group.recorded.is_blank}
    assert loaded.by_id.keys() == expected.keys()
    assert loaded.open == one_by_one.open
    for group_id, group in expected.items():
        found, meant = loaded.by_id[group_id].recorded, group.recorded
        assert (found.offsets, found.pending) == (meant.offsets, meant.pending)
        assert found.metadata_offset == meant.metadata_offset
        assert (found.metadata and found.metadata.generation) == (meant.metadata and meant.metadata.generation)
