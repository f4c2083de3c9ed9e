"""What compaction keeps of a log's bytes (pure): KIP-58 (compaction lag), KIP-534 (tombstones), reference D.8.

A pass has two halves. First `note` reads the dirty part of the log and remembers for each key the offset of its last
record, in as many keys as the memory allows; `latest_offset` is as far as it came. Then `sift` goes over the log from
its beginning to there, and leaves out

- records of which a newer one with the same key is known, and records without a key;
- tombstones whose batch was given a delete horizon by an earlier pass, once that is over;
- batches of which nothing is left, except the last one of a producer that the broker still knows: it stays as a header,
  so that the producer's sequence continues after a restart.

Everything else is carried over byte by byte. So are control batches, the data of transactions, messages of old formats
(magic 0 and 1), and batches that cannot be read in bounded memory, for one such batch must not end the compaction of
its log. Which records of a transaction count is not looked at here. What is carried over is not in the map either, so
it hides nothing; but it may hold a value that a tombstone behind it hides. Therefore a pass that has carried such data
drops no tombstone from there on.

Both halves take windows of a file, consume whole entries and say how many bytes that were. Checksums are verified: a
damaged batch must not be copied with a new checksum. CorruptRecords ends the pass.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from barnabas.storage.entries import EntrySpan, max_timestamp_of
from barnabas.wire.record_batch import (
    BATCH_MAGIC,
    CHECKSUM_START,
    ENTRY_HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC_POSITION,
)
from barnabas.wire.record_sift import empty_batch, note_keys, rebuild_sifted, sift
from barnabas.wire.records import (
    BATCH_OVERHEAD_BYTES,
    CONTROL,
    DELETE_HORIZON,
    TRANSACTIONAL,
    BatchHeader,
    BeyondLimits,
    CorruptRecords,
    is_intact,
    read_batch_header,
    walk_entries,
)
from barnabas.wire.sentinels import NO_OFFSET, NO_TIMESTAMP

KEY_COST_BYTES = 192  # in a map of the usual keys it is 150 to 200, table, key and offset together
NOTHING = b""
NEVER_MS = 2**63 - 1

_OPAQUE = TRANSACTIONAL | CONTROL
_OFFSET = struct.Struct(">q")


def keys_within(memory_bytes: int, load_factor: float) -> int:
    """How many keys may be remembered in so much memory, of which this share may be filled: any number, or none."""
    share = load_factor if load_factor < 1 else 1.0  # also for what is not a number
    return max(int(memory_bytes * max(share, 0.0)) // KEY_COST_BYTES, 1)


class OffsetMap:
    """Key -> offset of its last record, of the part of the log up to `latest_offset`."""

    __slots__ = ("keys_max", "latest_offset", "newest")

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self.newest: dict[bytes, int] = {}
        self.latest_offset = NO_OFFSET

    @property
    def is_full(self) -> bool:
        """Whether no further batch may be noted. The last one may have gone beyond the limit by its own keys."""
        return len(self.newest) >= self.keys_max

    def release(self) -> None:
        """Give the memory back key by key: to free millions of objects in one step would hold up all other threads."""
        newest = self.newest
        while newest:
            newest.popitem()


class Kept(NamedTuple):
    """An entry that goes into the cleaned segment."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


