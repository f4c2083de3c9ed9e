"""The disk of the operating system (edge): the only file that handles an OSError."""

import errno
import fcntl
import os
import threading
from types import TracebackType

from barnabas.storage.disk import TEMPORARY_SUFFIX, BytesLike, DirectoryLocked, HalfDone, StorageError, parent_of
from barnabas.wire.errors import InvariantBroken

RESIDENT_PROBE_STEP_BYTES = 256 * 1024  # one probe costs about 1 us; read-ahead loads about this much at once

_LOCK_CONTENDED = frozenset({errno.EACCES, errno.EAGAIN})
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
_READ_IF_RESIDENT: int | None = getattr(os, "RWF_NOWAIT", None)
CANNOT_TELL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # the file system does not support RWF_NOWAIT


class _Mapped:
    """`with _Mapped(path, operation):` turns an OSError into a StorageError."""

    __slots__ = ("_operation", "_path")

    def __init__(self, path: str, operation: str) -> None:
        self._path = path
        self._operation = operation

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise _storage_error(self._path, self._operation, error) from error


def _storage_error(path: str, operation: str, error: OSError) -> StorageError:
    return StorageError(path, operation, errno.errorcode.get(error.errno or 0, str(error)))


class OsFile:
    """A `File` over a descriptor."""

    # The size is tracked here instead of by `fstat`: no other process writes to a locked log directory.

    __slots__ = ("_counting", "_descriptor", "_failed_sync", "_references", "_size", "path")

    def __init__(self, path: str, descriptor: int, size_bytes: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size_bytes
        self._references = 1
        self._counting = threading.Lock()
        self._failed_sync: str | None = None

    def size_bytes(self) -> int:
        return self._size

    def write(self, position: int, data: BytesLike) -> None:
        size = len(data)
        # `pwrite` and `pread` have no file position that threads would share.
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != size:
                self._write_rest(position, data, written)
        except OSError as error:
            # A part of a batch must not stay behind the log's end: a shorter append would overwrite only its beginning,
            # and leave garbage. If the truncation fails as well, the file must not be used: HalfDone.
            failed = self._error("write", error)
            kept = self._cut_back()
            raise (failed if kept is None else HalfDone(failed, f"a part of it (truncate: {kept})")) from error
        end = position + size
        # The size changes only now, because a reader in another thread must not see the new end
        # before.
        self._size = end if end > self._size else self._size

    def _write_rest(self, position: int, data: BytesLike, written: int) -> None:
        # `pwrite` may write less than asked, for example on a nearly full disk; the next call then gives the errno.
        rest = memoryview(data)
        while written < len(rest):
            step = os.pwrite(self._descriptor, rest[written:], position + written)
            if step == 0:
                raise OSError(errno.ENOSPC, "nothing was written")
            written += step

    def _cut_back(self) -> str | None:
        """Truncate to the old size after a failed write. Returns the errno's name if that fails, too."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            return _storage_error(self.path, "truncate", error).cause
        return None

    def read(self, position: int, size_bytes: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size_bytes, position)
            # `pread` may return less than asked although the file goes on.
            if len(data) == size_bytes or position + len(data) >= self._size:
                return data
            return self._read_rest(position, size_bytes, data)
        except OSError as error:
            raise self._error("read", error) from error

    def _read_rest(self, position: int, size_bytes: int, data: bytes) -> bytes:
        pieces = [data]
        position += len(data)
        size_bytes -= len(data)
        while size_bytes and (data := os.pread(self._descriptor, size_bytes, position)):
            pieces.append(data)
            position += len(data)
            size_bytes -= len(data)
        return b"".join(pieces)

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            raise self._error("truncate", error) from error
        # The size changes after the call: if that fails, the file still has its old size.
        self._size = size_bytes

    def sync(self) -> None:
        # Linux reports a write-back error once and marks the pages clean: another fsync proves nothing.
        if self._failed_sync is not None:
            raise StorageError(self.path, "sync (again)", self._failed_sync)
        try:
            _sync_data(self.fileno())
        except OSError as error:
            mapped = self._error("sync", error)
            self._failed_sync = mapped.cause
            raise mapped from error

    def retain(self) -> None:
        # There is a lock, because worker threads retain and release files as well as the event
        # loop.
        with self._counting:
            if self._references == 0:
                raise InvariantBroken(f"{self.path} was retained after it was closed")
            self._references += 1

    def release(self) -> None:
        with self._counting:
            if self._references == 0:
                raise InvariantBroken(f"{self.path} was released once too often")
            self._references -= 1
            if self._references:
                return
            # The descriptor is -1 before the close: a late user gets InvariantBroken instead of
            # another file with the same number.
            descriptor = self._descriptor
            self._descriptor = -1
        # The close is outside the lock, because it may wait for the device.
        with _Mapped(self.path, "close"):
            os.close(descriptor)

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise InvariantBroken(f"{self.path} is used after it was closed")
        return self._descriptor

    def resident(self, position: int, size_bytes: int) -> bool:
        end = min(position + size_bytes, self._size)
        if _READ_IF_RESIDENT is None or position >= end:
            return True
        # One byte per step is read with RWF_NOWAIT, which fails with EAGAIN instead of waiting for the device.
        probe = [bytearray(1)]
        try:
            for at in (*range(position, end, RESIDENT_PROBE_STEP_BYTES), end - 1):
                os.preadv(self._descriptor, probe, at, _READ_IF_RESIDENT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in CANNOT_TELL:
                return True
            raise self._error("read", error) from error
        return True

    def read_resident(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        # Without the flag (macOS) residency is unknown, and the caller has to risk a wait.
        if _READ_IF_RESIDENT is None:
            return self.read(position, size_bytes)
        data = bytearray(size_bytes)
        try:
            size_read = os.preadv(self._descriptor, [data], position, _READ_IF_RESIDENT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in CANNOT_TELL:
                return self.read(position, size_bytes)
            raise self._error("read", error) from error
        if size_read == size_bytes:
            return data
        # A short read inside the file: the page cache holds only the first part.
        return None if position + size_read < self._size else data[:size_read]

    def will_need(self, position: int, size_bytes: int) -> None:
        # This is only a hint, and macOS lacks it.
        if hasattr(os, "posix_fadvise"):
            try:
                os.posix_fadvise(self._descriptor, position, size_bytes, os.POSIX_FADV_WILLNEED)
            except OSError as error:
                raise self._error("read ahead", error) from error

    def _error(self, operation: str, error: OSError) -> StorageError:
        # The descriptor -1 gives EBADF: that is a bug of the caller, and must not take the log directory offline.
        if self._descriptor < 0:
            raise InvariantBroken(f"{self.path} is used after it was closed") from error
        return _storage_error(self.path, operation, error)

    def __repr__(self) -> str:
        return f"OsFile({self.path}, {self._size} bytes, {self._references} references)"


# The lock files that this process holds, by device and inode. POSIX locks belong to the process: a second `lockf` in
# the same process would succeed, and closing any descriptor of the file would release the first lock. So `lock` checks
# this table before it opens the file.
_held_locks: dict[tuple[int, int], str] = {}
_held_locks_guard = threading.Lock()


class OsLock:
    """A POSIX record lock on a whole file, as Java's FileLock on Unix: Kafka and this broker exclude each other."""

    __slots__ = ("_descriptor", "_key", "path")

    def __init__(self, path: str, descriptor: int, key: tuple[int, int]) -> None:
        self.path = path
        self._descriptor = descriptor
        self._key = key

    def release(self) -> None:
        with _held_locks_guard:
            # Closing the descriptor releases the POSIX lock. The table entry goes in the same guarded step.
            if _held_locks.pop(self._key, None) is not None:
                with _Mapped(self.path, "unlock"):
                    os.close(self._descriptor)


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class OsDisk:
    """The operating system's disk."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        with _Mapped(path, "open"):
            descriptor = os.open(path, flags, 0o644)
            # No `OsFile` owns the descriptor yet: if `fstat` failed, it would leak.
            try:
                size_bytes = os.fstat(descriptor).st_size
            except BaseException:
                os.close(descriptor)
                raise
        return OsFile(path, descriptor, size_bytes)

    def exists(self, path: str) -> bool:
        # `os.path.exists` returns False on every error; a failing device must not look like a missing file.
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _storage_error(path, "look up", error) from error
        return True

    def is_directory(self, path: str) -> bool:
        return self.exists(path) and os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        with _Mapped(path, "list"):
            return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        with _Mapped(path, "make directory"):
            os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        # A rename across directories would need two directory syncs, and would not be atomic in a crash.
        if parent_of(old) != parent_of(new):
            raise StorageError(old, f"rename to {new}", "EXDEV")
        with _Mapped(old, f"rename to {new}"):
            os.replace(old, new)

    def remove(self, path: str) -> None:
        with _Mapped(path, "remove"):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        from shutil import rmtree  # its import loads all of Python's compressors; start-up does not need it

        with _Mapped(path, "remove"):
            rmtree(path)

    def size(self, path: str) -> int:
        with _Mapped(path, "look up"):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        with _Mapped(path, "look up"):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with _Mapped(path, "set the time of"):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def sync_directory(self, path: str) -> None:
        # This must be fsync, not fdatasync: the names in a directory are its metadata.
        with _Mapped(path, "sync directory"):
            descriptor = _open_directory(path)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read_file(self, path: str) -> bytes:
        with _Mapped(path, "read"), open(path, "rb") as file:
            return file.read()

    def replace_file(self, path: str, data: bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        parent = parent_of(path)
        with _Mapped(path, "replace"):
            # The directory is opened first, so that a lack of descriptors changes nothing: after
            # such an error the caller goes on, and relies on the old content.
            directory = _open_directory(parent)
            try:
                # The new content must be durable before the rename, or a power failure could leave an empty file.
                with open(temporary, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)

                # Until the rename is durable, a power failure may bring the old content back.
                try:
                    os.fsync(directory)
                except OSError as error:
                    failed = _storage_error(parent, "sync directory", error)
                    raise HalfDone(failed, f"the new content of {path}") from error
            finally:
                os.close(directory)

    def lock(self, path: str) -> OsLock:
        # The guard covers check, lock and entry in the table: two brokers of one process may start at the same time.
        with _held_locks_guard, _Mapped(path, "lock"):
            self._refuse_if_held(path)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(descriptor)
            except BaseException as error:
                os.close(descriptor)
                # POSIX allows either errno for a lock that another process holds.
                if isinstance(error, OSError) and error.errno in _LOCK_CONTENDED:
                    raise DirectoryLocked(path) from None
                raise
            key = (status.st_dev, status.st_ino)
            _held_locks[key] = path
            return OsLock(path, descriptor, key)

    def _refuse_if_held(self, path: str) -> None:
        # Device and inode are compared, because the same file may have several paths. A file that
        # does not exist yet is held by no broker.
        if self.exists(path):
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in _held_locks:
                raise DirectoryLocked(path)

    def volume_bytes(self, path: str) -> tuple[int, int]:
        with _Mapped(path, "look up"):
            status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def absolute_path(self, path: str) -> str:
        if not path.startswith("/"):
            with _Mapped(path, "look up"):
                path = f"{os.getcwd()}/{path}"
        return "/" + "/".join(filter(None, path.split("/")))
