"""The files of a partition's directory: their names, and which of them are open (reference D.2).

A log may have thousands of segments, and a broker thousands of logs. So only the files that are being written stay open
all the time. The others are opened on use and kept in an LRU cache with a limit for the whole broker.

The event loop gets files from `SegmentStore.shared`. A worker thread must use `SegmentStore.private`, because the loop
may close a shared file at any time.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from barnabas.storage.disk import Disk, File, StorageError, join, parent_of

LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
SWAPPED_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)  # in the order in which compaction renames them
DELETED, CLEANED, SWAP, RENEWED = ".deleted", ".cleaned", ".swap", ".renewed"
RENEWAL_STEP_BYTES = 1 << 20  # of memory, while a file is copied
OPEN_FILES_LIMIT = 256  # of the whole broker, in addition to the active segments

Opener = Callable[[str], AbstractContextManager[File]]


def offset_of_name(name: str) -> int | None:
    """The base offset in the name of a segment's file; None for other names."""
    # The name has exactly twenty ASCII digits: `int` alone would also accept "+1", "1_0" and digits
    # of other alphabets.
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


class OpenFiles:
    """The open files of many logs: those being written (pinned), and up to `limit` of the others, by last use.

    The files are used on the event loop only. A retained file (by a slice that is being sent) stays open beyond the
    limit.
    """

    # `pin` and `drop` may also run in the thread that opens a log. They need no lock, because each step on a dictionary
    # is one atomic operation.

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_LIMIT) -> None:
        self.limit = limit
        self._disk = disk
        # Files are grouped by directory, so that the close of one log among 10,000 costs no search
        # through the files of all.
        self._pinned: dict[str, dict[str, File]] = {}  # directory -> path -> file
        self._recent: OrderedDict[str, File] = OrderedDict()  # least recently used first

    def get(self, path: str) -> File:
        """The file, opened if needed. The next `get` may close it unless the caller retains it. Blocking: short."""
        file = self._pinned.get(parent_of(path), {}).get(path)
        if file is not None:
            return file
        # Taken out and put back at the end, which is the place of the most recently used.
        file = self._recent.pop(path, None)
        if file is None:
            file = self._disk.open(path, read_only=True)
        self._recent[path] = file
        self._shrink()
        return file

    def pin(self, path: str, file: File) -> None:
        """Take ownership of a file, which stays open until it is unpinned or dropped."""
        # The path may have a cached read-only handle, which `get` must not return any more.
        self.drop(path)
        self._pinned.setdefault(parent_of(path), {})[path] = file

    def unpin(self, path: str) -> None:
        """Move a pinned file, which is not written any more, to the cached ones."""
        self._recent[path] = self._pinned[parent_of(path)].pop(path)
        self._shrink()

    def drop(self, path: str) -> None:
        """Release the file, if it is open: its path is about to be renamed, replaced or removed."""
        for files in (self._pinned.get(parent_of(path), {}), self._recent):
            file = files.pop(path, None)
            if file is not None:
                file.release()

    def drop_directory(self, directory: str) -> None:
        """Release all files in this directory."""
        prefix = join(directory, "")  # with "/": "orders-1" must not match "orders-10"
        for path in [each for each in (*self._pinned.get(directory, ()), *self._recent) if each.startswith(prefix)]:
            self.drop(path)
        self._pinned.pop(directory, None)

    def rename_directory(self, old: str, new: str) -> None:
        """Follow the rename of a directory: pinned files stay open, cached ones are reopened on use."""
        # A pinned descriptor stays valid across the rename; only its path changes.
        for path, file in self._pinned.pop(old, {}).items():
            self.pin(new + path[len(old) :], file)
            file.path = new + path[len(old) :]
        self.drop_directory(old)

    def __len__(self) -> int:
        return sum(map(len, self._pinned.values())) + len(self._recent)

    def _shrink(self) -> None:
        # `release` drops only the reference of this table: a file that is being sent is closed later.
        while len(self._recent) > self.limit:
            self._recent.popitem(last=False)[1].release()


