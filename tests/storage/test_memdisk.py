"""The disk in memory: what a crash may lose, what it may not, and the faults one can order."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.disk import DirectoryLocked, StorageError, make_durable_directory
from barnabas.storage.memdisk import MemDisk

SEEDS = range(60)


def disk_with_file(content: bytes = b"") -> tuple[MemDisk, object]:
    """A disk with a durable, open file /d/f."""
    disk = MemDisk()
    make_durable_directory(disk, "/d")
    disk.replace_file("/d/f", content)
    return disk, disk.open("/d/f")


def outcomes(disk: MemDisk, path: str = "/d/f") -> set[bytes | None]:
    """What a machine crash may make of a file, over many seeds; None if it is gone."""
    crashed = [disk.crash_machine(random.Random(seed)) for seed in SEEDS]
    return {after.read_file(path) if after.exists(path) else None for after in crashed}


# -- process crashes


def test_a_process_crash_keeps_what_was_written():
    disk, file = disk_with_file()
    file.write(0, b"written")
    disk.open("/d/new", create=True).write(0, b"too")
    after = disk.crash_process()
    assert (after.read_file("/d/f"), after.read_file("/d/new")) == (b"written", b"too")


def test_a_process_crash_releases_locks():
    disk, _ = disk_with_file()
    disk.lock("/d/.lock")
    disk.crash_process().lock("/d/.lock")
    with pytest.raises(DirectoryLocked):
        disk.lock("/d/.lock")


def test_a_crash_leaves_the_old_disk_alone():
    disk, file = disk_with_file(b"old")
    after = disk.crash_process()
    after.open("/d/f").write(0, b"new")
    after.remove("/d/f")
    assert disk.read_file("/d/f") == b"old"
    file.write(3, b"er")
    assert disk.read_file("/d/f") == b"older"


def test_what_was_unsynced_before_a_process_crash_may_be_lost_after_it():
    disk, file = disk_with_file()
    file.write(0, b"w")
    assert outcomes(disk.crash_process()) == {b"", b"w", b"\0"}


# -- machine crashes


def test_a_machine_crash_keeps_synced_bytes():
    disk, file = disk_with_file()
    file.write(0, b"synced")
    file.sync()
    assert outcomes(disk) == {b"synced"}


def test_unsynced_writes_survive_as_a_prefix_in_their_order():
    disk, file = disk_with_file()
    for position in range(3):
        file.write(position, b"x")
    assert {content.rstrip(b"\0") for content in outcomes(disk)} == {b"", b"x", b"xx", b"xxx"}


def test_a_lost_write_may_be_torn():
    disk, file = disk_with_file(b"head ")
    file.write(5, b"abcdefgh")
    seen = outcomes(disk)
    assert {b"head ", b"head abcdefgh"} <= seen
    assert any(content.startswith(b"head a") and len(content) < 13 for content in seen)  # cut
    assert any(content.startswith(b"head a") and content.endswith(b"\0") for content in seen)  # of full size


def test_a_lost_overwrite_brings_the_old_bytes_back():
    disk, file = disk_with_file(b"aaaa")
    file.write(0, b"bb")
    assert outcomes(disk) == {b"aaaa", b"baaa", b"bbaa"}


def test_a_lost_truncation_brings_the_cut_bytes_back():
    disk, file = disk_with_file(b"abcd")
    file.truncate(1)
    assert outcomes(disk) == {b"abcd", b"a"}


def test_a_new_file_is_lost_until_its_directory_is_synced():
    disk, _ = disk_with_file()
    file = disk.open("/d/new", create=True)
    file.write(0, b"x")
    file.sync()
    assert outcomes(disk, "/d/new") == {None, b"x"}
    disk.sync_directory("/d")
    assert outcomes(disk, "/d/new") == {b"x"}


def test_a_removed_file_may_be_back():
    disk, file = disk_with_file(b"x")
    disk.remove("/d/f")
    file.release()
    assert outcomes(disk) == {None, b"x"}
    disk.sync_directory("/d")
    assert outcomes(disk) == {None}


def test_a_rename_is_there_wholly_or_not_at_all():
    disk, _ = disk_with_file(b"x")
    disk.replace_file("/d/g", b"replaced")
    disk.rename("/d/f", "/d/g")
    seen = {
        tuple((name, after.read_file("/d/" + name)) for name in after.list("/d"))
        for after in (disk.crash_machine(random.Random(seed)) for seed in SEEDS)
    }
    assert seen == {(("f", b"x"), ("g", b"replaced")), (("g", b"x"),)}


def test_a_renamed_directory_may_have_its_old_name():
    disk, _ = disk_with_file(b"x")
    disk.rename("/d", "/e")
    assert outcomes(disk, "/d/f") == {None, b"x"}
    disk.sync_directory("/")
    assert outcomes(disk, "/e/f") == {b"x"}


def test_a_removed_tree_may_be_half_there():
    disk, _ = disk_with_file(b"x")
    disk.replace_file("/d/g", b"x")
    disk.remove_tree("/d")
    seen = {(outcome.exists("/d") and tuple(outcome.list("/d"))) for outcome in crashes(disk)}
    assert seen == {False, (), ("g",), ("f", "g")}


def crashes(disk: MemDisk) -> list[MemDisk]:
    return [disk.crash_machine(random.Random(seed)) for seed in SEEDS]


def test_a_replaced_file_is_durable_at_once():
    disk, _ = disk_with_file(b"old")
    disk.replace_file("/d/f", b"new")
    assert outcomes(disk) == {b"new"}


def test_a_durable_directory_survives_with_its_parents():
    disk = MemDisk()
    make_durable_directory(disk, "/a/b")
    assert all(after.is_directory("/a/b") for after in crashes(disk))


def test_what_survived_a_crash_is_durable():
    disk, file = disk_with_file()
    file.write(0, b"abc")
    after = disk.crash_machine(random.Random(1))
    assert outcomes(after) == {after.read_file("/d/f")}


def test_the_same_seed_gives_the_same_crash():
    disk, file = disk_with_file()
    for position in range(100):
        file.write(position, b"x")
    first, second = (disk.crash_machine(random.Random(7)).read_file("/d/f") for _ in range(2))
    assert first == second


changes = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 12), st.binary(min_size=1, max_size=6)),
    st.tuples(st.just("truncate"), st.integers(0, 12), st.just(b"")),
    st.tuples(st.just("sync"), st.just(0), st.just(b"")),
)


@given(st.lists(changes, max_size=12), st.integers(0, 1000))
def test_a_crashed_file_is_as_it_was_at_some_moment_but_for_one_torn_write(steps, seed):
    disk, file = disk_with_file()
    moments = [b""]
    for kind, position, data in steps:
        if kind == "write":
            file.write(position, data)
        elif kind == "truncate":
            file.truncate(position)
        else:
            file.sync()
            moments.clear()
        moments.append(disk.read_file("/d/f"))
    after = disk.crash_machine(random.Random(seed)).read_file("/d/f")
    assert any(after == moment for moment in moments) or any(
        is_between(after, old, new) for old, new in itertools.pairwise(moments)
    )


def is_between(torn: bytes, old: bytes, new: bytes) -> bool:
    """Whether every byte is of the old or of the new content, or a zero where there was none."""
    if not min(len(old), len(new)) <= len(torn) <= max(len(old), len(new)):
        return False
    return all(byte in (old[i : i + 1], new[i : i + 1], b"\0") for i, byte in enumerate(map(bytes, zip(torn))))


# -- faults


def test_a_full_disk_refuses_a_write_and_keeps_the_file_as_it_was():
    disk = MemDisk(capacity_bytes=10)
    file = disk.open("/f", create=True)
    file.write(0, b"12345678")
    with pytest.raises(StorageError, match="ENOSPC"):
        file.write(8, b"901")
    assert disk.read_file("/f") == b"12345678"
    file.write(8, b"90")
    assert disk.volume_bytes("/") == (10, 0)


def test_removed_and_truncated_files_give_their_space_back():
    disk = MemDisk(capacity_bytes=10)
    file = disk.open("/f", create=True)
    file.write(0, bytes(10))
    file.truncate(4)
    assert disk.volume_bytes("/") == (10, 6)
    disk.remove("/f")
    assert disk.volume_bytes("/") == (10, 6)  # still open
    file.release()
    assert disk.volume_bytes("/") == (10, 10)


def test_replaced_files_give_their_space_back():
    disk = MemDisk(capacity_bytes=10)
    disk.make_directory("/d/sub")
    for content in (bytes(8), bytes(4)):
        disk.replace_file("/d/f", content)
        disk.remove("/d/f")
    disk.replace_file("/d/f", bytes(3))
    disk.replace_file("/d/f", bytes(2))
    disk.replace_file("/d/g", bytes(3))
    disk.rename("/d/f", "/d/g")
    disk.replace_file("/d/sub/h", bytes(4))
    assert disk.volume_bytes("/") == (10, 4)
    disk.remove_tree("/d")
    assert disk.volume_bytes("/") == (10, 10)


def test_a_crash_counts_the_used_space_again():
    disk = MemDisk(capacity_bytes=10)
    disk.replace_file("/f", bytes(4))
    disk.open("/f").write(4, bytes(2))
    assert disk.crash_process().volume_bytes("/") == (10, 4)


def test_an_ordered_fault_strikes_once_and_when_it_is_due():
    disk, file = disk_with_file()
    disk.fail_next("write", "EIO", after=1)
    file.write(0, b"a")
    with pytest.raises(StorageError, match="EIO"):
        file.write(1, b"b")
    file.write(1, b"c")
    assert disk.read_file("/d/f") == b"ac"


def test_a_fault_can_be_ordered_for_some_paths():
    disk, file = disk_with_file()
    disk.fail_next("write", path_part="other")
    file.write(0, b"a")
    with pytest.raises(StorageError, match="EIO"):
        disk.open("/other", create=True).write(0, b"a")


def test_a_failed_write_can_leave_torn_bytes():
    disk, file = disk_with_file()
    disk.fail_next("write", "ENOSPC", left_bytes=2)
    with pytest.raises(StorageError, match="ENOSPC"):
        file.write(0, b"abcd")
    assert disk.read_file("/d/f") == b"ab"


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("open", lambda disk: disk.open("/d/f")),
        ("read", lambda disk: disk.open("/d/f").read(0, 1)),
        ("truncate", lambda disk: disk.open("/d/f").truncate(0)),
        ("sync", lambda disk: disk.open("/d/f").sync()),
        ("list", lambda disk: disk.list("/d")),
        ("make_directory", lambda disk: disk.make_directory("/d/sub")),
        ("rename", lambda disk: disk.rename("/d/f", "/d/g")),
        ("remove", lambda disk: disk.remove("/d/f")),
        ("remove_tree", lambda disk: disk.remove_tree("/d")),
        ("sync_directory", lambda disk: disk.sync_directory("/d")),
        ("read_file", lambda disk: disk.read_file("/d/f")),
        ("replace_file", lambda disk: disk.replace_file("/d/f", b"")),
        ("lock", lambda disk: disk.lock("/d/.lock")),
    ],
)
def test_every_operation_can_fail_and_then_changes_nothing(operation, call):
    disk, _ = disk_with_file(b"x")
    disk.fail_next(operation)
    with pytest.raises(StorageError, match="EIO"):
        call(disk)
    assert (disk.list("/d"), disk.read_file("/d/f")) == (["f"], b"x")
    call(disk)


def test_a_failed_sync_is_final_for_the_open_file():
    disk, file = disk_with_file()
    file.write(0, b"x")
    disk.fail_next("sync")
    for _ in range(2):
        with pytest.raises(StorageError, match="EIO"):
            file.sync()


def test_a_sync_that_succeeds_after_a_failed_one_proves_nothing():
    disk, file = disk_with_file()
    file.write(0, b"x")
    disk.fail_next("sync")
    with pytest.raises(StorageError):
        file.sync()
    disk.open("/d/f").sync()
    assert b"" in outcomes(disk)
    after = disk.crash_machine(random.Random(0))
    file = after.open("/d/f")
    file.write(0, b"y")
    file.sync()
    assert outcomes(after) == {b"y"}  # the new kernel knows nothing of it
