"""Batches that are in the log, and that the producer's state does not remember any more.

A client may have five batches of a partition on their way, and the last five are remembered. Two things make the
retry of a batch that *is* in the log look like one out of sequence. A snapshot keeps only the last batch of each
producer. And a client whose leader has changed may send new batches to the new one, while old ones, which that has too,
are still unanswered by the old one: they come again behind more than five. Apache Kafka refuses with
OUT_OF_ORDER_SEQUENCE_NUMBER; some clients then write the batch once more under a new epoch, others try for ever. So we
look before we refuse, in the `SEARCHED_BYTES` before the oldest batch that is remembered of the producer.

A retry is recognised by its whole header from the magic on: the numbers of the producer, and the checksum, which covers
all that the client sent and nothing that the leader stamps (base offset, leader epoch). Numbers alone do not do: a
producer id may be given out twice, where the metadata store is put back from a backup. Where the broker itself writes
what the checksum covers (LogAppendTime, a changed compression, compaction) a retry is not recognised, and refused as in
Kafka.

The header is looked for as bytes, in windows, without a step of Python for each batch. What is found may lie inside the
records of another batch, so the offset index has to confirm that an entry begins there.
"""

from typing import TYPE_CHECKING

from barnabas.storage.producers import Duplicate
from barnabas.wire.records import BATCH_OVERHEAD_BYTES, Steps, read_batch_header

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog
    from barnabas.storage.segment import Segment
    from barnabas.wire.records import Batch

SEARCHED_BYTES = 16 << 20  # five batches of the largest usual size (1 MiB), and what others wrote between them
WINDOW_BYTES = 1 << 18  # in one step: reading and searching it takes a quarter of a millisecond
LIKENESSES_MAX = 8  # inside records: confirming one costs more than a window, and a client may write many
MAGIC_AT = 16


def find_batch(log: "PartitionLog", wanted: "Batch") -> Steps[Duplicate | None]:
    """Where the batch that this one repeats lies. Blocking: long, step by step. StorageError, SearchDisturbed."""
    oldest = log.producers.oldest_remembered(wanted.header.producer_id)
    before = log.log_end_offset if oldest is None else oldest
    fingerprint = fingerprint_of(wanted)
    return log.segments.undisturbed(lambda: _find(list(log.segments), fingerprint, before))


def fingerprint_of(batch: "Batch") -> bytes:
    """What is the same in a batch that a client sends again: its header without what the leader stamps."""
    return bytes(batch.data[MAGIC_AT:BATCH_OVERHEAD_BYTES])


def _find(segments: "list[Segment]", fingerprint: bytes, before: int) -> Steps[Duplicate | None]:
    """The search in these segments, backwards, from the entry on that holds the offset `before`."""
    left, likenesses = SEARCHED_BYTES, LIKENESSES_MAX
    for segment in reversed(segments):
        if segment.base_offset >= before:
            continue
        span = segment.find(before, segment.store.private)
        end = segment.size_bytes if span is None else span.position
        with segment.store.private(segment.path) as file:
            while end > 0 and left > 0:
                start = max(end - min(WINDOW_BYTES, left), 0)
                window = file.read(start, end - start + BATCH_OVERHEAD_BYTES - 1)  # a batch begins in it
                at = window.find(fingerprint, MAGIC_AT)
                while at >= 0 and likenesses:
                    header = read_batch_header(window, at - MAGIC_AT)
                    if _begins_at(segment, header.base_offset, start + at - MAGIC_AT):
                        return Duplicate(header.base_offset, header.last_offset, header.max_timestamp)
                    likenesses -= 1
                    at = window.find(fingerprint, at + 1)
                left -= end - start
                end = start
                yield None
        if left <= 0 or not likenesses:
            return None
    return None


def _begins_at(segment: "Segment", base_offset: int, position: int) -> bool:
    """Whether the entry with this offset begins there."""
    if base_offset < segment.base_offset:
        return False
    span = segment.find(base_offset, segment.store.private)
    return span is not None and span.position == position
