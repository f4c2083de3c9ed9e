"""The interface to a disk: what everything above uses, and the errors.

It has two protocols, `Disk` (names) and `File` (bytes). `osdisk.py` implements them on the operating system, and
`memdisk.py` in memory, for tests and the simulator. Every method is synchronous and states how long it may block:

    never   answered from memory
    short   works on the page cache: may run on the event loop
    long    waits for the device, or takes time in proportion to a file or directory: run it in a worker thread

Durability has two halves, as in POSIX. The bytes of a file survive a machine crash once `File.sync` has returned; the
*name* of a file (its creation, renaming or removal) once `Disk.sync_directory` of its directory has returned. A process
crash loses neither. Only `replace_file` does both, and is atomic as well.

An OSError becomes a `StorageError`, which takes a log directory offline (except a shortage). Use of a closed file is a
bug of the caller, and becomes `InvariantBroken`.

Files are reference-counted. A `FileSlice` in a send queue holds a reference, so a segment may be deleted while it is
being sent: the name goes at once, the descriptor with the last reference. If the file were closed earlier, the
operating system could give its descriptor number to another file, whose bytes would then go to the client.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

BytesLike = bytes | bytearray | memoryview  # a memoryview needs format 'B': len() must count bytes

SHORTAGES = frozenset({"EMFILE", "ENFILE", "ENOMEM"})  # of the process or the machine, not of the disk
FILE_SYNCS = frozenset({"sync", "sync (again)"})
# With these errors the kernel refuses one operation before it changes anything; all other errors
# count as a failing device.
LACKS = SHORTAGES | {"ENOSPC", "EDQUOT"}
SHORTAGE_PAUSE_SECONDS = 0.1  # before a retry: other tasks may close files meanwhile
TEMPORARY_SUFFIX = ".tmp"
# Explanations of the errors that an operator can do something about.
MEANINGS = {
    "EACCES": "permission denied",
    "EPERM": "operation not permitted",
    "EROFS": "the file system is read-only",
    "ENOSPC": "no space is left on the device",
    "EDQUOT": "the quota is used up",
    "EMFILE": "too many open files",
    "ENOENT": "there is no such file or directory",
    "ENOTDIR": "a part of the path is no directory",
}


class InThread(Protocol):
    """Run a blocking function in a thread and return its result (the simulator runs it inline, after a delay)."""

    # `controller/store/store.py` has the same protocol: storage and controller may not import each other, and `wire`,
    # which both import, has no code that waits.

    async def __call__(self, function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result: ...


class StorageError(Exception):
    """A failed disk operation: its `path`, its `operation`, and as `cause` the name of an errno, such as "ENOSPC"."""

    def __init__(self, path: str, operation: str, cause: str) -> None:
        super().__init__(path, operation, cause)
        self.path = path
        self.operation = operation
        self.cause = cause

    @property
    def is_shortage(self) -> bool:
        """Whether the process lacked a descriptor or memory: the operation failed, but the disk did not."""
        # A sync that fails for lack of memory may have dropped dirty pages like any other failed sync.
        return self.cause in SHORTAGES and not self.is_failed_sync

    @property
    def is_failed_sync(self) -> bool:
        """Whether a sync of a file failed, which is final: unsynced bytes may be lost even if a later sync succeeds."""
        return self.operation in FILE_SYNCS

    @property
    def endangers_unsynced(self) -> bool:
        """Whether bytes written earlier and not synced may be lost although a later sync succeeds.

        A failed sync and a failing device have this effect. A shortage or a full disk only refuses one operation.
        """
        # `startswith` takes in "sync directory": names that were made before may be lost as well.
        return self.operation.startswith("sync") or self.cause not in LACKS

    def __str__(self) -> str:
        meaning = MEANINGS.get(self.cause)
        return f"{self.path}: {self.cause}{f', {meaning}' if meaning else ''} ({self.operation})"


class HalfDone(StorageError):
    """An operation that failed half way. Its result is unusable, so it is never treated as a shortage."""

    # Even if the cause is a shortage, the files now contradict the state in memory, so the
    # directory has to go offline.
    is_shortage = False
    is_failed_sync = False

    def __init__(self, error: StorageError, left: str) -> None:
        super().__init__(error.path, f"{error.operation}, leaving {left}", error.cause)
        self.is_failed_sync = error.is_failed_sync


class DirectoryLocked(StorageError):
    """Another process, or another broker of this process, holds the lock file of a directory."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "lock", "EAGAIN")

    def __str__(self) -> str:
        return f"{parent_of(self.path)} is used by another process (or another broker of this process): {self.path}"


