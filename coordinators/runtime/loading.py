"""Loading a shard: its log is read and replayed (shell, because it reads the log).

Runs in a worker thread, on a state that is not served yet. Kafka's GroupMetadataManager.loadGroupsAndOffsets and
TransactionStateManager.loadTransactionMetadata.
"""

from operator import itemgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.record_sift import note_values
from barnabas.wire.records import (
    ABORT,
    COMMIT,
    CorruptRecords,
    is_intact,
    read_batch_header,
    read_control_record,
    read_records,
    walk_entries,
)
from barnabas.wire.sentinels import NO_PRODUCER_ID
from barnabas.wire.versioned_records import MalformedRecord

if TYPE_CHECKING:
    from barnabas.storage.disk import FileSlice

Made_co = TypeVar("Made_co", covariant=True)  # the state that a loader makes
State = TypeVar("State")

_offset_of = itemgetter(1)  # of (key, offset, value)


class Loader(Protocol[Made_co]):
    """Makes the state of one log from its records, which `Loading` gives it in the order in which they count."""

    @property
    def needs_all_records(self) -> bool:
        """Whether records count now even if a later one with the same key follows."""

    def replay(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        """A record; `producer_id` is NO_PRODUCER_ID unless it belongs to a transaction. Raises MalformedRecord."""

    def replay_marker(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """The marker at `offset` that ends the producer's transaction: COMMIT (`committed`) or ABORT."""

    def finish(self) -> Made_co:
        """The whole log is read: the state."""


class Loading(Generic[State]):
    """The load of one log: the slices in order, then `finish`."""

    def __init__(self, loader: Loader[State]) -> None:
        self._loader = loader
        # Key -> offset and value of its last record, not replayed yet. Of millions of records in a log almost all are
        # superseded, so only the last one of each key is decoded. This is what the log will be after compaction.
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}

    def load_slice(self, piece: "FileSlice", from_offset: int) -> int:
        """Read a slice of the log that holds `from_offset`. Returns the offset of the next slice. Releases `piece`.

        Raises StorageError, CorruptRecords or MalformedRecord: then nothing of this log may be served.
        """
        try:
            data = piece.read()
        finally:
            piece.release()
        # The slice begins with the batch that holds `from_offset`. Its records before that offset may be read a second
        # time. That is harmless: newer records of the same key are in the batch, too, or come later.
        next_offset = self.load_batches(data)
        # Without progress the caller would read the same slice for ever.
        if next_offset is None or next_offset <= from_offset:
            raise MalformedRecord(f"no whole batch at offset {from_offset} in {len(data)} bytes")
        return next_offset

    def load_batches(self, data: bytes) -> int | None:
        """Read all complete batches. Returns the offset after the last one, or None if there is none.

        A slice may end with a part of a batch; the next slice begins with it. Raises CorruptRecords, MalformedRecord.
        """
        next_offset = None
        for position, entry in walk_entries(data):
            # These are messages of the formats before Kafka 0.11, which `note_values` does not
            # read. They are rare by now.
            if entry.magic < BATCH_MAGIC:
                self._replay_one_by_one(data, position, NO_PRODUCER_ID)
                next_offset = entry.offset + 1
                continue
            header = read_batch_header(data, position)

            # Control and transactional batches depend on the records before them, so their order counts.
            if header.is_control:
                self._replay_markers(data, position, header.producer_id)
            elif header.is_transactional:
                self._replay_one_by_one(data, position, header.producer_id)
            elif self._loader.needs_all_records:
                self._replay_one_by_one(data, position, NO_PRODUCER_ID)
            # `read_records` checks the checksum in the other branches, `note_values` does not.
            elif not is_intact(memoryview(data)[position : position + entry.size_bytes]):
                raise CorruptRecords(f"the checksum of the batch at offset {entry.offset} is wrong")
            else:
                note_values(header, data, position, self._newest)
            next_offset = header.last_offset + 1

        return next_offset

    def finish(self) -> State:
        """The whole log is read: replay what is left. Returns the state."""
        self._replay_kept()
        return self._loader.finish()

    def _replay_kept(self) -> None:
        # The values are sorted by offset, because a state may keep the offset of the last record of
        # a kind.
        kept = sorted(((key, *found) for key, found in self._newest.items()), key=_offset_of)
        self._newest.clear()
        for key, offset, value in kept:
            self._loader.replay(key, value, offset, NO_PRODUCER_ID)

    def _replay_one_by_one(self, data: bytes, position: int, producer_id: int) -> None:
        # What is collected is older, and must not overwrite these records later.
        self._replay_kept()
        for record in read_records(data, position):
            self._loader.replay(record.key, record.value, record.offset, producer_id)

    def _replay_markers(self, data: bytes, position: int, producer_id: int) -> None:
        self._replay_kept()
        # A batch that compaction has emptied has no control record, and ends no transaction.
        for record in read_records(data, position):
            marker, _ = read_control_record(record)
            # Control records of other types end no transaction.
            if marker in (COMMIT, ABORT):
                self._loader.replay_marker(producer_id, record.offset, committed=marker == COMMIT)
