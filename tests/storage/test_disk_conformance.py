"""The contract of every disk: the same scenarios on the operating system's disk and on the one in memory."""

import errno
import os
import resource
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.storage.disk import (
    DirectoryLocked,
    Disk,
    FileSlice,
    HalfDone,
    StorageError,
    join,
    make_durable_directory,
    parent_of,
)
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.osdisk import OsDisk
from barnabas.wire.errors import InvariantBroken


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk() if request.param == "os" else MemDisk()


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> str:
    disk.make_directory(str(tmp_path))
    return str(tmp_path)


def cause_of(call, *args, **options) -> str:
    with pytest.raises(StorageError) as caught:
        call(*args, **options)
    return caught.value.cause


# -- bytes


def test_what_is_appended_is_read_back(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(0, b"one")
    file.write(3, memoryview(bytearray(b"two")))
    assert file.size_bytes() == 6
    assert file.read(0, 6) == b"onetwo"
    assert file.read(2, 2) == b"et"


def test_a_read_past_the_end_returns_what_is_there(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(0, b"short")
    assert file.read(3, 100) == b"rt"
    assert file.read(5, 1) == b""
    assert file.read(500, 1) == b""


def test_an_overwrite_changes_only_its_range(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(0, b"aaaaaa")
    file.write(2, b"bb")
    assert file.read(0, 10) == b"aabbaa"
    file.write(4, b"cccc")
    assert file.read(0, 10) == b"aabbcccc"
    assert file.size_bytes() == 8


def test_a_write_behind_the_end_fills_with_zeros(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(4, b"x")
    assert file.read(0, 10) == b"\0\0\0\0x"


def test_truncating_cuts_and_extending_adds_zeros(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(0, b"abcdef")
    file.truncate(2)
    assert (file.size_bytes(), file.read(0, 10)) == (2, b"ab")
    file.truncate(4)
    assert (file.size_bytes(), file.read(0, 10)) == (4, b"ab\0\0")


def test_a_file_opened_again_has_its_bytes(disk, root):
    disk.open(root + "/a", create=True).write(0, b"kept")
    again = disk.open(root + "/a", create=True)
    assert (again.size_bytes(), again.read(0, 10)) == (4, b"kept")


def test_a_file_opened_for_reading_refuses_writes(disk, root):
    disk.open(root + "/a", create=True).write(0, b"kept")
    file = disk.open(root + "/a", read_only=True)
    assert file.read(0, 4) == b"kept"
    assert cause_of(file.write, 4, b"more") == "EBADF"
    assert cause_of(file.truncate, 0) in ("EBADF", "EINVAL")
    assert disk.size(root + "/a") == 4


def test_a_file_can_be_synced_and_read_ahead(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(0, bytes(300_000))
    file.sync()
    file.will_need(0, 300_000)
    assert file.resident(0, 300_000)
    assert file.resident(300_000, 1)  # nothing to read is no slow read
    assert file.read_resident(299_990, 20) == bytes(10)


# -- references


def test_a_removed_file_stays_readable_until_its_last_slice_is_released(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(0, b"deleted segment")
    piece = FileSlice(file, 8, 7)
    disk.remove(root + "/a")
    file.release()
    assert piece.read() == b"segment"
    piece.release()
    with pytest.raises(InvariantBroken):
        file.read(0, 1)


def test_a_new_file_never_answers_for_a_closed_one(disk, root):
    old = disk.open(root + "/a", create=True)
    old.write(0, b"old")
    number = old.fileno()
    old.release()
    new = disk.open(root + "/b", create=True)
    new.write(0, b"new")
    assert new.fileno() == number  # the number was reused (there is none in memory)
    for use in (lambda: old.read(0, 3), lambda: old.write(0, b"bad"), old.sync, old.fileno, lambda: old.truncate(0)):
        with pytest.raises(InvariantBroken):
            use()
    assert new.read(0, 3) == b"new"


def test_a_slice_keeps_its_descriptor_from_being_reused(disk, root):
    old = disk.open(root + "/a", create=True)
    old.write(0, b"old")
    piece = FileSlice(old, 0, 3)
    old.release()
    new = disk.open(root + "/b", create=True)
    new.write(0, b"new")
    assert new.fileno() is None or new.fileno() != piece.file.fileno()
    assert piece.read() == b"old"


def test_releasing_a_slice_twice_releases_it_once(disk, root):
    file = disk.open(root + "/a", create=True)
    piece = FileSlice(file, 0, 0)
    piece.release()
    piece.release()
    assert file.read(0, 1) == b""  # the opener's reference is still there


def test_a_slice_that_is_dropped_gives_its_reference_back(disk, root):
    file = disk.open(root + "/a", create=True)
    pieces = [FileSlice(file, 0, 0), FileSlice(file, 0, 0)]
    pieces[0].release()
    file.release()
    pieces.clear()
    with pytest.raises(InvariantBroken, match="retained after it was closed"):
        file.retain()


def test_releasing_a_closed_file_is_our_own_mistake(disk, root):
    file = disk.open(root + "/a", create=True)
    file.release()
    with pytest.raises(InvariantBroken):
        file.release()
    with pytest.raises(InvariantBroken):
        file.retain()


def test_a_slice_of_a_truncated_file_reads_short(disk, root):
    file = disk.open(root + "/a", create=True)
    file.write(0, b"abcdef")
    piece = FileSlice(file, 2, 4)
    file.truncate(3)
    assert piece.read() == b"c"


# -- names


def test_names_are_listed_sorted(disk, root):
    for name in ("b", "a", "c"):
        disk.open(join(root, name), create=True)
    disk.make_directory(join(root, "aa"))
    assert disk.list(root) == ["a", "aa", "b", "c"]


def test_a_directory_is_made_with_its_parents_and_may_exist(disk, root):
    disk.make_directory(root + "/x/y/z")
    disk.make_directory(root + "/x/y/z")
    assert disk.is_directory(root + "/x/y")
    assert disk.list(root + "/x/y") == ["z"]


def test_files_and_directories_are_distinguished(disk, root):
    disk.open(root + "/a", create=True)
    assert (disk.exists(root + "/a"), disk.is_directory(root + "/a")) == (True, False)
    assert (disk.exists(root), disk.is_directory(root)) == (True, True)
    assert (disk.exists(root + "/b"), disk.is_directory(root + "/b")) == (False, False)
    assert not disk.exists(root + "/a/b")


def test_renaming_moves_the_name_and_not_the_open_file(disk, root):
    file = disk.open(root + "/a", create=True)
    disk.rename(root + "/a", root + "/a.deleted")
    file.write(0, b"still")
    assert disk.list(root) == ["a.deleted"]
    assert disk.read_file(root + "/a.deleted") == b"still"


def test_renaming_replaces_a_file(disk, root):
    disk.replace_file(root + "/a", b"new")
    disk.replace_file(root + "/b", b"old")
    disk.rename(root + "/a", root + "/b")
    assert disk.list(root) == ["b"]
    assert disk.read_file(root + "/b") == b"new"


def test_renaming_to_the_same_name_changes_nothing(disk, root):
    disk.replace_file(root + "/a", b"kept")
    disk.rename(root + "/a", root + "/a")
    assert disk.read_file(root + "/a") == b"kept"


def test_a_directory_is_renamed_with_what_it_holds(disk, root):
    disk.make_directory(root + "/t-0")
    disk.replace_file(root + "/t-0/f", b"x")
    disk.rename(root + "/t-0", root + "/t-0.delete")
    assert disk.list(root) == ["t-0.delete"]
    assert disk.read_file(root + "/t-0.delete/f") == b"x"


def test_a_tree_is_removed_with_what_it_holds(disk, root):
    disk.make_directory(root + "/t/sub")
    disk.replace_file(root + "/t/f", b"x")
    disk.replace_file(root + "/t/sub/g", b"x")
    disk.remove_tree(root + "/t")
    assert disk.list(root) == []


def test_refusals_name_their_cause(disk, root):
    disk.make_directory(root + "/d")
    disk.replace_file(root + "/f", b"")
    assert cause_of(disk.open, root + "/none") == "ENOENT"
    assert cause_of(disk.open, root + "/none/f", create=True) == "ENOENT"
    assert cause_of(disk.open, root + "/f/g", create=True) == "ENOTDIR"
    assert cause_of(disk.open, root + "/d") == "EISDIR"
    assert cause_of(disk.list, root + "/none") == "ENOENT"
    assert cause_of(disk.list, root + "/f") == "ENOTDIR"
    assert cause_of(disk.remove, root + "/none") == "ENOENT"
    assert cause_of(disk.remove, root + "/d") == "EISDIR"
    assert cause_of(disk.remove_tree, root + "/none") == "ENOENT"
    assert cause_of(disk.remove_tree, root + "/f") == "ENOTDIR"
    assert cause_of(disk.make_directory, root + "/f") == "EEXIST"
    assert cause_of(disk.make_directory, root + "/f/g") == "ENOTDIR"
    assert cause_of(disk.size, root + "/none") == "ENOENT"
    assert cause_of(disk.modified_ms, root + "/none") == "ENOENT"
    assert cause_of(disk.read_file, root + "/none") == "ENOENT"
    assert cause_of(disk.read_file, root + "/d") == "EISDIR"
    assert cause_of(disk.sync_directory, root + "/none") == "ENOENT"
    assert cause_of(disk.replace_file, root + "/none/f", b"") == "ENOENT"
    assert cause_of(disk.replace_file, root + "/d", b"") == "EISDIR"
    assert cause_of(disk.volume_bytes, root + "/none") == "ENOENT"


def test_renames_that_make_no_sense_are_refused(disk, root):
    disk.make_directory(root + "/d/sub")
    disk.make_directory(root + "/e")
    disk.replace_file(root + "/f", b"")
    assert cause_of(disk.rename, root + "/none", root + "/x") == "ENOENT"
    assert cause_of(disk.rename, root + "/f", root + "/d/f") == "EXDEV"
    assert cause_of(disk.rename, root + "/f", root + "/e") == "EISDIR"
    assert cause_of(disk.rename, root + "/e", root + "/f") == "ENOTDIR"
    assert cause_of(disk.rename, root + "/e", root + "/d") == "ENOTEMPTY"
    assert disk.list(root) == ["d", "e", "f"]


def test_an_error_says_path_operation_and_cause(disk, root):
    with pytest.raises(StorageError) as caught:
        disk.open(root + "/none")
    assert str(caught.value) == f"{root}/none: ENOENT, there is no such file or directory (open)"


def test_a_replaced_file_has_the_new_content_and_leaves_nothing_beside_it(disk, root):
    disk.replace_file(root + "/checkpoint", b"a long first content")
    disk.replace_file(root + "/checkpoint", b"second")
    assert disk.read_file(root + "/checkpoint") == b"second"
    assert disk.size(root + "/checkpoint") == 6
    assert disk.list(root) == ["checkpoint"]


def test_a_modification_time_can_be_set(disk, root):
    disk.replace_file(root + "/a", b"x")
    disk.set_modified_ms(root + "/a", 1_600_000_000_123)
    assert disk.modified_ms(root + "/a") == 1_600_000_000_123


def test_there_is_free_space(disk, root):
    total, free = disk.volume_bytes(root)
    assert total >= free > 0


def test_an_absolute_path_begins_at_the_root_and_has_single_slashes(disk, root):
    assert disk.absolute_path(f"{root}//a/b/") == f"{root}/a/b"
    assert disk.absolute_path("a").endswith("/a")
    assert disk.absolute_path("a").startswith("/")


# -- locks


def test_a_directory_is_locked_once(disk, root):
    lock = disk.lock(root + "/.lock")
    with pytest.raises(DirectoryLocked, match="used by another process"):
        disk.lock(root + "/.lock")
    lock.release()
    lock.release()
    disk.lock(root + "/.lock").release()
    assert disk.list(root) == [".lock"]


# -- the operating system's disk alone


@contextmanager
def files_limited_to(size_bytes):
    """The kernel cuts writes short there, as a full disk does; inside the test only, for pytest writes files, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_short_write_is_cut_back_before_anything_else_happens(tmp_path):
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.write(0, bytes(900))
    with files_limited_to(1000):
        assert cause_of(file.write, 900, b"x" * 200) == "EFBIG"
    assert file.size_bytes() == (tmp_path / "a").stat().st_size == 900
    file.write(900, b"x" * 100)
    assert file.read(899, 200) == b"\0" + b"x" * 100


def test_a_write_that_cannot_even_be_cut_back_says_both():
    with pytest.raises(
        StorageError, match=r"/dev/full: ENOSPC, .* \(write, leaving a part of it \(truncate: EINVAL\)\)"
    ):
        OsDisk().open("/dev/full").write(0, b"x")


def test_a_failed_sync_is_not_tried_again():
    file = OsDisk().open("/dev/full")
    assert cause_of(file.sync) == "EINVAL"
    with pytest.raises(StorageError, match="sync \\(again\\)"):
        file.sync()


def test_a_file_is_not_replaced_without_a_descriptor_for_its_directory(tmp_path, monkeypatch):
    """The caller goes on after such an error, and relies on the old content."""
    path, right = str(tmp_path / "checkpoint"), os.open

    def open_file(path, flags, *args, **options):
        if flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, "none is left")
        return right(path, flags, *args, **options)

    OsDisk().replace_file(path, b"old")
    monkeypatch.setattr(os, "open", open_file)
    with pytest.raises(StorageError) as caught:
        OsDisk().replace_file(path, b"new")
    assert caught.value.is_shortage
    assert OsDisk().read_file(path) == b"old"


def test_a_file_whose_replacement_is_not_durable_is_half_done(tmp_path, monkeypatch):
    path, right = str(tmp_path / "checkpoint"), os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOMEM, "no memory")
        right(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(HalfDone) as caught:
        OsDisk().replace_file(path, b"new")
    assert not caught.value.is_shortage
    assert caught.value.endangers_unsynced


def test_a_file_that_was_cut_reads_short(tmp_path):
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.write(0, b"abcdef")
    (tmp_path / "a").write_bytes(b"abc")
    assert file.read(1, 5) == b"bc"


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="asking the page cache is Linux's")
def test_a_cold_file_is_not_resident_until_it_was_read(tmp_path):
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.write(0, bytes(600_000))
    file.sync()

    def is_seen_cold(asks):
        """The kernel keeps pages that it is busy with, and a question may bring a page: evict before each one."""
        for _ in range(100):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not asks():
                return True
        return False

    if not is_seen_cold(lambda: file.resident(0, 600_000)):
        pytest.skip("this file system keeps its pages")
    assert is_seen_cold(lambda: file.read_resident(500_000, 100))
    file.read(0, 300_000)
    assert file.resident(0, 200_000)
    assert file.read_resident(100, 2000) == bytes(2000)


def test_a_lock_held_by_another_process_is_respected(tmp_path):
    path = str(tmp_path / ".lock")
    holds = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", holds, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(DirectoryLocked):
            OsDisk().lock(path)
        other.communicate(b"\n")
    OsDisk().lock(path).release()


def test_a_second_try_to_lock_does_not_drop_the_first_lock(tmp_path):
    path = str(tmp_path / ".lock")
    lock = OsDisk().lock(path)
    with pytest.raises(DirectoryLocked):
        OsDisk().lock(path)
    tries = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    other = subprocess.run([sys.executable, "-S", "-c", tries, path], capture_output=True, check=False)
    assert b"BlockingIOError" in other.stderr
    lock.release()
    assert subprocess.run([sys.executable, "-S", "-c", tries, path], check=False).returncode == 0


# -- paths


def test_paths_are_joined_and_split():
    assert (join("/data", "t-0"), join("/", "t-0")) == ("/data/t-0", "/t-0")
    assert (parent_of("/data/t-0"), parent_of("/data"), parent_of("/data/t-0/")) == ("/data", "/", "/data")
    assert (parent_of("data"), parent_of("data/t-0")) == (".", "data")


def test_a_durable_directory_is_made_level_by_level(disk, root):
    make_durable_directory(disk, root + "/a/b/c")
    make_durable_directory(disk, root + "/a/b/c")
    assert disk.is_directory(root + "/a/b/c")


@pytest.mark.parametrize(("operation", "is_failed_sync"), [("sync", True), ("write", False), ("sync directory", False)])
def test_a_sync_that_fails_within_a_change_is_a_failed_sync(operation, is_failed_sync):
    error = StorageError("/d1/t-0/a.log", operation, "EIO")
    assert (error.is_failed_sync, HalfDone(error, "the log half cut").is_failed_sync) == (is_failed_sync,) * 2
