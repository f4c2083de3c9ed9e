"""Opening a log: after a clean stop, with damage, after a failed disk, and after a Java broker."""

import re
import struct
import zlib
from pathlib import Path

import pytest

from barnabas.storage import recovery
from barnabas.storage.disk import StorageError
from barnabas.storage.files import renew
from barnabas.storage.producers import Origin
from barnabas.wire.records import ABORT, CONTROL, TRANSACTIONAL, build_batch
from barnabas.world.pacing import complete_inline
from tests.storage.contents import DIRECTORY, FIRST_LOG, entries_of, findings, idempotent

# -- clean stop


def test_after_a_clean_stop_everything_is_as_it_was(new_world):
    world = new_world(segment_bytes=400)
    log = world.open()
    for sequence in range(12):
        world.append(log, epoch=sequence // 5, **idempotent(sequence))
    before = entries_of(world, log), log.epochs.entries, log.log_end_offset
    log = world.restarted(log)
    assert (entries_of(world, log), log.epochs.entries, log.log_end_offset) == before
    assert log.recovery_point == 12
    assert log.producers.get(7).last_sequence == 11
    assert findings(world) == []


def test_a_clean_start_reads_only_the_end_of_a_log(new_world):
    world = new_world()
    log = world.open()
    for _ in range(2000):
        world.append(log)
    log.close(world.now_ms)
    world.recovery_point = 2000
    reads = counted_reads(world)
    assert world.open(clean=True).log_end_offset == 2000
    assert sum(reads) < 30_000 < log.size_bytes


def counted_reads(world) -> list[int]:
    """The sizes of all reads of .log files from now on."""
    sizes, open_file = [], world.disk.open

    def open_counted(path, **options):
        file = open_file(path, **options)
        if path.endswith(".log"):
            read = file.read
            file = Counted(file, lambda position, size: sizes.append(size) or read(position, size))
        return file

    world.disk.open = open_counted
    return sizes


class Counted:
    """A file whose reads are seen."""

    def __init__(self, file, read) -> None:
        self._file = file
        self.read = read

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_a_missing_index_is_rebuilt(new_world):
    world = new_world(segment_bytes=600)
    log = world.open()
    for number in range(12):
        world.append(log, timestamp=1000 + number)
    log.close(world.now_ms)
    indexes = {name: world.content(name) for name in world.names("index")}
    for name in indexes:
        world.disk.remove(f"/data/orders-0/{name}")
    world.open(clean=True).close(world.now_ms)
    assert {name: world.content(name) for name in world.names("index")} == indexes


@pytest.mark.parametrize("damage", [bytes(7), struct.pack(">ii", 5, 10**6)], ids=["half an entry", "behind the end"])
def test_a_damaged_index_of_the_last_segment_is_rebuilt(world, damage):
    log = world.open()
    for _ in range(5):
        world.append(log)
    log.close(world.now_ms)
    index = world.content("00000000000000000000.index")
    world.put("00000000000000000000.index", index + damage)
    world.open(clean=True).close(world.now_ms)
    assert world.content("00000000000000000000.index") == index


def test_a_torn_tail_is_cut_even_after_a_clean_stop(world):
    log = world.open()
    for _ in range(3):
        world.append(log)
    log.close(world.now_ms)
    whole = world.content(FIRST_LOG)
    world.put(FIRST_LOG, whole[:-1])
    log = world.open(clean=True)
    assert log.log_end_offset == 2
    assert world.content(FIRST_LOG) == whole[: len(whole) * 2 // 3]


def test_appends_go_on_after_a_clean_stop(new_world, read_of, offsets_of):
    world = new_world(segment_bytes=1000)
    log = world.open()
    for _ in range(20):
        world.append(log)
        log = world.restarted(log)
    assert findings(world) == []
    assert offsets_of(world.log_bytes(log)) == list(range(20))
    assert offsets_of(read_of(log.read(19, max_bytes=1, end_offset=20))) == [19]


def test_the_worked_example_of_the_readme_is_what_is_written(new_world):
    world = new_world(index_interval_bytes=0)
    log = world.open()
    for records, time, producer in (
        ([(b"a", b"one"), (b"b", b"two")], 1_700_000_000_000, idempotent(0)),
        ([(b"a", None)], 1_700_000_000_500, {}),
    ):
        batch = build_batch(records, timestamp_ms=time, **producer)
        log.append_as_leader(batch, leader_epoch=3, origin=Origin.CLIENT, now_ms=time)
    log.close(world.now_ms)
    examples = examples_of_the_readme()
    assert {name: world.content(name) for name in examples} == examples
    assert len(examples) == 4


def examples_of_the_readme() -> dict[str, bytes]:
    """File name -> content, from the titles and code blocks of the worked example: hex, then prose."""
    text = Path(recovery.__file__).with_name("README.md").read_text().partition("## Worked example")[2]
    blocks = re.findall(r"### (\S+)\n\n```text\n(.*?)```", text, re.DOTALL)
    return {name: bytes.fromhex(" ".join(re.findall(r"^(?:[0-9a-f]{2} )+", block, re.M))) for name, block in blocks}


# -- damage after a crash


@pytest.mark.parametrize("where", [0, 20, 70, -1])
def test_the_log_ends_before_the_first_damaged_byte(new_world, where):
    world = new_world(segment_bytes=200)
    log = world.open()
    for _ in range(9):
        world.append(log)
    name = "00000000000000000002.log"
    data = bytearray(world.content(name))
    position = where if where >= 0 else len(data) - 1
    data[position] ^= 0x40
    log.abandon()
    world.put(name, bytes(data))
    log = world.open()
    assert log.log_end_offset == (2 if where >= 0 else 3)
    assert world.names(".log")[-1] == name
    assert findings(world) == []


def test_records_below_the_recovery_point_are_trusted(new_world):
    world = new_world(segment_bytes=300)
    log = world.open()
    for _ in range(9):
        world.append(log)
    world.recovery_point = 7
    log.abandon()
    data = bytearray(world.content(FIRST_LOG))
    data[-1] ^= 1
    world.put(FIRST_LOG, bytes(data))
    assert world.open().log_end_offset == 9


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(("recovery_point", "log_end_offset"), [(0, 3), (3, 3), (4, 9)])
def test_a_hole_between_segments_ends_the_log_unless_compaction_may_have_left_it(
    new_world, compacted, recovery_point, log_end_offset
):
    world = new_world(segment_bytes=200, compacted=compacted)
    log = world.open()
    for _ in range(9):
        world.append(log)
    assert [segment.base_offset for segment in log.segments][:3] == [0, 2, 4]
    log.abandon()
    kept = len(world.batch().data)
    world.put("00000000000000000002.log", world.content("00000000000000000002.log")[:kept])
    world.recovery_point = recovery_point
    assert world.open().log_end_offset == log_end_offset


def test_zeros_behind_the_last_batch_are_cut(world):
    log = world.open()
    world.append(log)
    log.abandon()
    whole = world.content(FIRST_LOG)
    world.put(FIRST_LOG, whole + bytes(5000))
    log = world.open()
    assert (log.log_end_offset, world.content(FIRST_LOG)) == (1, whole)


def test_a_batch_larger_than_the_window_is_recovered(world):
    log = world.open()
    world.append(log, 3, size=700_000)
    world.append(log)
    log.abandon()
    assert world.open().log_end_offset == 4


def test_old_formats_are_checked_too(world):
    def message(offset, value=b"old"):
        body = struct.pack(">bbqii", 1, 0, 1000, -1, len(value)) + value
        return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

    log = world.open()
    log.append_as_follower(memoryview(message(0) + message(1) + message(2)), world.now_ms)
    log.abandon()
    data = world.content(FIRST_LOG)
    world.put(FIRST_LOG, data[:-1] + b"?")
    assert world.open().log_end_offset == 2


# -- what else is in the directory


def test_leftovers_of_deletion_are_swept(world):
    world.append(world.open())
    for name in ("00000000000000000009.log.deleted", "00000000000000000005.log.cleaned"):
        world.put(name, b"x")
    world.put("00000000000000000077.index", bytes(8))
    assert world.after_process_crash().open().log_end_offset == 1
    world = world.after_process_crash()
    world.open()
    assert [name for name in world.names() if "deleted" in name or "cleaned" in name or "077" in name] == []


def three_segments(new_world):
    """Segments 0..1, 2..3 and 4.. of a compacted log, closed cleanly."""
    world = new_world(segment_bytes=200, compacted=True)
    log = world.open()
    for _ in range(5):
        world.append(log)
        world.flush(log)
    log.close(world.now_ms)
    return world


def test_a_log_that_ends_before_it_starts_begins_again(new_world):
    world = three_segments(new_world)
    world.put("00000000000000000000.snapshot", world.content("00000000000000000002.snapshot"))
    world.log_start_offset = 9
    log = world.open()
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert world.names(".log") == ["00000000000000000009.log"]
    assert "00000000000000000000.snapshot" not in world.names(".snapshot")


def test_an_interrupted_swap_is_completed(new_world, offsets_of):
    world = three_segments(new_world)
    cleaned = world.content(FIRST_LOG)[: len(world.batch().data)] + world.content("00000000000000000002.log")
    world.put(FIRST_LOG + ".swap", cleaned)
    world.put("00000000000000000000.timeindex.swap", struct.pack(">qi", world.now_ms, 0))
    log = world.open()
    assert world.names(".log") == [FIRST_LOG, "00000000000000000004.log"]
    assert offsets_of(world.log_bytes(log)) == [0, 2, 3, 4]
    assert world.names(".swap") == []


def test_a_swap_that_had_not_begun_everywhere_is_undone(new_world, offsets_of):
    world = three_segments(new_world)
    world.put("00000000000000000002.log.swap", world.content("00000000000000000002.log"))
    world.put("00000000000000000000.log.cleaned", b"")
    log = world.open()
    assert offsets_of(world.log_bytes(log)) == [0, 1, 2, 3, 4]
    assert world.names(".swap") == world.names(".cleaned") == []


def test_damaged_and_stray_snapshots_are_removed_and_the_log_replayed(new_world):
    world = new_world(segment_bytes=300)
    log = world.open()
    for sequence in range(8):
        world.append(log, **idempotent(sequence))
        world.flush(log)
    log.close(world.now_ms)
    world.put("00000000000000000008.snapshot", b"nonsense")
    world.put("00000000000000000005.snapshot", world.content("00000000000000000003.snapshot"))
    world.put("00000000000000000099.snapshot", world.content("00000000000000000003.snapshot"))
    log = world.open(clean=True)
    assert log.producers.get(7).last_sequence == 7
    assert [int(name[:20]) for name in world.names(".snapshot")] == [3, 6]


def test_transactions_are_known_again_after_a_crash(new_world):
    world = new_world(segment_bytes=300)
    log = world.open()
    world.append(log, attributes=TRANSACTIONAL, **idempotent(0))
    world.append(log)
    world.append(log)
    world.append_marker(log, ABORT)
    world.append(log, attributes=TRANSACTIONAL, **idempotent(1))
    world = world.after_process_crash()
    log = world.open()
    assert world.aborted(log, 0, 5) == [(7, 0)]
    assert log.last_stable_offset(5) == 4


def with_odd_marker(world):
    """A log with one batch, and behind it a control batch that says neither commit nor abort."""
    log = world.open()
    world.append(log)
    log.close(world.now_ms)
    odd = world.batch(base_offset=1, producer_id=7, producer_epoch=0, attributes=CONTROL | TRANSACTIONAL)
    world.put(FIRST_LOG, world.content(FIRST_LOG) + bytes(odd.data))


def test_the_log_ends_before_a_marker_that_says_nothing(world):
    with_odd_marker(world)
    assert world.open().log_end_offset == 1


def test_a_marker_that_says_nothing_in_a_trusted_segment_fails_the_directory(world):
    with_odd_marker(world)
    for name in world.names(".snapshot"):
        world.disk.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(StorageError, match=r"no coordinator epoch|no type"):
        world.open(clean=True)


def test_epochs_are_read_from_the_batches_behind_the_recovery_point(world):
    log = world.open()
    for epoch in (3, 3, 5, 5, 8):
        world.append(log, epoch=epoch)
    log.abandon()
    world.put("leader-epoch-checkpoint", b"0\n2\n3 0\n9 1\n")
    assert world.open().epochs.entries == [(3, 0), (5, 2), (8, 4)]


@pytest.mark.parametrize(("left", "epochs"), [(3, [(2, 0)]), (4, [(2, 0), (3, 3)])])
def test_epochs_of_records_that_recovery_cut_are_dropped(world, left, epochs):
    log = world.open()
    for epoch in (2, 2, 2, 3, 3, 4):
        world.append(log, epoch=epoch)
    world.flush(log)
    world.checkpoint(log)
    end = log.segments.active.find(left, log.segments.store.private).position
    world.put(FIRST_LOG, world.content(FIRST_LOG)[:end])
    found = world.open()
    assert (found.log_end_offset, found.epochs.entries) == (left, epochs)


def test_the_log_starts_where_the_checkpoint_says(new_world):
    world = new_world(segment_bytes=200)
    log = world.open()
    for epoch in range(6):
        world.append(log, epoch=epoch)
    log.raise_log_start(3)
    world.checkpoint(log)
    log = world.after_process_crash().open()
    assert (log.log_start_offset, log.epochs.entries[0]) == (3, (3, 3))


def test_a_log_that_ends_before_its_start_begins_again_there(world):
    log = world.open()
    for _ in range(3):
        world.append(log, **idempotent(_))
    log.abandon()
    world.log_start_offset = 50
    log = world.open()
    assert (log.log_start_offset, log.log_end_offset, len(log.producers)) == (50, 50, 0)
    assert world.append(log).base_offset == 50


def test_an_empty_directory_is_an_empty_log(world):
    world.log_start_offset = 9
    log = world.open()
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert world.names(".log") == ["00000000000000000009.log"]


def test_a_damaged_epoch_file_fails_the_directory(world):
    world.open()
    world.put("leader-epoch-checkpoint", b"0\n1\nnonsense\n")
    with pytest.raises(StorageError):
        world.open()


@pytest.mark.parametrize("operation", ["read", "sync"])
def test_a_log_that_the_disk_fails_while_it_is_opened_leaves_no_file_open(world, operation):
    log = world.open()
    world.append(log)
    log.abandon()
    world.disk.fail_next(operation, path_part=FIRST_LOG)
    with pytest.raises(StorageError):
        world.open(clean=False)
    assert world.disk.open_count == 0


# -- a Java broker's directory


@pytest.mark.parametrize("clean", [False, True])
def test_indexes_that_kafka_preallocated_are_taken(new_world, clean, read_of, offsets_of):
    world = new_world(segment_bytes=1000)
    log = world.open()
    for number in range(30):
        world.append(log, timestamp=1000 + number)
    log.close(world.now_ms)
    indexes = {name: world.content(name) for name in world.names("index")}
    for name, data in indexes.items():
        world.put(name, data + bytes(12_000 - len(data) // 24 * 24))
    world.recovery_point = 30 if clean else 9
    log = world.open(clean=clean)
    assert complete_inline(log.offset_of_largest_timestamp())[:2] == (1029, 29)
    assert offsets_of(read_of(log.read(13, max_bytes=1, end_offset=30))) == [13]
    log.roll(world.now_ms)
    log.close(world.now_ms)
    last = "00000000000000000020.index"
    assert world.content(last) == indexes[last]


# -- a clean stop of a log that need not be saved


def closes_without_a_sync(world, log) -> bool:
    world.disk.fail_next("sync")
    world.disk.fail_next("sync_directory")
    try:
        log.close(world.now_ms)
    except StorageError:
        return False
    finally:
        world.disk.forget_faults()
    return True


def test_a_log_that_never_had_a_record_is_closed_without_a_sync(world):
    log = world.open()
    assert closes_without_a_sync(world, log)
    for crashed in (world, world.after_machine_crash(1)):
        log = crashed.open(clean=True)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        crashed.append(log, 3)
        assert not closes_without_a_sync(crashed, log)


def test_a_log_is_closed_without_a_sync_if_it_is_as_a_clean_stop_left_it(new_world, offsets_of):
    world = new_world(segment_bytes=300)
    log = world.open()
    for sequence in range(8):
        world.append(log, **idempotent(sequence))
    log = world.restarted(log)
    assert closes_without_a_sync(world, log)
    log = world.after_machine_crash(1).open(clean=True)
    assert offsets_of(world.log_bytes(log)) == list(range(8))
    assert log.producers.get(7).last_sequence == 7


@pytest.mark.parametrize("change", ["append", "truncation", "roll", "deletion", "crash", "index"])
def test_a_log_that_changed_since_a_clean_stop_is_synced_when_it_is_closed(new_world, change):
    world = new_world(segment_bytes=300)
    log = world.open()
    for sequence in range(8):
        world.append(log, **idempotent(sequence))
    log.close(world.now_ms)
    if change == "index":
        world.disk.remove(f"{log.directory}/00000000000000000003.timeindex")
    log = world.open(clean=change != "crash")
    if change == "append":
        world.append(log)
    elif change == "truncation":
        log.truncate_to(7)
    elif change == "roll":
        log.roll(world.now_ms)
    elif change == "deletion":
        log.raise_log_start(6)
        log.delete_old_segments(world.now_ms, 8)
    assert not closes_without_a_sync(world, log)


# -- after a disk error


def half_flushed(world):
    """A log of six safe records in some segments."""
    log = world.open()
    for _ in range(3):
        world.append(log, 2)
    world.flush(log)
    world.checkpoint(log)
    return log


@pytest.mark.parametrize("seed", range(8))
def test_what_a_failed_sync_left_unsafe_is_safe_when_it_was_written_again(new_world, seed):
    world = new_world(segment_bytes=300)
    log = half_flushed(world)
    for _ in range(6):
        world.append(log, 2)
    world.disk.fail_next("sync", path_part=".log")
    with pytest.raises(StorageError):
        world.flush(log)
    world = world.after_process_crash()
    renew(world.disk, DIRECTORY, world.recovery_point)
    world.checkpoint(world.open())
    assert world.after_machine_crash(seed).open().log_end_offset == 18


def test_segments_below_the_recovery_point_are_left_alone(new_world):
    world = new_world(segment_bytes=300)
    log = half_flushed(world)
    log.abandon()
    world.disk.fail_next("open", path_part=FIRST_LOG)
    renew(world.disk, DIRECTORY, world.recovery_point)
    with pytest.raises(StorageError):
        renew(world.disk, DIRECTORY, 0)


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("after", range(4))
def test_rewriting_may_be_interrupted_and_is_then_done_again(new_world, operation, after):
    world = new_world(segment_bytes=300)
    log = world.open()
    for _ in range(4):
        world.append(log, 2)
    log.abandon()
    world.disk.fail_next(operation, after=0 if operation == "sync_directory" else after)
    with pytest.raises(StorageError):
        renew(world.disk, DIRECTORY, 0)
    world = world.after_process_crash()
    renew(world.disk, DIRECTORY, 0)
    assert world.open().log_end_offset == 8
    assert not [name for name in world.disk.list(DIRECTORY) if name.endswith(".renewed")]
