"""Compaction in the running broker, under virtual time: each of its properties, and everybody who interrupts it."""

import logging
import random

import pytest
import trio

from barnabas.broker.config.live import BrokerConfig
from barnabas.broker.logs import cleaner_schedule
from barnabas.broker.logs.directory import StoredIdentity
from barnabas.broker.logs.partition_logs import Logs
from barnabas.broker.world import World
from barnabas.storage.checkpoint import CLEANER_CHECKPOINT, read_checkpoint
from barnabas.storage.disk import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.producers import Origin
from barnabas.wire.records import build_batch, read_all_records
from barnabas.wire.topics import TopicPartition

START_MS = 1_700_000_000_000
US = StoredIdentity(1, "castle")
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
BACKOFF = 15


def now_ms() -> int:
    return START_MS + round(trio.current_time() * 1000)


class Scene:
    """A broker's logs with a compacted topic; work in a thread takes a millisecond."""

    def __init__(self, disk: MemDisk | None = None, directories: str = "/d1", **properties: str) -> None:
        self.disk = disk or MemDisk(now_ms=now_ms)
        self.properties = {name.replace("_", "."): text for name, text in properties.items()}
        self.config = BrokerConfig({"log.dirs": directories, **self.properties})
        self.topic = self.config.topic({"cleanup.policy": "compact", "segment.bytes": "400"})
        self.failed, self.high_watermarks = [], {}
        self.threads = self.threads_most = self.hops = 0
        self.flusher = Flusher(self.in_thread)
        world = World(now_ms, random.Random(0), self.disk, None, None, self.in_thread, self.in_thread)
        self.logs = Logs(self.config, world, self.flusher)

    def configure(self, **overrides: str) -> None:
        """Change the topic, as an AlterConfigs does."""
        changed = {name.replace("_", "."): text for name, text in overrides.items()}
        self.topic.update(self.topic.overrides | changed)

    async def in_thread(self, function, *args):
        self.hops += 1
        self.threads += 1
        self.threads_most = max(self.threads_most, self.threads)
        with trio.CancelScope(shield=True):
            await trio.sleep(0.001)
        self.threads -= 1
        return function(*args)

    async def ids_of(self, topics):
        return dict.fromkeys(topics)

    async def start(self, nursery: trio.Nursery, *keys: TopicPartition) -> "Scene":
        await self.logs.open()
        await self.logs.load(US, lambda topic: self.topic, self.ids_of)
        for key in keys:
            await self.logs.create(key, bytes(range(16)), self.topic)
        self.high_watermarks |= {log.topic_partition: log.log_end_offset for log in self.logs}
        await nursery.start(self.flusher.run, lambda log: None, self.logs.fail_directory_of)
        await nursery.start(self.logs.run, lambda: self.high_watermarks, lambda *what: self.failed.append(what))
        await trio.sleep(0.5)  # past the cleaner's first look
        return self

    def put(self, key: TopicPartition, *pairs, timestamp_ms: int | None = None) -> None:
        batch = build_batch(pairs, timestamp_ms=now_ms() if timestamp_ms is None else timestamp_ms)
        log = self.logs.get(key)
        log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT, now_ms=now_ms())
        self.high_watermarks[key] = log.log_end_offset
        if log.flush_demanded:
            self.flusher.want(log)

    def fill(self, key: TopicPartition = T0, count: int = 20, keys: int = 3) -> None:
        """Sealed segments full of superseded records."""
        for number in range(count):
            self.put(key, (b"k%d" % (number % keys), b"v%d" % number))
        self.seal(key)

    def seal(self, key: TopicPartition = T0) -> None:
        """Begin a new segment; the flush that this demands follows, and only then the old one may be cleaned."""
        log = self.logs.get(key)
        log.roll(now_ms())
        self.flusher.want(log)

    def offsets(self, key: TopicPartition = T0) -> list[int]:
        log = self.logs.get(key)
        data = b"".join(self.disk.read_file(segment.path) for segment in log.segments)
        return [record.offset for _, record in read_all_records(data)]

    def checkpoint(self, directory: str = "/d1") -> dict:
        return read_checkpoint(self.disk, f"{directory}/{CLEANER_CHECKPOINT}")

    def leftovers(self, directory: str) -> list[str]:
        return [name for name in self.disk.list(directory) if name.endswith((".cleaned", ".swap"))]


