"""What a snapshot of the producers leaves out: the batches before each one's last, read back from the log's tail.

A client may have five batches of a partition on their way. Of a producer that was loaded from a snapshot only the last
is remembered; the retry of an older one that *is* in the log, but was never acknowledged, looks like a gap in the
sequence. Apache Kafka refuses it with OUT_OF_ORDER_SEQUENCE_NUMBER, which some clients take for a reason to write all
five once more under a new epoch. We look before we refuse: once after each load, `RECALLED_BYTES` back from where the
snapshot was taken, for all producers at once.
"""

from collections import deque
from typing import TYPE_CHECKING

from barnabas.storage.entries import BATCH_MAGIC, PRODUCER_ID_AT, walk_file
from barnabas.storage.producers import BATCHES_REMEMBERED, Recalled, RememberedBatch
from barnabas.wire.records import read_batch_header

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog
    from barnabas.storage.segment import Segment

RECALLED_BYTES = 16 << 20  # five batches of the largest usual size (1 MiB), and what others wrote between them


def read_recent_batches(log: "PartitionLog", end_offset: int) -> Recalled:
    """The last batches of every producer before `end_offset`. Blocking: long; beside the loop. StorageError."""
    return log.segments.undisturbed(lambda: _read(list(log.segments), end_offset))


def _read(segments: "list[Segment]", end_offset: int) -> Recalled:
    found: dict[int, deque[tuple[int, RememberedBatch]]] = {}
    for segment, position in reversed(_tail(segments, end_offset)):
        with segment.store.private(segment.path) as file:
            for span, data in walk_file(file, position, segment.size_bytes):
                if span.base_offset >= end_offset:
                    break
                if span.magic < BATCH_MAGIC or data[PRODUCER_ID_AT] & 0x80:
                    continue  # no producer: -1
                header = read_batch_header(data)
                if not header.is_control:
                    batches = found.setdefault(header.producer_id, deque(maxlen=BATCHES_REMEMBERED))
                    batches.append((header.producer_epoch, RememberedBatch.of(header)))
    return Recalled(end_offset, found)


def _tail(segments: "list[Segment]", end_offset: int) -> "list[tuple[Segment, int]]":
    """From the last segment before `end_offset` back: each with the position to read it from."""
    tail, wanted = [], RECALLED_BYTES
    for segment in reversed(segments):
        if segment.base_offset < end_offset and wanted > 0:
            end_position = segment.start_position(end_offset, segment.store.private)
            if segment.next_base_offset is not None and segment.next_base_offset <= end_offset:
                end_position = segment.size_bytes
            position = segment.entry_position(max(end_position - wanted, 0), segment.store.private)
            tail.append((segment, position))
            wanted -= end_position - position
    return tail
