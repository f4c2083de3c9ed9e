"""Compaction of a log: what stays, and what readers see meanwhile."""

import struct
import zlib

import pytest

from barnabas.storage.cleaner import cleanable_part
from barnabas.storage.producers import decode_snapshot
from barnabas.wire.compression import Codec
from barnabas.wire.record_batch import CHECKSUM_START
from barnabas.wire.record_sift import LONG_RECORD_BYTES
from barnabas.wire.records import ABORT, COMMIT, DELETE_HORIZON, TRANSACTIONAL, CorruptRecords
from barnabas.world.pacing import complete_inline
from tests.storage.compacted import DAY, Compacted, fill, join_segments, view
from tests.storage.contents import FIRST_LOG, findings, idempotent
from tests.wire.bombs import header_bomb, memory_below

# -- what stays


def test_a_record_with_millions_of_headers_is_compacted_like_others(compacted):
    for key in (b"\x02a", b"\x02b"):
        compacted.append(header_bomb(1 << 21, key=key))
    compacted.put((b"a", b"newer"))
    compacted.roll()
    with memory_below(6_000_000):
        compacted.compact()
    assert [header.base_offset for header, _ in compacted.batches()] == [1, 2]


def test_a_batch_that_takes_too_much_memory_stays_and_the_others_are_compacted(compacted):
    fill(compacted, 10, 1)
    compacted.put((b"k0", b"early"), (bytes(2 * LONG_RECORD_BYTES), b"v"), (b"gone", b"v"), codec=Codec.ZSTD)
    compacted.put((b"gone", None), (b"k0", b"late"))
    compacted.roll()
    compacted.compact()
    compacted.world.now_ms += 2 * DAY
    compacted.log.first_dirty_offset = 0
    compacted.compact()
    assert compacted.offsets() == [10, 11, 12, 13, 14]
    known = view((record.key, record.value) for record in compacted.records())
    assert known == {b"k0": b"late", bytes(2 * LONG_RECORD_BYTES): b"v"}


def test_of_each_key_the_last_record_stays_and_no_offset_changes(compacted):
    fill(compacted, 40, 3)
    compacted.put((b"k0", b"not sealed yet"))
    compacted.compact()
    assert compacted.offsets() == [37, 38, 39, 40]
    assert all(compacted.written[record.offset] == (record.key, record.value) for record in compacted.records())
    assert (compacted.log.first_dirty_offset, compacted.log.log_end_offset) == (40, 41)


def test_what_is_not_cleaned_is_as_it_was(compacted):
    fill(compacted, 10, 10)
    before = compacted.batches()
    compacted.compact()
    assert compacted.batches() == before


def test_segments_grow_together_and_their_files_go_after_the_delay(compacted):
    fill(compacted, 60, 3)
    assert len(compacted.bases()) > 8
    join_segments(compacted)
    compacted.compact()
    assert compacted.bases() == [0, 60]
    assert compacted.leftovers() == []
    gone = compacted.world.names(".deleted")
    assert len(gone) > 24
    compacted.log.segments.remove_deleted(compacted.world.now_ms + 60_000)
    assert compacted.world.names(".deleted") == []
    assert findings(compacted.world) == []


def test_a_segment_that_is_replaced_twice_is_removed_once(compacted):
    for _ in range(2):
        fill(compacted, 10, 3)
        compacted.compact()
    assert compacted.log.segments.remove_deleted(compacted.world.now_ms + 60_000) > 0
    assert not compacted.log.segments.has_deleted_files


def test_the_next_pass_reads_the_keys_of_what_is_dirty_only(compacted):
    fill(compacted, 30, 30)
    compacted.compact()
    fill(compacted, 2, 2)
    part = cleanable_part(compacted.log, 32, compacted.world.now_ms)
    assert (part.first_dirty_offset, part.end_offset) == (30, 32)
    assert part.clean_bytes > 10 * part.dirty_bytes
    compacted.compact()
    assert compacted.offsets() == list(range(2, 32))


def test_a_map_that_is_full_ends_the_pass_and_the_next_one_goes_on(compacted):
    fill(compacted, 30, 10)
    compacted.compact(keys_max=4)
    assert compacted.log.first_dirty_offset == 4
    assert compacted.offsets() == list(range(30))
    while compacted.log.first_dirty_offset < 30:
        compacted.compact(keys_max=4)
    assert compacted.offsets() == list(range(20, 30))


