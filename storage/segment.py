"""One segment of a log: a `.log` file that starts at a base offset, and the indexes beside it (reference D.2-D.6).

A `Segment` is sealed: its files do not change any more, and are opened on use. The last segment of a log is an
`ActiveSegment`: its `.log` file stays open and its indexes live in memory. The index files follow in steps, and are
complete when the segment is sealed or closed; until then they are too short but never wrong (see `index.py`), so an
append costs one write. After a crash recovery rebuilds the indexes of every segment from the recovery point on.

Methods that only read take `open_file`: `SegmentStore.shared` on the event loop, `SegmentStore.private` in a thread.
"""

import struct
import zlib
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, Protocol

from barnabas.storage.disk import File, StorageError
from barnabas.storage.entries import (
    LOOKUP_STEP_BYTES,
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
    IndexCorrupt,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
    find_in_file,
    has_whole_entries,
    last_in_file,
    position_at_most,
    position_in_file,
    read_entries,
)
from barnabas.storage.transaction_index import NO_TRANSACTIONS, AbortedTransaction, TransactionIndex
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.record_batch import BATCH_MAGIC, BATCH_OVERHEAD_BYTES
from barnabas.wire.records import Steps, find_largest_timestamp, find_time
from barnabas.wire.sentinels import NO_TIMESTAMP

__all__ = ["ActiveSegment", "OpenFiles", "RecordTime", "RollRules", "Segment"]


# Limits of a search on the event loop: how many heads of entries it reads, how large an entry it
# searches, and how many steps that search may take.
HEADS_NOW_MAX = 100
ENTRY_NOW_BYTES_MAX = 1 << 18
STEPS_NOW_MAX = 3
INDEX_SAVE_STEP_BYTES = 64 * 1024  # 8192 entries of the .index: 32 MiB of log at the default index.interval.bytes


class RecordTime(NamedTuple):
    """The record that a search by timestamp found (ListOffsets)."""

    timestamp: int
    offset: int
    leader_epoch: int


class TakesLonger(Exception):
    """A search would read what is not in the page cache, or take more than a step: it has to run in a thread."""


