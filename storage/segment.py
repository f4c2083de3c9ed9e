"""One segment of a log: a `.log` file that starts at a base offset, and the indexes beside it (reference D.2-D.6).

Two classes. A `Segment` is sealed: its files do not change any more, and are opened on use. The last segment of a log
is an `ActiveSegment`: its file stays open, its indexes live in memory and are saved now and then, and when it is sealed
or closed. Until then the index files are stale but never wrong (see `index.py`), and an append costs one write. After a
crash recovery rebuilds the indexes of every segment from the recovery point on, so nothing is lost by saving late.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.storage.disk import File, StorageError
from barnabas.storage.entries import (
    RECORD_COUNT_AT,
    SEARCH_WINDOW_BYTES,
    SMALLEST_ENTRY_BYTES,
    EntrySpan,
    find_entry,
    leader_epoch_of,
    max_timestamp_of,
    span_at,
    walk_file,
)
from barnabas.storage.files import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, Opener, OpenFiles, SegmentStore
from barnabas.storage.index import (
    MAX_RELATIVE_OFFSET,
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
    position_at_most,
    read_entries,
)
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.records import Steps, read_times
from barnabas.wire.sentinels import NO_TIMESTAMP

__all__ = ["ActiveSegment", "OpenFiles", "RecordTime", "RollRules", "Segment"]


INDEX_SAVE_STEP_BYTES = 64 * 1024  # 8192 entries, by default one for each 4 KiB of the log


class RecordTime(NamedTuple):
    """A record that a search by time found."""

    timestamp: int
    offset: int
    leader_epoch: int


class RollRules(Protocol):
    """When a segment is full: TopicConfig."""

    @property
    def segment_bytes(self) -> int: ...

    @property
    def segment_ms(self) -> int: ...

    @property
    def segment_jitter_ms(self) -> int: ...

    @property
    def segment_index_bytes(self) -> int: ...

    @property
    def compacted(self) -> bool: ...

    @property
    def max_compaction_lag_ms(self) -> int: ...


class Segment:
    """A sealed segment. `next_base_offset` is where the following one begins (None only for the active segment)."""

    __slots__ = (
        "_first",
        "_largest",
        "base_offset",
        "has_transactions",
        "is_removed",
        "next_base_offset",
        "size_bytes",
        "store",
    )

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
        self.is_removed = False  # set before its files are renamed or removed; a thread may be looking for them
        self._first: int | None = None
        self._largest: TimeEntry | None = None

    @property
    def path(self) -> str:
        return self.store.path(self.base_offset, LOG)

    def start_position(self, offset: int, open_file: Opener) -> int:
        """From where to walk to find `offset`. Blocking: short."""
        with open_file(self.store.path(self.base_offset, INDEX)) as file:
            found = find_in_file(file, OFFSET_ENTRY, offset - self.base_offset)
        return found[1] if found else 0

    def entry_position(self, position: int, open_file: Opener) -> int:
        """Where an entry begins, at this position or not far before it. Blocking: short (segment.index.bytes)."""
        with open_file(self.store.path(self.base_offset, INDEX)) as file:
            return position_at_most(read_entries(file, OFFSET_ENTRY), position)

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

    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch: what compaction after a time counts from; -1 without."""
        if self._first is None:
            with self.store.shared(self.path) as file:
                self._first = _first_timestamp(file)
        return self._first

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

    def find_time(self, timestamp: int, start_offset: int, open_file: Opener) -> Steps[RecordTime | None]:
        """The first record from `start_offset` on that is as new as `timestamp`. Blocking: long, step by step."""
        end_position = self.size_bytes
        first = max(self.start_offset_for_time(timestamp, open_file), start_offset)
        stepped_at = position = self.start_position(first, open_file)
        with open_file(self.path) as file:
            for span, data in walk_file(file, position, end_position, SEARCH_WINDOW_BYTES):
                if span.position - stepped_at >= SEARCH_WINDOW_BYTES:
                    stepped_at = span.position
                    yield None
                if span.last_offset >= start_offset and max_timestamp_of(span, data) >= timestamp:
                    for found in read_times(data):
                        if not isinstance(found, tuple):
                            yield found
                        elif found[0] >= start_offset and found[1] >= timestamp:
                            return RecordTime(found[1], found[0], leader_epoch_of(span, data))
        return None

    def sync(self, log_end_offset: int) -> None:
        """Sync its files, with the snapshot of its end. Does nothing if it was removed meanwhile. Blocking: long."""
        end_offset = log_end_offset if self.next_base_offset is None else self.next_base_offset
        paths = [self.store.path(self.base_offset, suffix) for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)]
        for path in (*paths, self.store.path(end_offset, SNAPSHOT)):
            try:
                if self.store.disk.exists(path):
                    with self.store.private(path) as file:
                        file.sync()
            except StorageError:
                if not self.is_removed:
                    raise

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
            segment.first_timestamp = _first_timestamp(segment.file)
            segment._note_tail_timestamps()
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
        if rules.compacted:
            limit_ms = min(limit_ms, rules.max_compaction_lag_ms)  # only what is sealed can be cleaned (KIP-354)
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

    @property
    def is_index_save_due(self) -> bool:
        """Whether so much of the index is only in memory that saving it all at the end would take long."""
        return len(self.offsets.entries) - self.offsets.saved_bytes >= INDEX_SAVE_STEP_BYTES

    def save_indexes(self) -> None:
        """Write the entries that are only in memory. Blocking: short. Durable: no."""
        self._save(INDEX, self.offsets)
        self._save(TIME_INDEX, self.times)

    def finish(self) -> None:
        """Bring the index files up to date: before sealing and closing. Blocking: short. Durable: no."""
        self.times.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
        self.save_indexes()
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

    def entry_position(self, position: int, open_file: Opener) -> int:
        return position_at_most(self.offsets.entries, position)

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


def _first_timestamp(file: File) -> int:
    """The largest timestamp of the first entry of a file; -1 for one that is damaged, too."""
    head = file.read(0, RECORD_COUNT_AT + 4)
    span = span_at(head, 0, 0) if len(head) >= SMALLEST_ENTRY_BYTES else None
    if span is None or (span.magic == BATCH_MAGIC and len(head) < RECORD_COUNT_AT + 4):
        return NO_TIMESTAMP
    return max_timestamp_of(span, memoryview(head))


def check_index_size(file: File, entry: struct.Struct) -> None:
    """IndexCorrupt if the file does not consist of whole entries."""
    if not has_whole_entries(file.size_bytes(), entry):
        raise IndexCorrupt(f"{file.path} is not made of entries of {entry.size} bytes")
