"""Search in a partition log by time, also while its segments change."""

from contextlib import nullcontext, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.disk import StorageError
from barnabas.storage.producers import Origin
from barnabas.storage.segment import TakesLonger
from barnabas.storage.segments import SearchDisturbed
from barnabas.wire.compression import Codec
from barnabas.wire.records import Batch, Record, build_batch, read_all_records, read_batch_header
from barnabas.world.pacing import complete_inline
from tests.wire.bombs import header_bomb, memory_below

timestamps = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=20)


@settings(max_examples=60)
@given(timestamps, st.sampled_from([200, 1 << 20]), st.sampled_from([0, 1, 4]), st.integers(0, 51), st.integers(0, 10))
def test_a_search_by_time_finds_the_first_record_as_new(new_world, times, segment_bytes, codec, wanted, log_start):
    world = new_world(segment_bytes=segment_bytes)
    log = world.open()
    for batch in times:
        records = [Record(0, timestamp, None, b"v", []) for timestamp in batch]
        log.append_as_leader(
            build_batch(records, timestamp_ms=0, codec=codec), leader_epoch=3, origin=Origin.CLIENT, now_ms=0
        )
    log.raise_log_start(min(log_start, log.log_end_offset))
    records = [
        (record.timestamp, record.offset, 3)
        for _, record in read_all_records(world.log_bytes(log))
        if record.offset >= log.log_start_offset
    ]
    end_offset = log.log_end_offset
    first = next((r for r in records if r[0] >= wanted), None)
    assert complete_inline(log.offset_for_timestamp(wanted, end_offset)) == first
    # The search before has read the time indexes of sealed segments. A stream of zstd takes memory, which is not to be
    # had in one step.
    with suppress(TakesLonger) if codec == Codec.ZSTD else nullcontext():
        assert log.offset_for_timestamp_now(wanted, end_offset) == first
    largest = max((timestamp for timestamp, _, _ in records), default=None)
    assert complete_inline(log.offset_of_largest_timestamp()) == next((r for r in records if r[0] == largest), None)


def test_a_search_in_one_step_reads_no_more_than_the_batch_that_has_the_record(world, monkeypatch):
    log = world.open()
    for number in range(500):
        world.append(log, timestamp=1000 + number, size=3000)
    read = []
    file = log.segments.active.file
    real = type(file).read_resident
    monkeypatch.setattr(type(file), "read_resident", lambda self, at, size: read.append(size) or real(self, at, size))
    assert log.offset_for_timestamp_now(1321, log.log_end_offset)[:2] == (1321, 321)
    assert sum(read) < 30_000, "of 1.5 MB"


def test_a_search_in_one_step_gives_up_what_is_not_in_the_page_cache(world, monkeypatch):
    log = world.open()
    world.append(log, timestamp=10)
    monkeypatch.setattr(type(log.segments.active.file), "read_resident", lambda *_: None)
    with pytest.raises(TakesLonger):
        log.offset_for_timestamp_now(5, 1)
    assert complete_inline(log.offset_for_timestamp(5, 1)).offset == 0


def test_a_search_in_one_step_gives_up_a_batch_that_takes_many(world):
    log = world.open()
    data = header_bomb(1 << 20)
    log.append_as_leader(Batch(data, read_batch_header(data), 1000, 0), leader_epoch=0, origin=Origin.CLIENT, now_ms=0)
    with memory_below(4_000_000), pytest.raises(TakesLonger):
        log.offset_for_timestamp_now(1000, 1)


def test_a_search_in_one_step_gives_up_while_segments_change(world):
    log = world.open()
    world.append(log, timestamp=10)
    log.segments.generation += 1
    with pytest.raises(TakesLonger):
        log.offset_for_timestamp_now(5, 1)


def test_a_record_behind_the_end_is_not_found_by_time(world):
    log = world.open()
    world.append(log, timestamp=10)
    world.append(log, timestamp=20)
    assert complete_inline(log.offset_for_timestamp(15, 1)) is None
    assert complete_inline(log.offset_for_timestamp(15, 2)).offset == 1


def test_a_search_by_time_skips_millions_of_headers_in_steps_and_in_little_memory(world):
    log = world.open()
    data = header_bomb(1 << 24)
    log.append_as_leader(Batch(data, read_batch_header(data), 1000, 0), leader_epoch=0, origin=Origin.CLIENT, now_ms=0)
    with memory_below(4_000_000):
        steps = list(log.offset_for_timestamp(1000, 1))
        assert complete_inline(log.offset_of_largest_timestamp())[:2] == (1000, 0)
    assert len(steps) > 50


def test_an_empty_log_has_no_largest_timestamp(world):
    log = world.open()
    assert complete_inline(log.offset_of_largest_timestamp()) is None
    assert complete_inline(log.offset_for_timestamp(0, 0)) is None


def test_a_search_begins_again_when_segments_went_meanwhile(new_world):
    world = new_world(segment_bytes=150, retention_bytes=300)
    log = world.open()
    for number in range(6):
        world.append(log, timestamp=1000 + number)
    world.flush(log)
    open_file = world.disk.open

    def open_late(path, **options):
        world.disk.open = open_file
        assert log.delete_old_segments(world.now_ms, 6) == 2
        return open_file(path, **options)

    world.disk.open = open_late
    assert complete_inline(log.offset_for_timestamp(1000, 6))[:2] == (1002, 2)


@pytest.mark.parametrize("cut", [lambda segments: segments.cut(2, 4096, 0), lambda segments: segments.start_over(2, 0)])
def test_a_search_beside_a_cut_ends_without_an_answer(new_world, cut):
    world = new_world(segment_bytes=150)
    log, sync, seen = world.open(), world.disk.sync_directory, []
    for number in range(6):
        world.append(log, timestamp=1000 + number)

    def search(path) -> None:
        with pytest.raises(SearchDisturbed):
            complete_inline(log.offset_for_timestamp(1000, 6))
        seen.append(path)
        sync(path)

    world.disk.sync_directory = search
    cut(log.segments)
    assert seen


def test_a_search_that_fails_without_a_disturbance_raises_its_error(new_world):
    world = new_world(segment_bytes=150)
    log = world.open()
    for _ in range(2):
        world.append(log)
    world.disk.fail_next("open")
    with pytest.raises(StorageError):
        complete_inline(log.offset_for_timestamp(0, 2))
