"""A disk in memory that can crash: the other implementation of `disk.Disk`, for tests, fakes and the simulator.

A crash does not change this disk; it returns another one, which a broker finds at its next start:

    crash_process()      the kernel survived: everything written is there; handles and locks are gone
    crash_machine(rng)   the power failed: unsynced changes may be lost, as far as POSIX allows

Every file and every directory has an undo log of its changes since its last sync. A machine crash keeps, of each file
and of each directory, some prefix of these changes and undoes the rest. The first lost write may be torn: a part of its
bytes arrived, and the file's size may have grown without them (zeros). So a file disappears if its directory entry was
not synced, a removed file may come back, and two files may show different moments. POSIX's guarantees hold: a rename is
one change, and a sync covers all earlier writes of its file.

Tests order faults with `fail_next`, and a full disk with `capacity_bytes`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from barnabas.storage.disk import BytesLike, DirectoryLocked, HalfDone, StorageError, parent_of
from barnabas.wire.errors import InvariantBroken

UNLIMITED_BYTES = 1 << 60


class _Change(NamedTuple):
    """One unsynced write, or truncation (`written_bytes` 0), with what is needed to undo it."""

    position: int
    written_bytes: int
    replaced: bytes  # the previous bytes at `position`
    old_size: int


_EntryChange = tuple[tuple[str, "_Content | _Directory | None"], ...]  # (name, its previous node)


@dataclass(eq=False, slots=True)
class _Content:
    """An inode: the bytes of a file, whatever its name is and whether it has one."""

    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    unsynced: list[_Change] = field(default_factory=list)
    is_linked: bool = True  # has a name; without name and handles its space is freed
    open_count: int = 0
    sync_failed: bool = False  # no later sync makes the unsynced changes durable


@dataclass(eq=False, slots=True)
class _Directory:
    """The entries of a directory."""

    modified_ms: int
    entries: "dict[str, _Content | _Directory]" = field(default_factory=dict)
    unsynced: list[_EntryChange] = field(default_factory=list)

    def put(self, *changes: "tuple[str, _Content | _Directory | None]") -> None:
        """Set names to nodes (None removes a name), as one change."""
        # One tuple per call: a rename, which changes two names, survives a crash completely or not at all.
        self.unsynced.append(tuple((name, self.entries.get(name)) for name, _ in changes))
        for name, node in changes:
            self._set(name, node)

    def undo(self, change: _EntryChange) -> None:
        """Undo a change. The caller undoes the latest change first."""
        # The order matters: a change knows only the node that the name had just before it.
        for name, node in change:
            self._set(name, node)

    def _set(self, name: str, node: "_Content | _Directory | None") -> None:
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node


_Clones = dict[_Content | _Directory, _Content | _Directory]  # original -> copy, by identity


@dataclass(slots=True)
class DiskFault:
    operation: str
    cause: str
    path_part: str
    successes_before: int
    left_bytes: int


class MemFile:
    """A `File` of a `MemDisk`."""

    __slots__ = ("_content", "_disk", "_failed_sync", "_read_only", "_references", "path")

    def __init__(self, disk: "MemDisk", path: str, content: _Content, *, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._read_only = read_only
        self._references = 1
        self._failed_sync: str | None = None
        content.open_count += 1
        disk.open_count += 1

    def size_bytes(self) -> int:
        return len(self._content.data)

    def write(self, position: int, data: BytesLike) -> None:
        self._check_writable("write")
        fault = self._disk.take_fault("write", self.path)
        if fault is not None:
            # A part of the data stays, as in `OsFile.write` if the truncation after a failed write
            # fails as well.
            if fault.left_bytes:
                self._put(position, memoryview(data)[: fault.left_bytes])
                raise HalfDone(StorageError(self.path, "write", fault.cause), "a part of it")
            raise StorageError(self.path, "write", fault.cause)
        # The write succeeds as a whole or not at all, like that of `OsFile`: `_put` takes the space
        # before it changes a byte.
        self._put(position, data)

    def _put(self, position: int, data: BytesLike) -> None:
        body = self._content.data
        old_size = len(body)
        end = position + len(data)
        if end > old_size:
            self._disk.take_space(end - old_size, self.path)
        replaced = b""
        # An append replaces nothing, and is by far the most frequent write.
        if position == old_size:
            body += data
        else:
            body.extend(bytes(max(0, position - old_size)))
            replaced = bytes(body[position : min(end, old_size)])
            body[position:end] = data
        self._content.unsynced.append(_Change(position, len(data), replaced, old_size))
        self._content.modified_ms = self._disk.now_ms()

    def read(self, position: int, size_bytes: int) -> bytes:
        self._check_open()
        self._disk.check_fault("read", self.path)
        # This is a copy: the caller may keep it while the file is written or truncated.
        return bytes(self._content.data[position : position + size_bytes])

    def truncate(self, size_bytes: int) -> None:
        self._check_writable("truncate")
        self._disk.check_fault("truncate", self.path)
        body = self._content.data
        old_size = len(body)
        # The bytes that are cut off are kept for the undo: after a machine crash the file may be as long as before.
        replaced = bytes(body[size_bytes:])
        # The difference is negative when the file shrinks: the space is free at once.
        self._disk.take_space(size_bytes - old_size, self.path)
        if size_bytes > old_size:
            body.extend(bytes(size_bytes - old_size))
        else:
            del body[size_bytes:]
        self._content.unsynced.append(_Change(size_bytes, 0, replaced, old_size))
        self._content.modified_ms = self._disk.now_ms()

    def sync(self) -> None:
        self._check_open()
        if self._failed_sync is not None:
            raise StorageError(self.path, "sync (again)", self._failed_sync)
        try:
            self._disk.check_fault("sync", self.path)
        except StorageError as error:
            self._failed_sync = error.cause
            self._content.sync_failed = True
            raise
        # Linux does the same: after a failed sync a later one, by another handle, succeeds without
        # saving the old changes.
        if not self._content.sync_failed:
            self._content.unsynced.clear()

    def retain(self) -> None:
        if self._references == 0:
            raise InvariantBroken(f"{self.path} was retained after it was closed")
        self._references += 1

    def release(self) -> None:
        if self._references == 0:
            raise InvariantBroken(f"{self.path} was released once too often")
        self._references -= 1
        if self._references == 0:
            self._content.open_count -= 1
            self._disk.open_count -= 1
            self._disk.reclaim(self._content)

    def fileno(self) -> int | None:
        self._check_open()
        return None

    def resident(self, position: int, size_bytes: int) -> bool:
        return True

    # Everything is in memory, so a read never waits.
    def read_resident(self, position: int, size_bytes: int) -> bytes:
        return self.read(position, size_bytes)

    def will_need(self, position: int, size_bytes: int) -> None:
        self._check_open()

    def _check_open(self) -> None:
        if self._references == 0:
            raise InvariantBroken(f"{self.path} is used after it was closed")

    def _check_writable(self, operation: str) -> None:
        self._check_open()
        if self._read_only:
            raise StorageError(self.path, operation, "EBADF")

    def __repr__(self) -> str:
        return f"MemFile({self.path}, {self.size_bytes()} bytes, {self._references} references)"


class MemLock:
    """A held lock of a `MemDisk`."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: "MemDisk", path: str) -> None:
        self.path = path
        self._disk: MemDisk | None = disk

    def release(self) -> None:
        # A second release does nothing: after the first one another holder may have the lock.
        if self._disk is not None:
            self._disk.unlock(self.path)
            self._disk = None


