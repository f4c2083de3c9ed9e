"""Search of the log's tail for a batch that the producer state does not remember any more.

An idempotent client may have five batches per partition in flight, and the producer state remembers the last five.
Still a retry of a batch that *is* in the log can look out of sequence, in two cases:

- A snapshot keeps only the last batch of each producer, so after a restart four of the five are unknown.
- After a change of leader a client sends new batches to the new leader while old ones, which the new leader has
  replicated, are still unanswered by the old leader. It then sends these again, behind more than five newer ones.
Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER; some clients then write the batch once more under a new epoch, others
retry for ever. This broker first searches `SEARCHED_BYTES` of the log.

A retry is recognised by its whole header from the magic on. A retry is not recognised, and refused as in Kafka, where
the broker itself writes what the checksum covers: LogAppendTime, a changed compression, compaction.
"""

from typing import TYPE_CHECKING

from barnabas.storage.producers import Duplicate
from barnabas.wire.record_batch import MAGIC_POSITION
from barnabas.wire.records import BATCH_OVERHEAD_BYTES, Steps, read_batch_header

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog
    from barnabas.storage.segment import Segment
    from barnabas.wire.records import Batch

SEARCHED_BYTES = 16 << 20  # five batches of 1 MiB, the usual largest size, and other producers' batches between them
WINDOW_BYTES = 1 << 18  # per step; reading and searching it takes about 0.25 ms
# Header bytes inside the records of another batch look like a match, and a client may write many of them on purpose. To
# check one costs more than to search a window, so their number is limited.
LIKENESSES_MAX = 8


def find_batch(log: "PartitionLog", wanted: "Batch") -> Steps[Duplicate | None]:
    """Find the batch in the log that `wanted` repeats. Blocking: long, step by step. StorageError, SearchDisturbed."""
    oldest = log.producers.oldest_remembered(wanted.header.producer_id)
    # The remembered batches were compared by their sequence numbers already, so only earlier ones are searched.
    before = log.log_end_offset if oldest is None else oldest
    fingerprint = fingerprint_of(wanted)
    return log.segments.undisturbed(lambda: _find(list(log.segments), fingerprint, before))


def fingerprint_of(batch: "Batch") -> bytes:
    """The part of the header that does not change when a client sends a batch again."""
    # It holds the producer's numbers, and the checksum over everything that the client sent; the leader's stamps (base
    # offset, leader epoch) lie before byte 16. The numbers alone are not enough: after the metadata store was restored
    # from a backup, a producer id may be assigned twice.
    return bytes(batch.data[MAGIC_POSITION:BATCH_OVERHEAD_BYTES])


def _find(segments: "list[Segment]", fingerprint: bytes, before: int) -> Steps[Duplicate | None]:
    """Search these segments backwards, from the entry that holds the offset `before`."""
    # The search goes backwards, because a client repeats its latest batches: the match is usually
    # near the end.
    left = SEARCHED_BYTES
    likenesses = LIKENESSES_MAX
    for segment in reversed(segments):
        if segment.base_offset >= before:
            continue
        span = segment.find(before, segment.store.private)
        end = segment.size_bytes if span is None else span.position
        with segment.store.private(segment.path) as file:
            # The header is searched as bytes, because a Python step for each batch would cost far more.
            while end > 0 and left > 0:
                start = max(end - min(WINDOW_BYTES, left), 0)

                # Windows overlap by one header less a byte, so that a header on the border is found whole in one of
                # them.
                window = file.read(start, end - start + BATCH_OVERHEAD_BYTES - 1)

                # The search begins at byte 16: the header of an earlier match begins in the next
                # window, which overlaps this one.
                at = window.find(fingerprint, MAGIC_POSITION)
                while at >= 0 and likenesses:
                    header = read_batch_header(window, at - MAGIC_POSITION)

                    # The match may lie inside the records of another batch; the offset index decides.
                    if _begins_at(segment, header.base_offset, start + at - MAGIC_POSITION):
                        return Duplicate(header.base_offset, header.last_offset, header.max_timestamp)
                    likenesses -= 1
                    at = window.find(fingerprint, at + 1)
                left -= end - start
                end = start
                yield None

        # The budget is for the whole search, not for each segment: a small segment.bytes does not make it longer.
        if left <= 0 or not likenesses:
            return None

    return None


def _begins_at(segment: "Segment", base_offset: int, position: int) -> bool:
    """Whether the entry that holds `base_offset` begins at `position`."""
    # Bytes inside records may claim any offset, also one that this segment cannot hold.
    if base_offset < segment.base_offset:
        return False
    span = segment.find(base_offset, segment.store.private)
    return span is not None and span.position == position