def test_a_batch_with_more_keys_than_the_map_holds_is_passed_all_the_same(compacted):
    compacted.put(*((b"k%d" % number, b"v") for number in range(20)))
    compacted.roll()
    compacted.compact(keys_max=3)
    assert compacted.log.first_dirty_offset == 20


def test_records_without_key_do_not_stay(compacted):
    """A topic may have held them before it was compacted."""
    compacted.put((None, b"1"), (b"a", b"2"))
    compacted.roll()
    compacted.compact()
    assert compacted.offsets() == [1]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_is_rebuilt_keeps_its_codec_and_its_offsets(compacted, codec):
    compacted.put((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec=codec)
    compacted.put((b"c", b"4"), (b"a", b"5"), codec=codec)
    compacted.roll()
    compacted.compact()
    (first, _), (second, _) = compacted.batches()
    assert (first.base_offset, first.last_offset, first.record_count, first.codec) == (0, 2, 1, codec)
    assert (second.base_offset, second.last_offset, second.record_count) == (3, 4, 2)


def test_a_segment_of_which_nothing_stays_is_empty(compacted):
    fill(compacted, 3, 1)
    compacted.log.config.segment_bytes = 100  # so that the two are not joined
    compacted.put((b"k0", b"new"))
    compacted.roll()
    compacted.compact()
    assert compacted.log.segments[0].size_bytes == 0
    assert compacted.offsets() == [3]
    read = compacted.log.read(0, max_bytes=1000, end_offset=4)
    assert (read.segment_base_offset, read.size_bytes > 0) == (3, True)
    read.slice.release()


def test_the_cleaned_segment_has_the_time_of_the_last_one_it_was_made_from(compacted):
    fill(compacted, 20, 3)
    modified = compacted.world.disk.modified_ms(compacted.log.segments[-2].path)
    compacted.world.now_ms += 1000
    compacted.compact()
    assert compacted.world.disk.modified_ms(compacted.log.segments[0].path) == modified < compacted.world.now_ms


def test_a_smaller_window_than_a_batch_grows(compacted):
    compacted.log.config.segment_bytes = 1 << 20
    compacted.put((b"a", b"1"))
    compacted.put((b"b", bytes(20_000)))
    compacted.put((b"a", b"2"))
    compacted.roll()
    assert compacted.compact(window_bytes=1) > 2
    assert compacted.offsets() == [1, 2]


# -- what may be cleaned


def test_nothing_beyond_the_high_watermark_is_cleaned(compacted):
    fill(compacted, 30, 3)
    second = compacted.bases()[1]
    assert cleanable_part(compacted.log, second - 1, 0).end_offset == 0
    assert cleanable_part(compacted.log, second, 0).end_offset == second
    assert cleanable_part(compacted.log, 30, 0).end_offset == 30


def test_nothing_of_an_open_transaction_or_behind_it_is_cleaned(compacted):
    fill(compacted, 12, 3)
    compacted.put((b"t", b"v"), producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    fill(compacted, 12, 3)
    assert cleanable_part(compacted.log, 25, 0).end_offset == 12


# -- tombstones


def test_a_tombstone_stays_until_its_horizon_which_the_first_pass_sets(compacted):
    compacted.put((b"a", b"1"), (b"b", b"2"))
    compacted.put((b"a", None))
    compacted.roll()
    compacted.compact()
    horizon = compacted.world.now_ms + DAY
    (_, _), (header, _) = compacted.batches()
    assert (header.base_timestamp, header.attributes & DELETE_HORIZON) == (horizon, DELETE_HORIZON)
    assert [record.timestamp for record in compacted.records()] == [compacted.world.now_ms] * 2
    compacted.world.now_ms = horizon - 1
    compacted.compact()
    assert compacted.offsets() == [1, 2]
    compacted.world.now_ms = horizon
    compacted.compact()
    assert compacted.offsets() == [1]


def test_delete_retention_of_nothing_still_shows_a_tombstone_once(compacted):
    compacted.log.config.delete_retention_ms = 0
    compacted.put((b"a", None))
    compacted.roll()
    compacted.compact()
    assert compacted.offsets() == [0]
    compacted.compact()
    assert compacted.offsets() == []


def test_delete_retention_without_end_is_a_time_that_never_comes(compacted):
    compacted.log.config.delete_retention_ms = 2**63 - 1
    compacted.put((b"a", None))
    compacted.roll()
    compacted.compact()
    ((header, _),) = compacted.batches()
    assert header.base_timestamp == 2**63 - 1
    assert [record.timestamp for record in compacted.records()] == [compacted.world.now_ms]


def test_no_tombstone_goes_behind_a_value_that_was_not_looked_at(new_world):
    world = new_world(compacted=True)
    world.disk.make_directory("/data/orders-0")
    world.put(FIRST_LOG, legacy_message(0, b"a", b"1"))
    compacted = Compacted(world)
    compacted.put((b"a", None))
    compacted.roll()
    for _ in range(2):
        compacted.compact()
        compacted.world.now_ms += 2 * DAY
    assert compacted.offsets() == [0, 1]


# -- producers and transactions


def test_the_last_batch_of_a_producer_stays_empty_so_that_its_sequence_goes_on(compacted):
    compacted.put((b"a", b"1"), **idempotent(0))
    compacted.put((b"a", b"2"), (b"a", b"3"), **idempotent(1))
    compacted.put((b"a", b"4"))
    compacted.roll()
    compacted.compact()
    assert [(header.base_offset, header.record_count) for header, _ in compacted.batches()] == [(1, 0), (3, 1)]
    for name in compacted.world.names(".snapshot"):
        compacted.world.disk.remove(f"/data/orders-0/{name}")
    compacted.reopen()
    assert compacted.log.producers.get(7).last_sequence == 2
    assert compacted.put((b"b", b"5"), **idempotent(3)) == 4


def test_an_empty_batch_goes_once_its_producer_is_forgotten_or_has_a_newer_one(compacted):
    for producer_id in (7, 8):
        compacted.put((b"a", b"1"), **idempotent(0, producer_id))
    compacted.put((b"a", b"4"))
    compacted.roll()
    compacted.compact()
    assert [header.producer_id for header, _ in compacted.batches()] == [7, 8, -1]
    compacted.put((b"b", b"1"), **idempotent(1, 7))
    compacted.roll()
    compacted.compact()
    assert [(header.producer_id, header.base_offset) for header, _ in compacted.batches()] == [(8, 1), (-1, 2), (7, 3)]
    compacted.log.producers.expire(compacted.world.now_ms + 2 * DAY, DAY)
    compacted.compact()
    assert [(header.producer_id, header.base_offset) for header, _ in compacted.batches()] == [(-1, 2), (7, 3)]


def test_an_unwritten_snapshot_is_written_after_a_compaction(compacted, monkeypatch):
    for sequence in range(3):
        compacted.put((b"a", b"v"), **idempotent(sequence))
    log, world = compacted.log, compacted.world
    # The segment is sealed while its last records are synced, so the recovery point lets it be compacted.
    plan = log.flush_plan()
    log.roll(world.now_ms)
    plan.sync()
    log.flushed(plan)
    with monkeypatch.context() as patch:
        patch.setattr(world, "flush", lambda log: None)
        compacted.compact()
    assert compacted.offsets() == [2]
    assert world.names(".snapshot") == []
    world.flush(log)
    (producer,) = decode_snapshot(world.content("00000000000000000003.snapshot"))
    assert producer.last_sequence == 2


def test_an_aborted_transaction_stays_in_the_index_as_long_as_its_marker_is_needed(compacted):
    for outcome in (COMMIT, ABORT):
        for sequence in (0, 1) if outcome == COMMIT else (2, 3):
            compacted.put((b"a", b"v"), **idempotent(sequence), attributes=TRANSACTIONAL)
        compacted.world.append_marker(compacted.log, outcome)
        compacted.roll()
    compacted.put((b"a", b"newest"))
    compacted.roll()
    join_segments(compacted)
    compacted.compact()
    assert compacted.offsets() == [2, 5, 6]
    assert [header.last_offset for header, _ in compacted.batches()] == [2, 4, 5, 6], "4 has the last sequence"
    assert compacted.bases() == [0, 7]
    for clean in (True, False):
        assert compacted.world.aborted(compacted.log, 0, 7) == [(7, 3)]
        assert compacted.log.producers.get(7).last_sequence == 3
        compacted.reopen(clean=clean)
    assert findings(compacted.world) == []


def test_a_marker_that_is_not_synced_decides_nothing_for_compaction(compacted):
    """A power failure could take it, and what the transaction has replaced would be lost if it is aborted then."""
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"), **producer, attributes=TRANSACTIONAL)
    compacted.roll()
    compacted.world.flush(compacted.log)
    compacted.world.append_marker(compacted.log, COMMIT)
    compacted.put((b"b", b"1"))
    log, world = compacted.log, compacted.world
    assert cleanable_part(log, log.log_end_offset, world.now_ms).end_offset == 0
    compacted.roll()
    world.flush(log)
    assert cleanable_part(log, log.log_end_offset, world.now_ms).end_offset == 4
    compacted.compact()
    assert compacted.offsets() == [1, 2, 3]
    compacted.reopen()
    assert compacted.log.synced_stable_offset == 4
    compacted.put((b"c", b"1"), **producer | {"base_sequence": 1}, attributes=TRANSACTIONAL)
    world.flush(compacted.log)
    assert compacted.log.synced_stable_offset == 4
    compacted.log.truncate_to(4)
    assert compacted.log.synced_stable_offset == 4


def legacy_message(offset: int, key: bytes, value: bytes) -> bytes:
    fields = struct.pack(">bbqi", 1, 0, 1000, len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(fields), zlib.crc32(fields)) + fields


def test_messages_of_old_formats_are_carried_through(new_world):
    world = new_world(compacted=True)
    world.disk.make_directory("/data/orders-0")
    old = [legacy_message(offset, b"a", b"v") for offset in range(3)]
    world.put(FIRST_LOG, b"".join(old))
    compacted = Compacted(world)
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.roll()
    compacted.compact()
    assert compacted.offsets() == [0, 1, 2, 4]
    assert world.content(FIRST_LOG).startswith(b"".join(old))


# -- beside readers, retention and damage


def test_a_reader_goes_on_with_the_bytes_it_was_promised(compacted):
    fill(compacted, 40, 3)
    read = compacted.log.read(0, max_bytes=300, end_offset=40)
    promised = read.slice.read()
    compacted.compact()
    compacted.log.segments.remove_deleted(compacted.world.now_ms + 60_000)
    assert read.slice.read() == promised
    read.slice.release()


def test_readers_find_every_offset_of_the_clean_log(compacted, read_of, offsets_of):
    fill(compacted, 60, 7)
    fill(compacted, 3, 3)
    compacted.compact()
    there = compacted.offsets()
    for offset in range(64):
        found = offsets_of(read_of(compacted.log.read(offset, max_bytes=1 << 20, end_offset=63)))
        assert found[:1] == [each for each in there if each >= offset][:1]


def test_searches_by_time_find_what_is_left(compacted):
    for number in range(30):
        compacted.world.now_ms += 1000
        compacted.put((b"k%d" % (number % 7), b"v"))
    compacted.roll()
    compacted.compact()
    first = compacted.records()[0]
    assert complete_inline(compacted.log.offset_for_timestamp(0, 30)).offset == first.offset
    for record in compacted.records():
        assert complete_inline(compacted.log.offset_for_timestamp(record.timestamp, 30)).offset == record.offset
    assert complete_inline(compacted.log.offset_of_largest_timestamp()).offset == 29


@pytest.mark.pure_form(reason="replaces a method of a compiled class")
def test_a_search_in_a_thread_that_met_the_swap_begins_again(compacted, monkeypatch):
    fill(compacted, 40, 3)
    segment = compacted.log.segments[0]
    find_time, ways = type(segment).find_time, []

    def disturbed(self, *arguments):
        if not ways:
            compacted.compact()
        ways.append((yield from find_time(self, *arguments)))
        return ways[-1]

    monkeypatch.setattr(type(segment), "find_time", disturbed)
    found = complete_inline(compacted.log.offset_for_timestamp(0, 40))
    assert found == ways[-1]
    assert found.offset == 37


def test_the_log_start_stays_where_it_was_raised_to(compacted):
    fill(compacted, 40, 40)
    compacted.log.raise_log_start(5)
    compacted.compact()
    assert (compacted.log.log_start_offset, compacted.log.segments[0].base_offset) == (5, 0)
    compacted.world.checkpoint(compacted.log)
    compacted.reopen()
    assert compacted.log.log_start_offset == 5


def test_no_segment_is_deleted_while_the_log_is_being_cleaned(compacted):
    compacted.log.config.deletes = True
    compacted.log.config.retention_ms = 1
    fill(compacted, 40, 3)
    compacted.log.is_being_cleaned = True
    assert compacted.log.delete_old_segments(compacted.world.now_ms + DAY, 40) == 0
    compacted.log.is_being_cleaned = False
    assert compacted.log.delete_old_segments(compacted.world.now_ms + DAY, 40) > 0


def test_retention_deletes_cleaned_segments_by_their_newest_record(compacted):
    compacted.log.config.deletes = True
    compacted.log.config.retention_ms = 10 * DAY
    fill(compacted, 20, 3)
    join_segments(compacted)
    compacted.compact()
    newest = max(record.timestamp for record in compacted.records())
    assert compacted.log.delete_old_segments(newest + 10 * DAY, 20) == 0
    assert compacted.log.delete_old_segments(newest + 10 * DAY + 1, 20) == 1
    assert compacted.log.log_start_offset == 20


@pytest.mark.parametrize("position", [0, 7, 8, 17, 61])  # base offset, length, checksum, records
def test_a_damaged_batch_ends_the_pass_and_changes_nothing(compacted, position):
    fill(compacted, 20, 3)
    data = bytearray(compacted.world.content(FIRST_LOG))
    data[position] ^= 0x55
    compacted.world.put(FIRST_LOG, bytes(data))
    names = compacted.world.names()
    with pytest.raises(CorruptRecords):
        compacted.compact()
    assert compacted.world.names() == names
    assert compacted.log.first_dirty_offset is None


def test_a_batch_with_too_many_records_for_its_bytes_is_damage(compacted):
    compacted.put((b"a", b"1"), (b"b", b"2"))
    compacted.roll()
    data = bytearray(compacted.world.content(FIRST_LOG))
    struct.pack_into(">i", data, 57, 1 << 30)
    from crc32c import crc32c

    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CHECKSUM_START:]))
    compacted.world.put(FIRST_LOG, bytes(data))
    with pytest.raises(CorruptRecords):
        compacted.compact()


