"""Which batches and records compaction keeps (pure): KIP-58 (compaction lag), KIP-534 (tombstones), reference D.8.

A pass has two phases. `note` reads the dirty part of the log and remembers for each key the offset of its last record,
as far as the memory allows; `latest_offset` is how far it came. Then `sift` goes over the log from its beginning to
there, and drops

- records with a newer one of the same key, and records without a key;
- tombstones in a batch with a delete horizon, set by an earlier pass, that is over;
- the data of aborted transactions, which hides nothing either: `note` leaves it out;
- markers without data of their transaction, in a batch with a delete horizon that is over (`_sifted_marker`);
- batches without a remaining record, except the last batch of a producer that the broker still knows: its header stays,
  so that the producer's sequence, or at least its epoch, continues after a restart.

Everything else is carried over byte by byte. So are messages of magic 0 and 1, and batches that cannot be read in
bounded memory (`_rewritten` explains the consequences for tombstones).

Both phases take windows of a file, consume whole entries and return how many bytes that were. Checksums are verified,
because a damaged batch must not be copied with a new checksum. CorruptRecords ends the pass.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from barnabas.storage.decided_transactions import DecidedTransactions
from barnabas.storage.entries import EntrySpan, max_timestamp_of
from barnabas.storage.producers import Producer
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.record_batch import (
    BATCH_MAGIC,
    CHECKSUM_START,
    ENTRY_HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC_POSITION,
)
from barnabas.wire.record_sift import Sifted, empty_batch, note_keys, rebuild_sifted, sift
from barnabas.wire.records import (
    BATCH_OVERHEAD_BYTES,
    DELETE_HORIZON,
    BatchHeader,
    BeyondLimits,
    ControlRecord,
    CorruptRecords,
    control_of,
    is_intact,
    read_batch_header,
    walk_entries,
)
from barnabas.wire.sentinels import NEVER_MS, NO_OFFSET, NO_TIMESTAMP

KEY_COST_BYTES = 192  # table, key and offset of one entry of the map: 150 to 200 for keys of usual size
NOTHING = b""

_OFFSET = struct.Struct(">q")


def keys_within(memory_bytes: int, load_factor: float) -> int:
    """How many keys fit into `load_factor` of this memory; at least 1. `load_factor` may be any float."""
    share = load_factor if load_factor < 1 else 1.0  # 1.0 also for NaN
    return max(int(memory_bytes * max(share, 0.0)) // KEY_COST_BYTES, 1)


class OffsetMap:
    """Key -> offset of its last record, for the part of the log up to `latest_offset`."""

    __slots__ = ("keys_max", "latest_offset", "newest")

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self.newest: dict[bytes, int] = {}
        self.latest_offset = NO_OFFSET

    @property
    def is_full(self) -> bool:
        """Whether no further batch may be noted. The last batch may exceed the limit by its own keys."""
        return len(self.newest) >= self.keys_max

    def release(self) -> None:
        """Free the memory."""
        # The keys go one by one: to free millions of objects in one step would hold the GIL, and so
        # stop the event loop.
        newest = self.newest
        while newest:
            newest.popitem()


class Kept(NamedTuple):
    """An entry of the cleaned segment."""

    size_bytes: int
    last_offset: int
    max_timestamp: int


class LiveProducers(NamedTuple):
    """Where the last records of the producers are that the broker knows."""

    last_offsets: dict[int, int]  # producer id -> the offset of its last record
    epochs: dict[int, int]  # producer id -> epoch, of the producers that have no record in their epoch

    def note(self, producers: Iterable[Producer]) -> None:
        """Take over the state of these producers."""
        for producer in producers:
            if producer.last_offset >= 0:
                self.last_offsets[producer.producer_id] = producer.last_offset
            else:
                self.epochs[producer.producer_id] = producer.epoch

    def has_last_batch(self, header: BatchHeader) -> bool:
        """Whether recovery takes the state of a producer from this batch."""
        last_offset = self.last_offsets.get(header.producer_id)
        if last_offset is not None:
            return last_offset == header.last_offset
        # A producer without data is known by markers alone: they carry the epoch, which fences its
        # earlier instances.
        return header.is_control and self.epochs.get(header.producer_id) == header.producer_epoch


class Compaction:
    """The decisions of one pass over one log."""

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        first_dirty_offset: int,
        live_producers: LiveProducers,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.offsets = offsets
        self._first_dirty_offset = first_dirty_offset
        self._live_producers = live_producers
        self._now_ms = now_ms
        # The horizon is written as 64 bits, which the sum would exceed with the largest delete.retention.ms.
        self._horizon_ms = min(now_ms + delete_retention_ms, NEVER_MS)
        self._next_offset = self._end_offset = 0
        self._keeps_tombstones = False  # see `_rewritten`
        self._transactions = DecidedTransactions()
        self._kept_aborted: list[AbortedTransaction] = []

    def begin_phase(self) -> None:
        """Begin to walk: the first phase from the first dirty offset, the second one from the first segment on."""
        self._transactions = DecidedTransactions()

    def begin_segment(self, base_offset: int, end_offset: int, aborted: Iterable[AbortedTransaction]) -> None:
        """Begin a segment: the next windows hold its entries, all within [base_offset, end_offset).

        `aborted` are the aborted transactions with records in it.
        """
        self._next_offset = base_offset
        self._end_offset = end_offset
        self._transactions.expect(aborted)

    def take_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were kept since the last call, for the transaction index."""
        taken = self._kept_aborted
        self._kept_aborted = []
        return taken

    def note(self, window: bytes) -> int:
        """Note the keys of the entries in this window, as far as the map has room; returns the bytes consumed."""
        offsets = self.offsets
        consumed = 0
        # Batches are noted as a whole: `latest_offset` must not lie inside one, because `sift`
        # decides about whole batches.
        for position, end, header in _walk(window):
            if offsets.is_full:
                break
            last_offset = self._pass_over(window, position, header)
            # Neither a marker nor an aborted record may hide an older record.
            hides = header is not None and self._is_committed_data(window, position, header)
            if last_offset >= self._first_dirty_offset:
                if header is not None and hides:
                    # A batch that cannot be read to its end is carried over whole, so the keys noted of it may hide
                    # older records.
                    with suppress(BeyondLimits):
                        note_keys(header, window, position, offsets.newest)
                offsets.latest_offset = last_offset
            consumed = end

        return consumed

    def sift(self, window: bytes) -> tuple[int, bytes | bytearray, list[Kept]]:
        """Compact the entries of this window: bytes consumed, bytes to write, and the entries in these."""
        kept: list[Kept] = []
        output = bytearray()

        # Neighbouring entries that stay unchanged are copied together: window[start:consumed] is not in the output yet.
        start = consumed = 0
        for position, end, header in _walk(window):
            self._pass_over(window, position, header)
            rewritten = self._rewritten(window, position, header)
            consumed = end
            if rewritten is None:
                kept.append(_carried(window, position, end, header))
                continue

            # A changed entry ends the run of unchanged ones, which is copied now.
            output += window[start:position]
            start = end
            if rewritten:
                output += rewritten
                kept.append(_carried(rewritten, 0, len(rewritten), read_batch_header(rewritten)))

        output += window[start:consumed]
        return consumed, output, kept

    def _pass_over(self, window: bytes, position: int, header: BatchHeader | None) -> int:
        """The last offset of an entry. CorruptRecords if it does not follow the previous entry."""
        # The base offset lies outside the checksum, so it is checked here.
        if header is None:
            base_offset = last_offset = _offset_of(window, position)
        else:
            base_offset = header.base_offset
            last_offset = header.base_offset + header.last_offset_delta
        # Gaps are legal, for an earlier pass may have left them. An offset that falls, or belongs to another segment,
        # means damage that a rewrite would make permanent.
        if not self._next_offset <= base_offset <= last_offset < self._end_offset:
            raise CorruptRecords(
                f"offsets {base_offset} to {last_offset} where {self._next_offset} to {self._end_offset - 1} may be"
            )
        self._next_offset = last_offset + 1
        return last_offset

    def _is_committed_data(self, window: bytes, position: int, header: BatchHeader) -> bool:
        if header.is_control:
            self._transactions.meet_marker(header, _control_of(window, position, header))
            return False
        return not self._transactions.meet_data(header)

    def _rewritten(self, window: bytes, position: int, header: BatchHeader | None) -> bytes | bytearray | None:
        """The replacement of this entry; None if it is carried over, NOTHING if it is dropped."""
        # An entry that is carried over unread is not in the map, so it hides nothing. But it may hold a value that a
        # later tombstone hides: from here on the pass drops no tombstone.
        if header is None:
            self._keeps_tombstones = True
            return None
        if header.is_control:
            return self._sifted_marker(window, position, header)
        if self._transactions.meet_data(header):
            return self._without_records(header)

        # The map may end in the middle of a segment: batches behind its end stay for the next pass.
        if header.base_offset > self.offsets.latest_offset:
            return None

        # A batch with a delete horizon holds it in the base timestamp field (KIP-534).
        has_horizon = header.attributes & DELETE_HORIZON != 0

        # Once the horizon is over, consumers have had delete.retention.ms to see the tombstones of
        # this batch.
        is_over = has_horizon and header.base_timestamp <= self._now_ms and not self._keeps_tombstones
        newest = self.offsets.newest
        try:
            sifted = sift(header, window, position, newest, is_over)
        except BeyondLimits:
            # One unreadable batch must not end the compaction of its log for ever.
            self._keeps_tombstones = True
            return None

        if not sifted.record_count:
            return self._without_records(header)

        # The first pass that meets a tombstone sets the horizon: readers must be able to see it for
        # delete.retention.ms.
        horizon_ms = self._horizon_ms if sifted.has_tombstones and not has_horizon else None

        # Nothing is dropped and no horizon set: the old bytes are copied, with their checksum and compression.
        if sifted.record_count == header.record_count and horizon_ms is None:
            return None
        return rebuild_sifted(header, window, position, sifted, newest, is_over, horizon_ms)

    def _without_records(self, header: BatchHeader) -> bytes | bytearray | None:
        """The replacement of a batch without remaining records."""
        # Only the last batch of a known producer has to stay: recovery takes its sequence from there.
        if header.producer_id < 0 or not self._live_producers.has_last_batch(header):
            return NOTHING
        # It may be empty already, by an earlier pass.
        return empty_batch(header) if header.record_count else None

    def _sifted_marker(self, window: bytes, position: int, header: BatchHeader) -> bytes | bytearray | None:
        """The replacement of a control batch: a marker stays as long as its data, and then for delete.retention.ms.

        A reader that has read the data before it was dropped still has to learn how its transaction ended (KIP-534).
        """
        control = _control_of(window, position, header)
        may_go, aborted = self._transactions.meet_marker(header, control)
        if control is None:
            return self._without_records(header)
        if not may_go:
            # The transaction index follows the log: an entry stays as long as its marker.
            if aborted is not None:
                self._kept_aborted.append(aborted)
            return None

        if not header.attributes & DELETE_HORIZON:
            everything = Sifted(header.record_count, False, None)
            return rebuild_sifted(header, window, position, everything, {}, False, self._horizon_ms)
        return self._without_records(header) if header.base_timestamp <= self._now_ms else None


