"""State that follows from the entries of a log, read again: leader epochs, producers, aborted transactions, indexes.

Used where the file with that state is missing, damaged or too old: at the opening of a log, and after a truncation. The
followers' append path uses the same functions for new entries.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from barnabas.storage.disk import StorageError
from barnabas.storage.entries import (
    FLAGS_AT,
    PRODUCER_ID_AT,
    EntrySpan,
    leader_epoch_of,
    max_timestamp_of,
    walk_file,
)
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.files import LOG, SNAPSHOT, TRANSACTION_INDEX, SegmentStore
from barnabas.storage.index import IndexCorrupt
from barnabas.storage.producers import ProducerStates, SnapshotCorrupt
from barnabas.storage.segment import ActiveSegment, Segment
from barnabas.storage.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.records import CONTROL, CorruptRecords, control_of, read_batch_header
from barnabas.wire.sentinels import NEVER_MS

logger = logging.getLogger(__name__)


def check_marker(span: EntrySpan, data: memoryview) -> None:
    """CorruptRecords if this is a control batch with a malformed record."""
    # Call it before the write: `replay_producers` would raise the same only when the batch is already in the log.
    if span.magic >= BATCH_MAGIC and data[FLAGS_AT] & CONTROL:
        control_of(data)


def has_sound_marker(span: EntrySpan, data: memoryview) -> bool:
    """Whether `check_marker` raises nothing."""
    try:
        check_marker(span, data)
    except CorruptRecords:
        return False
    return True


def note_epoch(epochs: LeaderEpochs, span: EntrySpan, data: memoryview) -> bool:
    """Take over the leader epoch of an entry; True if the epochs changed."""
    # Magic 0 and 1 have no epoch. With such an entry the end of the previous epoch is unknown, so all epochs are
    # dropped, as in Kafka.
    if span.magic < BATCH_MAGIC:
        return epochs.clear()
    return epochs.note_batch(leader_epoch_of(span, data), span.base_offset)


def replay_producers(producers: ProducerStates, span: EntrySpan, data: memoryview) -> AbortedTransaction | None:
    """Update the producers from an entry; returns the transaction that it aborted, if any."""
    if span.magic < BATCH_MAGIC or data[PRODUCER_ID_AT] & 0x80:
        return None  # magic 0 and 1, or producer id -1: the sign bit is enough, without parsing the header
    header = read_batch_header(data)
    completed = producers.update(header, control=control_of(data) if header.is_control else None)
    if completed is None or not completed.aborted:
        return None
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )


def load_producers(
    store: SegmentStore,
    producers: ProducerStates,
    snapshots: Sequence[int],
    segments: Sequence[Segment],
    end_offset: int,
    now_ms: int,
    producer_id_expiration_ms: int,
) -> list[int]:
    """Load the newest intact snapshot up to `end_offset`, and replay the log from there to `end_offset`.

    Returns the remaining snapshots; damaged ones are removed. Blocking: long.
    """
    producers.clear()

    # The replay includes records below the log start offset: a marker there may end a transaction
    # that is open in the snapshot. Without that marker the transaction would hold the last stable
    # offset back for ever.
    start_offset = first_offset = segments[0].base_offset if segments else end_offset
    left = list(snapshots)

    # An older snapshot serves as well as a newer one; it only makes the replay longer. But the log
    # must have all records from the snapshot's offset on, or it is unknown which of the snapshot's
    # transactions are still open.
    for offset in reversed(snapshots):
        if offset > end_offset:
            continue
        if offset < first_offset:
            break
        path = store.path(offset, SNAPSHOT)
        try:
            producers.load_snapshot(store.disk.read_file(path), now_ms, producer_id_expiration_ms)
        except SnapshotCorrupt:
            left = remove_snapshots(store, left, [offset])
            continue
        start_offset = offset
        break

    # The log below the snapshot's offset is not read.
    for segment in segments:
        if segment.next_base_offset is None or segment.next_base_offset > start_offset:
            _replay_segment(store, segment, producers, start_offset, end_offset)
    return left


def _replay_segment(
    store: SegmentStore, segment: Segment, producers: ProducerStates, start_offset: int, end_offset: int
) -> None:
    if start_offset >= end_offset:
        return
    # The index position is at or before the entry with `start_offset`; entries before that are skipped below.
    position = segment.start_position(start_offset, store.private)
    with store.private(segment.path) as file:
        for span, data in walk_file(file, position, segment.size_bytes):
            if span.base_offset >= end_offset:
                return
            # The snapshot includes the batches before it: replayed twice, they would count as new ones.
            if span.last_offset < start_offset:
                continue
            try:
                replay_producers(producers, span, data)
            # The segment was synced, so it is not truncated here. Without the marker it is unknown whether the
            # transaction was aborted: as for a file that cannot be read, the directory goes offline.
            except CorruptRecords as error:
                raise StorageError(segment.path, "read", str(error)) from error


def remove_snapshots(store: SegmentStore, snapshots: Iterable[int], unwanted: Sequence[int]) -> list[int]:
    """Remove the snapshots at these offsets; returns the others."""
    # The directory is not synced here; callers do that where a snapshot must not come back.
    for offset in unwanted:
        store.disk.remove(store.path(offset, SNAPSHOT))
    return [offset for offset in snapshots if offset not in unwanted]


def sound_transactions(
    store: SegmentStore, base: int, size_bytes: int, earlier: Sequence[Segment], end_offset: int
) -> TransactionIndex:
    """The aborted transactions of the segment [base, end_offset). Blocking: long.

    A damaged .txnindex is rebuilt from the log, durably; `earlier` are the segments before this one, for its producers.
    """
    path = store.path(base, TRANSACTION_INDEX)
    # A segment without aborted transactions has no such file.
    if not store.disk.exists(path):
        return TransactionIndex(base)
    try:
        with store.private(path) as file:
            index = TransactionIndex.load(file, base)
        if not index.ends_before(end_offset):
            raise IndexCorrupt(f"it names a marker at {end_offset} or later")
    except IndexCorrupt as error:
        logger.warning("%s is damaged (%s) and is rebuilt", path, error)
        return rebuild_transactions(store, base, size_bytes, earlier)
    return index


def rebuild_transactions(
    store: SegmentStore, base: int, size_bytes: int, earlier: Sequence[Segment]
) -> TransactionIndex:
    """Replace the .txnindex of a segment by what its log says, durably. Blocking: long."""
    index = find_transactions(store, base, size_bytes, earlier)
    path = store.path(base, TRANSACTION_INDEX)
    # The event loop may have the damaged file open; `replace_file` makes a new one under the same path.
    store.open_files.drop(path)
    store.disk.replace_file(path, bytes(index.unsaved))
    index.unsaved.clear()
    return index


def find_transactions(store: SegmentStore, base: int, size_bytes: int, earlier: Sequence[Segment]) -> TransactionIndex:
    """The aborted transactions of a segment, none of them saved: replay it on the producers at its base offset.

    Blocking: long.
    """
    # The snapshot at the base offset gives these producers; without one the earlier segments are replayed.
    producers = ProducerStates()
    start_offset = 0
    snapshot = store.path(base, SNAPSHOT)
    if store.disk.exists(snapshot):
        with suppress(SnapshotCorrupt):
            producers.load_snapshot(store.disk.read_file(snapshot), 0, NEVER_MS)
            start_offset = base

    for segment in earlier:
        _replay_segment(store, segment, producers, start_offset, base)

    # These producers now include the transactions that were open at `base`, and may end in this segment.
    index = TransactionIndex(base)
    with store.private(store.path(base, LOG)) as file:
        for span, data in walk_file(file, 0, size_bytes):
            aborted = replay_producers(producers, span, data)
            if aborted is not None:
                index.append(aborted)

    return index


def reindex(
    store: SegmentStore,
    base: int,
    size_bytes: int,
    index_interval_bytes: int,
    now_ms: int,
    earlier: Sequence[Segment],
    end_offset: int,
) -> ActiveSegment:
    """Open a segment whose log is trusted, and rebuild its offset and time index in memory. Blocking: long."""
    segment = ActiveSegment.unread(store, base, now_ms)
    segment.transactions = sound_transactions(store, base, size_bytes, earlier, end_offset)
    for span, data in walk_file(segment.file, 0, size_bytes):
        timestamp = max_timestamp_of(span, data)
        segment.note(span.position, span.size_bytes, span.last_offset, timestamp, index_interval_bytes)
    # `note` has counted the whole entries only; the trusted size of the log stays as it is.
    segment.size_bytes = size_bytes
    return segment
