"""The partition log while it runs: append, read, truncate, forget."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.disk import StorageError
from barnabas.storage.log import Appended
from barnabas.storage.producers import decode_snapshot
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.records import ABORT, COMMIT, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, read_batch_header
from barnabas.world.pacing import complete_inline

EVERYTHING = 1 << 30


# -- append as leader


def test_batches_follow_each_other_and_carry_offset_and_epoch(world, offsets_of):
    log = world.open()
    assert world.append(log, 3, epoch=4) == Appended(0, 2, -1, 0, duplicate=False)
    assert world.append(log, 2, epoch=4) == Appended(3, 4, -1, 0, duplicate=False)
    data = world.log_bytes(log)
    assert offsets_of(data) == [0, 1, 2, 3, 4]
    assert read_batch_header(data).partition_leader_epoch == 4
    assert log.epochs.entries == [(4, 0)]


def test_a_leader_of_an_older_epoch_never_appends(world):
    log = world.open()
    world.append(log, epoch=4)
    log.begin_leader_epoch(6)
    with pytest.raises(InvariantBroken):
        world.append(log, epoch=5)
    assert (log.log_end_offset, log.epochs.entries) == (1, [(4, 0), (6, 1)])


def test_log_append_time_is_reported(world):
    log = world.open()
    appended = world.append(log, attributes=LOG_APPEND_TIME, timestamp=777)
    assert appended.append_time_ms == 777


def test_a_repeated_batch_is_answered_with_its_original(world):
    log = world.open()
    world.append(log, 2)
    first = world.append(log, 3, producer_id=7, producer_epoch=0, base_sequence=0, timestamp=55)
    again = world.append(log, 3, producer_id=7, producer_epoch=0, base_sequence=0, timestamp=55)
    assert (again.base_offset, again.last_offset, again.duplicate) == (first.base_offset, first.last_offset, True)
    assert log.log_end_offset == 5


def test_a_gap_in_the_sequence_is_refused_and_nothing_is_written(world):
    log = world.open()
    world.append(log, 1, producer_id=7, producer_epoch=0, base_sequence=0)
    refused = world.append(log, 1, producer_id=7, producer_epoch=0, base_sequence=5)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1


def test_an_append_that_fails_leaves_log_and_file_as_they_were(world):
    log = world.open()
    world.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    before = world.log_bytes(log)
    world.disk.fail_next("write", "ENOSPC", path_part=".log")
    with pytest.raises(StorageError):
        world.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=2, epoch=1)
    assert (log.log_end_offset, log.size_bytes, world.log_bytes(log)) == (2, len(before), before)
    assert log.epochs.entries == [(0, 0)]
    assert world.append(log, 1, producer_id=7, producer_epoch=0, base_sequence=2).base_offset == 2


@pytest.mark.parametrize("operation", ["open", "write"])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_roll_that_fails_leaves_the_log_usable(new_world, operation, suffix, offsets_of):
    world = new_world(segment_bytes=300)
    log = world.open()
    for _ in range(2):
        world.append(log, 2)
    world.disk.fail_next(operation, path_part=suffix)
    with pytest.raises(StorageError):
        world.append(log, 2, size=100)
    assert log.log_end_offset == 4
    world.append(log, 2, size=100)
    assert offsets_of(world.log_bytes(log)) == [0, 1, 2, 3, 4, 5]


def test_the_flush_after_a_roll_writes_the_producers_as_they_were_at_the_roll(world):
    log = world.open()
    world.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll(world.now_ms)
    world.append(log, 3, producer_id=7, producer_epoch=0, base_sequence=2)
    # Not in the step of the append that rolls: there may be 100,000 producers.
    assert world.names(".snapshot") == []
    world.flush(log)
    (producer,) = decode_snapshot(world.content("00000000000000000002.snapshot"))
    assert (producer.producer_id, producer.last_sequence, producer.last_offset) == (7, 1, 1)


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
def test_a_snapshot_that_cannot_be_written_is_written_by_the_next_flush(world, operation):
    log = world.open()
    world.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll(world.now_ms)
    world.disk.fail_next(operation, path_part=".snapshot")
    with pytest.raises(StorageError):
        world.flush(log)
    assert log.recovery_point == 0
    world.flush(log)
    assert log.recovery_point == 2
    (producer,) = decode_snapshot(world.content("00000000000000000002.snapshot"))
    assert producer.last_sequence == 1


def test_producers_are_known_after_a_crash_between_a_roll_and_its_flush(world):
    log = world.open()
    world.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll(world.now_ms)
    world.append(log, 1, producer_id=8, producer_epoch=0, base_sequence=0)
    log = world.after_process_crash().open()
    assert sorted(log.producers.ids()) == [7, 8]


# -- append as follower


def fetched(world, *counts: int, start: int = 0, epoch: int = 0) -> bytes:
    """What a leader sends: batches of so many records, one behind the other."""
    data = b""
    for count in counts:
        data += world.batch(count, base_offset=start, leader_epoch=epoch).data
        start += count
    return data


def test_a_follower_takes_over_batches_as_they_are(world):
    log = world.open()
    data = fetched(world, 2, 3, epoch=5) + fetched(world, 1, start=9, epoch=6)
    assert log.append_as_follower(memoryview(data), world.now_ms) == Appended(0, 9, -1, 0, duplicate=False)
    assert world.log_bytes(log) == data
    assert log.log_end_offset == 10
    assert log.epochs.entries == [(5, 0), (6, 9)]


def test_a_follower_leaves_out_a_partial_batch(world):
    log = world.open()
    data = fetched(world, 2, 3)
    assert log.append_as_follower(memoryview(data)[:-1], world.now_ms).last_offset == 1
    assert log.append_as_follower(memoryview(fetched(world, 3, start=2))[:20], world.now_ms).last_offset == 1
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda data: data[:70] + b"\xff" + data[71:], ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data + struct.pack(">qi4xb", 9, 3, 2) + bytes(50), ErrorCode.CORRUPT_MESSAGE),
        (lambda data: data + data, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
    ids=["checksum", "nonsense", "offsets do not rise"],
)
def test_a_follower_refuses_what_a_leader_cannot_have_sent(world, spoil, code):
    log = world.open()
    assert log.append_as_follower(memoryview(spoil(fetched(world, 2, 3))), world.now_ms) is code
    assert log.log_end_offset == 0


def test_a_follower_writes_nothing_of_a_marker_that_says_nothing(world):
    log = world.open()
    odd = world.batch(base_offset=2, producer_id=7, producer_epoch=0, attributes=CONTROL | TRANSACTIONAL)
    sent = fetched(world, 2) + odd.data
    assert log.append_as_follower(memoryview(sent), world.now_ms) is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, world.log_bytes(log)) == (0, b"")


def test_a_follower_rolls_within_what_it_received(new_world, offsets_of):
    size = len(new_world().batch().data)
    world = new_world(segment_bytes=3 * size)
    log = world.open()
    log.append_as_follower(memoryview(fetched(world, *[1] * 10)), world.now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    assert offsets_of(world.log_bytes(log)) == list(range(10))


def test_a_follower_survives_a_jump_of_offsets_beyond_an_index_entry(world, read_of, offsets_of):
    log = world.open()
    far = 2**31 + 5
    for start in (0, far):
        log.append_as_follower(memoryview(fetched(world, 1, start=start)), world.now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert offsets_of(read_of(log.read(1, max_bytes=EVERYTHING, end_offset=far + 1))) == [far]


def message_v1(offset: int, timestamp: int) -> bytes:
    body = struct.pack(">bbqii", 1, 0, timestamp, -1, 3) + b"old"
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_messages_of_older_formats_are_carried_unchanged(world, read_of):
    log = world.open()
    data = b"".join(message_v1(offset, 1000 + offset) for offset in range(20))
    log.append_as_follower(memoryview(data), world.now_ms)
    assert read_of(log.read(0, max_bytes=EVERYTHING, end_offset=20)) == data
    assert read_of(log.read(19, max_bytes=EVERYTHING, end_offset=20)) == message_v1(19, 1019)
    assert complete_inline(log.offset_for_timestamp(1007, 20))[:2] == (1007, 7)
    log = world.restarted(log)
    assert log.log_end_offset == 20
    assert log.epochs.entries == []


def test_messages_of_older_formats_make_the_epochs_before_them_unknown(world):
    log = world.open()
    world.append(log, epoch=3)
    log.append_as_follower(memoryview(message_v1(1, 5)), world.now_ms)
    assert log.epochs.entries == []


# -- read


def test_offsets_outside_the_log_are_refused(world):
    log = world.open()
    for _ in range(4):
        world.append(log)
    log.raise_log_start(2)
    assert log.read(1, max_bytes=100, end_offset=4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(5, max_bytes=100, end_offset=4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(4, max_bytes=100, end_offset=4).slice is None


def test_nothing_is_read_at_or_behind_the_end_that_a_reader_may_see(world):
    log = world.open()
    for _ in range(4):
        world.append(log)
    assert log.read(2, max_bytes=100, end_offset=2).slice is None
    assert log.read(3, max_bytes=100, end_offset=2).slice is None


def test_an_offset_within_a_batch_begins_with_that_batch(world, read_of, offsets_of):
    log = world.open()
    for _ in range(3):
        world.append(log, 4)
    assert offsets_of(read_of(log.read(6, max_bytes=EVERYTHING, end_offset=8))) == [4, 5, 6, 7]


def test_a_batch_that_reaches_the_end_offset_is_not_sent(world, read_of, offsets_of):
    log = world.open()
    for _ in range(3):
        world.append(log, 4)
    assert offsets_of(read_of(log.read(0, max_bytes=EVERYTHING, end_offset=6))) == [0, 1, 2, 3]
    assert log.read(4, max_bytes=EVERYTHING, end_offset=6).slice is None


def test_the_first_batch_comes_whole_or_not_at_all(world, read_of, offsets_of):
    log = world.open()
    for _ in range(3):
        world.append(log, 2, size=300)
    assert offsets_of(read_of(log.read(2, max_bytes=10, end_offset=6))) == [2, 3]
    assert log.read(2, max_bytes=10, end_offset=6, at_least_one=False).slice is None
    assert offsets_of(read_of(log.read(2, max_bytes=700, end_offset=6, at_least_one=False))) == [2, 3]


def test_a_read_stays_in_its_segment_and_says_which(new_world, read_of, offsets_of):
    world = new_world(segment_bytes=200)
    log = world.open()
    for _ in range(6):
        world.append(log)
    older = log.read(0, max_bytes=EVERYTHING, end_offset=6)
    assert older.segment_base_offset == 0 < log.segments.active.base_offset
    assert offsets_of(read_of(older)) == [0, 1]


def test_a_read_steps_over_a_gap_at_the_end_of_a_segment(new_world, read_of, offsets_of):
    world = new_world(compacted=True)
    log = world.open()
    log.append_as_follower(memoryview(fetched(world, 2)), world.now_ms)
    world.put("00000000000000000010.log", fetched(world, 1, start=12))
    world.recovery_point = 13
    log = world.after_process_crash().open()
    assert offsets_of(read_of(log.read(5, max_bytes=EVERYTHING, end_offset=13))) == [12]
    assert offsets_of(read_of(log.read(11, max_bytes=EVERYTHING, end_offset=13))) == [12]


def test_a_slice_outlives_its_segment(new_world, offsets_of):
    world = new_world(segment_bytes=200, retention_bytes=0)
    log = world.open()
    for _ in range(6):
        world.append(log)
    log.roll(world.now_ms)
    world.flush(log)
    read = log.read(0, max_bytes=EVERYTHING, end_offset=6)
    assert log.delete_old_segments(world.now_ms, 6) == 3
    log.segments.remove_deleted(world.now_ms + 60_000)
    assert offsets_of(read.slice.read()) == [0, 1]
    read.slice.release()


def test_a_damaged_file_is_an_error_of_the_reader(new_world):
    world = new_world(index_interval_bytes=10_000)
    log = world.open()
    for _ in range(3):
        world.append(log)
    log.segments.active.file.write(0, bytes(30))
    assert log.read(2, max_bytes=10, end_offset=3) is ErrorCode.CORRUPT_MESSAGE


sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1, max_size=30)


@settings(max_examples=60)
@given(sizes, st.sampled_from([300, 1000, 1 << 20]), st.data())
def test_any_read_gives_the_batches_from_its_offset_on(new_world, read_of, batches, segment_bytes, data):
    world = new_world(segment_bytes=segment_bytes)
    log = world.open()
    for count, size in batches:
        world.append(log, count, size=size)
    rows = batches_of(world, log)
    for _ in range(20):
        offset = data.draw(st.integers(0, log.log_end_offset - 1))
        end_offset = data.draw(st.integers(0, log.log_end_offset + 1))
        max_bytes = data.draw(st.sampled_from([0, 100, 250, EVERYTHING]))
        read = log.read(offset, max_bytes=max_bytes, end_offset=end_offset)
        assert read_of(read) == expected_read(rows, offset, end_offset, max_bytes)


def batches_of(world, log) -> list[tuple[int, int, int, bytes]]:
    """(segment, first offset, last offset, bytes) of every batch."""
    rows = []
    for segment in log.segments:
        data = world.content(f"{segment.base_offset:020d}.log")
        while data:
            header = read_batch_header(data)
            rows.append((segment.base_offset, header.base_offset, header.last_offset, data[: header.size_bytes]))
            data = data[header.size_bytes :]
    return rows


def expected_read(rows, offset, end_offset, max_bytes) -> bytes:
    if offset >= end_offset:
        return b""
    first = next(row for row in rows if row[2] >= offset)
    visible = [row[3] for row in rows if row[0] == first[0] and row[1] >= first[1] and row[2] < end_offset]
    whole = b"".join(visible)
    return whole[: max(max_bytes, len(visible[0]))] if visible else b""


# -- transactions


def transactional(world, log, producer_id: int, sequence: int):
    return world.append(
        log, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, attributes=TRANSACTIONAL
    )


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(world):
    log = world.open()
    world.append(log)
    transactional(world, log, 7, 0)
    world.append(log)
    assert (log.first_unstable_offset(3), log.last_stable_offset(3), log.last_stable_offset(0)) == (1, 1, 0)
    world.append_marker(log, COMMIT)
    assert log.last_stable_offset(3) == 1
    assert log.last_stable_offset(4) == 4


def test_the_last_stable_offset_of_a_log_that_is_being_cut_asks_no_producer(world):
    log = world.open()
    transactional(world, log, 7, 0)
    assert log.last_stable_offset(1) == 0
    log.is_being_cut = True  # a thread loads the producers again
    assert log.last_stable_offset(1) == 1


def test_aborted_transactions_are_found_across_segments(new_world):
    world = new_world(segment_bytes=250)
    log = world.open()
    for producer_id in (7, 8):
        transactional(world, log, producer_id, 0)
    world.append(log)
    world.append_marker(log, ABORT, 7)
    world.append_marker(log, COMMIT, 8)
    transactional(world, log, 8, 1)
    world.append_marker(log, ABORT, 8)
    assert len(log.segments) > 2
    everything = [(7, 0), (8, 5)]
    assert world.aborted(log, 0, 7) == everything
    assert world.aborted(log, 4, 7) == [(8, 5)]
    assert world.aborted(log, 0, 4) == [(7, 0)]
    assert world.aborted(world.restarted(log), 0, 7) == everything


def test_a_coordinator_of_an_older_epoch_is_fenced(world):
    log = world.open()
    transactional(world, log, 7, 0)
    world.append_marker(log, COMMIT, coordinator_epoch=5)
    assert world.append_marker(log, COMMIT, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


# -- truncate


def test_truncation_cuts_at_a_batch(new_world, offsets_of):
    world = new_world(segment_bytes=250)
    log = world.open()
    for _ in range(8):
        world.append(log, 2)
    assert log.truncate_to(6)
    assert (log.log_end_offset, offsets_of(world.log_bytes(log))) == (6, [0, 1, 2, 3, 4, 5])
    assert not log.truncate_to(6)
    assert world.append(log).base_offset == 6


def test_a_batch_that_holds_the_offset_goes_as_a_whole(world):
    log = world.open()
    for _ in range(3):
        world.append(log, 4)
    assert log.truncate_to(6)
    assert log.log_end_offset == 4


def test_truncation_lowers_what_speaks_of_later_offsets(new_world):
    world = new_world(flush_messages=1)
    log = world.open()
    for epoch in range(6):
        world.append(log, epoch=epoch)
    world.flush(log)
    log.truncate_to(3)
    assert (log.recovery_point, log.acknowledgeable_offset) == (3, 3)
    assert log.epochs.latest_epoch == 2
    world.flush(log)
    assert world.content("leader-epoch-checkpoint") == b"0\n3\n0 0\n1 1\n2 2\n"


def test_truncation_takes_producers_back(new_world):
    world = new_world(segment_bytes=250)
    log = world.open()
    for sequence in range(8):
        world.append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
    log.truncate_to(3)
    assert log.producers.get(7).last_sequence == 2
    assert world.append(log, producer_id=7, producer_epoch=0, base_sequence=3).base_offset == 3
    assert all(name <= "00000000000000000003" for name in world.names(".snapshot"))


def test_truncation_forgets_aborted_transactions(world):
    log = world.open()
    transactional(world, log, 7, 0)
    world.append_marker(log, ABORT)
    log.truncate_to(1)
    assert world.aborted(log, 0, 1) == []
    assert log.last_stable_offset(1) == 0


def test_after_a_truncation_times_are_found_in_what_is_left(world):
    log = world.open()
    for timestamp in (10, 30, 20, 50, 40):
        world.append(log, timestamp=timestamp)
    log.truncate_to(3)
    assert complete_inline(log.offset_of_largest_timestamp())[:2] == (30, 1)
    world.append(log, timestamp=35)
    assert complete_inline(log.offset_of_largest_timestamp())[:2] == (35, 3)


def test_starting_over_leaves_an_empty_log_elsewhere(new_world):
    world = new_world(segment_bytes=150)
    log = world.open()
    for sequence in range(4):
        world.append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, log.size_bytes) == (100, 100, 100, 0)
    assert log.epochs.entries == []
    assert len(log.producers) == 0
    assert world.append(log).base_offset == 100
    assert world.names(".log") == ["00000000000000000100.log"]


def test_truncation_before_the_first_segment_starts_over_there(world):
    log = world.open()
    log.truncate_fully_and_start_at(100)
    world.append(log)
    assert log.truncate_to(40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)


@settings(max_examples=60)
@given(sizes, st.data())
def test_a_truncated_log_goes_on_like_one_that_never_was_longer(new_world, batches, data):
    world, other = new_world(segment_bytes=500), new_world(segment_bytes=500)
    log, shorter = world.open(), other.open()
    for count, size in batches:
        world.append(log, count, size=size)
    bases = [row[1] for row in batches_of(world, log)]
    cut = data.draw(st.sampled_from(bases))
    log.truncate_to(cut)
    for count, size in batches[: bases.index(cut)]:
        other.append(shorter, count, size=size)
    for each_world, each in ((world, log), (other, shorter)):
        each_world.append(each, 2)
        each.close(0)
    assert world.log_bytes(log) == other.log_bytes(shorter)
    log, shorter = world.open(clean=True), other.open(clean=True)
    assert log.log_end_offset == shorter.log_end_offset
    assert complete_inline(log.offset_of_largest_timestamp()) == complete_inline(shorter.offset_of_largest_timestamp())


# -- the beginning of the log


def test_old_segments_are_renamed_and_removed_after_a_delay(new_world):
    world = new_world(segment_bytes=150, retention_ms=1000)
    log = world.open()
    for _ in range(3):
        world.append(log)
        world.now_ms += 600
    world.flush(log)
    assert log.delete_old_segments(world.now_ms, 3) == 2
    assert log.log_start_offset == 2
    assert "00000000000000000000.log.deleted" in world.names()
    assert log.segments.remove_deleted(world.now_ms + 59_999) == 0
    assert log.segments.remove_deleted(world.now_ms + 60_000) > 0
    assert world.names(".deleted") == []


def test_a_log_is_never_without_a_segment(new_world):
    world = new_world(retention_bytes=0)
    log = world.open()
    world.append(log)
    assert log.delete_old_segments(world.now_ms, 1) == 0
    world.flush(log)
    assert log.delete_old_segments(world.now_ms, 1) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1, 1, 0)
    assert world.append(log).base_offset == 1


def test_records_without_timestamps_age_with_their_file(new_world):
    world = new_world(segment_bytes=150, retention_ms=1000)
    log = world.open()
    for _ in range(2):
        world.append(log, timestamp=-1)
    world.flush(log)
    world.disk.set_modified_ms(f"{log.directory}/00000000000000000000.log", world.now_ms - 1001)
    assert log.delete_old_segments(world.now_ms, 2) == 1


def test_raising_the_log_start_lets_whole_segments_go(new_world):
    world = new_world(segment_bytes=250, deletes=False)
    log = world.open()
    for epoch in range(6):
        world.append(log, epoch=epoch)
    log.raise_log_start(3)
    assert log.epochs.entries[0] == (3, 3)
    world.flush(log)
    assert log.delete_old_segments(world.now_ms, 6) == 1
    assert (log.log_start_offset, log.segments[0].base_offset) == (3, 2)
    log.raise_log_start(1)
    assert log.log_start_offset == 3


def test_a_log_cannot_start_behind_its_end(world):
    log = world.open()
    with pytest.raises(InvariantBroken):
        log.raise_log_start(1)


# -- the topic id


def test_the_topic_id_is_kept(world):
    log = world.open()
    assert log.topic_id is None
    log.assign_topic_id(bytes(range(16)))
    assert world.restarted(log).topic_id == bytes(range(16))
