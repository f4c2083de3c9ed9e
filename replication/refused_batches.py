"""Batches of idempotent producers that were refused with a retriable error, and the batches behind them.

A producer sends up to five batches of a partition before the first is answered. The leader may change, the ISR grow, or
the transaction coordinator come back, between two of them. Then the first is refused (NOT_LEADER_OR_FOLLOWER,
NOT_ENOUGH_REPLICAS), and the second could be appended but has a gap in the sequence before it. Apache Kafka answers
OUT_OF_ORDER_SEQUENCE_NUMBER. Java's producer then sends all batches again. librdkafka takes a new producer epoch and
sends everything without a response again, also batches that an earlier leader appended: duplicates.

Here the second batch gets the error of the first, and the client sends both again in order. The Produce handler calls
`code_for` before an append and `note` after it.
"""

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import SEQUENCE_MAX
from barnabas.wire.sentinels import NO_PRODUCER_ID
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.records import BatchHeader

# Retriable: the same batch may succeed a moment later.
FOR_A_MOMENT = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR}
)
BEHIND_MAX = 4  # of the five batches that can be in flight, all but the refused one
REFUSED_MAX = 10_000  # pairs of producer and partition that are remembered; the oldest are dropped first


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    code: ErrorCode
    left: int  # the number of batches behind it that may still get its error


class RefusedBatches:
    """The first refused batch of each producer and partition, until that batch or a later one is appended."""

    def __init__(self) -> None:
        self._refused: dict[tuple[TopicPartition, int], _Refused] = {}

    def code_for(self, partition: "Partition", header: "BatchHeader") -> ErrorCode | None:
        """The error for a batch behind a refused one; None if the log alone decides.

        The caller appends in the same step, without an await in between.
        """
        if not self._refused:
            return None
        key = partition.topic_partition, header.producer_id
        refused = self._refused.get(key)
        if refused is None or not _is_behind(header, refused) or not _has_gap(partition, header):
            return None
        if refused.left > 1:
            self._refused[key] = refused._replace(left=refused.left - 1)
        # The refusal may be old: the batches were appended at another leader, and retention has removed them since.
        # Then this batch takes the place of the first refused one, and further ones may be on their way behind it.
        elif _is_unknown(partition, header):
            self._refused[key] = refused._replace(base_sequence=header.base_sequence, left=BEHIND_MAX)
        # Later batches were sent after the refusal arrived at the client, so the log alone decides about them.
        else:
            del self._refused[key]
        return refused.code

    def note(self, partition: "Partition", header: "BatchHeader", outcome: object) -> None:
        """Note the outcome of a batch: an error code, or an `Appended`."""
        if isinstance(outcome, ErrorCode):
            if outcome in FOR_A_MOMENT and header.producer_id != NO_PRODUCER_ID:
                self._note_refused((partition.topic_partition, header.producer_id), header, outcome)
        elif self._refused:
            self._refused.pop((partition.topic_partition, header.producer_id), None)

    def _note_refused(self, key: tuple[TopicPartition, int], header: "BatchHeader", code: ErrorCode) -> None:
        # The entry is popped even if it is set again: the dict is ordered by the last refusal.
        known = self._refused.pop(key, None)
        # The entry keeps the first refused batch: a batch between the two is behind the first, but not behind this one.
        first = known.base_sequence if known is not None and _is_behind(header, known) else header.base_sequence
        self._refused[key] = _Refused(header.producer_epoch, first, code, BEHIND_MAX)
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]


def _is_behind(header: "BatchHeader", refused: _Refused) -> bool:
    # Sequences wrap from SEQUENCE_MAX to 0; less than half the range ahead counts as behind the refused batch.
    ahead = (header.base_sequence - refused.base_sequence) & SEQUENCE_MAX
    return header.producer_epoch == refused.producer_epoch and 0 < ahead <= SEQUENCE_MAX // 2


def _has_gap(partition: "Partition", header: "BatchHeader") -> bool:
    """Whether the log would refuse the batch as out of order, or accept it only because the producer is unknown."""
    # The log accepts any first sequence of an unknown producer. If it took the second batch, the first would be refused
    # for ever.
    log = _usable_log(partition)
    if log is None or _is_unknown(partition, header):
        return True
    return log.producers.check(header, Origin.CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _is_unknown(partition: "Partition", header: "BatchHeader") -> bool:
    """Whether the log has nothing of the producer."""
    log = _usable_log(partition)
    return log is None or log.producers.get(header.producer_id) is None


def _usable_log(partition: "Partition") -> "PartitionLog | None":
    """The log, unless it is being truncated: a thread loads its producers again meanwhile."""
    log = partition.log
    return None if log is None or log.is_being_cut else log