class MemDisk:
    """A disk in memory. Only one thread at a time may change the same file or directory; the log layer obeys that."""

    def __init__(self, *, capacity_bytes: int = UNLIMITED_BYTES, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.capacity_bytes = capacity_bytes
        self.now_ms = now_ms
        self.used_bytes = 0
        self.has_failed = False  # an operation failed, by a fault or for lack of space
        self.open_count = 0  # open handles, as a process counts its descriptors
        self._root = _Directory(now_ms())
        self._locks: dict[str, None] = {}
        self._faults: list[DiskFault] = []

    # -- crashes and faults

    def crash_process(self) -> Self:
        """The disk after the process died: all written bytes are there, and unsynced changes are still unsynced."""
        # This is a copy: a task of the crashed broker that still runs cannot write to the disk of
        # the next start.
        after = self.another()
        # Handles are not cloned, so a file without a name takes no space any more.
        after._root = _clone_directory(self._root, {})
        after.used_bytes = _used_bytes(after._root)
        return after

    def another(self) -> Self:
        """An empty disk with the same capacity and clock."""
        return type(self)(capacity_bytes=self.capacity_bytes, now_ms=self.now_ms)

    def crash_machine(self, rng: random.Random) -> Self:
        """The disk after a power failure: `rng` decides how many unsynced changes of each file survive."""
        # A power failure keeps at most the changes that a process crash keeps.
        after = self.crash_process()
        _lose_in_directory(after._root, rng)
        after.used_bytes = _used_bytes(after._root)
        return after

    def fail_next(
        self, operation: str, cause: str = "EIO", *, path_part: str = "", after: int = 0, left_bytes: int = 0
    ) -> None:
        """Let the method `operation` ("write", "sync", "rename" ...) raise StorageError once, after `after` successes.

        Only paths that contain `path_part` count. A failed write leaves nothing, or its first `left_bytes`, as if the
        truncation after it had failed as well.
        """
        self._faults.append(DiskFault(operation, cause, path_part, after, left_bytes))

    def forget_faults(self) -> None:
        """Cancel all faults that have not occurred yet."""
        self._faults.clear()

    def take_fault(self, operation: str, path: str) -> DiskFault | None:
        """Consume and return the fault that is due at this operation, if any."""
        for fault in self._faults:
            # Each fault counts the successful operations that match it, until its turn comes.
            if fault.operation == operation and fault.path_part in path:
                if fault.successes_before == 0:
                    self._faults.remove(fault)
                    self.has_failed = True
                    return fault
                fault.successes_before -= 1
        return None

    def check_fault(self, operation: str, path: str) -> None:
        """Raise the fault that is due at this operation, if any."""
        fault = self.take_fault(operation, path)
        if fault is not None:
            raise StorageError(path, operation, fault.cause)

    def take_space(self, size_bytes: int, path: str) -> None:
        """Account for a file that grows, or shrinks if negative. ENOSPC beyond the capacity."""
        # A file may always shrink, or a full disk could never be freed.
        if size_bytes > 0 and self.used_bytes + size_bytes > self.capacity_bytes:
            self.has_failed = True
            raise StorageError(path, "write", "ENOSPC")
        self.used_bytes += size_bytes

    def reclaim(self, content: _Content) -> None:
        """Free the space of a file if it has neither a name nor a handle."""
        # POSIX keeps the space of a removed file until its last handle is closed.
        if not content.is_linked and content.open_count == 0:
            self.used_bytes -= len(content.data)

    def unlock(self, path: str) -> None:
        """For `MemLock`."""
        self._locks.pop(path, None)

    # -- the disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemFile:
        self.check_fault("open", path)
        directory, name = self._parent(path, "open")
        # A new file's name is one unsynced change of its directory, so a machine crash may lose the whole file.
        node = directory.entries.get(name)
        if node is None and create:
            node = _Content(self.now_ms())
            directory.put((name, node))
        return MemFile(self, path, self._file(node, path, "open"), read_only=read_only)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def list(self, path: str) -> list[str]:
        self.check_fault("list", path)
        return sorted(self._directory(path, "list").entries)

    def make_directory(self, path: str) -> None:
        self.check_fault("make_directory", path)
        # Each new directory is a change of its own parent: a machine crash may keep an outer and lose an inner one.
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory(self.now_ms())
                directory.put((name, node))
            if not isinstance(node, _Directory):
                raise StorageError(path, "make directory", "ENOTDIR" if name != _names(path)[-1] else "EEXIST")
            directory = node

    def rename(self, old: str, new: str) -> None:
        operation = f"rename to {new}"
        self.check_fault("rename", old)
        if parent_of(old) != parent_of(new):
            raise StorageError(old, operation, "EXDEV")
        directory, old_name = self._parent(old, operation)
        new_name = _names(new)[-1]
        node = directory.entries.get(old_name)
        replaced = directory.entries.get(new_name)
        if node is None:
            raise StorageError(old, operation, "ENOENT")

        # From here on the errors are those of rename(2).
        if node is replaced:
            return
        if isinstance(replaced, _Directory) and replaced.entries:
            raise StorageError(old, operation, "ENOTEMPTY" if isinstance(node, _Directory) else "EISDIR")
        if replaced is not None and isinstance(replaced, _Directory) is not isinstance(node, _Directory):
            raise StorageError(old, operation, "ENOTDIR" if isinstance(node, _Directory) else "EISDIR")

        # rename(2) is atomic: one change for both names.
        directory.put((old_name, None), (new_name, node))
        self._unlink(replaced)

    def remove(self, path: str) -> None:
        # The name goes, and its removal is unsynced; open handles still have the content.
        self.check_fault("remove", path)
        directory, name = self._parent(path, "remove")
        content = self._file(directory.entries.get(name), path, "remove")
        directory.put((name, None))
        self._unlink(content)

    def remove_tree(self, path: str) -> None:
        self.check_fault("remove_tree", path)
        # The content goes first, as in a real removal: a crash may leave a part of the tree.
        self._empty(self._directory(path, "remove"))
        directory, name = self._parent(path, "remove")
        directory.put((name, None))

    def size(self, path: str) -> int:
        return len(self._file(self._find(path), path, "look up").data)

    def modified_ms(self, path: str) -> int:
        return self._existing(path, "look up").modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._existing(path, "set the time of").modified_ms = modified_ms

    def sync_directory(self, path: str) -> None:
        self.check_fault("sync_directory", path)
        self._directory(path, "sync directory").unsynced.clear()

    def read_file(self, path: str) -> bytes:
        self.check_fault("read_file", path)
        return bytes(self._file(self._find(path), path, "read").data)

    def peek(self, path: str) -> bytearray:
        """The live bytes of a file, uncopied and without faults, for observers. Empty if there is no such file."""
        node = self._find(path)
        return node.data if isinstance(node, _Content) else bytearray()

    def replace_file(self, path: str, data: bytes) -> None:
        self.check_fault("replace_file", path)
        directory, name = self._parent(path, "replace")
        replaced = directory.entries.get(name)
        if isinstance(replaced, _Directory):
            raise StorageError(path, "replace", "EISDIR")
        # The old content still takes its space while the new one is written beside it.
        self.take_space(len(data), path)
        # A new inode without unsynced changes: its bytes were synced before the rename.
        directory.put((name, _Content(self.now_ms(), bytearray(data))))
        directory.unsynced.clear()  # `replace_file` ends with a directory sync
        self._unlink(replaced)

    def lock(self, path: str) -> MemLock:
        self.check_fault("lock", path)
        if path in self._locks:
            raise DirectoryLocked(path)
        # Locks live in a table beside the files, so a crash, which copies only files, releases them.
        self.open(path, create=True).release()
        self._locks[path] = None
        return MemLock(self, path)

    def volume_bytes(self, path: str) -> tuple[int, int]:
        self._directory(path, "look up")
        return self.capacity_bytes, self.capacity_bytes - self.used_bytes

    def absolute_path(self, path: str) -> str:
        return "/" + "/".join(_names(path))

    # -- parts

    def _find(self, path: str) -> _Content | _Directory | None:
        node: _Content | _Directory | None = self._root
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _existing(self, path: str, operation: str) -> _Content | _Directory:
        node = self._find(path)
        if node is None:
            raise StorageError(path, operation, "ENOENT")
        return node

    def _directory(self, path: str, operation: str) -> _Directory:
        node = self._existing(path, operation)
        if not isinstance(node, _Directory):
            raise StorageError(path, operation, "ENOTDIR")
        return node

    def _parent(self, path: str, operation: str) -> tuple[_Directory, str]:
        *_, name = _names(path)
        parent = self._find(parent_of(path))
        if not isinstance(parent, _Directory):
            raise StorageError(path, operation, "ENOENT" if parent is None else "ENOTDIR")
        return parent, name

    def _file(self, node: _Content | _Directory | None, path: str, operation: str) -> _Content:
        if not isinstance(node, _Content):
            raise StorageError(path, operation, "ENOENT" if node is None else "EISDIR")
        return node

    def _unlink(self, node: _Content | _Directory | None) -> None:
        if isinstance(node, _Content):
            node.is_linked = False
            self.reclaim(node)

    def _empty(self, directory: _Directory) -> None:
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, _Directory):
                self._empty(node)
            directory.put((name, None))
            self._unlink(node)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _used_bytes(directory: _Directory) -> int:
    return sum(
        _used_bytes(node) if isinstance(node, _Directory) else len(node.data) for node in directory.entries.values()
    )


