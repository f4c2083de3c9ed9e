"""The log directories under virtual time: start, placement, deletion, checkpoints, and what a crash leaves."""

import random

import pytest
import trio

from barnabas.replication.logs.directory import LogDirectoryRefused, deleted_name, future_name
from barnabas.replication.logs.retention import PRODUCERS_AT_A_TIME
from barnabas.storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.disk import StorageError
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.producers import Origin, ProducerStates
from barnabas.wire.records import build_batch
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from tests.replication.logs.logs_scene import MINUTE, OTHER_ID, T0, T1, T2, TOPIC_ID, US, Scene, now_ms


async def refusal(scene: Scene) -> str:
    with pytest.raises(LogDirectoryRefused) as caught:
        await scene.start()
    return str(caught.value)


# -- a partition in two directories


async def with_two_logs(first: bytes, second: bytes) -> Scene:
    """A log of t-0 in each directory, of topics with these ids."""
    scene = await Scene(directories="/d1").start()
    await scene.logs.create(T0, first, scene.topic)
    other = await Scene(scene.disk.crash_process(), directories="/d2").start()
    await other.logs.create(T0, second, other.topic)
    return Scene(other.disk.crash_process())


@pytest.mark.parametrize(("current", "kept"), [(TOPIC_ID, ["/d1"]), (OTHER_ID, ["/d2"]), (None, [])])
async def test_of_two_logs_that_of_a_deleted_topic_gives_way(autojump_clock, nursery, current, kept):
    scene = await with_two_logs(TOPIC_ID, OTHER_ID)
    scene.topic_ids = {"t": current} if current else {}  # or the topic is not there at all
    await scene.start(nursery)
    assert [scene.directory_of(log.topic_partition) for log in scene.logs] == kept
    await trio.sleep(2 * MINUTE)
    assert [path for path in ("/d1", "/d2") if any("t-0" in name for name in scene.disk.list(path))] == kept


@pytest.mark.parametrize(("second", "current"), [(TOPIC_ID, TOPIC_ID), (OTHER_ID, None)], ids=["one id", "no id"])
async def test_two_logs_of_which_no_one_knows_the_right_one_are_refused(autojump_clock, second, current):
    scene = await with_two_logs(TOPIC_ID, second)
    scene.topic_ids = {"t": current}
    assert "t-0 is in both /d1 and /d2" in await refusal(scene)


async def test_a_copy_under_way_of_a_deleted_topic_gives_way(autojump_clock):
    scene = await with_two_logs(TOPIC_ID, OTHER_ID)
    scene.disk.rename("/d1/t-0", f"/d1/{future_name(T0, bytes(16))}")
    scene.topic_ids = {"t": OTHER_ID}
    await scene.start()
    assert scene.directory_of(T0) == "/d2"
    assert scene.logs.get(T0).topic_id == OTHER_ID
    assert not any("-future" in name for name in scene.disk.list("/d1"))


# -- whose directories they are


async def test_new_directories_are_made_and_take_the_brokers_identity(autojump_clock):
    scene = Scene()
    assert await scene.logs.open() is None
    await scene.logs.load(US, lambda topic: scene.topic, scene.ids_of)
    for directory in ("/d1", "/d2"):
        assert scene.disk.read_file(directory + "/meta.properties") == b"broker.id=1\ncluster.id=castle\nversion=0\n"


async def test_known_directories_say_whose_they_are(autojump_clock):
    scene = await Scene().start()
    assert await Scene(scene.disk.crash_process()).logs.open() == US


async def test_a_directory_added_later_takes_the_same_identity(autojump_clock):
    scene = await Scene(directories="/d1").start()
    wider = await Scene(scene.disk.crash_process(), directories="/d1,/d2").start()
    assert wider.disk.exists("/d2/meta.properties")


@pytest.mark.parametrize("content", [b"version=1\nnode.id=1\ncluster.id=c\n", b"version=0\nbroker.id=1\n"])
async def test_a_directory_of_something_else_is_refused_and_nothing_stays_locked(content, autojump_clock):
    disk = MemDisk()
    disk.make_directory("/d2")
    disk.replace_file("/d2/meta.properties", content)
    assert "/d2/meta.properties" in await refusal(Scene(disk))
    disk.replace_file("/d2/meta.properties", b"version=0\nbroker.id=1\ncluster.id=castle\n")
    await Scene(disk).start()


async def test_a_directory_in_use_is_refused(autojump_clock):
    scene = await Scene().start()
    assert "/d2 is used by another process" in await refusal(Scene(scene.disk, "/d2,/d3"))


