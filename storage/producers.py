"""The state of the producers that write to a partition (pure): KIP-98, reference D.5.

*Idempotence.* A producer numbers its records; the partition remembers the last five batches of each producer id. A
batch that repeats one of them is a duplicate, and is answered with the offsets of the original. Any other batch must
continue the sequence, or it is refused. Sequence numbers have 31 bits and wrap from 2^31-1 to 0.

*Transactions.* The first transactional batch of a producer opens a transaction in this partition; a control batch (the
marker, written by the transaction coordinator) completes it. The LSO follows from:

    first unstable offset = min(first offset of the oldest open transaction,
                                first offset of the oldest completed one whose marker is not below the high watermark)

A leader lets a producer begin a transaction only if the coordinator has verified it (`verification.py`).

`check` decides about a batch and changes nothing; `update` takes over a batch that is in the log. Appends call both.
Recovery, truncation and followers call only `update`: a follower stores what the leader accepted.

The snapshot (`<offset>.snapshot`, reference D.4) holds the state of each producer when the log ended at that offset. Of
the five batches it keeps only the last, as in Kafka; `duplicate_search.py` finds older ones when they are sent again.
"""

import heapq
import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.packed_table import PackedRows, PackedTable
from barnabas.storage.verification import Guard, Verifications, is_before
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.record_batch import CONTROL, SEQUENCE_MAX, TRANSACTIONAL
from barnabas.wire.sentinels import NO_OFFSET, NO_PRODUCER_ID

if TYPE_CHECKING:
    from barnabas.wire.record_reader import ControlRecord
    from barnabas.wire.records import BatchHeader

BATCHES_REMEMBERED = 5  # the largest max.in.flight.requests.per.connection of an idempotent producer
COMMITTED_A_STEP = 64  # transactions; this many removals from a heap take 0.1 ms
NO_SEQUENCE = -1
NO_EPOCH = -1
ABORT_MARKER = 0

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")  # version, CRC-32C of everything after it, number of entries
_SNAPSHOT_CRC_START = 6
_ENTRY = struct.Struct(">qhiqiqiq")  # the fields of a `Producer`
_EXPIRY = struct.Struct(">26xq4xq")  # of an _ENTRY: last timestamp, first offset of the open transaction
# A remembered batch: first and last sequence, offset delta, last offset, max timestamp.
_BATCH = struct.Struct(">iiiqq")
_NUMBERS = struct.Struct(">ii")  # of a _BATCH: first and last sequence
_BATCHES_BYTES_MAX = BATCHES_REMEMBERED * _BATCH.size