def _clone_directory(directory: _Directory, clones: _Clones) -> _Directory:
    """A deep copy. A file that several entries or undo records refer to is copied once."""
    copy = clones[directory] = _Directory(directory.modified_ms)
    copy.entries = {name: _clone(node, clones) for name, node in directory.entries.items()}
    copy.unsynced = [
        tuple((name, node and _clone(node, clones)) for name, node in change) for change in directory.unsynced
    ]
    return copy


def _clone(node: _Content | _Directory, clones: _Clones) -> _Content | _Directory:
    # The copy of a file must be one inode, whichever of its names is kept or undone.
    if node in clones:
        return clones[node]
    if isinstance(node, _Directory):
        return _clone_directory(node, clones)
    copy = clones[node] = replace(node, data=bytearray(node.data), unsynced=list(node.unsynced), open_count=0)
    return copy


def _lose_in_directory(directory: _Directory, rng: random.Random) -> None:
    # The entries come first, so that a file that comes back under its old name loses its own
    # unsynced changes below.
    for change in reversed(directory.unsynced[_kept(len(directory.unsynced), rng) :]):
        directory.undo(change)
    directory.unsynced.clear()
    for _, node in sorted(directory.entries.items()):
        # What is lost is drawn for each node: two files may show different moments.
        if isinstance(node, _Directory):
            _lose_in_directory(node, rng)
        else:
            _lose_in_file(node, rng)