def _control_of(window: bytes, position: int, header: BatchHeader) -> ControlRecord | None:
    """The record of a control batch; None if an earlier pass has removed it."""
    return control_of(memoryview(window)[position : position + header.size_bytes])


def _walk(window: bytes) -> Iterator[tuple[int, int, BatchHeader | None]]:
    """Begin, end and header of each whole entry; the header is None for magic 0 and 1.

    CorruptRecords if an entry is malformed or its checksum is wrong.
    """
    from crc32c import crc32c  # slow to import; a start does not need it

    view = memoryview(window)
    size_bytes = len(window)
    position = 0
    while size_bytes - position >= ENTRY_HEADER_BYTES:
        header = None

        # Batches are parsed here rather than by `walk_entries`: the header is needed anyway, and is parsed only once.
        if window[position + MAGIC_POSITION] == BATCH_MAGIC:
            if size_bytes - position < BATCH_OVERHEAD_BYTES:
                return

            # If the entry is cut off at the end of the window, the caller reads again from the begin
            # of the entry.
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
    """The `Kept` of an entry."""
    if header is not None:
        timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP  # as in `max_timestamp_of`
        return Kept(end - position, header.base_offset + header.last_offset_delta, timestamp)
    offset = _offset_of(window, position)
    span = EntrySpan(position, end - position, offset, offset, window[position + MAGIC_POSITION])
    return Kept(end - position, offset, max_timestamp_of(span, memoryview(window)[position:]))
