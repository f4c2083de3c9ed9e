"""One segment of a log: a `.log` file that starts at a base offset, and the indexes beside it (reference D.2-D.6).

A `.log` file is a sequence of entries and nothing else. Today's entry is a record batch (magic 2); directories of older
brokers also hold single messages and wrapped message sets (magic 0 and 1). All begin alike:

    0   base offset i64     (magic 0 and 1: the offset of the message, of a wrapper's *last* message)
    8   length i32          bytes after this field
    12  ...
    16  magic i8
    23  last offset delta i32                                      (magic 2 only)

so this layer walks by offset, length and magic, and never looks at a record. What needs more (timestamps of records,
transactions, producers) asks the batch's header, or `wire.records`.

Two classes. A `Segment` is sealed: its files do not change any more, and are opened on use through `OpenFiles`, which
keeps few descriptors. The last segment of a log is an `ActiveSegment`: its file stays open, its indexes live in memory
and are saved when it is sealed or closed. Until then the index files are stale but never wrong (see `index.py`), and
an append costs one write. After a crash recovery rebuilds the indexes of every segment from the recovery point on, so
nothing is lost by saving late.

On the event loop files come from `SegmentStore.shared`; work in a thread must use `SegmentStore.private`, for the
files of the loop may be closed at any moment.
"""

import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, Protocol

from barnabas.wire.records import CorruptRecords, read_records

from barnabas.storage.disk import Disk, File, join
from barnabas.storage.index import (
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    IndexCorrupt,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
    TransactionIndex,
    find_in_file,
    has_whole_entries,
    last_in_file,
    parse_transactions,
    read_entries,
)
from barnabas.wire.errors import InvariantBroken

LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"

ENTRY_PREFIX_BYTES = 12  # base offset and length, which every magic has
SMALLEST_ENTRY_BYTES = 26  # a magic 0 message without key and value
BATCH_MAGIC = 2
LEADER_EPOCH_AT, MAGIC_1_TIMESTAMP_AT, MAX_TIMESTAMP_AT = 12, 18, 35

# A lookup walks at most about index.interval.bytes plus a batch; two pages hold that for usual batches.
LOOKUP_STEP_BYTES = 8 * 1024
SCAN_WINDOW_BYTES = 1024 * 1024  # recovery reads so much at once, or one batch if that is larger
SEARCH_WINDOW_BYTES = 64 * 1024

_WALK = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_PREFIX = struct.Struct(">qi4xb")  # the part of it that a magic 0 message always has
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

Opener = Callable[[str], AbstractContextManager[File]]


class EntrySpan(NamedTuple):
    """Where an entry lies, in the file and among the offsets. For magic 0 and 1 both offsets are its own one."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    magic: int


class RecordTime(NamedTuple):
    """A record that a search by time found."""

    timestamp: int
    offset: int
    leader_epoch: int


class RollRules(Protocol):
    """When a segment is full: TopicConfig."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int


# -- names


def segment_name(offset: int, suffix: str) -> str:
    """A file's name: its offset in twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}{suffix}"


def offset_of_name(name: str) -> int | None:
    """The offset that a segment's file is named after; None for other names."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


# -- walking


def span_at(window: bytes | memoryview, at: int, position: int) -> EntrySpan | None:
    """The entry whose head lies at `window[at:]`; None if these bytes cannot be one."""
    base_offset, length, magic = _PREFIX.unpack_from(window, at)
    last_offset = base_offset
    if magic == BATCH_MAGIC:
        if length < 49 or len(window) - at < 27:
            return None
        last_offset += _INT32.unpack_from(window, at + 23)[0]
    elif not 0 <= magic < BATCH_MAGIC or length < SMALLEST_ENTRY_BYTES - ENTRY_PREFIX_BYTES:
        return None
    if base_offset < 0 or last_offset < base_offset:
        return None
    return EntrySpan(position, ENTRY_PREFIX_BYTES + length, base_offset, last_offset, magic)


def walk_file(
    file: File, position: int, end_position: int, window_bytes: int = SCAN_WINDOW_BYTES
) -> Iterator[tuple[EntrySpan, memoryview]]:
    """Entries with their bytes, from `position` on; ends before the first thing that is not a whole entry.

    Never holds more than a window, or one entry whose length was checked against `end_position` first. Blocking: long.
    """
    window, start = memoryview(b""), position
    while position + SMALLEST_ENTRY_BYTES <= end_position:
        at = position - start
        if at + _WALK.size > len(window):
            window, start, at = memoryview(file.read(position, min(window_bytes, end_position - position))), position, 0
        span = span_at(window, at, position) if len(window) - at >= SMALLEST_ENTRY_BYTES else None
        if span is None or position + span.size_bytes > end_position:
            return
        if at + span.size_bytes > len(window):
            wanted = max(min(window_bytes, end_position - position), span.size_bytes)
            window, start, at = memoryview(file.read(position, wanted)), position, 0
            if len(window) < span.size_bytes:
                return  # the file was cut meanwhile
        yield span, window[at : at + span.size_bytes]
        position += span.size_bytes


