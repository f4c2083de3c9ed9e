"""What a partition knows of the producers that write to it (pure): KIP-98, reference D.5.

*Idempotence.* A producer numbers its records; the partition remembers the last five batches of each producer id. A
batch that repeats one of them was already appended: it is answered with the offsets of the original. Any other batch
must continue the sequence, or it is refused. Sequence numbers are 31 bits and wrap from 2^31-1 to 0.

*Transactions.* The first transactional batch of a producer opens a transaction in this partition; a control batch (a
marker, written by the transaction coordinator) completes it. Reading is stable up to the first offset that may still
belong to an undecided transaction:

    first unstable offset = min(first offset of the oldest open transaction,
                                first offset of the oldest completed one whose marker is not below the high watermark)

*Decide, then act.* `check` decides about a batch and changes nothing; `update` follows the append, and replays the log
after a start or a truncation, beginning from a snapshot. Thus restart and fail-over run the same code as appends.
Only appends of clients are checked for sequence; what a leader accepted, its follower takes over as it is.

The snapshot (`<offset>.snapshot`, reference D.4) holds what is known of each producer when the log ended at that
offset. Of the five batches it keeps only the last, as in Kafka; `recall.py` finds older ones when they are sent again.
"""

import heapq
import struct
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Self

from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.record_batch import SEQUENCE_MAX

if TYPE_CHECKING:
    from barnabas.wire.record_reader import ControlRecord
    from barnabas.wire.records import BatchHeader