# -- what they hold


async def test_foreign_directories_are_refused_before_anything_is_touched(autojump_clock):
    scene = await Scene().start()
    await scene.logs.close()
    scene.disk.make_directory("/d2/lost+found")
    assert "/d2/lost+found is not named <topic>-<partition>" in await refusal(Scene(scene.disk))
    assert scene.disk.exists("/d1/.kafka_cleanshutdown")
    scene.disk.remove_tree("/d2/lost+found")
    await Scene(scene.disk).start()  # nothing stayed locked


# -- logs


async def test_logs_go_where_the_fewest_are(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0, T1, T2)
    assert [scene.directory_of(key) for key in (T0, T1, T2)] == ["/d1", "/d2", "/d1"]
    assert [str(log.topic_partition) for log in scene.logs] == ["t-0", "t-2", "t-1"]


async def test_logs_made_at_the_same_time_are_spread_too(autojump_clock):
    scene = await Scene(directories="/d1,/d2,/d3").start()
    async with trio.open_nursery() as nursery:
        for key in (T0, T1, T2):
            nursery.start_soon(scene.create, key)
    assert {scene.directory_of(key) for key in (T0, T1, T2)} == {"/d1", "/d2", "/d3"}


async def test_a_new_log_survives_a_machine_crash_with_its_topic_id(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0)
    for seed in range(10):
        after = await Scene(scene.disk.crash_machine(random.Random(seed))).start()
        assert after.logs.get(T0).topic_id == TOPIC_ID


async def test_an_older_log_can_be_given_its_topic_id(autojump_clock):
    scene = await Scene().start()
    log = await scene.logs.create(T0, ZERO_TOPIC_ID, scene.topic)
    assert log.topic_id is None
    await scene.logs.assign_topic_id(log, TOPIC_ID)
    after = await Scene(scene.disk.crash_process()).start()
    assert after.logs.get(T0).topic_id == TOPIC_ID


# -- stop and start


