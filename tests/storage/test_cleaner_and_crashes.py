"""Compaction of a log: what a start finds, after a crash at any moment."""

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.disk import StorageError
from barnabas.storage.files import CLEANED, SWAP, SWAPPED_SUFFIXES
from barnabas.wire.compression import Codec
from barnabas.wire.records import ABORT, TRANSACTIONAL
from tests.storage.compacted import DAY, Compacted, fill, join_segments, view
from tests.storage.contents import findings, idempotent

# -- starts


def test_a_clean_restart_finds_the_clean_log(compacted):
    fill(compacted, 40, 3)
    fill(compacted, 2, 2)
    compacted.compact()
    before = compacted.batches()
    compacted.reopen(clean=True)
    assert (compacted.batches(), compacted.log.log_end_offset, compacted.log.first_dirty_offset) == (before, 42, 42)


def test_a_crash_after_the_policy_was_changed_takes_no_hole_of_compaction_for_a_loss(compacted):
    for _ in range(3):
        fill(compacted, 4, 4)
    compacted.compact()
    fill(compacted, 2, 2)
    assert [segment.size_bytes > 0 for segment in compacted.log.segments] == [False, False, True, True, False]
    compacted.world.checkpoint(compacted.log)
    compacted.world.config.compacted = False
    before = compacted.batches()
    compacted.reopen()
    assert compacted.batches() == before
    assert compacted.log.log_end_offset == 14


def test_a_crash_moves_no_epoch_whose_first_records_were_compacted(new_world):
    """If the epoch began later here than at its leader, a follower would keep records that are not in this log."""
    compacted = Compacted(new_world(compacted=True, deletes=False))
    for epoch in (2, 2, 2, 3, 3, 3):
        compacted.world.append(compacted.log, epoch=epoch)
    compacted.roll()
    compacted.compact()
    compacted.world.checkpoint(compacted.log)
    assert compacted.offsets() == [5]
    found = compacted.world.after_process_crash().open()
    assert found.epochs.entries == [(2, 0), (3, 3)]


def with_aborted_transaction(compacted) -> None:
    """So that the segment has all four files."""
    compacted.put((b"a", b"v"), **idempotent(0), attributes=TRANSACTIONAL)
    compacted.world.append_marker(compacted.log, ABORT)
    fill(compacted, 20, 3)
    compacted.world.flush(compacted.log)
    compacted.world.checkpoint(compacted.log)
    join_segments(compacted)


@pytest.mark.parametrize("renamed", range(5))
def test_a_swap_counts_when_its_last_file_is_renamed(compacted, crashing_disk, renamed):
    """Before, a crash leaves the log as it was; after, the swap is completed; also if that is interrupted as well."""
    with_aborted_transaction(compacted)
    before = compacted.batches()
    steps = compacted.cleaning().steps()  # kept, for it would undo the pass when it is closed
    next(step.replacement for step in steps if step.replacement is not None)
    for suffix in SWAPPED_SUFFIXES[renamed:]:
        path = f"/data/orders-0/{0:020d}{suffix}"
        compacted.world.disk.rename(path + SWAP, path + CLEANED)
    compacted.world.disk.sync_directory("/data/orders-0")
    half_done = compacted.world.disk
    for fuse in range(40):
        world = compacted.world.after_process_crash()
        world.disk = crashing_disk(half_done.crash_process(), fuse)
        with contextlib.suppress(StorageError):
            world.open()
        world.disk = world.disk.disk.crash_machine(random.Random(fuse))
        recovered = Compacted(world)
        assert recovered.leftovers() == []
        if renamed == len(SWAPPED_SUFFIXES):
            assert recovered.offsets() == [1, 19, 20, 21]
        else:
            assert recovered.batches() == before
        assert recovered.world.aborted(recovered.log, 0, 22) == [(7, 0)]