class File(Protocol):
    """The bytes of one open file.

    Writes come from one thread at a time; `sync`, `read`, `retain` and `release` may run in any thread.
    """

    path: str  # the path it was opened with; a rename does not change it

    def size_bytes(self) -> int:
        """The size of the file. Blocking: never."""

    def write(self, position: int, data: BytesLike) -> None:
        """Write all of `data` at `position`, or raise StorageError. Blocking: short. Durable after `sync`.

        If a write fails half way, the file is truncated to its size before, so an append leaves all of `data` or
        nothing (bytes overwritten inside the old size stay overwritten).
        """

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes at `position`; fewer only at the end of the file. Blocking: short if resident, else long."""

    def truncate(self, size_bytes: int) -> None:
        """Shorten the file, or extend it with a hole of zeros. Blocking: short. Durable after `sync`."""

    def sync(self) -> None:
        """Make the bytes written so far durable. Blocking: long.

        A failed sync is final: the kernel may have dropped the dirty pages, so a second try that succeeds would prove
        nothing. Every later `sync` of this file raises the same error.
        """

    def retain(self) -> None:
        """Add a reference. Blocking: never."""

    def release(self) -> None:
        """Drop a reference; the last one closes the file. `Disk.open` returns a file with one. Blocking: never."""

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None if there is none, then send the result of `read`. Blocking: never."""

    def resident(self, position: int, size_bytes: int) -> bool:
        """Whether the page cache probably holds this range; True if unknown. Blocking: never."""

    def read_resident(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        """The result of `read` if the page cache holds all of it, or if that is unknown; else None. Blocking: never."""

    def will_need(self, position: int, size_bytes: int) -> None:
        """Start reading ahead. Blocking: short."""


class Lock(Protocol):
    """A held exclusive lock."""

    def release(self) -> None:
        """Release the lock; idempotent. Blocking: short."""


class Disk(Protocol):
    """Directory entries and whole files. Paths are strings with "/". Every failure is a StorageError."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file; `create` makes it if it is missing. Blocking: short. A new name needs `sync_directory`."""

    def exists(self, path: str) -> bool:
        """Whether the path exists. Blocking: short."""

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory. Blocking: short."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted. Blocking: long (by its size)."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its missing parents; it may exist. Blocking: short. Needs `sync_directory`."""

    def rename(self, old: str, new: str) -> None:
        """Rename within a directory, replacing the file `new`. Blocking: long. Needs `sync_directory`."""

    def remove(self, path: str) -> None:
        """Remove a file; open handles stay readable. Blocking: long (by its size). Needs `sync_directory`."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content. Blocking: long. Needs `sync_directory` of its parent."""

    def size(self, path: str) -> int:
        """The size of a file in bytes. Blocking: short."""

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in wall clock milliseconds. Blocking: short."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time, for a rewritten copy of an older file. Blocking: short."""

    def sync_directory(self, path: str) -> None:
        """Make all creations, renamings and removals in this directory durable. Blocking: long."""

    def read_file(self, path: str) -> bytes:
        """A whole (small) file. Blocking: long."""

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace the content of a (small) file, atomically and durably. Blocking: long.

        A crash leaves the old or the new content, and perhaps a `.tmp` file.
        An error leaves the old content; HalfDone the new one, which is perhaps not durable.
        """

    def lock(self, path: str) -> Lock:
        """Create the file if needed and lock it exclusively; DirectoryLocked if it is locked. Blocking: short."""

    def volume_bytes(self, path: str) -> tuple[int, int]:
        """Total bytes of the volume of this directory, and bytes available to this process. Blocking: short."""

    def absolute_path(self, path: str) -> str:
        """The absolute path; links and ".." are not resolved. Blocking: short."""


def join(directory: str, name: str) -> str:
    """The path of `name` in `directory`."""
    return directory + name if directory.endswith("/") else f"{directory}/{name}"


def parent_of(path: str) -> str:
    """The directory of this path; "." or "/" if it has none."""
    head, _, tail = path.rstrip("/").rpartition("/")
    if head:
        return head
    return "/" if tail and path.startswith("/") else "."


def make_durable_directory(disk: Disk, path: str) -> None:
    """Make a directory and its missing parents, and sync each new name. Blocking: long."""
    # The directories are made one at a time, from the top: each parent's sync makes one name
    # durable.
    missing = []
    while not disk.exists(path):
        missing.append(path)
        path = parent_of(path)
    for made in reversed(missing):
        disk.make_directory(made)
        # Each directory is synced before anything is made in it, so that no crash leaves a log in a lost directory.
        try:
            disk.sync_directory(parent_of(made))
        except StorageError:
            with suppress(StorageError):  # the first error is the informative one
                # The next call would find the directory, and skip the sync that has just failed.
                disk.remove_tree(made)
            raise


class FileSlice:
    """A range of a file that is to be sent. Holds a reference to the file until `release`."""

    __slots__ = ("_held", "file", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int) -> None:
        self._held = False  # for `__del__`, if the file cannot be retained
        file.retain()  # the segment may be deleted before the range is sent
        self._held = True
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def read(self) -> bytes:
        """The bytes of the range; fewer if the file was truncated since, and then none of them may be sent."""
        return self.file.read(self.position, self.size_bytes)

    def release(self) -> None:
        """Release the reference; idempotent."""
        if self._held:
            self._held = False
            self.file.release()

    # A request may be cancelled at any checkpoint between reading and sending; without this the descriptor would stay
    # open until the broker stops.
    def __del__(self) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path}, {self.position}+{self.size_bytes})"
