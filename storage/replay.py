"""What the entries of a log say beside their records, read again: leader epochs, producers, transactions, indexes.

Used wherever a file that says it is missing, damaged or too old: when a log is opened, and after a cut.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

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
from barnabas.storage.index import (
    AbortedTransaction,
    IndexCorrupt,
    TransactionIndex,
    format_transactions,
    transactions_within,
)
from barnabas.storage.producers import ProducerStates, SnapshotCorrupt
from barnabas.storage.segment import ActiveSegment, Segment
from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.records import CONTROL, ControlRecord, read_batch_header, read_control_record, read_records

logger = logging.getLogger(__name__)

NEVER_MS = 2**63 - 1  # no producer has expired


def control_of(data: bytes | bytearray | memoryview) -> ControlRecord | None:
    """What a control batch says; None if compaction has removed its record."""
    record = next(read_records(data), None)
    return None if record is None else read_control_record(record)


def check_marker(span: EntrySpan, data: memoryview) -> None:
    """CorruptRecords if this is a control batch that does not say what it controls. To be called before it is written,
    for `replay_producers` raises the same when it stands in the log already."""
    if span.magic >= BATCH_MAGIC and data[FLAGS_AT] & CONTROL:
        control_of(data)


def note_epoch(epochs: LeaderEpochs, span: EntrySpan, data: memoryview) -> bool:
    """Take over the leader epoch of an entry; True if that was news. Old formats have none, and what is known of
    earlier entries says nothing about where they ended: so everything is forgotten then, as in Kafka."""
    if span.magic < BATCH_MAGIC:
        return epochs.clear()
    epoch = leader_epoch_of(span, data)
    latest = epochs.latest_epoch
    return epoch >= 0 and (latest is None or epoch > latest) and epochs.assign(epoch, span.base_offset)


def replay_producers(producers: ProducerStates, span: EntrySpan, data: memoryview) -> AbortedTransaction | None:
    """Take over what an entry says of its producer; returns the transaction that it aborted, if any."""
    if span.magic < BATCH_MAGIC or data[PRODUCER_ID_AT] & 0x80:
        return None  # no producer: -1
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
    segments: Iterable[Segment],
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    producer_id_expiration_ms: int,
) -> list[int]:
    """Load the newest good snapshot up to `end_offset` and replay the log from there. Returns the snapshots that are
    left: a damaged one is removed. Blocking: long."""
    producers.clear()
    start_offset = log_start_offset
    left = list(snapshots)
    for offset in reversed(snapshots):
        if offset > end_offset:
            continue
        path = store.path(offset, SNAPSHOT)
        try:
            producers.load_snapshot(store.disk.read_file(path), now_ms, producer_id_expiration_ms)
        except SnapshotCorrupt:
            left = remove_snapshots(store, left, [offset])
            continue
        start_offset = max(offset, log_start_offset)
        break
    for segment in segments:
        if segment.next_base_offset is None or segment.next_base_offset > start_offset:
            _replay_segment(store, segment, producers, start_offset, end_offset)
    return left


def _replay_segment(
    store: SegmentStore, segment: Segment, producers: ProducerStates, start_offset: int, end_offset: int
) -> None:
    if start_offset >= end_offset:
        return
    position = segment.start_position(start_offset, store.private)
    with store.private(segment.path) as file:
        for span, data in walk_file(file, position, segment.size_bytes):
            if span.base_offset >= end_offset:
                return
            if span.last_offset >= start_offset:
                replay_producers(producers, span, data)


def remove_snapshots(store: SegmentStore, snapshots: Iterable[int], unwanted: Sequence[int]) -> list[int]:
    """Remove some snapshots; returns the others."""
    for offset in unwanted:
        store.disk.remove(store.path(offset, SNAPSHOT))
    return [offset for offset in snapshots if offset not in unwanted]


def sound_transactions(
    store: SegmentStore, base: int, size_bytes: int, earlier: Sequence[Segment], end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions of a segment that ends at `end_offset`; a damaged .txnindex is rebuilt from the log,
    durably. `earlier`: the segments before this one. Blocking: long."""
    path = store.path(base, TRANSACTION_INDEX)
    if not store.disk.exists(path):
        return []
    try:
        return transactions_within(store.disk.read_file(path), base, end_offset)
    except IndexCorrupt as error:
        logger.warning("%s is damaged (%s) and is rebuilt", path, error)
    found = _find_transactions(store, base, size_bytes, earlier)
    store.open_files.drop(path)
    store.disk.replace_file(path, format_transactions(found))
    return found


def _find_transactions(
    store: SegmentStore, base: int, size_bytes: int, earlier: Sequence[Segment]
) -> list[AbortedTransaction]:
    """What a .txnindex should hold: the segment is replayed on the producers as they were when it began."""
    producers, start_offset = ProducerStates(), 0
    snapshot = store.path(base, SNAPSHOT)
    if store.disk.exists(snapshot):
        with suppress(SnapshotCorrupt):
            producers.load_snapshot(store.disk.read_file(snapshot), 0, NEVER_MS)
            start_offset = base
    for segment in earlier:
        _replay_segment(store, segment, producers, start_offset, base)
    found = []
    with store.private(store.path(base, LOG)) as file:
        for span, data in walk_file(file, 0, size_bytes):
            aborted = replay_producers(producers, span, data)
            if aborted is not None:
                found.append(aborted)
    return found


def reindex(
    store: SegmentStore,
    base: int,
    size_bytes: int,
    index_interval_bytes: int,
    now_ms: int,
    earlier: Sequence[Segment],
    end_offset: int,
) -> ActiveSegment:
    """A segment that is believed, with offset and time index rebuilt (in memory). Blocking: long."""
    segment = ActiveSegment.unread(store, base, now_ms)
    segment.transactions = TransactionIndex(sound_transactions(store, base, size_bytes, earlier, end_offset))
    for span, data in walk_file(segment.file, 0, size_bytes):
        timestamp = max_timestamp_of(span, data)
        segment.note(span.position, span.size_bytes, span.last_offset, timestamp, index_interval_bytes)
    segment.size_bytes = size_bytes
    return segment
