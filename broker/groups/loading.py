"""Loading a coordinator partition: the bytes of its log, replayed (pure but for reading the slice it is given).

Runs in a worker thread, on groups that nobody else sees yet. A slice may end in a part of a batch, and begin with one
that has been replayed already, at most the records before `from_offset` of a batch it lies in: replaying them again
changes nothing, since a later record about the same key follows.
"""

import logging
from typing import TYPE_CHECKING

from barnabas.broker.groups.records import MalformedRecord, decode_record
from barnabas.broker.groups.replay import NO_PRODUCER, Groups, replay, replay_marker
from barnabas.broker.groups.state import forget
from barnabas.wire.records import COMMIT, read_batch_header, read_control_record, read_records, walk_entries

if TYPE_CHECKING:
    from barnabas.storage.disk import FileSlice

logger = logging.getLogger(__name__)

MAGIC_WITH_BATCH_HEADER = 2


def load_slice(groups: Groups, piece: "FileSlice", from_offset: int) -> int:
    """Replay what lies in a slice of the log; the offset at which to go on.

    StorageError, CorruptRecords, MalformedRecord: the log cannot be understood, so nothing may be answered from it.
    """
    try:
        data = piece.read()
    finally:
        piece.release()
    next_offset = replay_batches(groups, data)
    if next_offset is None or next_offset <= from_offset:
        raise MalformedRecord(f"no whole batch at offset {from_offset} in {len(data)} bytes")
    return next_offset


def replay_batches(groups: Groups, data: bytes) -> int | None:
    """Replay every whole batch; the offset behind the last one, or None when there is none."""
    next_offset = None
    for position, entry in walk_entries(data):
        if entry.magic < MAGIC_WITH_BATCH_HEADER:
            _replay_records(groups, data, position, NO_PRODUCER)
            next_offset = entry.offset + 1
            continue
        header = read_batch_header(data, position)
        if header.is_control:
            for record in read_records(data, position):
                marker, _ = read_control_record(record)
                replay_marker(groups, header.producer_id, committed=marker == COMMIT)
        else:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            _replay_records(groups, data, position, producer_id)
        next_offset = header.last_offset + 1
    return next_offset


def _replay_records(groups: Groups, data: bytes, position: int, producer_id: int) -> None:
    for record in read_records(data, position):
        decoded = decode_record(record.key, record.value)
        if decoded is None:
            logger.warning("passed over a record at offset %d of a kind that is not served", record.offset)
        else:
            replay(groups, decoded, record.offset, producer_id)


def finish_loading(groups: Groups) -> None:
    """The whole log is replayed: give each group what a coordinator knows that has just loaded it."""
    for group_id in [group_id for group_id, group in groups.by_id.items() if group.recorded.is_blank]:
        del groups.by_id[group_id]
    for group in groups.by_id.values():
        forget(group)