def find_entry(file: File, position: int, end_position: int, offset: int) -> EntrySpan | None:
    """The first entry at or after `position` that ends with `offset` or later. Blocking: short.

    The log is trusted here, it was checked when it was written. CorruptRecords where a length is nonsense all the same.
    """
    window, start = b"", position
    unpack = _WALK.unpack_from
    while position < end_position:
        at = position - start
        if at + 27 > len(window):
            window, start, at = file.read(position, LOOKUP_STEP_BYTES), position, 0
            if len(window) < 27:
                window += bytes(27 - len(window))  # a magic 0 message of 26 bytes ends the file
        base_offset, length, magic, last_offset_delta = unpack(window, at)
        last_offset = base_offset + last_offset_delta if magic >= BATCH_MAGIC else base_offset
        if length < SMALLEST_ENTRY_BYTES - ENTRY_PREFIX_BYTES or last_offset < base_offset:
            raise CorruptRecords(f"{file.path}: no entry at position {position}")
        if last_offset >= offset:
            return EntrySpan(position, ENTRY_PREFIX_BYTES + length, base_offset, last_offset, magic)
        position += ENTRY_PREFIX_BYTES + length
    return None


def max_timestamp_of(span: EntrySpan, data: memoryview) -> int:
    """The largest timestamp that an entry claims; -1 for magic 0, which has none."""
    if span.magic >= BATCH_MAGIC:
        timestamp: int = _INT64.unpack_from(data, MAX_TIMESTAMP_AT)[0]
    else:
        timestamp = _INT64.unpack_from(data, MAGIC_1_TIMESTAMP_AT)[0] if span.magic == 1 else NO_TIMESTAMP
    return timestamp


def leader_epoch_of(span: EntrySpan, data: memoryview) -> int:
    """The leader epoch that a batch was written in; -1 for older entries."""
    epoch: int = _INT32.unpack_from(data, LEADER_EPOCH_AT)[0] if span.magic >= BATCH_MAGIC else -1
    return epoch


# -- files


class OpenFiles:
    """The open files of many logs: those being written (pinned), and the last used of the others, at most `limit`.

    Files are used on the event loop only; a file that somebody retains (a slice on its way to a client) stays open
    beyond the limit. `pin` and `drop` may also come from the thread that prepares a log: each step on the dictionaries
    is one atomic operation.
    """

    def __init__(self, disk: Disk, limit: int = 256) -> None:
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

    def __len__(self) -> int:
        return len(self._pinned) + len(self._recent)

    def _shrink(self) -> None:
        while len(self._recent) > self.limit:
            self._recent.popitem(last=False)[1].release()


class SegmentStore:
    """Where the segments of one log live; `directory` changes when the log is renamed for its deletion."""

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
        file = self.disk.open(path, read_only=True)
        try:
            yield file
        finally:
            file.release()

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


