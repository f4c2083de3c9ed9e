"""Log directories that fail: what is given up, what goes on, and what the next start finds."""

import pytest
import trio

from barnabas.broker.logs import AllDirectoriesOffline
from barnabas.storage.checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.disk import StorageError
from barnabas.storage.memdisk import MemDisk
from tests.broker.test_logs import MINUTE, T0, T1, T2, TOPIC_ID, Scene


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
    assert caught.group_contains(AllDirectoriesOffline, match=r"/d1 \(write /d1/t-0: EIO\)")


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