async def a_pass() -> None:
    """Long enough for the back-off and a few hundred steps."""
    await trio.sleep(BACKOFF + 1)


# -- what is cleaned


async def test_a_compacted_topic_is_cleaned_and_its_checkpoint_written_as_kafka_writes_it(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    await a_pass()
    assert scene.offsets() == [17, 18, 19]
    assert scene.disk.read_file(f"/d1/{CLEANER_CHECKPOINT}") == b"0\n1\nt 0 20\n"


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


# -- who interrupts


def slow(**properties: str) -> Scene:
    return Scene(log_cleaner_io_max_bytes_per_second="100", **properties)


async def test_a_log_that_is_deleted_is_left_at_once(autojump_clock, nursery):
    scene = await slow().start(nursery, T0)
    scene.fill(count=60)
    await a_pass()
    began = trio.current_time()
    await scene.logs.delete(T0)
    assert trio.current_time() - began < 0.1
    await scene.logs.create(T0, bytes(range(16)), scene.topic)
    await trio.sleep(1000)
    assert [name for name in scene.disk.list("/d1/t-0") if not name.startswith(f"{0:020d}")] == ["partition.metadata"]
    assert scene.failed == []


async def test_a_pass_that_is_given_up_leaves_the_log_as_it_is_and_another_begins(autojump_clock, nursery):
    scene = await slow().start(nursery, T0)
    scene.fill(count=60)
    await a_pass()
    log = scene.logs.get(T0)
    async with scene.logs.cleaner.paused(log):
        assert scene.leftovers(log.directory) == []
        assert not log.is_being_cleaned
        before = scene.offsets()
        await trio.sleep(200)
        assert scene.offsets() == before
        assert scene.checkpoint() == {}
    await trio.sleep(1000)
    assert scene.offsets() == [57, 58, 59]


async def test_a_truncation_may_be_done_while_cleaning_is_paused(autojump_clock, nursery):
    scene = await slow().start(nursery, T0)
    scene.fill(count=60)
    await a_pass()
    log = scene.logs.get(T0)
    async with scene.logs.cleaner.paused(log):
        await scene.in_thread(log.truncate_to, 30)
        scene.high_watermarks[T0] = 30
    await trio.sleep(1000)
    assert log.log_end_offset == 30
    assert scene.offsets()[-3:] == [27, 28, 29]


async def test_a_stop_in_the_midst_of_a_pass_leaves_a_clean_log(autojump_clock):
    scene = slow()
    async with trio.open_nursery() as nursery:
        await scene.start(nursery, T0)
        scene.fill(count=60)
        await a_pass()
        assert scene.logs.get(T0).is_being_cleaned
        nursery.cancel_scope.cancel()
    await scene.logs.close()
    assert scene.leftovers("/d1/t-0") == []
    async with trio.open_nursery() as nursery:
        again = await Scene(scene.disk.crash_process()).start(nursery)
        assert again.logs.get(T0).log_end_offset == 60
        nursery.cancel_scope.cancel()


async def test_a_disk_that_fails_in_a_pass_takes_only_its_directory_offline(autojump_clock, nursery):
    scene = await Scene(directories="/d1,/d2").start(nursery, T0, T1)
    for key in (T0, T1):
        scene.fill(key)
    scene.disk.fail_next("sync", path_part="/d1/t-0/00000000000000000000.log.cleaned")
    await a_pass()
    assert [directory for directory, _ in scene.failed] == ["/d1"]
    assert scene.logs.get(T0) is None
    await a_pass()
    assert scene.offsets(T1) == [17, 18, 19]


async def test_a_pass_over_a_directory_that_fails_elsewhere_ends(autojump_clock, nursery):
    scene = await slow(directories="/d1,/d2").start(nursery, T0, T1)
    scene.fill(T0, count=60)
    await a_pass()
    log = scene.logs.get(T0)
    scene.logs.fail_directory_of(log, StorageError("/d1", "write", "EIO"))
    scene.fill(T1, count=10)
    await trio.sleep(300)
    assert not log.is_being_cleaned
    assert scene.offsets(T1) == [7, 8, 9]


async def test_a_damaged_log_is_not_cleaned_any_more_and_the_others_are(autojump_clock, nursery, caplog):
    caplog.set_level(logging.WARNING)
    scene = await Scene().start(nursery, T0, T1)
    for key in (T0, T1):
        scene.fill(key)
    path = scene.logs.get(T0).segments[0].path
    file = scene.disk.open(path)
    file.write(70, b"?")
    file.release()
    await a_pass()
    await a_pass()
    assert [record.message for record in caplog.records if "damaged" in record.message] == [caplog.messages[0]]
    assert len(scene.disk.read_file(path)) > 300
    assert scene.failed == []
    assert scene.offsets(T1) == [17, 18, 19]
    assert scene.leftovers("/d1/t-0") == []


async def test_a_shortage_ends_a_pass_and_the_next_one_comes_after_the_back_off(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    for _ in range(3):
        scene.disk.fail_next("open", "EMFILE", path_part=".log.cleaned")
    await trio.sleep(3 * BACKOFF - 1)
    assert scene.hops < 25
    assert len(scene.offsets()) == 20
    await trio.sleep(BACKOFF + 1)
    assert scene.offsets() == [17, 18, 19]
    assert scene.failed == []


async def test_files_that_were_replaced_go_after_their_delay(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.configure(file_delete_delay_ms="600000")
    scene.fill()
    await a_pass()
    assert any(name.endswith(".deleted") for name in scene.disk.list("/d1/t-0"))
    await trio.sleep(600)
    assert not any(name.endswith(".deleted") for name in scene.disk.list("/d1/t-0"))


async def test_a_broker_without_work_for_it_reads_and_writes_nothing(autojump_clock, nursery):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    await a_pass()
    await trio.sleep(1000)
    before = scene.hops
    await trio.sleep(1000)
    assert scene.hops == before


async def test_records_above_a_high_watermark_that_fell_during_the_search_are_not_cleaned(
    nursery, autojump_clock, monkeypatch
):
    scene = await Scene().start(nursery, T0)
    scene.fill()
    await scene.flusher.flush(scene.logs)
    cleaner = scene.logs.cleaner
    assert (await cleaner._find_filthiest()).log is scene.logs.get(T0)

    async def truncated_and_written_again():
        scene.high_watermarks = {T0: 0}

    monkeypatch.setattr(cleaner_schedule, "LOGS_AT_A_TIME", 1)
    monkeypatch.setattr(trio.lowlevel, "checkpoint", truncated_and_written_again)
    assert await cleaner._find_filthiest() is None


@pytest.mark.provokes_mistakes
async def test_a_log_that_the_search_fails_at_does_not_keep_the_others_from_being_cleaned(
    nursery, autojump_clock, monkeypatch
):
    scene = await Scene().start(nursery, T0, T1)
    find = cleaner_schedule.cleanable_part

    def failing(log, *args):
        if log.topic_partition == T0:
            raise KeyError("odd")
        return find(log, *args)

    monkeypatch.setattr(cleaner_schedule, "cleanable_part", failing)
    for key in (T0, T1):
        scene.fill(key)
    await a_pass()
    assert len(scene.offsets(T0)) == 20 > len(scene.offsets(T1))


@pytest.mark.provokes_mistakes
async def test_a_pass_whose_end_fails_is_over(nursery, autojump_clock, monkeypatch):
    scene = await Scene().start(nursery, T0)

    async def failing(log, steps):
        raise KeyError("odd")

    monkeypatch.setattr(scene.logs.cleaner, "_close", failing)
    scene.fill()
    await a_pass()
    with trio.fail_after(5):
        await scene.logs.delete(T0)
    assert scene.logs.get(T0) is None