class Segment:
    """A sealed segment. `next_base_offset` is where the following one begins (None only for the active segment)."""

    __slots__ = ("_largest", "base_offset", "has_transactions", "next_base_offset", "size_bytes", "store")

    def __init__(
        self,
        store: SegmentStore,
        base_offset: int,
        size_bytes: int,
        next_base_offset: int | None,
        has_transactions: bool = False,
    ) -> None:
        self.store = store
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.next_base_offset = next_base_offset
        self.has_transactions = has_transactions
        self._largest: TimeEntry | None = None

    @property
    def path(self) -> str:
        return self.store.path(self.base_offset, LOG)

    def start_position(self, offset: int, open_file: Opener) -> int:
        """From where to walk to find `offset`. Blocking: short."""
        with open_file(self.store.path(self.base_offset, INDEX)) as file:
            found = find_in_file(file, OFFSET_ENTRY, offset - self.base_offset)
        return found[1] if found else 0

    def find(self, offset: int, open_file: Opener) -> EntrySpan | None:
        """The first entry that ends with `offset` or later; None if this segment has none. Blocking: short."""
        position = self.start_position(offset, open_file)
        with open_file(self.path) as file:
            return find_entry(file, position, self.size_bytes, offset)

    def largest(self, open_file: Opener) -> TimeEntry:
        """The largest timestamp, and the last offset of the batch that has it; (-1, base) without. Blocking: short."""
        if self._largest is None:
            with open_file(self.store.path(self.base_offset, TIME_INDEX)) as file:
                timestamp, relative = last_in_file(file, TIME_ENTRY) or (NO_TIMESTAMP, 0)
            self._largest = TimeEntry(timestamp, self.base_offset + relative)
        return self._largest

    def largest_timestamp_ms(self) -> int:
        """What retention by time goes by: the newest record, or the file's time if records bear none."""
        timestamp = self.largest(self.store.shared).timestamp
        return timestamp if timestamp >= 0 else self.store.disk.modified_ms(self.path)

    def start_offset_for_time(self, timestamp: int, open_file: Opener) -> int:
        """An offset before which no record is as new as `timestamp`. Blocking: short."""
        with open_file(self.store.path(self.base_offset, TIME_INDEX)) as file:
            found = find_in_file(file, TIME_ENTRY, timestamp)
        return self.base_offset + (found[1] if found else 0)

    def aborted_transactions(self, open_file: Opener) -> Sequence[AbortedTransaction]:
        """The aborted transactions whose marker lies here. Blocking: short."""
        if not self.has_transactions:
            return ()
        with open_file(self.store.path(self.base_offset, TRANSACTION_INDEX)) as file:
            return list(parse_transactions(file.read(0, file.size_bytes())))

    def find_time(self, timestamp: int, start_offset: int, open_file: Opener) -> RecordTime | None:
        """The first record from `start_offset` on that is as new as `timestamp`. Blocking: long."""
        end_position = self.size_bytes
        first = max(self.start_offset_for_time(timestamp, open_file), start_offset)
        position = self.start_position(first, open_file)
        with open_file(self.path) as file:
            for span, data in walk_file(file, position, end_position, SEARCH_WINDOW_BYTES):
                if span.last_offset >= start_offset and max_timestamp_of(span, data) >= timestamp:
                    for record in read_records(data):
                        if record.offset >= start_offset and record.timestamp >= timestamp:
                            return RecordTime(record.timestamp, record.offset, leader_epoch_of(span, data))
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_offset}, {self.size_bytes} bytes)"