class RollRules(Protocol):
    """The topic settings that decide when a segment is rolled; `TopicConfig` has them."""

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
    """A sealed segment. `next_base_offset` is the base offset of the following one (None for the active segment)."""

    __slots__ = (
        "_first",
        "_largest",
        "_modified_ms",
        "base_offset",
        "is_removed",
        "next_base_offset",
        "size_bytes",
        "store",
        "transactions",
    )

    def __init__(
        self,
        store: SegmentStore,
        base_offset: int,
        size_bytes: int,
        next_base_offset: int | None,
        transactions: TransactionIndex = NO_TRANSACTIONS,
    ) -> None:
        self.store = store
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.next_base_offset = next_base_offset
        self.transactions = transactions if transactions.count else NO_TRANSACTIONS
        # Set before the files are renamed or removed: a sync in a thread then ignores a missing file.
        self.is_removed = False
        # The methods below cache these, because retention and the cleaner ask for them at every
        # check.
        self._first: int | None = None
        self._largest: TimeEntry | None = None
        self._modified_ms: int | None = None

    @property
    def path(self) -> str:
        return self.store.path(self.base_offset, LOG)

    def start_position(self, offset: int, open_file: Opener) -> int:
        """The file position from which to walk to `offset`, by the offset index. Blocking: short."""
        with open_file(self.store.path(self.base_offset, INDEX)) as file:
            found = find_in_file(file, OFFSET_ENTRY, offset - self.base_offset)
        return found[1] if found else 0

    def entry_position(self, position: int, open_file: Opener) -> int:
        """The position of the last indexed entry at or before `position`; 0 without. Blocking: short."""
        with open_file(self.store.path(self.base_offset, INDEX)) as file:
            return position_in_file(file, position)

    def find(self, offset: int, open_file: Opener) -> EntrySpan | None:
        """The first entry that ends with `offset` or later; None if this segment has none. Blocking: short."""
        position = self.start_position(offset, open_file)
        with open_file(self.path) as file:
            return find_entry(file, position, self.size_bytes, offset)

    def largest(self, open_file: Opener) -> TimeEntry:
        """The largest timestamp and the last offset of its batch; (-1, base offset) without any. Blocking: short."""
        if self._largest is None:
            # `finish` wrote the segment's largest timestamp as the last entry, so no record needs to be read.
            with open_file(self.store.path(self.base_offset, TIME_INDEX)) as file:
                timestamp, relative = last_in_file(file, TIME_ENTRY) or (NO_TIMESTAMP, 0)
            self._largest = TimeEntry(timestamp, self.base_offset + relative)
        return self._largest

    @property
    def is_largest_known(self) -> bool:
        """Whether `largest` reads no file."""
        return self._largest is not None

    def largest_timestamp_ms(self) -> int:
        """The time that retention.ms counts from: the largest timestamp, or the file's mtime if records have none."""
        timestamp = self.largest(self.store.shared).timestamp
        if timestamp >= 0:
            return timestamp
        modified_ms = self._modified_ms
        if modified_ms is None:
            modified_ms = self.store.disk.modified_ms(self.path)
            # The active segment's time changes with each append, so it is not cached.
            if self.next_base_offset is not None:
                self._modified_ms = modified_ms
        return modified_ms

    def first_timestamp_ms(self) -> int:
        """The max timestamp of the first batch, from which max.compaction.lag.ms counts (KIP-354); -1 without."""
        if self._first is None:
            with self.store.shared(self.path) as file:
                self._first = _first_timestamp(file)
        return self._first

    @property
    def has_read_times(self) -> bool:
        """Whether the two methods above read no file any more."""
        has_time = self._largest is not None and (self._largest.timestamp >= 0 or self._modified_ms is not None)
        return self._first is not None and has_time

    def start_offset_for_time(self, timestamp: int, open_file: Opener) -> int:
        """An offset below which no record has `timestamp` or a later one. Blocking: short."""
        with open_file(self.store.path(self.base_offset, TIME_INDEX)) as file:
            found = find_in_file(file, TIME_ENTRY, timestamp)
        return self.base_offset + (found[1] if found else 0)

    def find_aborted(
        self, start_offset: int, end_offset: int, open_file: Opener
    ) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with records in [start, end) whose ABORT marker lies here; whether no later one has any.

        Blocking: short.
        """
        # Most segments have none.
        if not self.transactions.count:
            return [], False
        open_saved = partial(open_file, self.store.path(self.base_offset, TRANSACTION_INDEX))
        return self.transactions.overlapping(open_saved, start_offset, end_offset)

    @property
    def has_aborted(self) -> bool:
        """Whether an ABORT marker that ended a transaction lies here."""
        return self.transactions.count > 0

    def offset_at(self, position: int, open_file: Opener) -> int | None:
        """The base offset of the entry with the byte at `position`; None at the end. Blocking: short."""
        start = self.entry_position(position, open_file)
        with open_file(self.path) as file:
            for span, _ in walk_file(file, start, self.size_bytes, LOOKUP_STEP_BYTES):
                if span.position + span.size_bytes > position:
                    return span.base_offset
        return None

    def find_time(self, timestamp: int, start_offset: int, open_file: Opener) -> Steps[RecordTime | None]:
        """The first record from `start_offset` on that has `timestamp` or a later one. Blocking: long, step by step.

        Each `yield` ends a step, so that the caller may pause or give up the search there.
        """
        first = max(self.start_offset_for_time(timestamp, open_file), start_offset)
        for entry in self._entries_from(first, open_file):
            if entry is None:
                yield None
                continue
            span, data = entry
            # The header is enough to skip a batch; only a batch that can match is decompressed.
            if span.last_offset >= start_offset and max_timestamp_of(span, data) >= timestamp:
                found = yield from find_time(data, timestamp, start_offset)
                if found is not None:
                    return RecordTime(found[1], found[0], leader_epoch_of(span, data))
        return None

    def find_time_now(self, timestamp: int, start_offset: int) -> RecordTime | None:
        """As `find_time`, on the event loop. Raises TakesLonger. Blocking: short."""
        shared = self.store.shared
        first = max(self.start_offset_for_time(timestamp, shared), start_offset)
        position = self.start_position(first, shared)
        with shared(self.path) as file:
            for _ in range(HEADS_NOW_MAX):
                if position >= self.size_bytes:
                    return None
                window = _resident(file, position, min(LOOKUP_STEP_BYTES, self.size_bytes - position))
                at = 0

                # This loop looks at the entries whose heads lie in the window; the next window begins behind them.
                while len(window) - at >= BATCH_OVERHEAD_BYTES:
                    span = span_at(window, at, position)
                    if span is None or position + span.size_bytes > self.size_bytes:
                        raise TakesLonger
                    head = window[at:]
                    if span.last_offset >= start_offset and max_timestamp_of(span, head) >= timestamp:
                        found = _find_in_entry(file, span, head, timestamp, start_offset)
                        if found is not None:
                            return RecordTime(found[1], found[0], leader_epoch_of(span, head))
                    position += span.size_bytes
                    at += span.size_bytes
                if not at:
                    raise TakesLonger
        raise TakesLonger

    def largest_timestamp_from(self, start_offset: int, open_file: Opener) -> Steps[int]:
        """The largest timestamp of the records from `start_offset` on; -1 without any. Blocking: long, step by step."""
        largest = NO_TIMESTAMP
        for entry in self._entries_from(start_offset, open_file):
            if entry is None:
                yield None
                continue
            span, data = entry
            timestamp = max_timestamp_of(span, data)
            if span.last_offset < start_offset or timestamp <= largest:
                continue
            # The header's timestamp may be that of a record below the start offset.
            if span.base_offset < start_offset:
                timestamp = yield from find_largest_timestamp(data, timestamp, start_offset)
            largest = max(largest, timestamp)
        return largest

    def _entries_from(self, offset: int, open_file: Opener) -> Iterator[tuple[EntrySpan, memoryview] | None]:
        """The entries from about `offset` on, in order; None between them ends a step."""
        end_position = self.size_bytes  # noted once: an active segment may grow during the search
        stepped_at = position = self.start_position(offset, open_file)
        with open_file(self.path) as file:
            for span, data in walk_file(file, position, end_position, SEARCH_WINDOW_BYTES):
                if span.position - stepped_at >= SEARCH_WINDOW_BYTES:
                    stepped_at = span.position
                    yield None
                yield span, data

    def sync(self, log_end_offset: int) -> None:
        """Sync its files and the producer snapshot at its end, unless it was removed meanwhile. Blocking: long."""
        # The snapshot at the end of this segment has the name of the next one's base offset.
        end_offset = log_end_offset if self.next_base_offset is None else self.next_base_offset
        paths = [self.store.path(self.base_offset, suffix) for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)]
        for path in (*paths, self.store.path(end_offset, SNAPSHOT)):
            try:
                if self.store.disk.exists(path):
                    with self.store.private(path) as file:
                        file.sync()
            except StorageError:
                # The event loop may rename or remove the files during the sync; then there is nothing left to sync.
                if not self.is_removed:
                    raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_offset}, {self.size_bytes} bytes)"


class ActiveSegment(Segment):
    """The last segment of a log: the one that is being written."""

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
    )

    def __init__(self, store: SegmentStore, base_offset: int, file: File, now_ms: int) -> None:
        super().__init__(store, base_offset, file.size_bytes(), None)
        self.file = file
        self.created_ms = now_ms
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.transactions = TransactionIndex(base_offset)
        self.first_timestamp = NO_TIMESTAMP  # max timestamp of the first batch; segment.ms counts from it
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.bytes_since_entry = 0  # of the log, since the last entry of the offset index
        # Seed of the roll jitter, from directory name and offset: a restarted broker rolls at the same time as before.
        self.seed = zlib.crc32(f"{store.directory.rpartition('/')[2]}/{base_offset}".encode())

    @classmethod
    def create(cls, store: SegmentStore, base_offset: int, now_ms: int) -> "ActiveSegment":
        """Create an empty segment. Blocking: short. Durable once the directory and the file are synced."""
        path = store.path(base_offset, LOG)
        file = store.disk.open(path, create=True)
        # Appending here would overwrite records from position 0 on.
        if file.size_bytes():
            file.release()
            raise InvariantBroken(f"{path} exists and holds records, but a new segment begins there")
        segment = cls(store, base_offset, file, now_ms)
        store.open_files.pin(path, file)
        return segment

    @classmethod
    def open(cls, store: SegmentStore, base_offset: int, now_ms: int) -> "ActiveSegment":
        """Open an existing segment with its indexes. IndexCorrupt if they do not fit its size. Blocking: long."""
        path = store.path(base_offset, LOG)
        file = store.disk.open(path)
        try:
            segment = cls(store, base_offset, file, now_ms)
            # The indexes come first: the tail walk starts at their last entry.
            segment._load_indexes()
            segment.first_timestamp = _first_timestamp(segment.file)
            segment._note_tail_timestamps()
        except BaseException:
            file.release()  # `OpenFiles` does not own it yet
            raise
        store.open_files.pin(path, file)
        return segment

    @classmethod
    def unread(cls, store: SegmentStore, base_offset: int, now_ms: int) -> "ActiveSegment":
        """Open an existing segment as if it were empty; the caller scans it and calls `note`. Blocking: short."""
        # The file is pinned even if the scan fails: the caller drops all files of the directory
        # then.
        path = store.path(base_offset, LOG)
        segment = cls(store, base_offset, store.disk.open(path), now_ms)
        segment.size_bytes = 0  # `note` raises it entry by entry, up to the last entry that the scan accepts
        store.open_files.pin(path, segment.file)
        return segment

    # -- appending

    def roll_due(
        self, rules: RollRules, incoming_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch of `incoming_bytes` with this last offset and max timestamp needs a new segment.

        An empty segment takes a batch of any size, as long as its offsets fit.
        """
        # Index entries hold relative offsets of 32 bits.
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self.size_bytes == 0:
            return False
        if self.size_bytes > rules.segment_bytes - incoming_bytes:
            return True

        # Kafka measures segment.ms between the timestamps of the first batch and of the incoming
        # one (KIP-33); the clock decides only where the first batch has no timestamp.
        waited_ms = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        limit_ms = rules.segment_ms
        jitter_ms = rules.segment_jitter_ms
        if rules.compacted:
            limit_ms = min(limit_ms, rules.max_compaction_lag_ms)  # only sealed segments can be cleaned (KIP-354)

        # The jitter is limited by the interval itself, so that `limit_ms` stays positive.
        if jitter_ms > 0:
            limit_ms -= self.seed % min(jitter_ms, limit_ms)  # spreads the rolls of the broker's logs over time
        if waited_ms > limit_ms:
            return True

        # Kafka rolls when a preallocated index file is full; its capacity is a whole number of entries.
        index_bytes = rules.segment_index_bytes
        return (
            len(self.offsets.entries) >= index_bytes - index_bytes % 8
            or len(self.times.entries) >= index_bytes - index_bytes % 12 - 12  # one slot is left for `finish`
        )

    def note(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Account for an entry written at `position`, the end of the segment, and index it if due. Blocking: never."""
        # The comparison is `>`: the time index refers to the first batch that has the largest
        # timestamp.
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        # Kafka counts the batch after this check, too (reference D.4): the first batch never gets
        # an entry, and an entry points to the first batch after more than index.interval.bytes.
        if self.bytes_since_entry > index_interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_entry = 0
        # The segment's first entry is the one at position 0, also after a truncation to 0.
        if position == 0:
            self.first_timestamp = max_timestamp
        self.bytes_since_entry += size_bytes
        self.size_bytes = position + size_bytes

    @property
    def is_index_save_due(self) -> bool:
        """Whether enough index entries are unsaved; saving them all at the roll would pause the event loop."""
        return (
            len(self.offsets.entries) - self.offsets.saved_bytes >= INDEX_SAVE_STEP_BYTES
            or len(self.transactions.unsaved) >= INDEX_SAVE_STEP_BYTES
        )

    def save_indexes(self) -> None:
        """Write the unsaved entries to the index files. Blocking: short. Durable: no."""
        self._save(INDEX, self.offsets)
        self._save(TIME_INDEX, self.times)
        # Without aborted transactions there is no .txnindex, but one left by a truncation has to become shorter.
        if self.transactions.unsaved or self.store.disk.exists(self.store.path(self.base_offset, TRANSACTION_INDEX)):
            self._save(TRANSACTION_INDEX, self.transactions)

    def finish(self) -> None:
        """Complete the index files, before sealing and closing. Blocking: short. Durable: no."""
        # The last time entry must hold the largest timestamp: `Segment.largest` reads no other, and retention uses it.
        self.times.append_if_newer(self.max_timestamp, self.max_timestamp_offset)
        self.save_indexes()

    def sealed(self, next_base_offset: int) -> Segment:
        """The sealed segment that this one becomes; `finish` must have run."""
        segment = Segment(self.store, self.base_offset, self.size_bytes, next_base_offset, self.transactions)
        # Readers near the log end still need the file, so it is cached rather than closed.
        self.store.open_files.unpin(self.path)
        return segment

    # -- cutting

    def truncate(self, position: int, offset: int) -> None:
        """Remove everything from `position` on, where the entry with `offset` begins. Blocking: long.

        IndexCorrupt if the .txnindex is damaged; then nothing has changed.
        """
        # The .txnindex is cut first, because only this step may fail with IndexCorrupt.
        path = self.store.path(self.base_offset, TRANSACTION_INDEX)
        self.transactions.cut_at(offset, partial(self.store.private, path))
        # The time index is cut by offset, because its entries have no position.
        self.offsets.cut_at(position)
        self.times.cut_at(offset)
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        self.size_bytes = position
        self._note_tail_timestamps()
        # The index files shrink before the log: a crash in between leaves indexes that are too short, which is
        # harmless, but none that point behind the end of the log.
        self.finish()
        self.file.truncate(position)
        # The distance to the last index entry is not known here; counting from 0 only makes the index a little sparser.
        self.bytes_since_entry = 0
        if position == 0:
            self.first_timestamp = NO_TIMESTAMP

    def _note_tail_timestamps(self) -> None:
        """Find the largest timestamp, which may lie in an entry behind the last indexed one."""
        # Up to the last indexed entry the time index is complete, so the walk starts there.
        entries = self.offsets.entries
        position = OFFSET_ENTRY.unpack_from(entries, len(entries) - 8)[1] if entries else 0
        for span, data in walk_file(self.file, position, self.size_bytes, SEARCH_WINDOW_BYTES):
            timestamp = max_timestamp_of(span, data)
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.max_timestamp_offset = span.last_offset

    # -- lookups: the indexes are in memory, so `open_file` stays unused

    def start_position(self, offset: int, open_file: Opener) -> int:
        return self.offsets.lookup(offset)

    def entry_position(self, position: int, open_file: Opener) -> int:
        return position_at_most(self.offsets.entries, position)

    @property
    def is_largest_known(self) -> bool:
        return True

    def largest(self, open_file: Opener) -> TimeEntry:
        return TimeEntry(self.max_timestamp, self.max_timestamp_offset)

    def start_offset_for_time(self, timestamp: int, open_file: Opener) -> int:
        return self.times.lookup(timestamp)

    # -- parts

    def _save(self, suffix: str, index: OffsetIndex | TimeIndex | TransactionIndex) -> None:
        # The file is opened for each save: an active segment would otherwise keep four descriptors
        # open instead of one.
        path = self.store.path(self.base_offset, suffix)
        # A cached read-only handle would go on with the size that the file had when it was opened.
        self.store.open_files.drop(path)
        file = self.store.disk.open(path, create=True)
        try:
            index.save(file)
        finally:
            file.release()

    def _load_indexes(self) -> None:
        store = self.store
        base_offset = self.base_offset
        with store.private(store.path(base_offset, INDEX)) as file:
            check_index_size(file, OFFSET_ENTRY)
            self.offsets = OffsetIndex(base_offset, read_entries(file, OFFSET_ENTRY))
        with store.private(store.path(base_offset, TIME_INDEX)) as file:
            check_index_size(file, TIME_ENTRY)
            self.times = TimeIndex(base_offset, read_entries(file, TIME_ENTRY))
        if store.disk.exists(store.path(base_offset, TRANSACTION_INDEX)):
            with store.private(store.path(base_offset, TRANSACTION_INDEX)) as file:
                self.transactions = TransactionIndex.load(file, base_offset)

        # An index for a longer log means that the log lost its tail; lookups would lead behind its end.
        entries = self.offsets.entries
        if entries and OFFSET_ENTRY.unpack_from(entries, len(entries) - 8)[1] >= self.size_bytes:
            raise IndexCorrupt(f"{store.path(base_offset, INDEX)} points behind the end of its log")
        self.max_timestamp, self.max_timestamp_offset = self.times.last()


def _first_timestamp(file: File) -> int:
    """The max timestamp of the first entry of a file; -1 if it has none or is damaged."""
    # The header up to the record count is enough (`max_timestamp_of`).
    head = file.read(0, RECORD_COUNT_AT + 4)
    # This is called for any segment, also one that was never scanned; so a malformed head must not
    # raise.
    span = span_at(head, 0, 0) if len(head) >= SMALLEST_ENTRY_BYTES else None
    if span is None or (span.magic == BATCH_MAGIC and len(head) < RECORD_COUNT_AT + 4):
        return NO_TIMESTAMP
    return max_timestamp_of(span, memoryview(head))


def check_index_size(file: File, entry: struct.Struct) -> None:
    """IndexCorrupt unless the file size is a multiple of the entry size."""
    if not has_whole_entries(file.size_bytes(), entry):
        raise IndexCorrupt(f"{file.path} is not made of entries of {entry.size} bytes")


def _resident(file: File, position: int, size_bytes: int) -> memoryview:
    """These bytes, if the page cache holds all of them. Raises TakesLonger."""
    data = file.read_resident(position, size_bytes)
    if data is None or len(data) < size_bytes:
        raise TakesLonger
    return memoryview(data)


def _find_in_entry(
    file: File, span: EntrySpan, head: memoryview, timestamp: int, start_offset: int
) -> tuple[int, int] | None:
    """What `find_time` finds in this entry, which begins with `head`. Raises TakesLonger."""
    if span.size_bytes > ENTRY_NOW_BYTES_MAX:
        raise TakesLonger
    is_whole = span.size_bytes <= len(head)
    data = head[: span.size_bytes] if is_whole else _resident(file, span.position, span.size_bytes)

    steps = find_time(data, timestamp, start_offset)
    try:
        for _ in range(STEPS_NOW_MAX):
            # A yielded number is the memory that the next step takes: it has to wait for room, in a thread.
            if next(steps):
                break
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what `steps` returned
    steps.close()
    raise TakesLonger
