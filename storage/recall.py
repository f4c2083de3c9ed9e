"""Batches that are in the log, and that the producer's state does not remember any more.

A client may have five batches of a partition on their way, and the last five are remembered. Two things make the
retry of a batch that *is* in the log look like one out of sequence. A snapshot keeps only the last batch of each
producer. And a client whose leader has changed may send new batches to the new one, while old ones, which that has too,
are still unanswered by the old one: they come again behind more than five. Apache Kafka refuses with
OUT_OF_ORDER_SEQUENCE_NUMBER; some clients then write the batch once more under a new epoch, others try for ever. So we
look before we refuse, `SEARCHED_BYTES` back from the log end.
"""

from typing import TYPE_CHECKING

from barnabas.storage.entries import BATCH_MAGIC, PRODUCER_ID_AT, walk_file
from barnabas.storage.producers import Duplicate
from barnabas.wire.records import read_batch_header

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog
    from barnabas.storage.segment import Segment
    from barnabas.wire.records import BatchHeader

SEARCHED_BYTES = 16 << 20  # five batches of the largest usual size (1 MiB), and what others wrote between them


def find_batch(log: "PartitionLog", wanted: "BatchHeader") -> Duplicate | None:
    """Where the batch with the numbers of this one lies. Blocking: long; beside the loop. StorageError."""
    return log.segments.undisturbed(lambda: _find(list(log.segments), wanted))


def _find(segments: "list[Segment]", wanted: "BatchHeader") -> Duplicate | None:
    left = SEARCHED_BYTES
    for segment in reversed(segments):
        if left <= 0:
            return None
        position = segment.entry_position(max(segment.size_bytes - left, 0), segment.store.private)
        left -= segment.size_bytes - position
        with segment.store.private(segment.path) as file:
            for span, data in walk_file(file, position, segment.size_bytes):
                if span.magic < BATCH_MAGIC or data[PRODUCER_ID_AT] & 0x80:
                    continue  # no producer: -1
                header = read_batch_header(data)
                if _numbers(header) == _numbers(wanted) and not header.is_control:
                    return Duplicate(header.base_offset, header.last_offset, header.max_timestamp)
    return None


def _numbers(header: "BatchHeader") -> tuple[int, int, int, int]:
    return header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