class ActiveSegment(Segment):
    """The segment at the end of a log, which is being written."""

    __slots__ = (
        "bytes_since_entry",
        "created_ms",
        "file",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "seed",
        "times",
        "transactions",
    )

    def __init__(self, store: SegmentStore, base_offset: int, file: File, now_ms: int) -> None:
        super().__init__(store, base_offset, file.size_bytes(), None)
        self.file = file
        self.created_ms = now_ms
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.transactions = TransactionIndex()
        self.first_timestamp = NO_TIMESTAMP  # of the first batch: what rolling by time counts from
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.bytes_since_entry = 0
        self.seed = zlib.crc32(f"{store.directory.rpartition('/')[2]}/{base_offset}".encode())

    @classmethod
    def create(cls, store: SegmentStore, base_offset: int, now_ms: int) -> "ActiveSegment":
        """A new, empty segment. Blocking: short. Durable: when the directory and the file are synced."""
        path = store.path(base_offset, LOG)
        file = store.disk.open(path, create=True)
        if file.size_bytes():
            file.release()
            raise InvariantBroken(f"{path} exists and holds records, but a new segment begins there")
        segment = cls(store, base_offset, file, now_ms)
        store.open_files.pin(path, file)
        return segment

    @classmethod
    def open(cls, store: SegmentStore, base_offset: int, now_ms: int) -> "ActiveSegment":
        """A segment that exists, with its indexes. IndexCorrupt if they contradict its size. Blocking: long."""
        path = store.path(base_offset, LOG)
        file = store.disk.open(path)
        try:
            segment = cls(store, base_offset, file, now_ms)
            segment._load_indexes()
            segment._load_first_timestamp()
        except BaseException:
            file.release()
            raise
        store.open_files.pin(path, file)
        return segment

    @classmethod
    def unread(cls, store: SegmentStore, base_offset: int, now_ms: int) -> "ActiveSegment":
        """A segment that exists, as if it were empty: who scans it calls `note` for every entry. Blocking: short."""
        path = store.path(base_offset, LOG)
        segment = cls(store, base_offset, store.disk.open(path), now_ms)
        segment.size_bytes = 0
        store.open_files.pin(path, segment.file)
        return segment

    # -- appending

    def roll_due(
        self, rules: RollRules, incoming_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch of this size and times belongs into a new segment. An empty segment takes what fits its
        offsets, however large."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self.size_bytes == 0:
            return False
        if self.size_bytes > rules.segment_bytes - incoming_bytes:
            return True
        waited_ms = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        limit_ms, jitter_ms = rules.segment_ms, rules.segment_jitter_ms
        if jitter_ms > 0:
            limit_ms -= self.seed % min(jitter_ms, limit_ms)  # so that not all logs of a broker roll at one moment
        if waited_ms > limit_ms:
            return True
        index_bytes = rules.segment_index_bytes
        return (
            len(self.offsets.entries) >= index_bytes - index_bytes % 8
            or len(self.times.entries) >= index_bytes - index_bytes % 12 - 12  # the last slot is for `finish`
        )

    def note(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """An entry was written at `position`, the end of the segment. Indexes come before counting (reference D.4):
        so the first batch never has an entry, and each points to the first batch past the interval."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > index_interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_entry = 0
        if position == 0:
            self.first_timestamp = max_timestamp
        self.bytes_since_entry += size_bytes
        self.size_bytes = position + size_bytes

    def finish(self) -> None:
        """Bring the index files up to date: before sealing and closing. Blocking: short. Durable: no."""
        self.times.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
        self._save(INDEX, self.offsets)
        self._save(TIME_INDEX, self.times)
        if self.transactions.entries or self.store.disk.exists(self.store.path(self.base_offset, TRANSACTION_INDEX)):
            self._save(TRANSACTION_INDEX, self.transactions)

    def sealed(self, next_base_offset: int) -> Segment:
        """What this segment is from now on, after `finish`: one that a new segment follows."""
        segment = Segment(
            self.store, self.base_offset, self.size_bytes, next_base_offset, bool(self.transactions.entries)
        )
        self.store.open_files.unpin(self.path)
        return segment

    # -- cutting

    def truncate(self, position: int, offset: int) -> None:
        """Cut off everything from `position` on, which is where the entries from `offset` on begin. Blocking: long.

        The index files are cut first: they may be too short, but never point to what is no longer there.
        """
        self.offsets.cut_at(position)
        self.times.cut_at(offset)
        self.transactions.cut_at(offset)
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        self.size_bytes = position
        self._note_tail_timestamps()
        self.finish()
        self.file.truncate(position)
        self.bytes_since_entry = 0
        if position == 0:
            self.first_timestamp = NO_TIMESTAMP

    def _note_tail_timestamps(self) -> None:
        """The entries behind the last one that is indexed may hold the largest timestamp."""
        entries = self.offsets.entries
        position = OFFSET_ENTRY.unpack_from(entries, len(entries) - 8)[1] if entries else 0
        for span, data in walk_file(self.file, position, self.size_bytes, SEARCH_WINDOW_BYTES):
            timestamp = max_timestamp_of(span, data)
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = timestamp, span.last_offset

    # -- lookups, from memory

    def start_position(self, offset: int, open_file: Opener) -> int:
        return self.offsets.lookup(offset)

    def largest(self, open_file: Opener) -> TimeEntry:
        return TimeEntry(self.max_timestamp, self.max_timestamp_offset)

    def start_offset_for_time(self, timestamp: int, open_file: Opener) -> int:
        return self.times.lookup(timestamp)

    def aborted_transactions(self, open_file: Opener) -> Sequence[AbortedTransaction]:
        return self.transactions.entries

    # -- parts

    def _save(self, suffix: str, index: OffsetIndex | TimeIndex | TransactionIndex) -> None:
        path = self.store.path(self.base_offset, suffix)
        self.store.open_files.drop(path)
        file = self.store.disk.open(path, create=True)
        try:
            index.save(file)
        finally:
            file.release()

    def _load_indexes(self) -> None:
        store, base_offset = self.store, self.base_offset
        with store.private(store.path(base_offset, INDEX)) as file:
            check_index_size(file, OFFSET_ENTRY)
            self.offsets = OffsetIndex(base_offset, read_entries(file, OFFSET_ENTRY))
        with store.private(store.path(base_offset, TIME_INDEX)) as file:
            check_index_size(file, TIME_ENTRY)
            self.times = TimeIndex(base_offset, read_entries(file, TIME_ENTRY))
        if store.disk.exists(store.path(base_offset, TRANSACTION_INDEX)):
            with store.private(store.path(base_offset, TRANSACTION_INDEX)) as file:
                self.transactions = TransactionIndex(list(parse_transactions(file.read(0, file.size_bytes()))))
        entries = self.offsets.entries
        if entries and OFFSET_ENTRY.unpack_from(entries, len(entries) - 8)[1] >= self.size_bytes:
            raise IndexCorrupt(f"{store.path(base_offset, INDEX)} points behind the end of its log")
        self.max_timestamp, self.max_timestamp_offset = self.times.last()

    def _load_first_timestamp(self) -> None:
        head = self.file.read(0, MAX_TIMESTAMP_AT + 8)
        if len(head) >= SMALLEST_ENTRY_BYTES:
            span = span_at(head, 0, 0)
            if span is not None:
                self.first_timestamp = max_timestamp_of(span, memoryview(head))


def check_index_size(file: File, entry: struct.Struct) -> None:
    """IndexCorrupt if the file does not consist of whole entries."""
    if not has_whole_entries(file.size_bytes(), entry):
        raise IndexCorrupt(f"{file.path} is not made of entries of {entry.size} bytes")