def _lose_in_file(content: _Content, rng: random.Random) -> None:
    # The loop undoes the latest change first, so `torn` ends as the data of the first lost write: only it may be torn.
    kept = _kept(len(content.unsynced), rng)
    torn = b""
    for change in reversed(content.unsynced[kept:]):
        torn = bytes(content.data[change.position : change.position + change.written_bytes])
        content.data[change.position : change.position + len(change.replaced)] = change.replaced
        del content.data[change.old_size :]
    if torn:
        _tear(content.data, content.unsynced[kept].position, torn, rng)
    # After a power failure a start finds the content of the device, so nothing is unsynced any more.
    content.unsynced.clear()
    content.is_linked = True
    content.sync_failed = False


def _tear(data: bytearray, position: int, written: bytes, rng: random.Random) -> None:
    """Restore a part of a lost write: nothing, its beginning, or its beginning with zeros up to its full length."""
    arrived = rng.choice((0, rng.randrange(len(written))))
    if arrived == 0 and rng.random() < 0.5:
        return
    # The new size of a file may reach the disk before its data: then the rest reads as zeros.
    has_size = rng.random() < 0.5
    end = position + (len(written) if has_size else arrived)
    data.extend(bytes(max(0, end - len(data))))
    data[position : position + arrived] = written[:arrived]


def _kept(count: int, rng: random.Random) -> int:
    """How many of `count` unsynced changes survive: none, all, or a random number, with equal probability."""
    # A uniform number alone would rarely lose or keep all changes, if there are many.
    return rng.choice((0, count, rng.randint(0, count)))
