"""Entries: the units of a `.log` file and of a fetch response.

A current entry is a record batch (magic 2). Directories of older brokers also hold single messages and wrapped message
sets (magic 0 and 1). All begin alike:

    0   base offset i64     (magic 0 and 1: the offset of the message, of a wrapper's *last* message)
    8   length i32          bytes after this field
    12  ...
    16  magic i8
    23  last offset delta i32                                      (magic 2 only)

So the log walks by offset, length and magic, and never looks at a record. Code that needs more (timestamps of records,
transactions, producers) reads the batch's header, or uses `wire.records`. `wire.record_batch.walk_entries` walks over
bytes in the same way; the functions here also give last offsets, and walk files without holding more than a window.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.storage.disk import File
from barnabas.storage.index import MAX_RELATIVE_OFFSET
from barnabas.wire.record_batch import BATCH_MAGIC, LENGTH_OVERHEAD_BYTES
from barnabas.wire.records import CorruptRecords
from barnabas.wire.sentinels import NO_TIMESTAMP

SMALLEST_ENTRY_BYTES = 26  # a magic 0 message without key and value
FLAGS_AT = 22  # the low byte of a batch's attributes
LEADER_EPOCH_AT, MAGIC_1_TIMESTAMP_AT, MAX_TIMESTAMP_AT, PRODUCER_ID_AT, RECORD_COUNT_AT = 12, 18, 35, 43, 57

# A lookup walks at most about index.interval.bytes (4 KiB) plus a batch; two pages hold that for batches of usual size.
LOOKUP_STEP_BYTES = 8 * 1024
SCAN_WINDOW_BYTES = 1024 * 1024  # of recovery; a larger batch is read whole
SEARCH_WINDOW_BYTES = 64 * 1024

_WALK = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_PREFIX = struct.Struct(">qi4xb")  # without the last offset delta, which a magic 0 message may be too short for
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class EntrySpan(NamedTuple):
    """The position and the offset range of an entry. For magic 0 and 1 both offsets are the entry's own offset."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    magic: int


def span_at(window: bytes | memoryview, at: int, position: int) -> EntrySpan | None:
    """The entry that begins at `window[at:]`; None if these bytes are no valid head of one."""
    base_offset, length, magic = _PREFIX.unpack_from(window, at)
    last_offset = base_offset
    if magic == BATCH_MAGIC:
        # A batch header of 61 bytes has 49 behind the length field.
        if length < 49 or len(window) - at < 27:
            return None
        last_offset += _INT32.unpack_from(window, at + 23)[0]
    elif not 0 <= magic < BATCH_MAGIC or length < SMALLEST_ENTRY_BYTES - LENGTH_OVERHEAD_BYTES:
        return None
    # No log has negative offsets. A last offset below the base offset would make the offsets of the walk fall.
    if base_offset < 0 or last_offset < base_offset:
        return None
    return EntrySpan(position, LENGTH_OVERHEAD_BYTES + length, base_offset, last_offset, magic)


def walk_buffer(records: memoryview) -> Iterator[tuple[EntrySpan, memoryview]]:
    """The entries of received records, with their bytes; ends before a partial one. CorruptRecords if malformed."""
    position = 0
    while position + SMALLEST_ENTRY_BYTES <= len(records):
        # The length is compared before anything else is checked: a leader may cut the last batch of a fetch response.
        length = _PREFIX.unpack_from(records, position)[1]
        if length > len(records) - position - LENGTH_OVERHEAD_BYTES:
            return
        span = span_at(records, position, position)
        # Unlike the end of a file, these bytes are no result of a crash: the leader has sent something else than a log.
        if span is None:
            raise CorruptRecords(f"no entry at byte {position} of {len(records)}")
        yield span, records[position : position + span.size_bytes]
        position += span.size_bytes