BATCHES_REMEMBERED = 5  # as many requests as a client may have in flight and still be idempotent
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_EPOCH = -1
NO_OFFSET = -1
ABORT_MARKER = 0

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")  # version, CRC-32C of everything after it, number of entries
_SNAPSHOT_CRC_START = 6
# producer id, epoch, last sequence, last offset, offset delta of the last batch, last timestamp, coordinator epoch,
# first offset of the open transaction
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class Origin(Enum):
    """Where a batch comes from; it decides what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Duplicate(NamedTuple):
    """The batch is in the log already: where, and the timestamp it was remembered with."""

    base_offset: int
    last_offset: int
    append_time_ms: int


class CompletedTransaction(NamedTuple):
    """A marker ended a transaction that had records here; an aborted one goes into the `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int  # the marker's own offset
    last_stable_offset: int  # the first offset of the oldest other open transaction, else behind the marker
    aborted: bool


class RememberedBatch(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int

    @classmethod
    def of(cls, header: "BatchHeader") -> Self:
        """What is remembered of a batch that is in the log."""
        return cls(
            header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
        )


class SnapshotCorrupt(Exception):
    """A `.snapshot` cannot be read; an older one and the log after it serve as well."""


class Producer:
    """One producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_first_offset")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.batches: list[RememberedBatch] = []  # oldest first, at most five, all of this epoch
        self.last_timestamp = -1
        self.coordinator_epoch = NO_EPOCH
        self.transaction_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record, -1 before any in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of its last record, -1 before any in this epoch."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> RememberedBatch | None:
        """The remembered batch with just these numbers."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def begin_epoch(self, epoch: int) -> None:
        """A batch or marker of this epoch was written; another one than before forgets the batches."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def remember(self, batch: RememberedBatch) -> None:
        """Add a batch, forgetting the oldest of more than five."""
        self.batches.append(batch)
        if len(self.batches) > BATCHES_REMEMBERED:
            del self.batches[0]

    def __repr__(self) -> str:
        return f"Producer({self.producer_id}, epoch {self.epoch}, last sequence {self.last_sequence})"


def sequence_before(sequence: int, count: int) -> int:
    """The sequence number `count` records earlier."""
    return sequence - count if sequence >= count else SEQUENCE_MAX - (count - sequence) + 1


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` records later."""
    return sequence + count if sequence <= SEQUENCE_MAX - count else count - (SEQUENCE_MAX - sequence) - 1


class ProducerStates:
    """Producer id -> `Producer`, and the transactions that are open or not yet replicated."""

    __slots__ = ("_completed", "_open_transactions", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open_transactions: dict[int, int] = {}  # first offset -> producer id; rising, for the log only grows
        self._completed: list[tuple[int, int]] = []  # heap of (first offset, marker's offset), marker not replicated

    def get(self, producer_id: int) -> Producer | None:
        """What is known of this producer; to be read only."""
        return self._producers.get(producer_id)

    def __iter__(self) -> Iterator[Producer]:
        """All producers, to be read only: for DescribeProducers, and for the cleaner, which keeps their last batch."""
        return iter(self._producers.values())

    def __len__(self) -> int:
        return len(self._producers)

    # -- decide

    def check(
        self, header: "BatchHeader", origin: Origin, *, control: "ControlRecord | None" = None
    ) -> Duplicate | ErrorCode | None:
        """Whether this batch may be appended (None); changes nothing. `control` is what a control batch says.

        Errors: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED.
        """
        if header.producer_id == NO_PRODUCER_ID or origin is Origin.REPLICATION:
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:  # unknown, or expired: any sequence may begin, in any epoch that there is
            return None if header.producer_epoch >= NO_EPOCH else ErrorCode.INVALID_PRODUCER_EPOCH
        if origin is Origin.CLIENT and not header.is_control:
            duplicate = producer.find_duplicate(header.producer_epoch, header.base_sequence, header.last_sequence)
            if duplicate is not None:
                return Duplicate(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp)
        if header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.is_control:
            fenced = control is not None and control.coordinator_epoch < producer.coordinator_epoch
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED if fenced else None
        if origin is Origin.CLIENT and not _continues(producer, header.producer_epoch, header.base_sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer.transaction_first_offset is not None and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def is_behind(self, header: "BatchHeader") -> bool:
        """Whether a batch that was refused as out of order is an old one of its epoch, which may be in the log."""
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch != producer.epoch:
            return False
        return (producer.last_sequence - header.last_sequence) & SEQUENCE_MAX <= SEQUENCE_MAX // 2

    # -- act

    def update(self, header: "BatchHeader", *, control: "ControlRecord | None" = None) -> CompletedTransaction | None:
        """Take over a batch that is in the log at `header.base_offset`; a marker may complete a transaction.

        A control batch without a record (compaction removed it) changes nothing.
        """
        if header.producer_id == NO_PRODUCER_ID or (header.is_control and control is None):
            return None
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_id)
        producer.begin_epoch(header.producer_epoch)
        producer.last_timestamp = header.max_timestamp
        if control is not None:
            return self._complete_transaction(producer, header.base_offset, control)
        producer.remember(RememberedBatch.of(header))
        if header.is_transactional and producer.transaction_first_offset is None:
            producer.transaction_first_offset = header.base_offset
            self._open_transactions[header.base_offset] = header.producer_id
        return None

    def _complete_transaction(
        self, producer: Producer, offset: int, control: "ControlRecord"
    ) -> CompletedTransaction | None:
        producer.coordinator_epoch = control.coordinator_epoch
        first_offset = producer.transaction_first_offset
        if first_offset is None:
            return None  # nothing was written here, so nothing becomes stable
        producer.transaction_first_offset = None
        if self._open_transactions.pop(first_offset, None) != producer.producer_id:
            raise InvariantBroken(f"{producer} has a transaction from {first_offset} that is not listed as open")
        heapq.heappush(self._completed, (first_offset, offset))
        last_stable_offset = next(iter(self._open_transactions), offset + 1)
        return CompletedTransaction(
            producer.producer_id, first_offset, offset, last_stable_offset, control.type == ABORT_MARKER
        )

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset that may belong to an undecided transaction; None if everything is decided."""
        self.forget_committed(high_watermark)
        completed = self._completed
        oldest_open = next(iter(self._open_transactions), None)
        if not completed:
            return oldest_open
        return completed[0][0] if oldest_open is None else min(oldest_open, completed[0][0])

    def forget_committed(self, high_watermark: int) -> None:
        """Forget the completed transactions whose marker lies below the high watermark, which only rises.

        It falls only with a truncation, after which the state is loaded anew.
        """
        completed = self._completed
        while completed and completed[0][1] < high_watermark:
            heapq.heappop(completed)

    @property
    def uncommitted_count(self) -> int:
        """How many transactions are completed, and not known to be committed."""
        return len(self._completed)

    def expire(self, now_ms: int, producer_id_expiration_ms: int) -> int:
        """Forget who has not written for so long and has no open transaction; returns how many that were."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if _is_expired(producer, now_ms, producer_id_expiration_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything: the log was emptied, or is going to be replayed from its beginning."""
        self._producers.clear()
        self._open_transactions.clear()
        self._completed.clear()

    # -- snapshots

    def encode_snapshot(self) -> bytes:
        """The content of a `.snapshot` file."""
        data = bytearray(_SNAPSHOT_HEADER.size)
        for producer in self._producers.values():
            data += _encode_producer(producer)
        _SNAPSHOT_HEADER.pack_into(data, 0, SNAPSHOT_VERSION, 0, len(self._producers))
        crc = _checksum(data)
        _SNAPSHOT_HEADER.pack_into(data, 0, SNAPSHOT_VERSION, crc, len(self._producers))
        return bytes(data)

    def load_snapshot(self, data: bytes, now_ms: int, producer_id_expiration_ms: int) -> None:
        """Become what the snapshot says, without the producers that have expired since. SnapshotCorrupt if damaged."""
        producers = [
            producer
            for producer in decode_snapshot(data)
            if not _is_expired(producer, now_ms, producer_id_expiration_ms)
        ]
        self.clear()
        opened = []
        for producer in producers:
            self._producers[producer.producer_id] = producer
            if producer.transaction_first_offset is not None:
                opened.append((producer.transaction_first_offset, producer.producer_id))
        self._open_transactions.update(sorted(opened))


