"""Batches of idempotent producers that were refused for a moment, and the batches behind them.

A producer sends up to five batches of a partition before the first is answered. The leader may change, or the ISR grow,
between two of them: the first is refused (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS), and the next is not, but now
has a gap before it. Apache Kafka answers that one with OUT_OF_ORDER_SEQUENCE_NUMBER. Java's producer sends all of them
again; librdkafka takes a new producer epoch and writes again everything it has no answer for, also what an earlier
leader had appended: duplicates. And where the log knows nothing of the producer, any sequence may be its first: the
second batch would be appended, and the first refused for ever.

So a batch that has a gap before it since a refused one is refused as that was, and the client sends both again, in
order. This holds for as many batches as can have been on their way; later ones are judged by the log alone.
"""

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import SEQUENCE_MAX
from barnabas.wire.sentinels import NO_PRODUCER_ID
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.wire.records import BatchHeader

FOR_A_MOMENT = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR}
)
BEHIND_MAX = 4  # of five in flight, the others
REFUSED_MAX = 10_000  # producers and partitions that are remembered; the oldest go first


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    left: int  # how many batches behind it may still be refused for it


class RefusedBatches:
    """The first refused batch of each producer and partition, until it or a later one is appended."""

    def __init__(self) -> None:
        self._refused: dict[tuple[TopicPartition, int], _Refused] = {}

    def code_for(self, partition: "Partition", header: "BatchHeader") -> ErrorCode | None:
        """Why this batch is not to be appended now, although the log may take it; None if nothing is known against it.

        To be asked in the step that appends.
        """
        if not self._refused:
            return None
        key = partition.topic_partition, header.producer_id
        refused = self._refused.get(key)
        if refused is None or not _is_behind(header, refused) or not _has_gap(partition, header):
            return None
        if refused.left == 1:
            del self._refused[key]
        else:
            self._refused[key] = refused._replace(left=refused.left - 1)
        return refused.code

    def note(self, partition: "Partition", header: "BatchHeader", outcome: object) -> None:
        """This came of the batch: a code, or where it was appended."""
        if isinstance(outcome, ErrorCode):
            if outcome in FOR_A_MOMENT and header.producer_id != NO_PRODUCER_ID:
                self._note_refused((partition.topic_partition, header.producer_id), header, outcome)
        elif self._refused:
            self._refused.pop((partition.topic_partition, header.producer_id), None)

    def _note_refused(self, key: tuple[TopicPartition, int], header: "BatchHeader", code: ErrorCode) -> None:
        known = self._refused.pop(key, None)
        first = known.base_sequence if known is not None and _is_behind(header, known) else header.base_sequence
        self._refused[key] = _Refused(header.producer_epoch, first, code, BEHIND_MAX)
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]


def _is_behind(header: "BatchHeader", refused: _Refused) -> bool:
    ahead = (header.base_sequence - refused.base_sequence) & SEQUENCE_MAX
    return header.producer_epoch == refused.producer_epoch and 0 < ahead <= SEQUENCE_MAX // 2


def _has_gap(partition: "Partition", header: "BatchHeader") -> bool:
    """Whether the log would refuse the batch as out of order, or take it only because it does not know the producer."""
    producers = None if partition.log is None else partition.log.producers
    if producers is None or producers.get(header.producer_id) is None:
        return True
    return producers.check(header, Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
