"""Shards of a coordinator whose state is a dict: the value of each key, as the log says it."""

import random

import pytest
import trio
import trio.testing

from barnabas.config.live import BrokerConfig
from barnabas.coordinators.runtime.loading import Loading
from barnabas.coordinators.runtime.runtime import Outcome, Write
from barnabas.coordinators.runtime.watch import HighWatermarks
from barnabas.replication.partition import Partition, Role
from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_sift import empty_batch
from barnabas.wire.records import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    CorruptRecords,
    build_batch,
    build_control_batch,
)
from tests.coordinators.runtime.conftest import PRODUCER, Letters, Post, led_before


async def state_of(post):
    await trio.sleep(1)
    return post.shards.find(0).state


async def test_an_empty_log_is_served_at_once(post, autojump_clock):
    post.lead()
    assert post.happened == [("serves", 0)]
    assert post.write(b"k", b"1") == Outcome(b"1", after_offset=0)
    assert post.shards.find(0).state == {b"k": b"1"}


async def test_what_was_stored_is_loaded_slice_by_slice_by_the_next_leader(make_post, post, autojump_clock):
    post.lead()
    for number in range(20):
        post.write(b"%d" % (number % 3), b"%d" % number)
    after = make_post(post.disk.crash_process())
    after.lead(epoch=2)
    assert after.shards.find(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await state_of(after) == {b"0": b"18", b"1": b"19", b"2": b"17"}
    assert after.happened == [("loaded", 0), ("serves", 0)]
    assert after.loaders[0].replayed == 3  # the last record of each key


async def test_transactions_in_the_log_keep_their_order(post, autojump_clock):
    led_before(post)
    post.append((b"a", b"1"), attributes=TRANSACTIONAL, base_sequence=0, **PRODUCER)
    post.append((b"b", b"1"))
    post.append(marker=COMMIT, **PRODUCER)
    post.append((b"a", b"2"), attributes=TRANSACTIONAL, base_sequence=1, **PRODUCER)
    post.append(marker=ABORT, **PRODUCER)
    post.append((b"a", b"3"), attributes=TRANSACTIONAL, base_sequence=2, **PRODUCER)
    post.append(marker=5, **PRODUCER)  # ends nothing
    post.lead()
    assert await state_of(post) == {b"a": b"1", b"b": b"1"}
    assert post.loaders[0].open == {b"a": b"3"}


def test_a_marker_that_compaction_has_emptied_ends_nothing():
    opened = build_batch([(b"a", b"1")], timestamp_ms=0, attributes=TRANSACTIONAL, base_sequence=0, **PRODUCER)
    marker = build_control_batch(COMMIT, coordinator_epoch=0, timestamp_ms=0, base_offset=1, **PRODUCER)
    loader = Letters()
    loading = Loading(loader)
    emptied = empty_batch(marker.header)
    assert loading.load_batches(bytes(opened.data) + bytes(emptied)) == 2
    assert (loading.finish(), loader.open) == ({}, {b"a": b"1"})


async def test_a_loader_may_need_every_record(post, autojump_clock, monkeypatch):
    led_before(post)
    for number in range(5):
        post.append((b"k", b"%d" % number))
    monkeypatch.setattr(Letters, "needs_all_records", True)
    post.lead()
    assert await state_of(post) == {b"k": b"4"}
    assert post.loaders[0].replayed == 5


@pytest.mark.parametrize("failure", ["disk", "checksum"])
async def test_of_a_log_that_cannot_be_read_to_its_end_nothing_is_served(post, autojump_clock, failure):
    led_before(post)
    for number in range(20):
        post.append((b"%d" % number, b"?"))
    in_thread, slices = post.world.in_thread, 0

    async def failing(function, *args):
        nonlocal slices
        slices += 1
        if slices == 2 and failure == "disk":
            post.disk.fail_next("read", "EIO")
        elif slices == 2:
            raise CorruptRecords("the checksum is wrong")
        return await in_thread(function, *args)

    post.world.in_thread = failing
    post.lead()
    await trio.sleep(1)
    refusal = ErrorCode.NOT_COORDINATOR if failure == "disk" else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert post.shards.find(0) is refusal
    assert ("serves", 0) not in post.happened
    if failure == "checksum":
        post.lead(epoch=2)  # tried again
        assert len(await state_of(post)) == 20


@pytest.mark.parametrize(("operation", "cause"), [("open", "EMFILE"), ("read", "ENOMEM")])
async def test_a_log_that_a_shortage_kept_from_being_read_is_read_again(
    make_post, post, autojump_clock, operation, cause
):
    post.config = BrokerConfig({"log.segment.bytes": "300"})
    post.lead()
    for number in range(20):
        post.write(b"%d" % number, b"?")
    after = make_post(post.disk.crash_process())
    after.lead(epoch=2)
    after.disk.fail_next(operation, cause)
    await trio.sleep(0.5)
    assert after.shards.find(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(await state_of(after)) == 20


async def test_a_shard_that_a_request_asks_for_is_loaded_first(post, autojump_clock):
    for index in range(5):
        partition = post.open(index)
        partition.become(partition.log, Role(0, 1, 1, 1, [0], [0], 0, False))
        partition.append_as_leader(build_batch([(b"k", b"1")], timestamp_ms=0), Origin.COORDINATOR)
        post.lead(index)
    post.shards.find(3)
    await trio.sleep(1)
    assert [index for what, index in post.happened if what == "serves"] == [3, 0, 1, 2, 4]


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_load_ends_with_the_leadership_for_which_it_began(post, autojump_clock, comes_back):
    led_before(post)
    post.append((b"k", b"1"))
    post.lead()
    await trio.testing.wait_all_tasks_blocked()
    log = post.partitions[0].log
    post.resign()
    if comes_back:
        post.partitions[0].log = log
        post.lead(epoch=2)
    await trio.sleep(1)
    assert post.happened == [("NOT_COORDINATOR", 0), *([("loaded", 0), ("serves", 0)] if comes_back else [])]


async def test_a_load_that_is_cancelled_holds_no_file(autojump_clock, monkeypatch):
    post = led_before(Post())
    post.append((b"k", b"1"))
    slices = []
    read = Partition.read

    def kept(*args, **kwargs):  # as by a traceback
        slices.append(read(*args, **kwargs))
        return slices[-1]

    async def begins_never(*_):
        await trio.sleep_forever()

    monkeypatch.setattr(Partition, "read", kept)
    post.world.in_thread = begins_never
    post.lead()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(post.shards.load)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert slices[0].slice is not None
    post.partitions[0].log.close(0)
    assert post.disk.open_count == 0


async def test_news_of_an_older_epoch_is_ignored_until_the_topic_is_made_again(post, autojump_clock):
    post.lead(epoch=5)
    post.shards.on_resigned(0, 4)
    assert post.shards.find(0).index == 0
    post.resign(epoch=6)
    post.partitions.clear()
    post.lead(epoch=5)
    assert post.shards.find(0) is ErrorCode.NOT_COORDINATOR
    post.shards.on_deleted(0)
    post.lead(epoch=5)
    assert post.shards.find(0).index == 0


async def test_a_step_that_raises_is_followed_by_a_load(post, autojump_clock):
    post.lead()
    post.write(b"k", b"1")
    shard = post.shards.find(0)

    def raises(shard, made):
        shard.state[b"k"] = b"half a change"
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        post.shards.step(shard, raises)
    assert not post.shards.still_leads(shard)
    assert post.shards.find(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await state_of(post) == {b"k": b"1"}


async def test_what_is_not_appended_is_not_replayed(post, autojump_clock):
    post.lead()
    shard = post.shards.find(0)
    unwritable = Write(ErrorCode.UNKNOWN_SERVER_ERROR, None, "an answer")
    assert post.shards.step(shard, lambda *_: unwritable) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert post.write(b"k", random.Random(0).randbytes(2_000_000)) is ErrorCode.MESSAGE_TOO_LARGE
    post.disk.fail_next("write", "EIO")
    assert post.write(b"k", b"1") is ErrorCode.KAFKA_STORAGE_ERROR
    assert shard.state == {}
    assert post.happened[1:] == [("NOT_COORDINATOR", 0)]


async def test_answers_wait_until_their_record_is_committed(post, nursery, autojump_clock):
    outcomes = []

    async def wait(method, timeout_ms):
        outcomes.append(await method(shard, 0, timeout_ms))

    post.lead(replicas=(0, 1))
    post.write(b"k", b"1")
    shard = post.shards.find(0)
    assert not shard.is_committed(0)
    await wait(post.shards.await_committed, 100)
    await wait(post.shards.await_readable, 100)
    assert outcomes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    nursery.start_soon(wait, post.shards.await_readable, 60_000)
    await trio.sleep(30)
    post.lead(epoch=2, replicas=(0, 1))  # a new epoch of the same leader
    post.replicate()
    await trio.testing.wait_all_tasks_blocked()
    assert outcomes[2:] == [ErrorCode.NONE]
    post.write(b"k", b"2")
    with trio.fail_after(1):
        async with trio.open_nursery() as waiting:
            waiting.start_soon(post.shards.await_readable, shard, 1, 60_000)
            await trio.testing.wait_all_tasks_blocked()
            post.resign(epoch=2)


async def test_a_task_is_woken_when_a_high_watermark_moves_and_not_before(post, nursery, autojump_clock):
    watched, woken = HighWatermarks(), []

    async def note():
        while True:
            woken.append([(shard.index, shard.partition.high_watermark) for shard in await watched.moved()])

    for index in (0, 1, 2):
        post.lead(index, replicas=(0, 1))
        watched.watch(post.shards.find(index))
    watched.leave(post.shards.find(2))
    nursery.start_soon(note)
    await trio.testing.wait_all_tasks_blocked()
    assert woken == [[(0, 0), (1, 0)]]  # whatever their logs have
    for index in (0, 1, 2):
        post.write(b"k", b"1", index)
    await trio.testing.wait_all_tasks_blocked()
    assert woken[1:] == []
    for index in (1, 2):
        post.replicate(index)
    await trio.testing.wait_all_tasks_blocked()
    assert woken[1:] == [[(1, 1)]]
    post.write(b"k", b"2", 1)
    post.replicate(1)
    await trio.testing.wait_all_tasks_blocked()
    assert woken[2:] == [[(1, 2)]]