def _continues(producer: Producer, epoch: int, first_sequence: int) -> bool:
    """Whether a batch of this producer may begin with this sequence number."""
    if producer.epoch == NO_EPOCH:
        return True  # what is known comes from nothing: the producer's records may all be deleted
    if epoch != producer.epoch:
        return first_sequence == 0
    last = producer.last_sequence
    return first_sequence == last + 1 or (first_sequence == 0 and last == SEQUENCE_MAX)


def _is_expired(producer: Producer, now_ms: int, producer_id_expiration_ms: int) -> bool:
    idle_ms = now_ms - producer.last_timestamp
    return producer.transaction_first_offset is None and idle_ms >= producer_id_expiration_ms


def _encode_producer(producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else None
    first_offset = producer.transaction_first_offset
    return _SNAPSHOT_ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        producer.last_sequence,
        producer.last_offset,
        last.last_offset - last.base_offset if last else 0,
        producer.last_timestamp,
        producer.coordinator_epoch,
        NO_OFFSET if first_offset is None else first_offset,
    )


def _checksum(snapshot: bytes | bytearray) -> int:
    from crc32c import crc32c  # slow to import, and a start without old logs has no need of it

    return crc32c(memoryview(snapshot)[_SNAPSHOT_CRC_START:])


def decode_snapshot(data: bytes) -> Iterator[Producer]:
    """The producers of a `.snapshot` file, in its order. SnapshotCorrupt where it is damaged."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise SnapshotCorrupt(f"{len(data)} bytes are too few")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise SnapshotCorrupt(f"version {version} is not known")
    if crc != _checksum(data):
        raise SnapshotCorrupt("the checksum does not match")
    if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
        raise SnapshotCorrupt(f"{len(data)} bytes do not hold {count} producers")
    for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEADER.size :]):
        yield _decode_producer(*fields)


def _decode_producer(  # one parameter a field of the entry, in the file's order
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    last_timestamp: int,
    coordinator_epoch: int,
    first_offset: int,
) -> Producer:
    producer = Producer(producer_id)
    producer.epoch = epoch
    producer.last_timestamp = last_timestamp
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_first_offset = None if first_offset == NO_OFFSET else first_offset
    if last_offset >= 0:
        first_sequence = sequence_before(last_sequence, offset_delta)
        producer.remember(
            RememberedBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, last_timestamp)
        )
    return producer
