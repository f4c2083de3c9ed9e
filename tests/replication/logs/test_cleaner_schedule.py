"""Compaction in the running broker, under virtual time: each of its properties."""

import random

import pytest
import trio

from barnabas.storage.checkpoint import CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, read_checkpoint
from barnabas.wire.records import build_batch
from tests.broker.clock import now_ms
from tests.broker.steps import StepMeter
from tests.replication.logs.cleaner_scene import BACKOFF, T0, T1, T2, Scene, a_pass

# -- what is cleaned


async def test_a_compacted_topic_is_cleaned_and_its_checkpoint_written_as_kafka_writes_it(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    await a_pass()
    assert scene.offsets() == [17, 18, 19]
    assert scene.disk.read_file(f"/d1/{CLEANER_CHECKPOINT}") == b"0\n1\nt 0 20\n"


async def test_before_a_pass_leaves_gaps_the_recovery_point_above_them_is_on_the_disk(autojump_clock, nursery):
    # Long before the next checkpoint is due: after a crash a gap above that point would be taken for a loss.
    scene = await Scene().start(nursery, T0)
    scene.fill()
    await a_pass()
    assert read_checkpoint(scene.disk, f"/d1/{RECOVERY_POINT_CHECKPOINT}") == {T0: 20}


async def test_a_topic_that_is_not_compacted_is_not_and_a_change_acts_at_once(autojump_clock, nursery):
    scene = Scene()
    scene.configure(cleanup_policy="delete")
    await scene.start(nursery, T0)
    scene.fill()
    await a_pass()
    assert scene.offsets() == list(range(20))
    scene.configure(cleanup_policy="compact")
    await a_pass()
    assert scene.offsets() == [17, 18, 19]
    scene.fill()
    scene.configure(cleanup_policy="delete")
    await a_pass()
    assert scene.offsets() == [17, 18, 19, *range(20, 40)]


async def test_both_policies_together_compact_and_delete(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.configure(cleanup_policy="compact,delete", retention_ms="600000")
    scene.fill()
    await a_pass()
    assert scene.offsets() == [17, 18, 19]
    await trio.sleep(700)
    assert scene.offsets() == []
    assert scene.logs.get(T0).log_start_offset == 20


async def test_a_topic_that_is_only_compacted_is_not_deleted_by_time_but_below_its_start(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.configure(retention_ms="1000")
    scene.fill(keys=20)
    await trio.sleep(1000)
    assert scene.offsets() == list(range(20))
    scene.logs.get(T0).raise_log_start(12)
    await a_pass()
    assert scene.offsets() == list(range(10, 20))


async def test_without_a_cleaner_nothing_of_a_compacted_topic_goes(autojump_clock, nursery):
    scene = await Scene(log_cleaner_enable="false").start(nursery, T0)
    scene.configure(cleanup_policy="compact,delete", retention_ms="1000")
    scene.fill()
    await trio.sleep(1000)
    assert scene.offsets() == list(range(20))


async def test_a_pass_over_a_log_with_many_producers_begins_in_a_short_step(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    for producer_id in range(20_000):
        batch = build_batch([(b"k", b"v")], timestamp_ms=now_ms(), producer_id=producer_id, base_sequence=0)
        scene.logs.get(T0).producers.update(batch.header)
    with StepMeter() as meter:
        await a_pass()
    assert len(scene.offsets()) < 20
    meter.check()


async def test_what_is_not_committed_yet_is_not_cleaned(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    scene.high_watermarks[T0] = 10
    await a_pass()
    assert scene.offsets() == [7, 8, 9, *range(10, 20)]


async def test_a_log_that_is_not_hosted_yet_is_left_alone(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    del scene.high_watermarks[T0]
    await a_pass()
    assert scene.offsets() == list(range(20))


# -- when


async def test_the_dirty_share_decides(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.configure(min_cleanable_dirty_ratio="0.9")
    scene.fill(keys=20)
    await a_pass()
    scene.fill()
    await a_pass()
    assert len(scene.offsets()) == 40
    scene.configure(min_cleanable_dirty_ratio="0.4")
    await a_pass()
    assert len(scene.offsets()) == 20


async def test_records_are_safe_for_the_minimum_lag(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.configure(min_compaction_lag_ms="600000")
    scene.fill()
    await trio.sleep(590)
    assert scene.offsets() == list(range(20))
    await trio.sleep(30)
    assert scene.offsets() == [17, 18, 19]


async def test_the_maximum_lag_overrides_the_dirty_share_and_seals_segments(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.configure(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="600000", segment_bytes="100000")
    scene.put(T0, (b"k", b"1"))
    scene.put(T0, (b"k", b"2"))
    await trio.sleep(601)
    scene.put(T0, (b"other", b"seals what is before it"))
    assert len(scene.logs.get(T0).segments) == 2
    await a_pass()
    assert scene.offsets() == [1, 2]


async def test_the_dirtiest_log_is_cleaned_first(autojump_clock, nursery):
    scene = Scene(log_cleaner_io_max_bytes_per_second="100")
    await scene.start(nursery, T0, T1)
    scene.fill(T0, keys=20)
    await trio.sleep(200)
    assert scene.checkpoint() == {T0: 20}
    scene.fill(T0, count=30)
    scene.fill(T1, count=30)
    await trio.sleep(80)
    assert scene.checkpoint() == {T0: 20, T1: 30}
    await trio.sleep(200)
    assert scene.checkpoint() == {T0: 50, T1: 30}


async def test_after_a_pass_the_next_log_follows_at_once_and_else_after_the_back_off(autojump_clock, nursery):
    scene = await Scene(log_cleaner_backoff_ms="100000").start(nursery, T0, T1)
    scene.fill(T0)
    scene.fill(T1)
    await trio.sleep(99)
    assert len(scene.offsets(T0)) == len(scene.offsets(T1)) == 20
    await trio.sleep(2)
    assert scene.offsets(T0) == scene.offsets(T1) == [17, 18, 19]


async def test_a_back_off_of_nothing_leaves_time_for_others(autojump_clock, nursery):
    scene = await Scene(log_cleaner_backoff_ms="0").start(nursery, T0)
    looks = []

    def looked():
        looks.append(trio.current_time())
        assert len(looks) < 10_000, "time stands still"
        return {T0: 0}

    scene.logs.cleaner._high_watermarks = looked
    await trio.sleep(10)
    assert 100 < len(looks) < 2500


@pytest.mark.parametrize("threads", [0, 1, 2])
async def test_as_many_logs_are_cleaned_at_a_time_as_there_are_threads(autojump_clock, nursery, threads):
    scene = await Scene(log_cleaner_threads=str(threads)).start(nursery, T0, T1, T2)
    for key in (T0, T1, T2):
        scene.fill(key)
    await a_pass()
    assert scene.threads_most == max(threads, 1)
    assert [len(scene.offsets(key)) for key in (T0, T1, T2)] == [20 if threads == 0 else 3] * 3


async def test_the_number_of_threads_can_change(autojump_clock, nursery):
    scene = await Scene(log_cleaner_threads="0").start(nursery, T0)
    scene.fill()
    await a_pass()
    scene.config.update(cluster_wide={"log.cleaner.threads": "1"}, per_broker={})
    await a_pass()
    assert scene.offsets() == [17, 18, 19]


# -- how


async def test_passes_together_read_and_write_no_faster_than_allowed(autojump_clock, nursery):
    scene = await Scene(log_cleaner_io_max_bytes_per_second="100", log_cleaner_threads="2").start(nursery, T0, T1)
    scene.fill(T0, count=40)
    scene.fill(T1, count=40)
    size_bytes = 2 * scene.logs.get(T0).size_bytes
    await trio.sleep(BACKOFF + 2 * size_bytes / 100 - 20)  # a few segments are not copied: which, is chance
    assert scene.checkpoint() == {}
    await trio.sleep(35 + 400 / 100)
    assert scene.checkpoint() == {T0: 40, T1: 40}


async def test_the_rate_can_change(autojump_clock, nursery):
    scene = await Scene(log_cleaner_io_max_bytes_per_second="1").start(nursery, T0)
    scene.fill(count=10)
    await a_pass()
    scene.config.update(cluster_wide={"log.cleaner.io.max.bytes.per.second": "1e9"}, per_broker={})
    await trio.sleep(1000)
    assert scene.checkpoint() == {T0: 10}


async def test_a_segment_that_someone_cut_short_does_not_end_the_cleaner(autojump_clock, nursery, caplog):
    scene = await Scene().start(nursery, T0, T1)
    scene.fill(T0)
    scene.fill(T1)
    path = scene.logs.get(T0).segments[0].path
    scene.disk.replace_file(path, scene.disk.read_file(path)[:40])
    scene.configure(max_compaction_lag_ms="1000")
    await a_pass()
    await a_pass()
    assert scene.checkpoint() == {T1: 20}
    assert "is damaged and is not cleaned any more" in caplog.text


@pytest.mark.parametrize("rate", ["0", "1e-3", "1"])
async def test_a_rate_that_all_but_stops_the_cleaner_can_be_raised_again(autojump_clock, nursery, rate):
    scene = await Scene(log_cleaner_io_max_bytes_per_second=rate).start(nursery, T0)
    scene.fill()
    await trio.sleep(100)
    assert scene.checkpoint() == {}
    scene.config.update(cluster_wide={"log.cleaner.io.max.bytes.per.second": "1e9"}, per_broker={})
    await trio.sleep(2)
    assert scene.checkpoint() == {T0: 20}


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-1"])
async def test_a_rate_that_is_none_does_not_limit(autojump_clock, nursery, rate):
    scene = await Scene(log_cleaner_io_max_bytes_per_second=rate).start(nursery, T0)
    scene.fill()
    await a_pass()
    assert scene.checkpoint() == {T0: 20}
    scene.config.update(cluster_wide={"log.cleaner.io.max.bytes.per.second": "100"}, per_broker={})
    scene.fill()
    await a_pass()
    assert scene.checkpoint() == {T0: 20}


@pytest.mark.parametrize("load_factor", ["NaN", "Infinity", "-Infinity", "1e300"])
async def test_a_load_factor_that_is_no_share_does_no_harm(autojump_clock, nursery, load_factor):
    scene = await Scene(log_cleaner_io_buffer_load_factor=load_factor).start(nursery, T0)
    scene.fill()
    await a_pass()
    assert scene.checkpoint()[T0] >= 10


def many_keys(scene: Scene, count: int) -> None:
    scene.configure(segment_bytes=str(1 << 20))
    for start in range(0, count, 100):
        scene.put(T0, *((b"key-%d" % number, b"") for number in range(start, start + 100)))
    scene.seal(T0)


@pytest.mark.parametrize(
    ("properties", "noted"),
    [
        ({"log_cleaner_dedupe_buffer_size": str(1 << 20), "log_cleaner_io_buffer_load_factor": "1"}, 5500),
        ({"log_cleaner_dedupe_buffer_size": str(1 << 20), "log_cleaner_io_buffer_load_factor": "0.5"}, 2800),
        ({"log_cleaner_dedupe_buffer_size": str(2 << 20), "log_cleaner_io_buffer_load_factor": "0.5"}, 5500),
        ({"log_cleaner_dedupe_buffer_size": str(2 << 20), "log_cleaner_threads": "2"}, 5000),
    ],
)
async def test_a_pass_remembers_as_many_keys_as_its_memory_holds(autojump_clock, nursery, properties, noted):
    """Whole batches, here of 100 keys."""
    scene = await Scene(**properties).start(nursery, T0)
    many_keys(scene, 6000)
    scene.configure(min_cleanable_dirty_ratio="0.99")  # one pass only
    await a_pass()
    assert scene.checkpoint() == {T0: noted}


@pytest.mark.parametrize(("size", "threads", "window"), [(65536, 1, 32768), (65536, 2, 16384), (131072, 1, 65536)])
async def test_a_pass_reads_in_windows_of_half_the_buffer(autojump_clock, nursery, size, threads, window, monkeypatch):
    properties = {"log_cleaner_io_buffer_size": str(size), "log_cleaner_threads": str(threads)}
    scene = await Scene(**properties).start(nursery, T0)
    many_keys(scene, 20_000)
    sizes = []
    file_type = type(scene.logs.get(T0).segments.active.file)
    read = file_type.read

    def counted(self, position, size_bytes):
        sizes.append(size_bytes)
        return read(self, position, size_bytes)

    monkeypatch.setattr(file_type, "read", counted)
    await a_pass()
    assert max(sizes) == window


async def test_tombstones_go_after_the_delete_retention(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.configure(delete_retention_ms="600000", min_cleanable_dirty_ratio="0")
    scene.put(T0, (b"gone", None))
    scene.fill(count=3)
    await a_pass()
    assert scene.offsets() == [0, 1, 2, 3]
    await trio.sleep(600)
    scene.fill(count=3)
    await a_pass()
    assert scene.offsets() == [4, 5, 6]


# -- starts


async def test_the_next_start_goes_on_where_the_last_one_stopped(autojump_clock):
    scene = Scene()
    async with trio.open_nursery() as nursery:
        await scene.start(nursery, T0)
        scene.fill()
        await a_pass()
        nursery.cancel_scope.cancel()
    await scene.logs.close()
    async with trio.open_nursery() as nursery:
        again = await Scene(scene.disk.crash_process()).start(nursery)
        assert again.logs.get(T0).first_dirty_offset == 20
        assert again.offsets() == [17, 18, 19]
        again.fill()
        await a_pass()
        assert again.checkpoint() == {T0: 40}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(5))
async def test_a_power_failure_in_the_midst_of_a_pass_loses_nothing(autojump_clock, seed):
    scene = Scene(log_cleaner_io_buffer_size="0")
    async with trio.open_nursery() as nursery:
        await scene.start(nursery, T0)
        scene.fill(count=60)
        await scene.flusher.flush([scene.logs.get(T0)])
        await trio.sleep(BACKOFF + 0.01 * seed)
        left = scene.disk.crash_machine(random.Random(seed))
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        again = await Scene(left).start(nursery)
        assert again.logs.get(T0).log_end_offset == 60
        assert again.offsets()[-3:] == [57, 58, 59]
        assert again.leftovers("/d1/t-0") == []
        await a_pass()
        assert again.offsets() == [57, 58, 59]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("known", [99, -5])
async def test_a_checkpoint_outside_of_the_log_makes_all_of_it_dirty(autojump_clock, nursery, caplog, known):
    scene = await Scene().start(nursery, T0)
    scene.logs.get(T0).first_dirty_offset = known
    scene.fill()
    await a_pass()
    assert scene.checkpoint() == {T0: 20}
    assert "cleaner checkpoint" in caplog.text


async def test_the_checkpoint_forgets_a_deleted_log(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    await a_pass()
    await scene.logs.delete(T0)
    await scene.logs.create(T0, bytes(range(16)), scene.topic)
    assert scene.logs.get(T0).first_dirty_offset is None
    assert scene.checkpoint() == {}