def walk_file(
    file: File, position: int, end_position: int, window_bytes: int = SCAN_WINDOW_BYTES
) -> Iterator[tuple[EntrySpan, memoryview]]:
    """Entries with their bytes, from `position` on; ends at the first bytes that are no whole entry. Blocking: long.

    It holds at most a window, or one entry. Recovery relies on the end: it is where a damaged log is cut.
    """
    # `position` is in the file, `at` in the window.
    window = memoryview(b"")
    start = position
    while position + SMALLEST_ENTRY_BYTES <= end_position:
        at = position - start

        # The head of the entry is cut off by the window's end: the next window begins with this entry.
        if at + _WALK.size > len(window):
            window = memoryview(file.read(position, min(window_bytes, end_position - position)))
            start = position
            at = 0
        span = span_at(window, at, position) if len(window) - at >= SMALLEST_ENTRY_BYTES else None
        if span is None or position + span.size_bytes > end_position:
            return

        # The claimed size was compared with the end of the file above: damage cannot make this allocate arbitrarily
        # much.
        if at + span.size_bytes > len(window):
            wanted = max(min(window_bytes, end_position - position), span.size_bytes)
            window = memoryview(file.read(position, wanted))
            start = position
            at = 0
            if len(window) < span.size_bytes:
                return  # the file was truncated meanwhile
        yield span, window[at : at + span.size_bytes]
        position += span.size_bytes


def find_entry(file: File, position: int, end_position: int, offset: int) -> EntrySpan | None:
    """The first entry at or after `position` that ends with `offset` or later; None without. Blocking: short.

    CorruptRecords if a length or an offset is invalid. Checksums are not verified: the append or recovery did that.
    """
    window = b""
    start = position

    # This loop does not call `span_at`: every fetch that misses the remembered positions runs it,
    # over all the batches that lie between two index entries.
    unpack = _WALK.unpack_from
    while position < end_position:
        at = position - start
        if at + 27 > len(window):
            window = file.read(position, LOOKUP_STEP_BYTES)
            start = position
            at = 0
            if len(window) < 27:
                window += bytes(27 - len(window))  # the file may end with a magic 0 message of 26 bytes
        base_offset, length, magic, last_offset_delta = unpack(window, at)
        last_offset = base_offset + last_offset_delta if magic >= BATCH_MAGIC else base_offset

        # The entry was valid when it was appended, but the disk may have damaged it since. Without
        # this check a length of -12 would make the loop endless.
        if length < SMALLEST_ENTRY_BYTES - LENGTH_OVERHEAD_BYTES or last_offset < base_offset:
            raise CorruptRecords(f"{file.path}: no entry at position {position}")
        if last_offset >= offset:
            return EntrySpan(position, LENGTH_OVERHEAD_BYTES + length, base_offset, last_offset, magic)
        position += LENGTH_OVERHEAD_BYTES + length

    return None


def max_timestamp_of(span: EntrySpan, data: memoryview) -> int:
    """The largest timestamp of an entry, by its header; -1 for magic 0, and for a batch without records."""
    # Compaction keeps the header of a batch that it emptied, with its old max timestamp. A time index entry for it
    # would lead a search to a batch without a record.
    if span.magic >= BATCH_MAGIC:
        has_records: int = _INT32.unpack_from(data, RECORD_COUNT_AT)[0]
        timestamp: int = _INT64.unpack_from(data, MAX_TIMESTAMP_AT)[0] if has_records else NO_TIMESTAMP
    else:
        timestamp = _INT64.unpack_from(data, MAGIC_1_TIMESTAMP_AT)[0] if span.magic == 1 else NO_TIMESTAMP
    return timestamp


def leader_epoch_of(span: EntrySpan, data: memoryview) -> int:
    """The leader epoch in which a batch was appended; -1 for magic 0 and 1."""
    # In the older formats these bytes are the checksum.
    epoch: int = _INT32.unpack_from(data, LEADER_EPOCH_AT)[0] if span.magic >= BATCH_MAGIC else -1
    return epoch


def divide(
    entries: list[tuple[EntrySpan, memoryview]], segment_bytes: int
) -> Iterator[list[tuple[EntrySpan, memoryview]]]:
    """Divide entries into pieces that fit into a segment each, by size and by offset range; an entry is never split."""
    # An entry larger than a segment is a piece of its own: the follower has to take what the leader has accepted.
    piece: list[tuple[EntrySpan, memoryview]] = []
    for entry in entries:
        span = entry[0]
        if piece:
            first = piece[0][0]
            size_bytes = span.position + span.size_bytes - first.position
            # The index of a segment holds offsets relative to its base as i32.
            if size_bytes > segment_bytes or span.last_offset - first.base_offset > MAX_RELATIVE_OFFSET:
                yield piece
                piece = []
        piece.append(entry)
    if piece:
        yield piece
