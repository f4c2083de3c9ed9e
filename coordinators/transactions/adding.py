"""AddPartitionsToTxn, AddOffsetsToTxn (pure): the partitions of a transaction (T.7, T.8; KIP-98, KIP-890)."""

from barnabas.coordinators.transactions.events import (
    CONCURRENT,
    AddPartitions,
    Answer,
    Decision,
    VerifyPartitions,
    refuse,
)
from barnabas.coordinators.transactions.state import PREPARED, Producer, Status, TransactionalId
from barnabas.wire.errors import ErrorCode


def decide_adding(known: TransactionalId | None, event: AddPartitions, now_ms: int, *, pending: bool) -> Decision:
    """Add the partitions to the open transaction, or begin one. They are stored before any record is written to them.

    Error answers: those of `refusal_of`, CONCURRENT_TRANSACTIONS.
    """
    refused = refusal_of(known, event.producer)
    if refused or known is None:
        return refuse(refused)
    recorded = known.recorded
    if pending or recorded.status in PREPARED:
        return CONCURRENT
    done = Answer(ErrorCode.NONE)
    if recorded.status is Status.ONGOING:
        if all(each in recorded.partitions for each in event.partitions):
            return Decision(done)
        partitions, start_ms = {**recorded.partitions, **event.partitions}, recorded.start_ms
    # The partitions of the transaction before are in the record of Complete* no more; of Empty there are none.
    else:
        partitions, start_ms = dict(event.partitions), now_ms
    ongoing = recorded.entering(Status.ONGOING, now_ms)
    return Decision(done, ongoing._replace(partitions=partitions, start_ms=start_ms), known.previous)


def decide_verifying(known: TransactionalId | None, event: VerifyPartitions) -> Decision:
    """Say of each partition whether the transaction has it; TRANSACTION_ABORTABLE if not.

    Error answers: those of `refusal_of`, CONCURRENT_TRANSACTIONS (the transaction is decided).
    """
    refused = refusal_of(known, event.producer)
    if refused or known is None:
        return refuse(refused)
    # Not refused while a record is pending: the answer waits for it.
    if known.recorded.status in PREPARED:
        return CONCURRENT
    added = known.recorded.partitions
    errors = {each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE for each in event.partitions}
    return Decision(Answer(ErrorCode.NONE, partition_errors=errors))


def refusal_of(known: TransactionalId | None, producer: Producer) -> ErrorCode:
    """NONE if this is the owner of the id: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
    if known is None or producer.producer_id != known.recorded.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # A higher epoch than the current one was never given out, and is refused, too.
    if producer.producer_epoch != known.recorded.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE
