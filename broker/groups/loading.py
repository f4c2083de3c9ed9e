"""Loading a coordinator partition: its log is read and replayed (shell, because it reads the log).

Runs in a worker thread, on groups that are not served yet. Kafka's GroupMetadataManager.loadGroupsAndOffsets.
"""

import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from barnabas.broker.groups.records import MalformedRecord, decode_record
from barnabas.broker.groups.replay import NO_PRODUCER, Groups, replay, replay_marker
from barnabas.broker.groups.state import forget
from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.record_sift import note_values
from barnabas.wire.records import (
    COMMIT,
    CorruptRecords,
    is_intact,
    read_batch_header,
    read_control_record,
    read_records,
    walk_entries,
)

if TYPE_CHECKING:
    from barnabas.storage.disk import FileSlice

logger = logging.getLogger(__name__)


_offset_of = itemgetter(1)  # of (key, offset, value)


class Loading:
    """The load of one log into `groups`: the slices in order, then `finish`."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        # Key -> offset and value of its last record, not replayed yet. Of millions of commits in a log almost all are
        # superseded, so only the last record of each key is decoded. This is what the log will be after compaction.
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}

    def load_slice(self, piece: "FileSlice", from_offset: int) -> int:
        """Read a slice of the log that holds `from_offset`. Returns the offset of the next slice. Releases `piece`.

        Raises StorageError, CorruptRecords or MalformedRecord: then no group of this log may be served.
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
            # Messages of the formats before Kafka 0.11, which `note_values` does not read. They are rare by now.
            if entry.magic < BATCH_MAGIC:
                self._replay_one_by_one(data, position, NO_PRODUCER)
                next_offset = entry.offset + 1
                continue
            header = read_batch_header(data, position)
            # Control and transactional batches depend on the records before them, so their order counts.
            if header.is_control:
                self._replay_markers(data, position, header.producer_id)
            elif header.is_transactional:
                self._replay_one_by_one(data, position, header.producer_id)
            # `read_records` checks the checksum in the other branches, `note_values` does not.
            elif not is_intact(memoryview(data)[position : position + entry.size_bytes]):
                raise CorruptRecords(f"the checksum of the batch at offset {entry.offset} is wrong")
            else:
                note_values(header, data, position, self._newest)
            next_offset = header.last_offset + 1
        return next_offset

    def finish(self) -> None:
        """The whole log is read: replay what is left, and derive the volatile part of each group."""
        self._replay_kept()
        # Groups of which the log has only tombstones do not exist.
        by_id = self._groups.by_id
        for group_id in [group_id for group_id, group in by_id.items() if group.recorded.is_blank]:
            del by_id[group_id]
        for group in by_id.values():
            forget(group)

    def _replay_kept(self) -> None:
        # By offset, because `metadata_offset` and `forgotten_offset` are those of the last record that is replayed.
        kept = sorted(((key, *found) for key, found in self._newest.items()), key=_offset_of)
        self._newest.clear()
        for key, offset, value in kept:
            self._replay(key, value, offset, NO_PRODUCER)

    def _replay_one_by_one(self, data: bytes, position: int, producer_id: int) -> None:
        # What is collected is older, and must not overwrite these records later.
        self._replay_kept()
        for record in read_records(data, position):
            self._replay(record.key, record.value, record.offset, producer_id)

    def _replay_markers(self, data: bytes, position: int, producer_id: int) -> None:
        self._replay_kept()
        for record in read_records(data, position):
            marker, _ = read_control_record(record)
            replay_marker(self._groups, producer_id, committed=marker == COMMIT)

    def _replay(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        decoded = decode_record(key, value)
        # Records of the newer group protocol (KIP-848), as Kafka ignores them here.
        if decoded is None:
            logger.warning("passed over a record at offset %d of a kind that is not served", offset)
        else:
            replay(self._groups, decoded, offset, producer_id)
