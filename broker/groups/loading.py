"""Loading a coordinator partition: the bytes of its log, replayed (pure but for reading the slice it is given).

Runs in a worker thread, on groups that no other code sees yet. Of a partition with millions of commits almost all are
superseded, so records are not replayed as they come: the last one of each key is kept, as bytes, and replayed at the
end, in the order of their offsets. That is what the log would be after compaction, and leaves the same state; which
record says so is all that groups remember of a commit. Transactions depend on what came before them, so everything kept
is replayed before a batch of one, and such a batch record by record.

A slice may end in a part of a batch, and begin with one that has been read already, at most the records before
`from_offset` of a batch it lies in: reading them again changes nothing, since a later record of the same key follows.
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


_offset_of = itemgetter(1)


class Loading:
    """A log on its way into `groups`."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}  # key -> offset and value of its last record

    def load_slice(self, piece: "FileSlice", from_offset: int) -> int:
        """Read what lies in a slice of the log; the offset at which to go on.

        StorageError, CorruptRecords, MalformedRecord: the log cannot be understood, so nothing may be answered from it.
        """
        try:
            data = piece.read()
        finally:
            piece.release()
        next_offset = self.load_batches(data)
        if next_offset is None or next_offset <= from_offset:
            raise MalformedRecord(f"no whole batch at offset {from_offset} in {len(data)} bytes")
        return next_offset

    def load_batches(self, data: bytes) -> int | None:
        """Read every whole batch; the offset behind the last one, or None when there is none."""
        next_offset = None
        for position, entry in walk_entries(data):
            if entry.magic < BATCH_MAGIC:
                self._replay_one_by_one(data, position, NO_PRODUCER)
                next_offset = entry.offset + 1
                continue
            header = read_batch_header(data, position)
            if header.is_control:
                self._replay_markers(data, position, header.producer_id)
            elif header.is_transactional:
                self._replay_one_by_one(data, position, header.producer_id)
            elif not is_intact(memoryview(data)[position : position + entry.size_bytes]):
                raise CorruptRecords(f"the checksum of the batch at offset {entry.offset} is wrong")
            else:
                note_values(header, data, position, self._newest)
            next_offset = header.last_offset + 1
        return next_offset

    def finish(self) -> None:
        """The whole log is read: give each group what a coordinator knows that has just loaded it."""
        self._replay_kept()
        by_id = self._groups.by_id
        for group_id in [group_id for group_id, group in by_id.items() if group.recorded.is_blank]:
            del by_id[group_id]
        for group in by_id.values():
            forget(group)

    def _replay_kept(self) -> None:
        kept = sorted(((key, *found) for key, found in self._newest.items()), key=_offset_of)
        self._newest.clear()
        for key, offset, value in kept:
            self._replay(key, value, offset, NO_PRODUCER)

    def _replay_one_by_one(self, data: bytes, position: int, producer_id: int) -> None:
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
        if decoded is None:
            logger.warning("passed over a record at offset %d of a kind that is not served", offset)
        else:
            replay(self._groups, decoded, offset, producer_id)
