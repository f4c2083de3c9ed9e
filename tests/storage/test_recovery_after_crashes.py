"""Opening a log after crashes of process and machine at any moment, those of the recovery included."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.disk import StorageError
from barnabas.storage.producers import Origin
from tests.storage.contents import FIRST_LOG, entries_of, findings, idempotent


def test_a_process_crash_keeps_all_that_was_written(new_world):
    world = new_world(segment_bytes=500)
    log = world.open()
    for sequence in range(20):
        world.append(log, **idempotent(sequence))
    before = entries_of(world, log)
    world = world.after_process_crash()
    log = world.open()
    assert entries_of(world, log) == before
    assert log.producers.get(7).last_sequence == 19


def test_recovery_makes_the_same_indexes_as_the_appends(new_world):
    world = new_world(segment_bytes=900)
    log = world.open()
    for number in range(40):
        world.append(log, size=number * 7 % 50, timestamp=1000 + number * 13 % 17)
    crashed = world.after_process_crash()
    log.close(world.now_ms)
    crashed.open().close(world.now_ms)
    assert {name: crashed.content(name) for name in crashed.names("index")} == {
        name: world.content(name) for name in world.names("index")
    }


@pytest.mark.parametrize("fuse", range(40))
def test_a_crash_while_cutting_a_compacted_log_leaves_its_beginning(new_world, crashing_disk, fuse):
    world = new_world(segment_bytes=200, compacted=True)
    log = world.open()
    for _ in range(9):
        world.append(log)
    before = entries_of(world, log)
    log.close(world.now_ms)
    disk, world.disk = world.disk, crashing_disk(world.disk, fuse)
    with contextlib.suppress(StorageError):
        world.open(clean=True).truncate_to(1)
    world.disk = disk
    entries, _ = recovered(world.after_process_crash())
    assert entries == before[: len(entries)]


@pytest.mark.parametrize("fuse", range(40))
def test_a_crash_while_recovering_a_compacted_log_changes_nothing(new_world, crashing_disk, fuse):
    world = new_world(segment_bytes=200, compacted=True)
    log = world.open()
    for _ in range(9):
        world.append(log)
    log.abandon()
    world.put(FIRST_LOG, world.content(FIRST_LOG)[:-1])
    disk, world.disk = world.disk, crashing_disk(world.disk, fuse)
    with contextlib.suppress(StorageError):
        world.open()
    world.disk = disk
    assert recovered(world.after_process_crash())[1] == 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.sampled_from([0, 60, 300])),
        st.tuples(st.just("append"), st.integers(1, 3), st.sampled_from([0, 60, 300])),
        st.tuples(st.just("flush")),
        st.tuples(st.just("sync only")),
        st.tuples(st.just("roll")),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("lead"), st.integers(0, 3)),
        st.tuples(st.just("restart")),
    ),
    max_size=30,
)


class History:
    """A log under random steps, beside a list of what was written to it."""

    def __init__(self, world) -> None:
        self.world = world
        self.log = world.open()
        self.written: list[bytes] = []
        self.synced = 0  # how many of them must survive a power failure
        self.epoch = 0

    def take(self, step) -> None:
        kind, *arguments = step
        getattr(self, kind.replace(" ", "_"))(*arguments)

    def append(self, count: int, size: int) -> None:
        batch = self.world.batch(count, size=size)
        try:
            self.log.append_as_leader(batch, leader_epoch=self.epoch, origin=Origin.CLIENT, now_ms=self.world.now_ms)
        finally:
            self.written.append(bytes(batch.data))  # if it crashed, it may be there or not

    def flush(self) -> None:
        count = len(self.written)
        self.world.flush(self.log)
        self.synced = count

    def sync_only(self) -> None:
        plan = self.log.flush_plan()
        if plan is not None:
            plan.sync()
            plan.release()
            self.log.flushed(plan)
            self.synced = len(self.written)

    def roll(self) -> None:
        self.log.roll(self.world.now_ms)

    def truncate(self, share: float) -> None:
        kept = int(share * len(self.written))
        self.synced = min(self.synced, kept)
        self.log.truncate_to(sum(count_of(data) for data in self.written[:kept]))
        del self.written[kept:]
        self.checkpoint()

    def checkpoint(self) -> None:
        self.world.checkpoint(self.log)

    def lead(self, epochs: int) -> None:
        self.epoch += epochs
        self.log.begin_leader_epoch(self.epoch)

    def restart(self) -> None:
        count = len(self.written)
        self.log = self.world.restarted(self.log)
        self.synced = count


def count_of(batch: bytes) -> int:
    return struct.unpack_from(">i", batch, 23)[0] + 1


def recovered(world) -> tuple[list[bytes], int]:
    log = world.open()
    entries = entries_of(world, log)
    assert log.log_end_offset == sum(count_of(data) for data in entries)
    assert log.recovery_point == log.log_end_offset
    log.close(world.now_ms)
    assert findings(world) == []
    return entries, log.log_end_offset


@settings(max_examples=80, deadline=None)
@given(steps, st.sampled_from([1, 2**63 - 1]), st.integers(0, 2**32))
def test_a_power_failure_leaves_a_beginning_that_holds_all_that_was_synced(new_world, steps, flush_messages, seed):
    history = History(new_world(segment_bytes=700, flush_messages=flush_messages))
    for step in steps:
        history.take(step)
    log = history.log
    entries, log_end_offset = recovered(history.world.after_machine_crash(seed))
    assert entries == history.written[: len(entries)]
    assert len(entries) >= history.synced
    assert log_end_offset >= log.recovery_point
    if flush_messages == 1:
        assert log_end_offset >= log.acknowledgeable_offset


@settings(max_examples=80, deadline=None)
@given(steps, st.integers(0, 150), st.integers(0, 40), st.integers(0, 2**32))
def test_crashes_at_any_moment_even_of_the_recovery_lose_nothing_synced(
    new_world, crashing_disk, steps, fuse, second_fuse, seed
):
    world = new_world(segment_bytes=700)
    world.disk = crashing_disk(world.disk, fuse)
    history = None
    try:
        history = History(world)
        for step in steps:
            history.take(step)
    except StorageError as crash:
        assert crash.cause == "CRASH"
    written, synced = (history.written, history.synced) if history else ([], 0)
    world.disk = world.disk.disk
    world = world.after_machine_crash(seed)
    disk = world.disk
    world.disk = crashing_disk(disk, second_fuse)
    try:
        world.open()
    except StorageError as crash:
        assert crash.cause == "CRASH"
    world.disk = disk
    entries, _ = recovered(world.after_machine_crash(seed + 1))
    assert entries == written[: len(entries)]
    assert len(entries) >= synced


@settings(max_examples=40, deadline=None)
@given(steps, st.integers(0, 2**32))
def test_what_recovery_found_survives_the_next_power_failure(new_world, steps, seed):
    history = History(new_world(segment_bytes=700))
    for step in steps:
        history.take(step)
    world = history.world.after_machine_crash(seed)
    before = entries_of(world, world.open())
    entries, _ = recovered(world.after_machine_crash(seed + 1))
    assert entries == before


@settings(max_examples=40, deadline=None)
@given(steps)
def test_a_process_crash_at_any_moment_loses_nothing(new_world, steps):
    history = History(new_world(segment_bytes=700))
    for step in steps:
        history.take(step)
    entries, _ = recovered(history.world.after_process_crash())
    assert entries == history.written