class SegmentStore:
    """The directory of one log's segments: paths, open files, removal."""

    __slots__ = ("directory", "disk", "open_files")

    def __init__(self, disk: Disk, directory: str, open_files: OpenFiles) -> None:
        self.disk = disk
        self.directory = directory
        self.open_files = open_files

    def path(self, offset: int, suffix: str) -> str:
        return f"{self.directory}/{offset:020d}{suffix}"

    def shared(self, path: str) -> AbstractContextManager[File]:
        """The cached file, for one synchronous step on the event loop."""
        return nullcontext(self.open_files.get(path))

    @contextmanager
    def private(self, path: str) -> Iterator[File]:
        """A handle of the file that is opened and closed here, for a worker thread."""
        with closing_file(self.disk.open(path, read_only=True)) as file:
            yield file

    def save(self, path: str, data: bytes) -> None:
        """Write a whole file in place. Blocking: short. Durable: no; readers must be able to detect damage."""
        file = self.disk.open(path, create=True)
        try:
            file.write(0, data)
            # A longer file of the same name may be left from before a crash.
            if file.size_bytes() > len(data):
                file.truncate(len(data))
        finally:
            file.release()

    def rename_directory(self, directory: str) -> None:
        """Rename the directory within its parent directory. Blocking: short. Durable: no.

        No thread may open files of the log by path meanwhile.
        """
        # The rename first: if it fails, nothing has changed.
        self.disk.rename(self.directory, directory)
        self.open_files.rename_directory(self.directory, directory)
        self.directory = directory

    def remove_segment(self, base_offset: int) -> None:
        """Remove all files of a segment. Blocking: long (by their size). Durable: no."""
        # The .log goes last: after a crash in between the segment is still whole, and missing indexes are rebuilt.
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = self.path(base_offset, suffix)
            self.open_files.drop(path)
            if self.disk.exists(path):
                self.disk.remove(path)


def renew(disk: Disk, directory: str, recovery_point: int) -> None:
    """Copy the files of a log from the segment with the recovery point on, and replace them durably. Blocking: long.

    For a log directory with a `.failed` marker. The log must not be open. It needs room for a copy of the largest file.
    If it is interrupted, it must be repeated.
    """
    # After a failed fsync the kernel marks dirty pages clean, so another fsync of the same file would succeed and save
    # nothing; a new file has no such pages. To write the bytes again in place would need no room, but a power failure
    # could tear bytes that are safe, and the bytes would go to the blocks of the device that have just failed.
    names = disk.list(directory)
    # Copies of an interrupted run go first, to free their space.
    for name in names:
        if name.endswith(RENEWED):
            disk.remove(f"{directory}/{name}")
    bases = [offset for name in names if name.endswith(LOG) and (offset := offset_of_name(name)) is not None]
    # The segment that ends at the recovery point counts, too: `PartitionLog.unsynced_segments` explains why.
    first = max((base for base in bases if base < recovery_point), default=0)
    for name in names:
        offset = offset_of_name(name)
        if offset is not None and offset >= first and name.endswith(SEGMENT_SUFFIXES):
            _renew_file(disk, f"{directory}/{name}")
    # The caller removes the `.failed` marker after this: by then each name must refer to its new file durably.
    disk.sync_directory(directory)


def _renew_file(disk: Disk, path: str) -> None:
    renewed = path + RENEWED
    try:
        _copy(disk, path, renewed)
        # retention.ms counts from the file's mtime if the records have no timestamps.
        disk.set_modified_ms(renewed, disk.modified_ms(path))
        # The copy replaces the suspect file only now that it is complete and synced.
        disk.rename(renewed, path)
    except StorageError:
        with suppress(StorageError):  # the first error is the informative one
            if disk.exists(renewed):
                disk.remove(renewed)  # the disk may be full
        raise


def _copy(disk: Disk, source: str, target: str) -> None:
    """Copy the bytes of a file into a new one and sync it."""
    with closing_file(disk.open(source, read_only=True)) as file, closing_file(disk.open(target, create=True)) as copy:
        for position in range(0, file.size_bytes(), RENEWAL_STEP_BYTES):
            copy.write(position, file.read(position, RENEWAL_STEP_BYTES))
        copy.sync()


@contextmanager
def closing_file(file: File) -> Iterator[File]:
    """`with closing_file(disk.open(path)) as file:` releases the file at the end."""
    try:
        yield file
    finally:
        file.release()