def test_a_pass_can_be_given_up_between_any_two_steps(compacted):
    fill(compacted, 40, 3)
    compacted.log.config.segment_bytes = 300
    for stop in range(100):
        before = compacted.batches()
        steps = compacted.cleaning().steps()
        done = 0
        for done, step in enumerate(steps):
            if done == stop:
                break
            if step.replacement is not None:
                assert step.replacement.apply(compacted.world.now_ms)
                before = compacted.batches()
        steps.close()
        assert compacted.leftovers() == []
        assert compacted.batches() == before
        if done < stop:
            break
    assert 10 < stop < 100
    assert compacted.offsets() == [37, 38, 39]


def test_a_log_that_was_cut_meanwhile_is_left_alone(compacted):
    fill(compacted, 40, 3)
    steps = compacted.cleaning().steps()
    replacement = next(step.replacement for step in steps if step.replacement is not None)
    compacted.log.truncate_to(10)
    before = compacted.batches()
    assert not replacement.apply(compacted.world.now_ms)
    steps.close()
    assert compacted.leftovers() == []
    assert compacted.batches() == before
    compacted.reopen()
    assert compacted.batches() == before


def test_truncation_takes_the_checkpoint_along(compacted):
    fill(compacted, 40, 40)
    compacted.compact()
    compacted.log.truncate_to(10)
    assert compacted.log.first_dirty_offset == 10


def test_what_an_earlier_pass_left_behind_is_removed_first(compacted):
    fill(compacted, 20, 3)
    for name in ("00000000000000000000.log.cleaned", "00000000000000000000.index.swap"):
        compacted.world.put(name, b"rubbish")
    compacted.compact()
    assert compacted.leftovers() == []
    assert compacted.offsets() == [17, 18, 19]


def test_snapshots_stay_where_a_segment_begins(compacted):
    fill(compacted, 20, 3)
    join_segments(compacted)
    snapshots = [int(name[:20]) for name in compacted.world.names(".snapshot")]
    compacted.compact()
    assert [int(name[:20]) for name in compacted.world.names(".snapshot")] == [20] == snapshots[3:]
