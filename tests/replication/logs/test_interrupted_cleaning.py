"""Compaction in the running broker, and everybody who interrupts it."""

import logging

import pytest
import trio

from barnabas.replication.logs import cleaner_schedule
from barnabas.storage.disk import StorageError
from barnabas.world import pacing
from tests.replication.logs.cleaner_scene import BACKOFF, T0, T1, Scene, a_pass


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
    async with scene.logs.gate.truncating(log):
        assert scene.leftovers(log.directory) == []
        assert not log.is_being_cleaned
        before = scene.offsets()
        await trio.sleep(200)
        assert scene.offsets() == before
        assert scene.checkpoint() == {}
    await trio.sleep(1000)
    assert scene.offsets() == [57, 58, 59]


async def test_a_truncation_ends_a_pass_and_the_next_one_cleans_what_is_left(autojump_clock, nursery):
    scene = await slow().start(nursery, T0)
    scene.fill(count=60)
    await a_pass()
    log = scene.logs.get(T0)
    async with scene.logs.gate.truncating(log):
        await scene.in_thread(log.truncate_to, 30)
        scene.high_watermarks[T0] = 30
    await trio.sleep(1000)
    assert log.log_end_offset == 30
    assert scene.offsets()[-3:] == [27, 28, 29]


async def test_a_pass_ends_when_the_topic_is_no_longer_compacted(autojump_clock, nursery):
    scene = slow()
    scene.configure(cleanup_policy="delete")
    await scene.start(nursery, T0)
    for number in range(60):
        scene.put(T0, (None, b"v%d" % number))  # a record without a key goes in a pass
    scene.seal(T0)
    scene.configure(cleanup_policy="compact")
    await a_pass()
    assert scene.logs.get(T0).is_being_cleaned
    scene.configure(cleanup_policy="delete")
    before = scene.offsets()
    await trio.sleep(1000)
    assert scene.offsets() == before
    assert before[-50:] == list(range(10, 60))
    assert not scene.logs.get(T0).is_being_cleaned


async def test_a_log_is_not_compacted_while_it_is_copied_to_another_directory(autojump_clock, nursery):
    scene = await slow(log_cleaner_backoff_ms="1000").start(nursery, T0)
    scene.fill(count=60)
    await a_pass()
    log = scene.logs.get(T0)
    assert log.is_being_cleaned
    future = await scene.logs.futures.create(log, scene.logs.directory_of(log))
    await trio.sleep(1)
    before = scene.offsets()
    assert not log.is_being_cleaned
    await trio.sleep(1000)
    assert (scene.offsets(), future.copied_from) == (before, log)
    await scene.logs.futures.delete(T0)
    await trio.sleep(1000)
    assert scene.offsets() == [57, 58, 59]


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

    monkeypatch.setattr(pacing, "ROWS_AT_A_TIME", 1)
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