class Origin(Enum):
    """The writer of a batch; it decides which checks apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Duplicate(NamedTuple):
    """The batch is already in the log: its offsets there and its max timestamp."""

    base_offset: int
    last_offset: int
    append_time_ms: int


class CompletedTransaction(NamedTuple):
    """A marker completed a transaction with records in this partition; an aborted one goes into the `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int  # the marker's own offset
    last_stable_offset: int  # first offset of the oldest other open transaction, else the marker's offset + 1
    aborted: bool


class SnapshotCorrupt(Exception):
    """A `.snapshot` is damaged. The caller uses an older one and replays more of the log."""


class Producer(NamedTuple):
    """The state of one producer id in one partition: the fields of a snapshot entry, in the order of the file."""

    producer_id: int
    epoch: int
    last_sequence: int = NO_SEQUENCE  # of its last record, -1 before the first one of this epoch
    last_offset: int = NO_OFFSET  # offset of its last record
    offset_delta: int = 0  # between the first and the last record of its last batch
    last_timestamp: int = -1
    coordinator_epoch: int = NO_EPOCH
    first_offset: int = NO_OFFSET  # of its open transaction, -1 without

    @property
    def transaction_first_offset(self) -> int | None:
        """The first offset of its open transaction; None if none is open."""
        return None if self.first_offset == NO_OFFSET else self.first_offset

    def has_ended(self, offset: int) -> bool:
        """Whether the transaction that wrote the record at this offset has its marker."""
        return self.first_offset == NO_OFFSET or offset < self.first_offset

    def __repr__(self) -> str:
        return f"Producer({self.producer_id}, epoch {self.epoch}, last sequence {self.last_sequence})"


_as_producer = partial(tuple.__new__, Producer)  # `Producer._make` without a Python frame: each append needs it


def sequence_before(sequence: int, count: int) -> int:
    """The sequence number `count` records earlier."""
    # One is added, because 0 is a sequence number as well: before 0 comes 2^31-1.
    return sequence - count if sequence >= count else SEQUENCE_MAX - (count - sequence) + 1


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` records later."""
    return sequence + count if sequence <= SEQUENCE_MAX - count else count - (SEQUENCE_MAX - sequence) - 1


class ProducerStates:
    """The state of each producer id, and the transactions that are open or whose marker is not yet replicated."""

    # A producer is two packed byte strings instead of objects: its snapshot entry, and its last batches. A snapshot is
    # then a plain join.

    __slots__ = ("_batches", "_completed", "_entries", "_latest", "_open_transactions", "_verifications")

    def __init__(self) -> None:
        self._entries = PackedTable(_ENTRY)
        self._latest: Producer | None = None  # the unpacked entry of the producer whose batch was appended last
        self._batches: dict[int, bytes] = {}  # of the current epoch, oldest first, at most five
        # This maps first offset -> producer id. Insertion order is offset order, because the log
        # only grows: the first key is the oldest open transaction.
        self._open_transactions: dict[int, int] = {}
        self._completed: list[tuple[int, int]] = []  # heap of (first offset, marker's offset), marker not replicated
        self._verifications = Verifications()

    def get(self, producer_id: int) -> Producer | None:
        """The state of this producer; None if it is unknown or expired."""
        latest = self._latest
        if latest is not None and latest.producer_id == producer_id:
            return latest
        entry = self._entries.get(producer_id)
        return None if entry is None else _as_producer(entry)

    def oldest_remembered(self, producer_id: int) -> int | None:
        """The base offset of its oldest remembered batch; None without any."""
        # The batches are packed oldest first.
        batches = self._batches.get(producer_id)
        if not batches:
            return None
        _, _, offset_delta, last_offset, _ = _BATCH.unpack_from(batches)
        return int(last_offset - offset_delta)

    def ids(self) -> list[int]:
        """All producer ids."""
        return self._entries.keys()

    def __iter__(self) -> Iterator[Producer]:
        """All producers as they are now, for the cleaner, which keeps their last batches."""
        return map(_as_producer, self._entries.snapshot())

    def __len__(self) -> int:
        return len(self._entries)

    # -- decide

    def begin_verification(self, producer_id: int, epoch: int, base_sequence: int, now_ms: int) -> Guard | None:
        """The guard to append this transactional batch with, once the coordinator has verified it.

        None if a transaction of this epoch is open, which the batch continues; or of a higher one, which fences it. A
        batch without sequence has the base sequence -1.
        """
        producer = self.get(producer_id)
        # Unlike in Kafka a batch of a higher epoch is verified: it does not belong to the open transaction.
        if producer is not None and producer.first_offset != NO_OFFSET and producer.epoch >= epoch:
            return None
        return self._verifications.begin(producer_id, epoch, base_sequence, now_ms)

    @property
    def verification_count(self) -> int:
        """The number of producer ids whose next transactional batch is being verified."""
        return len(self._verifications)

    def check(
        self,
        header: "BatchHeader",
        origin: Origin,
        *,
        control: "ControlRecord | None" = None,
        guard: Guard | None = None,
        is_verifying: bool = False,
    ) -> Duplicate | ErrorCode:
        """NONE if this batch may be appended. Changes nothing. `control` is the record of a control batch.

        With `is_verifying` a batch that begins a transaction needs the `guard` of `begin_verification`. Errors:
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED.
        """
        # A follower stores what its leader has accepted, whatever this replica's own state is.
        if header.producer_id == NO_PRODUCER_ID or origin is Origin.REPLICATION:
            return ErrorCode.NONE
        producer = self.get(header.producer_id)
        kind = header.attributes & (TRANSACTIONAL | CONTROL)
        if producer is not None:
            # The usual case is the next batch of a producer without a transaction. It is no duplicate: a sequence comes
            # again after 2^31 records, and five batches have fewer.
            is_next = header.base_sequence == producer.last_sequence + 1 and header.producer_epoch == producer.epoch
            if is_next and not kind and origin is Origin.CLIENT and producer.first_offset == NO_OFFSET:
                return ErrorCode.NONE

            # Duplicates come first, as in Kafka: a retry would fail the sequence check below.
            if origin is Origin.CLIENT and not kind & CONTROL and header.producer_epoch == producer.epoch:
                duplicate = self._find_duplicate(header)
                if duplicate is not None:
                    # After an abort librdkafka reuses sequence numbers that a leader had not
                    # acknowledged before it died. Kafka takes the new batch for a duplicate of the
                    # aborted one: it acknowledges the batch, and its records are lost.
                    is_new = kind and producer.has_ended(duplicate.base_offset)
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_new else duplicate

            # An older epoch is fenced: another instance has taken over the transactional id (KIP-98), or the producer
            # itself has bumped its epoch (KIP-360). Kafka 3.9 checks the guard first, so it may
            # answer a zombie INVALID_TXN_STATE, which does not say that the zombie is fenced
            # (KAFKA-19690).
            if header.producer_epoch < producer.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        elif header.producer_epoch < NO_EPOCH:
            return ErrorCode.INVALID_PRODUCER_EPOCH

        if kind & CONTROL:
            # A marker has no sequence. A lower coordinator epoch means that another broker has become coordinator.
            known = NO_EPOCH if producer is None else producer.coordinator_epoch
            fenced = control is not None and control.coordinator_epoch < known
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED if fenced else ErrorCode.NONE

        if kind:
            refused = self._check_transactional(producer, header, origin, guard, is_verifying)
            if refused:
                return refused

        # An unknown producer may be a known one that has expired, or whose records are deleted: accept any sequence.
        if producer is None:
            return ErrorCode.NONE
        if origin is Origin.CLIENT and not _continues(producer, header.producer_epoch, header.base_sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

        # Kafka's ProducerAppendInfo, too, accepts only transactional batches until the marker.
        is_alien = producer.first_offset != NO_OFFSET and not kind
        return ErrorCode.INVALID_TXN_STATE if is_alien else ErrorCode.NONE

    def _check_transactional(
        self,
        producer: Producer | None,
        header: "BatchHeader",
        origin: Origin,
        guard: Guard | None,
        is_verifying: bool,
    ) -> ErrorCode:
        """Whether the batch may continue the open transaction, or begin one."""
        producer_id = header.producer_id
        epoch = header.producer_epoch
        if producer is not None and producer.first_offset != NO_OFFSET:
            # A different epoch is a higher one, since lower ones are fenced above. Such a batch
            # would become a part of the old epoch's transaction, whose marker would then be
            # refused: transaction, id and LSO would be stuck for ever, as in Kafka. An honest
            # successor writes only after the marker that fenced the old epoch. The error code is
            # that of a batch without a valid guard: in both cases the batch does not fit the state
            # of the transaction, and sending it again does not help.
            return ErrorCode.NONE if epoch == producer.epoch else ErrorCode.INVALID_TXN_STATE
        if is_verifying and not self._verifications.is_proved(producer_id, guard):
            return ErrorCode.INVALID_TXN_STATE
        # A coordinator's batches (TxnOffsetCommit) have no meaningful sequence.
        if origin is Origin.CLIENT and self._verifications.is_overtaking(producer_id, epoch, header.base_sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE

    def is_behind(self, header: "BatchHeader") -> bool:
        """Whether a batch refused as out of order lies before the last sequence, so that it may be in the log."""
        producer = self.get(header.producer_id)
        # Sequences of different epochs cannot be compared: each epoch starts again at 0.
        if producer is None or header.producer_epoch != producer.epoch:
            return False
        last = producer.last_sequence
        return header.last_sequence == last or is_before(header.last_sequence, last)

    def has_ended(self, header: "BatchHeader", offset: int) -> bool:
        """Whether the transaction that wrote the record of this producer at this offset has its marker."""
        producer = self.get(header.producer_id)
        return producer is None or producer.has_ended(offset)

    def _find_duplicate(self, header: "BatchHeader") -> Duplicate | None:
        """The remembered batch with the same first and last sequence."""
        batches = self._batches.get(header.producer_id, b"")
        numbers = _NUMBERS.pack(header.base_sequence, header.last_sequence)
        # One search in bytes answers the usual case, that there is no duplicate.
        if numbers not in batches:
            return None
        for position in range(0, len(batches), _BATCH.size):
            if batches.startswith(numbers, position):  # the search above may also match across fields
                _, _, offset_delta, last_offset, timestamp = _BATCH.unpack_from(batches, position)
                return Duplicate(last_offset - offset_delta, last_offset, timestamp)
        return None

    # -- act

    def update(self, header: "BatchHeader", *, control: "ControlRecord | None" = None) -> CompletedTransaction | None:
        """Take over a batch that is in the log at `header.base_offset`.

        Returns the transaction that a marker completed, if any.
        """
        # Compaction may have removed the record of a control batch; then it changes nothing.
        attributes = header.attributes
        if header.producer_id == NO_PRODUCER_ID or (attributes & CONTROL and control is None):
            return None
        producer_id = header.producer_id
        is_transactional = attributes & TRANSACTIONAL
        if is_transactional:
            self._verifications.end(producer_id)
        producer = self.get(producer_id)

        # Even a lower epoch replaces the known one: `check` refuses lower epochs of clients, and a
        # batch that is in the log anyway counts.
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._begin_epoch(producer, header)
        if control is not None:
            return self._complete_transaction(producer, header, control)
        first_offset = producer.first_offset
        if is_transactional and first_offset == NO_OFFSET:
            # Appends come in offset order, so this insertion keeps the dictionary sorted.
            first_offset = header.base_offset
            self._open_transactions[first_offset] = producer_id

        last_sequence = header.last_sequence
        last_offset = header.last_offset
        timestamp = header.max_timestamp
        offset_delta = header.last_offset_delta
        batch = _BATCH.pack(header.base_sequence, last_sequence, offset_delta, last_offset, timestamp)
        self._batches[producer_id] = (self._batches.get(producer_id, b"") + batch)[-_BATCHES_BYTES_MAX:]
        batch_fields = (header.producer_epoch, last_sequence, last_offset, offset_delta, timestamp)
        self._set(_as_producer((producer_id, *batch_fields, producer.coordinator_epoch, first_offset)))
        return None

    def _set(self, producer: Producer) -> None:
        self._latest = producer
        self._entries.put(*producer)

    def _begin_epoch(self, producer: Producer | None, header: "BatchHeader") -> Producer:
        """The state at the first batch or marker of another epoch; an open transaction stays open."""
        # Sequences restart with the epoch, so the batches of the old epoch no longer identify duplicates.
        self._batches.pop(header.producer_id, None)
        if producer is None:
            return Producer(header.producer_id, header.producer_epoch)
        return Producer(
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch,
            first_offset=producer.first_offset,
        )

    def _complete_transaction(
        self, producer: Producer, header: "BatchHeader", control: "ControlRecord"
    ) -> CompletedTransaction | None:
        offset = header.base_offset
        first_offset = producer.transaction_first_offset

        # A marker changes neither last sequence nor last offset: those describe records of the producer.
        # The coordinator epoch is noted even without an open transaction: it fences markers of older coordinators.
        after = producer._replace(
            last_timestamp=header.max_timestamp, coordinator_epoch=control.coordinator_epoch, first_offset=NO_OFFSET
        )
        self._set(after)
        if first_offset is None:
            return None  # the producer wrote no record of this transaction to this partition

        # `update` changes `_entries` and `_open_transactions` together; a mismatch would hold the LSO back for ever.
        if self._open_transactions.pop(first_offset, None) != producer.producer_id:
            raise InvariantBroken(f"{producer} has a transaction from {first_offset} that is not listed as open")

        # The transaction stays unstable until its marker is below the high watermark: until then the marker may still
        # be truncated.
        heapq.heappush(self._completed, (first_offset, offset))

        # `last_stable_offset` goes into the .txnindex: no later marker aborts a record below it, so
        # a search that ends below it may stop at this entry.
        last_stable_offset = next(iter(self._open_transactions), offset + 1)
        return CompletedTransaction(
            producer.producer_id, first_offset, offset, last_stable_offset, control.type == ABORT_MARKER
        )

    @property
    def are_decided(self) -> bool:
        """Whether every transaction in the log is decided, and its marker committed."""
        return not (self._open_transactions or self._completed)

    @property
    def oldest_open(self) -> int | None:
        """The first offset of the oldest open transaction; None if none is open."""
        return next(iter(self._open_transactions), None)

    @property
    def open_transactions(self) -> dict[int, int]:
        """The open transactions: first offset -> producer id, the oldest first."""
        return dict(self._open_transactions)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset that may belong to an undecided transaction; None if all are decided."""
        self.forget_committed(high_watermark)
        completed = self._completed
        oldest_open = self.oldest_open
        if not completed:
            return oldest_open
        return completed[0][0] if oldest_open is None else min(oldest_open, completed[0][0])

    def forget_committed(self, high_watermark: int) -> None:
        """Forget the completed transactions whose marker lies below the high watermark."""
        # This cannot come too early: the high watermark only falls with a truncation, which loads the state again.
        completed = self._completed
        for _ in range(COMMITTED_A_STEP + len(completed) // COMMITTED_A_STEP):
            if not completed or completed[0][1] >= high_watermark:
                return
            heapq.heappop(completed)
        # After a restart the transactions of all replayed segments are due at once: then a new heap takes less time.
        self._completed = [each for each in completed if each[1] >= high_watermark]
        heapq.heapify(self._completed)

    @property
    def uncommitted_count(self) -> int:
        """The number of completed transactions whose marker is not known to be below the high watermark."""
        return len(self._completed)

    def expire(self, now_ms: int, producer_id_expiration_ms: int, among: Iterable[int] | None = None) -> int:
        """Remove the producers without an open transaction that wrote nothing for `producer_id_expiration_ms`.

        Returns how many. With `among` only these ids are checked; they may be unknown. Verifications expire, too.
        """
        # There are two loops: a dictionary must not change while it is iterated. `_is_expired`
        # spares a producer with an open transaction, whose first offset holds the LSO back until
        # the marker comes.
        expired = [
            producer_id
            for producer_id in (self.ids() if among is None else among)
            if (entry := self._entries.find(producer_id)) is not None
            and _is_expired(now_ms, producer_id_expiration_ms, *_EXPIRY.unpack_from(*entry))
        ]
        self._latest = None
        for producer_id in expired:
            self._entries.remove(producer_id)
            self._batches.pop(producer_id, None)
        self._verifications.expire(now_ms, producer_id_expiration_ms)
        return len(expired)

    def clear(self) -> None:
        """Forget everything: the log was emptied, or is replayed from its start."""
        self._latest = None
        self._entries.clear()
        self._batches.clear()
        self._open_transactions.clear()
        self._completed.clear()
        self._verifications.clear()

    # -- snapshots

    def entries(self) -> PackedRows:
        """The fields of all producers as they are now. Blocking: never."""
        return self._entries.snapshot()

    def load_snapshot(self, data: bytes, now_ms: int, producer_id_expiration_ms: int) -> None:
        """Replace the state by the snapshot's, without the producers that expired since. SnapshotCorrupt if damaged."""
        # Decode all of it first: a damaged snapshot must not leave half of its producers.
        producers = list(decode_snapshot(data))
        self.clear()
        opened = []
        for producer in producers:
            if _is_expired(now_ms, producer_id_expiration_ms, producer.last_timestamp, producer.first_offset):
                continue
            self._entries.put(*producer)
            # A producer known by a marker alone has no batch that a retry could repeat.
            if producer.last_offset >= 0:
                self._batches[producer.producer_id] = _last_batch(producer)
            if producer.first_offset != NO_OFFSET:
                # A snapshot is not ordered by offset, but `_open_transactions` has to be: they are sorted below.
                opened.append((producer.first_offset, producer.producer_id))
        self._open_transactions.update(sorted(opened))


def _continues(producer: Producer, epoch: int, first_sequence: int) -> bool:
    """Whether a client's batch with this epoch and first sequence may follow the producer's last one."""
    if producer.epoch == NO_EPOCH:
        return True  # the state comes from no record of the producer: its records may all be deleted
    if epoch != producer.epoch:
        return first_sequence == 0
    # With no batch in this epoch yet `last` is -1, so the first batch must begin with sequence 0.
    last = producer.last_sequence
    return first_sequence == last + 1 or (first_sequence == 0 and last == SEQUENCE_MAX)


def _is_expired(now_ms: int, producer_id_expiration_ms: int, last_timestamp: int, first_offset: int) -> bool:
    return first_offset == NO_OFFSET and now_ms - last_timestamp >= producer_id_expiration_ms


def _last_batch(producer: Producer) -> bytes:
    """The one remembered batch that can be rebuilt from a snapshot entry."""
    # The delta between its offsets is also that between its sequences: a producer numbers its records without gaps.
    _, _, last_sequence, last_offset, offset_delta, last_timestamp, _, _ = producer
    first_sequence = sequence_before(last_sequence, offset_delta)
    return _BATCH.pack(first_sequence, last_sequence, offset_delta, last_offset, last_timestamp)


def _checksum(content: bytes | memoryview) -> int:
    from crc32c import crc32c  # slow to import; a start without snapshots does not need it

    return crc32c(content)


def producers_below(entries: PackedRows, offset: int) -> PackedRows:
    """Those of `ProducerStates.entries` all of whose records are below this offset. Blocking: long."""
    table = PackedTable(_ENTRY)
    for row in entries:
        if _as_producer(row).last_offset < offset:
            table.put(*row)
    return table.snapshot()


def encode_snapshot(entries: PackedRows) -> bytes:
    """The content of a `.snapshot` file, of `ProducerStates.entries`. Blocking: short (4 ms for 100,000 producers)."""
    body = entries.packed()
    # The checksum covers the count of the entries, too.
    crc = _checksum(len(entries).to_bytes(4, "big") + body)
    return _SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, crc, len(entries)) + body


def decode_snapshot(data: bytes) -> Iterator[Producer]:
    """The producers of a `.snapshot` file, in file order. SnapshotCorrupt if it is damaged."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise SnapshotCorrupt(f"{len(data)} bytes are too few")
    # All checks come before the first producer: the file was written without a sync and may be cut or full of zeros.
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise SnapshotCorrupt(f"version {version} is not known")
    if crc != _checksum(memoryview(data)[_SNAPSHOT_CRC_START:]):
        raise SnapshotCorrupt("the checksum does not match")
    if len(data) != _SNAPSHOT_HEADER.size + count * _ENTRY.size:
        raise SnapshotCorrupt(f"{len(data)} bytes do not hold {count} producers")
    yield from map(_as_producer, _ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEADER.size :]))
