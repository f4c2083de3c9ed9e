"""The end of a transaction (pure): EndTxn, its timeout, its completion; and the end of an id (T.9, T.10; KIP-98)."""

from barnabas.coordinators.transactions.adding import refusal_of
from barnabas.coordinators.transactions.events import (
    CONCURRENT,
    NOTHING,
    Answer,
    Decision,
    EndTransaction,
    Tombstone,
    Unused,
    refuse,
)
from barnabas.coordinators.transactions.state import (
    AT_REST,
    EPOCH_MAX,
    NO_PARTITIONS,
    PREPARED,
    Recorded,
    Status,
    TransactionalId,
)
from barnabas.wire.errors import ErrorCode


def decide_end(known: TransactionalId | None, event: EndTransaction, now_ms: int, *, pending: bool) -> Decision:
    """Store the decision; the answer does not wait for the markers.

    Error answers: those of `refusal_of`, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    refused = refusal_of(known, event.producer)
    if refused or known is None:
        return refuse(refused)
    recorded = known.recorded
    # Until the markers are written, also where the client asks for the contrary of the decision: as in Kafka, it learns
    # that when it repeats the request.
    if pending or recorded.status in PREPARED:
        return CONCURRENT
    if recorded.status is Status.ONGOING:
        decided = recorded.entering(Status.PREPARE_COMMIT if event.commit else Status.PREPARE_ABORT, now_ms)
        return Decision(Answer(ErrorCode.NONE), decided, known.previous)
    # Without a transaction there is nothing to end; a decision cannot be reversed.
    if recorded.status is Status.EMPTY or recorded.is_commit != event.commit:
        return refuse(ErrorCode.INVALID_TXN_STATE)
    return Decision(Answer(ErrorCode.NONE))


def decide_timeout(known: TransactionalId, now_ms: int, *, pending: bool) -> Decision:
    """Abort the transaction if its time is over, and fence its producer, which may be alive and slow."""
    recorded = known.recorded
    # A pending record: the timeout is looked at again.
    if pending or not is_overdue(recorded, now_ms):
        return NOTHING
    return Decision(record=fence(recorded, now_ms))


def is_overdue(recorded: Recorded, now_ms: int) -> bool:
    """Whether the transaction is open for longer than its timeout."""
    return recorded.status is Status.ONGOING and recorded.start_ms + recorded.timeout_ms < now_ms


def fence(recorded: Recorded, now_ms: int) -> Recorded:
    """The abort of an open transaction whose producer may still be alive: with a higher epoch.

    The markers carry the epoch, and the partitions refuse all lower ones from then on.
    """
    # The highest epoch is given to no client, so the markers of a second fence need no higher one.
    epoch = min(recorded.producer_epoch + 1, EPOCH_MAX)
    return recorded.entering(Status.PREPARE_ABORT, now_ms)._replace(producer_epoch=epoch)


def decide_completion(known: TransactionalId, now_ms: int) -> Decision:
    """Store that each partition has its marker: the next transaction may begin."""
    recorded = known.recorded
    if recorded.status not in PREPARED or known.unmarked:
        return NOTHING
    status = Status.COMPLETE_COMMIT if recorded.is_commit else Status.COMPLETE_ABORT
    complete = recorded.entering(status, now_ms)._replace(partitions=NO_PARTITIONS)
    return Decision(record=complete, previous=known.previous)


def decide_unused(known: TransactionalId, event: Unused, now_ms: int, *, pending: bool) -> Decision:
    """Forget an id that was not used for long. A client that comes back gets a new producer id."""
    recorded = known.recorded
    if pending or recorded.status not in AT_REST or recorded.last_update_ms > now_ms - event.expiration_ms:
        return NOTHING
    return Decision(record=Tombstone())
