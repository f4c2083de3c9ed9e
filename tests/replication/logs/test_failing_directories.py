"""Log directories that fail: what is given up, what goes on, and what the next start finds."""

import random

import pytest
import trio

from barnabas.replication.logs.directory import deleted_name, future_name
from barnabas.replication.logs.partition_logs import AllDirectoriesOffline
from barnabas.storage.checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.disk import StorageError
from barnabas.storage.memdisk import MemDisk
from tests.replication.logs.logs_scene import MINUTE, T0, T1, T2, TOPIC_ID, Scene


async def test_a_failed_directory_is_given_up_and_the_others_go_on(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0, T1)
    error = StorageError("/d1/t-0", "write", "EIO")
    scene.logs.fail_directory_of(scene.logs.get(T0), error)
    assert (scene.logs.get(T0), scene.failed) == (None, [("/d1", error)])
    assert (scene.logs.offline_directories, scene.logs.online_directories) == ({"/d1": error}, ["/d2"])
    scene.append(T1)
    await scene.create(T2)
    assert scene.directory_of(T2) == "/d2"
    scene.disk.lock("/d1/.lock")


async def test_a_directory_fails_once(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    log = scene.logs.get(T0)
    for _ in range(2):
        scene.logs.fail_directory_of(log, StorageError("/d1", "write", "EIO"))
    assert len(scene.failed) == 1


async def test_a_directory_that_fails_in_several_threads_fails_once(autojump_clock, nursery, caplog):
    scene = await Scene(num_recovery_threads_per_data_dir="2").start(nursery)
    await scene.create(T0, T1, T2)
    for key in (T0, T2):
        scene.append(key)
        scene.disk.fail_next("sync", path_part=f"/d1/{key}")
    await scene.logs.close()
    assert [record.getMessage()[:28] for record in caplog.records] == ["log directory /d1 is offline"]


async def test_what_was_to_be_flushed_in_a_failed_directory_is_forgotten(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    log = scene.logs.get(T0)
    scene.append(T0)
    scene.flusher.want(log)
    scene.logs.fail_directory_of(log, StorageError("/d1", "write", "EIO"))
    await trio.sleep(1)
    assert (scene.flushed, log.recovery_point) == ([], 0)


async def test_what_may_lie_in_an_offline_directory_is_neither_made_nor_deleted(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    scene.logs.fail_directory_of(scene.logs.get(T0), StorageError("/d1", "write", "EIO"))
    with pytest.raises(StorageError):
        await scene.logs.create(T0, TOPIC_ID, scene.topic, is_new=False)
    with pytest.raises(StorageError):
        await scene.logs.delete(T0)
    await scene.logs.create(T0, TOPIC_ID, scene.topic, is_new=True)


async def test_a_failing_directory_passes_a_new_log_on_to_the_next(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    scene.disk.fail_next("open", path_part="/d1/t-0")
    await scene.create(T0)
    assert scene.directory_of(T0) == "/d2"
    assert list(scene.logs.offline_directories) == ["/d1"]


@pytest.mark.parametrize("operation", ["make_directory", "open", "sync_directory", "replace_file"])
@pytest.mark.parametrize("cause", ["ENOSPC", "EMFILE"])
async def test_a_log_that_was_passed_on_is_found_once_at_the_next_start(operation, cause, autojump_clock, nursery):
    scene = await Scene().start(nursery)
    scene.disk.fail_next(operation, cause, path_part="/d1/t-0")
    await scene.create(T0)
    scene.append(T0)
    again = await Scene(scene.disk.crash_process()).start()
    assert again.logs.get(T0).log_end_offset == 1
    assert again.directory_of(T0) == scene.directory_of(T0)


async def test_a_half_made_log_that_cannot_be_removed_is_made_nowhere_else(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    scene.disk.fail_next("open", "ENOSPC", path_part="/d1/t-0")
    scene.disk.fail_next("remove_tree", path_part="/d1/t-0")
    with pytest.raises(StorageError):
        await scene.create(T0)
    assert not scene.disk.exists("/d2/t-0")
    await Scene(scene.disk.crash_process()).start()


async def test_a_shortage_of_descriptors_fails_what_needed_one_and_no_directory(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    for _ in range(2):  # each of the directories refuses
        scene.disk.fail_next("open", "EMFILE", path_part="t-0")
    with pytest.raises(StorageError):
        await scene.create(T0)
    assert scene.logs.offline_directories == {}
    await scene.create(T0)
    scene.append(T0)
    scene.disk.fail_next("sync_directory", "EMFILE")
    scene.flusher.want(scene.logs.get(T0))
    await trio.sleep(1)
    assert scene.logs.get(T0).recovery_point == 1
    assert scene.failed == []


async def test_a_failed_flush_takes_its_directory_offline(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    scene.append(T0)
    scene.disk.fail_next("sync")
    scene.flusher.want(scene.logs.get(T0))
    await trio.sleep(1)
    assert [path for path, _ in scene.failed] == ["/d1"]


async def test_a_failed_checkpoint_takes_its_directory_offline(autojump_clock, nursery):
    scene = await Scene().start(nursery)
    await scene.create(T0)
    scene.disk.fail_next("replace_file", "ENOSPC", path_part=RECOVERY_POINT_CHECKPOINT)
    await trio.sleep(2 * MINUTE)
    assert [path for path, _ in scene.failed] == ["/d1"]


async def test_the_last_failure_ends_the_broker(autojump_clock):
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            scene = await Scene().start(nursery)
            await scene.create(T0, T1)
            for key in (T0, T1):
                log = scene.logs.get(key)
                scene.logs.fail_directory_of(log, StorageError(log.directory, "write", "EIO"))
    assert caught.group_contains(AllDirectoriesOffline, match=r"/d1 \(/d1/t-0: EIO \(write\)\)")


async def test_a_directory_that_cannot_be_opened_is_offline_from_the_start(autojump_clock):
    disk = MemDisk()
    disk.fail_next("make_directory", "EROFS", path_part="/d1")
    scene = await Scene(disk).start()
    assert scene.logs.online_directories == ["/d2"]


async def test_without_any_directory_there_is_no_start(autojump_clock):
    disk = MemDisk()
    disk.fail_next("make_directory", "EROFS", path_part="/d1")
    with pytest.raises(AllDirectoriesOffline, match="EROFS"):
        await Scene(disk, "/d1").logs.open()


async def test_a_log_that_cannot_be_read_takes_only_its_directory_offline(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0, T1)
    after = scene.disk.crash_process()
    after.fail_next("read", path_part="/d1/t-0")
    after.fail_next("open", path_part="/d1/t-0")
    again = await Scene(after).start()
    assert (again.logs.get(T0), again.logs.online_directories) == (None, ["/d2"])
    assert again.logs.get(T1) is not None


async def test_when_all_directories_fail_while_they_are_loaded_there_is_no_start(autojump_clock):
    scene = await Scene(directories="/d1").start()
    scene.disk.replace_file("/d1/" + RECOVERY_POINT_CHECKPOINT, b"nonsense\n")
    with pytest.raises(AllDirectoriesOffline, match="'nonsense' is not a number"):
        await Scene(scene.disk.crash_process(), directories="/d1").start()


async def test_a_damaged_checkpoint_takes_its_directory_offline(autojump_clock):
    scene = await Scene().start()
    scene.disk.replace_file("/d2/" + RECOVERY_POINT_CHECKPOINT, b"nonsense\n")
    again = await Scene(scene.disk.crash_process()).start()
    assert list(again.logs.offline_directories) == ["/d2"]


async def test_a_stop_that_fails_leaves_no_marker(autojump_clock):
    scene = await Scene().start()
    await scene.create(T0, T1)
    scene.append(T0)
    scene.disk.fail_next("sync", path_part="/d1/t-0")
    await scene.logs.close()
    assert not scene.disk.exists("/d1/.kafka_cleanshutdown")
    assert scene.disk.exists("/d2/.kafka_cleanshutdown")
    again = await Scene(scene.disk).start()
    assert again.logs.get(T0).log_end_offset == 1


# -- a shortage of descriptors or memory


async def stopped_with_shortages(count: int) -> Scene:
    """Three logs in a directory, closed while so many openings of an index find no descriptor."""
    scene = await Scene(directories="/d1").start()
    await scene.create(T0, T1, T2)
    for key in (T0, T1, T2):
        scene.append(key)
    for _ in range(count):
        scene.disk.fail_next("open", "EMFILE", path_part=".timeindex")
    await scene.logs.close()
    return scene


async def test_logs_that_find_no_descriptor_at_a_stop_are_closed_a_little_later(autojump_clock):
    scene = await stopped_with_shortages(4)
    assert scene.disk.exists("/d1/.kafka_cleanshutdown")
    for key in (T0, T1, T2):
        assert scene.disk.exists(f"/d1/{key}/00000000000000000001.snapshot")


async def test_there_is_no_clean_marker_if_a_log_could_not_be_closed(autojump_clock):
    scene = await stopped_with_shortages(1000)
    assert not scene.disk.exists("/d1/.kafka_cleanshutdown")
    scene.disk.forget_faults()
    again = await Scene(scene.disk, "/d1").start()
    assert [again.logs.get(key).log_end_offset for key in (T0, T1, T2)] == [1, 1, 1]


async def test_a_log_that_cannot_be_closed_does_not_keep_others_from_it(autojump_clock):
    scene = await Scene(directories="/d1").start()
    await scene.create(T0, T1, T2)
    for _ in range(1000):
        scene.disk.fail_next("open", "EMFILE", path_part="t-0/")
    await scene.logs.close()
    assert scene.checkpoint(RECOVERY_POINT_CHECKPOINT).keys() == {T0, T1, T2}
    for key, is_closed in ((T0, False), (T1, True), (T2, True)):
        assert scene.disk.exists(f"/d1/{key}/00000000000000000000.index") is is_closed


@pytest.mark.parametrize(
    ("operation", "path_part"),
    [
        ("lock", ""),
        ("read_file", "meta.properties"),
        ("list", "/d1"),
        ("read_file", RECOVERY_POINT_CHECKPOINT),
        ("sync_directory", "/d1"),
        ("open", "t-0"),
    ],
)
async def test_a_start_that_lacks_a_descriptor_fails_rather_than_skip_what_is_there(
    operation, path_part, autojump_clock
):
    scene = await Scene(directories="/d1").start()
    await scene.create(T0)
    await scene.logs.close()
    scene.disk.fail_next(operation, "EMFILE", path_part=path_part)
    with pytest.raises((StorageError, ExceptionGroup)) as caught:
        await Scene(scene.disk, "/d1").start()
    assert "EMFILE" in repr(caught.value)
    assert (await Scene(scene.disk, "/d1").start()).logs.get(T0) is not None


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
async def test_a_start_that_cannot_finish_a_move_fails_and_the_next_one_finishes_it(operation, autojump_clock):
    scene = await Scene(directories="/d1").start()
    await scene.create(T0)
    scene.append(T0)
    await scene.logs.close()
    scene.disk.rename("/d1/t-0", f"/d1/{future_name(T0, bytes(16))}")
    scene.disk.make_directory(f"/d1/{deleted_name(T0, bytes(16))}")  # by its swap
    scene.disk.fail_next(operation, "ENOMEM", path_part="/d1")
    with pytest.raises((StorageError, ExceptionGroup)) as caught:
        await Scene(scene.disk, "/d1").start()
    assert "ENOMEM" in repr(caught.value)
    assert (await Scene(scene.disk, "/d1").start()).logs.get(T0).log_end_offset > 0


async def test_a_deletion_that_lacks_a_descriptor_is_carried_out_a_little_later(autojump_clock, nursery):
    scene = await Scene(directories="/d1").start(nursery)
    await scene.create(T0)
    scene.disk.fail_next("rename", "ENOMEM", path_part="t-0")
    scene.disk.fail_next("sync_directory", "EMFILE", path_part="/d1")
    scene.disk.fail_next("remove_tree", "EMFILE", path_part="-delete")
    await scene.logs.delete(T0)
    assert not scene.disk.exists("/d1/t-0")
    await trio.sleep(2 * MINUTE)
    assert not [name for name in scene.disk.list("/d1") if name.endswith("-delete")]


# -- a full disk


async def test_after_a_full_disk_the_start_rewrites_nothing(autojump_clock, nursery):
    scene = await Scene(MemDisk(capacity_bytes=300_000), "/d1").start()
    await scene.create(T0)
    with pytest.raises(StorageError, match="ENOSPC") as full:
        for _ in range(4):
            scene.append(T0, value=bytes(90_000))
    scene.logs.fail_directory_of(scene.logs.get(T0), full.value)
    scene.disk.capacity_bytes += 2_000
    again = await Scene(scene.disk.crash_process(), "/d1").start(nursery)
    assert again.logs.get(T0).log_end_offset == 3
    again.append(T0)


@pytest.mark.parametrize(("operation", "cause"), [("sync", "EIO"), ("sync", "ENOSPC"), ("read", "EIO")])
async def test_a_failed_sync_or_device_leaves_a_mark(operation, cause, autojump_clock):
    scene = await Scene(directories="/d1").start()
    await scene.create(T0)
    scene.logs.fail_directory_of(scene.logs.get(T0), StorageError("/d1/t-0", operation, cause))
    assert scene.disk.exists("/d1/.failed")


async def test_a_start_that_has_no_room_to_rewrite_files_leaves_nothing_behind(autojump_clock, nursery):
    scene = await Scene(MemDisk(capacity_bytes=300_000), "/d1").start()
    await scene.create(T0)
    scene.append(T0, value=bytes(200_000))
    scene.logs.fail_directory_of(scene.logs.get(T0), StorageError("/d1/t-0", "sync", "EIO"))
    after = scene.disk.crash_process()
    used_bytes = after.used_bytes
    with pytest.raises(AllDirectoriesOffline, match="ENOSPC"):
        await Scene(after, "/d1").start()
    assert (after.used_bytes, after.exists("/d1/.failed")) == (used_bytes, True)
    after.capacity_bytes = 600_000
    assert (await Scene(after, "/d1").start(nursery)).logs.get(T0).log_end_offset == 1


async def test_a_sync_that_fails_after_its_directory_did_leaves_a_mark(autojump_clock, nursery):
    scene = await Scene(directories="/d1,/d2").start(nursery)
    await scene.create(T0)
    scene.append(T0)
    log = scene.logs.get(T0)
    scene.disk.fail_next("sync")
    scene.flusher.want(log)
    await trio.sleep(0.0005)  # the sync is under way
    scene.logs.fail_directory_of(log, StorageError("/d1/t-0", "write", "ENOSPC"))
    assert not scene.disk.exists("/d1/.failed")
    await trio.sleep(1)
    assert scene.disk.exists("/d1/.failed")


async def test_a_flush_that_lacks_a_descriptor_in_a_failed_directory_is_not_repeated(autojump_clock, nursery):
    scene = await Scene(directories="/d1,/d2").start(nursery)
    await scene.create(T0)
    scene.append(T0)
    log = scene.logs.get(T0)
    scene.disk.fail_next("replace_file", "EMFILE", path_part="leader-epoch-checkpoint")
    scene.flusher.want(log)
    await trio.sleep(0.0005)  # the flush is under way
    scene.logs.fail_directory_of(log, StorageError("/d1/t-0", "write", "EIO"))
    await trio.sleep(1)
    assert (scene.flushed, log.recovery_point) == ([], 0)


async def test_a_directory_whose_name_could_not_be_synced_is_made_again(autojump_clock):
    disk = MemDisk()
    disk.fail_next("sync_directory", path_part="/")
    with pytest.raises(AllDirectoriesOffline):
        await Scene(disk, "/d1").start()
    scene = await Scene(disk, "/d1").start()
    await scene.create(T0)
    scene.append(T0)
    await scene.flush(T0)
    for seed in range(8):
        assert disk.crash_machine(random.Random(seed)).exists("/d1/t-0/00000000000000000000.log")


async def test_a_sync_that_fails_before_its_log_is_cut_takes_the_directory_offline(autojump_clock, nursery):
    scene = await Scene(directories="/d1,/d2").start(nursery)
    await scene.create(T0)
    for _ in range(2):
        scene.append(T0)
        scene.logs.get(T0).roll(0)
    scene.append(T0)
    scene.disk.fail_next("sync", path_part="t-0/00000000000000000000.log")
    scene.flusher.want(scene.logs.get(T0))
    await trio.sleep(0.0005)  # the flush is under way
    with pytest.raises(StorageError):
        await scene.logs.truncation.truncate(scene.logs.get(T0), 2, lambda: None)
        await scene.flusher.flush([scene.logs.get(T0)])
    assert [path for path, _ in scene.failed] == ["/d1"]
    assert scene.disk.exists("/d1/.failed")


async def test_a_log_that_is_cut_while_its_directory_fails_keeps_no_file_open(autojump_clock, nursery):
    scene = await Scene(directories="/d1,/d2").start(nursery)
    await scene.create(T0)
    log = scene.logs.get(T0)
    for _ in range(2):
        scene.append(T0)
        log.roll(0)
    scene.append(T0)

    async def cut() -> None:
        with pytest.raises(StorageError):
            await scene.logs.truncation.truncate(log, 1, lambda: None)

    async with trio.open_nursery() as cutting:
        cutting.start_soon(cut)
        await trio.testing.wait_all_tasks_blocked()  # the cut, which opens a file, is in its thread
        scene.logs.fail_directory_of(log, StorageError("/d1/t-0", "write", "EIO"))
        assert scene.disk.open_count == 0
    assert scene.disk.open_count == 0
