"""The files of a partition's directory: their names, who has them open, and how many (reference D.2).

A log may have thousands of segments, a broker thousands of logs. So only files that are being written stay open all the
time; the others are opened on use and kept in the order of their use, up to a limit for the whole broker.

On the event loop files come from `SegmentStore.shared`; work in a thread must use `SegmentStore.private`, for the loop
may close its files at any moment.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from barnabas.storage.disk import Disk, File, StorageError, join

LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
SWAPPED_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)  # in the order in which compaction renames them
DELETED, CLEANED, SWAP, RENEWED = ".deleted", ".cleaned", ".swap", ".renewed"
RENEWAL_STEP_BYTES = 1 << 20
OPEN_FILES_LIMIT = 256  # of a whole broker, besides the active segments

Opener = Callable[[str], AbstractContextManager[File]]


def offset_of_name(name: str) -> int | None:
    """The offset that a segment's file is named after; None for other names."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


class OpenFiles:
    """The open files of many logs: those being written (pinned), and the last used of the others, at most `limit`.

    Files are used on the event loop only; a file that is retained (by a slice on its way to a client) stays open
    beyond the limit. `pin` and `drop` may also come from the thread that prepares a log: each step on the dictionaries
    is one atomic operation.
    """

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_LIMIT) -> None:
        self.limit = limit
        self._disk = disk
        self._pinned: dict[str, File] = {}
        self._recent: OrderedDict[str, File] = OrderedDict()  # least recently used first

    def get(self, path: str) -> File:
        """The file, opened if need be. It may be closed by the next `get`, unless it is retained. Blocking: short."""
        file = self._pinned.get(path)
        if file is not None:
            return file
        file = self._recent.pop(path, None)
        if file is None:
            file = self._disk.open(path, read_only=True)
        self._recent[path] = file
        self._shrink()
        return file

    def pin(self, path: str, file: File) -> None:
        """Take over a file that stays open until it is unpinned or dropped."""
        self.drop(path)
        self._pinned[path] = file

    def unpin(self, path: str) -> None:
        """The file is not written any more: from now on it is one of the others."""
        self._recent[path] = self._pinned.pop(path)
        self._shrink()

    def drop(self, path: str) -> None:
        """Let go of the file: its name is about to stand for something else, or for nothing."""
        for files in (self._pinned, self._recent):
            file = files.pop(path, None)
            if file is not None:
                file.release()

    def drop_directory(self, directory: str) -> None:
        """Let go of all files in this directory."""
        prefix = join(directory, "")
        for path in (*self._pinned, *self._recent):
            if path.startswith(prefix):
                self.drop(path)

    def rename_directory(self, old: str, new: str) -> None:
        """A directory got another name: what is being written goes on, the others are opened again on use."""
        for path in [each for each in self._pinned if each.startswith(join(old, ""))]:
            file = self._pinned.pop(path)
            file.path = new + path[len(old) :]
            self._pinned[file.path] = file
        self.drop_directory(old)

    def __len__(self) -> int:
        return len(self._pinned) + len(self._recent)

    def _shrink(self) -> None:
        while len(self._recent) > self.limit:
            self._recent.popitem(last=False)[1].release()


class SegmentStore:
    """Where the segments of one log live."""

    __slots__ = ("directory", "disk", "open_files")

    def __init__(self, disk: Disk, directory: str, open_files: OpenFiles) -> None:
        self.disk = disk
        self.directory = directory
        self.open_files = open_files

    def path(self, offset: int, suffix: str) -> str:
        return f"{self.directory}/{offset:020d}{suffix}"

    def shared(self, path: str) -> AbstractContextManager[File]:
        """The file as the event loop has it, for the length of one synchronous step."""
        return nullcontext(self.open_files.get(path))

    @contextmanager
    def private(self, path: str) -> Iterator[File]:
        """The file for a worker thread, which opens and closes it itself."""
        with closing_file(self.disk.open(path, read_only=True)) as file:
            yield file

    def save(self, path: str, data: bytes) -> None:
        """Write a whole file in place. Blocking: short. Durable: no; who reads it must be able to check it."""
        file = self.disk.open(path, create=True)
        try:
            file.write(0, data)
            if file.size_bytes() > len(data):
                file.truncate(len(data))
        finally:
            file.release()

    def remove_segment(self, base_offset: int) -> None:
        """Remove the files of a segment, the log last: without it the others are swept at the next start."""
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = self.path(base_offset, suffix)
            self.open_files.drop(path)
            if self.disk.exists(path):
                self.disk.remove(path)


def renew(disk: Disk, directory: str, recovery_point: int) -> None:
    """Rewrite a log's files from the segment on in which the recovery point lies, durably. Blocking: long.

    What a failed sync has made the kernel believe of their pages ends with the files that are replaced. The log must
    not be open. Interrupted, it must be done again; what it left goes first. It needs as much room as the largest file:
    writing the bytes again in place would need none, but it could tear what is safe, and it would meet the same blocks
    of the device that failed.
    """
    names = disk.list(directory)
    for name in names:
        if name.endswith(RENEWED):
            disk.remove(f"{directory}/{name}")
    bases = [offset for name in names if name.endswith(LOG) and (offset := offset_of_name(name)) is not None]
    first = max((base for base in bases if base < recovery_point), default=0)
    for name in names:
        offset = offset_of_name(name)
        if offset is not None and offset >= first and name.endswith(SEGMENT_SUFFIXES):
            _renew_file(disk, f"{directory}/{name}")
    disk.sync_directory(directory)


def _renew_file(disk: Disk, path: str) -> None:
    renewed = path + RENEWED
    try:
        _copy(disk, path, renewed)
        disk.set_modified_ms(renewed, disk.modified_ms(path))
        disk.rename(renewed, path)
    except StorageError:
        with suppress(StorageError):  # the first error says more
            if disk.exists(renewed):
                disk.remove(renewed)  # or it would fill a disk that has no room for it
        raise


def _copy(disk: Disk, source: str, target: str) -> None:
    """Write the bytes of a file into a new one and sync them."""
    with closing_file(disk.open(source, read_only=True)) as file, closing_file(disk.open(target, create=True)) as copy:
        for position in range(0, file.size_bytes(), RENEWAL_STEP_BYTES):
            copy.write(position, file.read(position, RENEWAL_STEP_BYTES))
        copy.sync()


@contextmanager
def closing_file(file: File) -> Iterator[File]:
    """`with closing_file(disk.open(path)) as file:` gives the file back at the end."""
    try:
        yield file
    finally:
        file.release()