async def test_a_clean_stop_leaves_checkpoints_and_the_marker(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0)
    scene.append(T0, 5)
    await scene.logs.close()
    assert scene.disk.read_file("/d1/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
    assert scene.checkpoint(RECOVERY_POINT_CHECKPOINT) == {T0: 5}
    again = await Scene(scene.disk).start()
    assert again.logs.get(T0).log_end_offset == 5


async def test_a_clean_stop_closes_every_log(autojump_clock):
    scene = await Scene(directories="/d1").start()
    await scene.create(T0, T1, T2)
    for key in (T0, T1, T2):
        scene.append(key, 5)
    await scene.logs.close()
    for key in (T0, T1, T2):
        assert scene.disk.exists(f"/d1/{key}/00000000000000000005.snapshot")


async def test_a_clean_stop_survives_a_machine_crash(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0)
    scene.append(T0, 5)
    await scene.logs.close()
    for seed in range(10):
        after = await Scene(scene.disk.crash_machine(random.Random(seed))).start()
        assert after.logs.get(T0).log_end_offset == 5


async def test_the_marker_is_gone_for_good_once_logs_are_opened(autojump_clock):
    scene = await Scene().start()
    await scene.logs.close()
    again = await Scene(scene.disk).start()
    for seed in range(10):
        assert not again.disk.crash_machine(random.Random(seed)).exists("/d1/.kafka_cleanshutdown")


async def test_after_a_crash_logs_are_checked_from_their_recovery_point(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0)
    scene.append(T0, 5)
    scene.append(T0, 5)
    after = scene.disk.crash_process()
    log = after.open("/d1/t-0/00000000000000000000.log")
    log.truncate(log.size_bytes() - 1)
    again = await Scene(after).start()
    assert again.logs.get(T0).log_end_offset == 5


async def create_synced(scene):
    """T0 with four batches of two records, and its recovery point 8 in the checkpoint."""
    await scene.create(T0)
    for _ in range(4):
        scene.append(T0, 2)
    await scene.flush(T0)
    await scene.logs.checkpoints.write_everywhere(RECOVERY_POINT_CHECKPOINT)


async def test_a_start_lowers_the_recovery_point_that_a_failed_truncation_left(autojump_clock):
    scene = await Scene(directories="/d1").start()
    await create_synced(scene)
    scene.disk.fail_next("replace_file", path_part=RECOVERY_POINT_CHECKPOINT)
    with pytest.raises(StorageError):
        await scene.logs.truncation.truncate(scene.logs.get(T0), 4, lambda: None)
    assert scene.checkpoint(RECOVERY_POINT_CHECKPOINT) == {T0: 8}
    again = await Scene(scene.disk.crash_process(), directories="/d1").start()
    # Before the first append: it would be below 8, not synced, and trusted after a crash.
    assert again.logs.get(T0).log_end_offset == 4
    assert again.checkpoint(RECOVERY_POINT_CHECKPOINT) == {T0: 4}


@pytest.mark.parametrize("cause", ["EIO", "EMFILE"])
async def test_a_recovery_point_that_cannot_be_lowered_fails_its_directory_or_the_start(autojump_clock, cause):
    scene = await Scene(directories="/d1,/d2").start()
    await create_synced(scene)
    log = scene.logs.get(T0)
    home = log.directory.rpartition("/")[0]
    log.truncate_to(4)
    again = Scene(scene.disk.crash_process(), directories="/d1,/d2")
    again.disk.fail_next("replace_file", cause, path_part=f"{home}/{RECOVERY_POINT_CHECKPOINT}")
    if cause == "EMFILE":
        with pytest.raises(ExceptionGroup):
            await again.start()
    else:
        await again.start()
        assert again.logs.offline_directories.keys() == {home}


async def test_abandoning_is_a_crash(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0)
    scene.append(T0)
    scene.logs.abandon()
    assert not scene.disk.exists("/d1/.kafka_cleanshutdown")
    again = await Scene(scene.disk).start()
    assert again.logs.get(T0).log_end_offset == 1


async def test_logs_are_opened_in_several_threads_if_configured(autojump_clock):
    scene = await Scene(directories="/d1").start()
    await scene.create(*(TopicPartition("t", number) for number in range(8)))
    again = Scene(scene.disk.crash_process(), "/d1", num_recovery_threads_per_data_dir="4")
    await again.start()
    assert (len(list(again.logs)), again.threads_most) == (8, 4)


# -- deletion


async def test_a_deleted_log_is_renamed_now_and_removed_later(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    await scene.logs.delete(T0)
    assert scene.logs.get(T0) is None
    (left,) = (name for name in scene.disk.list("/d1") if name.startswith("t-0"))
    assert left.endswith("-delete")
    await trio.sleep(59)
    assert scene.disk.exists("/d1/" + left)
    await trio.sleep(2)
    assert not scene.disk.exists("/d1/" + left)


async def test_what_an_earlier_run_deleted_is_removed(autojump_clock, nursery):
    scene = await Scene().start()
    await scene.create(T0)
    await scene.logs.delete(T0)
    for seed in range(10):
        assert (await Scene(scene.disk.crash_machine(random.Random(seed))).start()).logs.get(T0) is None
    again = await Scene(scene.disk.crash_process()).start(nursery)
    assert any(name.endswith("-delete") for name in again.disk.list("/d1"))
    await trio.sleep(61)
    assert not any(name.endswith("-delete") for name in again.disk.list("/d1"))


async def test_deleting_waits_for_the_flush_that_runs(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    scene.append(T0)
    scene.flusher.want(scene.logs.get(T0))
    await scene.logs.delete(T0)
    await trio.sleep(1)
    assert scene.failed == []


async def test_a_log_made_again_does_not_inherit_the_checkpoints_of_the_deleted_one(autojump_clock, nursery):
    scene = await Scene(directories="/d1").start(nursery)
    await scene.create(T0)
    scene.append(T0, 100)
    await scene.logs.close()
    again = await Scene(scene.disk, directories="/d1").start()
    known = again.checkpoint(RECOVERY_POINT_CHECKPOINT), again.logs.checkpoints.loaded_high_watermark(T0)
    assert known == ({T0: 100}, 100)
    await again.logs.delete(T0)
    await again.create(T0)
    known = again.checkpoint(RECOVERY_POINT_CHECKPOINT), again.logs.checkpoints.loaded_high_watermark(T0)
    assert known == ({}, 0)


async def test_an_error_of_a_log_that_was_deleted_is_no_failure(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    log = scene.logs.get(T0)
    await scene.logs.delete(T0)
    scene.logs.fail_directory_of(log, StorageError(log.directory, "read", "ENOENT"))
    assert scene.logs.offline_directories == {}


# -- duties


async def test_checkpoints_are_written_in_their_time(autojump_clock, nursery):
    scene = await Scene(directories="/d1").start(nursery)
    await scene.create(T0)
    scene.append(T0, 7)
    await trio.sleep(6)
    assert scene.checkpoint(HIGH_WATERMARK_CHECKPOINT) == {T0: 7}
    await scene.flusher.flush(scene.logs)
    await trio.sleep(MINUTE)
    assert scene.checkpoint(RECOVERY_POINT_CHECKPOINT) == {T0: 7}


async def test_log_starts_are_written_in_their_time(autojump_clock, nursery):
    often, seldom = {"log_flush_start_offset_checkpoint_interval_ms": "1000"}, {}
    found = []
    for properties in (often, seldom):
        scene = await Scene(directories="/d1", **properties).start(nursery)
        await scene.create(T0)
        scene.append(T0, 7)
        scene.logs.get(T0).raise_log_start(5)
        await trio.sleep(5)
        was_written = scene.disk.exists(f"/d1/{LOG_START_CHECKPOINT}")
        found.append(scene.checkpoint(LOG_START_CHECKPOINT) if was_written else {})
    assert found == [{T0: 5}, {}]


async def test_an_idle_broker_writes_nothing(autojump_clock, nursery):
    scene = await Scene(directories="/d1").start(nursery)
    await scene.create(T0)
    scene.append(T0)
    await trio.sleep(2 * MINUTE)
    files = [f"/d1/{name}" for name in scene.disk.list("/d1") if not scene.disk.is_directory(f"/d1/{name}")]
    before = [scene.disk.modified_ms(path) for path in files]
    await trio.sleep(10 * MINUTE)
    assert [scene.disk.modified_ms(path) for path in files] == before


async def test_the_high_watermark_of_a_partition_that_is_not_hosted_yet_is_kept(autojump_clock, nursery):
    scene = await Scene(directories="/d1").start(nursery)
    await scene.create(T0, T1)
    scene.append(T0, 7)
    scene.append(T1, 3)
    await trio.sleep(6)
    again = await Scene(scene.disk.crash_process(), directories="/d1").start(nursery)
    assert again.logs.checkpoints.loaded_high_watermark(T0) == 7
    again.high_watermarks = {T1: 4}
    await trio.sleep(6)
    assert again.checkpoint(HIGH_WATERMARK_CHECKPOINT) == {T0: 7, T1: 4}


async def test_a_raised_log_start_can_be_made_to_last(autojump_clock):
    scene = await Scene(directories="/d1").start()
    await scene.create(T0)
    scene.append(T0)
    scene.append(T0)
    scene.logs.get(T0).raise_log_start(1)
    await scene.logs.checkpoints.write_log_starts(scene.logs.directory_of(scene.logs.get(T0)))
    await scene.flush(T0)
    await scene.logs.checkpoints.write_all_of(scene.logs.get(T0))
    assert scene.checkpoint(RECOVERY_POINT_CHECKPOINT) == {T0: 2}
    again = await Scene(scene.disk.crash_process(), directories="/d1").start()
    assert again.logs.get(T0).log_start_offset == 1


async def test_old_segments_are_deleted_and_their_files_removed(autojump_clock, nursery):
    scene = await Scene(directories="/d1", log_retention_ms="60000").start(nursery)
    await scene.create(T0)
    scene.append(T0, 5)
    await trio.sleep(6 * MINUTE)
    assert scene.logs.get(T0).log_start_offset == 5
    assert any(name.endswith(".deleted") for name in scene.disk.list("/d1/t-0"))
    await trio.sleep(1 * MINUTE)
    assert not any(name.endswith(".deleted") for name in scene.disk.list("/d1/t-0"))


async def test_deleted_segments_are_removed_though_the_wall_clock_was_set_back(autojump_clock, nursery):
    scene = await Scene(directories="/d1", log_retention_ms="60000").start(nursery)
    await scene.create(T0)
    scene.append(T0, 5)
    await trio.sleep(6 * MINUTE)
    scene.skew_ms = -90_000
    await trio.sleep(1 * MINUTE)
    assert any(name.endswith(".deleted") for name in scene.disk.list("/d1/t-0"))
    await trio.sleep(2 * MINUTE)
    assert not any(name.endswith(".deleted") for name in scene.disk.list("/d1/t-0"))


async def test_a_segment_that_cannot_be_removed_takes_its_directory_offline(autojump_clock, nursery):
    scene = await Scene(log_retention_ms="60000").start(nursery)
    await scene.create(T0)
    scene.append(T0, 5)
    scene.disk.fail_next("remove", path_part=".deleted")
    await trio.sleep(7 * MINUTE)
    assert [path for path, _ in scene.failed] == ["/d1"]


async def test_nothing_is_deleted_of_a_partition_that_is_not_hosted(autojump_clock, nursery):
    scene = await Scene(directories="/d1", log_retention_ms="60000").start(nursery)
    await scene.create(T0)
    scene.append(T0, 5)
    scene.high_watermarks.clear()
    await trio.sleep(6 * MINUTE)
    assert scene.logs.get(T0).log_start_offset == 0


async def test_flush_ms_acts_where_the_scheduler_looks(autojump_clock, nursery):
    properties = {"log_flush_scheduler_interval_ms": "1000", "log_flush_interval_ms": "10000"}
    scene = await Scene(directories="/d1", **properties).start(nursery)
    await scene.create(T0)
    scene.append(T0)
    await trio.sleep(9)
    assert scene.logs.get(T0).recovery_point == 0
    await trio.sleep(4)
    assert scene.logs.get(T0).recovery_point == 1


async def test_flush_ms_counts_from_the_last_flush(autojump_clock, nursery):
    properties = {"log_flush_scheduler_interval_ms": "1000", "log_flush_interval_ms": "10000"}
    scene = await Scene(directories="/d1", **properties).start(nursery)
    await scene.create(T0)
    for _ in range(100):
        scene.append(T0)
        await trio.sleep(1)
    assert 7 <= len(scene.flushed) <= 10


async def test_flush_ms_alone_does_nothing_as_in_kafka(autojump_clock, nursery):
    scene = await Scene(directories="/d1", log_flush_interval_ms="10000").start(nursery)
    await scene.create(T0)
    scene.append(T0)
    await trio.sleep(10 * MINUTE)
    assert scene.logs.get(T0).recovery_point == 0


@pytest.mark.thorough
async def test_silent_producers_are_forgotten(autojump_clock, nursery):
    scene = await Scene(directories="/d1").start(nursery)
    await scene.create(T0)
    batch = build_batch([(None, b"v")], timestamp_ms=now_ms(), producer_id=5, producer_epoch=0, base_sequence=0)
    log = scene.logs.get(T0)
    log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT, now_ms=now_ms())
    await trio.sleep(23 * 60 * MINUTE)
    assert len(log.producers) == 1
    await trio.sleep(2 * 60 * MINUTE)
    assert len(log.producers) == 0


@pytest.mark.thorough
async def test_the_producers_of_one_log_are_looked_at_a_portion_at_a_time(autojump_clock, nursery, monkeypatch):
    scene = await Scene(directories="/d1").start(nursery)
    await scene.create(T0)
    log, portions = scene.logs.get(T0), []
    for producer_id in range(2 * PRODUCERS_AT_A_TIME + 1):
        batch = build_batch(
            [(None, b"v")], timestamp_ms=now_ms(), producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT, now_ms=now_ms())
    expire = ProducerStates.expire

    def noted(states, now, expiration_ms, ids):
        portions.append(len(ids))
        return expire(states, now, expiration_ms, ids)

    monkeypatch.setattr(ProducerStates, "expire", noted)
    await trio.sleep(25 * 60 * MINUTE)
    assert len(log.producers) == 0
    assert portions[:3] == [PRODUCERS_AT_A_TIME, PRODUCERS_AT_A_TIME, 1]


async def test_a_copy_does_not_replace_a_log_whose_directory_fails_at_the_start(autojump_clock):
    scene = await Scene().start()
    first, second = scene.logs.directories
    scene.logs.placement.request(T1, first)
    await scene.create(T0, T1)
    scene.append(T0, 3)
    await scene.logs.futures.create(scene.logs.get(T0), second)  # an empty copy
    await scene.logs.close()
    # A swap of t-1 was interrupted, and the start cannot complete it: /d1, which has the records of t-0, fails.
    scene.disk.rename("/d1/t-1", f"/d1/{future_name(T1, bytes(16))}")
    scene.disk.make_directory(f"/d2/{deleted_name(T1, bytes(16))}")
    scene.disk.fail_next("rename", path_part="/d1/t-1")
    again = Scene(scene.disk)
    again.topic_ids = {"t": TOPIC_ID}
    await again.start()
    assert list(again.logs.offline_directories) == ["/d1"]
    assert again.logs.get(T0) is None


async def test_what_was_flushed_survives_a_machine_crash(autojump_clock, nursery):
    scene = await Scene(directories="/d1", log_segment_bytes="1000").start(nursery)
    await scene.create(T0)
    for _ in range(30):
        scene.append(T0, value=bytes(200))  # over several segments
    await scene.flusher.flush(scene.logs)
    scene.append(T0)
    for seed in range(20):
        after = await Scene(scene.disk.crash_machine(random.Random(seed)), directories="/d1").start()
        assert after.logs.get(T0).log_end_offset in (30, 31)