@pytest.mark.parametrize("fuse", range(60))
def test_a_swap_that_is_interrupted_anywhere_is_completed(compacted, crashing_disk, fuse):
    with_aborted_transaction(compacted)
    world = compacted.world
    steps = compacted.cleaning().steps()
    replacement = next(step.replacement for step in steps if step.replacement is not None)
    disk = world.disk
    compacted.log.segments.store.disk = crashing_disk(disk, fuse)
    with contextlib.suppress(StorageError), contextlib.closing(steps):
        replacement.apply(world.now_ms)
    world.disk = disk.crash_machine(random.Random(fuse))
    recovered = Compacted(world)
    assert recovered.offsets() == [1, 19, 20, 21]
    assert recovered.world.aborted(recovered.log, 0, 22) == [(7, 0)]
    assert recovered.leftovers() == []
    assert recovered.bases() == [0, 22]


# -- the model

puts = st.tuples(
    st.just("put"),
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([b"1", b"2", bytes(60), None])),
             min_size=1, max_size=4),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
)  # fmt: skip
steps_of_life = st.lists(
    st.one_of(
        puts,
        puts,
        st.tuples(st.just("roll")),
        st.tuples(st.just("compact"), st.sampled_from([1, 2, 1000])),
        st.tuples(st.just("wait"), st.sampled_from([1000, DAY + 1])),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


def live(compacted, steps) -> None:
    for kind, *what in steps:
        match kind:
            case "put":
                compacted.put(*what[0], codec=what[1])
            case "roll":
                compacted.roll()
            case "compact":
                compacted.compact(keys_max=what[0])
            case "wait":
                compacted.world.now_ms += what[0]
            case "restart":
                compacted.reopen(clean=True)


def check_against_what_was_written(compacted, written, dirty: int) -> None:
    """Nothing is there that was not written, nothing that counts is missing, and no deleted value is back."""
    records = compacted.records()
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    assert all(written[record.offset] == (record.key, record.value) for record in records)
    assert view((record.key, record.value) for record in records) == view(written.values())
    assert [offset for offset in offsets if offset >= dirty] == [offset for offset in written if offset >= dirty]


@settings(max_examples=100, deadline=None)
@given(steps_of_life)
def test_whatever_happens_the_last_value_of_each_key_is_there(new_world, steps):
    compacted = Compacted(new_world(compacted=True, segment_bytes=300))
    live(compacted, steps)
    dirty = compacted.log.first_dirty_offset or 0
    check_against_what_was_written(compacted, compacted.written, dirty)
    assert compacted.log.log_end_offset == len(compacted.written)
    clean = [record.key for record in compacted.records() if record.offset < dirty]
    if not any(kind == "compact" and what[0] < 1000 for kind, *what in steps):
        assert len(clean) == len(set(clean))
    compacted.log.close(compacted.world.now_ms)
    assert findings(compacted.world) == []


@settings(max_examples=100, deadline=None)
@given(steps_of_life, st.integers(0, 60), st.integers(0, 20), st.integers(0, 2**32), st.booleans())
def test_a_crash_at_any_moment_of_a_pass_loses_no_value_and_brings_none_back(
    new_world, crashing_disk, steps, fuse, second_fuse, seed, power
):
    compacted = Compacted(new_world(compacted=True, segment_bytes=300))
    live(compacted, steps)
    compacted.roll()
    world, log = compacted.world, compacted.log
    world.flush(log)
    world.checkpoint(log)
    end_offset = compacted.cleaning().part.end_offset
    disk = world.disk
    log.segments.store.disk = crashing_disk(disk, fuse)
    with contextlib.suppress(StorageError):
        compacted.compact()
        world.checkpoint(log)
    rng = random.Random(seed)
    world.disk = crashing_disk(disk.crash_machine(rng) if power else disk.crash_process(), second_fuse)
    with contextlib.suppress(StorageError):
        world.open()
    world.disk = world.disk.disk.crash_machine(rng) if power else world.disk.disk.crash_process()
    written, first_dirty_offset = compacted.written, log.first_dirty_offset
    compacted.reopen()
    assert compacted.leftovers() == []
    assert compacted.log.log_end_offset == len(written)
    check_against_what_was_written(compacted, written, end_offset)
    assert compacted.log.first_dirty_offset == first_dirty_offset
    compacted.log.close(world.now_ms)
    assert findings(world) == []