class Compaction:
    """One pass over one log."""

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        first_dirty_offset: int,
        live_producers: Mapping[int, int],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.offsets = offsets
        self._first_dirty_offset = first_dirty_offset
        self._live_producers = live_producers  # producer id -> the offset of its last record
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, NEVER_MS)
        self._next_offset = self._end_offset = 0
        self._keeps_tombstones = False  # values were carried over unseen, which a tombstone may hide

    def begin_segment(self, base_offset: int, end_offset: int) -> None:
        """The next windows are of this segment, whose entries lie between these offsets."""
        self._next_offset = base_offset
        self._end_offset = end_offset

    def note(self, window: bytes) -> int:
        """Remember the keys of the entries in this window, as far as there is room."""
        offsets, consumed = self.offsets, 0
        for position, end, header in _walk(window):
            if offsets.is_full:
                break
            last_offset = self._pass_over(window, position, header)
            if last_offset >= self._first_dirty_offset:
                if header is not None and not header.attributes & _OPAQUE:
                    with suppress(BeyondLimits):  # it stays, so what was noted of it may hide what is older
                        note_keys(header, window, position, offsets.newest)
                offsets.latest_offset = last_offset
            consumed = end
        return consumed

    def sift(self, window: bytes) -> tuple[int, bytes | bytearray, list[Kept]]:
        """What stays of the entries in this window: bytes consumed, bytes kept, and the entries in them."""
        kept: list[Kept] = []
        output = bytearray()
        start = consumed = 0  # window[start:consumed] is carried over and not yet in the output
        for position, end, header in _walk(window):
            self._pass_over(window, position, header)
            rewritten = self._rewritten(window, position, header)
            consumed = end
            if rewritten is None:
                kept.append(_carried(window, position, end, header))
                continue
            output += window[start:position]
            start = end
            if rewritten:
                output += rewritten
                kept.append(_carried(rewritten, 0, len(rewritten), read_batch_header(rewritten)))
        output += window[start:consumed]
        return consumed, output, kept

    def _pass_over(self, window: bytes, position: int, header: BatchHeader | None) -> int:
        """The last offset of an entry. CorruptRecords if it does not follow the one before; no checksum covers that."""
        if header is None:
            base_offset = last_offset = _offset_of(window, position)
        else:
            base_offset, last_offset = header.base_offset, header.base_offset + header.last_offset_delta
        if not self._next_offset <= base_offset <= last_offset < self._end_offset:
            raise CorruptRecords(
                f"offsets {base_offset} to {last_offset} where {self._next_offset} to {self._end_offset - 1} may be"
            )
        self._next_offset = last_offset + 1
        return last_offset

    def _rewritten(self, window: bytes, position: int, header: BatchHeader | None) -> bytes | bytearray | None:
        """What takes the place of this entry; None if it is carried over, NOTHING if it goes."""
        if header is None or header.attributes & _OPAQUE:
            self._keeps_tombstones |= header is None or not header.is_control
            return None
        if header.base_offset > self.offsets.latest_offset:
            return None
        has_horizon = header.attributes & DELETE_HORIZON != 0
        is_over = has_horizon and header.base_timestamp <= self._now_ms and not self._keeps_tombstones
        newest = self.offsets.newest
        try:
            sifted = sift(header, window, position, newest, is_over)
        except BeyondLimits:
            self._keeps_tombstones = True
            return None
        if not sifted.record_count:
            if header.producer_id < 0 or self._live_producers.get(header.producer_id) != header.last_offset:
                return NOTHING
            return empty_batch(header) if header.record_count else None
        horizon_ms = self._horizon_ms if sifted.has_tombstones and not has_horizon else None
        if sifted.record_count == header.record_count and horizon_ms is None:
            return None
        return rebuild_sifted(header, window, position, sifted, newest, is_over, horizon_ms)


def _walk(window: bytes) -> Iterator[tuple[int, int, BatchHeader | None]]:
    """Where each whole entry begins and ends, and the header of a batch; None is an older message.

    CorruptRecords where there is no entry, or its checksum is wrong.
    """
    view, size_bytes = memoryview(window), len(window)
    position = 0
    while size_bytes - position >= ENTRY_HEADER_BYTES:
        header = None
        if window[position + MAGIC_POSITION] == BATCH_MAGIC:
            if size_bytes - position < BATCH_OVERHEAD_BYTES:
                return
            header = read_batch_header(window, position)
            end = position + LENGTH_OVERHEAD_BYTES + header.batch_length
            if end > size_bytes:
                return
            is_good = end >= position + BATCH_OVERHEAD_BYTES
            is_good = is_good and crc32c(view[position + CHECKSUM_START : end]) == header.crc
        else:
            entry = next(walk_entries(window, position), None)
            if entry is None:
                return
            end = position + entry[1].size_bytes
            is_good = is_intact(view[position:end])
        if not is_good:
            raise CorruptRecords(f"the entry at byte {position} of {size_bytes} that were read is damaged")
        yield position, end, header
        position = end


def _offset_of(window: bytes | bytearray, position: int) -> int:
    offset: int = _OFFSET.unpack_from(window, position)[0]
    return offset


def _carried(window: bytes | bytearray, position: int, end: int, header: BatchHeader | None) -> Kept:
    """An entry that goes into the cleaned segment."""
    if header is not None:
        timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP  # as `max_timestamp_of` has it
        return Kept(end - position, header.base_offset + header.last_offset_delta, timestamp)
    offset = _offset_of(window, position)
    span = EntrySpan(position, end - position, offset, offset, window[position + MAGIC_POSITION])
    return Kept(end - position, offset, max_timestamp_of(span, memoryview(window)[position:]))
